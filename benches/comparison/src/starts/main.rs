//! How long servers for tests take to start and to end: Lockwheel beside redis-server, miniredis
//! and fakeredis, each as a process and within one. Writes `docs/start.md`.
//!
//! They take turns, forth and back, so that whatever else the machine does meets all of them; a
//! ratio is one of the same round.

#![allow(clippy::print_stdout, clippy::print_stderr)] // A program that speaks to whoever runs it.
#![allow(clippy::disallowed_methods)] // To measure is to read the clock.

mod contenders;
mod page;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::contenders::Contender;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Measures how long servers for tests take to start and to end, and writes docs/start.md.
#[derive(Parser)]
#[command(name = "starts")]
struct Options {
    #[command(subcommand)]
    act: Option<Act>,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often a server is started within one process
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    starts: u32,
    /// Lockwheel alone
    #[arg(long)]
    alone: bool,
    /// Where the page goes instead of the standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Act {
    /// Starts a server in this process so often and says how long that took, in nanoseconds
    #[command(hide = true)]
    Within { starts: u32 },
}

/// What is measured of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A process, ended by `SIGTERM`.
    Process,
    /// Within a process that has started none before, ...
    First,
    /// ... and what the later ones take there.
    Later,
}

/// How long it took until the first reply, and then until nothing was left.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Duration,
    stop: Duration,
}

/// What was measured in one round.
struct Reading {
    round: u32,
    kind: Kind,
    name: String,
    span: Span,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match options.act {
        Some(Act::Within { starts }) => contenders::tell_starts(starts),
        None => compare(&options),
    };
    if let Err(error) = outcome {
        eprintln!("starts: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn compare(options: &Options) -> Outcome<()> {
    let contenders = contenders::find(options.alone)?;
    let mut readings = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let mut turns: Vec<&Contender> = contenders.iter().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for contender in turns {
            readings.extend(measure(contender, round, options.starts)?);
        }
    }
    let text = page::write(&readings, options.rounds);
    match &options.output {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

fn measure(contender: &Contender, round: u32, starts: u32) -> Outcome<Vec<Reading>> {
    let reading = |kind, name: &str, span| Reading { round, kind, name: name.to_owned(), span };
    let mut readings = Vec::new();
    readings.push(reading(Kind::Process, &contender.name, contender.run_process()?));
    for (name, spans) in contender.run_within(starts)? {
        let (first, later) = spans.split_first().ok_or("nothing was started")?;
        let name = format!("{}: `{name}`", contender.name);
        readings.push(reading(Kind::First, &name, *first));
        let median = |of: fn(&Span) -> Duration| {
            page::median(later.iter().map(|span| of(span).as_secs_f64()).collect())
        };
        let [start, stop] =
            [median(|span| span.start), median(|span| span.stop)].map(Duration::from_secs_f64);
        readings.push(reading(Kind::Later, &name, Span { start, stop }));
    }
    Ok(readings)
}
