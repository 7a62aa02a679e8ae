//! Defects that the scenarios and the histories must find, each of which breaks one rule.

use std::panic::catch_unwind;
use std::sync::Mutex;

use crate::{WORKERS, faults, scenarios};

/// All defects.
const MUTANTS: &[&str] = &[
    "raft-all-entries-committed",
    "raft-barrier-left-out",
    "raft-batches-not-divided",
    "raft-batches-of-earlier-leaders-applied",
    "raft-candidate-despite-leader",
    "raft-conflicts-kept",
    "raft-cut-log-trusted",
    "raft-election-added-to-lease-time",
    "raft-entries-dropped-without-snapshot",
    "raft-entries-not-flushed",
    "raft-guard-skipped",
    "raft-installed-snapshot-at-wrong-place",
    "raft-leader-removes-itself",
    "raft-leads-with-a-cut-log",
    "raft-learners-counted",
    "raft-lease-from-receipt",
    "raft-lease-ignored",
    "raft-lease-time-begins-anew",
    "raft-lease-too-long",
    "raft-less-than-a-majority",
    "raft-lost-log-not-noticed",
    "raft-lost-vote-not-noticed",
    "raft-messages-of-any-size",
    "raft-only-new-voters-counted",
    "raft-replaced-entries-sent",
    "raft-reply-before-commit",
    "raft-snapshot-not-checked",
    "raft-snapshot-of-a-broken-state",
    "raft-snapshot-of-uncommitted-effects",
    "raft-snapshot-within-a-batch",
    "raft-snapshot-without-barrier",
    "raft-snapshot-without-guard",
    "raft-snapshot-without-lease-time",
    "raft-snapshot-without-members",
    "raft-state-not-cleared",
    "raft-token-used-twice",
    "raft-uncommitted-effects-kept",
    "raft-vote-not-saved",
    "raft-votes-during-lease",
];

/// Each defect is found by one of so many histories, most by one of the first ten.
const HISTORIES: u64 = 500;

#[test]
fn every_defect_is_found() {
    let (left, missed) = (Mutex::new(MUTANTS.to_vec()), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(mutant) = { left.lock().expect("no panic").pop() } {
            lockwheel_log::mutants::set(mutant);
            let is_found = is_found();
            lockwheel_log::mutants::set("");
            if !is_found {
                missed.lock().expect("no panic").push(mutant);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(worker);
        }
    });
    let missed = missed.into_inner().expect("no panic");
    assert!(missed.is_empty(), "{missed:?}");
}

/// Whether a scenario or a history fails.
fn is_found() -> bool {
    scenarios::ALL.iter().any(|scenario| catch_unwind(scenario).is_err())
        || (1..=HISTORIES).any(|seed| catch_unwind(|| faults::run(seed)).is_err())
}
