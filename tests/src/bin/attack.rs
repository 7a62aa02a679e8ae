//! Attacks a Lockwheel that it starts, and tells what came of it; see `lockwheel_tests::attack`.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockwheel_compat::fuzz::{Found, Progress};
use lockwheel_compat::time;
use lockwheel_tests::attack::{Report, arguments, connections, restore, sandbox};

/// How often it is told how far an attack has come.
const TOLD_EACH_SECONDS: i64 = 10;

/// Attacks a server in several ways: it must neither panic, nor hang, nor answer otherwise than
/// redis-server does. What was found is printed, and the program fails.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    attack: Attack,
}

#[derive(Subcommand)]
enum Attack {
    /// Sends mutated payloads to RESTORE, here and on redis-server.
    Restore {
        /// How many.
        #[arg(long, default_value_t = 100_000)]
        payloads: u64,
        /// What they are drawn from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Sends random arguments to every command, here and on redis-server.
    Arguments {
        /// How many requests.
        #[arg(long, default_value_t = 100_000)]
        requests: usize,
        /// What they are drawn from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs scripts that try to get out of the sandbox, and mutations of them.
    Sandbox {
        /// How many mutations.
        #[arg(long, default_value_t = 2_000)]
        mutations: u64,
        /// What they are drawn from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Floods the server with connections and with what is no request.
    Connections {
        /// How often each kind of flood is repeated.
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// What they are drawn from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    let begin_us = time::now_us();
    let mut meter = Meter { begin_us, told_at_seconds: 0 };
    let report = match Arguments::parse().attack {
        Attack::Restore { payloads, seed } => {
            restore::attack(payloads, seed, &mut |done, found| meter.tell(done, found))
        }
        Attack::Arguments { requests, seed } => arguments::attack(requests, seed, &mut meter),
        Attack::Sandbox { mutations, seed } => {
            Some(sandbox::attack(mutations, seed, &mut |done, found| meter.tell(done, found)))
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

/// Tells on standard error how far it has come.
struct Meter {
    begin_us: i64,
    told_at_seconds: i64,
}

impl Meter {
    fn tell(&mut self, done: u64, found: usize) {
        let seconds = (time::now_us() - self.begin_us) / 1_000_000;
        if seconds >= self.told_at_seconds + TOLD_EACH_SECONDS {
            self.told_at_seconds = seconds;
            let _ = writeln!(std::io::stderr(), "{seconds} s: {done} done, {found} found");
        }
    }
}

impl Progress for Meter {
    fn fuzzed(&mut self, done: usize, _of: usize, found: usize) {
        self.tell(done as u64, found);
    }

    fn found(&mut self, found: &Found) {
        let _ = writeln!(std::io::stderr(), "{}", found.case);
    }
}
