//! The result of one case or property, and how it failed.

/// The family of all properties, a row of the table.
pub const PROPERTIES: &str = "Properties under contention";

/// The result of one case or property.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The family, a row of the table.
    pub family: String,
    /// The client library that uses it.
    pub client: Option<String>,
    /// The question that a property answers; a case answers none.
    pub question: Option<Question>,
    /// The behaviour that is checked.
    pub name: String,
    /// Why it matters to a lock.
    pub why: String,
    /// The file of the case, or the seed of the property.
    pub place: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The question that a property answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether two clients can hold a lock at once.
    HeldTwice,
    /// Whether a lock can be lost before its lease ends.
    LostEarly,
    /// Whether a client can release the lock of another one.
    ReleasedByOthers,
    /// Whether a waiting client can miss a free lock. It is no part of the verdict.
    Missed,
}

impl Question {
    /// Whether it is a part of the verdict.
    pub fn is_in_verdict(self) -> bool {
        self != Question::Missed
    }
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
    /// The kind of the difference, if it is a case: cases are grouped by it.
    pub cause: String,
    /// The reply of the reference server, if there is one.
    pub reference: Option<String>,
    /// The events before the failure, one line each.
    pub story: Vec<String>,
}

impl Failure {
    /// The same with the prefix of the run removed from key names.
    pub(crate) fn without(self, prefix: &str) -> Failure {
        let bare = |text: String| text.replace(prefix, "");
        Failure {
            sent: bare(self.sent),
            expected: bare(self.expected),
            came: bare(self.came),
            cause: bare(self.cause),
            reference: self.reference.map(bare),
            story: self.story.into_iter().map(bare).collect(),
            ..self
        }
    }

    /// The file and line: `strings.txt:7`.
    pub(super) fn place(&self, outcome: &Outcome) -> String {
        match self.number {
            Some(number) => format!("{}:{number}", outcome.place),
            None => outcome.place.clone(),
        }
    }
}

/// The failures of one result; those that are equal in both protocol versions are listed once.
pub(super) fn merged(failures: &[Failure]) -> Vec<(String, &Failure)> {
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

/// The name of a case or property with its family and client, as `--only` accepts it.
pub(super) fn whole_name(outcome: &Outcome) -> String {
    let client = outcome.client.as_ref().map(|client| format!("{client}: ")).unwrap_or_default();
    format!("{}: {client}{}", outcome.family, outcome.name)
}
