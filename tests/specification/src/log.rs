//! A log that is copied as a value.

use crate::state::{Entry, Vote};

/// A log, or its beginning, of at most `E` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log<const E: usize> {
    length: u8,
    /// Those that are not in use are the default.
    entries: [Entry; E],
}

impl<const E: usize> Default for Log<E> {
    fn default() -> Log<E> {
        Log { length: 0, entries: [Entry::default(); E] }
    }
}

impl<const E: usize> std::hash::Hash for Log<E> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.entries().hash(hasher);
    }
}

impl<const E: usize> Log<E> {
    /// Its entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..self.length.into()]
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u8 {
        self.length
    }

    /// What decides which of two logs is further: the vote of the last entry, and its place.
    pub(crate) fn last(&self) -> (Vote, u8) {
        (self.entries().last().map_or(0, |last| last.vote), self.length)
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries[usize::from(self.length)] = entry;
        self.length += 1;
    }

    /// The first entries.
    pub(crate) fn prefix(mut self, length: u8) -> Log<E> {
        while self.length > length {
            self.length -= 1;
            self.entries[usize::from(self.length)] = Entry::default();
        }
        self
    }

    /// Whether it has all entries of the other log, in their places.
    pub(crate) fn has(&self, other: &Log<E>) -> bool {
        self.entries().starts_with(other.entries())
    }

    /// The number of first entries that both have.
    pub(crate) fn common(&self, other: &Log<E>) -> u8 {
        let pairs = self.entries().iter().zip(other.entries());
        pairs.take_while(|(own, other)| own == other).count() as u8
    }
}
