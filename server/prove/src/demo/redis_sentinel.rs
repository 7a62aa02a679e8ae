//! Redis with replicas and sentinels.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use lockwheel_compat::wire::frame::Frame;

use super::failovers::{Failovers, LAG, PrimaryFault, Servers, WHOLE_LIMIT, kill_with_lag};
use super::place::{Hosts, Place, READY_TIMEOUT, item, text};
use super::program::Program;
use super::redis::{command, find_redis};
use super::{DemoRun, target};
use crate::faults::FaultRun;
use crate::target::Topology;

/// The name of the primary.
const NAME: &str = "mymaster";

/// The servers of the demo, with a sentinel for each.
const COUNT: usize = 3;

/// The primary at the start.
const FIRST_PRIMARY: usize = 0;

/// Time-out of a failover. With the default, three minutes, a failed attempt would take that long.
const FAILOVER_TIMEOUT_MS: u32 = 5_000;
/// Time until a server counts as down.
const DOWN_AFTER_MS: u32 = 1_000;

/// What the demo does in turn.
const FAULTS: &[PrimaryFault] = &[PrimaryFault::Kill, PrimaryFault::Stop];

/// A primary, its replicas, and sentinels.
pub struct RedisSentinel {
    program: Vec<String>,
    sentinels: Vec<Program>,
    sentinel_places: Vec<Place>,
    servers: Vec<Program>,
    // Dropped last: the programs use its folder.
    hosts: Hosts,
}

/// Starts the demo.
pub(super) fn start() -> Result<DemoRun, String> {
    let program = find_redis()?;
    let sentinels = Place::locals(COUNT)?;
    let target = target(&sentinels, Topology::Sentinel(NAME.to_owned()));
    let redis = RedisSentinel::start(program, Hosts::local(COUNT)?, sentinels)?;
    Ok(DemoRun::new(target, Box::new(Failovers::new(redis, FAULTS))))
}

impl RedisSentinel {
    /// Starts the servers with a sentinel on the host of each, and waits until they work together.
    /// `program` is the command of `redis-server`.
    ///
    /// # Errors
    /// If one cannot be started, or they do not find each other.
    pub fn start(
        program: Vec<String>,
        hosts: Hosts,
        sentinel_places: Vec<Place>,
    ) -> Result<RedisSentinel, String> {
        let (sentinels, servers) = (Vec::new(), Vec::new());
        let mut redis = RedisSentinel { program, sentinels, sentinel_places, servers, hosts };
        for index in 0..redis.hosts.servers.len() {
            redis.hosts.folder.folder(&index.to_string())?;
            let server = redis.run(index, (index != FIRST_PRIMARY).then_some(FIRST_PRIMARY))?;
            redis.servers.push(server);
        }
        let run = FaultRun::default();
        // A sentinel that is started later would find the replicas only after some seconds.
        if run.wait_for(READY_TIMEOUT, || redis.has_replicas(FIRST_PRIMARY).then_some(())).is_none()
        {
            redis.check_alive()?;
            return Err("the replicas do not reach the primary".to_owned());
        }
        for index in 0..redis.sentinel_places.len() {
            let sentinel = redis.run_sentinel(index)?;
            redis.sentinels.push(sentinel);
        }
        if run.wait_for(WHOLE_LIMIT, || redis.primary_of_all()).is_none() {
            redis.check_alive()?;
            return Err("the sentinels do not find each other".to_owned());
        }
        Ok(redis)
    }

    /// Starts a server as the primary, or as a replica of one.
    fn run(&self, index: usize, primary: Option<usize>) -> Result<Program, String> {
        let place = &self.hosts.servers[index];
        let dir = self.hosts.folder.path(&index.to_string());
        let mut command = command(&self.program, place, &dir.to_string_lossy())?;
        // Replicas are there again sooner.
        command.args(["--repl-diskless-sync-delay", "0", "--replica-announce-ip", &place.host]);
        if let Some(primary) = primary {
            let Place { host, port } = &self.hosts.servers[primary];
            command.args(["--replicaof", host, &port.to_string()]);
        }
        let log = self.hosts.folder.path(&format!("server-{index}.log"));
        Program::start((self.hosts.on)(index, command), &log)
    }

    fn run_sentinel(&self, index: usize) -> Result<Program, String> {
        let Place { host, port } = &self.sentinel_places[index];
        let first = &self.hosts.servers[FIRST_PRIMARY];
        let quorum = self.sentinel_places.len() / 2 + 1;
        let text = format!(
            "bind {host}\nport {port}\ndir \"{}\"\nprotected-mode no\nsentinel announce-ip {host}\n\
             sentinel monitor {NAME} {} {} {quorum}\n\
             sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT_MS}\n",
            self.hosts.folder.path(&index.to_string()).display(),
            first.host,
            first.port,
        );
        let path = self.hosts.folder.path(&format!("sentinel-{index}.conf"));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        let (first, rest) = self.program.split_first().ok_or("there is no program")?;
        let mut command = Command::new(first);
        command.args(rest).arg(path).arg("--sentinel");
        let log = self.hosts.folder.path(&format!("sentinel-{index}.log"));
        Program::start((self.hosts.on)(index, command), &log)
    }

    fn has_replicas(&self, primary: usize) -> bool {
        let role = |index: usize| self.hosts.servers[index].ask("ROLE");
        let replicates = |index: usize| {
            let Some(role) = role(index) else { return false };
            self.hosts.servers[primary].is_in(&role, 1) && item(&role, 3) == "connected"
        };
        let count = role(primary).and_then(|role| Some(role.items.get(2)?.items.len()));
        let mut others = (0..self.hosts.servers.len()).filter(|index| *index != primary);
        count == Some(self.hosts.servers.len() - 1) && others.all(replicates)
    }

    /// The primary, as a sentinel says.
    fn named_by(&self, sentinel: &Place) -> Option<usize> {
        let named = sentinel.ask(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"))?;
        self.hosts.servers.iter().position(|place| place.is_in(&named, 0))
    }

    /// Whether a sentinel sees the primary with all its replicas, and all other sentinels.
    fn sees_all(&self, sentinel: &Place) -> Option<bool> {
        let shown = fields(&sentinel.ask(&format!("SENTINEL MASTER {NAME}"))?);
        let shows = |name: &str, value: &str| shown.get(name).is_some_and(|it| it == value);
        let replicas = sentinel.ask(&format!("SENTINEL REPLICAS {NAME}"))?;
        let works =
            |replica: &Frame| fields(replica).get("flags").is_some_and(|flags| flags == "slave");
        let sees_others = shows("flags", "master")
            && shows("num-slaves", &(self.hosts.servers.len() - 1).to_string())
            && shows("num-other-sentinels", &(self.sentinel_places.len() - 1).to_string());
        Some(sees_others && replicas.items.iter().all(works))
    }
}

impl Servers for RedisSentinel {
    fn places(&self) -> &[Place] {
        &self.hosts.servers
    }

    fn program(&mut self, index: usize) -> &mut Program {
        &mut self.servers[index]
    }

    /// A replica that was stopped reads later what its socket has got, so the primary closes its
    /// connections to the replicas first.
    fn kill_ahead(&mut self, index: usize) -> Result<String, String> {
        let place = &self.hosts.servers[index];
        let close = || place.ask("CLIENT KILL TYPE replica");
        let reply = kill_with_lag(&mut self.servers, index, close)?;
        Ok(match reply.filter(|reply| reply.kind == b':') {
            Some(_) => {
                format!(" {} ms after its replicas had lost the connection", LAG.as_millis())
            }
            None => String::new(),
        })
    }

    /// As a replica: a sentinel would make it one only after some seconds.
    fn start_again(&mut self, index: usize) -> Result<(), String> {
        self.servers[index] = self.run(index, self.primary_other_than(index))?;
        Ok(())
    }

    fn primary_other_than(&self, former: usize) -> Option<usize> {
        let mut named = self.sentinel_places.iter().filter_map(|sentinel| self.named_by(sentinel));
        named.find(|index| *index != former)
    }

    fn primary_of_all(&self) -> Option<usize> {
        let mut sentinels = self.sentinel_places.iter();
        let primary = self.named_by(self.sentinel_places.first()?)?;
        let agree = sentinels.all(|sentinel| {
            self.named_by(sentinel) == Some(primary) && self.sees_all(sentinel) == Some(true)
        });
        (agree && self.has_replicas(primary)).then_some(primary)
    }

    fn check_alive(&mut self) -> Result<(), String> {
        self.servers.iter_mut().chain(&mut self.sentinels).try_for_each(Program::check_alive)
    }
}

/// The fields of an answer that alternates names and values.
fn fields(frame: &Frame) -> BTreeMap<String, String> {
    frame.items.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}
