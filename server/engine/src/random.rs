//! The engine's random numbers: a generator with a given seed, so that a run can be repeated.

/// SplitMix64: small, fast, and good enough to pick keys, but not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of numbers that depend only on `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An id of 40 hex digits.
    pub(crate) fn hex_id(&mut self) -> String {
        let (a, b, c) = (self.bits(), self.bits(), self.bits() >> 32);
        format!("{a:016x}{b:016x}{c:08x}")
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing to choose from");
        let product = u128::from(self.bits()) * bound as u128;
        (product >> 64) as usize
    }
}
