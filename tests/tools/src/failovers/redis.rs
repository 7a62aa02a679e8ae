//! Redis with replicas and sentinels.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use lockwheel_compat::wire::frame::Frame;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::until;
use lockwheel_tests::redis_server;
use nix::sys::signal::Signal;

use crate::network::Network;
use crate::program::Program;
use crate::servers::{Servers, ask};

/// The master at the start.
const FIRST_MASTER: usize = 0;

/// Time-out of a failover. With the default, three minutes, a failed attempt would take that long.
const FAILOVER_TIMEOUT_MS: u32 = 5_000;
/// Time until a server counts as down, as the election timeout of Lockwheel.
const DOWN_AFTER_MS: u32 = 1_000;

/// A master, two replicas, and a sentinel on each host.
pub(crate) struct Redis {
    network: Network,
    program: Vec<String>,
    folders: Vec<Folder>,
    servers: Vec<Program>,
    sentinels: Vec<Program>,
    port: u16,
    sentinel_port: u16,
}

impl Redis {
    /// Starts the servers on the hosts of a network. `None` if no Redis is installed.
    pub(crate) fn start(network: Network) -> Result<Option<Redis>, String> {
        let Some(program) = redis_server::program() else { return Ok(None) };
        let (port, sentinel_port) = (network.port(), network.port());
        let folders = (0..network.len()).map(|_| Folder::new()).collect();
        let (servers, sentinels) = (Vec::new(), Vec::new());
        let mut redis =
            Redis { network, program, folders, servers, sentinels, port, sentinel_port };
        for index in 0..redis.network.len() {
            let server = redis.run(index, (index != FIRST_MASTER).then_some(FIRST_MASTER))?;
            redis.servers.push(server);
        }
        until("replicas", || redis.has_replicas(FIRST_MASTER).then_some(()))?;
        for index in 0..redis.network.len() {
            let sentinel = redis.run_sentinel(index)?;
            redis.sentinels.push(sentinel);
        }
        Ok(Some(redis))
    }

    fn address(&self, index: usize) -> String {
        format!("{}:{}", self.network.host(index), self.port)
    }

    /// Starts a server as the master, or as a replica of one.
    fn run(&self, index: usize, master: Option<usize>) -> Result<Program, String> {
        let host = self.network.host(index);
        let port = self.port.to_string();
        let dir = self.folders[index].path("");
        let mut arguments = vec!["--bind", host, "--port", &port, "--dir", &dir];
        arguments.extend(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
        // Replicas are there again sooner.
        arguments.extend(["--repl-diskless-sync-delay", "0", "--replica-announce-ip", host]);
        if let Some(master) = master {
            arguments.extend(["--replicaof", self.network.host(master), &port]);
        }
        self.start_program(index, &arguments, "log")
    }

    fn run_sentinel(&self, index: usize) -> Result<Program, String> {
        let (host, port) = (self.network.host(index), self.sentinel_port);
        let folder = &self.folders[index];
        let text = format!(
            "bind {host}\nport {port}\ndir {}\nprotected-mode no\nsentinel announce-ip {host}\n\
             sentinel monitor mymaster {} {} 2\n\
             sentinel down-after-milliseconds mymaster {DOWN_AFTER_MS}\n\
             sentinel failover-timeout mymaster {FAILOVER_TIMEOUT_MS}\n",
            folder.path(""),
            self.network.host(FIRST_MASTER),
            self.port,
        );
        let path = folder.path("sentinel.conf");
        fs::write(&path, text).map_err(|error| format!("{path}: {error}"))?;
        self.start_program(index, &[&path, "--sentinel"], "sentinel-log")
    }

    fn start_program(
        &self,
        index: usize,
        arguments: &[&str],
        log: &str,
    ) -> Result<Program, String> {
        let (first, rest) = self.program.split_first().ok_or("there is no program")?;
        let mut command = Command::new(first);
        command.args(rest).args(arguments);
        Program::start(self.network.on(index, command), &self.folders[index].path(log))
    }

    fn has_replicas(&self, master: usize) -> bool {
        let role = |index| ask(&self.address(index), "ROLE");
        let replicates = |index: usize| {
            let Some(role) = role(index) else { return false };
            item(&role, 1) == self.network.host(master) && item(&role, 3) == "connected"
        };
        let count = role(master).and_then(|role| Some(role.items.get(2)?.items.len()));
        let mut others = (0..self.network.len()).filter(|index| *index != master);
        count == Some(self.network.len() - 1) && others.all(replicates)
    }

    /// The master, as a sentinel says.
    fn master(&self, sentinel: usize) -> Option<usize> {
        let address = &self.sentinels()[sentinel];
        let master = ask(address, "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster")?;
        (0..self.network.len()).find(|index| self.network.host(*index) == item(&master, 0))
    }

    /// The master, if all sentinels see it and its replicas, and each other.
    fn master_of_all(&self) -> Option<usize> {
        let master = self.master(0)?;
        let others = (self.network.len() - 1).to_string();
        for (index, sentinel) in self.sentinels().iter().enumerate() {
            let shown = fields(&ask(sentinel, "SENTINEL MASTER mymaster")?);
            let shows = |name: &str, value: &str| shown.get(name).is_some_and(|it| it == value);
            let replicas = ask(sentinel, "SENTINEL REPLICAS mymaster")?;
            let works = |replica: &Frame| {
                fields(replica).get("flags").is_some_and(|flags| flags == "slave")
            };
            let sees_all = shows("flags", "master")
                && shows("num-slaves", &others)
                && shows("num-other-sentinels", &others)
                && replicas.items.iter().all(works);
            if !sees_all || self.master(index) != Some(master) {
                return None;
            }
        }
        self.has_replicas(master).then_some(master)
    }
}

impl Servers for Redis {
    fn network(&self) -> &Network {
        &self.network
    }

    fn addresses(&self) -> Vec<String> {
        (0..self.network.len()).map(|index| self.address(index)).collect()
    }

    fn sentinels(&self) -> Vec<String> {
        let hosts = (0..self.network.len()).map(|index| self.network.host(index));
        hosts.map(|host| format!("{host}:{}", self.sentinel_port)).collect()
    }

    fn kill(&mut self, index: usize) -> Result<(), String> {
        self.servers[index].kill()
    }

    /// As a replica: a sentinel would make it one only after some seconds.
    fn start_again(&mut self, index: usize) -> Result<(), String> {
        let master = until("another master", || self.master(index).filter(|it| *it != index))?;
        self.servers[index] = self.run(index, Some(master))?;
        Ok(())
    }

    fn signal(&self, index: usize, signal: Signal) -> Result<(), String> {
        self.servers[index].signal(signal)
    }

    fn wait_until_whole(&mut self) -> Result<usize, String> {
        let master = until("all servers in contact", || self.master_of_all());
        self.servers.iter_mut().try_for_each(Program::check_alive)?;
        master
    }

    fn keep_folders(self: Box<Self>) -> Vec<String> {
        let kept = self.folders.into_iter().map(std::mem::ManuallyDrop::new);
        kept.map(|folder| folder.path("")).collect()
    }
}

/// An element of an answer, as text.
fn item(frame: &Frame, index: usize) -> String {
    frame.items.get(index).map_or(String::new(), text)
}

fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(&frame.text).into_owned()
}

/// The fields of an answer that alternates names and values.
fn fields(frame: &Frame) -> BTreeMap<String, String> {
    frame.items.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}
