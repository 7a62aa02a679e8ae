//! The state at one moment, given out in parts while it goes on changing.
//!
//! A part has the next keys in the order of their slots. A key that is about to be changed before
//! its turn is given out first; a key that is added later is left out. A bit for each slot says
//! which is done. A change of a whole database makes the snapshot void: the caller begins another
//! one.

use super::Keyspace;
use super::dict::Slot;
use super::effects::image::Image;
use super::effects::{Effect, Effects, Place};
use super::state::State;

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// What the caller has not taken yet.
    effects: Effects,
    /// The database whose keys are next, and the cursor of [`Records::scan`] in it.
    ///
    /// [`Records::scan`]: super::records::Records::scan
    database: usize,
    cursor: u64,
    /// The slots that are done, in each database.
    done: Vec<Bits>,
    is_void: bool,
}

/// The progress of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotProgress {
    /// There is more.
    Partial,
    /// All parts have been given out.
    Complete,
    /// It cannot be completed.
    Void,
}

/// A set of slots.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Adds a slot; returns whether it is new.
    fn insert(&mut self, slot: Slot) -> bool {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}

impl Snapshot {
    /// A snapshot of the state as it is now.
    pub(super) fn begin(state: &State) -> Snapshot {
        let mut effects = Effects::default();
        if state.last_token > 0 {
            let place = Place { database: 0, key: &[] };
            effects.push(place, &Effect::TokensIssued { last: state.last_token });
        }
        let libraries = state.libraries.iter().flat_map(|libraries| libraries.libraries());
        for library in libraries {
            let place = Place { database: 0, key: &[] };
            effects.push(place, &Effect::LibraryLoaded { code: &library.code });
        }
        for effect in state.users.effects() {
            effects.push(Place { database: 0, key: &[] }, &effect);
        }
        for number in 0..state.keyspace.count() {
            let keys = state.keyspace.database(number).len();
            if keys > 0 {
                let place = Place { database: number, key: &[] };
                effects.push(place, &Effect::Reserved { keys });
            }
        }
        let done = vec![Bits::default(); state.keyspace.count()];
        Snapshot { effects, database: 0, cursor: 0, done, is_void: false }
    }

    /// Gives out the key in `slot`, which is about to be changed, unless it is done.
    pub(super) fn save(&mut self, keyspace: &Keyspace, database: usize, slot: Slot) {
        if !self.done[database].insert(slot) {
            return;
        }
        let record = keyspace.database(database).record(slot);
        let place = Place { database, key: record.key() };
        self.effects.push(place, &Effect::Set { value: Image::Stored(record.value()) });
        if let Some(deadline) = record.deadline() {
            self.effects.push(place, &Effect::Deadline { deadline: Some(deadline) });
        }
        if record.is_plain() {
            self.effects.push(place, &Effect::Plain { is_plain: true });
        }
    }

    /// Leaves out the key in `slot`, which has just been added.
    pub(super) fn leave_out(&mut self, database: usize, slot: Slot) {
        self.done[database].insert(slot);
    }

    /// Makes the snapshot void: the state has changed in a way that it cannot follow.
    pub(super) fn make_void(&mut self) {
        self.is_void = true;
        self.effects.clear();
    }

    /// Passes the next part, with about `keys` keys, to `take`.
    pub(super) fn next_part(
        &mut self,
        keyspace: &Keyspace,
        keys: usize,
        take: impl FnOnce(&[u8]),
    ) -> SnapshotProgress {
        if self.is_void {
            return SnapshotProgress::Void;
        }
        let mut left = keys;
        while left > 0 && self.database < keyspace.count() {
            let records = keyspace.database(self.database).records();
            let (slots, next) = records.scan(self.cursor, left);
            let slots: Vec<Slot> = slots.collect();
            left = left.saturating_sub(slots.len().max(1));
            for slot in slots {
                self.save(keyspace, self.database, slot);
            }
            self.cursor = next;
            if next == 0 {
                self.database += 1;
            }
        }
        take(self.effects.bytes());
        self.effects.clear();
        if self.database < keyspace.count() {
            SnapshotProgress::Partial
        } else {
            SnapshotProgress::Complete
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotProgress;
    use crate::random::Random;
    use crate::settings::{Permission, Settings};
    use crate::testing::Stage;

    /// Commands with a number in place of each `#`.
    const CHANGES: &[&str] = &[
        "SET k# v#",
        "SET k# v# PX 1#",
        "DEL k#",
        "PEXPIRE k# 2#",
        "PERSIST k#",
        "APPEND k# x",
        "SETRANGE k# 3 yy",
        "SETBIT k# 9# 1",
        "INCRBY n# 3",
        "HSET h# f# v#",
        "HSET h# f1 v# f2 v# f3 v#",
        "HDEL h# f#",
        "HINCRBY h# g 1",
        "RPUSH l# a# b c",
        "LPOP l#",
        "LSET l# 0 z",
        "SADD s# # m#",
        "SREM s# #",
        "ZADD z# # m#",
        "ZINCRBY z# 2 m#",
        "ZPOPMIN z#",
        "XADD x# * f v#",
        "XGROUP CREATE x# g 0 MKSTREAM",
        "XREADGROUP GROUP g c COUNT 2 STREAMS x# >",
        "RENAME k# k#",
        "LOCK.ACQUIRE o# a# TTL 2# SHARED",
        "LOCK.RENEW o# a# TTL 3#",
        "LOCK.RELEASE o# a#",
        "COPY k# k# REPLACE",
        "MOVE k# 1",
        "SELECT 1",
        "SELECT 0",
        "+3ms",
        "FUNCTION FLUSH",
        "EVAL \"redis.call('set', KEYS[1], '#') return redis.call('del', KEYS[2])\" 2 k# h#",
    ];

    fn change(random: &mut Random) -> String {
        let command = CHANGES[random.below(CHANGES.len())];
        let number = |text: &str| format!("{text}{}", random.below(40));
        let mut parts = command.split('#');
        let last = parts.next_back().unwrap_or_default().to_owned();
        parts.map(number).collect::<String>() + &last
    }

    #[test]
    fn parts_give_the_state_at_the_beginning() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let mut stage = Stage::new(Default::default());
            stage.check(
                "FUNCTION LOAD \"#!lua name=l\\x0aredis.register_function('f', redis.log)\"",
            );
            for _ in 0..300 {
                stage.step(&change(&mut random));
            }
            let (digest, time) = (stage.engine.digest(), stage.time());
            let plain = plain_keys(&stage);
            stage.engine.writer.begin_snapshot();
            let mut copy = Stage::new(Default::default());
            loop {
                let keys = 1 + random.below(20);
                let progress = stage.engine.writer.snapshot_part(keys, |effects| {
                    copy.engine.apply(effects, time).expect("effects");
                });
                match progress {
                    SnapshotProgress::Partial => {}
                    SnapshotProgress::Complete => break,
                    SnapshotProgress::Void => panic!("no database was flushed"),
                }
                for _ in 0..random.below(6) {
                    stage.step(&change(&mut random));
                }
            }
            assert_eq!(copy.engine.digest(), digest, "seed {seed}");
            assert_eq!(plain_keys(&copy), plain, "seed {seed}");
        }
    }

    /// The plain keys of all databases.
    fn plain_keys(stage: &Stage) -> Vec<(usize, Vec<u8>)> {
        let plain = stage.engine.writer.keyspace().plain_keys();
        plain.into_iter().map(|(database, key)| (database, key.to_vec())).collect()
    }

    #[test]
    fn failed_snapshot_is_given_up() {
        let mut stage = Stage::new(Default::default());
        stage.check("SET a 1; SET b 1");
        stage.engine.begin_snapshot(stage.time());
        assert_eq!(stage.engine.snapshot_part(1, |_| {}), SnapshotProgress::Partial);
        stage.engine.end_snapshot(false, stage.time());
        // There is nothing that a change has to be kept for.
        assert_eq!(stage.engine.snapshot_part(1, |_| {}), SnapshotProgress::Void);
    }

    #[test]
    fn reload_changes_nothing() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut settings = Settings::default();
            settings.enable_debug_command = Permission::Yes;
            let mut stage = Stage::new(settings);
            stage.check(
                "FUNCTION LOAD \"#!lua name=l\\x0aredis.register_function('f', redis.log)\"",
            );
            for _ in 0..100 {
                stage.step(&change(&mut random));
            }
            let (digest, plain) = (stage.engine.digest(), plain_keys(&stage));
            stage.check("DEBUG RELOAD => OK");
            assert_eq!(stage.engine.digest(), digest, "seed {seed}");
            assert_eq!(plain_keys(&stage), plain, "seed {seed}");
            for _ in 0..50 {
                stage.step(&change(&mut random));
            }
        }
    }

    #[test]
    fn change_of_whole_database_makes_snapshot_void() {
        for command in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
            let mut stage = Stage::new(Default::default());
            stage.check("SET a 1; SET b 1");
            stage.engine.writer.begin_snapshot();
            let progress = |stage: &mut Stage| stage.engine.writer.snapshot_part(1, |_| {});
            assert_eq!(progress(&mut stage), SnapshotProgress::Partial);
            stage.step(command);
            assert_eq!(progress(&mut stage), SnapshotProgress::Void, "{command}");
        }
    }
}
