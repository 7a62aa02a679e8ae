//! Finds out when locks are granted again: a client that reconnects at once, and tries the
//! servers in turn.

use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_prove::demo::place::Place;
use lockwheel_tests::load::now_us;
use lockwheel_tests::process::until;

use crate::servers::open;

/// How long one server may take. A server that takes longer was stopped or is cut off.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// The client.
pub(crate) struct Probe {
    places: Vec<Place>,
    wires: Vec<Option<Wire>>,
    attempts: u64,
}

impl Probe {
    /// A client of these servers.
    pub(crate) fn new(places: &[Place]) -> Probe {
        let wires = places.iter().map(|_| None).collect();
        Probe { places: places.to_vec(), wires, attempts: 0 }
    }

    /// Waits until a server other than `faulty` grants a lock, and returns when it did.
    pub(crate) fn wait_for_grant(&mut self, faulty: usize) -> Result<i64, String> {
        until("the next granted lock", || {
            let mut others = (0..self.places.len()).filter(|index| *index != faulty);
            others.any(|index| self.is_granted(index)).then(now_us)
        })
    }

    /// Tries to take a lock of its own: an earlier one may have been granted unseen.
    fn is_granted(&mut self, index: usize) -> bool {
        self.attempts += 1;
        let key = format!("probe-{}", self.attempts);
        let wire = self.wires[index].take().or_else(|| open(&self.places[index], ANSWER_TIMEOUT));
        let Some(mut wire) = wire else { return false };
        let Ok(answer) = wire.call(&["SET", &key, "probe", "NX", "PX", "1000"]) else {
            return false;
        };
        self.wires[index] = Some(wire);
        answer.text == b"OK"
    }
}
