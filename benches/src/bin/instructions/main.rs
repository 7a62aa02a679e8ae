//! Counts the instructions of important operations of the engine with callgrind: the counts of one
//! binary do not depend on the load of the machine.
//!
//! - `instructions`: shows the counts beside the recorded ones.
//! - `instructions --record`: writes the counts to `benches/instructions.txt`.
//! - `instructions --check`: fails if a count exceeds the recorded one by more than a tolerance.
//!
//! Words that do not begin with a dash select the operations that contain one of them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program with text output")]

mod callgrind;
mod recorded;

use std::process::ExitCode;

use lockwheel_benches::operations::{self, Operation};
use recorded::{RecordedCounts, Toolchain};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, name] = &arguments[..]
        && mode == callgrind::PERFORM
    {
        let all = operations::all();
        let operation = all.iter().find(|operation| operation.name == *name);
        operation.expect("an operation").perform(|work| work());
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (modes, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with('-'));
    let (records, checks) = match modes[..] {
        [] => (false, false),
        ["--record"] => (true, false),
        ["--check"] => (false, true),
        _ => return Err("usage: instructions [--record | --check] [WORD]...".to_owned()),
    };
    if cfg!(debug_assertions) {
        return Err("only optimised builds can be measured: cargo run --release".to_owned());
    }
    let mut counts = RecordedCounts::read()?;
    let toolchain = Toolchain::installed();
    let tolerance = counts.tolerance(&toolchain);
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut grown = Vec::new();
    println!("{:<44} {:>12} {:>12} {:>7}", "operation", "instructions", "recorded", "ratio");
    for operation in operations::all().iter().filter(|operation| chosen(&operation.name)) {
        let count = callgrind::count(operation)?;
        let recorded = counts.get(&operation.name);
        println!("{}", row(operation, count, recorded));
        if recorded.is_none_or(|recorded| count as f64 > recorded as f64 * (1.0 + tolerance)) {
            grown.push(operation.name.clone());
        }
        counts.set(&operation.name, count);
    }
    if records {
        counts.write(&toolchain)?;
    }
    if checks && !grown.is_empty() {
        return Err(format!(
            "more than {:.0} % above the recorded count, or not recorded: {}. If it is justified, \
             `cargo run --release -p lockwheel-benches --bin instructions -- --record` and say why \
             in the commit",
            tolerance * 100.0,
            grown.join(", "),
        ));
    }
    Ok(())
}

fn row(operation: &Operation, count: u64, recorded: Option<u64>) -> String {
    let (recorded, ratio) = match recorded {
        Some(recorded) => (recorded.to_string(), format!("{:.3}", count as f64 / recorded as f64)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    format!("{:<44} {count:>12} {recorded:>12} {ratio:>7}", operation.name)
}
