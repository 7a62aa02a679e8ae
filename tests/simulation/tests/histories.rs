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
        let hash = hash_of_two_runs(&Plan::draw(seed, None));
        assert_ne!(hash, run(&Plan::draw(seed + 100, None), false).hash);
    }
}

#[test]
fn same_seed_gives_same_trace_of_a_cluster() {
    for seed in 1..=10 {
        hash_of_two_runs(&Plan::draw_cluster(seed, None));
    }
}

/// The hash of a history, which is the same with and without a story, and has no violation.
fn hash_of_two_runs(plan: &Plan) -> u64 {
    let (first, second) = (run(plan, false), run(plan, true));
    assert_eq!(first.hash, second.hash, "seed {}", plan.seed);
    assert!(first.violations.is_empty(), "seed {}: {:?}", plan.seed, first.violations);
    first.hash
}

/// Histories that have failed once, and what they have found.
const FAILED: [(u64, &str); 3] = [
    (101_021, "the end of one of several shared holds was not logged"),
    (202_035, "the same, after a crash of the machine"),
    (700_684, "a machine that was suspended twice at once had its time counted twice"),
];

/// The same, of clusters.
const FAILED_CLUSTERS: [(u64, &str); 4] = [
    (68, "a former leader kept a fencing token that was not committed"),
    (123, "timers of a former leader waited for its time, which was ahead of the log"),
    (136, "a leader served clients that wait although another one might lead"),
    (372, "a former leader waited for a write that was never answered, and replicated no more"),
];

#[test]
fn histories_that_have_failed_once_do_not_fail_again() {
    let of_servers = FAILED.map(|(seed, found)| (Plan::draw(seed, None), found));
    let of_clusters = FAILED_CLUSTERS.map(|(seed, found)| (Plan::draw_cluster(seed, None), found));
    for (plan, found) in of_servers.into_iter().chain(of_clusters) {
        let violations = run(&plan, false).violations;
        assert!(violations.is_empty(), "seed {}, {found}: {violations:?}", plan.seed);
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
