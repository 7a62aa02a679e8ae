//! What tests leave out because a program is not installed: a line for each when the process ends.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

/// Variable that is 1 in CI, where nothing may be left out.
const REQUIRE_VARIABLE: &str = "LOCKWHEEL_REQUIRE_REDIS";

/// How often something was left out for want of each program.
static LEFT_OUT: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Notes that a comparison or a check is left out because `program` is not installed.
///
/// # Panics
/// If nothing may be left out.
pub fn without(program: &str) {
    let is_required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
    assert!(!is_required, "{REQUIRE_VARIABLE}=1, but there is no {program}");
    let mut left_out = LEFT_OUT.lock().expect("no panic");
    if left_out.is_empty() {
        // SAFETY: the function is called once, after which only Rust's own clean-up of the process
        // follows; it takes a lock that no thread holds for long, and does not unwind.
        unsafe { libc::atexit(report) };
    }
    *left_out.entry(program.to_owned()).or_default() += 1;
}

/// Prints what was left out, past the test runner, which shows only what failing tests print.
extern "C" fn report() {
    let Ok(left_out) = LEFT_OUT.try_lock() else { return };
    for (program, count) in left_out.iter() {
        let line = format!(
            "no {program} on the path: {count} checks left out (`.ci/run tests` installs it and \
             runs them)"
        );
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
