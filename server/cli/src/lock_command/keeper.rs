//! A thread that acquires a lock, renews its lease, and releases it.

#![expect(clippy::disallowed_methods, reason = "leases and retries are at times")]

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lock::{Grant, Lock, Problem, now};
use super::{NOT_ACQUIRED, UNAVAILABLE, look_interval};
use crate::limits::{LOCK_POLL_MAX, LOCK_POLL_MIN, LOCK_WAIT_MAX};
use crate::run_command::UNUSABLE;

/// What the thread reports.
#[derive(Debug)]
pub(super) enum Report {
    /// The server cannot be asked for the lock, for this reason, and is asked again.
    Waiting(String),
    Acquired(Grant),
    /// The exit status, and the reason.
    NotAcquired(u8, String),
    /// The lease was renewed, and ends at this time at the earliest.
    Renewed(Duration),
    /// A renewal has failed for this reason, and another one follows.
    NotRenewed(String),
    /// The lock belongs to another owner, or is free.
    Lost,
}

/// The thread of a lock.
pub(super) struct Keeper {
    pub(super) reports: UnboundedReceiver<Report>,
    /// Dropped when the lock is to be released.
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Problem>>>,
}

impl Keeper {
    /// Starts the thread. It waits for the lock for `wait` at most; without end if that is `None`.
    pub(super) fn start(mut lock: Lock, wait: Option<Duration>) -> Result<Keeper, String> {
        let (sender, reports) = unbounded_channel();
        let (ends, end) = mpsc::channel();
        let work = move || match acquire(&mut lock, wait, &sender) {
            Some(sent) => keep(&mut lock, sent, &sender, &end),
            None => Ok(()),
        };
        let thread = thread::Builder::new().name("lockwheel-lock".into()).spawn(work);
        let thread = Some(thread.map_err(|error| format!("no thread: {error}"))?);
        Ok(Keeper { reports, ends: Some(ends), thread })
    }

    /// Releases the lock.
    pub(super) fn release(mut self) -> Result<(), Problem> {
        self.ends = None;
        // A panic of the thread has been reported where it happened.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(Ok(()))
    }
}

/// Acquires the lock, and reports the outcome. Returns when the lease began; `None` if the lock was
/// not acquired.
fn acquire(
    lock: &mut Lock,
    wait: Option<Duration>,
    reports: &UnboundedSender<Report>,
) -> Option<Duration> {
    let deadline = wait.map(|wait| now() + wait);
    let left = |longest| match deadline {
        Some(deadline) => deadline.saturating_sub(now()).min(longest),
        None => longest,
    };
    let (mut pause, mut reported) = (LOCK_POLL_MIN, String::new());
    let (status, reason) = loop {
        let outcome = match lock.acquire(left(LOCK_WAIT_MAX)) {
            Ok(Some(grant)) => {
                // Fails if the process ends.
                let _ = reports.send(Report::Acquired(grant));
                return Some(grant.sent);
            }
            Ok(None) => (NOT_ACQUIRED, "others hold the lock".to_owned()),
            Err(Problem::Temporary(reason)) => (UNAVAILABLE, reason),
            Err(Problem::Lasting(reason)) => break (UNUSABLE, reason),
        };
        let left = left(pause);
        if left.is_zero() {
            break outcome;
        }
        if outcome.0 == UNAVAILABLE && outcome.1 != reported {
            reported.clone_from(&outcome.1);
            let _ = reports.send(Report::Waiting(outcome.1));
        }
        thread::sleep(left);
        pause = (pause * 2).min(LOCK_POLL_MAX);
    };
    lock.release_if_granted();
    let _ = reports.send(Report::NotAcquired(status, reason));
    None
}

/// Renews the lease each third of it, until the lock is to be released; then releases it. The lease
/// began at `sent`.
fn keep(
    lock: &mut Lock,
    sent: Duration,
    reports: &UnboundedSender<Report>,
    end: &mpsc::Receiver<()>,
) -> Result<(), Problem> {
    let (mut next, mut reported) = (sent + lock.lease / 3, String::new());
    loop {
        // Not one pause: the machine may be suspended.
        let pause = next.saturating_sub(now()).min(look_interval(lock.lease));
        if end.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
            return lock.release();
        }
        if now() < next {
            continue;
        }
        let report = match lock.renew() {
            Ok(Some(grant)) => {
                next = grant.sent + lock.lease / 3;
                reported.clear();
                Report::Renewed(grant.until)
            }
            Ok(None) => Report::Lost,
            Err(Problem::Lasting(reason) | Problem::Temporary(reason)) => {
                next = now() + lock.lease / 24;
                if reason == reported {
                    continue;
                }
                reported.clone_from(&reason);
                Report::NotRenewed(reason)
            }
        };
        let is_lost = matches!(report, Report::Lost);
        let _ = reports.send(report);
        if is_lost {
            return Ok(());
        }
    }
}
