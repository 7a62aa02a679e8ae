//! The cells of the tables of a report. The first row has the headings.

use std::collections::BTreeMap;

use super::results::{Case, Report, Totals};
use super::verdict::PROMISES;
use super::words::{counted, number, size, span};

/// Rows of cells.
pub(super) type Rows = Vec<Vec<String>>;

/// The first cell of the lines of a story that prove the violation.
pub(super) const PROOF: &str = "*";

/// What happened before a violation.
pub(super) fn story(report: &Report, case: &Case) -> Rows {
    let mut rows = vec![row(["", "time", "client", "server", "request and reply, or event"])];
    rows.extend(case.story.iter().map(|line| {
        let mark = if line.is_proof { PROOF } else { "" };
        row([mark, &report.time(line.at_us), &line.actor, &line.server, &line.text])
    }));
    rows
}

/// The violations with a story, counted by kind of lock and cause. They are not all violations if
/// there are very many.
pub(super) fn causes(report: &Report) -> Rows {
    let mut counts = BTreeMap::new();
    for case in &report.cases {
        let key = (case.rank, &case.problem, &case.kind, case.cause);
        *counts.entry(key).or_insert(0_u64) += 1;
    }
    let mut rows = vec![row(["count", "problem", "kind", "cause"])];
    rows.extend(counts.into_iter().map(|((_, problem, kind, cause), count)| {
        row([&number(count), problem, kind, &cause.to_string()])
    }));
    rows
}

/// The number of violations that [`causes`] does not contain.
pub(super) fn without_cause(report: &Report) -> u64 {
    report.totals.violations().saturating_sub(size(report.cases.len()))
}

/// The faults.
pub(super) fn faults(report: &Report) -> Rows {
    let mut rows = vec![row(["time", "length", "fault", "effects"])];
    rows.extend(report.faults.iter().map(|fault| {
        let effects = match &fault.effects[..] {
            [] => "effect unknown".to_owned(),
            effects => effects.join("; "),
        };
        let span_us = fault.end_us.saturating_sub(fault.begin_us);
        let lasted = if span_us > 0 { span(span_us) } else { String::new() };
        row([&report.time(fault.begin_us), &lasted, &fault.name, &effects])
    }));
    rows
}

/// The kinds of locks with their numbers. Columns of rare numbers are left out if they are zero.
pub(super) fn kinds(report: &Report) -> Rows {
    type Column = (&'static str, fn(&Totals) -> u64);
    let mut columns: Vec<Column> = vec![("granted", |totals| totals.granted)];
    columns.extend(PROMISES.iter().map(|promise| (promise.heading, promise.count)));
    columns.push(("free refused", |totals| totals.free_refused));
    columns.push(("no reply", |totals| totals.unanswered));
    let mut at = 0;
    columns.retain(|(_, count)| {
        at += 1;
        at <= 3 || count(&report.totals) > 0
    });
    let headings = ["kind"].into_iter().chain(columns.iter().map(|(heading, _)| *heading));
    let mut rows = vec![headings.map(str::to_owned).collect()];
    let all = ("all".to_owned(), report.totals);
    let sum = (report.kinds.len() > 1).then_some(&all);
    rows.extend(report.kinds.iter().chain(sum).map(|(name, totals)| {
        let numbers = columns.iter().map(|(_, count)| number(count(totals)));
        [name.clone()].into_iter().chain(numbers).collect()
    }));
    rows
}

/// What the run was.
pub(super) fn run(report: &Report) -> Vec<(&'static str, String)> {
    let requests = counted(report.totals.requests, "request", "requests");
    let clients = counted(size(report.clients), "client", "clients");
    let mut load = ("Load", format!("{requests} of {clients}"));
    if report.rate > 0 {
        let lease_us = i64::try_from(report.lease_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let (rate, lease) = (number(report.rate.into()), span(lease_us));
        load.1 += &format!(", at most {rate} in a second, leases up to {lease}");
    }
    if report.is_of_history() {
        return vec![("History", report.target.clone()), load];
    }
    let (date, time) = (report.date(report.started_us), report.time(report.started_us));
    let end = if report.interrupted { ", ended early by the user" } else { "" };
    let mut facts = vec![("Target", report.target.clone())];
    facts.extend(report.servers.iter().enumerate().map(|(at, server)| {
        let name = if at == 0 { "Servers" } else { "" };
        (name, server.clone())
    }));
    facts.extend([
        ("Run", report.run.clone()),
        ("Seed", report.seed.to_string()),
        ("Started", format!("{date} {time} UTC")),
        ("Length", format!("{:.1} s{end}", report.seconds)),
        load,
    ]);
    facts
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
