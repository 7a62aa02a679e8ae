//! Slabs: numbered places for values of one type, in chunks. [`Chunks`] allocates the numbers,
//! whatever the memory is. [`Slab`] is for values of any type, and [`PodSlab`] for plain data by
//! the million.
//!
//! Invariants:
//! - A value does not move and keeps its number until it is removed. So a number can be a `SCAN`
//!   cursor, a timer, and what an index points to.
//! - A new value gets the lowest free number of the lowest chunk with room, so the numbers that
//!   clients see follow from the commands alone, and the values left after a mass release gather in
//!   front.
//! - Several chunks share a block of memory. Empty blocks have no memory, except for one spare
//!   block, so that a single value that comes and goes costs no allocation. Growing copies no
//!   value.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pages::Pages;
use crate::random::Random;

/// Values of a chunk: one bit each in a word.
const CHUNK: usize = u64::BITS as usize;

/// Chunks of a block of pages of the operating system. Enough that the cost of a system call is
/// negligible per value, and that Linux, which allows a process about 65,000 mappings (adjacent
/// ones count as one), has room for the blocks of fifty million keys; few enough that little memory
/// is kept for the last value of a block.
pub const PAGES_BLOCK: usize = if cfg!(test) { 2 } else { 32 };
/// Values of such a block.
pub const PAGES_PLACES: usize = PAGES_BLOCK * CHUNK;

/// The number of chunk headers that an emptied slab keeps.
const SHRINK_FLOOR: usize = 16;

/// Allocates numbered places in chunks, of which `BLOCK` share a memory `M`.
#[derive(Debug)]
pub struct Chunks<M, const BLOCK: usize> {
    /// Which places are occupied: a word for each chunk, a bit for each place.
    occupied: Vec<u64>,
    blocks: Vec<Block<M>>,
    /// Which chunks have room, one bit each.
    with_room: Bits,
    /// The first chunk with room, or the position of the next new chunk.
    first_with_room: usize,
    /// The lowest block that has memory but no values, if there is one.
    spare: Option<usize>,
    len: usize,
}

#[derive(Debug)]
struct Block<M> {
    /// The number of its chunks that have values.
    in_use: usize,
    memory: Option<M>,
}

impl<M, const BLOCK: usize> Default for Chunks<M, BLOCK> {
    /// An empty allocator, which takes no memory.
    fn default() -> Chunks<M, BLOCK> {
        Chunks {
            occupied: Vec::new(),
            blocks: Vec::new(),
            with_room: Bits::default(),
            first_with_room: 0,
            spare: None,
            len: 0,
        }
    }
}

impl<M, const BLOCK: usize> Chunks<M, BLOCK> {
    /// Places that share a memory.
    const PLACES: usize = BLOCK * CHUNK;

    /// The number of occupied places.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no place is occupied.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of an occupied number, and its position there.
    #[inline(always)]
    pub fn at(&self, number: u32) -> (&M, usize) {
        let number = number as usize;
        match &self.blocks[number / Self::PLACES].memory {
            Some(memory) => (memory, number % Self::PLACES),
            None => unreachable!("{number} is free"),
        }
    }

    /// The memory of an occupied number, and its position there.
    #[inline(always)]
    pub fn at_mut(&mut self, number: u32) -> (&mut M, usize) {
        let number = number as usize;
        match &mut self.blocks[number / Self::PLACES].memory {
            Some(memory) => (memory, number % Self::PLACES),
            None => unreachable!("{number} is free"),
        }
    }

    /// Allocates a place. Returns its number, its memory (created by `memory` if there is none) and
    /// its position there.
    #[inline(always)]
    pub fn allocate(&mut self, memory: impl FnOnce() -> M) -> (u32, &mut M, usize) {
        let at = self.first_with_room;
        if at == self.occupied.len() {
            self.grow();
        }
        let before = self.occupied[at];
        let number = at * CHUNK + (!before).trailing_zeros() as usize;
        self.occupied[at] |= before + 1;
        if before == 0 {
            self.mark_chunk_used(at);
        }
        if self.occupied[at] == u64::MAX {
            self.advance_first();
        }
        self.len += 1;
        let memory = self.blocks[at / BLOCK].memory.get_or_insert_with(memory);
        let name = u32::try_from(number).expect("fewer than 2^32 things");
        (name, memory, number % Self::PLACES)
    }

    /// Adds a chunk when there is no room, perhaps in a new block without memory.
    #[cold]
    fn grow(&mut self) {
        let at = self.occupied.len();
        if at == self.blocks.len() * BLOCK {
            self.blocks.push(Block { in_use: 0, memory: None });
        }
        self.with_room.set(at, true);
        self.occupied.push(0);
    }

    /// Accounts for the first value of a chunk.
    #[cold]
    fn mark_chunk_used(&mut self, at: usize) {
        let block = at / BLOCK;
        self.blocks[block].in_use += 1;
        self.spare = self.spare.filter(|&spare| spare != block);
    }

    /// Moves `first_with_room` on when its chunk is full.
    #[cold]
    fn advance_first(&mut self) {
        self.with_room.set(self.first_with_room, false);
        self.first_with_room = self.with_room.first().unwrap_or(self.occupied.len());
    }

    /// Accounts for room in a chunk that was full.
    #[cold]
    fn reopen_chunk(&mut self, at: usize) {
        self.with_room.set(at, true);
        self.first_with_room = self.first_with_room.min(at);
    }

    /// Releases a place; its number can be allocated again.
    #[inline(always)]
    pub fn release(&mut self, number: u32) {
        let (at, place) = (number as usize / CHUNK, number as usize % CHUNK);
        let before = self.occupied[at];
        assert!(before & (1 << place) != 0, "{number} is free");
        self.occupied[at] = before & !(1 << place);
        self.len -= 1;
        match before {
            u64::MAX => self.reopen_chunk(at),
            before if before == 1 << place => self.mark_chunk_empty(at),
            _ => {}
        }
    }

    /// Takes the memory of the last block out of an allocator that is no longer used.
    fn pop_memory(&mut self) -> Option<M> {
        std::iter::from_fn(|| self.blocks.pop()).find_map(|block| block.memory)
    }

    /// Frees the last block of an allocator that is no longer used. Returns whether there was one.
    pub fn free_part(&mut self) -> bool {
        self.pop_memory().is_some()
    }

    /// Occupied numbers in order, from `cursor` on, among the next `count` places; places of empty
    /// chunks are not counted. The second part is the next cursor, 0 at the end.
    pub fn scan(&self, cursor: u64, count: usize) -> (impl Iterator<Item = u32>, u64) {
        let len = self.occupied.len() * CHUNK;
        let start = usize::try_from(cursor).unwrap_or(usize::MAX).min(len);
        let (mut end, mut left) = (start, count);
        while left > 0 && end < len {
            let rest = CHUNK - end % CHUNK;
            let counts = self.occupied[end / CHUNK] != 0;
            let step = if counts { rest.min(left) } else { rest };
            left -= if counts { step } else { 0 };
            end += step;
        }
        let next = self.occupied_from(end).next().map_or(0, |_| end as u64);
        (self.occupied_from(start).take_while(move |&number| (number as usize) < end), next)
    }

    /// All occupied numbers, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.occupied_from(0)
    }

    /// A random occupied number, nearly uniform; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<u32> {
        /// Random trials before the slab, which is then sparse, is scanned from a random place.
        const TRIALS: usize = 128;
        if self.is_empty() {
            return None;
        }
        let len = self.occupied.len() * CHUNK;
        for _ in 0..TRIALS {
            let number = random.below(len);
            if self.occupied[number / CHUNK] & (1 << (number % CHUNK)) != 0 {
                return Some(number as u32);
            }
        }
        self.occupied_from(random.below(len)).chain(self.occupied_from(0)).next()
    }

    fn occupied_from(&self, start: usize) -> impl Iterator<Item = u32> {
        let (first, place) = (start / CHUNK, start % CHUNK);
        let chunks = self.occupied.iter().enumerate().skip(first);
        chunks.filter(|(_, taken)| **taken != 0).flat_map(move |(at, taken)| {
            let mask = if at == first { u64::MAX << place } else { u64::MAX };
            ones(taken & mask).map(move |bit| (at * CHUNK) as u32 + bit)
        })
    }

    /// Accounts for the loss of the last value of a chunk.
    #[cold]
    fn mark_chunk_empty(&mut self, at: usize) {
        let block = &mut self.blocks[at / BLOCK];
        block.in_use -= 1;
        if block.in_use == 0 {
            self.release_block(at / BLOCK);
        }
    }

    /// Handles a block that has lost its last value. Of this block and the spare one, the higher
    /// one loses its memory, because new values go to the lower one first.
    fn release_block(&mut self, emptied: usize) {
        let spare = self.spare.map_or(emptied, |spare| spare.min(emptied));
        let other = self.spare.map(|old| old.max(emptied));
        self.spare = Some(spare);
        if let Some(other) = other {
            self.blocks[other].memory = None;
        }
        while self.blocks.last().is_some_and(|block| block.memory.is_none()) {
            self.blocks.pop();
        }
        for at in self.blocks.len() * BLOCK..self.occupied.len() {
            self.with_room.set(at, false);
        }
        self.occupied.truncate(self.blocks.len() * BLOCK);
        self.first_with_room = self.first_with_room.min(self.occupied.len());
        if self.occupied.capacity() > SHRINK_FLOOR.max(self.occupied.len() * 4) {
            self.occupied.shrink_to(SHRINK_FLOOR.max(self.occupied.len() * 2));
            self.blocks.shrink_to(SHRINK_FLOOR.max(self.blocks.len() * 2));
            self.with_room.shrink(self.occupied.len());
        }
    }
}

/// Values of any type.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Chunks<Box<[T; CHUNK]>, 1>,
}

impl<T> Default for Slab<T> {
    /// An empty slab, which takes no memory.
    fn default() -> Slab<T> {
        Slab { chunks: Chunks::default() }
    }
}

impl<T: Default> Slab<T> {
    /// The allocated numbers.
    pub fn chunks(&self) -> &Chunks<Box<[T; CHUNK]>, 1> {
        &self.chunks
    }

    /// The value of an occupied number.
    pub fn get(&self, number: u32) -> &T {
        let (values, place) = self.chunks.at(number);
        &values[place]
    }

    /// The value of an occupied number.
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        let (values, place) = self.chunks.at_mut(number);
        &mut values[place]
    }

    /// Adds a value and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let (number, values, place) = self.chunks.allocate(empty);
        values[place] = value;
        number
    }

    /// Takes the last chunk out of a slab that is no longer used.
    pub fn pop_chunk(&mut self) -> Option<Box<[T; CHUNK]>> {
        self.chunks.pop_memory()
    }

    /// Removes a value; its number can be used again.
    pub fn remove(&mut self, number: u32) -> T {
        let value = std::mem::take(self.get_mut(number));
        self.chunks.release(number);
        value
    }
}

/// Values of one plain-data type, by the million.
#[derive(Debug)]
pub struct PodSlab<T> {
    chunks: Chunks<Pages, PAGES_BLOCK>,
    values: PhantomData<T>,
}

impl<T> Default for PodSlab<T> {
    /// An empty slab, which takes no memory.
    fn default() -> PodSlab<T> {
        PodSlab { chunks: Chunks::default(), values: PhantomData }
    }
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> PodSlab<T> {
    /// The allocated numbers.
    pub fn chunks(&self) -> &Chunks<Pages, PAGES_BLOCK> {
        &self.chunks
    }

    /// The value of an occupied number.
    #[inline]
    pub fn get(&self, number: u32) -> &T {
        let (pages, place) = self.chunks.at(number);
        let Ok(values) = <[T; PAGES_PLACES]>::ref_from_bytes(pages) else { misaligned_pages() };
        &values[place]
    }

    /// The value of an occupied number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        let (pages, place) = self.chunks.at_mut(number);
        let Ok(values) = <[T; PAGES_PLACES]>::mut_from_bytes(pages) else { misaligned_pages() };
        &mut values[place]
    }

    /// Adds a value and returns its number.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> u32 {
        let pages = || Pages::new(size_of::<[T; PAGES_PLACES]>());
        let (number, pages, place) = self.chunks.allocate(pages);
        let Ok(values) = <[T; PAGES_PLACES]>::mut_from_bytes(pages) else { misaligned_pages() };
        values[place] = value;
        number
    }

    /// As [`Chunks::free_part`].
    pub fn free_part(&mut self) -> bool {
        self.chunks.free_part()
    }

    /// Releases a number, which can be used again. Until then its bytes are left as they are.
    pub fn release(&mut self, number: u32) {
        self.chunks.release(number);
    }
}

/// Panics: the pages are not those of an array of plain data.
#[cold]
pub(super) fn misaligned_pages() -> ! {
    unreachable!("they were made for so many things, and begin where a page does")
}

/// The positions of the bits that are set.
fn ones(word: u64) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(word).filter(|&word| word != 0), |word| {
        Some(word & (word - 1)).filter(|&rest| rest != 0)
    })
    .map(u64::trailing_zeros)
}

fn empty<T: Default>() -> Box<[T; CHUNK]> {
    let places: Box<[T]> = (0..CHUNK).map(|_| T::default()).collect();
    let Ok(places) = places.try_into() else { unreachable!("made with that length") };
    places
}

/// A set of small numbers with quick access to the least one.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    /// Which words are not zero, one bit each.
    summary: Vec<u64>,
}

impl Bits {
    fn first(&self) -> Option<usize> {
        let at = self.summary.iter().position(|&word| word != 0)?;
        let word = at * CHUNK + self.summary[at].trailing_zeros() as usize;
        Some(word * CHUNK + self.words[word].trailing_zeros() as usize)
    }

    fn set(&mut self, number: usize, on: bool) {
        let (word, bit) = (number / CHUNK, number % CHUNK);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / CHUNK + 1, 0);
        }
        put_bit(&mut self.words[word], bit, on);
        let any = self.words[word] != 0;
        put_bit(&mut self.summary[word / CHUNK], word % CHUNK, any);
    }

    /// Frees the memory for numbers from `len` on, none of which may be in the set.
    fn shrink(&mut self, len: usize) {
        self.words.truncate(len.div_ceil(CHUNK));
        self.summary.truncate(self.words.len().div_ceil(CHUNK));
        self.words.shrink_to_fit();
        self.summary.shrink_to_fit();
    }
}

fn put_bit(word: &mut u64, bit: usize, on: bool) {
    *word = *word & !(1 << bit) | (u64::from(on) << bit);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl<M, const BLOCK: usize> Chunks<M, BLOCK> {
        /// Checks the invariants of the module's documentation.
        fn check_invariants(&self) {
            let taken: u32 = self.occupied.iter().map(|taken| taken.count_ones()).sum();
            assert_eq!(taken as usize, self.len);
            assert_eq!(self.occupied.len().div_ceil(BLOCK), self.blocks.len());
            for (chunks, block) in self.occupied.chunks(BLOCK).zip(&self.blocks) {
                assert_eq!(block.in_use, chunks.iter().filter(|taken| **taken != 0).count());
                assert!(block.in_use == 0 || block.memory.is_some());
            }
            let idle = |block: &Block<M>| block.in_use == 0 && block.memory.is_some();
            assert!(self.blocks.iter().filter(|block| idle(block)).count() <= 1);
            assert_eq!(self.blocks.iter().position(idle), self.spare);
            assert!(self.blocks.last().is_none_or(|block| block.memory.is_some()));
            let with_room = self.occupied.iter().position(|taken| *taken != u64::MAX);
            assert_eq!(self.with_room.first(), with_room);
            assert_eq!(self.first_with_room, with_room.unwrap_or(self.occupied.len()));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Remove(prop::sample::Index, u16),
        Scan(u64, usize),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..300_u16).prop_map(Step::Insert),
            (any::<prop::sample::Index>(), 1..400_u16).prop_map(|(at, n)| Step::Remove(at, n)),
            (0..600_u64, 1..200_usize).prop_map(|(cursor, count)| Step::Scan(cursor, count)),
        ]
    }

    impl PodSlab<u64> {
        fn remove(&mut self, number: u32) -> u64 {
            let value = *self.get(number);
            self.release(number);
            value
        }
    }

    macro_rules! agrees_with_a_map {
        ($name:ident, $kind:ident) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                cases: if cfg!(miri) { 4 } else { 256 },
                failure_persistence: None,
                ..ProptestConfig::default()
            })]

            #[test]
            fn $name(steps in prop::collection::vec(steps(), 1..60)) {
                let (mut slab, mut model) = ($kind::default(), BTreeMap::new());
                let mut random = Random::new(1);
                for (serial, step) in (0_u64..).zip(steps) {
                    match step {
                        Step::Insert(count) => for _ in 0..count {
                            let number = slab.insert(serial);
                            prop_assert_eq!(model.insert(number, serial), None);
                        },
                        Step::Remove(at, count) => for _ in 0..count.min(model.len() as u16) {
                            let number = *at.get(&model.keys().copied().collect::<Vec<_>>());
                            prop_assert_eq!(Some(slab.remove(number)), model.remove(&number));
                        },
                        Step::Scan(cursor, count) => {
                            let (numbers, next) = slab.chunks.scan(cursor, count);
                            let end = if next == 0 { u32::MAX } else { next as u32 };
                            let wanted = model.range(cursor as u32..end).map(|(&number, _)| number);
                            prop_assert!(numbers.eq(wanted));
                            prop_assert_eq!(next == 0, model.range(end..).next().is_none());
                        }
                    }
                    slab.chunks.check_invariants();
                    prop_assert_eq!(slab.chunks.len(), model.len());
                    prop_assert!(slab.chunks.numbers().eq(model.keys().copied()));
                    prop_assert!(model.iter().all(|(&number, value)| slab.get(number) == value));
                    let random = slab.chunks.random(&mut random);
                    prop_assert_eq!(random.is_some(), !model.is_empty());
                    prop_assert!(random.is_none_or(|number| model.contains_key(&number)));
                }
            }
        }
        };
    }

    agrees_with_a_map!(slab_agrees_with_a_map, Slab);
    agrees_with_a_map!(pod_slab_agrees_with_a_map, PodSlab);

    #[test]
    fn memory_is_freed_as_values_are_removed() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..100_000).map(|n| slab.insert(n)).collect();
        for number in &numbers[100..] {
            slab.remove(*number);
        }
        let Chunks { occupied: taken, blocks, .. } = &slab.chunks;
        let count = blocks.iter().filter(|block| block.memory.is_some()).count();
        assert!(count <= 3, "{count} blocks for 100");
        let most = [taken.capacity(), blocks.capacity()];
        assert!(most.iter().all(|&it| it <= SHRINK_FLOOR), "{most:?}");
        assert!((0..100).all(|n| *slab.get(n) == n as usize as u32));
    }

    #[test]
    fn single_value_that_comes_and_goes_keeps_its_chunk() {
        let mut slab = Slab::default();
        let number = slab.insert(1);
        let place: *const u32 = slab.get(number);
        for n in 0..10 {
            slab.remove(number);
            assert_eq!(slab.insert(n), number);
            assert_eq!(std::ptr::from_ref(slab.get(number)), place);
        }
    }
}
