//! Properties under contention: rules that must hold for any number of concurrent clients. Each is
//! run for a bounded time with many connections; the replies are judged afterwards. Every second
//! connection speaks RESP3, if the server does.
//!
//! No check depends on a fast machine: a pause of any length, of a thread, of the server or of the
//! whole machine, must not make a correct server fail. So a conclusion from times uses only that an
//! event happened between the event before it and the event after it.

mod arena;
mod atomicity;
mod deletion;
mod exclusion;
mod leases;
mod messages;
mod recipe;
mod repetition;
mod transactions;
mod waiters;

pub use arena::{Arena, ArenaClient, PropertyError};

use crate::report::{Outcome, Verdict};

/// The family of all properties, a row of the table.
pub const FAMILY: &str = "Properties under contention";

/// How much longer a property is run again if too little has happened in it, as on a busy machine.
const RETRY_FACTORS: [u32; 2] = [5, 25];

/// A rule that must hold.
pub struct Property {
    /// The rule, as a sentence.
    pub name: &'static str,
    /// The client library that relies on it.
    pub client: Option<&'static str>,
    /// Why it matters to a lock.
    pub why: &'static str,
    /// Checks the rule.
    pub run: fn(&Arena<'_>) -> Result<(), PropertyError>,
}

/// Every property, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Property> {
    let groups = [
        atomicity::PROPERTIES,
        transactions::PROPERTIES,
        deletion::PROPERTIES,
        repetition::PROPERTIES,
        exclusion::PROPERTIES,
        messages::PROPERTIES,
        waiters::PROPERTIES,
        leases::PROPERTIES,
    ];
    groups.into_iter().flatten()
}

impl Property {
    /// Checks the rule.
    pub fn judge(&self, arena: &Arena<'_>) -> Verdict {
        let mut result = (self.run)(arena);
        for (attempt, factor) in (1..).zip(RETRY_FACTORS) {
            if matches!(result, Err(PropertyError::Unknown(_))) && !arena.deadline().is_over() {
                result = (self.run)(&arena.again(attempt, factor));
            }
        }
        match result {
            Ok(()) => Verdict::Passed,
            Err(PropertyError::Violated(failure)) => Verdict::Failed(vec![*failure]),
            Err(PropertyError::Lacking(command)) => Verdict::Lacking(command),
            Err(PropertyError::Unknown(reason)) => Verdict::Unknown(reason),
        }
    }

    /// The result of a run with this seed and verdict.
    pub fn outcome(&self, seed: u64, verdict: Verdict) -> Outcome {
        Outcome {
            family: FAMILY.to_owned(),
            client: self.client.map(str::to_owned),
            name: self.name.to_owned(),
            why: self.why.to_owned(),
            place: format!("seed {seed}"),
            verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_property_has_a_reason_and_a_unique_name() {
        let mut names = BTreeSet::new();
        for property in super::all() {
            assert!(!property.why.is_empty(), "{}: no reason", property.name);
            assert!(names.insert(property.name), "{}: twice", property.name);
        }
    }
}
