//! The hash function of keys, which remembers what it has hashed of late: a lock's script names
//! the same key some ten times, and to compare it is cheaper than to hash it.

use std::cell::RefCell;

use super::dict::HashSeed;

/// Longer keys are hashed each time. Lock names are shorter, and this makes a line 72 bytes.
const KEY_BYTES_MAX: usize = 63;

/// Keys that are remembered, as a power of two: the scripts of locks name up to four, and a few
/// requests are looked at ahead.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 6;

/// See the module's documentation.
#[derive(Debug)]
pub struct KeyHasher {
    /// What every hash is keyed with.
    pub seed: HashSeed,
    lines: RefCell<[Line; LINES]>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    hash: u64,
    length: u8,
    key: [u8; KEY_BYTES_MAX],
}

impl KeyHasher {
    /// A hash function of its own for every seed.
    pub fn new(seed: HashSeed) -> KeyHasher {
        let empty = Line { hash: seed.hash(b""), length: 0, key: [0; KEY_BYTES_MAX] };
        KeyHasher { seed, lines: RefCell::new([empty; LINES]) }
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        if key.len() > KEY_BYTES_MAX {
            return self.seed.hash(key);
        }
        let line = &mut self.lines.borrow_mut()[line_of(key)];
        if line.key[..usize::from(line.length)] != *key {
            line.hash = self.seed.hash(key);
            line.length = key.len() as u8;
            line.key[..key.len()].copy_from_slice(key);
        }
        line.hash
    }
}

/// Where a key is remembered. The names of one lock's keys differ in length, those of several locks
/// at their end.
fn line_of(key: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let end = match key.last_chunk() {
        Some(&end) => u64::from_le_bytes(end),
        None => key.last().copied().map_or(0, u64::from),
    };
    let mixed = (end ^ key.len() as u64).wrapping_mul(MULTIPLIER);
    (mixed >> (u64::BITS - LINE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_hash_is_that_of_the_key() {
        let hasher = KeyHasher::new(HashSeed(1, 2));
        let long = [b'k'; KEY_BYTES_MAX + 1];
        let mut keys: Vec<&[u8]> = (0..=long.len()).map(|length| &long[..length]).collect();
        keys.extend([&b"a"[..], b"e", b"\0", b"ab", b"eb", b"a"]);
        for key in keys.iter().chain(keys.iter().rev()) {
            for _ in 0..2 {
                assert_eq!(hasher.hash(key), hasher.seed.hash(key), "{key:?}");
            }
        }
    }
}
