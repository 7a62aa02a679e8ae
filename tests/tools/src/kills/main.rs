//! Kills a server under load repeatedly, and checks that no lock is lost or granted twice.
//!
//! The server is the program `lockwheel` on one port and one directory, loaded by clients of real
//! libraries (`lockwheel_tests::load`). The program kills the server (`SIGKILL`) at random moments
//! and starts it again at once. The judges of the compatibility suite check the histories, one lock
//! at a time.
//!
//! Shows G25, G29, G33.

#![allow(clippy::print_stdout)] // A command-line program.

mod server;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use lockwheel_compat::random::Random;
use lockwheel_compat::time;
use lockwheel_tests::load::clients::{Library, Load, Settings};
use lockwheel_tests::load::judge::{Campaign, Judge, Totals};

use crate::server::{Policy, Server};

/// The number of kills after which the clients use other locks.
const KILLS_PER_EPOCH: u32 = 10;

/// The threads of each client process.
const THREADS: usize = 8;

/// Longest time until a reply; far longer than one takes while the server runs. A lost connection
/// is noticed at once, except in some cases by Redisson.
const REPLY_TIMEOUT_MS: u32 = 1_000;

/// Longest span by which a lease may end late: it is a whole number of milliseconds, also after
/// each of the restarts. None of the checks is about the end of a lease, so this is generous.
const LATE_US: i64 = 250_000;

/// The load between a restart and the next kill.
const LOAD_MS: (i64, i64) = (50, 400);

/// Number of kills of which one comes before the server is ready: it loads the log, or waits for
/// the end of the leases.
const EARLY_KILL_ONCE_IN: u64 = 8;
const EARLY_KILL_MS: (i64, i64) = (0, 40);

/// The load after the last kill, in which holders look for their locks.
const LAST_LOAD: Duration = Duration::from_secs(1);

/// The most kills without a log and a guard, which only show that violations are found.
const KILLS_IN_MEMORY: u32 = 20;

/// Kills a server under load, and checks that no lock is lost or granted twice.
#[derive(Parser)]
struct Options {
    /// The number of kills under each policy
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// The policy. Default: all; and `memory`, which must lose locks
    #[arg(long)]
    policy: Option<Policy>,
    /// The libraries of the clients
    #[arg(long, value_delimiter = ',', default_value = "redis-py,redisson")]
    clients: Vec<Library>,
    /// The seed of the moments and of the requests
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// The file to which the requests to locks are added, for the second judge. Those that must
    /// lose locks are added to a file with the extension `wrong.jsonl`
    #[arg(long)]
    history: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let policies = match options.policy {
        Some(policy) => vec![policy],
        None => Policy::value_variants().to_vec(),
    };
    let mut problems = Vec::new();
    for policy in policies {
        // It is known to lose locks: a check of the judges, unless it was asked for.
        let must_fail = policy == Policy::Memory && options.policy.is_none();
        let kills = if must_fail { options.kills.min(KILLS_IN_MEMORY) } else { options.kills };
        let begin_us = time::now_us();
        let totals = match campaign(&options, policy, kills, !must_fail) {
            Ok(totals) => totals,
            Err(problem) => {
                problems.push(format!("{policy:?}: {problem}"));
                break;
            }
        };
        let seconds = (time::now_us() - begin_us) / 1_000_000;
        println!("{policy:?}, seed {}, {seconds} s: {totals}", options.seed);
        match (totals.violations() > 0, must_fail) {
            (true, false) => problems.push(format!("{policy:?}: violations")),
            (false, true) => problems.push(format!("{policy:?}: the judges find no lost lock")),
            (true, true) => println!("{policy:?}: as expected, since nothing keeps the locks"),
            (false, false) => {}
        }
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Kills a server with this policy `kills` times. Shows violations if `shows`.
fn campaign(options: &Options, policy: Policy, kills: u32, shows: bool) -> Result<Totals, String> {
    let mut server = Server::start(policy)?;
    let mut judge = Judge::new(Campaign {
        name: format!("{policy:?}"),
        seed: options.seed,
        clients: THREADS * options.clients.len(),
        keeps_locks: policy.keeps_locks(),
        is_replicated: false,
        late_us: LATE_US,
        history: options.history.as_ref().map(|path| match shows {
            true => path.clone(),
            false => path.with_extension("wrong.jsonl"),
        }),
    });
    let outcome = kill_under_load(options, kills, &mut server, &mut judge);
    if judge.totals().violations() > 0 && shows {
        judge.print_findings();
    }
    if (outcome.is_err() || judge.totals().violations() > 0) && shows {
        println!("{policy:?}: the files of the server are in {}", server.keep_folder().display());
    }
    outcome.map(|()| judge.totals())
}

fn kill_under_load(
    options: &Options,
    kills: u32,
    server: &mut Server,
    judge: &mut Judge,
) -> Result<(), String> {
    server.wait_until_ready()?;
    let mut random = Random::of(options.seed.into(), 0);
    let lease_ms = server.policy().lease_ms();
    let address = server.place().to_string();
    let settings = Settings {
        servers: &|_| address.clone(),
        seed: options.seed,
        threads: THREADS,
        lease_ms,
        reply_timeout_ms: REPLY_TIMEOUT_MS,
    };
    let mut load = Load::start(&options.clients, settings)?;
    for kill in 1..=kills {
        load.pass(span(&mut random, LOAD_MS))?;
        judge.add_fault(server.kill()?);
        server.start_again()?;
        if random.once_in(EARLY_KILL_ONCE_IN) {
            load.pass(span(&mut random, EARLY_KILL_MS))?;
        } else {
            server.wait_until_ready()?;
        }
        if kill % KILLS_PER_EPOCH == 0 {
            load.begin_epoch()?;
        }
        judge.add_records(load.take_records());
        judge.judge_before(load.oldest_epoch());
    }
    server.wait_until_ready()?;
    load.pass(LAST_LOAD)?;
    judge.add_records(load.end()?);
    judge.judge_before(u64::MAX);
    server.check_alive()
}

fn span(random: &mut Random, (least_ms, most_ms): (i64, i64)) -> Duration {
    Duration::from_micros(random.between(least_ms * 1000, most_ms * 1000).unsigned_abs())
}
