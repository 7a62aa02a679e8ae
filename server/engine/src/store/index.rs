//! Finds the slot of a key by the key's hash. The keys are opaque here: the caller compares them.
//!
//! A hash table that grows or shrinks moves all its entries, and moving a million takes a tenth of
//! a second. So beyond a few thousand entries there are many tables, selected by some bits of the
//! hash, each of which grows and shrinks on its own.
//!
//! Invariant: the hash of an entry never changes.

use hashbrown::HashTable;

use super::dict::Slot;

/// The number of tables once one is too large. With a million entries each has fewer than 500.
const TABLES: usize = 2048;
/// The number of entries at which one table is split: some 0.3 ms of work.
const SPLIT_ABOVE: usize = 4096;
/// The number of entries below which the tables are merged again; far lower, so that an index does
/// not keep switching.
const MERGE_BELOW: usize = 512;
/// The position of the hash bits that select the table. A table itself uses the lowest and the
/// highest bits.
const TABLE_SHIFT: u32 = 40;

/// Smallest capacity at which a table gives up its memory: growing again would cost more. Also,
/// libc caches free blocks of up to a KiB, and memory below such a block is not returned to the
/// system.
const SHRINK_FLOOR: usize = 256;
/// The same for one of many tables. All of their memory is freed when they are merged.
const SHRINK_FLOOR_OF_MANY: usize = 7;

/// The maximum number of entries that shrinking may move at once. After a mass release all tables
/// become too large at about the same time; each removal earns the move of one entry, up to this.
const SHRINK_CREDIT_MAX: usize = 512;

/// The slots of keys by hash.
#[derive(Debug)]
pub struct Index {
    tables: Tables,
    len: usize,
    shrink_credit: usize,
}

#[derive(Debug)]
enum Tables {
    One(HashTable<Slot>),
    Many(Box<[HashTable<Slot>]>),
}

impl Default for Index {
    /// An empty index, which takes no memory.
    fn default() -> Index {
        Index { tables: Tables::One(HashTable::new()), len: 0, shrink_credit: 0 }
    }
}

impl Index {
    /// The entry with this hash for which `is_it` returns true.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.table(hash).find(hash, |&slot| is_it(slot)).copied()
    }

    /// Adds an entry. `hash_of` returns the hash of an existing entry, and `prefetch` touches the
    /// memory that `hash_of` will read: keys can be anywhere, but several can be fetched at the
    /// same time.
    pub fn insert(
        &mut self,
        hash: u64,
        slot: Slot,
        prefetch: impl Fn(Slot),
        hash_of: impl Fn(Slot) -> u64,
    ) {
        if self.len >= SPLIT_ABOVE && matches!(self.tables, Tables::One(_)) {
            self.split(&hash_of);
        }
        let table = self.table_mut(hash);
        if table.len() == table.capacity() {
            // The table is about to grow.
            table.iter().for_each(|&slot| prefetch(slot));
        }
        table.insert_unique(hash, slot, |&slot| hash_of(slot));
        self.len += 1;
    }

    /// Reserves room for this many entries in an empty index, so that it need not grow.
    pub fn reserve(&mut self, entries: usize) {
        let is_empty = self.len == 0 && matches!(self.tables, Tables::One(_));
        if is_empty && entries > SPLIT_ABOVE {
            let table = || HashTable::with_capacity(entries / TABLES);
            self.tables = Tables::Many((0..TABLES).map(|_| table()).collect());
        }
    }

    /// Removes an entry, and frees memory after a mass release. `prefetch` and `hash_of` are as for
    /// `insert`.
    pub fn remove(
        &mut self,
        hash: u64,
        slot: Slot,
        prefetch: impl Fn(Slot),
        hash_of: impl Fn(Slot) -> u64,
    ) {
        if self.shrink_credit < SHRINK_CREDIT_MAX {
            self.shrink_credit += 1;
        }
        self.len -= 1;
        let (table, floor, can_merge) = match &mut self.tables {
            Tables::One(table) => (table, SHRINK_FLOOR, false),
            Tables::Many(tables) => {
                let can_merge = self.len < MERGE_BELOW;
                (&mut tables[number_of(hash)], SHRINK_FLOOR_OF_MANY, can_merge)
            }
        };
        match table.find_entry(hash, |&other| other == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("slot {slot} is not indexed"),
        }
        let capacity = table.capacity();
        if capacity > floor && table.len() < capacity / 8 {
            self.shrink(hash, prefetch, &hash_of);
        }
        if can_merge {
            self.merge(&hash_of);
        }
    }

    /// Frees a part of an index that is no longer used. Returns whether there was one.
    pub fn free_part(&mut self) -> bool {
        /// Tables that are freed at a time, of some KiB each.
        const TABLES_PART: usize = 16;
        match &mut self.tables {
            Tables::One(table) if table.capacity() == 0 => return false,
            Tables::One(table) => *table = HashTable::new(),
            Tables::Many(tables) => {
                let mut left = std::mem::take(tables).into_vec();
                left.truncate(left.len().saturating_sub(TABLES_PART));
                self.tables = match left.is_empty() {
                    true => Tables::One(HashTable::new()),
                    false => Tables::Many(left.into_boxed_slice()),
                };
            }
        }
        true
    }

    /// Shrinks the table of this hash, which is mostly empty, if the credit suffices.
    #[cold]
    fn shrink(&mut self, hash: u64, prefetch: impl Fn(Slot), hash_of: impl Fn(Slot) -> u64) {
        let credit = self.shrink_credit;
        let table = self.table_mut(hash);
        if let Some(left) = credit.checked_sub(table.len()) {
            table.iter().for_each(|&slot| prefetch(slot));
            table.shrink_to(table.len() * 2, |&slot| hash_of(slot));
            self.shrink_credit = left;
        }
    }

    fn table(&self, hash: u64) -> &HashTable<Slot> {
        match &self.tables {
            Tables::One(table) => table,
            Tables::Many(tables) => &tables[number_of(hash)],
        }
    }

    fn table_mut(&mut self, hash: u64) -> &mut HashTable<Slot> {
        match &mut self.tables {
            Tables::One(table) => table,
            Tables::Many(tables) => &mut tables[number_of(hash)],
        }
    }

    #[cold]
    fn split(&mut self, hash_of: impl Fn(Slot) -> u64) {
        let many = (0..TABLES).map(|_| HashTable::new()).collect();
        self.rebuild(Tables::Many(many), hash_of);
    }

    #[cold]
    fn merge(&mut self, hash_of: impl Fn(Slot) -> u64) {
        let one = HashTable::with_capacity(self.len * 2);
        self.rebuild(Tables::One(one), hash_of);
    }

    fn rebuild(&mut self, tables: Tables, hash_of: impl Fn(Slot) -> u64) {
        let old = std::mem::replace(&mut self.tables, tables);
        let old = match &old {
            Tables::One(table) => std::slice::from_ref(table),
            Tables::Many(tables) => tables,
        };
        for &slot in old.iter().flatten() {
            let hash = hash_of(slot);
            self.table_mut(hash).insert_unique(hash, slot, |&slot| hash_of(slot));
        }
    }
}

/// The number of the table of this hash, of many.
fn number_of(hash: u64) -> usize {
    (hash >> TABLE_SHIFT) as usize % TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Index {
        pub(in crate::store) fn entries(&self) -> usize {
            self.len
        }
    }

    /// A pseudo-random hash, different for each slot.
    fn hash_of(slot: Slot) -> u64 {
        let mixed = (u64::from(slot) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    fn places(index: &Index) -> usize {
        match &index.tables {
            Tables::One(table) => table.capacity(),
            Tables::Many(tables) => tables.iter().map(HashTable::capacity).sum(),
        }
    }

    #[test]
    fn every_entry_is_found_at_any_size() {
        const ENTRIES: Slot = 100_000;
        let mut index = Index::default();
        let found = |index: &Index, slot| index.find(hash_of(slot), |other| other == slot);
        for slot in 0..ENTRIES {
            assert_eq!(found(&index, slot), None);
            index.insert(hash_of(slot), slot, |_| {}, hash_of);
        }
        assert!((0..ENTRIES).all(|slot| found(&index, slot) == Some(slot)));
        assert_eq!(index.entries(), ENTRIES as usize);
        for slot in 100..ENTRIES {
            index.remove(hash_of(slot), slot, |_| {}, hash_of);
            assert_eq!(found(&index, slot), None);
        }
        assert!((0..100).all(|slot| found(&index, slot) == Some(slot)));
        assert!(places(&index) <= 2 * MERGE_BELOW, "{} for 100", places(&index));
    }

    #[test]
    fn reserved_index_grows_little() {
        let mut index = Index::default();
        index.reserve(100_000);
        let reserved = places(&index);
        for slot in 0..100_000 {
            index.insert(hash_of(slot), slot, |_| {}, hash_of);
        }
        // Some tables get more than their share.
        assert!(places(&index) < reserved + reserved / 4, "{} of {reserved}", places(&index));
        assert!((0..100_000).all(|slot| index.find(hash_of(slot), |it| it == slot).is_some()));
    }

    #[test]
    fn merging_many_tables_frees_little_at_once() {
        let mut index = Index::default();
        for slot in 0..100_000 {
            index.insert(hash_of(slot), slot, |_| {}, hash_of);
        }
        for slot in MERGE_BELOW as Slot..100_000 {
            index.remove(hash_of(slot), slot, |_| {}, hash_of);
        }
        assert!(matches!(index.tables, Tables::Many(_)), "united too early");
        assert!(places(&index) < TABLES * SHRINK_FLOOR_OF_MANY, "keep {}", places(&index));
    }

    #[test]
    fn no_table_of_many_is_large() {
        let mut index = Index::default();
        for slot in 0..100_000 {
            index.insert(hash_of(slot), slot, |_| {}, hash_of);
        }
        let Tables::Many(tables) = &index.tables else { unreachable!("so many in one table") };
        assert!(tables.iter().all(|table| table.len() < 120), "a table moves all it holds at once");
    }
}
