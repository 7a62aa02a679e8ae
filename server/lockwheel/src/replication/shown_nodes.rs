//! The nodes as clients are shown them.

use std::sync::{Arc, Weak};

use lockwheel_engine::replication::nodes::{Address, Follower, Nodes, Rounds};
use lockwheel_raft::{MOMENT_NAMES, Node, NodeStatus, Role, RoundTotals};
use tokio::time::sleep;
use tracing::{info, warn};

use super::raft_log::RaftLog;
use crate::host::Host;
use crate::limits;

/// Shows clients the nodes, whenever they change, until the node ends.
pub(super) async fn show_nodes(host: Weak<Host>, log: Arc<RaftLog>, node: Arc<Node>) {
    let (mut metrics, mut role, mut progress) = (node.metrics(), node.role(), node.progress());
    let mut shown = Nodes::default();
    loop {
        metrics.mark_unchanged();
        role.mark_unchanged();
        progress.mark_unchanged();
        let nodes = nodes(&node, &log);
        let Some(host) = host.upgrade() else { return };
        if nodes.leader != shown.leader {
            match &nodes.leader {
                Some(Address { host, port }) => info!("the leader is at {host}:{port}"),
                None => warn!("there is no leader"),
            }
        }
        if nodes != shown {
            let is_urgent =
                host.gate.is_flush_awaited() || !differ_in_progress_only(&nodes, &shown);
            shown.clone_from(&nodes);
            log.show(nodes);
            // Read after that: a client that begins to wait now is served by the engine.
            if is_urgent || host.gate.is_flush_awaited() {
                // The engine takes them then. A failed one has no clients any more.
                let _ = host.with_of_node(|_| {});
            }
        }
        let is_progress_awaited = host.gate.is_flush_awaited();
        drop(host);
        let progress = async {
            if !is_progress_awaited {
                sleep(limits::RAFT_PROGRESS_PAUSE).await;
            }
            tokio::select! {
                biased;
                changed = progress.changed() => changed,
                () = log.committed.notified() => Ok(()),
                // Followers come into contact, and lose it, without an event.
                () = sleep(node.heartbeat()) => Ok(()),
            }
        };
        let changed = tokio::select! {
            biased;
            changed = metrics.changed() => changed,
            changed = role.changed() => changed,
            () = log.progress_is_awaited.notified() => Ok(()),
            changed = progress => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Whether the nodes are the same except for how far the followers are.
fn differ_in_progress_only(nodes: &Nodes, shown: &Nodes) -> bool {
    let without_progress = |nodes: &Nodes| {
        let mut nodes = nodes.clone();
        nodes.followers.iter_mut().for_each(|follower| follower.acknowledged = 0);
        nodes.lag_entries = 0;
        nodes.rounds = Rounds::default();
        nodes
    };
    without_progress(nodes) == without_progress(shown)
}

/// The nodes as they are now. A node that is elected is not a leader before it leads.
fn nodes(node: &Node, log: &RaftLog) -> Nodes {
    // Read first: what the followers have acknowledged to a later leader is no part of the log of
    // this one, and the other way round.
    let barrier = match *node.role().borrow() {
        Role::Leader { barrier } => Some(barrier),
        Role::Follower => None,
    };
    let status = node.status();
    let leads = status.leader == Some(status.node);
    let leader = status.leader.filter(|_| leads || node.has_leader());
    let last = status.last_index.unwrap_or(0);
    let lag = |index: Option<u64>| last.saturating_sub(index.unwrap_or(0));
    let mut nodes = Nodes::default();
    nodes.term = status.term;
    nodes.rounds = rounds(node);
    if !leads {
        nodes.lag_entries = lag(status.applied_index);
    }
    for (id, NodeStatus { peer, is_in_contact, matched_index, .. }) in status.nodes {
        let address = address(&peer.client_address);
        if id == status.node {
            nodes.own = address.clone();
        }
        if Some(id) == leader {
            nodes.leader = Some(address);
            continue;
        }
        if is_in_contact == Some(true) {
            nodes.lag_entries = nodes.lag_entries.max(lag(matched_index));
        }
        let is_in_contact = is_in_contact.unwrap_or(true);
        let place = barrier.zip(matched_index);
        let acknowledged = place.map_or(0, |(barrier, index)| log.position_at(barrier, index));
        nodes.followers.push(Follower { address, is_in_contact, acknowledged });
    }
    nodes
}

/// What the rounds of replication of this node have taken.
fn rounds(node: &Node) -> Rounds {
    let RoundTotals { rounds, units, moments_us } = node.rounds().totals();
    Rounds { count: rounds, units, moments_us: MOMENT_NAMES.into_iter().zip(moments_us).collect() }
}

fn address(text: &str) -> Address {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    // An IPv6 address has brackets before a port.
    let host = host.trim_matches(['[', ']']).to_owned();
    Address { host, port: port.parse().unwrap_or(0) }
}
