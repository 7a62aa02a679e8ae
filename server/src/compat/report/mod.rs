//! What came of a run: a verdict for each thing tried, and the sums that people ask for.

mod text;

use std::collections::BTreeSet;

/// A run's result.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the server says it is.
    pub target: String,
    /// What the reference says it is.
    pub reference: Option<String>,
    /// What was tried, in the order of the table.
    pub outcomes: Vec<Outcome>,
    /// What holds for the whole run and was worth saying once.
    pub notices: Vec<String>,
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

impl Report {
    /// Whether everything that was tried is as it must be.
    pub fn is_green(&self) -> bool {
        let bad = |outcome: &&Outcome| {
            matches!(
                outcome.verdict,
                Verdict::Failed(_) | Verdict::Lacking(_) | Verdict::Unknown(_)
            )
        };
        !self.outcomes.is_empty() && self.outcomes.iter().find(bad).is_none()
    }

    /// The commands that the server has not got.
    pub fn lacking(&self) -> BTreeSet<&str> {
        fn command(outcome: &Outcome) -> Option<&str> {
            match &outcome.verdict {
                Verdict::Lacking(command) => Some(command.as_str()),
                _ => None,
            }
        }
        self.outcomes.iter().filter_map(command).collect()
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

    /// For a terminal.
    pub fn text(&self) -> String {
        text::write(self)
    }
}
