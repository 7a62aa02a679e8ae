//! What a report consists of. The JSON format has these fields: if one is renamed or removed, its
//! number changes.

use serde::Serialize;

use crate::cause::Cause;
use crate::record::{Fault, Observation};

/// What a run has found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The servers, as the user named them, without passwords.
    pub target: String,
    /// The name and version of each server, as it says.
    pub servers: Vec<String>,
    /// The identifier of the run, which is part of all its keys; empty for a history from elsewhere
    /// ([`Report::is_of_history`]).
    pub run: String,
    /// Seed of the choices of the clients.
    pub seed: u64,
    /// Start of the run, in microseconds on the clock of [`crate::clock::now_us`].
    pub started_us: i64,
    /// The same moment in microseconds since 1970, to show times of the day. 0 for a history: its
    /// times are shown in microseconds since `started_us`.
    pub started_wall_us: i64,
    /// Length of the run.
    pub seconds: f64,
    /// Number of clients.
    pub clients: usize,
    /// Requests of all clients in a second, at most; 0 for a history.
    pub rate: u32,
    /// Longest lease in milliseconds; 0 for a history.
    pub lease_ms: u64,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// The numbers of all kinds of locks together.
    pub totals: Totals,
    /// The numbers of each kind of lock.
    pub kinds: Vec<(String, Totals)>,
    /// Longest time in which no lock was granted although a free one was asked for, in
    /// microseconds.
    pub longest_without_grant_us: i64,
    /// The violations with a story, the worst first. There is a limit to their number.
    pub cases: Vec<Case>,
    /// The faults, in order.
    pub faults: Vec<Fault>,
    /// The changes of servers, in order.
    pub observations: Vec<Observation>,
    /// What this run does not show, one sentence each.
    pub not_exercised: Vec<String>,
    /// What made the run weaker than intended, one sentence each.
    pub warnings: Vec<String>,
}

/// The numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests that were sent.
    pub requests: u64,
    /// Grants.
    pub granted: u64,
    /// Grants while another client held the lock.
    pub granted_twice: u64,
    /// Holders that were refused within their leases.
    pub lost_early: u64,
    /// Renewals and releases by clients that did not hold the lock.
    pub used_by_others: u64,
    /// Fencing tokens that are not greater than an earlier one.
    pub wrong_tokens: u64,
    /// Replies with a wrong number of holds.
    pub wrong_counts: u64,
    /// Free locks that were refused. The lock is safe, but of no use for a while.
    pub free_refused: u64,
    /// Requests without a reply. They are not judged.
    pub unanswered: u64,
}

/// A violation with what led to it.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// What is wrong, such as `the lock is held twice at once`.
    pub problem: String,
    /// Its place among the kinds of violations: 0 is the worst.
    pub rank: u8,
    /// The kind of lock: the name of a [`crate::LockKind`].
    pub kind: String,
    /// The key of the lock.
    pub lock: String,
    /// Time of the reply that proves the violation.
    pub at_us: i64,
    /// How long two clients could rely on the lock at once; 0 for other violations.
    pub overlap_us: i64,
    /// Class of the failure.
    pub cause: Cause,
    /// What happened, in order.
    pub story: Vec<StoryLine>,
    /// The times in which clients could rely on the lock, for a picture.
    pub holds: Vec<HoldSpan>,
}

/// A line of a story.
#[derive(Clone, Debug, Serialize)]
pub struct StoryLine {
    /// The time of the reply, of the observation or of the fault.
    pub at_us: i64,
    /// Client, `fault` or `observed`.
    pub actor: String,
    /// The request and its reply, or what happened.
    pub text: String,
    /// The server that replied or changed; empty for a fault.
    pub server: String,
    /// Whether the line is one of those that prove the violation.
    pub is_proof: bool,
}

/// A time in which a client could rely on a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldSpan {
    /// The client.
    pub client: String,
    /// When it received the grant.
    pub from_us: i64,
    /// When it released the lock, or the lease ended.
    pub until_us: i64,
}

impl Case {
    /// Its order among other cases, the worst first.
    pub(crate) fn order(&self) -> (u8, i64, i64) {
        (self.rank, -self.overlap_us, self.at_us)
    }
}

impl Totals {
    /// Answers that no correct lock gives.
    pub fn violations(&self) -> u64 {
        self.granted_twice
            + self.lost_early
            + self.used_by_others
            + self.wrong_tokens
            + self.wrong_counts
    }
}

impl Report {
    /// Whether this is about a history from elsewhere. Then servers, faults and the time of the day
    /// are not known, and the longest time without a grant was not measured.
    pub fn is_of_history(&self) -> bool {
        self.run.is_empty()
    }

    /// Whether nothing was found.
    pub fn is_green(&self) -> bool {
        self.totals.violations() == 0
    }

    /// Whether a fault took effect, as far as can be seen.
    pub fn has_effective_fault(&self) -> bool {
        self.faults.iter().any(|fault| !fault.effects.is_empty())
    }
}
