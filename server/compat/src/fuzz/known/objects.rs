//! Known differences of `OBJECT`: encodings, references and idle times.

use super::difference::{KnownDifference, ObservedDifference, References};
use super::replies::{is_integer, number};
use super::words::{STRINGS, key_was_in};
use crate::fuzz::reference::is_named;

const LISTS: &[&str] =
    &["LPUSH", "RPUSH", "LINSERT", "LMOVE", "RPOPLPUSH", "BLMOVE", "BRPOPLPUSH", "SORT"];

const SETS: &[&str] =
    &["SADD", "SMOVE", "SPOP", "SREM", "SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"];

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "encodings of lists and sets",
        line: "| `OBJECT ENCODING` of short lists and sets |",
        commands: &["OBJECT ENCODING"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| match encodings(observed) {
            (b"listpack", b"quicklist") => key_was_in(observed, LISTS),
            (b"listpack", b"hashtable") => key_was_in(observed, SETS),
            _ => false,
        },
    },
    KnownDifference {
        name: "large forms of what is small",
        line: "| `OBJECT ENCODING` after `SORT` of a sorted set",
        commands: &["OBJECT ENCODING"],
        references: References::Every,
        ends: false,
        is: |observed| match encodings(observed) {
            (b"listpack", b"skiplist") => key_was_in(observed, &["SORT"]),
            (b"listpack" | b"intset", b"hashtable") => key_was_in(observed, &["SDIFFSTORE"]),
            (b"listpack", b"quicklist") => key_was_in(
                observed,
                &["LPOP", "RPOP", "LREM", "LTRIM", "LMPOP", "LMOVE", "BL", "BR"],
            ),
            _ => false,
        },
    },
    KnownDifference {
        name: "shared integers",
        line: "| `OBJECT REFCOUNT` of a small integer |",
        commands: &["OBJECT REFCOUNT"],
        references: References::Every,
        ends: false,
        is: |observed| {
            is_integer(observed.ours, "2147483647")
                && is_integer(observed.theirs, "1")
                && key_was_in(observed, STRINGS)
        },
    },
    KnownDifference {
        name: "idle times of shared integers",
        line: "| `OBJECT IDLETIME`, `FREQ` of a small integer |",
        commands: &["OBJECT IDLETIME"],
        references: References::Every,
        ends: false,
        is: |observed| {
            let are_times =
                [observed.ours, observed.theirs].map(number).iter().all(|it| *it >= Some(0));
            are_times && key_was_in(observed, STRINGS)
        },
    },
    KnownDifference {
        name: "references of a transaction",
        line: "| `OBJECT REFCOUNT` of what the same transaction",
        commands: &["OBJECT REFCOUNT"],
        references: References::Every,
        ends: false,
        is: |observed| {
            is_named(observed.cause(), "EXEC")
                && is_integer(observed.ours, "1")
                && is_integer(observed.theirs, "2")
                && key_was_in(observed, STRINGS)
        },
    },
];

/// The encodings in the replies of the target and the reference.
fn encodings<'a>(observed: &ObservedDifference<'a>) -> (&'a [u8], &'a [u8]) {
    match (observed.ours.kind, observed.theirs.kind) {
        (b'$', b'$') => (&observed.ours.text, &observed.theirs.text),
        _ => (b"", b""),
    }
}
