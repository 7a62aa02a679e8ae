//! When a leader was last in contact with each of its followers, and how far each of them has
//! acknowledged its log.
//!
//! A follower that has got a message of a leader grants its vote to no other one for an election
//! timeout. So a leader that has been acknowledged by a majority knows until when there is no other
//! leader: for as long, counted from when the messages were *sent*.

use std::collections::{BTreeMap, BTreeSet};

use lockwheel_defects::defect;
use openraft::Vote;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::types::NodeId;

/// The contacts of a leader with its followers.
#[derive(Debug, Default)]
pub(crate) struct Contacts(Mutex<Term>);

/// The contacts of one leadership.
#[derive(Debug, Default)]
struct Term {
    vote: Vote<NodeId>,
    /// When the last message was sent that the follower has acknowledged.
    sent: BTreeMap<NodeId, Instant>,
    /// The index of the last entry that the follower has acknowledged.
    acknowledged: BTreeMap<NodeId, u64>,
    /// Moment until which this leader does not lead: see [`crate::handover`].
    resigned_until: Option<Instant>,
    /// Whether it does not send messages either.
    is_silent: bool,
}

impl Contacts {
    /// Records that the follower has acknowledged a message that the leader with this vote has
    /// sent.
    pub(crate) fn note(&self, vote: &Vote<NodeId>, follower: NodeId, sent: Instant) {
        let mut term = self.0.lock();
        if *vote > term.vote {
            *term = Term { vote: *vote, ..Term::default() };
        }
        if *vote == term.vote {
            let is_late = defect!(RaftLeaseFromReceipt);
            let sent = if is_late { Instant::now() } else { sent };
            let last = term.sent.entry(follower).or_insert(sent);
            *last = (*last).max(sent);
        }
    }

    /// Records that the follower has acknowledged the log up to this index to the leader with this
    /// vote, with which it is in contact.
    pub(crate) fn note_acknowledged(&self, vote: &Vote<NodeId>, follower: NodeId, index: u64) {
        let mut term = self.0.lock();
        if *vote == term.vote {
            let last = term.acknowledged.entry(follower).or_default();
            *last = (*last).max(index);
        }
    }

    /// Suspends the leadership with this vote until a time.
    pub(crate) fn resign(&self, vote: &Vote<NodeId>, until: Instant) {
        let mut term = self.0.lock();
        if *vote == term.vote {
            (term.resigned_until, term.is_silent) = (Some(until), false);
        }
    }

    /// The leader that has resigned sends nothing from now on.
    pub(crate) fn be_silent(&self) {
        self.0.lock().is_silent = true;
    }

    /// Ends the suspension: the leader goes on, unless another one was elected.
    pub(crate) fn end_resignation(&self) {
        let mut term = self.0.lock();
        (term.resigned_until, term.is_silent) = (None, false);
    }

    /// Whether the leader with this vote has resigned.
    pub(crate) fn has_resigned(&self, vote: &Vote<NodeId>) -> bool {
        let term = self.0.lock();
        term.vote == *vote && term.resigned_until.is_some_and(|until| until > Instant::now())
    }

    /// Whether the leader with this vote sends nothing, since it has resigned.
    pub(crate) fn is_silent(&self, vote: &Vote<NodeId>) -> bool {
        self.has_resigned(vote) && self.0.lock().is_silent
    }

    /// How far the follower has acknowledged the log to the leader with this vote.
    pub(crate) fn acknowledged(&self, vote: &Vote<NodeId>, follower: NodeId) -> Option<u64> {
        let term = self.0.lock();
        term.acknowledged.get(&follower).copied().filter(|_| term.vote == *vote)
    }

    /// When the last message of the leader with this vote was sent that the follower has
    /// acknowledged.
    pub(crate) fn last(&self, vote: &Vote<NodeId>, follower: NodeId) -> Option<Instant> {
        let term = self.0.lock();
        term.sent.get(&follower).copied().filter(|_| term.vote == *vote)
    }

    /// When a majority in each of `configurations` was last in contact with the leader `node` of
    /// this vote; `None` if there is one without.
    pub(crate) fn with_majority(
        &self,
        node: NodeId,
        vote: &Vote<NodeId>,
        configurations: &[BTreeSet<NodeId>],
        now: Instant,
    ) -> Option<Instant> {
        let term = self.0.lock();
        if defect!(RaftLearnersCounted) {
            let mut sent: Vec<Instant> = term.sent.values().copied().collect();
            sent.sort_unstable_by(|a, b| b.cmp(a));
            let others = configurations.first()?.len() / 2;
            return if others == 0 { Some(now) } else { sent.get(others - 1).copied() };
        }
        let sent = |voter: &NodeId| match *voter == node {
            true => Some(now),
            false => term.sent.get(voter).copied().filter(|_| term.vote == *vote),
        };
        let majority = |voters: &BTreeSet<NodeId>| {
            let mut sent: Vec<Option<Instant>> = voters.iter().map(sent).collect();
            sent.sort_unstable();
            // The median: as many times are later as are earlier, or one more.
            let mut at = sent.len().div_ceil(2).checked_sub(1)?;
            if defect!(RaftLessThanAMajority) {
                at += 1;
            }
            sent.get(at).copied().flatten()
        };
        if defect!(RaftOnlyNewVotersCounted) {
            return configurations.last().and_then(majority);
        }
        configurations.iter().map(majority).min().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn contact_is_that_of_a_majority_in_this_term() {
        let (contacts, begin) = (Contacts::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let vote = Vote::new_committed(3, 1);
        let three = [BTreeSet::from([1, 2, 3])];
        let majority = |voters: &[BTreeSet<NodeId>]| {
            contacts.with_majority(1, &vote, voters, at(100)).map(|it| (it - begin).as_secs())
        };
        assert_eq!(majority(&three), None);
        assert_eq!(majority(&[BTreeSet::from([1])]), Some(100));
        contacts.note(&Vote::new_committed(2, 1), 3, at(9));
        assert_eq!(majority(&three), None);
        contacts.note(&vote, 2, at(5));
        assert_eq!(majority(&three), Some(5));
        contacts.note(&vote, 2, at(4));
        contacts.note(&vote, 3, at(7));
        assert_eq!(majority(&three), Some(7));
        assert_eq!(contacts.last(&vote, 2), Some(at(5)));
        assert_eq!(contacts.last(&vote, 4), None);
        // Three of four are a majority; each of two configurations must have a majority.
        assert_eq!(majority(&[BTreeSet::from([1, 2, 3, 4])]), Some(5));
        assert_eq!(majority(&[BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2])]), Some(5));
        assert_eq!(majority(&[BTreeSet::from([1, 2, 3]), BTreeSet::from([4, 5, 6])]), None);
        contacts.note(&Vote::new_committed(4, 2), 3, at(8));
        assert_eq!(contacts.last(&vote, 3), None);
        assert_eq!(majority(&three), None);
    }
}
