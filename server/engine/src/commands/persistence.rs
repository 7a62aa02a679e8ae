//! Commands about snapshots: they replace the beginning of the log.

use lockwheel_resp::Reply;

use crate::Engine;
use crate::command::argument as arg;
use crate::command::{Arity, Command, Flags, Group, is};
use crate::error::Error;
use crate::run::context::Context;

const SNAPSHOT: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.union(Flags::NO_ASYNC_LOADING).union(Flags::NOSCRIPT),
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "bgrewriteaof",
        arity: Arity::Exactly(1),
        complexity: "O(N) in the number of keys, beside other requests",
        doc: "Replaces the beginning of the log by a snapshot.",
        example: "BGREWRITEAOF => !ERR snapshots belong to the log: start the server with \
                  'appendonly yes'",
        run: bgrewriteaof,
        ..SNAPSHOT
    },
    Command {
        name: "bgsave",
        arity: Arity::AtLeast(1),
        complexity: "O(N) in the number of keys, beside other requests",
        doc: "Begins a snapshot.",
        arguments: &[arg::word("SCHEDULE").optional().since("3.2.2")],
        example: "BGSAVE => !ERR snapshots belong to the log: start the server with 'appendonly \
                  yes'",
        run: bgsave,
        ..SNAPSHOT
    },
    Command {
        name: "lastsave",
        arity: Arity::Exactly(1),
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        categories: crate::command::Categories::ADMIN.union(crate::command::Categories::DANGEROUS),
        doc: "Returns the wall clock at the last snapshot, or at the start.",
        tips: &["nondeterministic_output"],
        example: "LASTSAVE => 1700000000",
        run: lastsave,
        ..SNAPSHOT
    },
    Command {
        name: "save",
        arity: Arity::Exactly(1),
        flags: SNAPSHOT.flags.union(Flags::NO_MULTI),
        complexity: "O(N) in the number of keys, beside other requests",
        doc: "Writes a snapshot, and replies when it is complete.",
        example: "SAVE => !ERR snapshots belong to the log: start the server with 'appendonly \
                  yes'",
        run: save,
        ..SNAPSHOT
    },
];

/// The error for a request that would promise durability without a log.
const NO_LOG: Error =
    Error::line("ERR snapshots belong to the log: start the server with 'appendonly yes'");

/// Checks that changes are logged: by this server, or by the leader that it follows.
pub(super) fn check_log(engine: &Engine) -> Result<(), Error> {
    if engine.has_log() || engine.is_following() { Ok(()) } else { Err(NO_LOG) }
}

/// Asks for a snapshot, unless one is being written, which the error says.
fn request(context: &mut Context<'_>, in_progress: &'static str) -> Result<(), Error> {
    check_log(context.engine())?;
    if context.engine().persistence.began_at.is_some() {
        return Err(Error::line(in_progress));
    }
    context.request_snapshot();
    Ok(())
}

/// `BGREWRITEAOF`: replies at once.
fn bgrewriteaof(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    request(context, "ERR Background append only file rewriting already in progress")?;
    Ok(Reply::status("Background append only file rewriting started"))
}

/// `BGSAVE`: replies at once.
fn bgsave(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[1..] {
        [] => {}
        [option] if is(option, "schedule") => {}
        _ => return Err(Error::Syntax),
    }
    request(context, "ERR Background save already in progress")?;
    Ok(Reply::status("Background saving started"))
}

/// `LASTSAVE`: replies with seconds since 1970.
fn lastsave(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::Integer(context.engine().persistence.last_save_seconds))
}

/// `SAVE`: replies when the snapshot is complete. Other clients are served meanwhile.
fn save(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    request(context, "ERR Background save already in progress")?;
    context.wait_for_snapshot();
    Ok(Reply::NOTHING)
}

#[cfg(test)]
mod tests {
    use crate::settings::{Settings, directive};
    use crate::testing::Stage;

    #[test]
    fn follower_takes_snapshots_of_its_own() {
        let mut settings = Settings::default();
        settings.put(directive::RAFT_PORT, &1);
        let mut stage = Stage::new(settings);
        stage.engine.follow();
        stage.check(
            "BGREWRITEAOF => Background append only file rewriting started; \
             BGSAVE => !ERR Background save already in progress",
        );
        stage.engine.end_snapshot(true, stage.time());
        stage.check("CONFIG SET save \"60 1\" => OK; SHUTDOWN SAVE => ");
    }
}
