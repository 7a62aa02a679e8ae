//! Known differences of keys: scanning, sorting and leases.

use super::difference::{KnownDifference, ObservedDifference, References};
use super::replies::{SYNTAX, is_error, is_error_with, is_integer, page_of};
use super::words::{integer, word_after};
use crate::fuzz::episode::{Step, called};
use crate::fuzz::reference::is_named;
use crate::wire::frame::Frame;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "expired keys without a type",
        line: "| `SCAN` with `TYPE none` |",
        commands: &["SCAN"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let is_none = word_after(observed.words, "TYPE")
                .is_some_and(|word| word.eq_ignore_ascii_case(b"none"));
            is_none
                && page_of(observed.ours).is_some_and(<[Frame]>::is_empty)
                && page_of(observed.theirs).is_some_and(|page| !page.is_empty())
        },
    },
    KnownDifference {
        name: "unknown types",
        line: "| `SCAN` of a type that is none |",
        commands: &["SCAN"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let types = ["string", "list", "set", "zset", "hash", "stream"];
            let is_unknown = word_after(observed.words, "TYPE").is_some_and(|word| {
                !types.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
            });
            let finds_nothing = page_of(observed.ours).is_some_and(<[Frame]>::is_empty);
            // Valkey refuses the type before it parses the options behind it.
            let is_option = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"TYPE");
            let option = observed.words.iter().position(is_option);
            let is_last = option.is_some_and(|at| at + 2 == observed.words.len());
            let is_answered = finds_nothing || !is_last && is_error(observed.ours, SYNTAX);
            is_unknown && is_answered && is_error_with(observed.theirs, "ERR unknown type name")
        },
    },
    KnownDifference {
        name: "the order of values that are not text",
        line: "| `SORT \u{2026} ALPHA` |",
        commands: &["SORT", "SORT_RO"],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_not_text = |byte: &u8| *byte == 0 || !byte.is_ascii();
            let mut items = observed.ours.items.iter().chain(&observed.theirs.items);
            observed.words.iter().any(|word| word.eq_ignore_ascii_case(b"ALPHA"))
                && observed.ours.items.len() == observed.theirs.items.len()
                && items.any(|item| item.text.iter().any(is_not_text))
        },
    },
    KnownDifference {
        name: "leases compared in the millisecond in which they end",
        line: "| The end of a lease |",
        commands: &["EXPIRE", "PEXPIRE"],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_compared = observed.words.get(3).is_some_and(|option| {
                ["GT", "LT"].iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
            });
            let are_unlike = is_integer(observed.ours, "0") && is_integer(observed.theirs, "1")
                || is_integer(observed.ours, "1") && is_integer(observed.theirs, "0");
            is_compared && are_unlike && ends_near_another_lease(observed)
        },
    },
];

/// Whether a command sets a lease that ends almost when one ends that an earlier command has set
/// for the same key: then the times of the two commands decide which lease is longer.
fn ends_near_another_lease(observed: &ObservedDifference<'_>) -> bool {
    let own = |step: &Step| called(&step.words).unwrap_or(&step.words).to_vec();
    let Some(at) = observed.before.iter().rposition(|step| own(step) == observed.words) else {
        return false;
    };
    let Some(mut span_ms) = lease_ms(observed.words) else { return false };
    observed.before[..at].iter().rev().any(|step| {
        span_ms = span_ms.saturating_add(pass_ms(step));
        let words = own(step);
        words.get(1) == observed.words.get(1)
            && lease_ms(&words).is_some_and(|other_ms| {
                other_ms.abs_diff(span_ms) <= observed.apart_ms.unsigned_abs()
            })
    })
}

/// The pause after a step in milliseconds.
fn pass_ms(step: &Step) -> i64 {
    step.pass.map_or(0, |span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

/// The lease that a command sets, in milliseconds.
fn lease_ms(words: &[Vec<u8>]) -> Option<i64> {
    let is = |names: &[&str]| names.iter().any(|name| is_named(words, name));
    let (span, unit_ms) = match () {
        () if is(&["PEXPIRE", "PSETEX"]) => (words.get(2)?, 1),
        () if is(&["EXPIRE", "SETEX"]) => (words.get(2)?, 1000),
        () if is(&["SET", "GETEX"]) => match word_after(words, "PX") {
            Some(span) => (span, 1),
            None => (word_after(words, "EX")?, 1000),
        },
        () => return None,
    };
    integer(span)?.checked_mul(unit_ms)
}
