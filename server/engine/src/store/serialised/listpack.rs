//! The listpack: elements in one byte string, each with its length in front and behind. Integers
//! take as few bytes as they need.

use std::borrow::Cow;

use lockwheel_resp::number;

use super::read::{Malformed, Text};
use crate::store::string_value::digits;

/// The bytes before the first element: the total length, and the number of elements.
const HEADER_BYTES: usize = 6;
/// The byte at the end.
const END: u8 = 0xff;
/// The number of elements that means that they must be counted.
const UNCOUNTED: usize = u16::MAX as usize;

/// Packs elements into a listpack.
pub(super) fn pack<'a>(elements: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    let mut count = 0;
    for element in elements {
        let start = out.len();
        match number::parse_integer(&element) {
            Some(integer) => push_integer(&mut out, integer),
            None => push_text(&mut out, &element),
        }
        push_length_behind(&mut out, start);
        count += 1;
    }
    out.push(END);
    let bytes = out.len() as u32;
    out[..4].copy_from_slice(&bytes.to_le_bytes());
    out[4..HEADER_BYTES].copy_from_slice(&(UNCOUNTED.min(count) as u16).to_le_bytes());
    out
}

fn push_integer(out: &mut Vec<u8>, integer: i64) {
    let bytes = integer.to_le_bytes();
    match integer {
        0..=127 => out.push(bytes[0]),
        -4096..=4095 => out.extend([0xc0 | bytes[1] & 0x1f, bytes[0]]),
        -0x8000..=0x7fff => out.extend([&[0xf1], &bytes[..2]].concat()),
        -0x80_0000..=0x7f_ffff => out.extend([&[0xf2], &bytes[..3]].concat()),
        -0x8000_0000..=0x7fff_ffff => out.extend([&[0xf3], &bytes[..4]].concat()),
        _ => out.extend([&[0xf4], &bytes[..]].concat()),
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let length = text.len() as u32;
    match length {
        0..64 => out.push(0x80 | length as u8),
        64..4096 => out.extend([0xe0 | (length >> 8) as u8, length as u8]),
        _ => out.extend([&[0xf0], &length.to_le_bytes()[..]].concat()),
    }
    out.extend(text);
}

/// Appends the length of the element that began at `start`, to be read backwards.
fn push_length_behind(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    let (digits, count) = length_behind(length);
    out.extend(&digits[..count]);
}

/// Seven bits a byte; the highest bit is set if more bytes come before it.
fn length_behind(length: usize) -> ([u8; 5], usize) {
    // All bounds but the first are one less than would fit, as in Redis.
    let count = match length {
        0..128 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut digits = [0; 5];
    for (at, digit) in digits[..count].iter_mut().rev().enumerate() {
        let more = if at + 1 < count { 0x80 } else { 0 };
        *digit = (length >> (7 * at)) as u8 & 0x7f | more;
    }
    (digits, count)
}

/// The elements of a listpack.
pub(super) fn unpack(packed: &[u8]) -> Result<impl Iterator<Item = Text<'_>>, Malformed> {
    split(packed)
}

/// As [`unpack`], without a check of the number of elements: Redis does not check it in streams.
pub(super) fn unpack_uncounted(packed: &[u8]) -> Result<impl Iterator<Item = Text<'_>>, Malformed> {
    Ok(Elements { count: UNCOUNTED, ..split(packed)? })
}

fn split(packed: &[u8]) -> Result<Elements<'_>, Malformed> {
    let (&bytes, rest) = packed.split_first_chunk().ok_or(Malformed)?;
    let (&count, rest) = rest.split_first_chunk().ok_or(Malformed)?;
    if u32::from_le_bytes(bytes) as usize != packed.len() {
        return Err(Malformed);
    }
    let count = usize::from(u16::from_le_bytes(count));
    Ok(Elements { rest, seen: 0, count, ended: false })
}

struct Elements<'a> {
    rest: &'a [u8],
    seen: usize,
    count: usize,
    ended: bool,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Text<'a>;

    fn next(&mut self) -> Option<Text<'a>> {
        if self.ended {
            return None;
        }
        if self.rest == [END] {
            self.ended = true;
            let is_right = self.count == UNCOUNTED || self.count == self.seen;
            return (!is_right).then_some(Err(Malformed));
        }
        let element = self.element();
        self.seen += 1;
        self.ended = element.is_none();
        Some(element.ok_or(Malformed))
    }
}

impl<'a> Elements<'a> {
    fn element(&mut self) -> Option<Cow<'a, [u8]>> {
        let whole = self.rest;
        let first = self.take(1)?[0];
        let integer = match first {
            0..0x80 => i64::from(first),
            0xc0..0xe0 => {
                let high = i64::from((first << 3) as i8 >> 3);
                high << 8 | i64::from(self.take(1)?[0])
            }
            0xf1..=0xf4 => {
                let bytes = self.take([2, 3, 4, 8][usize::from(first - 0xf1)])?;
                super::read::little_endian(bytes)
            }
            _ => {
                let length = match first {
                    0x80..0xc0 => usize::from(first & 0x3f),
                    0xe0..0xf0 => usize::from(first & 0x0f) << 8 | usize::from(self.take(1)?[0]),
                    0xf0 => {
                        let (&length, rest) = self.rest.split_first_chunk()?;
                        self.rest = rest;
                        usize::try_from(u32::from_le_bytes(length)).ok()?
                    }
                    _ => return None,
                };
                let text = self.take(length)?;
                self.length_behind(whole)?;
                return Some(Cow::Borrowed(text));
            }
        };
        self.length_behind(whole)?;
        Some(digits(integer))
    }

    fn length_behind(&mut self, whole: &[u8]) -> Option<()> {
        let length = whole.len() - self.rest.len();
        let (digits, count) = length_behind(length);
        self.take(count)?;
        // Redis reads the length backwards, and into the element if its bytes say so.
        let mut stated = 0;
        for (at, byte) in whole[..length + count].iter().rev().take(digits.len()).enumerate() {
            stated |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return (stated == length).then_some(());
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}
