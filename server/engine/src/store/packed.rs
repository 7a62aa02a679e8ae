//! Length-prefixed byte strings (items), one after another: keys in front of their values, and the
//! fields of a small hash. The contents are opaque here.
//!
//! A length is one byte, or for longer strings `LONG` and eight more bytes.

use std::ops::Range;

/// The first byte of a length that does not fit in one byte.
const LONG: u8 = u8::MAX;
const LONG_BYTES: usize = 1 + std::mem::size_of::<u64>();

/// The size of an item with its length, in bytes.
pub const fn size(item: &[u8]) -> usize {
    let length_bytes = if item.len() < LONG as usize { 1 } else { LONG_BYTES };
    length_bytes + item.len()
}

/// The range of the contents of the item whose length is at `at`. The next item begins at its end.
#[inline]
pub fn item_at(bytes: &[u8], at: usize) -> Range<usize> {
    let length = bytes[at];
    if length < LONG {
        return at + 1..at + 1 + usize::from(length);
    }
    let start = at + LONG_BYTES;
    let mut length = [0; LONG_BYTES - 1];
    length.copy_from_slice(&bytes[at + 1..start]);
    start..start + u64::from_le_bytes(length) as usize
}

/// An iterator over the items.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a>(pub &'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let item = item_at(self.0, 0);
        let (head, rest) = self.0.split_at(item.end);
        self.0 = rest;
        Some(&head[item.start..])
    }
}

/// Packed bytes that can be overwritten and spliced.
pub trait PackedMut {
    /// The bytes, to be overwritten.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Replaces the bytes of a range by parts, which may have another size.
    fn splice(&mut self, range: Range<usize>, parts: &[Part<'_>]);
}

impl PackedMut for Box<[u8]> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn splice(&mut self, range: Range<usize>, parts: &[Part<'_>]) {
        let mut spliced = Vec::with_capacity(self.len() - range.len() + size_of(parts));
        spliced.extend_from_slice(&self[..range.start]);
        spliced.resize(range.start + size_of(parts), 0);
        write(&mut spliced[range.start..], parts);
        spliced.extend_from_slice(&self[range.end..]);
        *self = spliced.into_boxed_slice();
    }
}

impl<E: PackedMut> PackedMut for &mut E {
    fn bytes_mut(&mut self) -> &mut [u8] {
        (**self).bytes_mut()
    }

    fn splice(&mut self, range: Range<usize>, parts: &[Part<'_>]) {
        (**self).splice(range, parts);
    }
}

/// A part of the bytes that are written.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes with their length in front.
    Item(&'a [u8]),
    /// Bytes as they are.
    Bytes(&'a [u8]),
}

/// The size of parts, in bytes.
#[inline(always)]
pub fn size_of(parts: &[Part<'_>]) -> usize {
    let size = |part: &Part<'_>| match part {
        Part::Item(item) => size(item),
        Part::Bytes(bytes) => bytes.len(),
    };
    parts.iter().map(size).sum()
}

/// Writes parts into bytes of exactly their size.
#[inline(always)]
pub fn write(mut out: &mut [u8], parts: &[Part<'_>]) {
    let mut put = |bytes: &[u8]| {
        let (head, rest) = std::mem::take(&mut out).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        out = rest;
    };
    for part in parts {
        match part {
            Part::Item(item) if item.len() < usize::from(LONG) => {
                put(&[item.len() as u8]);
                put(item);
            }
            Part::Item(item) => {
                put(&[LONG]);
                put(&(item.len() as u64).to_le_bytes());
                put(item);
            }
            Part::Bytes(bytes) => put(bytes),
        }
    }
}

/// All parts, in one allocation of exactly their size.
pub fn concat(parts: &[Part<'_>]) -> Box<[u8]> {
    let mut bytes = vec![0; size_of(parts)].into_boxed_slice();
    write(&mut bytes, parts);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_any_length_are_in_order() {
        let long = vec![b'x'; 70_000];
        let items: Vec<&[u8]> =
            [0, 1, 254, 255, 256, 70_000].into_iter().map(|length| &long[..length]).collect();
        let parts: Vec<Part<'_>> = items.iter().map(|item| Part::Item(item)).collect();
        let mut bytes = concat(&parts);
        assert_eq!(bytes.len(), items.iter().map(|item| size(item)).sum::<usize>());
        assert_eq!(Items(&bytes).collect::<Vec<_>>(), items);
        bytes.splice(0..1, &[Part::Item(b"ab"), Part::Item(b"")]);
        let first: Vec<&[u8]> = Items(&bytes).take(3).collect();
        assert_eq!(first, [&b"ab"[..], b"", b"x"]);
    }
}
