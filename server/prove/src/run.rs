//! A run: clients load the servers with locks, faults are injected, and the histories are judged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockwheel_compat::Interrupt;
use lockwheel_compat::judge::Rules;
use lockwheel_compat::wire::frame::Frame;

use crate::clock::{self, now_us, wall_us};
use crate::faults::{FaultRun, FaultSource};
use crate::ledger::Ledger;
use crate::load::{Load, PROBE_LOCKS, Shared, key_of, probe_key};
use crate::lock_kind::{LOCK_KINDS, LockKind, REDLOCK};
use crate::monitor::Monitor;
use crate::record::{Change, Fault};
use crate::report::{Report, Totals};
use crate::route::Route;
use crate::target::{Target, Topology};

/// Interval at which requests are taken from the clients, and progress is shown.
const INTERVAL: Duration = Duration::from_millis(100);

/// Requests in memory from which the clients use other locks, whatever the time.
const RECORDS_MAX: usize = 200_000;

/// Longest leases after which the clients use other locks, unless a fault is under way.
const LEASES_IN_EPOCH: i64 = 2;

/// Time after a fault in which its effects are looked for.
const EFFECT_TIME: Duration = Duration::from_secs(2);

/// Changes of servers that are named as effects of a fault.
const EFFECTS_MAX: usize = 6;

/// Longest time for which keys are deleted at the end.
const CLEANUP_TIME_MAX_US: i64 = 20_000_000;

/// Epochs before the end of a run of which locks may still have a lease.
const EPOCHS_WITH_LEASES: u64 = 3;

/// Move of this machine's clock against the time since its start that is reported.
const CLOCK_MOVE_MIN_US: u64 = 100_000;

/// The rate that is safe for servers in production: requests a second of all clients together.
pub const RATE: u32 = 100;

/// What a run does.
pub struct Plan {
    /// The servers.
    pub target: Target,
    /// The kinds of locks; those of the topology if there are none.
    pub kinds: Vec<&'static LockKind>,
    /// Number of clients.
    pub clients: usize,
    /// Requests a second of all clients together.
    pub rate: u32,
    /// Length of the run.
    pub duration: Duration,
    /// Longest lease. A lock can be seen lost in a failover only if its lease outlasts that.
    pub lease: Duration,
    /// Number of locks of each kind at a time.
    pub locks: usize,
    /// Seed of the choices of the clients.
    pub seed: u64,
    /// The source of the faults.
    pub faults: Option<Box<dyn FaultSource>>,
    /// Ends the run early. The report then covers what was done.
    pub interrupt: Interrupt,
}

impl Plan {
    /// A run of a minute without faults, at a rate that is safe for servers in production.
    pub fn new(target: Target) -> Plan {
        Plan {
            target,
            kinds: Vec::new(),
            clients: 8,
            rate: RATE,
            duration: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            locks: 1,
            seed: 1,
            faults: None,
            interrupt: Interrupt::default(),
        }
    }

    /// The kinds of locks that are used: those that were asked for, or all that the servers have.
    ///
    /// # Errors
    /// If the servers do not have one that was asked for; the text names it.
    fn kinds(&self) -> Result<Vec<&'static LockKind>, String> {
        if self.target.topology == Topology::Independent {
            let other = self.kinds.iter().find(|kind| kind.name != REDLOCK.name);
            return match other {
                Some(kind) => {
                    Err(format!("independent servers have no locks of kind {}", kind.name))
                }
                None => Ok(vec![&REDLOCK]),
            };
        }
        let is_lockwheel = self.target.is_lockwheel();
        if !self.kinds.is_empty() {
            let lacking = self.kinds.iter().find(|kind| kind.needs_lockwheel && !is_lockwheel);
            return match lacking {
                Some(kind) => Err(format!("only Lockwheel has locks of kind {}", kind.name)),
                None => Ok(self.kinds.clone()),
            };
        }
        Ok(LOCK_KINDS.iter().filter(|kind| is_lockwheel || !kind.needs_lockwheel).collect())
    }
}

/// Shows how far a run is.
pub trait Progress {
    /// Called several times a second.
    fn update(&mut self, seconds: f64, totals: &Totals, faults: usize);
}

impl Progress for () {
    fn update(&mut self, _: f64, _: &Totals, _: usize) {}
}

/// Runs a plan.
///
/// # Errors
/// If nothing could be judged: the servers cannot be reached or used, or granted no lock. The text
/// says why.
pub fn run(mut plan: Plan, progress: &mut dyn Progress) -> Result<Report, String> {
    let servers = plan.target.servers()?;
    let kinds = plan.kinds()?;
    let faults = plan.faults.take();
    let mut running = Running::start(plan, kinds)?;
    let passed = running.pass(faults, progress);
    running.finish(servers, &passed)
}

/// Faults so far, and whether one is under way.
#[derive(Default)]
struct FaultLog {
    faults: Mutex<Vec<Fault>>,
    problems: Mutex<Vec<String>>,
    is_under_way: AtomicBool,
}

impl FaultLog {
    /// Records why a fault was not injected.
    fn add_problem(&self, problem: &str) {
        let problem = format!("A fault failed: {problem}.");
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }

    fn so_far(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run that has begun.
struct Running {
    plan: Plan,
    run: String,
    shared: Arc<Shared>,
    monitor: Arc<Monitor>,
    load: Load,
    ledger: Ledger,
    log: Arc<FaultLog>,
    started_us: i64,
    started_wall_us: i64,
    /// The source of the faults after the last one. It may own the servers.
    source: Option<Box<dyn FaultSource>>,
}

/// How the load of a run ended.
struct Passed {
    seconds: f64,
    interrupted: bool,
}

impl Running {
    fn start(plan: Plan, kinds: Vec<&'static LockKind>) -> Result<Running, String> {
        let run = getrandom::u32().map_err(|error| format!("no randomness: {error}"))?;
        let run = format!("{run:08x}");
        let target = Arc::new(plan.target.clone());
        let lease_us = i64::try_from(plan.lease.as_micros()).unwrap_or(i64::MAX / 8);
        // A request to independent servers is one to each of them.
        let servers = match target.topology {
            Topology::Independent => target.addresses.len().max(1),
            _ => 1,
        };
        let at_once = plan.clients.max(1).saturating_mul(servers) as i64;
        let interval_us = at_once.saturating_mul(1_000_000) / i64::from(plan.rate.max(1));
        let shared = Arc::new(Shared {
            target: Arc::clone(&target),
            kinds,
            prefix: format!("lockwheel-prove:{run}"),
            seed: plan.seed,
            locks: plan.locks.max(1),
            lease_us,
            interval_us,
            epoch: AtomicU64::new(0),
            ended_connections: AtomicU64::new(0),
            end: Interrupt::default(),
        });
        let (started_us, started_wall_us) = (now_us(), wall_us());
        let monitor = Arc::new(Monitor::start(target));
        let load = Load::start(&shared, plan.clients).map_err(|error| error.to_string())?;
        let (ledger, log) = (Ledger::default(), Arc::default());
        Ok(Running {
            plan,
            run,
            shared,
            monitor,
            load,
            ledger,
            log,
            started_us,
            started_wall_us,
            source: None,
        })
    }

    /// Lets the clients work until the end, and then the faults end.
    fn pass(
        &mut self,
        faults: Option<Box<dyn FaultSource>>,
        progress: &mut dyn Progress,
    ) -> Passed {
        let faults_end = Interrupt::default();
        let injector = faults.and_then(|source| {
            let injector = self.inject(source, faults_end.clone());
            injector.inspect_err(|error| self.log.add_problem(error)).ok()
        });
        let duration_us = i64::try_from(self.plan.duration.as_micros()).unwrap_or(i64::MAX);
        let end_us = self.started_us.saturating_add(duration_us);
        let mut epoch_began_us = self.started_us;
        loop {
            let is_over = now_us() >= end_us || self.plan.interrupt.is_asked();
            if is_over {
                faults_end.ask();
                // The clients go on until the faults have been undone.
                if injector.as_ref().is_none_or(JoinHandle::is_finished) {
                    break;
                }
            }
            clock::sleep(INTERVAL);
            // Read before the requests are taken: those of earlier epochs are then complete.
            let oldest = self.load.oldest_epoch();
            self.ledger.add(self.load.take_records());
            let epoch = self.shared.epoch.load(Ordering::Acquire);
            let is_quiet = !self.log.is_under_way.load(Ordering::Acquire);
            let is_late = now_us() - epoch_began_us > LEASES_IN_EPOCH * self.shared.lease_us;
            let is_large = self.ledger.len() > RECORDS_MAX;
            // While some clients use the locks of the epoch before, the others wait with it:
            // otherwise a lock would be used too briefly for any contention.
            if is_quiet && oldest >= epoch && (is_late || is_large) {
                self.shared.epoch.fetch_add(1, Ordering::AcqRel);
                epoch_began_us = now_us();
            }
            // The effects of a fault are seen some time after it.
            if is_quiet {
                self.judge_before(oldest);
            }
            let faults = self.log.so_far().len();
            progress.update(self.seconds(), &self.ledger.sum(), faults);
        }
        if let Some(injector) = injector {
            match injector.join() {
                Ok(source) => self.source = Some(source),
                Err(_) => self.log.add_problem("the source panicked"),
            }
        }
        Passed { seconds: self.seconds(), interrupted: self.plan.interrupt.is_asked() }
    }

    fn seconds(&self) -> f64 {
        (now_us() - self.started_us) as f64 / 1e6
    }

    /// Injects faults from a thread of its own.
    fn inject(
        &self,
        mut source: Box<dyn FaultSource>,
        end: Interrupt,
    ) -> Result<JoinHandle<Box<dyn FaultSource>>, String> {
        let (log, shared) = (Arc::clone(&self.log), Arc::clone(&self.shared));
        let monitor = Arc::clone(&self.monitor);
        let work = move || {
            let run = FaultRun::new(end);
            let ended = || shared.ended_connections.load(Ordering::Relaxed);
            loop {
                let (waited_us, ended_before) = (now_us(), ended());
                if !source.wait(&run) {
                    break;
                }
                log.is_under_way.store(true, Ordering::Release);
                let ended_at_begin = ended();
                match source.inject(&run) {
                    Ok(mut fault) => {
                        run.pause(EFFECT_TIME);
                        // A fault by hand is reported when it has happened.
                        let is_earlier = fault.begin_us <= waited_us;
                        let begin = if is_earlier { ended_before } else { ended_at_begin };
                        let ended = ended() - begin;
                        fault.effects = effects(ended, &fault, &monitor);
                        log.so_far().push(fault);
                    }
                    Err(problem) => log.add_problem(&problem),
                }
                log.is_under_way.store(false, Ordering::Release);
            }
            source
        };
        let thread = thread::Builder::new().name("faults".to_owned()).spawn(work);
        thread.map_err(|error| error.to_string())
    }

    fn judge_before(&mut self, epoch: u64) {
        if !self.ledger.has_before(epoch) {
            return;
        }
        let kinds = &self.shared.kinds;
        let rules = |name: &str| {
            kinds
                .iter()
                .find(|kind| kind.name == name)
                .map_or(Rules::LOCK, |kind| kind.recipe.rules)
        };
        let faults = self.log.so_far().clone();
        self.ledger.judge_before(epoch, &rules, &self.monitor.observations(), &faults);
    }

    /// Ends the clients, judges the rest, deletes the keys, and reports.
    fn finish(mut self, servers: Vec<String>, passed: &Passed) -> Result<Report, String> {
        self.shared.end.ask();
        let (records, longest_us) = self.load.end()?;
        self.ledger.add(records);
        self.judge_before(u64::MAX);
        let mut warnings = self.delete_keys();
        let observations = self.monitor.observations();
        let totals = self.ledger.sum();
        if totals.granted == 0 {
            let reason = match self.ledger.most_frequent_error() {
                None if passed.interrupted => "it was ended before a lock was granted".to_owned(),
                Some((_, error)) => format!("no lock was granted: {error}"),
                None => "no lock was granted: no request was answered".to_owned(),
            };
            return Err(reason);
        }
        if let Some((count, error)) = self.ledger.most_frequent_error() {
            warnings.push(format!("{count} requests got the error {error}."));
        }
        let moved_us = (wall_us() - self.started_wall_us) - (now_us() - self.started_us);
        if moved_us.unsigned_abs() > CLOCK_MOVE_MIN_US {
            let ms = moved_us / 1000;
            warnings.push(format!("The wall clock of this machine was moved by {ms} ms."));
        }
        warnings.append(&mut self.log.problems.lock().unwrap_or_else(PoisonError::into_inner));
        let faults = self.log.so_far().clone();
        let not_exercised = not_exercised(&faults, &observations);
        let kinds: BTreeMap<_, _> = self.ledger.totals().clone();
        Ok(Report {
            target: self.plan.target.describe(),
            servers,
            run: self.run,
            seed: self.plan.seed,
            started_us: self.started_us,
            started_wall_us: self.started_wall_us,
            seconds: passed.seconds,
            clients: self.plan.clients,
            rate: self.plan.rate,
            lease_ms: u64::try_from(self.plan.lease.as_millis()).unwrap_or(u64::MAX),
            interrupted: passed.interrupted,
            totals,
            kinds: kinds.into_iter().map(|(name, totals)| (name.to_owned(), totals)).collect(),
            longest_without_grant_us: longest_us,
            cases: self.ledger.cases().to_vec(),
            faults,
            observations,
            not_exercised,
            warnings,
        })
    }

    /// Deletes the keys of the run that do not end with a lease soon, at the rate of the run.
    /// Returns a warning if that was not possible.
    fn delete_keys(&self) -> Vec<String> {
        let target = &self.shared.target;
        let parts: Vec<Arc<Target>> = match target.topology {
            Topology::Independent => {
                (0..target.addresses.len()).map(|index| Arc::new(target.part(index))).collect()
            }
            _ => vec![Arc::clone(target)],
        };
        let until_us = now_us() + CLEANUP_TIME_MAX_US;
        let pause = Duration::from_secs(1) / self.plan.rate.max(1);
        for part in parts {
            let mut route = Route::new(part);
            for words in self.deletions() {
                let is_done =
                    |reply: Result<Frame, String>| reply.is_ok_and(|reply| reply.kind != b'-');
                while !is_done(route.call(&words[1], &words).reply) {
                    if now_us() >= until_us {
                        let prefix = &self.shared.prefix;
                        return vec![format!("Not all keys {prefix}:* could be deleted.")];
                    }
                }
                clock::sleep(pause);
            }
        }
        Vec::new()
    }

    /// The commands that delete the keys without a lease, and the locks that may still be held.
    fn deletions(&self) -> Vec<Vec<String>> {
        let Shared { prefix, kinds, locks, epoch, .. } = &*self.shared;
        let last = epoch.load(Ordering::Acquire);
        let mut deletions = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let mut delete = |lock: String, may_be_held: bool| {
                let others = kind.other_keys.iter().map(|suffix| format!("{lock}{suffix}"));
                let keys: Vec<String> = others.chain(may_be_held.then(|| lock.clone())).collect();
                if !keys.is_empty() {
                    deletions.push([vec!["DEL".to_owned()], keys].concat());
                }
            };
            for epoch in 0..=last {
                let is_recent = epoch + EPOCHS_WITH_LEASES > last;
                for number in 0..*locks as u64 {
                    delete(key_of(prefix, kind.name, epoch, number), is_recent);
                }
            }
            // The probe uses the first kind.
            if index == 0 {
                (0..PROBE_LOCKS).for_each(|number| delete(probe_key(prefix, number), true));
            }
        }
        deletions
    }
}

/// What shows that a fault took effect.
fn effects(ended_connections: u64, fault: &Fault, monitor: &Monitor) -> Vec<String> {
    let mut effects = Vec::new();
    match ended_connections {
        0 => {}
        1 => effects.push("1 connection ended".to_owned()),
        count => effects.push(format!("{count} connections ended")),
    }
    let observations = monitor.observations();
    let during: Vec<_> = observations.iter().filter(|it| it.at_us >= fault.begin_us).collect();
    let shown = during.iter().take(EFFECTS_MAX);
    effects.extend(shown.map(|it| format!("{} {}", it.server, it.change)));
    if during.len() > EFFECTS_MAX {
        effects.push(format!("{} more changes", during.len() - EFFECTS_MAX));
    }
    effects
}

/// What the run does not show, since it did not happen.
fn not_exercised(faults: &[Fault], observations: &[crate::record::Observation]) -> Vec<String> {
    let happened = |is_meant: fn(&Change) -> bool| {
        observations.iter().any(|observation| is_meant(&observation.change))
    };
    let mut sentences = Vec::new();
    if faults.is_empty() {
        sentences.push("Faults: none was injected or reported.");
    }
    if !happened(|change| matches!(change, Change::Restarted)) {
        sentences.push("Restarts: no server was seen to start again.");
    }
    if !happened(Change::is_promotion) {
        sentences.push("Failovers: no server was seen to become the primary.");
    }
    if !happened(|change| matches!(change, Change::ClockMoved(_))) {
        sentences.push("Clocks: no clock of a server was seen to move.");
    }
    sentences
        .push("Crashes of machines: what a kernel has buffered survives the end of a process.");
    sentences.push("Partitions between servers: they are not visible from here.");
    sentences.into_iter().map(str::to_owned).collect()
}
