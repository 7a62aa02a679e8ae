//! When a node becomes a candidate.
//!
//! `openraft` 0.9 has no preliminary votes: a node that was cut off for a while comes back with a
//! later term and ends the leadership of a leader that works. So its own timer is off. Here a node
//! that has got no message of a leader for long enough first asks the others whether they would
//! vote for it, and becomes a candidate if a majority would and still no message has arrived.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lockwheel_defects::defect;
use openraft::{LogId, ServerState};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::info;

use crate::network::Connection;
use crate::node::Node;
use crate::runtime::AsyncRuntime;
use crate::types::NodeId;
use crate::wire::{Reply, Request};

impl Node {
    /// Becomes a candidate whenever there is no leader, until the node ends.
    pub(crate) async fn watch_leader(self: Arc<Self>) {
        let (mut stopped, mut choice) = (self.stopped(), self.choice.subscribe());
        let mut last_attempt = self.last_contact();
        loop {
            // The next attempt is as long after this one as this one was after the last message.
            // Others need not wait for that: an attempt is no reason to refuse them a vote.
            let last = self.last_contact().max(last_attempt);
            let timeout = self.timeout_of_choice(last > last_attempt);
            let timeout = timeout.unwrap_or_else(|| self.election_timeout());
            tokio::select! {
                biased;
                () = sleep_until(last + timeout) => {}
                // The sender is a part of this node.
                _ = choice.changed() => continue,
                _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            }
            if self.last_contact().max(last_attempt) > last {
                continue;
            }
            if self.may_be_candidate() && self.would_win().await {
                self.become_candidate();
            }
            last_attempt = Instant::now();
        }
    }

    /// Becomes a candidate, unless a message of a leader has arrived while the others were asked:
    /// the leader relies on the promise to follow no other node. One that arrives later finds the
    /// candidate: `openraft` gets its orders in the order in which they are sent.
    fn become_candidate(&self) {
        let promises = self.promises.lock();
        if promises.last_contact.elapsed() < self.settings.lease
            && !defect!(RaftCandidateDespiteLeader)
        {
            return;
        }
        info!("no leader: this node is a candidate");
        let trigger = self.raft.trigger();
        // It is complete when the order is sent; otherwise `openraft` has ended.
        let _ = pin!(trigger.elect()).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// How long this node waits for a message of a leader. It differs from one to the next, so that
    /// seldom two nodes are candidates at once.
    fn election_timeout(&self) -> Duration {
        let drawn = self.raft.config().new_rand_election_timeout::<AsyncRuntime>();
        self.settings.lease / 2 + Duration::from_millis(drawn)
    }

    /// Whether this node has a vote and does not lead.
    fn may_be_candidate(&self) -> bool {
        let metrics = self.metrics();
        let metrics = metrics.borrow();
        let mut voters = metrics.membership_config.membership().voter_ids();
        metrics.state != ServerState::Leader
            && voters.any(|voter| voter == self.settings.id)
            && self.doubt.permits(self.last_entry())
    }

    /// Whether a majority would vote for this node.
    async fn would_win(&self) -> bool {
        let membership = Arc::clone(&self.metrics().borrow().membership_config);
        let last = self.last_entry();
        let mut answers = JoinSet::new();
        for (id, peer) in membership.nodes().filter(|(id, _)| **id != self.settings.id) {
            let (id, connection) = (*id, self.network.connection(*id, peer));
            let answer = timeout(self.settings.lease / 2, would_vote(connection, last));
            answers.spawn(async move { answer.await.ok().filter(|votes| *votes).map(|_| id) });
        }
        let mut votes = BTreeSet::from([self.settings.id]);
        loop {
            let is_majority =
                |voters: &BTreeSet<NodeId>| voters.intersection(&votes).count() > voters.len() / 2;
            if membership.membership().get_joint_config().iter().all(is_majority) {
                return true;
            }
            // Not all must answer: one of them has failed.
            let Some(answer) = answers.join_next().await else { return false };
            votes.extend(answer.ok().flatten());
        }
    }

    /// Whether this node would vote for one whose last entry is `last`: it has got no message of a
    /// leader for a lease, and its log is no longer, as far as it knows what it should be.
    pub(crate) fn would_vote_for(&self, last: Option<LogId<NodeId>>) -> bool {
        let is_as_far = self.last_entry() <= last && self.doubt.permits(last);
        !self.leads() && !self.has_promised() && is_as_far
    }

    /// Whether this node may have promised to vote for no other one than its leader.
    pub(crate) fn has_promised(&self) -> bool {
        self.last_contact().elapsed() < self.settings.lease && !defect!(RaftVotesDuringLease)
    }

    pub(crate) fn last_entry(&self) -> Option<LogId<NodeId>> {
        self.raft.data_metrics().borrow().last_log
    }
}

async fn would_vote(mut connection: Connection, last: Option<LogId<NodeId>>) -> bool {
    matches!(connection.call(&Request::WouldVote(last)).await, Ok(Reply::WouldVote(true)))
}
