//! The report: a line for each behaviour, appended to the file that `SUITE_REPORT` names.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic;

use serde_json::json;

/// Runs the test of a behaviour of a library and reports its outcome; panics if it fails.
pub fn behaviour(library: &str, sentence: &str, test: impl Future<Output = ()>) {
    let run = || runtime().block_on(test);
    match panic::catch_unwind(panic::AssertUnwindSafe(run)) {
        Ok(()) => append(library, sentence, "passed", None),
        Err(cause) => {
            let reason = cause
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            append(library, sentence, "failed", Some(reason.as_deref().unwrap_or("it panicked")));
            panic::resume_unwind(cause);
        }
    }
}

/// Reports a behaviour that was not tested, and the reason.
pub fn skipped(library: &str, sentence: &str, reason: &str) {
    println!("skipped: {library}: {sentence}: {reason}");
    append(library, sentence, "skipped", Some(reason));
}

fn append(library: &str, sentence: &str, outcome: &str, reason: Option<&str>) {
    let Some(path) = env::var_os("SUITE_REPORT") else { return };
    let mut line = json!({
        "library": library,
        "version": version(library),
        "behaviour": sentence,
        "outcome": outcome,
    });
    if let Some(reason) = reason {
        line["reason"] = reason.into();
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the report");
    // One write, so that the lines of concurrent tests do not mix.
    file.write_all(format!("{line}\n").as_bytes()).expect("a line of the report");
}

/// The version of the library in this build.
fn version(library: &str) -> String {
    let package = if library == "redis-rs" { "redis" } else { library };
    let lock_file = include_str!("../Cargo.lock");
    let entry = lock_file.split(&format!("name = \"{package}\"\nversion = \"")).nth(1);
    let entry = entry.unwrap_or_else(|| panic!("{package} is not in Cargo.lock"));
    entry.split('"').next().unwrap_or_default().to_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}
