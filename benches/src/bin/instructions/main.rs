//! How many instructions does each operation that matters take at the engine? Counted by callgrind,
//! so the same binary gives the same figure on a busy machine as on an idle one.
//!
//! - `instructions`: counts, and shows the figures beside the recorded ones.
//! - `instructions --record`: writes them to `benches/instructions.txt`.
//! - `instructions --check`: fails if one is larger than what is recorded, and some room.
//!
//! Words that do not begin with a dash select the operations that contain one of them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it speaks to whoever runs it")]

mod callgrind;
mod record;

use std::process::ExitCode;

use lockwheel_benches::operations::{self, Operation};
use record::{Record, Toolchain};

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
        Err(complaint) => {
            eprintln!("{complaint}");
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
        return Err("what is not optimised says nothing: cargo run --release".to_owned());
    }
    let mut record = Record::read()?;
    let toolchain = Toolchain::here();
    let room = record.room(&toolchain);
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let mut grown = Vec::new();
    println!("{:<44} {:>12} {:>12} {:>7}", "operation", "instructions", "recorded", "ratio");
    for operation in operations::all().iter().filter(|operation| chosen(&operation.name)) {
        let count = callgrind::count(operation)?;
        let recorded = record.get(&operation.name);
        println!("{}", row(operation, count, recorded));
        if recorded.is_none_or(|recorded| count as f64 > recorded as f64 * (1.0 + room)) {
            grown.push(operation.name.clone());
        }
        record.set(&operation.name, count);
    }
    if records {
        record.write(&toolchain)?;
    }
    if checks && !grown.is_empty() {
        return Err(format!(
            "more than {:.0} % above what is recorded, or not recorded: {}. If it is worth it, \
             `cargo run --release -p lockwheel-benches --bin instructions -- --record` and say why \
             in the commit",
            room * 100.0,
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
