//! What the benches share. It must not know what is measured.

#![allow(clippy::disallowed_methods)] // To measure is to read the clock.

pub mod operations;
pub mod stage;

use std::time::{Duration, Instant};

/// Operations timed together, so that reading the clock leaves no mark.
pub const CHUNK: usize = 256;

/// Whether this is a measurement (`cargo bench`) rather than a test (`cargo test --benches`), which
/// runs everything once and wants small set-ups.
pub fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Whether the sizes that take minutes to set up are asked for.
pub fn full() -> bool {
    measuring() && std::env::var_os("LOCKWHEEL_BENCH_FULL").is_some()
}

/// How long the work takes. What it returns is dropped after the clock has stopped.
pub fn time<R>(work: impl FnOnce() -> R) -> Duration {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    std::hint::black_box(result);
    elapsed
}

/// The sizes of the chunks that `count` operations make: [`CHUNK`], and what is left.
pub fn chunks(count: u64) -> impl Iterator<Item = usize> {
    (0..count).step_by(CHUNK).map(move |done| (count - done).min(CHUNK as u64) as usize)
}

/// How long `count` operations take of which `chunk` times at most [`CHUNK`].
pub fn in_chunks(count: u64, chunk: impl FnMut(usize) -> Duration) -> Duration {
    chunks(count).map(chunk).sum()
}

/// Repeatable pseudo-random numbers (xorshift64*), cheap enough to leave no mark.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The same sequence every time.
    pub fn new() -> Random {
        Random(0x9E37_79B9_7F4A_7C15)
    }

    /// A number below the bound, which must not be zero.
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
