//! Starts very many servers in one process, one after the other, and drops each in some state: all
//! resources must be released.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockwheel::{Builder, Client, Fault, Reply, Requests, Server};
use lockwheel_tests::process::{self, eventually};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::scripts::{LOCK_3, UNLOCK_3};
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{blocked_clients, call, connect, wait_at};

/// The number of servers of a round.
const SERVERS: usize = 1_000;
/// A leak grows in each round. What the allocator keeps grows in some rounds only.
const ROUNDS: usize = 4;
/// The number of servers before the first measurement, so that one-time allocations are done.
const BEFORE: usize = 600;
/// The allowed growth in the round in which it is least. A leak of a kibibyte per server in one of
/// the states is 83.
const GROWTH_KIB_MAX: u64 = 60;

/// The clients and threads that exist when a server is dropped.
#[derive(Default)]
struct Participants {
    wires: Vec<Wire>,
    clients: Vec<Client>,
    threads: Vec<JoinHandle<()>>,
}

/// A state in which a server is dropped: its settings, and how the state is reached.
type DropState = (fn(Builder) -> Builder, fn(&Server) -> Participants);

const STATES: &[DropState] = &[
    (default_settings, |_| Participants::default()),
    (default_settings, connected),
    (|builder| builder.config("io-threads", "2"), connected),
    (default_settings, blocked),
    (default_settings, subscribed),
    (Builder::for_tests, with_scripts),
    (Builder::for_tests, at_a_gate),
    (Builder::for_tests, with_faults),
    (|builder| builder.for_tests().frozen_clock(), with_locks_and_no_time),
    (default_settings, in_a_transaction_and_paused),
    (default_settings, waiting_in_this_process),
    (|builder| builder.config("busy-reply-threshold", "1"), in_a_script_without_end),
];

fn default_settings(builder: Builder) -> Builder {
    builder
}

fn ask(wire: &mut Wire, command: &str) {
    wire.send_line(command);
    let reply = wire.read();
    assert_ne!(reply[0], b'-', "{command}: {}", String::from_utf8_lossy(&reply));
}

fn wires<const N: usize>(wires: [Wire; N]) -> Participants {
    Participants { wires: wires.into(), ..Participants::default() }
}

fn until_blocked(server: &Server, clients: usize) {
    eventually("clients to wait", || blocked_clients(server) == clients);
}

fn connected(server: &Server) -> Participants {
    let (mut busy, idle) = (connect(server), connect(server));
    ask(&mut busy, "SET lock token NX PX 30000");
    // The reply is never read.
    busy.send_line("GET lock");
    let client = server.client().expect("a client");
    Participants { wires: vec![busy, idle], clients: vec![client], ..Participants::default() }
}

fn blocked(server: &Server) -> Participants {
    let mut waiters = [connect(server), connect(server), connect(server)];
    for (waiter, command) in waiters.iter_mut().zip(["BLPOP queue 0", "BZPOPMIN z 60", "WAIT 1 0"])
    {
        waiter.send_line(command);
    }
    until_blocked(server, 3);
    wires(waiters)
}

fn subscribed(server: &Server) -> Participants {
    let (mut outside, mut inside) = (connect(server), server.client().expect("a client"));
    ask(&mut outside, "SUBSCRIBE news");
    ask(&mut outside, "PSUBSCRIBE n*");
    inside.call(&["SUBSCRIBE", "news"]).expect("a subscription");
    let mut tracking = Wire::connect(server.addr(), 3);
    ask(&mut tracking, "CLIENT TRACKING ON BCAST");
    call(server, "PUBLISH news one");
    call(server, "SET tracked v");
    Participants {
        wires: vec![outside, tracking],
        clients: vec![inside],
        ..Participants::default()
    }
}

fn with_scripts(server: &Server) -> Participants {
    let mut client = connect(server);
    for (script, keys) in [(LOCK_3, 1), (UNLOCK_3, 2), ("return cjson.encode({1, 2})", 0)] {
        let keys_count = keys.to_string();
        let mut words = vec!["EVAL", script, &keys_count];
        words.extend(["lock", "channel"].iter().take(keys));
        words.extend(["30000", "token", "token"]);
        client.call(&words);
    }
    ask(&mut client, "SCRIPT LOAD return(1)");
    let library = "#!lua name=l\nredis.register_function('f', function() return {} end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", library]), b"$1\r\nl\r\n");
    ask(&mut client, "FCALL f 0");
    wires([client])
}

fn at_a_gate(server: &Server) -> Participants {
    let gate = server.faults().gate(Requests::any().command("del")).expect("a gate");
    let mut held = connect(server);
    held.send_line("DEL lock");
    wait_at(&gate).expect("a client is held");
    wires([held])
}

fn with_faults(server: &Server) -> Participants {
    let faults = server.faults();
    for (fault, command) in [
        (Fault::Delay(Duration::from_secs(60)), "get"),
        (Fault::Stall, "incr"),
        (Fault::Drop, "set"),
        (Fault::Cut(1), "ping"),
    ] {
        faults.add(fault, Requests::any().command(command)).expect("a rule");
    }
    let mut clients = [connect(server), connect(server), connect(server), connect(server)];
    for (client, command) in clients.iter_mut().zip(["GET k", "INCR k", "SET k v", "PING"]) {
        client.send_line(command);
    }
    until_blocked(server, 2);
    wires(clients)
}

fn with_locks_and_no_time(server: &Server) -> Participants {
    let mut client = connect(server);
    for n in 1..=4 {
        ask(&mut client, &format!("SET lock{n} token NX PX {n}000"));
    }
    client.send_line("BLPOP queue 60");
    until_blocked(server, 1);
    server.advance(Duration::from_millis(2_500)).expect("a server");
    assert_eq!(call(server, "DBSIZE"), Reply::Integer(2));
    wires([client])
}

fn in_a_transaction_and_paused(server: &Server) -> Participants {
    let (mut transaction, mut paused) = (connect(server), connect(server));
    for command in ["WATCH lock", "MULTI", "SET lock v"] {
        ask(&mut transaction, command);
    }
    call(server, "CLIENT PAUSE 60000 WRITE");
    paused.send_line("SET k v");
    until_blocked(server, 1);
    wires([transaction, paused])
}

/// A thread of this process that waits, and returns when the server ends.
fn waiting_in_this_process(server: &Server) -> Participants {
    let mut client = server.client().expect("a client");
    let waits = thread::spawn(move || {
        client.call(&["BLPOP", "queue", "0"]).expect_err("the server has ended");
    });
    until_blocked(server, 1);
    Participants { threads: vec![waits], ..Participants::default() }
}

fn in_a_script_without_end(server: &Server) -> Participants {
    let (mut client, mut other) = (connect(server), connect(server));
    client.send(&["EVAL", "while true do end", "0"]);
    eventually("the script to be slow", || other.call(&["PING"]).starts_with(b"-BUSY "));
    wires([client, other])
}

/// Starts a server, brings it into a state and drops it. All use one port, which the system assigns
/// to no other program: it must be free again each time.
fn cycle(n: usize, port: u16) {
    let (build, act) = STATES[n % STATES.len()];
    let server = build(Server::builder()).port(port).start().expect("the port is free");
    let Participants { wires, clients, threads } = act(&server);
    drop(server);
    for thread in threads {
        thread.join().expect("it returns");
    }
    drop((wires, clients));
}

#[test]
fn thousands_of_servers_release_all_resources() {
    process::alone("many_servers::thousands_of_servers_release_all_resources", || {
        let port = free_port();
        let threads = process::threads("");
        (0..BEFORE).for_each(|n| cycle(n, port));
        let descriptors = process::descriptors();
        let growths_kib: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let resident = process::resident_bytes();
                (0..SERVERS).for_each(|n| cycle(n, port));
                eventually("the threads to be gone", || process::threads("") == threads);
                process::resident_bytes().saturating_sub(resident) / 1024
            })
            .collect();
        assert_eq!(process::descriptors(), descriptors);
        let least_kib = growths_kib.iter().min().expect("a round");
        assert!(*least_kib <= GROWTH_KIB_MAX, "{growths_kib:?} KiB have been left");
    });
}
