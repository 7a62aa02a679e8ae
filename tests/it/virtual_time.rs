//! The same workload in real time and in virtual time has the same history: what clients are
//! answered, what subscribers hear, and between which moments leases and waits end.
//!
//! No machine can be slow enough to break this. Clients act at moments of a grid; everything that
//! ends by itself does so between two of them, and no two things in the same place. A clock that
//! stands is moved from one such moment to the next at once. Where it runs by itself, a moment has
//! come when a wait that lasts until then is over on the server, so all that was due before is
//! done. After each moment the server's clock is asked: if it shows more than the grid forgives,
//! the order of things may be another one, the run is not judged and there is another on a wider
//! grid.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use lockwheel::Server;
use lockwheel_compat::frame::Frame;
use lockwheel_compat::wire::Wire as Connection;
use lockwheel_tests::process::eventually;
use lockwheel_tests::say;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, COMPARE_AND_RENEW, LOCK_3, UNLOCK_3};
use lockwheel_tests::wire::Wire;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const CLIENTS: usize = 4;
const WORKLOADS: u32 = 10;

/// How often clients act. Between two such moments lie eight units.
const SLOTS: u32 = 12;
const SLOT: u32 = 8;
/// By then every pause is over.
const END: u32 = (SLOTS + 4) * SLOT;
/// Where within a slot everything has its place: what ends by itself, ...
const LEASE_ENDS: u32 = 4;
/// ... a pause, ...
const PAUSE_ENDS: u32 = 2;
/// ... and the moment at which whom it held is looked after. Whatever they are given ends with
/// `PAUSE_ENDS + LEASE_ENDS`.
const PAUSE_HAS_ENDED: u32 = 3;

/// A unit is how late the machine may be. It doubles each time that was not enough.
const UNIT_MS: u32 = 6;
const UNIT_MS_MAX: u32 = 96;
/// What the server rounds.
const ROUNDING_MS: u64 = 2;

/// No further workload is begun when as much real time may have passed.
const BUDGET: Duration = Duration::from_secs(9);
/// Nor is one tried again by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// Real time, and three times as fast.
const RATES: [u32; 2] = [1, 3];

/// How soon a look for a reply is over.
const GLANCE: Duration = Duration::from_millis(1);

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
    /// `PEXPIRE`, whosoever it is.
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
    /// ... and not any more.
    Unlisten,
    /// `CLIENT PAUSE ... WRITE`
    Pause,
}

/// What a client does, and when. `lasts` is how long the lease, the wait or the pause is that comes
/// of it. In units.
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

/// What clients do, in the order of time.
fn workload() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..SLOTS, 0..CLIENTS, action(), 0..6_u32);
    let pause = (0..SLOTS, 0..CLIENTS, 1..4_u32);
    let drawn = (prop::collection::vec(step, 4..40), prop::option::of(pause));
    drawn.prop_map(|(mut steps, pause)| {
        steps.extend(pause.map(|(slot, client, slots)| (slot, client, Action::Pause, slots)));
        // A pause comes before what it may hold.
        steps.sort_by_key(|&(slot, _, action, _)| (slot, action != Action::Pause));
        let paused = pause.map(|(slot, _, slots)| (slot, slot + slots));
        plan(&steps, paused)
    })
}

/// Gives everything that ends by itself a place of its own to end in.
fn plan(drawn: &[(u32, usize, Action, u32)], paused: Option<(u32, u32)>) -> Vec<Step> {
    let mut taken = BTreeSet::new();
    let step = |&(slot, client, action, slots): &(u32, usize, Action, u32)| {
        let at = slot * SLOT;
        if action == Action::Pause {
            return Step { at, client, action, lasts: slots * SLOT + PAUSE_ENDS };
        }
        // It begins at once, or when the pause is over.
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

/// When clients act; between two such moments, much may end.
fn acts(steps: &[Step]) -> BTreeSet<u32> {
    steps.iter().map(|step| step.at).chain([END]).collect()
}

/// When whom a pause has held has to be served in time, if nobody moves the clock.
fn ends_of_pauses(steps: &[Step]) -> BTreeSet<u32> {
    let pauses = steps.iter().filter(|step| step.action == Action::Pause);
    pauses.map(|step| step.at + step.lasts - PAUSE_ENDS + PAUSE_HAS_ENDED).collect()
}

/// How a workload's time passes.
#[derive(Clone, Copy, Debug)]
enum Clock {
    /// The test moves it.
    Moved,
    /// It runs so fast by itself.
    Runs(u32),
}

struct Worker {
    name: String,
    wire: Connection,
    /// What it has no reply to yet.
    pending: Option<Action>,
    listens: bool,
    /// What it has been sent and nobody has written down.
    seen: Vec<String>,
}

/// A server, its clients, and what they have seen.
struct Stage {
    server: Server,
    clock: Clock,
    /// How many milliseconds of the server's clock a unit has.
    unit_ms: u32,
    begin: SystemTime,
    control: Connection,
    watcher: Connection,
    workers: Vec<Worker>,
    /// What the watcher has been sent and nobody has written down.
    seen: Vec<String>,
    history: Vec<String>,
}

/// The machine was later than the grid forgives.
struct Late;

impl Stage {
    fn new(clock: Clock, unit_ms: u32) -> Stage {
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
        Stage { server, clock, unit_ms, begin, control, watcher, workers, seen, history }
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

    /// Writes down what each has seen since the chapter before. Which of two clients has seen
    /// something first, nobody can tell.
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

    /// Returns when everything is done that is due before a moment.
    fn reach(&mut self, at: u32) {
        let moment = self.moment(at);
        match self.clock {
            Clock::Moved => self.server.clock().set(moment).expect("a server"),
            Clock::Runs(_) => {
                // What is due ends in the order of time, and this wait with it.
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
            // Confirmed by a push alone, which is heard as others are.
            Action::Listen | Action::Unlisten => worker.listens = true,
            action => worker.pending = Some(action),
        }
    }

    /// Waits until every client has its answer or is known to wait, and hears what is new.
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
    /// Takes the reply, and what came before it, if it is there.
    fn look_for_reply(&mut self, slot_ms: u32) {
        while let Some(action) = self.pending {
            let Some(frame) = self.wire.read_within(GLANCE).expect("a reply") else { return };
            self.seen.push(shown(&frame, action, slot_ms));
            if frame.kind != b'>' {
                self.pending = None;
            }
        }
    }
}

/// A reply. What is left of a lease is told in slots: there it does not matter when exactly within
/// its unit something was done.
fn shown(frame: &Frame, action: Action, slot_ms: u32) -> String {
    let left = String::from_utf8_lossy(&frame.text).parse::<u32>().ok();
    match (action, frame.kind, left) {
        (Action::Lock | Action::Look(_), b':', Some(left_ms)) => {
            format!(":{} slots", left_ms / slot_ms)
        }
        _ => frame.notation(),
    }
}

/// Everything that a subscriber has been sent.
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

/// The names of the clients whose requests wait for something.
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

/// What has been tried so far.
struct Trials {
    unit_ms: Cell<u32>,
    judged: Cell<u32>,
    /// Real time, as planned.
    spent: Cell<Duration>,
}

impl Trials {
    /// The histories on clocks that run by themselves, all of them from a run that was in time.
    fn by_themselves(&self, steps: &[Step]) -> Result<Vec<Vec<String>>, TestCaseError> {
        loop {
            let unit_ms = self.unit_ms.get();
            let runs = thread::scope(|scope| {
                let run = |rate| move || Stage::new(Clock::Runs(rate), unit_ms * rate).play(steps);
                let runs = RATES.map(|rate| scope.spawn(run(rate)));
                runs.map(|run| run.join().expect("it returns")).into_iter().collect()
            });
            let length_ms = END * unit_ms;
            self.spent.set(self.spent.get() + Duration::from_millis(length_ms.into()));
            match runs {
                Ok(histories) => return Ok(histories),
                Err(Late) if self.spent.get() < PATIENCE => {
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
        let Ok(moved) = Stage::new(Clock::Moved, UNIT_MS).play(steps) else {
            return Err(TestCaseError::fail("a clock that stands has run"));
        };
        for (rate, history) in RATES.iter().zip(self.by_themselves(steps)?) {
            let (history, moved) = (history.join("\n"), moved.join("\n"));
            let same = history == moved;
            prop_assert!(same, "run {rate} times as fast:\n{history}\nmoved:\n{moved}");
        }
        self.judged.set(self.judged.get() + 1);
        Ok(())
    }
}

#[test]
fn time_that_is_moved_is_like_time_that_passes() {
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
