//! Scripts as the engine sees them: the world a running script may touch, and when it must end.

use lockwheel_resp::{Protocol, Reply};
pub use lockwheel_scripting::LogLevel;
use lockwheel_scripting::{CommandId, Found, Functions, Host, Interrupt, Script};

use crate::Engine;
use crate::context::{Caller, Context};
use crate::dispatch::Gates;
use crate::error::Error;
use crate::limits;
use crate::session::ClientId;
use crate::time::Millis;

/// The script that is running.
#[derive(Debug)]
pub struct Running {
    /// What it has declared.
    pub declared: Script,
    /// The protocol its calls are answered in.
    pub protocol: Protocol,
    /// The present, which stands still while it runs.
    pub now: Millis,
    /// It may not write.
    pub read_only: bool,
    /// The slot of the keys it has named so far, its request's among them.
    pub slot: Option<u16>,
    /// It has written, so it can no longer be killed.
    pub wrote: bool,
    /// `SCRIPT KILL` or `FUNCTION KILL` has been called.
    pub killed: bool,
    /// What it is called, if it is a function.
    pub function: Option<Box<Call>>,
    /// The latest error one of its calls was answered with, which has been counted.
    pub counted_error: Option<Box<[u8]>>,
}

impl Running {
    /// It may name keys of several slots in a cluster.
    pub(super) fn crosses_slots(&self) -> bool {
        !self.declared.has_shebang() || self.declared.allow_cross_slot_keys()
    }
}

/// A call of a function, as `FUNCTION STATS` shows it while it runs.
#[derive(Debug)]
pub struct Call {
    /// The function.
    pub name: String,
    /// The request.
    pub argv: Vec<Box<[u8]>>,
    /// How many libraries and functions there are.
    pub counts: (usize, usize),
}

/// Looks after the world outside: it knows a clock and can reach the clients' sockets, which the
/// engine cannot.
pub trait ScriptMonitor: Send {
    /// Called every few thousand Lua instructions. May call [`Engine::set_busy`], and then
    /// [`Engine::run`] for other clients.
    fn poll(&mut self, engine: &mut Engine);

    /// Whether a client has hung up, though nobody has told the engine yet. Asked before something
    /// is given to a client that waits.
    fn has_hung_up(&self, client: ClientId) -> bool;
}

impl<'e> Context<'e> {
    /// Runs a cached script for the client. The caller has checked that no script is running, and
    /// has nothing more to do: from here on this context is the script's.
    #[inline(always)]
    pub fn run_script(
        &mut self,
        running: Running,
        script: Found,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Reply {
        let Some(mut interpreter) = self.engine.interpreter.take() else {
            return self.engine.busy_error().into();
        };
        interpreter.set_plans(self.engine.settings.script_plans);
        if self.engine.settings.maxmemory_bytes > 0 {
            self.engine.script_bytes_before = interpreter.memory_bytes();
        }
        let mut world = self.begin_script(running);
        let reply = interpreter.run_found(script, keys, args, &mut world);
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
        let Some(mut functions) = self.engine.functions.take() else {
            return self.engine.busy_error().into();
        };
        let mut world = self.begin_script(running);
        let reply = functions.run(name, keys, args, &mut world);
        self.engine.functions = Some(functions);
        self.engine.end_script(&reply);
        reply
    }

    #[inline(always)]
    fn begin_script(&mut self, running: Running) -> ScriptHost<'_, 'e> {
        self.engine.scripts_started += 1;
        let gates = self.engine.gates_for_script(running.read_only);
        self.engine.script = Some(running);
        self.caller = Caller::Script;
        ScriptHost { context: self, gates }
    }
}

impl Engine {
    #[inline(always)]
    fn end_script(&mut self, reply: &Reply) {
        if matches!(reply, Reply::Error(_) | Reply::Array(_)) {
            let counted_error = self.script.take().and_then(|script| script.counted_error);
            self.count_script_errors(reply, counted_error.as_deref());
        }
        self.script = None;
        self.busy = false;
    }

    /// Changes the libraries of functions. Their text is run, without a world.
    pub fn change_functions<T>(
        &mut self,
        change: impl FnOnce(&mut Functions, &mut Loader) -> T,
    ) -> Result<T, Error> {
        let Some(functions) = self.functions.as_mut() else { return Err(self.busy_error()) };
        let mut loader =
            Loader { questions_left: limits::FUNCTION_LOAD_QUESTIONS_MAX, log: Vec::new() };
        let result = change(functions, &mut loader);
        self.log.append(&mut loader.log);
        Ok(result)
    }

    /// What clients are told while a script or function runs.
    pub fn busy_error(&self) -> Error {
        match &self.script {
            Some(Running { function: Some(_), .. }) => Error::BusyFunction,
            _ => Error::Busy,
        }
    }

    /// Counts the errors in a script's reply, but for the one that a call of it has been counted
    /// for already: raised again, it has the place in the script appended.
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
    /// The number of the script that is running: each has its own.
    pub fn running_script(&self) -> Option<u64> {
        self.script.as_ref().map(|_| self.scripts_started)
    }

    /// Forgets all cached scripts.
    pub fn flush_scripts(&mut self) {
        if let Some(interpreter) = self.interpreter.as_mut() {
            interpreter.flush();
        }
    }

    /// Ends the running script, whatever it has done: for when the server ends.
    pub fn kill_script(&mut self) {
        if let Some(script) = self.script.as_mut() {
            script.killed = true;
        }
    }
}

/// What a library sees while it is loaded: nothing. It has so much time and no more.
#[derive(Debug)]
pub struct Loader {
    questions_left: u32,
    log: Vec<(LogLevel, String)>,
}

impl Host for Loader {
    fn call(&mut self, _: &[&[u8]]) -> Reply {
        Reply::error("ERR a library may not call commands while it is loaded")
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.log.push((level, String::from_utf8_lossy(message).into_owned()));
    }

    fn interrupt(&mut self) -> Interrupt {
        match self.questions_left.checked_sub(1) {
            Some(left) => {
                self.questions_left = left;
                Interrupt::Continue
            }
            None => Interrupt::Kill,
        }
    }
}

/// What a script sees of the engine.
struct ScriptHost<'a, 'e> {
    /// The command and its name are those of the latest call.
    context: &'a mut Context<'e>,
    gates: Gates,
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        self.context.call_for_script(self.gates, argv)
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let commands = self.context.engine.commands;
        let at = commands.find(name)?;
        u32::try_from(at)
            .ok()
            .filter(|_| commands.entry(at).command.takes(arguments))
            .map(CommandId)
    }

    fn call_command(&mut self, command: CommandId, argv: &[&[u8]]) -> Reply {
        let entry = self.context.engine.commands.entry(command.0 as usize);
        self.context.call_known_for_script(self.gates, entry, argv)
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        if let Some(script) = self.context.engine.script.as_mut() {
            script.protocol = protocol;
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.context.engine.log.push((level, String::from_utf8_lossy(message).into_owned()));
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

    use super::Loader;
    use crate::settings::Settings;
    use crate::testing::Stage;

    /// The plan of a script is that of another text. The script fails, in a transaction, too; what
    /// the plan has done stays, Lua adds nothing, and the server goes on.
    #[test]
    fn a_wrong_plan_ends_its_script_and_not_the_server() {
        const TEXT: &str = "redis.call('set', 'lock', 'lua', 'NX') return redis.call('no')";
        const PLANNED: &str = "redis.call('set', 'mark', 'plan') return redis.call('no')";
        let sha = Sha::of(TEXT.as_bytes());
        for (before, after) in [("", ""), ("MULTI; ", " => QUEUED; EXEC => [...]")] {
            let mut stage = Stage::new(Settings::default());
            stage.check(&format!("SET lock owner PX 60000; SCRIPT LOAD \"{TEXT}\""));
            let mut host = Loader { questions_left: 0, log: Vec::new() };
            let interpreter = stage.engine.interpreter.as_mut().expect("no script is running");
            interpreter.replace_plan(&sha, PLANNED.as_bytes(), &mut host);
            stage.check(&format!("{before}EVALSHA {} 0{after}", sha.as_str()));
            stage.check(
                "GET mark => \"plan\"; GET lock => \"owner\"; PTTL lock => 60000; \
                 INFO lockwheel => ...scripts_disagreed:1...; \
                 INFO errorstats => ...errorstat_ERR:count=2...",
            );
            let [(_, line)] = &stage.engine.log[..] else { panic!("{:?}", stage.engine.log) };
            assert!(line.contains("disagree") && line.contains(sha.as_str()), "{line}");
            stage.check(&format!(
                "DEL mark; EVALSHA {} 0 => !ERR Unknown...; EXISTS mark => 0",
                sha.as_str()
            ));
            stage.check("INFO lockwheel => ...scripts_disagreed:1...");
        }
    }
}
