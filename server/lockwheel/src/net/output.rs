//! The output buffer of one client: a queue of chunks, so that a gigabyte of replies is never
//! copied to a larger buffer, and memory is freed as the bytes are sent.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

use crate::durability::dependencies::Dependencies;
use crate::limits;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::buffers::BufferSizes;

/// The output buffer of one client.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Full chunks, sent first. Empty unless the client reads more slowly than it sends requests.
    full: VecDeque<BytesMut>,
    /// The bytes in `full`.
    full_bytes: usize,
    /// The chunk that replies are appended to.
    tail: BytesMut,
    /// The positions that the bytes depend on.
    dependencies: Dependencies,
}

impl Output {
    /// The buffer to append a reply to.
    pub(crate) fn tail(&mut self) -> &mut BytesMut {
        if self.tail.len() >= limits::OUTPUT_CHUNK_BYTES {
            self.finish_chunk();
        }
        &mut self.tail
    }

    #[cold]
    fn finish_chunk(&mut self) {
        // Space for the reply that exceeds the chunk size, so that a chunk is seldom copied.
        let capacity = limits::OUTPUT_CHUNK_BYTES + limits::OUTPUT_CHUNK_BYTES / 8;
        let chunk = std::mem::replace(&mut self.tail, BytesMut::with_capacity(capacity));
        self.full_bytes += chunk.len();
        self.full.push_back(chunk);
    }

    /// The bytes from `start` on depend on `position`.
    #[inline]
    pub(crate) fn depend(&mut self, start: usize, position: Position) {
        self.dependencies.add(start, position);
    }

    /// The position that must be released before all bytes can be sent.
    pub(crate) fn dependency(&self) -> Position {
        self.dependencies.last()
    }

    /// Appends all of `more`, with what it depends on, and leaves both empty.
    pub(crate) fn append(&mut self, more: &mut BytesMut, dependencies: &mut Dependencies) {
        self.dependencies.append(self.len(), dependencies);
        let tail = self.tail();
        if tail.is_empty() {
            // Nothing is copied, and both buffers keep their capacity.
            std::mem::swap(tail, more);
        } else {
            tail.extend_from_slice(more);
        }
        more.clear();
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.full_bytes + self.tail.len()
    }

    /// Writes the sizes of the buffers to `sizes`.
    pub(crate) fn measure(&self, sizes: &mut BufferSizes) {
        sizes.reply = self.tail.len();
        sizes.reply_room = self.tail.capacity();
        sizes.chunks = self.full.len();
        sizes.chunk_bytes = self.full_bytes;
    }

    /// Whether there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.full.is_empty()
    }

    /// The bytes to send next: empty only if there are none, or if they are not released.
    #[inline]
    pub(crate) fn front(&mut self, released: impl FnOnce() -> Position) -> &[u8] {
        let length = self.len();
        let sendable = self.dependencies.sendable(length, released);
        let front = self.full.front().unwrap_or(&self.tail);
        &front[..sendable.min(front.len())]
    }

    /// Drops the first `count` bytes of [`Output::front`], which have been sent. Frees memory that
    /// an idle connection does not need.
    pub(crate) fn advance(&mut self, count: usize) {
        self.dependencies.advance(count);
        if let Some(chunk) = self.full.front_mut() {
            self.full_bytes -= count;
            chunk.advance(count);
            if chunk.is_empty() {
                self.full.pop_front();
            }
        } else if count < self.tail.len() {
            self.tail.advance(count);
        } else {
            self.clear();
        }
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self) {
        self.full = VecDeque::new();
        self.full_bytes = 0;
        self.dependencies.clear();
        self.tail.clear();
        if self.tail.capacity() > lockwheel_engine::limits::IDLE_BUFFER_BYTES {
            self.tail = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_BYTES: usize = 1000;

    fn reply(number: usize) -> [u8; REPLY_BYTES] {
        [number as u8; REPLY_BYTES]
    }

    #[test]
    fn bytes_are_sent_in_the_order_they_were_added() {
        for sent_at_once in [1, 999, 10_000, usize::MAX] {
            let (mut output, mut expected, mut sent) = (Output::default(), Vec::new(), Vec::new());
            for number in 0..500 {
                expected.extend_from_slice(&reply(number));
                if number % 3 == 0 {
                    let mut more = BytesMut::from(&reply(number)[..]);
                    output.append(&mut more, &mut Dependencies::default());
                    assert!(more.is_empty());
                } else {
                    output.tail().extend_from_slice(&reply(number));
                }
                assert_eq!(output.len() + sent.len(), expected.len());
                if number % 7 == 0 {
                    send(&mut output, sent_at_once, &mut sent);
                }
            }
            while !output.is_empty() {
                send(&mut output, sent_at_once, &mut sent);
            }
            assert!(sent == expected, "{sent_at_once} at once");
            assert_eq!((output.len(), output.front(|| 0).len()), (0, 0));
        }
    }

    fn send(output: &mut Output, most: usize, sent: &mut Vec<u8>) {
        let front = output.front(|| 0);
        let count = front.len().min(most);
        sent.extend_from_slice(&front[..count]);
        output.advance(count);
    }

    #[test]
    fn chunks_are_not_copied_to_larger_buffers() {
        let mut output = Output::default();
        for number in 0..1_000 {
            output.tail().extend_from_slice(&reply(number));
        }
        let largest = output.full.iter().map(BytesMut::len).max();
        assert!(largest.is_some_and(|bytes| bytes < limits::OUTPUT_CHUNK_BYTES + REPLY_BYTES));
        output.clear();
        assert!(
            output.is_empty()
                && output.tail.capacity() <= lockwheel_engine::limits::IDLE_BUFFER_BYTES
        );
    }
}
