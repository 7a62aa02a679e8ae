//! Commands about the server as a whole: its time and role, waiting for replicas it does not have,
//! its end, and what tests may do to it.

use leasehold_resp::Reply;

use crate::engine::Flow;
use crate::engine::command::{Arity, Categories, Command, Flags, Group};
use crate::engine::context::{Context, integer, is};
use crate::engine::error::Error;
use crate::engine::time::Millis;

const SERVER: Command = Command { group: Group::Server, ..Command::BASE };

const WAIT: Command = Command {
    flags: Flags::BLOCKING,
    categories: Categories::CONNECTION,
    group: Group::Generic,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..SERVER
};

const ADMIN_ANYTIME: Flags =
    Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "debug",
        arity: Arity::AtLeast(2),
        flags: ADMIN_ANYTIME.union(Flags::PROTECTED),
        complexity: "that of the subcommand",
        doc: "A container for what only tests should do.",
        example: "DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...",
        run: debug,
        ..SERVER
    },
    Command {
        name: "role",
        arity: Arity::Exactly(1),
        flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST),
        categories: Categories::ADMIN.union(Categories::DANGEROUS),
        since: "2.8.12",
        doc: "Tells whether the server is a master, and who follows it.",
        example: "ROLE => [\"master\", 0, []]",
        run: role,
        ..SERVER
    },
    Command {
        name: "shutdown",
        arity: Arity::AtLeast(1),
        flags: ADMIN_ANYTIME.union(Flags::NO_MULTI).union(Flags::ALLOW_BUSY),
        doc: "Ends the server.",
        example: "SHUTDOWN ABORT => !ERR No shutdown in progress.",
        run: shutdown,
        ..SERVER
    },
    Command {
        name: "time",
        arity: Arity::Exactly(1),
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        since: "2.6.0",
        doc: "Returns the wall clock's seconds since 1970, and microseconds.",
        tips: &["nondeterministic_output"],
        example: "TIME => [\"1700000000\", \"0\"]",
        run: time,
        ..SERVER
    },
    Command {
        name: "wait",
        arity: Arity::Exactly(3),
        since: "3.0.0",
        doc: "Waits until replicas have what the client wrote; returns how many do.",
        example: "WAIT 0 0 => 0",
        run: wait,
        ..WAIT
    },
    Command {
        name: "waitaof",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        doc: "Waits until what the client wrote is in append-only files.",
        example: "WAITAOF 0 0 0 => [0, 0]",
        run: waitaof,
        ..WAIT
    },
];

fn time(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let wall_us = context.time.wall_us;
    let (seconds, micros) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
    Ok(Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())]))
}

fn role(_: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let no_replicas = Reply::Array(Vec::new());
    Ok(Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), no_replicas]))
}

// --- waiting for replicas, of which there are none ---

fn wait(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let replicas = integer(argv[1])?;
    let deadline = super::timeout(context.time, argv[2])?;
    Ok(answer_when_replicated(context, replicas > 0, deadline, Reply::Integer(0)))
}

fn waitaof(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let local = integer(argv[1])?;
    if !(0..=1).contains(&local) {
        return Err(Error::line("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = integer(argv[2])?;
    if replicas < 0 {
        return Err(Error::line("ERR value is out of range, must be positive"));
    }
    let deadline = super::timeout(context.time, argv[3])?;
    if local > 0 {
        return Err(Error::line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let none = Reply::Array(vec![Reply::Integer(0), Reply::Integer(0)]);
    Ok(answer_when_replicated(context, replicas > 0, deadline, none))
}

/// Answers at once that there is no replica, unless the client asks for one: then when it has
/// waited for as long as it wants to.
fn answer_when_replicated(
    context: &mut Context<'_>,
    asks_for_any: bool,
    deadline: Option<Millis>,
    answer: Reply,
) -> Reply {
    if !asks_for_any || context.may_not_block() {
        return answer;
    }
    context.engine.block(context.client, answer, deadline);
    Reply::NOTHING
}

// --- the end ---

fn shutdown(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut save, mut no_save, mut abort, mut how) = (false, false, false, false);
    for option in &argv[1..] {
        match () {
            () if is(option, "save") => save = true,
            () if is(option, "nosave") => no_save = true,
            () if is(option, "now") || is(option, "force") => how = true,
            () if is(option, "abort") => abort = true,
            () => return Err(Error::Syntax),
        }
    }
    if (save && no_save) || (abort && (save || no_save || how)) {
        return Err(Error::Syntax);
    }
    if abort {
        return Err(Error::line("ERR No shutdown in progress."));
    }
    // A running script may be in the middle of a change that must not be kept.
    if context.engine.is_busy() && !no_save {
        return Err(Error::Busy);
    }
    context.engine.flow = Some(Flow::Shutdown);
    Ok(Reply::NOTHING)
}

// --- for tests ---

const DEBUG_HELP: &[&str] = &[
    "ERROR <line>",
    "    Answers with that error.",
    "SET-ACTIVE-EXPIRE (0|1)",
    "    Chooses whether keys are removed at their deadline, or when next looked for.",
    "SLEEP <seconds>",
    "    Keeps everyone waiting.",
];

/// A longer sleep is no test any more, and nothing else could end it.
const SLEEP_SECONDS_MAX: f64 = 3600.0;

fn debug(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[1..] {
        [name] if is(name, "help") => Ok(super::help("DEBUG", DEBUG_HELP)),
        [name, line] if is(name, "error") => {
            Err(Error::text(String::from_utf8_lossy(line).into_owned()))
        }
        [name, seconds] if is(name, "sleep") => {
            let seconds = leasehold_resp::number::parse_double(seconds).unwrap_or(0.0);
            let millis = seconds.clamp(0.0, SLEEP_SECONDS_MAX) * 1000.0;
            if millis > 0.0 {
                context.engine.flow = Some(Flow::Sleep(Millis(millis.ceil() as i64)));
            }
            Ok(Reply::OK)
        }
        [name, on] if is(name, "set-active-expire") => {
            let on = integer(on).unwrap_or(0) != 0;
            let engine = &mut *context.engine;
            engine.keyspace.set_active_expiry(on, &mut engine.wheel);
            Ok(Reply::OK)
        }
        _ => {
            let name = String::from_utf8_lossy(argv[1]);
            Err(Error::text(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Permission};
    use crate::engine::Flow;
    use crate::engine::client::Origin;
    use crate::engine::testing::{Stage, check, words};
    use crate::engine::time::{Millis, Time};

    #[test]
    fn time_is_the_wall_clock() {
        check(
            "+1us; TIME => [\"1700000000\", \"1\"]; wall-1000ms; TIME => [\"1699999999\", \"1\"]",
        );
    }

    #[test]
    fn waits_end_with_the_clock() {
        check("WAIT 0 0 => 0; WAIT -1 0 => 0; WAITAOF 0 0 0 => [0, 0]");
        check("WAIT 1 50 => ; +49ms; a< => ; +1ms; a< => 0");
        check("WAITAOF 0 1 50 => ; +49ms; a< => ; +1ms; a< => [0, 0]");
        check("WAIT 1 0 => ; +1000000ms; a< => ");
        check("MULTI; WAIT 1 0; WAITAOF 0 1 0; EXEC => [0, [0, 0]]");
        check("EVAL \"return redis.call('WAIT', '1', '0')\" 0 => 0");
    }

    #[test]
    fn waits_that_make_no_sense() {
        check("WAIT x 0 => !ERR value is not an integer or out of range");
        check("WAIT 1 x => !ERR timeout is not an integer or out of range");
        check("WAIT 1 -1 => !ERR timeout is negative");
        check("WAIT 1 9223372036854775807 => !ERR timeout is out of range");
        check("WAITAOF 2 0 0 => !ERR value is out of range, value must between 0 and 1");
        check("WAITAOF 0 -1 0 => !ERR value is out of range, must be positive");
        check(
            "WAITAOF 1 0 0 => !ERR WAITAOF cannot be used when numlocal is set but appendonly \
               is disabled.",
        );
    }

    #[test]
    fn shutdown_ends_the_server() {
        for (command, reply, flow) in [
            ("SHUTDOWN", "", Flow::Shutdown),
            ("SHUTDOWN NOSAVE NOW FORCE", "", Flow::Shutdown),
            ("SHUTDOWN SAVE NOSAVE", "!ERR syntax error", Flow::Next),
            ("SHUTDOWN NOW ABORT", "!ERR syntax error", Flow::Next),
            ("SHUTDOWN x", "!ERR syntax error", Flow::Next),
        ] {
            let mut stage = Stage::new(Config::default());
            let client = stage.client("a");
            assert_eq!(stage.run(client, &words(command)), (reply.to_owned(), flow), "{command}");
        }
        check("MULTI; SHUTDOWN => !ERR Command not allowed inside a transaction");
    }

    fn open(who: Permission) -> Stage {
        let mut stage = Stage::new(Config::default());
        stage.engine.config.enable_debug_command = who;
        stage
    }

    #[test]
    fn debug_is_for_those_who_may() {
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
    fn debug_does_what_it_is_told() {
        let mut stage = open(Permission::Yes);
        let client = stage.client("a");
        let slept = stage.run(client, &words("DEBUG SLEEP 0.0015")).1;
        assert_eq!(slept, Flow::Sleep(Millis(2)));
        stage.check("DEBUG SLEEP x => OK; DEBUG ERROR \"MY own\" => !MY own");
        stage.check("DEBUG SET-ACTIVE-EXPIRE 0 => OK; SET k v PX 10; +10ms");
        assert_eq!(stage.engine.keyspace.database(0).len(), 1);
        stage.check("GET k => nil; SET k v PX 10; DEBUG SET-ACTIVE-EXPIRE 1; +10ms");
        assert_eq!(stage.engine.keyspace.database(0).len(), 0);
        stage.check(
            "DEBUG JMAP => !ERR unknown subcommand or wrong number of arguments for \
                     'JMAP'. Try DEBUG HELP.",
        );
    }
}
