//! Servers that are started, stopped, killed, repaired and restored in sequence, with settings that
//! change: a lock is there after a start, or the restart guard waits for its end; the guard ends
//! when it has to, and fencing tokens grow.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lockwheel::simulation::clocks::{self, Clocks};
use lockwheel::simulation::{SimulatedServer, StartOptions};
use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_compat::wire::request;
use lockwheel_log::repair::Repair;
use lockwheel_log::restore::{RestoreError, restore};
use lockwheel_log::{Disk, marker};
use lockwheel_simulated_disk::SimulatedDisk;

const SEQUENCES: u64 = 1_500;
const STEPS: usize = 30;
const WALL_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// How much later than necessary a guard ends because clocks are read in whole milliseconds, for
/// each start.
const LATE_MS: i64 = 3;

const MIB: u64 = 1 << 20;

/// The free bytes of the disk below which growth is refused, with a log and without, and those that
/// a snapshot leaves to the log.
const RESERVE_BYTES: u64 = 128 * MIB;
const CEILING_RESERVE_BYTES: u64 = MIB;
const LOG_RESERVE_BYTES: u64 = 16 * MIB;

/// A lease that a client knows of.
#[derive(Clone, Copy, Debug)]
struct Lease {
    owner: usize,
    granted_ms: i64,
    end_ms: i64,
}

/// A copy of the directory, and the leases at that time.
struct Backup {
    files: Vec<(String, Vec<u8>)>,
    held: BTreeMap<&'static str, Lease>,
    /// How long the guard of a restored log lasts at least.
    guard_least_ms: i64,
    /// Clocks of the machine at that time.
    started_ms: i64,
    unit_ms: i64,
    latest_ms: i64,
    logged_ms: i64,
    /// Whether it is restored for the first time.
    is_new: bool,
    /// Whether it can be restored again: tokens grow with the wall clock.
    can_be_used_again: bool,
}

/// A machine with a server, and what its clients may rely on.
struct Machine {
    random: Random,
    disk: SimulatedDisk,
    server: Option<SimulatedServer>,
    /// The true time since the beginning.
    now_ms: i64,
    wall_ahead_ms: i64,
    boots: u8,
    /// Whether the machine has crashed since the last start of the server.
    has_crashed: bool,
    /// Whether it has crashed since the last grant in the log, or the end of the log is missing.
    log_is_older: bool,
    booted_ms: i64,
    started_ms: i64,
    /// The last grant in the log.
    unit_ms: i64,
    has_log: bool,
    /// Whether the server has found the disk nearly full.
    is_full: bool,
    policy: &'static str,
    /// The leases of clients that have not released them.
    held: BTreeMap<&'static str, Lease>,
    /// The greatest token of all grants.
    token: i64,
    /// Whether a repair or a restoration has raised the tokens.
    is_raised: bool,
    /// Whether the log may lack leases.
    lacks_leases: bool,
    /// Whether a crash of the machine may lose leases that the log has.
    is_written_only: bool,
    /// Whether a server has used the directory.
    is_used: bool,
    /// When the guard of the last start ends, if it was not over when the server ended.
    guard_end_ms: Option<i64>,
    /// How long the guard of the next start lasts at least, after a repair or a restoration.
    guard_least_ms: i64,
    /// Latest time in a record of a lease or a guard.
    latest_ms: i64,
    /// Latest end of a lease in the log.
    logged_ms: i64,
    backup: Option<Backup>,
    story: Vec<String>,
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine {
            random: Random::of(seed, 0),
            disk: SimulatedDisk::new(),
            server: None,
            now_ms: 0,
            wall_ahead_ms: 0,
            boots: 1,
            has_crashed: false,
            log_is_older: false,
            booted_ms: 0,
            started_ms: 0,
            unit_ms: 0,
            has_log: false,
            is_full: false,
            policy: "always",
            held: BTreeMap::new(),
            token: 0,
            is_raised: false,
            lacks_leases: false,
            is_written_only: false,
            is_used: false,
            guard_end_ms: None,
            guard_least_ms: 0,
            latest_ms: 0,
            logged_ms: 0,
            backup: None,
            story: Vec::new(),
        }
    }

    fn note(&mut self, line: String) {
        self.story.push(format!("{}: {line}", self.now_ms));
    }

    fn set_clocks(&self) {
        let boot_us = (1_000 + self.now_ms - self.booted_ms) * 1_000;
        let wall_us = (WALL_MS + self.now_ms + self.wall_ahead_ms) * 1_000;
        let boot_id = [self.boots; 16];
        clocks::set(Clocks { monotonic_us: boot_us, wall_us, boot_us, boot_id });
    }

    fn wall_seconds(&self) -> u64 {
        ((WALL_MS + self.now_ms + self.wall_ahead_ms) / 1_000) as u64
    }

    fn pass(&mut self, span_ms: i64) {
        self.now_ms += span_ms;
        self.set_clocks();
        self.run();
    }

    fn run(&mut self) {
        let Some(server) = &mut self.server else { return };
        loop {
            server.run_tasks(&mut |_| 0);
            server.end_turn();
            if !server.is_ready() && !server.has_log_work() {
                return;
            }
            server.log_step();
        }
    }

    /// The replies to commands, separated by `;`, of a client that connects for them. It does not
    /// wait while the last second of the guard passes.
    fn ask(&mut self, commands: &str) -> Vec<String> {
        let server = self.server.as_mut().expect("a server");
        let pipe = server.connect().expect("a client");
        let requests = commands.split(';').map(|it| request(&it.split(' ').collect::<Vec<_>>()));
        pipe.send(&requests.collect::<Vec<_>>().concat());
        self.run();
        let bytes = pipe.receive();
        let (mut rest, mut replies) = (&bytes[..], Vec::new());
        while let Some((frame, length)) = Frame::first(rest).expect("frames") {
            replies.push(frame.notation());
            rest = &rest[length..];
        }
        pipe.close();
        self.run();
        self.note(format!("{commands}: {}", replies.join(" ")));
        replies
    }

    /// How long the guard still refuses commands.
    fn guard_left_ms(&mut self) -> i64 {
        let reply = self.ask("LOCKWHEEL GUARD").concat();
        let (_, left) = reply.split_once("left_ms").expect("a state");
        let digits = left.trim_start_matches(|it: char| !it.is_ascii_digit());
        let end = digits.find(|it: char| !it.is_ascii_digit()).expect("an end");
        digits[..end].parse().expect("a number")
    }

    /// Starts the server with other settings, and checks its guard.
    fn start(&mut self) {
        self.has_log = !self.random.once_in(4);
        self.policy = *self.random.pick(&["always", "everysec", "no"]);
        let minimum_ms = *self.random.pick(&[0, 0, 5_000, 40_000]);
        let log = if self.has_log { "yes" } else { "no" };
        let minimum = format!("{minimum_ms}ms");
        let settings = [
            ("appendonly", log),
            ("appendfsync", self.policy),
            ("restart-guard", "yes"),
            ("restart-guard-minimum", &minimum),
        ];
        self.set_clocks();
        let disk = Arc::new(self.disk.clone());
        let is_marked = marker::read(&self.disk).expect("no error").is_some();
        let options =
            StartOptions { settings: &settings, disk, seed: 1, segment_bytes_max: 900, node: None };
        self.server = Some(SimulatedServer::start(&options).expect("a server"));
        self.note(format!("start {log} {} {minimum}, marked {is_marked}", self.policy));
        self.is_full = self.space_is_low();
        self.run();
        let (now_ms, left_ms) = (self.now_ms, self.guard_left_ms());
        let minimum_ms = if is_marked || !self.is_used { minimum_ms } else { 0 };
        let needs = !self.has_log || self.lacks_leases || is_marked || !self.is_used;
        let mut least_ms = minimum_ms;
        if needs {
            least_ms = least_ms.max(self.guard_least_ms);
            least_ms = least_ms.max(self.guard_end_ms.map_or(0, |end_ms| end_ms - now_ms));
        }
        if !self.has_log {
            let ends = self.held.values().map(|lease| lease.end_ms - now_ms);
            least_ms = least_ms.max(ends.max().unwrap_or(0));
        }
        self.lose_time(is_marked);
        self.latest_ms = self.latest_ms.max(now_ms + minimum_ms) + LATE_MS;
        let most_ms = if needs { self.latest_ms - now_ms } else { 0 };
        assert!(least_ms <= left_ms, "{least_ms} <= {left_ms}");
        assert!(left_ms <= most_ms.max(0), "{left_ms} <= {most_ms}");
        (self.is_used, self.started_ms, self.guard_least_ms) = (true, now_ms, 0);
        self.has_crashed = false;
        self.guard_end_ms = (left_ms > 0).then_some(now_ms + left_ms);
        self.lacks_leases = !self.has_log || left_ms > 0;
    }

    /// Makes everything that is recorded end later by the time that a start does not count.
    fn lose_time(&mut self, is_marked: bool) {
        let lost_ms = self.now_ms - self.unit_ms;
        if is_marked {
            self.latest_ms += lost_ms.max(self.now_ms - self.started_ms);
        } else if self.has_crashed {
            self.latest_ms += self.now_ms - self.started_ms;
        }
        if self.has_log {
            let is_lost = is_marked || self.log_is_older;
            self.logged_ms += LATE_MS + if is_lost { lost_ms } else { 0 };
            self.latest_ms = self.latest_ms.max(self.logged_ms);
        }
    }

    /// Lets a client try to acquire a lock, after another change in the same pipeline.
    fn acquire(&mut self, before: &str) {
        let key = *self.random.pick(&KEYS);
        let lease_ms = *self.random.pick(&[300, 4_000, 30_000, 100_000]);
        let owner = self.story.len();
        let granted_ms = self.now_ms;
        let command = format!("{before}LOCK.ACQUIRE {key} owner-{owner} TTL {lease_ms}");
        let reply = self.ask(&command).pop().unwrap_or_default();
        assert!(self.is_full || !reply.contains("No space"), "there is space");
        if !reply.contains("acquired") {
            return;
        }
        assert!(!self.is_full, "there is no space");
        let held = self.held.get(key).filter(|lease| lease.end_ms > granted_ms);
        assert!(held.is_none(), "{key} is held: {held:?}");
        let (_, token) = reply.split_once("token\", ").expect("a token");
        let token = token.trim_start_matches(':');
        let token = token[..token.find(',').expect("an end")].parse().expect("a number");
        assert!(token > self.token, "{token} after {}", self.token);
        self.token = token;
        self.hold(key, owner, lease_ms);
    }

    /// Lets a client that holds a lock renew its lease, also if the disk is full.
    fn renew(&mut self) {
        let key = *self.random.pick(&KEYS);
        let lease_ms = *self.random.pick(&[300, 4_000, 30_000, 100_000]);
        let lease = self.held.get(key).copied().filter(|lease| lease.end_ms > self.now_ms);
        let Some(Lease { owner, .. }) = lease else { return };
        let reply = self.ask(&format!("LOCK.RENEW {key} owner-{owner} TTL {lease_ms}")).concat();
        if !reply.is_empty() && !reply.contains("LOADING") {
            assert_eq!(reply, ":1");
            self.hold(key, owner, lease_ms);
        }
    }

    /// Records that a client knows that it has this lease.
    fn hold(&mut self, key: &'static str, owner: usize, lease_ms: i64) {
        let granted_ms = self.now_ms;
        let end_ms = granted_ms + lease_ms;
        self.held.insert(key, Lease { owner, granted_ms, end_ms });
        self.latest_ms = self.latest_ms.max(end_ms + lease_ms.clamp(1_000, 60_000) + 2);
        if self.has_log {
            self.logged_ms = self.logged_ms.max(end_ms);
            (self.unit_ms, self.log_is_older) = (granted_ms, false);
        }
    }

    /// Checks that no lock is granted to another client while it is held.
    fn check_locks(&mut self) {
        for key in KEYS {
            let Some(lease) = self.held.get(key) else { continue };
            if lease.end_ms > self.now_ms {
                let reply = self.ask(&format!("LOCK.ACQUIRE {key} thief TTL 1")).concat();
                assert!(!reply.contains("acquired"), "{key} is held: {reply}");
            }
        }
    }

    fn free_bytes(&self) -> u64 {
        self.disk.free_bytes().expect("a disk")
    }

    fn space_is_low(&self) -> bool {
        let reserve = if self.has_log { RESERVE_BYTES } else { CEILING_RESERVE_BYTES };
        self.free_bytes() < reserve
    }

    /// Fills the disk nearly, or frees space, and lets the server notice it.
    fn fill(&mut self) {
        self.disk.set_space(Some(1 << 40));
        let used = (1 << 40) - self.free_bytes();
        let left = *self.random.pick(&[CEILING_RESERVE_BYTES * 3 / 4, LOG_RESERVE_BYTES + MIB]);
        self.disk.set_space((!self.is_full).then_some(used + left));
        self.server.iter_mut().for_each(SimulatedServer::log_second);
        self.is_full = self.space_is_low();
        self.note(format!("{} bytes are free", self.free_bytes()));
        self.run();
    }

    /// Writes a snapshot, which is given up if it leaves the log too little space.
    fn save(&mut self) {
        if self.guard_left_ms() > 0 || !self.has_log {
            return;
        }
        self.ask("BGSAVE");
        while self.server.as_ref().is_some_and(SimulatedServer::has_snapshot_work) {
            self.server.iter_mut().for_each(|server| server.snapshot_step(2));
            self.run();
        }
        let is_written = self.ask("INFO persistence").concat().contains("bgsave_status:ok");
        assert_eq!(is_written, self.free_bytes() >= LOG_RESERVE_BYTES);
    }

    /// Notes what the guard and the log say before the server ends.
    fn settle(&mut self) {
        let left_ms = self.guard_left_ms();
        self.guard_end_ms = (left_ms > 0).then_some(self.now_ms + left_ms);
        self.lacks_leases = !self.has_log || left_ms > 0;
        self.is_written_only = self.has_log && self.policy != "always";
    }

    fn stop(&mut self) {
        self.settle();
        self.is_written_only = false;
        self.server.iter_mut().for_each(SimulatedServer::stop);
        self.run();
        self.server.iter_mut().for_each(SimulatedServer::end);
        self.server = None;
        self.disk.end_process();
        self.note("stop".to_owned());
    }

    fn kill(&mut self) {
        self.settle();
        self.server = None;
        self.disk.end_process();
        self.note("kill".to_owned());
    }

    /// Crashes the machine, and starts it again with another wall clock.
    fn crash(&mut self) {
        self.server = None;
        let random = &mut self.random;
        self.disk.crash(&mut |bound| random.below(bound));
        if self.is_written_only {
            // The log may end at any time of the past now.
            (self.lacks_leases, self.unit_ms) = (true, 0);
        }
        (self.has_crashed, self.log_is_older) = (true, true);
        self.wall_ahead_ms = if self.random.once_in(4) { -HOUR_MS } else { 0 };
        (self.boots, self.booted_ms) = (self.boots + 1, self.now_ms);
        self.note(format!("crash, wall {}", self.wall_ahead_ms));
    }

    /// How long a guard from now on waits for all leases that are held.
    fn longest_ms(&self) -> i64 {
        let ends = self.held.values().map(|lease| lease.end_ms).chain(self.guard_end_ms);
        ends.max().map_or(0, |end_ms| (end_ms - self.now_ms).max(0))
    }

    fn back_up(&mut self) {
        self.settle();
        let names = self.disk.names().expect("names").into_iter();
        let files = names.filter_map(|name| Some((name.clone(), self.disk.contents(&name)?)));
        self.backup = Some(Backup {
            files: files.collect(),
            held: self.held.clone(),
            guard_least_ms: self.longest_ms(),
            started_ms: self.started_ms,
            unit_ms: self.unit_ms,
            latest_ms: self.latest_ms,
            logged_ms: self.logged_ms,
            is_new: true,
            can_be_used_again: !self.is_raised,
        });
        self.note("back up".to_owned());
    }

    /// Restores the backup to an empty directory. Clients with later leases have ended.
    fn restore(&mut self) {
        self.pass(1_000);
        let wall_seconds = self.wall_seconds();
        let Some(backup) = &mut self.backup else { return };
        if !backup.is_new && (!backup.can_be_used_again || self.wall_ahead_ms != 0) {
            return;
        }
        (backup.is_new, self.is_raised) = (false, true);
        let (copy, disk) = (SimulatedDisk::new(), SimulatedDisk::new());
        backup.files.iter().for_each(|(name, bytes)| copy.set_contents(name, bytes));
        match restore(&copy, &disk, wall_seconds, &mut |_| {}) {
            // Nothing was written yet.
            Err(RestoreError::NoLog) => return,
            restored => restored.map(drop).expect("a log"),
        }
        let was_held = |key: &str, lease: &Lease| {
            backup.held.get(key).is_some_and(|held| held.granted_ms == lease.granted_ms)
        };
        self.held.retain(|key, lease| was_held(key, lease));
        self.guard_least_ms = backup.guard_least_ms;
        self.started_ms = backup.started_ms;
        (self.unit_ms, self.log_is_older) = (backup.unit_ms, true);
        self.latest_ms = self.latest_ms.max(backup.latest_ms);
        self.logged_ms = self.logged_ms.max(backup.logged_ms);
        (self.guard_end_ms, self.disk) = (None, disk);
        self.note("restore".to_owned());
    }

    /// Damages a segment, if there is one, and repairs the log.
    fn repair(&mut self) {
        let names = self.disk.names().expect("names");
        let segments: Vec<_> = names.into_iter().filter(|name| name.ends_with(".log")).collect();
        let Some(segment) = segments.last() else { return };
        let mut bytes = self.disk.contents(segment).expect("a segment");
        let at = self.random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 4;
        self.disk.set_contents(segment, &bytes);
        let planned = Repair::plan(Arc::new(self.disk.clone()), &mut |_| {}).expect("a log");
        let kept = planned.carry_out(self.wall_seconds()).expect("a repair");
        self.guard_least_ms = self.longest_ms();
        (self.backup, self.is_raised) = (None, true);
        (self.unit_ms, self.log_is_older) = (0, true);
        self.note(format!("repair {kept:?}"));
    }

    fn end_guard(&mut self) {
        if self.guard_left_ms() > 0 {
            assert_eq!(self.ask("LOCKWHEEL GUARD END"), ["+OK"]);
            self.held.clear();
            self.settle();
            assert_eq!(self.guard_end_ms, None);
            self.latest_ms = if self.has_log { self.logged_ms } else { 0 };
        }
    }

    fn set_policy(&mut self) -> String {
        self.policy = *self.random.pick(&["always", "everysec", "no"]);
        format!("CONFIG SET appendfsync {};", self.policy)
    }

    fn step_up(&mut self) {
        match self.random.below(20) {
            16 => self.renew(),
            17 | 18 => self.fill(),
            19 => self.save(),
            0..5 => self.acquire(""),
            5 => {
                let change = self.set_policy();
                self.acquire(&change);
            }
            6 => {
                let change = self.set_policy();
                self.ask(change.trim_end_matches(';'));
            }
            7 => self.server.iter_mut().for_each(SimulatedServer::log_second),
            8 => {
                let span_ms = *self.random.pick(&[1, 900, 12_000]);
                self.pass(span_ms);
            }
            9 => {
                let left_ms = self.guard_left_ms();
                self.pass(left_ms);
                self.check_locks();
            }
            10 if self.random.once_in(2) => self.end_guard(),
            11 if self.has_log => self.back_up(),
            12 => self.stop(),
            13 => {
                self.settle();
                self.crash();
            }
            _ => self.kill(),
        }
    }

    fn step(&mut self) {
        if self.server.is_some() {
            self.step_up();
            return;
        }
        let span_ms = *self.random.pick(&[0, 0, 700, 8_000]);
        self.pass(span_ms);
        match self.random.below(12) {
            0 => self.crash(),
            1 => self.repair(),
            2..4 => self.restore(),
            _ => {}
        }
        self.start();
        self.check_locks();
    }
}

#[test]
fn locks_are_there_after_a_start_or_the_guard_waits_for_them() {
    for seed in 1..=SEQUENCES {
        let mut machine = Machine::new(seed);
        let steps = AssertUnwindSafe(|| (0..STEPS).for_each(|_| machine.step()));
        if catch_unwind(steps).is_err() {
            panic!("seed {seed}:\n{}", machine.story.join("\n"));
        }
    }
}
