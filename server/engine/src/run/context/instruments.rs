//! The instruments of a server for tests: faults, gates and the journal.

use lockwheel_resp::Reply;

use super::Context;
use crate::error::Error;
use crate::instruments::faults::rule::{FaultAction, Rule, RuleConditions};
use crate::timing::time::Rate;

impl Context<'_> {
    /// Adds a rule after the others; returns its id.
    pub fn add_fault(&mut self, action: FaultAction, when: RuleConditions) -> u64 {
        self.engine.add_fault(action, when)
    }

    /// Removes the rules that match a condition and releases the clients they hold; returns the
    /// numbers of rules and clients.
    pub fn clear_faults(&mut self, chosen: impl Fn(&Rule) -> bool) -> (usize, usize) {
        self.engine.clear_faults(chosen)
    }

    /// Blocks the client until a rule holds another one; returns the reply if one is held already.
    pub fn await_held(&mut self, rule: u64) -> Reply {
        self.engine.await_held(self.client, rule)
    }

    /// Undoes up to `count` of the last writes; returns how many.
    pub fn lose_writes(&mut self, count: usize) -> usize {
        self.engine.lose_writes(count, self.time)
    }

    /// Restores the state after the start, except connections and the time. Returns the rate that
    /// the clock had at the start.
    ///
    /// # Errors
    /// While a script runs.
    pub fn reset_server(&mut self) -> Result<Rate, Error> {
        self.engine.reset(self.client, self.time)
    }

    /// Clears the journal; `None` if none is kept.
    pub fn clear_journal(&mut self) -> Option<()> {
        self.engine.clear_journal()
    }

    /// Declares that keys that match `pattern` are locks; `None` if no journal is kept.
    pub fn declare_locks(&mut self, pattern: &[u8]) -> Option<()> {
        self.engine.declare_locks(pattern)
    }

    /// Declares that keys that match `pattern` are no locks; `None` if no journal is kept.
    pub fn ignore_locks(&mut self, pattern: &[u8]) -> Option<()> {
        self.engine.ignore_locks(pattern)
    }
}
