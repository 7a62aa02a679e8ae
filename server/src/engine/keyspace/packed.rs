//! Byte strings one after another in one allocation, each behind its length: how keys stand before
//! their values, and the fields of a small hash. Knows nothing of what they mean.
//!
//! A length is one byte, or for longer ones [`LONG`] and eight more.

use std::ops::Range;

/// The first byte of a length that does not fit in one.
const LONG: u8 = u8::MAX;
const LONG_BYTES: usize = 1 + size_of::<u64>();

/// The bytes that an item takes.
pub const fn size(item: &[u8]) -> usize {
    let length_bytes = if item.len() < LONG as usize { 1 } else { LONG_BYTES };
    length_bytes + item.len()
}

/// Adds an item at the end.
pub fn push(bytes: &mut Vec<u8>, item: &[u8]) {
    match u8::try_from(item.len()) {
        Ok(length) if length < LONG => bytes.push(length),
        _ => {
            bytes.push(LONG);
            bytes.extend_from_slice(&(item.len() as u64).to_le_bytes());
        }
    }
    bytes.extend_from_slice(item);
}

/// Where the item is whose length begins at `at`, without its length. The next begins at its end.
pub fn item_at(bytes: &[u8], at: usize) -> Range<usize> {
    let length = bytes[at];
    if length < LONG {
        return at + 1..at + 1 + usize::from(length);
    }
    let start = at + LONG_BYTES;
    let mut length = [0; size_of::<u64>()];
    length.copy_from_slice(&bytes[at + 1..start]);
    start..start + u64::from_le_bytes(length) as usize
}

/// The items, in order.
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

/// Puts items, or bytes as they are, in the place of those in a range, with one allocation at most.
pub fn splice(bytes: &mut Box<[u8]>, range: Range<usize>, new: &[Part<'_>]) {
    let length = bytes.len() - range.len() + new.iter().map(Part::size).sum::<usize>();
    let mut spliced = Vec::with_capacity(length);
    spliced.extend_from_slice(&bytes[..range.start]);
    for part in new {
        part.push_to(&mut spliced);
    }
    spliced.extend_from_slice(&bytes[range.end..]);
    *bytes = spliced.into_boxed_slice();
}

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes behind their length.
    Item(&'a [u8]),
    /// Bytes as they are.
    Bytes(&'a [u8]),
}

impl Part<'_> {
    fn size(&self) -> usize {
        match self {
            Part::Item(item) => size(item),
            Part::Bytes(bytes) => bytes.len(),
        }
    }

    fn push_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Part::Item(item) => push(bytes, item),
            Part::Bytes(more) => bytes.extend_from_slice(more),
        }
    }
}

/// All parts, in one allocation of just their size.
pub fn concat(parts: &[Part<'_>]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(parts.iter().map(Part::size).sum());
    for part in parts {
        part.push_to(&mut bytes);
    }
    bytes.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_any_length_stand_in_order() {
        let long = vec![b'x'; 70_000];
        let items: Vec<&[u8]> =
            [0, 1, 254, 255, 256, 70_000].into_iter().map(|length| &long[..length]).collect();
        let parts: Vec<Part<'_>> = items.iter().map(|item| Part::Item(item)).collect();
        let mut bytes = concat(&parts);
        assert_eq!(bytes.len(), items.iter().map(|item| size(item)).sum::<usize>());
        assert_eq!(Items(&bytes).collect::<Vec<_>>(), items);
        splice(&mut bytes, 0..1, &[Part::Item(b"ab"), Part::Item(b"")]);
        let first: Vec<&[u8]> = Items(&bytes).take(3).collect();
        assert_eq!(first, [&b"ab"[..], b"", b"x"]);
    }
}
