//! What a property is, and how it is judged.

use super::arena::{Arena, PropertyError};
use crate::report::{Outcome, PROPERTIES, Question, Verdict};

/// How much longer a property is run again if too little has happened in it, as on a busy machine.
const RETRY_FACTORS: [u32; 2] = [5, 25];

/// A rule that must hold.
pub struct Property {
    /// The rule, as a sentence.
    pub name: &'static str,
    /// The client library that relies on it.
    pub client: Option<&'static str>,
    /// The question that it answers.
    pub question: Question,
    /// Why it matters to a lock.
    pub why: &'static str,
    /// Checks the rule.
    pub run: fn(&Arena<'_>) -> Result<(), PropertyError>,
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
            family: PROPERTIES.to_owned(),
            client: self.client.map(str::to_owned),
            question: Some(self.question),
            name: self.name.to_owned(),
            why: self.why.to_owned(),
            place: format!("seed {seed}"),
            verdict,
        }
    }
}
