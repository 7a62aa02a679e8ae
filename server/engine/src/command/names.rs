//! Look-up of command names, ignoring case. Every request and every call of a script looks up a
//! name, so a short name is one word, hashed and compared without a loop. This module does not
//! depend on commands.

use std::collections::BTreeMap;

const WORD_BYTES: usize = 8;

/// The bit that makes a letter lower case, in each byte. Two letters are the same, ignoring case,
/// exactly if they are equal with this bit.
const CASE_BITS: u64 = 0x2020_2020_2020_2020;

/// A map from names to numbers.
#[derive(Debug)]
pub(crate) struct Names {
    /// Names of up to eight letters: nearly all that are looked up.
    short: Box<[ShortName]>,
    /// The others, in lower case.
    long: BTreeMap<Box<[u8]>, usize>,
}

/// A slot of a table with a power of two of them, at most half full, so that probing is short. A
/// name of length 0 marks a free slot.
#[derive(Clone, Copy, Debug, Default)]
struct ShortName {
    /// The letters, padded with zeros, with [`CASE_BITS`].
    letters: u64,
    /// Number of letters; a client may send zeros, too.
    length: u32,
    number: u32,
}

impl Names {
    /// A map from each name to its number.
    pub(crate) fn new<'a>(names: impl ExactSizeIterator<Item = (&'a str, usize)>) -> Names {
        let slots = (names.len() * 2).next_power_of_two();
        let mut short = vec![ShortName::default(); slots].into_boxed_slice();
        let mut long = BTreeMap::new();
        for (name, number) in names {
            let name = name.as_bytes();
            if name.len() > WORD_BYTES || !name.iter().all(u8::is_ascii_alphabetic) {
                long.insert(name.to_ascii_lowercase().into(), number);
                continue;
            }
            let letters = word(name) | CASE_BITS;
            let mut at = hash(letters) & (slots - 1);
            while short[at].length > 0 {
                at = (at + 1) & (slots - 1);
            }
            short[at] = ShortName { letters, length: name.len() as u32, number: number as u32 };
        }
        Names { short, long }
    }

    /// The number of a name, ignoring case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > WORD_BYTES {
            return self.find_long(name);
        }
        let letters = word(name) | CASE_BITS;
        let mut at = hash(letters);
        loop {
            let known = &self.short[at & (self.short.len() - 1)];
            if known.length == 0 {
                return self.find_long(name);
            }
            if known.letters == letters && known.length as usize == name.len() {
                return Some(known.number as usize);
            }
            at = at.wrapping_add(1);
        }
    }

    #[inline(never)]
    fn find_long(&self, name: &[u8]) -> Option<usize> {
        /// Length of the longest name; a longer one is unknown.
        const NAME_BYTES_MAX: usize = 32;
        let mut small = [0; NAME_BYTES_MAX];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        self.long.get(&*small).copied()
    }
}

/// Returns the hash of a name. The names are fixed, so clients cannot cause collisions.
fn hash(letters: u64) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    (letters.wrapping_mul(ODD) >> 32) as usize
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
        for byte in 0..=u8::MAX {
            let expected = matches!(byte, b'e' | b'E').then_some(3);
            assert_eq!(names.find(&[b'G', byte, b't']), expected, "{byte}");
        }
    }
}
