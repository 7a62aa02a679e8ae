//! Runs one script to its end, or kills it at its time limit.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::steps::{Source, Tool};
use crate::tools::{self, OLDEST_RUST};
use crate::{root, target};

/// A script with its limits.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The name of its step.
    pub(crate) name: String,
    pub(crate) script: String,
    pub(crate) needs: Vec<Tool>,
    pub(crate) limit: Duration,
    /// Whether the job lets other processes go first.
    pub(crate) is_nice: bool,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The reason.
    Failed(String),
    /// The reason: something that cannot be installed here.
    LeftOut(String),
}

/// A step that has ended, or was not begun.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) seconds: u64,
}

/// The processes of a job, which are killed when this is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // None is left if the job has ended by itself.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }
}

impl Job {
    /// Creates a job without needs.
    pub(crate) fn new(name: &str, script: String, limit: Duration) -> Job {
        Job { name: name.to_owned(), script, needs: Vec::new(), limit, is_nice: false }
    }

    /// Runs the script. Its output is written to [`Job::log`].
    pub(crate) async fn run(self) -> Ended {
        let begin = Instant::now();
        let outcome = match self.lacking() {
            Some(outcome) => outcome,
            None => match self.run_script().await {
                Ok(()) => Outcome::Passed,
                Err(problem) => Outcome::Failed(problem),
            },
        };
        Ended { name: self.name, outcome, seconds: begin.elapsed().as_secs() }
    }

    /// The file with the output of a step.
    pub(crate) fn log(name: &str) -> PathBuf {
        target().join("checks").join(format!("{name}.log"))
    }

    /// The outcome if a tool is missing.
    fn lacking(&self) -> Option<Outcome> {
        let missing = self.needs.iter().find(|tool| !tools::is_installed(tool))?;
        let problem = format!("{} is missing: {}", missing.name, missing.installation());
        Some(match missing.install {
            Source::Toolchain(_) => Outcome::LeftOut(problem),
            _ => Outcome::Failed(problem),
        })
    }

    async fn run_script(&self) -> Result<(), String> {
        let path = Job::log(&self.name);
        let open = || {
            fs::create_dir_all(path.parent().expect("a folder"))?;
            let log = File::create(&path)?;
            Ok((log.try_clone()?, log))
        };
        let (output, errors) =
            open().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
        // A shell lets commands in the background ignore these signals.
        let mut words = vec!["env", "--default-signal=INT,QUIT"];
        if self.is_nice {
            words.extend(["nice", "-n", "10"]);
        }
        words.extend(["bash", "-euo", "pipefail", "-c", &self.script]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.current_dir(root()).process_group(0);
        command.env("CARGO_INCREMENTAL", "0").env("BUILT", target());
        command.env("CHECKS", target().join("checks")).env("OLDEST_RUST", OLDEST_RUST);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("bash: {error}"))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let group = Group(leader);
        let ended = timeout(self.limit, child.wait()).await;
        drop(group);
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(status.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("killed at its limit of {} s", self.limit.as_secs())),
        }
    }
}
