//! Runs the test suites in other languages: each is a folder with a program `run`, which gets an
//! environment and writes a report. Nothing here depends on the content of a suite.

#![allow(clippy::print_stdout)] // The output of the programs that run the suites.

pub mod report;

use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::daemon;
use crate::redis_server;

/// The exit status of `run` if its tool chain is not installed.
const NO_TOOLS: i32 = 77;
/// A suite that hangs is ended after this time: far more than any needs, including the downloads
/// and builds of the first run.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The program that runs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerProgram {
    /// The real `redis-server`.
    Redis,
    /// Lockwheel.
    Lockwheel,
}

impl ServerProgram {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ServerProgram::Redis => "Redis",
            ServerProgram::Lockwheel => "Lockwheel",
        }
    }

    /// The command: a program and the words before the server's own arguments.
    ///
    /// # Errors
    /// If the program is missing.
    pub fn program(self) -> Result<Vec<String>, String> {
        match self {
            ServerProgram::Redis => {
                redis_server::program().ok_or("there is no redis-server".to_owned())
            }
            ServerProgram::Lockwheel => Ok(vec![daemon::program().to_string_lossy().into_owned()]),
        }
    }
}

/// The suites and server programs to run: a part of a command line.
#[derive(clap::Args)]
pub struct Choice {
    /// The suites to run; all if none is named
    languages: Vec<String>,
    /// Run on Lockwheel only, without a comparison
    #[arg(long, conflicts_with = "only_redis")]
    only_lockwheel: bool,
    /// Run on redis-server only, without a comparison
    #[arg(long)]
    only_redis: bool,
}

impl Choice {
    /// The chosen suites of a folder.
    ///
    /// # Errors
    /// If there is no suite of a name.
    pub fn suites(&self, folder: &Path) -> Result<Vec<String>, String> {
        let known = list(folder);
        if let Some(unknown) = self.languages.iter().find(|it| !known.contains(it)) {
            return Err(format!("there is no suite {unknown}: there are {}", known.join(", ")));
        }
        Ok(if self.languages.is_empty() { known } else { self.languages.clone() })
    }

    /// The server programs, in this order.
    pub fn kinds(&self) -> &'static [ServerProgram] {
        match (self.only_redis, self.only_lockwheel) {
            (true, _) => &[ServerProgram::Redis],
            (_, true) => &[ServerProgram::Lockwheel],
            _ => &[ServerProgram::Redis, ServerProgram::Lockwheel],
        }
    }
}

/// Runs the suites, prints their problems, and returns the exit status.
pub async fn conclude(all: impl Future<Output = Vec<String>>) -> ExitCode {
    let problems = tokio::select! {
        problems = all => problems,
        () = interrupted() => vec!["interrupted".to_owned()],
    };
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nProblems:");
    for problem in problems {
        println!("  {problem}");
    }
    ExitCode::FAILURE
}

/// The names of the suites in a folder.
pub fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder of the suites").flatten();
    let suites = entries.filter(|entry| entry.path().join("run").is_file());
    let mut names: Vec<_> =
        suites.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Completes at a signal to end: all processes started here then end too.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).expect("a signal can be awaited");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// How a suite ended.
pub enum Ending {
    /// It ended with this status. Its report lists the results.
    Ended(i32),
    /// Its tool chain is missing.
    NoTools,
    /// It was killed.
    Died(String),
}

impl Ending {
    /// The problem of this end, if any, for a suite that reported these lines.
    pub fn problem(self, suite: &Path, lines: &[report::Line]) -> Option<String> {
        match self {
            Ending::Died(how) => Some(how),
            Ending::NoTools => {
                println!("skipped: the tool chain of {} is missing", suite.display());
                None
            }
            Ending::Ended(_) if lines.is_empty() => Some("nothing was reported".to_owned()),
            Ending::Ended(status) if status != 0 && !report::any_failed(lines) => {
                Some(format!("ended with status {status}, and no failure was reported"))
            }
            Ending::Ended(_) => None,
        }
    }
}

/// Runs a suite to its end.
pub async fn run(suite: &Path, kind: ServerProgram, environment: &[(&str, String)]) -> Ending {
    let language = suite.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{language}/{}", kind.name().to_lowercase());
    println!("{prefix} | begins");
    let started = tokio::time::Instant::now();
    let mut command = Command::new(suite.join("run"));
    command.current_dir(suite).stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Variables with this prefix are settings.
    for (variable, _) in std::env::vars().filter(|(it, _)| it.starts_with("LOCKWHEEL_")) {
        command.env_remove(variable);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ending::Died(format!("{}: {error}", suite.join("run").display())),
    };
    let _group = Group(child.id());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let whole = async {
        tokio::join!(show(&prefix, stdout), show(&prefix, stderr));
        child.wait().await
    };
    let ended = tokio::time::timeout(TIMEOUT, whole).await;
    println!("{prefix} | ended after {} s", started.elapsed().as_secs());
    let Ok(ended) = ended else { return Ending::Died(format!("hangs after {TIMEOUT:?}")) };
    match ended.map(|status| status.code()) {
        Ok(Some(NO_TOOLS)) => Ending::NoTools,
        Ok(Some(status)) => Ending::Ended(status),
        Ok(None) => Ending::Died("ended by a signal".to_owned()),
        Err(error) => Ending::Died(error.to_string()),
    }
}

/// Prints every line as soon as it arrives.
async fn show(prefix: &str, output: Option<impl AsyncRead + Unpin>) {
    let Some(output) = output else { return };
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        println!("{prefix} | {}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// The process group of a suite, which is killed when this is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.0 else { return };
        let mut kill = std::process::Command::new("kill");
        kill.args(["-KILL", "--", &format!("-{id}")]).stderr(Stdio::null());
        let _ = kill.status();
    }
}
