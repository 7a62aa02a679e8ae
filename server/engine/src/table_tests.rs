//! Tests that follow from the commands' rows, so that no command has to be thought of: each
//! example alone, in `MULTI`, in `EVAL` and in RESP3; wrong numbers of arguments, and keys that
//! hold another type, alone, in `MULTI` and in `EVAL`; odd arguments of every kind.

use std::collections::BTreeMap;

use bytes::BytesMut;
use lockwheel_resp::{Protocol, Reply, encode::encode};

use crate::command::{Arity, Command, CommandTable, Flags, Group};
use crate::settings::{CompatVersion, Mode, Permission, Settings};
use crate::testing::{Stage, matches, render, render_all, replies, split_outside_quotes, words};

/// The rows of all kinds and versions of server, each once.
fn rows() -> Vec<(&'static str, &'static Command)> {
    let mut rows = BTreeMap::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Sentinel, Mode::Standalone] {
            let entries = CommandTable::of(mode, version).entries().iter();
            rows.extend(entries.map(|entry| (entry.full_name.as_str(), entry.command)));
        }
    }
    rows.into_iter().collect()
}

/// A version that has it, the usual one if that does.
fn version_with(row: &Command) -> CompatVersion {
    let mut versions =
        std::iter::once(CompatVersion::default()).chain(CompatVersion::ALL.iter().copied());
    versions.find(|it| it.has(row.maker, row.since)).expect("a version that has it")
}

#[test]
fn the_usual_version_has_all_that_is_not_one_makers_later() {
    for (name, row) in rows() {
        let later = row.maker != crate::settings::Vendor::Both;
        assert_eq!(version_with(row) != CompatVersion::default(), later, "{name}");
    }
}

/// A server of the kind that the row is for.
fn stage(row: &Command) -> Stage {
    let mut settings = Settings::default();
    settings.cluster_enabled = row.group == Group::Cluster;
    settings.sentinel = (row.group == Group::Sentinel).then(Box::default);
    settings.compat_version = version_with(row);
    if row.flags.contains(Flags::FOR_TESTS) {
        settings.enable_test_commands = Permission::Yes;
    }
    Stage::new(settings)
}

#[test]
fn every_row_is_documented_and_has_an_example() {
    for (name, row) in rows() {
        assert!(!row.doc.is_empty(), "{name} has no doc");
        if row.subcommands.is_empty() {
            assert!(row.example.contains("=>"), "{name} has no example");
            assert!(
                row.example.to_ascii_lowercase().contains(row.name),
                "the example of {name} does not show it"
            );
        }
    }
}

#[test]
fn every_example_holds() {
    for (_, row) in leaves() {
        stage(row).check(row.example);
    }
}

#[test]
fn every_example_holds_inside_a_transaction() {
    for (name, row) in leaves() {
        if row.flags.contains(Flags::NO_MULTI)
            || matches!(row.group, Group::Transactions | Group::Sentinel)
        {
            continue;
        }
        let (before, last) = last_step(row.example);
        let (command, expected) = last.split_once("=>").expect("an expectation");
        if command.contains('>') || command.contains('<') || expected.contains(" & ") {
            continue;
        }
        if matches!(name, "quit" | "reset" | "debug" | "ssubscribe") {
            continue;
        }
        stage(row)
            .check(&format!("{before}; MULTI; {command} => QUEUED; EXEC => [{}]", expected.trim()));
    }
}

#[test]
fn no_row_panics_on_odd_arguments() {
    let odd: [&[u8]; 8] = [
        b"",
        b"-1",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"nan",
        b"\xff\x00",
        b"*",
        b"1e400",
    ];
    for (name, row) in leaves() {
        let named: Vec<Vec<u8>> = name.split('|').map(|part| part.as_bytes().to_vec()).collect();
        let mut stage = stage(row);
        let client = stage.client("a");
        for count in 0..5_usize {
            for shift in 0..odd.len() {
                let mut argv = named.clone();
                argv.extend((0..count).map(|at| odd[(at * 3 + shift) % odd.len()].to_vec()));
                stage.run(client, &argv);
                if row.name == "quit" {
                    break;
                }
            }
        }
    }
}

/// Splits an example before its last step.
fn last_step(example: &str) -> (String, &str) {
    let steps = split_outside_quotes(example, ';');
    let (last, before) = steps.split_last().expect("at least one step");
    (before.join(";"), last)
}

/// What a row's example is made of: the step that shows the command, and those around it.
struct Shown {
    before: String,
    command: &'static str,
    expected: Option<&'static str>,
    after: String,
}

/// The last step of a row's example that names its command.
fn shown(name: &str, row: &Command) -> Shown {
    let steps = split_outside_quotes(row.example, ';');
    let split = |step: &'static str| match step.split_once("=>") {
        Some((command, expected)) => (command.trim(), Some(expected.trim())),
        None => (step.trim(), None),
    };
    let names = |step: &&'static str| {
        let (command, _) = split(step);
        let command = command.split_once("> ").map_or(command, |(_, command)| command);
        let named = command.to_ascii_lowercase().replacen(' ', "|", name.matches('|').count());
        named.split(' ').next() == Some(name)
    };
    let at = steps.iter().rposition(names).unwrap_or_else(|| panic!("{name} is not shown"));
    let (command, expected) = split(steps[at]);
    Shown { before: steps[..at].join(";"), command, expected, after: steps[at + 1..].join(";") }
}

impl Shown {
    /// The command without the name of its client.
    fn request(&self) -> &'static str {
        self.command.split_once("> ").map_or(self.command, |(_, request)| request)
    }

    /// A server of the row's kind on which the steps before have been taken.
    fn stage(&self, row: &Command) -> Stage {
        let mut stage = stage(row);
        if !self.before.is_empty() {
            stage.check(&self.before);
        }
        stage
    }
}

/// The rows that can be run.
fn leaves() -> impl Iterator<Item = (&'static str, &'static Command)> {
    rows().into_iter().filter(|(_, row)| row.subcommands.is_empty())
}

/// Whether the kind of server that the row is for has a command: a sentinel has neither scripts
/// nor transactions.
fn has(row: &Command, command: &str) -> bool {
    stage(row).engine.commands.find(command.as_bytes()).is_some()
}

/// Runs the command that its arguments are; hands an error on as a value.
const PCALL: &str = "EVAL \"return redis.pcall(unpack(ARGV))\" 0";
/// The same, but ends with the error.
const CALL: &str = "EVAL \"return redis.call(unpack(ARGV))\" 0";
const NOT_FROM_SCRIPT: &str = "!ERR This Redis command is not allowed from script";

#[test]
fn every_example_holds_inside_a_script() {
    for (name, row) in leaves().filter(|(_, row)| has(row, "eval")) {
        let shown = shown(name, row);
        let request = shown.request();
        if row.flags.contains(Flags::NOSCRIPT) {
            let refused = format!("{NOT_FROM_SCRIPT} script: ...");
            stage(row).check(&format!("{CALL} {request} => {refused}"));
            continue;
        }
        // What waits in the example does not in a script: it is told at once.
        let waits = row.flags.contains(Flags::BLOCKING) && !shown.after.is_empty();
        let told = shown.after.split("=>").last().map(str::trim).filter(|_| waits);
        let expected = match shown.expected.or(told) {
            Some(error) if error.starts_with('!') => format!("{error} script: ..."),
            Some(expected) => expected.replace("nil-array", "nil"),
            None => "...".to_owned(),
        };
        let mut stage = shown.stage(row);
        stage.check(&format!("{CALL} {request} => {expected}"));
        if !shown.after.is_empty() && !waits {
            stage.check(&shown.after);
        }
    }
}

#[test]
fn every_example_holds_in_resp3() {
    for (name, row) in leaves() {
        let mut stage = stage(row);
        stage.check("HELLO 3 => {...}");
        for step in split_outside_quotes(row.example, ';') {
            let (step, expected) = match step.split_once("=>") {
                Some((step, expected)) => (step.trim(), expected.trim()),
                None => (step.trim(), "..."),
            };
            // RESP3 has one way to say that there is nothing.
            let expected = expected.replace("nil-array", "nil");
            let answers = stage.answers(step);
            let holds = [as_resp2, pairs_in_line, maps_as_pairs].iter().any(|reading| {
                let read: Vec<Reply> = answers.iter().map(reading).collect();
                matches(&render_all(&read), &expected)
            });
            let got = render_all(&answers);
            assert!(holds, "{got} is not {expected} at `{step}` of {name}");
        }
    }
}

/// What RESP2 makes of a reply.
fn as_resp2(reply: &Reply) -> Reply {
    let mut bytes = BytesMut::new();
    encode(reply, Protocol::Resp2, &mut bytes);
    replies(&bytes).remove(0)
}

/// The same, of a reply whose pairs RESP3 has in arrays of their own (`ZRANGE ... WITHSCORES`).
fn pairs_in_line(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(pairs) => {
            let parts = pairs.iter().flat_map(|pair| match pair {
                Reply::Array(pair) if pair.len() == 2 => pair.clone(),
                other => vec![other.clone()],
            });
            as_resp2(&Reply::Array(parts.collect()))
        }
        other => as_resp2(other),
    }
}

/// The same, of a reply that is a map in RESP3 and an array of pairs in RESP2 (`XREAD`).
fn maps_as_pairs(reply: &Reply) -> Reply {
    match reply {
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| {
                as_resp2(&Reply::Array(vec![key.clone(), value.clone()]))
            };
            Reply::Array(pairs.iter().map(pair).collect())
        }
        other => as_resp2(other),
    }
}

/// Requests with a number of arguments that a row does not admit: one too few, one too many.
fn miscounted(name: &str, row: &Command) -> Vec<String> {
    let named = name.split('|').count();
    let (least, most) = match row.arity {
        Arity::Exactly(count) => (count, Some(count)),
        Arity::AtLeast(count) => (count, None),
    };
    let counts = [Some(least - 1), most.map(|most| most + 1)].into_iter().flatten();
    let request = |count| format!("{}{}", name.replace('|', " "), " x".repeat(count - named));
    counts.filter(|&count| count >= named).map(request).collect()
}

#[test]
fn every_row_refuses_a_wrong_number_of_arguments() {
    let mut refused = 0;
    for (name, row) in rows() {
        for request in miscounted(name, row) {
            refused += 1;
            let line = format!("wrong number of arguments for '{name}' command");
            // What ends a transaction ends it even so, and says so even if there is none.
            let (line, after) = match name {
                "exec" => {
                    let aborted = "EXECABORT Transaction discarded because of";
                    (format!("!{aborted}: {line}"), "!ERR EXEC without MULTI")
                }
                _ => (
                    format!("!ERR {line}"),
                    "!EXECABORT Transaction discarded because of previous errors.",
                ),
            };
            stage(row).check(&format!("{request} => {line}"));
            if has(row, "multi") {
                stage(row).check(&format!(
                    "MULTI; SET k v => QUEUED; {request} => {line}; EXEC => {after}; GET k => nil"
                ));
            }
            if has(row, "eval") {
                let line = "!ERR Wrong number of args calling Redis command from script";
                stage(row).check(&format!(
                    "{PCALL} {request} => {line}; {CALL} {request} => {line} script: ..."
                ));
            }
        }
    }
    assert!(refused > 200, "{refused} requests");
}

/// The types a key can have, and how it comes to have them.
const TYPES: [(&str, &str); 6] = [
    ("string", "SET key v"),
    ("hash", "HSET key f v"),
    ("list", "RPUSH key a"),
    ("set", "SADD key a"),
    ("zset", "ZADD key 1 a"),
    ("stream", "XADD key 1-1 f v"),
];

/// The type that a group's commands are for.
fn type_of(group: Group) -> Option<&'static str> {
    match group {
        Group::String | Group::Bitmap => Some("string"),
        Group::Hash => Some("hash"),
        Group::List => Some("list"),
        Group::Set => Some("set"),
        Group::SortedSet => Some("zset"),
        Group::Stream => Some("stream"),
        _ => None,
    }
}

/// What becomes of a command one of whose keys holds another type than the command is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It is refused with this line, and nothing is changed.
    Refused(&'static str),
    /// It does not care, and what the key held is gone.
    Replaces,
    /// It does not care, and nothing is changed.
    Passes,
    /// It takes that type too.
    Takes,
}

const WRONG_TYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

/// A key's fate follows from what the row says is done to it. What does not is named here.
fn fate(name: &str, key_flags: &[&str], held: &str) -> Fate {
    match name {
        // A key of another type is to it as if it were missing.
        "mget" => Fate::Passes,
        // Its example sets what is not there, which is all that `NX` asks of a key.
        "set" => Fate::Passes,
        "delex" => Fate::Refused("!ERR Key should be of string type if conditions are specified"),
        "lcs" => Fate::Refused("!ERR The specified keys must contain string values"),
        // To the algebra of sorted sets a set is one whose scores are all 1.
        "zdiff" | "zinter" | "zintercard" | "zunion" if held == "set" => Fate::Takes,
        "zdiffstore" | "zinterstore" | "zunionstore"
            if held == "set" && key_flags.contains(&"RO") =>
        {
            Fate::Takes
        }
        // It writes the key without looking at it; or, if it only inserts, not at all.
        _ if key_flags.contains(&"OW") && key_flags.contains(&"insert") => Fate::Passes,
        _ if key_flags.contains(&"OW") => Fate::Replaces,
        _ => Fate::Refused(WRONG_TYPE),
    }
}

/// How a request can be made.
#[derive(Clone, Copy, Debug)]
enum Way {
    Alone,
    InTransaction,
    InScript,
}

impl Way {
    /// Makes a request; returns its reply as rendered.
    fn ask(self, stage: &mut Stage, request: &str) -> String {
        match self {
            Way::Alone => stage.step(request),
            Way::InTransaction => {
                stage.check(&format!("MULTI; {request} => QUEUED"));
                let reply = stage.step("EXEC");
                let inner = reply.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                inner.expect("the replies of one transaction").to_owned()
            }
            Way::InScript => stage.step(&format!("{PCALL} {request}")),
        }
    }
}

/// Every key, with its value and its deadline.
fn everything(stage: &mut Stage) -> Vec<String> {
    let answers = stage.answers("KEYS *");
    let [Reply::Array(keys)] = &answers[..] else { panic!("no keys: {answers:?}") };
    let mut all: Vec<String> = keys
        .iter()
        .map(|key| {
            let key = render(key);
            let value = stage.step(&format!("DUMP {key}"));
            assert!(value.starts_with('"'), "{value} is no value of {key}");
            format!("{key} {value} {}", stage.step(&format!("PEXPIRETIME {key}")))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn every_row_meets_keys_of_another_type() {
    let (mut asked, mut others) = (0, Vec::new());
    for (name, row) in leaves() {
        let Some(own) = type_of(row.group) else { continue };
        let shown = shown(name, row);
        let argv = words(shown.request());
        let argv: Vec<&[u8]> = argv.iter().map(|argument| &**argument).collect();
        let mut places = Vec::new();
        for spec in row.keys.iter().filter(|spec| !spec.flags.contains(&"not_key")) {
            let mut found = Vec::new();
            assert!(spec.places(&argv, &mut found), "the example of {name} names no keys");
            places.extend(found.into_iter().map(|place| (place, spec.flags)));
        }
        assert!(!places.is_empty() || row.name == "help", "the example of {name} names no keys");
        for (place, key_flags) in places {
            let key = String::from_utf8_lossy(argv[place]).into_owned();
            for (held, make) in TYPES.iter().filter(|(held, _)| *held != own) {
                let make = make.replace("key", &key);
                for way in [Way::Alone, Way::InTransaction, Way::InScript] {
                    asked += 1;
                    let mut stage = shown.stage(row);
                    stage.check(&format!("DEL {key}; {make} => ..."));
                    let fate = match way {
                        Way::InScript if row.flags.contains(Flags::NOSCRIPT) => {
                            Fate::Refused(NOT_FROM_SCRIPT)
                        }
                        _ => fate(name, key_flags, held),
                    };
                    if !meets(&mut stage, (way, shown.request()), &key, fate) {
                        let command = shown.command;
                        others.push(format!("`{command}` on a {held} {key} {way:?}: not {fate:?}"));
                    }
                }
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(asked > 1_000, "{asked} requests");
}

/// Makes a request and tells whether it had its fate.
fn meets(stage: &mut Stage, (way, request): (Way, &str), key: &str, fate: Fate) -> bool {
    let before = everything(stage);
    let ask_type = format!("TYPE {key}");
    let type_before = stage.step(&ask_type);
    let reply = way.ask(stage, request);
    match fate {
        Fate::Refused(line) => reply == line && everything(stage) == before,
        _ if reply.starts_with('!') => false,
        Fate::Passes => everything(stage) == before,
        Fate::Replaces => stage.step(&ask_type) != type_before,
        Fate::Takes => stage.step(&ask_type) == type_before,
    }
}
