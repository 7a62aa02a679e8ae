//! The clients of `lockwheel prove` make the calls that lock libraries make, in the same order.
//!
//! `prove_recipes.txt` has recordings of libraries, and where the recipes differ from them.

use std::time::Duration;

use lockwheel::Server;
use lockwheel_compat::judge::history::Action;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_compat::words;
use lockwheel_prove::{LOCK_KINDS, LockKind};

const RECORDED: &str = include_str!("prove_recipes.txt");

/// Begins a step.
const STEP: &str = "> ";
const LEASE_US: i64 = 30_000_000;
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// What is sent after each step.
const END: [&str; 2] = ["ECHO", "end"];

/// The names in requests of recipes, and in recordings.
const NAMES: &[(&str, &str)] = &[
    ("client-a.r", "A"),
    ("client-b.r", "B"),
    ("lock:token", "TOKEN"),
    ("lock:channel", "CHANNEL"),
    ("lock:queue", "QUEUE"),
    ("lock:timeouts", "TIMEOUTS"),
    ("{lock}", "{LOCK}"),
];

#[test]
fn recipes_make_the_calls_of_the_libraries() {
    let mut compared = Vec::new();
    for section in RECORDED.split("\n== ").skip(1) {
        let (name, _) = section.split_once(": ").expect("a kind of lock and a library");
        let kind = LOCK_KINDS.iter().find(|kind| kind.name == name).expect(name);
        let lines = section.lines().skip(1).filter(|it| !it.is_empty() && !it.starts_with("- "));
        let expected: Vec<&str> = lines.map(|it| it.strip_prefix("+ ").unwrap_or(it)).collect();
        let steps = expected.iter().copied().filter(|it| it.starts_with(STEP));
        let calls = calls(kind, steps);
        assert_eq!(calls, expected, "{name}:\n{}", calls.join("\n"));
        compared.push(name);
    }
    let known = LOCK_KINDS.iter().filter(|kind| !kind.needs_lockwheel).map(|kind| kind.name);
    assert_eq!(compared, known.collect::<Vec<_>>());
}

/// The steps, each with the requests of the recipe and the calls of its scripts.
fn calls<'a>(kind: &LockKind, steps: impl Iterator<Item = &'a str>) -> Vec<String> {
    let server = Server::start().expect("a server");
    let endpoint = Endpoint::Tcp(server.addr().ip().to_string(), server.addr().port());
    let connect = || Wire::open(&endpoint, REPLY_TIMEOUT).expect("a connection");
    let (mut client, mut monitor) = (connect(), connect());
    monitor.call(&["MONITOR"]).expect("a reply");
    let mut calls = Vec::new();
    for step in steps {
        calls.push(step.to_owned());
        let (owner, action) = request(step);
        client.call(&(kind.recipe.words)("lock", &owner, action).expect(step)).expect("a reply");
        client.call(&END).expect("a reply");
        loop {
            let line = monitor.read().expect("a line");
            let line = words::split(&line.as_text().expect("a line")).expect("words");
            // After the time, the database and the source.
            let words: Vec<_> = line[3..].iter().map(|it| String::from_utf8_lossy(it)).collect();
            if words == END {
                break;
            }
            calls.push(shown(&words.iter().map(|word| &**word).collect::<Vec<_>>()));
        }
    }
    calls
}

/// The owner and the action of a step.
fn request(step: &str) -> (String, Action) {
    let (step, _) = step.split_once(':').expect(step);
    let (verb, client) = step[STEP.len()..].split_once(' ').expect(step);
    let mode = if verb.ends_with("write") { ":write" } else { "" };
    let action = match verb {
        "acquire" | "write" => Action::Acquire { ttl_us: LEASE_US, shared: false },
        "read" => Action::Acquire { ttl_us: LEASE_US, shared: true },
        "renew" => Action::Renew { ttl_us: LEASE_US },
        "release" | "end-read" | "end-write" => Action::Release { ttl_us: Some(LEASE_US) },
        other => panic!("{other}"),
    };
    (format!("client-{client}.r{mode}"), action)
}

/// A request, or a call of a script, as a recording has it.
fn shown(words: &[&str]) -> String {
    match words {
        ["EVAL", _, _, arguments @ ..] => with_names("script", arguments),
        [command, arguments @ ..] => with_names(&command.to_lowercase(), arguments),
        [] => String::new(),
    }
}

fn with_names(command: &str, arguments: &[&str]) -> String {
    let named = |word: &&str| {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        match *word {
            "lock" => "LOCK".to_owned(),
            word if word.starts_with("lock:latch:") => "LATCH".to_owned(),
            word if is_number && word.len() >= 3 => "MS".to_owned(),
            word => NAMES.iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, to)),
        }
    };
    let words = arguments.iter().map(named);
    [command.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}
