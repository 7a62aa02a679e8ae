//! The command that runs while the lock is held. It has a process group of its own; but not in the
//! foreground of a terminal, where it stays in the job of the shell.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid, getppid};
use tokio::process::Child;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::time::sleep;

use super::keeper::{Keeper, Report};
use super::lock::{Grant, Lock, Problem, now};
use super::{LOST, NOT_ACQUIRED, OnLost, print_error};
use crate::limits::LOCK_LOOK_INTERVAL;
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
        print_error(&format!("the command would not end with its lock: {error}"));
        return UNUSABLE;
    }
    // It may have ended before.
    if getppid() != Pid::from_raw(holder) {
        print_error("the process that holds the lock has ended");
        return LOST;
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    print_error(&format!("{}: {error}", command[0].to_string_lossy()));
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
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut keeper = Keeper::start(lock, wait)?;
        let grant = tokio::select! {
            report = keeper.reports.recv() => report,
            // The connection ends with the process, and the place in the queue with it.
            signal = signals.next() => return Ok(signal_status(signal)),
        };
        let grant = match grant {
            Some(Report::Acquired(grant)) => grant,
            Some(Report::NotAcquired(reason)) => {
                print_error(&format!("not acquired: {reason}"));
                return Ok(NOT_ACQUIRED);
            }
            _ => return Err("the lock was not acquired".to_owned()),
        };
        let status = Supervised::start(command, grant, lease, on_lost)
            .map_err(|error| format!("the command cannot be started: {error}"));
        let status = match status {
            Ok(supervised) => supervised.wait(&mut keeper, &mut signals).await,
            Err(error) => Err(error),
        };
        match keeper.release() {
            Err(Problem::Temporary(reason) | Problem::Lasting(reason)) => {
                print_error(&format!("not released, and held until its lease ends: {reason}"));
            }
            Ok(()) => {}
        }
        status
    })
}

/// The signals that end a command.
struct Signals(Vec<(Caught, Signal)>);

impl Signals {
    fn catch() -> Result<Signals, String> {
        let caught = PASSED_ON.map(|(kind, passed_on)| Ok((signal(kind)?, passed_on)));
        let caught: io::Result<Vec<(Caught, Signal)>> = caught.into_iter().collect();
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

fn signal_status(signal: Signal) -> u8 {
    u8::try_from(SIGNAL_STATUS_BASE + signal as i32).unwrap_or(u8::MAX)
}

/// A command that runs.
struct Supervised {
    child: Child,
    id: Pid,
    /// Whether it has a process group of its own.
    has_group: bool,
    lease: Duration,
    on_lost: OnLost,
    /// When the lease ends at the earliest.
    until: Duration,
    /// Whether the lock is lost, or may be before it could be renewed.
    is_lost: bool,
    is_killed: bool,
}

impl Supervised {
    fn start(
        words: &[OsString],
        grant: Grant,
        lease: Duration,
        on_lost: OnLost,
    ) -> io::Result<Supervised> {
        // This program again, which replaces itself by the command.
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command.args(["lock", "--exec-for", &getpid().to_string(), "--"]).args(words);
        let has_group = !is_in_terminal_foreground();
        if has_group {
            command.process_group(0);
        }
        match grant.token {
            Some(token) => command.env(TOKEN, token.to_string()),
            None => command.env_remove(TOKEN),
        };
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Supervised {
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

    /// Waits for the end of the command; returns the exit status.
    async fn wait(mut self, keeper: &mut Keeper, signals: &mut Signals) -> Result<u8, String> {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                signal = signals.next() => self.pass_on(signal),
                Some(report) = keeper.reports.recv() => self.note(report),
                // Not one timer for the end of the lease: the machine may be suspended.
                () = sleep(LOCK_LOOK_INTERVAL) => self.look(),
            }
        };
        let status: ExitStatus = status.map_err(|error| error.to_string())?;
        Ok(if self.is_lost { LOST } else { code(status) })
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Renewed(until) => self.until = until,
            Report::NotRenewed(reason) => print_error(&format!("not renewed: {reason}")),
            Report::Lost => {
                // The command gets the same time to end as before the end of a lease.
                self.until = now() + self.lease / 4;
                self.lose("another client may hold the lock");
            }
            Report::Acquired(_) | Report::NotAcquired(_) => {}
        }
    }

    /// Ends the command before the lease ends.
    fn look(&mut self) {
        let left = self.until.saturating_sub(now());
        if left < self.lease / 4 {
            self.lose("the lease could not be renewed");
        }
        let must_end = self.is_lost && self.on_lost == OnLost::Terminate;
        if must_end && left < self.lease / 12 && !self.is_killed {
            self.is_killed = true;
            self.send(Signal::SIGKILL);
        }
    }

    fn lose(&mut self, reason: &str) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        let (end, going_on) = ("the command is ended", "the command goes on");
        let then = if self.on_lost == OnLost::Terminate { end } else { going_on };
        print_error(&format!("lost: {reason}; {then}"));
        if self.on_lost == OnLost::Terminate {
            self.send(Signal::SIGTERM);
            // One that is stopped.
            self.send(Signal::SIGCONT);
        }
    }

    fn pass_on(&self, signal: Signal) {
        // A terminal sends the others to the whole job.
        if self.has_group || signal == Signal::SIGTERM {
            self.send(signal);
        }
    }

    fn send(&self, signal: Signal) {
        // Fails if it has ended.
        let _ = if self.has_group { killpg(self.id, signal) } else { kill(self.id, signal) };
    }
}
