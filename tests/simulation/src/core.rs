//! The world of a history: machines, connections, events in the order of their times, and what was
//! recorded.

mod backup;
mod cluster;
mod faults;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use cluster::Operator;
use lockwheel::simulation::pipe::Pipe;
use lockwheel_compat::judge::history;
use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::{Frame, show};
use lockwheel_compat::wire::request;
use lockwheel_simulated_network::{Direction, Network};
use parking_lot::Mutex;

use crate::events::{Recorder, listen, vote_on};
use crate::facts::Facts;
use crate::machine::Machine;
use crate::native::Native;
use crate::plan::{Plan, Role};
use crate::trace::Trace;

/// Maximum number of keys in one step of a snapshot.
const SNAPSHOT_PART_KEYS: u64 = 4;

const SECOND_US: i64 = 1_000_000;

/// Time between two steps of the network between nodes.
const NETWORK_STEP_US: i64 = 1_000;

/// Shortest time between two steps of a node; the longest is twice as long.
const NODE_STEP_US: i64 = 1_500;

/// A scheduled event.
#[derive(Debug)]
pub enum Event {
    /// The connection with this number is tried.
    Connect(usize),
    /// Bytes arrive at the server: the number and epoch of the connection, and the bytes.
    ToServer(usize, u64, Vec<u8>),
    /// Bytes arrive at the client: the number and epoch of the connection, and the bytes; `None` if
    /// the connection is lost.
    ToClient(usize, u64, Option<Vec<u8>>),
    /// A timer of a client fires: the client and the timer.
    Timer(usize, u64),
    /// A process works: its server and generation, and the work.
    Server(usize, u64, Work),
    /// The process of a server is started.
    Start(usize),
    /// The fault with this number happens.
    Fault(usize),
    /// The machine of a server crashes, if the process with this generation still runs.
    Crash(usize, u64),
    /// Messages between nodes arrive.
    Network,
    /// These directions between nodes are open again.
    Mend(Vec<Direction>),
    /// The links between nodes are fast again.
    MendLinks,
    /// The operator with this number goes on.
    Operator(usize),
    /// All faults of a cluster end.
    Heal,
    /// Whether a cluster has healed is checked.
    CheckHealed,
}

/// A piece of work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A turn of the event loop.
    Turn,
    /// The tasks of a deadline.
    Deadline,
    /// A step of the log.
    Log,
    /// The flush of the log once a second.
    Second,
    /// A step of a snapshot.
    Snapshot,
    /// A step of a node.
    Node,
}

/// A notification to a client.
#[derive(Debug)]
pub enum Notice {
    /// The connection in this slot is established.
    Connected(usize),
    /// The connection in this slot is lost. True if no request sent on it can take effect any more.
    Lost(usize, bool),
    /// A reply or message has arrived on the connection in this slot.
    Received(usize, Frame),
    /// This timer has fired.
    Timer(u64),
}

/// A connection of a client, which is established again whenever it is lost.
#[derive(Debug)]
struct Connection {
    client: usize,
    /// The client's number for the connection.
    slot: usize,
    server: usize,
    pipe: Option<Pipe>,
    /// Counts how often the connection was established or lost.
    epoch: u64,
    /// The generation of the process at the other end.
    generation: u64,
    /// When the last bytes arrive: at the server, and at the client.
    last_us: [i64; 2],
    /// When the server last sent bytes.
    output_us: i64,
    /// When the connection was last lost.
    lost_us: i64,
    /// Received bytes that do not yet make a whole frame.
    input: Vec<u8>,
    random: Random,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of the violation, for comparisons.
    pub kind: String,
    /// The description of the violation.
    pub text: String,
}

/// The state of a simulated history.
pub struct Core {
    /// The simulated time.
    pub now_us: i64,
    /// The plan.
    pub plan: Plan,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The network of the nodes.
    network: Arc<Mutex<Network>>,
    /// The facts about marks that clients have observed.
    pub facts: Facts,
    /// The facts about native locks that clients have observed.
    pub native: Native,
    /// The requests to locks, with their recipes.
    pub history: Vec<history::Event>,
    /// The events of the nodes.
    pub recorder: Recorder,
    /// The violations that were detected.
    pub violations: Vec<Violation>,
    /// The record of all events.
    pub trace: Trace,
    /// Moment until which each client is paused.
    pub paused_until_us: Vec<i64>,
    /// When a fault last kept servers from replying.
    pub disturbed_us: i64,
    /// Whether the history is ending, so that clients begin nothing new.
    pub is_ending: bool,
    /// Number of clients that still must read all marks at the end.
    pub unread: usize,
    /// Whether no effect of the faults of a cluster is left, after their end.
    pub is_healed: bool,
    operators: Vec<Operator>,
    /// The node that led last.
    known_leader: usize,
    connections: Vec<Connection>,
    queue: BinaryHeap<Reverse<(i64, u64, Queued)>>,
    sequence: u64,
}

/// An event in the queue. All compare as equal, so that time and sequence determine the order.
#[derive(Debug)]
struct Queued(Event);

impl PartialEq for Queued {
    fn eq(&self, _: &Queued) -> bool {
        true
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, _: &Queued) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // The nodes and the network refer to each other.
        *self.network.lock() = Network::default();
    }
}

impl Core {
    /// The state at the beginning of a history.
    pub fn new(plan: &Plan, trace: Trace) -> Core {
        let network = Arc::<Mutex<Network>>::default();
        let machine = |number| Machine::new(plan, number, &network);
        let mut core = Core {
            now_us: 0,
            plan: plan.clone(),
            machines: (0..plan.servers).map(machine).collect(),
            network,
            facts: Facts::default(),
            native: Native::default(),
            history: Vec::new(),
            recorder: Recorder::new(plan),
            violations: Vec::new(),
            trace,
            paused_until_us: vec![0; plan.roles.len()],
            disturbed_us: 0,
            is_ending: false,
            unread: plan.roles.iter().filter(|(_, role)| role.reads_marks()).count(),
            is_healed: !plan.is_cluster,
            operators: Vec::new(),
            known_leader: 0,
            connections: Vec::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
        };
        for server in 0..plan.servers {
            core.schedule(0, Event::Start(server));
        }
        for (number, fault) in plan.faults.iter().enumerate() {
            core.schedule(fault.at_us, Event::Fault(number));
        }
        if let Some(lease_us) = plan.backup_lease_us
            && let Err(problem) = core.begin_with_backup(lease_us)
        {
            core.report("backup", problem);
        }
        if plan.is_cluster {
            core.schedule(0, Event::Network);
            core.schedule(plan.end_us, Event::Heal);
        }
        core
    }

    // --- for clients ---

    /// Connects the client to a server, and again whenever the connection is lost. Returns the
    /// number of the connection.
    pub fn connect(&mut self, client: usize, slot: usize, server: usize) -> usize {
        let number = self.connections.len();
        let (id, _) = self.plan.roles[client];
        self.connections.push(Connection {
            client,
            slot,
            server,
            pipe: None,
            epoch: 0,
            generation: 0,
            last_us: [0; 2],
            output_us: 0,
            lost_us: 0,
            input: Vec::new(),
            random: Random::of(self.plan.seed, 10_000 + 100 * id + slot as u64),
        });
        self.schedule(1_000, Event::Connect(number));
        number
    }

    /// Sends a request.
    pub fn send<A: AsRef<[u8]>>(&mut self, connection: usize, words: &[A]) {
        self.send_bytes(connection, &request(words));
    }

    /// Sends bytes, perhaps in two parts.
    pub fn send_bytes(&mut self, connection: usize, bytes: &[u8]) {
        self.trace.add(self.now_us, "send", bytes, || {
            let Connection { client, slot, .. } = self.connections[connection];
            let (id, _) = self.plan.roles[client];
            format!("client {id}.{slot} sends {}", short(bytes))
        });
        let cut = match self.connections[connection].random.once_in(8) {
            true => self.connections[connection].random.below(bytes.len() as u64) as usize,
            false => 0,
        };
        for part in [&bytes[..cut], &bytes[cut..]] {
            if !part.is_empty() {
                let epoch = self.connections[connection].epoch;
                let after_us = self.latency(connection, 0);
                self.schedule(after_us, Event::ToServer(connection, epoch, part.to_vec()));
            }
        }
    }

    /// Closes the connection from the client's side.
    pub fn lose(&mut self, connection: usize) {
        self.drop_connection(connection);
    }

    /// Returns when the connection was last lost, and when the server last sent bytes on it.
    pub fn lost_us(&self, connection: usize) -> (i64, i64) {
        let Connection { lost_us, output_us, .. } = self.connections[connection];
        (lost_us, output_us)
    }

    /// Sets a timer of the client, which fires after this span.
    pub fn set_timer(&mut self, client: usize, after_us: i64, timer: u64) {
        self.schedule(after_us, Event::Timer(client, timer));
    }

    /// Records a violation.
    pub fn report(&mut self, kind: &str, text: String) {
        self.trace.add(self.now_us, kind, &[], || format!("VIOLATION: {text}"));
        self.violations.push(Violation { kind: kind.to_owned(), text });
    }

    /// Records that a request, which was sent at `asked_us`, was executed by the node at the other
    /// end of the connection.
    pub fn note_answer(&mut self, connection: usize, asked_us: i64) {
        if !self.plan.is_cluster {
            return;
        }
        let node = self.machines[self.connections[connection].server].node_id();
        self.recorder.answered(self.now_us, node, asked_us);
    }

    /// Records a completed request to a lock.
    pub fn record(&mut self, event: history::Event) {
        self.trace.add(self.now_us, "record", &[], || event.to_string());
        self.history.push(event);
    }

    /// Adds a note to the trace.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.add(self.now_us, "note", &[], line);
    }

    // --- events ---

    /// Takes the next event, unless it is later than `until_us`, and sets the time to that of the
    /// event.
    pub fn next(&mut self, until_us: i64) -> Option<Event> {
        let Reverse((at_us, _, _)) = self.queue.peek()?;
        if *at_us > until_us {
            return None;
        }
        let Reverse((at_us, _, Queued(event))) = self.queue.pop()?;
        self.now_us = at_us;
        Some(event)
    }

    fn schedule(&mut self, after_us: i64, event: Event) {
        self.schedule_at(self.now_us + after_us.max(0), event);
    }

    fn schedule_at(&mut self, at_us: i64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at_us, self.sequence, Queued(event))));
    }

    /// Draws a latency with which bytes arrive after all earlier bytes in that direction.
    fn latency(&mut self, connection: usize, direction: usize) -> i64 {
        let network_us = self.plan.network_us;
        let connection = &mut self.connections[connection];
        let slow = if connection.random.once_in(50) { 20 } else { 1 };
        let after_us = 5 + connection.random.below(network_us * slow) as i64;
        let at_us = (self.now_us + after_us).max(connection.last_us[direction]);
        connection.last_us[direction] = at_us;
        at_us - self.now_us
    }

    /// Handles an event; returns the client to notify, and its notices.
    pub fn handle(&mut self, event: Event) -> Option<(usize, Vec<Notice>)> {
        match event {
            Event::Connect(number) => self.try_to_connect(number),
            Event::ToServer(number, epoch, bytes) => {
                let connection = &self.connections[number];
                if connection.epoch == epoch
                    && let Some(pipe) = &connection.pipe
                {
                    pipe.send(&bytes);
                    let server = connection.server;
                    self.after_server(server);
                }
                None
            }
            Event::ToClient(number, epoch, bytes) => self.to_client(number, epoch, bytes),
            Event::Timer(client, timer) => {
                if self.paused_until_us[client] > self.now_us {
                    self.schedule_at(self.paused_until_us[client], Event::Timer(client, timer));
                    return None;
                }
                Some((client, vec![Notice::Timer(timer)]))
            }
            Event::Server(server, generation, work) => {
                self.work(server, generation, work);
                None
            }
            Event::Start(server) => {
                self.start(server);
                None
            }
            Event::Network => {
                let now_us = u64::try_from(self.now_us).unwrap_or(0);
                self.network.lock().carry(Duration::from_micros(now_us));
                self.schedule(NETWORK_STEP_US, Event::Network);
                None
            }
            Event::Mend(directions) => {
                let mut network = self.network.lock();
                network.cut.retain(|direction| !directions.contains(direction));
                None
            }
            Event::MendLinks => {
                self.network.lock().bytes_per_second = None;
                None
            }
            Event::Operator(number) => {
                self.operate(number);
                None
            }
            Event::Heal => {
                self.heal();
                None
            }
            Event::CheckHealed => {
                self.check_healed();
                None
            }
            Event::Fault(number) => {
                self.fault(number);
                None
            }
            Event::Crash(server, generation) => {
                if self.machines[server].generation == generation {
                    self.crash(server, 0, None);
                }
                None
            }
        }
    }

    fn try_to_connect(&mut self, number: usize) -> Option<(usize, Vec<Notice>)> {
        let (_, role) = self.plan.roles[self.connections[number].client];
        match (role, self.leader()) {
            (Role::ReadsMarksOf(server), _) => self.connections[number].server = server,
            (_, Some(leader)) => self.connections[number].server = leader,
            (_, None) => {}
        }
        let server = self.connections[number].server;
        let machine = &mut self.machines[server];
        let is_up = machine.suspended_until_us <= self.now_us;
        machine.use_clocks(self.now_us);
        let pipe = machine.server.as_mut().filter(|_| is_up).and_then(|server| server.connect());
        let generation = machine.generation;
        let connection = &mut self.connections[number];
        let Some(pipe) = pipe else {
            let after_us = connection.random.between(5_000, 100_000);
            self.schedule(after_us, Event::Connect(number));
            return None;
        };
        if connection.random.once_in(8) {
            pipe.limit(1 + connection.random.below(300) as usize, usize::MAX);
        }
        connection.epoch += 1;
        (connection.pipe, connection.generation) = (Some(pipe), generation);
        let (client, slot) = (connection.client, connection.slot);
        self.after_server(server);
        Some((client, vec![Notice::Connected(slot)]))
    }

    /// The node that leads, as clients find it.
    fn leader(&mut self) -> Option<usize> {
        self.leaders().first().copied()
    }

    /// The nodes that lead and are not suspended.
    fn leaders(&mut self) -> Vec<usize> {
        let now_us = self.now_us;
        let mut leaders = Vec::new();
        for (number, machine) in self.machines.iter_mut().enumerate() {
            if machine.suspended_until_us <= now_us && machine.leads(now_us) {
                leaders.push(number);
            }
        }
        leaders
    }

    /// Checks that at most one node leads.
    fn check_leader(&mut self) {
        match &self.leaders()[..] {
            // Nothing is served for a while.
            [] => self.disturbed_us = self.disturbed_us.max(self.now_us),
            [leader] => self.follow_leader(*leader),
            leaders => {
                let count = leaders.len();
                self.report("leaders", format!("{count} nodes lead"));
            }
        }
    }

    /// Lets some clients find a new leader while their connections to the former one last.
    fn follow_leader(&mut self, leader: usize) {
        if std::mem::replace(&mut self.known_leader, leader) == leader {
            return;
        }
        for number in 0..self.connections.len() {
            let connection = &mut self.connections[number];
            let (_, role) = self.plan.roles[connection.client];
            let follows = !matches!(role, Role::ReadsMarksOf(_)) && connection.server != leader;
            if follows && connection.random.once_in(2) {
                self.drop_connection(number);
            }
        }
    }

    fn to_client(
        &mut self,
        number: usize,
        epoch: u64,
        bytes: Option<Vec<u8>>,
    ) -> Option<(usize, Vec<Notice>)> {
        let client = self.connections[number].client;
        if self.connections[number].epoch != epoch {
            return None;
        }
        if self.paused_until_us[client] > self.now_us {
            self.schedule_at(self.paused_until_us[client], Event::ToClient(number, epoch, bytes));
            return None;
        }
        let connection = &mut self.connections[number];
        let slot = connection.slot;
        let Some(bytes) = bytes else {
            connection.epoch += 1;
            // Another node may commit what this one has sent to it.
            let is_over = !self.plan.is_cluster
                && self.machines[connection.server].generation != connection.generation;
            let after_us = connection.random.between(1_000, 50_000);
            self.schedule(after_us, Event::Connect(number));
            return Some((client, vec![Notice::Lost(slot, is_over)]));
        };
        connection.input.extend_from_slice(&bytes);
        let mut notices = Vec::new();
        while let Ok(Some((frame, length))) = Frame::first(&connection.input) {
            connection.input.drain(..length);
            notices.push(Notice::Received(slot, frame));
        }
        if let Some(left_ms) = guard_left_ms(&bytes) {
            self.disturb(left_ms * 1_000);
        }
        let (id, _) = self.plan.roles[client];
        self.trace.add(self.now_us, "receive", &bytes, || {
            format!("client {id}.{slot} receives {}", short(&bytes))
        });
        Some((client, notices))
    }

    /// Loses the connection: for the server at once, for the client after a latency.
    fn drop_connection(&mut self, number: usize) {
        let Some(pipe) = self.connections[number].pipe.take() else { return };
        pipe.lose();
        self.connections[number].lost_us = self.now_us;
        let (server, epoch) = (self.connections[number].server, self.connections[number].epoch);
        self.connections[number].input.clear();
        let after_us = self.latency(number, 1);
        self.schedule(after_us, Event::ToClient(number, epoch, None));
        self.after_server(server);
    }

    // --- servers ---

    fn start(&mut self, server: usize) {
        let now_us = self.now_us;
        let machine = &mut self.machines[server];
        let is_admitted = !self.plan.is_cluster || machine.node_id() > 0;
        if machine.server.is_some() || !is_admitted {
            return;
        }
        if machine.suspended_until_us > now_us {
            let at_us = machine.suspended_until_us;
            return self.schedule_at(at_us, Event::Start(server));
        }
        let started = self.start_process(server);
        self.disturb(0);
        match started {
            Ok(()) => {
                let machine = &mut self.machines[server];
                machine.forget_disk_fault();
                let generation = machine.generation;
                self.note(|| format!("server {server} starts"));
                self.schedule(SECOND_US, Event::Server(server, generation, Work::Second));
                if self.plan.is_cluster {
                    self.after_server(server);
                }
            }
            Err(error) => {
                self.note(|| format!("server {server} does not start: {error}"));
                let machine = &mut self.machines[server];
                if !machine.forget_disk_fault() {
                    let text = format!("server {server} does not start: {error}");
                    self.report("start", text);
                }
                self.end_by_disk(server);
            }
        }
    }

    /// Starts a process, and records what its node does.
    fn start_process(&mut self, server: usize) -> Result<(), String> {
        let (now_us, plan) = (self.now_us, &self.plan);
        let machine = &mut self.machines[server];
        let vote = vote_on(&machine.disk);
        let start = || catch_unwind(AssertUnwindSafe(|| machine.start(plan, now_us)));
        let (started, within) = listen(start);
        if plan.is_cluster {
            let slow_ppm = plan.slow_ppm[server];
            self.recorder.start(now_us, machine, (slow_ppm, vote), within);
        }
        started.unwrap_or_else(|_| Err("a panic".to_owned()))
    }

    fn work(&mut self, server: usize, generation: u64, work: Work) {
        let now_us = self.now_us;
        let machine = &mut self.machines[server];
        if machine.generation != generation || machine.server.is_none() {
            return;
        }
        // A node waits for its disk.
        let is_of_disk = matches!(work, Work::Log | Work::Second | Work::Snapshot | Work::Node);
        let slow_us = if is_of_disk { machine.slow_until_us } else { 0 };
        let ready_us = machine.suspended_until_us.max(slow_us);
        if ready_us > now_us {
            // The threads of a node go on in any order.
            let jitter_us = if self.plan.is_cluster { machine.random.below(200) as i64 } else { 0 };
            let ready_us = ready_us + jitter_us;
            return self.schedule_at(ready_us, Event::Server(server, generation, work));
        }
        machine.use_clocks(now_us);
        let Machine { server: Some(process), random, scheduled, .. } = machine else { return };
        let mut within = None;
        match work {
            Work::Turn => scheduled.turn = false,
            Work::Node => {
                scheduled.node = false;
                within = Some(listen(|| process.run_node()).1);
            }
            Work::Deadline => scheduled.deadline_us = None,
            Work::Log => {
                scheduled.log = false;
                process.log_step();
            }
            Work::Snapshot => {
                scheduled.snapshot = false;
                process.snapshot_step(1 + random.below(SNAPSHOT_PART_KEYS) as usize);
            }
            Work::Second => process.log_second(),
        }
        process.run_tasks(&mut |bound| random.below(bound));
        process.end_turn();
        if let Some(within) = within {
            self.recorder.step(now_us, machine, within);
        }
        if work == Work::Second {
            self.schedule(SECOND_US, Event::Server(server, generation, Work::Second));
        }
        match work {
            // There are hundreds of these in a second.
            Work::Node => self.check_leader(),
            _ => {
                let number = [server as u8, work as u8];
                self.trace.add(now_us, "work", &number, || format!("server {server}: {work:?}"));
            }
        }
        self.after_server(server);
    }

    /// Forwards the output of a server, and schedules its next work.
    pub fn after_server(&mut self, server: usize) {
        if self.machines[server].disk.has_crashed() {
            return self.end_by_disk(server);
        }
        self.collect_output(server);
        let now_us = self.now_us;
        let machine = &mut self.machines[server];
        let generation = machine.generation;
        machine.use_clocks(now_us);
        let left_us = machine.deadline_us();
        let Machine { server: Some(process), random, scheduled, .. } = machine else { return };
        if process.has_failed() {
            return self.report("panic", format!("the engine of server {server} has failed"));
        }
        if process.is_stopping() {
            return self.end_stopping(server);
        }
        let mut next = Vec::new();
        if process.is_ready() && !scheduled.turn {
            scheduled.turn = true;
            next.push((random.below(30) as i64, Work::Turn));
        }
        if process.has_log_work() && !scheduled.log {
            scheduled.log = true;
            next.push((20 + random.below(self.plan.flush_us) as i64, Work::Log));
        }
        if process.has_snapshot_work() && !scheduled.snapshot {
            scheduled.snapshot = true;
            next.push((20 + random.below(6 * self.plan.flush_us) as i64, Work::Snapshot));
        }
        if self.plan.is_cluster && !scheduled.node {
            scheduled.node = true;
            next.push((NODE_STEP_US + random.below(NODE_STEP_US as u64) as i64, Work::Node));
        }
        if let Some(left_us) = left_us {
            let at_us = now_us.saturating_add(left_us);
            if scheduled.deadline_us.is_none_or(|scheduled_us| at_us < scheduled_us) {
                scheduled.deadline_us = Some(at_us);
                next.push((left_us, Work::Deadline));
            }
        }
        for (after_us, work) in next {
            self.schedule(after_us, Event::Server(server, generation, work));
        }
    }

    fn collect_output(&mut self, server: usize) {
        for number in 0..self.connections.len() {
            let connection = &self.connections[number];
            if connection.server != server {
                continue;
            }
            let Some(pipe) = &connection.pipe else { continue };
            let (bytes, epoch, is_closed) = (pipe.receive(), connection.epoch, pipe.is_closed());
            if !bytes.is_empty() {
                self.connections[number].output_us = self.now_us;
                let after_us = self.latency(number, 1);
                self.schedule(after_us, Event::ToClient(number, epoch, Some(bytes)));
            }
            if is_closed {
                self.drop_connection(number);
            }
        }
    }

    /// Ends a server that stops by itself, after it has sent what is released.
    fn end_stopping(&mut self, server: usize) {
        let machine = &mut self.machines[server];
        if machine.must_go_on && !machine.forget_disk_fault() {
            self.report("full", format!("server {server} stops since its disk is full"));
        }
        let machine = &mut self.machines[server];
        let Machine { server: Some(process), random, .. } = machine else { return };
        process.run_tasks(&mut |bound| random.below(bound));
        process.end_turn();
        process.end();
        self.note(|| format!("server {server} stops"));
        self.collect_output(server);
        self.end_process(server);
    }

    /// Ends the process after a fault of its disk, or crashes the machine if that is the fault.
    fn end_by_disk(&mut self, server: usize) {
        let machine = &self.machines[server];
        if machine.disk.has_crashed() && !machine.is_only_killed() {
            self.crash(server, 0, None);
        } else {
            self.end_process(server);
        }
    }

    /// Ends the process, and schedules its restart.
    fn end_process(&mut self, server: usize) {
        self.disturb(0);
        self.machines[server].kill();
        self.restart_later(server);
    }

    fn restart_later(&mut self, server: usize) {
        let machine = &mut self.machines[server];
        machine.disk.set_space(None);
        machine.must_go_on = false;
        let after_us = machine.random.between(1_000, 2 * SECOND_US);
        self.drop_connections(server);
        self.schedule(after_us, Event::Start(server));
    }

    fn drop_connections(&mut self, server: usize) {
        for number in 0..self.connections.len() {
            if self.connections[number].server == server {
                self.drop_connection(number);
            }
        }
    }

    fn crash(&mut self, server: usize, wall_us: i64, boot_us: Option<i64>) {
        self.note(|| format!("machine {server} crashes"));
        self.disturb(0);
        let now_us = self.now_us;
        let machine = &mut self.machines[server];
        let boot_us = boot_us.unwrap_or_else(|| machine.random.between(1_000, 5 * SECOND_US));
        machine.crash(now_us, wall_us, boot_us);
        self.restart_later(server);
    }
}

/// Bytes in readable form, shortened.
fn short(bytes: &[u8]) -> String {
    let text = match Frame::first(bytes) {
        Ok(Some((frame, length))) if length == bytes.len() => frame.notation(),
        _ => show(bytes),
    };
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// How long a restart guard is still on according to a reply. In its last second requests are held.
fn guard_left_ms(replies: &[u8]) -> Option<i64> {
    let replies = String::from_utf8_lossy(replies);
    let (_, left) = replies.split_once("-LOADING ")?.1.split_once("ready in ")?;
    left.split_once(" ms")?.0.parse().ok()
}
