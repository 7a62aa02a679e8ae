//! Runs histories, or all defects.
//!
//! ```text
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --histories 200
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --cluster --histories 200
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --cluster --traces
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --defects
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --defects --record
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --seed 7 --story
//! cargo run --release --manifest-path tests/simulation/Cargo.toml -- --seed 7 --history FILE
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockwheel_defects::Defect;
use lockwheel_simulation::plan::Plan;
use lockwheel_simulation::run::{Outcome, catch_panics, run};
use lockwheel_simulation::shrink::shrink;
use lockwheel_simulation::{defects, operations};
use lockwheel_specification::follow;

struct Options {
    histories: u64,
    seed: u64,
    defect: Option<Defect>,
    all_defects: bool,
    /// Whether the servers are the nodes of a cluster.
    is_cluster: bool,
    /// Whether only the specification judges the histories of clusters.
    only_traces: bool,
    record: bool,
    story: bool,
    /// The file to which the requests to locks are written; of defects, those of histories in
    /// which the answers to them are wrong.
    history: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        histories: 1,
        seed: 1,
        defect: None,
        all_defects: false,
        is_cluster: false,
        only_traces: false,
        record: false,
        story: false,
        history: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--histories" => options.histories = number(&value()?)?,
            "--seed" => options.seed = number(&value()?)?,
            "--defect" => {
                let name = value()?;
                options.defect = Some(defects::find(&name).ok_or(format!("no defect {name}"))?);
            }
            "--cluster" => options.is_cluster = true,
            "--traces" => options.only_traces = true,
            "--defects" => options.all_defects = true,
            "--record" => options.record = true,
            "--story" => options.story = true,
            "--history" => options.history = Some(value()?.into()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    catch_panics();
    let succeeded =
        if options.all_defects { find_defects(&options) } else { run_histories(&options) };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs histories until one fails.
fn run_histories(options: &Options) -> bool {
    let begin = Instant::now();
    let (mut requests, mut steps) = (0, BTreeMap::new());
    let mut written = create(options);
    for seed in options.seed..options.seed + options.histories {
        let plan = draw(options.is_cluster, seed, options.defect);
        let outcome = run(&plan, options.story);
        outcome.lines.iter().for_each(|line| println!("{line}"));
        if options.histories == 1 {
            println!("{plan}trace {:016x}", outcome.hash);
        }
        requests += outcome.history.len();
        if let Some(out) = &mut written {
            let name = plan.seed.to_string();
            operations::write(out, &name, &plan, &outcome.history).expect("a writable file");
        }
        if options.only_traces {
            match follow(&outcome.nodes) {
                Ok(followed) => {
                    for (step, count) in followed.steps {
                        *steps.entry(step).or_insert(0) += count;
                    }
                }
                Err(refusal) => {
                    println!("seed {seed}: {refusal}");
                    return false;
                }
            }
        }
        if !outcome.violations.is_empty() && !options.only_traces {
            report_failure(&plan, &outcome);
            return false;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} histories, {requests} requests to locks: no violation ({seconds:.1} s)",
        options.histories
    );
    if options.only_traces {
        println!("steps of the specification: {steps:?}");
    }
    true
}

fn create(options: &Options) -> Option<BufWriter<File>> {
    let create = |path| BufWriter::new(File::create(path).expect("a writable file"));
    options.history.as_ref().map(create)
}

/// The plan of a seed: of a history of a cluster, if it is wanted or the defect needs one, or of
/// servers that know nothing of each other.
fn draw(is_cluster: bool, seed: u64, defect: Option<Defect>) -> Plan {
    match is_cluster || defect.is_some_and(defects::is_of_clusters) {
        true => Plan::draw_cluster(seed, defect),
        false => Plan::draw(seed, defect),
    }
}

fn report_failure(plan: &Plan, outcome: &Outcome) {
    println!("seed {}: trace {:016x}", plan.seed, outcome.hash);
    for violation in &outcome.violations {
        println!("  {}: {}", violation.kind, violation.text);
    }
    let defect = plan.defect.map(|defect| format!(" --defect {defect}")).unwrap_or_default();
    let package = "--manifest-path tests/simulation/Cargo.toml";
    let cluster = if plan.is_cluster { " --cluster" } else { "" };
    println!("repeat: cargo run --release {package} --{cluster} --seed {}{defect}", plan.seed);
    let (smaller, tried) = shrink(plan, &outcome.violations[0]);
    println!("made smaller in {tried} runs:\n{smaller}");
    let story = run(&smaller, true);
    let skipped = story.lines.len().saturating_sub(STORY_LINES);
    if skipped > 0 {
        println!("({skipped} lines before)");
    }
    story.lines[skipped..].iter().for_each(|line| println!("{line}"));
    for violation in &story.violations {
        println!("  {}: {}", violation.kind, violation.text);
    }
}

/// Lines of the story of a failing history.
const STORY_LINES: usize = 150;

/// Histories in which a defect must be found.
const HISTORIES_MAX: u64 = 500;

/// Names each defect and the seed of a history that finds it, which is tried first. Written with
/// `--record`.
const FOUND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/found.txt");

/// Runs all defects: on the recorded history, then on histories from the first seed on.
fn find_defects(options: &Options) -> bool {
    let recorded = if options.record { BTreeMap::new() } else { recorded_seeds() };
    let all: Vec<Defect> = defects::all().collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let written = Mutex::new(create(options));
    let work = || {
        while let Some(&defect) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = defect.to_string();
            let recorded = recorded.get(&name).copied();
            let Some((plan, outcome)) = find_defect(defect, recorded, options.seed) else {
                continue;
            };
            let mut written = written.lock().expect("no panic");
            if let Some(out) = written.as_mut().filter(|_| operations::are_wrong(&plan, &outcome)) {
                operations::write(out, &name, &plan, &outcome.history).expect("a writable file");
            }
            found.lock().expect("no panic").insert(name, plan.seed);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().expect("no panic");
    if options.record {
        let lines: String = found.iter().map(|(name, seed)| format!("{name} {seed}\n")).collect();
        fs::write(FOUND, lines).expect("a writable checkout");
    }
    found.len() == all.len()
}

fn recorded_seeds() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(FOUND).unwrap_or_default();
    let seed = |line: &str| {
        let (name, seed) = line.split_once(' ')?;
        Some((name.to_owned(), seed.parse().ok()?))
    };
    text.lines().filter_map(seed).collect()
}

/// Runs histories with a defect until it is found. Returns that history.
fn find_defect(defect: Defect, recorded: Option<u64>, first: u64) -> Option<(Plan, Outcome)> {
    let begin = Instant::now();
    let found = recorded.into_iter().chain(first..first + HISTORIES_MAX).find_map(|seed| {
        let plan = draw(false, seed, Some(defect));
        let outcome = run(&plan, false);
        (!outcome.violations.is_empty()).then_some((plan, outcome))
    });
    let seconds = begin.elapsed().as_secs_f64();
    match &found {
        Some((plan, outcome)) => {
            let (seed, violation) = (plan.seed, &outcome.violations[0]);
            let text: String = violation.text.chars().take(80).collect();
            println!("{defect:<32} {seed:>4} {seconds:>5.1} s  {}: {text}", violation.kind);
        }
        None => println!("{defect:<32} NOT FOUND in {HISTORIES_MAX} histories: {}", defect.text()),
    }
    found
}
