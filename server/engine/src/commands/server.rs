//! Commands about the server as a whole: the time, the version, modules and shutdown.

use lockwheel_resp::Reply;

use crate::Flow;
use crate::command::argument as arg;
use crate::command::{Arity, Command, Flags, Group, integer, is};
use crate::error::Error;
use crate::run::context::Context;

const SERVER: Command = Command { group: Group::Server, ..Command::BASE };

const ADMIN_ANYTIME: Flags =
    Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "lolwut",
        arity: Arity::AtLeast(1),
        flags: Flags::READONLY.union(Flags::FAST),
        since: "5.0.0",
        doc: "Returns the version of Redis whose behaviour the server has.",
        arguments: &[arg::integer("version").token("VERSION").optional()],
        example: "LOLWUT => ...",
        run: lolwut,
        ..SERVER
    },
    Command {
        name: "module",
        arity: Arity::AtLeast(2),
        since: "4.0.0",
        complexity: "that of the subcommand",
        doc: "Shows modules, of which this server has none.",
        subcommands: &[
            super::help_row(SERVER, "5.0.0", "MODULE HELP => [MODULE <subcommand> ...]"),
            Command {
                name: "list",
                arity: Arity::Exactly(2),
                flags: Flags::ADMIN.union(Flags::NOSCRIPT),
                since: "4.0.0",
                doc: "Returns an empty list.",
                tips: &["nondeterministic_output_order"],
                example: "MODULE LIST => []",
                run: |_, _| Ok(Reply::Array(Vec::new())),
                ..SERVER
            },
        ],
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

/// `LOLWUT`: replies with the line that follows the picture in Redis. Programs read the version
/// from it.
fn lolwut(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if let [_, option, version, ..] = argv
        && is(option, "version")
    {
        integer(version)?;
    }
    let version = context.settings().compat_version.redis_version();
    Ok(super::text(format!("Redis ver. {version}\n")))
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
    if context.engine().is_busy() && !no_save {
        return Err(context.engine().busy_error());
    }
    // The log is complete without a snapshot.
    if save && !force {
        super::persistence::check_log(context.engine())?;
    }
    context.end_with(Flow::Shutdown);
    Ok(Reply::NOTHING)
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::settings::{CompatVersion, Settings};
    use crate::testing::{Stage, check, words};

    #[test]
    fn time_is_the_wall_clock() {
        check(
            "+1us; TIME => [\"1700000000\", \"1\"]; wall-1000ms; TIME => [\"1699999999\", \"1\"]",
        );
    }

    #[test]
    fn lolwut_shows_the_announced_version() {
        let mut settings = Settings::default();
        settings.compat_version = CompatVersion::Redis70;
        let mut stage = Stage::new(settings);
        stage.check("HELLO 3; LOLWUT => =Redis ver. 7.0.15...");
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
}
