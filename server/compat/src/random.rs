//! Pseudo-random numbers: the same seed gives the same numbers.

/// A stream of numbers (SplitMix64), for choices in tests. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// An independent stream of the same seed, for the client or episode of that number.
    pub fn of(seed: u64, number: u64) -> Random {
        let mut parent = Random(seed ^ number.wrapping_mul(0xd129_0d3d_41f0_5a7b));
        Random(parent.bits())
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, inclusive.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        let span = most.abs_diff(least);
        let offset = if span == u64::MAX { self.bits() } else { self.below(span + 1) };
        least.wrapping_add_unsigned(offset)
    }

    /// True with probability 1 in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One element of a slice that must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn same_seed_gives_same_numbers() {
        let stream = |seed, number| {
            let mut random = Random::of(seed, number);
            [random.bits(), random.below(10), random.bits()]
        };
        assert_eq!(stream(1, 2), stream(1, 2));
        assert_ne!(stream(1, 2), stream(1, 3));
        assert_ne!(stream(1, 2), stream(2, 2));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            let number = random.between(-2, 2);
            seen[usize::try_from(number + 2).expect("from -2 on")] = true;
        }
        assert_eq!(seen, [true; 5]);
        random.between(i64::MIN, i64::MAX);
    }
}
