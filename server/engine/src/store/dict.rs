//! A hash map from byte strings to values, with stable positions.
//!
//! Entries are in numbered slots and do not move, so a slot's number can serve as a timer's payload
//! and as a `SCAN` cursor: an iteration sees every entry that exists for the whole of it. The order
//! that clients can see follows from the sequence of commands alone, never from the hash seed.

use std::collections::BTreeSet;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::garbage::free_end;
use crate::random::Random;

/// The number of a slot. It stays with its entry until the entry is removed.
pub type Slot = u32;

/// The key of the hash function: drawn at start, so that clients cannot prepare colliding keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed(pub u64, pub u64);

impl HashSeed {
    /// The hash of a key.
    pub(crate) fn hash(self, key: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.0, self.1).hash(key)
    }
}

/// A hash map from byte strings to values, with stable positions.
#[derive(Clone, Debug)]
pub struct Dict<V> {
    seed: HashSeed,
    index: HashTable<Slot>,
    slots: Vec<SlotContent<V>>,
    free: Option<Slot>,
}

#[derive(Clone, Debug)]
enum SlotContent<V> {
    /// A key with its value.
    Taken(Box<[u8]>, V),
    /// Holds the next free slot.
    Free(Option<Slot>),
}

/// Fewest slots at which an emptied dictionary gives up its memory: growing again would cost more.
const SHRINK_FLOOR: usize = 64;

impl<V> Dict<V> {
    /// Creates an empty dictionary.
    pub fn new(seed: HashSeed) -> Dict<V> {
        Dict { seed, index: HashTable::new(), slots: Vec::new(), free: None }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The slot of the entry of `key`.
    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        let hash = self.seed.hash(key);
        self.index.find(hash, |&slot| self.key(slot) == key).copied()
    }

    /// The key in an occupied slot.
    pub fn key(&self, slot: Slot) -> &[u8] {
        match &self.slots[slot as usize] {
            SlotContent::Taken(key, _) => key,
            SlotContent::Free(_) => unreachable!("slot {slot} is free"),
        }
    }

    /// The value in an occupied slot.
    pub fn value(&self, slot: Slot) -> &V {
        match &self.slots[slot as usize] {
            SlotContent::Taken(_, value) => value,
            SlotContent::Free(_) => unreachable!("slot {slot} is free"),
        }
    }

    /// The value in an occupied slot.
    pub fn value_mut(&mut self, slot: Slot) -> &mut V {
        match &mut self.slots[slot as usize] {
            SlotContent::Taken(_, value) => value,
            SlotContent::Free(_) => unreachable!("slot {slot} is free"),
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|slot| self.value(slot))
    }

    /// The value of `key`.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.find(key).map(|slot| self.value_mut(slot))
    }

    /// Adds an entry; its key must be absent.
    pub fn insert_new(&mut self, key: &[u8], value: V) -> Slot {
        let place = SlotContent::Taken(key.into(), value);
        let slot = match self.free {
            Some(slot) => {
                let SlotContent::Free(next) = self.slots[slot as usize] else {
                    unreachable!("slot {slot} is on the free list")
                };
                self.free = next;
                self.slots[slot as usize] = place;
                slot
            }
            None => {
                let slot = Slot::try_from(self.slots.len()).expect("fewer than 2^32 entries");
                self.slots.push(place);
                slot
            }
        };
        let (seed, slots) = (self.seed, &self.slots);
        self.index.insert_unique(seed.hash(key), slot, |&slot| match &slots[slot as usize] {
            SlotContent::Taken(key, _) => seed.hash(key),
            SlotContent::Free(_) => unreachable!("slot {slot} is indexed"),
        });
        slot
    }

    /// Sets the value of `key`; returns the previous one.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        if let Some(slot) = self.find(key) {
            return Some(std::mem::replace(self.value_mut(slot), value));
        }
        self.insert_new(key, value);
        None
    }

    /// Removes the entry of `key`.
    pub fn remove(&mut self, key: &[u8]) -> Option<(Box<[u8]>, V)> {
        self.find(key).map(|slot| self.remove_slot(slot))
    }

    /// Removes the entry in an occupied slot.
    pub fn remove_slot(&mut self, slot: Slot) -> (Box<[u8]>, V) {
        let hash = self.seed.hash(self.key(slot));
        match self.index.find_entry(hash, |&other| other == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("slot {slot} is not indexed"),
        }
        let place = std::mem::replace(&mut self.slots[slot as usize], SlotContent::Free(self.free));
        self.free = Some(slot);
        self.shrink();
        match place {
            SlotContent::Taken(key, value) => (key, value),
            SlotContent::Free(_) => unreachable!("slot {slot} is free"),
        }
    }

    /// Frees up to `budget` entries of a dictionary that is no longer used. Returns whether there
    /// are more.
    pub(super) fn free_part(&mut self, budget: &mut usize) -> bool {
        self.index = HashTable::new();
        free_end(&mut self.slots, budget)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Dict::new(self.seed);
    }

    /// All entries, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.slots.iter().filter_map(|place| match place {
            SlotContent::Taken(key, value) => Some((&**key, value)),
            SlotContent::Free(_) => None,
        })
    }

    /// Occupied slots in order, from `cursor` on, among the next `count` slots. The second part is
    /// the next cursor, 0 at the end.
    pub fn scan(&self, cursor: u64, count: usize) -> (impl Iterator<Item = Slot>, u64) {
        let len = self.slots.len();
        let start = usize::try_from(cursor).unwrap_or(usize::MAX).min(len);
        let end = start.saturating_add(count).min(len);
        let taken = (start..end)
            .filter(|&at| matches!(self.slots[at], SlotContent::Taken(..)))
            .map(|at| at as Slot);
        (taken, if end == len { 0 } else { end as u64 })
    }

    /// A random entry, nearly uniform; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<Slot> {
        if self.is_empty() {
            return None;
        }
        // Random trials before the slots, which are then sparse, are scanned from a random place.
        const TRIALS: usize = 128;
        let len = self.slots.len();
        for _ in 0..TRIALS {
            let at = random.below(len);
            if matches!(self.slots[at], SlotContent::Taken(..)) {
                return Some(at as Slot);
            }
        }
        let start = random.below(len);
        (start..len)
            .chain(0..start)
            .find(|&at| matches!(self.slots[at], SlotContent::Taken(..)))
            .map(|at| at as Slot)
    }

    /// `count` distinct slots drawn at random, in order. At most half of all entries, so that at
    /// least every other draw finds a new one.
    pub(super) fn random_distinct(
        &self,
        count: usize,
        random: &mut Random,
    ) -> impl Iterator<Item = Slot> + use<V> {
        let mut slots = BTreeSet::new();
        while slots.len() < count {
            slots.extend(self.random(random));
        }
        slots.into_iter()
    }

    /// Frees memory after a mass release. Entries never move, so slots can only be dropped once the
    /// dictionary is empty; the index shrinks when it is mostly empty.
    fn shrink(&mut self) {
        if self.slots.len() < SHRINK_FLOOR {
            return;
        }
        if self.index.is_empty() {
            self.clear();
        } else if self.index.capacity() > SHRINK_FLOOR
            && self.index.len() < self.index.capacity() / 8
        {
            let (seed, slots) = (self.seed, &self.slots);
            self.index.shrink_to(self.index.len() * 2, |&slot| match &slots[slot as usize] {
                SlotContent::Taken(key, _) => seed.hash(key),
                SlotContent::Free(_) => unreachable!("slot {slot} is indexed"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_after_a_mass_release() {
        const ENTRIES: usize = 10_000;
        let mut dict = Dict::new(HashSeed(1, 2));
        let key = |n: usize| n.to_be_bytes();
        let slots: Vec<Slot> = (0..ENTRIES).map(|n| dict.insert_new(&key(n), n)).collect();
        for &slot in &slots[100..] {
            dict.remove_slot(slot);
        }
        assert!(dict.index.capacity() < ENTRIES / 8, "{} for 100", dict.index.capacity());
        assert!((0..100).all(|n| dict.find(&key(n)) == Some(slots[n])));
        for &slot in &slots[..100] {
            dict.remove_slot(slot);
        }
        assert_eq!((dict.slots.capacity(), dict.index.capacity()), (0, 0));
        assert_eq!(dict.insert_new(&key(1), 1), 0);
    }
}
