//! Runs the program as launchers do: with arguments, signals, an exit status, and a log on its
//! standard output.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::process::{TIMEOUT, end_of, output};
use crate::wire::Wire;

/// A temporary folder for one daemon, removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> Folder {
        Folder::within(Path::new("/"))
    }

    /// As [`Folder::new`], for a program that is run by `chroot` in `root`.
    pub fn within(root: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockwheel-test-{}-{number}", std::process::id());
        let place = std::env::temp_dir();
        let path = root.join(place.strip_prefix("/").unwrap_or(&place)).join(name);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// The path of an entry of the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Default for Folder {
    fn default() -> Folder {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The command that runs the program with these arguments in `folder`.
pub fn command<A: AsRef<str>>(folder: &Folder, arguments: &[A]) -> Command {
    let mut command = command_of(program(), folder);
    command.args(arguments.iter().map(AsRef::as_ref));
    command
}

/// The command that runs another program in `folder`, without the settings of the environment.
pub fn command_of(program: impl AsRef<OsStr>, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&folder.0);
    // Variables with this prefix are settings.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKWHEEL_")) {
        command.env_remove(name);
    }
    command.env_remove("REDISCLI_AUTH");
    command.stdin(Stdio::null());
    command
}

/// A command that runs the program with a disk of its own at `dir`, of `mib` MiB. `None` if the
/// system permits no user to mount one.
pub fn command_on_disk(dir: &str, mib: u32) -> Option<Command> {
    let mounted = |program: &Path| {
        let script = format!("mount -t tmpfs -o size={mib}m none \"$0\" && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, dir]);
        command.arg(program);
        command
    };
    let tried = mounted(Path::new("true")).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success()).then(|| mounted(program()))
}

/// Runs the program to its end.
pub fn run<A: AsRef<str>>(arguments: &[A]) -> Output {
    output(&mut command(&Folder::new(), arguments)).expect("the program runs")
}

/// A running daemon.
pub struct Daemon {
    child: Child,
    log: BufReader<ChildStdout>,
    /// The log read so far.
    pub log_text: String,
    /// Its working folder.
    pub folder: Folder,
}

impl Daemon {
    /// Starts a daemon. It may not be ready when this returns.
    pub fn start<A: AsRef<str>>(arguments: &[A]) -> Daemon {
        Daemon::start_in(Folder::new(), arguments, "")
    }

    /// As [`Daemon::start`], with a folder and a text to read from standard input.
    pub fn start_in<A: AsRef<str>>(folder: Folder, arguments: &[A], input: &str) -> Daemon {
        let command = command(&folder, arguments);
        Daemon::spawn(folder, command, input)
    }

    /// As [`Daemon::start_in`], with another command that runs the program.
    pub fn spawn(folder: Folder, mut command: Command, input: &str) -> Daemon {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let mut pipe = child.stdin.take().expect("its input is piped");
        // It may have ended already.
        let _ = pipe.write_all(input.as_bytes());
        let log = BufReader::new(child.stdout.take().expect("its output is piped"));
        Daemon { child, log, log_text: String::new(), folder }
    }

    /// Reads the log as far as a line that contains `text`, and returns what follows it there.
    pub fn wait_for(&mut self, text: &str) -> String {
        while let Some(line) = self.next_line() {
            if let Some(at) = line.find(text) {
                return line[at + text.len()..].trim().to_owned();
            }
        }
        panic!("{text:?} was not logged:\n{}", self.log_text);
    }

    /// The next line of the log; `None` at its end. Panics if none comes for long.
    fn next_line(&mut self) -> Option<String> {
        if self.log.buffer().is_empty() {
            let mut pipe = [PollFd::new(self.log.get_ref().as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(TIMEOUT).expect("it is short enough");
            let is_readable = poll(&mut pipe, timeout).expect("a pipe can be polled") > 0;
            assert!(is_readable, "timed out: a line or the end of the log:\n{}", self.log_text);
        }
        let mut line = String::new();
        let length = self.log.read_line(&mut line).ok()?;
        self.log_text.push_str(&line);
        (length > 0).then_some(line)
    }

    /// Waits until the daemon listens; returns its port.
    pub fn wait_for_port(&mut self) -> u16 {
        let port = self.wait_for("The server is now ready to accept connections on port ");
        port.parse().expect("a port")
    }

    /// Connects to a port of the daemon.
    pub fn connect(&self, port: u16) -> Wire {
        Wire::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), 2)
    }

    /// The process number.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the daemon has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Sends a signal: `INT`, `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Reads the log to its end and waits for the process. Returns the exit status.
    pub fn end(&mut self) -> ExitStatus {
        while self.next_line().is_some() {}
        self.end_without_reading()
    }

    /// As [`Daemon::end`], without reading the log.
    pub fn end_without_reading(&mut self) -> ExitStatus {
        end_of(&mut self.child, "its end")
    }

    /// Closes the reading end of the log.
    pub fn close_log(&mut self) {
        let nothing = Command::new("true").stdout(Stdio::piped()).spawn();
        let mut nothing = nothing.expect("a program without output");
        self.log = BufReader::new(nothing.stdout.take().expect("its output is piped"));
        let _ = nothing.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of another build of the program to run.
const PROGRAM_VARIABLE: &str = "LOCKWHEEL_TEST_PROGRAM";

/// The path of the program, which is built if needed.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os(PROGRAM_VARIABLE) {
        Some(path) => path.into(),
        None => build(&["--bin", "lockwheel"]).join("lockwheel"),
    })
}

/// The path of an example, which is built if needed.
pub fn example(name: &str) -> PathBuf {
    build(&["--example", name]).join("examples").join(name)
}

/// Builds a program in the profile of this program, since Cargo builds programs only for the tests
/// of their own package. Returns the folder of the profile; the tests are one level deeper.
///
/// The default members and the integration tests are selected, as by `cargo test`: with other
/// selections, dependencies would have other features, and most crates would be compiled again.
fn build(selection: &[&str]) -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let mut folders = this.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    let folder = folders.next().expect("the profile's folder");
    let target = folder.parent().expect("the target folder");
    let profile: &[&str] = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => &["--test", "it"],
        Some(profile) => &["--profile", profile],
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    forget_package(&mut command);
    let built = command
        .args(["build", "--quiet"])
        .args(selection)
        .args(profile)
        .arg("--target-dir")
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status();
    assert!(built.expect("cargo runs").success(), "{selection:?} cannot be built");
    folder.to_owned()
}

/// Removes the variables that Cargo sets for the tests of a package. Build scripts that watch them
/// would run again, and with them everything that depends on their crates would be compiled.
pub fn forget_package(command: &mut Command) {
    let of_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|it| name.starts_with(it))
    };
    for (name, _) in std::env::vars().filter(|(name, _)| of_package(name)) {
        command.env_remove(name);
    }
}
