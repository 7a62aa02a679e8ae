//! Suites in other languages: a folder each, whose `run` is given an environment and leaves a
//! report. Knows nothing of what a suite tries.

#![allow(clippy::print_stdout)] // It speaks to whoever runs the suites.

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

/// The exit status by which `run` says that its tool chain is not installed.
const NO_TOOLS: i32 = 77;
/// A suite that hangs is ended after this: far more than any takes, the first run's downloads
/// and builds included.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Which program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The real one.
    Redis,
    /// Ours.
    Lockwheel,
}

impl Kind {
    /// For whoever reads.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis => "Redis",
            Kind::Lockwheel => "Lockwheel",
        }
    }

    /// How to run it: a program and what comes before the server's own arguments.
    ///
    /// # Errors
    /// If it is not there.
    pub fn program(self) -> Result<Vec<String>, String> {
        match self {
            Kind::Redis => redis_server::program().ok_or("there is no redis-server".to_owned()),
            Kind::Lockwheel => Ok(vec![daemon::program().to_string_lossy().into_owned()]),
        }
    }
}

/// Which suites are to run on what: a part of a command line.
#[derive(clap::Args)]
pub struct Choice {
    /// Which suites; all of them when none is named
    languages: Vec<String>,
    /// Try Lockwheel alone: compares nothing
    #[arg(long, conflicts_with = "only_redis")]
    only_lockwheel: bool,
    /// Try redis-server alone: compares nothing
    #[arg(long)]
    only_redis: bool,
}

impl Choice {
    /// The suites, of those in a folder.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn suites(&self, folder: &Path) -> Result<Vec<String>, String> {
        let known = list(folder);
        if let Some(unknown) = self.languages.iter().find(|it| !known.contains(it)) {
            return Err(format!("there is no suite {unknown}: there are {}", known.join(", ")));
        }
        Ok(if self.languages.is_empty() { known } else { self.languages.clone() })
    }

    /// What they run on, in this order.
    pub fn kinds(&self) -> &'static [Kind] {
        match (self.only_redis, self.only_lockwheel) {
            (true, _) => &[Kind::Redis],
            (_, true) => &[Kind::Lockwheel],
            _ => &[Kind::Redis, Kind::Lockwheel],
        }
    }
}

/// Does what is asked for, which returns what is not as it must be, and says so.
pub async fn conclude(all: impl Future<Output = Vec<String>>) -> ExitCode {
    let problems = tokio::select! {
        problems = all => problems,
        () = interrupted() => vec!["interrupted".to_owned()],
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

/// The names of the suites in a folder.
pub fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder of the suites").flatten();
    let suites = entries.filter(|entry| entry.path().join("run").is_file());
    let mut names: Vec<_> =
        suites.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Ends when whoever started this wants it to: everything started here ends with it.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).expect("a signal can be awaited");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// How it went.
pub enum Ending {
    /// It came to its end, with this status. What passed stands in its report.
    Ended(i32),
    /// It could not begin.
    NoTools,
    /// It did not get to its end.
    Died(String),
}

impl Ending {
    /// What is wrong with such an end, if the suite reported these.
    pub fn trouble(self, suite: &Path, lines: &[report::Line]) -> Option<String> {
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

/// Runs it to its end.
pub async fn run(suite: &Path, kind: Kind, environment: &[(&str, String)]) -> Ending {
    let language = suite.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{language}/{}", kind.name().to_lowercase());
    println!("{prefix} | begins");
    let started = tokio::time::Instant::now();
    let mut command = Command::new(suite.join("run"));
    command.current_dir(suite).stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Variables that begin so are settings.
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
    let ended = tokio::time::timeout(PATIENCE, whole).await;
    println!("{prefix} | ended after {} s", started.elapsed().as_secs());
    let Ok(ended) = ended else { return Ending::Died(format!("hangs after {PATIENCE:?}")) };
    match ended.map(|status| status.code()) {
        Ok(Some(NO_TOOLS)) => Ending::NoTools,
        Ok(Some(status)) => Ending::Ended(status),
        Ok(None) => Ending::Died("ended by a signal".to_owned()),
        Err(error) => Ending::Died(error.to_string()),
    }
}

/// Shows every line as it comes.
async fn show(prefix: &str, output: Option<impl AsyncRead + Unpin>) {
    let Some(output) = output else { return };
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        println!("{prefix} | {}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// Everything a suite has started, which ends with it.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(id) = self.0 else { return };
        let mut kill = std::process::Command::new("kill");
        kill.args(["-KILL", "--", &format!("-{id}")]).stderr(Stdio::null());
        let _ = kill.status();
    }
}
