//! What may still be changed when memory or the disk is full: locks can be released and renewed,
//! but not acquired.
//!
//! The limit is reached while memory exceeds `maxmemory`, or while the caller reports a full disk.
//! Until then nothing here has an effect. A command that may need memory (`DENYOOM`) then runs only
//! if it *adds nothing*: its key exists, and no value in it gets longer
//! ([`Command::adds_nothing`]).
//!
//! In a script the first such command decides for the rest, as in Redis: half a script is worse
//! than too much memory. It may run in these cases.
//!
//! 1. The script has changed something before, such as removed a key.
//! 2. It adds nothing, and its key has a deadline: it works on a lease that exists.
//! 3. The first key of the script exists, which is the lock in the scripts of most libraries, and
//!    the command adds nothing, or the script has called a command that may write before. A script
//!    without keys must have called one.
//!
//! What follows in the script uses a reserve in the cases 2 and 3. When the reserve is used up,
//! such scripts are refused at their first command. Redisson's scripts that release a lock
//! decrement a counter (case 2), and then add a small key for a retry of the release.
//!
//! A client that waits for a native lock stays in the queue and is granted the lock, since it adds
//! no more than it takes from the queue. The owner of the lock may acquire it again.
//!
//! [`Command::adds_nothing`]: crate::command::Command::adds_nothing

use crate::Engine;
use crate::command::LockMeaning;
use crate::error::Error;
use crate::limits;
use crate::run::gates::{Closed, Invocation, Paths};
use crate::sessions::transaction::Transaction;
use crate::statistics::memory::KEY_OVERHEAD_BYTES;
use crate::store::dict::Slot;

/// The reserves. Scripts that work on leases have one of their own: other scripts cannot use it up.
#[derive(Clone, Copy, Debug)]
enum Reserve {
    Leases,
    Others,
}

/// The reserves for commands that may run while memory or the disk is full.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Whether the caller has reported a full disk.
    pub(crate) disk_is_full: bool,
    /// The number of keys when the limit was reached; `None` while it is not.
    keys_at_limit: Option<usize>,
    /// The bytes taken from each reserve since then.
    taken_bytes: [usize; 2],
    script: Script,
}

/// The running script.
#[derive(Debug, Default)]
struct Script {
    database: usize,
    has_keys: bool,
    first_key: Vec<u8>,
    /// The changes before it.
    changes_before: u64,
    /// The reserve that it uses.
    reserve: Option<Reserve>,
}

/// Bytes of a number in a stored value. A value may become that long in any case.
const NUMBER_BYTES: usize = 20;

/// Whether a value that replaces `old` is no longer, or short.
pub(crate) fn fits(old: usize, new: &[u8]) -> bool {
    new.len() <= old.max(NUMBER_BYTES)
}

impl Growth {
    /// Refills the reserves, when the limit is no longer reached.
    fn refill(&mut self) {
        self.keys_at_limit = None;
        self.taken_bytes = [0; 2];
    }

    /// Whether a reserve has something left while there are `keys` keys.
    fn has_left(&self, reserve: Reserve, keys: usize) -> bool {
        let added_keys = keys.saturating_sub(self.keys_at_limit.unwrap_or(keys));
        added_keys < limits::RESERVE_KEYS
            && self.taken_bytes[reserve as usize] < limits::RESERVE_BYTES
    }
}

/// Checks a command that may need memory.
pub(crate) fn check_growth(engine: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let Some(error) = engine.limit_reached(call) else { return Ok(()) };
    let may_run = match call.path {
        Paths::SCRIPT => engine.may_grow_in_script(call),
        // The client leaves the queue, which had its arguments, when it is granted the lock.
        Paths::WAITER if call.entry.command.lock == LockMeaning::Acquire => true,
        // The commands of a script are checked one by one.
        _ => call.entry.command.script.is_some() || engine.adds_nothing(call).is_some(),
    };
    if may_run { Ok(()) } else { Err(error.into()) }
}

/// Checks a command that is about to be queued in a transaction, whose queue uses memory. A few
/// commands may be queued in any case, so that a lock can be released in a transaction.
pub(crate) fn check_queue(engine: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let session = engine.sessions.get(call.client);
    let transaction = session.and_then(|session| session.transaction.as_ref());
    let queued = transaction.map_or(0, Transaction::held_bytes);
    let bytes = queued + argument_bytes(call);
    if bytes <= limits::SMALL_QUEUE_BYTES || !engine.is_out_of_memory() {
        return Ok(());
    }
    Err(Error::OutOfMemory.into())
}

fn argument_bytes(call: &Invocation<'_>) -> usize {
    call.argv.iter().map(|argument| argument.len()).sum()
}

impl Engine {
    /// Reports that the disk of the log is full, so that growth is refused, or that it is not.
    pub fn set_disk_is_full(&mut self, is_full: bool) {
        self.growth.disk_is_full = is_full;
        self.update_conditions();
    }

    /// Refills the reserves if there is space. Called when a setting or the free space of the disk
    /// has changed: commands check for space only while there is a limit.
    pub(crate) fn note_space(&mut self) {
        if !self.growth.disk_is_full && !self.is_out_of_memory() {
            self.growth.refill();
        }
    }

    /// Begins a script in a state in which the limit may be reached.
    #[cold]
    pub(crate) fn begin_script_at_limit(&mut self, database: usize, first_key: Option<&[u8]>) {
        let changes_before = self.changes_of_commands();
        let mut buffer = std::mem::take(&mut self.growth.script.first_key);
        buffer.clear();
        buffer.extend_from_slice(first_key.unwrap_or_default());
        let (has_keys, reserve) = (first_key.is_some(), None);
        self.growth.script =
            Script { database, has_keys, first_key: buffer, changes_before, reserve };
    }

    /// The error of commands that add something; `None` if the limit is not reached.
    fn limit_reached(&mut self, call: &Invocation<'_>) -> Option<Error> {
        let (is_out_of_memory, is_full) = (self.is_out_of_memory(), self.growth.disk_is_full);
        if !is_out_of_memory && !is_full {
            self.growth.refill();
            return None;
        }
        if self.growth.keys_at_limit.is_none() {
            self.growth.keys_at_limit = Some(self.key_count_of_all());
        }
        let script = self.script.as_ref().filter(|_| call.path == Paths::SCRIPT);
        if is_out_of_memory && !script.is_some_and(|script| script.declared.allow_oom()) {
            return Some(Error::OutOfMemory);
        }
        is_full.then_some(Error::DiskFull)
    }

    /// Whether a command may run in the running script.
    fn may_grow_in_script(&mut self, call: &Invocation<'_>) -> bool {
        let added_to = self.adds_nothing(call);
        if self.changes_of_commands() != self.growth.script.changes_before {
            if added_to.is_none() {
                self.charge(call);
            }
            return true;
        }
        let has_lease = |slot| {
            let database = self.writer.keyspace().database(call.database);
            database.records().deadline(slot).is_some()
        };
        let reserve =
            if added_to.is_some_and(has_lease) { Reserve::Leases } else { Reserve::Others };
        let may_run = match reserve {
            Reserve::Leases => true,
            Reserve::Others => self.works_on_first_key(added_to.is_some(), call),
        };
        if !may_run || !self.growth.has_left(reserve, self.key_count_of_all()) {
            return false;
        }
        self.growth.script.reserve = Some(reserve);
        if added_to.is_none() {
            self.charge(call);
        }
        true
    }

    /// Whether case 3 of the module's documentation applies.
    fn works_on_first_key(&self, adds_nothing: bool, call: &Invocation<'_>) -> bool {
        let wrote = self.script.as_ref().is_some_and(|script| script.wrote);
        let Script { database, has_keys, first_key, .. } = &self.growth.script;
        let has_first_key = || self.find_unchanged(*database, first_key, call).is_some();
        (wrote || adds_nothing) && if *has_keys { has_first_key() } else { wrote }
    }

    /// Charges a command that adds something to the reserve of the script. A small key that is new
    /// counts as a key, which may be removed again or expire; everything else in bytes.
    fn charge(&mut self, call: &Invocation<'_>) {
        let Some(reserve) = self.growth.script.reserve else { return };
        let places = call.entry.command.key_places(call.argv).unwrap_or_default();
        let mut keys = places.iter().map(|&at| call.argv[at]);
        let is_new = keys.all(|key| self.find_unchanged(call.database, key, call).is_none());
        let bytes = argument_bytes(call);
        if !is_new || bytes > limits::RESERVE_SMALL_KEY_BYTES {
            let taken = &mut self.growth.taken_bytes[reserve as usize];
            *taken = taken.saturating_add(bytes + KEY_OVERHEAD_BYTES);
        }
    }

    /// The slot of the key of a command, if the command adds nothing to it.
    fn adds_nothing(&self, call: &Invocation<'_>) -> Option<Slot> {
        let is_in_place = call.entry.command.adds_nothing?;
        let key = *call.argv.get(1)?;
        let slot = self.find_unchanged(call.database, key, call)?;
        let value = self.writer.keyspace().database(call.database).record(slot).value();
        is_in_place(value, call.argv).then_some(slot)
    }

    /// The slot of a live key. An expired one is not removed, since no command runs yet.
    fn find_unchanged(&self, database: usize, key: &[u8], call: &Invocation<'_>) -> Option<Slot> {
        let keyspace = self.writer.keyspace();
        let slot = keyspace.find(database, key)?;
        let is_expired = keyspace.database(database).records().is_expired(slot, call.time);
        (!is_expired).then_some(slot)
    }

    /// The changes of all commands since the start, without keys that expired.
    fn changes_of_commands(&self) -> u64 {
        self.writer.dirty().wrapping_sub(self.stats.expired_keys)
    }

    fn key_count_of_all(&self) -> usize {
        let keyspace = self.writer.keyspace();
        (0..keyspace.count()).map(|number| keyspace.database(number).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::limits;
    use crate::settings::{Permission, Settings};
    use crate::testing::Stage;

    const OOM: &str = "!OOM command not allowed when used memory > 'maxmemory'....";
    const MISCONF: &str = "!MISCONF Errors writing to the AOF file: No space left on device...";

    /// An engine that has held this conversation before the limit is reached.
    fn at_limit(before: &str) -> Stage {
        let mut settings = Settings::default();
        settings.enable_debug_command = Permission::Yes;
        let mut stage = Stage::new(settings);
        stage.check(before);
        stage.check("CONFIG SET maxmemory 1 => OK");
        stage
    }

    /// Shows G12, G13, G14, G22.
    #[test]
    fn commands_that_add_nothing_run_at_the_limit() {
        let before = "SET s token PX 1000; SET n 9; HSET h f value; ZADD z 1 a; RPUSH l v";
        for (command, reply) in [
            ("SET s other XX PX 5000", "OK"),
            ("SET s other NX PX 5000", "nil"),
            ("SET s 0123456789012345678901", OOM),
            ("SETEX s 5 token", "OK"),
            ("GETSET s token", "\"token\""),
            ("SETNX s token", "0"),
            ("SETNX new token", OOM),
            ("INCRBY n 1", "10"),
            ("INCR new", OOM),
            ("INCRBYFLOAT n 1", OOM),
            ("APPEND s x", OOM),
            ("SETRANGE s 0 x", OOM),
            ("HSET h f other", "0"),
            ("HSET h f other g v", OOM),
            ("HSETNX h f v", "0"),
            ("HSETNX h g v", OOM),
            ("HSET h", "!ERR wrong number..."),
            ("HSET h f v g", OOM),
            ("HINCRBY s f 1", OOM),
            ("ZADD z 5 a", "0"),
            ("ZADD z XX 5 new", "0"),
            ("ZADD z 5 a 6 b", OOM),
            ("ZADD z", "!ERR wrong number..."),
            ("ZINCRBY z 1 a", "\"2\""),
            ("ZINCRBY z 1 b", OOM),
            ("RPUSH l v", OOM),
            ("LMOVE l l2 LEFT LEFT", OOM),
            ("MSET s token", OOM),
            ("PEXPIRE s 100", "1"),
            ("DEL s", "1"),
        ] {
            at_limit(before).check(&format!("{command} => {reply}"));
            let mut stage = Stage::new(Settings::default());
            stage.check(before);
            stage.engine.set_disk_is_full(true);
            let reply = if reply == OOM { MISCONF } else { reply };
            stage.check(&format!("{command} => {reply}; INFO persistence => ...status:err..."));
            stage.engine.set_disk_is_full(false);
            stage.check("SET new key => OK; INFO persistence => ...aof_last_write_status:ok...");
        }
    }

    /// Shows G8.
    #[test]
    fn no_key_is_evicted_whatever_the_policy() {
        for policy in ["allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl"] {
            let mut stage = at_limit("SET lock token PX 100000; SET k v");
            stage.check(&format!(
                "CONFIG SET maxmemory-policy {policy} => OK; SET new v => {OOM}; \
                 CONFIG GET maxmemory-policy => [\"maxmemory-policy\", \"{policy}\"]; \
                 GET lock => \"token\"; GET k => \"v\""
            ));
        }
    }

    #[test]
    fn keys_of_the_selected_database_decide() {
        let mut stage = at_limit("SET k v; SELECT 1");
        stage.check(&format!("SET k v => {OOM}; SELECT 0; SET k v => OK"));
        let script = "EVAL \"redis.call('SELECT', 1) return redis.call('SET', 'k', 'v')\" 0";
        stage.check(&format!("{script} => {OOM}"));
    }

    #[test]
    fn expired_key_is_not_there_at_the_limit() {
        let mut stage = at_limit("SET k v PX 5; DEBUG SET-ACTIVE-EXPIRE 0; +10ms");
        stage.check(&format!("SET k v => {OOM}; GET k => nil"));
        let script = "EVAL \"return redis.call('SET', KEYS[1], 'v', 'PX', 5)\" 1 k";
        stage.check(&format!("{script} => {OOM}; EXISTS k => 0"));
    }

    /// Shows G19.
    #[test]
    fn transactions_run_at_the_limit_if_no_command_adds_anything() {
        let mut stage = at_limit("SET k token PX 1000; SET other token");
        stage.check("WATCH k; MULTI; DEL k => QUEUED; EXEC => [1]");
        stage.check("MULTI; SET other token PX 5 => QUEUED; EXEC => [OK]");
        stage.check(&format!("MULTI; SET k v => {OOM}; EXEC => !EXECABORT ..."));
        // It exists when the command is queued, but not when it runs.
        stage.check("SET other token XX; MULTI; SET other token => QUEUED; b> DEL other");
        stage.check("EXEC => !EXECABORT ...: OOM command not allowed ...; EXISTS other => 0");
    }

    /// The first command that may need memory decides: nothing is half done.
    /// Shows G15.
    #[test]
    fn script_that_begins_with_a_new_key_is_refused_before_it_changes_anything() {
        let acquire = "EVAL \"redis.call('INCR', KEYS[2]) \
                       return redis.call('SET', KEYS[1], 'v', 'PX', 5)\" 2";
        let mut stage = at_limit("SET token 1");
        stage.check(&format!("{acquire} lock token => {OOM}; GET token => \"1\""));
        // Removing what is not there changes nothing.
        let acquire = "EVAL \"redis.call('DEL', KEYS[2]) \
                       return redis.call('SET', KEYS[1], 'v', 'PX', 5)\" 2";
        stage.check(&format!("{acquire} lock missing => {OOM}; {acquire} lock token => OK"));
    }

    /// Shows G16, G17, G18.
    #[test]
    fn reserve_of_bytes_is_for_scripts_that_began_with_an_existing_key() {
        let grow = "EVAL \"redis.call('INCR', KEYS[1]) \
                    return redis.call('APPEND', KEYS[2], ARGV[1])\" 2 n log";
        let text = "x".repeat(limits::RESERVE_BYTES / 4);
        let mut stage = at_limit("SET n 1; SET log x; SET lease 1 PX 100000");
        for _ in 0..4 {
            stage.check(&format!("{grow} {text} => ..."));
        }
        stage.check(&format!("{grow} x => {OOM}; GET n => \"5\"; INCR n => 6"));
        // Another script may still release a lock.
        let release = "EVAL \"redis.call('INCR', KEYS[1]) \
                       return redis.call('SET', KEYS[2], '', 'PX', 5)\" 2 lease latch";
        stage.check(&format!("{release} => OK; CONFIG SET maxmemory 0; SET new v; INCR n"));
        let bytes = text.len() * 4 + "xx".len();
        stage.check(&format!("CONFIG SET maxmemory 1; {grow} x => {bytes}; SET new2 v => {OOM}"));
    }

    #[test]
    fn script_that_may_exceed_maxmemory_may_not_fill_the_disk() {
        let script = "EVAL \"#!lua flags=allow-oom\\x0a\
                      return redis.call('SET', KEYS[1], 'v')\" 1";
        let mut stage = at_limit("SET k v");
        stage.check(&format!("{script} a => OK"));
        stage.engine.set_disk_is_full(true);
        stage.check(&format!("{script} b => {MISCONF}; EXISTS b => 0; {script} k => OK"));
        stage.engine.set_disk_is_full(false);
        stage.check(&format!("{script} b => OK"));
    }

    /// Shows G16, G18.
    #[test]
    fn reserve_of_keys_is_given_back_when_they_expire() {
        let release = "EVAL \"redis.call('INCR', KEYS[1]) for i = 1, ARGV[1] do \
                       redis.call('SET', 'latch:' .. i, '', 'PX', 50) end\" 1 lease";
        let mut stage = at_limit("SET lease 1 PX 100000");
        stage.check(&format!("{release} {} => nil", limits::RESERVE_KEYS));
        stage.check(&format!("{release} 1 => {OOM}; GET lease => \"2\"; +100ms"));
        stage.engine.tick(stage.time(), 1_000_000);
        stage.check(&format!("{release} 1 => nil"));
    }

    /// Reaches a limit, or ends that: of memory, which is then not limited or enough, of the disk,
    /// or of both.
    fn set_limit(stage: &mut Stage, limit: &str, is_reached: bool) {
        match (limit, is_reached) {
            ("disk", _) => stage.engine.set_disk_is_full(is_reached),
            ("both", _) => {
                set_limit(stage, "memory", is_reached);
                set_limit(stage, "disk", is_reached);
            }
            (_, true) => stage.check("m> CONFIG SET maxmemory 1 => OK"),
            ("memory", false) => stage.check("m> CONFIG SET maxmemory 0 => OK"),
            (_, false) => stage.check("m> CONFIG SET maxmemory 1000gb => OK"),
        }
    }

    const LIMITS: [&str; 4] = ["memory", "enough memory", "disk", "both"];

    /// Shows G16, G17.
    #[test]
    fn reserves_are_full_whenever_the_limit_is_reached_again() {
        let release = "EVAL \"redis.call('INCR', KEYS[1]) for i = 1, ARGV[1] do \
                       redis.call('SET', KEYS[2] .. i, '') end\" 2 lease";
        let grow = "EVAL \"redis.call('INCR', KEYS[1]) \
                    return redis.call('APPEND', KEYS[2], ARGV[1])\" 2 n log";
        let text = "x".repeat(limits::RESERVE_BYTES);
        for limit in LIMITS {
            let refusal = if limit == "disk" { MISCONF } else { OOM };
            let mut stage = Stage::new(Settings::default());
            stage.check("SET lease 1 PX 100000; SET n 1; SET log x");
            for round in 0..2 {
                set_limit(&mut stage, limit, true);
                let length = (round + 1) * limits::RESERVE_BYTES + 1;
                stage.check(&format!("{grow} {text} => {length}"));
                stage.check(&format!("{grow} x => {refusal}"));
                stage.check(&format!("{release} {round}: {} => nil", limits::RESERVE_KEYS));
                stage.check(&format!("{release} {round}:b 1 => {refusal}; SET new v => {refusal}"));
                set_limit(&mut stage, limit, false);
            }
            stage.check("SET new v => OK");
        }
    }

    fn free_garbage(stage: &mut Stage) {
        while stage.engine.has_garbage() {
            stage.engine.tick(stage.time(), 1_000);
        }
    }

    /// What has begun below the limit and passes it runs to its end, each time.
    /// Shows G15.
    #[test]
    fn scripts_and_transactions_that_reach_the_limit_run_to_their_end() {
        let mut stage = Stage::new(Settings::default());
        stage.check("SET lock token PX 100000");
        let grow = "EVAL \"redis.call('SETRANGE', KEYS[1], ARGV[1], 'x') \
                    redis.call('SET', KEYS[2], 'v') return redis.call('RPUSH', KEYS[3], 'v')\" 3";
        // Lua has what it needs, and the script is known.
        stage.check(&format!("{grow} large other list 1 => 1; DEL large other list => 3"));
        stage.check("CONFIG SET maxmemory 1mb => OK");
        for _ in 0..3 {
            stage.check(&format!("{grow} large other list 1048576 => 1; GET other => \"v\""));
            stage.check(&format!(
                "{grow} new other list 1 => {OOM}; SET new v => {OOM}; LLEN list => 1"
            ));
            stage.check("SET lock token XX PX 100000 => OK; DEL large other list => 3");
            stage.check("MULTI; SETRANGE large 1048576 x => QUEUED; SET other v => QUEUED");
            stage.check("RPUSH list v => QUEUED; EXEC => [1048577, OK, 1]");
            stage.check(&format!("MULTI; SET new v => {OOM}; EXEC => !EXECABORT..."));
            stage.check("DEL large other list => 3");
            free_garbage(&mut stage);
            stage.check("SET new v => OK; DEL new => 1");
        }
    }

    /// Shows G20.
    #[test]
    fn queue_of_each_transaction_is_measured_anew() {
        let text = "x".repeat(limits::SMALL_QUEUE_BYTES / 2);
        let mut stage = at_limit("SET k v");
        for _ in 0..3 {
            stage.check(&format!("MULTI; ECHO {text} => QUEUED; ECHO {text} => {OOM}"));
            stage.check("EXEC => !EXECABORT...");
            stage.check(&format!("MULTI; ECHO {text} => QUEUED; DISCARD => OK"));
            stage.check(&format!("MULTI; ECHO {text} => QUEUED; DEL other => QUEUED"));
            stage.check("EXEC => [..., 0]; CONFIG SET maxmemory 0; MULTI");
            stage.check(&format!("ECHO {text} => QUEUED; ECHO {text} => QUEUED; EXEC => [...]"));
            stage.check("CONFIG SET maxmemory 1");
        }
    }

    #[test]
    fn first_key_of_a_database_is_a_new_key() {
        for limit in LIMITS {
            let refusal = if limit == "disk" { MISCONF } else { OOM };
            let mut stage = Stage::new(Settings::default());
            stage.check("SET k v");
            for database in [1, 2, 15] {
                set_limit(&mut stage, limit, true);
                stage.check(&format!("COPY k k DB {database} => {refusal}; SELECT {database}"));
                stage.check(&format!("SET k v => {refusal}; RPUSH l v => {refusal}; DBSIZE => 0"));
                stage.check("LOCK.ACQUIRE lock me TTL 1000 => !...; EXISTS lock => 0");
                stage.check(&format!("SELECT 0; MOVE k {database} => 1; MOVE k {database} => 0"));
                set_limit(&mut stage, limit, false);
                stage.check(&format!("COPY k other => 0; SET k v => OK; SELECT {database}"));
                stage.check("SET l v => OK; DBSIZE => 2; FLUSHDB => OK; SELECT 0");
            }
        }
    }

    #[test]
    fn blocked_clients_wait_until_there_is_space_and_are_served_each_time() {
        for limit in LIMITS {
            let mut stage = Stage::new(Settings::default());
            for _ in 0..3 {
                stage.check("LOCK.ACQUIRE lock a TTL 90000 => [...\"acquired\"...]");
                stage.check("b> LOCK.ACQUIRE lock b TTL 90000 WAIT 9000 => ; c> BLPOP l 0 => ");
                set_limit(&mut stage, limit, true);
                stage.check(
                    "RPUSH l v => !...; c< => ; d> LOCK.ACQUIRE lock d TTL 9 WAIT 9 => !...",
                );
                stage.check("LOCK.ACQUIRE lock a TTL 90000 => [...\"count\", 2]");
                stage.check("LOCK.RELEASE lock a => 1; b< => ; LOCK.RELEASE lock a => 0");
                stage.check("b< => [...\"acquired\"...]; b> LOCK.RELEASE lock b => 0");
                set_limit(&mut stage, limit, false);
                stage.check("RPUSH l v => 1; c< => [\"l\", \"v\"]");
            }
        }
    }
}
