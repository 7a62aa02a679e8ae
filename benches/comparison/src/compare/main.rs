//! The comparison: starts Lockwheel and every peer it finds, measures each workload on all of them
//! in turn, and tells how they stand to each other. It must not know what a workload does.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // To measure is to read the clock.
#![allow(clippy::print_stdout)] // A program that speaks to whoever runs it.

mod bare;
mod cycles;
mod ending;
mod expiry;
mod figures;
mod floor;
mod generator;
mod handoff;
mod kept;
mod latency;
mod load;
mod memory;
mod open_loop;
mod options;
mod page;
mod peers;
mod plots;
mod progress;
mod report;
mod requests;
mod running;
mod scale;
mod start;
mod tables;
mod watchdog;
mod wheel;
mod workload;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::figures::Figures;
use crate::options::{Act, Format, Options};
use crate::peers::Peer;
use crate::progress::Meter;
use crate::workload::{Effort, Workload};

/// What may go wrong, in words for whoever runs this.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.act {
        Some(Act::StartInProcess) => return start::tell(),
        Some(Act::BareServer(place)) => bare::serve(place.address()).map(|()| true),
        Some(Act::Render { files }) => render(&options, files),
        Some(Act::Wheel { folder }) => keep_wheel(&options, folder),
        None => run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            progress::say(&format!("compare: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that was to be measured was.
fn run(options: &Options) -> Outcome<bool> {
    let effort = options.effort();
    let mut workloads = workload::all();
    workloads.retain(|workload| options.wants(&workload::title(workload.as_ref())));
    if options.list {
        workloads.iter().for_each(|it| println!("{}", workload::title(it.as_ref())));
        return Ok(true);
    }
    if workloads.is_empty() {
        return Err("no workload has that in its name: see --list".into());
    }
    ending::obey_signals()?;
    let peers = peers::find(options)?;
    // Written after the work: a folder that is not there had better be known before it.
    let output = options.open_output()?;
    let mut figures = kept::begin(options, &peers)?;
    workloads.retain(|workload| !figures.hold(workload.as_ref()));
    let mut meter = Meter::begin(count(&workloads, &peers, options.rounds()));
    for workload in &mut workloads {
        let began = Instant::now();
        measure(workload.as_mut(), &peers, &effort, options.rounds(), &mut figures, &mut meter);
        figures.spent_seconds += began.elapsed().as_secs_f64();
        kept::write(options, &figures)?;
    }
    meter.end();
    figures.end();
    kept::write(options, &figures)?;
    tell(options, &figures, output)?;
    Ok(figures.failures.is_empty())
}

/// Reads the costs of a timer from criterion's output, as `benches/results/wheel.json`.
fn keep_wheel(options: &Options, folder: &Path) -> Outcome<bool> {
    let text = wheel::WheelCosts::read(folder)?.to_json()?;
    options.open_output()?.write_all(text.as_bytes())?;
    Ok(true)
}

/// Tells what was measured before.
fn render(options: &Options, files: &[PathBuf]) -> Outcome<bool> {
    if let ([file], Format::Page) = (files, options.format)
        && let Ok(tables) = kept::read_kept_tables(file)
    {
        // Their plots were kept with them.
        options.open_output()?.write_all(page::write(&tables).as_bytes())?;
        return Ok(true);
    }
    let figures = kept::read_all(files)?;
    tell(options, &figures, options.open_output()?)?;
    Ok(true)
}

/// Writes the outcome, in the form that is wanted.
fn tell(options: &Options, figures: &Figures, mut output: Box<dyn Write>) -> Outcome<()> {
    if options.format == Format::Page {
        page::draw(figures, options.output.as_deref().ok_or("a page needs --output")?)?;
    }
    output.write_all(report::write(figures, options.format).as_bytes())?;
    Ok(())
}

/// Measures one workload on all peers, in every round forth and back again, so that whatever
/// changes steadily in a round (a processor's temperature, a neighbour) falls on all alike.
fn measure(
    workload: &mut dyn Workload,
    peers: &[Peer],
    effort: &Effort,
    rounds: u32,
    figures: &mut Figures,
    meter: &mut Meter,
) {
    let chosen: Vec<&Peer> = takers(workload, peers).collect();
    let title = workload::title(workload);
    if let Err(error) = workload.prepare(&chosen, effort) {
        figures.failed(workload, "all", error.as_ref());
        return;
    }
    figures.announce(workload);
    for round in 0..workload.rounds(rounds) {
        for peer in turns(&chosen, round, workload.there_and_back()) {
            meter.at(&title, &peer.name);
            match workload.measure(peer, effort) {
                Ok(readings) => figures.add(workload, peer, round, readings),
                Err(error) => figures.failed(workload, &peer.name, error.as_ref()),
            }
            meter.did_one();
        }
    }
}

/// Whose turn it is in a round, one after the other.
fn turns<'a>(peers: &[&'a Peer], round: u32, there_and_back: bool) -> Vec<&'a Peer> {
    let taking_part = peers.iter().copied().filter(|peer| round == 0 || !peer.once);
    let (forth, back) = (taking_part.clone(), taking_part.rev());
    match there_and_back {
        true => forth.chain(back).collect(),
        false if round.is_multiple_of(2) => forth.collect(),
        false => back.collect(),
    }
}

/// The peers a workload is run on.
fn takers<'a>(workload: &dyn Workload, peers: &'a [Peer]) -> impl Iterator<Item = &'a Peer> {
    let (runs_scripts, has_floor) = (workload.runs_scripts(), workload.has_floor());
    let takes_part =
        move |peer: &&Peer| (runs_scripts || !peer.for_scripts_only) && (has_floor || !peer.bare);
    peers.iter().filter(takes_part)
}

/// How many measurements there will be.
fn count(workloads: &[Box<dyn Workload>], peers: &[Peer], rounds: u32) -> u64 {
    let of = |workload: &dyn Workload| -> u64 {
        let chosen: Vec<&Peer> = takers(workload, peers).collect();
        let turns = |round| turns(&chosen, round, workload.there_and_back()).len() as u64;
        (0..workload.rounds(rounds)).map(turns).sum()
    };
    workloads.iter().map(|workload| of(workload.as_ref())).sum()
}

#[cfg(test)]
mod tests {
    use super::turns;
    use crate::peers::Peer;

    #[test]
    fn peers_take_turns_forth_and_back() {
        let (a, b) = (Peer::named("a"), Peer::named("b"));
        let mut once = Peer::named("once");
        once.once = true;
        let peers = [&a, &once, &b];
        let check = |round, there_and_back, expected: &str| {
            let turns = turns(&peers, round, there_and_back);
            let names: Vec<_> = turns.iter().map(|peer| peer.name.as_str()).collect();
            assert_eq!(names.join(" "), expected);
        };
        check(0, true, "a once b b once a");
        check(1, true, "a b b a");
        check(0, false, "a once b");
        check(1, false, "b a");
    }
}
