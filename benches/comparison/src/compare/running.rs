//! A server that runs: where it listens, what it has cost so far; it ends with this. It must not
//! know what is asked of it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockwheel_compat::address::Endpoint;
use lockwheel_compat::wire::Wire;
use lockwheel_tests::redis_server::free_port;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::{Outcome, ending};

/// A free port can be taken by somebody else before the server binds it; so often we try again.
const PORT_ATTEMPTS: usize = 10;
/// A server that does not answer by then never will.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait between two looks: a start takes from one to thirty milliseconds.
const GLANCE: Duration = Duration::from_micros(50);
/// A reply that takes longer is not coming.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, empty, its persistence off.
pub(crate) struct Running {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// From before it was started until it had answered a PING.
    pub(crate) start: Duration,
}

impl Running {
    /// Starts a server on a free port. It stays on the processor, if one is named.
    pub(crate) fn start(
        words: &[String],
        arguments: &[&str],
        core: Option<usize>,
    ) -> Outcome<Running> {
        let mut outcome = Err("no port is free".into());
        for _ in 0..PORT_ATTEMPTS {
            outcome = Running::start_on(free_port(), words, arguments, core);
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
    ) -> Outcome<Running> {
        let mut command = command(words);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]).args(rest);
        let began = Instant::now();
        let child = on_core(core, || ending::spawn(&mut command))?;
        let child = child.map_err(|error| format!("{}: {error}", words.join(" ")))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Running { child, address, start: Duration::ZERO };
        while !running.answers() {
            if let Some(status) = running.child.try_wait()? {
                return Err(format!("{command:?} ended at once: {status}").into());
            }
            if began.elapsed() > START_PATIENCE {
                return Err(format!("{command:?} does not answer").into());
            }
            std::thread::sleep(GLANCE);
        }
        running.start = began.elapsed();
        Ok(running)
    }

    fn answers(&self) -> bool {
        let answer = self.open().and_then(|mut wire| wire.call(&["PING"]));
        answer.is_ok_and(|reply| reply.text == b"PONG")
    }

    /// A blocking connection, for what is not measured.
    pub(crate) fn open(&self) -> io::Result<Wire> {
        let endpoint = Endpoint::Tcp(self.address.ip().to_string(), self.address.port());
        Wire::open(&endpoint, PATIENCE)
    }

    /// Sends one command, whose reply may not be an error, and returns the text of the reply.
    pub(crate) fn ask(&self, request: &[&str]) -> Outcome<String> {
        let reply = self.open()?.call(request)?;
        let text = String::from_utf8_lossy(&reply.text).into_owned();
        if reply.kind == b'-' { Err(format!("{request:?}: {text}").into()) } else { Ok(text) }
    }

    /// Its number among the processes.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has kept processors busy, in itself and in the system's calls: all its threads,
    /// those that have ended too.
    pub(crate) fn cpu(&self) -> Outcome<Duration> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        Ok(Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?))
    }

    /// Bytes of memory it has resident.
    pub(crate) fn resident_bytes(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
        Ok(kib.parse::<u64>()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        ending::end(&mut self.child);
    }
}

/// Keeps this thread, and those it starts from now on, on one processor.
pub(crate) fn stay_on(core: usize) -> Outcome<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    let set = sched_setaffinity(Pid::from_raw(0), &cores);
    set.map_err(|error| format!("nothing can run on processor {core}: {error}").into())
}

/// All there may be; the system leaves out those that there are not.
fn every_core() -> Outcome<CpuSet> {
    let mut cores = CpuSet::new();
    (0..CpuSet::count()).try_for_each(|core| cores.set(core))?;
    Ok(cores)
}

/// Does something on a processor, or on any, and goes back to where it was. A child stays there.
fn on_core<R>(core: Option<usize>, act: impl FnOnce() -> R) -> Outcome<R> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    match core {
        Some(core) => stay_on(core)?,
        None => sched_setaffinity(this, &every_core()?)?,
    }
    let result = act();
    sched_setaffinity(this, &before)?;
    Ok(result)
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.get(1..).unwrap_or_default());
    // Variables that begin so are settings of Lockwheel.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKWHEEL_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir(std::env::temp_dir());
    command
}
