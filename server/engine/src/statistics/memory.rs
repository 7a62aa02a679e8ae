//! Estimates of memory in bytes, from lengths and counts. The actual consumption of the allocator
//! is not known to the engine.

use crate::Engine;
use crate::store::Database;
use crate::store::dict::Slot;
use crate::store::hash::Fields;
use crate::store::list::List;
use crate::store::lock::Lock;
use crate::store::set::Set;
use crate::store::sorted_set::SortedSet;
use crate::store::stream::Stream;
use crate::store::value::ValueRef;

/// The overhead of a key: its entry, which is also its timer (32), its slot in the index (8), its
/// length (1) and unused space of its place on the shelf (4).
pub(crate) const KEY_OVERHEAD_BYTES: usize = 45;

/// The overhead of a field of a small hash: the lengths of its name and value.
const PACKED_FIELD_OVERHEAD_BYTES: usize = 2;
/// The overhead of a field of a large hash.
const FIELD_OVERHEAD_BYTES: usize = 56;

/// The overhead of a list element.
const ELEMENT_OVERHEAD_BYTES: usize = 24;

/// The overhead of a set member.
const MEMBER_OVERHEAD_BYTES: usize = 16;
/// The overhead of a sorted set member.
const SCORED_OVERHEAD_BYTES: usize = 40;
/// The overhead of a stream entry: its id, its position, and a share of the field names.
const ENTRY_OVERHEAD_BYTES: usize = 64;

/// The memory of a pending stream entry, in the two lists that contain it.
const PENDING_BYTES: usize = 96;

/// The memory of an idle client.
pub(crate) const CLIENT_BYTES: usize = 1024;

/// The average overhead of an allocation.
pub(crate) const ALLOCATION_BYTES: usize = 16;

/// The memory of a tracked key, including its bytes.
const TRACKED_KEY_BYTES: usize = 100;

/// The memory of each client that has read a tracked key.
const TRACKED_READ_BYTES: usize = 24;

/// Keys that are sampled to estimate the memory of a database: enough where keys are similar, as
/// locks are, and few enough to sample before every write.
const KEYS_SAMPLED: usize = 32;

/// Fields that are sampled to estimate the memory of a hash: the default of `MEMORY USAGE`.
pub const FIELDS_SAMPLED: usize = 5;

/// The memory of a key and its value, estimated from a sample of its fields or entries.
pub fn of_key(database: &Database, slot: Slot, fields_sampled: usize) -> usize {
    let value = match database.record(slot).value() {
        ValueRef::String(string) => string.len(),
        ValueRef::Hash(hash) => of_hash(hash, fields_sampled),
        ValueRef::List(list) => of_list(list, fields_sampled),
        ValueRef::Set(set) => of_set(set, fields_sampled),
        ValueRef::SortedSet(set) => of_sorted_set(set, fields_sampled),
        ValueRef::Stream(stream) => of_stream(stream, fields_sampled),
        ValueRef::Lock(lock) => size_of::<Lock>() + lock.memory_bytes(),
    };
    KEY_OVERHEAD_BYTES + database.key(slot).len() + value
}

fn of_hash(hash: Fields<'_>, sampled: usize) -> usize {
    let overhead = match hash {
        Fields::Small(_) => PACKED_FIELD_OVERHEAD_BYTES,
        Fields::Large(_) => FIELD_OVERHEAD_BYTES,
    };
    let sizes = hash.iter().map(|(field, value)| overhead + field.len() + value.len());
    extrapolate(sizes.take(sampled), hash.len())
}

fn of_list(list: &List, sampled: usize) -> usize {
    let sizes = list.iter().map(|element| ELEMENT_OVERHEAD_BYTES + element.len());
    extrapolate(sizes.take(sampled), list.len())
}

fn of_set(set: &Set, sampled: usize) -> usize {
    match set {
        Set::Integers(members) => size_of_val(&members[..]),
        _ => extrapolate(
            set.iter().map(|member| MEMBER_OVERHEAD_BYTES + member.len()).take(sampled),
            set.len(),
        ),
    }
}

fn of_sorted_set(set: &SortedSet, sampled: usize) -> usize {
    let members = set.range(0..sampled.min(set.len()));
    extrapolate(members.map(|(member, _)| SCORED_OVERHEAD_BYTES + member.len()), set.len())
}

fn of_stream(stream: &Stream, sampled: usize) -> usize {
    let entries = stream.entries().values().map(|entry| {
        let fields = entry.fields();
        let fields = fields.map(|(_, value)| FIELD_OVERHEAD_BYTES + value.len());
        ENTRY_OVERHEAD_BYTES + fields.sum::<usize>()
    });
    let groups = stream.groups().values();
    let pending = groups.map(|group| group.pending().len() * PENDING_BYTES).sum::<usize>();
    extrapolate(entries.take(sampled), stream.len()) + pending
}

/// The memory of all keys of a database.
pub fn of_database(database: &Database) -> usize {
    let (slots, _) = database.records().scan(0, KEYS_SAMPLED);
    extrapolate(slots.map(|slot| of_key(database, slot, FIELDS_SAMPLED)), database.len())
}

/// The total size of `count` items, estimated from a sample.
fn extrapolate(sizes: impl Iterator<Item = usize>, count: usize) -> usize {
    let (sum, sampled) = sizes.fold((0_usize, 0_usize), |(sum, n), size| (sum + size, n + 1));
    match sampled {
        // The sampled slots at the front of a table may be empty while others are not.
        0 => count * KEY_OVERHEAD_BYTES,
        _ => (sum as u128 * count as u128 / sampled as u128) as usize,
    }
}

impl Engine {
    /// The memory of all keys, in bytes.
    pub fn dataset_bytes(&self) -> usize {
        (0..self.writer.keyspace().count())
            .map(|number| self.writer.keyspace().database(number))
            .filter(|database| !database.is_empty())
            .map(of_database)
            .sum()
    }

    /// The memory of everything that grows with the activity of clients.
    pub(crate) fn used_memory_bytes(&self) -> usize {
        let tracked = self.sessions.tracked.keys() * TRACKED_KEY_BYTES
            + self.sessions.tracked.reads() * TRACKED_READ_BYTES;
        self.dataset_bytes()
            + self.sessions.clients.memory_bytes()
            + tracked
            + self.script_bytes()
            + self.function_bytes()
    }

    /// The memory of cached scripts and their garbage, without that of Lua itself.
    pub(crate) fn script_bytes(&self) -> usize {
        let bytes = self.interpreter.as_ref();
        let bytes = bytes.map_or(self.script_bytes_before, |lua| lua.memory_bytes());
        bytes.saturating_sub(self.lua_bytes)
    }

    /// The memory of function libraries.
    pub(crate) fn function_bytes(&self) -> usize {
        self.writer.libraries().map_or(0, |functions| functions.memory_bytes())
    }

    /// The greatest memory use so far, including the present one.
    pub(crate) fn peak_memory_bytes(&mut self) -> u64 {
        let now = self.used_memory_bytes() as u64;
        self.stats.peak_memory_bytes = self.stats.peak_memory_bytes.max(now);
        self.stats.peak_memory_bytes
    }

    /// Whether memory use exceeds `maxmemory`.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let max = self.settings.maxmemory_bytes;
        max > 0 && self.used_memory_bytes() as u64 > max
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOCATION_BYTES, CLIENT_BYTES};
    use crate::sessions::buffers::BufferSizes;
    use crate::sessions::transaction::Queued;
    use crate::settings::Settings;
    use crate::testing::Stage;

    #[test]
    fn maxmemory_bounds_the_dataset() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.maxmemory_bytes = 2_000;
        stage.engine.update_conditions();
        stage.check("SET small v => OK; GET small => \"v\"");
        stage.check(&format!("SET large {} => OK", "x".repeat(2_000)));
        stage.check("SET k v => !OOM command not allowed when used memory > 'maxmemory'.");
        stage.check(&format!(
            "MULTI; GET small => QUEUED; ECHO {} => !OOM command not allowed when used memory > \
             'maxmemory'.; EXEC => !EXECABORT Transaction discarded because of previous errors.",
            "x".repeat(5_000)
        ));
        stage.check("GET small => \"v\"");
    }

    /// Memory held for a client counts until the client no longer needs it.
    #[test]
    fn memory_held_for_clients_is_counted_until_released() {
        let large = "x".repeat(1_000);
        for (hold, release) in [
            (format!("MULTI; ECHO {large}"), "DISCARD"),
            (format!("MULTI; ECHO {large}"), "EXEC"),
            (format!("MULTI; ECHO {large}"), "EXEC x => !EXECABORT ..."),
            (format!("MULTI; ECHO {large}"), "RESET"),
            (format!("WATCH {large}"), "UNWATCH"),
            (format!("WATCH {large}; WATCH {large}"), "EXEC => !ERR ...; MULTI; EXEC"),
            (format!("WATCH {large}"), "RESET"),
            (format!("SUBSCRIBE {large}"), "UNSUBSCRIBE"),
            (format!("SUBSCRIBE {large}; SUBSCRIBE {large}"), "RESET"),
            (format!("PSUBSCRIBE {large}"), "PUNSUBSCRIBE"),
            (format!("BLPOP {large} 0"), "b> RPUSH {large} v; b> DEL {large}"),
            (format!("BLPOP {large} 0"), "b> CLIENT UNBLOCK 1"),
            (format!("CLIENT SETNAME {large}; CLIENT SETNAME {large}"), "RESET"),
            (format!("HELLO 2 SETNAME {large}"), "CLIENT SETNAME \"\""),
            (format!("CLIENT SETINFO LIB-NAME {large}"), "CLIENT SETINFO LIB-NAME \"\""),
            (format!("SSUBSCRIBE {large}"), "SUNSUBSCRIBE"),
            (format!("HELLO 3; CLIENT TRACKING ON BCAST PREFIX {large}"), "CLIENT TRACKING OFF"),
        ] {
            let mut stage = Stage::new(Settings::default());
            stage.check("PING => PONG; b> PING");
            let before = stage.engine.used_memory_bytes();
            stage.check(&hold);
            let held = stage.engine.used_memory_bytes();
            assert!(held >= before + 1_000, "{hold}: {held}");
            stage.check(&release.replace("{large}", &large));
            assert_eq!(stage.engine.used_memory_bytes(), before, "{hold}; {release}");
            stage.check(&format!("{hold}; a!"));
            assert_eq!(stage.engine.sessions.clients.memory_bytes(), CLIENT_BYTES, "{hold}");
        }
    }

    /// Each word counts with its allocation and its pointer, but those of waits are packed.
    #[test]
    fn memory_held_for_clients_includes_overhead() {
        const WORD: usize = size_of::<Box<[u8]>>() + ALLOCATION_BYTES;
        let held = |conversation: &str| {
            let mut stage = Stage::new(Settings::default());
            stage.check("PING");
            let before = stage.engine.used_memory_bytes();
            stage.check(conversation);
            stage.engine.used_memory_bytes() - before
        };
        let queued = held("MULTI; ECHO abc");
        assert_eq!(queued, size_of::<Queued>() + 2 * WORD + "echoabc".len());
        assert_eq!(held("MULTI; ECHO abc; ECHO abc"), 2 * queued);
        let waiting = held("BLPOP abc 0");
        let each = waiting - "....=abc=0".len();
        assert_eq!(held("BLPOP abc de 0"), waiting + each + "=de".len());
        assert!((48..64).contains(&each), "{each}");
    }

    #[test]
    fn broken_transaction_uses_no_more_memory() {
        let mut stage = Stage::new(Settings::default());
        stage.check("MULTI; GET => !...; SET k v => QUEUED; CLIENT INFO => QUEUED");
        stage.check("b> CLIENT LIST ID 1 => ...multi=0 ... multi-mem=0 ...");
        stage.check("EXEC => !EXECABORT ...; MULTI; SET k 0123456789");
        stage.check("b> CLIENT LIST ID 1 => ...multi=1 ... multi-mem=14 ...");
    }

    #[test]
    fn scripts_and_functions_are_counted() {
        let mut stage = Stage::new(Settings::default());
        stage.check("EVAL \"return 1\" 0 => 1");
        let before = stage.engine.used_memory_bytes();
        let long = "x".repeat(10_000);
        stage.check(&format!("SCRIPT LOAD \"return '{long}'\""));
        let loaded = stage.engine.used_memory_bytes();
        assert!(loaded > before + 10_000, "{before}, {loaded}");
        let function = format!("redis.register_function('f', function() return '{long}' end)");
        stage.check(&format!("FUNCTION LOAD \"#!lua name=l\\x0a{function}\" => \"l\""));
        assert!(stage.engine.used_memory_bytes() >= loaded + 10_000);
    }

    /// Sets a client's buffer sizes, as its connection would.
    fn fill(stage: &mut Stage, name: &str, input: usize) {
        let client = stage.client(name);
        let sizes = BufferSizes { input, ..BufferSizes::default() };
        stage.engine.sessions.get(client).expect("a client").buffers.set(sizes);
    }

    fn evicted(stage: &mut Stage) -> Vec<u64> {
        if !stage.engine.has_clients_to_evict() {
            return Vec::new();
        }
        stage.engine.evict_clients().into_iter().map(|(client, _)| client.serial).collect()
    }

    #[test]
    fn buffers_of_connections_are_counted() {
        let mut stage = Stage::new(Settings::default());
        stage.check("PING; b> PING");
        let before = stage.engine.used_memory_bytes();
        fill(&mut stage, "b", 5_000);
        assert_eq!(stage.engine.used_memory_bytes(), before + 5_000);
        stage.check("CLIENT LIST ID 2 => ...qbuf=5000 ... tot-mem=6024 ...");
        stage.check("INFO clients => ...client_recent_max_input_buffer:5000...");
        stage.check("INFO memory => ...mem_clients_normal:7048...");
        stage.check("CONFIG SET maxmemory 4000; SET k v => !OOM ...; GET k => nil");
        let connection = stage.client("b");
        let buffers = stage.engine.sessions.get(connection).expect("a client").buffers.clone();
        stage.engine.disconnect(connection);
        // The connection may report once more after the client was removed.
        buffers.set(BufferSizes { input: 9_000, ..BufferSizes::default() });
        assert_eq!(stage.engine.used_memory_bytes(), before - 1024);
    }

    #[test]
    fn the_largest_clients_are_evicted_first() {
        let mut stage = Stage::new(Settings::default());
        stage.check("PING; b> PING; c> PING; d> PING; e> PING; d> CLIENT NO-EVICT ON");
        for (name, bytes) in [("b", 300_000), ("c", 500_000), ("d", 900_000), ("e", 400_000)] {
            fill(&mut stage, name, bytes);
        }
        assert_eq!(evicted(&mut stage), [0_u64; 0]);
        stage.check("CONFIG SET maxmemory-clients 1500000 => OK");
        assert_eq!(evicted(&mut stage), [3, 5]);
        stage.check("INFO stats => ...evicted_clients:2...");
        // The limit is reached again, with other clients.
        for round in 0..2 {
            let [small, large] = ["f", "g"].map(|name| stage.client(&format!("{name}{round}")));
            let name = format!("g{round}");
            fill(&mut stage, &name, 200_000);
            assert_eq!(evicted(&mut stage), [0_u64; 0]);
            fill(&mut stage, &name, 400_000);
            assert_eq!(evicted(&mut stage), [large.serial]);
            stage.engine.disconnect(small);
        }
        stage.check("INFO stats => ...evicted_clients:4...; CONFIG SET maxmemory-clients 1 => OK");
        // Whatever the limit, a minimum is left to the clients.
        assert_eq!(evicted(&mut stage), [2, 1]);
        assert_eq!(stage.engine.sessions.clients.len(), 1);
    }

    #[test]
    fn percentage_of_maxmemory_bounds_clients() {
        let mut stage = Stage::new(Settings::default());
        stage.check("b> PING; CONFIG SET maxmemory-clients 10% => OK");
        stage.check("CONFIG GET maxmemory-clients => [\"maxmemory-clients\", \"10%\"]");
        fill(&mut stage, "b", 1_000_000);
        assert_eq!(evicted(&mut stage), [0_u64; 0]);
        stage.check("CONFIG SET maxmemory 20000000 => OK");
        assert_eq!(evicted(&mut stage), [0_u64; 0]);
        stage.check("CONFIG SET maxmemory 10000000 => OK");
        assert_eq!(evicted(&mut stage), [1]);
    }

    #[test]
    fn script_flags_decide_about_writes_beyond_maxmemory() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.maxmemory_bytes = 1;
        stage.engine.update_conditions();
        let refused = "!OOM command not allowed when used memory > 'maxmemory'....";
        stage.check("EVAL \"return redis.call('GET', 'k')\" 0 => nil");
        for (script, reply) in [
            ("return redis.call('SET', 'k', 'v')", refused),
            ("#!lua\\x0areturn redis.call('GET', 'k')", "nil"),
            ("#!lua\\x0areturn redis.call('SET', 'k', 'v')", refused),
            ("#!lua flags=no-writes\\x0areturn redis.call('GET', 'k')", "nil"),
            ("#!lua flags=allow-oom\\x0areturn redis.call('SET', 'k', 'v')", "OK"),
        ] {
            stage.check(&format!("EVAL \"{script}\" 0 => {reply}"));
        }
    }
}
