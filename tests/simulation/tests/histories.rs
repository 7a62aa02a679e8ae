//! Tests the simulation itself: histories repeat, defects are found, and failing histories are made
//! smaller.

use lockwheel_simulation::mutants::MUTANTS;
use lockwheel_simulation::plan::Plan;
use lockwheel_simulation::run::{catch_panics, run};
use lockwheel_simulation::shrink::shrink;

#[test]
fn same_seed_gives_same_trace() {
    for seed in 1..=20 {
        let plan = Plan::draw(seed, "");
        let (first, second) = (run(&plan, false), run(&plan, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
        assert_ne!(first.hash, run(&Plan::draw(seed + 100, ""), false).hash);
    }
}

/// Histories that have failed once, and what they have found.
const FAILED: [(u64, &str); 3] = [
    (101_021, "the end of one of several shared holds was not logged"),
    (202_035, "the same, after a crash of the machine"),
    (700_684, "a machine that was suspended twice at once had its time counted twice"),
];

#[test]
fn histories_that_have_failed_once_do_not_fail_again() {
    for (seed, found) in FAILED {
        let violations = run(&Plan::draw(seed, ""), false).violations;
        assert!(violations.is_empty(), "seed {seed}, {found}: {violations:?}");
    }
}

#[test]
fn failing_history_is_repeated_and_made_smaller() {
    catch_panics();
    let fails = |seed| {
        let plan = Plan::draw(seed, "reply-before-flush");
        let outcome = run(&plan, false);
        outcome.violations.first().cloned().map(|violation| (plan, outcome.hash, violation))
    };
    let (plan, hash, violation) = (1..100).find_map(fails).expect("the defect is found");
    assert_eq!(run(&plan, false).hash, hash);
    let (smaller, _) = shrink(&plan, &violation);
    assert!(smaller.faults.len() <= plan.faults.len() && smaller.end_us <= plan.end_us);
    let outcome = run(&smaller, true);
    assert!(outcome.violations.iter().any(|other| other.kind == violation.kind));
    assert!(outcome.lines.last().is_some_and(|line| line.contains("VIOLATION")));
}

#[test]
fn names_of_mutants_are_in_the_code() {
    let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../server");
    let mut sources = String::new();
    let mut folders = vec![std::path::PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    for name in names.iter().filter(|name| !name.starts_with("effect-left-out:")) {
        assert!(sources.contains(&format!("\"{name}\"")), "{name} is not in the code");
    }
    let effects: Vec<&str> =
        names.iter().filter_map(|name| name.strip_prefix("effect-left-out:")).collect();
    for (_, effect) in lockwheel_engine::store::effects::TAGS {
        // See `MUTANTS`.
        let left = ["Touched", "Event", "Postponed", "Published", "Reserved", "TokensIssued"];
        let users = ["UsersCleared", "UserSet", "UserRemoved"];
        let is_left = left.contains(effect) || users.contains(effect);
        assert_ne!(effects.contains(effect), is_left, "{effect}");
    }
}
