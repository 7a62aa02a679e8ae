//! The hash function of keys, which remembers what it has hashed of late: a lock's script names
//! the same key some ten times, and to compare it is cheaper than to hash it.

use std::cell::RefCell;

use super::dict::HashSeed;

/// Longer keys are hashed each time. Lock names are shorter, and this makes a line 72 bytes.
const KEY_BYTES_MAX: usize = 63;

/// Keys that are remembered: the scripts of locks name up to four.
const LINES: usize = 4;

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
        // The names of one lock's keys differ in length, those of several locks at their end.
        let mixed = key.len() ^ usize::from(key.last().copied().unwrap_or_default());
        let line = &mut self.lines.borrow_mut()[mixed % LINES];
        if line.key[..usize::from(line.length)] != *key {
            line.hash = self.seed.hash(key);
            line.length = key.len() as u8;
            line.key[..key.len()].copy_from_slice(key);
        }
        line.hash
    }
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
