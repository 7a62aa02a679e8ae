//! Makes a failing history smaller: fewer clients, fewer faults, an earlier end.

use crate::core::Violation;
use crate::plan::Plan;
use crate::run::run;

/// The smallest plan that was found to fail in the same way, and how many were tried.
pub fn shrink(plan: &Plan, violation: &Violation) -> (Plan, usize) {
    let mut tried = 0;
    let mut fails = |plan: &Plan| {
        tried += 1;
        run(plan, false).violations.iter().any(|other| other.kind == violation.kind)
    };
    let mut best = plan.clone();
    loop {
        let before = (best.faults.len(), best.roles.len(), best.end_us);
        for at in (0..best.faults.len()).rev() {
            let mut smaller = best.clone();
            smaller.faults.remove(at);
            if fails(&smaller) {
                best = smaller;
            }
        }
        for at in (0..best.roles.len()).rev() {
            let mut smaller = best.clone();
            smaller.roles.remove(at);
            if fails(&smaller) {
                best = smaller;
            }
        }
        for (numerator, denominator) in [(1, 2), (3, 4), (9, 10)] {
            let mut smaller = best.clone();
            smaller.end_us = best.end_us * numerator / denominator;
            smaller.faults.retain(|fault| fault.at_us < smaller.end_us);
            if fails(&smaller) {
                best = smaller;
            }
        }
        if before == (best.faults.len(), best.roles.len(), best.end_us) {
            return (best, tried);
        }
    }
}
