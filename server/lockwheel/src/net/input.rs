//! Bytes that have been read from a socket and not yet been run. Knows nothing of what they mean.
//!
//! Most of the time a connection has none: then it has no buffer either, and reads into one that
//! the connections of a thread lend each other.

use std::cell::Cell;

use crate::limits;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Room, all of it initialized, in which `begin..end` has been read.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Input {
    /// What there is.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// How much there is.
    pub(crate) fn len(&self) -> usize {
        self.end - self.begin
    }

    /// How much room there is beside it.
    pub(crate) fn free(&self) -> usize {
        self.bytes.len() - self.len()
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Drops the first `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.begin += count.min(self.len());
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.begin = self.end;
    }

    /// Room for `needed` more bytes at least; [`Input::filled`] says how much of it was used.
    pub(crate) fn room(&mut self, needed: usize) -> &mut [u8] {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.is_empty() {
            // A thread that is about to be gone lends nothing.
            self.bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        let wanted = self.end + needed.max(LEAST_ROOM_BYTES);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted.max(limits::READ_BYTES), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Another `count` bytes have been read.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Gives the buffer back if it holds nothing.
    pub(crate) fn give_back(&mut self) {
        if !self.is_empty() || self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(self).bytes;
        if bytes.len() == limits::READ_BYTES {
            let _ = SPARE.try_with(|spare| spare.set(bytes));
        }
    }
}

/// It makes no sense to read less at once.
const LEAST_ROOM_BYTES: usize = limits::READ_BYTES / 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut Input, bytes: &[u8]) {
        input.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn what_is_left_is_followed_by_what_is_read_next() {
        let mut input = Input::default();
        for (bytes, used, left) in [
            (&b"one two"[..], 4, &b"two"[..]),
            (b" three", 3, b" three"),
            (&[b'x'; 3 * limits::READ_BYTES], 6, &[b'x'; 3 * limits::READ_BYTES]),
        ] {
            read(&mut input, bytes);
            input.advance(used);
            assert_eq!(input.unread(), left);
            input.give_back();
            assert_eq!(input.len(), left.len());
        }
        input.clear();
        assert!(input.is_empty());
    }

    #[test]
    fn a_buffer_is_lent_without_what_was_in_it() {
        let (mut first, mut second) = (Input::default(), Input::default());
        read(&mut first, b"secret");
        first.clear();
        first.give_back();
        assert_eq!(first.bytes.capacity(), 0);
        read(&mut second, b"two");
        assert_eq!(second.unread(), b"two");
        assert_eq!(second.bytes.len(), limits::READ_BYTES);
    }
}
