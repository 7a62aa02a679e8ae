//! A server that is a node of a cluster: its log is replicated by `lockwheel_raft`.
//!
//! The node has a runtime of its own, so that neither a long script nor many clients delay its
//! messages. While the server leads, the units of the engine go into batches ([`raft_log`]), and
//! their output is sent when they are committed. Otherwise the engine has the state of the
//! committed entries, and refuses commands ([`node_state`]).

mod node_state;
mod peers;
mod raft_log;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockwheel_engine::following::{Address, Nodes};
use lockwheel_log::Directory;
use lockwheel_raft::{Node, NodeId, Peer, RaftServerMetrics, Role, Settings, WritesOn};
use tokio::runtime::{self, Runtime};
use tracing::error;

use crate::error::{Error, ErrorKind};
use crate::limits;
use crate::log::LogOwner;
use crate::net::host::Host;
use node_state::NodeState;
use peers::{Peers, accept};
pub(crate) use raft_log::RaftLog;

/// How a server takes part in a cluster.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Its number, which no other node has or has had.
    pub id: u64,
    /// The name of the cluster.
    pub cluster: String,
    /// The folder of its log.
    pub folder: String,
    /// Where it accepts connections of the other nodes.
    pub address: String,
    /// A leader sends a message to each follower at least so often.
    pub heartbeat: Duration,
    /// A follower that has got a message of a leader votes for no other node for so long.
    pub lease: Duration,
}

/// The part of a server that replicates its log.
pub(crate) struct Replication {
    /// Dropped in the background: an embedder may stop the server within asynchronous code.
    runtime: Option<Runtime>,
    node: Arc<Node>,
}

impl std::fmt::Debug for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replication").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Replication {
    /// Starts the node of `host`, which follows until it is elected.
    pub(crate) fn start(settings: &NodeSettings, host: &Arc<Host>) -> Result<Replication, Error> {
        let NodeSettings { id, cluster, heartbeat, lease, .. } = settings.clone();
        let io_error = |error: &dyn Display| {
            Error::new(ErrorKind::Io, format!("node {id} of {cluster}: {error}"))
        };
        let disk =
            Directory::open(Path::new(&settings.folder)).map_err(|error| io_error(&error))?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(limits::RAFT_THREADS)
            .thread_name("lockwheel-raft")
            .enable_all()
            .build()
            .map_err(|error| io_error(&error))?;
        let log = Arc::new(RaftLog::new(host));
        host.start_replicated_log(&log).map_err(|error| io_error(&error))?;
        let state = Arc::new(NodeState::new(host, &log));
        let node_settings = Settings {
            id,
            cluster: cluster.clone(),
            heartbeat,
            lease,
            entries_kept: limits::RAFT_ENTRIES_KEPT,
            writes_on: WritesOn::Thread,
        };
        let node = runtime.block_on(async {
            let peers = Arc::new(Peers);
            let node = Node::start(node_settings, Arc::new(disk), state, peers).await?;
            accept(&settings.address, &node).await?;
            tokio::spawn(raft_log::replicate(Arc::clone(&log), Arc::clone(&node)));
            tokio::spawn(show_nodes(Arc::downgrade(host), Arc::clone(&node)));
            tokio::spawn(stop_with_node(Arc::downgrade(host), Arc::clone(&node)));
            Ok::<_, io::Error>(node)
        });
        let node = node.map_err(|error| io_error(&error))?;
        log.use_node(&node);
        Ok(Replication { runtime: Some(runtime), node })
    }

    /// Begins a new cluster of these nodes: their addresses for each other and for clients.
    pub(crate) fn begin_cluster(
        &self,
        nodes: &BTreeMap<u64, (String, String)>,
    ) -> Result<(), Error> {
        let peer = |(id, (address, client_address)): (&u64, &(String, String))| {
            let (address, client_address) = (address.clone(), client_address.clone());
            (*id, Peer { address, client_address })
        };
        let nodes = nodes.iter().map(peer).collect();
        let begun = self.block_on(self.node.begin_cluster(nodes));
        begun.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))
    }

    /// Whether this node leads.
    pub(crate) fn leads(&self) -> bool {
        matches!(*self.node.role().borrow(), Role::Leader { .. })
    }

    /// Ends the node.
    pub(crate) fn stop(&self) {
        self.block_on(self.node.stop());
    }

    fn block_on<T>(&self, work: impl Future<Output = T> + Send) -> T
    where
        T: Send,
    {
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        // The caller may be within asynchronous code of its own.
        std::thread::scope(|scope| {
            let work = scope.spawn(|| runtime.block_on(work));
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Stops the server if the node fails: its log cannot be written, for example.
async fn stop_with_node(host: Weak<Host>, node: Arc<Node>) {
    if let (Some(reason), Some(host)) = (node.ended().await, host.upgrade()) {
        error!(reason, "the node has failed; the server stops");
        host.log_has_failed();
    }
}

/// Shows clients the nodes, whenever they change, until the node ends.
async fn show_nodes(host: Weak<Host>, node: Arc<Node>) {
    let (mut metrics, mut role) = (node.metrics(), node.role());
    loop {
        let nodes = nodes(&metrics.borrow_and_update(), *role.borrow_and_update());
        let Some(host) = host.upgrade() else { return };
        // A failed engine has no clients any more.
        let _ = tokio::task::block_in_place(|| host.with(|engine| engine.set_nodes(nodes)));
        drop(host);
        let changed = tokio::select! {
            changed = metrics.changed() => changed,
            changed = role.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The nodes as clients are shown them. A node that is elected is not a leader before it leads.
fn nodes(metrics: &RaftServerMetrics<NodeId, Peer>, role: Role) -> Nodes {
    let leads = matches!(role, Role::Leader { .. });
    let leader = metrics.current_leader.filter(|leader| *leader != metrics.id || leads);
    let address = |peer: &Peer| {
        let (host, port) = peer.client_address.rsplit_once(':').unwrap_or_default();
        Address { host: host.to_owned(), port: port.parse().unwrap_or(0) }
    };
    let all = || metrics.membership_config.nodes();
    let is_leader = |id: &NodeId| Some(*id) == leader;
    Nodes {
        leader: all().find(|(id, _)| is_leader(id)).map(|(_, peer)| address(peer)),
        followers: all().filter(|(id, _)| !is_leader(id)).map(|(_, peer)| address(peer)).collect(),
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
