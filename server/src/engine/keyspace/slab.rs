//! Numbered places for things of one kind, in chunks. It knows nothing of what it keeps.
//! [`Chunks`] keeps the numbers, whatever a chunk's memory is; [`Slab`] is for values.
//!
//! What always holds:
//! - A thing does not move: its number is its own until it is removed. So a number can be a
//!   `SCAN` cursor, a timer, and what an index points to.
//! - A new thing gets the lowest free number of the lowest chunk with room, so what numbers clients
//!   see follows from the commands alone, and what is left after a mass release gathers in front.
//! - A chunk without things has no memory, but for one, so that a single thing that comes and goes
//!   costs no allocation. Growing copies no thing.

use crate::engine::random::Random;

/// Things of a chunk: a bit for each in a word.
pub const CHUNK: usize = u64::BITS as usize;

/// Chunks whose headers an emptied slab keeps.
const SHRINK_FLOOR: usize = 16;

/// Numbered places in chunks, the memory of each of which is an `M`.
#[derive(Debug)]
pub struct Chunks<M> {
    chunks: Vec<Chunk<M>>,
    /// Bit by bit, which chunks have room.
    roomy: Bits,
    /// The first of them, or where the next chunk goes.
    front: usize,
    /// The lowest of the chunks with memory and without things, if there is one.
    spare: Option<usize>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<M> {
    /// Bit by bit, which places are taken.
    taken: u64,
    memory: Option<M>,
}

impl<M> Default for Chunks<M> {
    /// Nothing, which takes no memory.
    fn default() -> Chunks<M> {
        Chunks { chunks: Vec::new(), roomy: Bits::default(), front: 0, spare: None, len: 0 }
    }
}

impl<M> Chunks<M> {
    /// How many places are taken.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of the chunk in which a number that is taken has its place, and the place.
    pub fn at(&self, number: u32) -> (&M, usize) {
        let (chunk, place) = split(number);
        let Some(memory) = &self.chunks[chunk].memory else { unreachable!("{number} is free") };
        (memory, place)
    }

    /// The memory of the chunk in which a number that is taken has its place, and the place.
    pub fn at_mut(&mut self, number: u32) -> (&mut M, usize) {
        let (chunk, place) = split(number);
        let Some(memory) = &mut self.chunks[chunk].memory else { unreachable!("{number} is free") };
        (memory, place)
    }

    /// Takes a place; tells the memory of its chunk, too, which `memory` makes if there is none.
    pub fn take(&mut self, memory: impl FnOnce() -> M) -> (u32, &mut M) {
        let at = self.front;
        if at == self.chunks.len() {
            self.grow();
        }
        if self.spare == Some(at) {
            self.spare = None;
        }
        let chunk = &mut self.chunks[at];
        let place = (!chunk.taken).trailing_zeros() as usize;
        chunk.taken |= 1 << place;
        if chunk.taken == u64::MAX {
            self.go_on();
        }
        self.len += 1;
        let number = u32::try_from(at * CHUNK + place).expect("fewer than 2^32 things");
        (number, self.chunks[at].memory.get_or_insert_with(memory))
    }

    /// There is no room: adds a chunk without memory.
    #[cold]
    fn grow(&mut self) {
        self.roomy.set(self.chunks.len(), true);
        self.chunks.push(Chunk { taken: 0, memory: None });
    }

    /// The first chunk with room has none any more.
    #[cold]
    fn go_on(&mut self) {
        self.roomy.set(self.front, false);
        self.front = self.roomy.first().unwrap_or(self.chunks.len());
    }

    /// A chunk that was full has room again.
    #[cold]
    fn go_back(&mut self, at: usize) {
        self.roomy.set(at, true);
        self.front = self.front.min(at);
    }

    /// Gives a place back; its number may then be another's.
    #[inline]
    pub fn release(&mut self, number: u32) {
        let (at, place) = split(number);
        let chunk = &mut self.chunks[at];
        let before = chunk.taken;
        assert!(before & (1 << place) != 0, "{number} is free");
        chunk.taken &= !(1 << place);
        self.len -= 1;
        match before {
            u64::MAX => self.go_back(at),
            before if before == 1 << place => self.give_back(at),
            _ => {}
        }
    }

    /// Numbers that are taken, in order, from `cursor` on, among the next `count`; those of chunks
    /// without memory are not counted. The second part is the cursor to go on from, 0 at the end.
    pub fn scan(&self, cursor: u64, count: usize) -> (impl Iterator<Item = u32>, u64) {
        let len = self.chunks.len() * CHUNK;
        let start = usize::try_from(cursor).unwrap_or(usize::MAX).min(len);
        let (mut end, mut left) = (start, count);
        while left > 0 && end < len {
            let rest = CHUNK - end % CHUNK;
            let counts = self.chunks[end / CHUNK].memory.is_some();
            let step = if counts { rest.min(left) } else { rest };
            left -= if counts { step } else { 0 };
            end += step;
        }
        let next = self.taken_from(end).next().map_or(0, |_| end as u64);
        (self.taken_from(start).take_while(move |&number| (number as usize) < end), next)
    }

    /// All numbers that are taken, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.taken_from(0)
    }

    /// Any number that is taken, all about equally likely; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<u32> {
        /// Trials until a taken one turns up; a sparse slab is walked from a random place.
        const TRIALS: usize = 128;
        if self.is_empty() {
            return None;
        }
        let len = self.chunks.len() * CHUNK;
        for _ in 0..TRIALS {
            let number = random.below(len);
            if self.chunks[number / CHUNK].taken & (1 << (number % CHUNK)) != 0 {
                return Some(number as u32);
            }
        }
        self.taken_from(random.below(len)).chain(self.taken_from(0)).next()
    }

    fn taken_from(&self, start: usize) -> impl Iterator<Item = u32> {
        let (first, place) = (start / CHUNK, start % CHUNK);
        let chunks = self.chunks.iter().enumerate().skip(first);
        chunks.filter(|(_, chunk)| chunk.taken != 0).flat_map(move |(at, chunk)| {
            let mask = if at == first { u64::MAX << place } else { u64::MAX };
            ones(chunk.taken & mask).map(move |bit| (at * CHUNK) as u32 + bit)
        })
    }

    /// A chunk has lost its last thing: either it or the one that was spare so far loses its
    /// memory, whichever is further from where the next thing goes.
    #[cold]
    fn give_back(&mut self, emptied: usize) {
        let spare = self.spare.map_or(emptied, |spare| spare.min(emptied));
        let other = self.spare.map(|old| old.max(emptied));
        self.spare = Some(spare);
        if let Some(other) = other {
            self.chunks[other].memory = None;
        }
        while self.chunks.last().is_some_and(|chunk| chunk.memory.is_none()) {
            self.chunks.pop();
            self.roomy.set(self.chunks.len(), false);
        }
        self.front = self.front.min(self.chunks.len());
        if self.chunks.capacity() > SHRINK_FLOOR.max(self.chunks.len() * 4) {
            self.chunks.shrink_to(SHRINK_FLOOR.max(self.chunks.len() * 2));
            self.roomy.shrink(self.chunks.len());
        }
    }
}

/// Things of one kind.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Chunks<Box<[T; CHUNK]>>,
}

impl<T> Default for Slab<T> {
    /// An empty slab, which takes no memory.
    fn default() -> Slab<T> {
        Slab { chunks: Chunks::default() }
    }
}

impl<T: Default> Slab<T> {
    /// How many things there are, and which numbers they have.
    pub fn chunks(&self) -> &Chunks<Box<[T; CHUNK]>> {
        &self.chunks
    }

    /// The thing of a number that is taken.
    pub fn get(&self, number: u32) -> &T {
        let (things, place) = self.chunks.at(number);
        &things[place]
    }

    /// The thing of a number that is taken.
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        let (things, place) = self.chunks.at_mut(number);
        &mut things[place]
    }

    /// Adds a thing and gives it a number.
    pub fn insert(&mut self, thing: T) -> u32 {
        let (number, things) = self.chunks.take(empty);
        things[place_of(number)] = thing;
        number
    }

    /// As `remove`, for things that own nothing: what is left of it stands there until its number
    /// is another's.
    pub fn forget(&mut self, number: u32) {
        self.chunks.release(number);
    }

    /// Takes a thing out; its number may then be another's.
    pub fn remove(&mut self, number: u32) -> T {
        let thing = std::mem::take(self.get_mut(number));
        self.chunks.release(number);
        thing
    }
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, place_of(number))
}

/// The place of a number in its chunk.
pub fn place_of(number: u32) -> usize {
    number as usize % CHUNK
}

/// The numbers of the bits that are set.
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

/// A set of small numbers that knows its least one.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    /// Bit by bit, which words are not zero.
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

    /// Gives back what numbers from `len` on would need, none of which is in the set.
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

    impl<M> Chunks<M> {
        /// Checks what the head of the file says always holds.
        fn check_invariants(&self) {
            let taken: u32 = self.chunks.iter().map(|chunk| chunk.taken.count_ones()).sum();
            assert_eq!(taken as usize, self.len);
            let idle = |chunk: &Chunk<M>| chunk.taken == 0 && chunk.memory.is_some();
            assert!(self.chunks.iter().filter(|chunk| idle(chunk)).count() <= 1);
            assert_eq!(self.chunks.iter().position(idle), self.spare);
            assert!(self.chunks.last().is_none_or(|chunk| chunk.memory.is_some()));
            let roomy = self.chunks.iter().position(|chunk| chunk.taken != u64::MAX);
            assert_eq!(self.roomy.first(), roomy);
            assert_eq!(self.front, roomy.unwrap_or(self.chunks.len()));
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

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec(steps(), 1..60)) {
            let (mut slab, mut model) = (Slab::default(), BTreeMap::new());
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
                        let wanted: Vec<u32> =
                            model.range(cursor as u32..end).map(|(&number, _)| number).collect();
                        prop_assert_eq!(numbers.collect::<Vec<_>>(), wanted);
                        prop_assert_eq!(next == 0, model.range(end..).next().is_none());
                    }
                }
                slab.chunks.check_invariants();
                prop_assert_eq!(slab.chunks.len(), model.len());
                prop_assert!(slab.chunks.numbers().eq(model.keys().copied()));
                prop_assert!(model.iter().all(|(&number, thing)| slab.get(number) == thing));
                let random = slab.chunks.random(&mut random);
                prop_assert_eq!(random.is_some(), !model.is_empty());
                prop_assert!(random.is_none_or(|number| model.contains_key(&number)));
            }
        }
    }

    #[test]
    fn memory_comes_back_as_things_go() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..100_000).map(|n| slab.insert(n)).collect();
        for number in &numbers[100..] {
            slab.remove(*number);
        }
        let chunks = slab.chunks.chunks.iter().filter(|chunk| chunk.memory.is_some()).count();
        assert!(chunks <= 3, "{chunks} chunks for 100");
        assert!(slab.chunks.chunks.capacity() <= SHRINK_FLOOR, "{}", slab.chunks.chunks.capacity());
        assert!((0..100).all(|n| *slab.get(n) == n as usize as u32));
    }

    #[test]
    fn one_thing_that_comes_and_goes_keeps_its_chunk() {
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
