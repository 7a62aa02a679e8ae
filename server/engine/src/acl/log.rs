//! The log of refusals: `ACL LOG`.

use std::collections::VecDeque;

use crate::limits::ACL_LOG_OBJECT_BYTES_MAX;
use crate::timing::time::Millis;

/// Milliseconds within which equal refusals share an entry, as in Redis.
const GROUPED_MS: i64 = 60_000;

/// Entries that are searched for an equal one, as in Redis.
const SEARCHED_ENTRIES: usize = 10;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    /// A wrong password or user.
    Authentication,
}

impl Reason {
    /// The word in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Authentication => "auth",
        }
    }
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    /// The number of equal refusals.
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    /// Where: `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    /// The command, key or channel.
    pub(crate) object: Box<[u8]>,
    pub(crate) username: Box<[u8]>,
    /// The line of the client in `CLIENT LIST`.
    pub(crate) client: String,
    pub(crate) id: u64,
    /// The wall clock at the first and at the last of the refusals.
    pub(crate) created_at: Millis,
    pub(crate) updated_at: Millis,
}

impl LogEntry {
    /// A refusal at a moment of the wall clock.
    pub(crate) fn new(
        reason: Reason,
        context: &'static str,
        object: &[u8],
        username: &[u8],
        client: String,
        at: Millis,
    ) -> LogEntry {
        let cut = |text: &[u8]| text[..text.len().min(ACL_LOG_OBJECT_BYTES_MAX)].into();
        LogEntry {
            count: 1,
            reason,
            context,
            object: cut(object),
            username: cut(username),
            client,
            id: 0,
            created_at: at,
            updated_at: at,
        }
    }

    fn equals(&self, other: &LogEntry) -> bool {
        let passed_ms = self.updated_at.0.abs_diff(other.updated_at.0);
        self.reason == other.reason
            && self.context == other.context
            && passed_ms <= GROUPED_MS.unsigned_abs()
            && self.object == other.object
            && self.username == other.username
    }
}

/// The entries of `ACL LOG`.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    /// The newest first.
    entries: VecDeque<LogEntry>,
    next_id: u64,
    /// How often each of the reasons was given, for `INFO`.
    counts: [u64; 4],
}

impl AclLog {
    /// Adds an entry, or counts it in an equal one. The oldest ones beyond `length_max` are
    /// removed.
    pub(crate) fn add(&mut self, mut entry: LogEntry, length_max: usize) {
        self.counts[entry.reason as usize] += 1;
        let equal = self.entries.iter().take(SEARCHED_ENTRIES).position(|it| it.equals(&entry));
        match equal.filter(|_| length_max > 0).and_then(|at| self.entries.remove(at)) {
            Some(known) => {
                entry.count = known.count + 1;
                (entry.id, entry.created_at) = (known.id, known.created_at);
            }
            None => {
                entry.id = self.next_id;
                self.next_id += u64::from(length_max > 0);
            }
        }
        self.entries.push_front(entry);
        self.entries.truncate(length_max);
    }

    /// The entries, the newest first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    /// How often something was refused for this reason.
    pub(crate) fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// Sets the counts of `INFO` to zero.
    pub(crate) fn reset_counts(&mut self) {
        self.counts = [0; 4];
    }

    /// Removes all entries. Their numbers go on.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}
