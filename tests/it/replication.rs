//! Servers that replicate their log, with real connections.

use std::collections::BTreeMap;
use std::time::Duration;

use lockwheel::Server;
use lockwheel::replication::NodeSettings;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::Wire;

/// Three servers in this process.
struct Cluster {
    settings: BTreeMap<u64, NodeSettings>,
    ports: BTreeMap<u64, u16>,
    servers: BTreeMap<u64, Server>,
    _folder: Folder,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = Folder::new();
        let settings = |id| NodeSettings {
            id,
            cluster: "test".into(),
            folder: folder.path(&id.to_string()),
            address: format!("127.0.0.1:{}", free_port()),
            heartbeat: Duration::from_millis(100),
            lease: Duration::from_millis(1_000),
        };
        let settings = (1..=3).map(|id| (id, settings(id))).collect();
        let ports = (1..=3).map(|id| (id, free_port())).collect();
        let servers = BTreeMap::new();
        let mut cluster = Cluster { settings, ports, servers, _folder: folder };
        (1..=3).for_each(|id| cluster.run(id));
        let address = |(id, settings): (&u64, &NodeSettings)| {
            let client_address = format!("127.0.0.1:{}", cluster.ports[id]);
            (*id, (settings.address.clone(), client_address))
        };
        let nodes = cluster.settings.iter().map(address).collect();
        cluster.servers[&1].begin_cluster(&nodes).expect("a cluster");
        cluster
    }

    fn run(&mut self, id: u64) {
        let builder = Server::builder().port(self.ports[&id]).node(self.settings[&id].clone());
        self.servers.insert(id, builder.start().expect("a server"));
    }

    /// The server that leads, when there is one.
    fn leader(&self) -> u64 {
        loop {
            if let Some((id, _)) = self.servers.iter().find(|(_, server)| server.leads()) {
                return *id;
            }
            std::thread::yield_now();
        }
    }

    /// A connection to the server that leads, as soon as it serves.
    fn connect(&self) -> Wire {
        loop {
            let mut wire = Wire::connect(self.servers[&self.leader()].addr(), 2);
            if wire.ask("PING") == "+PONG\r\n" {
                return wire;
            }
        }
    }
}

#[test]
fn lock_survives_its_leader() {
    let mut cluster = Cluster::start();
    let mut wire = cluster.connect();
    assert_eq!(wire.ask("SET lock token NX PX 600000"), "+OK\r\n");
    let old = cluster.leader();
    for (_, server) in cluster.servers.iter().filter(|(id, _)| **id != old) {
        let refusal = "-READONLY You can't write against a read only replica.\r\n";
        assert_eq!(Wire::connect(server.addr(), 2).ask("SET lock other NX"), refusal);
    }
    cluster.servers.remove(&old);
    let mut wire = cluster.connect();
    assert_ne!(cluster.leader(), old);
    assert_eq!(wire.ask("SET lock other NX PX 600000"), "$-1\r\n");
    let left: i64 = wire.ask("PTTL lock")[1..].trim().parse().expect("a number");
    assert!((590_000..=600_000).contains(&left), "{left}");
    assert_eq!(wire.ask("SET other token NX PX 600000"), "+OK\r\n");

    cluster.run(old);
    let gone = cluster.leader();
    cluster.servers.remove(&gone);
    let mut wire = cluster.connect();
    assert_eq!(wire.ask("EXISTS lock other"), ":2\r\n");
}

#[test]
fn clients_are_shown_the_nodes() {
    let cluster = Cluster::start();
    let leader = cluster.leader();
    let mut wire = cluster.connect();
    let port = |id: &u64| cluster.ports[id].to_string();
    for (id, server) in &cluster.servers {
        let mut wire = Wire::connect(server.addr(), 2);
        let expected = match *id == leader {
            true => "role:master\r\nconnected_slaves:2\r\n".to_owned(),
            false => {
                format!("role:slave\r\nmaster_host:127.0.0.1\r\nmaster_port:{}\r\n", port(&leader))
            }
        };
        wait_for(&mut wire, "INFO replication", &expected);
    }
    let role = wire.ask("ROLE");
    let followers = cluster.ports.keys().filter(|id| **id != leader);
    assert!(followers.into_iter().all(|id| role.contains(&port(id))), "{role}");
}

/// A node that was away gets a snapshot, since the entries that it lacks are gone.
#[test]
fn node_that_was_away_gets_a_snapshot() {
    let mut cluster = Cluster::start();
    let away = (1..=3).find(|id| *id != cluster.leader()).expect("three nodes");
    cluster.servers.remove(&away);
    let mut wire = cluster.connect();
    for key in 0..1_200 {
        assert_eq!(wire.ask(&format!("SET {key} value PX 600000")), "+OK\r\n");
    }
    assert_eq!(wire.ask("SAVE"), "+OK\r\n");
    assert_eq!(wire.ask("SET last value"), "+OK\r\n");
    cluster.run(away);
    // When the other follower ends, a majority needs the one that was away.
    let leader = cluster.leader();
    let other = (1..=3).find(|id| ![away, leader].contains(id)).expect("three nodes");
    cluster.servers.remove(&other);
    let mut wire = cluster.connect();
    assert_eq!(wire.ask("SET more value"), "+OK\r\n");
    cluster.run(other);
    cluster.servers.remove(&cluster.leader());
    assert_eq!(cluster.connect().ask("DBSIZE"), ":1202\r\n");
}

/// The number of checks for a condition that will hold soon: far more than needed.
const CHECKS_MAX: usize = 100_000;

/// Waits until the reply to a command has this text in it.
#[track_caller]
fn wait_for(wire: &mut Wire, command: &str, text: &str) {
    let holds = (0..CHECKS_MAX).any(|_| wire.ask(command).contains(text));
    assert!(holds, "{command} has no {text}: {}", wire.ask(command));
}
