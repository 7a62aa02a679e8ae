//! Checks the known differences with the examples and near misses of their family.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::References;
use super::find::all;
use super::{ObservedDifference, Version, alone, find, seventeen_digits};
use crate::fuzz::episode::Step;
use crate::wire::frame::Frame;
use crate::words;

/// A difference that occurred.
struct Example {
    /// Its line in the file.
    line: &'static str,
    command: Vec<Vec<u8>>,
    /// All commands up to the one that was sent last.
    before: Vec<Step>,
    ours: Frame,
    theirs: Frame,
}

/// A known difference: examples of it, and near misses.
struct Row {
    name: &'static str,
    explained: Vec<Example>,
    refused: Vec<Example>,
}

/// The examples of each family, in the order of the families.
const EXAMPLES: &[&str] = &[
    include_str!("sorted_sets.txt"),
    include_str!("objects.txt"),
    include_str!("keys.txt"),
    include_str!("lists.txt"),
    include_str!("bits.txt"),
    include_str!("blocking.txt"),
    include_str!("streams.txt"),
    include_str!("scripts.txt"),
    include_str!("requests.txt"),
];

/// The examples of all families.
fn rows() -> Vec<Row> {
    let replies = include_str!("examples.txt").lines();
    let replies: BTreeMap<_, _> = replies.filter_map(|line| line.split_once(" = ")).collect();
    let parts = EXAMPLES.iter().flat_map(|text| text.split("\n== ").skip(1));
    let row = |part: &'static str| {
        let mut lines = part.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let name = lines.next().unwrap_or_default();
        let (refused, explained): (Vec<_>, Vec<_>) =
            lines.partition(|line| line.starts_with("not "));
        let read = |lines: Vec<&'static str>| {
            lines.into_iter().map(|line| Example::read(line, &replies)).collect()
        };
        Row { name, explained: read(explained), refused: read(refused) }
    };
    parts.map(row).collect()
}

fn split(line: &str) -> Vec<Vec<u8>> {
    words::split(line).expect(line)
}

/// A reply with `|` for the end of a line, and `\xHH` for a byte.
fn frame(text: &str) -> Frame {
    let text = text.replace('|', "\\r\\n") + "\"";
    let (bytes, _) = words::double_quoted(&text).expect("an escaped reply");
    Frame::whole(&bytes).unwrap_or_else(|| panic!("one reply: {text}"))
}

impl Example {
    fn read(line: &'static str, replies: &BTreeMap<&str, &str>) -> Example {
        let text = line.strip_prefix("not ").unwrap_or(line);
        let (commands, answers) = text.split_once(" => ").expect(line);
        let (ours, theirs) = answers.split_once(" <> ").expect(line);
        let frame = |text: &str| frame(replies.get(text).unwrap_or(&text));
        let (commands, cause) = commands.split_once(" ... ").unwrap_or((commands, ""));
        let mut commands: Vec<Vec<Vec<u8>>> = commands.split("; ").map(split).collect();
        let command = commands.last().expect(line).clone();
        commands.extend((!cause.is_empty()).then(|| split(cause)));
        let step = |words| Step { client: 'a', words, pass: None };
        let before = commands.into_iter().map(step).collect();
        Example { line, command, before, ours: frame(ours), theirs: frame(theirs) }
    }

    /// The name of the known difference that matches, on a reference of this version.
    fn found(&self, version: Version) -> Option<&'static str> {
        let observed = ObservedDifference {
            words: &self.command,
            before: &self.before,
            ours: &self.ours,
            theirs: &self.theirs,
            apart_ms: 10,
            version,
        };
        find(&observed).map(|it| it.name)
    }
}

/// A version with the difference, and one without it.
fn versions(references: References) -> (Version, Option<Version>) {
    let redis = |major, minor| Version { redis: (major, minor), is_valkey: false };
    let valkey = Version { redis: (7, 2), is_valkey: true };
    match references {
        References::Every => (redis(7, 2), None),
        References::Before(7, 2) => (redis(7, 0), Some(redis(7, 2))),
        References::Before(..) => unreachable!("no other version is in the table"),
        References::Since(major, 0) => (redis(major, 0), Some(redis(major - 1, 9))),
        References::Since(major, minor) => (redis(major, minor), Some(redis(major, minor - 1))),
        References::Valkey => (valkey, Some(redis(7, 2))),
    }
}

#[test]
fn known_differences_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences.md");
    let text = std::fs::read_to_string(path).expect("the page is there");
    for known in all() {
        let found = text.lines().any(|line| line.starts_with(known.line));
        assert!(found, "{}: no line begins with {}", known.name, known.line);
    }
}

#[test]
fn every_known_difference_has_examples_and_near_misses() {
    let known: Vec<&str> = all().map(|it| it.name).collect();
    let rows = rows();
    let tested: Vec<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(known, tested);
    assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), known.len(), "a name is there twice");
    for row in &rows {
        assert!(!row.explained.is_empty(), "{}: no example", row.name);
        assert!(row.refused.len() >= 3, "{}: too few near misses", row.name);
    }
}

#[test]
fn known_difference_applies_only_to_its_versions() {
    for (row, known) in rows().iter().zip(all()) {
        let (version, other) = versions(known.references);
        for example in &row.explained {
            assert_eq!(example.found(version), Some(row.name), "{}", example.line);
            if let Some(other) = other {
                assert_ne!(example.found(other), Some(row.name), "{} {other:?}", example.line);
            }
        }
    }
}

#[test]
fn near_miss_is_not_explained() {
    let mut explained = Vec::new();
    for (row, known) in rows().iter().zip(all()) {
        let (version, _) = versions(known.references);
        for example in &row.refused {
            if let Some(name) = example.found(version) {
                explained.push(format!("{}: {} is explained by {name}", row.name, example.line));
            }
        }
    }
    assert!(explained.is_empty(), "{}", explained.join("\n"));
}

#[test]
fn reply_from_another_key_is_checked_on_the_reference() {
    for (command, reply, expected) in [
        ("BLPOP <l1> <l2> 0", "*2|$4|p:l2|$1|c|", "BLPOP <l2> 0"),
        (
            "BLMPOP 0 3 <l1> <l2> <l3> LEFT COUNT 2",
            "*2|$4|p:l2|*1|$1|c|",
            "BLMPOP 0 1 <l2> LEFT COUNT 2",
        ),
        ("BZPOPMAX <z1> <z2> <z1> 5", "*3|$4|p:z1|$1|a|$1|1|", "BZPOPMAX <z1> 5"),
    ] {
        assert_eq!(alone(&split(command), &frame(reply)), [(split(expected), frame(reply))]);
    }
    let (one, other) = ("*2|$4|p:x1|*1|$1|a|", "*2|$4|p:x2|*1|$1|b|");
    let command = split("XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS <x1> <x2> > 0-1");
    let asked = alone(&command, &frame(&format!("*2|{one}{other}")));
    let head = "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS";
    assert_eq!(
        asked,
        [
            (split(&format!("{head} <x1> >")), frame(&format!("*1|{one}"))),
            (split(&format!("{head} <x2> 0-1")), frame(&format!("*1|{other}"))),
        ]
    );
    let asked = alone(&command, &frame("%2|$4|p:x1|*1|$1|a|$4|p:x2|*1|$1|b|"));
    assert_eq!(asked[1].1, frame("%1|$4|p:x2|*1|$1|b|"));
}

#[test]
fn seventeen_digits_match_printf() {
    for (number, expected) in [
        (0.1, "0.10000000000000001"),
        (-0.3, "-0.29999999999999999"),
        (1e-5, "1.0000000000000001e-05"),
        (0.0001, "0.0001"),
        (1e17, "1e+17"),
        (1e16, "10000000000000000"),
        (1e300, "1.0000000000000001e+300"),
        (1.844_674_407_370_955_2e19, "1.8446744073709552e+19"),
        (3.5, "3.5"),
        (100.0, "100"),
        (0.0, "0"),
    ] {
        assert_eq!(seventeen_digits(number), expected);
    }
}
