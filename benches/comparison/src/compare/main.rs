//! Compares Lockwheel with other servers: starts every server that is found, measures each workload
//! on all of them in turn, and writes the figures and their ratios.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.
#![allow(clippy::print_stdout)] // A program with text output.

mod discovery;
mod measure;
mod options;
mod progress;
mod report;
mod workloads;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use lockwheel_comparison::{Outcome, floor};

use crate::measure::servers::{ComparedServer, ServerType};
use crate::measure::{bare_server, shutdown};
use crate::options::{CompareAction, FloorArguments, Format, Options};
use crate::progress::RunMeter;
use crate::report::figures::Figures;
use crate::report::{page, saved, text, wheel};
use crate::workloads::workload::Workload;
use crate::workloads::{list, start, workload};

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.action {
        Some(CompareAction::StartInProcess) => return start::print_in_process(),
        Some(CompareAction::BareServer(it)) => bare_server::serve(it.address()).map(|()| true),
        Some(CompareAction::Floor(it)) => run_floor(it).map(|()| true),
        Some(CompareAction::Render { files }) => render(&options, files),
        Some(CompareAction::Wheel { folder }) => save_wheel(&options, folder),
        None => run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            progress::print(&format!("compare: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the comparison. Returns whether every measurement succeeded.
fn run(options: &Options) -> Outcome<bool> {
    let families = list::selected(options);
    if options.list {
        for (name, workloads) in &families {
            println!("{name}");
            workloads.iter().for_each(|it| println!("    {}", workload::title(it.as_ref())));
        }
        return Ok(true);
    }
    if families.is_empty() {
        return Err("no workload has that in its name: see --list".into());
    }
    let mut workloads: Vec<_> = families.into_iter().flat_map(|(_, workloads)| workloads).collect();
    shutdown::handle_signals()?;
    let servers = discovery::find(options)?;
    refusals(&workloads, &servers).iter().for_each(|line| progress::print(line));
    // Opened before the long run, so that a missing folder is reported at once.
    let output = options.open_output()?;
    let mut figures = saved::begin(options, &servers)?;
    workloads.retain(|workload| !figures.contains(workload.as_ref()));
    let mut meter = RunMeter::begin(count(&workloads, &servers, options.rounds()));
    for workload in &mut workloads {
        let began = Instant::now();
        measure(workload.as_mut(), &servers, options, &mut figures, &mut meter);
        figures.spent_seconds += began.elapsed().as_secs_f64();
        saved::write(options, &figures)?;
    }
    meter.end();
    figures.machine.record_load();
    saved::write(options, &figures)?;
    write_outcome(options, &figures, output)?;
    Ok(figures.failures.is_empty())
}

/// Runs a node of the floor.
fn run_floor(arguments: &FloorArguments) -> Outcome<()> {
    let (address, directory) = (arguments.server.address(), &arguments.dir);
    match arguments.follows {
        true => floor::follow(address, directory),
        false => floor::serve(address, directory, &arguments.follower),
    }
}

/// Converts criterion's costs of a timer into `benches/results/wheel.json`.
fn save_wheel(options: &Options, folder: &Path) -> Outcome<bool> {
    let costs = wheel::WheelCosts::read(folder)?.to_json()?;
    options.open_output()?.write_all(costs.as_bytes())?;
    Ok(true)
}

/// Writes the outcome of earlier runs.
fn render(options: &Options, files: &[PathBuf]) -> Outcome<bool> {
    if let ([file], Some(page)) = (files, page::of(options.format))
        && let Ok(tables) = saved::read_tables(file)
    {
        // The plots of saved tables are files of their own, and are not drawn again.
        options.open_output()?.write_all(page(&tables).as_bytes())?;
        return Ok(true);
    }
    let figures = saved::read_all(files)?;
    write_outcome(options, &figures, options.open_output()?)?;
    Ok(true)
}

/// Writes the outcome in the requested format.
fn write_outcome(options: &Options, figures: &Figures, mut output: Box<dyn Write>) -> Outcome<()> {
    if options.format == Format::Page {
        page::draw(figures, options.output.as_deref().ok_or("a page needs --output")?)?;
    }
    output.write_all(text::write(figures, options.format).as_bytes())?;
    Ok(())
}

/// Measures one workload on all servers, in every round in forward and then in reverse order, so
/// that steady changes during a round (a processor's temperature, other load) affect all equally.
fn measure(
    workload: &mut dyn Workload,
    servers: &[ComparedServer],
    options: &Options,
    figures: &mut Figures,
    meter: &mut RunMeter,
) {
    let chosen: Vec<&ComparedServer> = participants(workload, servers).collect();
    let (title, effort) = (workload::title(workload), &options.effort());
    if let Err(error) = workload.prepare(&chosen, effort) {
        figures.add_failure(workload, "all", error.as_ref());
        return;
    }
    figures.add_group(workload);
    for round in 0..workload.rounds(options.rounds()) {
        for server in order(&chosen, round, workload.measures_twice()) {
            meter.at(&title, &server.name);
            match workload.measure(server, effort) {
                Ok(readings) => figures.add(workload, server, round, readings),
                Err(error) => figures.add_failure(workload, &server.name, error.as_ref()),
            }
            meter.advance();
        }
    }
}

/// Returns the order in which servers are measured in a round.
fn order<'a>(servers: &[&'a ComparedServer], round: u32, twice: bool) -> Vec<&'a ComparedServer> {
    let participants = servers.iter().copied().filter(|it| round == 0 || !it.first_round_only);
    let (forward, reverse) = (participants.clone(), participants.rev());
    match twice {
        true => forward.chain(reverse).collect(),
        false if round.is_multiple_of(2) => forward.collect(),
        false => reverse.collect(),
    }
}

/// Returns the servers on which a workload is measured.
fn participants<'a>(
    workload: &dyn Workload,
    servers: &'a [ComparedServer],
) -> impl Iterator<Item = &'a ComparedServer> {
    servers.iter().filter(|server| match server.server_type {
        ServerType::InLua => workload.runs_scripts(),
        ServerType::Bare => workload.has_lower_bound(),
        _ => workload.refuses(server).is_none(),
    })
}

/// Returns which servers do not take part in a group of workloads, and why.
fn refusals(workloads: &[Box<dyn Workload>], servers: &[ComparedServer]) -> BTreeSet<String> {
    let of_workload = |workload: &dyn Workload| {
        let line = |server: &ComparedServer| {
            let reason = workload.refuses(server)?;
            Some(format!("{}: {} is not measured: {reason}", workload.group(), server.name))
        };
        servers.iter().filter_map(line).collect::<Vec<_>>()
    };
    workloads.iter().flat_map(|it| of_workload(it.as_ref())).collect()
}

/// Returns the number of measurements of the run.
fn count(workloads: &[Box<dyn Workload>], servers: &[ComparedServer], rounds: u32) -> u64 {
    let of = |workload: &dyn Workload| -> u64 {
        let chosen: Vec<&ComparedServer> = participants(workload, servers).collect();
        let of_round = |round| order(&chosen, round, workload.measures_twice()).len() as u64;
        (0..workload.rounds(rounds)).map(of_round).sum()
    };
    workloads.iter().map(|workload| of(workload.as_ref())).sum()
}

#[cfg(test)]
mod tests {
    use super::{order, participants, refusals};
    use crate::measure::servers::{ComparedServer, ServerType};
    use crate::workloads::native_handoff;

    #[test]
    fn servers_are_measured_in_both_orders() {
        let (a, b) = (ComparedServer::named("a"), ComparedServer::named("b"));
        let mut once = ComparedServer::named("once");
        once.first_round_only = true;
        let servers = [&a, &once, &b];
        let check = |round, measures_twice, expected: &str| {
            let order = order(&servers, round, measures_twice);
            let names: Vec<_> = order.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(names.join(" "), expected);
        };
        check(0, true, "a once b b once a");
        check(1, true, "a b b a");
        check(0, false, "a once b");
        check(1, false, "b a");
    }

    #[test]
    fn build_without_native_locks_does_not_take_part_in_their_workloads() {
        let server =
            |name: &str, server_type| ComparedServer::new(name, server_type, Vec::new(), None);
        let servers = [
            server("Redis", ServerType::Other),
            server("older", ServerType::Build { has_native_locks: false }),
            server("old", ServerType::Build { has_native_locks: true }),
            server("Lockwheel", ServerType::Lockwheel),
        ];
        let workloads = native_handoff::all();
        let names: Vec<_> =
            participants(workloads[0].as_ref(), &servers).map(|it| &it.name).collect();
        assert_eq!(names, ["Redis", "old", "Lockwheel"]);
        let reason = "older is not measured: it has no LOCK.ACQUIRE";
        let line = format!("Contended hand-off of native locks: {reason}");
        assert_eq!(refusals(&workloads, &servers).into_iter().collect::<Vec<_>>(), [line]);
    }
}
