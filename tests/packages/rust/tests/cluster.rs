//! Lock objects on a cluster of three nodes.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockwheel_locks::{Lock, LockError, Options};
use redis::{Client, Value};

/// Lease that does not end by the clock of a process, however slow it is.
const TTL: Duration = Duration::from_secs(600);

/// A cluster that ends with the test.
struct Cluster {
    script: Child,
    nodes: Vec<Node>,
    /// What precedes and follows the address in the URL of a client.
    url: (&'static str, &'static str),
}

struct Node {
    port: String,
    process: String,
}

impl Cluster {
    fn start(directives: &[&str], url: (&'static str, &'static str)) -> Self {
        let variable = |name| env::var(name).expect("a variable that `run` sets");
        let mut script = Command::new(variable("CLUSTER"))
            .arg(variable("PROGRAM"))
            .args(directives)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(script.stdout.take().expect("a pipe")).lines();
        let node = |line: String| {
            let (port, process) = line.split_once(' ').expect("a port and a process");
            Node { port: port.to_owned(), process: process.to_owned() }
        };
        let nodes: Vec<_> = lines.take(3).map(|line| node(line.expect("a line"))).collect();
        assert_eq!(nodes.len(), 3, "the cluster does not start");
        Cluster { script, nodes, url }
    }

    fn client(&self, node: &Node) -> Client {
        let (user, database) = self.url;
        Client::open(format!("redis://{user}127.0.0.1:{}/{database}", node.port)).expect("a URL")
    }

    fn lock(&self, options: Options) -> Lock {
        Lock::of_cluster(self.nodes.iter().map(|node| self.client(node)), "lock", options)
    }

    /// The node that leads.
    fn leader(&self) -> &Node {
        let leads = |node: &&Node| {
            let mut connection = self.client(node).get_connection().expect("a connection");
            let role: Vec<Value> = redis::cmd("ROLE").query(&mut connection).expect("a role");
            role[0] == Value::BulkString(b"master".into())
        };
        self.nodes.iter().find(leads).expect("a leader")
    }
}

impl Node {
    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.process]).status();
        assert!(status.expect("a process").success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Ends the leader with a signal while a lock is held.
async fn a_lock_outlives_the_leader(cluster: &Cluster, signal: &str, ttl: Duration) {
    let options = Options::new(ttl).renew_every(Duration::from_millis(50));
    let guard = cluster.lock(options.clone()).acquire().await.expect("it is free");
    cluster.leader().signal(signal);
    while let Err(error) = guard.renew().await {
        assert!(guard.is_held(), "{error}");
    }
    let other = cluster.lock(options);
    assert!(matches!(other.acquire().await, Err(LockError::NotAcquired { .. })));
    let token = guard.token();
    guard.release().await.expect("it is held");
    assert!(other.acquire().await.expect("it is free").token() > token);
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_killed() {
    a_lock_outlives_the_leader(&Cluster::start(&[], ("", "0")), "KILL", TTL).await;
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_stopped() {
    let user = ["--requirepass", "secret", "--user", "worker", "on", ">word", "~*", "&*", "+@all"];
    let cluster = Cluster::start(&user, ("worker:word@", "3"));
    // A renewal waits for a third of the lease for a server that is stopped.
    a_lock_outlives_the_leader(&cluster, "STOP", Duration::from_secs(12)).await;
}

/// Shows L17, L18.
#[tokio::test]
async fn a_bound_lock_of_a_stopped_cluster_is_lost_with_its_grace() {
    let cluster = Cluster::start(&[], ("", "0"));
    let options = Options::new(TTL);
    let options = options.bound_with_grace(Duration::from_millis(300));
    let guard = cluster.lock(options).acquire().await.expect("it is free");
    for node in &cluster.nodes {
        node.signal("STOP");
    }
    guard.lost().await;
    assert!(!guard.is_held());
}
