//! The nodes whose connections this one accepts: those that the log says are of the cluster.
//!
//! A node that was away does not know those that have joined meanwhile, and the leader may be one
//! of them. So when a key is refused, the node asks those that it knows for the current nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwheel_raft::{Members, Node, NodeId, Peer};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::info;

use super::authority::Authority;
use super::keys::{Connector, Shown};
use super::membership::{Reply, Request, ask_node};
use crate::limits;

/// The nodes whose connections this node accepts.
#[derive(Debug)]
pub(super) struct KnownNodes {
    own: NodeId,
    authority: Option<Authority>,
    known: watch::Sender<KnownMembers>,
    /// Notified when a key was refused.
    refused: Notify,
}

/// The nodes of the cluster, as far as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KnownMembers {
    /// The nodes after the last change that is committed.
    settled: Members,
    /// The nodes after a change that is not committed. A node that it removes is accepted until it
    /// is: it may be the leader that commits it.
    pending: BTreeMap<NodeId, Peer>,
}

impl KnownNodes {
    /// Returns the nodes that this node knows, or those of an earlier announcement if its log does
    /// not reach as far.
    pub(super) fn new(
        node: &Node,
        own: NodeId,
        announced: Members,
        authority: Option<Authority>,
    ) -> KnownNodes {
        let members = node.members();
        let settled = if members.at > announced.at { members } else { announced };
        let known = watch::Sender::new(KnownMembers { settled, pending: BTreeMap::new() });
        KnownNodes { own, authority, known, refused: Notify::new() }
    }

    /// The node that has shown this key.
    pub(super) fn node_of(&self, shown: &Shown) -> Option<NodeId> {
        let found = find(&self.known.borrow(), shown, self.authority.as_ref());
        if found.is_none() {
            self.refused.notify_one();
        }
        found
    }

    /// The other nodes, as far as this one knows them.
    pub(super) fn others(&self) -> Vec<Peer> {
        let known = self.known.borrow();
        let others = known.settled.nodes.iter().filter(|(id, _)| **id != self.own);
        others.map(|(_, peer)| peer.clone()).collect()
    }

    /// Waits until there is no node with this key any more.
    pub(super) async fn until_removed(&self, shown: &Shown) {
        let authority = self.authority.as_ref();
        let is_removed = |known: &KnownMembers| find(known, shown, authority).is_none();
        // The sender is this.
        let _ = self.known.subscribe().wait_for(is_removed).await;
    }

    /// Follows the changes of the nodes, until the node ends.
    pub(super) async fn follow(self: Arc<Self>, node: Arc<Node>) {
        let (mut metrics, mut before) = (node.metrics(), node.members());
        loop {
            metrics.mark_unchanged();
            let members = node.members();
            self.known.send_if_modified(|known| known.begin(&members, &before));
            before.clone_from(&members);
            let changed = tokio::select! {
                changed = metrics.changed() => changed,
                () = node.until_applied(members.at) => {
                    self.settle(members);
                    metrics.changed().await
                }
            };
            if changed.is_err() {
                return;
            }
        }
    }

    fn settle(&self, members: Members) {
        self.known.send_if_modified(|known| {
            let is_later = members.at > known.settled.at;
            if is_later {
                *known = KnownMembers { settled: members, pending: BTreeMap::new() };
            }
            is_later
        });
    }

    /// Asks the nodes that are known for the current ones whenever a key is refused, until the node
    /// ends.
    pub(super) async fn learn(self: Arc<Self>, connector: Connector) {
        loop {
            self.refused.notified().await;
            for peer in self.others() {
                let asking = ask_node(&connector, None, &peer, &Request::Members);
                let reply = timeout(limits::RAFT_REQUEST_TIMEOUT, asking).await;
                if let Ok(Ok(Reply::Members(members))) = reply
                    && members.at > self.known.borrow().settled.at
                {
                    info!(of = peer.address, "the nodes of the cluster have changed meanwhile");
                    self.settle(members);
                }
            }
            sleep(limits::RAFT_LEARN_PAUSE).await;
        }
    }
}

impl KnownMembers {
    /// Notes a change that may not be committed, and what the log said before it; returns whether
    /// it was unknown.
    fn begin(&mut self, members: &Members, before: &Members) -> bool {
        let known = self.clone();
        self.pending.clear();
        if members.at > self.settled.at {
            self.pending.clone_from(&members.nodes);
        } else if members.at < before.at && self.settled.at == before.at {
            // The node has started with an entry that was not committed, and has lost it.
            self.settled.clone_from(members);
        }
        *self != known
    }
}

fn find(known: &KnownMembers, shown: &Shown, authority: Option<&Authority>) -> Option<NodeId> {
    // If a change records the fingerprint of a node, this is the one that counts.
    let settled = known.settled.nodes.iter().filter(|(id, _)| !known.pending.contains_key(id));
    let mut nodes = known.pending.iter().chain(settled);
    let found = nodes.find(|(id, peer)| shown.is_of(Some(**id), peer, authority));
    found.map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes as an entry says.
    fn members(entry: u64, nodes: &[NodeId]) -> Members {
        let at = format!(r#"{{"leader_id":{{"term":1,"node_id":1}},"index":{entry}}}"#);
        let nodes = nodes.iter().map(|id| (*id, Peer::default()));
        Members { at: serde_json::from_str(&at).expect("a log id"), nodes: nodes.collect() }
    }

    #[test]
    fn removed_node_counts_until_the_removal_is_committed() {
        let (all, left) = (members(1, &[1, 2]), members(2, &[2]));
        let mut known = KnownMembers { settled: all.clone(), pending: BTreeMap::new() };
        assert!(known.begin(&left, &all));
        assert_eq!((&known.settled, &known.pending), (&all, &left.nodes));
        // The log has lost it again.
        assert!(known.begin(&all, &left));
        assert_eq!(known, KnownMembers { settled: all, pending: BTreeMap::new() });
    }

    #[test]
    fn change_that_the_log_loses_is_forgotten() {
        let (all, left) = (members(1, &[1, 2]), members(2, &[2]));
        let mut known = KnownMembers { settled: left.clone(), pending: BTreeMap::new() };
        assert!(!known.begin(&left, &left));
        assert!(known.begin(&all, &left));
        assert_eq!(known.settled, all);
        // Another node has announced what the log does not have yet.
        known.settled = left.clone();
        assert!(!known.begin(&all, &all));
        assert_eq!(known.settled, left);
    }
}
