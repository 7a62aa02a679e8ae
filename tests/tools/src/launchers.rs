//! Runs the libraries that launch a `redis-server` in tests (`tests/launchers/<language>/run`) with
//! Lockwheel and with a real `redis-server`, and compares the results.
//!
//! Fails if any test fails, if a test that passes with Redis is skipped or missing with Lockwheel,
//! and if a process is left running.

#![allow(clippy::print_stdout)] // A command-line program.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::eventually;
use lockwheel_tests::suites::report::{Comparison, Line};
use lockwheel_tests::suites::{self, Choice, ServerProgram};

/// The number of checks, at least a millisecond apart, before a process counts as left running.
const CHECKS_MAX: usize = 1000;

/// Lets the launchers of a redis-server start Lockwheel and a real one.
#[derive(Parser)]
#[command(name = "tests/launchers/run")]
struct Options {
    #[command(flatten)]
    choice: Choice,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    suites::conclude(run(&Options::parse().choice)).await
}

/// Runs the suites and returns the problems.
async fn run(choice: &Choice) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../launchers");
    let languages = match choice.suites(&folder) {
        Ok(languages) => languages,
        Err(problem) => return vec![problem],
    };
    let kinds = choice.kinds();
    let mut problems = Vec::new();
    let mut comparisons = BTreeMap::new();
    for language in &languages {
        let mut comparison = Comparison::default();
        for &kind in kinds {
            let (lines, problems_found) = run_suite(&folder.join(language), kind).await;
            let place = |trouble| format!("{language} with {}: {trouble}", kind.name());
            problems.extend(problems_found.into_iter().map(place));
            comparison.add(kind, lines);
        }
        comparisons.insert(language, comparison);
    }
    for (language, comparison) in &comparisons {
        comparison.print(language, kinds);
        problems.extend(comparison.faults(kinds).into_iter().map(|it| format!("{language}: {it}")));
    }
    problems
}

/// Runs one suite with one program. Returns its report and other problems.
async fn run_suite(suite: &Path, kind: ServerProgram) -> (Vec<Line>, Vec<String>) {
    let folder = Folder::new();
    let report = folder.path("report.jsonl");
    let server = match put_server(&folder, kind) {
        Ok(server) => server,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let environment = [
        ("REDIS_SERVER", server),
        ("PATH", format!("{}:{path}", folder.path("bin"))),
        ("SUITE_REPORT", report.clone()),
    ];
    let ending = suites::run(suite, kind, &environment).await;
    let mut problems_found = left_behind(&format!("SUITE_REPORT={report}"));
    let lines = Line::read_all(Path::new(&report)).unwrap_or_else(|problem| {
        problems_found.push(problem);
        Vec::new()
    });
    problems_found.extend(ending.problem(suite, &lines));
    (lines, problems_found)
}

/// Creates a program named `redis-server` in a folder: some launchers search for this name.
fn put_server(folder: &Folder, kind: ServerProgram) -> Result<String, String> {
    let program = kind.program()?;
    let server = folder.path("bin/redis-server");
    let put = || {
        fs::create_dir(folder.path("bin"))?;
        match program.as_slice() {
            [program] if program.contains('/') => symlink(program, &server),
            words => {
                // It removes its folder from PATH, so that it does not run itself.
                let path = "PATH=${PATH#*:}";
                fs::write(
                    &server,
                    format!("#!/bin/sh\n{path}\nexec {} \"$@\"\n", words.join(" ")),
                )?;
                fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
            }
        }
    };
    put().map_err(|error: std::io::Error| format!("{server}: {error}"))?;
    Ok(server)
}

/// The processes with `variable` in their environment that do not end.
fn left_behind(variable: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut looks = 0;
    eventually("a look at the processes", || {
        left = processes_with(variable);
        looks += 1;
        left.is_empty() || looks == CHECKS_MAX
    });
    left
}

fn processes_with(variable: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
    let has = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|it| it == variable.as_bytes())
    };
    let tell = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        format!("left behind: process {}: {line}", entry.file_name().display())
    };
    processes.filter(has).map(tell).collect()
}
