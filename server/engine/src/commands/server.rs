//! Commands about the server as a whole: the time, shutdown, and commands for tests.

use lockwheel_resp::Reply;

use crate::Flow;
use crate::argument as arg;
use crate::command::{Arity, Command, Flags, Group};
use crate::commands::unknown_form;
use crate::context::{Context, integer, is};
use crate::error::Error;
use crate::time::Millis;

const SERVER: Command = Command { group: Group::Server, ..Command::BASE };

const ADMIN_ANYTIME: Flags =
    Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "debug",
        arity: Arity::AtLeast(2),
        flags: ADMIN_ANYTIME.union(Flags::PROTECTED).union(Flags::INTERNAL),
        complexity: "that of the subcommand",
        doc: "A container for commands for tests.",
        example: "DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...",
        run: debug,
        ..SERVER
    },
    Command {
        name: "shutdown",
        arity: Arity::AtLeast(1),
        flags: ADMIN_ANYTIME.union(Flags::NO_MULTI).union(Flags::ALLOW_BUSY),
        doc: "Shuts the server down.",
        arguments: &[
            arg::one_of("nosave_save", &[arg::word("NOSAVE"), arg::word("SAVE")]).optional(),
            arg::word("NOW").optional().since("7.0.0"),
            arg::word("FORCE").optional().since("7.0.0"),
            arg::word("ABORT").optional().since("7.0.0"),
        ],
        example: "SHUTDOWN ABORT => !ERR No shutdown in progress.",
        run: shutdown,
        ..SERVER
    },
    Command {
        name: "time",
        arity: Arity::Exactly(1),
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        since: "2.6.0",
        doc: "Returns the wall clock: seconds since 1970, and microseconds.",
        tips: &["nondeterministic_output"],
        example: "TIME => [\"1700000000\", \"0\"]",
        run: time,
        ..SERVER
    },
];

/// `TIME`: replies with seconds and microseconds.
fn time(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let wall_us = context.time.wall_us;
    let (seconds, micros) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
    Ok(Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())]))
}

// --- shutdown ---

/// `SHUTDOWN`: ends the server without a reply, or replies with an error.
fn shutdown(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut save, mut no_save, mut abort, mut now, mut force) =
        (false, false, false, false, false);
    for option in &argv[1..] {
        match () {
            () if is(option, "save") => save = true,
            () if is(option, "nosave") => no_save = true,
            () if is(option, "now") => now = true,
            () if is(option, "force") => force = true,
            () if is(option, "abort") => abort = true,
            () => return Err(Error::Syntax),
        }
    }
    if (save && no_save) || (abort && (save || no_save || now || force)) {
        return Err(Error::Syntax);
    }
    if abort {
        return Err(Error::line("ERR No shutdown in progress."));
    }
    // A running script may be in the middle of a change that must not be saved.
    if context.engine.is_busy() && !no_save {
        return Err(context.engine.busy_error());
    }
    // The log is complete without a snapshot.
    if save && !force && !context.engine.has_log() {
        return Err(super::persistence::NO_LOG);
    }
    context.engine.flow = Some(Flow::Shutdown);
    Ok(Reply::NOTHING)
}

// --- for tests ---

const DEBUG_HELP: &[&str] = &[
    "ERROR <line>",
    "    Replies with that error.",
    "RELOAD",
    "    Writes all keys as a snapshot does, removes them, and reads them back.",
    "SET-ACTIVE-EXPIRE (0|1)",
    "    Selects whether keys are removed at their deadline (1), or when next accessed (0).",
    "SLEEP <seconds>",
    "    Blocks the server for that time.",
];

/// A longer sleep serves no test, and nothing else could end it.
const SLEEP_SECONDS_MAX: f64 = 3600.0;

/// `DEBUG`: replies with the result of the subcommand.
fn debug(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[1..] {
        [name] if is(name, "help") => Ok(super::help("DEBUG", DEBUG_HELP)),
        [name, line] if is(name, "error") => {
            Err(Error::text(String::from_utf8_lossy(line).into_owned()))
        }
        [name, seconds] if is(name, "sleep") => {
            let seconds = lockwheel_resp::number::parse_double(seconds).unwrap_or(0.0);
            let millis = seconds.clamp(0.0, SLEEP_SECONDS_MAX) * 1000.0;
            if millis > 0.0 {
                context.engine.flow = Some(Flow::Sleep(Millis(millis.ceil() as i64)));
            }
            Ok(Reply::OK)
        }
        [name] if is(name, "reload") => {
            let reloaded = context.engine.writer.reload(context.time.now);
            reloaded.map_err(|error| Error::text(format!("ERR {error}")))?;
            Ok(Reply::OK)
        }
        [name, on] if is(name, "set-active-expire") => {
            let on = integer(on).unwrap_or(0) != 0;
            let engine = &mut *context.engine;
            engine.writer.set_active_expiry(on);
            Ok(Reply::OK)
        }
        _ => Err(unknown_form("DEBUG", argv[1])),
    }
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::sessions::Origin;
    use crate::settings::{Permission, Settings};
    use crate::testing::{Stage, check, words};
    use crate::time::{Millis, Time};

    #[test]
    fn time_is_the_wall_clock() {
        check(
            "+1us; TIME => [\"1700000000\", \"1\"]; wall-1000ms; TIME => [\"1699999999\", \"1\"]",
        );
    }

    #[test]
    fn shutdown_ends_the_server() {
        for (command, reply, flow) in [
            ("SHUTDOWN", "", Flow::Shutdown),
            ("SHUTDOWN NOSAVE NOW FORCE", "", Flow::Shutdown),
            ("SHUTDOWN SAVE FORCE", "", Flow::Shutdown),
            (
                "SHUTDOWN SAVE",
                "!ERR snapshots belong to the log: start the server with 'appendonly yes'",
                Flow::Next,
            ),
            ("SHUTDOWN SAVE NOSAVE", "!ERR syntax error", Flow::Next),
            ("SHUTDOWN NOW ABORT", "!ERR syntax error", Flow::Next),
            ("SHUTDOWN x", "!ERR syntax error", Flow::Next),
        ] {
            let mut stage = Stage::new(Settings::default());
            let client = stage.client("a");
            assert_eq!(stage.run(client, &words(command)), (reply.to_owned(), flow), "{command}");
        }
        check("MULTI; SHUTDOWN => !ERR Command not allowed inside a transaction");
    }

    fn open(permission: Permission) -> Stage {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.enable_debug_command = permission;
        stage
    }

    #[test]
    fn debug_requires_permission() {
        check(
            "MULTI; DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...; EXEC => !EXECABORT ...",
        );
        check("DEBUG => !ERR wrong number of arguments for 'debug' command");
        open(Permission::Yes).check("DEBUG SLEEP 0 => OK");
        let mut stage = open(Permission::Local);
        stage.check("DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...");
        let origin = Origin { local: true, ..Origin::default() };
        let local = stage.engine.connect(origin, Time::at(Millis(0)));
        assert_eq!(stage.run(local, &words("DEBUG SLEEP 0")).0, "OK");
    }

    #[test]
    fn debug_runs_its_subcommands() {
        let mut stage = open(Permission::Yes);
        let client = stage.client("a");
        let slept = stage.run(client, &words("DEBUG SLEEP 0.0015")).1;
        assert_eq!(slept, Flow::Sleep(Millis(2)));
        stage.check("DEBUG SLEEP x => OK; DEBUG ERROR \"MY own\" => !MY own");
        stage.check("DEBUG SET-ACTIVE-EXPIRE 0 => OK; SET k v PX 10; +10ms");
        assert_eq!(stage.engine.writer.keyspace().database(0).len(), 1);
        stage.check("SET l v PX 10; +10ms; DBSIZE => 2; DEBUG SET-ACTIVE-EXPIRE 1; DBSIZE => 0");
        stage.check("DEBUG SET-ACTIVE-EXPIRE 0");
        stage.check("GET k => nil; SET k v PX 10; DEBUG SET-ACTIVE-EXPIRE 1; +10ms");
        assert_eq!(stage.engine.writer.keyspace().database(0).len(), 0);
        stage.check(
            "DEBUG JMAP => !ERR unknown subcommand or wrong number of arguments for \
                     'JMAP'. Try DEBUG HELP.",
        );
    }
}
