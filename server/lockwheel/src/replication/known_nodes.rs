//! The nodes whose connections this one accepts: those that the log says are of the cluster.
//!
//! A node that was away does not know those that have joined meanwhile, and the leader may be one
//! of them. So when a key is refused, the node asks those that it knows for the current nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwheel_raft::{Members, Node, NodeId, Peer};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::info;

use super::authority::Authority;
use super::keys::{Connector, Shown};
use super::membership::{Reply, Request, ask_node};
use crate::limits;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct KnownNodes {
    own: NodeId,
    authority: Option<Authority>,
    known: watch::Sender<Known>,
    /// A key was refused.
    refused: Notify,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    /// As a change that is committed has left them.
    settled: Members,
    /// As a change will leave them when it is committed. A node that it removes is accepted until
    /// then: it may be the leader that commits it.
    pending: BTreeMap<NodeId, Peer>,
}

impl KnownNodes {
    /// Those of this node, or of an earlier announcement if its log does not reach as far.
    pub(super) fn new(
        node: &Node,
        own: NodeId,
        announced: Members,
        authority: Option<Authority>,
    ) -> KnownNodes {
        let members = node.members();
        let settled = if members.at > announced.at { members } else { announced };
        let known = watch::Sender::new(Known { settled, pending: BTreeMap::new() });
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
        let is_removed = |known: &Known| find(known, shown, authority).is_none();
        // The sender is this.
        let _ = self.known.subscribe().wait_for(is_removed).await;
    }

    /// Follows the changes of the nodes, until the node ends.
    pub(super) async fn follow(self: Arc<Self>, node: Arc<Node>) {
        let mut metrics = node.metrics();
        loop {
            metrics.mark_unchanged();
            let members = node.members();
            self.known.send_if_modified(|known| known.begin(&members));
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
                *known = Known { settled: members, pending: BTreeMap::new() };
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
                let reply = ask_node(&connector, None, &peer, &Request::Members).await;
                if let Ok(Reply::Members(members)) = reply
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

impl Known {
    /// Notes a change that may not be committed; returns whether it was unknown.
    fn begin(&mut self, members: &Members) -> bool {
        let before = std::mem::take(&mut self.pending);
        if members.at > self.settled.at {
            self.pending.clone_from(&members.nodes);
        }
        self.pending != before
    }
}

fn find(known: &Known, shown: &Shown, authority: Option<&Authority>) -> Option<NodeId> {
    // If a change records the fingerprint of a node, this is the one that counts.
    let settled = known.settled.nodes.iter().filter(|(id, _)| !known.pending.contains_key(id));
    let mut nodes = known.pending.iter().chain(settled);
    let found = nodes.find(|(id, peer)| shown.is_of(Some(**id), peer, authority));
    found.map(|(id, _)| *id)
}
