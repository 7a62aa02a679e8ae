//! Clusters of nodes that replicate their log, started as an operator starts them.

use std::time::Duration;

use lockwheel_compat::time;

use crate::daemon;
use crate::process::until;

/// Pause between two questions for the status, each of which is a process.
const STATUS_PAUSE: Duration = Duration::from_millis(100);

/// Starts the nodes of a new cluster, one after the other. `start` starts the node of an index with
/// these words before its directives; `dir` is the directory of the first node.
///
/// # Errors
/// If a node cannot be started or does not join.
pub fn start<N>(
    dir: &str,
    count: usize,
    mut start: impl FnMut(usize, &[&str]) -> Result<N, String>,
) -> Result<Vec<N>, String> {
    let mut nodes = vec![start(0, &["raft", "init"])?];
    wait_for_leader(dir, nodes.len())?;
    while nodes.len() < count {
        let token = raft("token", dir).ok_or("there is no join token")?;
        nodes.push(start(nodes.len(), &["raft", "join", token.trim()])?);
        wait_for_leader(dir, nodes.len())?;
    }
    Ok(nodes)
}

/// Waits until all `count` nodes vote and are in contact with the leader, as `lockwheel raft
/// status` says for the node in `dir`. Returns the leader's address for clients.
///
/// # Errors
/// If that takes too long.
pub fn wait_for_leader(dir: &str, count: usize) -> Result<String, String> {
    until("all nodes in contact", || {
        let leader = leader(dir, count);
        if leader.is_none() {
            time::sleep(STATUS_PAUSE);
        }
        leader
    })
}

fn leader(dir: &str, count: usize) -> Option<String> {
    let text = raft("status", dir)?;
    let lines: Vec<Vec<&str>> = text.lines().map(|it| it.split_whitespace().collect()).collect();
    let voters = lines.iter().filter(|it| matches!(it[..], [_, "leader" | "follower", "yes", ..]));
    let leader = lines.iter().find(|it| matches!(it[..], [_, "leader", "yes", ..]))?;
    (voters.count() == count).then(|| leader.last().map(|&address| address.to_owned()))?
}

/// What `lockwheel raft` prints for the node in `dir`, if it succeeds.
fn raft(subcommand: &str, dir: &str) -> Option<String> {
    let output = daemon::run(&["raft", subcommand, "--dir", dir]);
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
