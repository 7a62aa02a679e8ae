//! A process of a server, on a host.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    log: String,
}

impl Program {
    /// Starts a process, whose output is added to a file.
    pub(crate) fn start(mut command: Command, log: &str) -> Result<Program, String> {
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output.map_err(|error| format!("{log}: {error}"))?;
        command.stdin(Stdio::null()).stdout(Stdio::from(output));
        let child =
            command.spawn().map_err(|error| format!("a server cannot be started: {error}"))?;
        Ok(Program { child, log: log.to_owned() })
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.check_alive()?;
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map_err(|error| format!("a server cannot be killed: {error}")).map(|_| ())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        let process = i32::try_from(self.child.id()).map_err(|error| error.to_string())?;
        kill(Pid::from_raw(process), signal).map_err(|error| format!("{signal}: {error}"))
    }

    /// Returns an error if the process has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("a server has ended, {status}: {}", self.log)),
            Err(error) => Err(format!("a server: {error}")),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
