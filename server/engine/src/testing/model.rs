//! Random commands for keys and their deadlines in several databases, compared with a simple
//! reference model. The clock often advances to just before, at or just after a deadline.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::settings::{CompatVersion, Settings};
use crate::store::events::Events;
use crate::testing::{Stage, render, words};

const DATABASES: usize = 3;
const KEYS: usize = 3;
const FIELDS: usize = 2;

const WRONG_TYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

/// One step. A command is sent by the client that has selected `database`.
#[derive(Clone, Debug)]
struct Step {
    database: usize,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Set {
        key: usize,
        value: u8,
        condition: SetCondition,
        get: bool,
        expiry: Expiry,
    },
    Setnx {
        key: usize,
        value: u8,
    },
    Psetex {
        key: usize,
        value: u8,
        lease_ms: i64,
    },
    Getset {
        key: usize,
        value: u8,
    },
    Getdel {
        key: usize,
    },
    Getex {
        key: usize,
        expiry: Expiry,
    },
    Msetnx {
        keys: [usize; 2],
        value: u8,
    },
    Append {
        key: usize,
        value: u8,
    },
    Delex {
        key: usize,
        value: u8,
    },
    Hset {
        key: usize,
        field: usize,
        value: u8,
        only_new: bool,
    },
    Hdel {
        key: usize,
        field: usize,
    },
    Look {
        key: usize,
        command: &'static str,
    },
    Pexpire {
        key: usize,
        lease_ms: i64,
        condition: &'static str,
    },
    PexpireatIn {
        key: usize,
        lease_ms: i64,
    },
    Persist {
        key: usize,
    },
    Rename {
        from: usize,
        to: usize,
        only_if_free: bool,
    },
    Copy {
        from: usize,
        to: usize,
        database: usize,
        replace: bool,
    },
    Move {
        key: usize,
        database: usize,
    },
    Swap {
        one: usize,
        other: usize,
    },
    Del {
        key: usize,
    },
    Flush {
        all: bool,
    },
    /// The watching client watches a key of `database`.
    Watch {
        key: usize,
    },
    /// The watching client runs a transaction.
    Exec,
    Advance {
        span_us: i64,
    },
    /// The clock advances to this many microseconds before or after one of the deadlines.
    AdvanceToDeadline {
        which: usize,
        offset_us: i64,
    },
    MoveWall {
        span_ms: i64,
    },
}

/// The condition of a `SET`.
#[derive(Clone, Copy, Debug)]
enum SetCondition {
    None,
    Nx,
    Xx,
    IfEqual(u8),
    IfNotEqual(u8),
}

/// The deadline options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    None,
    /// `KEEPTTL` of `SET`.
    Keep,
    /// `PERSIST` of `GETEX`.
    Persist,
    Millis(i64),
    Seconds(i64),
    /// `PXAT`, this far from now.
    AtMillis(i64),
    /// `EXAT`, this far from now.
    AtSeconds(i64),
}

fn steps() -> impl Strategy<Value = Step> {
    (0..DATABASES, actions()).prop_map(|(database, action)| Step { database, action })
}

fn actions() -> impl Strategy<Value = Action> {
    let key = || 0..KEYS;
    // Few values, so that compared values are often equal.
    let value = || 0..3_u8;
    let field = || 0..FIELDS;
    let database = || 0..DATABASES;
    let lease = || prop_oneof![4 => 1..20_i64, 1 => -2..1_i64, 1 => 1_000_000..2_000_000_i64];
    let given = || {
        prop_oneof![
            6 => (1..20_i64).prop_map(Expiry::Millis),
            1 => (1..3_i64).prop_map(Expiry::Seconds),
            2 => (-2..20_i64).prop_map(Expiry::AtMillis),
            1 => (0..3_i64).prop_map(Expiry::AtSeconds),
            3 => Just(Expiry::None),
        ]
    };
    let set_expiry = prop_oneof![6 => given(), 1 => Just(Expiry::Keep)];
    let getex_expiry = prop_oneof![6 => given(), 2 => Just(Expiry::Persist)];
    let set_condition = prop_oneof![
        3 => Just(SetCondition::None),
        4 => Just(SetCondition::Nx),
        2 => Just(SetCondition::Xx),
        1 => value().prop_map(SetCondition::IfEqual),
        1 => value().prop_map(SetCondition::IfNotEqual),
    ];
    let look = prop::sample::select(&["GET", "STRLEN", "HLEN", "EXISTS", "PTTL", "TTL"][..]);
    let condition = prop::sample::select(&["", "NX", "XX", "GT", "LT", "XX GT", "XX LT"][..]);
    // The boundaries of the last millisecond of a lease, and of those before and after it.
    let offset_us =
        prop::sample::select(&[-2000, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1001][..]);
    let strings = prop_oneof![
        6 => (key(), value(), set_condition, prop::bool::weighted(0.2), set_expiry).prop_map(
            |(key, value, condition, get, expiry)| {
                Action::Set { key, value, condition, get, expiry }
            }
        ),
        2 => (key(), value()).prop_map(|(key, value)| Action::Setnx { key, value }),
        1 => (key(), value(), 1..20_i64)
            .prop_map(|(key, value, lease_ms)| Action::Psetex { key, value, lease_ms }),
        1 => (key(), value()).prop_map(|(key, value)| Action::Getset { key, value }),
        1 => key().prop_map(|key| Action::Getdel { key }),
        2 => (key(), getex_expiry).prop_map(|(key, expiry)| Action::Getex { key, expiry }),
        1 => ([key(), key()], value()).prop_map(|(keys, value)| Action::Msetnx { keys, value }),
        1 => (key(), value()).prop_map(|(key, value)| Action::Append { key, value }),
        1 => (key(), value()).prop_map(|(key, value)| Action::Delex { key, value }),
    ];
    let keys = prop_oneof![
        3 => (key(), look).prop_map(|(key, command)| Action::Look { key, command }),
        4 => (key(), lease(), condition)
            .prop_map(|(key, lease_ms, condition)| Action::Pexpire { key, lease_ms, condition }),
        2 => (key(), lease()).prop_map(|(key, lease_ms)| Action::PexpireatIn { key, lease_ms }),
        1 => key().prop_map(|key| Action::Persist { key }),
        2 => (key(), key(), any::<bool>())
            .prop_map(|(from, to, only_if_free)| Action::Rename { from, to, only_if_free }),
        2 => (key(), key(), database(), any::<bool>())
            .prop_map(|(from, to, database, replace)| Action::Copy { from, to, database, replace }),
        2 => (key(), database()).prop_map(|(key, database)| Action::Move { key, database }),
        1 => (database(), database()).prop_map(|(one, other)| Action::Swap { one, other }),
        1 => key().prop_map(|key| Action::Del { key }),
        1 => prop::bool::weighted(0.3).prop_map(|all| Action::Flush { all }),
    ];
    prop_oneof![
        16 => strings,
        3 => (key(), field(), value(), any::<bool>()).prop_map(
            |(key, field, value, only_new)| Action::Hset { key, field, value, only_new }
        ),
        1 => (key(), field()).prop_map(|(key, field)| Action::Hdel { key, field }),
        18 => keys,
        4 => key().prop_map(|key| Action::Watch { key }),
        2 => Just(Action::Exec),
        3 => (0..8_000_i64).prop_map(|span_us| Action::Advance { span_us }),
        8 => (0..DATABASES * KEYS, offset_us)
            .prop_map(|(which, offset_us)| Action::AdvanceToDeadline { which, offset_us }),
        1 => (-5_000..5_000_i64).prop_map(|span_ms| Action::MoveWall { span_ms }),
    ]
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Hash(BTreeMap<usize, u8>),
}

/// A value and its deadline.
type Held = (Value, Option<i64>);

/// A database and a key.
type Place = (usize, usize);

/// All databases as one map.
#[derive(Default)]
struct Model {
    held: BTreeMap<Place, Held>,
    now_us: i64,
    wall_ahead_ms: i64,
    watched: BTreeSet<Place>,
    /// Whether a watched key has changed.
    watch_broken: bool,
    /// Leases that have ended; their events are expected.
    ended: Vec<Place>,
}

impl Model {
    /// The current millisecond, rounded down.
    fn now_ms(&self) -> i64 {
        self.now_us.div_euclid(1000)
    }

    /// The deadline of a lease that begins now: a lease begins with a whole millisecond.
    fn lease_end_ms(&self, lease_ms: i64) -> i64 {
        if lease_ms <= 0 { self.now_ms() + lease_ms } else { self.begin_ms() + lease_ms }
    }

    /// The next whole millisecond.
    fn begin_ms(&self) -> i64 {
        (self.now_us + 999).div_euclid(1000)
    }

    fn wall_ms(&self) -> i64 {
        self.now_ms() + self.wall_ahead_ms
    }

    fn touch(&mut self, place: Place) {
        self.watch_broken |= self.watched.contains(&place);
    }

    fn put(&mut self, place: Place, value: Value, deadline: Option<i64>) {
        self.held.insert(place, (value, deadline));
        self.touch(place);
    }

    fn remove(&mut self, place: Place) -> Option<Held> {
        let held = self.held.remove(&place)?;
        self.touch(place);
        Some(held)
    }

    /// Ends the leases past their deadline.
    fn end_leases(&mut self) {
        let now_ms = self.now_ms();
        let is_over = |held: &Held| held.1.is_some_and(|deadline| deadline <= now_ms);
        let over: Vec<Place> =
            self.held.iter().filter(|(_, held)| is_over(held)).map(|(place, _)| *place).collect();
        for place in over {
            self.remove(place);
            self.ended.push(place);
        }
    }

    fn text(&self, place: Place) -> Result<Option<&str>, String> {
        match self.held.get(&place) {
            None => Ok(None),
            Some((Value::Text(text), _)) => Ok(Some(text)),
            Some((Value::Hash(_), _)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn deadline(&self, place: Place) -> Option<i64> {
        self.held.get(&place).and_then(|held| held.1)
    }

    /// The words of an option, and the deadline it sets; `None` if it sets none.
    fn expiry(&self, expiry: Expiry) -> (String, Option<i64>) {
        match expiry {
            Expiry::None => (String::new(), None),
            Expiry::Keep => (" KEEPTTL".to_owned(), None),
            Expiry::Persist => (" PERSIST".to_owned(), None),
            Expiry::Millis(lease_ms) => {
                (format!(" PX {lease_ms}"), Some(self.lease_end_ms(lease_ms)))
            }
            Expiry::Seconds(lease) => {
                (format!(" EX {lease}"), Some(self.lease_end_ms(lease * 1000)))
            }
            Expiry::AtMillis(lease_ms) => {
                let wall_ms = self.wall_ms() + lease_ms;
                (format!(" PXAT {wall_ms}"), Some(wall_ms - self.wall_ahead_ms))
            }
            Expiry::AtSeconds(lease) => {
                let wall_seconds = self.wall_ms().div_euclid(1000) + lease;
                (format!(" EXAT {wall_seconds}"), Some(wall_seconds * 1000 - self.wall_ahead_ms))
            }
        }
    }

    /// Runs a command; returns it and the expected reply. Not for advances of the clock.
    fn command(&mut self, step: &Step) -> (String, String) {
        let database = step.database;
        let at = |key: usize| (database, key);
        match step.action {
            Action::Set { key, value, condition, get, expiry } => {
                let (options, deadline) = self.expiry(expiry);
                let words = match condition {
                    SetCondition::None => String::new(),
                    SetCondition::Nx => " NX".to_owned(),
                    SetCondition::Xx => " XX".to_owned(),
                    SetCondition::IfEqual(other) => format!(" IFEQ v{other}"),
                    SetCondition::IfNotEqual(other) => format!(" IFNE v{other}"),
                };
                let get_word = if get { " GET" } else { "" };
                let command = format!("SET k{key} v{value}{words}{get_word}{options}");
                let deadline = match expiry {
                    Expiry::Keep => self.deadline(at(key)),
                    _ => deadline,
                };
                (command, self.set(at(key), text(value), condition, get, deadline))
            }
            Action::Setnx { key, value } => {
                let free = !self.held.contains_key(&at(key));
                if free {
                    self.put(at(key), text(value), None);
                }
                (format!("SETNX k{key} v{value}"), number(free))
            }
            Action::Psetex { key, value, lease_ms } => {
                self.put(at(key), text(value), Some(self.lease_end_ms(lease_ms)));
                (format!("PSETEX k{key} {lease_ms} v{value}"), "OK".to_owned())
            }
            Action::Getset { key, value } => {
                let old = self.get(at(key));
                if old != WRONG_TYPE {
                    self.put(at(key), text(value), None);
                }
                (format!("GETSET k{key} v{value}"), old)
            }
            Action::Getdel { key } => {
                let old = self.get(at(key));
                if old != WRONG_TYPE {
                    self.remove(at(key));
                }
                (format!("GETDEL k{key}"), old)
            }
            Action::Getex { key, expiry } => {
                let (options, deadline) = self.expiry(expiry);
                let old = self.get(at(key));
                if old != WRONG_TYPE && old != "nil" {
                    self.getex(at(key), expiry, deadline);
                }
                (format!("GETEX k{key}{options}"), old)
            }
            Action::Msetnx { keys: [one, other], value } => {
                let free = [one, other].iter().all(|&key| !self.held.contains_key(&at(key)));
                if free {
                    [one, other].iter().for_each(|&key| self.put(at(key), text(value), None));
                }
                (format!("MSETNX k{one} v{value} k{other} v{value}"), number(free))
            }
            Action::Append { key, value } => {
                let command = format!("APPEND k{key} v{value}");
                let old = match self.text(at(key)) {
                    Ok(old) => old.unwrap_or_default(),
                    Err(error) => return (command, error),
                };
                let new = format!("{old}v{value}");
                let length = new.len();
                self.put(at(key), Value::Text(new), self.deadline(at(key)));
                (command, length.to_string())
            }
            Action::Delex { key, value } => {
                let command = format!("DELEX k{key} IFEQ v{value}");
                let equal = match self.text(at(key)) {
                    Ok(old) => old == Some(&format!("v{value}")),
                    Err(_) => {
                        let error = "!ERR Key should be of string type if conditions are specified";
                        return (command, error.to_owned());
                    }
                };
                (command, number(equal && self.remove(at(key)).is_some()))
            }
            Action::Hset { key, field, value, only_new } => {
                let name = if only_new { "HSETNX" } else { "HSET" };
                (
                    format!("{name} k{key} f{field} {value}"),
                    self.hset(at(key), field, value, only_new),
                )
            }
            Action::Hdel { key, field } => {
                (format!("HDEL k{key} f{field}"), self.hdel(at(key), field))
            }
            Action::Look { key, command } => {
                (format!("{command} k{key}"), self.look(at(key), command))
            }
            Action::Pexpire { key, lease_ms, condition } => {
                let done = self.expire(at(key), self.lease_end_ms(lease_ms), condition);
                (format!("PEXPIRE k{key} {lease_ms} {condition}"), number(done))
            }
            Action::PexpireatIn { key, lease_ms } => {
                let done = self.expire(at(key), self.now_ms() + lease_ms, "");
                let wall_ms = self.wall_ms() + lease_ms;
                (format!("PEXPIREAT k{key} {wall_ms}"), number(done))
            }
            Action::Persist { key } => {
                let old = self.held.get_mut(&at(key)).and_then(|held| held.1.take());
                if old.is_some() {
                    self.touch(at(key));
                }
                (format!("PERSIST k{key}"), number(old.is_some()))
            }
            Action::Rename { from, to, only_if_free } => {
                let command = if only_if_free { "RENAMENX" } else { "RENAME" };
                let reply = self.rename(at(from), at(to), only_if_free);
                (format!("{command} k{from} k{to}"), reply)
            }
            Action::Copy { from, to, database, replace } => {
                let replaces = if replace { "REPLACE" } else { "" };
                let command = format!("COPY k{from} k{to} DB {database} {replaces}");
                (command, self.copy(at(from), (database, to), replace))
            }
            Action::Move { key, database } => {
                (format!("MOVE k{key} {database}"), self.move_key(at(key), (database, key)))
            }
            Action::Swap { one, other } => {
                self.swap(one, other);
                (format!("SWAPDB {one} {other}"), "OK".to_owned())
            }
            Action::Del { key } => (format!("DEL k{key}"), number(self.remove(at(key)).is_some())),
            Action::Flush { all } => {
                let goes = |place: &&Place| all || place.0 == database;
                let places: Vec<Place> = self.held.keys().filter(goes).copied().collect();
                places.into_iter().for_each(|place| drop(self.remove(place)));
                (if all { "FLUSHALL" } else { "FLUSHDB" }.to_owned(), "OK".to_owned())
            }
            Action::Watch { key } => {
                self.watched.insert(at(key));
                (format!("WATCH k{key}"), "OK".to_owned())
            }
            Action::Exec => {
                self.watched.clear();
                let broken = std::mem::take(&mut self.watch_broken);
                ("EXEC".to_owned(), if broken { "nil-array" } else { "[PONG]" }.to_owned())
            }
            Action::Advance { .. } | Action::AdvanceToDeadline { .. } | Action::MoveWall { .. } => {
                unreachable!("no command")
            }
        }
    }

    fn get(&self, place: Place) -> String {
        match self.text(place) {
            Ok(text) => text.map_or("nil".to_owned(), |text| format!("\"{text}\"")),
            Err(error) => error,
        }
    }

    fn set(
        &mut self,
        place: Place,
        value: Value,
        condition: SetCondition,
        get: bool,
        deadline: Option<i64>,
    ) -> String {
        let old = self.get(place);
        if get && old == WRONG_TYPE {
            return old;
        }
        let exists = self.held.contains_key(&place);
        let is_equal = |other: u8| self.text(place).map(|old| old == Some(&format!("v{other}")));
        let holds = match condition {
            SetCondition::None => Ok(true),
            SetCondition::Nx => Ok(!exists),
            SetCondition::Xx => Ok(exists),
            SetCondition::IfEqual(other) => is_equal(other),
            SetCondition::IfNotEqual(other) => is_equal(other).map(|equal| !equal),
        };
        match holds {
            Err(error) => return error,
            Ok(false) => return if get { old } else { "nil".to_owned() },
            Ok(true) => self.put(place, value, deadline),
        }
        if get { old } else { "OK".to_owned() }
    }

    fn getex(&mut self, place: Place, expiry: Expiry, deadline: Option<i64>) {
        let Some(held) = self.held.get_mut(&place) else { return };
        match (expiry, deadline) {
            (_, Some(deadline)) => held.1 = Some(deadline),
            (Expiry::Persist, None) if held.1.is_some() => held.1 = None,
            _ => return,
        }
        self.touch(place);
        if deadline.is_some_and(|deadline| deadline <= self.now_ms()) {
            self.remove(place);
        }
    }

    fn hset(&mut self, place: Place, field: usize, value: u8, only_new: bool) -> String {
        let empty = (Value::Hash(BTreeMap::new()), None);
        let (Value::Hash(fields), _) = self.held.entry(place).or_insert(empty) else {
            return WRONG_TYPE.to_owned();
        };
        let is_new = !fields.contains_key(&field);
        if is_new || !only_new {
            fields.insert(field, value);
            self.touch(place);
        }
        number(is_new)
    }

    fn hdel(&mut self, place: Place, field: usize) -> String {
        let fields = match self.held.get_mut(&place) {
            None => return number(false),
            Some((Value::Text(_), _)) => return WRONG_TYPE.to_owned(),
            Some((Value::Hash(fields), _)) => fields,
        };
        let was_there = fields.remove(&field).is_some();
        if fields.is_empty() {
            self.remove(place);
        } else if was_there {
            self.touch(place);
        }
        number(was_there)
    }

    fn look(&self, place: Place, command: &str) -> String {
        let held = self.held.get(&place);
        let left_ms = |deadline: i64| (deadline - self.begin_ms()).max(0);
        match (command, held) {
            ("GET", _) => self.get(place),
            ("EXISTS", _) => number(held.is_some()),
            ("STRLEN", Some((Value::Text(text), _))) => text.len().to_string(),
            ("HLEN", Some((Value::Hash(fields), _))) => fields.len().to_string(),
            ("STRLEN" | "HLEN", Some(_)) => WRONG_TYPE.to_owned(),
            ("STRLEN" | "HLEN", None) => "0".to_owned(),
            (_, None) => "-2".to_owned(),
            (_, Some((_, None))) => "-1".to_owned(),
            ("PTTL", Some((_, Some(deadline)))) => left_ms(*deadline).to_string(),
            ("TTL", Some((_, Some(deadline)))) => ((left_ms(*deadline) + 500) / 1000).to_string(),
            ("PEXPIRETIME", Some((_, Some(deadline)))) => {
                (deadline + self.wall_ahead_ms).to_string()
            }
            _ => unreachable!("{command} is not drawn"),
        }
    }

    fn expire(&mut self, place: Place, deadline: i64, condition: &str) -> bool {
        let Some(held) = self.held.get_mut(&place) else { return false };
        let old = held.1;
        let holds = condition.split_whitespace().all(|word| match word {
            "NX" => old.is_none(),
            "XX" => old.is_some(),
            "GT" => old.is_some_and(|old| deadline > old),
            _ => old.is_none_or(|old| deadline < old),
        });
        if holds {
            held.1 = Some(deadline);
            self.touch(place);
            if deadline <= self.now_ms() {
                self.remove(place);
            }
        }
        holds
    }

    fn rename(&mut self, from: Place, to: Place, only_if_free: bool) -> String {
        if !self.held.contains_key(&from) {
            return "!ERR no such key".to_owned();
        }
        if only_if_free && self.held.contains_key(&to) {
            return number(false);
        }
        if from != to
            && let Some((value, deadline)) = self.remove(from)
        {
            self.put(to, value, deadline);
        }
        if only_if_free { number(true) } else { "OK".to_owned() }
    }

    fn copy(&mut self, from: Place, to: Place, replace: bool) -> String {
        if from == to {
            return "!ERR source and destination objects are the same".to_owned();
        }
        let Some((value, deadline)) = self.held.get(&from).cloned() else { return number(false) };
        let free = replace || !self.held.contains_key(&to);
        if free {
            self.put(to, value, deadline);
        }
        number(free)
    }

    fn move_key(&mut self, from: Place, to: Place) -> String {
        if from == to {
            return "!ERR source and destination objects are the same".to_owned();
        }
        if self.held.contains_key(&to) {
            return number(false);
        }
        let Some((value, deadline)) = self.remove(from) else { return number(false) };
        self.put(to, value, deadline);
        number(true)
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        // Watches stay with the number of the database.
        for key in 0..KEYS {
            if [one, other].iter().any(|&database| self.held.contains_key(&(database, key))) {
                self.touch((one, key));
                self.touch((other, key));
            }
        }
        let held = std::mem::take(&mut self.held);
        self.held.extend(held.into_iter().map(|((database, key), held)| {
            let database = match database {
                d if d == one => other,
                d if d == other => one,
                d => d,
            };
            ((database, key), held)
        }));
    }

    fn with_deadline(&self) -> usize {
        self.held.values().filter(|held| held.1.is_some()).count()
    }
}

fn text(value: u8) -> Value {
    Value::Text(format!("v{value}"))
}

fn number(done: bool) -> String {
    i32::from(done).to_string()
}

/// An engine and the model of its expected state.
struct Trial {
    stage: Stage,
    model: Model,
    /// Whether keys are removed at their deadline, or only when a command accesses them.
    active_expiry: bool,
}

impl Trial {
    fn new(active_expiry: bool) -> Trial {
        let mut settings = Settings::default();
        settings.compat_version = CompatVersion::Redis84;
        settings.notify_keyspace_events = Events::KEYEVENT | Events::EXPIRED;
        let mut stage = Stage::new(settings);
        stage.engine.writer.set_active_expiry(active_expiry);
        stage.check("l> PSUBSCRIBE __keyevent@*__:expired");
        stage.step("l<");
        for database in 0..DATABASES {
            stage.check(&format!("{database}> SELECT {database} => OK"));
        }
        let model = Model { now_us: stage.time().now.0 * 1000, ..Model::default() };
        Trial { stage, model, active_expiry }
    }

    fn run(&mut self, client: &str, command: &str) -> String {
        let client = self.stage.client(client);
        self.stage.run(client, &words(command)).0
    }

    fn step(&mut self, step: &Step) {
        let model = &mut self.model;
        match step.action {
            Action::Advance { span_us } => self.advance(span_us),
            Action::AdvanceToDeadline { which, offset_us } => {
                let deadlines: Vec<i64> = model.held.values().filter_map(|held| held.1).collect();
                if !deadlines.is_empty() {
                    let moment_us = deadlines[which % deadlines.len()] * 1000 + offset_us;
                    let span_us = moment_us - model.now_us;
                    // A deadline a thousand seconds or more away is not advanced to.
                    if (0..100_000_000).contains(&span_us) {
                        self.advance(span_us);
                    }
                }
            }
            Action::MoveWall { span_ms } => {
                model.wall_ahead_ms += span_ms;
                self.stage.check(&format!("wall{span_ms:+}ms"));
            }
            Action::Watch { .. } => {
                let (command, reply) = model.command(step);
                self.run("w", &format!("SELECT {}", step.database));
                assert_eq!(self.run("w", &command), reply, "{command}");
            }
            Action::Exec => {
                let (command, reply) = model.command(step);
                self.run("w", "MULTI");
                self.run("w", "PING");
                assert_eq!(self.run("w", &command), reply, "{command}");
            }
            _ => {
                // As in Redis, `SWAPDB` treats an expired key like any other.
                if matches!(step.action, Action::Swap { .. }) {
                    self.compare();
                }
                let (command, reply) = self.model.command(step);
                let client = step.database.to_string();
                assert_eq!(self.run(&client, &command), reply, "{client}> {command}");
                self.model.end_leases();
                self.compare();
            }
        }
    }

    /// With active expiry, compares everything afterwards. Without, compares nothing, so that the
    /// next command is the first to access an expired key.
    fn advance(&mut self, span_us: i64) {
        self.model.now_us += span_us;
        self.model.end_leases();
        self.stage.advance(span_us);
        if self.active_expiry {
            self.compare();
        }
    }

    /// Compares the state that clients see in every database, and the number of timers with that of
    /// deadlines.
    fn compare(&mut self) {
        for database in 0..DATABASES {
            for key in 0..KEYS {
                self.compare_key((database, key));
            }
        }
        for database in 0..DATABASES {
            let keys = self.model.held.keys().filter(|place| place.0 == database).count();
            let found = self.stage.engine.writer.keyspace().database(database).len();
            assert_eq!(found, keys, "in {database}");
        }
        let in_databases = 0..DATABASES;
        let keyspace = self.stage.engine.writer.keyspace();
        let counted: usize =
            in_databases.map(|database| keyspace.database(database).with_deadline()).sum();
        let with_deadline = self.model.with_deadline();
        assert_eq!(counted, with_deadline);
        let timers = if self.active_expiry { with_deadline } else { 0 };
        assert_eq!(self.stage.engine.writer.keyspace().timers(), timers, "one timer a deadline");
        self.compare_events();
    }

    /// Expects one event for each lease that has ended. Without active expiry `FLUSHALL` may remove
    /// a key instead.
    fn compare_events(&mut self) {
        let mut announced: Vec<String> = self.stage.answers("l<").iter().map(render).collect();
        let ended = std::mem::take(&mut self.model.ended);
        if !self.active_expiry {
            return;
        }
        let event = |(database, key)| {
            let channel = format!("\"__keyevent@{database}__:expired\"");
            format!("[\"pmessage\", \"__keyevent@*__:expired\", {channel}, \"k{key}\"]")
        };
        let mut ended: Vec<String> = ended.into_iter().map(event).collect();
        announced.sort();
        ended.sort();
        assert_eq!(announced, ended);
    }

    fn compare_key(&mut self, place: Place) {
        let (database, key) = (place.0.to_string(), place.1);
        let content = match self.model.held.get(&place) {
            Some((Value::Hash(fields), _)) => {
                let values = (0..FIELDS).map(|field| match fields.get(&field) {
                    Some(value) => format!("\"{value}\""),
                    None => "nil".to_owned(),
                });
                let values = format!("[{}]", values.collect::<Vec<_>>().join(", "));
                (format!("HMGET k{key} f0 f1"), values)
            }
            _ => (format!("GET k{key}"), self.model.get(place)),
        };
        let looks = ["PTTL", "PEXPIRETIME"]
            .map(|command| (format!("{command} k{key}"), self.model.look(place, command)));
        for (command, reply) in std::iter::once(content).chain(looks) {
            assert_eq!(self.run(&database, &command), reply, "{database}> {command}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_deadlines_agree_with_a_map(
        steps in prop::collection::vec(steps(), 1..80),
        active_expiry in any::<bool>(),
    ) {
        let mut trial = Trial::new(active_expiry);
        for step in &steps {
            trial.step(step);
        }
        trial.advance(10_000_000_000);
        trial.compare();
        prop_assert_eq!(trial.stage.engine.writer.keyspace().timers(), 0);
    }
}
