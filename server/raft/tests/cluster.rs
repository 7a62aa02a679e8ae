//! Clusters of nodes in this process, with a network that can be divided and disks that crash, in
//! simulated time: what was acknowledged is never lost, and no two nodes lead at once.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
#[cfg(feature = "mutants")]
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_log::simulated_disk::{DiskFault, Random, SimulatedDisk};
use lockwheel_raft::{Batch, Connect, Connecting, Node, NodeId, Peer, Role, Settings, WritesOn};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use common::Words;

const HEARTBEAT: Duration = Duration::from_millis(50);
const LEASE: Duration = Duration::from_millis(400);

/// Time in which nodes that can reach each other have the same entries.
const SETTLED: Duration = Duration::from_secs(10);

/// The network between the nodes.
#[derive(Debug, Default)]
struct Network {
    running: BTreeMap<NodeId, Arc<Node>>,
    /// Nothing arrives from the first node at the second one.
    cut: BTreeSet<(NodeId, NodeId)>,
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
            tokio::spawn(carry(link_near, link_far, *from, to, Arc::clone(network)));
            tokio::spawn(async move { node.serve(far).await });
            Ok(Box::new(near) as Box<dyn lockwheel_raft::Stream>)
        })
    }
}

/// Carries bytes in both directions, while they are not cut.
async fn carry(near: DuplexStream, far: DuplexStream, from: NodeId, to: NodeId, network: Shared) {
    let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
    let there = carry_one_way(near_read, far_write, (from, to), &network);
    let back = carry_one_way(far_read, near_write, (to, from), &network);
    tokio::join!(there, back);
}

async fn carry_one_way(
    mut read: impl AsyncReadExt + Unpin,
    mut write: impl AsyncWriteExt + Unpin,
    link: (NodeId, NodeId),
    network: &Shared,
) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = read.read(&mut buffer).await {
        sleep(Duration::from_millis(1)).await;
        while network.lock().cut.contains(&link) {
            sleep(Duration::from_millis(10)).await;
        }
        if write.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    // The other side sees the end of the connection.
    let _ = write.shutdown().await;
}

struct Cluster {
    network: Shared,
    disks: BTreeMap<NodeId, SimulatedDisk>,
    states: BTreeMap<NodeId, Arc<Words>>,
    /// Words that were acknowledged, and those that were not.
    acknowledged: BTreeSet<u64>,
    attempted: BTreeSet<u64>,
}

impl Cluster {
    async fn start(nodes: impl IntoIterator<Item = NodeId>) -> Cluster {
        let mut cluster = Cluster {
            network: Shared::default(),
            disks: nodes.into_iter().map(|id| (id, SimulatedDisk::new())).collect(),
            states: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            attempted: BTreeSet::new(),
        };
        let ids: Vec<NodeId> = cluster.disks.keys().copied().collect();
        for id in &ids {
            cluster.run(*id).await;
        }
        let peers = ids.iter().map(|id| (*id, Peer::default())).collect();
        cluster.node(ids[0]).begin_cluster(peers).await.expect("a new cluster");
        cluster
    }

    fn node(&self, id: NodeId) -> Arc<Node> {
        self.network.lock().running[&id].clone()
    }

    async fn run(&mut self, id: NodeId) {
        let settings = Settings {
            id,
            cluster: "test".into(),
            heartbeat: HEARTBEAT,
            lease: LEASE,
            entries_kept: 5,
            writes_on: WritesOn::Caller,
        };
        let state = Arc::new(Words::default());
        let disk = Arc::new(self.disks[&id].clone());
        let connect = Arc::new(From(id, Arc::clone(&self.network)));
        let node = Node::start(settings, disk, state.clone(), connect).await;
        match node {
            Ok(node) => {
                self.states.insert(id, state);
                self.network.lock().running.insert(id, node);
            }
            // A fault has happened at the start.
            Err(error) => {
                let disk = &self.disks[&id];
                assert!(disk.has_crashed() || is_of_disk(&error), "{error}");
                disk.crash(&mut |bound| bound / 2);
            }
        }
    }

    /// Ends the nodes whose disk has failed, with their machines.
    async fn kill_failed(&mut self) {
        let running = self.network.lock().running.clone();
        for (id, node) in running {
            if node.ended().now_or_never().is_some() || self.disks[&id].has_crashed() {
                self.kill(id, Some(&mut Random::new(id))).await;
            }
        }
    }

    /// From now on nothing fails, and all nodes run.
    async fn mend(&mut self) {
        self.network.lock().cut.clear();
        self.disks.values().for_each(SimulatedDisk::clear_faults);
        // Some notice only now that their disk has failed.
        for _ in 0..3 {
            self.kill_failed().await;
            for id in self.disks.keys().copied().collect::<Vec<_>>() {
                if !self.network.lock().running.contains_key(&id) {
                    self.run(id).await;
                }
            }
            sleep(LEASE * 3).await;
        }
    }

    /// Ends a node, as `kill -9` does, or with its machine.
    async fn kill(&mut self, id: NodeId, random: Option<&mut Random>) {
        let node = self.network.lock().running.remove(&id).expect("a node that runs");
        match random {
            None => self.disks[&id].end_process(),
            Some(random) => self.disks[&id].crash(&mut |bound| random.below(bound)),
        }
        node.stop().await;
    }

    /// The nodes that lead, with their barriers.
    fn leaders(&self) -> Vec<(NodeId, u64)> {
        let network = self.network.lock();
        let now = Instant::now();
        let leads = |(id, node): (&NodeId, &Arc<Node>)| match *node.role().borrow() {
            Role::Leader { barrier } if node.leads_until().is_some_and(|until| until > now) => {
                Some((*id, barrier))
            }
            _ => None,
        };
        network.running.iter().filter_map(leads).collect()
    }

    /// Waits until a node leads.
    async fn leader(&self) -> (NodeId, u64) {
        let begin = Instant::now();
        while begin.elapsed() < LEASE * 100 {
            if let [leader] = self.leaders()[..] {
                return leader;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let network = self.network.lock();
        let shown: Vec<String> =
            network.running.values().map(|node| node.metrics().borrow().to_string()).collect();
        panic!("no leader: {shown:#?}");
    }

    /// Executes a word on a node that leads: it has the effect at once, and the batch is
    /// acknowledged when it is committed.
    fn execute(&mut self, word: u64, replies: &mut JoinSet<Option<u64>>) {
        let [(id, barrier)] = self.leaders()[..] else { return };
        let state = &self.states[&id];
        let last = {
            let mut known = state.0.lock();
            if known.leading != Some(barrier) {
                return;
            }
            known.words.push(word.to_le_bytes().to_vec());
            known.words.len() as u64
        };
        self.attempted.insert(word);
        let batch =
            Batch { barrier, lease_ms: 0, last, effects: word.to_le_bytes().to_vec().into() };
        let node = self.node(id);
        replies.spawn(async move { node.replicate(batch).await.ok().map(|_| word) });
    }

    fn words(&self, id: NodeId) -> Vec<u64> {
        let word = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..].try_into().expect("a word"));
        self.states[&id].0.lock().words.iter().map(word).collect()
    }
}

async fn check_entries() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let (leader, _) = cluster.leader().await;
    let mut replies = JoinSet::new();
    for word in 0..10 {
        cluster.execute(word, &mut replies);
    }
    let replies = replies.join_all().await;
    assert!(replies.iter().all(Option::is_some), "{replies:?}");
    sleep(SETTLED).await;
    for id in 1..=3 {
        assert_eq!(cluster.words(id), cluster.words(leader));
        assert_eq!(cluster.words(id).len(), 10);
    }
}

async fn check_divided_leader() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let (old, barrier) = cluster.leader().await;
    for other in 1..=3 {
        cluster.network.lock().cut.extend([(old, other), (other, old)]);
    }
    let mut replies = JoinSet::new();
    cluster.execute(7, &mut replies);
    while cluster.leaders() == [(old, barrier)] {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(cluster.leaders(), []);
    let (new, _) = cluster.leader().await;
    assert_ne!(new, old);
    // It has forgotten what was not committed.
    assert_eq!(cluster.words(old), Vec::<u64>::new());
    cluster.network.lock().cut.clear();
    assert_eq!(replies.join_all().await, [None]);
    cluster.acknowledge(8).await;
    sleep(SETTLED).await;
    let words = [1, 2, 3].map(|id| cluster.words(id));
    assert!(words.iter().all(|words| words.contains(&8) && !words.contains(&7)), "{words:?}");
}

/// A leader without contact forgets what was not committed. If it leads again and that is committed
/// nevertheless, all nodes have it; but nothing has effects that comes after it has begun anew.
async fn check_same_term() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let (leader, barrier) = cluster.leader().await;
    let (near, far) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let links = [(leader, near), (leader, far), (near, far)];
    let links = links.map(|(from, to)| [(from, to), (to, from)]);
    cluster.network.lock().cut.extend(links.as_flattened());
    let mut replies = JoinSet::new();
    cluster.execute(7, &mut replies);
    let mut role = cluster.node(leader).role();
    role.wait_for(|role| *role == Role::Follower).await.expect("it runs");
    cluster.network.lock().cut.retain(|link| !links[0].contains(link));
    let (again, later) = cluster.leader().await;
    assert!(again == leader && later > barrier, "{again} {later}");
    let effects = 9_u64.to_le_bytes().to_vec().into();
    let late = Batch { barrier, lease_ms: 0, last: 9, effects };
    cluster.node(leader).replicate(late).await.expect("it is committed");
    cluster.acknowledge(8).await;
    cluster.network.lock().cut.clear();
    sleep(SETTLED).await;
    assert_eq!([1, 2, 3].map(|id| cluster.words(id)), [const { [7, 8] }; 3].map(Vec::from));
}

/// Whatever happens at random happens to the cluster for a while.
async fn live(cluster: &mut Cluster, random: &mut Random) {
    let ids: Vec<NodeId> = cluster.disks.keys().copied().collect();
    let mut replies = JoinSet::new();
    let mut next = 0;
    for _ in 0..300 {
        sleep(Duration::from_millis(random.below(60))).await;
        while let Some(Ok(word)) = replies.try_join_next() {
            cluster.acknowledged.extend(word);
        }
        cluster.check_leaders();
        let id = ids[random.below(ids.len() as u64) as usize];
        let other = ids[random.below(ids.len() as u64) as usize];
        cluster.kill_failed().await;
        let is_running = cluster.network.lock().running.contains_key(&id);
        match random.below(60) {
            0..3 => {
                let links = [(id, other), (other, id)];
                let links = &links[random.below(2) as usize..];
                cluster.network.lock().cut.extend(links);
            }
            3..5 => {
                let links = ids.iter().flat_map(|other| [(id, *other), (*other, id)]);
                cluster.network.lock().cut.extend(links);
            }
            5..9 => cluster.network.lock().cut.clear(),
            9..11 if is_running => {
                let crash = random.below(2) == 0;
                cluster.kill(id, crash.then_some(&mut *random)).await;
            }
            11..18 if !is_running => cluster.run(id).await,
            18..21 if is_running => drop(cluster.node(id).begin_snapshot().await),
            21 if is_running => {
                let disk = &cluster.disks[&id];
                let faults = [DiskFault::Fails, DiskFault::IsFull, DiskFault::Crash];
                let operation = disk.operations() + 1 + random.below(20);
                disk.add_fault(operation, faults[random.below(3) as usize]);
            }
            _ => {
                cluster.execute(next, &mut replies);
                next += 1;
            }
        }
    }
    cluster.mend().await;
    while let Some(word) = replies.join_next().await {
        cluster.acknowledged.extend(word.expect("no panic"));
    }
}

impl Cluster {
    /// No two nodes lead, and the one that does has everything that was acknowledged.
    fn check_leaders(&self) {
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "{leaders:?}");
        for (id, _) in leaders {
            let words: BTreeSet<u64> = self.words(id).into_iter().collect();
            let missing: Vec<&u64> = self.acknowledged.difference(&words).collect();
            assert!(missing.is_empty(), "node {id} leads without {missing:?}");
        }
    }

    /// Executes a word until it is acknowledged.
    async fn acknowledge(&mut self, word: u64) {
        while !self.acknowledged.contains(&word) {
            self.leader().await;
            let mut replies = JoinSet::new();
            self.execute(word, &mut replies);
            self.acknowledged.extend(replies.join_all().await.into_iter().flatten());
        }
    }

    async fn check_end(&mut self) {
        self.acknowledge(u64::MAX).await;
        sleep(SETTLED).await;
        self.check_leaders();
        let (leader, _) = self.leader().await;
        let words = self.words(leader);
        for id in self.disks.keys() {
            let metrics = self.node(*id).metrics().borrow().to_string();
            assert_eq!(self.words(*id), words, "node {id}: {metrics}");
        }
        let unknown: Vec<_> = words.iter().filter(|word| !self.attempted.contains(word)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

/// Whether a fault of the disk has caused this error.
fn is_of_disk(error: &io::Error) -> bool {
    let text = error.to_string();
    text.contains("input/output error") || text.contains("no storage space")
}

/// Runs in simulated time.
fn simulate<T>(run: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async { timeout(Duration::from_secs(3_600), run).await }).expect("it ends")
}

/// Runs a cluster with this seed; returns how much was acknowledged.
fn run(seed: u64) -> usize {
    simulate(async {
        let mut random = Random::new(seed);
        let nodes = 1..=[3, 5][random.below(2) as usize];
        let mut cluster = Cluster::start(nodes).await;
        live(&mut cluster, &mut random).await;
        cluster.check_end().await;
        cluster.acknowledged.len()
    })
}

#[test]
fn entries_reach_all_nodes() {
    simulate(check_entries());
}

#[test]
fn divided_leader_stops_before_another_one_leads() {
    simulate(check_divided_leader());
}

#[test]
fn leader_begins_anew_in_the_same_term() {
    simulate(check_same_term());
}

#[test]
fn new_node_gets_a_snapshot_and_then_a_vote() {
    simulate(check_new_node());
}

#[test]
fn acknowledged_entries_survive_everything() {
    let acknowledged: usize = (1..=40).map(run).sum();
    assert!(acknowledged > 1_000, "{acknowledged}");
}

/// The defects, which break one rule each.
#[cfg(feature = "mutants")]
const MUTANTS: &[&str] = &[
    "raft-all-entries-committed",
    "raft-barrier-left-out",
    "raft-batches-of-earlier-leaders-applied",
    "raft-conflicts-kept",
    "raft-entries-dropped-without-snapshot",
    "raft-entries-not-flushed",
    "raft-installed-snapshot-at-wrong-place",
    "raft-lease-ignored",
    "raft-less-than-a-majority",
    "raft-snapshot-not-checked",
    "raft-snapshot-of-uncommitted-effects",
    "raft-snapshot-without-barrier",
    "raft-uncommitted-effects-kept",
    "raft-vote-not-saved",
];

#[cfg(feature = "mutants")]
#[test]
fn every_defect_is_found() {
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        lockwheel_log::mutants::set(mutant);
        let fails = |run: &dyn Fn()| std::panic::catch_unwind(AssertUnwindSafe(run)).is_err();
        let is_found = fails(&|| simulate(check_divided_leader()))
            || fails(&|| simulate(check_same_term()))
            || fails(&|| simulate(check_new_node()))
            || (1..=SEEDS_FOR_A_DEFECT).any(|seed| fails(&|| assert!(run(seed) > 0)));
        if !is_found {
            missed.push(mutant);
        }
    }
    lockwheel_log::mutants::set("");
    assert!(missed.is_empty(), "{missed:?}");
}

/// Each defect is found by one of so many runs, most by one of the first ten, and none by less than
/// one in fifty.
#[cfg(feature = "mutants")]
const SEEDS_FOR_A_DEFECT: u64 = 500;

async fn check_new_node() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let (leader, _) = cluster.leader().await;
    let mut replies = JoinSet::new();
    for word in 0..50 {
        cluster.execute(word, &mut replies);
    }
    assert_eq!(replies.join_all().await.len(), 50);
    cluster.node(leader).begin_snapshot().await.expect("it runs");
    sleep(SETTLED).await;
    let mut replies = JoinSet::new();
    for word in 50..60 {
        cluster.execute(word, &mut replies);
    }
    assert_eq!(replies.join_all().await.len(), 10);
    cluster.disks.insert(4, SimulatedDisk::new());
    cluster.run(4).await;
    cluster.node(leader).add_learner(4, Peer::default()).await.expect("it is added");
    sleep(SETTLED).await;
    assert_eq!(cluster.words(4), (0..60).collect::<Vec<_>>());
    let names = lockwheel_log::Disk::names(&cluster.disks[&4]).expect("names");
    assert!(names.iter().any(|name| name.ends_with(".snapshot")), "{names:?}");
    // It takes the place of the leader.
    let voters = (1..=4).filter(|id| *id != leader);
    cluster.node(leader).change_voters(voters).await.expect("a majority of both");
    cluster.kill(leader, None).await;
    let (new, _) = cluster.leader().await;
    assert_ne!(new, leader);
    cluster.acknowledge(60).await;
}
