//! Servers that are killed and started again: what the log and the restart guard keep.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use lockwheel_tests::daemon::{Daemon, Folder, command, command_of, command_on_disk, program};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::{Wire, open_unix};
use lockwheel_tests::{say, words};

/// A server in a folder, which outlives it.
struct Server {
    daemon: Daemon,
    port: u16,
}

impl Server {
    /// Starts a server in `folder`, on the data of those before.
    fn start(folder: &Folder, arguments: &[&str]) -> Server {
        let dir = folder.path("data");
        fs::create_dir_all(&dir).expect("a folder");
        let mut daemon = Daemon::start(&[&["--port", "0", "--dir", &dir], arguments].concat());
        let port = daemon.wait_for_port();
        Server { daemon, port }
    }

    fn with_log(folder: &Folder) -> Server {
        Server::start(folder, &["--appendonly", "yes"])
    }

    fn connect(&self) -> Wire {
        self.daemon.connect(self.port)
    }

    /// Runs commands, each with its reply.
    #[track_caller]
    fn check(&self, conversation: &[(&str, &str)]) {
        let mut wire = self.connect();
        for (command, reply) in conversation {
            assert_eq!(ask(&mut wire, command), *reply, "{command}");
        }
    }

    /// Ends the process at once; returns its log.
    fn kill(mut self) -> String {
        self.daemon.signal("KILL");
        self.daemon.end();
        std::mem::take(&mut self.daemon.log_text)
    }

    /// Ends the process in order.
    fn stop(mut self) -> String {
        self.daemon.signal("TERM");
        assert!(self.daemon.end().success(), "{}", self.daemon.log_text);
        std::mem::take(&mut self.daemon.log_text)
    }
}

/// Runs a command; returns the lines of its reply.
fn ask(wire: &mut Wire, command: &str) -> String {
    wire.send(&words(command));
    lines(&wire.read_text())
}

fn lines(reply: &str) -> String {
    reply.trim_end().replace("\r\n", " ")
}

fn integer(reply: &str) -> i64 {
    reply.strip_prefix(':').and_then(|text| text.parse().ok()).expect("an integer")
}

/// Shows G33, G40, G41.
#[test]
fn lock_survives_kill_with_the_rest_of_its_lease() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    server.check(&[("SET lock token NX PX 100000", "+OK"), ("SET other v", "+OK")]);
    server.check(&[("DEL other", ":1"), ("INCR counter", ":1"), ("WAITAOF 1 0 0", "*2 :1 :0")]);
    let before = integer(&ask(&mut server.connect(), "PTTL lock"));
    server.kill();
    let server = Server::with_log(&folder);
    server.check(&[
        ("SET lock thief NX PX 100000", "$-1"),
        ("GET lock", "$5 token"),
        ("EXISTS other", ":0"),
        ("INCR counter", ":2"),
    ]);
    let after = integer(&ask(&mut server.connect(), "PTTL lock"));
    assert!(0 < after && after <= before, "{after} of {before}");
    server.stop();
}

#[test]
fn token_of_a_shared_hold_counts_to_the_end_of_its_lease_also_after_kill() {
    let folder = Folder::new();
    let start = || {
        let frozen = ["--clock-frozen", "yes", "--enable-test-commands", "yes"];
        Server::start(&folder, &[&["--appendonly", "yes"][..], &frozen].concat())
    };
    let server = start();
    let acquire = |owner: &str, lease_ms: u32| {
        let command = format!("LOCK.ACQUIRE lock {owner} TTL {lease_ms} SHARED");
        let reply = ask(&mut server.connect(), &command);
        let token = reply.split(" $5 token :").nth(1).and_then(|rest| rest.split(' ').next());
        format!("LOCK.VALIDATE lock {}", token.unwrap_or_else(|| panic!("{reply}")))
    };
    let [lapses, lasts] = [acquire("a", 60_000), acquire("b", 6_000_000)];
    server.check(&[(&lapses, ":1"), ("LOCKWHEEL CLOCK ADVANCE 60s", "+OK")]);
    server.check(&[(&lapses, ":0"), (&lasts, ":1")]);
    server.kill();
    let server = start();
    server.check(&[(&lapses, ":0"), (&lasts, ":1")]);
    server.stop();
}

/// Shows G29.
#[test]
fn process_that_is_killed_loses_nothing_under_any_policy() {
    for policy in ["everysec", "no"] {
        let folder = Folder::new();
        let arguments = ["--appendonly", "yes", "--appendfsync", policy];
        let server = Server::start(&folder, &arguments);
        server.check(&[("SET lock token NX PX 100000", "+OK")]);
        server.kill();
        let server = Server::start(&folder, &arguments);
        // The machine was not restarted, so there is no restart guard.
        server.check(&[("SET lock thief NX PX 100000", "$-1")]);
        server.stop();
    }
}

/// What the server acknowledges would be in no file any more.
#[test]
fn server_stops_when_a_file_of_its_log_was_removed() {
    let folder = Folder::new();
    let log = Path::new(&folder.path("data/appendonlydir")).join("00000000000000000001.log");
    let mut server = Server::with_log(&folder);
    server.check(&[("SET lock token NX PX 100000", "+OK")]);
    fs::remove_file(&log).expect("a segment");
    let reason = server.daemon.wait_for("the log cannot be written; the server stops");
    assert_eq!(reason, "error=00000000000000000001.log was removed");
    assert_eq!(server.daemon.end().code(), Some(1));
}

/// The system sends a signal that ends a process which does not handle it.
#[test]
fn server_reports_a_log_that_exceeds_the_limit_of_file_sizes() {
    let folder = Folder::new();
    let mut limited = command_of("sh", &folder);
    limited.args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""]).arg(program());
    limited.args(["--port", "0", "--appendonly", "yes"]);
    let mut daemon = Daemon::spawn(folder, limited, "");
    let port = daemon.wait_for_port();
    daemon.connect(port).send(&["SET", "key", &"v".repeat(1 << 20)]);
    let reason = daemon.wait_for("the log cannot be written; the server stops");
    assert_eq!(reason, "error=File too large (os error 27)");
    assert_eq!(daemon.end().code(), Some(1));
}

#[test]
fn files_of_a_redis_are_named_in_the_log() {
    let folder = Folder::new();
    let data = folder.path("data");
    fs::create_dir_all(format!("{data}/appendonlydir")).expect("a folder");
    let files = ["dump.rdb", "appendonly.aof", "appendonlydir/appendonly.aof.manifest"];
    let files = files.map(|name| format!("{data}/{name}"));
    for path in &files {
        fs::write(path, "of Redis").expect("a file");
    }
    let check = |log: &str, is_named: bool| {
        for path in &files {
            let warning = format!(" # {path} was written by Redis and is not read: ");
            assert_eq!(log.contains(&warning), is_named, "{path}: {log}");
        }
    };
    for arguments in [&["--appendonly", "no"][..], &["--appendonly", "yes"]] {
        check(&Server::start(&folder, arguments).stop(), true);
    }
    // It goes on with its own log.
    check(&Server::with_log(&folder).stop(), false);
}

#[test]
fn policy_changes_while_the_server_runs() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    for policy in ["everysec", "always", "no", "always"] {
        server.check(&[
            (&format!("CONFIG SET appendfsync {policy}"), "+OK"),
            (
                "INCR counter",
                &format!(":{}", integer(&ask(&mut server.connect(), "INCRBY counter 0")) + 1),
            ),
        ]);
    }
    server.check(&[("CONFIG SET appendfsync everysec", "+OK"), ("INCR counter", ":5")]);
    server.check(&[("WAITAOF 1 0 0", "*2 :1 :0")]);
    server.kill();
    let server = Server::with_log(&folder);
    server.check(&[("GET counter", "$1 5")]);
    server.stop();
}

/// Shows S6.
#[test]
fn second_server_on_the_directory_refuses_to_start() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    let dir = folder.path("data");
    // A directory has a restart guard by default.
    for arguments in [&["--appendonly", "yes"], &["--restart-guard", "yes"], &[][..]] {
        let arguments = [&["--port", "0", "--dir", &dir], arguments].concat();
        let mut second = Daemon::start(&arguments);
        second.wait_for("another process uses the directory");
        assert!(!second.end().success());
    }
    let mut second = Daemon::start(&["--port", "0", "--dir", &dir, "--restart-guard", "no"]);
    let port = second.wait_for_port();
    assert_eq!(ask(&mut second.connect(port), "PING"), "+PONG");
    server.stop();
}

/// Test suites give several servers at sockets of their own one directory.
/// Shows S7.
#[test]
fn server_at_a_new_socket_shares_a_directory_without_a_guard() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    let (dir, socket) = (folder.path("data"), folder.path("new.socket"));
    let arguments = ["--port", "0", "--dir", &dir, "--unixsocket", &socket];
    let mut second = Daemon::start(&arguments);
    second.wait_for("no restart guard: ");
    second.wait_for("The server is now ready to accept connections at ");
    let mut client = open_unix(&socket);
    client.write_all(b"CONFIG GET restart-guard\r\nQUIT\r\n").expect("requests");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("replies");
    assert_eq!(lines(&replies), "*2 $13 restart-guard $2 no +OK");
    // At a socket that exists, a server may replace the one before: it keeps the guard.
    let mut third = Daemon::start(&arguments);
    third.wait_for("another process uses the directory");
    assert!(!third.end().success());
    second.signal("TERM");
    second.end();
    server.stop();
}

/// Shows S6.
#[test]
fn guard_that_cannot_be_kept_refuses_the_start() {
    let folder = Folder::new();
    let dir = folder.path("data");
    let server = Server::start(&folder, &[]);
    server.check(&[("SET lock a NX PX 600000", "+OK")]);
    server.kill();
    let kept = folder.path("data/appendonlydir");
    fs::rename(&kept, folder.path("lost")).expect("the directory of the guard");
    fs::write(&kept, "a file in its place").expect("a file");
    let mut server = Daemon::start(&["--port", "0", "--dir", &dir]);
    server.wait_for(&format!("the restart guard in {kept}"));
    assert!(server.log_text.contains("`restart-guard no` starts without a guard"));
    assert!(!server.end().success());
}

#[test]
fn snapshots_replace_the_log() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    server.check(&[("SET lock token NX PX 100000", "+OK"), ("RPUSH list a b", ":2")]);
    server.check(&[("SAVE", "+OK"), ("RPUSH list c", ":3"), ("SAVE", "+OK"), ("INCR n", ":1")]);
    let info = ask(&mut server.connect(), "INFO persistence");
    assert!(info.contains("rdb_saves:2 ") && info.contains("aof_enabled:1 "), "{info}");
    let log = folder.path("data/appendonlydir");
    let names =
        fs::read_dir(&log).expect("the log").map(|entry| entry.expect("a file").file_name());
    let snapshots = names.filter(|name| name.to_string_lossy().ends_with(".snapshot")).count();
    assert_eq!(snapshots, 1);
    server.kill();
    let server = Server::with_log(&folder);
    server.check(&[
        ("LRANGE list 0 -1", "*3 $1 a $1 b $1 c"),
        ("GET n", "$1 1"),
        ("GET lock", "$5 token"),
    ]);
    server.stop();
}

#[test]
fn save_points_begin_snapshots() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &["--appendonly", "yes", "--save", "1 2"]);
    server.check(&[("CONFIG GET save", "*2 $4 save $3 1 2"), ("MSET a 1 b 2", "+OK")]);
    server.daemon.wait_for("snapshot complete");
    server
        .check(&[("CONFIG SET save \"900 1\"", "+OK"), ("CONFIG GET save", "*2 $4 save $5 900 1")]);
    server.stop();
}

#[test]
fn message_that_frees_a_lock_reaches_waiters_that_subscribe_after_the_restart() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    server.check(&[
        ("SET lock token", "+OK"),
        ("MULTI", "+OK"),
        ("DEL lock", "+QUEUED"),
        ("PUBLISH channel free", "+QUEUED"),
        ("EXEC", "*2 :1 :0"),
    ]);
    server.kill();
    let server = Server::with_log(&folder);
    let mut waiter = server.connect();
    assert_eq!(ask(&mut waiter, "SUBSCRIBE channel"), "*3 $9 subscribe $7 channel :1");
    assert_eq!(lines(&waiter.read_text()), "*3 $7 message $7 channel $4 free");
    server.stop();
}

/// Shows G25, S1, S2, S5, S20.
#[test]
fn without_log_restart_guard_waits_for_the_end_of_all_leases() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    server.check(&[("CONFIG GET restart-guard", "*2 $13 restart-guard $3 yes")]);
    // The next start must come before the end of the guard, some ten seconds.
    server.check(&[("SET lock token NX PX 5000", "+OK")]);
    server.kill();
    let mut server = Server::start(&folder, &[]);
    let refused = ask(&mut server.connect(), "SET lock other NX PX 100");
    let begin = "-LOADING Leases from before the restart may still be held; ready in ";
    assert!(refused.starts_with(begin) && refused.ends_with(" ms"), "{refused}");
    server.daemon.wait_for("the restart guard is over");
    server.check(&[("SET lock other NX PX 5000", "+OK")]);
    server.kill();
    // It is certain that all clients have ended.
    let server = Server::start(&folder, &[]);
    server.check(&[("LOCKWHEEL GUARD END", "+OK"), ("SET lock other NX PX 60000", "+OK")]);
    server.check(&[("DEL lock", ":1")]);
    // A lock that was released needs no guard after an end in order.
    server.stop();
    let server = Server::start(&folder, &[]);
    server.check(&[("PING", "+PONG")]);
    server.stop();
}

/// Shows G25, S1.
#[test]
fn guard_goes_on_after_another_restart() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    server.check(&[("SET lock token NX PX 60000", "+OK")]);
    server.kill();
    for _ in 0..2 {
        let server = Server::with_log(&folder);
        let refused = ask(&mut server.connect(), "SET lock other NX PX 100");
        assert!(refused.starts_with("-LOADING Leases from before the restart"), "{refused}");
        server.kill();
    }
    let server = Server::with_log(&folder);
    server.check(&[("LOCKWHEEL GUARD END", "+OK"), ("SET lock other NX PX 60000", "+OK")]);
    server.kill();
    let server = Server::with_log(&folder);
    server.check(&[("GET lock", "$5 other")]);
    server.stop();
}

#[test]
fn guard_that_was_ended_does_not_come_back() {
    let folder = Folder::new();
    for arguments in [&[][..], &["--appendonly", "yes"]] {
        let server = Server::start(&folder, &[]);
        server.check(&[("SET lock token NX PX 600000", "+OK")]);
        server.kill();
        let server = Server::start(&folder, arguments);
        server.check(&[("LOCKWHEEL GUARD END", "+OK")]);
        server.kill();
        let server = Server::start(&folder, arguments);
        server.check(&[("SET lock other NX PX 1", "+OK")]);
        server.stop();
    }
    // Locks that were granted after the end are guarded.
    let server = Server::start(&folder, &[]);
    server.check(&[("SET lock token NX PX 600000", "+OK")]);
    server.kill();
    let server = Server::start(&folder, &[]);
    server.check(&[("LOCKWHEEL GUARD END", "+OK"), ("SET lock other NX PX 60000", "+OK")]);
    server.kill();
    let server = Server::start(&folder, &[]);
    let refused = ask(&mut server.connect(), "SET lock token NX PX 100");
    assert!(refused.starts_with("-LOADING Leases from before the restart"), "{refused}");
    server.stop();
}

/// A server in the last second of its restart guard, and a connection that moves its clock.
fn in_the_last_second(folder: &Folder) -> (Server, Wire) {
    let server = Server::start(
        folder,
        &[
            &["--restart-guard", "yes", "--restart-guard-minimum", "1001ms"][..],
            &["--clock-frozen", "yes", "--enable-test-commands", "yes"],
        ]
        .concat(),
    );
    let mut control = server.connect();
    assert!(ask(&mut control, "SET lock control NX").starts_with("-LOADING "));
    assert!(ask(&mut control, "INFO persistence").contains(" loading:1 "));
    assert_eq!(ask(&mut control, "LOCKWHEEL CLOCK ADVANCE 1ms"), "+OK");
    (server, control)
}

/// Sends a command by a client of this name, and waits until it is held.
fn hold(control: &mut Wire, wire: &mut Wire, name: &str, command: &str) {
    assert_eq!(ask(wire, &format!("CLIENT SETNAME {name}")), "+OK");
    wire.send(&words(command));
    eventually("a held request", || {
        let clients = ask(control, "CLIENT LIST");
        let line = clients.lines().find(|line| line.contains(&format!(" name={name} ")));
        line.is_some_and(|line| line.contains(" flags=b ") && !line.contains(" qbuf=0 "))
    });
}

/// Shows S3.
#[test]
fn requests_are_held_in_the_last_second_of_the_restart_guard() {
    let folder = Folder::new();
    let (server, mut control) = in_the_last_second(&folder);
    let [mut owner, mut observer] = [(); 2].map(|()| server.connect());
    hold(&mut control, &mut owner, "owner", "SET lock owner NX");
    hold(&mut control, &mut observer, "observer", "INFO persistence");
    owner.send(&words("GET lock"));
    assert_eq!(ask(&mut control, "LOCKWHEEL CLOCK ADVANCE 1s"), "+OK");
    assert_eq!(lines(&owner.read_text()), "+OK");
    assert_eq!(lines(&owner.read_text()), "$5 owner");
    assert!(observer.read_text().contains("loading:0\r\n"));
    server.stop();
}

#[test]
fn held_requests_count_as_memory_of_their_clients() {
    let folder = Folder::new();
    let (server, mut control) = in_the_last_second(&folder);
    let [mut large, mut small] = [(); 2].map(|()| server.connect());
    let request = format!("SET lock {} NX", "x".repeat(1 << 20));
    hold(&mut control, &mut large, "large", &request);
    hold(&mut control, &mut small, "small", "SET lock small NX");
    assert_eq!(ask(&mut control, "CONFIG SET maxmemory-clients 1mb"), "+OK");
    assert!(large.closes(), "its request is not counted");
    assert_eq!(ask(&mut control, "LOCKWHEEL CLOCK ADVANCE 1s"), "+OK");
    assert_eq!(lines(&small.read_text()), "+OK");
    assert!(server.stop().contains("closing a client: maxmemory-clients"));
}

/// Starts a server ten times and sends a command as soon as its port opens. Runs `before_kill`
/// before each server is killed. Returns the number of servers whose log names a restart guard.
fn check_first_replies(arguments: &[&str], before_kill: &str) -> usize {
    let folder = Folder::new();
    let dir = folder.path("data");
    fs::create_dir_all(&dir).expect("a folder");
    let mut guards = 0;
    for _ in 0..10 {
        let port = free_port();
        let (address, own) = (format!("127.0.0.1:{port}"), port.to_string());
        let daemon = Daemon::start(&[&["--port", &own, "--dir", &dir], arguments].concat());
        eventually("an open port", || TcpStream::connect(&address).is_ok());
        assert_eq!(ask(&mut daemon.connect(port), "PING"), "+PONG", "{arguments:?}");
        let server = Server { daemon, port };
        let reply = ask(&mut server.connect(), before_kill);
        assert!(!reply.starts_with('-'), "{reply}");
        guards += usize::from(server.kill().contains("restart guard: commands are refused for "));
    }
    guards
}

#[test]
fn first_command_after_a_start_is_served() {
    assert_eq!(check_first_replies(&[], "GET k"), 0);
    assert_eq!(check_first_replies(&["--appendonly", "yes"], "SET lock token NX PX 300"), 0);
}

/// The ceiling of the lease is 1001 ms ahead, so that a guard is in its last second at once.
#[test]
fn first_command_waits_for_the_end_of_a_short_restart_guard() {
    // A start that is late, on a busy machine, needs no guard.
    assert!(check_first_replies(&[], "SET lock token NX PX 1") > 0, "no guard was on");
}

/// Shows S11, S21, S24.
#[test]
fn plain_keys_need_no_guard() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    server.check(&[
        ("SET session:1 x EX 31536000", "+OK"),
        ("SETEX session:2 31536000 x", "+OK"),
        ("MSET a x b x", "+OK"),
        ("EXPIRE a 31536000", ":1"),
    ]);
    server.kill();
    let server = Server::start(&folder, &[]);
    server.check(&[("PING", "+PONG"), ("SET lock x NX PX 60000", "+OK")]);
    server.kill();
    let server = Server::start(&folder, &[]);
    let refused = ask(&mut server.connect(), "SET lock other NX PX 100");
    assert!(refused.starts_with("-LOADING Leases from before the restart"), "{refused}");
    assert!(!server.stop().contains("keys without a deadline"), "no warning");
}

/// Shows S17, S18.
#[test]
fn long_guard_names_the_keys_that_make_it_long() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    server.check(&[("SET lock x NX PX 60000", "+OK"), ("SET session:1 x EX 90000000", "+OK")]);
    server.check(&[("SET job:1:2 x NX EX 31536000", "+OK"), ("SET job:2 x NX EX 400", "+OK")]);
    // It does not raise the ceiling, but is recorded.
    server.check(&[("SET rate:1 x NX EX 90000", "+OK")]);
    server.kill();
    // The names are kept in a guard that follows.
    for _ in 0..2 {
        let server = Server::start(&folder, &[]);
        let state = ask(&mut server.connect(), "LOCKWHEEL GUARD");
        assert!(
            state.contains(r#""groups":["job:","rate:"],"ways_out":["if no client"#),
            "{state}"
        );
        let refused = ask(&mut server.connect(), "PING");
        assert!(refused.starts_with("-LOADING ") && !refused.contains("job"), "{refused}");
        let log = &server.daemon.log_text;
        assert!(log.contains(r#"because of keys that begin with ["job:", "rate:"]"#), "{log}");
        assert!(log.contains("LOCKWHEEL GUARD END ends this guard"), "{log}");
        server.kill();
    }
    let server = Server::start(&folder, &["--restart-guard-warn", "100000h"]);
    let state = ask(&mut server.connect(), "LOCKWHEEL GUARD");
    let end = r#""reason":"there is no log","groups":[],"ways_out":[]}"#;
    assert!(state.ends_with(end), "{state}");
    assert!(!server.stop().contains("job"), "no warning");
}

/// Shows S29.
#[test]
fn log_and_snapshots_know_which_keys_are_plain() {
    let folder = Folder::new();
    let server = Server::with_log(&folder);
    server.check(&[("SET session:1 x EX 31536000", "+OK"), ("SAVE", "+OK")]);
    server.check(&[("SET session:2 x EX 31536000", "+OK")]);
    server.kill();
    // This one reads the snapshot and the log, and records the ceiling of their keys.
    Server::with_log(&folder).kill();
    let server = Server::start(&folder, &[]);
    server.check(&[("PING", "+PONG")]);
    server.kill();
    let server = Server::with_log(&folder);
    server.check(&[("INCR counter", ":1"), ("SET counter 1 EX 31536000", "+OK")]);
    server.kill();
    Server::with_log(&folder).kill();
    let server = Server::start(&folder, &[]);
    assert!(ask(&mut server.connect(), "PING").starts_with("-LOADING "));
    server.stop();
}

/// Shows S12.
#[test]
fn exempt_keys_need_no_guard() {
    let folder = Folder::new();
    let arguments = ["--restart-guard-exempt", "cache:* session:*"];
    let server = Server::start(&folder, &arguments);
    server.check(&[("SET cache:1 v NX EX 86400", "+OK"), ("SETNX session:1 v", ":1")]);
    server.kill();
    let server = Server::start(&folder, &arguments);
    server.check(&[("PING", "+PONG")]);
    assert!(!server.stop().contains(" # "), "no warning");
}

/// Shows S13, S16.
#[test]
fn empty_directory_is_guarded_for_the_minimum() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &["--restart-guard-minimum", "100ms"]);
    server.daemon.wait_for("the restart guard is over");
    server.check(&[("SET lock token NX PX 30", "+OK"), ("SETNX lasting v", ":1")]);
    server.kill();
    let server = Server::start(&folder, &[]);
    assert!(server.daemon.log_text.contains("keys without a deadline may have been lost"));
    server.stop();
}

/// A migration from another server, for which the minimum is meant, needs an empty directory.
/// Shows S14.
#[test]
fn used_directory_is_not_guarded_for_the_minimum_and_a_warning_says_so() {
    let folder = Folder::new();
    Server::with_log(&folder).stop();
    let arguments = ["--appendonly", "yes", "--restart-guard-minimum", "1000s"];
    let server = Server::start(&folder, &arguments);
    server.check(&[("SET lock token NX PX 30", "+OK")]);
    let log_text = server.stop();
    assert!(log_text.contains("restart-guard-minimum has no effect"), "{log_text}");
}

/// Shows S5.
#[test]
fn servers_for_tests_have_no_guard() {
    let folder = Folder::new();
    for _ in 0..2 {
        let server = Server::start(&folder, &["--enable-test-commands", "yes"]);
        server.check(&[("SET lock token NX PX 100000", "+OK")]);
        server.kill();
    }
}

/// Shows G24, G35.
#[test]
fn failed_write_ends_the_server_and_nothing_is_acknowledged_that_is_lost() {
    let folder = Folder::new();
    let dir = folder.path("data");
    fs::create_dir_all(&dir).expect("a folder");
    // Files cannot grow beyond a limit: a write fails, as on a broken disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 64; trap '' XFSZ; exec \"$@\"", "sh"]).arg(program());
    limited.args(["--port", "0", "--appendonly", "yes", "--dir", &dir]);
    let mut daemon = Daemon::spawn(Folder::new(), limited, "");
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    let mut acknowledged = 0;
    let value = "v".repeat(1_000);
    loop {
        wire.send(&words(&format!("SET key:{acknowledged} {value}")));
        let Ok(reply) = wire.try_read() else { break };
        assert_eq!(reply, b"+OK\r\n");
        acknowledged += 1;
        assert!(acknowledged < 1_000, "no write has failed");
    }
    assert!(!daemon.end().success());
    assert!(daemon.log_text.contains("the log cannot be written; the server stops"));
    assert!(acknowledged > 0);
    let server = Server::with_log(&folder);
    let mut wire = server.connect();
    for number in 0..acknowledged {
        assert_eq!(ask(&mut wire, &format!("STRLEN key:{number}")), ":1000");
    }
    server.stop();
}

/// A server whose directory is on a disk of its own, of 4 MiB. `None` if the system permits no user
/// to mount one.
fn server_on_small_disk(dir: &str) -> Option<Server> {
    let mut command = command_on_disk(dir, 4)?;
    command.args(["--port", "0", "--dir", dir]);
    let mut daemon = Daemon::spawn(Folder::new(), command, "");
    let port = daemon.wait_for_port();
    Some(Server { daemon, port })
}

/// Shows G11, G13, G22.
#[test]
fn server_without_log_goes_on_when_the_disk_of_its_guard_is_full() {
    let folder = Folder::new();
    let dir = folder.path("data");
    fs::create_dir_all(&dir).expect("a folder");
    let Some(mut server) = server_on_small_disk(&dir) else {
        return say("skipped: this system permits no user to mount a disk");
    };
    let filler = format!("/proc/{}/root{dir}/filler", server.daemon.process_id());
    let refused = "-MISCONF Errors writing to the AOF file: No space left on device";
    let grow = |server: &Server| ask(&mut server.connect(), "SET other token NX PX 1");
    for round in 1..=2 {
        server.check(&[("SET lock token NX PX 5000", "+OK")]);
        let written = fs::write(&filler, vec![0; 8 << 20]);
        assert_eq!(written.expect_err("a full disk").kind(), io::ErrorKind::StorageFull);
        // A longer lease than any before, which the ceiling does not cover.
        for lease_ms in [600_000, 1_200_000, 2_400_000].map(|lease_ms| round * lease_ms) {
            server.check(&[(&format!("PEXPIRE lock {lease_ms}"), ":1")]);
        }
        server.daemon.wait_for("the disk is nearly full");
        // The warning is logged before commands are refused.
        eventually("the refusal", || grow(&server) == refused);
        server.check(&[("DEL lock", ":1")]);
        fs::remove_file(&filler).expect("the file");
        server.daemon.wait_for("the disk has space again");
        eventually("space", || grow(&server) == "+OK");
    }
    server.stop();
}

#[test]
fn systemd_is_notified_when_the_restart_guard_is_over() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[]);
    server.check(&[("SET lock token NX PX 60000", "+OK")]);
    server.kill();
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let receive = || {
        let mut bytes = [0; 1_000];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let dir = folder.path("data");
    let own = Folder::new();
    let mut supervised = command(&own, &["--port", "0", "--dir", &dir, "--supervised", "systemd"]);
    supervised.env("NOTIFY_SOCKET", &path);
    let mut daemon = Daemon::spawn(own, supervised, "");
    let port = daemon.wait_for_port();
    let extension = receive();
    assert!(extension.starts_with("EXTEND_TIMEOUT_USEC="), "{extension}");
    assert!(extension.contains("\nSTATUS=Restart guard: commands are refused for "), "{extension}");
    assert_eq!(ask(&mut daemon.connect(port), "LOCKWHEEL GUARD END"), "+OK");
    let mut message = receive();
    while message.starts_with("EXTEND_TIMEOUT_USEC=") {
        message = receive();
    }
    assert_eq!(message.trim_end(), "READY=1\nSTATUS=Ready to accept connections");
    assert_eq!(ask(&mut daemon.connect(port), "SET lock other NX PX 100"), "+OK");
    daemon.signal("TERM");
    assert!(daemon.end().success());
    assert_eq!(receive().trim_end(), "STOPPING=1\nSTATUS=Stopping");
}

/// Files that the first version of the format has written: they must be readable for ever.
#[test]
fn log_of_version_1_is_read() {
    let folder = Folder::new();
    let log = folder.path("data/appendonlydir");
    fs::create_dir_all(&log).expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/it/logs/version-1");
    for file in fs::read_dir(source).expect("the files").map(|entry| entry.expect("a file")) {
        let name = file.file_name().into_string().expect("a name");
        fs::copy(file.path(), folder.path(&format!("data/appendonlydir/{name}"))).expect("a copy");
    }
    let server = Server::with_log(&folder);
    server.check(&[
        ("DBSIZE", ":10"),
        ("SET lock thief NX PX 100000", "$-1"),
        ("GET lock", "$5 token"),
        ("GET text", "$11 Jello world"),
        ("GET counter", "$1 1"),
        ("HGETALL hash", "*2 $1 a $1 5"),
        ("LRANGE list 0 -1", "*3 $1 z $1 b $1 c"),
        ("SMEMBERS set", "*2 $1 1 $1 3"),
        ("ZRANGE zset 0 -1 WITHSCORES", "*6 $1 a $1 2 $1 b $3 2.5 $1 c $1 9"),
        ("XRANGE stream - +", "*2 *2 $3 1-1 *2 $1 f $1 v *2 $3 2-1 *2 $1 f $1 w"),
        ("XPENDING stream group", "*4 :0 $-1 $-1 *-1"),
        ("FCALL f 0", ":7"),
        ("GET in-transaction", "$1 1"),
        ("GET scripted", "$9 by script"),
        ("PTTL text", ":-1"),
        ("SELECT 3", "+OK"),
        ("GET other", "$1 v"),
        ("GET copy", "$11 Jello world"),
    ]);
    for key in ["lock", "in-transaction", "scripted"] {
        // A hundred years.
        let left_ms = integer(&ask(&mut server.connect(), &format!("PTTL {key}")));
        assert!((3_000_000_000_000..=3_153_600_000_000).contains(&left_ms), "{key}: {left_ms}");
    }
    server.stop();
}
