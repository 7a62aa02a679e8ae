//! `lockwheel raft`: an operator begins a cluster, replaces a node, and starts nodes again.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_tests::certificates;
use lockwheel_tests::cluster;
use lockwheel_tests::daemon::{Daemon, Folder, command_on_disk, run};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::say;
use lockwheel_tests::wire::Wire;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::replication::number_after;

/// A directory and ports for a node.
pub(crate) struct NodePlace {
    pub(crate) dir: String,
    pub(crate) port: u16,
    pub(crate) raft_port: u16,
    pub(crate) arguments: Vec<String>,
}

impl NodePlace {
    pub(crate) fn new(folder: &Folder, name: &str) -> NodePlace {
        let dir = folder.path(name);
        let (port, raft_port) = (free_port(), free_port());
        let directives = [
            ("--dir", &*dir),
            ("--port", &port.to_string()),
            ("--raft-port", &raft_port.to_string()),
            // A busy machine may not run a process for a while.
            ("--raft-election-timeout", "2000"),
        ];
        let words =
            directives.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]);
        NodePlace { arguments: words.collect(), dir, port, raft_port }
    }

    /// Starts the node, with these words before its directives.
    pub(crate) fn start(&self, words: &[&str]) -> Daemon {
        let words = words.iter().map(|word| (*word).to_owned());
        let arguments: Vec<String> = words.chain(self.arguments.iter().cloned()).collect();
        let mut daemon = Daemon::start(&arguments);
        daemon.wait_for_port();
        daemon
    }

    /// Starts the node, which joins the cluster of another one that runs.
    pub(crate) fn join(&self, other: &NodePlace) -> Daemon {
        let output = other.raft(&["token"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let token = String::from_utf8_lossy(&output.stdout);
        self.start(&["raft", "join", token.trim()])
    }

    /// The identity of the node.
    pub(crate) fn identity(&self) -> serde_json::Value {
        let text = fs::read_to_string(format!("{}/raft/node.json", self.dir));
        serde_json::from_str(&text.expect("a node")).expect("an identity")
    }

    /// The number of the node.
    pub(crate) fn number(&self) -> String {
        self.identity()["node"].to_string()
    }

    /// Connects to the node.
    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(([127, 0, 0, 1], self.port).into(), 2)
    }

    /// Runs `lockwheel raft` for the node.
    pub(crate) fn raft(&self, words: &[&str]) -> Output {
        run(&[&["raft"], words, &["--dir", &self.dir]].concat())
    }

    /// What `lockwheel raft` prints for the node, if it succeeds.
    pub(crate) fn raft_text(&self, words: &[&str]) -> Option<String> {
        let output = self.raft(words);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until `count` nodes vote and can be reached.
    pub(crate) fn wait_for_nodes(&self, count: usize) {
        cluster::wait_for_leader(&self.dir, count).expect("the nodes vote");
    }
}

pub(crate) fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn dead_node_is_replaced_and_does_not_come_back() {
    let folder = Folder::new();
    let places = ["1", "2", "3", "4"].map(|name| NodePlace::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let second = places[1].join(&places[0]);
    let third = places[2].join(&places[0]);
    let dead = places[2].number();
    places[1].wait_for_nodes(3);

    drop(third);
    let removed = places[1].raft(&["remove", &dead]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let _fourth = places[3].join(&places[1]);
    places[3].wait_for_nodes(3);
    let mut returned = Daemon::start(&places[2].arguments);
    returned.wait_for("this node was removed from the cluster");
    returned.wait_for("# This node was removed from its cluster.");
    // To start it again does not help: the unit for systemd does not.
    assert_eq!(returned.end().code(), Some(3));
    assert!(!returned.log_text.contains("User requested"), "{}", returned.log_text);

    // A node that is started again is the same one.
    drop(second);
    let _second = places[1].start(&[]);
    places[1].wait_for_nodes(3);
}

/// Four nodes of which one is dead: the next failure would cost the majority.
#[test]
fn node_that_joins_warns_of_one_that_is_dead() {
    let folder = Folder::new();
    let places = ["1", "2", "3", "4"].map(|name| NodePlace::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let _second = places[1].join(&places[0]);
    let third = places[2].join(&places[0]);
    assert!(!third.log_text.contains("Warning"), "{}", third.log_text);
    places[0].wait_for_nodes(3);
    drop(third);
    let dead = places[2].number();
    let is_out_of_contact = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        words == [&dead, "follower", "no"]
    };
    eventually("the loss of the third node", || {
        places[0].raft_text(&["status"]).is_some_and(|text| text.lines().any(is_out_of_contact))
    });
    let fourth = places[3].join(&places[0]);
    let port = places[2].raft_port;
    let warning = format!("Warning: node {dead} at 127.0.0.1:{port} is not in contact");
    assert!(fourth.log_text.contains(&warning), "{}", fourth.log_text);
    let remedy = format!("lockwheel raft remove {dead} --dir {}\n", places[3].dir);
    assert!(fourth.log_text.contains(&remedy), "{}", fourth.log_text);
}

#[test]
fn leadership_moves_to_the_node_that_is_named() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let _others = [places[1].join(&places[0]), places[2].join(&places[0])];
    places[0].wait_for_nodes(3);
    let mut wire = places[0].connect();
    assert_eq!(wire.ask("SET lock token NX PX 600000"), "+OK\r\n");
    for id in [places[1].number(), places[2].number()] {
        let done = places[0].raft_text(&["lead", &id]);
        assert_eq!(done, Some(format!("node {id} leads\n")));
        let status = places[0].raft_text(&["status"]).unwrap_or_default();
        assert!(status.contains(&format!(", leader {id}\n")), "{status}");
    }
    let refused = error_of(&places[1].raft(&["lead", "77"]));
    assert!(refused.contains("there is no node 77"), "{refused}");
    let mut wire = places[2].connect();
    assert_eq!(wire.ask("SET lock other NX PX 600000"), "$-1\r\n");

    // A leader that is removed hands its leadership over before.
    let removed = places[0].raft(&["remove", &places[2].number()]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    places[0].wait_for_nodes(2);
}

/// Writes 24 MiB to the directory of a process, as the process sees it.
fn fill(process_id: u32, dir: &str) {
    fs::write(filler(process_id, dir), vec![0; 24 << 20]).expect("space");
}

fn filler(process_id: u32, dir: &str) -> String {
    format!("/proc/{process_id}/root{dir}/filler")
}

#[test]
fn leader_with_a_full_disk_has_another_node_lead() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    fs::create_dir(&places[0].dir).expect("a directory");
    // 128 MiB are a reserve.
    let Some(mut command) = command_on_disk(&places[0].dir, 144) else {
        return say("skipped: this system permits no user to mount a disk");
    };
    command.args(["raft", "init"]).args(&places[0].arguments);
    let mut first = Daemon::spawn(Folder::new(), command, "");
    let token = first.wait_for("lockwheel raft join ");
    let token = token.split_whitespace().next().expect("a token").to_owned();
    first.wait_for_port();
    let _second = places[1].start(&["raft", "join", &token]);
    places[1].wait_for_nodes(2);
    let _third = places[2].join(&places[1]);
    places[1].wait_for_nodes(3);
    assert_eq!(places[0].connect().ask("SET lock token NX PX 600000"), "+OK\r\n");
    fill(first.process_id(), &places[0].dir);
    first.wait_for("another node leads, whose disk has space");
    eventually("a leader with space", || {
        places[1..].iter().any(|place| place.connect().ask("SET other token") == "+OK\r\n")
    });
}

/// A node does not end with a snapshot for which there is no space, nor the next time.
/// Shows G23.
#[test]
fn node_gives_up_a_snapshot_while_its_disk_has_no_space() {
    let folder = Folder::new();
    let place = NodePlace::new(&folder, "1");
    fs::create_dir(&place.dir).expect("a directory");
    // A snapshot leaves 16 MiB to the log.
    let Some(mut command) = command_on_disk(&place.dir, 32) else {
        return say("skipped: this system permits no user to mount a disk");
    };
    command.args(["raft", "init"]).args(&place.arguments);
    let mut node = Daemon::spawn(Folder::new(), command, "");
    node.wait_for_port();
    let mut wire = place.connect();
    let mut save = |status: &str| {
        assert_eq!(wire.ask("BGSAVE"), "+Background saving started\r\n");
        eventually("the end of the snapshot", || {
            let figures = wire.ask("INFO persistence");
            figures.contains("rdb_bgsave_in_progress:0") && figures.contains(status)
        });
    };
    for _ in 0..2 {
        fill(node.process_id(), &place.dir);
        save("rdb_last_bgsave_status:err");
        fs::remove_file(filler(node.process_id(), &place.dir)).expect("the file");
        save("rdb_last_bgsave_status:ok");
    }
    assert_eq!(place.connect().ask("GET lock"), "$-1\r\n");
}

#[test]
fn cluster_of_one_node_refuses_what_would_end_it() {
    let folder = Folder::new();
    let (first, other) = (NodePlace::new(&folder, "1"), NodePlace::new(&folder, "2"));
    let daemon = first.start(&["raft", "init"]);
    first.wait_for_nodes(1);
    assert!(error_of(&first.raft(&["remove", "1"])).contains("node 1 is the only one"));
    assert!(error_of(&first.raft(&["remove", "7"])).contains("there is no node 7"));
    let join = |token: &str| {
        run(&[&["raft", "join", token].map(str::to_owned)[..], &other.arguments].concat())
    };
    let error = error_of(&join("lockwheel-join-1-AAAA"));
    assert!(error.contains("this is not a join token"), "{error}");
    let expired = first.raft_text(&["token", "--hours", "0"]).expect("a token");
    assert!(error_of(&join(expired.trim())).contains("the join token has expired"));

    // Not a second cluster, nor a server of its own, in the directory of a node.
    drop(daemon);
    let again = run(&[&["raft", "init"].map(str::to_owned)[..], &first.arguments].concat());
    assert!(error_of(&again).contains("there is a node of a cluster in"));
    let alone = run(&["--dir", &first.dir, "--port", "0"]);
    assert!(error_of(&alone).contains("is the directory of a node of a cluster"));
    assert!(error_of(&first.raft(&["status"])).contains("Connection refused"));

    let for_tests = ["raft", "init", "--enable-test-commands", "yes"].map(str::to_owned);
    let refused = run(&[&for_tests[..], &other.arguments].concat());
    assert!(error_of(&refused).contains("raft-port and enable-test-commands exclude each other"));
}

/// A TLS connection with an unknown key to the port for nodes, whose handshake is complete.
pub(crate) fn unidentified(
    config: &Arc<ClientConfig>,
    port: u16,
) -> StreamOwned<ClientConnection, TcpStream> {
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a node");
    tcp.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let name = "node".try_into().expect("a name");
    let tls = ClientConnection::new(Arc::clone(config), name).expect("a configuration");
    let mut stream = StreamOwned::new(tls, tcp);
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    stream
}

#[test]
fn unidentified_connections_are_few_and_closed_within_seconds() {
    const MAX: usize = 64;
    let folder = Folder::new();
    let place = NodePlace::new(&folder, "one");
    let node = place.start(&["raft", "init"]);
    let key = certificates::new_key_pem();
    let config = certificates::client_of_any_server("lockwheel-membership", &key, "any", None);
    let config = Arc::new(config);
    let descriptors = || {
        let open = fs::read_dir(format!("/proc/{}/fd", node.process_id()));
        open.expect("a process").count()
    };
    let before = descriptors();
    let mut streams: Vec<_> =
        (0..2 * MAX).map(|_| unidentified(&config, place.raft_port)).collect();
    // The node itself connects meanwhile.
    eventually("the oldest to be closed", || descriptors() <= before + MAX + 8);
    assert!(place.raft_text(&["status"]).is_some(), "others are served");
    for stream in &mut streams {
        let rest = stream.read(&mut [0; 1]);
        let is_open = rest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!is_open, "the node closes it");
    }
}

#[test]
fn node_that_has_lost_its_log_does_not_start() {
    let folder = Folder::new();
    let place = NodePlace::new(&folder, "1");
    let daemon = place.start(&["raft", "init"]);
    place.wait_for_nodes(1);
    let folder_of_log = std::path::Path::new(&place.dir).join("raft");
    eventually("the node is a member", || {
        let identity = std::fs::read_to_string(folder_of_log.join("node.json"));
        identity.is_ok_and(|identity| identity.contains("\"is_member\": true"))
    });
    drop(daemon);
    for entry in std::fs::read_dir(&folder_of_log).expect("the log") {
        let path = entry.expect("a file").path();
        if path.file_name().is_some_and(|name| name != "node.json") {
            std::fs::remove_file(path).expect("a file");
        }
    }
    let mut daemon = Daemon::start(&place.arguments);
    daemon.wait_for("its log is gone");
    assert!(!daemon.end().success());
}

/// Starts a server with a log and its clients, in the directory of `place`.
fn start_alone(place: &NodePlace) -> (Daemon, Wire) {
    let arguments = ["--dir", &place.dir, "--port", "0", "--appendonly", "yes"];
    let mut daemon = Daemon::start(&arguments);
    let port = daemon.wait_for_port();
    let wire = daemon.connect(port);
    (daemon, wire)
}

/// Runs a server in the directory of `place`, which executes these commands and ends. Returns the
/// directory of its log.
fn leave_log(place: &NodePlace, commands: &[&str]) -> String {
    let (mut alone, mut wire) = start_alone(place);
    commands.iter().for_each(|command| drop(wire.ask(command)));
    alone.signal("TERM");
    alone.end();
    format!("{}/appendonlydir", place.dir)
}

fn token_in(reply: &str) -> u64 {
    number_after("token", reply)
}

/// Shows L10.
#[test]
fn server_goes_on_as_a_cluster() {
    const CODE: &str = "#!lua name=l\nredis.register_function('f', function() return 7 end)";
    let folder = Folder::new();
    let (first, second) = (NodePlace::new(&folder, "1"), NodePlace::new(&folder, "2"));
    let (mut alone, mut wire) = start_alone(&first);
    wire.ask("SET lock token NX PX 600000");
    let token = token_in(&wire.ask("LOCK.ACQUIRE k a TTL 600000"));
    wire.send(&["FUNCTION", "LOAD", CODE]);
    assert_eq!(wire.read(), b"$1\r\nl\r\n");
    let log = format!("{}/appendonlydir", first.dir);
    let from = ["raft", "init", "--from", &log];
    let init = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        run(&words.chain(first.arguments.iter().cloned()).collect::<Vec<String>>())
    };
    assert!(error_of(&init(&from)).contains("another process uses the directory"));
    alone.signal("TERM");
    alone.end();
    // Its locks are not ignored.
    let error = error_of(&init(&["raft", "init"]));
    assert!(error.contains(&format!("raft init --from {log}' begins")), "{error}");

    let daemon = first.start(&from);
    assert!(daemon.log_text.contains("keys: 2.\n"), "{}", daemon.log_text);
    assert!(!daemon.log_text.contains("Restart guard: "), "{}", daemon.log_text);
    let joined = second.join(&first);
    first.wait_for_nodes(2);
    for place in [&first, &second] {
        let mut wire = place.connect();
        assert_eq!(wire.ask("GET lock"), "$5\r\ntoken\r\n");
        assert_eq!(token_in(&wire.ask("LOCK.INFO k")), token);
    }
    let mut wire = first.connect();
    assert_eq!(wire.ask("SET lock other NX"), "$-1\r\n");
    assert!(token_in(&wire.ask("LOCK.ACQUIRE l a TTL 600000")) > token);
    assert_eq!(wire.ask("FCALL f 0"), ":7\r\n");
    drop((daemon, joined));
    assert!(error_of(&init(&from)).contains("there is a node of a cluster in"));
}

/// Grants may have followed a copy: the cluster waits for their end, also after a restart.
/// Shows S8.
#[test]
fn cluster_that_begins_with_a_copy_is_guarded() {
    let folder = Folder::new();
    let (place, restored) = (NodePlace::new(&folder, "1"), NodePlace::new(&folder, "2"));
    let log = leave_log(&place, &["SET lock token NX PX 600000"]);
    let daemon = restored.start(&["raft", "init", "--from", &log]);
    assert!(daemon.log_text.contains("Restart guard: commands are refused for "));
    let is_guarded = || {
        let mut wire = restored.connect();
        wire.ask("SET lock other NX").starts_with("-LOADING ")
    };
    assert!(is_guarded());
    drop(daemon);
    let _daemon = restored.start(&[]);
    assert!(is_guarded());

    let unguarded = NodePlace::new(&folder, "3");
    let daemon = unguarded.start(&["raft", "init", "--from", &log, "--restart-guard", "no"]);
    assert!(daemon.log_text.contains("Warning: no restart guard although "));
    let mut wire = unguarded.connect();
    assert_eq!(wire.ask("GET lock"), "$5\r\ntoken\r\n");
}

/// A guard of the server itself goes on in the cluster that takes its place.
/// Shows S8.
#[test]
fn cluster_keeps_the_guard_of_its_server() {
    let folder = Folder::new();
    let place = NodePlace::new(&folder, "1");
    let log = leave_log(&place, &["SET lock token NX PX 600000"]);
    // Without its log the server does not know the lock.
    let mut guarded = Daemon::start(&["--port", "0", "--dir", &place.dir]);
    let port = guarded.wait_for_port();
    assert!(guarded.connect(port).ask("LOCKWHEEL GUARD").contains("there is no log"));
    guarded.signal("KILL");
    guarded.end();
    let daemon = place.start(&["raft", "init", "--from", &log]);
    let left = daemon.log_text.split_once("Restart guard: commands are refused for ");
    let left = left.and_then(|(_, rest)| rest.split(' ').next()?.parse::<i64>().ok());
    assert!(left.is_some_and(|left_ms| (1..=600_000).contains(&left_ms)), "{left:?}");
    assert!(place.connect().ask("SET other token NX").starts_with("-LOADING "));
}

#[test]
fn cluster_does_not_begin_with_a_log_that_cannot_be_used() {
    let folder = Folder::new();
    let (place, other) = (NodePlace::new(&folder, "1"), NodePlace::new(&folder, "2"));
    let log = leave_log(&place, &["SET lock token NX PX 600000", "SET other token"]);
    let refusal = |from: &str| {
        let words = ["raft", "init", "--from", from].map(str::to_owned);
        error_of(&run(&[&words[..], &other.arguments].concat()))
    };
    assert!(refusal(&place.dir).contains("there is no log"));
    assert!(refusal(&folder.path("none")).contains("No such file"));
    let segment = format!("{log}/00000000000000000001.log");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    bytes[10] ^= 1;
    std::fs::write(&segment, bytes).expect("a segment");
    let error = refusal(&log);
    assert!(error.contains("00000000000000000001.log is damaged at byte 0"), "{error}");
    // What has failed is not in the way of the next attempt.
    let _daemon = other.start(&["raft", "init"]);
}
