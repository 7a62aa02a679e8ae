//! Gives the leadership to another node.
//!
//! `openraft` 0.9 cannot do that, and the other nodes have promised to vote for no other one for a
//! lease after the last message of their leader. So the leader *resigns*: it executes nothing any
//! more, waits until the chosen node has its whole log, sends all nodes its number, and then
//! nothing. When the promises end, the chosen node is a candidate first: the others wait longer.
//! The cluster has no leader for a little more than a lease. If the chosen node is not elected,
//! another one is, or the former leader goes on.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::membership::{MembershipError, NodeStatus, Status};
use crate::node::{Node, Role};
use crate::types::NodeId;
use crate::wire::{LastEntry, Reply, Request};

/// The node that a leader has chosen to lead next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) node: NodeId,
    /// When the choice expires: the node was then not elected.
    until: Instant,
}

fn refused<T>(reason: String) -> Result<T, MembershipError> {
    Err(MembershipError::Refused(reason))
}

impl Node {
    /// Hands the leadership to another node, and returns when it leads. No commands are executed
    /// for a little more than a lease.
    ///
    /// # Errors
    /// If this node does not lead, the other one has no vote, cannot be reached or lacks entries,
    /// or it was not elected.
    pub async fn hand_over(&self, to: NodeId) -> Result<(), MembershipError> {
        self.check_leads()?;
        if to == self.settings.id {
            return Ok(());
        }
        let _change = self.membership_change.lock().await;
        self.resign_for(to).await
    }

    /// As [`Node::hand_over`], while no other change of the nodes is made.
    async fn resign_for(&self, to: NodeId) -> Result<(), MembershipError> {
        let status = self.status();
        match status.nodes.get(&to) {
            None => return refused(format!("there is no node {to}")),
            Some(node) if !node.is_voter => return refused(format!("node {to} has no vote")),
            Some(node) if node.is_in_contact != Some(true) => {
                return refused(format!("node {to} cannot be reached"));
            }
            Some(_) => {}
        }
        let vote = self.metrics().borrow().vote;
        info!(to, "this node hands its leadership over");
        let time = self.settings.lease * RESIGNED_LEASES;
        self.network.contacts.resign(&vote, Instant::now() + time);
        let done = timeout(time, self.leave_to(to)).await;
        self.network.contacts.end_resignation();
        done.unwrap_or_else(|_| refused(format!("node {to} was not elected in time")))
    }

    /// Hands the leadership to one of the nodes that `may_lead`, while no other change of the nodes
    /// is made: a leader does not leave the voters by a change of its own. Only it might have that
    /// change when it fails. Then it could not become a candidate, and the others, which need its
    /// vote, would not get it. Returns the error that names the next leader, or says why there is
    /// none.
    pub(crate) async fn let_another_lead(
        &self,
        may_lead: impl Fn(NodeId) -> bool,
    ) -> MembershipError {
        let status = self.status();
        let others = self.voters_in_contact(&status).filter(|(id, _)| may_lead(*id));
        let Some((next, node)) = others.max_by_key(|(_, node)| node.matched_index) else {
            let reason = "no other node that could lead can be reached";
            return MembershipError::Refused(reason.to_owned());
        };
        match self.resign_for(next).await {
            Ok(()) => MembershipError::NotLeader(Some(node.peer.clone())),
            Err(error) => error,
        }
    }

    /// The other voters that answer this leader.
    fn voters_in_contact<'s>(
        &self,
        status: &'s Status,
    ) -> impl Iterator<Item = (NodeId, &'s NodeStatus)> + use<'s> {
        let own = self.settings.id;
        let nodes = status.nodes.iter().map(|(id, node)| (*id, node));
        nodes.filter(move |(id, node)| {
            *id != own && node.is_voter && node.is_in_contact == Some(true)
        })
    }

    async fn leave_to(&self, to: NodeId) -> Result<(), MembershipError> {
        let mut role = self.role();
        // An error means that the node ends.
        let _ = role.wait_for(|role| *role == Role::Follower).await;
        let mut progress = self.progress();
        let has_all = progress.wait_for(|progress| {
            let matched = progress.replication.as_ref().and_then(|all| all.get(&to).copied());
            matched.flatten() == progress.last_log
        });
        if timeout(self.settings.lease, has_all).await.is_err() {
            return refused(format!("node {to} lacks entries"));
        }
        if !self.announce(to).await {
            return refused(format!("node {to} cannot be reached"));
        }
        self.network.contacts.be_silent();
        loop {
            sleep(self.settings.heartbeat / 2).await;
            match self.status().leader {
                Some(leader) if leader == to => return Ok(()),
                Some(leader) if leader != self.settings.id => {
                    return refused(format!("node {leader} was elected instead of node {to}"));
                }
                _ => {}
            }
        }
    }

    /// Sends the choice to all other nodes, as far as they can be reached; returns whether the
    /// chosen one has it.
    async fn announce(&self, chosen: NodeId) -> bool {
        let membership = self.metrics().borrow().membership_config.clone();
        let mut announcements = JoinSet::new();
        for (id, peer) in membership.nodes().filter(|(id, _)| **id != self.settings.id) {
            let (id, mut connection) = (*id, self.network.connection(*id, peer));
            announcements.spawn(timeout(self.settings.lease / 2, async move {
                let reply = connection.call(&Request::Chosen { node: chosen }).await;
                id == chosen && matches!(reply, Ok(Reply::Noted))
            }));
        }
        announcements.join_all().await.contains(&Ok(true))
    }

    /// Records the node that a leader has chosen to lead next.
    pub(crate) fn note_choice(&self, node: NodeId) -> Reply {
        let until = Instant::now() + self.settings.lease * CHOSEN_LEASES;
        self.choice.send_replace(Some(Choice { node, until }));
        Reply::Noted
    }

    /// How long this node waits after the last message of a leader, or after its last attempt,
    /// until it asks for votes, if a leader has chosen which node is to lead.
    pub(crate) fn timeout_of_choice(&self, is_first: bool) -> Option<Duration> {
        let lease = self.settings.lease;
        let choice = (*self.choice.borrow()).filter(|choice| choice.until > Instant::now())?;
        Some(match choice.node == self.settings.id {
            true if is_first => lease,
            true => lease / 10,
            false => lease * CHOSEN_LEASES,
        })
    }

    /// Hands the leadership over to a node whose disk has space, since that of this node is full.
    ///
    /// # Errors
    /// If there is none, or as [`Node::hand_over`].
    pub async fn hand_over_for_space(&self) -> Result<NodeId, MembershipError> {
        self.check_leads()?;
        let status = self.status();
        for (id, node) in self.voters_in_contact(&status) {
            let mut connection = self.network.connection(id, &node.peer);
            let asked = timeout(self.settings.lease, connection.call(&Request::LastEntry)).await;
            if let Ok(Ok(Reply::LastEntry(LastEntry { has_space: true, .. }))) = asked {
                return self.hand_over(id).await.map(|()| id);
            }
        }
        refused("no other node has space on its disk".to_owned())
    }
}

/// Leases after which a leader that has resigned goes on, if no other node was elected.
const RESIGNED_LEASES: u32 = 5;

/// Leases for which a choice counts: an attempt of the chosen node may fail.
const CHOSEN_LEASES: u32 = 3;
