//! What came of a run: a verdict for each thing tried, the sums that people ask for, and the forms
//! in which they are written.

mod json;
mod junit;
mod markdown;
mod table;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use table::{Row, Score, Table};

/// A run's result.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the server says it is.
    pub target: String,
    /// Where it is, and the database that was used.
    pub address: String,
    /// What the reference says it is, and where.
    pub reference: Option<String>,
    /// What was chosen; everything if empty.
    pub only: Vec<String>,
    /// Whether a command that the server lacks leaves the run green.
    pub allow_missing: bool,
    /// What was tried, in the order of the table.
    pub outcomes: Vec<Outcome>,
    /// What holds for the whole run and was worth saying once.
    pub notices: Vec<String>,
    /// Why the run ended before all was tried, if it did.
    pub ending: Option<String>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it is about, a row of the table.
    pub family: String,
    /// The client library whose habit it is.
    pub client: Option<String>,
    /// What must hold.
    pub name: String,
    /// Why it matters to a lock.
    pub why: String,
    /// The file it stands in, or the property's name.
    pub place: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of one thing that was tried.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is as it must be.
    Passed,
    /// It is not, once for each protocol version at most.
    Failed(Vec<Failure>),
    /// The server has not got a command of it.
    Lacking(String),
    /// It was not tried, for this reason.
    Skipped(String),
    /// It could not be judged in time: this is no pass.
    Unknown(String),
}

/// Something that is not as it must be.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// The version of the protocol, if it matters.
    pub protocol: Option<u8>,
    /// The line of the file, if it stands in one.
    pub number: Option<usize>,
    /// What was sent.
    pub sent: String,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub came: String,
    /// What the reference said, if it was asked.
    pub reference: Option<String>,
    /// What had happened until then, a line each.
    pub story: Vec<String>,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Text,
    /// For a pull request or a page.
    Markdown,
    /// For programs; `docs/compat.md` explains the fields.
    Json,
    /// For CI servers.
    Junit,
}

impl Report {
    /// Whether everything that was tried is as it must be.
    pub fn is_green(&self) -> bool {
        let bad = |outcome: &Outcome| match outcome.verdict {
            Verdict::Failed(_) | Verdict::Unknown(_) => true,
            Verdict::Lacking(_) => !self.allow_missing,
            Verdict::Passed | Verdict::Skipped(_) => false,
        };
        let has_passed = self.outcomes.iter().any(|it| matches!(it.verdict, Verdict::Passed));
        has_passed && self.ending.is_none() && !self.outcomes.iter().any(bad)
    }

    /// The commands that the server has not got.
    pub fn lacking(&self) -> BTreeSet<&str> {
        self.lacking_counts().into_keys().collect()
    }

    /// The commands that the server has not got, and how many things could not be tried for each.
    pub fn lacking_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in &self.outcomes {
            if let Verdict::Lacking(command) = &outcome.verdict {
                *counts.entry(command.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// What failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Outcome, &Failure)> {
        self.outcomes.iter().flat_map(|outcome| {
            let failures = match &outcome.verdict {
                Verdict::Failed(failures) => failures.as_slice(),
                _ => &[],
            };
            failures.iter().map(move |failure| (outcome, failure))
        })
    }

    /// Why things were not tried, and how many for each reason.
    pub fn skipped_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in &self.outcomes {
            if let Verdict::Skipped(reason) = &outcome.verdict {
                *counts.entry(reason.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// The sums.
    pub fn table(&self) -> Table {
        Table::of(&self.outcomes)
    }

    /// The verdict in a sentence.
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
            if !self.only.is_empty() {
                return format!("Green, of what was chosen: {passed}.");
            }
            let clients = match table.clients.len() {
                0 => String::new(),
                1 => format!(" of {}", table.clients[0].name),
                count => format!(" of all {count} clients"),
            };
            return format!("Safe for the locks{clients}: {passed}.");
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
        let ending =
            self.ending.as_ref().map(|it| format!(" The run did not get to its end: {it}."));
        let problems = problems.join(", ");
        format!("Not green: of {tried} tried, {problems}{skipped}.{}", ending.unwrap_or_default())
    }

    /// The whole, in some form.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self, false),
            Format::Markdown => markdown::write(self),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        text::write(self, false)
    }

    /// For a terminal that shows colours.
    pub fn coloured_text(&self) -> String {
        text::write(self, true)
    }
}

impl Failure {
    /// With keys told by the names their case gives them.
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

    /// Where it stands: `strings.txt:7`.
    fn place(&self, outcome: &Outcome) -> String {
        match self.number {
            Some(number) => format!("{}:{number}", outcome.place),
            None => outcome.place.clone(),
        }
    }
}

/// The failures of one outcome, with the versions of the protocol in which they are the same.
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

/// A line that fits in a report: the whole is in the JSON.
fn short(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let cut: String = line.chars().take(columns).collect();
    format!("{cut}... ({} bytes)", line.len())
}

/// How long it took, for people.
fn elapsed(report: &Report) -> String {
    format!("{}.{} s", report.elapsed_ms / 1000, report.elapsed_ms % 1000 / 100)
}
