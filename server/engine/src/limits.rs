//! Every limit of the engine, with its reason. The interpreter has limits of its own that are
//! filled from here.
//!
//! What an operator may change is a directive; the value here is then its bound or its default.

use lockwheel_scripting::Limits;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Requests.

/// Bytes of one argument until `proto-max-bulk-len` says otherwise, as in Redis.
pub const BULK_BYTES_MAX: usize = 512 * MIB;

/// Bytes of one request until `client-query-buffer-limit` says otherwise, as in Redis.
pub const QUERY_BUFFER_BYTES_MAX: usize = 1024 * MIB;

// Replies.

/// Bytes that `maxmemory-clients` leaves all clients together at least, as in Redis: with less,
/// nobody could connect to raise it.
pub const CLIENTS_MEMORY_BYTES_MIN: u64 = 128 * KIB as u64;

/// Bytes of buffer a quiet connection keeps. What a burst needed beyond is given back.
pub const IDLE_BUFFER_BYTES: usize = 16 * KIB;

// Connections.

/// Connections at one time until `maxclients` says otherwise, as in Redis.
pub const CLIENTS_MAX: u32 = 10_000;

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

/// Fields or elements up to which a value is freed at once, some microseconds of work; a larger one
/// is freed in parts. As in Redis, which leaves the larger ones to a thread.
pub const FREED_AT_ONCE_ITEMS_MAX: usize = 64;

/// Parts of a database that are freed at once when it is emptied: one with a few keys has no more.
pub const FREED_AT_ONCE_PARTS_MAX: usize = 16;

/// Fields and elements that may wait to be freed. Whoever discards a value beyond frees the excess
/// first, so that memory does not run out because values are made and discarded faster than they
/// are freed. They take some 100 bytes each, and the server frees ten million in a second.
pub const GARBAGE_ITEMS_MAX: usize = if cfg!(test) { 1 << 16 } else { 4 << 20 };

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

/// The limits of the interpreter of scripts, and again of that of functions.
pub const SCRIPTS: Limits = Limits {
    memory_bytes_max: SCRIPT_MEMORY_BYTES_MAX,
    script_bytes_max: SCRIPT_BYTES_MAX,
    eval_scripts_max: PASSING_SCRIPTS_MAX,
    eval_bytes_max: PASSING_SCRIPTS_BYTES_MAX,
    loaded_bytes_max: LOADED_SCRIPTS_BYTES_MAX,
    compiled_bytes_max: READY_SCRIPTS_BYTES_MAX,
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

// Configuration.

/// Writes that a test can have undone. A failover loses those of some milliseconds, and what each
/// of them has changed is kept.
pub const LOSABLE_WRITES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn defaults_of_the_directives_are_the_limits_here() {
        let settings = Settings::default();
        assert_eq!(settings.maxclients, CLIENTS_MAX);
        assert_eq!(settings.proto_max_bulk_len_bytes, BULK_BYTES_MAX as u64);
        assert_eq!(settings.client_query_buffer_limit_bytes, QUERY_BUFFER_BYTES_MAX as u64);
    }
}
