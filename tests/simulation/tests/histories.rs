//! Tests the simulation itself: histories repeat, defects are found, and failing histories are made
//! smaller.

use lockwheel_defects::Defect;
use lockwheel_simulation::defects::LEFT_OUT;
use lockwheel_simulation::plan::Plan;
use lockwheel_simulation::run::{catch_panics, run};
use lockwheel_simulation::shrink::shrink;

#[test]
fn same_seed_gives_same_trace() {
    for seed in 1..=20 {
        let plan = Plan::draw(seed, None);
        let (first, second) = (run(&plan, false), run(&plan, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
        assert_ne!(first.hash, run(&Plan::draw(seed + 100, None), false).hash);
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
        let violations = run(&Plan::draw(seed, None), false).violations;
        assert!(violations.is_empty(), "seed {seed}, {found}: {violations:?}");
    }
}

#[test]
fn failing_history_is_repeated_and_made_smaller() {
    catch_panics();
    let fails = |seed| {
        let plan = Plan::draw(seed, Some(Defect::ReplyBeforeFlush));
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
fn all_effects_are_left_out() {
    for (_, effect) in lockwheel_engine::store::effects::TAGS {
        // See `LEFT_OUT`.
        let left =
            ["Touched", "Event", "Postponed", "Plain", "Published", "Reserved", "TokensIssued"];
        let users = ["UsersCleared", "UserSet", "UserRemoved"];
        let is_left = left.contains(effect) || users.contains(effect);
        assert_ne!(LEFT_OUT.contains(effect), is_left, "{effect}");
    }
}
