//! Reads on a follower, by the method of Raft that is called `ReadIndex`.
//!
//! A follower that has applied the entry which the leader had applied last when it was asked has
//! everything that was acknowledged before. The leader answers only while it is certain that there
//! is no other one.

use std::io;
use std::sync::Arc;

use lockwheel_defects::defect;
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use tokio::time::{sleep, timeout};

use crate::batch::Peer;
use crate::limits;
use crate::network::{Connection, unexpected};
use crate::node::Node;
use crate::types::NodeId;
use crate::wire::{Reply, Request};

/// Confirms that the state of a node is recent. Keeps a connection to the leader.
pub struct Reads {
    node: Arc<Node>,
    leader: Option<(NodeId, Connection)>,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reads").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Node {
    /// What confirms the reads of this node while it follows.
    pub fn reads(self: &Arc<Self>) -> Reads {
        Reads { node: Arc::clone(self), leader: None }
    }

    /// The index up to which the log is applied here, if this node leads for certain. It is
    /// determined after that is: so the log has what an earlier leader has acknowledged.
    pub(crate) fn confirmed_index(&self) -> Option<u64> {
        let leads = || self.leads() || defect!(RaftReadIndexUnconfirmed);
        index_of_leader(leads, || self.machine.applied_index())
    }
}

/// The index that `applied` returns if the node leads before it is asked.
fn index_of_leader(
    leads: impl FnOnce() -> bool,
    applied: impl FnOnce() -> Option<u64>,
) -> Option<u64> {
    if leads() { applied() } else { None }
}

impl Reads {
    /// Returns when the state has everything that was acknowledged before this call.
    ///
    /// # Errors
    /// If that cannot be confirmed now, some time later: the caller may try again at once.
    pub async fn confirm(&mut self) -> io::Result<()> {
        let confirmed = timeout(self.node.settings.lease, self.catch_up()).await;
        let confirmed = confirmed.unwrap_or_else(|elapsed| Err(elapsed.into()));
        if confirmed.is_err() {
            self.leader = None;
            sleep(limits::RECONNECT_PAUSE).await;
        }
        confirmed
    }

    /// Waits until this node has applied what the leader has.
    async fn catch_up(&mut self) -> io::Result<()> {
        let index = self.ask_leader().await?;
        if defect!(RaftReadBeforeApplied) {
            return Ok(());
        }
        let has_applied = |metrics: &RaftDataMetrics<NodeId>| {
            metrics.last_applied.is_some_and(|last| last.index >= index)
        };
        let mut metrics = self.node.raft.data_metrics();
        metrics.wait_for(has_applied).await.map_err(io::Error::other)?;
        // The state may just be replaced.
        self.node.machine.applied_index();
        Ok(())
    }

    /// The index up to which the leader has applied the log.
    async fn ask_leader(&mut self) -> io::Result<u64> {
        match self.connection().await?.call(&Request::ReadIndex).await? {
            Reply::ReadIndex(Some(index)) => Ok(index),
            Reply::ReadIndex(None) => Err(io::Error::other("the node does not lead for certain")),
            reply => Err(io::Error::other(unexpected(reply))),
        }
    }

    /// The connection to the leader, when there is another node that leads.
    async fn connection(&mut self) -> io::Result<&mut Connection> {
        let mut metrics = self.node.metrics();
        let follows = |metrics: &RaftServerMetrics<NodeId, Peer>| leader(metrics).is_some();
        let metrics = metrics.wait_for(follows).await.map_err(io::Error::other)?;
        let (id, peer) = leader(&metrics).ok_or(io::ErrorKind::NotConnected)?;
        if self.leader.as_ref().is_none_or(|(leader, _)| *leader != id) {
            self.leader = Some((id, self.node.network.connection(id, peer)));
        }
        let (_, connection) = self.leader.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(connection)
    }
}

/// The node that leads, unless it is this one.
fn leader(metrics: &RaftServerMetrics<NodeId, Peer>) -> Option<(NodeId, &Peer)> {
    let id = metrics.current_leader.filter(|leader| *leader != metrics.id)?;
    let peer = metrics.membership_config.membership().get_node(&id)?;
    Some((id, peer))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn index_is_read_after_the_leadership_is_checked() {
        // The node begins to lead while it is asked: its barrier comes after entries that the
        // leader before has acknowledged.
        let last = Cell::new(3);
        let begins_to_lead = || last.replace(8) == 3;
        assert_eq!(index_of_leader(begins_to_lead, || Some(last.get())), Some(8));
        assert_eq!(index_of_leader(|| false, || Some(last.get())), None);
    }
}
