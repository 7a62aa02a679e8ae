//! A cluster of Lockwheel.

use std::fs;
use std::time::Duration;

use lockwheel_compat::time;
use lockwheel_tests::daemon::{self, Folder};
use nix::sys::signal::Signal;

use crate::network::Network;
use crate::program::{Program, until};
use crate::servers::Servers;

/// Between two questions for the status, each of which is a process.
const STATUS_PAUSE: Duration = Duration::from_millis(100);

/// Three nodes.
pub(crate) struct Cluster {
    network: Network,
    nodes: Vec<Node>,
    ports: Ports,
}

#[derive(Clone, Copy)]
struct Ports {
    clients: u16,
    nodes: u16,
}

struct Node {
    folder: Folder,
    program: Program,
}

impl Cluster {
    /// Begins a cluster on the hosts of a network.
    pub(crate) fn start(network: Network) -> Result<Cluster, String> {
        let ports = Ports { clients: network.port(), nodes: network.port() };
        let mut cluster = Cluster { network, nodes: Vec::new(), ports };
        cluster.add(&["raft", "init"])?;
        let log = cluster.nodes[0].folder.path("log");
        let token = until("a join token", || {
            let text = fs::read_to_string(&log).ok()?;
            let (_, token) = text.split_once("lockwheel raft join ")?;
            token.split_once(' ').map(|(token, _)| token.to_owned())
        })?;
        for index in 1..cluster.network.len() {
            // One after the other.
            until("the nodes so far", || cluster.leader_of_all())?;
            cluster.add(&["raft", "join", &token])?;
            cluster.nodes[index].program.check_alive()?;
        }
        Ok(cluster)
    }

    /// Starts the next node with these words before its directives.
    fn add(&mut self, words: &[&str]) -> Result<(), String> {
        let (index, folder) = (self.nodes.len(), Folder::new());
        let program = self.run(index, &folder, words)?;
        self.nodes.push(Node { folder, program });
        Ok(())
    }

    fn run(&self, index: usize, folder: &Folder, words: &[&str]) -> Result<Program, String> {
        let ports = [self.ports.clients, self.ports.nodes].map(|port| port.to_string());
        let dir = folder.path("");
        let directives = ["--dir", &dir, "--bind", self.network.host(index), "--port", &ports[0]];
        let rest = ["--raft-port", &ports[1], "--protected-mode", "no"];
        let arguments = [words, &directives, &rest].concat();
        let command = self.network.on(index, daemon::command(folder, &arguments));
        Program::start(command, &folder.path("log"))
    }

    /// The leader, if all nodes are in contact with it, as `lockwheel raft status` says.
    fn leader_of_all(&self) -> Option<usize> {
        let folder = &self.nodes.first()?.folder;
        let arguments = ["raft", "status", "--dir", &folder.path("")];
        let output = daemon::command(folder, &arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut nodes = text.lines().skip_while(|line| !line.trim().starts_with("node"));
        let nodes: Vec<Vec<&str>> =
            nodes.by_ref().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let is_in_contact =
            |node: &Vec<&str>| matches!(node[..], [_, "leader" | "follower", "yes", ..]);
        let leader = nodes.iter().find(|node| node.get(1) == Some(&"leader"))?;
        let is_at = |host| leader.iter().any(|column| column.split(':').next() == Some(host));
        let is_whole = nodes.len() == self.nodes.len() && nodes.iter().all(is_in_contact);
        is_whole.then(|| (0..nodes.len()).find(|index| is_at(self.network.host(*index))))?
    }
}

impl Servers for Cluster {
    fn network(&self) -> &Network {
        &self.network
    }

    fn addresses(&self) -> Vec<String> {
        let hosts = (0..self.network.len()).map(|index| self.network.host(index));
        hosts.map(|host| format!("{host}:{}", self.ports.clients)).collect()
    }

    fn sentinels(&self) -> Vec<String> {
        self.addresses()
    }

    fn kill(&mut self, index: usize) -> Result<(), String> {
        self.nodes[index].program.kill()
    }

    fn start_again(&mut self, index: usize) -> Result<(), String> {
        self.nodes[index].program = self.run(index, &self.nodes[index].folder, &[])?;
        Ok(())
    }

    fn signal(&self, index: usize, signal: Signal) -> Result<(), String> {
        self.nodes[index].program.signal(signal)
    }

    fn wait_until_whole(&mut self) -> Result<usize, String> {
        let leader = until("all nodes in contact", || {
            time::sleep(STATUS_PAUSE);
            self.leader_of_all()
        });
        self.nodes.iter_mut().try_for_each(|node| node.program.check_alive())?;
        leader
    }

    fn keep_folders(self: Box<Self>) -> Vec<String> {
        let kept = self.nodes.into_iter().map(|node| std::mem::ManuallyDrop::new(node.folder));
        kept.map(|folder| folder.path("")).collect()
    }
}
