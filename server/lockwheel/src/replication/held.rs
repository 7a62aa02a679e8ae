//! Requests that the engine holds because this server does not lead.
//!
//! Reads that arrive while others are being confirmed are confirmed together after them. A request
//! that has been held for [`limits::NO_LEADER_WAIT`] is refused. That time is real time: without a
//! leader, the lease clock stops.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use lockwheel_engine::Engine;
use lockwheel_raft::{Node, Reads};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use crate::host::Host;
use crate::limits;

/// Serves the requests that are held, until the server ends. `held` has the number of the last one.
pub(super) async fn serve(host: Weak<Host>, held: watch::Receiver<u64>, node: Arc<Node>) {
    tokio::select! {
        () = confirm(&host, held.clone(), node.reads()) => {}
        () = resume(&host, held.clone(), &node) => {}
        () = refuse(&host, held) => {}
    }
}

/// Has requests run that the engine has held while it was not certain that this server leads.
async fn resume(host: &Weak<Host>, mut held: watch::Receiver<u64>, node: &Node) {
    while held.changed().await.is_ok() {
        while !node.leads() {
            sleep(node.heartbeat()).await;
        }
        // The engine finds out whenever it is used.
        if with(host, |_| ()).is_none() {
            return;
        }
    }
}

/// Confirms reads.
async fn confirm(host: &Weak<Host>, mut held: watch::Receiver<u64>, mut reads: Reads) {
    loop {
        held.mark_unchanged();
        let Some(waiting) = with(host, |engine| engine.held_reads()) else { return };
        match waiting {
            None if held.changed().await.is_err() => return,
            None => {}
            Some(waiting) => match reads.confirm().await {
                Ok(()) if with(host, |engine| engine.grant_reads(waiting)).is_none() => return,
                Ok(()) => {}
                Err(error) => debug!(%error, "reads are not confirmed"),
            },
        }
    }
}

/// Refuses requests that have waited for too long.
async fn refuse(host: &Weak<Host>, mut held: watch::Receiver<u64>) {
    // The number of the last of some requests, and when the first of them has arrived.
    let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
    loop {
        let first = waiting.front().copied();
        let is_due = async {
            match first {
                Some((_, arrived)) => sleep_until(arrived + limits::NO_LEADER_WAIT).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = held.changed() => {
                if changed.is_err() {
                    return;
                }
                let (last, now) = (*held.borrow_and_update(), Instant::now());
                match waiting.back_mut() {
                    Some((known, arrived)) if now - *arrived < limits::NO_LEADER_WAIT_GRAIN => {
                        *known = last;
                    }
                    _ => waiting.push_back((last, now)),
                }
            }
            () = is_due => {
                waiting.pop_front();
                if let Some((last, _)) = first
                    && with(host, |engine| engine.refuse_held(last)).is_none()
                {
                    return;
                }
            }
        }
    }
}

/// Runs `act` on the engine; `None` if the server ends.
fn with<T>(host: &Weak<Host>, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
    let host = host.upgrade().filter(|host| !host.is_stopping())?;
    tokio::task::block_in_place(|| host.with(act)).ok()
}
