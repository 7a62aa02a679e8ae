//! A log that is copied as a value.

use crate::state::Entry;

/// The entries of a log at most.
const ENTRIES: usize = 6;

/// A log, or its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    length: u8,
    /// Those that are not in use are the default.
    entries: [Entry; ENTRIES],
}

impl std::hash::Hash for Log {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.entries().hash(hasher);
    }
}

impl Log {
    /// Its entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..self.length.into()]
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u8 {
        self.length
    }

    /// What decides which of two logs is further: the vote of the last entry, and its place.
    pub(crate) fn last(&self) -> (u8, u8) {
        (self.entries().last().map_or(0, |last| last.vote), self.length)
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries[usize::from(self.length)] = entry;
        self.length += 1;
    }

    /// The first entries.
    pub(crate) fn prefix(mut self, length: u8) -> Log {
        while self.length > length {
            self.length -= 1;
            self.entries[usize::from(self.length)] = Entry::default();
        }
        self
    }

    /// Whether it has all entries of the other log, in their places.
    pub(crate) fn has(&self, other: &Log) -> bool {
        self.entries().starts_with(other.entries())
    }
}
