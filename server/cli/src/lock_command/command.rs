//! The command that runs while the lock is held. It has a process group of its own; but not in the
//! foreground of a terminal, where it stays in the job of the shell.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::task::Poll;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid, getppid};
use tokio::process::Child;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::time::sleep;

use super::keeper::{Keeper, Report};
use super::lock::{Grant, Lock, Problem, now};
use super::messages::{self, Messages};
use super::{LOST, OnLost, UNAVAILABLE, look_interval};
use crate::redis_cli::server_options::PASSWORD_VARIABLE;
use crate::run_command::{
    NOT_EXECUTABLE, NOT_FOUND, SIGNAL_STATUS_BASE, UNUSABLE, code, is_in_terminal_foreground,
};

/// The variable with the fencing token of a native lock.
const TOKEN: &str = "LOCKWHEEL_FENCING_TOKEN";

/// The signals that are passed on.
const PASSED_ON: [(SignalKind, Signal); 4] = [
    (SignalKind::interrupt(), Signal::SIGINT),
    (SignalKind::terminate(), Signal::SIGTERM),
    (SignalKind::hangup(), Signal::SIGHUP),
    (SignalKind::quit(), Signal::SIGQUIT),
];

/// Replaces this process by the command, which the system kills when the process `holder` ends.
/// Returns the exit status if that fails.
pub(super) fn replace_this_process(holder: i32, command: &[OsString]) -> u8 {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        messages::print(&format!("the command would not end with its lock: {error}"));
        return UNUSABLE;
    }
    // It may have ended before.
    if getppid() != Pid::from_raw(holder) {
        messages::print("the process that holds the lock has ended");
        return LOST;
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    messages::print(&format!("{}: {error}", command[0].to_string_lossy()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Acquires the lock, runs the command, and releases the lock. Returns the exit status.
pub(super) fn run_with(
    lock: Lock,
    wait: Option<Duration>,
    on_lost: OnLost,
    command: &[OsString],
) -> Result<u8, String> {
    let lease = lock.lease;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let messages = Messages::start().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut keeper = Keeper::start(lock, wait)?;
        let grant = loop {
            let report = tokio::select! {
                report = keeper.reports.recv() => report,
                // The connection ends with the process, and the place in the queue with it.
                signal = signals.next() => return Ok(signal_status(signal)),
            };
            match report {
                Some(Report::Acquired(grant)) => break grant,
                Some(Report::Waiting(reason)) => messages.send(&format!("waiting: {reason}")),
                Some(Report::NotAcquired(status, reason)) => {
                    messages.send(&format!("not acquired: {reason}"));
                    return Ok(status);
                }
                _ => return Err("the lock was not acquired".to_owned()),
            }
        };
        let status = if grant.until.saturating_sub(now()) < lease / 4 {
            messages.send("not acquired: the lease was about to end when the reply came");
            Ok(UNAVAILABLE)
        } else {
            match Supervised::start(command, grant, lease, on_lost, &messages) {
                Ok(supervised) => supervised.wait(&mut keeper, &mut signals).await,
                Err(error) => Err(format!("the command cannot be started: {error}")),
            }
        };
        if let Err(Problem::Temporary(reason) | Problem::Lasting(reason)) = keeper.release() {
            messages.send(&format!("not released, and held until its lease ends: {reason}"));
        }
        status
    })
}

/// The signals that end a command.
struct Signals(Vec<(Caught, Signal)>);

impl Signals {
    /// Catches the signals, except those that are ignored, as by `nohup`: the command ignores them,
    /// too.
    fn catch() -> Result<Signals, String> {
        let ignored = ignored();
        let caught = PASSED_ON.into_iter().filter(|(_, it)| ignored & (1 << (*it as u32 - 1)) == 0);
        let caught = caught.map(|(kind, passed_on)| Ok((signal(kind)?, passed_on)));
        let caught: io::Result<Vec<(Caught, Signal)>> = caught.collect();
        caught.map(Signals).map_err(|error| error.to_string())
    }

    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (caught, passed_on) in &mut self.0 {
                if caught.poll_recv(context).is_ready() {
                    return Poll::Ready(*passed_on);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, a bit for each; none where that is not known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn signal_status(signal: Signal) -> u8 {
    u8::try_from(SIGNAL_STATUS_BASE + signal as i32).unwrap_or(u8::MAX)
}

/// This program, also if its file was replaced since the start.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// A command that runs.
struct Supervised<'m> {
    messages: &'m Messages,
    child: Child,
    id: Pid,
    /// Whether it has a process group of its own.
    has_group: bool,
    lease: Duration,
    on_lost: OnLost,
    /// When the lease ends at the earliest.
    until: Duration,
    /// Whether the lock is lost, or its lease was about to end.
    is_lost: bool,
    is_killed: bool,
}

impl<'m> Supervised<'m> {
    fn start(
        words: &[OsString],
        grant: Grant,
        lease: Duration,
        on_lost: OnLost,
        messages: &'m Messages,
    ) -> io::Result<Supervised<'m>> {
        // This program again, which replaces itself by the command.
        let mut command = tokio::process::Command::new(own_program()?);
        command.arg0("lockwheel");
        command.args(["lock", "--exec-for", &getpid().to_string(), "--"]).args(words);
        let has_group = !is_in_terminal_foreground();
        if has_group {
            command.process_group(0);
        }
        // The password of the server is not for the command.
        command.env_remove(PASSWORD_VARIABLE);
        match grant.token {
            Some(token) => command.env(TOKEN, token.to_string()),
            None => command.env_remove(TOKEN),
        };
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Supervised {
            messages,
            child,
            id: Pid::from_raw(id),
            has_group,
            lease,
            on_lost,
            until: grant.until,
            is_lost: false,
            is_killed: false,
        })
    }

    /// Waits for the end of the command, and if it has lost the lock, also of what it has started;
    /// returns the exit status.
    async fn wait(mut self, keeper: &mut Keeper, signals: &mut Signals) -> Result<u8, String> {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                signal = signals.next() => self.pass_on(signal),
                Some(report) = keeper.reports.recv() => self.note(report),
                // Not one timer for the end of the lease: the machine may be suspended.
                () = sleep(look_interval(self.lease)) => self.look(),
            }
        };
        let status: ExitStatus = status.map_err(|error| error.to_string())?;
        while let Ok(report) = keeper.reports.try_recv() {
            match report {
                Report::Renewed(until) => self.until = self.until.max(until),
                Report::Lost => self.is_lost = true,
                _ => {}
            }
        }
        self.is_lost |= now() >= self.until;
        // What it has started may go on until the lease ends.
        while self.must_end() && self.has_group && now() < self.until && self.group_exists() {
            tokio::select! {
                signal = signals.next() => self.pass_on(signal),
                () = sleep(look_interval(self.lease)) => self.look(),
            }
        }
        Ok(if self.is_lost { LOST } else { code(status) })
    }

    fn note(&mut self, report: Report) {
        match report {
            // A command that is being ended has no more time than before.
            Report::Renewed(until) if !self.must_end() => self.until = until,
            Report::NotRenewed(reason) => self.messages.send(&format!("not renewed: {reason}")),
            Report::Lost => {
                // The command gets the same time to end as before the end of a lease.
                self.until = self.until.min(now() + self.lease / 4);
                self.lose("another client may hold the lock");
            }
            Report::Renewed(_) => {}
            Report::Waiting(_) | Report::Acquired(_) | Report::NotAcquired(..) => {}
        }
    }

    /// Ends the command before the lease ends.
    fn look(&mut self) {
        let left = self.until.saturating_sub(now());
        if left < self.lease / 4 {
            self.lose("the lease could not be renewed");
        }
        if self.must_end() && left < self.lease / 12 && !self.is_killed {
            self.is_killed = true;
            self.send(Signal::SIGKILL);
        }
    }

    fn lose(&mut self, reason: &str) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        if self.must_end() {
            self.send(Signal::SIGTERM);
            // A command that is stopped goes on, to end.
            self.send(Signal::SIGCONT);
        }
        let (end, going_on) = ("the command is ended", "the command goes on");
        let then = if self.on_lost == OnLost::Terminate { end } else { going_on };
        self.messages.send(&format!("lost: {reason}; {then}"));
    }

    fn must_end(&self) -> bool {
        self.is_lost && self.on_lost == OnLost::Terminate
    }

    fn group_exists(&self) -> bool {
        killpg(self.id, None) != Err(Errno::ESRCH)
    }

    fn pass_on(&self, signal: Signal) {
        // A terminal sends the others to the whole job.
        if self.has_group || signal == Signal::SIGTERM {
            self.send(signal);
        }
    }

    fn send(&self, signal: Signal) {
        let sent = if self.has_group { killpg(self.id, signal) } else { kill(self.id, signal) };
        // It may have ended.
        if let Err(error) = sent
            && error != Errno::ESRCH
        {
            self.messages.send(&format!("the command cannot be sent {signal}: {error}"));
        }
    }
}
