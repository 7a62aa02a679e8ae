//! Known differences of bits in strings.

use super::difference::{KnownDifference, References};
use super::replies::{NO_INTEGER, SYNTAX, WRONG_TYPE, is_error, is_integer};
use super::words::integer;
use crate::fuzz::reference::is_named;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "counting bits from a place on",
        line: "| `BITCOUNT` with a start and no end |",
        commands: &["BITCOUNT"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let counts_from = observed.words.len() == 3
                && is_error(observed.ours, SYNTAX)
                && (observed.theirs.kind == b':'
                    || is_error(observed.theirs, NO_INTEGER)
                    || is_error(observed.theirs, WRONG_TYPE));
            // Valkey reads the unit before the numbers.
            let reads_unit = observed.words.len() == 5
                && is_error(observed.ours, NO_INTEGER)
                && is_error(observed.theirs, SYNTAX);
            counts_from || reads_unit
        },
    },
    KnownDifference {
        name: "bits of what is not there",
        line: "| `BITCOUNT` and `BITPOS` of a missing key |",
        commands: &["BITCOUNT", "BITPOS"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let counts = is_named(observed.words, "BITCOUNT");
            // The arguments after the key, or after the bit, are not a range.
            let range = observed.words.get(if counts { 2 } else { 3 }..).unwrap_or_default();
            let (numbers, unit) = range.split_at(range.len().min(2));
            let is_unit = |word: &Vec<u8>| {
                ["BIT", "BYTE"].iter().any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
            };
            let is_range = numbers.iter().all(|word| integer(word).is_some())
                && (unit.is_empty() || unit.len() == 1 && is_unit(&unit[0]))
                && (numbers.len() != 1 || !counts);
            let is_refused = is_error(observed.ours, NO_INTEGER) || is_error(observed.ours, SYNTAX);
            let nothing = if !counts && observed.words.get(2).is_some_and(|bit| bit == b"1") {
                "-1"
            } else {
                "0"
            };
            let is_looked_at =
                is_integer(observed.theirs, nothing) || is_error(observed.theirs, WRONG_TYPE);
            !range.is_empty() && !is_range && is_refused && is_looked_at
        },
    },
];
