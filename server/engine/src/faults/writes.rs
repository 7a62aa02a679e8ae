//! The last writes, and how to undo them: what a failover does to a server whose replica has not
//! heard of them. A write is a command, a script or a transaction that has changed a key; what ends
//! by itself is none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Engine;
use crate::commands::dump;
use crate::context::Context;
use crate::keyspace::serialised;
use crate::limits;
use crate::time::{Millis, Time};

/// A key, in its database.
type Name = (usize, Box<[u8]>);

/// What a key held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    body: Vec<u8>,
    deadline: Option<Millis>,
}

/// See the module's documentation. Whatever there is is kept a second time, as of the last write.
#[derive(Debug, Default)]
pub struct Writes {
    keys: BTreeMap<Name, Held>,
    /// What each write has changed, and what had been there before it.
    done: VecDeque<Vec<(Name, Option<Held>)>>,
    /// What has changed since the last write.
    touched: BTreeSet<Name>,
}

impl Writes {
    /// A key has changed, or is about to.
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        self.touched.insert((database, key.into()));
    }

    /// All keys of a database have changed, or are about to.
    pub fn touch_all(&mut self, database: usize) {
        let keys = self.keys.range((database, Box::default())..);
        let names = keys.map(|(name, _)| name).take_while(|name| name.0 == database);
        self.touched.extend(names.cloned().collect::<Vec<Name>>());
    }
}

impl Engine {
    /// What has changed since the last write was one write, but for leases that have ended.
    pub(super) fn keep_write(&mut self, time: Time) {
        let mut changes = self.take_changes();
        changes.retain(|(name, before)| {
            let deadline = before.as_ref().and_then(|held| held.deadline);
            !deadline.is_some_and(|deadline| time.reached(deadline)) || self.held(name).is_some()
        });
        let Some(writes) = self.faults.writes.as_mut().filter(|_| !changes.is_empty()) else {
            return;
        };
        if writes.done.len() == limits::LOSABLE_WRITES_MAX {
            writes.done.pop_front();
        }
        writes.done.push_back(changes);
    }

    /// The keys that have changed, with what they held before.
    fn take_changes(&mut self) -> Vec<(Name, Option<Held>)> {
        let Some(mut writes) = self.faults.writes.take() else { return Vec::new() };
        let touched = std::mem::take(&mut writes.touched).into_iter();
        let changes = touched.filter_map(|name| {
            let now = self.held(&name);
            let before = match now.clone() {
                Some(held) => writes.keys.insert(name.clone(), held),
                None => writes.keys.remove(&name),
            };
            (before != now).then_some((name, before))
        });
        let changes = changes.collect();
        self.faults.writes = Some(writes);
        changes
    }

    fn held(&self, (database, key): &Name) -> Option<Held> {
        let slot = self.keyspace.find(*database, key)?;
        let record = self.keyspace.database(*database).record(slot);
        Some(Held { body: serialised::write(record.value()), deadline: record.deadline() })
    }
}

impl Context<'_> {
    /// Undoes the last `count` writes, as far as they are known; returns how many.
    pub fn lose_writes(&mut self, count: usize) -> usize {
        self.engine.keep_write(self.time);
        for lost in 0..count {
            let done = self.engine.faults.writes.as_mut().and_then(|writes| writes.done.pop_back());
            let Some(changes) = done else { return lost };
            for (name, before) in changes.into_iter().rev() {
                self.put_back(&name, before);
            }
            self.engine.take_changes();
        }
        count
    }

    fn put_back(&mut self, (database, key): &Name, before: Option<Held>) {
        self.within(*database, |context| {
            context.remove(key);
            context.engine.touch(*database, key);
            let now = context.time;
            let alive = |held: &Held| !held.deadline.is_some_and(|deadline| now.reached(deadline));
            let Some(held) = before.filter(alive) else { return };
            let Ok(value) = serialised::read(&held.body, dump::forms(context)) else { return };
            let slot = context.engine.keyspace.add(*database, key, value.into(), now.now);
            context.set_deadline_at(slot, held.deadline);
        });
    }
}
