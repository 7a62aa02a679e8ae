//! A node from its start to its end.
//!
//! It has a runtime of its own, so that neither a long script nor many clients delay its messages.
//! While the server leads, the units of the engine go into batches (`raft_log`), and their output
//! is sent when they are committed. Otherwise the engine has the state of the committed entries
//! (`node_state`), and holds reads until that state is recent (`held`).

use std::fmt::Display;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockwheel_log::Directory;
use lockwheel_log::recovery::{self, RecoveryError};
use lockwheel_raft::{MembershipError, Node, Peer, Role, Settings, WritesOn};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::identity::Identity;
use super::keys::{Connector, MEMBERSHIP, NodeKey, RAFT};
use super::known_nodes::KnownNodes;
use super::membership::{Request, ask};
use super::node_state::NodeState;
use super::peers::{Places, Services, accept};
use super::raft_log::{self, RaftLog};
use super::settings::NodeSettings;
use super::shown_nodes::show_nodes;
use super::{held, setup};
use crate::durability::LogOwner;
use crate::durability::commit_gate::CommitGate;
use crate::error::{Error, ErrorKind};
use crate::host::Host;
use crate::limits;
use crate::net::listener::listen_at_all;

/// The part of a server that replicates its log.
pub(crate) struct Replication {
    /// Dropped in the background: an embedder may stop the server within asynchronous code.
    runtime: Option<Runtime>,
    node: Arc<Node>,
    was_removed: Arc<AtomicBool>,
    /// What the node does for the server.
    tasks: tokio::sync::Mutex<JoinSet<()>>,
    /// See [`lockwheel_raft::Settings::lease`].
    lease: Duration,
}

impl std::fmt::Debug for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replication").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Replication {
    /// Starts the node of `host`, which follows until it is elected.
    pub(crate) fn start(settings: &NodeSettings, host: &Arc<Host>) -> Result<Replication, Error> {
        let identity = settings.identity()?;
        let io_error = |error: &dyn Display| {
            let Identity { node, cluster, .. } = &identity;
            Error::new(ErrorKind::Io, format!("node {node} of cluster {cluster}: {error}"))
        };
        let listeners = listen_at_all(&settings.bind, settings.port, settings.backlog, &[])?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(limits::RAFT_THREADS)
            .thread_name("lockwheel-raft")
            .enable_all()
            .build()
            .map_err(|error| io_error(&error))?;
        let log = Arc::new(RaftLog::new(host));
        host.start_replicated_log(&log);
        let was_removed = Arc::new(AtomicBool::default());
        let entering = Entering {
            settings: settings.clone(),
            identity: identity.clone(),
            was_removed: Arc::clone(&was_removed),
        };
        let node = runtime.block_on(start_node(entering, host, &log, listeners));
        let (node, tasks) = node.map_err(|error| io_error(&error))?;
        log.use_node(&node);
        let (runtime, tasks) = (Some(runtime), tasks.into());
        Ok(Replication { runtime, node, was_removed, tasks, lease: settings.lease })
    }

    /// Whether this node leads.
    pub(crate) fn leads(&self) -> bool {
        matches!(*self.node.role().borrow(), Role::Leader { .. })
    }

    /// Whether the node has failed since it lacks entries that it has acknowledged.
    pub(crate) fn log_is_lost(&self) -> bool {
        self.node.log_is_lost()
    }

    /// Whether the node has ended since it was removed from its cluster.
    pub(crate) fn was_removed(&self) -> bool {
        self.was_removed.load(Ordering::Acquire)
    }

    /// Ends the node when `clients_end` returns, which waits until the clients have the replies to
    /// requests that were executed: `gate` holds them back until a majority has confirmed them. If
    /// none does for the time of a lease, these replies are lost.
    pub(crate) fn stop_after(&self, clients_end: impl FnOnce() + Send, gate: &CommitGate) {
        std::thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            scope.spawn(move || {
                clients_end();
                drop(end);
            });
            // Fails when the other end is dropped.
            let _ = ended.recv_timeout(self.lease);
            self.stop();
            gate.end();
        });
    }

    fn stop(&self) {
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        block_on(runtime, async {
            self.node.stop().await;
            // None of them may be polled while the runtime ends: it has no timers then.
            self.tasks.lock().await.shutdown().await;
        });
    }
}

/// Runs `work` to its end. The caller may be within asynchronous code of its own.
pub(super) fn block_on<T: Send>(runtime: &Runtime, work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| runtime.block_on(work));
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Starts a node and its tasks.
async fn start_node(
    mut entering: Entering,
    host: &Arc<Host>,
    log: &Arc<RaftLog>,
    listeners: Vec<TcpListener>,
) -> io::Result<(Arc<Node>, JoinSet<()>)> {
    let disk = Directory::open(&Identity::folder(&entering.settings.dir))?;
    wait_for_lock(&disk).await?;
    entering.prepare_key()?;
    let Entering { ref settings, ref identity, .. } = entering;
    let Identity { cluster, node: id, authority, members, .. } = identity.clone();
    let credentials = identity.credentials().map_err(io::Error::other)?;
    let connector = |protocol| credentials.connector(protocol).map_err(io::Error::other);
    let node_settings = Settings {
        id,
        cluster: cluster.clone(),
        heartbeat: settings.heartbeat(),
        lease: settings.lease,
        entries_kept: limits::RAFT_ENTRIES_KEPT,
        writes_on: WritesOn::Thread,
    };
    let state = Arc::new(NodeState::new(host, log));
    let connect = Arc::new(connector(RAFT)?);
    let node = Node::start(node_settings, Arc::new(disk), state, connect).await?;
    let has_log = node.has_log().await?;
    if identity.is_member && !node.has_been_member() {
        let lost = "its log is gone, or its vote, and with it what it has promised to other nodes: \
                    remove it from the cluster, remove its folder 'raft', and join again";
        return Err(io::Error::other(lost));
    }
    if id == setup::FIRST_NODE && !has_log {
        let mut nodes = members.nodes.clone();
        nodes.entry(id).or_insert_with(|| settings.own.clone());
        node.begin_cluster(nodes).await.map_err(io::Error::other)?;
    }
    let known = Arc::new(KnownNodes::new(&node, id, members, authority));
    let services = Arc::new(Services {
        config: credentials.server_config().map_err(io::Error::other)?,
        node: Arc::downgrade(&node),
        cluster,
        known: Arc::clone(&known),
        places: Places::default(),
    });
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tasks.spawn(accept(listener, Arc::clone(&services)));
    }
    join(&mut tasks, host, log, &node);
    let membership = connector(MEMBERSHIP)?;
    tasks.spawn(Arc::clone(&known).follow(Arc::clone(&node)));
    tasks.spawn(Arc::clone(&known).learn(membership.clone()));
    tasks.spawn(entering.run(Arc::downgrade(host), Arc::downgrade(&node), known, membership));
    Ok((node, tasks))
}

/// Spawns the tasks that join the server and its node.
pub(crate) fn join(
    tasks: &mut JoinSet<()>,
    host: &Arc<Host>,
    log: &Arc<RaftLog>,
    node: &Arc<Node>,
) {
    tasks.spawn(raft_log::replicate(Arc::clone(log), Arc::clone(node)));
    tasks.spawn(raft_log::pass_seconds(Arc::clone(log), Arc::clone(node)));
    tasks.spawn(raft_log::leave_full_disk(Arc::clone(log), Arc::clone(node)));
    tasks.spawn(show_nodes(Arc::downgrade(host), Arc::clone(log), Arc::clone(node)));
    tasks.spawn(held::serve(Arc::downgrade(host), log.held(), Arc::clone(node)));
    tasks.spawn(stop_with_node(Arc::downgrade(host), Arc::clone(node)));
}

/// Waits while a node that has just ended closes its files.
async fn wait_for_lock(disk: &Directory) -> io::Result<()> {
    let deadline = Instant::now() + limits::RAFT_LOCK_WAIT;
    loop {
        match recovery::lock(disk) {
            Err(RecoveryError::InUse) if Instant::now() < deadline => {
                sleep(limits::RAFT_LOCK_PAUSE).await;
            }
            locked => return locked.map(drop).map_err(io::Error::other),
        }
    }
}

/// Makes this node one of its cluster, with its key and its current addresses, and finds out if it
/// was removed.
struct Entering {
    settings: NodeSettings,
    identity: Identity,
    /// Whether the node was removed.
    was_removed: Arc<AtomicBool>,
}

impl Entering {
    /// Makes a key if an earlier program has run the node, and announces it with the addresses.
    fn prepare_key(&mut self) -> io::Result<()> {
        if self.identity.key.is_none() {
            self.identity.key = Some(NodeKey::generate().map_err(io::Error::other)?);
            self.identity.write(&self.settings.dir)?;
        }
        self.settings.own.fingerprint = self.identity.fingerprint().map_err(io::Error::other)?;
        Ok(())
    }

    /// Enters the cluster again and again, until the node ends.
    async fn run(
        mut self,
        host: Weak<Host>,
        node: Weak<Node>,
        known: Arc<KnownNodes>,
        connector: Connector,
    ) {
        while let Some(node) = node.upgrade() {
            match self.enter(&node, &known, &connector).await {
                Ok(()) => {}
                Err(MembershipError::Removed) => {
                    error!("this node was removed from the cluster; the server stops");
                    self.was_removed.store(true, Ordering::Release);
                    let Some(host) = host.upgrade() else { return };
                    return host.log_has_failed();
                }
                // A cluster without a leader is normal for a while.
                Err(error @ MembershipError::NotLeader(_)) => info!(%error, "not confirmed"),
                Err(error) => warn!(%error, "this node could not enter the cluster"),
            }
            drop(node);
            sleep(limits::RAFT_REMOVAL_CHECK).await;
        }
    }

    async fn enter(
        &mut self,
        node: &Node,
        known: &KnownNodes,
        connector: &Connector,
    ) -> Result<(), MembershipError> {
        let Identity { node: id, is_member, ref address, .. } = self.identity;
        let peer = self.settings.own.clone();
        let failed = |error: io::Error| MembershipError::Refused(error.to_string());
        let entered = node.enter(id, peer.clone()).await;
        if let Err(MembershipError::NotLeader(leader)) = entered {
            let mut others: Vec<Peer> = leader.into_iter().chain(known.others()).collect();
            // It may lead when it is asked.
            others.push(peer.clone());
            let request = Request::Enter { node: id, peer: peer.clone(), was_member: true };
            ask(&others, connector, &request).await?;
        } else {
            entered?;
        }
        if !is_member || *address != peer.address {
            (self.identity.is_member, self.identity.address) = (true, peer.address);
            let written = tokio::task::block_in_place(|| self.identity.write(&self.settings.dir));
            written.map_err(failed)?;
            info!(node = id, address = self.identity.address, "this node is one of the cluster");
        }
        Ok(())
    }
}

/// Stops the server if the node fails: its log cannot be written, for example.
async fn stop_with_node(host: Weak<Host>, node: Arc<Node>) {
    if let (Some(failure), Some(host)) = (node.ended().await, host.upgrade()) {
        error!(reason = %failure, "the node has failed; the server stops");
        host.log_has_failed();
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
