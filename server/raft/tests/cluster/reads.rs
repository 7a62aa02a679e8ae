//! Reads on followers, in simulated time: a follower that has confirmed its state has everything
//! that was acknowledged before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_raft::{Batch, Connect, Connecting, Node, NodeId, Peer, Role, Settings, WritesOn};
use lockwheel_simulated_disk::SimulatedDisk;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::{sleep, timeout};

use crate::words::Words;

const HEARTBEAT: Duration = Duration::from_millis(50);
const LEASE: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
struct Network {
    running: BTreeMap<NodeId, Arc<Node>>,
    /// Nodes that the others cannot reach.
    divided: BTreeSet<NodeId>,
    /// Node from which connections are slow, and the node to which they are.
    slow: Option<(NodeId, NodeId)>,
}

type Shared = Arc<Mutex<Network>>;

/// The network as one node sees it.
#[derive(Debug)]
struct From(NodeId, Shared);

impl Connect for From {
    fn connect(&self, to: NodeId, _: &Peer) -> Connecting<'_> {
        let From(from, network) = self;
        Box::pin(async move {
            let node = network.lock().running.get(&to).cloned();
            let node = node.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (near, link_near) = duplex(1 << 16);
            let (link_far, far) = duplex(1 << 16);
            tokio::spawn(carry(link_near, link_far, (*from, to), Arc::clone(network)));
            tokio::spawn(async move { node.serve(far).await });
            Ok(Box::new(near) as Box<dyn lockwheel_raft::Stream>)
        })
    }
}

/// Carries bytes in both directions, while the nodes are not divided.
async fn carry(near: DuplexStream, far: DuplexStream, link: (NodeId, NodeId), network: Shared) {
    let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
    tokio::join!(
        carry_one_way(near_read, far_write, link, &network),
        carry_one_way(far_read, near_write, link, &network)
    );
}

async fn carry_one_way(
    mut read: impl AsyncReadExt + Unpin,
    mut write: impl AsyncWriteExt + Unpin,
    link: (NodeId, NodeId),
    network: &Shared,
) {
    let is_cut = || {
        let divided = &network.lock().divided;
        divided.contains(&link.0) != divided.contains(&link.1)
    };
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = read.read(&mut buffer).await {
        let is_slow = network.lock().slow == Some(link);
        // A message and its reply need less than a heartbeat.
        sleep(if is_slow { HEARTBEAT * 2 / 5 } else { Duration::from_millis(1) }).await;
        while is_cut() {
            sleep(Duration::from_millis(10)).await;
        }
        if write.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

struct Cluster {
    network: Shared,
    states: BTreeMap<NodeId, Arc<Words>>,
}

impl Cluster {
    async fn start(nodes: NodeId) -> Cluster {
        let mut cluster = Cluster { network: Shared::default(), states: BTreeMap::new() };
        for id in 1..=nodes {
            let settings = Settings {
                id,
                cluster: "test".into(),
                heartbeat: HEARTBEAT,
                lease: LEASE,
                entries_kept: 5,
                writes_on: WritesOn::Caller,
            };
            let (disk, state) = (Arc::new(SimulatedDisk::new()), Arc::new(Words::default()));
            let connect = Arc::new(From(id, Arc::clone(&cluster.network)));
            let node = Node::start(settings, disk, state.clone(), connect).await.expect("a node");
            cluster.states.insert(id, state);
            cluster.network.lock().running.insert(id, node);
        }
        let peers = (1..=nodes).map(|id| (id, Peer::default())).collect();
        cluster.node(1).begin_cluster(peers).await.expect("a new cluster");
        cluster
    }

    fn node(&self, id: NodeId) -> Arc<Node> {
        self.network.lock().running[&id].clone()
    }

    /// Waits until another node than `old` leads; returns it with its barrier.
    async fn leader(&self, old: Option<NodeId>) -> (NodeId, u64) {
        loop {
            let running = self.network.lock().running.clone();
            for (id, node) in running.into_iter().filter(|(id, _)| Some(*id) != old) {
                let leads = node.leads();
                if let (true, Role::Leader { barrier }) = (leads, *node.role().borrow()) {
                    return (id, barrier);
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns when the leader has acknowledged the word.
    async fn acknowledge(&self, (leader, barrier): (NodeId, u64), word: &[u8]) {
        self.states[&leader].0.lock().words.push(word.to_vec());

        let batch = Batch::new(barrier, 0, 0, word.to_vec());
        self.node(leader).replicate(batch).await.expect("it leads");
    }

    fn has(&self, id: NodeId, word: &[u8]) -> bool {
        self.states[&id].0.lock().words.iter().any(|known| known == word)
    }

    fn divide(&self, nodes: impl IntoIterator<Item = NodeId>) {
        self.network.lock().divided = nodes.into_iter().collect();
    }
}

/// Checks reads while the leader sends entries slowly to the follower, which asks it quickly.
async fn check_acknowledged() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader(None).await;
    let follower = leader.0 % 3 + 1;
    cluster.network.lock().slow = Some((leader.0, follower));
    let mut reads = cluster.node(follower).reads();
    for word in [b"first", b"other"] {
        cluster.acknowledge(leader, word).await;
        assert!(!cluster.has(follower, word));
        reads.confirm().await.expect("it is confirmed");
        assert!(cluster.has(follower, word));
    }
}

/// Checks reads with a leader that is cut off from the majority, and a follower that has not been
/// notified of the next leader.
async fn check_divided_leader() {
    let cluster = Cluster::start(5).await;
    let old = cluster.leader(None).await;
    let follower = old.0 % 5 + 1;
    let mut reads = cluster.node(follower).reads();
    reads.confirm().await.expect("it is confirmed");
    cluster.divide([old.0, follower]);
    let new = cluster.leader(Some(old.0)).await;
    cluster.acknowledge(new, b"word").await;
    for _ in 0..5 {
        assert!(reads.confirm().await.is_err() || cluster.has(follower, b"word"));
    }
    assert!(!cluster.has(follower, b"word"));
    cluster.divide([]);
    while reads.confirm().await.is_err() {}
    assert!(cluster.has(follower, b"word"));
}

/// Checks that the connection to a leader that has ended is replaced.
async fn check_next_leader() {
    let cluster = Cluster::start(3).await;
    let old = cluster.leader(None).await;
    let mut reads: BTreeMap<NodeId, _> =
        (1..=3).filter(|id| *id != old.0).map(|id| (id, cluster.node(id).reads())).collect();
    for reads in reads.values_mut() {
        reads.confirm().await.expect("it is confirmed");
    }
    let ended = cluster.network.lock().running.remove(&old.0).expect("it runs");
    ended.stop().await;
    let new = cluster.leader(None).await;
    cluster.acknowledge(new, b"word").await;
    assert!(reads.remove(&new.0).expect("its reads").confirm().await.is_err());
    let (follower, mut reads) = reads.pop_first().expect("a follower");
    while reads.confirm().await.is_err() {}
    assert!(cluster.has(follower, b"word"));
}

/// Runs in simulated time.
fn simulate(run: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async { timeout(Duration::from_secs(600), run).await }).expect("it ends");
}

#[test]
pub(crate) fn confirmed_read_has_what_was_acknowledged() {
    simulate(check_acknowledged());
}

#[test]
pub(crate) fn divided_leader_confirms_no_reads() {
    simulate(check_divided_leader());
}

/// Shows R9.
#[test]
fn reads_go_on_with_the_next_leader() {
    simulate(check_next_leader());
}
