//! Runs what launches a `redis-server` in tests (`tests/launchers/<language>/run`) with Leasehold
//! and with a real `redis-server`, and compares what passed.
//!
//! Fails when anything that passes with Redis does not with Leasehold, when anything fails at all,
//! and when a process is left behind.

#![allow(clippy::print_stdout)] // A program that speaks to whoever runs it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use leasehold_tests::daemon::Folder;
use leasehold_tests::process::eventually;
use leasehold_tests::suites::report::{Comparison, Line, any_failed};
use leasehold_tests::suites::{self, Ending, Kind};

/// So often processes are looked at, a millisecond apart and more, before they are called left.
const LOOKS_MAX: usize = 1000;

/// Has the launchers of a redis-server start Leasehold and a real one.
#[derive(Parser)]
#[command(name = "tests/launchers/run")]
struct Options {
    /// Which suites; all of them when none is named
    languages: Vec<String>,
    /// Start Leasehold alone: compares nothing
    #[arg(long, conflicts_with = "only_redis")]
    only_leasehold: bool,
    /// Start redis-server alone: compares nothing
    #[arg(long)]
    only_redis: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let problems = tokio::select! {
        problems = run(&options) => problems,
        () = suites::interrupted() => vec!["interrupted".to_owned()],
    };
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nThis is not as it must be:");
    for problem in problems {
        println!("  {problem}");
    }
    ExitCode::FAILURE
}

/// Returns what is not as it must be.
async fn run(options: &Options) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("launchers");
    let known = suites::list(&folder);
    if let Some(unknown) = options.languages.iter().find(|it| !known.contains(it)) {
        return vec![format!("there is no suite {unknown}: there are {}", known.join(", "))];
    }
    let languages = if options.languages.is_empty() { &known } else { &options.languages };
    let kinds: &[Kind] = match (options.only_redis, options.only_leasehold) {
        (true, _) => &[Kind::Redis],
        (_, true) => &[Kind::Leasehold],
        _ => &[Kind::Redis, Kind::Leasehold],
    };
    let mut problems = Vec::new();
    let mut comparisons = BTreeMap::new();
    for language in languages {
        let mut comparison = Comparison::default();
        for &kind in kinds {
            let (lines, troubles) = one(&folder.join(language), kind).await;
            let place = |trouble| format!("{language} with {}: {trouble}", kind.name());
            problems.extend(troubles.into_iter().map(place));
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

/// Runs one suite with one program. Returns its report and what went wrong besides.
async fn one(suite: &Path, kind: Kind) -> (Vec<Line>, Vec<String>) {
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
        ("LAUNCHERS_REPORT", report.clone()),
    ];
    let ending = suites::run(suite, kind, &environment).await;
    let mut troubles = left_behind(&format!("LAUNCHERS_REPORT={report}"));
    let lines = Line::read_all(Path::new(&report)).unwrap_or_else(|problem| {
        troubles.push(problem);
        Vec::new()
    });
    match ending {
        Ending::Died(how) => troubles.push(how),
        Ending::NoTools => println!("skipped: the tool chain of {} is missing", suite.display()),
        Ending::Ended(_) if lines.is_empty() => troubles.push("nothing was reported".to_owned()),
        Ending::Ended(status) if status != 0 && !any_failed(&lines) => {
            troubles.push(format!("ended with status {status}, and no failure was reported"));
        }
        Ending::Ended(_) => {}
    }
    (lines, troubles)
}

/// A program named `redis-server` in a folder of its own: some launchers look for the name.
fn put_server(folder: &Folder, kind: Kind) -> Result<String, String> {
    let program = kind.program()?;
    let server = folder.path("bin/redis-server");
    let put = || {
        fs::create_dir(folder.path("bin"))?;
        match program.as_slice() {
            [program] if program.contains('/') => symlink(program, &server),
            words => {
                // It takes itself off PATH, or it might find itself.
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

/// The processes that have `variable` in their environment and do not go.
fn left_behind(variable: &str) -> Vec<String> {
    let mut left = Vec::new();
    let mut looks = 0;
    eventually("a look at the processes", || {
        left = processes_with(variable);
        looks += 1;
        left.is_empty() || looks == LOOKS_MAX
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
