//! The JSON replies of `LOCKWHEEL`: their fields are those that `docs/lockwheel-commands.md` lists,
//! and the types of the packages have all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockwheel::{Client, Fault, Reply, Requests, Server};
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, COMPARE_AND_RENEW};
use lockwheel_tests::wait_at;
use lockwheel_tests::wire::Wire;
use serde_json::Value;

use crate::boundaries::{self, root};

type Names = BTreeSet<String>;

/// The heading of the section about the journal.
const JOURNAL: &str = "JOURNAL [KEY pattern] [CLIENT client] [SINCE seq] [COUNT n] [TEXT]";

/// The heading of the section about mistakes of lock recipes.
const LINT: &str = "LINT [KEY pattern] [CLIENT client] [SINCE seq]";

/// The heading of the section about the story of a check.
const STORY: &str = "CHECK name [KEY pattern] [CLIENT client] [SINCE seq] STORY";

fn read(path: &str) -> String {
    boundaries::read(&root().join(path))
}

/// The cells of the table rows of a section, without the header rows.
fn rows(section: &str) -> Vec<Vec<String>> {
    let page = read("docs/lockwheel-commands.md");
    let (_, rest) = page.split_once(&format!("\n### LOCKWHEEL {section}\n")).expect(section);
    let section = rest.split("\n### ").next().unwrap_or_default();
    let section = section.replace("\\|", "");
    let lines = section.lines().zip(section.lines().skip(1).chain([""]));
    let rows = lines.filter(|(_, next)| !next.starts_with("|--")).filter_map(|(line, _)| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(cells.split(" | ").map(str::to_owned).collect())
    });
    rows.collect()
}

/// The names in a cell, without those in its remarks in parentheses.
fn names(cell: &str) -> Names {
    let outside: String =
        cell.split('(').map(|part| part.rsplit(')').next().unwrap_or_default()).collect();
    outside.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The fields that the two-column tables of a section list.
fn documented(section: &str) -> Names {
    rows(section).iter().filter(|row| row.len() == 2).flat_map(|row| names(&row[0])).collect()
}

/// The fields of each event of the journal, from the table with three columns.
fn documented_events() -> BTreeMap<String, Names> {
    let rows = rows(JOURNAL);
    let events = rows.iter().filter_map(|row| match &row[..] {
        [event, _, fields] => Some((event.trim_matches('`').to_owned(), names(fields))),
        _ => None,
    });
    events.collect()
}

fn json(server: &Server, words: &str) -> Value {
    let words: Vec<&str> = ["LOCKWHEEL"].into_iter().chain(words.split(' ')).collect();
    let Ok(Reply::Bulk(text)) = server.call(&words) else { panic!("{words:?}") };
    serde_json::from_slice(&text).expect("JSON")
}

/// The fields of an object, or of all objects of an array.
fn fields(value: &Value) -> Names {
    match value {
        Value::Object(object) => object.keys().cloned().collect(),
        Value::Array(items) => items.iter().flat_map(fields).collect(),
        other => panic!("no object: {other}"),
    }
}

fn call(client: &mut Client, command: &str) {
    client.call(&command.split(' ').collect::<Vec<&str>>()).expect("a reply");
}

/// A server on which every event of the journal has happened.
fn server_with_all_events() -> Server {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    call(&mut a, "CLIENT SETNAME worker");
    call(&mut a, "CLIENT SETINFO LIB-NAME redis-py");
    call(&mut a, "SET stock 10 NX");
    call(&mut a, "SETNX job 17");
    a.call(&["EVAL", COMPARE_AND_DELETE, "1", "job", "17"]).expect("a reply");
    call(&mut a, "MULTI");
    call(&mut a, "PING");
    call(&mut a, "EXEC");
    let lost = Requests::any().command("ping").nth(1);
    server.faults().add(Fault::LoseAndClose, lost).expect("a rule");
    let gate = server.faults().gate(Requests::any().command("echo")).expect("a gate");
    let mut c = Wire::connect(server.addr(), 2);
    c.send_line("ECHO text");
    wait_at(&gate).expect("a client");
    gate.open().expect("a server");
    c.read();
    c.send_line("PING");
    assert!(c.closes());
    call(&mut a, "SET lock a NX PX 30000");
    call(&mut b, "SET lock b NX PX 30000");
    call(&mut a, "PEXPIRE lock 40000");
    a.call(&["EVAL", COMPARE_AND_DELETE, "1", "lock", "a"]).expect("a reply");
    call(&mut b, "SET lock b NX PX 10");
    server.advance(Duration::from_millis(10)).expect("a server");
    call(&mut a, "SET lock a NX PX 30000");
    b.call(&["EVAL", COMPARE_AND_RENEW, "1", "lock", "b", "10"]).expect("a reply");
    b.call(&["EVAL", COMPARE_AND_DELETE, "1", "lock", "b"]).expect("a reply");
    call(&mut b, "DEL lock");
    call(&mut a, "SET other a NX PX 30000");
    call(&mut a, "FLUSHALL");
    call(&mut a, "SET held a NX");
    server
}

/// A server whose journal has dropped entries.
fn server_with_few_entries() -> Server {
    let server = Server::builder().for_tests().config("journal-max-entries", "2");
    let server = server.start().expect("a server");
    let mut client = server.client().expect("a client");
    call(&mut client, "SET lock a NX");
    call(&mut client, "SET lock a NX");
    server
}

fn server_with_all_rules() -> Server {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    for action in ["DELAY 1s", "CUT 3", "ERROR no", "JUMP 1s", "LOSE-WRITES 1"] {
        let rule = format!("LOCKWHEEL FAULT ADD {action} COMMAND get ID 7 TIMES 3 KEY a CLIENT b");
        server.call(&rule.split(' ').collect::<Vec<&str>>()).expect("a rule");
    }
    let gate = "LOCKWHEEL GATE ADD COMMAND set NTH 2 PROBABILITY 0.5 SEED 1";
    server.call(&gate.split(' ').collect::<Vec<&str>>()).expect("a gate");
    server
}

#[test]
fn fields_are_those_that_are_documented() {
    let server = server_with_all_events();
    for (section, words) in [
        ("CLOCK", "CLOCK"),
        ("JOURNAL HOLDERS", "JOURNAL HOLDERS"),
        ("JOURNAL KNOWN", "JOURNAL KNOWN"),
        ("GUARD", "GUARD"),
    ] {
        assert_eq!(fields(&json(&server, words)), documented(section), "{section}");
    }
    // The reply to a check that passes lacks some fields, and that to one that fails lacks others.
    let story = fields(&json(&server, "CHECK no-lock-held STORY"));
    let dropped = fields(&json(&server_with_few_entries(), "CHECK no-lock-held STORY"));
    assert_eq!(&story | &dropped, documented(STORY));
    // The section has a second table with two columns, for the rules.
    let rules = fields(&json(&server, "LINT"));
    assert!(rules.is_subset(&documented(LINT)), "{rules:?}");
    let server = server_with_all_rules();
    let (faults, gates) = (json(&server, "FAULT LIST"), json(&server, "GATE LIST"));
    let listed = &fields(&faults) | &fields(&gates);
    assert_eq!(listed, documented("FAULT LIST"));
}

#[test]
fn fields_of_each_event_are_those_that_are_documented() {
    let common = documented(JOURNAL);
    let Value::Array(entries) = json(&server_with_all_events(), "JOURNAL") else {
        panic!("no array")
    };
    let mut events: BTreeMap<String, Names> = BTreeMap::new();
    for entry in &entries {
        let event = entry["event"].as_str().expect("a text").to_owned();
        events.entry(event).or_default().extend(&fields(entry) - &common);
    }
    assert_eq!(events, documented_events());
    assert_eq!(&fields(&Value::Array(entries)) & &common, common);
}

/// For each package, the files with its types, and the forms in which these name a field.
const TYPES: [(&[&str], &[&str]); 4] = [
    (
        &[
            "packages/python/src/lockwheel/_clock.py",
            "packages/python/src/lockwheel/_faults.py",
            "packages/python/src/lockwheel/_journal.py",
        ],
        &["\n    {}: "],
    ),
    (&["packages/node/index.d.ts"], &["\n  {}: ", "\n  {}?: "]),
    (
        &["packages/go/clock.go", "packages/go/faults.go", "packages/go/journal.go"],
        &["`json:\"{}\"`"],
    ),
    (
        &[
            "packages/java/lockwheel-junit5/src/main/java/io/github/lockwheel/Clock.java",
            "packages/java/lockwheel-junit5/src/main/java/io/github/lockwheel/Journal.java",
            "packages/java/lockwheel-junit5/src/main/java/io/github/lockwheel/RuleState.java",
        ],
        &["(\"{}\")"],
    ),
];

/// Each package tests the fields that its types read. This test finds fields that its types lack.
#[test]
fn types_of_packages_have_all_fields() {
    let mut fields: Names = documented_events().into_values().flatten().collect();
    for section in ["CLOCK", JOURNAL, "JOURNAL HOLDERS", "JOURNAL KNOWN", "FAULT LIST"] {
        fields.extend(documented(section));
    }
    fields.extend(["rule", "sentence", "entries"].map(str::to_owned));
    for (files, forms) in TYPES {
        let text: String = files.iter().map(|file| read(file)).collect();
        let has =
            |field: &String| forms.iter().any(|form| text.contains(&form.replace("{}", field)));
        let missing: Vec<&String> = fields.iter().filter(|field| !has(field)).collect();
        assert!(missing.is_empty(), "{files:?}: {missing:?}");
    }
}
