//! Tests generated from the commands' rows, so that no command is left out: each example alone, in
//! `MULTI`, in `EVAL` and in RESP3; wrong numbers of arguments and keys of another type, alone, in
//! `MULTI` and in `EVAL`; odd arguments.

use std::collections::BTreeMap;

use bytes::BytesMut;
use lockwheel_resp::{Protocol, Reply, encode::encode};

use crate::command::{Arity, Command, CommandTable, Flags, Group};
use crate::settings::{CompatVersion, Mode, Permission, Settings};
use crate::testing::{Stage, matches, render, render_all, replies, split_outside_quotes, words};

/// The rows of all modes and versions, each once.
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

/// A version that has the command: the default one if possible.
fn version_with(row: &Command) -> CompatVersion {
    let mut versions =
        std::iter::once(CompatVersion::default()).chain(CompatVersion::ALL.iter().copied());
    versions.find(|it| it.has(row.maker, row.since)).expect("a version that has it")
}

#[test]
fn default_version_has_all_commands_common_to_both_vendors() {
    for (name, row) in rows() {
        let later = row.maker != crate::settings::Vendor::Both;
        assert_eq!(version_with(row) != CompatVersion::default(), later, "{name}");
    }
}

/// A server of the mode that the row is for.
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
        if matches!(name, "quit" | "reset" | "debug" | "ssubscribe" | "monitor") {
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

/// The parts of a row's example: the step that shows the command, and those around it.
struct ExampleParts {
    before: String,
    command: &'static str,
    expected: Option<&'static str>,
    after: String,
}

/// Splits a row's example at the last step that runs its command.
fn example_parts(name: &str, row: &Command) -> ExampleParts {
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
    ExampleParts {
        before: steps[..at].join(";"),
        command,
        expected,
        after: steps[at + 1..].join(";"),
    }
}

impl ExampleParts {
    /// The command without the name of its client.
    fn request(&self) -> &'static str {
        self.command.split_once("> ").map_or(self.command, |(_, request)| request)
    }

    /// A server of the row's mode on which the steps before the command have been run.
    fn stage(&self, row: &Command) -> Stage {
        let mut stage = stage(row);
        if !self.before.is_empty() {
            stage.check(&self.before);
        }
        stage
    }
}

/// The rows with a handler.
fn leaves() -> impl Iterator<Item = (&'static str, &'static Command)> {
    rows().into_iter().filter(|(_, row)| row.subcommands.is_empty())
}

/// Whether a server of the row's mode has another command: a sentinel has neither scripts nor
/// transactions.
fn has(row: &Command, command: &str) -> bool {
    stage(row).engine.commands.find(command.as_bytes()).is_some()
}

/// Runs its arguments as a command; returns an error as a value.
const PCALL: &str = "EVAL \"return redis.pcall(unpack(ARGV))\" 0";
/// As `PCALL`, but fails with the error.
const CALL: &str = "EVAL \"return redis.call(unpack(ARGV))\" 0";
const NOT_FROM_SCRIPT: &str = "!ERR This Redis command is not allowed from script";

#[test]
fn every_example_holds_inside_a_script() {
    for (name, row) in leaves().filter(|(_, row)| has(row, "eval")) {
        let shown = example_parts(name, row);
        let request = shown.request();
        if row.flags.contains(Flags::NOSCRIPT) {
            let refused = format!("{NOT_FROM_SCRIPT} script: ...");
            stage(row).check(&format!("{CALL} {request} => {refused}"));
            continue;
        }
        // A command that blocks in the example replies at once in a script.
        let waits = row.flags.contains(Flags::BLOCKING) && !shown.after.is_empty();
        let served = shown.after.split("=>").last().map(str::trim).filter(|_| waits);
        let expected = match shown.expected.or(served) {
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
            // RESP3 has only one null.
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

/// A reply as RESP2 encodes it.
fn as_resp2(reply: &Reply) -> Reply {
    let mut bytes = BytesMut::new();
    encode(reply, Protocol::Resp2, &mut bytes);
    replies(&bytes).remove(0)
}

/// As `as_resp2`, for a reply with pairs that are nested arrays in RESP3 (`ZRANGE ... WITHSCORES`).
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

/// As `as_resp2`, for a map in RESP3 that is an array of pairs in RESP2 (`XREAD`).
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

/// Requests with a wrong number of arguments: one too few, one too many.
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
            // A refused `EXEC` still ends the transaction; without a transaction it has its own
            // error.
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

/// The types of keys, and commands that create them.
const TYPES: [(&str, &str); 6] = [
    ("string", "SET key v"),
    ("hash", "HSET key f v"),
    ("list", "RPUSH key a"),
    ("set", "SADD key a"),
    ("zset", "ZADD key 1 a"),
    ("stream", "XADD key 1-1 f v"),
];

/// The type that the commands of a group work on.
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

/// The expected effect of a command on a key of another type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TypeEffect {
    /// The command fails with this error and changes nothing.
    Refused(&'static str),
    /// The command replaces the key.
    Replaces,
    /// The command succeeds and changes nothing.
    Ignores,
    /// The command accepts this type, too.
    Accepts,
}

const WRONG_TYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

/// Returns the expected effect, which follows from the key's flags in the row. Exceptions are
/// listed here.
fn type_effect(name: &str, key_flags: &[&str], held: &str) -> TypeEffect {
    match name {
        // A key of another type counts as missing.
        "mget" => TypeEffect::Ignores,
        // The example is `SET ... NX`, which only requires that the key does not exist.
        "set" => TypeEffect::Ignores,
        "delex" => {
            TypeEffect::Refused("!ERR Key should be of string type if conditions are specified")
        }
        "lcs" => TypeEffect::Refused("!ERR The specified keys must contain string values"),
        // Commands on sorted sets accept a set, with the score 1 for each member.
        "zdiff" | "zinter" | "zintercard" | "zunion" if held == "set" => TypeEffect::Accepts,
        "zdiffstore" | "zinterstore" | "zunionstore"
            if held == "set" && key_flags.contains(&"RO") =>
        {
            TypeEffect::Accepts
        }
        // The command writes the key without reading it; if it only inserts, it does not write.
        _ if key_flags.contains(&"OW") && key_flags.contains(&"insert") => TypeEffect::Ignores,
        _ if key_flags.contains(&"OW") => TypeEffect::Replaces,
        _ => TypeEffect::Refused(WRONG_TYPE),
    }
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
enum RequestMode {
    Alone,
    InTransaction,
    InScript,
}

impl RequestMode {
    /// Sends a request; returns its reply in the notation of conversations.
    fn send(self, stage: &mut Stage, request: &str) -> String {
        match self {
            RequestMode::Alone => stage.step(request),
            RequestMode::InTransaction => {
                stage.check(&format!("MULTI; {request} => QUEUED"));
                let reply = stage.step("EXEC");
                let inner = reply.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                inner.expect("the replies of one transaction").to_owned()
            }
            RequestMode::InScript => stage.step(&format!("{PCALL} {request}")),
        }
    }
}

/// All keys with their values and deadlines.
fn all_keys(stage: &mut Stage) -> Vec<String> {
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
fn every_row_handles_keys_of_another_type() {
    let (mut requests, mut unexpected) = (0, Vec::new());
    for (name, row) in leaves() {
        let Some(own) = type_of(row.group) else { continue };
        let shown = example_parts(name, row);
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
                for mode in [RequestMode::Alone, RequestMode::InTransaction, RequestMode::InScript]
                {
                    requests += 1;
                    let mut stage = shown.stage(row);
                    stage.check(&format!("DEL {key}; {make} => ..."));
                    let effect = match mode {
                        RequestMode::InScript if row.flags.contains(Flags::NOSCRIPT) => {
                            TypeEffect::Refused(NOT_FROM_SCRIPT)
                        }
                        _ => type_effect(name, key_flags, held),
                    };
                    if !has_effect(&mut stage, (mode, shown.request()), &key, effect) {
                        let command = shown.command;
                        unexpected.push(format!(
                            "`{command}` on a {held} {key} {mode:?}: not {effect:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    assert!(requests > 1_000, "{requests} requests");
}

/// Sends a request; returns whether it had the expected effect.
fn has_effect(
    stage: &mut Stage,
    (mode, request): (RequestMode, &str),
    key: &str,
    effect: TypeEffect,
) -> bool {
    let before = all_keys(stage);
    let ask_type = format!("TYPE {key}");
    let type_before = stage.step(&ask_type);
    let reply = mode.send(stage, request);
    match effect {
        TypeEffect::Refused(line) => reply == line && all_keys(stage) == before,
        _ if reply.starts_with('!') => false,
        TypeEffect::Ignores => all_keys(stage) == before,
        TypeEffect::Replaces => stage.step(&ask_type) != type_before,
        TypeEffect::Accepts => stage.step(&ask_type) == type_before,
    }
}
