//! The totals of a report: a row for each family and for each client library.

use super::outcome::{Outcome, Verdict};

/// The rows and their total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// By family, in the order of the cases.
    pub families: Vec<Row>,
    /// By client library, sorted by name.
    pub clients: Vec<Row>,
    /// The total.
    pub sum: Score,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The family or client library.
    pub name: String,
    /// The number of each verdict.
    pub score: Score,
}

/// The number of each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Number of cases and properties in which the server behaves as required.
    pub passed: usize,
    /// Number of those in which it does not.
    pub failed: usize,
    /// Number of those for which the server lacks a command.
    pub lacking: usize,
    /// Number of those that could not be judged in time.
    pub unknown: usize,
    /// Number of those that were not run, or not to their end.
    pub skipped: usize,
}

impl Score {
    /// The number that were run: all but those that were skipped.
    pub fn tried(&self) -> usize {
        self.passed + self.failed + self.lacking + self.unknown
    }

    fn count(&mut self, verdict: &Verdict) {
        let field = match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Lacking(_) => &mut self.lacking,
            Verdict::Unknown(_) => &mut self.unknown,
            Verdict::Skipped(_) | Verdict::NotReached => &mut self.skipped,
        };
        *field += 1;
    }
}

impl Table {
    /// Counts the verdicts.
    pub fn of(outcomes: &[Outcome]) -> Table {
        let mut table = Table::default();
        for outcome in outcomes {
            table.sum.count(&outcome.verdict);
            row(&mut table.families, &outcome.family).count(&outcome.verdict);
            if let Some(client) = &outcome.client {
                row(&mut table.clients, client).count(&outcome.verdict);
            }
        }
        table.clients.sort_by_key(|row| row.name.to_lowercase());
        table
    }
}

fn row<'r>(rows: &'r mut Vec<Row>, name: &str) -> &'r mut Score {
    let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
        rows.push(Row { name: name.to_owned(), score: Score::default() });
        rows.len() - 1
    });
    &mut rows[at].score
}
