//! What a node has promised to others.
//!
//! After a message of a leader, a follower neither votes for another node nor becomes a candidate
//! for the time of one lease. A leader votes for no other node while it leads. Messages arrive
//! while an election is being decided, so both decisions are made under one lock.

use openraft::Vote;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::types::NodeId;

/// The promises of this node, under one lock.
#[derive(Debug)]
pub(crate) struct Promises(Mutex<Given>);

/// The promises of one node.
#[derive(Debug)]
pub(crate) struct Given {
    /// When the last message of a leader arrived, or may have arrived before this node started.
    pub(crate) last_contact: Instant,
    /// Number of vote requests that are being decided.
    undecided: u32,
    /// The greatest vote that was granted, or may have been.
    granted: Vote<NodeId>,
}

/// A vote request that is being decided. Dropped without a decision, it counts as granted.
#[derive(Debug)]
pub(crate) struct Undecided<'a> {
    promises: &'a Promises,
    vote: Vote<NodeId>,
    is_granted: bool,
}

impl Promises {
    pub(crate) fn new(now: Instant) -> Promises {
        Promises(Mutex::new(Given { last_contact: now, undecided: 0, granted: Vote::default() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Given> {
        self.0.lock()
    }

    /// Begins to decide a vote request, unless this node leads.
    pub(crate) fn decide(
        &self,
        vote: Vote<NodeId>,
        leads: impl FnOnce() -> bool,
    ) -> Option<Undecided<'_>> {
        let mut given = self.lock();
        (!leads()).then(|| {
            given.undecided += 1;
            Undecided { promises: self, vote, is_granted: true }
        })
    }

    /// Extends the time for which this node leads with `vote`, unless a vote request is being
    /// decided. Returns false, and extends nothing, if a greater vote was granted.
    pub(crate) fn extend(&self, vote: &Vote<NodeId>, extend: impl FnOnce()) -> bool {
        let given = self.lock();
        if given.granted > *vote {
            return false;
        }
        if given.undecided == 0 {
            extend();
        }
        true
    }
}

impl Undecided<'_> {
    /// Records the decision.
    pub(crate) fn end(mut self, is_granted: bool) {
        self.is_granted = is_granted;
    }
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        let mut given = self.promises.lock();
        given.undecided -= 1;
        if self.is_granted && self.vote > given.granted {
            given.granted = self.vote;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_votes_does_not_go_on_to_lead() {
        let promises = Promises::new(Instant::now());
        let (own, other) = (Vote::new_committed(3, 1), Vote::new(4, 2));
        let extends = || {
            let mut is_extended = false;
            promises.extend(&own, || is_extended = true).then_some(is_extended)
        };
        assert_eq!(extends(), Some(true));
        assert!(promises.decide(other, || true).is_none());
        let undecided = promises.decide(other, || false).expect("it does not lead");
        assert_eq!(extends(), Some(false));
        undecided.end(false);
        assert_eq!(extends(), Some(true));
        drop(promises.decide(other, || false));
        assert_eq!(extends(), None);
    }
}
