//! Measures how long servers for tests take to start and to end: Lockwheel, redis-server, miniredis
//! and fakeredis, each as a process and within one. Saves the times and writes `docs/start.md`.
//!
//! The order of the servers alternates, so that other load affects all of them; ratios are computed
//! within each round.

#![allow(clippy::print_stdout, clippy::print_stderr)] // A program with text output.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

mod measured_servers;
mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lockwheel_comparison::{Machine, Outcome};
use serde::{Deserialize, Serialize};

use crate::measured_servers::MeasuredServer;

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
    /// The file of the page instead of the standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Saves the times in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Subcommand)]
enum StartsCommand {
    /// Starts a server in this process this number of times and prints the times in nanoseconds
    #[command(hide = true)]
    Within { starts: u32 },
    /// Writes the page from saved times
    Render { file: PathBuf },
}

/// How a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Serialize, Deserialize)]
struct StartReading {
    round: u32,
    mode: Mode,
    name: String,
    start_ms: f64,
    stop_ms: f64,
}

/// The results of a run.
#[derive(Serialize, Deserialize)]
struct StartResults {
    machine: Machine,
    rounds: u32,
    readings: Vec<StartReading>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.command {
        Some(StartsCommand::Within { starts }) => measured_servers::print_starts(*starts),
        Some(StartsCommand::Render { file }) => read(file).and_then(|it| print(&options, &it)),
        None => compare(&options).and_then(|results| print(&options, &results)),
    };
    if let Err(error) = outcome {
        eprintln!("starts: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn compare(options: &Options) -> Outcome<StartResults> {
    let mut machine = Machine::this();
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
    machine.record_load();
    let results = StartResults { machine, rounds: options.rounds, readings };
    if let Some(path) = &options.save {
        std::fs::write(path, serde_json::to_string(&results)? + "\n")?;
    }
    Ok(results)
}

/// Reads saved results.
fn read(file: &Path) -> Outcome<StartResults> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

/// Writes the page.
fn print(options: &Options, results: &StartResults) -> Outcome<()> {
    let text = page::write(results);
    match &options.output {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

fn measure(server: &MeasuredServer, round: u32, starts: u32) -> Outcome<Vec<StartReading>> {
    let reading = |mode, name, times: Times| {
        let [start_ms, stop_ms] = [times.start, times.stop].map(|span| span.as_secs_f64() * 1e3);
        StartReading { round, mode, name, start_ms, stop_ms }
    };
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
