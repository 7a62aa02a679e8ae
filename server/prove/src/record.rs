//! What a run has seen: requests with their replies, changes of servers, and faults.

use lockwheel_compat::judge::history::{Answer, Event};
use serde::Serialize;

/// A server from one start to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ServerProcess {
    /// Its address, `HOST:PORT`.
    pub address: String,
    /// Its `run_id`; empty if it does not say.
    pub run_id: String,
}

/// A request of a client to a lock.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request and its answer, for the judge. The lock is its key.
    pub event: Event,
    /// The kind of lock: the name of a [`crate::LockKind`].
    pub kind: &'static str,
    /// The servers that replied; those that were asked, without a reply.
    pub servers: Vec<ServerProcess>,
    /// The command as a person reads it; empty if it is not known.
    pub request: String,
    /// The reply as a person reads it, or why there is none.
    pub reply: String,
}

impl Record {
    /// A request of which only the event is known.
    pub fn of_history(kind: &'static str, event: Event) -> Record {
        let mut reply = match event.answer {
            Answer::Unknown => "no reply".to_owned(),
            answer => answer.to_string(),
        };
        for (name, value) in [("token", event.token), ("count", event.count)] {
            reply.extend(value.map(|value| format!(" {name} {value}")));
        }
        let request = String::new();
        Record { kind, servers: Vec::new(), request, reply, event }
    }

    /// Time of the reply; of the request if there is none.
    pub(crate) fn returned_us(&self) -> i64 {
        self.event.returned_us.unwrap_or(self.event.invoked_us)
    }
}

/// A change of a server that was seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// When it was seen, on the clock of [`crate::clock::now_us`].
    pub at_us: i64,
    /// The address of the server.
    pub server: String,
    /// The change.
    pub change: Change,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It does not answer, for this reason.
    Unreachable(String),
    /// It answers again.
    Reachable,
    /// Its process is another one than before.
    Restarted,
    /// It became the primary.
    BecamePrimary,
    /// It became a replica.
    BecameReplica,
    /// Its wall clock was moved by this number of milliseconds.
    ClockMoved(i64),
    /// The sentinels name another primary: this address.
    NamedPrimary,
}

impl Change {
    /// Whether the server was seen to be the primary from then on.
    pub(crate) fn is_promotion(&self) -> bool {
        matches!(self, Change::BecamePrimary | Change::NamedPrimary)
    }
}

/// A fault that was injected, or that the user reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What was done, such as `SIGKILL to process 4711`.
    pub name: String,
    /// Its start.
    pub begin_us: i64,
    /// Its end: what was done has been undone, or it was of a moment.
    pub end_us: i64,
    /// What shows that it took effect, such as `8 connections ended`. Empty: the effect is unknown.
    pub effects: Vec<String>,
}
