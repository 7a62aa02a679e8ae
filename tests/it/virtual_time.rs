//! The same workload has the same history in real time and in virtual time: the replies, the
//! messages, and between which moments leases and waits end.
//!
//! A slow machine does not break the test. Clients act at moments of a grid; every lease, wait and
//! pause ends between two moments, each at its own place. A stopped clock is moved from one moment
//! to the next. With a running clock, a moment has come when a wait until then has ended on the
//! server, so that all earlier events are done. After each moment the server's clock is read: if it
//! is later than the grid allows, the order of events may differ, so the run is not judged and is
//! repeated on a wider grid.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use lockwheel::Server;
use lockwheel_compat::wire::Wire as Connection;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_tests::process::eventually;
use lockwheel_tests::say;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, COMPARE_AND_RENEW, LOCK_3, UNLOCK_3};
use lockwheel_tests::wire::Wire;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const CLIENTS: usize = 4;
const WORKLOADS: u32 = 10;

/// The number of moments at which clients act. Between two moments lie eight units.
const SLOTS: u32 = 12;
const SLOT: u32 = 8;
/// The time by which every pause has ended.
const END: u32 = (SLOTS + 4) * SLOT;
/// The place within a slot at which leases and waits end.
const LEASE_ENDS: u32 = 4;
/// The place at which a pause ends.
const PAUSE_ENDS: u32 = 2;
/// The place at which the paused clients are served. Their leases end at
/// `PAUSE_ENDS + LEASE_ENDS`.
const PAUSE_HAS_ENDED: u32 = 3;

/// Milliseconds of a unit, the allowed delay of the machine. It doubles each time the machine is
/// later.
const UNIT_MS: u32 = 6;
const UNIT_MS_MAX: u32 = 384;
/// The rounding of the server.
const ROUNDING_MS: u64 = 2;

/// Real time after which no further workload begins.
const BUDGET: Duration = Duration::from_secs(9);
/// Real time after which no workload is repeated.
const RETRY_BUDGET: Duration = Duration::from_secs(180);

/// Real time, and three times as fast.
const RATES: [u32; 2] = [1, 3];

/// The time-out of a check for a reply.
const REPLY_CHECK: Duration = Duration::from_millis(1);

const EXPIRED: &str = "__keyevent@0__:expired";
const UNLOCKED: &str = "redisson_lock__channel:{hash}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// `SET NX PX`
    Take(&'static str),
    /// Compare and delete.
    Release(&'static str),
    /// Compare and renew.
    Renew(&'static str),
    /// `PEXPIRE` without a check of the owner.
    Prolong(&'static str),
    /// Redisson's lock, ...
    Lock,
    /// ... and its unlock.
    Unlock,
    /// `BLPOP`
    Pop,
    Push,
    /// `PTTL`
    Look(&'static str),
    /// `SUBSCRIBE` to the ends of leases, ...
    Listen,
    /// ... and `UNSUBSCRIBE`.
    Unlisten,
    /// `CLIENT PAUSE ... WRITE`
    Pause,
}

/// An action of a client and its time. `lasts` is the length of the lease, wait or pause, in units.
#[derive(Clone, Debug)]
struct Step {
    at: u32,
    client: usize,
    action: Action,
    lasts: u32,
}

fn action() -> impl Strategy<Value = Action> {
    let key = || prop_oneof![Just("a"), Just("b")];
    prop_oneof![
        4 => key().prop_map(Action::Take),
        2 => key().prop_map(Action::Release),
        1 => key().prop_map(Action::Renew),
        1 => key().prop_map(Action::Prolong),
        3 => Just(Action::Lock),
        2 => Just(Action::Unlock),
        3 => Just(Action::Pop),
        2 => Just(Action::Push),
        1 => prop_oneof![key(), Just("hash")].prop_map(Action::Look),
        1 => Just(Action::Listen),
        1 => Just(Action::Unlisten),
    ]
}

/// The actions of all clients, in the order of time.
fn workload() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..SLOTS, 0..CLIENTS, action(), 0..6_u32);
    let pause = (0..SLOTS, 0..CLIENTS, 1..4_u32);
    let drawn = (prop::collection::vec(step, 4..40), prop::option::of(pause));
    drawn.prop_map(|(mut steps, pause)| {
        steps.extend(pause.map(|(slot, client, slots)| (slot, client, Action::Pause, slots)));
        // A pause comes before the requests that it may hold.
        steps.sort_by_key(|&(slot, _, action, _)| (slot, action != Action::Pause));
        let paused = pause.map(|(slot, _, slots)| (slot, slot + slots));
        plan(&steps, paused)
    })
}

/// Gives every lease, wait and pause its own place to end.
fn plan(drawn: &[(u32, usize, Action, u32)], paused: Option<(u32, u32)>) -> Vec<Step> {
    let mut taken = BTreeSet::new();
    let step = |&(slot, client, action, slots): &(u32, usize, Action, u32)| {
        let at = slot * SLOT;
        if action == Action::Pause {
            return Step { at, client, action, lasts: slots * SLOT + PAUSE_ENDS };
        }
        // The lease begins at once, or when the pause ends.
        let held = paused.filter(|(from, to)| (from..=to).contains(&&slot));
        let mut begins = vec![at];
        begins.extend(held.map(|(_, to)| to * SLOT + PAUSE_ENDS));
        let mut lasts = slots * SLOT + LEASE_ENDS;
        while begins.iter().any(|begin| taken.contains(&(begin + lasts))) {
            lasts += SLOT;
        }
        taken.extend(begins.iter().map(|begin| begin + lasts));
        Step { at, client, action, lasts }
    };
    drawn.iter().map(step).collect()
}

/// The moments at which clients act.
fn acts(steps: &[Step]) -> BTreeSet<u32> {
    steps.iter().map(|step| step.at).chain([END]).collect()
}

/// The moments at which paused clients must be served in time if the clock runs.
fn ends_of_pauses(steps: &[Step]) -> BTreeSet<u32> {
    let pauses = steps.iter().filter(|step| step.action == Action::Pause);
    pauses.map(|step| step.at + step.lasts - PAUSE_ENDS + PAUSE_HAS_ENDED).collect()
}

/// How time passes.
#[derive(Clone, Copy, Debug)]
enum Clock {
    /// The test moves it.
    Moved,
    /// It runs at this rate.
    Runs(u32),
}

struct Worker {
    name: String,
    wire: Connection,
    /// The action without a reply so far.
    pending: Option<Action>,
    listens: bool,
    /// Received messages that are not yet in the history.
    seen: Vec<String>,
}

/// A server, its clients, and the history.
struct TimedRun {
    server: Server,
    clock: Clock,
    /// The length of a unit in milliseconds of the server's clock.
    unit_ms: u32,
    begin: SystemTime,
    control: Connection,
    watcher: Connection,
    workers: Vec<Worker>,
    /// Received messages of the watcher that are not yet in the history.
    seen: Vec<String>,
    history: Vec<String>,
}

/// The error of a machine that was later than the grid allows.
struct Late;

impl TimedRun {
    fn new(clock: Clock, unit_ms: u32) -> TimedRun {
        let builder = Server::builder().seed(1).config("notify-keyspace-events", "EA");
        let server = match clock {
            Clock::Moved => builder.frozen_clock(),
            Clock::Runs(_) => builder,
        };
        let server = server.start().expect("a server");
        if let Clock::Runs(rate) = clock {
            server.clock().run_at(rate.into()).expect("a server");
        }
        let connect = || Connection::from(Wire::connect(server.addr(), 3));
        let worker = |n| {
            let mut wire = connect();
            let name = format!("w{n}");
            wire.call(&["CLIENT", "SETNAME", &name]).expect("a reply");
            Worker { name, wire, pending: None, listens: false, seen: Vec::new() }
        };
        let workers = (0..CLIENTS).map(worker).collect();
        let (control, mut watcher) = (connect(), connect());
        for subscribe in [["PSUBSCRIBE", "__keyevent@0__:*"], ["SUBSCRIBE", UNLOCKED]] {
            watcher.call(&subscribe).expect("a subscription");
        }
        let (begin, seen, history) = (server.clock().now(), Vec::new(), Vec::new());
        TimedRun { server, clock, unit_ms, begin, control, watcher, workers, seen, history }
    }

    fn play(mut self, steps: &[Step]) -> Result<Vec<String>, Late> {
        let (acts, ends) = (acts(steps), ends_of_pauses(steps));
        for &at in acts.union(&ends) {
            if acts.contains(&at) || !matches!(self.clock, Clock::Moved) {
                self.reach(at);
                self.settle();
            }
            for step in steps.iter().filter(|step| step.at == at) {
                self.begin_chapter(&format!("{at}: {} {:?}", step.client, step.action));
                self.act(step);
                self.settle();
            }
            if acts.contains(&at) {
                self.begin_chapter(&format!("after {at}"));
            }
            self.ensure_in_time(at)?;
        }
        self.begin_chapter("the end");
        Ok(self.history)
    }

    /// Adds the replies and messages since the last chapter to the history, client by client, since
    /// the order between clients is not defined.
    fn begin_chapter(&mut self, title: &str) {
        for worker in &mut self.workers {
            let seen = worker.seen.drain(..).map(|seen| format!("{}: {seen}", worker.name));
            self.history.extend(seen);
        }
        self.history.extend(self.seen.drain(..).map(|seen| format!("all: {seen}")));
        self.history.push(title.to_owned());
    }

    fn moment(&self, at: u32) -> SystemTime {
        self.begin + Duration::from_millis((at * self.unit_ms).into())
    }

    /// Waits until every event that is due before a moment is done.
    fn reach(&mut self, at: u32) {
        let moment = self.moment(at);
        match self.clock {
            Clock::Moved => self.server.clock().set(moment).expect("a server"),
            Clock::Runs(_) => {
                // Events end in the order of time, and so does this wait.
                let left = moment.duration_since(self.server.clock().now()).unwrap_or_default();
                let left_ms = left.as_millis().max(1).to_string();
                self.control.call(&["WAIT", "1", &left_ms]).expect("a reply");
            }
        }
    }

    fn ensure_in_time(&self, at: u32) -> Result<(), Late> {
        let latest = self.moment(at + 1) - Duration::from_millis(ROUNDING_MS);
        if self.server.clock().now() < latest { Ok(()) } else { Err(Late) }
    }

    fn act(&mut self, step: &Step) {
        let worker = &mut self.workers[step.client];
        if worker.pending.is_some() {
            return;
        }
        let words = words(step.action, &worker.name, step.lasts * self.unit_ms);
        worker.wire.send(&words).expect("a request is sent");
        match step.action {
            // Confirmed only by a push, which is read like others.
            Action::Listen | Action::Unlisten => worker.listens = true,
            action => worker.pending = Some(action),
        }
    }

    /// Waits until every client has its reply or is blocked, and reads new messages.
    fn settle(&mut self) {
        let slot_ms = SLOT * self.unit_ms;
        let (control, workers) = (&mut self.control, &mut self.workers);
        eventually("every client to be answered or to wait", || {
            if workers.iter().all(|worker| worker.pending.is_none()) {
                return true;
            }
            let waiting = waiting(control);
            let is_still = |worker: &Worker| waiting.contains(&worker.name);
            for worker in workers.iter_mut().filter(|worker| !is_still(worker)) {
                worker.look_for_reply(slot_ms);
            }
            workers.iter().all(|worker| worker.pending.is_none() || is_still(worker))
        });
        for worker in workers.iter_mut().filter(|it| it.listens && it.pending.is_none()) {
            worker.seen.extend(pushes(&mut worker.wire));
        }
        self.seen.extend(pushes(&mut self.watcher));
    }
}

impl Worker {
    /// Reads the reply and the messages before it, if they have arrived.
    fn look_for_reply(&mut self, slot_ms: u32) {
        while let Some(action) = self.pending {
            let Some(frame) = self.wire.read_within(REPLY_CHECK).expect("a reply") else { return };
            self.seen.push(shown(&frame, action, slot_ms));
            if frame.kind != b'>' {
                self.pending = None;
            }
        }
    }
}

/// A reply. The remaining time of a lease is shown in slots, so that the exact time within a unit
/// does not matter.
fn shown(frame: &Frame, action: Action, slot_ms: u32) -> String {
    let left = String::from_utf8_lossy(&frame.text).parse::<u32>().ok();
    match (action, frame.kind, left) {
        (Action::Lock | Action::Look(_), b':', Some(left_ms)) => {
            format!(":{} slots", left_ms / slot_ms)
        }
        _ => frame.notation(),
    }
}

/// All messages that a subscriber has received.
fn pushes(wire: &mut Connection) -> Vec<String> {
    wire.send(&["PING"]).expect("a request is sent");
    let mut pushes = Vec::new();
    loop {
        let frame = wire.read().expect("a reply");
        if frame.kind != b'>' {
            return pushes;
        }
        pushes.push(frame.notation());
    }
}

/// The names of the blocked clients.
fn waiting(control: &mut Connection) -> BTreeSet<String> {
    let list = control.call(&["CLIENT", "LIST"]).expect("a reply");
    let list = String::from_utf8_lossy(&list.text).into_owned();
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| Some(field.strip_prefix(name)?.to_owned()))
    };
    let waits = |line: &&str| field(line, "flags=").is_some_and(|flags| flags.contains('b'));
    list.lines().filter(waits).filter_map(|line| field(line, "name=")).collect()
}

fn words(action: Action, token: &str, lasts_ms: u32) -> Vec<String> {
    let span = lasts_ms.to_string();
    let words = match action {
        Action::Take(key) => vec!["SET", key, token, "NX", "PX", &span],
        Action::Release(key) => vec!["EVAL", COMPARE_AND_DELETE, "1", key, token],
        Action::Renew(key) => vec!["EVAL", COMPARE_AND_RENEW, "1", key, token, &span],
        Action::Prolong(key) => vec!["PEXPIRE", key, &span],
        Action::Lock => vec!["EVAL", LOCK_3, "1", "hash", &span, token],
        Action::Unlock => vec!["EVAL", UNLOCK_3, "2", "hash", UNLOCKED, "0", &span, token],
        Action::Pop => {
            let seconds = format!("{}.{:03}", lasts_ms / 1000, lasts_ms % 1000);
            return ["BLPOP", "queue", &seconds].map(str::to_owned).to_vec();
        }
        Action::Push => vec!["RPUSH", "queue", token],
        Action::Look(key) => vec!["PTTL", key],
        Action::Listen => vec!["SUBSCRIBE", EXPIRED],
        Action::Unlisten => vec!["UNSUBSCRIBE", EXPIRED],
        Action::Pause => vec!["CLIENT", "PAUSE", &span, "WRITE"],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// The state over all workloads.
struct Trials {
    unit_ms: Cell<u32>,
    judged: Cell<u32>,
    /// The real time spent, as planned.
    spent: Cell<Duration>,
}

impl Trials {
    /// The histories on running clocks, each from a run that was in time.
    fn on_running_clocks(&self, steps: &[Step]) -> Result<Vec<Vec<String>>, TestCaseError> {
        loop {
            let unit_ms = self.unit_ms.get();
            let runs = thread::scope(|scope| {
                let run =
                    |rate| move || TimedRun::new(Clock::Runs(rate), unit_ms * rate).play(steps);
                let runs = RATES.map(|rate| scope.spawn(run(rate)));
                runs.map(|run| run.join().expect("it returns")).into_iter().collect()
            });
            let length_ms = END * unit_ms;
            self.spent.set(self.spent.get() + Duration::from_millis(length_ms.into()));
            match runs {
                Ok(histories) => return Ok(histories),
                Err(Late) if self.spent.get() < RETRY_BUDGET => {
                    say(&format!("not judged: the machine was late by {unit_ms} ms or more"));
                    self.unit_ms.set(UNIT_MS_MAX.min(unit_ms * 2));
                }
                Err(Late) => {
                    let problem = format!("the machine is always late by {unit_ms} ms or more");
                    return Err(TestCaseError::fail(problem));
                }
            }
        }
    }

    fn judge(&self, steps: &[Step]) -> Result<(), TestCaseError> {
        if self.judged.get() > 0 && self.spent.get() > BUDGET {
            return Ok(());
        }
        let Ok(moved) = TimedRun::new(Clock::Moved, UNIT_MS).play(steps) else {
            return Err(TestCaseError::fail("a stopped clock has run"));
        };
        for (rate, history) in RATES.iter().zip(self.on_running_clocks(steps)?) {
            let (history, moved) = (history.join("\n"), moved.join("\n"));
            let same = history == moved;
            prop_assert!(same, "run {rate} times as fast:\n{history}\nmoved:\n{moved}");
        }
        self.judged.set(self.judged.get() + 1);
        Ok(())
    }
}

#[test]
fn moved_clock_gives_the_same_history_as_real_time() {
    let config =
        ProptestConfig { cases: WORKLOADS, failure_persistence: None, ..ProptestConfig::default() };
    let trials = Trials {
        unit_ms: Cell::new(UNIT_MS),
        judged: Cell::new(0),
        spent: Cell::new(Duration::ZERO),
    };
    let outcome = TestRunner::new(config).run(&workload(), |steps| trials.judge(&steps));
    outcome.unwrap_or_else(|problem| panic!("{problem}"));
    say(&format!("{} workloads were judged", trials.judged.get()));
}
