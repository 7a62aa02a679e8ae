//! Consumer groups: who was given which entry, and has not acknowledged it yet.
//!
//! What must hold: an entry that is pending in a group is pending with exactly one of the group's
//! consumers, which both lists say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StreamId;
use crate::time::Millis;

/// A consumer's name, shared by everything that is pending with it.
pub type ConsumerName = Arc<[u8]>;

/// See the module's documentation. All moments are of the wall clock.
#[derive(Clone, Debug)]
pub struct Group {
    /// The last entry that was given to anyone.
    pub last_id: StreamId,
    /// How many entries of the stream's whole life were given, if that is known.
    pub entries_read: Option<i64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<ConsumerName, Consumer>,
}

/// An entry that was given and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// To whom.
    pub consumer: ConsumerName,
    /// When, the last time.
    pub delivered_at: Millis,
    /// How often.
    pub deliveries: u64,
}

/// One of those who share a group's entries.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// When it last tried to get entries.
    pub seen_at: Millis,
    /// When it last got one.
    pub active_at: Option<Millis>,
    pending: BTreeSet<StreamId>,
}

impl Group {
    /// A group that is given what comes after `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<i64>) -> Group {
        Group { last_id, entries_read, pending: BTreeMap::new(), consumers: BTreeMap::new() }
    }

    /// Frees a part of a group that is not used any more. Returns whether there was one.
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

    /// All that is pending, by id.
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&ConsumerName, &Consumer)> {
        self.consumers.iter()
    }

    /// The consumer of that name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// Adds a consumer; false if it was there.
    pub fn add_consumer(&mut self, name: &[u8], now: Millis) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        let consumer = Consumer { seen_at: now, active_at: None, pending: BTreeSet::new() };
        self.consumers.insert(name.into(), consumer);
        true
    }

    /// Removes a consumer and forgets what is pending with it; returns how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// A consumer, added if it is new, tries to get entries; returns whether it is new.
    pub fn seen(&mut self, name: &[u8], now: Millis) -> bool {
        let added = self.add_consumer(name, now);
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_at = now;
        }
        added
    }

    /// A consumer has got an entry.
    pub fn active(&mut self, name: &[u8], now: Millis) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_at = Some(now);
        }
    }

    /// From now on an entry is pending with this consumer, which there must be, whoever had it
    /// before.
    pub fn assign(&mut self, id: StreamId, consumer: &[u8], delivered_at: Millis, deliveries: u64) {
        let Some((name, _)) = self.consumers.get_key_value(consumer) else { return };
        let name = Arc::clone(name);
        self.acknowledge(id);
        if let Some(consumer) = self.consumers.get_mut(&name) {
            consumer.pending.insert(id);
        }
        self.pending.insert(id, Pending { consumer: name, delivered_at, deliveries });
    }

    /// An entry is given to the consumer it is pending with once more.
    pub fn deliver_again(&mut self, id: StreamId, now: Millis) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_at = now;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// An entry is not pending any more; false if it was not.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }
}

impl Consumer {
    /// What is pending with it.
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}
