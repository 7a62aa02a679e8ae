//! The databases: keys, their values and their deadlines.

use super::access_frequency::{self, AccessCounter};
use super::dict::{HashSeed, Slot};
use super::effects::Place;
use super::garbage::Garbage;
use super::lookup_cache::LookupCache;
use super::records::Due;
use super::records::{NewValue, Record, Records, Removed};
use super::value::{Kind, Value};
use crate::random::Random;
use crate::timing::time::{Millis, Time};

/// Empty wheels that are kept, because a lock that comes and goes would otherwise allocate a wheel
/// each time.
const IDLE_WHEELS_MAX: usize = 16;

/// A key with its database. Borrowed, it is a [`Place`].
pub type DatabaseKey = (usize, Box<[u8]>);

/// One of the numbered databases.
#[derive(Debug)]
pub struct Database {
    records: Records,
}

/// All databases, by number.
#[derive(Debug)]
pub struct Keyspace {
    pub(super) databases: Vec<Database>,
    /// The hash seed of every hash table that holds bytes sent by clients.
    pub seed: HashSeed,
    /// Values and databases that are removed but not freed yet.
    pub(super) garbage: Garbage,
    lookup_cache: LookupCache,
    /// The numbers of the databases that have a timer wheel: seldom more than one.
    with_wheel: Vec<usize>,
    /// The time up to which everything that is due has been processed.
    now: Millis,
    /// Whether a deadline at or before `now` may have been set since then.
    overdue: bool,
    /// Whether the wheels remove keys at their deadline (`DEBUG SET-ACTIVE-EXPIRE`).
    active_expiry: bool,
    /// The access counter of keys; `None` unless the eviction policy is LFU.
    pub(super) access_counter: Option<Box<AccessCounter>>,
}

impl Keyspace {
    /// Creates `count` empty databases.
    pub fn new(count: usize, seed: HashSeed, now: Millis) -> Keyspace {
        let empty = |_| Database { records: Records::new(seed) };
        Keyspace {
            databases: (0..count).map(empty).collect(),
            seed,
            garbage: Garbage::default(),
            lookup_cache: LookupCache::new(seed),
            with_wheel: Vec::new(),
            now,
            overdue: false,
            active_expiry: true,
            access_counter: None,
        }
    }

    /// Values and databases that are removed but not freed yet.
    pub fn garbage(&self) -> &Garbage {
        &self.garbage
    }

    /// The number of databases.
    pub fn count(&self) -> usize {
        self.databases.len()
    }

    /// Returns the database with the number that clients select; it must exist.
    #[inline]
    pub fn database(&self, number: usize) -> &Database {
        &self.databases[number]
    }

    /// Returns the database with the number that clients select; it must exist.
    #[inline]
    pub(in crate::store) fn database_mut(&mut self, number: usize) -> &mut Database {
        &mut self.databases[number]
    }

    /// Swaps two databases.
    pub(in crate::store) fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.lookup_cache.invalidate_slots();
        self.databases.swap(a, b);
        for number in &mut self.with_wheel {
            *number = match *number {
                number if number == a => b,
                number if number == b => a,
                number => number,
            };
        }
    }

    /// Finds a key, expired or not.
    pub fn find(&self, number: usize, key: &[u8]) -> Option<Slot> {
        self.databases[number].records.find(key, self.seed.hash(key))
    }

    /// The type of the value of a key, expired or not.
    pub fn kind_of(&self, database: usize, key: &[u8]) -> Option<Kind> {
        let slot = self.find(database, key)?;
        Some(self.database(database).record(slot).value().kind())
    }

    /// Whether there is such a key, expired or not, and it is plain.
    pub fn is_plain(&self, database: usize, key: &[u8]) -> bool {
        self.find(database, key).is_some_and(|slot| self.database(database).records.is_plain(slot))
    }

    /// The slot of a key, if it is cached and its deadline has not been reached. If `IS_USE`,
    /// records that the key is used now.
    #[inline(always)]
    pub(in crate::store) fn find_in_cache<const IS_USE: bool>(
        &mut self,
        number: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Option<Slot>> {
        let found = self.lookup_cache.find(number, key)?;
        debug_assert_eq!(found, self.find(number, key));
        match found {
            Some(slot) if !self.is_alive::<IS_USE>(number, slot, time) => None,
            found => Some(found),
        }
    }

    /// See [`LookupCache::bypass`].
    pub(in crate::store) fn bypass_lookup_cache(&mut self, is_bypassed: bool) {
        self.lookup_cache.bypass(is_bypassed);
    }

    /// Whether the deadline of the key in `slot` has not been reached. If so and if `IS_USE`,
    /// records that the key is used now.
    #[inline(always)]
    pub(in crate::store) fn is_alive<const IS_USE: bool>(
        &mut self,
        number: usize,
        slot: Slot,
        time: Time,
    ) -> bool {
        if IS_USE && self.access_counter.is_some() {
            return self.count_use_if_alive(number, slot, time);
        }
        let records = &mut self.databases[number].records;
        if IS_USE { records.use_if_alive(slot, time) } else { !records.is_expired(slot, time) }
    }

    #[cold]
    fn count_use_if_alive(&mut self, number: usize, slot: Slot, time: Time) -> bool {
        let is_alive = !self.databases[number].records.is_expired(slot, time);
        if is_alive {
            self.set_used_at(number, slot, time.now);
        }
        is_alive
    }

    /// As `find`, with the cache of recent look-ups.
    #[inline(always)]
    pub(in crate::store) fn find_cached(&mut self, number: usize, key: &[u8]) -> Option<Slot> {
        let hash = self.lookup_cache.hash(key);
        if let Some(found) = self.lookup_cache.slot(number) {
            debug_assert_eq!(found, self.find(number, key));
            return found;
        }
        let found = self.databases[number].records.find(key, hash);
        self.lookup_cache.set_slot(number, found);
        found
    }

    /// As [`Records::look_ahead`].
    pub(in crate::store) fn look_ahead(&mut self, number: usize, keys: &[&[u8]]) {
        let hashes = keys.iter().map(|key| self.lookup_cache.hash(key)).collect();
        self.databases[number].records.look_ahead(hashes);
    }

    /// Adds a key that is known to be absent.
    #[inline(always)]
    pub(in crate::store) fn add(
        &mut self,
        number: usize,
        key: &[u8],
        given: NewValue<'_>,
        now: Millis,
    ) -> Slot {
        let hash = self.lookup_cache.hash(key);
        let slot = self.databases[number].records.add(key, hash, given, now);
        self.lookup_cache.invalidate_slots();
        self.lookup_cache.set_slot(number, Some(slot));
        if self.access_counter.is_some() {
            self.set_frequency(number, slot, access_frequency::INITIAL, now);
        }
        slot
    }

    /// Removes the key in `slot` and its timer. The returned record still has its deadline.
    pub(in crate::store) fn remove(&mut self, number: usize, slot: Slot) -> Removed {
        let due = self.due(number, slot);
        self.lookup_cache.invalidate_slots();
        self.databases[number].records.remove(due)
    }

    /// As `remove`, without returning the record.
    pub(in crate::store) fn discard(&mut self, number: usize, slot: Slot) {
        let due = self.due(number, slot);
        self.lookup_cache.invalidate_slots();
        self.databases[number].records.discard(due, &mut self.garbage);
    }

    /// As [`Records::set_value`].
    #[inline(always)]
    pub(in crate::store) fn set_value(&mut self, number: usize, slot: Slot, given: NewValue<'_>) {
        self.databases[number].records.set_value(slot, given, &mut self.garbage);
    }

    /// Records that the key in `slot` is used now.
    #[inline(always)]
    pub(in crate::store) fn set_used_at(&mut self, number: usize, slot: Slot, now: Millis) {
        let records = &mut self.databases[number].records;
        match &mut self.access_counter {
            None => records.set_used_at(slot, now),
            Some(counter) => counter.count_use(records, slot, now),
        }
    }

    /// Sets the access frequency of the key in `slot`.
    #[cold]
    pub(in crate::store) fn set_frequency(
        &mut self,
        number: usize,
        slot: Slot,
        frequency: u8,
        now: Millis,
    ) {
        let usage = access_frequency::usage(frequency, now);
        self.databases[number].records.set_usage(slot, usage);
    }

    /// The access counter of keys; `None` unless the eviction policy is LFU.
    pub fn access_counter(&self) -> Option<&AccessCounter> {
        self.access_counter.as_deref()
    }

    /// Moves the key in `slot` with its value and deadline to `to`, where no key may be. Returns
    /// its new slot.
    pub(in crate::store) fn move_key(
        &mut self,
        number: usize,
        slot: Slot,
        to: Place<'_>,
        now: Millis,
    ) -> Slot {
        let usage = self.database(number).record(slot).usage();
        let removed = self.remove(number, slot);
        let deadline = removed.deadline();
        let slot = self.put(to, removed.into_value(), deadline, now);
        if self.access_counter.is_some() {
            self.databases[to.database].records.set_usage(slot, usage);
        }
        slot
    }

    /// Copies the value and the deadline of the key in `slot` to `to`, where no key may be. Returns
    /// the slot of the copy.
    pub(in crate::store) fn copy_key(
        &mut self,
        number: usize,
        slot: Slot,
        to: Place<'_>,
        now: Millis,
    ) -> Slot {
        let record = self.database(number).record(slot);
        let (value, deadline) = (record.value().to_value(), record.deadline());
        self.put(to, value, deadline, now)
    }

    fn put(&mut self, to: Place<'_>, value: Value, deadline: Option<Millis>, now: Millis) -> Slot {
        let slot = self.add(to.database, to.key, value.into(), now);
        self.set_deadline(to.database, slot, deadline);
        slot
    }

    /// Removes every key of a database and their timers; returns the number of keys.
    pub(in crate::store) fn clear(&mut self, number: usize) -> usize {
        self.with_wheel.retain(|&other| other != number);
        self.lookup_cache.invalidate_slots();
        self.databases[number].records.clear(&mut self.garbage)
    }

    // --- time ---

    /// Sets or clears the deadline of the key in `slot`.
    #[inline]
    pub(in crate::store) fn set_deadline(
        &mut self,
        number: usize,
        slot: Slot,
        deadline: Option<Millis>,
    ) {
        let records = &mut self.databases[number].records;
        if let Some(deadline) = deadline {
            self.overdue |= deadline <= self.now;
            if records.set_deadline(slot, deadline, self.now) {
                self.with_wheel.push(number);
            }
        } else {
            records.clear_deadline(slot);
        }
    }

    /// Moves the deadline of every key by `span`.
    pub(in crate::store) fn postpone(&mut self, span: Millis) {
        for database in &mut self.databases {
            database.records.postpone(span, self.now);
        }
    }

    /// Turns active expiry on or off. Keys keep their deadlines either way.
    pub(in crate::store) fn set_active_expiry(&mut self, on: bool) {
        self.active_expiry = on;
        self.overdue = on;
        self.with_wheel.clear();
        for (number, database) in self.databases.iter_mut().enumerate() {
            database.records.set_active_expiry(on, self.now);
            if database.records.has_wheel() {
                self.with_wheel.push(number);
            }
        }
    }

    /// Whether the wheels remove keys at their deadline.
    pub fn active_expiry(&self) -> bool {
        self.active_expiry
    }

    /// The number of pending timers.
    pub fn timers(&self) -> usize {
        self.with_wheel.iter().map(|&number| self.databases[number].records.timers()).sum()
    }

    /// When `Keyspace::pop_due` next has work.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.next_wheel().map(|(moment, _)| moment)
    }

    /// When `Keyspace::work_ahead` next has work that should not wait for `pop_due`.
    pub fn next_work_ahead(&self) -> Option<Millis> {
        let next = |&number: &usize| self.databases[number].records.next_work_ahead();
        self.with_wheel.iter().filter_map(next).min()
    }

    /// Prepares for times at which many keys are due, if none is due now, in at most `budget`
    /// steps.
    pub(in crate::store) fn work_ahead(&mut self, now: Millis, budget: u32) {
        for &number in &self.with_wheel {
            self.databases[number].records.work_ahead(now, budget);
        }
    }

    /// Processes the wheel whose next deadline is first, if `moment` has reached that deadline.
    /// Fills `due` with expired keys of one database and returns its number; `due` may stay empty.
    /// The keys are still stored, but without their timers.
    pub(in crate::store) fn pop_due(
        &mut self,
        moment: Millis,
        budget: &mut u32,
        due: &mut Vec<Due>,
    ) -> Option<usize> {
        let (_, number) = self.next_wheel().filter(|&(next, _)| next <= moment)?;
        self.databases[number].records.pop_due(moment, budget, due);
        Some(number)
    }

    /// Identifies the key in `slot` for removal.
    #[inline]
    pub fn due(&self, number: usize, slot: Slot) -> Due {
        match self.lookup_cache.hash_at(number, slot) {
            Some(hash) => Due { slot, hash },
            None => self.databases[number].records.due(slot),
        }
    }

    /// Removes a key that has expired.
    pub(in crate::store) fn discard_due(&mut self, number: usize, due: Due) {
        self.lookup_cache.invalidate_slots();
        self.databases[number].records.discard(due, &mut self.garbage);
    }

    /// The last time until which everything due has been processed.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Whether everything due by `now` is known to have been processed.
    #[inline]
    pub fn is_done_for(&self, now: Millis) -> bool {
        self.now == now && !self.overdue
    }

    /// Records that everything due by `now` has been processed. Returns whether the time has
    /// changed.
    pub(in crate::store) fn advance(&mut self, now: Millis) -> bool {
        self.overdue = false;
        if self.now == now {
            return false;
        }
        self.now = now;
        if self.with_wheel.len() > IDLE_WHEELS_MAX {
            let databases = &mut self.databases;
            self.with_wheel.retain(|&number| {
                databases[number].records.drop_empty_wheel();
                databases[number].records.has_wheel()
            });
        }
        for &number in &self.with_wheel {
            self.databases[number].records.advance(now);
        }
        true
    }

    /// The next deadline of all wheels, and its database.
    fn next_wheel(&self) -> Option<(Millis, usize)> {
        let next =
            |&number: &usize| Some((self.databases[number].records.next_deadline()?, number));
        self.with_wheel.iter().filter_map(next).min()
    }
}

impl Database {
    /// The number of keys, including expired ones that have not been accessed yet.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of keys with a deadline.
    pub fn with_deadline(&self) -> usize {
        self.records.with_deadline()
    }

    /// The record in an occupied slot.
    #[inline]
    pub fn record(&self, slot: Slot) -> Record<'_> {
        self.records.get(slot)
    }

    /// The key in an occupied slot.
    pub fn key(&self, slot: Slot) -> &[u8] {
        self.records.key(slot)
    }

    /// The records by slot, for `SCAN`, `KEYS` and `RANDOMKEY`, which must skip expired keys.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The records, to be changed. Changes to the number of keys and to deadlines go through
    /// [`Keyspace`].
    #[inline]
    pub(in crate::store) fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// Chooses `count` elements of `all` at random; `count` is at most the length of `all`.
pub(crate) fn random_sample<T>(mut all: Vec<T>, count: usize, random: &mut Random) -> Vec<T> {
    for index in 0..count {
        let left = all.len() - index;
        all.swap(index, index + random.below(left));
    }
    all.truncate(count);
    all
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
        fn cached_find_agrees_with_find(
            steps in prop::collection::vec((0..8, 0..2_usize, 0..6_usize), 1..200),
        ) {
            let mut keyspace = Keyspace::new(2, HashSeed(1, 2), NOW);
            let keys = [&b"a"[..], b"b", b"lock", b"lock:12345", b"look:12345", &[b'k'; 100]];
            for (step, number, key) in steps {
                match (step, keyspace.find_cached(number, keys[key])) {
                    (0, _) => keyspace.swap(0, 1),
                    (1, _) => drop(keyspace.clear(number)),
                    (2, Some(slot)) => keyspace.discard(number, slot),
                    (3, Some(slot)) => drop(keyspace.remove(number, slot)),
                    (4, Some(slot)) => keyspace.discard_due(number, keyspace.due(number, slot)),
                    (2..=5, None) => {
                        keyspace.add(number, keys[key], NewValue::Text(b"v"), NOW);
                    }
                    _ => {}
                }
                for number in 0..2 {
                    let there = keyspace.find(number, keys[key]);
                    let cached = keyspace.find_in_cache::<false>(number, keys[key], Time::at(NOW));
                    prop_assert!(cached.is_none_or(|found| found == there));
                    prop_assert_eq!(keyspace.find_cached(number, keys[key]), there);
                }
            }
        }
    }
}
