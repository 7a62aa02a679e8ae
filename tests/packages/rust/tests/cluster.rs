//! Lock objects on a cluster of three nodes.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use lockwheel_locks::{Guard, Lock, LockError, Options, blocking};
use redis::{Client, TlsCertificates, Value};

/// Lease that does not end by the clock of a process, however slow it is.
const TTL: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);
const USER: [&str; 9] =
    ["--requirepass", "secret", "--user", "worker", "on", ">word", "~*", "&*", "+@all"];

/// A cluster that ends with the test.
struct Cluster {
    script: Child,
    nodes: Vec<Node>,
    /// Certificate of the nodes. With it, clients use TLS, the user and a database of the tests.
    certificate: Option<PathBuf>,
}

struct Node {
    port: String,
    process: String,
}

impl Cluster {
    fn start() -> Self {
        Self::with(None)
    }

    fn secure() -> Self {
        let name = format!("lockwheel-cluster-{}", process::id());
        Self::with(Some(env::temp_dir().join(name)))
    }

    fn with(certificate: Option<PathBuf>) -> Self {
        let variable = |name| env::var(name).expect("a variable that `run` sets");
        let mut script = Command::new(variable("CLUSTER"))
            .arg(variable("PROGRAM"))
            .args(certificate.iter().flat_map(|_| USER))
            .envs(certificate.iter().map(|file| ("TLS", file)))
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
        Cluster { script, nodes, certificate }
    }

    fn client(&self, node: &Node) -> Client {
        let client = if let Some(file) = &self.certificate {
            // It fails if another test has installed it.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let root_cert = Some(fs::read(file).expect("a certificate"));
            let url = format!("rediss://worker:word@127.0.0.1:{}/3", node.port);
            Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert })
        } else {
            Client::open(format!("redis://127.0.0.1:{}/", node.port))
        };
        client.expect("a URL")
    }

    fn clients(&self) -> impl Iterator<Item = Client> {
        self.nodes.iter().map(|node| self.client(node))
    }

    fn lock(&self, options: Options) -> Lock {
        Lock::of_cluster(self.clients(), "lock", options)
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
        if let Some(file) = &self.certificate {
            let _ = fs::remove_file(file);
            let _ = fs::remove_file(format!("{}.key", file.display()));
        }
    }
}

/// Ends the leader with a signal while a lock is held.
async fn a_lock_outlives_the_leader(cluster: &Cluster, signal: &str, ttl: Duration) {
    let options = Options::new(ttl).renew_every(Duration::from_millis(50));
    let guard = granted(&cluster.lock(options.clone())).await;
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
    a_lock_outlives_the_leader(&Cluster::start(), "KILL", TTL).await;
}

#[tokio::test]
async fn a_lock_outlives_a_leader_that_is_stopped() {
    // A renewal waits for a third of the lease for a server that is stopped.
    a_lock_outlives_the_leader(&Cluster::secure(), "STOP", Duration::from_secs(12)).await;
}

#[test]
fn a_blocking_lock_outlives_a_leader_that_is_killed() {
    let cluster = Cluster::start();
    let options = Options::new(TTL).renew_every(Duration::from_millis(50));
    let lock = || blocking::Lock::of_cluster(cluster.clients(), "lock", options.clone());
    let guard = lock().acquire().expect("it is free");
    cluster.leader().signal("KILL");
    while let Err(error) = guard.renew() {
        assert!(guard.is_held(), "{error}");
    }
    let other = lock();
    assert!(matches!(other.acquire(), Err(LockError::NotAcquired { .. })));
    let token = guard.token();
    guard.release().expect("it is held");
    assert!(other.acquire().expect("it is free").token() > token);
}

/// Waits until the cluster grants the lock, which it does when it has a leader.
async fn granted(lock: &Lock) -> Guard {
    loop {
        match lock.acquire_within(MINUTE).await {
            Ok(guard) => return guard,
            Err(LockError::NotAcquired { .. }) => panic!("it is not granted"),
            Err(_) => {}
        }
    }
}

/// Shows L17, L18.
#[tokio::test]
async fn a_lock_of_one_address_is_lost_before_the_cluster_grants_it_again() {
    let cluster = Cluster::start();
    let leader = cluster.leader();
    let options = Options::new(Duration::from_secs(6)).renew_every(Duration::from_millis(50));
    let guard = Lock::new(&cluster.client(leader), "lock", options.clone()).acquire().await;
    let guard = guard.expect("it is free");
    leader.signal("KILL");
    assert!(matches!(guard.renew().await, Err(LockError::Redis(_))));
    let next = granted(&cluster.lock(Options::new(TTL))).await;
    assert!(!guard.is_held());
    assert!(next.token() > guard.token());
    assert!(matches!(guard.renew().await, Err(LockError::Lost { .. })));
}

/// Shows L17, L18.
#[tokio::test]
async fn a_bound_lock_of_a_stopped_cluster_is_lost_with_its_grace() {
    let cluster = Cluster::start();
    let options = Options::new(TTL);
    let options = options.bound_with_grace(Duration::from_secs(2));
    let guard = cluster.lock(options).acquire().await.expect("it is free");
    for node in &cluster.nodes {
        node.signal("STOP");
    }
    guard.lost().await;
    assert!(!guard.is_held());
}

/// The example of the README, whose lines are these but for the addresses.
#[tokio::test]
async fn the_example_of_the_readme_survives_a_failover() -> redis::RedisResult<()> {
    let cluster = Cluster::start();
    let addresses =
        [0, 1, 2].map(|node| format!("redis://127.0.0.1:{}/", cluster.nodes[node].port));
    let nodes = addresses.each_ref().map(String::as_str);
    let nodes = nodes.map(redis::Client::open).into_iter().collect::<Result<Vec<_>, _>>()?;
    let lock = Lock::of_cluster(nodes, "invoice:7", Options::new(Duration::from_secs(30)));
    let guard = lock.acquire().await.expect("it is free");
    cluster.leader().signal("KILL");
    while let Err(error) = guard.renew().await {
        assert!(guard.is_held(), "{error}");
    }
    guard.release().await.expect("it is held");

    let readme = fs::read_to_string(env::var("README").expect("a variable that `run` sets"))?;
    let mut blocks = readme.split("```").skip(1).step_by(2);
    let example = blocks.find(|block| block.contains("of_cluster")).expect("an example");
    let is_shown = |line: &&str| !line.starts_with('#') && !line.contains("10.0.0.1");
    for line in example.lines().skip(1).filter(is_shown) {
        assert!(include_str!("cluster.rs").contains(&format!("    {line}\n")), "not run: {line}");
    }
    Ok(())
}
