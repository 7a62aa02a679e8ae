//! What the replies of a difference say.

use super::difference::{ObservedDifference, waits};
use super::words::{integer, keys_of, starts_with_any};
use crate::wire::frame::Frame;

pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

pub(super) const NO_INTEGER: &str = "ERR value is not an integer or out of range";

pub(super) const SYNTAX: &str = "ERR syntax error";

/// The elements in a reply of `SCAN`.
pub(super) fn page_of(reply: &Frame) -> Option<&[Frame]> {
    match &*reply.items {
        [_, page] => Some(&page.items),
        _ => None,
    }
}

/// Whether it is an error that contains this text.
pub(super) fn is_error_with(frame: &Frame, text: &str) -> bool {
    frame.kind == b'-' && String::from_utf8_lossy(&frame.text).contains(text)
}

/// Whether it is exactly this error.
pub(super) fn is_error(frame: &Frame, line: &str) -> bool {
    frame.kind == b'-' && frame.text == line.as_bytes()
}

/// Whether it is the error for a wrong number of arguments.
pub(super) fn is_arity_error(frame: &Frame, name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_lowercase();
    is_error(frame, &format!("ERR wrong number of arguments for '{name}' command"))
}

pub(super) fn is_integer(frame: &Frame, text: &str) -> bool {
    frame.kind == b':' && frame.text == text.as_bytes()
}

/// Whether it is the placeholder of a blocked client: see [`ObservedDifference::ours`].
pub(super) fn is_waiting(frame: &Frame) -> bool {
    *frame == waits()
}

/// Whether it is a key of this name, as an episode writes it.
pub(super) fn is_key(frame: &Frame, word: &[u8]) -> bool {
    frame.kind == b'$' && is_word(&frame.text, word)
}

/// Whether a text is this word of an episode, or the key that it names.
pub(super) fn is_word(text: &[u8], word: &[u8]) -> bool {
    let name = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">"));
    let is_name = |name| text.strip_suffix(name).is_some_and(|rest| rest.ends_with(b":"));
    text == word || name.is_some_and(is_name)
}

/// Whether a blocked client got an element of one of its keys.
pub(super) fn is_served(observed: &ObservedDifference<'_>, frame: &Frame) -> bool {
    let is_named_key = |key: &Frame| keys_of(observed.words).iter().any(|word| is_key(key, word));
    if starts_with_any(observed.words, &["BLMOVE", "BRPOPLPUSH"]) {
        return frame.kind == b'$' && !frame.missing;
    }
    if starts_with_any(observed.words, &["X"]) {
        let streams = streams_of(frame);
        return !streams.is_empty() && streams.iter().all(|(key, _)| is_named_key(key));
    }
    let shape = |items: &[Frame]| match items {
        [_, elements] if starts_with_any(observed.words, &["BLM", "BZM"]) => {
            !elements.items.is_empty()
        }
        [_, element] if starts_with_any(observed.words, &["BLP", "BRP"]) => element.kind == b'$',
        [_, member, score] if starts_with_any(observed.words, &["BZP"]) => {
            member.kind == b'$' && matches!(score.kind, b'$' | b',')
        }
        _ => false,
    };
    frame.kind == b'*' && frame.items.first().is_some_and(is_named_key) && shape(&frame.items)
}

/// The streams of a reply and the entries of each.
pub(super) fn streams_of(frame: &Frame) -> Vec<(&Frame, &Frame)> {
    let pairs: Vec<&[Frame]> = match frame.kind {
        b'%' => frame.items.chunks(2).collect(),
        b'*' => frame.items.iter().map(|item| &*item.items).collect(),
        _ => Vec::new(),
    };
    match pairs.iter().all(|pair| pair.len() == 2) {
        true => pairs.into_iter().map(|pair| (&pair[0], &pair[1])).collect(),
        false => Vec::new(),
    }
}

pub(super) fn number(frame: &Frame) -> Option<i64> {
    (frame.kind == b':').then(|| integer(&frame.text)).flatten()
}
