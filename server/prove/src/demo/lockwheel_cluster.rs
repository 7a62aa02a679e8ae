//! Nodes of Lockwheel that replicate their log.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::failovers::{Failovers, LAG, PrimaryFault, Servers, WHOLE_LIMIT, kill_with_lag};
use super::place::{Hosts, Place};
use super::ports::local_port;
use super::program::Program;
use super::{DemoRun, target};
use crate::faults::FaultRun;
use crate::target::Topology;

/// The name by which clients ask for the leader.
const NAME: &str = "mymaster";

/// Number of nodes.
const COUNT: usize = 3;

/// What happens to the leader in turn.
const FAULTS: &[PrimaryFault] = &[PrimaryFault::Kill, PrimaryFault::Stop, PrimaryFault::Restart];

/// Variables of the environment with this prefix are directives.
const VARIABLE_PREFIX: &str = "LOCKWHEEL_";

/// A cluster.
pub struct LockwheelCluster {
    program: PathBuf,
    nodes: Vec<Program>,
    raft_ports: Vec<u16>,
    // Dropped last: the nodes use its folder.
    hosts: Hosts,
}

/// Starts the demo.
pub(super) fn start(program: &Path) -> Result<DemoRun, String> {
    let raft_ports = (0..COUNT).map(|_| local_port()).collect::<Result<_, _>>()?;
    let cluster = LockwheelCluster::start(program, Hosts::local(COUNT)?, raft_ports)?;
    let target = target(cluster.places(), Topology::Sentinel(NAME.to_owned()));
    Ok(DemoRun::new(target, Box::new(Failovers::new(cluster, FAULTS))))
}

/// The command of the program, without the settings of the environment.
pub fn lockwheel(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(VARIABLE_PREFIX) {
            command.env_remove(name);
        }
    }
    command
}

impl LockwheelCluster {
    /// Starts the nodes of a new cluster, one after the other. `program` is the path of the program
    /// `lockwheel`; nodes reach each other at `raft_ports`.
    ///
    /// # Errors
    /// If one cannot be started or does not join.
    pub fn start(
        program: &Path,
        hosts: Hosts,
        raft_ports: Vec<u16>,
    ) -> Result<LockwheelCluster, String> {
        let (program, nodes) = (program.to_owned(), Vec::new());
        let mut cluster = LockwheelCluster { program, nodes, raft_ports, hosts };
        for index in 0..cluster.hosts.servers.len() {
            cluster.hosts.folder.folder(&index.to_string())?;
            let token = if index == 0 { None } else { Some(cluster.raft(0, "token")?) };
            let words = match &token {
                None => vec!["raft", "init"],
                Some(token) => vec!["raft", "join", token.trim()],
            };
            let node = cluster.run(index, &words)?;
            cluster.nodes.push(node);
            let run = FaultRun::default();
            if run.wait_for(WHOLE_LIMIT, || cluster.leader_of(index + 1)).is_none() {
                cluster.check_alive()?;
                return Err(format!(
                    "node {index} does not join:\n{}",
                    cluster.nodes[index].last_lines()
                ));
            }
        }
        Ok(cluster)
    }

    /// Starts a node. `words` precede its directives on the command line.
    fn run(&self, index: usize, words: &[&str]) -> Result<Program, String> {
        let Place { host, port } = &self.hosts.servers[index];
        let (port, raft_port) = (port.to_string(), self.raft_ports[index].to_string());
        let mut command = lockwheel(&self.program);
        command.args(words).arg("--dir").arg(self.dir(index));
        command.args(["--bind", host, "--port", &port, "--raft-port", &raft_port]);
        command.args(["--protected-mode", "no"]);
        let log = self.hosts.folder.path(&format!("node-{index}.log"));
        Program::start((self.hosts.on)(index, command), &log)
    }

    fn dir(&self, index: usize) -> PathBuf {
        self.hosts.folder.path(&index.to_string())
    }

    /// What `lockwheel raft` prints for a node.
    fn raft(&self, index: usize, subcommand: &str) -> Result<String, String> {
        let mut command = lockwheel(&self.program);
        command.args(["raft", subcommand, "--dir"]).arg(self.dir(index)).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("lockwheel raft: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// The leader, if `count` nodes vote and are in contact with it.
    fn leader_of(&self, count: usize) -> Option<usize> {
        let text = self.raft(0, "status").ok()?;
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let votes = |line: &&Vec<&str>| matches!(line[..], [_, "leader" | "follower", "yes", ..]);
        let leader = lines.iter().find(|line| matches!(line[..], [_, "leader", "yes", ..]))?;
        let address = *leader.last()?;
        let index = self.places().iter().position(|place| place.to_string() == address);
        index.filter(|_| lines.iter().filter(votes).count() == count)
    }
}

impl Servers for LockwheelCluster {
    fn places(&self) -> &[Place] {
        &self.hosts.servers
    }

    fn program(&mut self, index: usize) -> &mut Program {
        &mut self.nodes[index]
    }

    fn kill_ahead(&mut self, index: usize) -> Result<String, String> {
        kill_with_lag(&mut self.nodes, index, || ())?;
        Ok(format!(" {} ms after the other nodes were stopped", LAG.as_millis()))
    }

    fn start_again(&mut self, index: usize) -> Result<(), String> {
        self.nodes[index] = self.run(index, &[])?;
        Ok(())
    }

    fn primary_other_than(&self, former: usize) -> Option<usize> {
        let places = self.places();
        let others = (0..places.len()).filter(|index| *index != former);
        let named = |node: usize| {
            let answer = places[node].ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"))?;
            places.iter().position(|place| place.is_in(&answer, 0))
        };
        others.filter_map(named).find(|index| *index != former)
    }

    fn primary_of_all(&self) -> Option<usize> {
        self.leader_of(self.places().len())
    }

    fn check_alive(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().try_for_each(Program::check_alive)
    }
}
