//! A server embedded in another program: its interface, and that it releases all resources.

use std::io::ErrorKind as IoErrorKind;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use lockwheel::{Builder, Client, Error, ErrorKind, Fault, Reply, Requests, Server};
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::{self, eventually};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::{Wire, open_tcp, read_to_end};
use lockwheel_tests::{call, wait_at};

/// The lease that most lock libraries use by default.
const LEASE: Duration = Duration::from_secs(30);

fn stopped_clock() -> Server {
    Server::builder().frozen_clock().start().expect("a server")
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.expect_err("an error").kind()
}

/// The channel and the payload of a message.
fn message(push: &Reply) -> (String, String) {
    let Reply::Push(parts) = push else { panic!("no message: {push:?}") };
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("no text: {other:?}"),
    };
    (text(&parts[1]), text(&parts[2]))
}

fn subscriber(server: &Server, channel: &str) -> Client {
    let mut client = server.client().expect("a client");
    client.call(&["SUBSCRIBE", channel]).expect("a subscription");
    client
}

#[test]
fn server_reports_its_address() {
    let server = Server::start().expect("a server");
    assert!(server.addr().ip().is_loopback());
    assert_eq!(server.url(), format!("redis://{}/", server.addr()));
    let mut wire = Wire::connect(server.addr(), 2);
    assert_eq!(wire.call(&["SET", "k", "v"]), b"+OK\r\n");
    assert_eq!(call(&server, "GET k"), Reply::bulk("v"));
}

#[test]
fn server_works_with_and_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let server = Server::start().expect("a server");
        assert_eq!(call(&server, "SET k v"), Reply::OK);
        assert_eq!(call(&server, "EVAL return(redis.call('get','k')) 0"), Reply::bulk("v"));
        let taken = Server::builder().port(server.addr().port()).start();
        assert_eq!(kind(taken), ErrorKind::Io);
        server.stop();
        server.stopped().await;
    });
}

#[test]
fn call_waits_in_the_last_second_of_the_restart_guard() {
    let folder = Folder::new();
    let builder = Server::builder().frozen_clock().config("dir", &folder.path("."));
    let guarded = builder.config("restart-guard", "yes").config("restart-guard-minimum", "1001ms");
    let server = guarded.start().expect("a server");
    let refused = server.call_raw(&["PING"]).expect("a reply");
    assert!(matches!(&refused, Reply::Error(line) if line.starts_with(b"LOADING ")), "{refused:?}");
    server.advance(Duration::from_millis(1)).expect("a clock that moves");
    let mut client = server.client().expect("a client");
    let mut call = pin!(client.call_async(&["PING"]));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(context).is_pending());
    server.advance(Duration::from_secs(1)).expect("a clock that moves");
    let reply = call.as_mut().poll(context);
    assert!(matches!(&reply, Poll::Ready(Ok(Reply::Simple(_)))), "{reply:?}");
}

#[test]
fn servers_in_one_process_share_nothing() {
    let servers: Vec<Server> = (0..20).map(|_| Server::start().expect("a server")).collect();
    for (at, server) in servers.iter().enumerate() {
        assert_eq!(call(server, &format!("SET name {at}")), Reply::OK);
    }
    for (at, server) in servers.iter().enumerate() {
        assert_eq!(call(server, "GET name"), Reply::bulk(at.to_string()));
        let others = servers.iter().filter(|other| other.addr() == server.addr());
        assert_eq!(others.count(), 1);
    }
}

#[test]
fn waiting_receive_returns_when_the_server_ends() {
    let server = Server::start().expect("a server");
    let mut listener = subscriber(&server, "news");
    let publisher = server.client().expect("a client");
    let waiting = std::thread::spawn(move || {
        let received = listener.receive().map(|push| message(&push).1);
        (received, listener.receive())
    });
    call(&server, "PUBLISH news one");
    server.stop();
    let (received, end) = waiting.join().expect("it returns");
    // The message may have arrived just before the end, or not at all.
    assert!(received.is_err() || received.is_ok_and(|text| text == "one"));
    assert_eq!(kind(end), ErrorKind::Stopped);
    drop(publisher);
}

/// Runs asynchronous code on a single thread, which a blocking call would block.
fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn can_be_spawned<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn message_can_be_awaited() {
    let server = Server::start().expect("a server");
    let mut listener = subscriber(&server, "news");
    on_one_thread(async {
        let publish = async { call(&server, "PUBLISH news one") };
        let (received, _) = tokio::join!(can_be_spawned(listener.receive_async()), publish);
        assert_eq!(message(&received.expect("a message")).1, "one");
        // A cancelled call loses no message.
        tokio::select! {
            biased;
            received = listener.receive_async() => panic!("no message was sent: {received:?}"),
            () = std::future::ready(()) => {}
        }
        call(&server, "PUBLISH news two");
        let received = listener.receive_async().await;
        assert_eq!(message(&received.expect("a message")).1, "two");
        let stop = async { server.stop() };
        let (end, ()) = tokio::join!(listener.receive_async(), stop);
        assert_eq!(kind(end), ErrorKind::Stopped);
    });
}

/// Each command waits for 50 ms of a clock that moves only if the thread is not blocked.
#[test]
fn blocking_command_can_be_awaited() {
    for (before, command, expected) in [
        ("PING", vec!["WAIT", "1", "50"], Reply::Integer(0)),
        ("PING", vec!["BLPOP", "k", "0.05"], Reply::Null),
        ("CLIENT PAUSE 50 WRITE", vec!["SET", "k", "v"], Reply::OK),
        ("CLIENT PAUSE 50 ALL", vec!["GET", "k"], Reply::Null),
        (
            "CLIENT PAUSE 50 WRITE",
            vec!["EVAL", "return redis.call('incr', 'n')", "0"],
            Reply::Integer(1),
        ),
    ] {
        let server = stopped_clock();
        let mut client = subscriber(&server, "news");
        let mut other = server.client().expect("a client");
        call(&server, before);
        let move_on = async {
            // A message that arrives meanwhile is not the reply and does not end the wait.
            if before == "PING" {
                other.call(&["PUBLISH", "news", "one"]).expect("an answer");
                tokio::task::yield_now().await;
            }
            server.advance(Duration::from_millis(50)).expect("a server");
        };
        let reply = on_one_thread(async {
            tokio::join!(can_be_spawned(client.call_async(&command)), move_on).0
        });
        assert_eq!(reply.expect("an answer"), expected, "{command:?}");
        let received = client.try_receive().expect("a subscription").map(|push| message(&push).1);
        assert_eq!(received.as_deref(), (before == "PING").then_some("one"), "{command:?}");
        assert_eq!(client.try_receive().expect("a subscription"), None);
    }
}

#[test]
fn dropped_call_disconnects_its_client() {
    for (before, command) in
        [("PING", vec!["WAIT", "1", "0"]), ("CLIENT PAUSE 50 WRITE", vec!["SET", "k", "v"])]
    {
        let server = stopped_clock();
        let mut client = server.client().expect("a client");
        call(&server, before);
        on_one_thread(async {
            tokio::select! {
                biased;
                reply = client.call_async(&command) => panic!("it waits: {reply:?}"),
                () = std::future::ready(()) => {}
            }
        });
        assert_eq!(kind(client.call(&["PING"])), ErrorKind::Stopped);
        server.advance(LEASE).expect("a server");
        assert_eq!(call(&server, "GET k"), Reply::Null, "it was never run");
    }
}

#[test]
fn dropped_client_takes_no_element() {
    let server = stopped_clock();
    let mut gone = server.client().expect("a client");
    let mut waiter = server.client().expect("a client");
    let reply = on_one_thread(async {
        tokio::select! {
            biased;
            reply = gone.call_async(&["BLPOP", "k", "0"]) => panic!("it waits: {reply:?}"),
            () = std::future::ready(()) => {}
        }
        let push = async { call(&server, "RPUSH k v w") };
        tokio::join!(waiter.call_async(&["BLPOP", "k", "0"]), push).0
    });
    let taken = ["k", "v"].map(|part| Reply::Bulk(part.into()));
    assert_eq!(reply.expect("an answer"), Reply::Array(taken.into()));
    assert_eq!(call(&server, "LLEN k"), Reply::Integer(1));
}

/// At every call, whatever disconnected the client.
#[test]
fn calls_of_a_disconnected_client_fail() {
    for by_itself in [true, false] {
        let server = Server::start().expect("a server");
        let mut client = subscriber(&server, "news");
        if by_itself {
            assert_eq!(client.call(&["QUIT"]).expect("an answer"), Reply::OK);
        } else {
            call(&server, &format!("CLIENT KILL ID {}", client.id()));
        }
        for _ in 0..2 {
            assert_eq!(kind(client.call(&["PING"])), ErrorKind::Stopped);
            assert_eq!(kind(client.receive()), ErrorKind::Stopped);
            assert_eq!(kind(client.try_receive()), ErrorKind::Stopped);
            assert_eq!(kind(on_one_thread(client.call_async(&["PING"]))), ErrorKind::Stopped);
            assert_eq!(kind(on_one_thread(client.receive_async())), ErrorKind::Stopped);
        }
    }
}

#[test]
fn calls_fail_after_the_server_has_ended() {
    let server = Server::builder().port(free_port()).start().expect("a server");
    let mut client = server.client().expect("a client");
    let mut wire = Wire::connect(server.addr(), 2);
    assert_eq!(wire.call(&["SET", "k", "v"]), b"+OK\r\n");
    server.stop();
    assert!(server.is_stopped() && !server.has_failed());
    assert_eq!(wire.read_to_close(), b"");
    assert_eq!(kind(client.call(&["GET", "k"])), ErrorKind::Stopped);
    assert_eq!(kind(server.client()), ErrorKind::Stopped);
    // A process that another test starts has a copy of the listening socket until it runs its
    // program.
    eventually("connections to be refused", || {
        let refused = TcpStream::connect(server.addr()).map_err(|error| error.kind());
        refused.err() == Some(IoErrorKind::ConnectionRefused)
    });
}

#[test]
fn port_is_free_at_once_after_the_end() {
    // A port that the system assigns to no other program meanwhile.
    let port = free_port();
    let first = Server::builder().port(port).start().expect("a server");
    let mut wire = Wire::connect(first.addr(), 2);
    wire.call(&["SET", "k", "v"]);
    assert_eq!(kind(Server::builder().port(port).start()), ErrorKind::Io);
    drop(first);
    // As above, a process that another test starts may have a copy of the socket for a moment.
    let second = process::until("the same port", || Server::builder().port(port).start().ok());
    assert_eq!(call(&second.expect("a server"), "GET k"), Reply::Null);
}

#[test]
fn restarted_server_with_a_log_has_its_keys() {
    let folder = Folder::new();
    let builder = Server::builder().port(free_port()).config("dir", &folder.path(""));
    let mut server = builder.config("appendonly", "yes").start().expect("a server");
    // It keeps the server from being dropped.
    let mut client = server.client().expect("a client");
    assert_eq!(call(&server, "SET k v"), Reply::OK);
    for _ in 0..2 {
        server.restart().expect("a server");
        assert_eq!(call(&server, "GET k"), Reply::bulk("v"));
    }
    assert_eq!(kind(client.call(&["PING"])), ErrorKind::Stopped);
}

#[test]
fn restarted_server_has_its_address_and_no_keys() {
    // Not one that the system may give to another program while the server is stopped.
    let builder = Server::builder().frozen_clock().port(free_port());
    let mut server = builder.config("timeout", "60").start();
    let server = server.as_mut().expect("a server");
    let address = server.addr();
    let mut client = server.client().expect("a client");
    let mut wire = Wire::connect(address, 2);
    wire.call(&["SET", "k", "v"]);
    server.restart().expect("a server");
    assert_eq!(wire.read_to_close(), b"");
    assert_eq!(kind(client.call(&["PING"])), ErrorKind::Stopped);
    assert_eq!(server.addr(), address);
    assert_eq!(Wire::connect(address, 2).call(&["GET", "k"]), b"$-1\r\n");
    assert!(server.clock().rate() == 0.0 && !server.is_stopped());
    let timeout = Reply::Map(vec![(Reply::bulk("timeout"), Reply::bulk("60"))]);
    assert_eq!(call(server, "CONFIG GET timeout"), timeout);
    server.stop();
    server.restart().expect("a server");
    assert_eq!(server.addr(), address);
}

#[test]
fn port_of_a_server_stays_its_own_during_a_restart() {
    let mut server = stopped_clock();
    let (address, has_ended) = (server.addr(), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                assert!(TcpListener::bind(address).is_err(), "the port was free");
            }
        });
        for _ in 0..50 {
            server.restart().expect("a server");
            assert_eq!(server.addr(), address);
        }
        has_ended.store(true, Ordering::Relaxed);
        other.join().expect("the port was never free");
    });
}

#[test]
fn reset_restores_the_state_after_the_start() {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    let mut wire = Wire::connect(server.addr(), 2);
    let config = wire.ask("CONFIG GET *");
    let begin = server.clock().now();
    wire.ask("CLIENT SETNAME worker");
    wire.ask("SET lock token");
    wire.call(&["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() end)"]);
    wire.call(&["SCRIPT", "LOAD", "return 1"]);
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(wire.ask(&format!("SCRIPT EXISTS {digest}")), "*1\r\n:1\r\n");
    wire.ask("CONFIG SET timeout 60 maxmemory 1gb notify-keyspace-events KEA");
    server.clock().run_at(0.001).expect("a server");
    server.clock().step_wall_forward(Duration::from_secs(60)).expect("a server");
    wire.ask("CLIENT PAUSE 60000 WRITE");
    server.faults().add(Fault::Drop, Requests::any().command("echo")).expect("a rule");
    let gate = server.faults().gate(Requests::any().command("get")).expect("a gate");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| Wire::connect(server.addr(), 2).call(&["GET", "lock"]));
        wait_at(&gate).expect("a client");
        server.reset().expect("a server");
        assert_eq!(held.join().expect("a thread"), b"$-1\r\n");
    });
    assert_eq!(wire.ask("CONFIG GET *"), config);
    assert_eq!(wire.ask("CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(wire.ask("FUNCTION LIST"), "*0\r\n");
    assert_eq!(wire.ask(&format!("SCRIPT EXISTS {digest}")), "*1\r\n:0\r\n");
    assert_eq!(wire.ask("ECHO a"), "$1\r\na\r\n");
    assert_eq!(wire.ask("DBSIZE"), ":0\r\n");
    assert_eq!(wire.ask("LOCKWHEEL FAILOVER LOSE 9"), ":0\r\n");
    let commands = call(&server, "INFO commandstats");
    assert!(!format!("{commands:?}").contains("cmdstat_set:"), "{commands:?}");
    assert!(server.journal().locks().expect("a journal").is_empty());
    let clock = server.clock();
    assert!(clock.rate() == 0.0 && clock.now() >= begin && clock.now() == clock.wall());
    // Numbers begin again, too.
    assert_eq!(call(&server, "LOCKWHEEL GATE ADD"), Reply::Integer(1));
}

#[test]
fn call_returns_an_error_for_an_error_reply() {
    const REFUSED: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let server = Server::start().expect("a server");
    let mut client = server.client().expect("a client");
    client.call(&["SET", "k", "v"]).expect("an answer");
    for failure in [
        client.call(&["LLEN", "k"]),
        server.call(&["LLEN", "k"]),
        on_one_thread(client.call_async(&["LLEN", "k"])),
    ] {
        let error = failure.expect_err("a string is no list");
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Reply, REFUSED));
    }
    for reply in [
        client.call_raw(&["LLEN", "k"]),
        server.call_raw(&["LLEN", "k"]),
        on_one_thread(client.call_raw_async(&["LLEN", "k"])),
    ] {
        assert_eq!(reply.expect("a reply"), Reply::error(REFUSED));
    }
    // Errors within a reply are part of it.
    client.call(&["MULTI"]).expect("an answer");
    client.call(&["LLEN", "k"]).expect("an answer");
    let results = client.call(&["EXEC"]).expect("an answer");
    assert_eq!(results, Reply::Array(vec![Reply::error(REFUSED)]));
}

#[test]
fn wrong_settings_fail_at_start() {
    for (directive, value) in [("no-such-directive", "1"), ("io-threads", "many")] {
        let result = Server::builder().config(directive, value).start();
        assert_eq!(kind(result), ErrorKind::Config, "{directive}");
    }
}

/// Starts and ends many servers with connected clients, and compares the resources of the process
/// before and after. Runs in its own process, since other tests would count too.
#[test]
fn servers_leave_neither_threads_nor_descriptors_behind() {
    process::alone("embedding::servers_leave_neither_threads_nor_descriptors_behind", || {
        cycle(1);
        let before = process::descriptors();
        for io_threads in [1, 2] {
            (0..100).for_each(|_| cycle(io_threads));
        }
        assert_eq!(process::descriptors(), before);
        eventually("the threads to be gone", || process::threads("lockwheel-") == 0);
    });
}

fn cycle(io_threads: u32) {
    let server = Server::builder().config("io-threads", &io_threads.to_string()).start();
    let server = server.expect("a server");
    // A thread sets its own name after it has started.
    eventually("its threads", || process::threads("lockwheel-io-") == io_threads as usize);
    let mut wires: Vec<Wire> = (0..3).map(|_| Wire::connect(server.addr(), 2)).collect();
    assert_eq!(wires[0].call(&["SET", "k", "v"]), b"+OK\r\n");
    assert_eq!(wires[1].call(&["GET", "k"]), b"$1\r\nv\r\n");
    let idle = open_tcp(server.addr());
    let client = server.client().expect("a client");
    drop(server);
    assert_eq!(read_to_end(idle), b"");
    drop(client);
}

/// The thread that asks may be the one that reacts to signals.
#[test]
fn restart_guard_can_be_read_while_a_script_runs() {
    let server = Server::start().expect("a server");
    call(&server, "CONFIG SET busy-reply-threshold 1");
    let mut scripts = Wire::connect(server.addr(), 2);
    scripts.send(&["EVAL", "while true do end", "0"]);
    let mut other = Wire::connect(server.addr(), 2);
    eventually("the script to keep others waiting", || {
        other.call(&["PING"]).starts_with(b"-BUSY ")
    });
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(server.restart_guard_left()));
        let left = receiver.recv_timeout(Duration::from_secs(30));
        other.call(&["SCRIPT", "KILL"]);
        assert_eq!(left, Ok(None));
    });
}

#[test]
fn math_random_gives_each_server_its_own_numbers_and_functions_share_them() {
    const LIBRARY: &str = "#!lua name=tokens\n\
        redis.register_function('token', function() return tostring(math.random()) end)";
    let numbers = |builder: Builder| {
        let server = builder.start().expect("a server");
        server.call(&["FUNCTION", "LOAD", LIBRARY]).expect("a reply");
        let script = "return tostring(math.random())";
        let eval = || server.call(&["EVAL", script, "0"]).expect("a reply");
        [eval(), server.call(&["FCALL", "token", "0"]).expect("a reply"), eval()]
    };
    let [first, second, third] = numbers(Server::builder().seed(1));
    assert!(first != second && second != third && first != third);
    assert_eq!(numbers(Server::builder().seed(1)), [first.clone(), second, third]);
    let [other, ..] = numbers(Server::builder());
    assert_ne!(first, other);
}
