//! Runs one suite: its `run`, with the servers in its environment, its output shown line by line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

use crate::servers::{Kind, Servers};

/// The exit status by which `run` says that its tool chain is not installed.
const NO_TOOLS: i32 = 77;
/// A suite that hangs is ended after this: far more than any takes, the first run's downloads
/// and builds included.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// How it went.
pub(crate) enum Ending {
    /// It came to its end, with this status. What passed stands in its report.
    Ended(i32),
    /// It could not begin.
    NoTools,
    /// It did not get to its end.
    Died(String),
}

/// Runs it to its end.
pub(crate) async fn run(suite: &Path, kind: Kind, servers: &Servers, report: &Path) -> Ending {
    let language = suite.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{language}/{}", kind.name().to_lowercase());
    println!("{prefix} | begins");
    let started = tokio::time::Instant::now();
    let mut command = Command::new(suite.join("run"));
    command.current_dir(suite).stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(servers.environment()).env("CLIENTS_REPORT", report);
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
