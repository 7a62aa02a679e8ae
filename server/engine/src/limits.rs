//! Every limit of the engine, with its reason. The interpreter's own limits are set from here.
//!
//! A limit that operators can change is a directive; the value here is its bound or default.

use lockwheel_scripting::Limits;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Requests.

/// Bytes of one argument by default (`proto-max-bulk-len`), as in Redis.
pub const BULK_BYTES_MAX: usize = 512 * MIB;

/// Bytes of one request by default (`client-query-buffer-limit`), as in Redis.
pub const QUERY_BUFFER_BYTES_MAX: usize = 1024 * MIB;

/// Time before the end of the restart guard in which requests are held, in milliseconds: clients
/// wait longer than that for a reply, and some repeat a refused request only a second later.
pub const GUARD_HELD_MS: i64 = 1_000;

// Replies.

/// Minimum bytes for all clients together with `maxmemory-clients`, as in Redis: with less, no
/// client could connect to raise the limit.
pub const CLIENTS_MEMORY_BYTES_MIN: u64 = 128 * KIB as u64;

/// Bytes of buffer that an idle connection keeps. Larger buffers are freed.
pub const IDLE_BUFFER_BYTES: usize = 16 * KIB;

// Users.

/// Bytes of a key, channel or user name in the ACL log. Redis keeps all: a client that is refused
/// could fill the memory with them.
pub const ACL_LOG_OBJECT_BYTES_MAX: usize = KIB;

/// Random bits of a generated password, as in Redis.
pub const GENERATED_PASSWORD_BITS_MAX: usize = 4096;

// Connections.

/// Connected clients by default (`maxclients`), as in Redis.
pub const CLIENTS_MAX: u32 = 10_000;

/// Requests, or effects from a log, that are prefetched together. A processor can wait for about
/// ten cache lines at a time, and lines that are fetched too early are evicted before they are
/// used.
pub const LOOK_AHEAD_REQUESTS: usize = 16;

// Keyspace.

/// Keys for which a snapshot reserves room at most, when it is loaded: a wrong number must not take
/// all of the memory. It takes some 80 MB.
pub const RESERVED_KEYS_MAX: usize = 1 << 24;

/// Databases. An empty one uses memory too; Redis allows any C `int`, and crashes when memory is
/// exhausted.
pub const DATABASES_MAX: u32 = 65_536;

/// Fields that one `HRANDFIELD` may repeat. Redis allows any count, and crashes when memory is
/// exhausted.
pub const RANDOM_REPEATS_MAX: u64 = 1_000_000;

/// Bytes of the decompressed strings of one `RESTORE`: as many as the largest argument holds
/// uncompressed. A few bytes can expand to ninety times as many.
pub const RESTORED_BYTES_MAX: usize = BULK_BYTES_MAX;

// Full memory and a full disk.

/// Bytes that scripts may add while the limit is reached, beside small new keys: some thousand
/// permits of Redisson's semaphores. Again for scripts that work on leases.
pub const RESERVE_BYTES: usize = MIB;

/// Keys that scripts may add while the limit is reached, less those that are removed or expire
/// meanwhile. Redisson adds one of 20 seconds, often in place of the lock, at each release.
pub const RESERVE_KEYS: usize = 10_000;

/// Bytes of the arguments that set a small key. Redisson's has about 80 and the name of the lock.
pub const RESERVE_SMALL_KEY_BYTES: usize = 256;

/// Bytes of commands that a client may queue in a transaction even if memory is full: more than
/// those that release a lock need, and 40 MiB for ten thousand clients.
pub const SMALL_QUEUE_BYTES: usize = 4 * KIB;

// Expiry.

/// Fields or elements up to which a value is freed at once, which takes some microseconds; a larger
/// one is freed in parts. Redis frees larger values in a thread.
pub const FREED_AT_ONCE_ITEMS_MAX: usize = 64;

/// Parts of a database that are freed at once when it is emptied; one with a few keys has no more.
pub const FREED_AT_ONCE_PARTS_MAX: usize = 16;

/// Fields and elements that may be queued to be freed. Discarding a value beyond the limit frees
/// the excess first, so that memory is not exhausted by values that are created and discarded
/// faster than they are freed. They use about 100 bytes each, and the server frees ten million in a
/// second.
pub const GARBAGE_ITEMS_MAX: usize = if cfg!(test) { 1 << 16 } else { 4 << 20 };

// Scripts.

/// Cached scripts from EVAL. A client that writes its arguments into the script creates a new one
/// with each call; the least recently used are evicted, as in Redis 7.4.
pub const EVAL_SCRIPTS_MAX: usize = 500;

/// Bytes of these scripts, compiled: 64 KiB each. Lock scripts use about 10 KiB.
pub const EVAL_SCRIPTS_BYTES_MAX: usize = 32 * MIB;

/// Bytes of the texts of scripts from SCRIPT LOAD; further ones are refused. They stay until SCRIPT
/// FLUSH, so Redis has no limit but the memory. 150,000 scripts of 1 KiB fit, far more than
/// applications have, but a client that loads a new script for each request gets an error before
/// the host runs out of memory. `used_memory` includes them, so `maxmemory` may set a lower limit.
pub const LOADED_SCRIPTS_BYTES_MAX: usize = 256 * MIB;

/// Bytes of their compiled forms: room for some thousands. Others are compiled again when they are
/// used, which takes about 30 us.
pub const COMPILED_SCRIPTS_BYTES_MAX: usize = 16 * MIB;

/// Bytes of a script. Scripts of lock libraries are far smaller; Lua's lexer overflows beyond.
pub const SCRIPT_BYTES_MAX: usize = MIB;

/// Bytes of all values of one running script, independent of the cached scripts. A loop that grows
/// a table gets an error before it exhausts the host's memory. Including garbage that is not
/// collected yet, Lua may use about three times as much. For functions this is the limit of all
/// functions and their libraries together.
pub const SCRIPT_MEMORY_BYTES_MAX: usize = 64 * MIB;

/// Lua instructions between two checks of the clock and of SCRIPT KILL: about 10 us, far less than
/// the 10 ms in which SCRIPT KILL must work, and far more than the cost of a check.
pub const SCRIPT_INTERRUPT_INSTRUCTIONS: u32 = 1_000;

/// Steps of one `string.find`, `match`, `gmatch` or `gsub`. The interrupt hook does not run inside
/// them, and with some patterns their time grows exponentially; this is about 50 ms.
pub const SCRIPT_PATTERN_STEPS_MAX: u64 = 5_000_000;

/// The greatest fencing token: the greatest integer that is exact in Lua 5.1 and in JavaScript.
pub const FENCING_TOKEN_MAX: u64 = (1 << 53) - 1;

/// How far the wall clock raises fencing tokens at a start: as far as it goes until the year 2112.
/// A clock that is wrong leaves as many tokens as that for grants.
pub const FENCING_TOKEN_FLOOR_MAX: u64 = 1 << 52;

/// Owners of one native lock: a command looks at all of them.
pub const LOCK_HOLDS_MAX: usize = 10_000;

/// Connections by which one owner holds a native lock: a command looks at all of them, and each is
/// stored with the lock. More than a pool of connections has.
pub const LOCK_LEASES_MAX: usize = 1_000;

/// Bytes of the name of an owner of a native lock: host, process, thread and a unique id have less.
pub const LOCK_NAME_BYTES_MAX: usize = 1_024;

/// Bytes of what an owner of a native lock says about itself, which every `LOCK.INFO` shows.
pub const LOCK_META_BYTES_MAX: usize = 1_024;

/// Nesting depth of a script's reply. A deeper one would overflow a stack here or in the client.
pub const SCRIPT_NESTING_MAX: usize = 256;

/// Tokens of a script that may become a plan. Redisson's longest script has about 700; longer
/// scripts spend their time elsewhere.
pub const PLAN_TOKENS_MAX: usize = 4_096;

/// Nesting depth of statements, expressions and chains of operators in a plan, which are parsed and
/// run recursively. Lock scripts need less than ten.
pub const PLAN_DEPTH_MAX: usize = 48;

/// Locals in scope at once in a plan. Lua allows 200; lock scripts need ten.
pub const PLAN_LOCALS_MAX: usize = 64;

/// Replies that one run of a plan keeps in case Lua has to take over: more than the renewal of a
/// hundred locks needs.
pub const PLAN_CALLS_MAX: usize = 512;

/// Loop iterations and commands of one run of a plan, about 100 microseconds. If Lua takes over, it
/// needs about as long to catch up, and no other client is served meanwhile, not even SCRIPT KILL.
pub const PLAN_STEPS_MAX: u64 = 10_000;

/// Bytes of one run of a plan. Far less than Lua's limit, so that scripts that exceed Lua's limit
/// fail in Lua.
pub const PLAN_BYTES_MAX: usize = MIB;

/// Functions of one library. They stay until the library is deleted; useful libraries have fewer.
pub const LIBRARY_FUNCTIONS_MAX: usize = 1_000;

/// The limits of the interpreter of scripts, and again of that of functions.
pub const SCRIPTS: Limits = Limits {
    memory_bytes_max: SCRIPT_MEMORY_BYTES_MAX,
    script_bytes_max: SCRIPT_BYTES_MAX,
    eval_scripts_max: EVAL_SCRIPTS_MAX,
    eval_bytes_max: EVAL_SCRIPTS_BYTES_MAX,
    loaded_bytes_max: LOADED_SCRIPTS_BYTES_MAX,
    compiled_bytes_max: COMPILED_SCRIPTS_BYTES_MAX,
    match_steps_max: SCRIPT_PATTERN_STEPS_MAX,
    nesting_max: SCRIPT_NESTING_MAX,
    interrupt_instructions: SCRIPT_INTERRUPT_INSTRUCTIONS,
    library_functions_max: LIBRARY_FUNCTIONS_MAX,
    plan_tokens_max: PLAN_TOKENS_MAX,
    plan_depth_max: PLAN_DEPTH_MAX,
    plan_locals_max: PLAN_LOCALS_MAX,
    plan_calls_max: PLAN_CALLS_MAX,
    plan_steps_max: PLAN_STEPS_MAX,
    plan_bytes_max: PLAN_BYTES_MAX,
};

/// Interrupts of Lua while a library is loaded, after which loading is aborted: half a second, as
/// in Redis, since no other client is served meanwhile.
pub const FUNCTION_LOAD_INTERRUPTS_MAX: u32 = 50_000;

// The journal of a server for tests.

/// The most entries that `journal-max-entries` may name: some GiB.
pub const JOURNAL_ENTRIES_MAX: u32 = 10_000_000;

/// Bytes of an argument, a key or an owner in an entry. Tokens and most keys are shorter; the text
/// of a script is longer.
pub const LOCK_TEXT_BYTES_MAX: usize = 128;

/// Arguments and keys of a request in an entry. Redisson's longest lock script has ten.
pub const JOURNAL_ARGUMENTS_MAX: usize = 24;

/// Violations of checks, and mistakes, that are remembered: more than a reader looks at.
pub const JOURNAL_REMEMBERED_MAX: usize = 1_000;

/// Entries of the story of a failed check: the last ones.
pub const JOURNAL_STORY_MAX: usize = 100;

// Recognition of locks.

/// Bytes of an owner that are compared. Tokens are shorter; other values may be longer.
pub const LOCK_OWNER_BYTES_MAX: usize = 256;

/// Records of each kind: previous holders, waiting clients, readers, scripts, values, keys that
/// were locks. More than a test has clients.
pub const LOCKS_REMEMBERED_MAX: usize = 1_000;

// Commands for tests.

/// Keys of one `DEBUG POPULATE`, which no other request can interrupt: some seconds.
pub const DEBUG_KEYS_MAX: usize = 10_000_000;

/// Bytes of each value of `DEBUG POPULATE`: as long as the longest string.
pub const DEBUG_VALUE_BYTES_MAX: usize = BULK_BYTES_MAX;

// Nodes of a cluster.

/// Bytes of the arguments of one request to a node by default (`raft-request-max`): two other nodes
/// have its effects after about half a minute over a link of 10 Mbit/s. Other clients wait for that
/// time.
pub const RAFT_REQUEST_BYTES_MAX: usize = 16 * MIB;

/// Milliseconds after this node was notified of a leader in which clients may still connect to it
/// as to the leader: another node has directed them here before it was notified.
pub const LEADER_NEWS_MS: i64 = 10_000;

// Figures.

/// Shortest time between two samples of the counters: ten a second, of which a rate covers 16, as
/// in Redis.
pub const SAMPLE_INTERVAL_NS: u64 = 100_000_000;

/// See [`SAMPLE_INTERVAL_NS`].
pub const RATE_SAMPLES: usize = 16;

/// Seconds in which the largest buffers are recent, as in Redis.
pub const PEAK_SECONDS: usize = 8;

// Faults.

/// Writes that a test can undo. A failover loses the writes of some milliseconds; the old values of
/// the changed keys are kept for each of them.
pub const LOSABLE_WRITES_MAX: usize = 1_000;

// Lock view.

/// Events of locks that are kept: some seconds of a busy server, in 1.3 MB.
pub const LOCK_EVENTS_MAX: usize = 16_384;

/// Bytes of a key in such an event. Most keys are shorter; longer ones would fill the memory, so
/// that only their beginning and a hash are kept.
pub const LOCK_EVENT_KEY_BYTES_MAX: usize = 256;

/// Events in one reply. The reply also has the present state of their locks.
pub const LOCK_EVENTS_PER_REPLY_MAX: usize = 1_000;

/// Groups of keys that a long restart guard names: enough to find what makes it long.
pub const KEY_GROUPS_MAX: usize = 8;

/// Bytes of the name of such a group: the file of the lease ceiling has room for as many.
pub const KEY_GROUP_BYTES_MAX: usize = 64;

/// Clients of one lock that are known by its events: more would make the view slow.
pub const VIEWED_CLIENTS_MAX: usize = 128;

/// Keys that are examined for one reply by default: other clients wait meanwhile.
pub const VIEWED_KEYS_DEFAULT: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn defaults_of_directives_match_the_limits() {
        let settings = Settings::default();
        assert_eq!(settings.maxclients, CLIENTS_MAX);
        assert_eq!(settings.proto_max_bulk_len_bytes, BULK_BYTES_MAX as u64);
        assert_eq!(settings.client_query_buffer_limit_bytes, QUERY_BUFFER_BYTES_MAX as u64);
        assert_eq!(settings.raft_request_max_bytes, RAFT_REQUEST_BYTES_MAX as u64);
    }
}
