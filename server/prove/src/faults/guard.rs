//! Undoes what was done if this program ends without undoing it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that waits for the end of this program, however it ends, and then runs a script. When
/// this is dropped, the shell ends without running it.
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts the shell. The arguments are `$1` and so on in the script.
    pub(crate) fn start(script: &str, arguments: &[&OsStr]) -> Result<Guard, String> {
        // Its input ends with this program. Signals to a whole group or service end this program
        // first.
        let script = format!("trap '' HUP INT TERM; read -r line; trap - HUP INT TERM; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = command.spawn().map_err(|error| format!("sh cannot be started: {error}"))?;
        Ok(Guard { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Its input is still open, so that it has not begun.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
