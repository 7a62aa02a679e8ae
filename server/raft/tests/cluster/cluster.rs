//! Nodes with disks, clocks and a network, which run in steps, and what must be true after each
//! step.
//!
//! Each node has a runtime and thus a clock of its own, which runs only when a step moves it: by
//! the length of the step and the rate of the clock. A suspended node does not run; when it is
//! resumed, its clock jumps, and everything that was due meanwhile is.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::panic::Location;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_raft::{Node, NodeId, Peer, Role, Settings, WritesOn};
use lockwheel_simulated_disk::{Random, SimulatedDisk};
use lockwheel_simulated_network::{Direction, From, Network};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};

use crate::clients::Client;
use crate::figures::Figures;
use crate::locks::{Complaints, Locks, Request};

pub(crate) const HEARTBEAT: Duration = Duration::from_millis(50);
pub(crate) const LEASE: Duration = Duration::from_millis(400);

/// Time in which nodes that can reach each other have the same entries.
pub(crate) const SETTLED: Duration = Duration::from_secs(8);

/// Time in which nodes that can reach each other elect a leader and acknowledge something.
const AVAILABLE: Duration = Duration::from_secs(40);

/// Largest error of the rate of a clock, in parts per million.
pub(crate) const CLOCK_ERROR_PPM: i64 = 24_000;

/// Shortest length of a step, and the range above it.
const STEP_US: u64 = 1_000;
const STEP_VARIES_US: u64 = 6_000;

thread_local! {
    /// Panics on this thread: a runtime hides those of its tasks.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Installs a panic hook that counts panics.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // `openraft` has assertions in debug builds that do not always hold; the node fails.
            let is_of_openraft = |place: &Location<'_>| place.file().contains("openraft-");
            if !panic.location().is_some_and(is_of_openraft) {
                PANICS.set(PANICS.get() + 1);
            }
            shown(panic);
        }));
    });
}

/// Number of turns of a node in a step. In each, it runs up to 61 tasks that have something to do.
const TURNS: usize = 3;

/// A node, and the machine with its disk.
pub(crate) struct Machine {
    pub(crate) disk: SimulatedDisk,
    pub(crate) process: Option<Process>,
    /// The error of its clock.
    rate_ppm: i64,
    /// The lease that the node is started with.
    pub(crate) lease: Duration,
    /// Time until which it does not run.
    pub(crate) suspended_until: Duration,
}

/// A node that runs. Without its runtime, nothing of it is left.
pub(crate) struct Process {
    pub(crate) node: Arc<Node>,
    pub(crate) locks: Arc<Locks>,
    runtime: Runtime,
    /// The time that has passed while it was suspended.
    missed: Duration,
}

/// A simulated cluster.
pub(crate) struct Cluster {
    /// Time since the beginning.
    pub(crate) now: Duration,
    pub(crate) random: Random,
    pub(crate) network: Arc<Mutex<Network>>,
    pub(crate) machines: BTreeMap<NodeId, Machine>,
    /// The number of the last machine: none is used again.
    last_machine: NodeId,
    /// The node that leads, with its barrier.
    pub(crate) leader: Option<(NodeId, u64)>,
    /// The last one that did.
    last_leader: Option<(NodeId, u64)>,
    units: u64,
    /// Units that were acknowledged, and the greatest token among them.
    pub(crate) acknowledged: BTreeSet<u64>,
    pub(crate) greatest_token: u64,
    pub(crate) clients: Vec<Client>,
    /// Whether nodes that have ended start again by themselves.
    is_mended: bool,
    pub(crate) figures: Figures,
    complaints: Complaints,
    /// What has happened, for failures.
    story: VecDeque<String>,
    seed: u64,
    /// Time that some disks need to flush; others need twice as long, or none.
    flush: Duration,
}

/// [`Cluster::flush`] of clusters with slow disks.
const FLUSH: Duration = Duration::from_millis(4);

/// Number of lines of the story that are shown.
const STORY_LINES: usize = 120;

impl Drop for Cluster {
    #[expect(clippy::print_stderr, reason = "it is a part of the message of the panic")]
    fn drop(&mut self) {
        // The nodes and the network refer to each other.
        *self.network.lock() = Network::default();
        if std::thread::panicking() {
            let story: Vec<&str> = self.story.iter().map(String::as_str).collect();
            // Another run may not fail with it: `openraft` draws its own random numbers.
            eprintln!("{}\nthe seed was {}", story.join("\n"), self.seed);
        }
    }
}

/// A request that a leader executes: whether it was committed, and the token of the lock.
pub(crate) struct Execution {
    pub(crate) number: u64,
    pub(crate) token: u64,
    pub(crate) is_committed: JoinHandle<bool>,
}

impl Cluster {
    /// A cluster without nodes.
    fn new(seed: u64) -> Cluster {
        count_panics();
        Cluster {
            now: Duration::ZERO,
            random: Random::new(seed),
            network: Arc::default(),
            machines: BTreeMap::new(),
            last_machine: 0,
            leader: None,
            last_leader: None,
            units: 0,
            acknowledged: BTreeSet::new(),
            greatest_token: 0,
            clients: Vec::new(),
            is_mended: false,
            figures: Figures::default(),
            complaints: Complaints::default(),
            story: VecDeque::new(),
            seed,
            flush: Duration::ZERO,
        }
    }

    /// A new cluster of these nodes.
    pub(crate) fn start(seed: u64, nodes: usize) -> Cluster {
        Cluster::new(seed).begin(nodes)
    }

    /// As [`Cluster::start`], with disks of which two of three flush late.
    pub(crate) fn start_with_slow_disks(seed: u64, nodes: usize) -> Cluster {
        let mut cluster = Cluster::new(seed);
        cluster.flush = FLUSH;
        cluster.begin(nodes)
    }

    fn begin(mut self, nodes: usize) -> Cluster {
        let cluster = &mut self;
        for _ in 0..nodes {
            cluster.add_machine();
        }
        let peers = cluster.machines.keys().map(|id| (*id, peer(*id))).collect();
        let first = *cluster.machines.keys().next().expect("a node");
        let begun = cluster.call(first, |node| async move { node.begin_cluster(peers).await });
        cluster.finish(begun).expect("it runs").expect("a new cluster");
        self
    }

    /// A cluster of one node, whose disk has a log. No unit in it has a greater number.
    pub(crate) fn start_on(seed: u64, disk: SimulatedDisk, units: u64) -> Cluster {
        let mut cluster = Cluster::new(seed);
        cluster.units = units;
        cluster.add_machine_with(disk);
        cluster
    }

    /// Adds a machine with an empty disk, and its node.
    pub(crate) fn add_machine(&mut self) -> NodeId {
        self.add_machine_with(SimulatedDisk::new())
    }

    fn add_machine_with(&mut self, disk: SimulatedDisk) -> NodeId {
        self.last_machine += 1;
        let id = self.last_machine;
        let rates = [-CLOCK_ERROR_PPM, 0, CLOCK_ERROR_PPM];
        let rate_ppm = rates[self.random.below(3) as usize];
        let suspended_until = Duration::ZERO;
        let (process, lease) = (None, LEASE);
        self.machines.insert(id, Machine { disk, process, rate_ppm, lease, suspended_until });
        self.run(id);
        id
    }

    /// Adds a line to the story.
    pub(crate) fn note(&mut self, line: std::fmt::Arguments<'_>) {
        if self.story.len() == STORY_LINES {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:>9.4} {line}", self.now.as_secs_f64()));
    }

    pub(crate) fn node(&self, id: NodeId) -> &Arc<Node> {
        &self.machines[&id].process.as_ref().expect("a node that runs").node
    }

    pub(crate) fn locks(&self, id: NodeId) -> &Arc<Locks> {
        &self.machines[&id].process.as_ref().expect("a node that runs").locks
    }

    pub(crate) fn is_running(&self, id: NodeId) -> bool {
        self.machines.get(&id).is_some_and(|machine| machine.process.is_some())
    }

    /// Starts a node. If its disk fails meanwhile, its machine crashes.
    pub(crate) fn run(&mut self, id: NodeId) {
        self.note(format_args!("node {id} starts"));
        let (settings, runtime) = (self.settings(id), runtime());
        let locks = Arc::new(Locks::new(&self.complaints));
        let connect = Arc::new(From(id, Arc::clone(&self.network)));
        let machine = self.machines.get_mut(&id).expect("a machine");
        let disk = Arc::new(machine.disk.clone());
        match runtime.block_on(Node::start(settings, disk, locks.clone(), connect)) {
            Ok(node) => {
                let listening = (Arc::clone(&node), runtime.handle().clone());
                self.network.lock().running.insert(id, listening);
                let missed = Duration::ZERO;
                machine.process = Some(Process { node, locks, runtime, missed });
            }
            Err(error) => {
                assert!(machine.disk.has_crashed() || is_of_disk(&error), "{error}");
                drop(runtime);
                machine.disk.crash(&mut |bound| bound / 2);
            }
        }
    }

    fn settings(&self, id: NodeId) -> Settings {
        Settings {
            id,
            cluster: "test".into(),
            heartbeat: HEARTBEAT,
            lease: self.machines[&id].lease,
            entries_kept: 5,
            writes_on: self.writes_on(id),
        }
    }

    fn writes_on(&self, id: NodeId) -> WritesOn {
        match self.flush * ((self.seed + id) % 3) as u32 {
            Duration::ZERO => WritesOn::Caller,
            flush => WritesOn::Later(flush),
        }
    }

    /// Ends a node, and starts it with another lease.
    pub(crate) fn restart_with_lease(&mut self, id: NodeId, lease: Duration) {
        self.kill(id, false);
        self.machines.get_mut(&id).expect("a machine").lease = lease;
        self.run(id);
    }

    /// Why a node does not start.
    pub(crate) fn start_error(&mut self, id: NodeId) -> String {
        let (settings, runtime) = (self.settings(id), runtime());
        let locks = Arc::new(Locks::new(&self.complaints));
        let connect = Arc::new(From(id, Arc::clone(&self.network)));
        let disk = Arc::new(self.machines[&id].disk.clone());
        let started = runtime.block_on(Node::start(settings, disk, locks, connect));
        started.expect_err("an error").to_string()
    }

    /// Ends a node, as `kill -9` does, or with its machine.
    pub(crate) fn kill(&mut self, id: NodeId, with_machine: bool) {
        self.note(format_args!("node {id} ends, with its machine: {with_machine}"));
        self.network.lock().running.remove(&id);
        let machine = self.machines.get_mut(&id).expect("a machine");
        match with_machine {
            false => machine.disk.end_process(),
            true => machine.disk.crash(&mut |bound| self.random.below(bound)),
        }
        (machine.process, machine.suspended_until) = (None, Duration::ZERO);
        self.leader.take_if(|(leader, _)| *leader == id);
    }

    /// Ends the nodes whose disk has failed, with their machines.
    pub(crate) fn kill_failed(&mut self) {
        let has_failed = |machine: &Machine| {
            let ended = |process: &Process| process.node.ended().now_or_never().is_some();
            machine.process.as_ref().is_some_and(ended) || machine.disk.has_crashed()
        };
        let failed = self.machines.iter().filter(|(_, machine)| has_failed(machine));
        for id in failed.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.kill(id, true);
        }
    }

    /// Stops a node for this time.
    pub(crate) fn suspend(&mut self, id: NodeId, time: Duration) {
        self.note(format_args!("node {id} is suspended for {time:?}"));
        self.machines.get_mut(&id).expect("a machine").suspended_until = self.now + time;
        self.leader.take_if(|(leader, _)| *leader == id);
    }

    /// Cuts the node off from all others.
    pub(crate) fn isolate(&mut self, id: NodeId) {
        self.note(format_args!("node {id} is isolated"));
        let others: Vec<NodeId> = self.machines.keys().copied().collect();
        self.cut(others.iter().flat_map(|other| both_directions(id, *other)));
    }

    pub(crate) fn cut(&mut self, directions: impl IntoIterator<Item = Direction>) {
        self.network.lock().cut.extend(directions);
    }

    /// Ends all faults and runs all nodes.
    pub(crate) fn mend(&mut self) {
        self.network.lock().heal();
        for machine in self.machines.values_mut() {
            machine.disk.clear_faults();
            machine.suspended_until = Duration::ZERO;
        }
        self.is_mended = true;
        self.sleep(LEASE * 3);
    }

    /// Starts the nodes that do not run.
    fn restart_ended(&mut self) {
        self.kill_failed();
        for id in self.machines.keys().copied().collect::<Vec<_>>() {
            if !self.is_running(id) {
                self.run(id);
            }
        }
    }
}

/// A node that is recorded with the fingerprint of a key.
pub(crate) fn peer(id: NodeId) -> Peer {
    Peer { fingerprint: id.to_string(), ..Peer::default() }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

/// Whether a fault of the disk has caused this error.
fn is_of_disk(error: &io::Error) -> bool {
    let text = error.to_string();
    text.contains("input/output error") || text.contains("no storage space")
}

pub(crate) fn both_directions(one: NodeId, other: NodeId) -> [Direction; 2] {
    [(one, other), (other, one)]
}

// --- time ---

impl Machine {
    /// Time passes.
    fn step(&mut self, now: Duration, length: Duration) {
        let Some(process) = &mut self.process else { return };
        process.missed += length;
        if now < self.suspended_until {
            return;
        }
        let missed_ns = std::mem::take(&mut process.missed).as_nanos() as u64;
        let rate = 1_000_000_u64.saturating_add_signed(self.rate_ppm);
        // No node is suspended for hours.
        let elapsed = Duration::from_nanos(missed_ns * rate / 1_000_000);
        let panics = PANICS.get();
        process.runtime.block_on(async {
            advance(elapsed).await;
            for _ in 0..TURNS {
                yield_now().await;
            }
        });
        assert_eq!(PANICS.get(), panics, "a task of the node has panicked");
    }

    /// The barrier with which this node leads, if it does, by its own clock.
    fn barrier(&self, now: Duration) -> Option<u64> {
        let process = self.process.as_ref().filter(|_| self.suspended_until <= now)?;
        let until = process.node.leads_until()?;
        let _in_its_time = process.runtime.enter();
        match *process.node.role().borrow() {
            Role::Leader { barrier } if until > Instant::now() => Some(barrier),
            _ => None,
        }
    }
}

impl Cluster {
    /// Time passes, by a random length; then the rules are checked.
    pub(crate) fn step(&mut self) {
        let length = Duration::from_micros(STEP_US + self.random.below(STEP_VARIES_US));
        self.now += length;
        self.network.lock().carry(self.now);
        if self.is_mended {
            self.restart_ended();
        }
        // Another node is the first one each time.
        let ids: Vec<NodeId> = self.machines.keys().copied().collect();
        let first = self.random.below(ids.len() as u64) as usize;
        for id in ids[first..].iter().chain(&ids[..first]) {
            self.machines.get_mut(id).expect("a machine").step(self.now, length);
        }
        self.check();
        self.end_leases();
        self.let_clients_act();
    }

    pub(crate) fn sleep(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Waits until `get` returns something.
    pub(crate) fn wait<T>(
        &mut self,
        awaited: &str,
        mut get: impl FnMut(&mut Cluster) -> Option<T>,
    ) -> T {
        let end = self.now + AVAILABLE;
        while self.now < end {
            if let Some(got) = get(self) {
                return got;
            }
            self.step();
        }
        let processes = self.machines.values().filter_map(|machine| machine.process.as_ref());
        let metrics = processes.map(|process| process.node.metrics().borrow().to_string());
        panic!("no {awaited}: {:#?}", metrics.collect::<Vec<_>>());
    }

    /// Waits until a node leads.
    pub(crate) fn leader(&mut self) -> (NodeId, u64) {
        self.wait("leader", |cluster| cluster.leader)
    }

    /// Begins a call on a node.
    pub(crate) fn call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        id: NodeId,
        call: impl FnOnce(Arc<Node>) -> F,
    ) -> JoinHandle<T> {
        let process = self.machines[&id].process.as_ref().expect("a node that runs");
        process.runtime.spawn(call(Arc::clone(&process.node)))
    }

    /// Waits for the end of a call; `None` if the node has ended before.
    pub(crate) fn finish<T>(&mut self, mut call: JoinHandle<T>) -> Option<T> {
        self.wait("reply", |_| (&mut call).now_or_never()).ok()
    }

    /// Executes a request on the node that leads: it has the effect at once.
    pub(crate) fn execute(&mut self, request: Request) -> Option<Execution> {
        self.execute_padded(request, 0)
    }

    /// As [`Cluster::execute`], with an effect that is longer by `padding` bytes.
    pub(crate) fn execute_padded(&mut self, request: Request, padding: usize) -> Option<Execution> {
        let (id, barrier) = self.leader?;
        let process = self.machines[&id].process.as_ref()?;
        let _in_its_time = process.runtime.enter();
        let locks = &process.locks;
        self.units += 1;
        let number = self.units;
        let (batch, token) = locks
            .execute(number, request, padding)
            .filter(|(batch, _)| batch.barrier == barrier)?;
        let node = Arc::clone(&process.node);
        let is_committed = tokio::spawn(async move { node.replicate(batch).await.is_ok() });
        drop(_in_its_time);
        self.note(format_args!(
            "unit {number}: node {id} of barrier {barrier} executes {request:?} of {padding} bytes"
        ));
        Some(Execution { number, token, is_committed })
    }

    /// Lets the node that leads end the leases that are due.
    fn end_leases(&mut self) {
        let Some((id, _)) = self.leader else { return };
        let due = {
            let process = self.machines[&id].process.as_ref().expect("it runs");
            let _in_its_time = process.runtime.enter();
            process.locks.due()
        };
        for request in due {
            if self.execute(request).is_some() {
                self.figures.leases_ended += 1;
            }
        }
    }

    /// Executes something until it is acknowledged; returns its number.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        let mut execution: Option<Execution> = None;
        self.wait("acknowledgement", |cluster| {
            let Some(Execution { number, is_committed, .. }) = &mut execution else {
                execution = cluster.execute(Request::Note);
                return None;
            };
            let (number, is_committed) = (*number, is_committed.now_or_never()?);
            execution = None;
            (is_committed.ok()? && cluster.acknowledged.insert(number)).then_some(number)
        })
    }
}

// --- what must be true ---

impl Cluster {
    /// The rules that hold after each step.
    fn check(&mut self) {
        let complaints = self.complaints.lock().clone();
        assert!(complaints.is_empty(), "{complaints:#?}");
        let barriers = self.machines.iter().map(|(id, machine)| (*id, machine.barrier(self.now)));
        let leaders: Vec<_> =
            barriers.filter_map(|(id, barrier)| barrier.map(|barrier| (id, barrier))).collect();
        assert!(leaders.len() <= 1, "two nodes lead: {leaders:?}");
        if self.leader != leaders.first().copied() {
            self.note(format_args!("{leaders:?} leads"));
        }
        self.leader = leaders.first().copied();
        let Some(leader) = self.leader else { return };
        let membership = Arc::clone(&self.node(leader.0).metrics().borrow().membership_config);
        let has_vote = membership.voter_ids().any(|id| id == leader.0);
        assert!(has_vote, "node {} leads without a vote", leader.0);
        if self.last_leader != Some(leader) {
            self.check_units(leader.0);
            let is_other = self.last_leader.is_some_and(|(id, _)| id != leader.0);
            self.figures.failovers += u64::from(is_other);
            self.last_leader = Some(leader);
        }
        self.check_holds(leader.0);
    }

    /// Asserts that this node has everything that was acknowledged.
    fn check_units(&self, id: NodeId) {
        let units: BTreeSet<u64> =
            self.locks(id).with(|known| known.units.iter().copied().collect());
        let missing: Vec<&u64> = self.acknowledged.difference(&units).collect();
        assert!(missing.is_empty(), "node {id} leads without {missing:?}");
    }

    /// Asserts that all nodes of the cluster have the same state, which has all that was
    /// acknowledged once and nothing that was not asked for.
    pub(crate) fn check_end(&mut self) {
        self.clients.clear();
        self.acknowledge();
        // The last leases end meanwhile.
        self.sleep(SETTLED);
        let (leader, _) = self.leader();
        self.check_units(leader);
        let known = self.locks(leader).known();
        let members = Arc::clone(&self.node(leader).metrics().borrow().membership_config);
        for (id, _) in members.nodes().filter(|(id, _)| self.is_running(**id)) {
            let metrics = self.node(*id).metrics().borrow().to_string();
            assert_eq!(self.locks(*id).known(), known, "node {id}: {metrics}");
        }
        let units: BTreeSet<u64> = known.units.iter().copied().collect();
        assert_eq!(units.len(), known.units.len(), "a unit was committed twice");
        assert!(units.last().is_none_or(|last| *last <= self.units));
    }
}
