//! What all clients of a load share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockwheel_compat::Interrupt;

use crate::lock_kind::LockKind;
use crate::target::Target;

/// Longest sleep between two looks at whether the load ends, in microseconds.
const LOOK_INTERVAL_US: i64 = 50_000;

/// The locks that the probe uses in turn.
pub(crate) const PROBE_LOCKS: u64 = 20;

/// What all clients know.
pub(crate) struct Shared {
    pub(crate) target: Arc<Target>,
    pub(crate) kinds: Vec<&'static LockKind>,
    /// Beginning of all keys.
    pub(crate) prefix: String,
    pub(crate) seed: u64,
    /// Locks of each kind.
    pub(crate) locks: usize,
    /// Longest lease.
    pub(crate) lease_us: i64,
    /// Time between two requests of one client.
    pub(crate) interval_us: i64,
    pub(crate) epoch: AtomicU64,
    /// Connections that ended without the client ending them.
    pub(crate) ended_connections: AtomicU64,
    /// Asked when the clients are to end.
    pub(crate) end: Interrupt,
}

impl Shared {
    /// Sleeps until that time; false if the load ends meanwhile.
    pub(super) fn sleep_until(&self, at_us: i64) -> bool {
        loop {
            if self.end.is_asked() {
                return false;
            }
            let left_us = at_us.saturating_sub(crate::clock::now_us()).min(LOOK_INTERVAL_US);
            let Ok(left_us @ 1..) = u64::try_from(left_us) else { return true };
            crate::clock::sleep(std::time::Duration::from_micros(left_us));
        }
    }

    pub(super) fn add_ended_connections(&self, count: u64) {
        self.ended_connections.fetch_add(count, Ordering::Relaxed);
    }
}

/// The key of a lock. The braces put its other keys into the same slot of a cluster.
pub(crate) fn key_of(prefix: &str, kind: &str, epoch: u64, number: u64) -> String {
    format!("{prefix}:{{{kind}-{epoch}-{number}}}")
}

/// The key of a lock of the probe.
pub(crate) fn probe_key(prefix: &str, number: u64) -> String {
    key_of(prefix, "probe", 0, number)
}
