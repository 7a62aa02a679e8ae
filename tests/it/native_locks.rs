//! Native locks over real connections: clients that close them, and servers that are killed.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use lockwheel::Server;
use lockwheel_compat::time;
use lockwheel_tests::daemon::{Daemon, Folder};
use lockwheel_tests::process::{eventually, is_stopped};
use lockwheel_tests::wire::Wire;

fn server() -> Server {
    Server::builder().config("enable-test-commands", "yes").start().expect("a server")
}

/// The number of checks for a condition that will hold soon: far more than needed.
const CHECKS_MAX: usize = 100_000;

/// Waits until the reply to a command has this text in it.
#[track_caller]
fn wait_for(wire: &mut Wire, command: &str, text: &str) {
    let holds = (0..CHECKS_MAX).any(|_| wire.ask(command).contains(text));
    assert!(holds, "{command} has no {text}: {}", wire.ask(command));
}

/// A client that waits for a lock, as `INFO` shows.
fn waiter(server: &Server, control: &mut Wire, request: &str, blocked: usize) -> Wire {
    let mut wire = Wire::connect(server.addr(), 2);
    wire.send_line(request);
    wait_for(control, "INFO clients", &format!("blocked_clients:{blocked}\r\n"));
    wire
}

/// The fencing token in the reply to `LOCK.ACQUIRE`.
fn token(reply: &str) -> u64 {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let at = lines.iter().position(|line| *line == "token");
    let token = at.and_then(|at| lines[at + 1].strip_prefix(':')?.parse().ok());
    token.unwrap_or_else(|| panic!("no token in {reply:?}"))
}

#[test]
fn client_that_closes_its_connection_leaves_the_queue() {
    let server = server();
    let mut control = Wire::connect(server.addr(), 2);
    token(&control.ask("LOCK.ACQUIRE k a TTL 600000"));
    let first = waiter(&server, &mut control, "LOCK.ACQUIRE k b TTL 9000 WAIT 600000", 1);
    let mut second = waiter(&server, &mut control, "LOCK.ACQUIRE k c TTL 9000 WAIT 600000", 2);
    drop(first);
    assert_eq!(control.ask("LOCK.RELEASE k a"), ":0\r\n");
    token(&second.read_text());
    wait_for(&mut control, "INFO clients", "blocked_clients:0\r\n");
}

/// A daemon and its port.
fn daemon() -> (Daemon, u16) {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    (daemon, port)
}

/// Stops a process, until it gets the signal `CONT`.
fn stop(daemon: &Daemon) {
    daemon.signal("STOP");
    eventually("it to stand still", || is_stopped(daemon.process_id()));
}

#[test]
fn clients_that_close_their_connections_together_get_no_lock() {
    const LEAVING: usize = 20;
    let (daemon, port) = daemon();
    let mut control = daemon.connect(port);
    token(&control.ask("LOCK.ACQUIRE k a TTL 600000"));
    let mut waiter = |owner: &str, queued: usize| {
        let mut wire = daemon.connect(port);
        wire.send_line(&format!("LOCK.ACQUIRE k {owner} TTL 600000 WAIT 600000"));
        wait_for(&mut control, "INFO clients", &format!("blocked_clients:{queued}\r\n"));
        wire
    };
    let leaving: Vec<Wire> = (1..=LEAVING).map(|queued| waiter("b", queued)).collect();
    let mut last = waiter("c", LEAVING + 1);
    stop(&daemon);
    // The release comes before the ends of the connections.
    control.send_line("LOCK.RELEASE k a");
    drop(leaving);
    daemon.signal("CONT");
    assert_eq!(control.read_text(), ":0\r\n");
    token(&last.read_text());
    wait_for(&mut control, "INFO clients", "blocked_clients:0\r\n");
}

#[test]
fn waiters_keep_their_places_while_memory_is_full() {
    let server = server();
    let mut control = Wire::connect(server.addr(), 2);
    token(&control.ask("LOCK.ACQUIRE k a TTL 600000"));
    let mut first = waiter(&server, &mut control, "LOCK.ACQUIRE k b TTL 9000 WAIT 600000", 1);
    let mut second = waiter(&server, &mut control, "LOCK.ACQUIRE k c TTL 9000 WAIT 600000", 2);
    assert_eq!(control.ask("CONFIG SET maxmemory 1"), "+OK\r\n");
    for refused in ["LOCK.ACQUIRE k d TTL 9000 WAIT 1", "LOCK.ACQUIRE l a TTL 9000"] {
        assert!(control.ask(refused).starts_with("-OOM "), "{refused}");
    }
    let again = control.ask("LOCK.ACQUIRE k a TTL 600000");
    assert!(again.ends_with("$5\r\ncount\r\n:2\r\n"), "{again}");
    assert_eq!(control.ask("LOCK.RELEASE k a ALL"), ":0\r\n");
    let granted = token(&first.read_text());
    assert_eq!(control.ask("LOCK.RELEASE k b"), ":0\r\n");
    assert!(token(&second.read_text()) > granted);
}

#[test]
fn lease_that_ends_before_a_wait_is_granted_although_both_end_while_the_server_is_stopped() {
    let (daemon, port) = daemon();
    let [mut control, mut next] = [(); 2].map(|()| daemon.connect(port));
    token(&control.ask("LOCK.ACQUIRE k a TTL 500"));
    next.send_line("LOCK.ACQUIRE k b TTL 600000 WAIT 550");
    // It is in the queue now, or on a busy machine it has the lock.
    wait_for(&mut control, "LOCK.INFO k", "$1\r\nb\r\n");
    let waits_us = time::now_us();
    stop(&daemon);
    // The server is stopped, but its clock goes on.
    eventually("the end of the wait", || time::now_us() > waits_us + 551_000);
    daemon.signal("CONT");
    token(&next.read_text());
}

#[test]
fn end_of_a_shared_hold_ends_a_transaction_that_watches_the_lock() {
    let server = server();
    let mut control = Wire::connect(server.addr(), 2);
    control.ask("LOCKWHEEL CLOCK FREEZE");
    token(&control.ask("LOCK.ACQUIRE k a TTL 10 SHARED"));
    token(&control.ask("LOCK.ACQUIRE k b TTL 600000 SHARED"));
    for (span, reply) in [("9ms", "*1\r\n+PONG\r\n"), ("1ms", "*-1\r\n")] {
        let mut wire = Wire::connect(server.addr(), 2);
        for command in ["WATCH k", "MULTI", "PING"] {
            wire.ask(command);
        }
        control.ask(&format!("LOCKWHEEL CLOCK ADVANCE {span}"));
        assert_eq!(wire.ask("EXEC"), reply, "{span}");
    }
}

/// Shows L12.
#[test]
fn bound_lock_is_released_after_the_grace() {
    let server = server();
    let mut control = Wire::connect(server.addr(), 2);
    control.ask("LOCKWHEEL CLOCK FREEZE");
    let mut holder = Wire::connect(server.addr(), 2);
    let first = token(&holder.ask("LOCK.ACQUIRE k b TTL 600000 BOUND"));
    let mut next = waiter(&server, &mut control, "LOCK.ACQUIRE k c TTL 9000 WAIT 600000", 1);
    drop(holder);
    wait_for(&mut control, "PTTL k", ":2000\r\n");
    control.ask("LOCKWHEEL CLOCK ADVANCE 1999ms");
    assert_eq!(control.ask("PTTL k"), ":1\r\n");
    control.ask("LOCKWHEEL CLOCK ADVANCE 1ms");
    assert!(token(&next.read_text()) > first);
}

#[test]
fn many_clients_hold_a_lock_one_by_one() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 50;
    let server = server();
    let grants = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, grants) = (&server, &grants);
            scope.spawn(move || {
                let mut wire = Wire::connect(server.addr(), 2);
                for _ in 0..ROUNDS {
                    let request = format!("LOCK.ACQUIRE k {client} TTL 600000 WAIT 600000");
                    let token = token(&wire.ask(&request));
                    // Only the holder may be here.
                    grants.try_lock().expect("no other client holds the lock").push(token);
                    assert_eq!(wire.ask(&format!("LOCK.RELEASE k {client}")), ":0\r\n");
                }
            });
        }
    });
    let grants = grants.into_inner().expect("no client has failed");
    assert_eq!(grants.len(), CLIENTS * ROUNDS);
    assert!(grants.is_sorted_by(|one, next| one < next), "{grants:?}");
}

/// Starts a server on the data of those before in this folder.
fn start(folder: &Folder, arguments: &[&str]) -> (Daemon, Wire) {
    let dir = folder.path("data");
    std::fs::create_dir_all(&dir).expect("a folder");
    let mut daemon = Daemon::start(&[&["--port", "0", "--dir", &dir], arguments].concat());
    let port = daemon.wait_for_port();
    let wire = daemon.connect(port);
    (daemon, wire)
}

/// As after a start with a wrong clock, which a log and a lease ceiling remember.
/// Shows L6.
#[test]
fn wall_clock_of_a_later_century_leaves_tokens() {
    let year_2300 = SystemTime::UNIX_EPOCH + Duration::from_secs(10_413_792_000);
    let server = Server::builder().clock_start(year_2300).start().expect("a server");
    let mut wire = Wire::connect(server.addr(), 2);
    let granted = token(&wire.ask("LOCK.ACQUIRE lock a TTL 1000"));
    assert_eq!(granted, (1 << 52) + 1);
}

/// Shows L3.
#[test]
fn locks_and_the_order_of_tokens_survive_a_kill() {
    let policies: [&[&str]; 4] = [
        &["--appendonly", "yes"],
        &["--appendonly", "yes", "--appendfsync", "everysec"],
        &["--restart-guard", "yes", "--restart-guard-exempt", "*"],
        &["--restart-guard", "no"],
    ];
    for arguments in policies {
        let folder = Folder::new();
        let mut last = 0;
        for run in 0..3 {
            let (mut daemon, mut wire) = start(&folder, arguments);
            if run > 0 && arguments.contains(&"--appendonly") {
                let reply = wire.ask("LOCK.ACQUIRE kept thief TTL 600000");
                assert!(reply.contains("refused"), "{reply}");
            }
            for owner in ["a", "b"] {
                let token = token(&wire.ask(&format!("LOCK.ACQUIRE {owner}-{run} x TTL 600000")));
                assert!(token > last, "{token} after {last} with {arguments:?}");
                last = token;
            }
            wire.ask("LOCK.ACQUIRE kept owner TTL 600000");
            daemon.signal("KILL");
            daemon.end();
        }
    }
}
