//! Requests that the engine holds because this server does not lead.
//!
//! Reads that arrive while others are being confirmed are confirmed together after them. A request
//! that has been held for [`limits::NO_LEADER_WAIT`] is refused. That time is real time: without a
//! leader, the lease clock stops.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use lockwheel_defects::defect;
use lockwheel_engine::Engine;
use lockwheel_raft::{Node, Reads};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use crate::host::Host;
use crate::limits;

/// Serves the requests that are held, until the server ends. `held` has the number of the last one.
pub(super) async fn serve(host: Weak<Host>, held: watch::Receiver<u64>, node: Arc<Node>) {
    let mut reads = node.reads();
    tokio::select! {
        biased;
        () = confirm(&host, held.clone(), &mut reads) => {}
        () = resume(&host, held.clone(), &node) => {}
        () = refuse(&host, held) => {}
    }
}

/// Resumes requests that the engine has held while it was not certain that this server leads.
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

/// What confirms the reads of a node that follows.
trait Confirm: Send {
    /// As [`Reads::confirm`].
    fn confirm(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Confirm for Reads {
    fn confirm(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        Reads::confirm(self)
    }
}

/// Confirms reads. Those that arrive meanwhile may need a later state.
async fn confirm(host: &Weak<Host>, mut held: watch::Receiver<u64>, reads: &mut impl Confirm) {
    loop {
        held.mark_unchanged();
        let Some(waiting) = with(host, |engine| engine.held_reads()) else { return };
        match waiting {
            None if held.changed().await.is_err() => return,
            None => {}
            Some(waiting) => {
                let confirmed = match defect!(ReadsNotConfirmed) {
                    true => Ok(()),
                    false => reads.confirm().await,
                };
                match confirmed {
                    Ok(()) if with(host, |engine| engine.grant_reads(waiting)).is_none() => return,
                    Ok(()) => {}
                    Err(error) => debug!(%error, "reads are not confirmed"),
                }
            }
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
            biased;
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
    host.with_of_node(act).ok()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use lockwheel_resp::Reply;

    use super::super::RaftLog;
    use super::*;
    use crate::host::testing::{host, poll};
    use crate::in_process::Client;

    /// Confirms as often as it may.
    #[derive(Default)]
    struct Confirmations {
        asked: AtomicUsize,
        permitted: AtomicUsize,
        failing: AtomicUsize,
    }

    impl Confirm for &Confirmations {
        async fn confirm(&mut self) -> io::Result<()> {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let may_end = |_: &mut Context<'_>| match self.permitted.load(Ordering::SeqCst) {
                permitted if permitted >= number => Poll::Ready(()),
                _ => Poll::Pending,
            };
            std::future::poll_fn(may_end).await;
            match self.failing.load(Ordering::SeqCst) == number {
                true => Err(io::ErrorKind::NotConnected.into()),
                false => Ok(()),
            }
        }
    }

    /// A server that follows.
    fn follower() -> (Arc<Host>, Arc<RaftLog>) {
        let host = host();
        let log = Arc::new(RaftLog::new(&host));
        host.start_replicated_log(&log);
        host.with(Engine::follow).expect("an engine");
        (host, log)
    }

    #[test]
    fn read_that_arrives_while_others_are_confirmed_is_confirmed_after_them() {
        let (host, log) = follower();
        let (weak, confirmations) = (Arc::downgrade(&host), Confirmations::default());
        let mut reads = &confirmations;
        let mut confirm = pin!(confirm(&weak, log.held(), &mut reads));
        let mut turn = |asked: usize| {
            assert!(poll(confirm.as_mut()).is_pending());
            assert_eq!(confirmations.asked.load(Ordering::SeqCst), asked);
        };
        let permit = || confirmations.permitted.fetch_add(1, Ordering::SeqCst);
        let mut clients = [(); 3].map(|()| Client::connect(&host).expect("a client"));
        let [first, second, third] = &mut clients;
        let null = |reply: Poll<Result<Reply, _>>| matches!(reply, Poll::Ready(Ok(Reply::Null)));

        turn(0);
        let mut first = pin!(first.call_async(&["GET", "k"]));
        assert!(poll(first.as_mut()).is_pending());
        turn(1);
        let mut second = pin!(second.call_async(&["GET", "k"]));
        assert!(poll(second.as_mut()).is_pending());
        turn(1);
        permit();
        turn(2);
        assert!(null(poll(first.as_mut())));
        assert!(poll(second.as_mut()).is_pending(), "what confirms it was asked before it");

        // A confirmation fails: what it was for is confirmed with what has arrived since.
        let mut third = pin!(third.call_async(&["GET", "k"]));
        assert!(poll(third.as_mut()).is_pending());
        confirmations.failing.store(2, Ordering::SeqCst);
        permit();
        turn(3);
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        permit();
        turn(3);
        assert!(null(poll(second.as_mut())) && null(poll(third.as_mut())));
    }
}
