//! Runs random scripts by plans and by Lua, and a sample of them on a real `redis-server`, and
//! compares the results. Exits with 1 if there is a difference.

#![allow(clippy::print_stdout)] // A command-line program.
#![allow(clippy::disallowed_methods)] // A run can have a time limit, and reports its duration.

mod accepted;
mod oracle;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use lockwheel_engine::limits::SCRIPTS;
use lockwheel_scripting::{Tiers, outside_of_plans};
use lockwheel_tests::tiers::Chance;
use lockwheel_tests::tiers::builtins::{ARGUMENTS_MAX, BUILTINS, POSITIONS};
use lockwheel_tests::tiers::grammar::{self, Cell, Request, Script, Selection};
use lockwheel_tests::tiers::trial::{Outcome, Trial, shrink};

/// Scripts that a thread takes at a time.
const TURN: u64 = 256;
/// Number of scripts of which one contains the next cell, so that each cell is tested.
const CELL_EVERY: u64 = 8;

/// Run random scripts by both tiers, and a sample of them on a real redis-server
#[derive(Parser)]
#[command(name = "tiers")]
struct Options {
    /// How many scripts
    #[arg(long, default_value_t = 100_000)]
    scripts: u64,
    /// Run for this number of seconds instead of a number of scripts
    #[arg(long)]
    seconds: Option<u64>,
    /// The seed of the random scripts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first script
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The number of threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print this number of scripts and run none
    #[arg(long)]
    show: Option<u64>,
    /// How many scripts also run on a real redis-server
    #[arg(long, default_value_t = 0)]
    sample: u64,
    /// Write a line for each function and position, with its number of scripts, to this file
    #[arg(long)]
    coverage: Option<PathBuf>,
    /// Leave out scripts that contain this
    #[arg(long)]
    without: Option<String>,
    /// Stop after this number of differences
    #[arg(long, default_value_t = 20)]
    differences: usize,
}

/// A script by its number.
fn drawn(seed: u64, number: u64, selection: Selection, cells: &[Cell]) -> (Script, Request, u8) {
    let mut chance = Chance::of(seed, number);
    let about = number
        .is_multiple_of(CELL_EVERY)
        .then(|| cells[(number / CELL_EVERY) as usize % cells.len()]);
    let mut dice = |bound| chance.below(bound);
    let script = grammar::script(selection, about, &mut dice);
    let request = grammar::request(&mut dice);
    let protocol = if dice(2) == 0 { 2 } else { 3 };
    (script, request, protocol)
}

/// The numbers of generated cells and of results.
struct Coverage {
    /// For each cell: in how many scripts, in how many that have plans, in how many run by them.
    cells: Vec<[u64; 3]>,
    scripts: [u64; 2],
    no_lua: u64,
    outside: u64,
    undetermined: u64,
    tiers: Tiers,
}

impl Default for Coverage {
    fn default() -> Coverage {
        let count = BUILTINS.len() * POSITIONS.len() * (ARGUMENTS_MAX + 1);
        Coverage {
            cells: vec![[0; 3]; count],
            scripts: [0; 2],
            no_lua: 0,
            outside: 0,
            undetermined: 0,
            tiers: Tiers::default(),
        }
    }
}

fn at(cell: Cell) -> usize {
    (cell.builtin * POSITIONS.len() + cell.position) * (ARGUMENTS_MAX + 1) + cell.count
}

impl Coverage {
    fn add(&mut self, script: &Script, protocol: u8, outcome: &Outcome, tiers: Tiers) {
        self.scripts[usize::from(protocol == 3)] += 1;
        match outcome {
            Outcome::NoLua => self.no_lua += 1,
            Outcome::Outside => self.outside += 1,
            Outcome::Undetermined => self.undetermined += 1,
            Outcome::Same | Outcome::Differs(_) => {}
        }
        self.tiers.planned += tiers.planned;
        self.tiers.left += tiers.left;
        self.tiers.lua += tiers.lua;
        for cell in &script.cells {
            let counts = &mut self.cells[at(*cell)];
            counts[0] += 1;
            counts[1] += u64::from(tiers.planned + tiers.left > 0);
            counts[2] += u64::from(tiers.planned > 0);
        }
    }

    fn join(&mut self, other: &Coverage) {
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.scripts.iter_mut().zip(other.scripts).for_each(|(mine, theirs)| *mine += theirs);
        self.no_lua += other.no_lua;
        self.outside += other.outside;
        self.undetermined += other.undetermined;
        self.tiers.planned += other.tiers.planned;
        self.tiers.left += other.tiers.left;
        self.tiers.lua += other.tiers.lua;
    }

    /// Prints a line for each function: the number of its cells, and of scripts.
    fn print(&self, cells: &[Cell]) {
        println!(
            "{:30} {:>6} {:>6} {:>8} {:>10} {:>10} {:>10}",
            "function", "cells", "missed", "least", "drawn", "in plans", "by plans"
        );
        let mut missed = 0;
        for (number, builtin) in BUILTINS.iter().enumerate() {
            let own: Vec<[u64; 3]> = cells
                .iter()
                .filter(|cell| cell.builtin == number)
                .map(|cell| self.cells[at(*cell)])
                .collect();
            let sum = |which: usize| own.iter().map(|counts| counts[which]).sum::<u64>();
            let none = own.iter().filter(|counts| counts[0] == 0).count();
            let least = own.iter().map(|counts| counts[0]).min().unwrap_or_default();
            missed += none;
            println!(
                "{:30} {:>6} {:>6} {:>8} {:>10} {:>10} {:>10}",
                builtin.name,
                own.len(),
                none,
                least,
                sum(0),
                sum(1),
                sum(2)
            );
        }
        println!("{} cells of function x position x arguments, {missed} not drawn", cells.len());
    }

    fn write(&self, path: &Path) {
        let mut text = String::from("function\tposition");
        for count in 0..=ARGUMENTS_MAX {
            text.push_str(&format!("\t{count} arguments\tin plans\tby plans"));
        }
        text.push('\n');
        for (number, builtin) in BUILTINS.iter().enumerate() {
            for (position, place) in POSITIONS.iter().enumerate() {
                text.push_str(&format!("{}\t{}", builtin.name, place.name));
                for count in 0..=ARGUMENTS_MAX {
                    let counts = self.cells[at(Cell { builtin: number, position, count })];
                    let [drawn, inside, planned] = counts;
                    match place.counts.contains(&count) {
                        true => text.push_str(&format!("\t{drawn}\t{inside}\t{planned}")),
                        false => text.push_str("\t-\t-\t-"),
                    }
                }
                text.push('\n');
            }
        }
        std::fs::write(path, text).expect("the coverage is written");
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cells: Vec<Cell> = grammar::cells(Selection::All).collect();
    if let Some(count) = options.show {
        for number in options.first..options.first + count {
            let (script, request, protocol) = drawn(options.seed, number, Selection::All, &cells);
            println!(
                "-- {number} RESP{protocol} {:?} {:?} {:?}",
                request.form, request.keys, request.words
            );
            println!("{}", script.text);
            if let Some(outside) = outside_of_plans(script.text.as_bytes(), &SCRIPTS) {
                println!("-- {} (line {})", outside.what, outside.line);
            }
            println!();
        }
        return ExitCode::SUCCESS;
    }
    // Panics of the engines count as differences.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = compare_tiers(&options, &cells);
    std::panic::set_hook(usual);
    let unlike = match options.sample {
        0 => 0,
        _ => oracle::compare(&options),
    };
    if found + unlike == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Compares plans and Lua. Returns the number of differences.
fn compare_tiers(options: &Options, cells: &[Cell]) -> usize {
    let begin = Instant::now();
    let end = options.seconds.map(|seconds| begin + Duration::from_secs(seconds));
    let bar = ProgressBar::new(if end.is_some() { 0 } else { options.scripts });
    let next = AtomicU64::new(0);
    let all = Mutex::new(Coverage::default());
    // By the reduced script, because one cause is found many times.
    let found = Mutex::new(BTreeMap::<String, u64>::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                let mut trial = Trial::new();
                let mut coverage = Coverage::default();
                loop {
                    let from = next.fetch_add(TURN, Ordering::Relaxed);
                    let is_over = match end {
                        Some(end) => Instant::now() >= end,
                        None => from >= options.scripts,
                    };
                    let enough = found.lock().expect("unpoisoned").len() >= options.differences;
                    if is_over || enough {
                        break;
                    }
                    let to = if end.is_some() {
                        from + TURN
                    } else {
                        (from + TURN).min(options.scripts)
                    };
                    for number in options.first + from..options.first + to {
                        let (script, request, protocol) =
                            drawn(options.seed, number, Selection::All, cells);
                        if options.without.as_ref().is_some_and(|word| script.text.contains(word)) {
                            continue;
                        }
                        let outcome = trial.run(&script.text, &request, protocol);
                        coverage.add(&script, protocol, &outcome, trial.tiers());
                        if let Outcome::Differs(_) = outcome {
                            let least = report(
                                &mut trial,
                                options.seed,
                                number,
                                &script,
                                &request,
                                protocol,
                            );
                            *found.lock().expect("unpoisoned").entry(least).or_default() += 1;
                        }
                    }
                    bar.inc(to - from);
                }
                all.lock().expect("unpoisoned").join(&coverage);
            });
        }
    });
    bar.finish_and_clear();
    let coverage = all.into_inner().expect("unpoisoned");
    coverage.print(cells);
    if let Some(path) = &options.coverage {
        coverage.write(path);
    }
    let [two, three] = coverage.scripts;
    let total = two + three;
    let seconds = begin.elapsed().as_secs_f64();
    let Coverage { outside, no_lua, undetermined, .. } = coverage;
    let share = |part: u64| part as f64 * 100.0 / total.max(1) as f64;
    println!(
        "seed {}: {total} scripts ({two} in RESP2, {three} in RESP3) in {seconds:.0} s, \
         {:.0} a second",
        options.seed,
        total as f64 / seconds
    );
    let inside = total - outside - no_lua;
    println!(
        "in the subset, and run by both tiers: {inside} ({:.1} %); by engines: {} by a plan to its \
         end, {} begun by a plan; not in the subset {outside}, no Lua {no_lua}, undetermined \
         {undetermined}",
        share(inside),
        coverage.tiers.planned,
        coverage.tiers.left,
    );
    let found = found.into_inner().expect("unpoisoned");
    println!("{} differences", found.len());
    found.len()
}

/// Prints a difference with the smallest script that shows it, which is returned.
fn report(
    trial: &mut Trial,
    seed: u64,
    number: u64,
    script: &Script,
    request: &Request,
    protocol: u8,
) -> String {
    let least = shrink(&script.text, |text| {
        matches!(trial.run(text, request, protocol), Outcome::Differs(_))
    });
    let Outcome::Differs(difference) = trial.run(&least, request, protocol) else { return least };
    println!(
        "--- seed {seed}, script {number}, RESP{protocol}, {:?} {:?} {:?}\n{least}\n{difference}\n",
        request.form, request.keys, request.words
    );
    least
}
