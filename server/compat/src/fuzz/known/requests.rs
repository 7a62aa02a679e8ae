//! Known differences of requests and connections, whatever they are about.

use super::difference::{KnownDifference, ObservedDifference, References};
use super::replies::{is_arity_error, is_error, is_error_with};
use super::words::was_sent;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "keys of commands without arguments",
        line: "| `COMMAND GETKEYS` of a name alone |",
        commands: &["COMMAND GETKEYS"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let answers = [
                "ERR The command has no key arguments",
                "ERR Invalid command specified",
                "ERR Invalid number of arguments specified for command",
            ];
            // The target checks the number of arguments only after it was queued.
            let is_queued =
                observed.ours.text == b"QUEUED" && was_sent(observed, &["MULTI"], &|_| true);
            observed.words.len() == 3
                && (is_queued || answers.iter().any(|answer| is_error(observed.ours, answer)))
                && is_arity_error(observed.theirs, b"command|getkeys")
        },
    },
    KnownDifference {
        name: "bytes that are no text, in errors",
        line: "| Bytes of an unknown command's name",
        commands: &[],
        references: References::Every,
        ends: false,
        is: |observed| {
            let begins = ["ERR unknown command '", "ERR unknown subcommand '"];
            begins.iter().any(|begin| {
                is_error_with(observed.ours, begin) && is_error_with(observed.theirs, begin)
            }) && has_binary_words(observed)
                && same_but_bytes(observed)
        },
    },
    KnownDifference {
        name: "reading from replicas",
        line: "| `READONLY` and `READWRITE` outside a cluster |",
        commands: &["READONLY", "READWRITE"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let refusal = "ERR This instance has cluster support disabled";
            is_error(observed.ours, refusal)
                && observed.theirs.kind == b'+'
                && observed.theirs.text == b"OK"
        },
    },
    KnownDifference {
        name: "options behind a reason",
        line: "| `CLIENT UNBLOCK` with more arguments |",
        commands: &["CLIENT UNBLOCK"],
        references: References::Valkey,
        ends: true,
        is: |observed| {
            let refusal = "ERR unknown subcommand or wrong number of arguments for";
            observed.words.len() > 4
                && is_error_with(observed.ours, refusal)
                && !is_error_with(observed.theirs, refusal)
        },
    },
    KnownDifference {
        name: "bytes of a request, in errors",
        line: "| Bytes of a request that an error repeats |",
        commands: &[],
        references: References::Every,
        ends: false,
        is: differs_in_repeated_word,
    },
];

/// Whether both are errors that repeat a word of the command and differ only in its form: Redis
/// ends it at a zero byte and removes line ends at the end.
fn differs_in_repeated_word(observed: &ObservedDifference<'_>) -> bool {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ");
    let theirs = shown(&observed.theirs.text);
    let is_same = |word: &Vec<u8>| {
        let (text, end) = (shown(word), word.iter().position(|byte| *byte == 0));
        let ours = match end {
            Some(end) => shown(&observed.ours.text).replace(&text, &shown(&word[..end])),
            None => shown(&observed.ours.text),
        };
        let ends_line = word.ends_with(b"\r") || word.ends_with(b"\n");
        let is_text = end.is_none() && std::str::from_utf8(word).is_ok();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        !is_text && ours == theirs || ends_line && words(&ours) == words(&theirs)
    };
    let are_errors = observed.ours.kind == b'-' && observed.theirs.kind == b'-';
    are_errors && observed.words.iter().any(is_same)
}

/// Whether some words are not UTF-8 or contain a zero byte.
fn has_binary_words(observed: &ObservedDifference<'_>) -> bool {
    observed.words.iter().any(|word| word.contains(&0) || std::str::from_utf8(word).is_err())
}

/// Whether two errors differ only in bytes that are not UTF-8: the target shows U+FFFD, and the
/// reference ends a word at a zero byte.
fn same_but_bytes(observed: &ObservedDifference<'_>) -> bool {
    let mut ours = String::new();
    let mut is_cut = false;
    for letter in String::from_utf8_lossy(&observed.ours.text).chars() {
        is_cut = letter == '\0' || is_cut && letter != '\'';
        if !is_cut {
            ours.push(letter);
        }
    }
    ours == String::from_utf8_lossy(&observed.theirs.text)
}
