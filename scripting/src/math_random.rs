//! The generator of `math.random`. Scripts and functions share one, which goes on from script to
//! script.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MODULUS: u64 = 1 << 48;

/// The 48-bit linear congruential generator of `lrand48`, as in Redis. Clones are the same
/// generator. The numbers are no secrets: a few of them show all that follow.
#[derive(Clone, Debug)]
pub struct MathRandom(Arc<AtomicU64>);

impl MathRandom {
    /// A generator whose numbers depend only on the low 48 bits of `seed`.
    pub fn new(seed: u64) -> MathRandom {
        MathRandom(Arc::new(AtomicU64::new(seed % MODULUS)))
    }

    /// Starts again from a seed, as `srand48` does.
    pub(crate) fn reseed(&self, seed: u32) {
        self.0.store(u64::from(seed) << 16 | 0x330E, Ordering::Relaxed);
    }

    /// The next number, in `0.0..1.0`.
    pub(crate) fn next(&self) -> f64 {
        const RANGE: u64 = i32::MAX as u64;
        let before = self.0.load(Ordering::Relaxed);
        let state = before.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) % MODULUS;
        self.0.store(state, Ordering::Relaxed);
        ((state >> 17) % RANGE) as f64 / RANGE as f64
    }
}
