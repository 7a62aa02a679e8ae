//! Undoing recent writes, as a failover does that promotes a replica without them. A write is a
//! command, script or transaction that has changed a key; the expiration of a key is not a write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Engine;
use crate::instruments::faults::Faults;
use crate::limits;
use crate::store::DatabaseKey;
use crate::store::effects::image::Image;
use crate::store::effects::{Effect, Effects, Place};
use crate::store::records::NewValue;
use crate::timing::time::{Millis, Time};

/// The contents of a key: its value in byte form, and its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyContents {
    image: Vec<u8>,
    deadline: Option<Millis>,
}

/// A copy of all keys as of the last write, and the recent writes.
#[derive(Debug, Default)]
pub struct Writes {
    keys: BTreeMap<DatabaseKey, KeyContents>,
    /// The changed keys of each recent write, with their earlier contents.
    recent: VecDeque<Vec<(DatabaseKey, Option<KeyContents>)>>,
}

impl Writes {
    /// The keys that effects may have changed.
    fn touched(&self, effects: &Effects) -> BTreeSet<DatabaseKey> {
        let mut touched = BTreeSet::new();
        for (Place { database, key }, effect) in effects.iter() {
            match effect {
                Effect::Flushed {} => self.touch_all(&[database], &mut touched),
                Effect::Swapped { with } => self.touch_all(&[database, with], &mut touched),
                Effect::Postponed { .. } => touched.extend(self.keys.keys().cloned()),
                Effect::Moved { database: other, key: to }
                | Effect::Copied { database: other, key: to } => {
                    touched.insert((database, key.into()));
                    touched.insert((other, to.into()));
                }
                effect if effect.changes_state() => drop(touched.insert((database, key.into()))),
                _ => {}
            }
        }
        touched
    }

    /// Adds the keys of databases, each in all of them: a swap moves keys from one to another.
    fn touch_all(&self, databases: &[usize], touched: &mut BTreeSet<DatabaseKey>) {
        for (_, key) in self.keys.keys().filter(|(number, _)| databases.contains(number)) {
            touched.extend(databases.iter().map(|&number| (number, key.clone())));
        }
    }
}

impl Faults {
    fn take_last_write(&mut self) -> Option<Vec<(DatabaseKey, Option<KeyContents>)>> {
        self.writes.as_mut()?.recent.pop_back()
    }
}

impl Engine {
    /// Records the effects of a unit as one write, without expired keys.
    pub(crate) fn keep_write(&mut self, effects: &Effects, time: Time) {
        let Some(mut writes) = self.faults_mut().and_then(|faults| faults.writes.take()) else {
            return;
        };
        let mut changes = self.take_changes(&mut writes, effects);
        changes.retain(|(place, before)| {
            let deadline = before.as_ref().and_then(|contents| contents.deadline);
            !deadline.is_some_and(|deadline| time.reached(deadline))
                || self.contents(place).is_some()
        });
        let Some(faults) = self.faults_mut() else { return };
        if !changes.is_empty() && !faults.is_undoing {
            if writes.recent.len() == limits::LOSABLE_WRITES_MAX {
                writes.recent.pop_front();
            }
            writes.recent.push_back(changes);
        }
        faults.writes = Some(writes);
    }

    /// Updates the copies of the keys that have changed; returns the keys with their earlier
    /// contents.
    fn take_changes(
        &self,
        writes: &mut Writes,
        effects: &Effects,
    ) -> Vec<(DatabaseKey, Option<KeyContents>)> {
        let changes = writes.touched(effects).into_iter().filter_map(|place| {
            let now = self.contents(&place);
            let before = match now.clone() {
                Some(contents) => writes.keys.insert(place.clone(), contents),
                None => writes.keys.remove(&place),
            };
            (before != now).then_some((place, before))
        });
        changes.collect()
    }

    fn contents(&self, (database, key): &DatabaseKey) -> Option<KeyContents> {
        let slot = self.writer.keyspace().find(*database, key)?;
        let record = self.writer.keyspace().database(*database).record(slot);
        let mut image = Vec::new();
        Image::Stored(record.value()).write(&mut image);
        Some(KeyContents { image, deadline: record.deadline() })
    }

    /// Undoes up to `count` of the last writes; returns how many.
    pub(crate) fn lose_writes(&mut self, count: usize, time: Time) -> usize {
        // The earlier effects of this unit are a write of their own; undoing is not a write.
        self.observe_effects(None);
        self.end_unit(time);
        self.set_undoing(true);
        let mut lost = 0;
        while lost < count {
            let last_write = self.faults_mut().and_then(Faults::take_last_write);
            let Some(changes) = last_write else { break };
            for (place, before) in changes.into_iter().rev() {
                self.restore(&place, before, time);
            }
            lost += 1;
        }
        self.observe_effects(None);
        self.end_unit(time);
        self.set_undoing(false);
        lost
    }

    fn set_undoing(&mut self, is_undoing: bool) {
        if let Some(faults) = self.faults_mut() {
            faults.is_undoing = is_undoing;
        }
    }

    fn restore(&mut self, (database, key): &DatabaseKey, before: Option<KeyContents>, time: Time) {
        let database = *database;
        if let Some(slot) = self.find_alive(database, key, time) {
            self.writer.remove(database, slot);
        }
        let alive = |contents: &KeyContents| {
            !contents.deadline.is_some_and(|deadline| time.reached(deadline))
        };
        let Some(contents) = before.filter(alive) else { return };
        let value = Image::Encoded(&contents.image).to_value(self.writer.keyspace().seed);
        let value = NewValue::Value(value.expect("a value in its byte form"));
        let slot = self.writer.add(database, key, value, time.now);
        self.writer.set_deadline(database, slot, contents.deadline);
    }
}
