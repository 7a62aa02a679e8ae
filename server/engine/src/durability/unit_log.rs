//! Units on their way to a log, and the units that the engine's output depends on.
//!
//! A unit with effects gets the next [`Position`]. Until the log has released it, no output that
//! could reveal it may be sent: the caller asks for the position that the output since the last
//! question depends on ([`Engine::take_dependency`]), and sends it when that is released. Output
//! that was derived from released state only depends on nothing, so a refused attempt to take a
//! lock need not wait for the flush of another client's write.

use std::collections::VecDeque;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lockwheel_resp::Reply;

use crate::Engine;
use crate::command::{Command, Flags};
use crate::error::Error;
use crate::store::dict::HashSeed;
use crate::store::effects::{Effect, Effects, Place};
use lockwheel_defects::defect;

/// The number of a unit with effects, counted from 1. 0 depends on nothing.
pub type Position = u64;

/// Units that follow each other, with their effects.
#[derive(Clone, Copy, Debug)]
pub struct Units<'a> {
    /// The first one.
    pub first: Position,
    /// The last one.
    pub last: Position,
    /// Their effects in byte form, as [`Engine::apply`] reads them.
    pub effects: &'a [u8],
}

/// The units that the log has not released, and what the output of clients depends on.
#[derive(Debug)]
pub(crate) struct UnitLog {
    seed: HashSeed,
    /// Whether there are files for the effects. Otherwise a unit is numbered only if its output
    /// must wait.
    keeps_effects: bool,
    /// The effects of the units that the caller has not taken yet.
    effects: Vec<u8>,
    /// The last unit that the caller has taken.
    taken: Position,
    last: Position,
    released: Position,
    flushed: Position,
    /// Keys that units after `released` have changed, also those that are deleted.
    changed: HashTable<ChangedKey>,
    /// The hashes of these keys, by the position of the change.
    changes: VecDeque<(Position, u64)>,
    /// The last unit that has changed more than single keys: all output depends on it.
    changed_all: Position,
    dependency: Position,
}

#[derive(Debug)]
struct ChangedKey {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    /// The last unit that has changed it.
    position: Position,
}

/// Bytes beyond which a buffer of effects is freed when they are taken.
const KEPT_BYTES: usize = 1 << 20;

impl UnitLog {
    /// Creates a log whose next unit comes after `position`; everything until then is released.
    fn new(seed: HashSeed, position: Position, keeps_effects: bool) -> UnitLog {
        UnitLog {
            seed,
            keeps_effects,
            effects: Vec::new(),
            taken: position,
            last: position,
            released: position,
            flushed: position,
            changed: HashTable::new(),
            changes: VecDeque::new(),
            changed_all: 0,
            dependency: 0,
        }
    }

    /// Adds a unit. The output of the command that has caused it depends on it.
    pub(crate) fn add(&mut self, effects: &Effects) {
        self.last += 1;
        self.dependency = self.last;
        if self.keeps_effects {
            self.effects.extend_from_slice(effects.bytes());
        }
        for (place, effect) in effects.iter() {
            match effect {
                Effect::Event { .. } | Effect::Published { .. } => {}
                Effect::Deleted {} if defect!(DeletedKeysNotNoted) => {}
                Effect::Flushed {}
                | Effect::Swapped { .. }
                | Effect::Postponed { .. }
                | Effect::LibraryLoaded { .. }
                | Effect::LibraryDeleted { .. }
                | Effect::LibrariesFlushed {}
                | Effect::UsersCleared {}
                | Effect::UserSet { .. }
                | Effect::UserRemoved { .. } => self.changed_all = self.last,
                Effect::Moved { database, key } | Effect::Copied { database, key } => {
                    self.change(place);
                    self.change(Place { database, key });
                }
                _ => self.change(place),
            }
        }
    }

    fn change(&mut self, place: Place<'_>) {
        let (hash, position) = (self.seed.hash(place.key), self.last);
        let is_key = |known: &ChangedKey| known.is(place);
        match self.changed.entry(hash, is_key, |known| known.hash) {
            Entry::Occupied(mut known) if known.get().position != position => {
                known.get_mut().position = position;
            }
            Entry::Occupied(_) => return,
            Entry::Vacant(vacant) => {
                let Place { database, key } = place;
                vacant.insert(ChangedKey { hash, database, key: key.into(), position });
            }
        }
        self.changes.push_back((position, hash));
    }

    /// Makes the output depend on the last change of this key, if it is not released.
    fn look_up(&mut self, place: Place<'_>) {
        let hash = self.seed.hash(place.key);
        if let Some(changed) = self.changed.find(hash, |known| known.is(place))
            && !defect!(KeysReadNotGated)
        {
            self.dependency = self.dependency.max(changed.position);
        }
    }

    /// The bytes of the units that the caller has not taken.
    pub(crate) fn untaken_bytes(&self) -> usize {
        self.effects.len()
    }

    /// Whether there are units that are not released.
    fn has_unreleased(&self) -> bool {
        self.released < self.last
    }

    fn release(&mut self, position: Position) {
        self.released = self.released.max(position.min(self.last));
        while let Some((position, hash)) =
            self.changes.front().copied().filter(|(position, _)| *position <= self.released)
        {
            self.changes.pop_front();
            // A key that has been changed again has a later position.
            let is_change = |known: &ChangedKey| known.position == position;
            if let Ok(released) = self.changed.find_entry(hash, is_change) {
                released.remove();
            }
        }
    }
}

impl ChangedKey {
    fn is(&self, place: Place<'_>) -> bool {
        self.database == place.database && *self.key == *place.key
    }
}

impl Engine {
    /// Begins to number the units with effects, from the one after `position`, and to keep their
    /// effects for [`Engine::take_units`].
    pub fn start_log(&mut self, position: Position) {
        self.number_units(position, true);
    }

    /// As [`Engine::start_log`] from the first unit, but numbers only units whose output must wait,
    /// and keeps no effects.
    pub fn start_log_of_ceilings(&mut self) {
        self.number_units(0, false);
    }

    /// Ends the numbering of units. Output that waits for units is never released.
    pub(crate) fn end_log(&mut self) {
        self.unit_log = None;
        self.set_has_unreleased(false);
        self.update_consumers();
    }

    fn number_units(&mut self, position: Position, keeps_effects: bool) {
        let seed = self.writer.keyspace().seed;
        self.unit_log = Some(Box::new(UnitLog::new(seed, position, keeps_effects)));
        self.update_consumers();
    }

    /// Whether the effects of units are logged.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.unit_log.as_ref().is_some_and(|log| log.keeps_effects)
    }

    /// Passes the units since the last call to `take`, if there are any.
    #[inline]
    pub fn take_units(&mut self, take: impl FnOnce(Units<'_>)) {
        let Some(log) = &mut self.unit_log else { return };
        if log.taken == log.last {
            return;
        }
        let (first, last) = (log.taken + 1, log.last);
        take(Units { first, last, effects: &log.effects });
        log.taken = last;
        if log.effects.capacity() > KEPT_BYTES {
            log.effects = Vec::new();
        }
        log.effects.clear();
    }

    /// Records that the log has released all units up to `position`, and that those up to `flushed`
    /// are durable.
    #[inline]
    pub fn release_units(&mut self, position: Position, flushed: Position) {
        let Some(log) = &mut self.unit_log else { return };
        log.release(position);
        let is_more_durable = std::mem::replace(&mut log.flushed, flushed) != flushed;
        let has_unreleased = log.has_unreleased();
        if has_unreleased != self.has_unreleased {
            self.set_has_unreleased(has_unreleased);
        }
        if is_more_durable {
            self.serve_log_waits();
        }
    }

    /// Sets whether units are not released. While it is set, every look-up of a key passes
    /// [`Engine::depend_on_key`].
    fn set_has_unreleased(&mut self, has_unreleased: bool) {
        self.has_unreleased = has_unreleased;
        self.writer.bypass_lookup_cache(has_unreleased);
    }

    /// The last unit.
    pub(crate) fn last_unit(&self) -> Position {
        self.unit_log.as_ref().map_or(0, |log| log.last)
    }

    /// Whether the units up to `position` are on the disk of this server.
    pub(crate) fn is_flushed(&self, position: Position) -> bool {
        self.unit_log.as_ref().is_some_and(|log| log.flushed >= position)
    }

    /// The position that the output since the last call depends on: it may be sent when the log has
    /// released that. While a script runs, its own output is included, and still is afterwards.
    #[inline]
    pub fn take_dependency(&mut self) -> Position {
        if self.has_unreleased { self.dependency() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn dependency(&mut self) -> Position {
        let keeps = self.script.is_some();
        let Some(log) = &mut self.unit_log else { return 0 };
        let dependency = log.dependency.max(log.changed_all);
        if !keeps {
            log.dependency = 0;
        }
        if dependency > log.released { dependency } else { 0 }
    }

    /// Records a message with the other effects of its unit.
    pub(crate) fn record_message(&mut self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        if self.has_log() {
            self.writer.publish(is_sharded, channel, message);
        }
    }

    /// Adds a unit to the log. One that raises the lease ceiling depends on the record of that,
    /// also if no effects are kept.
    pub(crate) fn log_unit(&mut self, effects: &Effects, raises_ceiling: bool) {
        if let Some(log) = &mut self.unit_log
            && (log.keeps_effects || raises_ceiling || log.has_unreleased())
            && effects.iter().any(|(_, effect)| effect.changes_state())
        {
            log.add(effects);
            if !self.has_unreleased {
                self.set_has_unreleased(true);
            }
        }
    }

    /// Makes the output depend on the last change of this key.
    #[cold]
    #[inline(never)]
    pub(crate) fn depend_on_key(&mut self, database: usize, key: &[u8]) {
        if let Some(log) = &mut self.unit_log {
            log.look_up(Place { database, key });
        }
    }

    /// Makes the output depend on the last unit if the reply is not derived from keys that were
    /// looked up. That an `EXEC` is aborted shows that some watched key was changed.
    pub(crate) fn depend_on_result(&mut self, command: &Command, result: &Result<Reply, Error>) {
        let is_aborted =
            || command.flags.contains(Flags::RUNS_QUEUE) && !matches!(result, Ok(Reply::Array(_)));
        if let Some(log) = &mut self.unit_log
            && log.has_unreleased()
            && (command.reads_all_keys() && !defect!(NamesReadNotGated)
                || is_aborted() && !defect!(AbortedTransactionsNotGated))
        {
            log.dependency = log.last;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Stage;

    #[test]
    fn units_that_are_not_written_are_shown() {
        let mut stage = Stage::new(Default::default());
        stage.engine.start_log(0);
        stage.check("SET k v");
        let mut bytes = 0;
        stage.engine.take_units(|units| bytes = units.effects.len());
        stage.check("INFO memory => ...mem_aof_buffer:0\\r\\n...; SET l v");
        stage.check(&format!("INFO memory => ...mem_aof_buffer:{bytes}\\r\\n..."));
        stage.check(&format!("INFO persistence => ...aof_buffer_length:{bytes}\\r\\n..."));
    }

    /// Runs steps of client `a` on an engine with a log, each with the position that its output
    /// depends on.
    struct LogStage(Stage);

    impl LogStage {
        fn new(conversation: &str) -> LogStage {
            let mut stage = Stage::new(Default::default());
            stage.engine.start_log(0);
            stage.check(conversation);
            stage.engine.take_dependency();
            LogStage(stage)
        }

        fn check(&mut self, steps: &[(&str, u64)]) {
            for (step, position) in steps {
                self.0.check(step);
                assert_eq!(self.0.engine.take_dependency(), *position, "`{step}`");
            }
        }

        fn release(&mut self, position: u64) {
            self.0.engine.release_units(position, position);
        }
    }

    /// Shows G37.
    #[test]
    fn output_depends_on_own_changes_and_on_keys_that_were_looked_up() {
        let mut stage = LogStage::new("SET a 1; SET b 2; SELECT 1; SET a 3; SELECT 0");
        stage.check(&[
            ("GET a => \"1\"", 1),
            ("GET b => \"2\"", 2),
            ("MGET c b a => ...", 2),
            ("GET c => nil", 0),
            ("SET c 1 NX => OK", 4),
            ("SET c 2 NX => nil", 4),
            ("PING => PONG", 0),
            ("EVAL \"return redis.call('get', KEYS[1])\" 1 b => \"2\"", 2),
            ("EVAL \"return 1\" 1 b => 1", 0),
        ]);
        stage.release(2);
        stage.check(&[("GET a", 0), ("SET a 2 NX => nil", 0), ("GET c", 4), ("GET b", 0)]);
        stage.check(&[("SELECT 1", 0), ("GET a => \"3\"", 3)]);
        stage.release(4);
        stage.check(&[("GET a", 0), ("SELECT 0", 0), ("GET c", 0)]);
    }

    #[test]
    fn output_depends_on_the_last_of_several_changes() {
        let mut stage = LogStage::new("SET a 1; SET b 1");
        stage.check(&[("SET a 2 => OK", 3), ("GET a => \"2\"", 3), ("GET b", 2)]);
        stage.release(2);
        stage.check(&[("GET a => \"2\"", 3), ("SET a 3 NX => nil", 3), ("GET b", 0)]);
        stage.check(&[("DEL a => 1", 4), ("SET a 4 NX => OK", 5), ("GET a => \"4\"", 5)]);
        stage.release(4);
        stage.check(&[("EXISTS a => 1", 5)]);
        stage.release(5);
        stage.check(&[("GET a", 0)]);
    }

    #[test]
    fn output_depends_on_keys_that_are_gone() {
        let mut stage = LogStage::new("SET a 1 PX 5; SET b 1; SET c 1");
        stage.release(3);
        stage.check(&[("DEL b => 1", 4), ("EXISTS b => 0", 4), ("RENAME c d => OK", 5)]);
        stage.check(&[("GET c => nil", 5), ("GET d => \"1\"", 5), ("GET a => \"1\"", 0)]);
        stage.check(&[("+5ms", 6), ("GET a => nil", 6)]);
    }

    /// Shows G37.
    #[test]
    fn output_that_names_no_keys_depends_on_the_last_unit() {
        let commands = ["DBSIZE", "KEYS *", "SCAN 0", "RANDOMKEY", "INFO keyspace"];
        for command in commands {
            let mut stage = LogStage::new("SET a 1; SET b 1");
            stage.release(1);
            stage.check(&[(command, 2)]);
            stage.release(2);
            stage.check(&[(command, 0)]);
        }
    }

    #[test]
    fn aborted_transaction_depends_on_the_last_unit() {
        let mut stage = LogStage::new("SET a 1; WATCH a; b> SET a 2; MULTI; GET x");
        stage.check(&[("EXEC => nil-array", 2)]);
        let mut stage = LogStage::new("SET a 1; WATCH x; MULTI; GET x");
        stage.check(&[("EXEC => [nil]", 0)]);
    }

    #[test]
    fn all_output_depends_on_changes_of_whole_databases() {
        for change in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "FUNCTION FLUSH"] {
            let mut stage = LogStage::new(
                "SET a 1; FUNCTION LOAD \"#!lua name=l\\x0aredis.\
                                           register_function('f', function() end)\"",
            );
            stage.release(2);
            stage.check(&[(change, 3), ("GET x", 3), ("GET x", 3)]);
            stage.release(3);
            stage.check(&[("GET x", 0)]);
        }
    }

    #[test]
    fn units_are_taken_once_and_give_the_state() {
        let mut stage = LogStage::new("SET a 1; MULTI; INCR a; INCR a; EXEC; GET a; DEL x");
        let mut other = Stage::new(Default::default());
        let mut taken = Vec::new();
        stage.0.engine.take_units(|units| {
            taken.push((units.first, units.last));
            let time = other.time();
            other.engine.apply(units.effects, time).expect("its effects");
        });
        stage.0.engine.take_units(|_| unreachable!("they are taken"));
        assert_eq!(taken, [(1, 2)]);
        assert_eq!(stage.0.engine.digest(), other.engine.digest());
    }
}
