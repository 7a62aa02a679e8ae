//! Measures how long servers for tests take to start and to end: Lockwheel, redis-server, miniredis
//! and fakeredis, each as a process and within one. Writes `docs/start.md`.
//!
//! The order of the servers alternates, so that other load affects all of them; ratios are computed
//! within each round.

#![allow(clippy::print_stdout, clippy::print_stderr)] // A program with text output.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

mod measured_servers;
mod page;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::measured_servers::MeasuredServer;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Measures how long servers for tests take to start and to end, and writes docs/start.md.
#[derive(Parser)]
#[command(name = "starts")]
struct Options {
    #[command(subcommand)]
    command: Option<StartsCommand>,
    /// The number of rounds
    #[arg(long, value_name = "N", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The number of starts within one process
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    starts: u32,
    /// Measure only Lockwheel
    #[arg(long)]
    alone: bool,
    /// The output file instead of the standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum StartsCommand {
    /// Starts a server in this process this number of times and prints the times in nanoseconds
    #[command(hide = true)]
    Within { starts: u32 },
}

/// How a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    /// A process, ended by `SIGTERM`.
    Process,
    /// The first start within a process.
    First,
    /// The median of the later starts within a process.
    Later,
}

/// The time until the first reply, and from then until the server has ended.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: Duration,
    stop: Duration,
}

/// The result of a server in one round.
struct StartReading {
    round: u32,
    mode: Mode,
    name: String,
    times: Times,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match options.command {
        Some(StartsCommand::Within { starts }) => measured_servers::print_starts(starts),
        None => compare(&options),
    };
    if let Err(error) = outcome {
        eprintln!("starts: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn compare(options: &Options) -> Outcome<()> {
    let servers = measured_servers::find(options.alone)?;
    let mut readings = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let mut order: Vec<&MeasuredServer> = servers.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for server in order {
            readings.extend(measure(server, round, options.starts)?);
        }
    }
    let text = page::write(&readings, options.rounds);
    match &options.output {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

fn measure(server: &MeasuredServer, round: u32, starts: u32) -> Outcome<Vec<StartReading>> {
    let reading = |mode, name, times| StartReading { round, mode, name, times };
    let mut readings = Vec::new();
    readings.push(reading(Mode::Process, server.name.clone(), server.run_process()?));
    for (name, spans) in server.run_within(starts)? {
        let (first, later) = spans.split_first().ok_or("nothing was started")?;
        let name = format!("{}: `{name}`", server.name);
        readings.push(reading(Mode::First, name.clone(), *first));
        let median = |of: fn(&Times) -> Duration| {
            page::median(later.iter().map(|span| of(span).as_secs_f64()).collect())
        };
        let [start, stop] =
            [median(|span| span.start), median(|span| span.stop)].map(Duration::from_secs_f64);
        readings.push(reading(Mode::Later, name, Times { start, stop }));
    }
    Ok(readings)
}
