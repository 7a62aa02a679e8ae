//! Counts what important operations cost, in instructions, system calls and clock reads: at the
//! engine, and as whole requests through a connection of the program `lockwheel`. None of these
//! depends on the load of the machine.
//!
//! - `counts`: shows the counts beside the recorded ones.
//! - `counts --record`: writes the counts to `benches/counts.txt`.
//! - `counts --check`: fails if system calls or clock reads differ from the recorded ones, or if
//!   instructions exceed them by more than a tolerance.
//! - `counts --program PATH`: shows the counts of whole requests of another server program, for
//!   example of an older build. It must be dynamically linked and take `--port`.
//!
//! Other words select the operations that contain one of them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program with text output")]

mod callgrind;
mod recorded;
mod requests;

use std::path::PathBuf;
use std::process::ExitCode;

use lockwheel_benches::operations;
use lockwheel_tests::daemon;
use recorded::{Count, RecordedCounts, Toolchain};

const USAGE: &str = "usage: counts [--record | --check | --program PATH] [WORD]...";

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
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What to do with the counts.
enum Mode {
    Show,
    Record,
    Check,
    /// Shows those of another server program.
    ShowProgram(PathBuf),
}

fn run(mut arguments: Vec<String>) -> Result<(), String> {
    let option = arguments.first().filter(|argument| argument.starts_with('-')).cloned();
    let options = match option.as_deref() {
        None => 0,
        Some("--program") => 2,
        Some(_) => 1,
    };
    if arguments.len() < options {
        return Err(USAGE.to_owned());
    }
    let words = arguments.split_off(options);
    let mode = match option.as_deref() {
        None => Mode::Show,
        Some("--record") => Mode::Record,
        Some("--check") => Mode::Check,
        Some("--program") => Mode::ShowProgram(PathBuf::from(&arguments[1])),
        Some(_) => return Err(USAGE.to_owned()),
    };
    if cfg!(debug_assertions) {
        return Err("only optimised builds can be measured: cargo run --release".to_owned());
    }
    let mut recorded = RecordedCounts::read()?;
    let toolchain = Toolchain::installed();
    let mut differences = Vec::new();
    println!("{:<72} {:>12} {:>12} {:>7}", "operation", "count", "recorded", "ratio");
    let compare = |count: Count| {
        println!("{}", row(&count, recorded.get(&count.name)));
        differences.extend(recorded.difference(&count, &toolchain));
        recorded.set(count);
    };
    measure(&mode, &words, compare)?;
    match mode {
        Mode::Record => recorded.write(&toolchain),
        Mode::Check if !differences.is_empty() => Err(format!(
            "{}\nIf it is justified, `cargo run --release -p lockwheel-benches --bin counts -- \
             --record` and say why in the commit",
            differences.join("\n")
        )),
        _ => Ok(()),
    }
}

/// Counts all operations that contain one of the words.
fn measure(mode: &Mode, words: &[String], mut add: impl FnMut(Count)) -> Result<(), String> {
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let program = match mode {
        Mode::ShowProgram(program) => program,
        _ => daemon::program(),
    };
    for cycle in requests::CYCLES.iter().filter(|cycle| chosen(cycle.name)) {
        requests::count(program, cycle)?.into_iter().for_each(&mut add);
    }
    if !matches!(mode, Mode::ShowProgram(_)) {
        for operation in operations::all().iter().filter(|operation| chosen(&operation.name)) {
            add(callgrind::count(operation)?);
        }
    }
    Ok(())
}

fn row(count: &Count, recorded: Option<f64>) -> String {
    let Count { name, value, .. } = count;
    let (recorded, ratio) = match recorded {
        Some(recorded) => (recorded.to_string(), format!("{:.3}", value / recorded)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    format!("{name:<72} {value:>12} {recorded:>12} {ratio:>7}")
}
