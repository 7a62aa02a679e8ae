//! Plans behave as Lua does: every script is run by an engine with plans and by one without, and
//! all replies, messages and counters must be equal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockwheel_engine::limits::SCRIPTS;
use lockwheel_scripting::outside_of_plans;
use lockwheel_tests::tiers::grammar::{self, Cell, Selection};
use lockwheel_tests::tiers::trial::{Outcome, Trial};
use lockwheel_tests::tiers::{Chance, Pair};

/// The number of random scripts; `cargo run -p lockwheel-tools --bin tiers` runs any number.
const DRAWN: u64 = 4_000;
/// Their seed.
const SEED: u64 = 2026;
/// The number of requests for each script of a client library.
const REQUESTS: usize = 150;

/// Every Lua file of the suite, by name.
fn known() -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/compat/src/cases/scripts");
    let mut files = Vec::new();
    walk(&folder, &mut files);
    files
        .iter()
        .map(|file| {
            let name = file.strip_prefix(&folder).expect("inside").with_extension("");
            (name.display().to_string(), std::fs::read_to_string(file).expect("a text"))
        })
        .collect()
}

fn eval(pair: &mut Pair, request: &[String]) -> Vec<u8> {
    let argv: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
    pair.run(&argv)
}

#[test]
fn random_scripts_behave_the_same() {
    let cells: Vec<Cell> = grammar::cells(Selection::All).collect();
    let mut trial = Trial::new();
    let (mut planned, mut left) = (0, 0);
    for number in 0..DRAWN {
        let mut chance = Chance::of(SEED, number);
        let about = cells[chance.below(cells.len())];
        let mut dice = |bound| chance.below(bound);
        let about = (dice(8) == 0).then_some(about);
        let script = grammar::script(Selection::All, about, &mut dice);
        let request = grammar::request(&mut dice);
        let outcome = trial.run(&script.text, &request, 2 + dice(2) as u8);
        if let Outcome::Differs(difference) = outcome {
            panic!("script {number}: {request:?}\n{}\n{difference}", script.text);
        }
        planned += trial.tiers().planned;
        left += trial.tiers().left;
    }
    // The test proves something only if many scripts are planned and many are not.
    assert!((planned + left) * 4 > DRAWN && left * 10 > DRAWN, "planned {planned}, left {left}");
}

/// With all states that a lock may have before a script.
#[test]
fn scripts_of_client_libraries_behave_the_same() {
    const STATES: [&str; 8] = [
        "",
        "SET KEY owner PX 30000",
        "SET KEY 1",
        "HSET KEY owner 1",
        "HSET KEY owner 2 mode write other 1 owner:write 1",
        "HSET KEY mode read owner 1 other 1",
        "RPUSH KEY owner other a",
        "ZADD KEY 1700000030000 owner 1 other",
    ];
    let mut chance = Chance(7);
    let mut pair = Pair::new();
    for (name, script) in known() {
        for _ in 0..REQUESTS {
            pair.run_words("FLUSHALL");
            let count = 1 + chance.below(5);
            let keys: Vec<String> = (1..=count).map(|number| format!("{{k}}{number}")).collect();
            for key in &keys {
                let state = STATES[chance.below(STATES.len())];
                let is_there = !state.is_empty() && chance.below(3) > 0;
                if is_there {
                    pair.run_words(&state.replace("KEY", key));
                    pair.run_words(&format!("PEXPIRE {key} 20000"));
                }
            }
            let mut request = vec!["EVAL".to_owned(), script.clone(), count.to_string()];
            request.extend(keys);
            let words = chance.below(8);
            request.extend((0..words).map(|_| {
                let word = ["30000", "owner", "0", "publish", "1", "other", "1700000000000"];
                match chance.below(4) {
                    0 => grammar::WORDS[chance.below(grammar::WORDS.len())].to_owned(),
                    _ => word[chance.below(word.len())].to_owned(),
                }
            }));
            eval(&mut pair, &request);
            if chance.below(2) == 0 {
                eval(&mut pair, &request);
            }
        }
        pair.compare();
        assert!(pair.tiers().planned + pair.tiers().lua > 0, "{name}");
    }
}

/// The scripts that need Lua, and why: any other script that leaves the subset fails the test.
#[test]
fn scripts_of_lock_libraries_have_plans() {
    let outside: Vec<String> = known()
        .iter()
        .filter_map(|(name, script)| {
            let reason = outside_of_plans(script.as_bytes(), &SCRIPTS)?;
            Some(format!("{name}: {} (line {})", reason.what, reason.line))
        })
        .collect();
    assert_eq!(outside, NEED_LUA, "{outside:#?}");
}

/// Scripts that only Lua runs: they define functions, unpack data of other clients, or iterate with
/// `pairs`.
const NEED_LUA: &[&str] = &[
    "bullmq/extend-lock: an expression like this (line 3)",
    "bullmq/extend-locks: an expression like this (line 3)",
    "bullmq/finish-job: an expression like this (line 4)",
    "bullmq/move-stalled: an expression like this (line 4)",
    "bullmq/take-job: an expression like this (line 4)",
    "laravel/allow: a name like this (line 4)",
    "laravel/take-slot: a loop over anything but `ipairs` (line 2)",
    "python-redis-lock/reset-all: a loop over anything but `ipairs` (line 4)",
    "redisson-2.2/fair-lock: a name like this (line 4)",
    "redisson-3/rate-acquire: a name that is not of the subset (line 19)",
    "redisson/delayed-elements: a name that is not of the subset (line 5)",
    "redisson/delayed-offer: a name that is not of the subset (line 3)",
    "redisson/delayed-transfer: a name that is not of the subset (line 6)",
    "redisson/map-evict: a name that is not of the subset (line 7)",
    "redisson/map-get: a number written like this (line 8)",
    "redisson/map-put: a number written like this (line 12)",
    "redisson/rate-acquire: a name that is not of the subset (line 26)",
    "redisson/rate-available: a name that is not of the subset (line 21)",
    "redisson/rate-update: a name that is not of the subset (line 33)",
    "redisson/topic-trim: a number written like this (line 10)",
    "sidekiq-unique-jobs/lock: a name that is not of the subset (line 2)",
    "sidekiq-unique-jobs/queue: a name that is not of the subset (line 2)",
    "sidekiq-unique-jobs/unlock: a name that is not of the subset (line 2)",
];
