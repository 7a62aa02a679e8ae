//! Runs this program once more under callgrind, to perform one operation, and reads how many
//! instructions that took. Knows nothing of the operations.
//!
//! Only what happens within [`COUNTED`] counts: neither the set-up nor what comes before and after
//! the work does. Valgrind shows every program the same processor, with or without AVX2, and puts
//! everything at the same addresses.

use std::process::Command;

use lockwheel_benches::operations::{Operation, TIMES};

/// The argument before the operation that is to be performed.
pub(crate) const PERFORM: &str = "--perform";

/// The function of `stage` that does the work, however its name is decorated.
const COUNTED: &str = "*lockwheel_benches*stage*Stage*run_all*";

/// The instructions of one operation, on average.
pub(crate) fn count(operation: &Operation) -> Result<u64, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", &format!("--toggle-collect={COUNTED}")])
        .arg(this)
        .args([PERFORM, &operation.name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let figure = |line: &str| line.split_once("Collected :")?.1.trim().parse::<u64>().ok();
    match said.lines().find_map(figure) {
        Some(0) => Err(format!("{}: nothing was counted", operation.name)),
        Some(instructions) if output.status.success() => Ok(instructions / TIMES),
        _ => Err(format!("{}: {said}", operation.name)),
    }
}
