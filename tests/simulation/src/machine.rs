//! A machine with a disk and clocks, and the server on it.

use std::sync::Arc;
use std::time::Duration;

use lockwheel::simulation::clocks::{self, Clocks};
use lockwheel::simulation::raft::{NodeId, Peer};
use lockwheel::simulation::{NodeOptions, SimulatedServer, StartOptions};
use lockwheel_compat::random::Random;
use lockwheel_log::Disk;
use lockwheel_log::ceiling::{CEILING, CeilingRecord};
use lockwheel_log::frame::{Header, Kind, Parsed, parse};
use lockwheel_log::names::Name;
use lockwheel_simulated_disk::{DiskFault, SimulatedDisk};
use lockwheel_simulated_network::{From, Network};
use parking_lot::Mutex;

use crate::plan::Plan;

/// The wall clock at the beginning.
const EPOCH_US: i64 = 1_700_000_000_000_000;

/// Time after a message of a leader during which a node votes for no other one.
pub const LEASE_MS: u16 = 400;

/// Time that the disks of some nodes need to flush; others need twice as long, or none.
const FLUSH: Duration = Duration::from_millis(4);

/// The network of a cluster.
pub type SharedNetwork = Arc<Mutex<Network>>;

/// A simulated machine, and the server on it.
#[derive(Debug)]
pub struct Machine {
    /// The disk.
    pub disk: SimulatedDisk,
    /// The number of the node, if the server is one of a cluster, and its network. 0 for one that
    /// is not admitted yet.
    pub node: Option<(NodeId, SharedNetwork)>,
    /// The monotonic clock when it was last used.
    used_us: i64,
    /// The process.
    pub server: Option<SimulatedServer>,
    /// Counts the processes.
    pub generation: u64,
    /// Moment until which the machine is suspended.
    pub suspended_until_us: i64,
    /// Moment until which the disk does nothing.
    pub slow_until_us: i64,
    /// The operations of the disk that faults concern.
    fault_operations: Vec<u64>,
    /// Operations at which only the process is killed.
    kill_operations: Vec<u64>,
    /// Whether the process must go on although the disk is full.
    pub must_go_on: bool,
    /// The choices of the machine.
    pub random: Random,
    /// The scheduled events of the process.
    pub scheduled: Scheduled,
    /// Millionths by which the clocks are slow.
    slow_ppm: i64,
    boot_base_us: i64,
    booted_at_us: i64,
    suspended_us: i64,
    wall_us: i64,
    boots: u8,
}

/// Which events of the process are scheduled.
#[derive(Debug, Default)]
pub struct Scheduled {
    /// Whether a turn is.
    pub turn: bool,
    /// Whether a step of the log is.
    pub log: bool,
    /// Whether a step of a snapshot is.
    pub snapshot: bool,
    /// Whether a step of a node is.
    pub node: bool,
    /// When the tasks of a deadline are scheduled.
    pub deadline_us: Option<i64>,
}

impl Machine {
    /// A machine without a process.
    pub fn new(plan: &Plan, number: usize, network: &SharedNetwork) -> Machine {
        let mut random = Random::of(plan.seed, 1_000 + number as u64);
        Machine {
            disk: SimulatedDisk::new(),
            node: plan.is_cluster.then(|| (number as NodeId + 1, network.clone())),
            used_us: 0,
            server: None,
            generation: 0,
            suspended_until_us: 0,
            slow_until_us: 0,
            fault_operations: Vec::new(),
            kill_operations: Vec::new(),
            must_go_on: false,
            slow_ppm: plan.slow_ppm[number],
            boot_base_us: random.between(1_000_000, 1_000_000_000),
            random,
            scheduled: Scheduled::default(),
            booted_at_us: 0,
            suspended_us: 0,
            wall_us: 0,
            boots: 0,
        }
    }

    /// Sets the clocks of the thread to those of this machine, and moves that of its node.
    pub fn use_clocks(&mut self, now_us: i64) {
        let monotonic_us = self.monotonic_us(now_us);
        let elapsed_us = monotonic_us - std::mem::replace(&mut self.used_us, monotonic_us);
        if let Some(server) = &self.server {
            server.advance(Duration::from_micros(elapsed_us.max(0) as u64));
        }
        clocks::set(Clocks {
            monotonic_us,
            wall_us: EPOCH_US + self.shown_us(now_us) + self.wall_us,
            boot_us: self.shown_us(now_us - self.booted_at_us) + self.boot_base_us,
            boot_id: [self.boots; 16],
        });
    }

    fn monotonic_us(&self, now_us: i64) -> i64 {
        self.shown_us(now_us - self.booted_at_us) + self.boot_base_us - self.suspended_us
    }

    /// What the clocks of the machine show of a span.
    fn shown_us(&self, span_us: i64) -> i64 {
        span_us - span_us * self.slow_ppm / 1_000_000
    }

    /// The time until the next deadline of the process.
    pub fn deadline_us(&self) -> Option<i64> {
        let left = self.server.as_ref()?.deadline()?;
        let left_us = i64::try_from(left.as_micros()).unwrap_or(i64::MAX / 2);
        Some(match self.slow_ppm {
            0 => left_us,
            // Rounded up: it is due then.
            slow_ppm => left_us.saturating_mul(1_000_000) / (1_000_000 - slow_ppm) + 1,
        })
    }

    /// Whether the server is a node that leads.
    pub fn leads(&mut self, now_us: i64) -> bool {
        // It may wait for its disk, and its leadership end meanwhile.
        self.use_clocks(now_us);
        self.server.as_ref().is_some_and(SimulatedServer::leads)
    }

    /// Starts the process.
    pub fn start(&mut self, plan: &Plan, now_us: i64) -> Result<(), String> {
        self.use_clocks(now_us);
        let server = self.start_server(plan)?;
        if let (Some((id, network)), Some(port)) = (&self.node, server.peer_port()) {
            network.lock().running.insert(*id, port);
        }
        self.server = Some(server);
        self.generation += 1;
        self.scheduled = Scheduled::default();
        Ok(())
    }

    /// Starts a process.
    pub fn start_server(&mut self, plan: &Plan) -> Result<SimulatedServer, String> {
        let log = if plan.durability.has_log() { "yes" } else { "no" };
        let raft_port = if plan.is_cluster { "1" } else { "0" };
        let log = if plan.is_cluster { "no" } else { log };
        let settings = [
            ("raft-port", raft_port),
            ("appendonly", log),
            ("appendfsync", plan.durability.appendfsync()),
            ("notify-keyspace-events", "KEA"),
            ("restart-guard", if plan.has_guard { "yes" } else { "no" }),
        ];
        let options = StartOptions {
            settings: &settings,
            disk: Arc::new(self.disk.clone()),
            seed: self.random.bits(),
            segment_bytes_max: plan.segment_bytes_max,
            node: self.node.as_ref().map(|(id, network)| node_options(*id, network, plan)),
        };
        SimulatedServer::start(&options).map_err(|error| error.to_string())
    }

    /// Ends the process as `kill -9` does.
    pub fn kill(&mut self) {
        self.end();
        self.generation += 1;
        self.disk.end_process();
    }

    fn end(&mut self) {
        if let Some((id, network)) = &self.node {
            network.lock().running.remove(id);
        }
        self.server = None;
    }

    /// Replaces the machine by one with an empty disk, which is no node yet.
    pub fn replace(&mut self) {
        self.kill();
        self.disk = SimulatedDisk::new();
        self.set_node_id(0);
    }

    /// The monotonic clock when it was last used.
    pub fn clock_us(&self) -> i64 {
        self.used_us
    }

    /// The number of the node; 0 without one.
    pub fn node_id(&self) -> NodeId {
        self.node.as_ref().map_or(0, |(id, _)| *id)
    }

    /// Makes the machine the node with this number.
    pub fn set_node_id(&mut self, id: NodeId) {
        if let Some((number, _)) = &mut self.node {
            *number = id;
        }
    }

    /// Ends what keeps the machine from working.
    pub fn heal(&mut self, now_us: i64) {
        self.suspended_until_us = self.suspended_until_us.min(now_us);
        self.slow_until_us = self.slow_until_us.min(now_us);
        self.disk.clear_faults();
        self.disk.set_space(None);
    }

    /// Pauses the process for `span_us`.
    pub fn pause(&mut self, now_us: i64, span_us: i64) {
        self.suspended_until_us = self.suspended_until_us.max(now_us + span_us);
    }

    /// Crashes the machine and starts it again, with the wall clock set forward by `wall_us` and
    /// with an uptime of `boot_us`.
    pub fn crash(&mut self, now_us: i64, wall_us: i64, boot_us: i64) {
        self.end();
        self.generation += 1;
        let random = &mut self.random;
        self.disk.crash(&mut |bound| random.below(bound));
        self.boots = self.boots.wrapping_add(1);
        (self.booted_at_us, self.boot_base_us) = (now_us, boot_us);
        self.suspended_us = 0;
        self.wall_us += wall_us;
        self.slow_until_us = 0;
    }

    /// Suspends the machine for `span_us`.
    pub fn suspend(&mut self, now_us: i64, span_us: i64) {
        let until_us = now_us + span_us;
        // It may be suspended already, and for longer.
        let until_us = until_us.max(self.suspended_until_us);
        self.suspended_us += until_us - self.suspended_until_us.max(now_us);
        self.suspended_until_us = until_us;
    }

    /// Steps the wall clock by `by_us`.
    pub fn step_wall(&mut self, by_us: i64) {
        self.wall_us += by_us;
    }

    /// Adds a fault of a later operation of the disk: `after` is its number from now.
    pub fn add_disk_fault(&mut self, after: u64, fault: DiskFault) {
        let operation = self.disk.operations() + after;
        self.fault_operations.push(operation);
        self.disk.add_fault(operation, fault);
    }

    /// Kills the process during a later operation of the disk: `after` is its number from now.
    pub fn kill_during(&mut self, after: u64) {
        self.kill_operations.push(self.disk.operations() + after);
        self.add_disk_fault(after, DiskFault::Crash);
    }

    /// Whether the crash of the disk has only killed the process.
    pub fn is_only_killed(&self) -> bool {
        self.kill_operations.contains(&self.disk.operations())
    }

    /// Whether a fault of the disk has happened since the last call.
    pub fn forget_disk_fault(&mut self) -> bool {
        let (before, operations) = (self.fault_operations.len(), self.disk.operations());
        self.fault_operations.retain(|operation| *operation > operations);
        self.fault_operations.len() < before
    }

    /// Damages the log where a start must notice it. Returns the file and its intact contents;
    /// `None` if there is no such place. `random` decides about the kind of damage.
    pub fn damage(&mut self, random: &mut Random) -> Option<(String, Vec<u8>)> {
        let damaged = match random.below(4) {
            0 => self.damage_first_frame(random),
            1 => self.lose_last_segment(),
            _ => None,
        };
        damaged.or_else(|| self.damage_flushed_part())
    }

    /// The last segment with its contents, if it has units.
    fn last_segment(&self) -> Option<(Name, Vec<u8>)> {
        let names = self.disk.names().ok()?;
        let segments = names.iter().filter_map(|name| Name::parse(name));
        let last = segments.filter(|name| matches!(name, Name::Segment(_))).max()?;
        let bytes = self.disk.contents(&last.to_string())?;
        (frames(&bytes).len() > 1).then_some((last, bytes))
    }

    /// Changes a bit of the first frame of the last segment, which was flushed before the units.
    fn damage_first_frame(&mut self, random: &mut Random) -> Option<(String, Vec<u8>)> {
        let (name, intact) = self.last_segment()?;
        let (first, _) = frames(&intact).into_iter().next()?;
        let bit = random.below(first.len() as u64 * 8) as usize;
        self.change_bit(&name.to_string(), &intact, bit);
        Some((name.to_string(), intact))
    }

    /// Removes the last segment, if the lease ceiling names it.
    fn lose_last_segment(&mut self) -> Option<(String, Vec<u8>)> {
        let (name, intact) = self.last_segment()?;
        let ceiling = CeilingRecord::decode(&self.disk.contents(CEILING)?)?;
        (name == Name::Segment(ceiling.segment)).then(|| {
            self.disk.lose(&name.to_string());
            (name.to_string(), intact)
        })
    }

    /// Changes a bit in a part of the log that was flushed, as a later frame says.
    fn damage_flushed_part(&mut self) -> Option<(String, Vec<u8>)> {
        let names = self.disk.names().ok()?;
        let mut places = Vec::new();
        for name in names {
            let Some(bytes) = self.disk.contents(&name) else { continue };
            let is_snapshot = name.ends_with(".snapshot");
            let frames = frames(&bytes);
            let flushed = frames.last().map_or(0, |(_, header)| header.flushed);
            let is_flushed = |header: &Header| {
                is_snapshot || header.kind == Kind::Units && header.last <= flushed
            };
            let known = frames.iter().filter(|(_, header)| is_flushed(header));
            places.extend(known.map(|(range, _)| (name.clone(), range.clone())));
        }
        if places.is_empty() {
            return None;
        }
        let (name, range) = self.random.pick(&places).clone();
        let intact = self.disk.contents(&name)?;
        let bit = self.random.below(range.len() as u64 * 8) as usize;
        self.change_bit(&name, &intact, range.start * 8 + bit);
        Some((name, intact))
    }

    fn change_bit(&self, name: &str, intact: &[u8], bit: usize) {
        let mut damaged = intact.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        self.disk.set_contents(name, &damaged);
    }
}

/// How a node of a cluster is started. The first one begins the cluster.
fn node_options(id: NodeId, network: &SharedNetwork, plan: &Plan) -> NodeOptions {
    let peer = |id: NodeId| peer(&id.to_string());
    let nodes = || (1..=plan.servers as NodeId).map(|id| (id, peer(id))).collect();
    NodeOptions {
        id,
        begins: (id == 1).then(nodes),
        connect: Arc::new(From(id, Arc::clone(network))),
        lease: Duration::from_millis(LEASE_MS.into()),
        entries_kept: plan.entries_kept,
        flush: if plan.seed % 4 == 1 { FLUSH * (id % 3) as u32 } else { Duration::ZERO },
    }
}

/// A node with this key.
pub fn peer(fingerprint: &str) -> Peer {
    Peer { fingerprint: fingerprint.to_owned(), ..Peer::default() }
}

/// The frames at the beginning of a file: their places and headers.
fn frames(bytes: &[u8]) -> Vec<(std::ops::Range<usize>, Header)> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Parsed::Frame(frame, length) = parse(&bytes[at..]) {
        frames.push((at..at + length, frame.header));
        at += length;
    }
    frames
}
