//! Tests of the floor: when it replies, and what its nodes log.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lockwheel_comparison::floor;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;

const TIMEOUT: Duration = Duration::from_secs(30);
const SET: [&str; 6] = ["SET", "lock", "owner", "NX", "PX", "30000"];
const DELETE: [&str; 5] = ["EVALSHA", "digest", "1", "lock", "owner"];

/// Starts a leader, which ends with the process, and returns a function that connects to it.
fn lead(folder: &Folder, followers: Vec<SocketAddr>) -> impl Fn() -> Wire {
    let (address, directory) = (loopback(), PathBuf::from(folder.path("")));
    thread::spawn(move || floor::serve(address, &directory, &followers).expect("a leader"));
    move || connected(address)
}

/// Starts a follower, which ends with the process.
fn follow(folder: &Folder) -> SocketAddr {
    let (address, directory) = (loopback(), PathBuf::from(folder.path("")));
    thread::spawn(move || floor::follow(address, &directory).expect("a follower"));
    drop(connected(address));
    address
}

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

fn connected(address: SocketAddr) -> Wire {
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let attempts = std::iter::repeat_with(|| Wire::open(&endpoint, TIMEOUT));
    attempts.into_iter().find_map(Result::ok).expect("a connection")
}

fn ask(wire: &mut Wire, request: &[&str]) -> String {
    String::from_utf8(wire.call(request).expect("a reply").text).expect("a text")
}

fn log(folder: &Folder) -> Vec<u8> {
    fs::read(folder.path("floor.log")).expect("a log")
}

#[test]
fn single_node_logs_requests_that_change_a_lock_before_it_replies() {
    let folder = Folder::new();
    let open = lead(&folder, Vec::new());
    let mut wire = open();
    assert_eq!(ask(&mut wire, &["PING"]), "PONG");
    assert!(log(&folder).is_empty());
    assert_eq!(ask(&mut wire, &SET), "OK");
    let logged = log(&folder);
    assert!(logged.ends_with(b"$5\r\n30000\r\n"), "{}", logged.escape_ascii());
    assert_eq!(ask(&mut wire, &DELETE), "1");
    let lock = ["EVALSHA", "digest", "1", "lock", "30000", "owner"];
    assert_eq!(wire.call(&lock).expect("a reply").kind, b'$');
    assert_eq!(ask(&mut wire, &["INFO"]), "raft_rounds:3\r\nraft_commits:3\r\n");
    assert!(log(&folder).len() > logged.len());
}

#[test]
fn requests_of_a_pipeline_are_one_round() {
    let folder = Folder::new();
    let mut wire = lead(&folder, Vec::new())();
    let requests = [SET.to_vec(), DELETE.to_vec(), SET.to_vec()];
    let sent = requests.map(|it| lockwheel_compat::wire::request(&it)).concat();
    wire.send_bytes(&sent).expect("sent");
    for expected in ["OK", "1", "OK"] {
        assert_eq!(wire.read().expect("a reply").text, expected.as_bytes());
    }
    assert_eq!(ask(&mut wire, &["INFO"]), "raft_rounds:1\r\nraft_commits:3\r\n");
}

#[test]
fn all_nodes_have_the_same_log() {
    let folders = [Folder::new(), Folder::new(), Folder::new()];
    let followers = folders[1..].iter().map(follow).collect();
    let mut wire = lead(&folders[0], followers)();
    for _ in 0..100 {
        assert_eq!(ask(&mut wire, &SET), "OK");
        assert_eq!(ask(&mut wire, &DELETE), "1");
    }
    assert_eq!(ask(&mut wire, &["INFO"]), "raft_rounds:200\r\nraft_commits:200\r\n");
    // The reply does not depend on the slower follower.
    for folder in &folders[1..] {
        eventually("the same log", || log(folder) == log(&folders[0]));
    }
}

#[test]
fn follower_is_ready_for_a_leader_after_the_end_of_another() {
    let folder = Folder::new();
    let address = follow(&folder);
    let batch = b"\0\0\0\x03SET";
    let mut first = TcpStream::connect(address).expect("a connection");
    first.write_all(batch).expect("sent");
    eventually("a logged batch", || log(&folder) == batch);
    // The acknowledgement was not read, so that the connection is reset.
    drop(first);
    let mut second = TcpStream::connect(address).expect("a connection");
    second.write_all(batch).expect("sent");
    let mut acknowledgement = [0];
    second.read_exact(&mut acknowledgement).expect("an acknowledgement");
    assert_eq!(log(&folder), batch.repeat(2));
}

#[test]
fn reply_waits_for_a_follower() {
    let folder = Folder::new();
    let nodes = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let addresses = nodes.iter().map(|it| it.local_addr().expect("an address")).collect();
    let open = lead(&folder, addresses);
    let mut streams = nodes.map(|it| it.accept().expect("the leader").0);
    let (mut wire, mut other) = (open(), open());
    wire.send(&SET).expect("sent");
    let mut header = [0; 4];
    streams[0].read_exact(&mut header).expect("a batch");
    // The leader has begun the batch, so it would have replied to it before it handles this.
    assert_eq!(ask(&mut other, &["PING"]), "PONG");
    assert_eq!(wire.read_within(Duration::from_millis(1)).expect("a socket"), None);
    // The next batch is collected, and not sent.
    other.send(&DELETE).expect("sent");
    streams[1].write_all(b".").expect("acknowledged");
    assert_eq!(wire.read().expect("a reply").text, b"OK");
    assert_eq!(other.read_within(Duration::from_millis(1)).expect("a socket"), None);
    streams[0].write_all(b"..").expect("acknowledged");
    assert_eq!(other.read().expect("a reply").text, b"1");
}
