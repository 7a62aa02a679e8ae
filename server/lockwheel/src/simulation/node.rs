//! A node of a simulated cluster. It has a runtime of its own, and thus a clock for the messages
//! between nodes, which runs only when the simulation moves it.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lockwheel_engine::settings::Settings as EngineSettings;
use lockwheel_log::Disk;
use lockwheel_raft::{Connect, Node, NodeId, Peer, Settings, Status, WritesOn};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::{JoinSet, yield_now};
use tokio::time::advance;

use crate::host::Host;
use crate::replication::{ImportedState, NodeState, RaftLog, join};

/// Turns of a node's runtime in a step. In each it runs up to 61 tasks that have something to do.
const TURNS: usize = 4;

/// How a node is started.
#[derive(Debug)]
pub struct NodeOptions {
    /// Its number.
    pub id: NodeId,
    /// The nodes of a new cluster, if this node begins it unless it has a log already.
    pub begins: Option<BTreeMap<NodeId, Peer>>,
    /// Connections to other nodes.
    pub connect: Arc<dyn Connect>,
    /// See [`lockwheel_raft::Settings::lease`].
    pub lease: Duration,
    /// See [`lockwheel_raft::Settings::entries_kept`].
    pub entries_kept: u64,
    /// Time that its disk needs to flush entries; zero to flush them at once.
    pub flush: Duration,
}

/// Writes the log of a cluster, whose first node is `own`, to an empty disk, with the state of the
/// backup of a server. The other nodes must be admitted.
///
/// # Errors
/// As `lockwheel raft init --from`.
pub fn begin_cluster_from(
    backup: &dyn Disk,
    own: Peer,
    disk: &Arc<dyn Disk>,
    seed: u64,
) -> io::Result<()> {
    let mut settings = EngineSettings::default();
    let applied = settings.apply("restart-guard", "yes");
    applied.map_err(|error| io::Error::other(error.to_string()))?;
    let read = ImportedState::read(&settings, backup, true, [seed; 4]);
    let state = read.map_err(io::Error::other)?;
    let state = state.ok_or_else(|| io::Error::other("there is no log"))?;
    state.write(disk, own).map(drop)
}

/// A node that runs. Dropped, nothing of it is left.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    node: Arc<Node>,
    /// Ended before the runtime is.
    tasks: JoinSet<()>,
    runtime: Runtime,
}

impl SimulatedNode {
    pub(super) fn start(
        host: &Arc<Host>,
        disk: Arc<dyn Disk>,
        options: &NodeOptions,
    ) -> io::Result<SimulatedNode> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let log = Arc::new(RaftLog::new(host));
        host.start_replicated_log(&log);
        let state = Arc::new(NodeState::new(host, &log));
        let settings = Settings {
            id: options.id,
            cluster: "simulation".to_owned(),
            heartbeat: options.lease / 5,
            lease: options.lease,
            entries_kept: options.entries_kept,
            writes_on: match options.flush {
                Duration::ZERO => WritesOn::Caller,
                flush => WritesOn::Later(flush),
            },
        };
        let mut tasks = JoinSet::new();
        let node = runtime.block_on(async {
            let node = Node::start(settings, disk, state, Arc::clone(&options.connect)).await?;
            if let Some(nodes) = &options.begins
                && !node.has_log().await?
            {
                node.begin_cluster(nodes.clone()).await.map_err(io::Error::other)?;
            }
            join(&mut tasks, host, &log, &node);
            Ok::<_, io::Error>(node)
        })?;
        log.use_node(&node);
        Ok(SimulatedNode { node, tasks, runtime })
    }

    /// What runs meanwhile sees the clock of this node.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Moves the clock of the node. Nothing runs meanwhile.
    pub(super) fn advance(&self, elapsed: Duration) {
        let _entered = self.enter();
        // The clock has moved when it first yields.
        let _ = pin!(advance(elapsed)).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// Runs what is due and what has arrived.
    pub(super) fn run(&mut self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                yield_now().await;
            }
        });
        // Frees those that have ended.
        while self.tasks.try_join_next().is_some() {}
    }

    /// The node and its runtime, for connections of other nodes.
    pub(super) fn port(&self) -> (Arc<Node>, Handle) {
        (Arc::clone(&self.node), self.runtime.handle().clone())
    }

    /// Runs what `ask` makes of the node, as its other tasks.
    pub(super) fn spawn<F>(&mut self, ask: impl FnOnce(Arc<Node>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_on(ask(Arc::clone(&self.node)), self.runtime.handle());
    }

    /// The cluster as the node sees it.
    pub(super) fn status(&self) -> Status {
        let _entered = self.enter();
        self.node.status()
    }

    /// Whether the node leads for certain.
    pub(super) fn leads(&self) -> bool {
        let _entered = self.enter();
        self.node.leads()
    }
}
