//! The gates a request passes, in order, and what happens to it then.
//!
//! The order is Redis's: it decides which of several errors a client is told.

use lockwheel_resp::{Protocol, Reply};

use crate::command::{Command, Entry, Flags, Group};
use crate::context::{Caller, Context, is};
use crate::error::Error;
use crate::journal::Done;
use crate::session::{ClientId, Session};
use crate::settings::Permission;
use crate::time::Time;
use crate::transaction::Queued;
use crate::{Engine, slots};

/// What to do with a request that passed the gates.
enum Passage {
    /// Run this command, in the client's database.
    Run(&'static Entry, usize),
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

/// Which gates a script's commands may find closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// To commands with one of these flags.
    closed: Flags,
    /// To keys of another slot.
    by_slot: bool,
}

impl Gates {
    fn are_open(self, flags: Flags) -> bool {
        !flags.intersects(self.closed) && !self.by_slot
    }
}

impl Context<'_> {
    /// Runs one command for the script whose context this is.
    pub(super) fn call_for_script(&mut self, gates: Gates, argv: &[&[u8]]) -> Reply {
        let found = self.engine.named(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => self.call_known_for_script(gates, entry, argv),
            None => self.call_odd_for_script(found, argv),
        }
    }

    /// As [`Context::call_for_script`], for a command that is no container and takes so many
    /// arguments.
    #[inline(always)]
    pub(super) fn call_known_for_script(
        &mut self,
        gates: Gates,
        entry: &'static Entry,
        argv: &[&[u8]],
    ) -> Reply {
        if !gates.are_open(entry.command.flags) {
            return self.call_odd_for_script(Some(entry), argv);
        }
        self.run_for_script(entry, argv)
    }

    /// As [`Context::call_for_script`], past the gates that are not open for certain.
    #[cold]
    fn call_odd_for_script(&mut self, found: Option<&'static Entry>, argv: &[&[u8]]) -> Reply {
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
        // No command waits in a script, and none there runs scripts.
        let result = (entry.command.run)(self, argv);
        let engine = &mut *self.engine;
        if engine.tracked.clients() > 0 {
            engine.remember_reads(self.client, entry.command, argv);
        }
        if let Ok(reply) = &result {
            engine.count_call(entry.at, false);
            if reply.is_error() {
                engine.remember_error(reply);
            }
        }
        if engine.journal.is_some() {
            let Context { client, caller, database, time, command, name, .. } = *self;
            let done = Done { client, caller, command, name, database, time };
            engine.note(done, argv, &result);
        }
        // The last that is done with it, so that it is moved once.
        result.unwrap_or_else(|error| self.engine.failed_for_script(entry.at, error))
    }

    /// Runs the command whose context this is, which has passed its gates.
    pub(super) fn call(&mut self, entry: &'static Entry, argv: &[&[u8]]) -> Reply {
        let Context { client, caller, database, time, .. } = *self;
        let result = (entry.command.run)(self, argv);
        let (engine, command) = (&mut *self.engine, entry.command);
        if engine.tracked.clients() > 0 {
            engine.remember_reads(client, command, argv);
        }
        match &result {
            // It counts when its wait is over.
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
            let done = Done { client, caller, command, name: &entry.full_name, database, time };
            engine.note(done, argv, &result);
        }
        // The last that is done with it, so that it is moved once.
        result.unwrap_or_else(|error| engine.failed(entry.at, error))
    }
}

impl Engine {
    /// Passes a client's request through the gates and runs it.
    pub(super) fn dispatch(&mut self, client: ClientId, argv: &[&[u8]], time: Time) -> Outcome {
        let found = self.find_command(argv);
        match found.and_then(|entry| self.pass(client, entry, argv, time)) {
            Ok(Passage::Run(entry, database)) => {
                let mut context = self.context(client, Caller::Client, entry, database, time);
                Outcome::Reply(context.call(entry, argv))
            }
            Ok(Passage::Queued) => Outcome::Reply(Reply::status("QUEUED")),
            Ok(Passage::Paused) => Outcome::Again,
            Err(error) => {
                let is_exec = argv.first().is_some_and(|name| is(name, "exec"));
                let reply = Reply::from(self.spoil_transaction(client, error, is_exec));
                self.count_error(&reply);
                Outcome::Reply(reply)
            }
        }
    }

    /// A request was refused: the client's transaction will not be run, and if that request was to
    /// run it, there is none any more. Returns what the client is told.
    pub(super) fn spoil_transaction(
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

    /// The gates of a script's commands, which are the same while it runs.
    pub(super) fn gates_for_script(&self, read_only: bool) -> Gates {
        let mut closed = Flags::NOSCRIPT;
        closed.set(Flags::WRITE | Flags::MAY_REPLICATE, read_only);
        closed.set(Flags::DENYOOM, self.settings.maxmemory_bytes > 0);
        Gates { closed, by_slot: self.settings.cluster_enabled }
    }

    #[cold]
    fn refuse_script(&mut self, error: Error) -> Reply {
        let reply = Reply::from(error);
        self.count_error(&reply);
        self.remember_error(&reply);
        reply
    }

    #[cold]
    fn failed_for_script(&mut self, at: usize, error: Error) -> Reply {
        let reply = self.failed(at, error);
        self.remember_error(&reply);
        reply
    }

    /// An error that a script has been answered with is not counted again if it hands it on.
    #[cold]
    fn remember_error(&mut self, reply: &Reply) {
        if let (Reply::Error(line), Some(script)) = (reply, self.script.as_mut()) {
            script.counted_error = Some(line[..].into());
        }
    }

    /// The context of a command that is to be run.
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

    /// Runs the command of a waiting client again, which answers nothing if it still has to wait.
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

    /// The command or subcommand that `argv` names, with a number of arguments it takes.
    fn find_command(&mut self, argv: &[&[u8]]) -> Result<&'static Entry, Error> {
        let found = self.named(argv);
        match found.filter(|entry| entry.command.takes(argv.len())) {
            Some(entry) => Ok(entry),
            None => self.find_subcommand(found, argv),
        }
    }

    /// The command that `argv` begins with.
    fn named(&self, argv: &[&[u8]]) -> Option<&'static Entry> {
        let commands = self.commands;
        Some(commands.entry(commands.find(argv.first()?)?))
    }

    /// The subcommand that `argv` names of the command that was found, or what is wrong.
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

    /// As [`Engine::find_command`], and past the gates of scripts.
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
        // A script that has begun to write may finish: half of it is worse than all of it.
        let may_grow = script.wrote || script.declared.allow_oom();
        if flags.contains(Flags::DENYOOM) && !may_grow && self.is_out_of_memory() {
            return Some(Error::OutOfMemory);
        }
        None
    }

    /// In a cluster a command names keys of one slot; and all commands of a script do, unless it
    /// has no `#!` line or says otherwise there.
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
    ) -> Result<Passage, Error> {
        let (command, name) = (entry.command, entry.full_name.as_str());
        if self.all_gates_are_open(command.flags)
            && let Some(state) = self.sessions.get_mut(client)
            && state.is_free()
        {
            state.last_command = name;
            return Ok(Passage::Run(entry, state.database));
        }
        self.pass_each_gate(client, entry, argv, time)
    }

    /// As [`Engine::pass`], for a request that some gate may stop.
    #[inline(never)]
    fn pass_each_gate(
        &mut self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
        time: Time,
    ) -> Result<Passage, Error> {
        let (command, name) = (entry.command, entry.full_name.as_str());
        let flags = self.flags_of_request(command, argv);
        if let Some(error) = self.refusal(client, command, flags, name, argv) {
            self.command_stats[entry.at].rejected += 1;
            return Err(error);
        }
        if self.must_wait_for_unpause(client, command, flags, time) {
            return Ok(Passage::Paused);
        }
        let Some(state) = self.sessions.get_mut(client) else { return Ok(Passage::Paused) };
        state.last_command = name;
        if state.transaction.is_none() || ends_transaction(name) {
            return Ok(Passage::Run(entry, state.database));
        }
        self.queue(client, entry.at, argv);
        Ok(Passage::Queued)
    }

    /// Whether no gate asks for more than that the client [is free](Client::is_free): so it is for
    /// almost every request.
    fn all_gates_are_open(&self, flags: Flags) -> bool {
        !flags.intersects(Flags::PROTECTED | Flags::FOR_TESTS)
            && self.settings.maxmemory_bytes == 0
            && self.pause.is_none()
            && !self.busy
            && !self.settings.cluster_enabled
    }

    /// What a request may do: for a script that says so itself, what it says. Only asked where it
    /// matters, since a script has to be compiled to know.
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

    /// The first gate that is closed to this client, as its error.
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

    /// The slot of what a request names: for `EXEC`, of what all the queued commands name.
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

    /// Whether a command may make data grow: all that is queued may.
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

/// Whether a permission is for this client. The program that the server lives in may do anything.
fn admits(permission: Permission, client: &Session) -> bool {
    match permission {
        Permission::Yes => true,
        Permission::Local => client.origin.local,
        Permission::No => client.origin.in_process,
    }
}

const TESTS_NOT_ALLOWED: &str = "ERR LOCKWHEEL command not allowed. It is for servers that are \
    started for tests, with the enable-test-commands option set to \"yes\", or to \"local\" for \
    local connections.";

const DEBUG_NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option \
    is set to \"local\", you can run it from a local connection, otherwise you need to set this \
    option in the configuration file, and then restart the server.";

/// Whether a script has failed, wholly or in part.
fn contains_error(reply: &Reply) -> bool {
    match reply {
        Reply::Error(_) => true,
        Reply::Array(items) => items.iter().any(contains_error),
        _ => false,
    }
}

/// Commands that are run between `MULTI` and `EXEC` rather than queued.
fn ends_transaction(name: &str) -> bool {
    matches!(name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Commands a subscribed RESP2 client may send.
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
    Error::UnknownCommand([name, args].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn a_refused_exec_ends_its_transaction() {
        let aborted = "!EXECABORT Transaction discarded because of: \
                       wrong number of arguments for 'exec' command";
        check(&format!(
            "EXEC x => {aborted}; MULTI; SET k v; EXEC x => {aborted}; EXEC => !ERR ..."
        ));
        check(&format!("WATCH k; EXEC x => {aborted}; b> SET k v; MULTI; GET k; EXEC => [\"v\"]"));
    }

    #[test]
    fn a_refused_request_breaks_its_transaction() {
        let aborted = "!EXECABORT Transaction discarded because of previous errors.";
        for refused in ["FOO", "GET", "CLIENT FOO", "SHUTDOWN", "DEBUG SLEEP 0"] {
            check(&format!("MULTI; {refused} => !...; EXEC => {aborted}"));
        }
        for answered in ["MULTI", "WATCH k"] {
            check(&format!("MULTI; {answered} => !...; EXEC => []"));
        }
    }

    #[test]
    fn a_listener_of_resp2_may_do_little() {
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
    fn what_is_unknown_is_shown_as_far_as_it_goes() {
        check("FOO a b => !ERR unknown command 'FOO', with args beginning with: 'a' 'b' ...");
        let long = "x".repeat(200);
        let shown = "x".repeat(128);
        check(&format!("{long} a => !ERR unknown command '{shown}', with args ...: 'a' ..."));
        check(&format!("FOO {long} b => !ERR unknown command 'FOO', ...: '{shown}' ..."));
        check(&format!("CLIENT {long} => !ERR unknown subcommand '{shown}'. Try CLIENT HELP."));
    }
}
