//! Workloads with a log that is flushed before each reply: cycles, reads beside writers, restarts
//! and snapshots, and the time of a flush on the same disk.
//!
//! `logged.rs` has what they share. Begin with `cycles.rs`.

mod closed_loop;
mod cycles;
mod flush;
mod logged;
mod reads;
mod restart;
mod snapshot;

use std::time::Duration;

use super::workload::Family;

/// All workloads, on disks whose flushes take longer by each of these delays.
pub(crate) fn families(flush_delays: &[Duration]) -> Vec<Family> {
    vec![
        ("flushes", flush::all(flush_delays)),
        ("cycles", cycles::all(flush_delays)),
        ("reads", reads::all(flush_delays)),
        ("restart", restart::all()),
        ("snapshot", snapshot::all()),
    ]
}
