//! What the commands of a difference say.

use super::difference::ObservedDifference;
use crate::fuzz::reference::is_named;

/// Commands that can store any type at a key.
pub(super) const OF_ANY_TYPE: &[&str] =
    &["RENAME", "RENAMENX", "COPY", "RESTORE", "EVAL", "EVALSHA"];

pub(super) const STRINGS: &[&str] = &[
    "SET",
    "SETNX",
    "SETEX",
    "PSETEX",
    "GETSET",
    "MSET",
    "MSETNX",
    "APPEND",
    "INCR",
    "INCRBY",
    "DECR",
    "DECRBY",
    "INCRBYFLOAT",
    "SETRANGE",
    "SETBIT",
    "BITFIELD",
    "BITOP",
];

/// Whether the command's name begins with one of these.
pub(super) fn starts_with_any(words: &[Vec<u8>], names: &[&str]) -> bool {
    let name = words[0].to_ascii_uppercase();
    names.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// Whether an earlier command has one of these names and satisfies `is`.
pub(super) fn was_sent(
    observed: &ObservedDifference<'_>,
    names: &[&str],
    is: &dyn Fn(&[Vec<u8>]) -> bool,
) -> bool {
    let named = |words: &[Vec<u8>]| names.iter().any(|name| is_named(words, name));
    observed.before.iter().any(|step| named(&step.words) && is(&step.words))
}

/// Whether an earlier command that names the command's key has one of these names, or may have
/// stored any type there.
pub(super) fn key_was_in(observed: &ObservedDifference<'_>, names: &[&str]) -> bool {
    let Some(key) = observed.words.last() else { return false };
    observed.before.iter().any(|step| {
        (starts_with_any(&step.words, names) || starts_with_any(&step.words, OF_ANY_TYPE))
            && contain(&step.words[1..], key)
    })
}

/// The word that follows an option.
pub(super) fn word_after<'a>(words: &'a [Vec<u8>], option: &str) -> Option<&'a Vec<u8>> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(option.as_bytes()))?;
    words.get(at + 1)
}

/// Whether one of these words contains `part`.
pub(super) fn contain(words: &[Vec<u8>], part: &[u8]) -> bool {
    words.iter().any(|word| word.windows(part.len().max(1)).any(|it| it == part))
}

/// The keys on which a command blocks.
pub(super) fn keys_of(words: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    if starts_with_any(words, &["X"]) {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(b"STREAMS"));
        let behind = at.map_or(&[][..], |at| &words[at + 1..]);
        return behind[..behind.len() / 2].iter().collect();
    }
    if starts_with_any(words, &["BLMPOP", "BZMPOP"]) {
        let count = words.get(2).and_then(|word| integer(word)?.try_into().ok());
        return words.iter().skip(3).take(count.unwrap_or(0)).collect();
    }
    if starts_with_any(words, &["BLMOVE", "BRPOPLPUSH"]) {
        return words.iter().skip(1).take(1).collect();
    }
    words[1..].iter().rev().skip(1).rev().collect()
}

/// A word as an integer that Redis accepts.
pub(super) fn integer(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}
