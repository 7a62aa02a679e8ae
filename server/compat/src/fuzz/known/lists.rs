//! Known differences of lists.

use super::difference::{KnownDifference, References};
use super::replies::{WRONG_TYPE, is_error, is_error_with};
use crate::fuzz::reference::is_named;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "the least number",
        line: "| `LREM` and `LPOS` of the least number |",
        commands: &["LREM", "LPOS"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let refusal = "ERR value is out of range, value must between \
                           -9223372036854775807 and 9223372036854775807";
            let least = i64::MIN.to_string().into_bytes();
            let is_tried = match is_named(observed.words, "LREM") {
                true => observed.theirs.kind == b':',
                false => observed.theirs.kind != b'-',
            };
            // It is not of that type, or an option behind is refused.
            let is_last = observed.words.last() == Some(&least);
            let is_tried = is_tried
                || is_error(observed.theirs, WRONG_TYPE)
                || !is_last
                    && is_named(observed.words, "LPOS")
                    && ["ERR COUNT can't be", "ERR MAXLEN can't be", "ERR syntax error"]
                        .iter()
                        .any(|error| is_error_with(observed.theirs, error));
            observed.words.contains(&least) && is_error(observed.ours, refusal) && is_tried
        },
    },
    KnownDifference {
        name: "places of a list beyond 32 bits",
        line: "| `LSET` of a place beyond 32 bits |",
        commands: &["LSET", "EVAL"],
        references: References::Since(7, 2),
        ends: true,
        is: |observed| {
            let is_beyond = |text: &str| {
                let numbers = text.split(|it: char| !it.is_ascii_digit() && it != '-');
                let mut numbers = numbers.filter_map(|text| text.parse::<i64>().ok());
                numbers.any(|number| i32::try_from(number).is_err())
            };
            let words = observed.words.iter().map(|word| String::from_utf8_lossy(word));
            words.into_iter().any(|word| is_beyond(&word))
                && is_error_with(observed.ours, "ERR index out of range")
                && observed.theirs.kind != b'-'
        },
    },
];
