//! Every bound of the server and the reason for it. Knows nothing else: the parser, the
//! interpreter and the network have limits of their own that are filled from here.
//!
//! What an operator may change is a directive; the value here is then its bound or its default.

use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Requests.

/// Bytes of an inline request, and of a line that holds a count. As in Redis: a peer that never
/// ends its line is not speaking this protocol.
pub const INLINE_BYTES_MAX: usize = 64 * KIB;

/// Arguments of one request. Redis counts them in a C `int`.
pub const ARGS_MAX: usize = i32::MAX as usize;

/// Bytes of one argument until `proto-max-bulk-len` says otherwise, as in Redis.
pub const BULK_BYTES_MAX: usize = 512 * MIB;

/// Bytes of one request until `client-query-buffer-limit` says otherwise, as in Redis.
pub const QUERY_BUFFER_BYTES_MAX: usize = 1024 * MIB;

/// Arguments of a request before AUTH: enough for `HELLO 3 AUTH user password SETNAME name`.
/// Strangers may not make the server reserve room for a million.
pub const UNAUTHENTICATED_ARGS_MAX: usize = 10;

/// Bytes of one argument before AUTH. Longer than any password in use.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * KIB;

/// Bytes read from a socket at once: some hundred pipelined lock requests, one system call.
pub const READ_BYTES: usize = 16 * KIB;

/// Bytes of room made at once for a long argument that is on its way, however long it says it is.
pub const READ_BYTES_MAX: usize = MIB;

// Replies.

/// Bytes that may wait for a client before AUTH. A stranger who sends and never reads is told so
/// little that thousands of them do no harm.
pub const UNAUTHENTICATED_OUTBOX_BYTES_MAX: usize = 64 * KIB;

/// Bytes of replies that are made under one hold of the engine's lock, and that a connection's task
/// makes or sends before it lets others run: some 100 us of copying.
pub const BATCH_REPLY_BYTES_MAX: usize = MIB;

/// Bytes in one chunk of the replies that a client has not read yet. Chunks are freed as they are
/// sent; smaller ones would take more system calls.
pub const OUTPUT_CHUNK_BYTES: usize = 64 * KIB;

/// Bytes of output that are held back until the end of a turn at most. For more, one system call
/// does not matter; and all that is held back stays within 16 MiB.
pub const HELD_BACK_BYTES: usize = 64 * KIB;

/// Clients who are owed a reply when a turn ends at the latest: some millisecond of work.
/// Larger turns save nothing, and whoever was served first waits for the last.
pub const TURN_CLIENTS_MAX: usize = 256;

/// Clients who are sent messages between two looks for what has come in, when few are sent replies.
/// A look costs a fifth of what sending a message costs; told two by two, those who try once for
/// all messages they have heard of do so four times a hand-off, be they sixteen or a hundred.
pub const MESSAGES_BETWEEN_LOOKS: usize = 2;

/// Tasks a thread runs between two looks for what has come in: a whole turn, since what comes in
/// meanwhile is not run before the others anyway, and a look is a system call.
pub const TASKS_BETWEEN_LOOKS: u32 = 256;

/// How long a thread waits for the engine before it sends what it holds back: more than most have
/// it for, less than anybody notices.
pub const ENGINE_PATIENCE: Duration = Duration::from_micros(200);

/// How long a script runs before its thread sends what it holds back. Those of lock libraries take
/// some 10 us; no client should wait 2 ms.
pub const HELD_BACK_BY_SCRIPT: Duration = Duration::from_millis(1);

/// Bytes that `maxmemory-clients` leaves all clients together at least, as in Redis: with less,
/// nobody could connect to raise it.
pub const CLIENTS_MEMORY_BYTES_MIN: u64 = 128 * KIB as u64;

/// Bytes of buffer a quiet connection keeps. What a burst needed beyond is given back.
pub const IDLE_BUFFER_BYTES: usize = 16 * KIB;

// Connections.

/// Bytes of stack of a thread that serves clients. Lua's parser and deep values recurse, in a debug
/// build through large frames.
pub const THREAD_STACK_BYTES: usize = 4 * MIB;

/// Connections at one time until `maxclients` says otherwise, as in Redis.
pub const CLIENTS_MAX: u32 = 10_000;

/// File descriptors kept for what is not a client: listeners, log, standard streams. As in Redis,
/// so that the same `ulimit -n` admits as many clients.
pub const RESERVED_FILE_DESCRIPTORS: u32 = 32;

/// Connections accepted in one turn of the loop, some 10 us each. A storm of them may not keep the
/// others waiting.
pub const ACCEPTS_PER_TURN: usize = 64;

/// How long to wait when the process has no file descriptor left. Trying again at once would
/// burn a core, and later would keep clients out for longer than they notice.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Unanswered TCP keepalive probes after which a peer is taken for dead, as in Redis.
pub const KEEPALIVE_PROBES: u32 = 3;

/// Requests of one connection for which the clock is read once, unless the turn ends in between.
/// It is read after they have come, so no lease begins before it was asked for; and to read it
/// costs as much as a small command.
pub const REQUESTS_IN_A_MOMENT: u32 = 16;

/// Requests of one connection run under one hold of the engine's lock. Larger batches save
/// little, and the others wait for them.
pub const BATCH_REQUESTS_MAX: usize = 256;

/// Requests that are prepared for together. A processor waits for some ten pieces of memory at the
/// same time, and what is brought too early is gone again when it is needed.
pub const LOOK_AHEAD_REQUESTS: usize = 16;

// Keyspace.

/// Databases. An empty one costs memory too; Redis has no bound but the C `int`, and ends when
/// the memory does.
pub const DATABASES_MAX: u32 = 65_536;

/// Fields one `HRANDFIELD` may repeat. Redis takes any count, and ends when the memory does.
pub const RANDOM_REPEATS_MAX: u64 = 1_000_000;

/// Bytes that the compressed strings of one `RESTORE` may become: what the largest argument holds
/// uncompressed. A few bytes can stand for ninety times as many.
pub const RESTORED_BYTES_MAX: usize = BULK_BYTES_MAX;

// Expiry.

/// How long leases are ended before the others are served: a million may end on one deadline, and
/// nobody else should notice. Serving nobody takes some 5 us, so this costs a storm little; what is
/// left is dead meanwhile.
pub const EXPIRE_SLICE: Duration = Duration::from_micros(150);

/// Deadlines drained between two looks at the time, some 50 us of work. More than that may not come
/// on top of a slice; less, and those that end together are too few to wait for memory together.
pub const EXPIRE_KEYS_BETWEEN_LOOKS: u32 = 64;

/// Fields or elements up to which a value is freed at once, some microseconds of work; a larger one
/// is freed in parts. As in Redis, which leaves the larger ones to a thread.
pub const FREED_AT_ONCE_ITEMS_MAX: usize = 64;

/// Parts of a database that are freed at once when it is emptied: one with a few keys has no more.
pub const FREED_AT_ONCE_PARTS_MAX: usize = 16;

/// Fields and elements that may wait to be freed. Whoever discards a value beyond frees the excess
/// first, so that memory does not run out because values are made and discarded faster than they
/// are freed. They take some 100 bytes each, and the server frees ten million in a second.
pub const GARBAGE_ITEMS_MAX: usize = if cfg!(test) { 1 << 16 } else { 4 << 20 };

/// Parts of the registry of clients, each with a lock of its own: some for each thread there may
/// be. To count processors for a number of its own, the map would read files at every start.
pub const REGISTRY_SHARDS: usize = 64;

/// Lines of the log that may wait to be written; further ones are left out. Room for all of them is
/// made at the start and touched: at the default, 128 thousand, that took 1.5 ms and 4 MB.
pub const LOG_LINES_MAX: usize = 4096;

// Scripts.

/// Scripts cached of those that EVAL brought. A client that writes its arguments into the script
/// makes a new one at each call: those used least recently are forgotten, as in Redis 7.4.
pub const PASSING_SCRIPTS_MAX: usize = 500;

/// What these may take together, compiled: 64 KiB each. Lock scripts take some 10.
pub const PASSING_SCRIPTS_BYTES_MAX: usize = 32 * MIB;

/// What the texts of scripts that SCRIPT LOAD brought may take together; a further one is refused.
/// They stay until SCRIPT FLUSH, so Redis has no bound but the memory. This is room for 150,000 of
/// 1 KiB: far more than applications have, but a client that loads a new script for each request
/// gets an error before the host runs out of memory. `used_memory` counts them, so `maxmemory` may
/// bound the whole to less.
pub const LOADED_SCRIPTS_BYTES_MAX: usize = 256 * MIB;

/// What compiled forms of these may take together: some thousands. Others are compiled again from
/// their texts when they are used, which takes some 30 us.
pub const READY_SCRIPTS_BYTES_MAX: usize = 16 * MIB;

/// How often the others are heard while a script runs past its time: SCRIPT KILL must work within
/// 10 ms, and the script should end some time, too.
pub const BUSY_HEARING_EVERY: Duration = Duration::from_millis(2);

/// Bytes of a script. No script of a lock library comes near; Lua's lexer overflows beyond.
pub const SCRIPT_BYTES_MAX: usize = MIB;

/// Bytes that all values of one running script may take, whatever scripts are cached. A loop that
/// grows a table gets an error, not the memory of the host. With garbage that is not collected yet,
/// Lua may hold some three times as much. For functions of libraries this is a bound on all that
/// they and their libraries hold.
pub const SCRIPT_MEMORY_BYTES_MAX: usize = 64 * MIB;

/// Instructions of Lua between two looks at the clock and the kill switch: some 10 us, far below
/// the 10 ms in which SCRIPT KILL must work, and far above what a look costs.
pub const SCRIPT_INTERRUPT_INSTRUCTIONS: u32 = 1_000;

/// Steps of one `string.find`, `match`, `gmatch` or `gsub`. The hook does not run inside them,
/// and their time grows exponentially with some patterns; this is some 50 ms.
pub const SCRIPT_PATTERN_STEPS_MAX: u64 = 5_000_000;

/// How deep a value that a script returns may be nested. Deeper ones would overflow a stack, here
/// or in the client that reads them.
pub const SCRIPT_NESTING_MAX: usize = 256;

/// Words and signs of a script that may become a plan. Redisson's longest has some 700; what is
/// longer spends its time elsewhere.
pub const PLAN_TOKENS_MAX: usize = 4_096;

/// How deep statements, expressions and chains of operators of a plan may nest: whoever reads and
/// runs them recurses. Lock scripts nest less than ten deep.
pub const PLAN_DEPTH_MAX: usize = 48;

/// Locals in scope at once in a plan. Lua takes 200, lock scripts need ten.
pub const PLAN_LOCALS_MAX: usize = 64;

/// Replies one run of a plan may keep, in case Lua has to take over: as many as the renewal of a
/// hundred locks needs, and some to spare.
pub const PLAN_CALLS_MAX: usize = 512;

/// Turns of loops and commands of one run of a plan, some 100 microseconds. Lua, which takes over,
/// needs about as long to come as far, and hears nobody meanwhile, `SCRIPT KILL` included.
pub const PLAN_STEPS_MAX: u64 = 10_000;

/// Bytes one run of a plan may hold. Far below what Lua may, so that what ends for want of memory
/// does so in Lua.
pub const PLAN_BYTES_MAX: usize = MIB;

/// Functions of one library. Each stays until the library goes, and no honest one has as many.
pub const LIBRARY_FUNCTIONS_MAX: usize = 1_000;

/// How often the clock could be looked at while a library is loaded, after which it is ended: half
/// a second, as in Redis, for nobody else is heard meanwhile.
pub const FUNCTION_LOAD_QUESTIONS_MAX: u32 = 50_000;

// The journal of a server that is started for tests.

/// Entries of the journal; the oldest is forgotten for a new one. A test that takes a thousand
/// locks by script writes about as many, some MiB.
pub const JOURNAL_ENTRIES_MAX: usize = 16_384;

/// Bytes of an argument, a key or an owner that an entry shows. Tokens and most keys are shorter,
/// a script's text is not.
pub const JOURNAL_TEXT_BYTES_MAX: usize = 128;

/// Arguments and keys of a request that an entry shows. Redisson's longest lock script has ten.
pub const JOURNAL_ARGUMENTS_MAX: usize = 24;

/// Bytes of an owner by which it is told from others. No token is longer, though a value may be.
pub const JOURNAL_OWNER_BYTES_MAX: usize = 256;

/// How many of each are remembered beside the entries: those who lost a lock, who wait for one, who
/// have read one, scripts, what breaks a rule. More than a test has clients.
pub const JOURNAL_REMEMBERED_MAX: usize = 1_000;

/// Entries of the story of a check that fails: what came last. Nobody reads more.
pub const JOURNAL_STORY_MAX: usize = 100;

/// Locks that `leasehold run` names when its command has left them behind: a screenful.
pub const LOCKS_TOLD_MAX: usize = 50;

// Configuration.

/// Bytes of a configuration file. A path to a device would be read for ever.
pub const CONFIG_FILE_BYTES_MAX: u64 = MIB as u64;

/// Files that include each other. One that includes itself has no end.
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// Writes that a test can have undone. A failover loses those of some milliseconds, and what each
/// of them has changed is kept.
pub const LOSABLE_WRITES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn defaults_of_the_directives_are_the_limits_here() {
        let config = Config::default();
        assert_eq!(config.maxclients, CLIENTS_MAX);
        assert_eq!(config.proto_max_bulk_len_bytes, BULK_BYTES_MAX as u64);
        assert_eq!(config.client_query_buffer_limit_bytes, QUERY_BUFFER_BYTES_MAX as u64);
    }
}
