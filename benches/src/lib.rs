//! Functions that all benches use: timing, chunks, random numbers and the measured commit.

#![allow(clippy::disallowed_methods)] // A benchmark reads the clock.

pub mod engine_bench;
pub mod operations;

use std::process::Command;
use std::time::{Duration, Instant};

/// Operations timed together, so that the cost of reading the clock is negligible.
pub const CHUNK: usize = 256;

/// Whether this is a measurement (`cargo bench`) rather than a test (`cargo test --benches`), which
/// runs everything once with small set-ups.
pub fn is_measurement() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Whether to measure the sizes that take minutes to set up.
pub fn measures_largest_sizes() -> bool {
    is_measurement() && std::env::var_os("LOCKWHEEL_BENCH_FULL").is_some()
}

/// Returns how long the work takes. Its result is dropped outside the measured time.
pub fn time<R>(work: impl FnOnce() -> R) -> Duration {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    std::hint::black_box(result);
    elapsed
}

/// The commit of the checkout, marked if files are modified; empty outside a checkout.
pub fn git_commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Splits `count` operations into chunks of [`CHUNK`]; the last one may be smaller.
pub fn chunks(count: u64) -> impl Iterator<Item = usize> {
    (0..count).step_by(CHUNK).map(move |done| (count - done).min(CHUNK as u64) as usize)
}

/// Returns how long `count` operations take; `chunk` times at most [`CHUNK`] of them.
pub fn in_chunks(count: u64, chunk: impl FnMut(usize) -> Duration) -> Duration {
    chunks(count).map(chunk).sum()
}

/// Repeatable pseudo-random numbers (xorshift64*) of negligible cost.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with a fixed seed.
    pub fn new() -> Random {
        Random(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number below the bound, which must not be zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * u64::from(bound)) >> 32) as u32
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}
