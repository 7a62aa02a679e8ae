//! A thread that acquires a lock, renews its lease, and releases it.

#![expect(clippy::disallowed_methods, reason = "leases and retries are at times")]

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lock::{Attempt, Grant, Lock, Problem, now};
use crate::limits::{LOCK_POLL_MAX, LOCK_POLL_MIN, LOCK_WAIT_MAX};

/// What the thread reports.
#[derive(Debug)]
pub(super) enum Report {
    Acquired(Grant),
    NotAcquired(String),
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
        let work = move || {
            acquire(&mut lock, wait, &sender).map_or(Ok(()), |()| keep(&mut lock, &sender, &end))
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

/// Acquires the lock, and reports the outcome. `None` if it was not acquired.
fn acquire(
    lock: &mut Lock,
    wait: Option<Duration>,
    reports: &UnboundedSender<Report>,
) -> Option<()> {
    let deadline = wait.map(|wait| now() + wait);
    let mut pause = LOCK_POLL_MIN;
    let reason = loop {
        let left = deadline.map_or(LOCK_WAIT_MAX, |deadline| deadline.saturating_sub(now()));
        let reason = match lock.acquire(left.min(LOCK_WAIT_MAX)) {
            Ok(Attempt::Granted(grant)) => {
                // Fails if the process ends.
                let _ = reports.send(Report::Acquired(grant));
                return Some(());
            }
            Ok(Attempt::Refused) => "others hold the lock".to_owned(),
            Err(Problem::Temporary(reason)) => reason,
            Err(Problem::Lasting(reason)) => break reason,
        };
        let left = deadline.map_or(pause, |deadline| deadline.saturating_sub(now()));
        if left.is_zero() {
            break reason;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOCK_POLL_MAX);
    };
    let _ = reports.send(Report::NotAcquired(reason));
    None
}

/// Renews the lease each third of it, until the lock is to be released; then releases it.
fn keep(
    lock: &mut Lock,
    reports: &UnboundedSender<Report>,
    end: &mpsc::Receiver<()>,
) -> Result<(), Problem> {
    let mut pause = lock.lease / 3;
    loop {
        if end.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
            return lock.release();
        }
        let report = match lock.renew() {
            Ok(Some(grant)) => {
                pause = lock.lease / 3;
                Report::Renewed(grant.until)
            }
            Ok(None) => Report::Lost,
            Err(Problem::Lasting(reason) | Problem::Temporary(reason)) => {
                pause = lock.lease / 12;
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
