//! Checks the texts: no literary words or words for persons in technical text, and a purpose on top
//! of every file.

use crate::boundaries::{files, read, relative, root};

/// Words that are refused in text and in parts of identifiers, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("who", "that or which, or name the client, connection, thread or holder"),
    ("whoever", "the client, connection, thread or holder that"),
    ("whom", "which, or name the client, connection, thread or holder"),
    ("nobody", "no client, no connection, none"),
    ("somebody", "a client, another client"),
    ("everybody", "all clients, all connections"),
    ("anybody", "any client, any connection"),
    ("told", "sent, notified, given, set"),
    ("owed", "pending, unsent"),
    ("owes", "has pending, has unsent"),
    ("stands", "is, is stopped, is in, means"),
    ("heard", "received, was notified of"),
    ("hears", "receives, is notified of"),
    ("hearing", "receiving, being notified of"),
    ("homeless", "unqueued, unassigned"),
    ("insomniac", "waker, awake"),
    ("deed", "operation, action"),
    ("deeds", "operations, actions"),
    ("puppet", "test double, simulated client"),
    ("puppets", "test doubles, simulated clients"),
    ("loser", "previous holder, refused client"),
    ("losers", "previous holders, refused clients"),
    ("crowd", "clients, connections, connection limit"),
    ("gossip", "message, notification"),
    ("herald", "notifier, publisher"),
    ("mailman", "sender, notifier"),
    ("stranger", "another client, other owner"),
    ("strangers", "other clients, other owners"),
    ("mischief", "fault, invalid input"),
    ("patience", "timeout, limit, with its unit"),
    ("leasehold", "Lockwheel"),
];

/// File, word, and the reason for which the word may be used there.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("CHANGELOG.md", "leasehold", "the former name"),
    ("server/lockwheel/src/process_usage.rs", "who", "the name of a type of nix"),
    ("server/cli/src/compat_command/mod.rs", "patience", "the former name of an option"),
];

/// The endings of files with text of the project.
const TEXTS: &[&str] = &[
    "rs", "md", "py", "js", "mjs", "cjs", "ts", "mts", "cts", "java", "go", "php", "rb", "txt",
    "toml", "sh",
];

/// The endings of programs in other languages than Rust.
const PROGRAMS: &[&str] =
    &["py", "js", "mjs", "cjs", "ts", "mts", "cts", "java", "go", "php", "rb", "sh"];

/// Names of scripts without an ending.
const SCRIPTS: &[&str] = &["run", "build"];

/// Hidden files, which [`files`] leaves out.
const HIDDEN: &[&str] = &[".ci/run", ".cargo/mutants.toml"];

/// Scripts of lock libraries, whose text is given by others.
const THIRD_PARTY: &str = "server/compat/src/cases/scripts/";

/// This file, which contains every refused word.
const THIS_FILE: &str = "tests/it/wording.rs";

#[test]
fn text_contains_no_refused_words() {
    let mut offences = Vec::new();
    for (path, text) in texts(TEXTS) {
        if path.starts_with(THIRD_PARTY) || path == THIS_FILE {
            continue;
        }
        offences.extend(refused(&path, &text));
    }
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

#[test]
fn exceptions_are_needed() {
    for (path, word, reason) in EXCEPTIONS {
        let text = read(&root().join(path)).to_lowercase();
        assert!(text.contains(word), "{path} does not contain {word}: {reason}");
    }
}

/// `files_begin_with_a_description_and_have_short_ascii_lines` checks Rust files.
#[test]
fn programs_begin_with_their_purpose() {
    let without = texts(PROGRAMS).into_iter().filter(|(_, text)| !has_purpose(text));
    let without: Vec<_> = without.map(|(path, _)| path).collect();
    assert_eq!(without, Vec::<String>::new());
}

#[test]
fn rules_find_violations() {
    let found = |path: &str, text: &str| refused(path, text).len();
    assert_eq!(found("a.rs", "Nobody is_told toldYou TOLD_YOU HTTPTold"), 5);
    assert_eq!(found("a.rs", "understands scrowded whose deeded untold"), 0);
    assert_eq!(found("a.rs", "// who") + found("a.md", "who"), 1);
    assert_eq!(found("CHANGELOG.md", "Leasehold") + found("README.md", "Leasehold"), 1);
    let [offence] = &refused("a.py", "\nx = owed")[..] else { panic!("one offence") };
    assert_eq!(offence, "a.py:2: \"owed\"; write instead: pending, unsent");

    assert!(has_purpose("#!/usr/bin/env bash\n# Runs the tests.\n"));
    assert!(has_purpose("<?php\n// Tests a library.\n"));
    assert!(!has_purpose("#!/usr/bin/env bash\nset -e\n# Runs the tests.\n"));
    assert!(!has_purpose("# frozen_string_literal: true\n\n# Tests a library.\n"));
    assert!(!has_purpose("package a;\n\n// A class.\n"));
}

/// The paths and texts of the files with one of the endings, and of scripts.
fn texts(endings: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let hidden = HIDDEN.iter().map(|path| root.join(path));
    let paths = files(&root).into_iter().chain(hidden).filter(|path| match path.extension() {
        Some(ending) => endings.iter().any(|known| ending == *known),
        None => path.file_name().is_some_and(|name| SCRIPTS.iter().any(|known| name == *known)),
    });
    paths.map(|path| (relative(&path), read(&path))).collect()
}

/// The places of refused words.
fn refused(path: &str, text: &str) -> Vec<String> {
    let excepted = |word: &str| {
        let listed = EXCEPTIONS.iter().any(|(file, known, _)| path == *file && word == *known);
        listed || (word == "who" && path.ends_with(".md"))
    };
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words(line).filter(|word| !excepted(word)) {
            let known = WORDS.iter().find(|(refused, _)| word == *refused);
            offences.extend(known.map(|(refused, instead)| {
                format!("{path}:{}: \"{refused}\"; write instead: {instead}", index + 1)
            }));
        }
    }
    offences
}

/// The words of a line in lower case, with the parts of `snake_case` and `CamelCase` names.
fn words(line: &str) -> impl Iterator<Item = String> {
    let runs = line.split(|character: char| !character.is_ascii_alphabetic());
    runs.flat_map(camel_parts).map(|word| word.to_ascii_lowercase())
}

/// The parts of a `CamelCase` name: a part begins before a capital letter that follows a small one,
/// and before the last capital letter of several.
fn camel_parts(name: &str) -> Vec<&str> {
    let letters = name.as_bytes();
    let begins = |at: usize| {
        let next_is_small = letters.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        letters[at].is_ascii_uppercase() && (letters[at - 1].is_ascii_lowercase() || next_is_small)
    };
    let mut parts = Vec::new();
    let mut start = 0;
    for at in (1..letters.len()).filter(|at| begins(*at)) {
        parts.push(&name[start..at]);
        start = at;
    }
    parts.push(&name[start..]);
    parts
}

/// Whether one of the first two lines is a comment or a docstring.
fn has_purpose(text: &str) -> bool {
    text.lines().take(2).any(|line| {
        let directive = line.starts_with("#!") || line.starts_with("# frozen_string_literal");
        !directive && ["//", "/*", "#", "\"\"\""].iter().any(|sign| line.starts_with(sign))
    })
}
