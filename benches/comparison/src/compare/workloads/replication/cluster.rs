//! One durable node, or three nodes that replicate, on any processors of this machine.

use std::io::{Read, Write};
use std::process::Stdio;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use lockwheel_tests::redis_server::free_port;

use super::clients::{Dialog, RedisDialog};
use super::etcd::Grpc;
use crate::measure::load::connect;
use crate::measure::log_directory::LogDirectory;
use crate::measure::rounds::Rounds;
use crate::measure::running::{Running, command};
use crate::measure::servers::{ClusterType, ComparedServer, ServerType};
use crate::progress;
use crate::workloads::cycles::CycleType;

const NODES: usize = 3;
/// The longest time until there is a leader that the other nodes follow.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks at the state of the nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The state of a log that is not being rewritten.
const REWRITTEN: [&str; 2] = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];

/// The clusters that are compared: of Lockwheel, its other builds first, each with one node and
/// with three; of etcd if it is installed; of the other servers; and the floors of one and three
/// nodes.
pub(crate) fn servers(
    ours: &ComparedServer,
    others: &[ComparedServer],
    floor: &ComparedServer,
) -> Vec<ComparedServer> {
    let named = |server: &ComparedServer, nodes, how: &str| {
        let name = format!("{}, {how}", server.name);
        ComparedServer { name, nodes, ..server.clone() }
    };
    let builds = others.iter().filter(|it| it.is_build()).chain([ours]);
    let one_and_three =
        |it| [named(it, ClusterType::One, "one node"), named(it, ClusterType::Raft, "three nodes")];
    let mut all: Vec<_> = builds.flat_map(one_and_three).collect();
    match etcd() {
        Some(etcd) => all.push(named(&etcd, ClusterType::Etcd, "three nodes")),
        None => progress::print("no etcd on PATH: Lockwheel is not compared with etcd"),
    }
    let with_replicas = |it| named(it, ClusterType::Replicas, "two replicas, WAIT 1");
    all.extend(others.iter().filter(|it| !it.is_build()).map(with_replicas));
    all.extend(one_and_three(floor));
    all
}

/// The etcd on `PATH`.
fn etcd() -> Option<ComparedServer> {
    let words = vec!["etcd".to_owned()];
    let output = command(&words).arg("--version").stdout(Stdio::piped()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next()?.rsplit(' ').next()?;
    Some(ComparedServer::new(&format!("etcd {version}"), ServerType::Other, words, None))
}

/// Running nodes.
pub(super) struct Cluster {
    nodes: Vec<Running>,
    leader: usize,
    nodes_type: ClusterType,
}

impl Cluster {
    /// Starts all nodes and waits for their leader.
    pub(super) fn start(server: &ComparedServer) -> Outcome<Cluster> {
        let directories = (0..NODES).map(|_| server.log_directory(Duration::ZERO));
        let directories = directories.collect::<Outcome<Vec<_>>>()?;
        let (nodes, leader) = match server.nodes {
            ClusterType::One => (vec![server.start_with_log_anywhere(&directories[0], &[])?], 0),
            ClusterType::Raft if server.server_type == ServerType::Bare => {
                start_floor(server, &directories)?
            }
            ClusterType::Raft => start_raft(&server.words, &directories)?,
            ClusterType::Etcd => start_etcd(&server.words, &directories)?,
            ClusterType::Replicas => start_replicas(server, &directories)?,
        };
        Ok(Cluster { nodes, leader, nodes_type: server.nodes })
    }

    /// The node that clients use.
    pub(super) fn leader(&self) -> &Running {
        &self.nodes[self.leader]
    }

    /// The processor time of all nodes so far.
    pub(super) fn cpu(&self) -> Outcome<Duration> {
        self.nodes.iter().map(Running::cpu).sum()
    }

    /// The rounds of the leader so far, if it counts them.
    pub(super) fn rounds(&self) -> Outcome<Option<Rounds>> {
        match self.nodes_type {
            ClusterType::Etcd => Ok(None),
            ClusterType::One | ClusterType::Raft | ClusterType::Replicas => {
                Rounds::of(self.leader())
            }
        }
    }

    /// What each of its clients sends.
    pub(super) fn dialogs(&self, clients: usize) -> Outcome<Vec<Box<dyn Dialog>>> {
        if self.nodes_type == ClusterType::Etcd {
            let address = self.leader().address;
            let dialog = |client| Ok(Box::new(Grpc::cycles(address, client)?) as Box<dyn Dialog>);
            return (0..clients).map(dialog).collect();
        }
        let steps = CycleType::CompareAndDelete.steps(self.leader())?;
        let waits = self.nodes_type == ClusterType::Replicas;
        let dialog = |_| Box::new(RedisDialog::new(&steps, waits)) as Box<dyn Dialog>;
        Ok((0..clients).map(dialog).collect())
    }
}

/// Begins a cluster of Lockwheel, and lets two nodes join.
fn start_raft(
    words: &[String],
    directories: &[Rc<LogDirectory>],
) -> Outcome<(Vec<Running>, usize)> {
    let [first, others @ ..] = directories else { return Err("no directories".into()) };
    let (program, arguments) = words.split_at(words.len().min(1));
    let start = |subcommand: &[&str], directory: &Rc<LogDirectory>| {
        let (port, raft_port) = (free_port(), free_port().to_string());
        let mut command = command(program);
        command.arg("raft").args(subcommand).args(arguments);
        command.args(["--port", &port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--raft-port", &raft_port]);
        command.arg("--dir").arg(directory.server_path());
        Running::spawn(command, port, None, Some(directory), listens)
    };
    // Asks the first node.
    let raft = |subcommand: &str| -> Outcome<String> {
        let mut command = command(program);
        command.args(["raft", subcommand, "--dir"]).arg(first.server_path());
        let output = command.stdout(Stdio::piped()).stderr(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut nodes = vec![start(&["init"], first)?];
    await_leader(|| Ok(raft_leader(&raft("status")?, &nodes, 1)))?;
    for directory in others {
        let token = raft("token")?;
        nodes.push(start(&["join", token.trim()], directory)?);
    }
    let leader = await_leader(|| Ok(raft_leader(&raft("status")?, &nodes, NODES)))?;
    Ok((nodes, leader))
}

/// The leader according to `lockwheel raft status`, if `count` nodes vote and are in contact.
fn raft_leader(status: &str, nodes: &[Running], count: usize) -> Option<usize> {
    let lines: Vec<Vec<&str>> = status.lines().map(|it| it.split_whitespace().collect()).collect();
    let votes = lines.iter().filter(|it| matches!(it[..], [_, "leader" | "follower", "yes", ..]));
    let leader = lines.iter().find(|it| matches!(it[..], [_, "leader", ..]))?;
    let address = leader.last().filter(|_| votes.count() == count)?;
    nodes.iter().position(|node| node.address.to_string() == *address)
}

/// Starts two followers of the floor, and its leader.
fn start_floor(
    server: &ComparedServer,
    directories: &[Rc<LogDirectory>],
) -> Outcome<(Vec<Running>, usize)> {
    let [first, others @ ..] = directories else { return Err("no directories".into()) };
    let follower = |directory: &Rc<LogDirectory>| {
        let port = free_port();
        let mut command = command(&server.words);
        command.args(["--follows", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.arg("--dir").arg(directory.server_path());
        Running::spawn(command, port, None, Some(directory), listens)
    };
    let mut nodes = others.iter().map(follower).collect::<Outcome<Vec<_>>>()?;
    let addresses: Vec<String> = nodes.iter().map(|it| it.address.to_string()).collect();
    let followers: Vec<&str> = addresses.iter().flat_map(|it| ["--follower", it]).collect();
    nodes.insert(0, server.start_with_log_anywhere(first, &followers)?);
    Ok((nodes, 0))
}

/// Starts three nodes of etcd at once: none answers before there is a majority.
fn start_etcd(
    words: &[String],
    directories: &[Rc<LogDirectory>],
) -> Outcome<(Vec<Running>, usize)> {
    let peers: Vec<String> = (0..NODES).map(|_| url(free_port())).collect();
    let named = peers.iter().enumerate().map(|(number, url)| format!("{number}={url}"));
    let cluster = named.collect::<Vec<_>>().join(",");
    let start = |(number, directory): (usize, &Rc<LogDirectory>)| {
        let (port, peer) = (free_port(), &peers[number]);
        let mut command = command(words);
        command.args(["--name", &number.to_string(), "--initial-cluster", &cluster]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
        command.arg("--data-dir").arg(directory.server_path().join("etcd")).stderr(Stdio::null());
        Running::spawn(command, port, None, Some(directory), listens)
    };
    let nodes = directories.iter().enumerate().map(start).collect::<Outcome<Vec<_>>>()?;
    let leader = await_leader(|| {
        let metrics = nodes.iter().map(metrics).collect::<Outcome<Vec<_>>>()?;
        let holds = |text: &String, line: &str| text.lines().any(|it| it == line);
        let all_follow = metrics.iter().all(|text| holds(text, "etcd_server_has_leader 1"));
        let leader = metrics.iter().position(|text| holds(text, "etcd_server_is_leader 1"));
        Ok(leader.filter(|_| all_follow))
    })?;
    Ok((nodes, leader))
}

/// Whether a node accepts connections, which may be before it can reply.
fn listens(node: &Running) -> bool {
    connect(node.address).is_ok()
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// The metrics of a node of etcd.
fn metrics(node: &Running) -> Outcome<String> {
    let mut stream = connect(node.address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Starts a Redis and two replicas, and waits until these have its keys.
fn start_replicas(
    server: &ComparedServer,
    directories: &[Rc<LogDirectory>],
) -> Outcome<(Vec<Running>, usize)> {
    let [first, others @ ..] = directories else { return Err("no directories".into()) };
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let mut nodes = vec![server.start_with_log_anywhere(first, &at_once)?];
    let port = nodes[0].address.port().to_string();
    let replicates = ["--replicaof", "127.0.0.1", &port];
    for directory in others {
        nodes.push(server.start_with_log_anywhere(directory, &replicates)?);
    }
    let leader = await_leader(|| {
        let state = nodes[0].ask(&["INFO", "replication"])?;
        let are_online = state.matches("state=online").count() == others.len();
        // A replica flushes its log only after it has rewritten it with the keys of the master.
        let is_rewritten = |node: &Running| -> Outcome<bool> {
            let state = node.ask(&["INFO", "persistence"])?;
            Ok(REWRITTEN.iter().all(|field| state.contains(field)))
        };
        let rewritten = nodes.iter().map(is_rewritten).collect::<Outcome<Vec<_>>>()?;
        Ok((are_online && !rewritten.contains(&false)).then_some(0))
    })?;
    Ok((nodes, leader))
}

/// Waits until the nodes have a leader.
fn await_leader(leader: impl Fn() -> Outcome<Option<usize>>) -> Outcome<usize> {
    let began = Instant::now();
    loop {
        match leader()? {
            Some(leader) => return Ok(leader),
            None if began.elapsed() > LEADER_TIMEOUT => return Err("no node leads".into()),
            None => sleep(POLL_INTERVAL),
        }
    }
}
