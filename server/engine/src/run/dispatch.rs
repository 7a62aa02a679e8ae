//! Running commands: how one is found, passes the gates and runs, for a request, a script and a
//! blocked client.

use lockwheel_resp::Reply;
use lockwheel_scripting::ShortReply;

use crate::Engine;
use crate::command::{Caller, Command, Entry, Flags, Group, ScriptArgument};
use crate::error::Error;
use crate::run::context::Context;
use crate::run::gates::{Closed, Conditions, DECLARED, GateMask, Invocation, Paths};
use crate::sessions::ClientId;
use crate::sessions::transaction::Queued;
use crate::store::lock_notes::MadeBy;
use crate::timing::time::Time;

/// The result of passing the gates.
enum Admission {
    /// Run this command in the client's database.
    Run(&'static Entry, usize),
    /// The command was queued in the client's transaction.
    Queued,
    /// Try again when the client is resumed.
    Paused,
}

/// The result of a request sent by a client.
pub(crate) enum DispatchResult {
    /// The reply.
    Reply(Reply),
    /// Run the request again when the client is resumed.
    Again,
}

/// A command that has run.
#[derive(Clone, Copy)]
pub(crate) struct CompletedCommand {
    pub(crate) client: ClientId,
    pub(crate) caller: Caller,
    pub(crate) command: &'static Command,
    pub(crate) name: &'static str,
    pub(crate) database: usize,
    pub(crate) time: Time,
}

impl Context<'_> {
    /// Runs one command for the script of this context. The reply may be in `place`, which is null
    /// before.
    pub(crate) fn call_for_script(
        &mut self,
        mask: GateMask,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        let found = self.engine.command_of(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => self.call_known_for_script(mask, entry, argv, place),
            None => self.call_checked_for_script(found, argv, place),
        }
    }

    /// As [`Context::call_for_script`], for a command without subcommands; its number of arguments
    /// has been checked.
    #[inline(always)]
    pub(crate) fn call_known_for_script(
        &mut self,
        mask: GateMask,
        entry: &'static Entry,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        if !mask.is_open(entry.command.flags) {
            return self.call_checked_for_script(Some(entry), argv, place);
        }
        self.run_for_script(entry, argv, place)
    }

    /// As [`Context::call_for_script`], for a command that needs checks.
    #[cold]
    fn call_checked_for_script(
        &mut self,
        found: Option<&'static Entry>,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        match self.find_for_script(found, argv) {
            Ok(entry) => self.run_for_script(entry, argv, place),
            Err(error) => ShortReply::of(self.engine.refuse_script(error), place),
        }
    }

    /// Finds the command of a call and passes it through the gates.
    fn find_for_script(
        &mut self,
        found: Option<&'static Entry>,
        argv: &[&[u8]],
    ) -> Result<&'static Entry, Error> {
        let Context { client, database, time, .. } = *self;
        let engine = &mut *self.engine;
        let entry = match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => entry,
            None => engine.find_subcommand(found, argv).map_err(|error| match error {
                Error::Arity(_) => {
                    Error::line("ERR Wrong number of args calling Redis command from script")
                }
                _ => Error::line("ERR Unknown Redis command called from script"),
            })?,
        };
        let (flags, path) = (entry.command.flags, Paths::SCRIPT);
        let call = Invocation { client, entry, argv, flags, path, database, time };
        engine.pass_gates(&call).map(|()| entry).map_err(|closed| {
            engine.command_stats[entry.at].rejected += 1;
            engine.refusal(&call, closed)
        })
    }

    #[inline(always)]
    fn run_for_script(
        &mut self,
        entry: &'static Entry,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        (self.command, self.name) = (entry.command, &entry.full_name);
        if entry.command.flags.contains(Flags::WRITE)
            && let Some(script) = self.engine.script.as_mut()
        {
            script.wrote = true;
        }
        // A command in a script never blocks and never runs a script.
        let result = self.run_observed(entry, argv);
        let engine = &mut *self.engine;
        let reply = match result {
            Ok(Reply::Integer(number)) => ShortReply::Integer(number),
            Ok(Reply::Null) => ShortReply::Null,
            _ => {
                *place = engine.finish_for_script(entry.at, result);
                return ShortReply::InPlace;
            }
        };
        // The result owns nothing here that must be freed, which the compiler cannot see.
        std::mem::forget(result);
        engine.count_call(entry.at, false);
        reply
    }

    /// Runs the command of this context, which has passed its gates.
    #[inline(always)]
    fn call(&mut self, entry: &'static Entry, argv: &[&[u8]]) -> Reply {
        let begin_ns = self.engine.command_begin_ns();
        let result = self.run_observed(entry, argv);
        let (engine, command) = (&mut *self.engine, entry.command);
        match &result {
            // Counted when the wait is over.
            result if waits(command, result) => {
                engine.count_time_later(self.client, entry.at, begin_ns);
            }
            Ok(reply) => {
                let failed = command.group == Group::Scripting && contains_error(reply);
                engine.count_call(entry.at, failed);
            }
            Err(_) => {}
        }
        // The last use of the result, so that it is moved once.
        result.unwrap_or_else(|error| engine.failed(entry.at, error))
    }

    /// Runs a command that was queued in the client's transaction.
    #[inline]
    pub(crate) fn run_queued(&mut self, queued: &Queued) -> Reply {
        let Context { client, time, .. } = *self;
        let argv: Vec<&[u8]> = queued.argv.iter().map(|argument| &**argument).collect();
        let (caller, database) = (Caller::Transaction, self.client().database);
        let engine = &mut *self.engine;
        let entry = engine.commands.entry(queued.command);
        engine.writer.set_made_by(MadeBy::Transaction);
        if let Some(refusal) = engine.refuse_queued(client, entry, &argv, time) {
            return refusal;
        }
        engine.context(client, caller, entry, database, time).call(entry, &argv)
    }

    /// Runs a command, measures its time, and passes it to the consumers of commands and effects.
    #[inline(always)]
    fn run_observed(&mut self, entry: &'static Entry, argv: &[&[u8]]) -> Result<Reply, Error> {
        // A script changes the caller of this context, and `SELECT` the database.
        let (caller, database) = (self.caller, self.database);
        let is_called = matches!(caller, Caller::Script | Caller::Transaction);
        let shares_reading = is_called && may_share_reading(entry.command);
        let begin_ns = match is_called && !shares_reading {
            true => self.engine.command_begin_read_ns(),
            false => self.engine.command_begin_ns(),
        };
        let result = (entry.command.run)(self, argv);
        let noted_ns = match shares_reading {
            true => self.engine.end_sharing_command(entry.at),
            false => self.engine.end_command(entry.at, begin_ns),
        };
        if let Some(took_ns) = noted_ns {
            let words = if waits(entry.command, &result) { None } else { Some(argv) };
            self.engine.note_slow_command(self.client, entry, words, took_ns, self.time);
        }
        if self.engine.has_consumers {
            self.observe(entry, caller, database, argv, &result);
        }
        result
    }

    /// Passes a command that has run, and its effects, to their consumers.
    #[cold]
    fn observe(
        &mut self,
        entry: &'static Entry,
        caller: Caller,
        database: usize,
        argv: &[&[u8]],
        result: &Result<Reply, Error>,
    ) {
        let Context { client, time, .. } = *self;
        let engine = &mut *self.engine;
        engine.observe_effects(Some((client, caller)));
        engine.depend_on_result(entry.command, result);
        let (command, name) = (entry.command, entry.full_name.as_str());
        let done = CompletedCommand { client, caller, command, name, database, time };
        engine.observe_command(done, argv, result);
        if !self.engine.sessions.monitors.is_empty() {
            self.show_after_run(entry, caller, argv);
        }
    }
}

impl Engine {
    /// Passes a client's request through the gates and runs it.
    #[inline(always)]
    pub(crate) fn dispatch(
        &mut self,
        client: ClientId,
        argv: &[&[u8]],
        time: Time,
    ) -> DispatchResult {
        let mut found = self.find_command(argv);
        if let Some(bytes_max) = self.request_bytes_max {
            found =
                found.and_then(|entry| Engine::check_request_size(argv, bytes_max).map(|()| entry));
        }
        match found.and_then(|entry| self.pass(client, entry, argv, time)) {
            Ok(Admission::Run(entry, database)) => {
                let mut context = self.context(client, Caller::Client, entry, database, time);
                DispatchResult::Reply(context.call(entry, argv))
            }
            Ok(Admission::Queued) => DispatchResult::Reply(Reply::status("QUEUED")),
            Ok(Admission::Paused) => DispatchResult::Again,
            Err(error) => {
                self.take_files(client);
                let error = self.break_transaction(client, error, argv);
                DispatchResult::Reply(self.error_reply(error))
            }
        }
    }

    /// Marks the client's transaction as broken after a refused request; a refused `EXEC` ends it.
    /// Returns the error for the client.
    pub(crate) fn break_transaction(
        &mut self,
        client: ClientId,
        error: Error,
        argv: &[&[u8]],
    ) -> Error {
        let found = self.command_of(argv);
        let Some(state) = self.sessions.get_mut(client) else { return error };
        if !found.is_some_and(|entry| entry.command.flags.contains(Flags::RUNS_QUEUE)) {
            if let Some(transaction) = state.transaction.as_mut() {
                transaction.broken = true;
            }
            return error;
        }
        self.sessions.take_transaction(client);
        self.unwatch(client);
        if error == Error::CrossSlot {
            return error;
        }
        let line = error.to_string();
        let reason = line.strip_prefix("ERR ").unwrap_or(&line);
        Error::text(format!("EXECABORT Transaction discarded because of: {reason}"))
    }

    #[cold]
    fn refuse_script(&mut self, error: Error) -> Reply {
        let reply = self.error_reply(error);
        self.remember_counted_error(&reply);
        reply
    }

    /// Counts a command that a script has called and that has a rare result. Returns its reply.
    #[inline(never)]
    fn finish_for_script(&mut self, at: usize, result: Result<Reply, Error>) -> Reply {
        let reply = match result {
            Ok(reply) => {
                self.count_call(at, false);
                reply
            }
            Err(error) => self.failed(at, error),
        };
        if reply.is_error() {
            self.remember_counted_error(&reply);
        }
        reply
    }

    /// Remembers an error that a script got, so that it is not counted again if the script returns
    /// it.
    #[cold]
    fn remember_counted_error(&mut self, reply: &Reply) {
        if let (Reply::Error(line), Some(script)) = (reply, self.script.as_mut()) {
            script.counted_error = Some(line[..].into());
        }
    }

    /// Creates the context of a command that is about to run.
    #[inline(always)]
    fn context(
        &mut self,
        client: ClientId,
        caller: Caller,
        entry: &'static Entry,
        database: usize,
        time: Time,
    ) -> Context<'_> {
        let Entry { command, full_name: name, .. } = entry;
        Context { engine: self, client, caller, database, time, command, name }
    }

    #[cold]
    fn failed(&mut self, at: usize, error: Error) -> Reply {
        self.count_call(at, true);
        self.error_reply(error)
    }

    /// Runs the command of a blocked client again; returns `Reply::NOTHING` if it still has to
    /// wait.
    pub(crate) fn run_again(
        &mut self,
        client: ClientId,
        at: usize,
        database: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> Reply {
        let entry = self.commands.entry(at);
        let call = waiter_call(client, entry, argv, database, time);
        if let Err(closed) = self.pass_gates(&call) {
            self.command_stats[at].rejected += 1;
            let refusal = self.refusal(&call, closed);
            return self.error_reply(refusal);
        }
        let reply = self.context(client, Caller::Waiter, entry, database, time).call(entry, argv);
        if reply != Reply::NOTHING {
            self.command_stats[at].times.total_ns += self.sessions.take_ran_ns(client);
        }
        reply
    }

    /// Runs the command of a blocked client a last time, since it waits no longer.
    pub(crate) fn run_last(
        &mut self,
        client: ClientId,
        at: usize,
        database: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> Reply {
        // The wait can end long after the last command.
        self.begin_requests();
        let entry = self.commands.entry(at);
        self.command_stats[at].times.total_ns += self.sessions.take_ran_ns(client);
        self.context(client, Caller::TimedOutWaiter, entry, database, time).call(entry, argv)
    }

    /// Checks whether the client may still run a queued command. Returns the error, if not.
    #[inline]
    fn refuse_queued(
        &mut self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
        time: Time,
    ) -> Option<Reply> {
        let restricted = Conditions::RESTRICTED;
        if !self.sessions.get(client)?.identity.conditions().contains(restricted) {
            return None;
        }
        let denial = self.check_permission(client, entry, argv).err()?;
        let (flags, path, database) = (entry.command.flags, Paths::QUEUED, 0);
        let call = Invocation { client, entry, argv, flags, path, database, time };
        self.command_stats[entry.at].rejected += 1;
        let refusal = self.deny(&call, denial);
        Some(self.error_reply(refusal))
    }

    /// Whether the command of a blocked client is delayed until the end of a pause.
    pub(crate) fn is_delayed(
        &mut self,
        client: ClientId,
        at: usize,
        database: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> bool {
        let entry = self.commands.entry(at);
        self.pass_gates(&waiter_call(client, entry, argv, database, time)) == Err(Closed::Paused)
    }

    /// Finds the command or subcommand of `argv` and checks its number of arguments.
    fn find_command(&mut self, argv: &[&[u8]]) -> Result<&'static Entry, Error> {
        let found = self.command_of(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => Ok(entry),
            None => self.find_subcommand(found, argv),
        }
    }

    /// Calls `run`, which runs one request, and leaves the counters of its command and those of
    /// errors as they are.
    #[cold]
    pub(crate) fn without_counting<R>(
        &mut self,
        argv: &[&[u8]],
        run: impl FnOnce(&mut Engine) -> R,
    ) -> R {
        let command = self.command_of(argv).map(|entry| entry.at);
        let subcommand = |at| self.commands.find_subcommand(at, argv.get(1)?);
        let at = command.and_then(subcommand).or(command);
        let command_stats = at.map(|at| (at, self.command_stats[at].clone()));
        let (total, errors) = (self.stats.total_error_replies, self.stats.errors.clone());
        let result = run(self);
        if let Some((at, stats)) = command_stats {
            self.command_stats[at] = stats;
        }
        (self.stats.total_error_replies, self.stats.errors) = (total, errors);
        result
    }

    /// The command named by the first argument.
    fn command_of(&self, argv: &[&[u8]]) -> Option<&'static Entry> {
        let commands = self.commands;
        Some(commands.entry(commands.find(argv.first()?)?))
    }

    /// Finds the subcommand of the command that was found, or returns the error.
    #[cold]
    fn find_subcommand(
        &mut self,
        found: Option<&'static Entry>,
        argv: &[&[u8]],
    ) -> Result<&'static Entry, Error> {
        let Some(mut entry) = found else { return Err(unknown_command(argv)) };
        if !entry.command.subcommands.is_empty() && argv.len() > 1 {
            let parent = entry.full_name.as_str();
            let at = self.commands.find_subcommand(entry.at, argv[1]).ok_or_else(|| {
                let name = String::from_utf8_lossy(&argv[1][..argv[1].len().min(128)]);
                Error::UnknownSubcommand([name.into_owned(), parent.to_ascii_uppercase()].into())
            })?;
            entry = self.commands.entry(at);
        }
        if !entry.command.arity.admits(argv.len()) {
            self.command_stats[entry.at].rejected += 1;
            return Err(Error::Arity(entry.full_name.to_owned()));
        }
        Ok(entry)
    }

    fn pass(
        &mut self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
        time: Time,
    ) -> Result<Admission, Error> {
        if self.gates.requests.is_open(entry.command.flags)
            && self.conditions.is_empty()
            && let Some(state) = self.sessions.get_mut(client)
            && state.conditions().is_empty()
        {
            state.last_command = &entry.full_name;
            return Ok(Admission::Run(entry, state.database));
        }
        self.check_gates(client, entry, argv, time)
    }

    /// As [`Engine::pass`], for a request that may fail at a gate.
    #[inline(never)]
    fn check_gates(
        &mut self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
        time: Time,
    ) -> Result<Admission, Error> {
        let command = entry.command;
        let flags = self.flags_of_request(client, command, argv);
        let path = Paths::REQUEST;
        let database = self.sessions.get(client).map_or(0, |session| session.database);
        let call = Invocation { client, entry, argv, flags, path, database, time };
        match self.pass_gates(&call) {
            Err(Closed::Paused) => {
                self.sessions.paused_clients.push(client);
                return Ok(Admission::Paused);
            }
            Err(Closed::Held(need)) => {
                self.sessions.hold(client, need);
                return Ok(Admission::Paused);
            }
            Err(Closed::Reading) => return Ok(Admission::Paused),
            Err(closed) => {
                self.sessions.forget_verdict(client);
                self.command_stats[entry.at].rejected += 1;
                return Err(self.refusal(&call, closed));
            }
            Ok(()) => self.sessions.forget_verdict(client),
        }
        let Some(state) = self.sessions.get_mut(client) else { return Ok(Admission::Paused) };
        state.last_command = &entry.full_name;
        if state.transaction.is_none() || flags.contains(Flags::NOT_QUEUED) {
            return Ok(Admission::Run(entry, state.database));
        }
        self.sessions.queue(client, entry.at, argv);
        Ok(Admission::Queued)
    }

    /// The flags of a request: a script's own declaration replaces those of `EVAL` and the like.
    /// Looked up only if needed, since the script has to be compiled for it.
    pub(crate) fn flags_of_request(
        &mut self,
        client: ClientId,
        command: &Command,
        argv: &[&[u8]],
    ) -> Flags {
        let Some(argument) = command.script else { return command.flags };
        let conditions = self.conditions_for(client);
        if !self.gates.mask(Paths::REQUEST, conditions).depends_on(DECLARED) {
            return command.flags;
        }
        let (interpreter, functions) = (self.interpreter.as_mut(), self.writer.libraries());
        let script = match argument {
            ScriptArgument::Text => interpreter.and_then(|interpreter| {
                let sha = interpreter.load_evaluated(argv[1]).ok()?;
                Some(interpreter.find(sha.as_bytes())?.script)
            }),
            ScriptArgument::Digest => interpreter.and_then(|lua| Some(lua.find(argv[1])?.script)),
            ScriptArgument::Function => functions.and_then(|all| Some(all.get(argv[1])?.script)),
        };
        let mut flags = command.flags;
        if let Some(script) = script.filter(|script| script.has_shebang()) {
            flags.set(Flags::MAY_REPLICATE, !script.no_writes());
            flags.set(Flags::DENYOOM, !script.allow_oom());
        }
        flags
    }
}

/// The command of a blocked client that is run again.
fn waiter_call<'a>(
    client: ClientId,
    entry: &'static Entry,
    argv: &'a [&'a [u8]],
    database: usize,
    time: Time,
) -> Invocation<'a> {
    let (flags, path) = (entry.command.flags, Paths::WAITER);
    Invocation { client, entry, argv, flags, path, database, time }
}

/// Whether a command that a script or transaction calls may share a reading of the clock: not if it
/// runs commands itself, or shows or resets times.
#[inline(always)]
fn may_share_reading(command: &Command) -> bool {
    match command.group {
        Group::Scripting => false,
        Group::Server => command.flags.contains(Flags::FAST),
        _ => true,
    }
}

/// Whether a command with this result has to wait, or to wait on.
#[inline(always)]
fn waits(command: &Command, result: &Result<Reply, Error>) -> bool {
    command.flags.contains(Flags::BLOCKING)
        && matches!(result, Ok(reply) if *reply == Reply::NOTHING)
}

/// Whether a script's reply is an error or contains one.
fn contains_error(reply: &Reply) -> bool {
    match reply {
        Reply::Error(_) => true,
        Reply::Array(items) => items.iter().any(contains_error),
        _ => false,
    }
}

/// The error for an unknown command: its name and as many arguments as fit in 128 bytes, as in
/// Redis.
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
    Error::UnknownCommand([name, args].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn refused_exec_ends_the_transaction() {
        let aborted = "!EXECABORT Transaction discarded because of: \
                       wrong number of arguments for 'exec' command";
        check(&format!(
            "EXEC x => {aborted}; MULTI; SET k v; EXEC x => {aborted}; EXEC => !ERR ..."
        ));
        check(&format!("WATCH k; EXEC x => {aborted}; b> SET k v; MULTI; GET k; EXEC => [\"v\"]"));
    }

    #[test]
    fn refused_request_breaks_the_transaction() {
        let aborted = "!EXECABORT Transaction discarded because of previous errors.";
        for refused in ["FOO", "GET", "CLIENT FOO", "SHUTDOWN", "DEBUG SLEEP 0"] {
            check(&format!("MULTI; {refused} => !...; EXEC => {aborted}"));
        }
        for failed in ["MULTI", "WATCH k"] {
            check(&format!("MULTI; {failed} => !...; EXEC => []"));
        }
    }

    #[test]
    fn subscribed_resp2_client_may_run_few_commands() {
        let refused = |name: &str| {
            format!(
                "!ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                 QUIT / RESET are allowed in this context"
            )
        };
        for (request, name) in [("GET k", "get"), ("CLIENT ID", "client|id"), ("MULTI", "multi")] {
            check(&format!("SUBSCRIBE c; {request} => {}", refused(name)));
        }
        check("SUBSCRIBE c; FOO => !ERR unknown command ...; GET => !ERR wrong number ...");
        check("SUBSCRIBE c; UNSUBSCRIBE c; GET k => nil; HELLO 3; SUBSCRIBE c; GET k => nil");
    }

    #[test]
    fn unknown_command_error_shows_at_most_128_bytes() {
        check("FOO a b => !ERR unknown command 'FOO', with args beginning with: 'a' 'b' ...");
        let long = "x".repeat(200);
        let shown = "x".repeat(128);
        check(&format!("{long} a => !ERR unknown command '{shown}', with args ...: 'a' ..."));
        check(&format!("FOO {long} b => !ERR unknown command 'FOO', ...: '{shown}' ..."));
        check(&format!("CLIENT {long} => !ERR unknown subcommand '{shown}'. Try CLIENT HELP."));
    }
}
