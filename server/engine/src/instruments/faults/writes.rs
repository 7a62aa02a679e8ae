//! Undoing recent writes, as a failover does that promotes a replica without them. A write is a
//! command, script or transaction that has changed a key; expiration is none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Engine;
use crate::commands::dump;
use crate::context::Context;
use crate::limits;
use crate::store::serialised;
use crate::time::{Millis, Time};

/// A key with its database.
type DatabaseKey = (usize, Box<[u8]>);

/// The contents of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyContents {
    body: Vec<u8>,
    deadline: Option<Millis>,
}

/// A second copy of all keys, as of the last write, and the recent writes.
#[derive(Debug, Default)]
pub struct Writes {
    keys: BTreeMap<DatabaseKey, KeyContents>,
    /// The changed keys of each write, with their earlier contents.
    done: VecDeque<Vec<(DatabaseKey, Option<KeyContents>)>>,
    /// The keys that have changed since the last write.
    touched: BTreeSet<DatabaseKey>,
}

impl Writes {
    /// Records that a key has changed or is about to change.
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        self.touched.insert((database, key.into()));
    }

    /// Records that all keys of a database have changed or are about to change.
    pub fn touch_all(&mut self, database: usize) {
        let keys = self.keys.range((database, Box::default())..);
        let names = keys.map(|(name, _)| name).take_while(|name| name.0 == database);
        self.touched.extend(names.cloned().collect::<Vec<DatabaseKey>>());
    }
}

impl Engine {
    /// Records the changes since the last write as one write, without expired keys.
    pub(crate) fn keep_write(&mut self, time: Time) {
        let mut changes = self.take_changes();
        changes.retain(|(name, before)| {
            let deadline = before.as_ref().and_then(|contents| contents.deadline);
            !deadline.is_some_and(|deadline| time.reached(deadline))
                || self.contents(name).is_some()
        });
        let Some(writes) = self.faults.writes.as_mut().filter(|_| !changes.is_empty()) else {
            return;
        };
        if writes.done.len() == limits::LOSABLE_WRITES_MAX {
            writes.done.pop_front();
        }
        writes.done.push_back(changes);
    }

    /// The keys that have changed, with their earlier contents.
    fn take_changes(&mut self) -> Vec<(DatabaseKey, Option<KeyContents>)> {
        let Some(mut writes) = self.faults.writes.take() else { return Vec::new() };
        let touched = std::mem::take(&mut writes.touched).into_iter();
        let changes = touched.filter_map(|name| {
            let now = self.contents(&name);
            let before = match now.clone() {
                Some(contents) => writes.keys.insert(name.clone(), contents),
                None => writes.keys.remove(&name),
            };
            (before != now).then_some((name, before))
        });
        let changes = changes.collect();
        self.faults.writes = Some(writes);
        changes
    }

    fn contents(&self, (database, key): &DatabaseKey) -> Option<KeyContents> {
        let slot = self.keyspace.find(*database, key)?;
        let record = self.keyspace.database(*database).record(slot);
        Some(KeyContents { body: serialised::write(record.value()), deadline: record.deadline() })
    }
}

impl Context<'_> {
    /// Undoes up to `count` of the last writes; returns how many.
    pub fn lose_writes(&mut self, count: usize) -> usize {
        self.engine.keep_write(self.time);
        for lost in 0..count {
            let done = self.engine.faults.writes.as_mut().and_then(|writes| writes.done.pop_back());
            let Some(changes) = done else { return lost };
            for (name, before) in changes.into_iter().rev() {
                self.restore(&name, before);
            }
            self.engine.take_changes();
        }
        count
    }

    fn restore(&mut self, (database, key): &DatabaseKey, before: Option<KeyContents>) {
        self.within(*database, |context| {
            context.remove(key);
            context.engine.touch(*database, key);
            let now = context.time;
            let alive = |contents: &KeyContents| {
                !contents.deadline.is_some_and(|deadline| now.reached(deadline))
            };
            let Some(contents) = before.filter(alive) else { return };
            let Ok(value) = serialised::read(&contents.body, dump::forms(context)) else { return };
            let slot = context.engine.keyspace.add(*database, key, value.into(), now.now);
            context.set_deadline_at(slot, contents.deadline);
        });
    }
}
