//! Runs this program under callgrind to perform one operation, and reads the instruction count.
//!
//! Only instructions within [`COUNTED`] count, not those of the set-up, nor those before and after
//! the measured commands. Valgrind emulates the same processor, with or without AVX2, on every
//! machine, and loads everything at the same addresses.

use std::process::Command;

use lockwheel_benches::operations::{Operation, REPETITIONS};

use crate::recorded::Count;

/// The option before the name of the operation to perform.
pub(crate) const PERFORM: &str = "--perform";

/// A pattern for the function in which instructions are counted: it matches its mangled name.
const COUNTED: &str = "*lockwheel_benches*engine_bench*EngineBench*run_all*";

/// Returns the mean number of instructions of one operation.
pub(crate) fn count(operation: &Operation) -> Result<Count, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", &format!("--toggle-collect={COUNTED}")])
        .arg(this)
        .args([PERFORM, &operation.name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let output_text = String::from_utf8_lossy(&output.stderr);
    let figure = |line: &str| line.split_once("Collected :")?.1.trim().parse::<u64>().ok();
    match output_text.lines().find_map(figure) {
        Some(0) => Err(format!("{}: no instructions were counted", operation.name)),
        Some(instructions) if output.status.success() => {
            let value = (instructions / REPETITIONS) as f64;
            Ok(Count { name: operation.name.clone(), value, is_exact: false })
        }
        _ => Err(format!("{}: {output_text}", operation.name)),
    }
}
