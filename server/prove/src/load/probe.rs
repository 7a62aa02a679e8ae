//! Measures for how long no lock is granted: asks for a lock of its own again and again.

use std::sync::Arc;

use lockwheel_compat::judge::history::{Action, Answer};

use super::client::{LockClient, Request};
use super::shared::{PROBE_LOCKS, Shared, probe_key};
use crate::clock::now_us;
use crate::lock_kind::LockKind;

/// Time between two attempts: with each clients' usual time-out, a gap is measured to this.
const INTERVAL_US: i64 = 100_000;

/// Lease of a lock of the probe. It is used again after a longer time.
const LEASE_US: i64 = 1_000_000;

/// Returns the longest time from one grant to the next, in microseconds, when the load ends.
pub(super) fn run(
    shared: &Arc<Shared>,
    client: &mut dyn LockClient,
    kind: &'static LockKind,
) -> i64 {
    let (mut granted_us, mut longest_us) = (now_us(), 0);
    let mut next_us = granted_us;
    for number in 0.. {
        if !shared.sleep_until(next_us) {
            break;
        }
        next_us = now_us() + INTERVAL_US;
        let lock = probe_key(&shared.prefix, number % PROBE_LOCKS);
        let action = Action::Acquire { ttl_us: LEASE_US, shared: false };
        let request = Request { kind, lock: &lock, owner: "probe", action, loses_reply: false };
        let answer = client.perform(request).map(|record| record.event.answer);
        if answer == Some(Answer::Granted) {
            longest_us = longest_us.max(now_us() - granted_us - INTERVAL_US);
            granted_us = now_us();
            client.perform(Request { action: Action::Release { ttl_us: None }, ..request });
        }
    }
    longest_us.max(now_us() - granted_us - INTERVAL_US).max(0)
}
