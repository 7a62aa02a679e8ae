//! Changes of the nodes of a cluster, which its leader makes one after the other, and their state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use openraft::ChangeMembers;
use openraft::error::{ClientWriteError, RaftError};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::node::{Node, Role};
use crate::{Batch, NodeId, Peer};

/// Why the nodes were not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipError {
    /// This node does not lead; this one does, if any.
    NotLeader(Option<Peer>),
    /// The node was removed from the cluster, and must not come back under its number.
    Removed,
    /// Another reason.
    Refused(String),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MembershipError::NotLeader(Some(leader)) => {
                write!(f, "this node does not lead, but {}", leader.address)
            }
            MembershipError::NotLeader(None) => write!(f, "there is no leader"),
            MembershipError::Removed => write!(f, "the node was removed from the cluster"),
            MembershipError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for MembershipError {}

type WriteError = RaftError<NodeId, ClientWriteError<NodeId, Peer>>;

impl From<WriteError> for MembershipError {
    fn from(error: WriteError) -> MembershipError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(error)) => {
                MembershipError::NotLeader(error.leader_node)
            }
            error => MembershipError::Refused(error.to_string()),
        }
    }
}

/// A cluster as one of its nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The name of the cluster.
    pub cluster: String,
    /// The node that sees the cluster so.
    pub node: NodeId,
    /// The term of its vote.
    pub term: u64,
    /// The node that leads, if it is known.
    pub leader: Option<NodeId>,
    /// The last entry of its log.
    pub last_index: Option<u64>,
    /// The last entry that is applied to its state.
    pub applied_index: Option<u64>,
    /// All nodes, by their numbers.
    pub nodes: BTreeMap<NodeId, NodeStatus>,
}

/// A node as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its addresses.
    pub peer: Peer,
    /// Whether it votes, in every configuration that counts while the nodes are being changed. A
    /// new node gets the log first.
    pub is_voter: bool,
    /// Whether it has acknowledged a message within a lease; only a leader can say.
    pub is_in_contact: Option<bool>,
    /// The last entry that it has; only a leader can say.
    pub matched_index: Option<u64>,
}

impl Node {
    /// A number that no node has had.
    ///
    /// # Errors
    /// If this node does not lead.
    pub async fn new_number(&self) -> Result<NodeId, MembershipError> {
        self.check_leads()?;
        // An entry without effects: its index is not used again. The first one is 0.
        Ok(self.replicate(Batch::default()).await? + 1)
    }

    /// Makes a node one of those that vote, or changes its addresses. Returns when it has got the
    /// log. `was_member` if it has a log of this cluster already.
    ///
    /// # Errors
    /// If this node does not lead, the other one was removed, or it cannot be reached.
    pub async fn enter(
        &self,
        node: NodeId,
        peer: Peer,
        was_member: bool,
    ) -> Result<(), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        self.end_interrupted_change().await?;
        let membership = self.metrics().borrow().membership_config.clone();
        let known = membership.nodes().find(|(id, _)| **id == node).map(|(_, peer)| peer.clone());
        match known {
            None if was_member => return Err(MembershipError::Removed),
            Some(known) if known != peer => {
                let nodes = BTreeMap::from([(node, peer.clone())]);
                self.raft.change_membership(ChangeMembers::SetNodes(nodes), true).await?;
            }
            _ => {}
        }
        if membership.membership().voter_ids().any(|voter| voter == node) {
            return Ok(());
        }
        self.add_learner(node, peer).await?;
        // Otherwise this node might lose its majority for a moment.
        let is_in_contact = async {
            while !self.is_in_contact(node) {
                sleep(self.settings.heartbeat / 2).await;
            }
        };
        let in_time = timeout(self.settings.lease, is_in_contact).await;
        in_time.map_err(|_| MembershipError::Refused("the new node is not in contact".into()))?;
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
        self.raft.change_membership(voters, true).await?;
        Ok(())
    }

    /// Removes a node for good.
    ///
    /// # Errors
    /// If this node does not lead, there is no such node, or a majority of the others cannot be
    /// reached.
    pub async fn remove(&self, node: NodeId) -> Result<(), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        let status = self.status();
        let refused = |reason: String| Err(MembershipError::Refused(reason));
        let Some(removed) = status.nodes.get(&node) else {
            return refused(format!("there is no node {node}"));
        };
        if self.end_interrupted_change().await? {
            // It may have been this one.
            let membership = self.metrics().borrow().membership_config.clone();
            if membership.membership().get_node(&node).is_none() {
                return Ok(());
            }
            return refused("another change was interrupted; try again".to_owned());
        }
        let mut left: BTreeMap<_, _> = status.nodes.iter().collect();
        left.retain(|id, other| **id != node && other.is_voter);
        let reachable = left.values().filter(|other| other.is_in_contact == Some(true)).count();
        if left.is_empty() {
            return refused(format!("node {node} is the only one"));
        }
        if removed.is_voter && reachable * 2 <= left.len() {
            let count = left.len();
            return refused(format!(
                "only {reachable} of the other {count} nodes can be reached: without node {node} \
                 there would be no majority"
            ));
        }
        let nodes = BTreeSet::from([node]);
        let change = match removed.is_voter {
            true => ChangeMembers::RemoveVoters(nodes),
            false => ChangeMembers::RemoveNodes(nodes),
        };
        self.raft.change_membership(change, false).await?;
        Ok(())
    }

    /// Completes a change of the nodes whose leader has failed before it was done: until then two
    /// sets of nodes vote. Returns whether there was one.
    async fn end_interrupted_change(&self) -> Result<bool, MembershipError> {
        let membership = self.metrics().borrow().membership_config.clone();
        let [.., _, next] = &membership.membership().get_joint_config()[..] else {
            return Ok(false);
        };
        self.raft.change_membership(next.clone(), false).await?;
        Ok(true)
    }

    /// The cluster as this node sees it.
    pub fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        let leads = self.check_leads().is_ok();
        let leader = metrics.current_leader.filter(|leader| *leader != self.settings.id || leads);
        let membership = &metrics.membership_config;
        let configurations = membership.membership().get_joint_config();
        let matched = |id: &NodeId| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
        let node = |(id, peer): (&NodeId, &Peer)| {
            let status = NodeStatus {
                peer: peer.clone(),
                is_voter: configurations.iter().all(|voters| voters.contains(id)),
                is_in_contact: leads.then(|| self.is_in_contact(*id)),
                matched_index: matched(id).filter(|_| leads),
            };
            (*id, status)
        };
        Status {
            cluster: self.settings.cluster.clone(),
            node: self.settings.id,
            term: metrics.current_term,
            leader,
            last_index: metrics.last_log_index,
            applied_index: metrics.last_applied.map(|log_id| log_id.index),
            nodes: membership.nodes().map(node).collect(),
        }
    }

    /// Whether a node has acknowledged a message that this one has sent within the last lease.
    pub fn is_in_contact(&self, node: NodeId) -> bool {
        let vote = self.metrics().borrow().vote;
        let last = self.network.contacts.last(&vote, node);
        let is_recent = |last: Instant| last.elapsed() < self.settings.lease;
        node == self.settings.id || last.is_some_and(is_recent)
    }

    pub(crate) fn check_leads(&self) -> Result<(), MembershipError> {
        if matches!(*self.role().borrow(), Role::Leader { .. }) {
            return Ok(());
        }
        let metrics = self.metrics();
        let metrics = metrics.borrow();
        let leader = metrics.current_leader.filter(|leader| *leader != self.settings.id);
        let membership = metrics.membership_config.membership();
        Err(MembershipError::NotLeader(leader.and_then(|id| membership.get_node(&id).cloned())))
    }
}
