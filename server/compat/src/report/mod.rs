//! The result of a run: a verdict for each case and property, the totals, and the output formats.

mod json;
mod junit;
mod markdown;
mod table;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use table::{Row, Score, Table};

use crate::properties::FAMILY;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The server's name and version, as it reports them.
    pub target: String,
    /// The server's address and the database that was used.
    pub address: String,
    /// The name, version and address of the reference server.
    pub reference: Option<String>,
    /// The selection that was run; everything if empty.
    pub only: Vec<String>,
    /// Whether only the most important cases were run.
    pub quick: bool,
    /// Whether the run can be green although the server lacks a command.
    pub allow_missing: bool,
    /// The results of the cases and properties, in the order of the table.
    pub outcomes: Vec<Outcome>,
    /// Remarks about the whole run.
    pub notices: Vec<String>,
    /// Why the run ended early, if it did.
    pub ending: Option<String>,
    /// The time limit of the run.
    pub time_limit_ms: u64,
    /// The duration of the run.
    pub elapsed_ms: u64,
}

/// The result of one case or property.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The family, a row of the table.
    pub family: String,
    /// The client library that uses it.
    pub client: Option<String>,
    /// The behaviour that is checked.
    pub name: String,
    /// Why it matters to a lock.
    pub why: String,
    /// The file of the case, or the seed of the property.
    pub place: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on one case or property.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The server behaves as required.
    Passed,
    /// The server does not: at most one failure for each protocol version.
    Failed(Vec<Failure>),
    /// The server lacks this command.
    Lacking(String),
    /// It was not run, for this reason.
    Skipped(String),
    /// It was not run, or not to its end, because the run ended early.
    NotReached,
    /// It could not be judged in time. This is not a pass.
    Unknown(String),
}

/// A behaviour that differs from the expected one.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// The protocol version, if it matters.
    pub protocol: Option<u8>,
    /// The line in the file, if it is a case.
    pub number: Option<usize>,
    /// The request.
    pub sent: String,
    /// The expected reply.
    pub expected: String,
    /// The reply that was received.
    pub came: String,
    /// The reply of the reference server, if there is one.
    pub reference: Option<String>,
    /// The events before the failure, one line each.
    pub story: Vec<String>,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Text,
    /// For a pull request or a page.
    Markdown,
    /// For programs; `docs/compat.md` explains the fields.
    Json,
    /// For CI servers.
    Junit,
}

impl Report {
    /// Whether something passed and nothing failed.
    pub fn is_green(&self) -> bool {
        let bad = |outcome: &Outcome| match outcome.verdict {
            Verdict::Failed(_) | Verdict::Unknown(_) => true,
            Verdict::Lacking(_) => !self.allow_missing,
            Verdict::Passed | Verdict::Skipped(_) | Verdict::NotReached => false,
        };
        let has_passed = self.outcomes.iter().any(|it| matches!(it.verdict, Verdict::Passed));
        has_passed && self.ending.is_none() && !self.outcomes.iter().any(bad)
    }

    /// The commands that the server lacks.
    pub fn lacking(&self) -> BTreeSet<&str> {
        self.lacking_counts().into_keys().collect()
    }

    /// The commands that the server lacks, and the number of cases that need each.
    pub fn lacking_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in &self.outcomes {
            if let Verdict::Lacking(command) = &outcome.verdict {
                *counts.entry(command.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// All failures.
    pub fn failures(&self) -> impl Iterator<Item = (&Outcome, &Failure)> {
        self.outcomes.iter().flat_map(|outcome| {
            let failures = match &outcome.verdict {
                Verdict::Failed(failures) => failures.as_slice(),
                _ => &[],
            };
            failures.iter().map(move |failure| (outcome, failure))
        })
    }

    /// The reasons why cases were skipped, and the number of cases for each.
    pub fn skipped_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in &self.outcomes {
            if let Verdict::Skipped(reason) = &outcome.verdict {
                *counts.entry(reason.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// The cases and properties that were not reached because the run ended early.
    pub fn not_reached(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|it| matches!(it.verdict, Verdict::NotReached))
    }

    /// The numbers of cases and of properties that were not reached.
    fn not_reached_counts(&self) -> (usize, usize) {
        let properties = self.not_reached().filter(|it| it.family == FAMILY).count();
        (self.not_reached().count() - properties, properties)
    }

    /// Why the run ended early and what was not reached, as sentences, if it did.
    fn explanation(&self) -> Option<String> {
        let ending = format!("The run did not complete: {}.", self.ending.as_ref()?);
        let count = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let (cases, properties) = self.not_reached_counts();
        let cases = count(cases, "case", "cases");
        let properties = count(properties, "property", "properties");
        Some(format!("{ending} Not reached: {cases} and {properties}."))
    }

    /// The totals.
    pub fn table(&self) -> Table {
        Table::of(&self.outcomes)
    }

    /// The overall verdict as one sentence.
    pub fn summary(&self) -> String {
        let table = self.table();
        let sum = &table.sum;
        let tried = sum.tried();
        let skipped = match sum.skipped {
            0 => String::new(),
            count => format!(" ({count} not tried)"),
        };
        if self.is_green() {
            let lacking = match sum.lacking {
                0 => String::new(),
                count => format!(", and the server lacks a command of {count} more, as allowed"),
            };
            let passed = format!("{} of {tried} passed{lacking}{skipped}", sum.passed);
            if self.quick || !self.only.is_empty() {
                return format!("No violation found in what was chosen: {passed}.");
            }
            let clients = match table.clients.len() {
                0 => String::new(),
                1 => format!(" for the locks of {}", table.clients[0].name),
                count => format!(" for the locks of all {count} clients"),
            };
            return format!("No violation found{clients}: {passed}.");
        }
        let mut problems = Vec::new();
        for (count, what) in [
            (sum.failed, "failed"),
            (sum.lacking, "need a command that the server lacks"),
            (sum.unknown, "could not be judged"),
        ] {
            if count > 0 {
                problems.push(format!("{count} {what}"));
            }
        }
        if problems.is_empty() {
            problems.push(format!("{} passed", sum.passed));
        }
        let ending = self.explanation().map(|it| format!(" {it}")).unwrap_or_default();
        let problems = problems.join(", ");
        format!("Not green: of {tried} tried, {problems}{skipped}.{ending}")
    }

    /// The report in the given format.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self, false),
            Format::Markdown => markdown::write(self),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        text::write(self, false)
    }

    /// The report for a terminal that shows colours.
    pub fn coloured_text(&self) -> String {
        text::write(self, true)
    }
}

impl Failure {
    /// The same with the prefix of the run removed from key names.
    pub(super) fn without(self, prefix: &str) -> Failure {
        let bare = |text: String| text.replace(prefix, "");
        Failure {
            sent: bare(self.sent),
            expected: bare(self.expected),
            came: bare(self.came),
            reference: self.reference.map(bare),
            story: self.story.into_iter().map(bare).collect(),
            ..self
        }
    }

    /// The file and line: `strings.txt:7`.
    fn place(&self, outcome: &Outcome) -> String {
        match self.number {
            Some(number) => format!("{}:{number}", outcome.place),
            None => outcome.place.clone(),
        }
    }
}

/// The failures of one result; those that are equal in both protocol versions are listed once.
fn merged(failures: &[Failure]) -> Vec<(String, &Failure)> {
    let mut merged: Vec<(Vec<u8>, &Failure)> = Vec::new();
    for failure in failures {
        let same = |other: &Failure| {
            let fields = |it: &Failure| (it.number, it.sent.clone(), it.came.clone());
            fields(other) == fields(failure)
        };
        match merged.iter_mut().find(|(_, other)| same(other)) {
            Some((protocols, _)) => protocols.extend(failure.protocol),
            None => merged.push((failure.protocol.into_iter().collect(), failure)),
        }
    }
    let name = |protocols: Vec<u8>| {
        let names: Vec<_> = protocols.iter().map(|it| format!("RESP{it}")).collect();
        names.join(" and ")
    };
    merged.into_iter().map(|(protocols, failure)| (name(protocols), failure)).collect()
}

/// The line, cut to fit in a report. The JSON report has the whole line.
fn short(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let cut: String = line.chars().take(columns).collect();
    format!("{cut}... ({} bytes)", line.len())
}

/// The reason of [`Verdict::NotReached`].
fn not_reached(report: &Report) -> String {
    format!("not reached: {}", report.ending.as_deref().unwrap_or("the run ended early"))
}

/// The name of a case or property with its family and client, as `--only` accepts it.
fn whole_name(outcome: &Outcome) -> String {
    let client = outcome.client.as_ref().map(|client| format!("{client}: ")).unwrap_or_default();
    format!("{}: {client}{}", outcome.family, outcome.name)
}

/// The duration of the run in seconds.
fn elapsed(report: &Report) -> String {
    format!("{}.{} s", report.elapsed_ms / 1000, report.elapsed_ms % 1000 / 100)
}
