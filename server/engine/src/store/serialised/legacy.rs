//! The packed encodings from before Redis 7, of which only the intset is still written.

use std::borrow::Cow;

use super::read::{Malformed, Text, little_endian};
use crate::store::string_value::digits;

/// The byte at the end of a ziplist and of a zipmap.
const END: u8 = 0xff;

/// The integers of an intset: their width, their number, and the integers in order.
pub(super) fn intset(packed: &[u8]) -> Result<impl Iterator<Item = Text<'_>>, Malformed> {
    let (&width, rest) = packed.split_first_chunk().ok_or(Malformed)?;
    let (&count, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    let width = match u32::from_le_bytes(width) {
        width @ (2 | 4 | 8) => width as usize,
        _ => return Err(Malformed),
    };
    if (u32::from_le_bytes(count) as usize).checked_mul(width) != Some(rest.len()) {
        return Err(Malformed);
    }
    let mut before = None;
    Ok(rest.chunks(width).map(move |bytes| {
        let integer = little_endian(bytes);
        let in_order = before.is_none_or(|before| before < integer);
        before = Some(integer);
        if in_order { Ok(digits(integer)) } else { Err(Malformed) }
    }))
}

/// The entries of a ziplist: each with the length of the entry before it, then its own.
pub(super) fn ziplist(packed: &[u8]) -> Result<impl Iterator<Item = Text<'_>>, Malformed> {
    let (&bytes, rest) = packed.split_first_chunk().ok_or(Malformed)?;
    let (&tail, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    let (&count, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    if u32::from_le_bytes(bytes) as usize != packed.len() {
        return Err(Malformed);
    }
    let count = u16::from_le_bytes(count);
    let count = (count != u16::MAX).then_some(usize::from(count));
    let tail = u32::from_le_bytes(tail) as usize;
    if tail >= packed.len() {
        return Err(Malformed);
    }
    let mut before = None;
    let is_end = |left: &[u8], _| left == [END];
    Ok(entries(rest, count, is_end, move |left| {
        let at = packed.len() - left.0.len();
        let entry = ziplist_entry(left, before.map_or(0, |before| at - before));
        before = Some(at);
        let is_last = left.0 == [END];
        entry.filter(|_| !is_last || at == tail)
    }))
}

/// An entry. `bytes_before` is the length of the entry before it, which the entry must repeat.
fn ziplist_entry<'a>(packed: &mut Packed<'a>, bytes_before: usize) -> Option<Cow<'a, [u8]>> {
    let stated = match packed.byte()? {
        0xfe => u32::from_le_bytes(*packed.take(4)?.first_chunk()?) as usize,
        stated => stated.into(),
    };
    if stated != bytes_before {
        return None;
    }
    let first = packed.byte()?;
    let length = match first {
        0..0x40 => usize::from(first),
        0x40..0x80 => usize::from(first & 0x3f) << 8 | usize::from(packed.byte()?),
        0x80 => {
            let length = packed.take(4)?.first_chunk()?;
            usize::try_from(u32::from_be_bytes(*length)).ok()?
        }
        _ => {
            let integer = match first {
                0xc0 => little_endian(packed.take(2)?),
                0xd0 => little_endian(packed.take(4)?),
                0xe0 => little_endian(packed.take(8)?),
                0xf0 => little_endian(packed.take(3)?),
                0xfe => little_endian(packed.take(1)?),
                0xf1..=0xfd => i64::from(first & 0x0f) - 1,
                _ => return None,
            };
            return Some(digits(integer));
        }
    };
    packed.take(length).map(Cow::Borrowed)
}

/// The fields and values of a zipmap, alternating.
pub(super) fn zipmap(packed: &[u8]) -> Result<impl Iterator<Item = Text<'_>>, Malformed> {
    let (&fields, rest) = packed.split_first().ok_or(Malformed)?;
    if rest.last() != Some(&END) {
        return Err(Malformed);
    }
    let count = (fields != 254).then_some(usize::from(fields) * 2);
    let mut is_value = false;
    // In the position of a field this byte is the end, whatever follows; a value may have this
    // length.
    let is_end = |left: &[u8], seen: usize| seen.is_multiple_of(2) && left.first() == Some(&END);
    Ok(entries(rest, count, is_end, move |packed| {
        let length = match packed.byte()? {
            254 | 255 => {
                let length = packed.take(4)?.first_chunk()?;
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                // A shorter length must be written in one byte.
                (length >= 254).then_some(length)?
            }
            length => length.into(),
        };
        // A value may be followed by unused bytes.
        let unused = if is_value { packed.byte()? } else { 0 };
        is_value = !is_value;
        let text = packed.take(length)?;
        packed.take(unused.into())?;
        Some(Cow::Borrowed(text))
    }))
}

/// The rest of a packed encoding.
struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Entries up to the end, of which there must be `count`, if it is known. `is_end` is given the
/// rest and the number of entries so far.
fn entries<'a>(
    rest: &'a [u8],
    count: Option<usize>,
    is_end: impl Fn(&[u8], usize) -> bool,
    mut entry: impl FnMut(&mut Packed<'a>) -> Option<Cow<'a, [u8]>>,
) -> impl Iterator<Item = Text<'a>> {
    let (mut packed, mut seen, mut ended) = (Packed(rest), 0, false);
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        if is_end(packed.0, seen) {
            ended = true;
            return count.is_some_and(|count| count != seen).then_some(Err(Malformed));
        }
        seen += 1;
        let entry = entry(&mut packed);
        ended = entry.is_none();
        Some(entry.ok_or(Malformed))
    })
}
