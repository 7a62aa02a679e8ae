//! The sums: a row to a family, and to a client within the recipes.

use super::{Outcome, Verdict};

/// The rows and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// By what it is about, in the order of the cases.
    pub families: Vec<Row>,
    /// By the client library whose habit it is, by name.
    pub clients: Vec<Row>,
    /// Of everything.
    pub sum: Score,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The family or client.
    pub name: String,
    /// What came of it.
    pub score: Score,
}

/// How many of each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// As it must be.
    pub passed: usize,
    /// Not as it must be.
    pub failed: usize,
    /// The server has not got a command of it.
    pub lacking: usize,
    /// Not judged in time.
    pub unknown: usize,
    /// Not tried.
    pub skipped: usize,
}

impl Score {
    /// How many were tried: all but those that were skipped.
    pub fn tried(&self) -> usize {
        self.passed + self.failed + self.lacking + self.unknown
    }

    fn count(&mut self, verdict: &Verdict) {
        let field = match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Lacking(_) => &mut self.lacking,
            Verdict::Unknown(_) => &mut self.unknown,
            Verdict::Skipped(_) => &mut self.skipped,
        };
        *field += 1;
    }
}

impl Table {
    /// Counts.
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
