//! The gates that a request passes, in order, and how it is run then.
//!
//! The order is Redis's: it decides which of several errors the client gets.

use lockwheel_resp::{Protocol, Reply};

use crate::command::{Command, Entry, Flags, Group};
use crate::context::{Caller, Context, is};
use crate::error::Error;
use crate::instruments::journal::CompletedCommand;
use crate::sessions::transaction::Queued;
use crate::sessions::{ClientId, Session};
use crate::settings::Permission;
use crate::time::Time;
use crate::{Engine, slots};

/// The result of passing the gates.
enum Admission {
    /// Run this command in the client's database.
    Run(&'static Entry, usize),
    /// The command was queued in the client's transaction.
    Queued,
    /// Try again when the pause ends.
    Paused,
}

/// The result of a request sent by a client.
pub(super) enum DispatchResult {
    /// The reply.
    Reply(Reply),
    /// Run the request again when the client is resumed.
    Again,
}

/// The gates that commands of a script have to pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// Commands with one of these flags need a check.
    checked: Flags,
    /// Commands with keys need a check of their slots.
    by_slot: bool,
}

impl Gates {
    fn are_open(self, flags: Flags) -> bool {
        !flags.intersects(self.checked) && !self.by_slot
    }
}

impl Context<'_> {
    /// Runs one command for the script of this context.
    pub(super) fn call_for_script(&mut self, gates: Gates, argv: &[&[u8]]) -> Reply {
        let found = self.engine.command_of(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => self.call_known_for_script(gates, entry, argv),
            None => self.call_checked_for_script(found, argv),
        }
    }

    /// As [`Context::call_for_script`], for a command without subcommands; its number of arguments
    /// has been checked.
    #[inline(always)]
    pub(super) fn call_known_for_script(
        &mut self,
        gates: Gates,
        entry: &'static Entry,
        argv: &[&[u8]],
    ) -> Reply {
        if !gates.are_open(entry.command.flags) {
            return self.call_checked_for_script(Some(entry), argv);
        }
        self.run_for_script(entry, argv)
    }

    /// As [`Context::call_for_script`], for a command that needs checks.
    #[cold]
    fn call_checked_for_script(&mut self, found: Option<&'static Entry>, argv: &[&[u8]]) -> Reply {
        match self.engine.find_for_script(found, argv) {
            Ok(entry) => self.run_for_script(entry, argv),
            Err(error) => self.engine.refuse_script(error),
        }
    }

    #[inline(always)]
    fn run_for_script(&mut self, entry: &'static Entry, argv: &[&[u8]]) -> Reply {
        (self.command, self.name) = (entry.command, &entry.full_name);
        if entry.command.flags.contains(Flags::WRITE)
            && let Some(script) = self.engine.script.as_mut()
        {
            script.wrote = true;
        }
        // A command in a script never blocks and never runs a script.
        let result = (entry.command.run)(self, argv);
        let engine = &mut *self.engine;
        engine.observe_effects(Some((self.client, Caller::Script)));
        if engine.tracked.clients() > 0 {
            engine.remember_reads(self.client, entry.command, argv);
        }
        if let Ok(reply) = &result {
            engine.count_call(entry.at, false);
            if reply.is_error() {
                engine.remember_counted_error(reply);
            }
        }
        if engine.journal.is_some() {
            let Context { client, caller, database, time, command, name, .. } = *self;
            let done = CompletedCommand { client, caller, command, name, database, time };
            engine.note(done, argv, &result);
        }
        // The last use of the result, so that it is moved once.
        result.unwrap_or_else(|error| self.engine.failed_for_script(entry.at, error))
    }

    /// Runs the command of this context, which has passed its gates.
    pub(super) fn call(&mut self, entry: &'static Entry, argv: &[&[u8]]) -> Reply {
        let Context { client, caller, database, time, .. } = *self;
        let result = (entry.command.run)(self, argv);
        let (engine, command) = (&mut *self.engine, entry.command);
        engine.observe_effects(Some((client, caller)));
        if engine.tracked.clients() > 0 {
            engine.remember_reads(client, command, argv);
        }
        match &result {
            // Counted when the wait is over.
            Ok(reply) if command.flags.contains(Flags::BLOCKING) && *reply == Reply::NOTHING => {
                engine.set_waiting_command(client, entry.at);
            }
            Ok(reply) => {
                let failed = command.group == Group::Scripting && contains_error(reply);
                engine.count_call(entry.at, failed);
            }
            Err(_) => {}
        }
        if engine.journal.is_some() {
            let done = CompletedCommand {
                client,
                caller,
                command,
                name: &entry.full_name,
                database,
                time,
            };
            engine.note(done, argv, &result);
        }
        // The last use of the result, so that it is moved once.
        result.unwrap_or_else(|error| engine.failed(entry.at, error))
    }
}

impl Engine {
    /// Passes a client's request through the gates and runs it.
    pub(super) fn dispatch(
        &mut self,
        client: ClientId,
        argv: &[&[u8]],
        time: Time,
    ) -> DispatchResult {
        let found = self.find_command(argv);
        match found.and_then(|entry| self.pass(client, entry, argv, time)) {
            Ok(Admission::Run(entry, database)) => {
                let mut context = self.context(client, Caller::Client, entry, database, time);
                DispatchResult::Reply(context.call(entry, argv))
            }
            Ok(Admission::Queued) => DispatchResult::Reply(Reply::status("QUEUED")),
            Ok(Admission::Paused) => DispatchResult::Again,
            Err(error) => {
                let is_exec = argv.first().is_some_and(|name| is(name, "exec"));
                let reply = Reply::from(self.break_transaction(client, error, is_exec));
                self.count_error(&reply);
                DispatchResult::Reply(reply)
            }
        }
    }

    /// Marks the client's transaction as broken after a refused request; a refused `EXEC` ends it.
    /// Returns the error for the client.
    pub(super) fn break_transaction(
        &mut self,
        client: ClientId,
        error: Error,
        is_exec: bool,
    ) -> Error {
        let Some(state) = self.sessions.get_mut(client) else { return error };
        if !is_exec {
            if let Some(transaction) = state.transaction.as_mut() {
                transaction.broken = true;
            }
            return error;
        }
        self.take_transaction(client);
        self.unwatch(client);
        if error == Error::CrossSlot {
            return error;
        }
        let line = error.to_string();
        let reason = line.strip_prefix("ERR ").unwrap_or(&line);
        Error::text(format!("EXECABORT Transaction discarded because of: {reason}"))
    }

    /// The gates for commands of a script. They do not change while it runs.
    pub(super) fn gates_for_script(&self, read_only: bool) -> Gates {
        let mut checked = Flags::NOSCRIPT;
        checked.set(Flags::WRITE | Flags::MAY_REPLICATE, read_only);
        checked.set(Flags::DENYOOM, self.settings.maxmemory_bytes > 0);
        Gates { checked, by_slot: self.settings.cluster_enabled }
    }

    #[cold]
    fn refuse_script(&mut self, error: Error) -> Reply {
        let reply = Reply::from(error);
        self.count_error(&reply);
        self.remember_counted_error(&reply);
        reply
    }

    #[cold]
    fn failed_for_script(&mut self, at: usize, error: Error) -> Reply {
        let reply = self.failed(at, error);
        self.remember_counted_error(&reply);
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
    pub(super) fn context(
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
        let reply = Reply::from(error);
        self.count_error(&reply);
        reply
    }

    /// Runs the command of a blocked client again; returns `Reply::NOTHING` if it still has to
    /// wait.
    pub(super) fn run_again(
        &mut self,
        client: ClientId,
        at: usize,
        database: usize,
        argv: &[&[u8]],
        time: Time,
    ) -> Reply {
        let entry = self.commands.entry(at);
        let (command, flags) = (entry.command, entry.command.flags);
        if let Some(error) = self.refusal(client, command, flags, &entry.full_name, argv) {
            self.command_stats[at].rejected += 1;
            let reply = Reply::from(error);
            self.count_error(&reply);
            return reply;
        }
        self.context(client, Caller::Waiter, entry, database, time).call(entry, argv)
    }

    /// Finds the command or subcommand of `argv` and checks its number of arguments.
    fn find_command(&mut self, argv: &[&[u8]]) -> Result<&'static Entry, Error> {
        let found = self.command_of(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => Ok(entry),
            None => self.find_subcommand(found, argv),
        }
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

    /// As [`Engine::find_command`], with the gates of scripts.
    fn find_for_script(
        &mut self,
        found: Option<&'static Entry>,
        argv: &[&[u8]],
    ) -> Result<&'static Entry, Error> {
        let entry = match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => entry,
            None => self.find_subcommand(found, argv).map_err(|error| match error {
                Error::Arity(_) => {
                    Error::line("ERR Wrong number of args calling Redis command from script")
                }
                _ => Error::line("ERR Unknown Redis command called from script"),
            })?,
        };
        let refused = self.refusal_for_script(entry.command.flags);
        let refused = refused.or_else(|| self.slot_refusal_for_script(entry, argv).err());
        self.command_stats[entry.at].rejected += u64::from(refused.is_some());
        refused.map_or(Ok(entry), Err)
    }

    fn refusal_for_script(&self, flags: Flags) -> Option<Error> {
        let script = self.script.as_ref()?;
        if flags.contains(Flags::NOSCRIPT) {
            return Some(Error::line("ERR This Redis command is not allowed from script"));
        }
        if script.read_only && flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Some(Error::ReadOnlyScript);
        }
        // A script that has written may finish: half a script is worse than too much memory.
        let may_grow = script.wrote || script.declared.allow_oom();
        if flags.contains(Flags::DENYOOM) && !may_grow && self.is_out_of_memory() {
            return Some(Error::OutOfMemory);
        }
        None
    }

    /// In a cluster, the keys of a command must share one slot. So must the keys of all commands of
    /// a script, unless it has no `#!` line or declares `allow-cross-slot-keys`.
    fn slot_refusal_for_script(&mut self, entry: &Entry, argv: &[&[u8]]) -> Result<(), Error> {
        if !self.settings.cluster_enabled {
            return Ok(());
        }
        let slot = slots::slot_of_request(entry.command, argv).map_err(|_| {
            Error::text(format!(
                "ERR Command '{}' in script attempted to access keys that don't hash to the same \
                 slot",
                entry.full_name
            ))
        })?;
        let Some(script) = self.script.as_mut().filter(|script| !script.crosses_slots()) else {
            return Ok(());
        };
        script.slot = slots::join(script.slot, slot).map_err(|_| {
            Error::line("ERR Script attempted to access keys that do not hash to the same slot")
        })?;
        Ok(())
    }

    fn pass(
        &mut self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
        time: Time,
    ) -> Result<Admission, Error> {
        let (command, name) = (entry.command, entry.full_name.as_str());
        if self.all_gates_are_open(command.flags)
            && let Some(state) = self.sessions.get_mut(client)
            && state.is_free()
        {
            state.last_command = name;
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
        let (command, name) = (entry.command, entry.full_name.as_str());
        let flags = self.flags_of_request(command, argv);
        if let Some(error) = self.refusal(client, command, flags, name, argv) {
            self.command_stats[entry.at].rejected += 1;
            return Err(error);
        }
        if self.must_wait_for_unpause(client, command, flags, time) {
            return Ok(Admission::Paused);
        }
        let Some(state) = self.sessions.get_mut(client) else { return Ok(Admission::Paused) };
        state.last_command = name;
        if state.transaction.is_none() || ends_transaction(name) {
            return Ok(Admission::Run(entry, state.database));
        }
        self.queue(client, entry.at, argv);
        Ok(Admission::Queued)
    }

    /// Whether every gate is open to a client that [is free](Session::is_free). True for almost all
    /// requests.
    fn all_gates_are_open(&self, flags: Flags) -> bool {
        !flags.intersects(Flags::PROTECTED | Flags::FOR_TESTS)
            && self.settings.maxmemory_bytes == 0
            && self.pause.is_none()
            && !self.busy
            && !self.settings.cluster_enabled
    }

    /// The flags of a request: a script's own declaration replaces those of `EVAL` and the like.
    /// Looked up only if needed, since the script has to be compiled for it.
    fn flags_of_request(&mut self, command: &Command, argv: &[&[u8]]) -> Flags {
        let matters = self.pause.is_some() || self.settings.maxmemory_bytes > 0;
        if !matters || command.group != Group::Scripting {
            return command.flags;
        }
        let (interpreter, functions) = (self.interpreter.as_mut(), self.functions.as_ref());
        let script = match command.name {
            "eval" | "eval_ro" => interpreter.and_then(|interpreter| {
                let sha = interpreter.load_evaluated(argv[1]).ok()?;
                Some(interpreter.find(sha.as_bytes())?.script)
            }),
            "evalsha" | "evalsha_ro" => interpreter.and_then(|lua| Some(lua.find(argv[1])?.script)),
            "fcall" | "fcall_ro" => functions.and_then(|all| Some(all.get(argv[1])?.script)),
            _ => None,
        };
        let mut flags = command.flags;
        if let Some(script) = script.filter(|script| script.has_shebang()) {
            flags.set(Flags::MAY_REPLICATE, !script.no_writes());
            flags.set(Flags::DENYOOM, !script.allow_oom());
        }
        flags
    }

    /// The error of the first gate that refuses the request.
    fn refusal(
        &mut self,
        client: ClientId,
        command: &Command,
        flags: Flags,
        name: &str,
        argv: &[&[u8]],
    ) -> Option<Error> {
        let state = self.sessions.get(client)?;
        if flags.contains(Flags::PROTECTED) && !admits(self.settings.enable_debug_command, state) {
            return Some(Error::line(DEBUG_NOT_ALLOWED));
        }
        if flags.contains(Flags::FOR_TESTS) && !admits(self.settings.enable_test_commands, state) {
            return Some(Error::line(TESTS_NOT_ALLOWED));
        }
        if !state.authenticated && !flags.contains(Flags::NO_AUTH) {
            return Some(Error::NoAuth);
        }
        if state.transaction.is_some() && flags.contains(Flags::NO_MULTI) {
            return Some(Error::NotInTransaction);
        }
        if self.settings.cluster_enabled {
            let slot = self.slot_of_all(state, command, argv);
            let crosses = slot.is_err();
            self.sessions.get_mut(client)?.slot = slot.unwrap_or_default();
            if crosses {
                return Some(Error::CrossSlot);
            }
        }
        let state = self.sessions.get(client)?;
        if self.needs_memory(state, name, flags) && self.is_out_of_memory() {
            return Some(Error::OutOfMemory);
        }
        if state.protocol == Protocol::Resp2 && state.is_subscriber() && !is_for_subscribers(name) {
            return Some(Error::SubscribedContext(name.to_owned()));
        }
        if self.busy && !flags.contains(Flags::ALLOW_BUSY) {
            return Some(self.busy_error());
        }
        None
    }

    /// The slot of the keys of a request; for `EXEC`, of all queued commands.
    fn slot_of_all(
        &self,
        client: &Session,
        command: &Command,
        argv: &[&[u8]],
    ) -> Result<Option<u16>, Error> {
        let Some(transaction) = client.transaction.as_ref().filter(|_| command.name == "exec")
        else {
            return slots::slot_of_request(command, argv);
        };
        transaction.queue.iter().try_fold(None, |slot, queued| {
            let argv: Vec<&[u8]> = queued.argv.iter().map(|argument| &**argument).collect();
            let command = self.commands.entry(queued.command).command;
            slots::join(slot, slots::slot_of_request(command, &argv)?)
        })
    }

    /// Whether a command may use more memory. Every command that is queued may.
    fn needs_memory(&self, client: &Session, name: &str, flags: Flags) -> bool {
        flags.contains(Flags::DENYOOM)
            || client.transaction.is_some() && !ends_transaction(name)
            || name == "exec" && self.queues(client, Flags::DENYOOM)
    }

    /// Whether the client has queued a command with one of these flags.
    fn queues(&self, client: &Session, flags: Flags) -> bool {
        client.transaction.as_ref().is_some_and(|transaction| {
            let queued = |q: &Queued| self.commands.entry(q.command).command.flags;
            transaction.queue.iter().any(|q| queued(q).intersects(flags))
        })
    }

    pub(super) fn must_wait_for_unpause(
        &self,
        client: ClientId,
        command: &Command,
        flags: Flags,
        time: Time,
    ) -> bool {
        let Some(pause) = self.pause.filter(|pause| !time.reached(pause.until)) else {
            return false;
        };
        let writes = Flags::WRITE | Flags::MAY_REPLICATE;
        !pause.writes_only
            || flags.intersects(writes)
            || command.name == "exec"
                && self.sessions.get(client).is_some_and(|state| self.queues(state, writes))
    }
}

/// Whether a permission covers this client. The embedding program is always permitted.
fn admits(permission: Permission, client: &Session) -> bool {
    match permission {
        Permission::Yes => true,
        Permission::Local => client.origin.local,
        Permission::No => client.origin.in_process,
    }
}

const TESTS_NOT_ALLOWED: &str = "ERR LOCKWHEEL command not allowed. The server must be started \
    with the enable-test-commands option set to \"yes\", or to \"local\" for local connections.";

const DEBUG_NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option \
    is set to \"local\", you can run it from a local connection, otherwise you need to set this \
    option in the configuration file, and then restart the server.";

/// Whether a script's reply is an error or contains one.
fn contains_error(reply: &Reply) -> bool {
    match reply {
        Reply::Error(_) => true,
        Reply::Array(items) => items.iter().any(contains_error),
        _ => false,
    }
}

/// Commands that run at once between `MULTI` and `EXEC`.
fn ends_transaction(name: &str) -> bool {
    matches!(name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Commands that a RESP2 client with subscriptions may send.
fn is_for_subscribers(name: &str) -> bool {
    matches!(
        name,
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
