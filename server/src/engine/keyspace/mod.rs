//! The databases: which keys exist, what they hold and until when.
//!
//! What must hold: a key whose deadline has been reached is removed before anyone can look at it,
//! and a key with a deadline has exactly one timer in the wheel (none while active expiry is off).

pub mod dict;
pub mod hash;
pub mod list;
pub mod sequence;
pub mod serialised;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod string;
pub mod value;

use std::collections::BTreeMap;

use crate::engine::Timer;
use crate::engine::client::ClientId;
use crate::engine::time::{Millis, Time};
use crate::engine::timers::{TimerId, Timers};
use dict::{Dict, HashSeed, Slot};
use value::Value;

/// What stands behind a key.
#[derive(Debug)]
pub struct Record {
    /// The value.
    pub value: Value,
    /// When the key was last used, for `OBJECT IDLETIME`.
    pub used_at: Millis,
    deadline: Option<Millis>,
    timer: Option<TimerId>,
}

impl Record {
    /// When the key ends, if it does.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }
}

/// One of the numbered databases.
#[derive(Debug)]
pub struct Database {
    records: Dict<Record>,
    with_deadline: usize,
    /// Who watches which key.
    pub watchers: BTreeMap<Box<[u8]>, Vec<ClientId>>,
    /// The number clients select it by; its place in [`Keyspace`] stays when `SWAPDB` changes it.
    pub number: usize,
}

/// All databases. `SWAPDB` exchanges their numbers, so timers, which know a database's place, stay
/// right.
#[derive(Debug)]
pub struct Keyspace {
    databases: Vec<Database>,
    places: Vec<usize>,
    /// The key of every hash table that holds what clients sent.
    pub seed: HashSeed,
    /// Whether the wheel removes keys at their deadline (`DEBUG SET-ACTIVE-EXPIRE`).
    active_expiry: bool,
}

impl Keyspace {
    /// `count` empty databases.
    pub fn new(count: usize, seed: HashSeed) -> Keyspace {
        let empty = |number| Database {
            records: Dict::new(seed),
            with_deadline: 0,
            watchers: BTreeMap::new(),
            number,
        };
        Keyspace {
            databases: (0..count).map(empty).collect(),
            places: (0..count).collect(),
            seed,
            active_expiry: true,
        }
    }

    /// How many databases there are.
    pub fn count(&self) -> usize {
        self.databases.len()
    }

    /// The database a client selects by `number`, which must exist.
    pub fn database(&self, number: usize) -> &Database {
        &self.databases[self.places[number]]
    }

    /// The database a client selects by `number`, which must exist.
    pub fn database_mut(&mut self, number: usize) -> &mut Database {
        &mut self.databases[self.places[number]]
    }

    /// The number by which clients now select the database at a timer's `place`.
    pub fn number_at(&self, place: u32) -> usize {
        self.databases[place as usize].number
    }

    /// Exchanges two databases. Watchers stay: they watch what clients see under a number.
    pub fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        let watchers_of_a = std::mem::take(&mut self.database_mut(a).watchers);
        let watchers_of_b = std::mem::replace(&mut self.database_mut(b).watchers, watchers_of_a);
        self.database_mut(a).watchers = watchers_of_b;
        self.places.swap(a, b);
        for number in [a, b] {
            self.database_mut(number).number = number;
        }
    }

    /// Finds a key, dead or alive.
    pub fn find(&self, number: usize, key: &[u8]) -> Option<Slot> {
        self.database(number).records.find(key)
    }

    /// Adds a key that is known to be absent.
    pub fn add(&mut self, number: usize, key: &[u8], value: Value, time: Time) -> Slot {
        let record = Record { value, used_at: time.now, deadline: None, timer: None };
        self.database_mut(number).records.insert_new(key, record)
    }

    /// Removes the key in `slot` and its timer. The record still says when it would have ended.
    pub fn remove(
        &mut self,
        number: usize,
        slot: Slot,
        wheel: &mut Timers<Timer>,
    ) -> (Box<[u8]>, Record) {
        let deadline = self.database(number).record(slot).deadline;
        self.set_deadline(number, slot, None, wheel);
        let (key, record) = self.database_mut(number).records.remove_slot(slot);
        (key, Record { deadline, ..record })
    }

    /// Sets or clears the deadline of the key in `slot`.
    pub fn set_deadline(
        &mut self,
        number: usize,
        slot: Slot,
        deadline: Option<Millis>,
        wheel: &mut Timers<Timer>,
    ) {
        let place = self.places[number];
        let database = &mut self.databases[place];
        let record = database.records.value_mut(slot);
        database.with_deadline -= usize::from(record.deadline.is_some());
        database.with_deadline += usize::from(deadline.is_some());
        record.deadline = deadline;
        match (record.timer, deadline) {
            (Some(timer), Some(deadline)) => wheel.reschedule(timer, deadline),
            (Some(timer), None) => {
                wheel.cancel(timer);
                record.timer = None;
            }
            (None, Some(deadline)) if self.active_expiry => {
                let payload = Timer::Key { place: place as u32, slot };
                record.timer = Some(wheel.insert(deadline, payload));
            }
            (None, _) => {}
        }
    }

    /// The wheel has fired the timer of this key, which therefore has none now.
    pub fn timer_fired(&mut self, place: u32, slot: Slot) {
        self.databases[place as usize].records.value_mut(slot).timer = None;
    }

    /// Turns active expiry on or off. Keys keep their deadlines either way.
    pub fn set_active_expiry(&mut self, on: bool, wheel: &mut Timers<Timer>) {
        self.active_expiry = on;
        for (place, database) in self.databases.iter_mut().enumerate() {
            let slots: Vec<Slot> = database.records.scan(0, usize::MAX).0.collect();
            for slot in slots {
                let record = database.records.value_mut(slot);
                match (on, record.timer.take(), record.deadline) {
                    (true, None, Some(deadline)) => {
                        let payload = Timer::Key { place: place as u32, slot };
                        record.timer = Some(wheel.insert(deadline, payload));
                    }
                    (true, timer, _) => record.timer = timer,
                    (false, Some(timer), _) => drop(wheel.cancel(timer)),
                    (false, None, _) => {}
                }
            }
        }
    }

    /// Whether the wheel removes keys at their deadline.
    pub fn active_expiry(&self) -> bool {
        self.active_expiry
    }

    /// Removes every key of a database, and their timers; returns how many there were.
    pub fn clear(&mut self, number: usize, wheel: &mut Timers<Timer>) -> usize {
        let database = self.database_mut(number);
        let slots = database.records.scan(0, usize::MAX).0;
        for timer in slots.filter_map(|slot| database.records.value(slot).timer) {
            wheel.cancel(timer);
        }
        let removed = database.records.len();
        database.records.clear();
        database.with_deadline = 0;
        removed
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
        self.with_deadline
    }

    /// The record in a slot that is taken.
    pub fn record(&self, slot: Slot) -> &Record {
        self.records.value(slot)
    }

    /// The record in a slot that is taken.
    pub fn record_mut(&mut self, slot: Slot) -> &mut Record {
        self.records.value_mut(slot)
    }

    /// The key in a slot that is taken.
    pub fn key(&self, slot: Slot) -> &[u8] {
        self.records.key(slot)
    }

    /// The keys by slot: for `SCAN`, `KEYS` and `RANDOMKEY`, which must skip the dead.
    pub fn records(&self) -> &Dict<Record> {
        &self.records
    }
}
