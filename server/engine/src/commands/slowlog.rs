//! `SLOWLOG`: the last commands that took long.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Command, Flags, Group, integer};
use crate::commands::{help_row, unknown_form};
use crate::error::Error;
use crate::run::context::Context;
use crate::statistics::slow_log::SlowCommand;

const SLOWLOG: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.union(Flags::LOADING).union(Flags::STALE),
    since: "2.2.12",
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "slowlog",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    complexity: "that of the subcommand",
    doc: "Shows the last commands that took long.",
    subcommands: SUBCOMMANDS,
    ..SLOWLOG
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of entries returned",
        doc: "Returns the newest entries, 10 by default; with -1, all. An entry has its id, the \
              time in seconds, the duration in microseconds, the arguments, and the address and \
              the name of the client.",
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        arguments: &[arg::integer("count").optional()],
        example: "SLOWLOG RESET; SLOWLOG GET => []",
        run: get,
        ..SLOWLOG
    },
    help_row(SLOWLOG, "6.2.0", "SLOWLOG HELP => [SLOWLOG <subcommand> ...]"),
    Command {
        name: "len",
        arity: Arity::Exactly(2),
        doc: "Returns the number of entries.",
        tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
        example: "SLOWLOG RESET; SLOWLOG LEN => 0",
        run: |context, _| Ok(Reply::from(context.engine().latency.slow_log.entries().len())),
        ..SLOWLOG
    },
    Command {
        name: "reset",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of entries",
        doc: "Removes all entries.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        example: "SLOWLOG RESET => OK",
        run: |context, _| {
            context.latency_mut().slow_log.clear();
            Ok(Reply::OK)
        },
        ..SLOWLOG
    },
];

/// Default of the number of entries that `SLOWLOG GET` returns, as in Redis.
const COUNT_DEFAULT: usize = 10;

/// `SLOWLOG GET`: replies with the newest entries.
fn get(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    const RANGE: Error = Error::line("ERR count should be greater than or equal to -1");
    let count = match argv {
        [_, _] => COUNT_DEFAULT,
        [_, _, count] => match integer(count).map_err(|_| RANGE)? {
            -1 => usize::MAX,
            count => usize::try_from(count).map_err(|_| RANGE)?,
        },
        _ => return Err(unknown_form("SLOWLOG", argv[1])),
    };
    let entries = context.engine().latency.slow_log.entries();
    Ok(Reply::Array(entries.take(count).map(entry).collect()))
}

fn entry(command: &SlowCommand) -> Reply {
    Reply::Array(vec![
        Reply::Integer(command.number.cast_signed()),
        Reply::Integer(command.at_seconds),
        Reply::Integer(command.took_us.cast_signed()),
        Reply::Array(command.words.iter().map(Reply::bulk).collect()),
        Reply::bulk(&command.address),
        Reply::bulk(&command.client_name),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::settings::{Permission, Settings};
    use crate::testing::{Stage, check};

    #[test]
    fn commands_are_shortened_and_show_no_passwords() {
        check(
            "CONFIG SET slowlog-log-slower-than 0; SLOWLOG RESET; \
             HELLO 2 AUTH u p => !WRONGPASS ...; SLOWLOG GET 1 => \
             [[2, ..., ..., [\"HELLO\", \"2\", \"AUTH\", \"(redacted)\", \"(redacted)\"], ...]]",
        );
        let long = "x".repeat(130);
        let shown = "x".repeat(128);
        check(&format!(
            "CONFIG SET slowlog-log-slower-than 0; GET {long}; \
             SLOWLOG GET 1 => [[1, ..., ..., [\"GET\", \"{shown}... (2 more bytes)\"], ...]]"
        ));
    }

    #[test]
    fn oldest_entries_are_removed() {
        check(
            "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2; GET a; GET b; GET c; \
             SLOWLOG LEN => 2; SLOWLOG RESET; SLOWLOG LEN => 1",
        );
        check("CONFIG SET slowlog-log-slower-than -1; GET a; SLOWLOG LEN => 0");
    }

    #[test]
    fn sleep_counts_as_time_of_its_command() {
        static NOW_NS: AtomicU64 = AtomicU64::new(0);
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.enable_debug_command = Permission::Yes;
        stage.engine.process.clock_ns = || NOW_NS.load(Ordering::Relaxed);
        stage.engine.process.sleep = |span| {
            NOW_NS.fetch_add(span.0.unsigned_abs() * 1_000_000, Ordering::Relaxed);
        };
        stage.check(
            "CONFIG SET latency-monitor-threshold 1; DEBUG SLEEP 0.0195 => OK; GET k; \
             SLOWLOG GET => [[0, ..., 20000, [\"DEBUG\", \"SLEEP\", \"0.0195\"], ...]]; \
             LATENCY LATEST => [[\"command\", ..., 20, 20]]",
        );
    }

    #[test]
    fn time_before_a_wait_ends_belongs_to_no_command() {
        static NOW_NS: AtomicU64 = AtomicU64::new(0);
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || NOW_NS.load(Ordering::Relaxed);
        stage.check("XGROUP CREATE s g $ MKSTREAM; PEXPIRE s 10");
        stage.check("b> XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        NOW_NS.store(60_000_000_000, Ordering::Relaxed);
        stage.check("+10ms; b< => !NOGROUP ...; SLOWLOG LEN => 0");
    }
}
