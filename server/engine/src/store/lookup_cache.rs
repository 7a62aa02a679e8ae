//! A cache of look-ups of keys: the script of a lock names the same key some ten times, and
//! comparing the key is cheaper than hashing it and searching for it again.
//!
//! Invariant: a cached hash is always that of its key; a cached slot (or absence) is valid only
//! until any key is added or removed.

use super::dict::{HashSeed, Slot};
use crate::store::counter::increment;

/// Length of the longest key in the cache; longer ones are hashed each time. Lock names are
/// shorter, and with this limit a line has 96 bytes.
const KEY_BYTES_MAX: usize = 63;

/// The number of cached keys: the scripts of locks name up to four, and a few requests are
/// prefetched.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 6;

/// Bytes of a word, by which keys are compared.
const WORD_BYTES: usize = 8;

/// The line after those of the short keys caches the latest longer key.
const LONG_LINE: usize = LINES;

/// A cache of key look-ups.
#[derive(Debug)]
pub struct LookupCache {
    seed: HashSeed,
    lines: Box<[Line; LINES + 1]>,
    /// The line of the latest key.
    latest: usize,
    /// Incremented when any key is added or removed.
    generation: u64,
    /// The generation that [`LookupCache::find`] accepts: the same, or one that no line has while
    /// the cache is bypassed.
    found_generation: u64,
}

/// The distance between the two generations while the cache is bypassed: more than there will be
/// generations.
const BYPASS: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
struct Line {
    hash: u64,
    /// The generation in which the key was searched for.
    generation: u64,
    database: usize,
    found: Option<Slot>,
    length: u8,
    key: [u8; KEY_BYTES_MAX],
}

impl LookupCache {
    /// Creates an empty cache.
    pub fn new(seed: HashSeed) -> LookupCache {
        let hash = seed.hash(b"");
        let empty = Line {
            hash,
            generation: 0,
            database: 0,
            found: None,
            length: 0,
            key: [0; KEY_BYTES_MAX],
        };
        LookupCache {
            seed,
            lines: Box::new([empty; LINES + 1]),
            latest: 0,
            generation: 1,
            found_generation: 1,
        }
    }

    /// The slot of a key, which becomes the latest key, if the slot is cached. May miss a cached
    /// slot of a very short key.
    ///
    /// Most look-ups end here. No function is called, not even to compare the bytes, so no register
    /// has to be saved.
    #[inline(always)]
    pub fn find(&mut self, database: usize, key: &[u8]) -> Option<Option<Slot>> {
        let end = key.last_chunk()?;
        let number = line_of_end(u64::from_le_bytes(*end), key.len());
        let line = &self.lines[number];
        let is_cached = usize::from(line.length) == key.len()
            && line.generation == self.found_generation
            && line.database == database;
        let cached = if is_cached { line.key.get(..key.len())? } else { return None };
        let words = key.as_chunks::<WORD_BYTES>().0.iter().zip(cached.as_chunks().0);
        for (one, other) in words {
            if u64::from_le_bytes(*one) != u64::from_le_bytes(*other) {
                return None;
            }
        }
        if cached.last_chunk() != Some(end) {
            return None;
        }
        self.latest = number;
        Some(line.found)
    }

    /// The hash of a key, which becomes the latest key.
    #[inline]
    pub fn hash(&mut self, key: &[u8]) -> u64 {
        if key.len() > KEY_BYTES_MAX {
            return self.hash_long(key);
        }
        self.latest = line_of(key);
        let line = &mut self.lines[self.latest];
        if usize::from(line.length) != key.len() || line.key[..key.len()] != *key {
            line.hash = self.seed.hash(key);
            line.generation = 0;
            line.length = key.len() as u8;
            line.key[..key.len()].copy_from_slice(key);
        }
        line.hash
    }

    #[cold]
    fn hash_long(&mut self, key: &[u8]) -> u64 {
        self.latest = LONG_LINE;
        let line = &mut self.lines[LONG_LINE];
        (line.hash, line.generation) = (self.seed.hash(key), 0);
        line.hash
    }

    /// The slot of the latest key, if it is cached: `Some(None)` if the key is absent.
    #[inline]
    pub fn slot(&self, database: usize) -> Option<Option<Slot>> {
        let line = &self.lines[self.latest];
        (line.generation == self.generation && line.database == database).then_some(line.found)
    }

    /// Caches the slot of the latest key.
    #[inline]
    pub fn set_slot(&mut self, database: usize, found: Option<Slot>) {
        let line = &mut self.lines[self.latest];
        (line.generation, line.database, line.found) = (self.generation, database, found);
    }

    /// The hash of the key in a slot, if that is the latest key.
    #[inline]
    pub fn hash_at(&self, database: usize, slot: Slot) -> Option<u64> {
        (self.slot(database) == Some(Some(slot))).then_some(self.lines[self.latest].hash)
    }

    /// Invalidates all cached slots, because a key is added or removed.
    #[inline]
    pub fn invalidate_slots(&mut self) {
        increment(&mut self.generation);
        increment(&mut self.found_generation);
    }

    /// Sets whether [`LookupCache::find`] finds nothing instead of what is cached.
    pub fn bypass(&mut self, is_bypassed: bool) {
        self.found_generation = self.generation + if is_bypassed { BYPASS } else { 0 };
    }
}

/// The line of a key. The names of one lock's keys differ in length, those of several locks at
/// their end.
fn line_of(key: &[u8]) -> usize {
    let end = match key.last_chunk() {
        Some(&end) => u64::from_le_bytes(end),
        None => key.last().copied().map_or(0, u64::from),
    };
    line_of_end(end, key.len())
}

/// The line of a key with this end and length.
#[inline(always)]
fn line_of_end(end: u64, length: usize) -> usize {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = (end ^ length as u64).wrapping_mul(MULTIPLIER);
    (mixed >> (u64::BITS - LINE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_hash_is_that_of_the_key() {
        let seed = HashSeed(1, 2);
        let mut cache = LookupCache::new(seed);
        let long = [b'k'; KEY_BYTES_MAX + 1];
        let mut keys: Vec<&[u8]> = (0..=long.len()).map(|length| &long[..length]).collect();
        keys.extend([&b"a"[..], b"e", b"\0", b"ab", b"eb", b"a"]);
        for key in keys.iter().chain(keys.iter().rev()) {
            for _ in 0..2 {
                assert_eq!(cache.hash(key), seed.hash(key), "{key:?}");
            }
        }
    }

    #[test]
    fn cached_slot_is_valid_until_a_key_is_added_or_removed() {
        let mut cache = LookupCache::new(HashSeed(1, 2));
        let long = [b'k'; KEY_BYTES_MAX + 1];
        for key in [&b""[..], b"a", &long] {
            for found in [None, Some(7)] {
                let hash = cache.hash(key);
                assert_eq!(cache.slot(0), None);
                cache.set_slot(0, found);
                assert_eq!((cache.slot(0), cache.slot(1)), (Some(found), None));
                assert_eq!(cache.hash_at(0, 7), found.map(|_| hash));
                assert_eq!((cache.hash_at(0, 8), cache.hash_at(1, 7)), (None, None));
                cache.hash(b"another");
                assert_eq!((cache.slot(0), cache.hash_at(0, 7)), (None, None));
                cache.hash(key);
                let is_short = key.len() <= KEY_BYTES_MAX;
                assert_eq!(cache.slot(0), is_short.then_some(found));
                cache.invalidate_slots();
                assert_eq!(cache.slot(0), None);
            }
        }
    }

    #[test]
    fn cached_slot_is_found_by_the_same_key_only() {
        let key = *b"redisson_lock__channel:{lock:12345}";
        for length in [8, 9, 15, 16, 17, 24, key.len()] {
            let mut cache = LookupCache::new(HashSeed(1, 2));
            cache.hash(&key[..length]);
            cache.set_slot(0, Some(7));
            assert_eq!(cache.find(0, &key[..length]), Some(Some(7)));
            assert_eq!(
                (cache.find(1, &key[..length]), cache.find(0, &key[..length - 1])),
                (None, None)
            );
            for at in 0..length {
                let mut other = key;
                other[at] ^= 1;
                assert_eq!(cache.find(0, &other[..length]), None, "{at} of {length}");
            }
            cache.hash(&[b'k'; KEY_BYTES_MAX + 1]);
            assert_eq!(cache.find(0, &key[..length]), Some(Some(7)));
            assert_eq!(cache.hash_at(0, 7), Some(HashSeed(1, 2).hash(&key[..length])));
            cache.invalidate_slots();
            assert_eq!(cache.find(0, &key[..length]), None);
        }
    }
}
