//! Known differences of scripts.

use super::difference::{KnownDifference, References};
use super::numbers::same_but_digits;
use super::words::{contain, was_sent};
use crate::wire::frame::Frame;

/// Words of Redis, and Valkey's in their place.
const WORDING: &[(&str, &str)] = &[
    ("WATCH inside MULTI is not allowed", "Command not allowed inside a transaction"),
    ("Lua redis lib command arguments must", "Command arguments must"),
    ("Unknown Redis command called", "Unknown command called"),
    ("args calling Redis command from script", "args calling command from script"),
    ("for this redis lib call", "for this call"),
    ("This Redis command is not allowed", "This command is not allowed"),
    ("No matching script. Please use EVAL.", "No matching script."),
];

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "Valkey's wording",
        line: "| `compat-version` other than 7.2 |",
        commands: &["WATCH", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"],
        references: References::Valkey,
        // An error with another text may end a transaction as well.
        ends: true,
        is: |observed| same_but_wording(observed.ours, observed.theirs),
    },
    KnownDifference {
        name: "maps of scripts",
        line: "| Order of a map that a script returns |",
        commands: &["EVAL", "EVAL_RO"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            contain(observed.words, b"setresp(3)")
                && with_sorted_maps(observed.ours) == with_sorted_maps(observed.theirs)
        },
    },
    KnownDifference {
        name: "numbers that a script has stored",
        line: "| Numbers that a script hands to a command |",
        commands: &[
            "GET", "MGET", "GETSET", "GETDEL", "GETEX", "HGET", "HMGET", "HGETALL", "HVALS",
        ],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            was_sent(observed, &["EVAL", "EVALSHA"], &|_| true)
                && same_but_digits(observed.ours, observed.theirs, None, &|frame, _| {
                    frame.kind == b'$'
                })
        },
    },
];

/// The reply with its maps in the order of their keys. In RESP2 a map is an array of names and
/// values.
fn with_sorted_maps(frame: &Frame) -> Frame {
    let mut sorted = frame.clone();
    sorted.items = frame.items.iter().map(with_sorted_maps).collect();
    let is_map = frame.kind == b'%'
        || frame.kind == b'*'
            && frame.items.len().is_multiple_of(2)
            && frame.items.iter().step_by(2).all(|name| name.kind == b'$');
    if is_map {
        let mut pairs: Vec<&[Frame]> = sorted.items.chunks(2).collect();
        pairs.sort_by(|one, other| one[0].text.cmp(&other[0].text));
        sorted.items = pairs.concat();
    }
    sorted
}

/// Whether they differ only in such words.
fn same_but_wording(ours: &Frame, theirs: &Frame) -> bool {
    let (one, other) = (String::from_utf8_lossy(&ours.text), String::from_utf8_lossy(&theirs.text));
    let reworded = |(redis, valkey): &(&str, &str)| one.replace(redis, valkey) == other;
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && (one == other || matches!(ours.kind, b'-' | b'$') && WORDING.iter().any(reworded))
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(one, other)| same_but_wording(one, other))
}
