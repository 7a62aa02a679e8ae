//! Look-up of command names, ignoring case. Every request and every call of a script looks up a
//! name, so a name is represented as four words: converted to lower case at once, and hashed and
//! compared without a loop. This module does not depend on commands.

use std::collections::BTreeMap;

/// The maximum length of a name. Longer names are unknown.
const NAME_BYTES_MAX: usize = 32;
const WORD_BYTES: usize = 8;

/// A name in lower case, padded with zeros, and its length: a client may send zeros, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    words: [u64; NAME_BYTES_MAX / WORD_BYTES],
    len: usize,
}

impl Name {
    fn of(text: &[u8]) -> Option<Name> {
        let mut words = [0; NAME_BYTES_MAX / WORD_BYTES];
        if text.len() <= WORD_BYTES {
            words[0] = to_lower_case(word(text));
        } else if text.len() <= NAME_BYTES_MAX {
            for (to, from) in words.iter_mut().zip(text.chunks(WORD_BYTES)) {
                *to = to_lower_case(word(from));
            }
        } else {
            return None;
        }
        Some(Name { words, len: text.len() })
    }
}

/// The names are fixed, so clients cannot cause collisions.
fn hash_of_word(word: u64) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    (word.wrapping_mul(ODD) >> 32) as usize
}

/// Up to eight bytes as a number, the first byte lowest.
fn word(text: &[u8]) -> u64 {
    if let Some(whole) = text.first_chunk::<8>() {
        return u64::from_le_bytes(*whole);
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let shift = 8 * (text.len() - 4);
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << shift;
    }
    text.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Converts the upper-case letters among the eight bytes to lower case. Bit 7 of a sum tells
/// whether the lower seven bits of a byte have reached a bound; bit 5 makes a letter lower case.
fn to_lower_case(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low = word & (0x7F * ONES);
    let from_a = low.wrapping_add((0x80 - b'A' as u64) * ONES);
    let past_z = low.wrapping_add((0x7F - b'Z' as u64) * ONES);
    let capital = from_a & !past_z & !word & (0x80 * ONES);
    word | capital >> 2
}

/// A map from names to numbers.
#[derive(Debug)]
pub(super) struct Names {
    /// Names of up to eight letters: nearly all that are looked up.
    short: Box<[ShortName]>,
    long: BTreeMap<Name, usize>,
}

/// A slot of a table with a power of two of them, at most half full, so that probing is short. A
/// name of length 0 marks a free slot.
#[derive(Clone, Copy, Debug, Default)]
struct ShortName {
    letters: u64,
    length: u32,
    number: u32,
}

impl Names {
    /// A map from each name to its number. A name that is too long is never found.
    pub(super) fn new<'a>(names: impl ExactSizeIterator<Item = (&'a str, usize)>) -> Names {
        let slots = (names.len() * 2).next_power_of_two();
        let mut short = vec![ShortName::default(); slots].into_boxed_slice();
        let mut long = BTreeMap::new();
        for (text, number) in names {
            let Some(name) = Name::of(text.as_bytes()) else { continue };
            if text.len() > WORD_BYTES {
                long.insert(name, number);
                continue;
            }
            let letters = name.words[0];
            let mut at = hash_of_word(letters) & (slots - 1);
            while short[at].length > 0 {
                at = (at + 1) & (slots - 1);
            }
            short[at] = ShortName { letters, length: text.len() as u32, number: number as u32 };
        }
        Names { short, long }
    }

    /// The number of a name, ignoring case.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > WORD_BYTES {
            return self.find_long(name);
        }
        let letters = to_lower_case(word(name));
        let mut at = hash_of_word(letters);
        loop {
            let known = &self.short[at & (self.short.len() - 1)];
            if known.length == 0 {
                return None;
            }
            if known.letters == letters && known.length as usize == name.len() {
                return Some(known.number as usize);
            }
            at += 1;
        }
    }

    #[inline(never)]
    fn find_long(&self, name: &[u8]) -> Option<usize> {
        self.long.get(&Name::of(name)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_nothing_else_is() {
        let long = "a_name_of_thirty_two_letters_xyz";
        let known =
            ["get", "set", "hincrby", "p|q", "zrangebyscore", long].map(|it| (it, it.len()));
        let names = Names::new(known.into_iter());
        for (name, number) in known {
            assert_eq!(names.find(name.as_bytes()), Some(number), "{name}");
            assert_eq!(names.find(name.to_ascii_uppercase().as_bytes()), Some(number), "{name}");
            assert_eq!(names.find(format!("{name}\0").as_bytes()), None, "{name}");
            assert_eq!(names.find(&name.as_bytes()[1..]), None, "{name}");
        }
        for other in ["", "\0", "ge", "g\u{e5}t", "p\\q", "P\\Q", "\u{c7}et", "sett", "7et"] {
            assert_eq!(names.find(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn lower_case_conversion_agrees_with_ascii() {
        for byte in 0..=u8::MAX {
            let bytes = [b'A', byte, b'z', byte, b'@', b'[', 0xC1, byte];
            let small = to_lower_case(u64::from_le_bytes(bytes));
            assert_eq!(small.to_le_bytes(), bytes.map(|byte| byte.to_ascii_lowercase()));
        }
    }
}
