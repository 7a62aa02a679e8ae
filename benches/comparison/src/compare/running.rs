//! A running server process: its address, processor time and memory. Dropping it ends the process.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockwheel_compat::address::Endpoint;
use lockwheel_compat::wire::Wire;
use lockwheel_tests::redis_server::free_port;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::{Outcome, shutdown};

/// Attempts to start a server: another process may bind the free port first.
const PORT_ATTEMPTS: usize = 10;
/// The longest time to wait for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two connection attempts: a start takes from one to thirty milliseconds.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// The longest time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates an empty directory for the log of a server: its path, and its path for the server, which
/// may run in another root directory.
fn log_directory(words: &[String], port: u16) -> Outcome<(PathBuf, PathBuf)> {
    let name = format!("lockwheel-compare-{}-{port}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let directory = match words {
        [program, root, ..] if program == "chroot" => {
            PathBuf::from(root).join(path.strip_prefix("/").unwrap_or(&path))
        }
        _ => path.clone(),
    };
    // Of an earlier server on this port.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory)?;
    Ok((directory, path))
}

/// A running server, empty after its start.
pub(crate) struct Running {
    child: Child,
    /// The directory of its log, if it has one, removed when it ends.
    directory: Option<PathBuf>,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// The time from before the start of the process until the reply to PING.
    pub(crate) start: Duration,
}

impl Running {
    /// Starts a server on a free port, bound to a processor if one is given.
    /// With a log, every change is flushed before the reply.
    pub(crate) fn start(
        words: &[String],
        arguments: &[&str],
        core: Option<usize>,
        has_log: bool,
    ) -> Outcome<Running> {
        let mut outcome = Err("no port is free".into());
        for _ in 0..PORT_ATTEMPTS {
            outcome = Running::start_on(free_port(), words, arguments, core, has_log);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn start_on(
        port: u16,
        words: &[String],
        rest: &[&str],
        core: Option<usize>,
        has_log: bool,
    ) -> Outcome<Running> {
        let mut command = command(words);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        let directory = has_log.then(|| log_directory(words, port)).transpose()?;
        match &directory {
            Some((_, path)) => command
                .args(["--appendonly", "yes", "--appendfsync", "always"])
                .arg("--dir")
                .arg(path),
            None => command.args(["--appendonly", "no"]),
        };
        command.args(rest);
        let began = Instant::now();
        let child = on_core(core, || shutdown::spawn(&mut command))?;
        let child = child.map_err(|error| format!("{}: {error}", words.join(" ")))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let directory = directory.map(|(directory, _)| directory);
        let mut running = Running { child, directory, address, start: Duration::ZERO };
        while !running.answers() {
            if let Some(status) = running.child.try_wait()? {
                return Err(format!("{command:?} ended at once: {status}").into());
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(format!("{command:?} does not answer").into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        running.start = began.elapsed();
        Ok(running)
    }

    fn answers(&self) -> bool {
        let answer = self.open().and_then(|mut wire| wire.call(&["PING"]));
        answer.is_ok_and(|reply| reply.text == b"PONG")
    }

    /// Opens a blocking connection, for requests that are not measured.
    pub(crate) fn open(&self) -> io::Result<Wire> {
        let endpoint = Endpoint::Tcp(self.address.ip().to_string(), self.address.port());
        Wire::open(&endpoint, REPLY_TIMEOUT)
    }

    /// Sends one command and returns the text of its reply. An error reply is an error.
    pub(crate) fn ask(&self, request: &[&str]) -> Outcome<String> {
        let reply = self.open()?.call(request)?;
        let text = String::from_utf8_lossy(&reply.text).into_owned();
        if reply.kind == b'-' { Err(format!("{request:?}: {text}").into()) } else { Ok(text) }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its processor time so far, in user space and in the kernel, of all threads including those
    /// that have ended.
    pub(crate) fn cpu(&self) -> Outcome<Duration> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        Ok(Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?))
    }

    /// Its resident memory.
    pub(crate) fn resident_bytes(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
        Ok(kib.parse::<u64>()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        shutdown::end(&mut self.child);
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Binds this thread, and threads that it starts from now on, to one processor.
pub(crate) fn bind_to(core: usize) -> Outcome<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    let set = sched_setaffinity(Pid::from_raw(0), &cores);
    set.map_err(|error| format!("nothing can run on processor {core}: {error}").into())
}

/// Every possible processor; the kernel ignores those that do not exist.
fn every_core() -> Outcome<CpuSet> {
    let mut cores = CpuSet::new();
    (0..CpuSet::count()).try_for_each(|core| cores.set(core))?;
    Ok(cores)
}

/// Calls a function on one processor, or on any, then restores the affinity. Children keep it.
fn on_core<R>(core: Option<usize>, work: impl FnOnce() -> R) -> Outcome<R> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    match core {
        Some(core) => bind_to(core)?,
        None => sched_setaffinity(this, &every_core()?)?,
    }
    let result = work();
    sched_setaffinity(this, &before)?;
    Ok(result)
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.get(1..).unwrap_or_default());
    // Variables with this prefix are settings of Lockwheel.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKWHEEL_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir(std::env::temp_dir());
    command
}
