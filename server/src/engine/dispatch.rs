//! The gates a request passes, in order, and what happens to it then.
//!
//! The order is Redis's: it decides which of several errors a client is told.

use leasehold_resp::{Protocol, Reply};

use crate::engine::Engine;
use crate::engine::client::ClientId;
use crate::engine::command::{Command, Entry, Flags};
use crate::engine::context::{Caller, Context};
use crate::engine::error::Error;
use crate::engine::time::Time;
use crate::engine::transaction::Queued;

/// What to do with a request that passed the gates.
enum Passage {
    /// Run the command at this place of the table.
    Run(usize),
    /// It waits in the client's transaction.
    Queued,
    /// It has to be tried again when the pause ends.
    Paused,
}

/// What a direct request has come to.
pub(super) enum Outcome {
    /// This is its reply.
    Reply(Reply),
    /// It has to be run again when its client is resumed.
    Again,
}

impl Engine {
    /// Passes a client's request through the gates and runs it.
    pub(super) fn dispatch(&mut self, client: ClientId, argv: &[&[u8]], time: Time) -> Outcome {
        let passage = self.find_command(argv).and_then(|at| self.pass(client, at, argv, time));
        match passage {
            Ok(Passage::Run(at)) => {
                let database = self.clients.get(client).map_or(0, |state| state.database);
                Outcome::Reply(self.call(client, Caller::Client, at, database, argv, time))
            }
            Ok(Passage::Queued) => Outcome::Reply(Reply::status("QUEUED")),
            Ok(Passage::Paused) => Outcome::Again,
            Err(error) => {
                if let Some(transaction) =
                    self.clients.get_mut(client).and_then(|state| state.transaction.as_mut())
                {
                    transaction.broken = true;
                }
                let reply = Reply::from(error);
                self.count_error(&reply);
                Outcome::Reply(reply)
            }
        }
    }

    /// Runs one command for a script.
    pub(super) fn dispatch_from_script(&mut self, argv: &[&[u8]]) -> Reply {
        let Some(script) = self.script.as_ref() else {
            return Reply::error("ERR redis.call() can only be called inside a script");
        };
        let (client, database, time) = (script.client, script.database, script.time);
        let read_only = script.read_only;
        match self.find_for_script(argv, read_only) {
            Ok(at) => {
                if self.commands.entry(at).command.flags.contains(Flags::WRITE) {
                    if let Some(script) = self.script.as_mut() {
                        script.wrote = true;
                    }
                }
                self.call(client, Caller::Script, at, database, argv, time)
            }
            Err(error) => error.into(),
        }
    }

    /// Runs the command at `at`, which has passed its gates.
    pub(super) fn call(
        &mut self,
        client: ClientId,
        caller: Caller,
        at: usize,
        database: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> Reply {
        let entry = self.commands.entry_mut(at);
        entry.stats.calls += 1;
        let (command, name) = (entry.command, entry.full_name);
        self.stats.commands_processed += 1;
        let mut context = Context { engine: self, client, caller, database, time, command, name };
        match (command.run)(&mut context, argv) {
            Ok(reply) => reply,
            Err(error) => {
                self.commands.entry_mut(at).stats.failed += 1;
                let reply = Reply::from(error);
                if caller != Caller::Script {
                    self.count_error(&reply);
                }
                reply
            }
        }
    }

    /// The command or subcommand that `argv` names, with a number of arguments it takes.
    fn find_command(&mut self, argv: &[&[u8]]) -> Result<usize, Error> {
        let name = argv.first().copied().unwrap_or_default();
        let Some(mut at) = self.commands.find(name) else {
            return Err(unknown_command(argv));
        };
        if !self.commands.entry(at).command.subcommands.is_empty() && argv.len() > 1 {
            let parent = self.commands.entry(at).full_name;
            at = self.commands.find_subcommand(at, argv[1]).ok_or_else(|| {
                let name = String::from_utf8_lossy(&argv[1][..argv[1].len().min(128)]);
                Error::UnknownSubcommand(name.into_owned(), parent.to_ascii_uppercase())
            })?;
        }
        let entry = self.commands.entry_mut(at);
        // A command that has subcommands is never run without one.
        if !entry.command.arity.admits(argv.len()) || !entry.command.subcommands.is_empty() {
            entry.stats.rejected += 1;
            return Err(Error::Arity(entry.full_name.to_owned()));
        }
        Ok(at)
    }

    fn find_for_script(&mut self, argv: &[&[u8]], read_only: bool) -> Result<usize, Error> {
        let at = self.find_command(argv).map_err(|error| match error {
            Error::Arity(_) => {
                Error::line("ERR Wrong number of args calling Redis command from script")
            }
            _ => Error::line("ERR Unknown Redis command called from script"),
        })?;
        let flags = self.commands.entry(at).command.flags;
        if flags.contains(Flags::NOSCRIPT) {
            return Err(Error::line("ERR This Redis command is not allowed from script"));
        }
        if read_only && flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Err(Error::ReadOnlyScript);
        }
        Ok(at)
    }

    fn pass(
        &mut self,
        client: ClientId,
        at: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> Result<Passage, Error> {
        let Some(state) = self.clients.get(client) else { return Ok(Passage::Paused) };
        let entry = self.commands.entry(at);
        let passed = self.refusal(client, entry);
        if let Some(error) = passed {
            self.commands.entry_mut(at).stats.rejected += 1;
            return Err(error);
        }
        let Entry { command, .. } = entry;
        let queueing = state.transaction.is_some() && !ends_transaction(command);
        if self.must_wait_for_unpause(client, command, time) && !queueing {
            return Ok(Passage::Paused);
        }
        if !queueing {
            return Ok(Passage::Run(at));
        }
        let argv = argv.iter().map(|&argument| argument.into()).collect();
        if let Some(transaction) =
            self.clients.get_mut(client).and_then(|state| state.transaction.as_mut())
        {
            transaction.queue.push(Queued { command: at, argv });
        }
        Ok(Passage::Queued)
    }

    /// The first gate that is closed to this client, as its error.
    fn refusal(&self, client: ClientId, entry: &Entry) -> Option<Error> {
        let state = self.clients.get(client)?;
        let flags = entry.command.flags;
        if !state.authenticated && !flags.contains(Flags::NO_AUTH) {
            return Some(Error::NoAuth);
        }
        if state.transaction.is_some() && flags.contains(Flags::NO_MULTI) {
            return Some(Error::NotInTransaction);
        }
        if state.protocol == Protocol::Resp2
            && state.is_subscriber()
            && !is_for_subscribers(entry.command)
        {
            return Some(Error::SubscribedContext(entry.full_name.to_owned()));
        }
        if self.busy && !flags.contains(Flags::ALLOW_BUSY) {
            return Some(Error::Busy);
        }
        None
    }

    fn must_wait_for_unpause(&self, client: ClientId, command: &Command, time: Time) -> bool {
        let Some(pause) = self.pause.filter(|pause| !time.reached(pause.until)) else {
            return false;
        };
        if !pause.writes_only {
            return !command.flags.contains(Flags::ALLOW_BUSY) || ends_transaction(command);
        }
        let writes = Flags::WRITE | Flags::MAY_REPLICATE;
        if command.flags.intersects(writes) {
            return true;
        }
        let queue = self.clients.get(client).and_then(|state| state.transaction.as_ref());
        command.name == "exec"
            && queue.is_some_and(|transaction| {
                transaction
                    .queue
                    .iter()
                    .any(|q| self.commands.entry(q.command).command.flags.intersects(writes))
            })
    }
}

/// Commands that are run between `MULTI` and `EXEC` rather than queued.
fn ends_transaction(command: &Command) -> bool {
    matches!(command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Commands a subscribed RESP2 client may send.
fn is_for_subscribers(command: &Command) -> bool {
    matches!(
        command.name,
        "ping"
            | "subscribe"
            | "ssubscribe"
            | "psubscribe"
            | "unsubscribe"
            | "sunsubscribe"
            | "punsubscribe"
            | "quit"
            | "reset"
    )
}

/// Names the command and as many of its arguments as fit into 128 bytes, as Redis does.
fn unknown_command(argv: &[&[u8]]) -> Error {
    const ECHO_BYTES_MAX: usize = 128;
    let cut = |argument: &[u8], room: usize| {
        String::from_utf8_lossy(&argument[..argument.len().min(room)]).into_owned()
    };
    let mut args = String::new();
    for argument in argv.iter().skip(1) {
        if args.len() >= ECHO_BYTES_MAX {
            break;
        }
        let text = cut(argument, ECHO_BYTES_MAX - args.len());
        args.push('\'');
        args.push_str(&text);
        args.push_str("' ");
    }
    let name = argv.first().map(|name| cut(name, ECHO_BYTES_MAX)).unwrap_or_default();
    Error::UnknownCommand(name, args)
}
