//! The input buffer of one connection: bytes read from the socket that have not been run yet.
//!
//! Most of the time a connection has no such bytes: then it has no buffer either, and reads into
//! one that the connections of a thread share.

use std::cell::Cell;

use crate::limits;

/// The input buffer of one connection.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// The buffer, all of it initialized; `begin..end` holds the unread bytes.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

thread_local! {
    static SPARE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Input {
    /// The bytes that have not been run.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// The number of these bytes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.begin
    }

    /// The free bytes of the buffer.
    pub(crate) fn free(&self) -> usize {
        self.bytes.len() - self.len()
    }

    /// Whether there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Drops the first `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.begin += count.min(self.len());
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self) {
        self.begin = self.end;
    }

    /// Space for at least `needed` more bytes; [`Input::filled`] adds the bytes read into it.
    pub(crate) fn space(&mut self, needed: usize) -> &mut [u8] {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.is_empty() {
            // A thread that is ending has no spare buffer.
            self.bytes = SPARE_BUFFER.try_with(Cell::take).unwrap_or_default();
        }
        let wanted = self.end + needed.max(SPACE_BYTES_MIN);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted.max(limits::READ_BYTES), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds `count` bytes that have been read into [`Input::space`].
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Returns an empty buffer to the thread.
    pub(crate) fn release(&mut self) {
        if !self.is_empty() || self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(self).bytes;
        if bytes.len() == limits::READ_BYTES {
            let _ = SPARE_BUFFER.try_with(|spare| spare.set(bytes));
        }
    }
}

/// Least space for one read: less costs more system calls than it saves memory.
const SPACE_BYTES_MIN: usize = limits::READ_BYTES / 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut Input, bytes: &[u8]) {
        input.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn new_bytes_follow_unread_bytes() {
        let mut input = Input::default();
        for (bytes, used, left) in [
            (&b"one two"[..], 4, &b"two"[..]),
            (b" three", 3, b" three"),
            (&[b'x'; 3 * limits::READ_BYTES], 6, &[b'x'; 3 * limits::READ_BYTES]),
        ] {
            read(&mut input, bytes);
            input.advance(used);
            assert_eq!(input.unread(), left);
            input.release();
            assert_eq!(input.len(), left.len());
        }
        input.clear();
        assert!(input.is_empty());
    }

    #[test]
    fn shared_buffer_does_not_show_old_bytes() {
        let (mut first, mut second) = (Input::default(), Input::default());
        read(&mut first, b"secret");
        first.clear();
        first.release();
        assert_eq!(first.bytes.capacity(), 0);
        read(&mut second, b"two");
        assert_eq!(second.unread(), b"two");
        assert_eq!(second.bytes.len(), limits::READ_BYTES);
    }
}
