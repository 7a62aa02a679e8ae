//! Random commands for keys and their deadlines, against a map that is too simple to be wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::config::Config;
use crate::engine::testing::{Stage, words};

const DATABASES: usize = 3;
const KEYS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Set { key: usize, value: u8, lease_ms: Option<i64> },
    Pexpire { key: usize, lease_ms: i64, condition: &'static str },
    PexpireatIn { key: usize, lease_ms: i64 },
    Persist { key: usize },
    Rename { from: usize, to: usize, only_if_free: bool },
    Copy { from: usize, to: usize, database: usize, replace: bool },
    Move { key: usize, database: usize },
    Swap { one: usize, other: usize },
    Del { key: usize },
    Flush { all: bool },
    Advance { span_ms: i64 },
    MoveWall { span_ms: i64 },
}

fn steps() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let database = || 0..DATABASES;
    let lease = || prop_oneof![4 => 1..20_i64, 1 => -2..1_i64, 1 => 1_000_000..2_000_000_i64];
    let condition = prop::sample::select(&["", "NX", "XX", "GT", "LT", "XX GT", "XX LT"][..]);
    prop_oneof![
        4 => (key(), any::<u8>(), prop::option::of(1..20_i64))
            .prop_map(|(key, value, lease_ms)| Step::Set { key, value, lease_ms }),
        4 => (key(), lease(), condition)
            .prop_map(|(key, lease_ms, condition)| Step::Pexpire { key, lease_ms, condition }),
        2 => (key(), lease()).prop_map(|(key, lease_ms)| Step::PexpireatIn { key, lease_ms }),
        1 => key().prop_map(|key| Step::Persist { key }),
        3 => (key(), key(), any::<bool>())
            .prop_map(|(from, to, only_if_free)| Step::Rename { from, to, only_if_free }),
        3 => (key(), key(), database(), any::<bool>())
            .prop_map(|(from, to, database, replace)| Step::Copy { from, to, database, replace }),
        3 => (key(), database()).prop_map(|(key, database)| Step::Move { key, database }),
        2 => (database(), database()).prop_map(|(one, other)| Step::Swap { one, other }),
        1 => key().prop_map(|key| Step::Del { key }),
        1 => prop::bool::weighted(0.3).prop_map(|all| Step::Flush { all }),
        6 => (0..8_i64).prop_map(|span_ms| Step::Advance { span_ms }),
        1 => (-5_000..5_000_i64).prop_map(|span_ms| Step::MoveWall { span_ms }),
    ]
}

/// A value and the moment it ends.
type Held = (u8, Option<i64>);

/// All databases as one map; clients are in database 0.
#[derive(Default)]
struct Model {
    held: BTreeMap<(usize, usize), Held>,
    now_ms: i64,
    wall_ahead_ms: i64,
}

impl Model {
    /// Does the step; returns the command for it, if it is one, and the reply to expect.
    fn step(&mut self, step: &Step) -> Option<(String, String)> {
        let (command, reply) = match *step {
            Step::Set { key, value, lease_ms } => {
                self.held.insert((0, key), (value, lease_ms.map(|lease| self.now_ms + lease)));
                let lease = lease_ms.map_or(String::new(), |lease| format!(" PX {lease}"));
                (format!("SET k{key} v{value}{lease}"), "OK".to_owned())
            }
            Step::Pexpire { key, lease_ms, condition } => {
                let done = self.expire(key, self.now_ms + lease_ms, condition);
                (format!("PEXPIRE k{key} {lease_ms} {condition}"), number(done))
            }
            Step::PexpireatIn { key, lease_ms } => {
                let done = self.expire(key, self.now_ms + lease_ms, "");
                let wall = self.now_ms + self.wall_ahead_ms + lease_ms;
                (format!("PEXPIREAT k{key} {wall}"), number(done))
            }
            Step::Persist { key } => {
                let old = self.held.get_mut(&(0, key)).and_then(|held| held.1.take());
                (format!("PERSIST k{key}"), number(old.is_some()))
            }
            Step::Rename { from, to, only_if_free } => {
                let command = if only_if_free { "RENAMENX" } else { "RENAME" };
                (format!("{command} k{from} k{to}"), self.rename(from, to, only_if_free))
            }
            Step::Copy { from, to, database, replace } => {
                let replaces = if replace { "REPLACE" } else { "" };
                let command = format!("COPY k{from} k{to} DB {database} {replaces}");
                (command, self.copy((0, from), (database, to), replace))
            }
            Step::Move { key, database } => {
                (format!("MOVE k{key} {database}"), self.move_key(key, database))
            }
            Step::Swap { one, other } => {
                self.swap(one, other);
                (format!("SWAPDB {one} {other}"), "OK".to_owned())
            }
            Step::Del { key } => {
                (format!("DEL k{key}"), number(self.held.remove(&(0, key)).is_some()))
            }
            Step::Flush { all } => {
                self.held.retain(|&(database, _), _| !all && database != 0);
                (if all { "FLUSHALL" } else { "FLUSHDB" }.to_owned(), "OK".to_owned())
            }
            Step::Advance { span_ms } => {
                self.now_ms += span_ms;
                let now_ms = self.now_ms;
                self.held.retain(|_, held| held.1.is_none_or(|deadline| deadline > now_ms));
                return None;
            }
            Step::MoveWall { span_ms } => {
                self.wall_ahead_ms += span_ms;
                return None;
            }
        };
        Some((command, reply))
    }

    fn expire(&mut self, key: usize, deadline: i64, condition: &str) -> bool {
        let Some(held) = self.held.get_mut(&(0, key)) else { return false };
        let old = held.1;
        let holds = condition.split_whitespace().all(|word| match word {
            "NX" => old.is_none(),
            "XX" => old.is_some(),
            "GT" => old.is_some_and(|old| deadline > old),
            _ => old.is_none_or(|old| deadline < old),
        });
        if holds {
            held.1 = Some(deadline);
            if deadline <= self.now_ms {
                self.held.remove(&(0, key));
            }
        }
        holds
    }

    fn rename(&mut self, from: usize, to: usize, only_if_free: bool) -> String {
        if !self.held.contains_key(&(0, from)) {
            return "!ERR no such key".to_owned();
        }
        if only_if_free && self.held.contains_key(&(0, to)) {
            return number(false);
        }
        if let Some(held) = self.held.remove(&(0, from)) {
            self.held.insert((0, to), held);
        }
        if only_if_free { number(true) } else { "OK".to_owned() }
    }

    fn copy(&mut self, from: (usize, usize), to: (usize, usize), replace: bool) -> String {
        if from == to {
            return "!ERR source and destination objects are the same".to_owned();
        }
        let Some(&held) = self.held.get(&from) else { return number(false) };
        let free = replace || !self.held.contains_key(&to);
        if free {
            self.held.insert(to, held);
        }
        number(free)
    }

    fn move_key(&mut self, key: usize, database: usize) -> String {
        if database == 0 {
            return "!ERR source and destination objects are the same".to_owned();
        }
        if self.held.contains_key(&(database, key)) {
            return number(false);
        }
        let held = self.held.remove(&(0, key));
        number(held.is_some_and(|held| self.held.insert((database, key), held).is_none()))
    }

    fn swap(&mut self, one: usize, other: usize) {
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

fn number(done: bool) -> String {
    i32::from(done).to_string()
}

fn run(stage: &mut Stage, command: &str) -> String {
    let client = stage.client("a");
    stage.run(client, &words(command)).0
}

/// What clients see in every database, and one timer for each deadline.
fn compare(stage: &mut Stage, model: &Model) {
    for key in 0..KEYS {
        let held = model.held.get(&(0, key));
        let value = held.map_or("nil".to_owned(), |held| format!("\"v{}\"", held.0));
        assert_eq!(run(stage, &format!("GET k{key}")), value);
        let left = match held {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(deadline))) => deadline - model.now_ms,
        };
        assert_eq!(run(stage, &format!("PTTL k{key}")), left.to_string());
        let end = if left > 0 { left + model.now_ms + model.wall_ahead_ms } else { left };
        assert_eq!(run(stage, &format!("PEXPIRETIME k{key}")), end.to_string());
    }
    for database in 0..DATABASES {
        let keys = model.held.keys().filter(|place| place.0 == database).count();
        assert_eq!(stage.engine.keyspace.database(database).len(), keys, "in {database}");
    }
    let in_databases = 0..DATABASES;
    let counted: usize =
        in_databases.map(|database| stage.engine.keyspace.database(database).with_deadline()).sum();
    assert_eq!(counted, model.with_deadline());
    assert_eq!(stage.engine.keyspace.timers(), model.with_deadline(), "one timer a deadline");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_deadlines_agree_with_a_map(steps in prop::collection::vec(steps(), 1..80)) {
        let mut stage = Stage::new(Config::default());
        let begin_ms = stage.time().now.0;
        let mut model = Model { now_ms: begin_ms, ..Model::default() };
        for step in &steps {
            match (model.step(step), step) {
                (Some((command, reply)), _) => {
                    prop_assert_eq!(run(&mut stage, &command), reply, "{}", command);
                }
                (None, Step::Advance { span_ms }) => stage.advance(span_ms * 1000),
                (None, Step::MoveWall { span_ms }) => stage.check(&format!("wall{span_ms:+}ms")),
                (None, _) => unreachable!("all others are commands"),
            }
            compare(&mut stage, &model);
        }
        let span_ms = 10_000_000;
        model.step(&Step::Advance { span_ms });
        stage.advance(span_ms * 1000);
        compare(&mut stage, &model);
        prop_assert_eq!(stage.engine.keyspace.timers(), 0);
    }
}
