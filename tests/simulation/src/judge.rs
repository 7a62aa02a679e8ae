//! Judges the requests to locks of a history.

use std::collections::BTreeMap;

use lockwheel_compat::judge::history::Event;
use lockwheel_compat::judge::linear::{Budget, Linear};
use lockwheel_compat::judge::{Rules, ViolationKind, entitlement, lock};

use crate::actors::PERMITS;
use crate::core::Violation;
use crate::native;
use crate::plan::Plan;

/// Longest span by which a lease may end late if nothing has stopped the clock of the leases, and
/// again for each restart: the clocks are recorded in whole milliseconds.
const LATE_US: i64 = 3_000;

/// Steps of the search for an order, of each lock.
const STEPS: u64 = 300_000;

/// All violations.
pub fn judge(plan: &Plan, events: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, events) in by_lock(events) {
        let rules = rules(plan, name);
        for violation in entitlement::judge(&events, rules) {
            if plan.durability.is_lossy() && violation.kind != ViolationKind::Token {
                continue;
            }
            let event = &events[violation.event];
            let text = format!("{}: {event}", violation.kind);
            violations.push(Violation { kind: format!("{:?}", violation.kind), text });
        }
        let is_modelled = name.starts_with("plain") || name.starts_with("redisson");
        if !is_modelled || !violations.is_empty() {
            continue;
        }
        if let Linear::Illegal(at) = lock::judge(&events, rules, &mut Budget::steps(STEPS)) {
            let text = format!("no lock gives these answers: {}", events[at]);
            violations.push(Violation { kind: "Linear".to_owned(), text });
        }
    }
    violations
}

/// Whether the violation was found here, in the answers to requests to locks.
pub fn is_of_answers(violation: &Violation) -> bool {
    violation.kind.starts_with(|first: char| first.is_ascii_uppercase())
}

/// The events of each lock, sorted by time.
pub fn by_lock(events: &[Event]) -> BTreeMap<&str, Vec<Event>> {
    let mut locks: BTreeMap<&str, Vec<Event>> = BTreeMap::new();
    for event in events {
        locks.entry(&event.lock).or_default().push(event.clone());
    }
    for events in locks.values_mut() {
        events.sort_by_key(|event| (event.invoked_us, event.returned_us));
    }
    locks
}

/// What this lock promises.
pub fn rules(plan: &Plan, lock: &str) -> Rules {
    // Log time stops while a leader is elected.
    let ends_late =
        plan.is_cluster || plan.faults.iter().any(|fault| fault.kind.moves_lease_clock());
    let restarts = plan.faults.iter().filter(|fault| fault.kind.ends_process()).count() as i64;
    let late_us = if ends_late { i64::MAX / 4 } else { LATE_US * (1 + restarts) };
    let rules = Rules { late_us, ..Rules::LOCK };
    match lock.split('-').next() {
        Some("redisson") => Rules { reentrant: true, ..rules },
        // When a reader releases the lock, the lease of the others is set again.
        Some("readwrite") => {
            Rules { reentrant: true, early_us: 2_000, late_us: i64::MAX / 4, ..rules }
        }
        Some("semaphore") => Rules { permits: PERMITS, late_us: i64::MAX / 4, ..rules },
        Some("native") => Rules { reentrant: true, ..rules },
        Some("permits") => Rules { reentrant: true, permits: native::PERMITS as usize, ..rules },
        Some("redlock") => Rules { late_us: i64::MAX / 4, ..rules },
        _ => rules,
    }
}
