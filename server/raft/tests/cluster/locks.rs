//! The state of the nodes: locks with leases in log time, which only the leader grants, renews and
//! ends. It complains if an effect does not fit to the effects before.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use lockwheel_log::files::Snapshot;
use lockwheel_raft::{Batch, Guard, SnapshotParts, State};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// What a leader is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Nothing but to be remembered.
    Note,
    Acquire {
        lock: u8,
        lease_ms: i64,
    },
    Renew {
        lock: u8,
        token: u64,
        lease_ms: i64,
    },
    Release {
        lock: u8,
        token: u64,
    },
    /// The lease has ended.
    End {
        lock: u8,
        token: u64,
    },
}

/// An effect: what a request has changed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Change {
    Nothing,
    Granted { lock: u8, hold: Hold },
    Renewed { lock: u8, hold: Hold },
    Released { lock: u8, token: u64 },
    Ended { lock: u8, token: u64 },
}

/// The hold of the owner of a lock: a fencing token, and a lease up to a deadline in log time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) deadline_ms: i64,
}

/// The effects of a batch, or a part of a snapshot.
#[derive(Serialize, Deserialize)]
enum Effects {
    Unit { number: u64, change: Change, padding: Vec<u8> },
    Numbers(Vec<u64>),
    Holds { holds: BTreeMap<u8, Hold>, last_token: u64, lease_ms: i64 },
}

/// The numbers in one part of a snapshot.
const PART_NUMBERS: usize = 40;

/// What was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The number of each unit, in order.
    pub(crate) units: Vec<u64>,
    pub(crate) holds: BTreeMap<u8, Hold>,
    last_token: u64,
    /// The greatest stamp.
    lease_ms: i64,
}

/// The leadership of this process, from whose stamp log time goes on.
#[derive(Clone, Debug)]
struct Leading {
    barrier: u64,
    lease_ms: i64,
    since: Instant,
    guard: Option<Guard>,
}

/// What should not have happened, on any node.
pub(crate) type Complaints = Arc<Mutex<Vec<String>>>;

/// The state of a node: its locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<(Executed, Option<Leading>)>,
    complaints: Complaints,
}

impl Locks {
    pub(crate) fn new(complaints: &Complaints) -> Locks {
        Locks { complaints: Arc::clone(complaints), ..Locks::default() }
    }

    pub(crate) fn known(&self) -> Executed {
        self.state.lock().0.clone()
    }

    /// Reads the state without a copy.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Executed) -> T) -> T {
        read(&self.state.lock().0)
    }

    /// The barrier of the batches of this process, if it leads.
    pub(crate) fn barrier(&self) -> Option<u64> {
        self.state.lock().1.as_ref().map(|leading| leading.barrier)
    }

    /// The guard with which this process leads, if there is one.
    pub(crate) fn guard(&self) -> Option<Guard> {
        self.state.lock().1.as_ref().and_then(|leading| leading.guard.clone())
    }

    /// Leases that have ended in log time.
    pub(crate) fn due(&self) -> Vec<Request> {
        let state = self.state.lock();
        let (known, Some(leading)) = &*state else { return Vec::new() };
        let now_ms = leading.now_ms();
        let due = known.holds.iter().filter(|(_, hold)| hold.deadline_ms <= now_ms);
        due.map(|(lock, hold)| Request::End { lock: *lock, token: hold.token }).collect()
    }

    /// Executes a request if this process leads; returns the batch with its effect, and the token
    /// of the lock, unless the request is refused. The effect is longer by `padding` bytes.
    pub(crate) fn execute(
        &self,
        number: u64,
        request: Request,
        padding: usize,
    ) -> Option<(Batch, u64)> {
        let mut state = self.state.lock();
        let (known, Some(leading)) = &mut *state else { return None };
        let now_ms = leading.now_ms();
        let change = known.change_for(request, now_ms)?;
        known.apply(number, change, now_ms).expect("an effect of its own state");
        let effects = encode(&Effects::Unit { number, change, padding: vec![0; padding] });
        let last = known.units.len() as u64;
        let batch = Batch::new(leading.barrier, now_ms, last, effects);
        Some((batch, known.last_token))
    }

    fn complain(&self, complaint: String) {
        self.complaints.lock().push(complaint);
    }
}

impl Leading {
    fn now_ms(&self) -> i64 {
        self.lease_ms + self.since.elapsed().as_millis() as i64
    }
}

impl Executed {
    /// What a request changes; `None` if it is refused.
    fn change_for(&self, request: Request, now_ms: i64) -> Option<Change> {
        let is_held = |lock, token| self.holds.get(&lock).is_some_and(|hold| hold.token == token);
        Some(match request {
            Request::Note => Change::Nothing,
            Request::Acquire { lock, lease_ms } if !self.holds.contains_key(&lock) => {
                let (token, deadline_ms) = (self.last_token + 1, now_ms + lease_ms);
                Change::Granted { lock, hold: Hold { token, deadline_ms } }
            }
            Request::Renew { lock, token, lease_ms } if is_held(lock, token) => {
                Change::Renewed { lock, hold: Hold { token, deadline_ms: now_ms + lease_ms } }
            }
            Request::Release { lock, token } if is_held(lock, token) => {
                Change::Released { lock, token }
            }
            Request::End { lock, token } if is_held(lock, token) => Change::Ended { lock, token },
            _ => return None,
        })
    }

    /// Applies an effect with this stamp; an error if it does not fit.
    fn apply(&mut self, number: u64, change: Change, lease_ms: i64) -> Result<(), String> {
        let (holds, is_later) = (&mut self.holds, self.lease_ms <= lease_ms);
        let fits = match change {
            Change::Nothing => true,
            Change::Granted { lock, hold } => {
                let is_new = hold.token > self.last_token;
                self.last_token = hold.token;
                holds.insert(lock, hold).is_none() && is_new
            }
            Change::Renewed { lock, hold } => {
                holds.insert(lock, hold).is_some_and(|before| before.token == hold.token)
            }
            Change::Released { lock, token } => {
                holds.remove(&lock).is_some_and(|before| before.token == token)
            }
            Change::Ended { lock, token } => holds
                .remove(&lock)
                .is_some_and(|before| before.token == token && before.deadline_ms <= lease_ms),
        };
        self.units.push(number);
        self.lease_ms = lease_ms;
        let complaint = || format!("unit {number} at {lease_ms} ms does not fit: {change:?}");
        (fits && is_later).then_some(()).ok_or_else(complaint)
    }

    fn load(&mut self, effects: Effects, lease_ms: i64) -> Result<(), String> {
        match effects {
            Effects::Unit { number, change, .. } => return self.apply(number, change, lease_ms),
            Effects::Numbers(mut numbers) => self.units.append(&mut numbers),
            Effects::Holds { holds, last_token, lease_ms: until_ms } => {
                (self.holds, self.last_token, self.lease_ms) = (holds, last_token, until_ms);
                if until_ms > lease_ms {
                    return Err(format!("a snapshot of {until_ms} ms is stamped {lease_ms} ms"));
                }
            }
        }
        Ok(())
    }
}

impl State for Locks {
    fn clear(&self) {
        self.state.lock().0 = Executed::default();
    }

    fn load(&self, effects: &[u8], lease_ms: i64) -> Result<(), String> {
        let effects = rmp_serde::from_slice(effects).map_err(|error| error.to_string())?;
        // The node goes on: the test ends.
        if let Err(complaint) = self.state.lock().0.load(effects, lease_ms) {
            self.complain(complaint);
        }
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), String> {
        let is_own = self.barrier() == Some(batch.barrier);
        if is_own { Ok(()) } else { self.load(&batch.effects, batch.lease_ms) }
    }

    fn begin_leading(&self, barrier: u64, lease_ms: i64, guard: Option<&Guard>) -> u64 {
        let mut state = self.state.lock();
        let (known, leading) = &mut *state;
        if lease_ms < known.lease_ms {
            self.complain(format!("log time goes back from {} to {lease_ms} ms", known.lease_ms));
        }
        let (since, guard) = (Instant::now(), guard.cloned());
        *leading = Some(Leading { barrier, lease_ms, since, guard });
        known.units.len() as u64
    }

    fn stop_leading(&self) {
        self.state.lock().1 = None;
    }

    fn begin_snapshot(&self) -> Box<dyn SnapshotParts> {
        let (known, leading) = &*self.state.lock();
        let last = leading.as_ref().map(|_| known.units.len() as u64);
        Box::new(Parts { known: known.clone(), last })
    }
}

/// A snapshot.
struct Parts {
    known: Executed,
    last: Option<u64>,
}

impl SnapshotParts for Parts {
    fn last(&self) -> Option<u64> {
        self.last
    }

    fn write(&mut self, file: &mut Snapshot) -> io::Result<bool> {
        let Executed { units, holds, last_token, lease_ms } = &self.known;
        for numbers in units.chunks(PART_NUMBERS) {
            file.write(&encode(&Effects::Numbers(numbers.to_vec())))?;
        }
        let (holds, last_token, lease_ms) = (holds.clone(), *last_token, *lease_ms);
        file.write(&encode(&Effects::Holds { holds, last_token, lease_ms })).map(|()| true)
    }

    fn end(&mut self, _: bool) {}
}

fn encode(effects: &Effects) -> Vec<u8> {
    rmp_serde::to_vec_named(effects).expect("a simple value")
}
