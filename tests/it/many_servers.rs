//! Very many servers in one process, one after the other, and each is dropped in the middle of
//! something: nothing of them is left.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockwheel::{Builder, Client, Fault, Reply, Requests, Server};
use lockwheel_tests::process::{self, eventually};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::scripts::{LOCK_3, UNLOCK_3};
use lockwheel_tests::wire::Wire;

const SERVERS: usize = 10_000;
/// So many come before what the process holds is measured: what it allocates once is there then.
const BEFORE: usize = 600;
/// A kibibyte that is left of each server that was in one of the states would be 800. What the
/// allocator does with its memory comes to some dozens.
const GROWTH_KIB_MAX: u64 = 500;

/// Who is still there when a server is dropped, and ends with it.
#[derive(Default)]
struct Company {
    wires: Vec<Wire>,
    clients: Vec<Client>,
    threads: Vec<JoinHandle<()>>,
}

/// A state for a server to be dropped in: how it is started, and what is done to it.
type State = (fn(Builder) -> Builder, fn(&Server) -> Company);

const STATES: &[State] = &[
    (as_it_is, |_| Company::default()),
    (as_it_is, connected),
    (|builder| builder.config("io-threads", "2"), connected),
    (as_it_is, blocked),
    (as_it_is, subscribed),
    (Builder::for_tests, with_scripts),
    (Builder::for_tests, at_a_gate),
    (Builder::for_tests, with_faults),
    (|builder| builder.for_tests().frozen_clock(), with_locks_and_no_time),
    (as_it_is, in_a_transaction_and_paused),
    (as_it_is, waiting_in_this_process),
    (|builder| builder.config("busy-reply-threshold", "1"), in_a_script_without_end),
];

fn as_it_is(builder: Builder) -> Builder {
    builder
}

fn wire(server: &Server) -> Wire {
    Wire::connect(server.addr(), 2)
}

fn ask(wire: &mut Wire, command: &str) {
    wire.send_line(command);
    let reply = wire.read();
    assert_ne!(reply[0], b'-', "{command}: {}", String::from_utf8_lossy(&reply));
}

fn call(server: &Server, command: &str) -> Reply {
    server.call(&command.split(' ').collect::<Vec<&str>>()).expect("an answer")
}

fn wires<const N: usize>(wires: [Wire; N]) -> Company {
    Company { wires: wires.into(), ..Company::default() }
}

fn until_blocked(server: &Server, clients: usize) {
    eventually("clients to wait", || {
        let Reply::Verbatim { text, .. } = call(server, "INFO clients") else { panic!("no text") };
        String::from_utf8_lossy(&text).contains(&format!("blocked_clients:{clients}\r\n"))
    });
}

fn connected(server: &Server) -> Company {
    let (mut busy, idle) = (wire(server), wire(server));
    ask(&mut busy, "SET lock token NX PX 30000");
    // Its reply is never read.
    busy.send_line("GET lock");
    let client = server.client().expect("a client");
    Company { wires: vec![busy, idle], clients: vec![client], ..Company::default() }
}

fn blocked(server: &Server) -> Company {
    let mut waiters = [wire(server), wire(server), wire(server)];
    for (waiter, command) in waiters.iter_mut().zip(["BLPOP queue 0", "BZPOPMIN z 60", "WAIT 1 0"])
    {
        waiter.send_line(command);
    }
    until_blocked(server, 3);
    wires(waiters)
}

fn subscribed(server: &Server) -> Company {
    let (mut outside, mut inside) = (wire(server), server.client().expect("a client"));
    ask(&mut outside, "SUBSCRIBE news");
    ask(&mut outside, "PSUBSCRIBE n*");
    inside.call(&["SUBSCRIBE", "news"]).expect("a subscription");
    let mut tracking = Wire::connect(server.addr(), 3);
    ask(&mut tracking, "CLIENT TRACKING ON BCAST");
    call(server, "PUBLISH news one");
    call(server, "SET tracked v");
    Company { wires: vec![outside, tracking], clients: vec![inside], ..Company::default() }
}

fn with_scripts(server: &Server) -> Company {
    let mut client = wire(server);
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

fn at_a_gate(server: &Server) -> Company {
    let gate = server.faults().gate(Requests::any().command("del")).expect("a gate");
    let mut held = wire(server);
    held.send_line("DEL lock");
    gate.wait().expect("somebody is held");
    wires([held])
}

fn with_faults(server: &Server) -> Company {
    let faults = server.faults();
    for (fault, command) in [
        (Fault::Delay(Duration::from_secs(60)), "get"),
        (Fault::Stall, "incr"),
        (Fault::Drop, "set"),
        (Fault::Cut(1), "ping"),
    ] {
        faults.add(fault, Requests::any().command(command)).expect("a rule");
    }
    let mut clients = [wire(server), wire(server), wire(server), wire(server)];
    for (client, command) in clients.iter_mut().zip(["GET k", "INCR k", "SET k v", "PING"]) {
        client.send_line(command);
    }
    until_blocked(server, 2);
    wires(clients)
}

fn with_locks_and_no_time(server: &Server) -> Company {
    let mut client = wire(server);
    for n in 1..=4 {
        ask(&mut client, &format!("SET lock{n} token NX PX {n}000"));
    }
    client.send_line("BLPOP queue 60");
    until_blocked(server, 1);
    server.advance(Duration::from_millis(2_500)).expect("a server");
    assert_eq!(call(server, "DBSIZE"), Reply::Integer(2));
    wires([client])
}

fn in_a_transaction_and_paused(server: &Server) -> Company {
    let (mut transaction, mut paused) = (wire(server), wire(server));
    for command in ["WATCH lock", "MULTI", "SET lock v"] {
        ask(&mut transaction, command);
    }
    call(server, "CLIENT PAUSE 60000 WRITE");
    paused.send_line("SET k v");
    until_blocked(server, 1);
    wires([transaction, paused])
}

/// Whoever waits in a thread of ours comes back when the server ends.
fn waiting_in_this_process(server: &Server) -> Company {
    let mut client = server.client().expect("a client");
    let waits = thread::spawn(move || {
        client.call(&["BLPOP", "queue", "0"]).expect_err("the server has ended");
    });
    until_blocked(server, 1);
    Company { threads: vec![waits], ..Company::default() }
}

fn in_a_script_without_end(server: &Server) -> Company {
    let (mut client, mut other) = (wire(server), wire(server));
    client.send(&["EVAL", "while true do end", "0"]);
    eventually("the script to be slow", || other.call(&["PING"]).starts_with(b"-BUSY "));
    wires([client, other])
}

/// Starts a server, brings it into a state and drops it. All have one port, which the system gives
/// nobody else: it is free again each time.
fn cycle(n: usize, port: u16) {
    let (build, act) = STATES[n % STATES.len()];
    let server = build(Server::builder()).port(port).start().expect("the port is free");
    let Company { wires, clients, threads } = act(&server);
    drop(server);
    for thread in threads {
        thread.join().expect("it returns");
    }
    drop((wires, clients));
}

#[test]
fn nothing_is_left_of_ten_thousand_servers() {
    process::alone("many_servers::nothing_is_left_of_ten_thousand_servers", || {
        let port = free_port();
        let threads = process::threads("");
        (0..BEFORE).for_each(|n| cycle(n, port));
        let (descriptors, resident) = (process::descriptors(), process::resident_bytes());
        (0..SERVERS).for_each(|n| cycle(n, port));
        eventually("the threads to be gone", || process::threads("") == threads);
        assert_eq!(process::descriptors(), descriptors);
        let growth_kib = process::resident_bytes().saturating_sub(resident) / 1024;
        assert!(growth_kib <= GROWTH_KIB_MAX, "{growth_kib} KiB have been left");
    });
}
