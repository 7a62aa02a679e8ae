//! The clocks of the program. No other file of the crate reads a clock.

#![allow(clippy::disallowed_methods)]

use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Microseconds since the machine was started, which go on while it is suspended: a lease of a
/// server does so, too.
pub fn now_us() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    read_us(clock)
}

/// Microseconds since 1970.
pub fn wall_us() -> i64 {
    read_us(ClockId::CLOCK_REALTIME)
}

/// Sleeps.
pub fn sleep(span: Duration) {
    thread::sleep(span);
}

fn read_us(clock: ClockId) -> i64 {
    // These clocks exist on every system that the program is built for.
    let since = clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
