//! Properties under contention: what must hold however many clients are at it at once. Each is
//! tried for a bounded time with many connections; what they saw is judged afterwards.
//!
//! Nothing here trusts that this machine is quick: a pause of any length, of a thread, of the
//! server or of everything, must not make a correct server look wrong. So an inference from time
//! uses only that a thing happened between what came before it and what came after it.

mod arena;
mod atomicity;
mod deletion;
mod exclusion;
mod leases;
mod messages;
mod recipe;
mod transactions;
mod waiters;

pub use arena::{Arena, Client, Trouble};

use super::report::{Outcome, Verdict};

/// The row of the table that all properties belong to.
pub const FAMILY: &str = "Properties under contention";

/// How many times as long a property is tried in which too little has happened.
const PATIENCE: u32 = 5;

/// Something that must hold.
pub struct Property {
    /// It, in a sentence.
    pub name: &'static str,
    /// The client library whose habit it is.
    pub client: Option<&'static str>,
    /// Why it matters to a lock.
    pub why: &'static str,
    /// Tries it.
    pub run: fn(&Arena<'_>) -> Result<(), Trouble>,
}

/// Every property, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Property> {
    let groups = [
        atomicity::PROPERTIES,
        transactions::PROPERTIES,
        deletion::PROPERTIES,
        exclusion::PROPERTIES,
        messages::PROPERTIES,
        waiters::PROPERTIES,
        leases::PROPERTIES,
    ];
    groups.into_iter().flatten()
}

impl Property {
    /// Tries it and says what came of it.
    pub fn judge(&self, arena: &Arena<'_>) -> Outcome {
        let mut result = (self.run)(arena);
        if matches!(result, Err(Trouble::Unknown(_))) {
            // On a machine that is busy too little happens; it is given more time, once.
            result = (self.run)(&arena.again(PATIENCE));
        }
        let verdict = match result {
            Ok(()) => Verdict::Passed,
            Err(Trouble::Broken(failure)) => Verdict::Failed(vec![*failure]),
            Err(Trouble::Lacking(command)) => Verdict::Lacking(command),
            Err(Trouble::Unknown(reason)) => Verdict::Unknown(reason),
        };
        self.outcome(arena, verdict)
    }

    /// What is told of it.
    pub fn outcome(&self, arena: &Arena<'_>, verdict: Verdict) -> Outcome {
        Outcome {
            family: FAMILY.to_owned(),
            client: self.client.map(str::to_owned),
            name: self.name.to_owned(),
            why: self.why.to_owned(),
            place: format!("seed {}", arena.seed),
            verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_property_says_what_it_is_for() {
        let mut names = BTreeSet::new();
        for property in super::all() {
            assert!(!property.why.is_empty(), "{}: no reason", property.name);
            assert!(names.insert(property.name), "{}: twice", property.name);
        }
    }
}
