//! Runs two engines that differ only in `script-plans` side by side and compares them. Independent
//! of the test framework, because the fuzz target is built from the same files.

pub mod builtins;
pub mod grammar;
pub mod pair;
pub mod recording_host;
pub mod trial;

pub use pair::Pair;

/// A deterministic random number generator.
pub struct Chance(pub u64);

impl Chance {
    /// The generator for one script of a seed.
    pub fn of(seed: u64, number: u64) -> Chance {
        // Mixed twice: the states of two scripts must not be in one sequence.
        let seed = Chance(seed).bits();
        Chance(Chance(seed ^ number).bits())
    }

    /// SplitMix64, of Steele, Lea and Flood.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below the given one.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 33) as usize % bound.max(1)
    }
}
