//! The recognition of locks, on programs with labelled keys: the recipes of libraries, other
//! programs that take locks, and programs with keys that are no locks.
//!
//! ```text
//! == A lock around a cache
//! locks: cache:user:17:lock
//! data: cache:user:17
//! a> SET cache:user:17:lock 1 NX EX 5
//! +5ms
//! ```
//!
//! `<uuid-a>` is a UUID, `<random-a>` 22 letters and digits, `<ms+30>` a time in milliseconds since
//! 1970 and `<s-10>` one in seconds; `@name` is a script of the compatibility suite.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use crate::boundaries::root;
use lockwheel::{Builder, Client, Confidence, KnownLock, Server, Shape};
use lockwheel_compat::{cases, words};

pub(crate) const LIBRARIES: &str = include_str!("recognition/libraries.txt");
pub(crate) const USES: &str = include_str!("recognition/uses.txt");
pub(crate) const DATA: &str = include_str!("recognition/data.txt");

/// The clock at the beginning of each program, in milliseconds since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// The least precision and recall on all programs.
const LEAST: f64 = 0.97;

#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) locks: Vec<String>,
    pub(crate) data: Vec<String>,
    steps: Vec<String>,
}

pub(crate) fn programs(text: &str) -> Vec<Program> {
    let mut programs: Vec<Program> = Vec::new();
    for line in text.lines().map(expand) {
        if let Some(name) = line.strip_prefix("== ") {
            programs.push(Program { name: name.to_owned(), ..Program::default() });
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let program = programs.last_mut().expect("a name before the first step");
        let keys = |keys: &str| keys.split(' ').map(str::to_owned).collect();
        match line.split_once(": ") {
            Some(("locks", names)) => program.locks = keys(names),
            Some(("data", names)) => program.data = keys(names),
            _ => program.steps.push(line),
        }
    }
    programs
}

/// Replaces the words in angle brackets.
fn expand(line: &str) -> String {
    let mut expanded = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('<') {
        expanded.push_str(before);
        let replaced = after.split_once('>').and_then(|(word, after)| Some((value(word)?, after)));
        let (value, after) = replaced.unwrap_or_else(|| ("<".to_owned(), after));
        expanded.push_str(&value);
        rest = after;
    }
    expanded + rest
}

fn value(word: &str) -> Option<String> {
    let shifted = |shift: &str| match shift {
        "" => Some(0),
        shift => shift.parse::<i64>().ok(),
    };
    if let Some(name) = word.strip_prefix("uuid-") {
        return Some(format!("6ba7b810-9dad-41d1-80b4-00c04fd430c{name}"));
    }
    if let Some(name) = word.strip_prefix("random-") {
        return Some(format!("Zk3vQ9xLr0bT7wYh2mNcD{name}"));
    }
    if let Some(shift) = word.strip_prefix("ms") {
        return shifted(shift).map(|shift| (BEGIN_MS + shift).to_string());
    }
    let shift = shifted(word.strip_prefix('s')?)?;
    Some((BEGIN_MS / 1000 + shift).to_string())
}

/// Runs a program; the keys that are locks, possibly.
fn run(program: &Program) -> Vec<KnownLock> {
    let server = builder().start().expect("a server");
    play(&server, program, || {});
    server.journal().known_locks().expect("a journal")
}

/// A server for programs.
pub(crate) fn builder() -> Builder {
    let begin = UNIX_EPOCH + Duration::from_millis(BEGIN_MS.unsigned_abs());
    Server::builder().clock_start(begin).frozen_clock().for_tests()
}

/// Runs the steps of a program, and `check` after each of them.
pub(crate) fn play(server: &Server, program: &Program, check: impl Fn()) {
    let mut clients: BTreeMap<&str, Client> = BTreeMap::new();
    for step in &program.steps {
        if let Some(span) = step.strip_prefix('+') {
            let span = span.trim_end_matches("ms").parse().expect("milliseconds");
            server.advance(Duration::from_millis(span)).expect("a server");
            continue;
        }
        let (name, request) = step.split_once("> ").expect("a client and its request");
        let client = clients.entry(name).or_insert_with(|| server.client().expect("a client"));
        let argv = words::split(request).expect("words");
        let argv: Vec<Vec<u8>> = argv.iter().map(|word| script(word)).collect();
        let reply = client.call(&argv).expect("a reply");
        assert!(!reply.is_error(), "{}: {step}: {reply:?}", program.name);
        check();
    }
}

/// The text of the script that a word names, or the word.
fn script(word: &[u8]) -> Vec<u8> {
    let name = std::str::from_utf8(word).ok().and_then(|word| word.strip_prefix('@'));
    name.and_then(cases::script).map_or(word, str::as_bytes).to_vec()
}

/// What was recognised, of how much.
#[derive(Default)]
struct Score {
    found: usize,
    /// By shape: the locks that were recognised, and the keys that were recognised wrongly.
    shapes: BTreeMap<&'static str, (usize, usize)>,
    missed: Vec<String>,
    wrong: Vec<String>,
}

impl Score {
    fn of(programs: &[Program]) -> Score {
        let mut score = Score::default();
        for program in programs {
            let known = run(program);
            let locks: Vec<&KnownLock> =
                known.iter().filter(|it| it.confidence > Confidence::Possible).collect();
            let missed = program.locks.iter().filter(|key| locks.iter().all(|it| it.key != **key));
            score.missed.extend(missed.map(|key| format!("{}: {key}", program.name)));
            for lock in locks {
                let (found, wrong) = score.shapes.entry(shape(lock)).or_default();
                if program.locks.contains(&lock.key) {
                    *found += 1;
                    score.found += 1;
                } else {
                    *wrong += 1;
                    score.wrong.push(format!("{}: {} ({})", program.name, lock.key, lock.reason));
                }
            }
        }
        score
    }

    fn precision(&self) -> f64 {
        self.found as f64 / (self.found + self.wrong.len()) as f64
    }

    /// The rows of the table in `docs/recognition.md`.
    fn table(&self) -> String {
        let rows = self
            .shapes
            .iter()
            .map(|(shape, (found, wrong))| format!("| `{shape}` | {found} | {wrong} |\n"));
        rows.collect()
    }

    fn recall(&self) -> f64 {
        self.found as f64 / (self.found + self.missed.len()) as f64
    }
}

fn shape(lock: &KnownLock) -> &'static str {
    match lock.shape {
        Shape::Token => "token",
        Shape::Owners => "owners",
        _ => "semaphore",
    }
}

#[test]
fn locks_of_all_libraries_are_recognised() {
    let score = Score::of(&programs(LIBRARIES));
    assert_eq!((score.missed, score.wrong), (vec![], vec![]));
}

#[test]
fn precision_and_recall_on_labelled_programs() {
    let programs: Vec<Program> =
        [LIBRARIES, USES, DATA].iter().flat_map(|text| programs(text)).collect();
    let positive = programs.iter().filter(|program| !program.locks.is_empty()).count();
    assert!(positive >= 60 && programs.len() - positive >= 40, "{positive} of {}", programs.len());
    let score = Score::of(&programs);
    let summary = format!(
        "{positive} programs with locks, {} without: precision {:.3}, recall {:.3}",
        programs.len() - positive,
        score.precision(),
        score.recall()
    );
    let (table, missed) = (score.table(), score.missed.len());
    lockwheel_tests::say(&format!("{summary}\n{table}{missed} missed"));
    let page = fs::read_to_string(root().join("docs/recognition.md")).expect("a page");
    assert!(page.contains(&table), "docs/recognition.md lacks\n{table}");
    assert!(page.replace('\n', " ").contains(&summary), "docs/recognition.md lacks {summary:?}");
    let (missed, wrong) = (&score.missed, &score.wrong);
    assert!(score.precision() >= LEAST && score.recall() >= LEAST, "{missed:?}\n{wrong:?}");
}
