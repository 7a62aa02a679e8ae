//! Makes the leader of a cluster fail repeatedly under load, and checks that no lock is lost
//! or granted twice. Measures how long it takes until locks are granted again.
//!
//! The servers are processes of the program `lockwheel` on three hosts, or of Redis with sentinels,
//! loaded by clients of real libraries (`lockwheel_tests::load`), which find the leader as they do
//! with sentinels. The judges of the compatibility suite check the histories, one lock at a time.
//! What Redis loses is shown, and is no failure.
//!
//! Shows R2, R3, R6.

#![allow(clippy::print_stdout)] // A command-line program.

mod faults;
mod large_units;
mod network;
mod probe;
mod servers;
mod times;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lockwheel_compat::random::Random;
use lockwheel_compat::time;
use lockwheel_prove::demo::place::Place;
use lockwheel_tests::load::clients::{Library, Load, Record, Settings};
use lockwheel_tests::load::judge::{Campaign, Judge, Totals};

use crate::faults::{FailoverFault, Faults};
use crate::large_units::LargeUnits;
use crate::network::Network;
use crate::servers::{Kind, Servers};
use crate::times::Times;

/// The faults after which the clients use other locks.
const FAULTS_PER_EPOCH: usize = 5;

/// Shortest and longest lease: a lock can be seen lost only if its lease outlasts the failover.
const LEASE_MS: (u32, u32) = (2_000, 6_000);

/// Time-out of a reply, as the default of Redisson. A request to a server that is stopped for less
/// is answered by it.
const REPLY_TIMEOUT_MS: u32 = 3_000;

/// Longest span by which a lease may end late. No lease time passes while there is no leader, for a
/// time that depends on the machine and that the probe measures: so there is no limit here.
const LATE_US: i64 = i64::MAX / 4;

/// Makes the leader of a cluster fail under load, and checks that no lock is lost or granted twice.
#[derive(Parser)]
struct Options {
    /// The number of failovers
    #[arg(long, default_value_t = 200)]
    failovers: u32,
    /// The minutes after which the campaign ends, if there were fewer failovers
    #[arg(long)]
    minutes: Option<u32>,
    /// The servers
    #[arg(long, value_delimiter = ',', default_value = "lockwheel,redis")]
    servers: Vec<Kind>,
    /// The faults. Default: all
    #[arg(long, value_delimiter = ',')]
    faults: Vec<FailoverFault>,
    /// The libraries of the clients; none to measure only the probe
    #[arg(long, value_delimiter = ',', num_args = 0.., default_value = "redis-py")]
    clients: Vec<Library>,
    /// The threads of each library
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// The number of nodes, or of servers of Redis
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// Megabits that each server sends in a second at most
    #[arg(long)]
    link_mbit: Option<u32>,
    /// Bytes of the large values, and of the effects of large scripts, that are part of the load
    #[arg(long, default_value_t = 0)]
    large_bytes: usize,
    /// Longest time until the next granted lock, in milliseconds: a longer one fails the campaign
    #[arg(long)]
    outage_max_ms: Option<i64>,
    /// The seed of the faults and of the requests
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// The file to which the requests to locks are added, for the second judge
    #[arg(long)]
    history: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut is_good = true;
    for &kind in &options.servers {
        match campaign(&options, kind) {
            Ok(Some(totals)) => is_good &= kind == Kind::Redis || totals.violations() == 0,
            Ok(None) => println!("{kind:?} is left out: it is not installed"),
            Err(problem) => {
                println!("{kind:?}: {problem}");
                is_good = false;
            }
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `None` if there is no such server.
fn campaign(options: &Options, kind: Kind) -> Result<Option<Totals>, String> {
    let network = Network::new(options.nodes, options.link_mbit);
    let network = network.unwrap_or_else(|(network, reason)| {
        println!("{kind:?}: the network is not divided: {reason}");
        network
    });
    let Some(mut servers) = Servers::start(kind, network)? else { return Ok(None) };
    let mut judge = Judge::new(Campaign {
        name: format!("{kind:?}"),
        seed: options.seed,
        clients: options.threads * options.clients.len(),
        keeps_locks: true,
        is_replicated: true,
        late_us: LATE_US,
        history: options.history.clone(),
    });
    let outcome = fail_under_load(options, kind, &mut servers, &mut judge);
    let totals = judge.totals();
    if totals.violations() > 0 {
        judge.print_findings();
    }
    if (outcome.is_err() || totals.violations() > 0) && kind == Kind::Lockwheel {
        println!("{kind:?}: the files of the servers are in {}", servers.keep_folder().display());
    }
    outcome.map(|()| Some(totals))
}

fn fail_under_load(
    options: &Options,
    kind: Kind,
    servers: &mut Servers,
    judge: &mut Judge,
) -> Result<(), String> {
    let begin_us = time::now_us();
    let mut faults = Faults::new(servers, &options.faults, Random::of(options.seed.into(), 0))?;
    let join = |places: &[Place]| places.iter().map(Place::to_string).collect::<Vec<_>>().join(",");
    let (nodes, sentinels) = (join(servers.places()), join(servers.sentinels()));
    let settings = Settings {
        servers: &|library| match library {
            Library::RedissonReplicated => format!("replicated={nodes}"),
            _ => format!("sentinel={sentinels}"),
        },
        seed: options.seed,
        threads: options.threads,
        lease_ms: LEASE_MS,
        reply_timeout_ms: REPLY_TIMEOUT_MS,
    };
    let large_units = LargeUnits::start(servers.places().to_vec(), options.large_bytes);
    let mut load = Load::start(&options.clients, settings)?;
    let mut times = Times::default();
    let end_us = options.minutes.map(|minutes| begin_us + i64::from(minutes) * 60_000_000);
    let is_over = || end_us.is_some_and(|end_us| time::now_us() >= end_us);
    while times.failovers() < options.failovers && !is_over() {
        let failed = faults.inject(servers, &mut load)?;
        let records = load.take_records();
        times.add(&failed, &records);
        judge.add_fault(failed.fault);
        judge.add_records(judged(records));
        if times.faults() % FAULTS_PER_EPOCH == 0 {
            load.begin_epoch()?;
        }
        judge.judge_before(load.oldest_epoch());
    }
    judge.add_records(judged(load.end()?));
    let large_units = large_units.end();
    judge.judge_before(u64::MAX);
    servers.wait_until_whole()?;
    let (seconds, seed) = ((time::now_us() - begin_us) / 1_000_000, options.seed);
    println!("{kind:?}, seed {seed}, {seconds} s: {}\n{times}", judge.totals());
    if options.large_bytes > 0 {
        println!("{kind:?}: {large_units} large units of {} bytes", options.large_bytes);
    }
    let longest_ms = times.longest_ms();
    match options.outage_max_ms {
        Some(max_ms) if longest_ms > max_ms && kind == Kind::Lockwheel => {
            Err(format!("an outage of {longest_ms} ms, at most {max_ms} ms are allowed"))
        }
        _ => Ok(()),
    }
}

/// Without the requests of a library that repeats some of them unnoticed.
fn judged(mut records: Vec<Record>) -> Vec<Record> {
    records.retain(|record| !record.event.lock.starts_with("retried-"));
    records
}
