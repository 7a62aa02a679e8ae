//! A running server process: its address, processor time and memory. Dropping it ends the process.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::redis_server::free_port;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rustls::ClientConfig;
use rustls::version::TLS13;

use crate::measure::log_directory::LogDirectory;
use crate::measure::shutdown;

/// Attempts to start a server: another process may bind the free port first.
const PORT_ATTEMPTS: usize = 10;
/// The longest time to wait for a server to start, or to end.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two connection attempts: a start takes from one to thirty milliseconds.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// A server that has not started after this time loads a log.
const LOADING_MIN: Duration = Duration::from_millis(100);
/// The pause between two connection attempts while a log is loaded.
const LOADING_INTERVAL: Duration = Duration::from_millis(1);
/// The longest time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Running {
    child: Child,
    /// The directory of its log, if it has one, removed when it ends unless it is shared.
    _directory: Option<Rc<LogDirectory>>,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// Its port for TLS and how to connect there, if its clients use that.
    pub(crate) tls: Option<(SocketAddr, Arc<ClientConfig>)>,
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
        directory: Option<&Rc<LogDirectory>>,
    ) -> Outcome<Running> {
        let mut outcome = Err("no port is free".into());
        for _ in 0..PORT_ATTEMPTS {
            outcome = Running::start_on(free_port(), words, arguments, core, directory);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Starts a server like [`Running::start`], with a port for TLS too, which clients use that are
    /// measured. They have no certificate.
    pub(crate) fn start_with_tls(
        words: &[String],
        arguments: &[&str],
        core: Option<usize>,
        certificates: &Certificates,
    ) -> Outcome<Running> {
        let port = free_port();
        // Its port without TLS follows.
        let mut words = [words, &certificates.options(port)].concat();
        words.extend(["--tls-auth-clients", "no"].map(str::to_owned));
        let mut running = Running::start(&words, arguments, core, None)?;
        let client = certificates.client_config(None, &[&TLS13]);
        running.tls = Some((SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Arc::new(client)));
        Ok(running)
    }

    fn start_on(
        port: u16,
        words: &[String],
        rest: &[&str],
        core: Option<usize>,
        directory: Option<&Rc<LogDirectory>>,
    ) -> Outcome<Running> {
        let mut command = match directory {
            Some(directory) => command(&directory.delayed(words)),
            None => command(words),
        };
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        match directory {
            Some(directory) => command
                .args(["--appendonly", "yes", "--appendfsync", "always"])
                .arg("--dir")
                .arg(directory.server_path()),
            None => command.args(["--appendonly", "no"]),
        };
        command.args(rest);
        Running::spawn(command, port, core, directory, Running::answers)
    }

    /// Starts a process that listens on this port, and waits until it answers.
    pub(crate) fn spawn(
        mut command: Command,
        port: u16,
        core: Option<usize>,
        directory: Option<&Rc<LogDirectory>>,
        answers: impl Fn(&Running) -> bool,
    ) -> Outcome<Running> {
        let began = Instant::now();
        let child = on_core(core, || shutdown::spawn(&mut command))?;
        let program = command.get_program().to_string_lossy();
        let child = child.map_err(|error| format!("{program}: {error}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let _directory = directory.map(Rc::clone);
        let mut running = Running { child, _directory, address, tls: None, start: Duration::ZERO };
        while !answers(&running) {
            if let Some(status) = running.child.try_wait()? {
                return Err(format!("{command:?} ended at once: {status}").into());
            }
            let elapsed = began.elapsed();
            if elapsed > START_TIMEOUT {
                return Err(format!("{command:?} does not answer").into());
            }
            // A server that loads a log is not delayed by many attempts.
            let is_loading = elapsed > LOADING_MIN;
            std::thread::sleep(if is_loading { LOADING_INTERVAL } else { POLL_INTERVAL });
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

    /// Ends it as an administrator does, with `SIGTERM`, and waits for its end.
    pub(crate) fn stop(mut self) -> Outcome<()> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), Signal::SIGTERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > START_TIMEOUT {
                return Err("the server does not end".into());
            }
            std::thread::sleep(LOADING_INTERVAL);
        }
        Ok(())
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

/// The command of a server, without variables that are its settings.
pub(crate) fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.get(1..).unwrap_or_default());
    let is_setting = |name: &str| name.starts_with("LOCKWHEEL_") || name.starts_with("ETCD_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir(std::env::temp_dir());
    command
}
