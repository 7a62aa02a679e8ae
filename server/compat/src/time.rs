//! The suite's own time: that of the machine it runs on, since a server under test cannot be told
//! what time it is. The only file here that reads a clock.

#![allow(clippy::disallowed_methods)]

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Microseconds since this program first asked.
pub fn now_us() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// Lets time pass.
pub fn sleep(span: Duration) {
    thread::sleep(span);
}
