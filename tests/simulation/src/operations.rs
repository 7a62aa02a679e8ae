//! Writes the requests to locks of a history for the second judge.

use std::io::{self, Write};

use lockwheel_compat::judge::history::{Answer, Event};
use lockwheel_compat::judge::{Rules, operations};

use crate::judge::{by_lock, is_of_answers, judge, rules};
use crate::plan::Plan;
use crate::run::Outcome;

/// Writes the history of each lock that one server has, under a name that begins with `name`;
/// nothing if locks may be granted twice in it.
pub fn write(out: &mut impl Write, name: &str, plan: &Plan, events: &[Event]) -> io::Result<()> {
    if plan.durability.is_lossy() {
        return Ok(());
    }
    for (lock, events) in by_lock(events) {
        if lock.starts_with("redlock") {
            continue;
        }
        // A native lock may be refused since other clients wait for it.
        let fair = lock.starts_with("native") || lock.starts_with("permits");
        let rules = Rules { fair, ..rules(plan, lock) };
        operations::write(out, &format!("{name}/{lock}"), &events, rules)?;
    }
    Ok(())
}

/// Whether answers to requests to locks are wrong, apart from the remaining times in them, which
/// the second judge does not know.
pub fn are_wrong(plan: &Plan, outcome: &Outcome) -> bool {
    let mut events = outcome.history.clone();
    for event in &mut events {
        if let Answer::Refused { remaining_us } = &mut event.answer {
            *remaining_us = None;
        }
    }
    outcome.violations.iter().any(is_of_answers) && judge(plan, &events).iter().any(is_of_answers)
}
