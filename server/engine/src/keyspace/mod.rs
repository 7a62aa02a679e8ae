//! The databases: which keys exist, what they hold and until when.
//!
//! What must hold: a key whose deadline has been reached is removed before anyone can look at it,
//! and a key with a deadline has exactly one timer in the wheel of its database (none while active
//! expiry is off).

pub mod dict;
pub mod garbage;
pub mod hash;
pub mod index;
pub mod list;
pub mod packed;
mod pages;
pub mod recent;
pub mod records;
pub mod sequence;
pub mod serialised;
pub mod set;
pub mod slab;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod strings;
pub mod value;

use std::collections::BTreeMap;

use crate::session::ClientId;
use crate::time::Millis;
use dict::{HashSeed, Slot};
use garbage::Garbage;
use recent::Recent;
pub use records::{DUE_TOGETHER, Due};
use records::{Given, Record, Records, Removed};

/// Wheels that are kept though they are empty: a lock comes and goes, its wheel should not.
const IDLE_WHEELS_MAX: usize = 16;

/// One of the numbered databases.
#[derive(Debug)]
pub struct Database {
    records: Records,
    /// Who watches which key.
    pub watchers: BTreeMap<Box<[u8]>, Vec<ClientId>>,
}

/// All databases, by their numbers.
#[derive(Debug)]
pub struct Keyspace {
    databases: Vec<Database>,
    /// The key of every hash table that holds what clients sent.
    pub seed: HashSeed,
    /// What has been removed and is not free yet.
    pub garbage: Garbage,
    recent: Recent,
    /// The numbers of the databases that have a wheel: seldom more than one.
    timed: Vec<usize>,
    /// The moment all that was due has been done for.
    now: Millis,
    /// Something may have been set since that was due by then.
    overdue: bool,
    /// Whether the wheels remove keys at their deadline (`DEBUG SET-ACTIVE-EXPIRE`).
    active_expiry: bool,
}

impl Keyspace {
    /// `count` empty databases.
    pub fn new(count: usize, seed: HashSeed, now: Millis) -> Keyspace {
        let empty = |_| Database { records: Records::new(seed), watchers: BTreeMap::new() };
        Keyspace {
            databases: (0..count).map(empty).collect(),
            seed,
            garbage: Garbage::default(),
            recent: Recent::new(seed),
            timed: Vec::new(),
            now,
            overdue: false,
            active_expiry: true,
        }
    }

    /// How many databases there are.
    pub fn count(&self) -> usize {
        self.databases.len()
    }

    /// The database a client selects by `number`, which must exist.
    #[inline]
    pub fn database(&self, number: usize) -> &Database {
        &self.databases[number]
    }

    /// The database a client selects by `number`, which must exist.
    #[inline]
    pub fn database_mut(&mut self, number: usize) -> &mut Database {
        &mut self.databases[number]
    }

    /// Exchanges two databases. Watchers stay: they watch what clients see under a number.
    pub fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.recent.forget_places();
        self.databases.swap(a, b);
        let watchers_of_b = std::mem::take(&mut self.databases[a].watchers);
        let watchers_of_a = std::mem::replace(&mut self.databases[b].watchers, watchers_of_b);
        self.databases[a].watchers = watchers_of_a;
        for number in &mut self.timed {
            *number = match *number {
                number if number == a => b,
                number if number == b => a,
                number => number,
            };
        }
    }

    /// Finds a key, dead or alive.
    pub fn find(&self, number: usize, key: &[u8]) -> Option<Slot> {
        self.databases[number].records.find(key, self.seed.hash(key))
    }

    /// As `find`, for keys that are looked for again and again.
    #[inline]
    pub fn recall(&mut self, number: usize, key: &[u8]) -> Option<Slot> {
        let hash = self.recent.hash(key);
        if let Some(found) = self.recent.place(number) {
            debug_assert_eq!(found, self.find(number, key));
            return found;
        }
        let found = self.databases[number].records.find(key, hash);
        self.recent.set_place(number, found);
        found
    }

    /// As [`Records::look_ahead`].
    pub fn look_ahead(&mut self, number: usize, keys: &[&[u8]]) {
        let hashes = keys.iter().map(|key| self.recent.hash(key)).collect();
        self.databases[number].records.look_ahead(hashes);
    }

    /// Adds a key that is known to be absent.
    pub fn add(&mut self, number: usize, key: &[u8], given: Given<'_>, now: Millis) -> Slot {
        let hash = self.recent.hash(key);
        let slot = self.databases[number].records.add(key, hash, given, now);
        self.recent.forget_places();
        self.recent.set_place(number, Some(slot));
        slot
    }

    /// Removes the key in `slot` and its timer. What is returned still says when it would have
    /// ended.
    pub fn remove(&mut self, number: usize, slot: Slot) -> Removed {
        let due = self.due(number, slot);
        self.recent.forget_places();
        self.databases[number].records.remove(due)
    }

    /// As `remove`, for who does not want to know more.
    pub fn discard(&mut self, number: usize, slot: Slot) {
        let due = self.due(number, slot);
        self.recent.forget_places();
        self.databases[number].records.discard(due, &mut self.garbage);
    }

    /// As [`Records::set_value`]. Returns the records of the database.
    #[inline(always)]
    pub fn set_value(&mut self, number: usize, slot: Slot, given: Given<'_>) -> &mut Records {
        let records = &mut self.databases[number].records;
        records.set_value(slot, given, &mut self.garbage);
        records
    }

    /// Removes every key of a database, and their timers; returns how many there were.
    pub fn clear(&mut self, number: usize) -> usize {
        self.timed.retain(|&timed| timed != number);
        self.recent.forget_places();
        self.databases[number].records.clear(&mut self.garbage)
    }

    // --- time ---

    /// Sets or clears the deadline of the key in `slot`.
    #[inline]
    pub fn set_deadline(&mut self, number: usize, slot: Slot, deadline: Option<Millis>) {
        let records = &mut self.databases[number].records;
        if let Some(deadline) = deadline {
            self.overdue |= deadline <= self.now;
            if records.set_deadline(slot, deadline, self.now) {
                self.timed.push(number);
            }
        } else {
            records.clear_deadline(slot);
        }
    }

    /// Moves the deadline of every key by `span`.
    pub fn postpone(&mut self, span: Millis) {
        for database in &mut self.databases {
            database.records.postpone(span, self.now);
        }
    }

    /// Turns active expiry on or off. Keys keep their deadlines either way.
    pub fn set_active_expiry(&mut self, on: bool) {
        self.active_expiry = on;
        self.overdue = on;
        self.timed.clear();
        for (number, database) in self.databases.iter_mut().enumerate() {
            database.records.set_ticking(on, self.now);
            if database.records.has_wheel() {
                self.timed.push(number);
            }
        }
    }

    /// Whether the wheels remove keys at their deadline.
    pub fn active_expiry(&self) -> bool {
        self.active_expiry
    }

    /// How many timers wait.
    pub fn timers(&self) -> usize {
        self.timed.iter().map(|&number| self.databases[number].records.timers()).sum()
    }

    /// When [`Keyspace::pop_due`] next has work.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.next_wheel().map(|(moment, _)| moment)
    }

    /// When [`Keyspace::work_ahead`] next has something to do.
    pub fn next_work_ahead(&self) -> Option<Millis> {
        let next = |&number: &usize| self.databases[number].records.next_work_ahead();
        self.timed.iter().filter_map(next).min()
    }

    /// If nothing is due: prepares for moments at which much is, by at most `budget` steps.
    pub fn work_ahead(&mut self, now: Millis, budget: u32) {
        for &number in &self.timed {
            self.databases[number].records.work_ahead(now, budget);
        }
    }

    /// Does the next thing that is due, if that is at `moment`, the next deadline: tells the keys
    /// of a database whose leases end, or none yet. They are still there, without their timers.
    pub fn pop_due(
        &mut self,
        moment: Millis,
        budget: &mut u32,
        due: &mut Vec<Due>,
    ) -> Option<usize> {
        let (_, number) = self.next_wheel().filter(|&(next, _)| next <= moment)?;
        self.databases[number].records.pop_due(moment, budget, due);
        Some(number)
    }

    /// A key that is to go.
    #[inline]
    pub fn due(&self, number: usize, slot: Slot) -> Due {
        match self.recent.hash_at(number, slot) {
            Some(hash) => Due { slot, hash },
            None => self.databases[number].records.due(slot),
        }
    }

    /// Removes a key whose time has come.
    pub fn discard_due(&mut self, number: usize, due: Due) {
        self.recent.forget_places();
        self.databases[number].records.discard(due, &mut self.garbage);
    }

    /// Whether all that is due by `now` is known to have been done.
    #[inline]
    pub fn is_done_for(&self, now: Millis) -> bool {
        self.now == now && !self.overdue
    }

    /// All that is due by `now` has been done. Returns whether that is news.
    pub fn advance(&mut self, now: Millis) -> bool {
        self.overdue = false;
        if self.now == now {
            return false;
        }
        self.now = now;
        if self.timed.len() > IDLE_WHEELS_MAX {
            let databases = &mut self.databases;
            self.timed.retain(|&number| {
                databases[number].records.drop_empty_wheel();
                databases[number].records.has_wheel()
            });
        }
        for &number in &self.timed {
            self.databases[number].records.advance(now);
        }
        true
    }

    /// The database whose wheel is next, and when.
    fn next_wheel(&self) -> Option<(Millis, usize)> {
        let next =
            |&number: &usize| Some((self.databases[number].records.next_deadline()?, number));
        self.timed.iter().filter_map(next).min()
    }
}

impl Database {
    /// How many keys there are, dead ones that nobody has looked at included.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many of them have a deadline.
    pub fn with_deadline(&self) -> usize {
        self.records.with_deadline()
    }

    /// What stands in a slot that is taken.
    #[inline]
    pub fn record(&self, slot: Slot) -> Record<'_> {
        self.records.get(slot)
    }

    /// The key in a slot that is taken.
    pub fn key(&self, slot: Slot) -> &[u8] {
        self.records.key(slot)
    }

    /// The keys by slot: for `SCAN`, `KEYS` and `RANDOMKEY`, which must skip the dead.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The keys, to be changed. What concerns their number and their deadlines goes through
    /// [`Keyspace`].
    #[inline]
    pub fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Millis = Millis(0);

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_is_recalled_is_what_is_there(
            steps in prop::collection::vec((0..8, 0..2_usize, 0..4_usize), 1..200),
        ) {
            let mut keyspace = Keyspace::new(2, HashSeed(1, 2), NOW);
            let keys = [&b"a"[..], b"b", b"lock", &[b'k'; 100]];
            for (step, number, key) in steps {
                match (step, keyspace.recall(number, keys[key])) {
                    (0, _) => keyspace.swap(0, 1),
                    (1, _) => drop(keyspace.clear(number)),
                    (2, Some(slot)) => keyspace.discard(number, slot),
                    (3, Some(slot)) => drop(keyspace.remove(number, slot)),
                    (4, Some(slot)) => keyspace.discard_due(number, keyspace.due(number, slot)),
                    (2..=5, None) => {
                        keyspace.add(number, keys[key], Given::Text(b"v"), NOW);
                    }
                    _ => {}
                }
                for number in 0..2 {
                    let there = keyspace.find(number, keys[key]);
                    prop_assert_eq!(keyspace.recall(number, keys[key]), there);
                }
            }
        }
    }
}
