//! The results of a run: a verdict for each case and property, and the counts of them.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::{Failure, Outcome, PROPERTIES, Verdict, whole_name};
use super::table::Table;

/// The number of groups, of failed cases one by one, and of names of cases that were not reached
/// that are shown unless all are asked for.
pub(super) const SHOWN_MAX: usize = 10;

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
    /// Whether text and Markdown show each failed case, not only the most common causes, and name
    /// each that was not reached.
    pub all: bool,
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

    /// The first names of what was not reached, or all if all are asked for, and the number of
    /// others.
    pub(super) fn not_reached_names(&self) -> (Vec<String>, usize) {
        let mut names: Vec<String> = self.not_reached().map(whole_name).collect();
        let count = names.len();
        names.truncate(if self.all { count } else { SHOWN_MAX });
        let others = count - names.len();
        (names, others)
    }

    /// The numbers of cases and of properties that were not reached.
    pub(super) fn not_reached_counts(&self) -> (usize, usize) {
        let properties = self.not_reached().filter(|it| it.family == PROPERTIES).count();
        (self.not_reached().count() - properties, properties)
    }

    /// Why the run ended early and what was not reached, as sentences, if it did.
    pub(super) fn explanation(&self) -> Option<String> {
        let ending = format!("The run did not complete: {}.", self.ending.as_ref()?);
        let (cases, properties) = self.not_reached_counts();
        let cases = counted(cases, "case", "cases");
        let properties = counted(properties, "property", "properties");
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
        for (count, problem) in [
            (sum.failed, "failed"),
            (sum.lacking, "need a command that the server lacks"),
            (sum.unknown, "could not be judged"),
        ] {
            if count > 0 {
                problems.push(format!("{count} {problem}"));
            }
        }
        if problems.is_empty() {
            problems.push(format!("{} passed", sum.passed));
        }
        let ending = self.explanation().map(|it| format!(" {it}")).unwrap_or_default();
        let problems = problems.join(", ");
        format!("Not green: of {tried} tried, {problems}{skipped}.{ending}")
    }
}

/// A number with its noun.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The reason of [`Verdict::NotReached`].
pub(super) fn not_reached(report: &Report) -> String {
    format!("not reached: {}", report.ending.as_deref().unwrap_or("the run ended early"))
}

/// The duration of the run in seconds.
pub(super) fn elapsed(report: &Report) -> String {
    format!("{}.{} s", report.elapsed_ms / 1000, report.elapsed_ms % 1000 / 100)
}

/// The line, cut to fit in a report. The JSON report has the whole line.
pub(super) fn short(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let cut: String = line.chars().take(columns).collect();
    format!("{cut}... ({} bytes)", line.len())
}
