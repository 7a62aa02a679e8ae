//! The real `redis-cli` works with the server in the modes that people use: `--scan`, `--bigkeys`,
//! `--eval`, `--pipe`, `--latency` and `--stat`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;

use lockwheel::Server;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::until;
use lockwheel_tests::redis_server::RedisServer;

use crate::cli::{redis_cli_exists, run};

/// A key of every type, and a few more.
const KEYS: &[&str] = &[
    "SET string longest",
    "SET lock:1 token PX 30000",
    "SET lock:2 token PX 30000",
    "RPUSH list a b c",
    "HSET hash field value",
    "SADD set a b",
    "ZADD zset 1 a",
    "XADD stream 1-1 field value",
];

/// Two servers with these keys: ours and, if it is installed, the real one.
fn servers() -> (Server, Option<RedisServer>) {
    let server = Server::start().expect("a server");
    let redis = RedisServer::start();
    for address in [Some(server.addr()), redis.as_ref().map(RedisServer::address)] {
        let Some(address) = address else { continue };
        let input = KEYS.join("\n");
        assert!(ended_well(address, &[], &input).lines().count() == KEYS.len());
    }
    (server, redis)
}

/// What `redis-cli` prints. It must end without an error.
#[track_caller]
fn ended_well(address: SocketAddr, arguments: &[&str], input: &str) -> String {
    let port = address.port().to_string();
    let output = run(Command::new("redis-cli"), &[&["-p", &port], arguments].concat(), input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `redis-cli` on both servers and compares the lines, apart from their order.
#[track_caller]
fn check(arguments: &[&str], input: &str, expected: &[&str]) {
    let (server, redis) = servers();
    let lines = |address| {
        let output = ended_well(address, arguments, input);
        // How far a scan is depends on the order of the keys.
        let lines = output.lines().filter(|line| !line.starts_with('['));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ours = lines(server.addr());
    for line in expected {
        assert!(ours.iter().any(|it| it == line), "{arguments:?}: {ours:?}");
    }
    if let Some(redis) = redis {
        assert_eq!(ours, lines(redis.address()), "{arguments:?}");
    }
}

#[test]
fn scan_lists_the_keys() {
    if redis_cli_exists() {
        check(&["--scan"], "", &["string", "lock:1", "stream"]);
        check(&["--scan", "--pattern", "lock:*"], "", &["lock:1", "lock:2"]);
    }
}

#[test]
fn bigkeys_shows_the_largest_key_of_each_type() {
    if redis_cli_exists() {
        let largest = "Biggest   list found '\"list\"' has 3 items";
        check(&["--bigkeys"], "", &["Sampled 8 keys in the keyspace!", largest]);
    }
}

#[test]
fn eval_runs_a_script_from_a_file() {
    if !redis_cli_exists() {
        return;
    }
    let folder = Folder::new();
    let script = folder.path("script.lua");
    let text = "return {redis.call('GET', KEYS[1]), ARGV[1]}";
    std::fs::write(&script, text).expect("a file");
    check(&["--eval", &script, "string", ",", "word"], "", &["longest", "word"]);
}

#[test]
fn pipe_sends_commands_and_counts_replies() {
    if redis_cli_exists() {
        let input = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".repeat(1000);
        check(&["--pipe"], &input, &["errors: 0, replies: 1000"]);
    }
}

#[test]
fn latency_is_measured() {
    if redis_cli_exists() {
        let server = Server::start().expect("a server");
        let output = ended_well(server.addr(), &["--latency", "--raw", "-i", "0.1"], "");
        let figures: Vec<f64> = output.split(' ').flat_map(|it| it.trim().parse()).collect();
        assert_eq!(figures.len(), 4, "{output}");
    }
}

#[test]
fn stat_shows_figures_again_and_again() {
    if !redis_cli_exists() {
        return;
    }
    let (server, _) = servers();
    let mut child = Command::new("redis-cli")
        .args(["-p", &server.addr().port().to_string(), "--stat", "-i", "0.01"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    // Two lines are the heading.
    let figures = output.lines().map_while(Result::ok).skip(2).take(3);
    let reader = thread::spawn(move || figures.collect::<Vec<String>>());
    let printed = until("lines of figures", || reader.is_finished().then_some(()));
    child.kill().and_then(|()| child.wait()).expect("it ends");
    printed.expect("three lines");
    let lines = reader.join().expect("no panic");
    let keys: Vec<_> = lines.iter().map(|line| line.split_whitespace().next()).collect();
    assert_eq!(keys, [Some("8"); 3], "{lines:?}");
}
