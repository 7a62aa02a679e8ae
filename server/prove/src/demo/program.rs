//! A process with its log, in a temporary folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::faults::guard::Guard;

/// Permissions of a folder.
const MODE: u32 = 0o700;

/// Lines at the end of a log that an error shows.
const LOG_LINES: usize = 5;

/// Ends the programs in a folder, and removes it.
const CLEAN_UP: &str =
    r#"for file in "$1"/*.pid; do kill -KILL "$(cat "$file")"; done; rm -rf "$1""#;

/// A temporary folder with the logs of programs. It is removed when this is dropped. If this
/// process ends without that, a shell ends the programs and removes the folder.
pub struct Folder {
    path: PathBuf,
    is_kept: AtomicBool,
    _guard: Guard,
}

impl Folder {
    /// Creates an empty folder that only this user can open.
    ///
    /// # Errors
    /// If the system does not permit it.
    pub fn new() -> Result<Folder, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("lockwheel-prove-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(MODE).create(&path) {
                Ok(()) => break path,
                // Kept by an earlier process with this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        };
        match Guard::start(CLEAN_UP, &[path.as_os_str()]) {
            Ok(guard) => Ok(Folder { path, is_kept: AtomicBool::new(false), _guard: guard }),
            Err(reason) => {
                let _ = fs::remove_dir_all(&path);
                Err(reason)
            }
        }
    }

    /// The path of an entry of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Keeps the folder when this is dropped. Returns its path.
    pub fn keep(&self) -> &Path {
        self.is_kept.store(true, Ordering::Relaxed);
        &self.path
    }

    /// Creates a folder in it. Returns its path.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn folder(&self, name: &str) -> Result<String, String> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A process, which is killed when this is dropped.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a process, whose output is added to a file. A file beside it, with the ending `pid`,
    /// has its number while it runs.
    ///
    /// The process has a process group of its own, so that Ctrl-C ends this program only.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Program, String> {
        let output = OpenOptions::new().create(true).append(true).open(log);
        let outputs = output.and_then(|output| Ok((output.try_clone()?, output)));
        let (output, errors) = outputs.map_err(|error| format!("{}: {error}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let name = command.get_program().to_string_lossy().into_owned();
        let child =
            command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let program = Program { child, log: log.to_owned() };
        let noted = fs::write(program.number_file(), program.child.id().to_string());
        noted.map_err(|error| format!("{}: {error}", program.number_file().display()))?;
        Ok(program)
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and waits for its end.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn kill(&mut self) -> Result<(), String> {
        self.check_alive()?;
        self.end().map_err(|error| format!("process {} cannot be killed: {error}", self.id()))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the process has ended before.
    pub fn signal(&mut self, signal: Signal) -> Result<(), String> {
        self.check_alive()?;
        let process = i32::try_from(self.id()).map_err(|error| error.to_string())?;
        kill(Pid::from_raw(process), signal)
            .map_err(|error| format!("{signal} to process {process}: {error}"))
    }

    /// Checks that the process has not ended by itself.
    ///
    /// # Errors
    /// If it has, with the end of its log.
    pub fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let _ = fs::remove_file(self.number_file());
                let lines = self.last_lines();
                Err(format!("process {} has ended, {status}:\n{lines}", self.id()))
            }
            Err(error) => Err(format!("process {}: {error}", self.id())),
        }
    }

    /// The last lines of its log.
    pub fn last_lines(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn end(&mut self) -> io::Result<()> {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        let _ = fs::remove_file(self.number_file());
        ended.map(|_| ())
    }

    fn number_file(&self) -> PathBuf {
        self.log.with_file_name(format!("{}.pid", self.id()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Folder;

    #[test]
    fn folder_is_removed_unless_it_is_kept() {
        let (removed, kept) = (Folder::new().expect("a folder"), Folder::new().expect("a folder"));
        let paths = [removed.path("data"), kept.keep().join("data")];
        for folder in [removed, kept] {
            folder.folder("data").expect("a folder");
        }
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true]);
        let _ = fs::remove_dir_all(paths[1].parent().expect("the folder"));
    }
}
