//! Running scripts and functions: their access to the engine, and their interruption.

use crate::store::libraries::{Libraries, LibraryLoader};
use crate::store::lock_notes::MadeBy;
use crate::store::writer::Writer;
use lockwheel_resp::{Protocol, Reply};
pub use lockwheel_scripting::LogLevel;
use lockwheel_scripting::{CommandId, FoundScript, Host, Interrupt, Script, ShortReply};

use crate::Engine;
use crate::command::Caller;
use crate::error::Error;
use crate::run::context::Context;
use crate::run::gates::{Conditions, GateMask};
use crate::store::counter::increment;
use crate::timing::time::Millis;

/// The running script or function.
#[derive(Debug)]
pub struct Running {
    /// The declarations of its `#!` line.
    pub declared: Script,
    /// The protocol of the replies to its calls.
    pub protocol: Protocol,
    /// The time, which is constant while it runs.
    pub now: Millis,
    /// Whether it must not write.
    pub read_only: bool,
    /// The slot of the keys used so far, including those of its request.
    pub slot: Option<u16>,
    /// Whether it has written, so that it can no longer be killed.
    pub wrote: bool,
    /// Whether `SCRIPT KILL` or `FUNCTION KILL` was called.
    pub killed: bool,
    /// The call, if it is a function.
    pub function: Option<Box<FunctionCall>>,
    /// The latest error reply to one of its calls, which has already been counted.
    pub counted_error: Option<Box<[u8]>>,
}

impl Running {
    /// Whether it may use keys of several slots in a cluster.
    pub(crate) fn crosses_slots(&self) -> bool {
        !self.declared.has_shebang() || self.declared.allow_cross_slot_keys()
    }
}

/// A call of a function, as `FUNCTION STATS` shows it.
#[derive(Debug)]
pub struct FunctionCall {
    /// The name of the function.
    pub name: String,
    /// The request.
    pub argv: Vec<Box<[u8]>>,
    /// The numbers of libraries and functions.
    pub counts: (usize, usize),
}

/// Implemented by the caller of the engine, which has a clock and access to sockets.
pub trait ScriptMonitor: Send {
    /// Called every few thousand Lua instructions. May call [`Engine::set_busy`] and, after that,
    /// [`Engine::run`] for other clients.
    fn poll(&mut self, engine: &mut Engine);
}

impl<'e> Context<'e> {
    /// Runs a cached script for the client. The caller has checked that no script is running, and
    /// must not use this context afterwards: it becomes the script's.
    #[inline(always)]
    pub fn run_script(
        &mut self,
        running: Running,
        script: FoundScript,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Reply {
        let Some(mut interpreter) = self.engine.interpreter.take() else {
            return self.engine.busy_error().into();
        };
        interpreter.set_plans(self.engine.settings.script_plans);
        if self.engine.conditions.contains(Conditions::GROWTH_LIMIT) {
            self.engine.script_bytes_before = interpreter.memory_bytes();
            self.engine.begin_script_at_limit(self.database, keys.first().copied());
        }
        let mut host = self.begin_script(running);
        let reply = interpreter.run_found(script, keys, args, &mut host);
        self.engine.interpreter = Some(interpreter);
        self.engine.end_script(&reply);
        reply
    }

    /// As [`Context::run_script`], for a function.
    pub fn run_function(
        &mut self,
        running: Running,
        name: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Reply {
        let Some(mut functions) = self.engine.writer.take_libraries() else {
            return self.engine.busy_error().into();
        };
        if self.engine.conditions.contains(Conditions::GROWTH_LIMIT) {
            self.engine.begin_script_at_limit(self.database, keys.first().copied());
        }
        let mut host = self.begin_script(running);
        let reply = functions.run(name, keys, args, &mut host);
        self.engine.writer.return_libraries(functions);
        self.engine.end_script(&reply);
        reply
    }

    #[inline(always)]
    fn begin_script(&mut self, running: Running) -> ScriptHost<'_, 'e> {
        increment(&mut self.engine.scripts_started);
        let mask = self.engine.mask_for_script(self.client, running.read_only);
        self.engine.script = Some(running);
        self.engine.writer.set_made_by(MadeBy::Script);
        self.caller = Caller::Script;
        ScriptHost { context: self, mask }
    }
}

impl Engine {
    #[inline(always)]
    fn end_script(&mut self, reply: &Reply) {
        if matches!(reply, Reply::Error(_) | Reply::Array(_)) {
            let counted_error = self.script.take().and_then(|script| script.counted_error);
            self.count_script_errors(reply, counted_error.as_deref());
        }
        if let Some(Running { function: None, counted_error: None, .. }) = &self.script {
            // It owns nothing that must be freed; this saves the call of the destructor.
            std::mem::forget(self.script.take());
        }
        self.script = None;
        self.conditions.remove(Conditions::BUSY);
    }

    /// Changes the function libraries. Their code runs without access to the engine.
    pub(crate) fn change_functions<T>(
        &mut self,
        change: impl FnOnce(&mut Writer, &mut Libraries, &mut LibraryLoader) -> T,
    ) -> Result<T, Error> {
        let Some(mut libraries) = self.writer.take_libraries() else {
            return Err(self.busy_error());
        };
        let mut loader = LibraryLoader::default();
        let result = change(&mut self.writer, &mut libraries, &mut loader);
        self.writer.return_libraries(libraries);
        self.script_messages.append(&mut loader.log);
        Ok(result)
    }

    /// The error for other clients while a script or function runs.
    pub(crate) fn busy_error(&self) -> Error {
        match &self.script {
            Some(Running { function: Some(_), .. }) => Error::BusyFunction,
            _ => Error::Busy,
        }
    }

    /// Counts the errors in a script's reply, except for the one that was already counted as the
    /// reply to a call: raised again, it has the position in the script appended.
    fn count_script_errors(&mut self, reply: &Reply, counted: Option<&[u8]>) {
        match reply {
            Reply::Error(line) if counted.is_some_and(|counted| line.starts_with(counted)) => {}
            Reply::Error(_) => self.count_error(reply),
            Reply::Array(items) => {
                items.iter().for_each(|item| self.count_script_errors(item, counted));
            }
            _ => {}
        }
    }
}

impl Engine {
    /// The number of the running script. Numbers are not reused.
    pub fn running_script(&self) -> Option<u64> {
        self.script.as_ref().map(|_| self.scripts_started)
    }

    /// Removes all cached scripts.
    pub(crate) fn flush_scripts(&mut self) {
        if let Some(interpreter) = self.interpreter.as_mut() {
            interpreter.flush();
        }
    }

    /// Kills the running script even if it has written; for the end of the server.
    pub fn kill_script(&mut self) {
        if let Some(script) = self.script.as_mut() {
            script.killed = true;
        }
    }
}

/// The host of a running script.
struct ScriptHost<'a, 'e> {
    /// Context of the script, with the command and the name of the latest call.
    context: &'a mut Context<'e>,
    mask: GateMask,
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let mut place = Reply::Null;
        match self.context.call_for_script(self.mask, argv, &mut place) {
            ShortReply::Integer(number) => Reply::Integer(number),
            ShortReply::Null => Reply::Null,
            ShortReply::InPlace => place,
        }
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let commands = self.context.engine.commands;
        let at = commands.find(name)?;
        u32::try_from(at)
            .ok()
            .filter(|_| commands.entry(at).command.takes(arguments))
            .map(CommandId)
    }

    fn call_command(
        &mut self,
        command: CommandId,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        let entry = self.context.engine.commands.entry(command.0 as usize);
        self.context.call_known_for_script(self.mask, entry, argv, place)
    }

    fn is_permitted(&mut self, argv: &[&[u8]]) -> Option<bool> {
        let engine = &*self.context.engine;
        let entry = engine.commands.find_request(argv)?;
        Some(engine.check_permission(self.context.client, entry, argv).is_ok())
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        if let Some(script) = self.context.engine.script.as_mut() {
            script.protocol = protocol;
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.context
            .engine
            .script_messages
            .push((level, String::from_utf8_lossy(message).into_owned()));
    }

    fn clock_us(&self) -> u64 {
        let passed_ms = self.context.time.now.0.saturating_sub(self.context.engine.started_at.0);
        u64::try_from(passed_ms).unwrap_or(0).saturating_mul(1000)
    }

    fn interrupt(&mut self) -> Interrupt {
        if let Some(mut script_monitor) = self.context.engine.script_monitor.take() {
            script_monitor.poll(self.context.engine);
            self.context.engine.script_monitor = Some(script_monitor);
        }
        match &self.context.engine.script {
            Some(script) if script.killed => Interrupt::Kill,
            _ => Interrupt::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_scripting::Sha;

    use crate::settings::Settings;
    use crate::store::libraries::LibraryLoader;
    use crate::testing::Stage;

    /// The plan of the script is that of another text. The script fails, also in a transaction; the
    /// effects of the plan remain, Lua adds none, and the server continues to run.
    #[test]
    fn wrong_plan_fails_its_script_but_not_the_server() {
        const TEXT: &str = "redis.call('set', 'lock', 'lua', 'NX') return redis.call('no')";
        const PLANNED: &str = "redis.call('set', 'mark', 'plan') return redis.call('no')";
        let sha = Sha::of(TEXT.as_bytes());
        for (before, after) in [("", " => !ERR ..."), ("MULTI; ", " => QUEUED; EXEC => [!ERR ...]")]
        {
            let mut stage = Stage::new(Settings::default());
            stage.check(&format!("SET lock owner PX 60000; SCRIPT LOAD \"{TEXT}\""));
            let mut host = LibraryLoader::default();
            let interpreter = stage.engine.interpreter.as_mut().expect("no script is running");
            interpreter.replace_plan(&sha, PLANNED.as_bytes(), &mut host);
            stage.check(&format!("{before}EVALSHA {} 0{after}", sha.as_str()));
            stage.check(
                "GET mark => \"plan\"; GET lock => \"owner\"; PTTL lock => 60000; \
                 INFO lockwheel => ...scripts_disagreed:1...; \
                 INFO errorstats => ...errorstat_ERR:count=2...",
            );
            let [(_, line)] = &stage.engine.script_messages[..] else {
                panic!("{:?}", stage.engine.script_messages)
            };
            assert!(line.contains("disagree") && line.contains(sha.as_str()), "{line}");
            stage.check(&format!(
                "DEL mark; EVALSHA {} 0 => !ERR Unknown...; EXISTS mark => 0",
                sha.as_str()
            ));
            stage.check("INFO lockwheel => ...scripts_disagreed:1...");
        }
    }

    /// As before, for a plan that runs to its end: its reply and its effects remain, and Lua runs
    /// the script from then on.
    #[test]
    fn wrong_plan_that_finishes_is_used_once() {
        const TEXT: &str = "return redis.call('set', 'lock', 'lua', 'NX')";
        const PLANNED: &str = "redis.call('set', 'mark', 'plan') return 1";
        let sha = Sha::of(TEXT.as_bytes());
        for (before, after) in [("", " => 1"), ("MULTI; ", " => QUEUED; EXEC => [1]")] {
            let mut stage = Stage::new(Settings::default());
            stage.check(&format!("SET lock owner PX 60000; SCRIPT LOAD \"{TEXT}\""));
            let mut host = LibraryLoader::default();
            let interpreter = stage.engine.interpreter.as_mut().expect("no script is running");
            interpreter.replace_plan(&sha, PLANNED.as_bytes(), &mut host);
            stage.check(&format!("{before}EVALSHA {} 0{after}", sha.as_str()));
            stage.check(
                "GET mark => \"plan\"; GET lock => \"owner\"; PTTL lock => 60000; \
                 INFO lockwheel => ...scripts_disagreed:1...; \
                 INFO errorstats => \"# Errorstats\\r\\n\"",
            );
            assert_eq!(stage.engine.script_messages.len(), 1);
            stage.check(&format!("DEL mark; EVALSHA {} 0 => nil; EXISTS mark => 0", sha.as_str()));
        }
    }
}
