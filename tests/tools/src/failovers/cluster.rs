//! A cluster of Lockwheel.

use lockwheel_tests::cluster;
use lockwheel_tests::daemon::{self, Folder};
use nix::sys::signal::Signal;

use crate::network::Network;
use crate::program::Program;
use crate::servers::Servers;

/// A cluster of nodes, one on each host of a network.
pub(crate) struct Cluster {
    network: Network,
    folders: Vec<Folder>,
    programs: Vec<Program>,
    ports: Ports,
}

#[derive(Clone, Copy)]
struct Ports {
    clients: u16,
    nodes: u16,
}

impl Cluster {
    /// Starts a cluster on the hosts of a network.
    pub(crate) fn start(network: Network) -> Result<Cluster, String> {
        let ports = Ports { clients: network.port(), nodes: network.port() };
        let folders: Vec<_> = (0..network.len()).map(|_| Folder::new()).collect();
        let mut cluster = Cluster { network, folders, programs: Vec::new(), ports };
        let (dir, count) = (cluster.folders[0].path(""), cluster.network.len());
        cluster.programs = cluster::start(&dir, count, |index, words| cluster.run(index, words))?;
        Ok(cluster)
    }

    /// Starts a node. `words` precede its directives on the command line.
    fn run(&self, index: usize, words: &[&str]) -> Result<Program, String> {
        let folder = &self.folders[index];
        let ports = [self.ports.clients, self.ports.nodes].map(|port| port.to_string());
        let dir = folder.path("");
        let directives = ["--dir", &dir, "--bind", self.network.host(index), "--port", &ports[0]];
        let rest = ["--raft-port", &ports[1], "--protected-mode", "no"];
        let arguments = [words, &directives, &rest].concat();
        let command = self.network.on(index, daemon::command(folder, &arguments));
        Program::start(command, &folder.path("log"))
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
        self.programs[index].kill()
    }

    fn start_again(&mut self, index: usize) -> Result<(), String> {
        self.programs[index] = self.run(index, &[])?;
        Ok(())
    }

    fn signal(&self, index: usize, signal: Signal) -> Result<(), String> {
        self.programs[index].signal(signal)
    }

    fn wait_until_whole(&mut self) -> Result<usize, String> {
        let leader = cluster::wait_for_leader(&self.folders[0].path(""), self.network.len());
        self.programs.iter_mut().try_for_each(Program::check_alive)?;
        let leader = leader?;
        let index = self.addresses().iter().position(|address| *address == leader);
        index.ok_or_else(|| format!("no node has the address {leader}"))
    }

    fn keep_folders(self: Box<Self>) -> Vec<String> {
        let kept = self.folders.into_iter().map(std::mem::ManuallyDrop::new);
        kept.map(|folder| folder.path("")).collect()
    }
}
