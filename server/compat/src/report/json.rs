//! Writes the report as JSON. Within one schema number fields are only added, never renamed or
//! removed.

use std::borrow::Cow;

use serde::Serialize;

use super::groups::Group;
use super::outcome::{Failure, Outcome, Verdict};
use super::results::{Report, not_reached};
use super::table::{Row, Score};

/// Increased when a field is renamed or removed, or its meaning changes.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'r> {
    schema: u32,
    lockwheel: &'static str,
    green: bool,
    summary: String,
    verdict: Vec<Answer>,
    target: &'r str,
    address: &'r str,
    reference: Option<&'r str>,
    only: &'r [String],
    quick: bool,
    allow_missing: bool,
    ending: Option<&'r str>,
    not_reached: NotReached,
    time_limit_ms: u64,
    elapsed_ms: u64,
    totals: Counts,
    families: Vec<Sum<'r>>,
    clients: Vec<Sum<'r>>,
    lacking: Vec<Lacking<'r>>,
    causes: Vec<Cause<'r>>,
    notices: &'r [String],
    cases: Vec<Item<'r>>,
}

#[derive(Serialize)]
struct Answer {
    question: &'static str,
    answer: String,
}

#[derive(Serialize)]
struct NotReached {
    cases: usize,
    properties: usize,
}

#[derive(Serialize)]
struct Counts {
    tried: usize,
    passed: usize,
    failed: usize,
    lacking: usize,
    unknown: usize,
    skipped: usize,
}

#[derive(Serialize)]
struct Sum<'r> {
    name: &'r str,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Serialize)]
struct Lacking<'r> {
    command: &'r str,
    cases: usize,
}

#[derive(Serialize)]
struct Cause<'r> {
    cause: &'r str,
    cases: usize,
    examples: Vec<String>,
}

#[derive(Serialize)]
struct Item<'r> {
    family: &'r str,
    client: Option<&'r str>,
    name: &'r str,
    why: &'r str,
    place: &'r str,
    verdict: &'static str,
    /// The missing command, or why the case was skipped or could not be judged.
    reason: Option<Cow<'r, str>>,
    failures: Vec<JsonFailure<'r>>,
}

#[derive(Serialize)]
struct JsonFailure<'r> {
    protocol: Option<u8>,
    line: Option<usize>,
    sent: &'r str,
    expected: &'r str,
    came: &'r str,
    cause: &'r str,
    reference: Option<&'r str>,
    story: &'r [String],
}

/// The report as JSON.
pub(super) fn write(report: &Report) -> String {
    let table = report.table();
    let lacking = report.lacking_counts().into_iter();
    let (cases, properties) = report.not_reached_counts();
    let answer = |(question, answer)| Answer { question, answer };
    let groups = report.groups();
    let document = Document {
        schema: SCHEMA,
        lockwheel: env!("CARGO_PKG_VERSION"),
        green: report.is_green(),
        summary: report.summary(),
        verdict: report.verdict().into_iter().map(answer).collect(),
        target: &report.target,
        address: &report.address,
        reference: report.reference.as_deref(),
        only: &report.only,
        quick: report.quick,
        allow_missing: report.allow_missing,
        ending: report.ending.as_deref(),
        not_reached: NotReached { cases, properties },
        time_limit_ms: report.time_limit_ms,
        elapsed_ms: report.elapsed_ms,
        totals: counts(&table.sum),
        families: table.families.iter().map(sum).collect(),
        clients: table.clients.iter().map(sum).collect(),
        lacking: lacking.map(|(command, cases)| Lacking { command, cases }).collect(),
        causes: groups.iter().map(cause).collect(),
        notices: &report.notices,
        cases: report.outcomes.iter().map(|outcome| item(report, outcome)).collect(),
    };
    // Serialisation of these types cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn cause<'r>(group: &Group<'r>) -> Cause<'r> {
    Cause { cause: group.cause, cases: group.cases.len(), examples: group.names() }
}

fn counts(score: &Score) -> Counts {
    let Score { passed, failed, lacking, unknown, skipped } = *score;
    Counts { tried: score.tried(), passed, failed, lacking, unknown, skipped }
}

fn sum(row: &Row) -> Sum<'_> {
    Sum { name: &row.name, counts: counts(&row.score) }
}

fn item<'r>(report: &Report, outcome: &'r Outcome) -> Item<'r> {
    let some = |text: &'r str| Some(Cow::Borrowed(text));
    let (verdict, reason, failures): (_, _, &[Failure]) = match &outcome.verdict {
        Verdict::Passed => ("passed", None, &[]),
        Verdict::Failed(failures) => ("failed", None, failures),
        Verdict::Lacking(command) => ("lacking", some(command), &[]),
        Verdict::Skipped(reason) => ("skipped", some(reason), &[]),
        Verdict::NotReached => ("skipped", Some(Cow::Owned(not_reached(report))), &[]),
        Verdict::Unknown(reason) => ("unknown", some(reason), &[]),
    };
    Item {
        family: &outcome.family,
        client: outcome.client.as_deref(),
        name: &outcome.name,
        why: &outcome.why,
        place: &outcome.place,
        verdict,
        reason,
        failures: failures.iter().map(fault).collect(),
    }
}

fn fault(failure: &Failure) -> JsonFailure<'_> {
    JsonFailure {
        protocol: failure.protocol,
        line: failure.number,
        sent: &failure.sent,
        expected: &failure.expected,
        came: &failure.came,
        cause: &failure.cause,
        reference: failure.reference.as_deref(),
        story: &failure.story,
    }
}
