//! Clients that take locks, and what they may rely on.
//!
//! The clocks of the clients are exact. A client relies on its lock from the reply until its lease
//! has passed, counted from its request, less what the clocks of the leaders may be fast.

use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_raft::NodeId;
use tokio::task::JoinHandle;

use crate::cluster::{CLOCK_ERROR_PPM, Cluster, Execution};
use crate::locks::Request;

/// One client, which uses one lock at a time.
#[derive(Default)]
pub(crate) struct Client {
    holding: Option<Holding>,
    pending: Option<Pending>,
}

/// The lock on which a client relies.
#[derive(Clone, Copy)]
struct Holding {
    lock: u8,
    token: u64,
    until: Duration,
}

/// A request without a reply.
struct Pending {
    number: u64,
    is_committed: JoinHandle<bool>,
    request: Request,
    sent: Duration,
    /// The token of the lock, and the greatest one that was acknowledged before the request.
    token: u64,
    before: u64,
}

/// Number of locks that the clients share.
const LOCKS: u64 = 4;

/// Shortest lease, and the range above it.
const LEASE_MS: u64 = 150;
const LEASE_VARIES_MS: u64 = 2_000;

/// Requests of which one has a large effect, and the bytes of it, which is several entries.
const LARGE_ONE_IN: u64 = 10;
const LARGE_BYTES: u64 = 200_000;

/// Time after which clients give up a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Returns until when a client relies on a lease that it asked for at `sent`. Log time counts whole
/// milliseconds.
fn reliable_until(sent: Duration, lease_ms: i64) -> Duration {
    let lease_us = lease_ms as u64 * 1_000;
    let fast_us = lease_us * CLOCK_ERROR_PPM.unsigned_abs() / 1_000_000 + 1_000;
    sent + Duration::from_micros(lease_us - fast_us)
}

impl Cluster {
    /// Lets clients get replies and send requests.
    pub(crate) fn let_clients_act(&mut self) {
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            client.holding.take_if(|holding| holding.until <= self.now);
            match &mut client.pending {
                Some(pending) => {
                    let has_given_up = pending.sent + TIMEOUT <= self.now;
                    let reply = (&mut pending.is_committed).now_or_never();
                    if (has_given_up || reply.is_some())
                        && let Some(pending) = client.pending.take()
                        && let Some(Ok(true)) = reply
                    {
                        self.receive(at, &pending);
                    }
                }
                None => self.send(at),
            }
        }
    }

    /// Handles the reply to a request of a client.
    fn receive(&mut self, at: usize, pending: &Pending) {
        self.note(format_args!("unit {} is acknowledged", pending.number));
        self.acknowledged.insert(pending.number);
        let token = pending.token;
        match pending.request {
            Request::Acquire { lock, lease_ms } => {
                assert!(token > pending.before, "token {token} comes after {}", pending.before);
                let until = reliable_until(pending.sent, lease_ms);
                let others = self.clients.iter().filter_map(|client| client.holding);
                let holds = |holding: &Holding| holding.lock == lock && holding.until > self.now;
                let is_held = until > self.now && others.into_iter().any(|other| holds(&other));
                assert!(!is_held, "lock {lock} was granted twice");
                self.clients[at].holding = Some(Holding { lock, token, until });
                self.greatest_token = self.greatest_token.max(token);
                self.figures.grants += 1;
            }
            Request::Renew { lease_ms, .. } => {
                if let Some(holding) = &mut self.clients[at].holding {
                    holding.until = holding.until.max(reliable_until(pending.sent, lease_ms));
                }
                self.figures.renewals += 1;
            }
            _ => self.figures.releases += 1,
        }
    }

    /// Lets a client send a random request, or none.
    fn send(&mut self, at: usize) {
        let lease_ms = (LEASE_MS + self.random.below(LEASE_VARIES_MS)) as i64;
        let request = match (self.clients[at].holding, self.random.below(100)) {
            (None, 0..8) => Request::Acquire { lock: self.random.below(LOCKS) as u8, lease_ms },
            (Some(Holding { lock, token, .. }), 0..2) => Request::Renew { lock, token, lease_ms },
            (Some(Holding { lock, token, .. }), 2) => Request::Release { lock, token },
            _ => return,
        };
        let before = self.greatest_token;
        let padding = match self.random.below(LARGE_ONE_IN) {
            0 => self.random.below(LARGE_BYTES) as usize,
            _ => 0,
        };
        let executed = self.execute_padded(request, padding);
        let Some(Execution { number, token, is_committed }) = executed else { return };
        let (client, sent) = (&mut self.clients[at], self.now);
        match (request, &mut client.holding) {
            (Request::Release { .. }, holding) => *holding = None,
            // The new lease may end before the one that it replaces.
            (Request::Renew { lease_ms, .. }, Some(holding)) => {
                holding.until = holding.until.min(reliable_until(sent, lease_ms));
            }
            _ => {}
        }
        client.pending = Some(Pending { number, is_committed, request, sent, token, before });
    }

    /// Asserts that the node that leads has the locks on which clients rely.
    pub(crate) fn check_holds(&self, leader: NodeId) {
        let held = self.clients.iter().filter_map(|client| client.holding);
        let held = held.filter(|holding| holding.until > self.now);
        self.locks(leader).with(|known| {
            for Holding { lock, token, .. } in held {
                let hold = known.holds.get(&lock);
                let is_held = hold.is_some_and(|hold| hold.token == token);
                assert!(is_held, "lock {lock} of token {token} is lost: {hold:?}");
            }
        });
    }
}
