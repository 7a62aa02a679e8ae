//! What happens in a history besides the choices of each actor: drawn from the seed beforehand, so
//! that a failing history can be made smaller.

use std::fmt;

use lockwheel_compat::random::Random;
use lockwheel_defects::Defect;

/// The durability of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// `appendfsync always`.
    Always,
    /// `appendfsync everysec`, without crashes of the machine: what was written survives.
    EverySecond,
    /// `appendfsync no`, without crashes of the machine.
    No,
    /// `appendfsync everysec` with crashes of the machine and a restart guard: what `WAITAOF` has
    /// confirmed survives, and no lock is granted twice.
    Confirmed,
    /// No log, but a restart guard: no lock is granted twice.
    Guarded,
    /// No log, and no restart.
    Memory,
    /// No log, or one that is flushed once a second, with crashes of the machine and without a
    /// restart guard: locks are lost, but fencing tokens grow unless the wall clock is set back.
    Lossy { has_log: bool },
}

impl Durability {
    /// Whether the server keeps a log.
    pub fn has_log(self) -> bool {
        match self {
            Durability::Memory | Durability::Guarded => false,
            Durability::Lossy { has_log } => has_log,
            _ => true,
        }
    }

    /// The value of `appendfsync`.
    pub fn appendfsync(self) -> &'static str {
        match self {
            Durability::Always | Durability::Memory | Durability::Guarded => "always",
            Durability::EverySecond | Durability::Confirmed | Durability::Lossy { .. } => {
                "everysec"
            }
            Durability::No => "no",
        }
    }

    /// Whether there are crashes of the machine.
    pub fn has_machine_crashes(self) -> bool {
        use Durability::{Always, Confirmed, Guarded, Lossy};
        matches!(self, Always | Confirmed | Guarded | Lossy { .. })
    }

    /// Whether keys survive every fault.
    pub fn keeps_keys(self) -> bool {
        !matches!(self, Durability::Confirmed | Durability::Guarded | Durability::Lossy { .. })
    }

    /// Whether locks may be granted twice after a fault.
    pub fn is_lossy(self) -> bool {
        matches!(self, Durability::Lossy { .. })
    }
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// `SET NX PX`, compare-and-delete, compare-and-renew.
    Plain,
    /// Redisson's lock: reentrant, with a watchdog and messages to waiters.
    Redisson,
    /// Redisson's read-write lock.
    ReadWrite,
    /// Redisson's semaphore.
    Semaphore,
    /// Redlock over all servers.
    Redlock,
}

impl Recipe {
    /// The key of the lock with this number.
    pub fn key(self, lock: u32) -> String {
        format!("{self:?}-{lock}").to_lowercase()
    }
}

/// A kind of native lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeLock {
    /// Owners hold it alone.
    Exclusive,
    /// Owners hold it alone or share it.
    Shared,
    /// Owners hold permits.
    Semaphore,
}

impl NativeLock {
    /// The key of the lock with this number.
    pub fn key(self, lock: u32) -> String {
        match self {
            NativeLock::Semaphore => format!("permits-{lock}"),
            NativeLock::Exclusive | NativeLock::Shared => format!("native-{lock}"),
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes, renews and releases the lock with this number.
    Locks(Recipe, u32),
    /// Takes, renews and releases the native lock with this number.
    NativeLocks(NativeLock, u32),
    /// Looks at that lock.
    Observes(NativeLock, u32),
    /// Writes marks: keys that exist for a while.
    WritesMarks,
    /// Reads marks.
    ReadsMarks,
    /// Reads marks from the node on this machine, whether it leads or not.
    ReadsMarksOf(usize),
    /// Subscribes to messages, keyspace events and invalidations of marks.
    ReceivesMarks,
    /// Reads and writes marks in the server's process.
    InProcess,
    /// Changes keys of all types and reads them back.
    Keeps,
    /// Orders snapshots.
    Snapshots,
}

impl Role {
    /// Whether the client reads all marks in the end.
    pub fn reads_marks(self) -> bool {
        matches!(self, Role::ReadsMarks | Role::ReadsMarksOf(_))
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The process is killed.
    Kill,
    /// The process is stopped by SIGTERM.
    Stop,
    /// The machine crashes and starts again; its wall clock is off by this span then.
    Crash { wall_us: i64 },
    /// As a crash, but the disk is moved to a machine that has run for this span.
    Move { boot_us: i64 },
    /// The disk does nothing for this span, and then the machine crashes.
    StallThenCrash(i64),
    /// The machine crashes during the operation of the disk with this number from now.
    CrashDuringOperation(u64),
    /// The process is killed during that operation.
    KillDuringOperation(u64),
    /// That operation of the disk fails.
    OperationFails(u64),
    /// The disk gets full. A server without a log goes on.
    DiskIsFull,
    /// The disk does nothing for this span.
    DiskIsSlow(i64),
    /// The wall clock is set.
    WallStep(i64),
    /// The machine is suspended for this span.
    Suspend(i64),
    /// A connection is lost.
    ConnectionLost,
    /// A client does nothing for this span.
    ClientPauses(i64),
    /// The process does nothing for this span.
    Pause(i64),
    /// No message between this node and others arrives for this span.
    Isolate(i64),
    /// No message to this node arrives for this span.
    Deafen(i64),
    /// The links between nodes carry little for this span.
    SlowLinks(i64),
    /// An operator removes the node, and lets a new one with an empty disk join.
    Replace,
    /// An operator hands the leadership to the node.
    HandOver,
    /// A second server is started with the same directory.
    SecondStart,
    /// The process is killed, and the next start reads a wrong bit of the log, or the last file of
    /// it is missing.
    DamagedRead,
    /// The process is killed, and the next start gets an error when it reads the log.
    FailedRead,
}

/// A fault of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// When it happens.
    pub at_us: i64,
    /// The server that it concerns.
    pub server: usize,
    /// What happens.
    pub kind: FaultKind,
}

/// The plan of a history, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of servers.
    pub servers: usize,
    /// Whether the servers are the nodes of a cluster.
    pub is_cluster: bool,
    /// The durability of the servers.
    pub durability: Durability,
    /// Whether there is a restart guard.
    pub has_guard: bool,
    /// The clients, with the numbers of their random choices.
    pub roles: Vec<(u64, Role)>,
    /// The faults, in order.
    pub faults: Vec<PlannedFault>,
    /// When clients stop.
    pub end_us: i64,
    /// Length after which a segment ends.
    pub segment_bytes_max: u64,
    /// Longest time of a flush.
    pub flush_us: u64,
    /// Longest time that a message is under way.
    pub network_us: u64,
    /// Millionths by which the clocks of each server are slow.
    pub slow_ppm: Vec<i64>,
    /// The longest lease in the backup with which a cluster begins; `None` for one that begins
    /// without keys.
    pub backup_lease_us: Option<i64>,
    /// Entries that a node keeps behind its last snapshot, for followers that lack them.
    pub entries_kept: u64,
    /// A defect that is switched on.
    pub defect: Option<Defect>,
}

const SECOND_US: i64 = 1_000_000;

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64, defect: Option<Defect>) -> Plan {
        let mut random = Random::of(seed, u64::MAX);
        let durability = match random.below(20) {
            0..9 => Durability::Always,
            9..11 => Durability::EverySecond,
            11 => Durability::No,
            12..16 => Durability::Confirmed,
            16..19 => Durability::Guarded,
            _ => Durability::Memory,
        };
        // These have choices of their own, so that the other histories stay as they are.
        let mut native = Random::of(seed, u64::MAX - 1);
        let is_native = native.once_in(4);
        let durability = match is_native && native.once_in(6) {
            true => Durability::Lossy { has_log: native.once_in(2) },
            false => durability,
        };
        let has_guard = match durability {
            Durability::Memory | Durability::Lossy { .. } => false,
            Durability::Confirmed | Durability::Guarded => true,
            _ => random.once_in(2),
        };
        let is_redlock = !is_native && durability == Durability::Always && random.once_in(8);
        let servers = if is_redlock { 5 } else { 1 };
        let end_us = random.between(4 * SECOND_US, 20 * SECOND_US);
        let mut roles = Vec::new();
        if is_native {
            draw_native_roles(&mut native, durability, &mut roles);
        } else if is_redlock {
            let count = random.between(2, 4);
            roles.extend((0..count).map(|_| Role::Locks(Recipe::Redlock, 0)));
        } else {
            draw_roles(&mut random, durability, &mut roles);
        }
        let roles = roles.into_iter().enumerate();
        let roles = roles.map(|(number, role)| (number as u64, role)).collect();
        let mut faults = draw_faults(&mut random, durability, servers, end_us);
        if is_native && !matches!(durability, Durability::Memory | Durability::Lossy { .. }) {
            add_start_in_the_past(&mut native, end_us, &mut faults);
        }
        let mut full = Random::of(seed, u64::MAX - 2);
        if durability == Durability::Guarded && full.once_in(3) {
            let at_us = full.between(10_000, end_us);
            faults.push(PlannedFault { at_us, server: 0, kind: FaultKind::DiskIsFull });
        }
        faults.sort_by_key(|fault| fault.at_us);
        Plan {
            seed,
            servers,
            is_cluster: false,
            durability,
            has_guard,
            roles,
            faults,
            end_us,
            segment_bytes_max: *random.pick(&[1 << 10, 8 << 10, 64 << 10, 1 << 20]),
            flush_us: *random.pick(&[50, 500, 5_000]),
            network_us: *random.pick(&[20, 200, 3_000]),
            slow_ppm: vec![0; servers],
            backup_lease_us: None,
            entries_kept: 0,
            defect,
        }
    }
}

impl Plan {
    /// The plan of a history of a cluster.
    pub fn draw_cluster(seed: u64, defect: Option<Defect>) -> Plan {
        let mut random = Random::of(seed, u64::MAX - 2);
        let servers = if random.once_in(4) { 5 } else { 3 };
        let end_us = random.between(4 * SECOND_US, 15 * SECOND_US);
        let mut roles = Vec::new();
        let durability = Durability::Always;
        match random.once_in(3) {
            true => draw_native_roles(&mut random, durability, &mut roles),
            false => draw_roles(&mut random, durability, &mut roles),
        }
        // In the process of the first node, whether it leads or not.
        roles.retain(|role| *role != Role::InProcess);
        if Random::of(seed, u64::MAX - 4).once_in(3) {
            roles.push(Role::InProcess);
        }
        if roles.contains(&Role::ReadsMarks) {
            roles.push(Role::ReadsMarksOf(random.below(servers as u64) as usize));
        }
        let roles = roles.into_iter().enumerate();
        let roles = roles.map(|(number, role)| (number as u64, role)).collect();
        let have_rates = random.once_in(2);
        let slow_ppm = |_| if have_rates { random.between(0, SLOW_PPM_MAX) } else { 0 };
        let slow_ppm = (0..servers).map(slow_ppm).collect();
        let mut faults = draw_faults_of_nodes(&mut random, servers, end_us);
        // These have choices of their own, so that the other histories stay as they are.
        let mut backup = Random::of(seed, u64::MAX - 3);
        let backup_lease_us =
            backup.once_in(4).then(|| backup.between(4 * SECOND_US, 12 * SECOND_US));
        let begin_us = if backup_lease_us.is_some() { ADMISSIONS_US } else { 0 };
        faults.iter_mut().for_each(|fault| fault.at_us += begin_us);
        // As long as only one node votes, its log is the only one.
        faults.retain(|fault| fault.kind != FaultKind::DamagedRead || backup_lease_us.is_none());
        Plan {
            seed,
            servers,
            is_cluster: true,
            durability,
            has_guard: false,
            roles,
            faults,
            end_us: end_us + begin_us,
            segment_bytes_max: *random.pick(&[1 << 10, 64 << 10, 1 << 20]),
            flush_us: 50,
            network_us: *random.pick(&[20, 200, 3_000]),
            slow_ppm,
            backup_lease_us,
            entries_kept: *random.pick(&[8, 64, 1_000]),
            defect,
        }
    }
}

/// Time before the first fault of a cluster that begins with one node: others are admitted in it.
const ADMISSIONS_US: i64 = 2 * SECOND_US;

/// Millionths by which a clock may be slow, so that two of them differ by what is promised.
const SLOW_PPM_MAX: i64 = 50_000;

fn draw_faults_of_nodes(random: &mut Random, servers: usize, end_us: i64) -> Vec<PlannedFault> {
    let count = if random.once_in(8) { 0 } else { random.between(1, 8) };
    let mut faults: Vec<PlannedFault> = (0..count)
        .map(|_| PlannedFault {
            at_us: random.between(SECOND_US, end_us),
            server: random.below(servers as u64) as usize,
            kind: draw_fault_of_node(random),
        })
        .collect();
    faults.sort_by_key(|fault| fault.at_us);
    // What a majority has lost is lost.
    let mut is_damaged = false;
    faults.retain(|fault| {
        fault.kind != FaultKind::DamagedRead || !std::mem::replace(&mut is_damaged, true)
    });
    faults
}

fn draw_fault_of_node(random: &mut Random) -> FaultKind {
    let span = |random: &mut Random| random.between(10_000, 3 * SECOND_US);
    match random.below(24) {
        0..2 => FaultKind::Kill,
        2 => FaultKind::Crash { wall_us: 0 },
        3 => FaultKind::CrashDuringOperation(1 + random.below(30)),
        4 => FaultKind::OperationFails(1 + random.below(30)),
        5 => FaultKind::WallStep(*random.pick(&[-3600, -2, 2, 3600]) * SECOND_US),
        6 => FaultKind::ConnectionLost,
        7 => FaultKind::ClientPauses(span(random)),
        8..11 => FaultKind::Pause(span(random)),
        11..14 => FaultKind::Isolate(span(random)),
        14..16 => FaultKind::Deafen(span(random)),
        16 => FaultKind::SlowLinks(span(random)),
        17 => FaultKind::DiskIsSlow(span(random)),
        18 => FaultKind::DiskIsFull,
        19 => FaultKind::DamagedRead,
        20..22 => FaultKind::Replace,
        _ => FaultKind::HandOver,
    }
}

fn draw_roles(random: &mut Random, durability: Durability, roles: &mut Vec<Role>) {
    let recipes = [Recipe::Plain, Recipe::Redisson, Recipe::ReadWrite, Recipe::Semaphore];
    // A semaphore without leases is lost with its key.
    let all = if durability.keeps_keys() { 4 } else { 3 };
    for lock in 0..random.between(1, 2) as u32 {
        let common = if random.once_in(3) { all } else { 2 };
        let recipe = *random.pick(&recipes[..common]);
        let clients = random.between(2, 4);
        roles.extend((0..clients).map(|_| Role::Locks(recipe, lock)));
    }
    if durability != Durability::Guarded {
        roles.extend([Role::WritesMarks, Role::ReadsMarks]);
    }
    let others = [Role::WritesMarks, Role::ReadsMarks, Role::ReceivesMarks, Role::InProcess];
    for role in others.into_iter().chain([Role::Keeps]) {
        if durability.keeps_keys() && !random.once_in(3) {
            roles.push(role);
        }
    }
    if durability.has_log() && !random.once_in(3) {
        roles.push(Role::Snapshots);
    }
}

fn draw_native_roles(random: &mut Random, durability: Durability, roles: &mut Vec<Role>) {
    for lock in 0..random.between(1, 2) as u32 {
        let kinds = [NativeLock::Exclusive, NativeLock::Shared, NativeLock::Semaphore];
        let kind = *random.pick(&kinds);
        let clients = random.between(3, 5);
        roles.extend((0..clients).map(|_| Role::NativeLocks(kind, lock)));
        roles.push(Role::Observes(kind, lock));
    }
    if durability.has_log() && random.once_in(2) {
        roles.push(Role::Snapshots);
    }
}

/// In half of the histories, the process ends some times after the wall clock was set back: only
/// what it has recorded shows which fencing tokens were given out.
fn add_start_in_the_past(random: &mut Random, end_us: i64, faults: &mut Vec<PlannedFault>) {
    if random.once_in(2) {
        let at_us = random.between(SECOND_US, end_us - SECOND_US);
        let step = FaultKind::WallStep(-3600 * SECOND_US);
        faults.push(PlannedFault { at_us, server: 0, kind: step });
        for _ in 0..random.between(1, 4) {
            let at_us = random.between(at_us, end_us);
            faults.push(PlannedFault { at_us, server: 0, kind: FaultKind::Kill });
        }
    }
}

fn draw_faults(
    random: &mut Random,
    durability: Durability,
    servers: usize,
    end_us: i64,
) -> Vec<PlannedFault> {
    let count = if random.once_in(8) { 0 } else { random.between(1, 8) };
    let mut faults = Vec::new();
    // Many histories have one kind of crash only, so that the judges can be stricter.
    let only_kills = random.once_in(3);
    for _ in 0..count {
        let kind = draw_fault(random, durability, only_kills);
        let server = random.below(servers as u64) as usize;
        let at_us = random.between(10_000, end_us);
        faults.push(PlannedFault { at_us, server, kind });
        // What a failed flush has lost is seen after a crash: of the next start, or later.
        if let FaultKind::OperationFails(after) = kind
            && durability.has_machine_crashes()
            && !only_kills
        {
            let longest = *random.pick(&[3, 14]);
            let during_start = FaultKind::CrashDuringOperation(after + 1 + random.below(longest));
            let later_us = at_us + random.between(SECOND_US, 4 * SECOND_US);
            let later = (later_us, FaultKind::Crash { wall_us: 0 });
            let (at_us, kind) = if random.once_in(2) { (at_us, during_start) } else { later };
            faults.push(PlannedFault { at_us, server, kind });
        }
    }
    faults
}

fn draw_fault(random: &mut Random, durability: Durability, only_kills: bool) -> FaultKind {
    let span = |random: &mut Random| random.between(10_000, 3 * SECOND_US);
    let wall =
        |random: &mut Random| *random.pick(&[-86_400, -3600, -2, 2, 3600, 86_400]) * SECOND_US;
    loop {
        let is_lossy = !durability.keeps_keys() && random.once_in(2);
        let kind = match if is_lossy { random.below(9) } else { random.below(25) } {
            0..2 => FaultKind::Kill,
            2 => FaultKind::Stop,
            3..5 => FaultKind::Crash { wall_us: if random.once_in(4) { 0 } else { wall(random) } },
            5 => FaultKind::Move { boot_us: random.between(0, 3_600 * SECOND_US) },
            6..8 => {
                let longest = *random.pick(&[8, 30]);
                FaultKind::CrashDuringOperation(1 + random.below(longest))
            }
            8 => FaultKind::KillDuringOperation(1 + random.below(12)),
            9 => FaultKind::OperationFails(1 + random.below(30)),
            10 => FaultKind::DiskIsFull,
            11 => FaultKind::DiskIsSlow(span(random)),
            12 => FaultKind::WallStep(wall(random)),
            13 => FaultKind::Suspend(span(random)),
            14..16 => FaultKind::ConnectionLost,
            16 => FaultKind::ClientPauses(span(random)),
            17 => FaultKind::SecondStart,
            18..21 => FaultKind::StallThenCrash(random.between(1_000, 200_000)),
            21..24 => FaultKind::DamagedRead,
            _ => FaultKind::FailedRead,
        };
        let needs_machine = kind.stops_machine();
        let allowed = match durability {
            Durability::Always | Durability::Confirmed | Durability::Guarded => {
                !(only_kills && kind.moves_lease_clock())
            }
            Durability::Lossy { .. } => !kind.sets_wall_clock_back(),
            Durability::EverySecond | Durability::No => !needs_machine,
            Durability::Memory => !kind.ends_process() && kind != FaultKind::SecondStart,
        };
        if allowed {
            return kind;
        }
    }
}

impl FaultKind {
    /// Whether the machine ends.
    pub fn stops_machine(self) -> bool {
        use FaultKind::{Crash, CrashDuringOperation, Move, StallThenCrash};
        matches!(self, Crash { .. } | Move { .. } | CrashDuringOperation(_) | StallThenCrash(_))
    }

    /// Whether the wall clock is set back.
    fn sets_wall_clock_back(self) -> bool {
        use FaultKind::{Crash, WallStep};
        matches!(self, Crash { wall_us: by_us } | WallStep(by_us) if by_us < 0)
    }

    /// Whether leases may end late after it.
    pub fn moves_lease_clock(self) -> bool {
        self.stops_machine() || matches!(self, FaultKind::Suspend(_))
    }

    /// Whether the process may end.
    pub fn ends_process(self) -> bool {
        use FaultKind::{DamagedRead, DiskIsFull, FailedRead, Kill, KillDuringOperation};
        use FaultKind::{OperationFails, Stop};
        self.stops_machine()
            || matches!(self, Kill | Stop | DiskIsFull | OperationFails(_))
            || matches!(self, DamagedRead | FailedRead | KillDuringOperation(_))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { servers, durability, segment_bytes_max, flush_us, network_us, .. } = self;
        let guard = if self.has_guard { "a" } else { "no" };
        let end_ms = self.end_us / 1000;
        writeln!(f, "{servers} server(s), {durability:?}, {guard} guard, until {end_ms} ms")?;
        writeln!(
            f,
            "segments of {segment_bytes_max} bytes, flush {flush_us} us, network {network_us} us"
        )?;
        for (number, role) in &self.roles {
            writeln!(f, "client {number}: {role:?}")?;
        }
        for fault in &self.faults {
            writeln!(f, "at {} ms, server {}: {:?}", fault.at_us / 1000, fault.server, fault.kind)?;
        }
        Ok(())
    }
}
