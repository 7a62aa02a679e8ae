//! Scripts as the engine sees them: the world a running script may touch, and when it must end.

use bytes::Bytes;
use leasehold_resp::{Protocol, Reply};
use leasehold_scripting::{Host, Interrupt, LogLevel};

use crate::engine::Engine;
use crate::engine::client::ClientId;
use crate::engine::time::Time;

/// The script that is running.
#[derive(Debug)]
pub struct Running {
    /// For whom.
    pub client: ClientId,
    /// The database its calls work on.
    pub database: usize,
    /// The protocol its calls are answered in.
    pub protocol: Protocol,
    /// The present, which stands still while it runs.
    pub time: Time,
    /// It may not write.
    pub read_only: bool,
    /// It may write when memory is full.
    pub allow_oom: bool,
    /// It has written, so it can no longer be killed.
    pub wrote: bool,
    /// `SCRIPT KILL` has been called.
    pub killed: bool,
    /// The latest error one of its calls was answered with, which has been counted.
    pub counted_error: Option<Bytes>,
}

/// Looks after the world outside while a script runs for long: it knows a clock and can reach the
/// other clients' sockets, which the engine cannot.
pub trait Watchdog: Send {
    /// Called every few thousand Lua instructions. May call [`Engine::set_busy`], and then
    /// [`Engine::run`] for other clients.
    fn poll(&mut self, engine: &mut Engine);
}

impl Engine {
    /// Runs a cached script for a client. The caller has checked that no script is running.
    pub fn run_script(
        &mut self,
        running: Running,
        sha: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Reply {
        let Some(mut interpreter) = self.interpreter.take() else {
            return Reply::error("ERR a script is running already");
        };
        self.scripts_started += 1;
        self.script = Some(running);
        let reply = interpreter.run(sha, keys, args, &mut World { engine: self });
        let counted_error = self.script.take().and_then(|script| script.counted_error);
        self.busy = false;
        self.interpreter = Some(interpreter);
        self.count_script_errors(&reply, counted_error.as_deref());
        reply
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

    /// Ends the running script, whatever it has done: for when the server ends.
    pub fn kill_script(&mut self) {
        if let Some(script) = self.script.as_mut() {
            script.killed = true;
        }
    }
}

/// What a script sees of the engine.
struct World<'a> {
    engine: &'a mut Engine,
}

impl Host for World<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        self.engine.dispatch_from_script(argv)
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        if let Some(script) = self.engine.script.as_mut() {
            script.protocol = protocol;
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.engine.log.push((level, String::from_utf8_lossy(message).into_owned()));
    }

    fn interrupt(&mut self) -> Interrupt {
        if let Some(mut watchdog) = self.engine.watchdog.take() {
            watchdog.poll(self.engine);
            self.engine.watchdog = Some(watchdog);
        }
        match &self.engine.script {
            Some(script) if script.killed => Interrupt::Kill,
            _ => Interrupt::Continue,
        }
    }
}
