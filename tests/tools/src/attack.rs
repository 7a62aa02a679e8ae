//! Starts a Lockwheel, attacks it and prints a report; see `lockwheel_tests::attack`.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockwheel_compat::fuzz::{FoundDifference, Progress};
use lockwheel_compat::time;
use lockwheel_tests::attack::{Report, arguments, connections, restore, sandbox};

/// The interval of progress lines.
const PROGRESS_INTERVAL_SECONDS: i64 = 10;

/// Attacks a server in several ways: it must not panic or hang, and must reply as redis-server
/// does. Problems are printed, and the program fails.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    attack: Attack,
}

#[derive(Subcommand)]
enum Attack {
    /// Sends mutated payloads to RESTORE, on Lockwheel and on redis-server.
    Restore {
        /// The number of payloads.
        #[arg(long, default_value_t = 100_000)]
        payloads: u64,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Sends random arguments to every command, on Lockwheel and on redis-server.
    Arguments {
        /// The number of requests.
        #[arg(long, default_value_t = 100_000)]
        requests: usize,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs scripts that try to escape the sandbox, and mutations of them.
    Sandbox {
        /// The number of mutations.
        #[arg(long, default_value_t = 2_000)]
        mutations: u64,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Floods the server with connections and invalid requests.
    Connections {
        /// The number of rounds of all floods.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    let begin_us = time::now_us();
    let mut meter = AttackMeter { begin_us, printed_at_seconds: 0 };
    let report = match Arguments::parse().attack {
        Attack::Restore { payloads, seed } => {
            restore::attack(payloads, seed, &mut |done, found| meter.print(done, found))
        }
        Attack::Arguments { requests, seed } => arguments::attack(requests, seed, &mut meter),
        Attack::Sandbox { mutations, seed } => {
            Some(sandbox::attack(mutations, seed, &mut |done, found| meter.print(done, found)))
        }
        Attack::Connections { rounds, seed } => Some(connections::attack(rounds, seed)),
    };
    let none =
        || Report { problems: vec!["there is no redis-server".to_owned()], ..Report::default() };
    let report = report.unwrap_or_else(none);
    let _ = write!(std::io::stdout(), "{}", report.text());
    let _ = writeln!(std::io::stdout(), "{} ms", (time::now_us() - begin_us) / 1000);
    if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the progress on standard error.
struct AttackMeter {
    begin_us: i64,
    printed_at_seconds: i64,
}

impl AttackMeter {
    fn print(&mut self, done: u64, found: usize) {
        let seconds = (time::now_us() - self.begin_us) / 1_000_000;
        if seconds >= self.printed_at_seconds + PROGRESS_INTERVAL_SECONDS {
            self.printed_at_seconds = seconds;
            let _ = writeln!(std::io::stderr(), "{seconds} s: {done} done, {found} found");
        }
    }
}

impl Progress for AttackMeter {
    fn fuzzed(&mut self, done: usize, _of: usize, found: usize) {
        self.print(done as u64, found);
    }

    fn found(&mut self, found: &FoundDifference) {
        let _ = writeln!(std::io::stderr(), "{}", found.case);
    }
}
