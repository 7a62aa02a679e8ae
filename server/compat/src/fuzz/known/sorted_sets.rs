//! Known differences of sorted sets and their scores.

use super::difference::{KnownDifference, References};
use super::numbers::{same_but_digits, same_numbers};
use super::replies::{SYNTAX, WRONG_TYPE, is_arity_error, is_error, is_error_with, is_key};
use super::words::{OF_ANY_TYPE, contain, starts_with_any, was_sent};
use crate::fuzz::episode::{Step, called};
use crate::fuzz::reference::is_named;
use crate::wire::frame::Frame;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "scores are printed with 17 digits",
        line: "| Scores that are no whole numbers |",
        commands: &[],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let at_any_place = starts_with_any(observed.words, &["EVAL", "ZMSCORE"]);
            // [key, member, score]
            let is_triple = starts_with_any(observed.words, &["BZPOP"]);
            let is_score = |frame: &Frame, at: Option<usize>| {
                frame.kind == b','
                    || at_any_place
                    || at.is_none_or(|at| if is_triple { at == 2 } else { at % 2 == 1 })
            };
            starts_with_any(observed.words, &["Z", "BZ", "EVAL"])
                && same_but_digits(observed.ours, observed.theirs, None, &is_score)
        },
    },
    KnownDifference {
        name: "minus zero in large forms",
        line: "| Score `-0` after `SORT` of the sorted set |",
        commands: &[],
        references: References::Every,
        ends: true,
        is: |observed| {
            let words = called(observed.words).unwrap_or(observed.words);
            let reads_scores = starts_with_any(words, &["Z", "BZ"])
                || starts_with_any(words, &["EVAL"])
                    && ["'Z", "'BZ"].iter().any(|it| contain(words, it.as_bytes()));
            // The sorted set may have been moved since.
            let is_moved =
                observed.before.iter().any(|step| starts_with_any(&step.words, OF_ANY_TYPE));
            let was_sorted = |step: &Step| {
                starts_with_any(&step.words, &["SORT"])
                    && step.words.get(1).is_some_and(|key| is_moved || contain(words, key))
            };
            reads_scores
                && observed.before.iter().any(was_sorted)
                && same_numbers(observed.ours, observed.theirs)
        },
    },
    KnownDifference {
        name: "ranks with scores",
        line: "| `ZRANK` and `ZREVRANK` with `WITHSCORE` |",
        commands: &["ZRANK", "ZREVRANK", "COMMAND GETKEYS ZRANK", "COMMAND GETKEYS ZREVRANK"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            if is_named(observed.words, "COMMAND") {
                let keys = observed.words.len() > 5
                    && observed.ours.kind == b'*'
                    && matches!(&*observed.ours.items, [key] if is_key(key, &observed.words[3]));
                return keys
                    && is_error(
                        observed.theirs,
                        "ERR Invalid number of arguments specified for command",
                    );
            }
            let is_asked =
                observed.words.len() == 4 && observed.words[3].eq_ignore_ascii_case(b"WITHSCORE");
            let is_expected = match observed.ours.kind {
                b'*' if observed.ours.missing => is_asked,
                b'*' => is_asked && observed.ours.items.len() == 2,
                b'_' => is_asked,
                // Checks that run after the check of the number of arguments.
                b'+' => {
                    observed.ours.text == b"QUEUED" && was_sent(observed, &["MULTI"], &|_| true)
                }
                _ if is_error_with(observed.ours, "ERR Can't execute '") => {
                    was_sent(observed, &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"], &|_| true)
                }
                _ => {
                    is_asked && is_error(observed.ours, WRONG_TYPE)
                        || !is_asked && is_error(observed.ours, SYNTAX)
                }
            };
            observed.words.len() == 4
                && is_expected
                && is_arity_error(observed.theirs, &observed.words[0])
        },
    },
    KnownDifference {
        name: "numbers behind a blank, and hexadecimal ones",
        line: "| Scores that begin with a blank or are hexadecimal |",
        commands: &[],
        references: References::Since(8, 0),
        ends: true,
        is: |observed| {
            let odd = |word: &Vec<u8>| {
                let word = String::from_utf8_lossy(word);
                word.starts_with(' ') || word.contains("0x") || word.contains("' ")
            };
            let any_odd = |words: &[Vec<u8>]| words.iter().any(odd);
            // The type of the key is checked later, and a script may fail later.
            let goes_on = observed.ours.kind != b'-'
                || is_error(observed.ours, WRONG_TYPE)
                || is_named(observed.words, "EVAL");
            let refuses = |text: &str| goes_on && refuses(observed.theirs, text);
            let is_sorted = starts_with_any(observed.words, &["SORT"]);
            any_odd(observed.words)
                && (refuses("is not a float") || refuses("is not a valid float"))
                || is_sorted
                    && refuses("converted into double")
                    && observed.before.iter().any(|step| any_odd(&step.words))
        },
    },
    KnownDifference {
        name: "scores of large sorted sets",
        line: "| `ZSCAN` of a large sorted set |",
        commands: &["ZSCAN"],
        references: References::Since(7, 2),
        ends: false,
        is: |observed| {
            let is_score = |_: &Frame, at: Option<usize>| at.is_some_and(|at| at % 2 == 1);
            same_but_digits(observed.ours, observed.theirs, None, &is_score)
        },
    },
    KnownDifference {
        name: "ranks with scores, in transactions",
        line: "| `ZRANK` and `ZREVRANK` with `WITHSCORE` |",
        commands: &["ZRANK", "ZREVRANK"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            observed.words.len() > 4
                && observed.ours.text == b"QUEUED"
                && is_error_with(observed.theirs, "wrong number of arguments")
        },
    },
    KnownDifference {
        name: "hexadecimal bounds beyond all doubles",
        line: "| A bound like `0x1p4000`",
        commands: &[],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_hexadecimal = |word: &Vec<u8>| String::from_utf8_lossy(word).contains("0x");
            starts_with_any(observed.words, &["Z"])
                && is_error_with(observed.ours, "min or max is not a float")
                && (observed.theirs.kind != b'-' || is_error_with(observed.theirs, "WRONGTYPE"))
                && observed.words.iter().any(is_hexadecimal)
        },
    },
];

/// Whether a reply is an error that contains this text, or contains one.
fn refuses(reply: &Frame, text: &str) -> bool {
    is_error_with(reply, text) || reply.items.iter().any(|item| refuses(item, text))
}
