//! The suite's clock: that of this machine, since the clock of a server under test cannot be set.
//! No other file of the crate reads a clock.

#![allow(clippy::disallowed_methods)]

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Microseconds since the first call.
pub fn now_us() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// Sleeps.
pub fn sleep(span: Duration) {
    thread::sleep(span);
}
