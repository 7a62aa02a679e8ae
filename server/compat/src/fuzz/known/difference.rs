//! What a known difference is, and what it is found in.

use crate::fuzz::episode::Step;
use crate::wire::frame::Frame;

/// A known difference.
pub struct KnownDifference {
    /// Its name.
    pub name: &'static str,
    /// The beginning of its line in `docs/differences.md`.
    pub line: &'static str,
    /// The commands that it concerns.
    pub(super) commands: &'static [&'static str],
    /// The references that it concerns.
    pub(super) references: References,
    /// Whether the states of the servers may differ afterwards, so that the episode ends.
    pub ends: bool,
    /// Whether a difference is this one: checks the command, the commands before it, and both
    /// replies.
    pub(super) is: fn(&ObservedDifference<'_>) -> bool,
}

/// A set of references.
#[derive(Clone, Copy)]
pub(super) enum References {
    Every,
    /// Those that report an older version of Redis.
    Before(u32, u32),
    /// Those that report this version of Redis or a later one.
    Since(u32, u32),
    Valkey,
}

/// A difference that occurred.
pub struct ObservedDifference<'a> {
    /// The command.
    pub words: &'a [Vec<u8>],
    /// All commands so far, of all clients. The last is the command itself, or another one if a
    /// blocked client got a reply or the command was queued.
    pub before: &'a [Step],
    /// The reply of the target; [`waits`] if there was none.
    pub ours: &'a Frame,
    /// The reply of the reference.
    pub theirs: &'a Frame,
    /// The largest time between the two requests.
    pub apart_ms: i64,
    /// The version of the reference.
    pub version: Version,
}

/// The version of a reference.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The version of Redis that it reports.
    pub redis: (u32, u32),
    /// Whether it is a Valkey.
    pub is_valkey: bool,
}

impl ObservedDifference<'_> {
    /// The command that was sent last.
    pub(super) fn cause(&self) -> &[Vec<u8>] {
        self.before.last().map_or(self.words, |step| &step.words)
    }

    /// Whether a blocked client got a reply.
    pub(super) fn was_waiting(&self) -> bool {
        self.cause() != self.words
    }
}

/// The placeholder for the reply of a blocked client.
pub fn waits() -> Frame {
    Frame { kind: b'+', text: b"waits".to_vec(), items: vec![], missing: false }
}

impl References {
    pub(super) fn holds(self, version: Version) -> bool {
        match self {
            References::Every => true,
            References::Before(major, minor) => version.redis < (major, minor),
            References::Since(major, minor) => version.redis >= (major, minor),
            References::Valkey => version.is_valkey,
        }
    }
}

impl std::fmt::Debug for KnownDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
