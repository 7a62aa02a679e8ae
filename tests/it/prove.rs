//! `lockwheel prove` names wrong servers and wrong recipes correctly, and never accuses a correct
//! server.
//!
//! The wrong servers are the rows of `WRONG`, each with the finding and the cause that its report
//! must give. A run lasts until the finding is there, so that its length does not decide.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lockwheel::{Builder, Reply, Server};
use lockwheel_compat::Interrupt;
use lockwheel_compat::judge::history::{Action, Answer};
use lockwheel_compat::recipes::{self, Recipe};
use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Address;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_prove::clock::now_us;
use lockwheel_prove::faults::{FaultRun, FaultSource};
use lockwheel_prove::report::Totals;
use lockwheel_prove::{
    Cause, Fault, Format, LOCK_KINDS, LockKind, Plan, Progress, REDLOCK, Report, Target, Topology,
    run,
};
use lockwheel_tests::call;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::redis_server::{RedisServer, free_port};
use lockwheel_tests::wrong::{Pair, Proxy, handlers};

/// The longest lease of most runs.
const LEASE: Duration = Duration::from_millis(400);
/// A run that has not found what it must find ends after this time: the test fails.
const FIND_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a correct server is judged at least.
const CORRECT_SECONDS_MIN: f64 = 3.0;
/// Time before a fault.
const BEFORE_FAULT: Duration = Duration::from_millis(500);
/// The writes that a replica lacks.
const REPLICATION_LAG: Duration = Duration::from_millis(200);
/// The longest lease on a server that is started again: longer than that takes.
const RESTARTED_LEASE: Duration = Duration::from_secs(2);
/// How long a server is frozen: longer than the leases.
const FREEZE: Duration = Duration::from_secs(3);
/// The number of findings that end a run.
const FOUND_MIN: u64 = 3;
/// The number of grants after which each of the kinds of locks has certainly been used.
const GRANTED_MIN: u64 = 150;
/// The number of runs at a time. They mostly wait.
const AT_A_TIME: usize = 7;

/// A name, and how to start what it names.
type Row<T> = (&'static str, fn() -> T);

/// A run against a wrong server, and what its report must say.
struct Wrong {
    plan: Plan,
    /// What must be found.
    count: fn(&Totals) -> u64,
    /// The cause that must be named.
    cause: Cause,
    /// Other causes that are true, too.
    also: &'static [Cause],
    /// What the run needs until its end.
    _servers: Box<dyn Any + Send>,
}

/// The wrong servers and recipes.
const WRONG: &[Row<Wrong>] = &[
    ("a promoted replica lacks the last writes", promoted_replica),
    ("a former primary goes on answering", former_primary),
    ("a server is started again without its data", restarted_empty),
    ("the clock of a server is moved", moved_clock),
    ("a server ends leases early", short_leases),
    ("a server forgets NX", without_nx),
    ("a recipe releases without a check of the token", unchecked_release),
    ("fencing tokens begin again after a restart", tokens_again),
    ("two of three servers of a Redlock start again without data", redlock_restarts),
    ("a server releases a lock for a client that does not hold it", release_for_others),
    ("a server renews a lock for a client that does not hold it", renewal_for_others),
    ("a server drops keys", dropped_keys),
    ("a server drops a lock when one reader releases it", lost_readers),
    ("a server drops a lock when one of two holds is released", lost_hold),
];

/// Does something to the servers, again and again.
struct Repeated<F> {
    name: &'static str,
    times: usize,
    act: F,
}

impl<F: FnMut() + Send> FaultSource for Repeated<F> {
    fn wait(&mut self, run: &FaultRun) -> bool {
        self.times > 0 && run.pause(BEFORE_FAULT)
    }

    fn inject(&mut self, _: &FaultRun) -> Result<Fault, String> {
        self.times -= 1;
        let begin_us = now_us();
        (self.act)();
        let name = self.name.to_owned();
        Ok(Fault { name, begin_us, end_us: now_us(), effects: Vec::new() })
    }
}

fn repeated(
    name: &'static str,
    times: usize,
    act: impl FnMut() + Send + 'static,
) -> Option<Box<dyn FaultSource>> {
    Some(Box::new(Repeated { name, times, act }))
}

/// Ends a run when it has found enough.
struct UntilFound {
    count: fn(&Totals) -> u64,
    interrupt: Interrupt,
}

impl Progress for UntilFound {
    fn update(&mut self, _: f64, totals: &Totals, _: usize) {
        if (self.count)(totals) >= FOUND_MIN {
            self.interrupt.ask();
        }
    }
}

/// Ends a run after this number of grants.
struct UntilGranted(u64, Interrupt);

impl Progress for UntilGranted {
    fn update(&mut self, _: f64, totals: &Totals, _: usize) {
        if totals.granted >= self.0 {
            self.1.ask();
        }
    }
}

/// Ends a run after this number of faults, but not before [`CORRECT_SECONDS_MIN`] and a grant.
struct UntilJudged(usize, Interrupt);

impl Progress for UntilJudged {
    fn update(&mut self, seconds: f64, totals: &Totals, faults: usize) {
        if seconds >= CORRECT_SECONDS_MIN && faults >= self.0 && totals.granted > 0 {
            self.1.ask();
        }
    }
}

/// Ends a run when it has used several locks of a kind that has one at a time.
struct UntilReplaced(Arc<Mutex<BTreeSet<String>>>, Interrupt);

impl Progress for UntilReplaced {
    fn update(&mut self, _: f64, _: &Totals, _: usize) {
        if self.0.lock().expect("a set").len() > 2 {
            self.1.ask();
        }
    }
}

fn plan(addresses: &[SocketAddr], topology: Topology, kinds: &[&str]) -> Plan {
    let parse = |address: &SocketAddr| Address::parse(&address.to_string()).expect("an address");
    let addresses = addresses.iter().map(parse).collect();
    let reply_timeout = Duration::from_secs(2);
    let target = Target { addresses, topology, reply_timeout, sentinel_password: None };
    let kinds = kinds.iter().map(|name| kind(name)).collect();
    let (clients, rate, locks) = (8, 1200, 2);
    Plan { kinds, clients, rate, locks, lease: LEASE, ..Plan::new(target) }
}

fn kind(name: &str) -> &'static LockKind {
    LOCK_KINDS.iter().find(|kind| kind.name == name).expect("a kind of locks")
}

fn granted_twice(totals: &Totals) -> u64 {
    totals.granted_twice
}

fn lost_early(totals: &Totals) -> u64 {
    totals.lost_early
}

fn used_by_others(totals: &Totals) -> u64 {
    totals.used_by_others
}

fn wrong_tokens(totals: &Totals) -> u64 {
    totals.wrong_tokens
}

fn start() -> Server {
    Server::start().expect("a server")
}

/// A server of which the proxy makes a wrong one.
fn behind(
    handler: impl Fn(&[String], &mut Wire) -> io::Result<Frame> + Send + Sync + 'static,
    kinds: &[&str],
    count: fn(&Totals) -> u64,
) -> Wrong {
    let server = start();
    let proxy = Proxy::start(server.addr(), handler);
    let plan = plan(&[proxy.addr()], Topology::Single, kinds);
    Wrong { plan, count, cause: Cause::Unknown, also: &[], _servers: Box::new((proxy, server)) }
}

fn promoted_replica() -> Wrong {
    let pair = Arc::new(Pair::start());
    let kinds = ["set-nx", "redis-py", "redisson"];
    let mut plan =
        plan(&[pair.sentinel().addr()], Topology::Sentinel("mymaster".to_owned()), &kinds);
    let failing = Arc::clone(&pair);
    plan.faults = repeated("failover", usize::MAX, move || {
        failing.stop_copies();
        time::sleep(REPLICATION_LAG);
        failing.fail_over(false);
        time::sleep(LEASE);
        failing.rejoin();
    });
    let (count, cause) = (granted_twice as _, Cause::PromotedReplica);
    // The monitor of a run can see a promotion before a client has noted an earlier reply, or late.
    let also = &[Cause::OldPrimary, Cause::Unknown];
    Wrong { plan, count, cause, also, _servers: Box::new(pair) }
}

fn former_primary() -> Wrong {
    let pair = Arc::new(Pair::start());
    let kinds = ["set-nx", "redisson"];
    let mut plan =
        plan(&[pair.sentinel().addr()], Topology::Sentinel("mymaster".to_owned()), &kinds);
    let failing = Arc::clone(&pair);
    plan.faults = repeated("failover", usize::MAX, move || {
        failing.fail_over(true);
        time::sleep(2 * LEASE);
        failing.rejoin();
    });
    let (count, cause) = (granted_twice as _, Cause::OldPrimary);
    // A client that had left it before the promotion was seen, or one that was seen late.
    let also = &[Cause::PromotedReplica, Cause::Unknown];
    Wrong { plan, count, cause, also, _servers: Box::new(pair) }
}

fn restarted_empty() -> Wrong {
    let server = Arc::new(Mutex::new(start()));
    let address = server.lock().expect("a server").addr();
    let mut plan = plan(&[address], Topology::Single, &["set-nx", "redisson", "native"]);
    let failing = Arc::clone(&server);
    plan.faults = repeated("restart", usize::MAX, move || restart(&failing));
    let (count, cause) = (granted_twice as _, Cause::RestartLostData);
    Wrong { plan, count, cause, also: &[], _servers: Box::new(server) }
}

fn restart(server: &Mutex<Server>) {
    server.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("it starts again");
}

fn moved_clock() -> Wrong {
    let server = Arc::new(start());
    let mut plan = plan(&[server.addr()], Topology::Single, &["set-nx", "redisson"]);
    let failing = Arc::clone(&server);
    plan.faults = repeated("clock moved", usize::MAX, move || {
        failing.advance(2 * LEASE).expect("a clock that moves");
    });
    // A move can be seen late.
    let (count, cause) = (granted_twice as _, Cause::ClockMoved);
    Wrong { plan, count, cause, also: &[Cause::Unknown], _servers: Box::new(server) }
}

fn short_leases() -> Wrong {
    behind(handlers::short_leases, &["set-nx", "redis-py"], lost_early)
}

fn without_nx() -> Wrong {
    behind(handlers::without_nx(), &["set-nx"], granted_twice)
}

/// Deletes the key at the release, whatever its value is.
const UNCHECKED: Recipe = Recipe {
    words: |lock, owner, action| match action {
        Action::Release { .. } => Some(vec!["DEL".to_owned(), lock.to_owned()]),
        action => (recipes::SET_NX.words)(lock, owner, action),
    },
    meaning: |action, reply| match action {
        Action::Release { .. } => Some((Answer::Released, None)),
        action => (recipes::SET_NX.meaning)(action, reply),
    },
    ..recipes::SET_NX
};

static UNCHECKED_KIND: LockKind = LockKind {
    name: "unchecked",
    description: "SET NX PX and DEL",
    recipe: &UNCHECKED,
    commands: &["SET", "DEL"],
    ..REDLOCK
};

fn unchecked_release() -> Wrong {
    let late = handlers::late("DEL", LEASE * 3 / 2, handlers::pass);
    let mut wrong = behind(late, &[], |totals| totals.granted_twice + totals.lost_early);
    wrong.plan.kinds = vec![&UNCHECKED_KIND];
    wrong.plan.locks = 1;
    wrong
}

fn tokens_again() -> Wrong {
    let server = Arc::new(Mutex::new(start()));
    let address = server.lock().expect("a server").addr();
    let proxy = Arc::new(Proxy::start(address, handlers::pass));
    let mut plan = plan(&[proxy.addr()], Topology::Single, &["redisson-fenced"]);
    let failing = (Arc::clone(&server), Arc::clone(&proxy));
    plan.faults = repeated("restart after all leases", usize::MAX, move || {
        restart_after_leases(&failing.0, &failing.1);
    });
    let (count, cause) = (wrong_tokens as _, Cause::RestartLostData);
    Wrong { plan, count, cause, also: &[], _servers: Box::new((proxy, server)) }
}

/// Starts a server again that has lost its data. No client can use it before all leases are over.
fn restart_after_leases(server: &Mutex<Server>, proxy: &Proxy) {
    proxy.close();
    time::sleep(LEASE + Duration::from_millis(100));
    restart(server);
    proxy.open();
}

fn redlock_restarts() -> Wrong {
    let servers: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(start()))).collect();
    let addresses: Vec<_> =
        servers.iter().map(|server| server.lock().expect("a server").addr()).collect();
    let mut plan = plan(&addresses, Topology::Independent, &[]);
    let failing = servers.clone();
    plan.faults = repeated("restart of two", usize::MAX, move || {
        failing[..2].iter().for_each(|server| restart(server));
    });
    let (count, cause) = (granted_twice as _, Cause::RestartLostData);
    Wrong { plan, count, cause, also: &[], _servers: Box::new(servers) }
}

fn release_for_others() -> Wrong {
    let successful = handlers::always_successful("'del'");
    behind(handlers::late("EVAL", LEASE * 3 / 2, successful), &["set-nx"], used_by_others)
}

fn renewal_for_others() -> Wrong {
    let successful = handlers::always_successful("'pexpire'");
    let late = handlers::late("EVAL", LEASE * 3 / 2, successful);
    let mut wrong = behind(late, &["set-nx"], granted_twice);
    wrong.plan.locks = 1;
    wrong
}

fn dropped_keys() -> Wrong {
    behind(handlers::dropping(), &["set-nx", "redisson"], |totals| {
        totals.lost_early.min(totals.granted_twice)
    })
}

fn lost_readers() -> Wrong {
    let losing = handlers::losing_holds("rwlock");
    behind(losing, &["redisson-read-write"], granted_twice)
}

fn lost_hold() -> Wrong {
    behind(handlers::losing_holds("publish"), &["redisson"], lost_early)
}

#[test]
fn wrong_servers_and_recipes_are_named() {
    let problems = at_a_time(WRONG, |(name, start)| {
        let Wrong { mut plan, count, cause, also, _servers } = start();
        plan.duration = FIND_TIME_MAX;
        let has_faults = plan.faults.is_some();
        let mut until = UntilFound { count, interrupt: plan.interrupt.clone() };
        let report = match run(plan, &mut until) {
            Ok(report) => report,
            Err(problem) => return Some(format!("{name}: {problem}")),
        };
        let wrong = wrong_report(&report, count, &[&[cause], also].concat(), has_faults);
        wrong.map(|problem| format!("{name}: {problem}\n{}", report.write(Format::Text)))
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with the report about a wrong server. The first cause must be named, the others
/// may be.
fn wrong_report(
    report: &Report,
    count: fn(&Totals) -> u64,
    causes: &[Cause],
    has_faults: bool,
) -> Option<&'static str> {
    let mut named = report.cases.iter().map(|case| case.cause);
    if count(&report.totals) == 0 || !report.interrupted {
        Some("the finding is missing")
    } else if !named.clone().any(|cause| cause == causes[0]) {
        Some("the cause is not named")
    } else if !named.all(|cause| causes.contains(&cause)) {
        Some("another cause is named")
    } else if report.cases.iter().any(|case| !case.story.iter().any(|line| line.is_proof)) {
        Some("a story has no proof")
    } else if report.has_effective_fault() != has_faults {
        Some("the effect of the fault is not right")
    } else {
        None
    }
}

/// A run against correct servers, whatever the network and the faults do.
struct Correct {
    plan: Plan,
    /// The faults after which the run may end.
    faults: usize,
    /// What the run needs until its end.
    _servers: Box<dyn Any + Send>,
}

/// Correct servers, on bad networks and with faults. `None` if the server is not installed.
const CORRECT: &[Row<Option<Correct>>] = &[
    ("a bad network", unreliable),
    ("requests that come after the end of the lease", late),
    ("a server that is frozen", frozen),
    ("a failover that loses nothing", failover_without_loss),
    ("a restart after all leases", restart_after_all),
    ("restarts of a server with a log", durable_restarts),
    ("restarts of a server with a restart guard", guarded_restarts),
    ("Redlock on bad networks", unreliable_redlock),
    ("redis-server on a bad network", unreliable_redis),
    ("redis-server that is frozen", frozen_redis),
];

/// The kinds of locks without fencing tokens, whose counters a restart without data loses.
const WITHOUT_TOKENS: &[&str] =
    &["set-nx", "redis-py", "redisson", "redisson-fair", "redisson-read-write"];

fn correct(
    address: SocketAddr,
    handler: impl Fn(&[String], &mut Wire) -> io::Result<Frame> + Send + Sync + 'static,
    server: impl Any + Send,
) -> Correct {
    let proxy = Arc::new(Proxy::start(address, handler));
    let plan = plan(&[proxy.addr()], Topology::Single, &[]);
    Correct { plan, faults: 0, _servers: Box::new((proxy, server)) }
}

fn unreliable() -> Option<Correct> {
    let server = start();
    Some(correct(server.addr(), handlers::unreliable(), server))
}

fn late() -> Option<Correct> {
    let server = start();
    Some(correct(server.addr(), handlers::late("", LEASE * 3 / 2, handlers::pass), server))
}

fn freezing(address: SocketAddr, server: impl Any + Send) -> Correct {
    let proxy = Arc::new(Proxy::start(address, handlers::pass));
    let mut plan = plan(&[proxy.addr()], Topology::Single, &[]);
    // Some requests stay without a reply.
    plan.target.reply_timeout = Duration::from_millis(500);
    let frozen = Arc::clone(&proxy);
    plan.faults = repeated("frozen", 1, move || frozen.freeze(FREEZE));
    Correct { plan, faults: 1, _servers: Box::new((proxy, server)) }
}

fn frozen() -> Option<Correct> {
    let server = start();
    Some(freezing(server.addr(), server))
}

fn failover_without_loss() -> Option<Correct> {
    let pair = Arc::new(Pair::start());
    let mut plan = plan(&[pair.sentinel().addr()], Topology::Sentinel("mymaster".to_owned()), &[]);
    let failing = Arc::clone(&pair);
    plan.faults = repeated("failover", 1, move || failing.fail_over(false));
    Some(Correct { plan, faults: 1, _servers: Box::new(pair) })
}

fn restart_after_all() -> Option<Correct> {
    let server = Arc::new(Mutex::new(start()));
    let address = server.lock().expect("a server").addr();
    let proxy = Arc::new(Proxy::start(address, handlers::pass));
    let mut plan = plan(&[proxy.addr()], Topology::Single, WITHOUT_TOKENS);
    let failing = (Arc::clone(&server), Arc::clone(&proxy));
    plan.faults = repeated("restart after all leases", 1, move || {
        restart_after_leases(&failing.0, &failing.1);
    });
    Some(Correct { plan, faults: 1, _servers: Box::new((proxy, server)) })
}

/// A server with a directory, which is started again by this test: see [`Server::restart`].
fn restarting(settings: &[(&str, &str)], kinds: &[&str]) -> Correct {
    let folder = Folder::new();
    let (dir, port) = (folder.path("."), free_port().to_string());
    let own = [("dir", &*dir), ("port", &*port)];
    let settings: Vec<(String, String)> = settings
        .iter()
        .chain(&own)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let start = move || {
        let with = |builder: Builder, (name, value): &(String, String)| builder.config(name, value);
        settings.iter().fold(Server::builder(), with).start().expect("a server")
    };
    let server = start();
    let mut plan = plan(&[server.addr()], Topology::Single, kinds);
    let server = Arc::new(Mutex::new(Some(server)));
    let failing = Arc::clone(&server);
    plan.faults = repeated("restart", 2, move || {
        let mut server = failing.lock().expect("a server");
        *server = None;
        *server = Some(start());
    });
    // Locks outlive a restart.
    plan.lease = RESTARTED_LEASE;
    Correct { plan, faults: 2, _servers: Box::new((server, folder)) }
}

fn durable_restarts() -> Option<Correct> {
    Some(restarting(&[("appendonly", "yes")], &[]))
}

fn guarded_restarts() -> Option<Correct> {
    let settings = [("restart-guard", "yes"), ("restart-guard-minimum", "1s")];
    Some(restarting(&settings, WITHOUT_TOKENS))
}

fn unreliable_redlock() -> Option<Correct> {
    let servers: Vec<_> = (0..3).map(|_| start()).collect();
    let behind = |server: &Server| Proxy::start(server.addr(), handlers::unreliable());
    let proxies: Vec<_> = servers.iter().map(behind).collect();
    let addresses: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let plan = plan(&addresses, Topology::Independent, &[]);
    Some(Correct { plan, faults: 0, _servers: Box::new((proxies, servers)) })
}

fn unreliable_redis() -> Option<Correct> {
    let server = RedisServer::start()?;
    Some(correct(server.address(), handlers::unreliable(), server))
}

fn frozen_redis() -> Option<Correct> {
    let server = RedisServer::start()?;
    Some(freezing(server.address(), server))
}

#[test]
fn correct_servers_are_not_accused() {
    let problems = at_a_time(CORRECT, |(name, start)| {
        let Correct { mut plan, faults, _servers } = start()?;
        plan.duration = FIND_TIME_MAX;
        let has_faults = plan.faults.is_some();
        let mut until = UntilJudged(faults, plan.interrupt.clone());
        match run(plan, &mut until) {
            Ok(report) => {
                let is_right = report.is_green() && report.has_effective_fault() == has_faults;
                (!is_right).then(|| format!("{name}:\n{}", report.write(Format::Text)))
            }
            Err(problem) => Some(format!("{name}: {problem}")),
        }
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn run_without_faults_says_so_and_leaves_no_key() {
    // The probe uses locks of the first kind.
    for kinds in [&[][..], &["redisson-fenced"], &["redisson-fair"], &["redisson-read-write"]] {
        let server = start();
        let mut plan = plan(&[server.addr()], Topology::Single, kinds);
        plan.duration = FIND_TIME_MAX;
        (plan.lease, plan.rate) = (LEASE / 4, 5000);
        let mut until = UntilGranted(GRANTED_MIN, plan.interrupt.clone());
        let report = run(plan, &mut until).expect("a report");
        let text = report.write(Format::Text);
        assert!(report.is_green() && report.faults.is_empty(), "{text}");
        assert!(!report.has_effective_fault(), "{text}");
        assert!(text.starts_with("No fault took effect"), "{text}");
        // The number of kinds of locks that were granted at least once.
        let used = report.kinds.iter().filter(|(_, totals)| totals.granted > 0).count();
        assert_eq!(used, if kinds.is_empty() { LOCK_KINDS.len() } else { kinds.len() }, "{text}");
        // What is left has a lease.
        server.advance(10 * LEASE).expect("a clock that moves");
        assert_eq!(call(&server, "KEYS *"), Reply::Array(Vec::new()), "{kinds:?}");
    }
}

#[test]
fn interrupt_ends_a_run_early() {
    let server = start();
    let mut plan = plan(&[server.addr()], Topology::Single, &[]);
    plan.duration = Duration::from_secs(3600);
    let mut until = UntilGranted(1, plan.interrupt.clone());
    let report = run(plan, &mut until).expect("a report");
    assert!(report.interrupted && report.is_green() && report.totals.granted > 0);
}

#[test]
fn locks_are_replaced_by_others_while_a_run_lasts() {
    let (server, seen) = (start(), Arc::new(Mutex::new(BTreeSet::new())));
    let names = Arc::clone(&seen);
    let proxy = Proxy::start(server.addr(), move |words, server| {
        if let [command, name, ..] = words
            && command == "SET"
            && name.contains("set-nx")
        {
            names.lock().expect("a set").insert(name.clone());
        }
        server.call(words)
    });
    let mut plan = plan(&[proxy.addr()], Topology::Single, &["set-nx"]);
    (plan.locks, plan.lease, plan.duration) = (1, Duration::from_millis(50), FIND_TIME_MAX);
    let mut until = UntilReplaced(seen, plan.interrupt.clone());
    let report = run(plan, &mut until).expect("a report");
    assert!(report.interrupted && report.is_green(), "{}", report.write(Format::Text));
}

/// The results, of several at a time, that are not `None`.
fn at_a_time<T: Sync>(items: &[T], judge: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = judge(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).extend(result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}
