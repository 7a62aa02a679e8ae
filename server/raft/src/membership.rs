//! Changes of the nodes of a cluster, which its leader makes one after the other, and their state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lockwheel_defects::defect;
use openraft::error::{ClientWriteError, RaftError};
use openraft::metrics::RaftServerMetrics;
use openraft::{ChangeMembers, LogId, StoredMembership};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::batch::{Batch, JoinToken, Peer};
use crate::limits;
use crate::node::{Node, Role, WriteError};
use crate::types::NodeId;

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

/// The nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The entry of the log with these members.
    pub at: Option<LogId<NodeId>>,
    /// All nodes, by their numbers.
    pub nodes: BTreeMap<NodeId, Peer>,
}

impl Members {
    fn of(stored: &StoredMembership<NodeId, Peer>) -> Members {
        let nodes = stored.nodes().map(|(id, peer)| (*id, peer.without_tokens()));
        Members { at: *stored.log_id(), nodes: nodes.collect() }
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

    /// Admits a new node, which has not started yet, with the join token of this digest. The token
    /// is used then: both are the same entry. Returns the number of the node, and all nodes.
    ///
    /// # Errors
    /// If this node does not lead, or there is no such token that is valid `now`, in seconds since
    /// 1970.
    pub async fn admit(
        &self,
        digest: &str,
        now: u64,
        peer: Peer,
    ) -> Result<(NodeId, Members), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        self.end_interrupted_change().await?;
        let refused = |reason: &str| Err(MembershipError::Refused(reason.to_owned()));
        let nodes = self.nodes();
        // It asks again if it has not got the reply.
        if let Some((number, _)) =
            nodes.iter().find(|(_, known)| known.fingerprint == peer.fingerprint)
        {
            return Ok((*number, self.members()));
        }
        if let Some((other, _)) = nodes.iter().find(|(_, known)| known.fingerprint.is_empty()) {
            return refused(&format!("node {other} runs an earlier program: upgrade it first"));
        }
        let is_used = |token: &JoinToken| token.digest == digest;
        let maker = nodes.into_iter().find(|(_, known)| known.tokens.iter().any(is_used));
        let Some((maker, mut known)) = maker else {
            return refused(
                "the join token has been used, or the node where it was made is removed; \
                 'lockwheel raft token' prints another one",
            );
        };
        if known.tokens.iter().any(|token| is_used(token) && token.until <= now) {
            return refused("the join token has expired; 'lockwheel raft token' prints one");
        }
        if !defect!(RaftTokenUsedTwice) {
            known.tokens.retain(|token| !is_used(token));
        }
        let number = self.new_number().await?;
        self.set_nodes([(maker, known), (number, peer.without_tokens())]).await?;
        Ok((number, self.members()))
    }

    /// Records a join token that was made on a node.
    ///
    /// # Errors
    /// If this node does not lead, there is no such node, or it has made many tokens that are valid
    /// `now`.
    pub async fn add_token(
        &self,
        node: NodeId,
        token: JoinToken,
        now: u64,
    ) -> Result<(), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        self.end_interrupted_change().await?;
        let mut maker = self.nodes().remove(&node).ok_or(MembershipError::Removed)?;
        // It asks again if it has not got the reply.
        maker.tokens.retain(|known| known.until > now && known.digest != token.digest);
        if maker.tokens.len() >= limits::JOIN_TOKENS_MAX {
            let max = limits::JOIN_TOKENS_MAX;
            let reason = format!("node {node} has made {max} join tokens that were not used yet");
            return Err(MembershipError::Refused(reason));
        }
        maker.tokens.push(token);
        self.set_nodes([(node, maker)]).await
    }

    /// Makes a node one of those that vote, or changes its addresses, and its fingerprint if an
    /// earlier program had recorded none. Returns when it has got the log.
    ///
    /// # Errors
    /// If this node does not lead, the other one was removed, or it cannot be reached.
    pub async fn enter(&self, node: NodeId, mut peer: Peer) -> Result<(), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        self.end_interrupted_change().await?;
        let membership = self.metrics().borrow().membership_config.clone();
        let known = membership.membership().get_node(&node).ok_or(MembershipError::Removed)?;
        peer.tokens.clone_from(&known.tokens);
        if peer.fingerprint.is_empty() {
            peer.fingerprint.clone_from(&known.fingerprint);
        }
        if *known != peer {
            self.set_nodes([(node, peer.clone())]).await?;
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
        self.while_leading(self.raft.change_membership(voters, true)).await?;
        Ok(())
    }

    /// Removes a node for good. If it is this one, another one leads first, and must be asked.
    ///
    /// # Errors
    /// If this node does not lead, there is no such node, or a majority of the others cannot be
    /// reached.
    pub async fn remove(&self, node: NodeId) -> Result<(), MembershipError> {
        self.check_leads()?;
        let _change = self.membership_change.lock().await;
        let was_there = self.nodes().contains_key(&node);
        self.end_interrupted_change().await?;
        let status = self.status();
        let refused = |reason: String| Err(MembershipError::Refused(reason));
        let Some(removed) = status.nodes.get(&node) else {
            // It was the interrupted change that has removed the node, if it was there.
            return if was_there { Ok(()) } else { refused(format!("there is no node {node}")) };
        };
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
        if node == self.settings.id && !defect!(RaftLeaderRemovesItself) {
            return Err(self.let_another_lead(|_| true).await);
        }
        let nodes = BTreeSet::from([node]);
        let change = match removed.is_voter {
            true => ChangeMembers::RemoveVoters(nodes),
            false => ChangeMembers::RemoveNodes(nodes),
        };
        self.while_leading(self.raft.change_membership(change, false)).await?;
        Ok(())
    }

    async fn set_nodes(
        &self,
        nodes: impl IntoIterator<Item = (NodeId, Peer)>,
    ) -> Result<(), MembershipError> {
        let nodes = ChangeMembers::SetNodes(nodes.into_iter().collect());
        self.while_leading(self.raft.change_membership(nodes, true)).await?;
        Ok(())
    }

    /// The nodes as the last entry about them says, with their join tokens.
    fn nodes(&self) -> BTreeMap<NodeId, Peer> {
        let membership = self.metrics().borrow().membership_config.clone();
        membership.nodes().map(|(id, peer)| (*id, peer.clone())).collect()
    }

    /// The nodes as the last entry about them says, which may not be committed.
    pub fn members(&self) -> Members {
        Members::of(&self.metrics().borrow().membership_config)
    }

    /// The nodes, if the last entry about them is applied here.
    pub fn applied_members(&self) -> Option<Members> {
        let metrics = self.raft.metrics().borrow().clone();
        let members = Members::of(&metrics.membership_config);
        (metrics.last_applied >= members.at).then_some(members)
    }

    /// Waits until an entry is applied here, or this node has ended.
    pub async fn until_applied(&self, entry: Option<LogId<NodeId>>) {
        // An error means that the node has ended.
        let _ = self.raft.metrics().wait_for(|metrics| metrics.last_applied >= entry).await;
    }

    /// Completes a change of the nodes whose leader has failed before it was done: until then two
    /// sets of nodes vote. If this node leaves by it, another one leads first, and must be asked.
    async fn end_interrupted_change(&self) -> Result<(), MembershipError> {
        let mut metrics = self.metrics();
        let membership = metrics.borrow().membership_config.clone();
        if let [.., _, next] = &membership.membership().get_joint_config()[..] {
            if !next.contains(&self.settings.id) {
                return Err(self.let_another_lead(|id| next.contains(&id)).await);
            }
            self.while_leading(self.raft.change_membership(next.clone(), false)).await?;
            let is_settled = |metrics: &RaftServerMetrics<NodeId, Peer>| {
                metrics.membership_config.membership().get_joint_config().len() == 1
            };
            // An error means that the node ends.
            let _ = metrics.wait_for(is_settled).await;
        }
        Ok(())
    }

    /// The cluster as this node sees it.
    pub fn status(&self) -> Status {
        // Checked before the metrics are read: those of an earlier leadership do not show the
        // followers.
        let leads = self.check_leads().is_ok();
        let metrics = self.raft.metrics().borrow().clone();
        let leader = metrics.current_leader.filter(|leader| *leader != self.settings.id || leads);
        let membership = &metrics.membership_config;
        let configurations = membership.membership().get_joint_config();
        let matched = |id: &NodeId| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
        let node = |(id, peer): (&NodeId, &Peer)| {
            let status = NodeStatus {
                peer: peer.without_tokens(),
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

    /// Checks that this node leads for certain.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_leads(&self) -> Result<(), MembershipError> {
        if matches!(*self.role().borrow(), Role::Leader { .. }) {
            return Ok(());
        }
        let metrics = self.metrics();
        let metrics = metrics.borrow();
        let leader = metrics.current_leader.filter(|leader| *leader != self.settings.id);
        let membership = metrics.membership_config.membership();
        Err(MembershipError::NotLeader(
            leader.and_then(|id| membership.get_node(&id).map(Peer::without_tokens)),
        ))
    }
}
