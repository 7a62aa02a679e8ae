//! Consumer groups: the entries that consumers have been given and have not acknowledged yet.
//!
//! Invariant: an entry that is pending in a group is pending with exactly one of the group's
//! consumers, and both lists agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StreamId;
use crate::store::effects::codec::Field;
use crate::store::serialised::Malformed;
use crate::timing::time::Millis;

/// A consumer's name, shared by all its pending entries.
pub type ConsumerName = Arc<[u8]>;

/// A consumer group. All times are of the wall clock.
#[derive(Clone, Debug)]
pub struct Group {
    /// The id of the last entry that was given to a consumer.
    pub last_id: StreamId,
    /// The number of entries of the whole stream that were given to consumers, if known.
    pub entries_read: Option<i64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<ConsumerName, Consumer>,
}

/// An entry that was given to a consumer and is not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The consumer that was given the entry.
    pub consumer: ConsumerName,
    /// The time of the last delivery.
    pub delivered_at: Millis,
    /// The number of deliveries.
    pub deliveries: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// The time of its last attempt to read entries.
    pub seen_at: Millis,
    /// The time at which it last received an entry.
    pub active_at: Option<Millis>,
    pending: BTreeSet<StreamId>,
}

impl Group {
    /// Creates a group that will be given the entries after `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<i64>) -> Group {
        Group { last_id, entries_read, pending: BTreeMap::new(), consumers: BTreeMap::new() }
    }

    /// Frees a part of a group that is no longer used. Returns whether there was one.
    pub(super) fn free_one(&mut self) -> bool {
        if self.pending.pop_last().is_some() {
            return true;
        }
        let Some(mut consumer) = self.consumers.last_entry() else { return false };
        if consumer.get_mut().pending.pop_last().is_none() {
            consumer.remove();
        }
        true
    }

    /// All pending entries, by id.
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// The consumers, by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&ConsumerName, &Consumer)> {
        self.consumers.iter()
    }

    /// The consumer with this name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// Adds a consumer; false if it exists.
    pub fn add_consumer(&mut self, name: &[u8], now: Millis) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        let consumer = Consumer { seen_at: now, active_at: None, pending: BTreeSet::new() };
        self.consumers.insert(name.into(), consumer);
        true
    }

    /// Removes a consumer and its pending entries; returns their number.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Records that a consumer tries to read entries, and adds it if it is new; returns whether it
    /// is new.
    pub fn note_attempt(&mut self, name: &[u8], now: Millis) -> bool {
        let added = self.add_consumer(name, now);
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_at = now;
        }
        added
    }

    /// Records that a consumer has received an entry.
    pub fn note_delivery(&mut self, name: &[u8], now: Millis) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_at = Some(now);
        }
    }

    /// Makes an entry pending with this consumer, which must exist, and with no other.
    pub fn assign(&mut self, id: StreamId, consumer: &[u8], delivered_at: Millis, deliveries: u64) {
        let Some((name, _)) = self.consumers.get_key_value(consumer) else { return };
        let name = Arc::clone(name);
        self.acknowledge(id);
        if let Some(consumer) = self.consumers.get_mut(&name) {
            consumer.pending.insert(id);
        }
        self.pending.insert(id, Pending { consumer: name, delivered_at, deliveries });
    }

    /// Records that a pending entry is delivered to its consumer once more.
    pub fn deliver_again(&mut self, id: StreamId, now: Millis) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_at = now;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Removes an entry from the pending ones; false if it was not pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }
}

impl Consumer {
    /// The entries that are pending with this consumer.
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

impl<'a> Field<'a> for Group {
    fn encode(&self, out: &mut Vec<u8>) {
        self.last_id.encode(out);
        self.entries_read.encode(out);
        self.consumers.len().encode(out);
        for (name, consumer) in &self.consumers {
            (&**name).encode(out);
            consumer.seen_at.encode(out);
            consumer.active_at.encode(out);
            consumer.pending.len().encode(out);
            for id in &consumer.pending {
                let Some(pending) = self.pending.get(id) else { unreachable!("both lists agree") };
                id.encode(out);
                pending.delivered_at.encode(out);
                pending.deliveries.encode(out);
            }
        }
    }

    fn decode(from: &mut &'a [u8]) -> Result<Group, Malformed> {
        let mut group = Group::new(StreamId::decode(from)?, Option::decode(from)?);
        for _ in 0..usize::decode(from)? {
            let name = <&[u8]>::decode(from)?;
            group.add_consumer(name, Millis::decode(from)?);
            if let (Some(at), Some(consumer)) =
                (Option::decode(from)?, group.consumers.get_mut(name))
            {
                consumer.active_at = Some(at);
            }
            for _ in 0..usize::decode(from)? {
                let id = StreamId::decode(from)?;
                group.assign(id, name, Millis::decode(from)?, u64::decode(from)?);
            }
        }
        Ok(group)
    }
}
