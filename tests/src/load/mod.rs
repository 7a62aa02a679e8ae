//! Clients of real libraries that load servers with locks, and the judge of their histories.
//!
//! The clients (`tests/kills/<language>`) take and release locks all the time, and write what they
//! asked and were answered. They use other locks from time to time, an *epoch*. So histories are
//! short, and are judged when no client uses their locks any more.

pub mod clients;
pub mod judge;

use nix::time::{ClockId, clock_gettime};

/// The monotonic clock of the system, which the clients read as well.
///
/// # Panics
/// If there is no such clock.
pub fn now_us() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000
}
