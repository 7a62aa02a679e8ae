//! `MEMORY`: estimates of the memory that keys and the server take.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Command, Flags, Group, KeySpec, integer, is};
use crate::error::Error;
use crate::run::context::Context;
use crate::statistics::memory;

const MEMORY: Command = Command { group: Group::Server, since: "4.0.0", ..Command::BASE };

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: Arity::AtLeast(2),
    complexity: "that of the subcommand",
    doc: "A container for commands about memory.",
    subcommands: SUBCOMMANDS,
    ..MEMORY
}];

const PER_SHARD: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "doctor",
        arity: Arity::Exactly(2),
        doc: "Reports problems with memory.",
        tips: PER_SHARD,
        example: "MEMORY DOCTOR => \"I found nothing wrong with the memory of this server.\\n\"",
        run: doctor,
        ..MEMORY
    },
    super::help_row(MEMORY, MEMORY.since, "MEMORY HELP => [MEMORY <subcommand> ...]"),
    Command {
        name: "malloc-stats",
        arity: Arity::Exactly(2),
        complexity: "that of the allocator",
        doc: "Returns the statistics of the allocator.",
        tips: PER_SHARD,
        example: "MEMORY MALLOC-STATS => \"Stats not supported for the current allocator\"",
        run: |_, _| Ok(Reply::bulk("Stats not supported for the current allocator")),
        ..MEMORY
    },
    Command {
        name: "purge",
        arity: Arity::Exactly(2),
        complexity: "that of the allocator",
        doc: "Asks the allocator to release unused memory.",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        example: "MEMORY PURGE => OK",
        run: |_, _| Ok(Reply::OK),
        ..MEMORY
    },
    Command {
        name: "stats",
        arity: Arity::Exactly(2),
        doc: "Returns how memory is used.",
        tips: PER_SHARD,
        example: "MEMORY STATS => [\"peak.allocated\", ...]",
        run: stats,
        ..MEMORY
    },
    Command {
        name: "usage",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        keys: &[KeySpec::at(2, &["RO"])],
        complexity: "O(N) in the number of samples",
        doc: "Estimates the bytes that a key takes, from 5 of its elements by default; with 0, \
              from all.",
        arguments: &[arg::key("key"), arg::integer("count").token("SAMPLES").optional()],
        example: "MEMORY USAGE missing => nil",
        run: usage,
        ..MEMORY
    },
];

/// `MEMORY DOCTOR`: replies with a report.
fn doctor(_: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(super::text("I found nothing wrong with the memory of this server.\n"))
}

/// `MEMORY STATS`: replies with a map of figures.
fn stats(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let peak = context.peak_memory_bytes();
    let engine = context.engine();
    let used = engine.used_memory_bytes();
    let dataset = engine.dataset_bytes();
    let count = engine.writer.keyspace().count();
    let keys: usize =
        (0..count).map(|number| engine.writer.keyspace().database(number).len()).sum();
    let percent = |part: usize, whole: usize| {
        Reply::Double(if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
    };
    Ok(super::map([
        ("peak.allocated", super::number(peak)),
        ("total.allocated", Reply::from(used)),
        ("startup.allocated", Reply::Integer(0)),
        ("replication.backlog", Reply::Integer(0)),
        ("clients.slaves", Reply::Integer(0)),
        ("clients.normal", Reply::from(engine.sessions.clients.memory_bytes())),
        ("aof.buffer", Reply::Integer(0)),
        ("lua.caches", Reply::from(engine.script_bytes())),
        ("functions.caches", Reply::from(engine.function_bytes())),
        ("overhead.total", Reply::from(used - dataset)),
        ("keys.count", Reply::from(keys)),
        ("keys.bytes-per-key", Reply::from(dataset.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", Reply::from(dataset)),
        ("dataset.percentage", percent(dataset, used)),
        ("peak.percentage", percent(used, usize::try_from(peak).unwrap_or(usize::MAX))),
    ]))
}

/// `MEMORY USAGE`: replies with the estimated bytes of a key, or nil.
fn usage(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut samples = memory::FIELDS_SAMPLED;
    for option in argv[3..].chunks(2) {
        let &[name, count] = option else { return Err(Error::Syntax) };
        if !is(name, "samples") {
            return Err(Error::Syntax);
        }
        samples = match usize::try_from(integer(count)?) {
            Ok(0) => usize::MAX,
            Ok(count) => count,
            Err(_) => return Err(Error::Syntax),
        };
    }
    let Some(slot) = context.find(argv[2]) else { return Ok(Reply::Null) };
    let database = context.selected();
    Ok(Reply::from(memory::of_key(database, slot, samples)))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn usage_grows_with_the_value() {
        check("SET k v; MEMORY USAGE k => 47; SET k 0123456789; MEMORY USAGE k => 56");
        check("SET k v PX 10; +10ms; MEMORY USAGE k => nil");
        check("MEMORY USAGE k SAMPLES 0 => nil; MEMORY USAGE k SAMPLES => !ERR syntax error");
        check("MEMORY USAGE k SAMPLES -1 => !ERR syntax error");
        check("MEMORY USAGE k SAMPLES x => !ERR value is not an integer or out of range");
        check("MEMORY USAGE k X 1 => !ERR syntax error");
    }

    #[test]
    fn stats_have_the_sum() {
        check(
            "SET k v; HELLO 3; MEMORY STATS => {\"peak.allocated\": 1071, ...\
               \"keys.count\": 1, \"keys.bytes-per-key\": 47, ...}",
        );
    }
}
