//! Defects that the scenarios and the histories must find, each of which breaks one rule.

use std::panic::catch_unwind;
use std::sync::Mutex;

use lockwheel_defects::{Defect, Suite};

use crate::{WORKERS, faults, scenarios};

/// Number of histories in which a defect must be found. Most are found by one of the first ten.
const HISTORIES: u64 = 500;

#[test]
fn every_defect_is_found() {
    let (left, missed) =
        (Mutex::new(Suite::Cluster.defects().collect::<Vec<Defect>>()), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(defect) = { left.lock().expect("no panic").pop() } {
            lockwheel_defects::set(Some(defect));
            let is_found = is_found();
            lockwheel_defects::set(None);
            if !is_found {
                missed.lock().expect("no panic").push(defect);
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
