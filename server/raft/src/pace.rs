//! How much one message to a follower carries: what its link delivers well within the time after
//! which `openraft` gives the message up, and a heartbeat with it.

use std::time::Duration;

use lockwheel_defects::defect;
use openraft::Entry;

use crate::batch::Types;
use crate::limits;

/// The size of messages to a follower. One value belongs to one connection.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The bytes of the next message, unless its first entry is larger.
    bytes: usize,
    /// The bytes of the message that was sent.
    sent: usize,
    /// Whether a message was sent whose reply has not arrived. When the next one begins, it was
    /// given up.
    is_waiting: bool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { bytes: limits::APPEND_BYTES_FIRST, sent: 0, is_waiting: false }
    }
}

impl Pace {
    /// Begins a message: removes the entries that it does not carry. Returns whether there were
    /// any.
    pub(crate) fn begin(&mut self, entries: &mut Vec<Entry<Types>>) -> bool {
        if self.is_waiting {
            self.bytes = limits::ENTRY_BYTES;
        }
        self.is_waiting = true;
        self.sent = 0;
        let carried = entries.iter().map(size).take_while(|size| {
            let is_carried = self.sent == 0 || self.sent + size <= self.bytes;
            self.sent += if is_carried { *size } else { 0 };
            is_carried
        });
        let (carried, all) = (carried.count(), entries.len());
        if carried == all || defect!(RaftMessagesOfAnySize) {
            return false;
        }
        entries.truncate(carried);
        true
    }

    /// Ends a message, whose reply has arrived or whose connection has failed after `elapsed`.
    /// `limit` is the timeout of `openraft` for the message.
    pub(crate) fn end(&mut self, elapsed: Duration, limit: Duration, is_reply: bool) {
        self.is_waiting = false;
        // A short message shows nothing of what the link delivers.
        let is_full = self.sent > self.bytes / 2;
        if is_reply && is_full && elapsed < limit / 4 {
            self.bytes = (self.bytes * 2).min(limits::APPEND_BYTES);
        } else if elapsed > limit / 2 {
            self.bytes = (self.bytes / 2).max(limits::ENTRY_BYTES);
        }
    }
}

/// About the bytes of an entry in a message.
fn size(entry: &Entry<Types>) -> usize {
    let effects = match &entry.payload {
        openraft::EntryPayload::Normal(batch) => batch.effects.len(),
        _ => 0,
    };
    effects + limits::ENTRY_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use openraft::{CommittedLeaderId, EntryPayload, LogId};

    use super::*;
    use crate::batch::Batch;

    fn entries(lengths: &[usize]) -> Vec<Entry<Types>> {
        let entry = |(index, length): (usize, &usize)| Entry {
            log_id: LogId::new(CommittedLeaderId::new(1, 1), index as u64),
            payload: EntryPayload::Normal(Batch::new(1, 0, 0, vec![0; *length])),
        };
        lengths.iter().enumerate().map(entry).collect()
    }

    /// How many of many small entries the next message carries.
    fn carried(pace: &mut Pace, elapsed_ms: Option<u64>) -> usize {
        let mut all = entries(&[limits::ENTRY_BYTES - limits::ENTRY_OVERHEAD_BYTES; 64]);
        assert!(pace.begin(&mut all));
        if let Some(elapsed_ms) = elapsed_ms {
            pace.end(Duration::from_millis(elapsed_ms), Duration::from_millis(200), true);
        }
        all.len()
    }

    #[test]
    fn messages_follow_what_the_link_delivers() {
        let mut pace = Pace::default();
        let carried: Vec<usize> = [Some(10), Some(49), Some(60), Some(101), None, Some(40), None]
            .map(|elapsed_ms| carried(&mut pace, elapsed_ms))
            .into();
        assert_eq!(carried, [2, 4, 8, 8, 4, 1, 2]);
    }

    #[test]
    fn short_messages_do_not_lengthen_the_next_ones() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert!(!pace.begin(&mut Vec::new()));
            pace.end(Duration::from_millis(1), Duration::from_millis(200), true);
        }
        assert_eq!(carried(&mut pace, None), 2);
    }

    #[test]
    fn message_carries_one_entry_whatever_its_size() {
        let mut pace = Pace::default();
        let mut large = entries(&[10 << 20, 1, 1]);
        assert!(pace.begin(&mut large));
        assert_eq!(large.len(), 1);
        let mut small = entries(&[1, 1, 1]);
        assert!(!pace.begin(&mut small));
        assert_eq!(small.len(), 3);
    }
}
