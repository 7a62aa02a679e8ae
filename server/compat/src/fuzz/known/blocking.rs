//! Known differences of clients that are blocked.

use super::difference::{KnownDifference, References};
use super::replies::{
    WRONG_TYPE, is_error, is_error_with, is_key, is_served, is_waiting, streams_of,
};
use super::words::{STRINGS, integer, keys_of, starts_with_any, was_sent, word_after};
use crate::fuzz::episode::Step;
use crate::fuzz::reference::is_named;
use crate::wire::frame::Frame;

/// The difference that is confirmed on the reference: see [`alone`].
pub const SEVERAL_KEYS: &str = "waiting for several keys that are filled at once";

/// Commands that block on one of several keys.
const WAITING: &[&str] =
    &["BLPOP", "BRPOP", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "XREAD", "XREADGROUP"];

/// Blocking commands with a time-out in seconds.
const WITH_SECONDS: &[&str] =
    &["BLPOP", "BRPOP", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "BLMOVE", "BRPOPLPUSH"];

/// Milliseconds of the longest time-out that ends at a time which a server can represent.
const END_OF_TIME_MS: i64 = i64::MAX - 1_700_000_000_000;

/// Most seconds that fit into 64 bits as milliseconds.
const END_OF_TIME_SECONDS: f64 = 9.223_372_036_854_775e15;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "waiting beside a key of another type",
        line: "| A client that waits for several keys, one of which",
        commands: WAITING,
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let goes_on = is_waiting(observed.theirs) || is_served(observed, observed.theirs);
            observed.was_waiting()
                && keys_of(observed.words).len() > 1
                && is_error(observed.ours, WRONG_TYPE)
                && goes_on
        },
    },
    KnownDifference {
        name: "the greatest time-outs",
        line: "| A time-out in milliseconds that is beyond the end of time |",
        commands: &["WAIT", "XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let timeout = match is_named(observed.words, "WAIT") {
                true => observed.words.get(2),
                false => word_after(observed.words, "BLOCK"),
            };
            let timeout = timeout.and_then(|word| integer(word));
            // The arguments after the time-out may be invalid as well.
            timeout.is_some_and(|ms| ms > END_OF_TIME_MS)
                && is_error(observed.ours, "ERR timeout is out of range")
                && !is_error_with(observed.theirs, "timeout")
        },
    },
    KnownDifference {
        name: "waiting for a stream that goes",
        line: "| `XREADGROUP` that waits for a stream that is removed |",
        commands: &["XREADGROUP"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let words = [
                "UNBLOCKED the stream key no longer exists",
                "NOGROUP the consumer group this client was blocked on no longer exists",
            ];
            observed.was_waiting()
                && (is_error_with(observed.ours, "NOGROUP No such key '")
                    || starts_with_any(observed.cause(), STRINGS)
                        && is_error(observed.ours, WRONG_TYPE))
                && words.iter().any(|line| is_error(observed.theirs, line))
        },
    },
    KnownDifference {
        name: "waiting for one stream twice",
        line: "| `XREAD` that waits for one stream from two entries on |",
        commands: &["XREAD"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let keys = keys_of(observed.words);
            let is_twice = |(at, key): (usize, &&Vec<u8>)| keys[..at].contains(key);
            observed.was_waiting()
                && keys.iter().enumerate().any(is_twice)
                && is_waiting(observed.theirs)
        },
    },
    KnownDifference {
        name: "entries that are trimmed as they are added",
        line: "| `XADD` with trimming that removes the entry itself |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let trims = |words: &[Vec<u8>]| {
                ["MAXLEN", "MINID"].iter().any(|option| word_after(words, option).is_some())
            };
            let streams = streams_of(observed.theirs);
            let is_empty = |entries: &Frame| entries.kind == b'*' && entries.items.is_empty();
            was_sent(observed, &["XADD"], &trims)
                && observed.was_waiting()
                && is_waiting(observed.ours)
                && matches!(&*streams, [(_, entries)] if is_empty(entries))
        },
    },
    KnownDifference {
        name: "waiting for what is stored in place of another type",
        line: "| Clients that wait for a key that `SORT",
        commands: WITH_SECONDS,
        references: References::Every,
        ends: true,
        is: |observed| {
            let stores = ["ZRANGESTORE", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"];
            let stored = match () {
                () if is_named(observed.cause(), "SORT") => word_after(observed.cause(), "STORE"),
                () if stores.iter().any(|name| is_named(observed.cause(), name)) => {
                    observed.cause().get(1)
                }
                () => None,
            };
            // The earlier value of the key was stored under its name.
            let was_there = |key: &Vec<u8>| {
                let before = observed.before.split_last().map_or(&[][..], |(_, before)| before);
                before.iter().any(|Step { words, .. }| {
                    !starts_with_any(words, WITH_SECONDS) && words[1..].contains(key)
                })
            };
            stored.is_some_and(|key| keys_of(observed.words).contains(&key) && was_there(key))
                && is_waiting(observed.theirs)
                && is_served(observed, observed.ours)
        },
    },
    KnownDifference {
        name: SEVERAL_KEYS,
        line: "| A client that waits for several keys that one transaction",
        commands: WAITING,
        references: References::Before(7, 2),
        ends: true,
        // Whether the target's reply is right for its key is checked on the reference: see
        // [`alone`].
        is: |observed| {
            let keys = keys_of(observed.words);
            let place = |frame: &Frame| keys.iter().position(|key| is_key(frame, key));
            if !observed.was_waiting() || observed.ours.kind != observed.theirs.kind {
                return false;
            }
            if starts_with_any(observed.words, &["X"]) {
                let (ours, theirs) = (streams_of(observed.ours), streams_of(observed.theirs));
                let all_named = ours.iter().chain(&theirs).all(|(key, _)| place(key).is_some());
                let holds_theirs = theirs.iter().all(|stream| ours.contains(stream));
                return all_named && holds_theirs && ours.len() > theirs.len();
            }
            let first = |frame: &Frame| frame.items.first().and_then(place);
            let places = (first(observed.ours), first(observed.theirs));
            is_served(observed, observed.ours)
                && is_served(observed, observed.theirs)
                && matches!(places, (Some(ours), Some(theirs)) if ours < theirs)
        },
    },
    KnownDifference {
        name: "infinite time-outs",
        line: "| A time-out of `inf` |",
        commands: WITH_SECONDS,
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            observed.words[1..].iter().any(|word| is_endless(word))
                && is_error(observed.ours, "ERR timeout is out of range")
                && is_error(observed.theirs, "ERR timeout is negative")
        },
    },
];

/// The replies that the reference must give if a reply of the target that is explained by
/// [`SEVERAL_KEYS`] is right: for each key in the target's reply, the command that blocks on this
/// key alone, and its reply.
pub fn alone(words: &[Vec<u8>], ours: &Frame) -> Vec<(Vec<Vec<u8>>, Frame)> {
    if starts_with_any(words, &["X"]) {
        let one = |(key, entries): (&Frame, &Frame)| {
            let pair = vec![key.clone(), entries.clone()];
            let items = match ours.kind {
                b'%' => pair,
                _ => vec![Frame { items: pair, ..ours.clone() }],
            };
            (key.clone(), Frame { items, ..ours.clone() })
        };
        let replies = streams_of(ours).into_iter().map(one);
        return replies
            .filter_map(|(key, reply)| Some((waiting_for(words, &key)?, reply)))
            .collect();
    }
    let alone = ours.items.first().and_then(|key| waiting_for(words, key));
    alone.map(|words| (words, ours.clone())).into_iter().collect()
}

/// The command with only one of its keys.
fn waiting_for(words: &[Vec<u8>], key: &Frame) -> Option<Vec<Vec<u8>>> {
    let keys = keys_of(words);
    let at = keys.iter().position(|word| is_key(key, word))?;
    let first = words.iter().position(|word| std::ptr::eq(word, keys[0]))?;
    let mut alone = words[..first].to_vec();
    alone.push(keys[at].clone());
    let mut rest = words[first + keys.len()..].to_vec();
    if starts_with_any(words, &["X"]) {
        rest = vec![rest.get(at)?.clone()];
    } else if starts_with_any(words, &["BLM", "BZM"]) {
        alone[first - 1] = b"1".to_vec();
    }
    alone.extend(rest);
    Some(alone)
}

/// Whether a word is a number of seconds that overflows 64 bits in milliseconds.
fn is_endless(word: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(word) else { return false };
    // Hexadecimal: a mantissa of at least one, and an exponent of two.
    let power = || {
        let (mantissa, exponent) = text.strip_prefix("0x")?.split_once('p')?;
        let is_whole = u64::from_str_radix(mantissa, 16).is_ok_and(|number| number > 0);
        exponent.parse::<u32>().ok().filter(|_| is_whole)
    };
    text.parse::<f64>().is_ok_and(|seconds| seconds > END_OF_TIME_SECONDS)
        || power().is_some_and(|power| power > END_OF_TIME_SECONDS.log2() as u32)
}
