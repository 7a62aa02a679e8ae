//! The limits of clients: a client that exceeds one does not affect others.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, UdpSocket};

use lockwheel::{Reply, Server};
use lockwheel_tests::frame::show;
use lockwheel_tests::process::{self, eventually};
use lockwheel_tests::say;
use lockwheel_tests::wire::{Wire, open_tcp, read_to_end};
use lockwheel_tests::{connect, start};

/// Bytes that are more than the kernel buffers for one connection that is not read.
const MORE_THAN_THE_KERNEL_KEEPS: usize = 24 << 20;

fn set(server: &Server, key: &str, bytes: usize) {
    let value = vec![b'x'; bytes];
    assert_eq!(server.call(&[b"SET", key.as_bytes(), &value]).expect("an answer"), Reply::OK);
}

#[test]
fn client_above_maxclients_gets_an_error() {
    let server = start(&[("maxclients", "2")]);
    let mut first = connect(&server);
    let mut second = connect(&server);
    for _ in 0..3 {
        for wire in [&mut first, &mut second] {
            assert_eq!(wire.call(&["SET", "k", "v"]), b"+OK\r\n");
        }
        for _ in 0..3 {
            let refusal = connect(&server).read_to_close();
            assert_eq!(show(&refusal), "-ERR max number of clients reached\\r\\n");
        }
        assert_eq!(first.call(&["GET", "k"]), b"$1\r\nv\r\n");
        drop(second);
        let mut served = None;
        eventually("room for another", || {
            let mut wire = connect(&server);
            wire.send(&["GET", "k"]);
            let is_served = wire.try_read().is_ok_and(|reply| reply == b"$1\r\nv\r\n");
            served = is_served.then_some(wire);
            is_served
        });
        second = served.expect("a client");
    }
}

#[test]
fn protected_mode_serves_only_this_machine() {
    let Some(address) = outside_address() else {
        return say("skipped: this machine has no address but its own");
    };
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[("bind", "0.0.0.0")], "-DENIED Redis is running in protected mode because"),
        (&[("bind", "0.0.0.0"), ("requirepass", "secret")], "-NOAUTH Authentication required."),
        (&[("bind", "0.0.0.0"), ("protected-mode", "no")], "$-1"),
    ];
    for (settings, expected) in cases {
        let server = start(settings);
        let mut wire = Wire::connect((address, server.addr().port()).into(), 2);
        wire.send(&["GET", "k"]);
        let reply = String::from_utf8(wire.read()).expect("text");
        assert!(reply.starts_with(expected), "{settings:?}: {reply}");
    }
}

/// An address of this machine other than loopback. No packet is sent to find it.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn reply_above_the_limit_closes_the_connection() {
    let server = start(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    set(&server, "small", 1 << 10);
    set(&server, "large", 2 << 20);
    for _ in 0..3 {
        let mut greedy = connect(&server);
        assert_eq!(greedy.call(&["GET", "small"]).len(), 1024 + 9);
        greedy.send(&["GET", "large"]);
        assert!(greedy.read_to_close().len() <= 1 << 20);
    }
    assert_eq!(connect(&server).call(&["GET", "small"]).len(), 1024 + 9);
}

/// Many libraries send a whole pipeline before they read any of its replies.
#[test]
fn pipeline_runs_before_its_replies_are_read() {
    const REQUESTS: usize = 100_000;
    let padding = "x".repeat(4 * MORE_THAN_THE_KERNEL_KEEPS / REQUESTS);
    let server = start(&[]);
    let mut stream = open_tcp(server.addr());
    let requests: String = (0..REQUESTS).map(|n| format!("ECHO {padding}{n}\r\n")).collect();
    stream.write_all(requests.as_bytes()).expect("all requests are taken before a reply is read");
    let mut replies = BufReader::new(stream);
    for number in 0..REQUESTS {
        let text = format!("{padding}{number}");
        let expected = format!("${}\r\n{text}\r\n", text.len());
        let mut reply = vec![0; expected.len()];
        replies.read_exact(&mut reply).expect("a reply");
        assert!(reply == expected.as_bytes(), "reply {number}");
    }
}

/// Other clients are served while one client has many replies.
#[test]
fn client_with_many_unread_replies_does_not_delay_others() {
    const REQUESTS: usize = 20_000;
    let server = start(&[]);
    set(&server, "k", 10_000);
    let mut other = connect(&server);
    let mut stream = open_tcp(server.addr());
    stream.write_all("GET k\r\n".repeat(REQUESTS).as_bytes()).expect("it is taken");
    for _ in 0..1_000 {
        assert_eq!(other.call(&["SET", "other", "v"]), b"+OK\r\n");
    }
    let expected = REQUESTS * (8 + 10_000 + 2);
    assert_eq!(count_bytes(&stream, expected), expected);
}

#[test]
fn client_that_has_shut_down_writing_gets_its_replies() {
    const REQUESTS: usize = 2_000;
    let server = start(&[]);
    set(&server, "k", 10_000);
    let mut stream = open_tcp(server.addr());
    stream.write_all("GET k\r\n".repeat(REQUESTS).as_bytes()).expect("it is taken");
    stream.shutdown(Shutdown::Write).expect("half a connection");
    let expected = REQUESTS * (8 + 10_000 + 2);
    assert_eq!(count_bytes(&stream, usize::MAX), expected);
}

/// Reads up to this number of bytes, or to the end.
fn count_bytes(mut stream: &TcpStream, up_to: usize) -> usize {
    let mut chunk = vec![0; 1 << 20];
    let mut count = 0;
    while count < up_to {
        match stream.read(&mut chunk).expect("no error") {
            0 => break,
            more => count += more,
        }
    }
    count
}

/// Connected clients are served while there is no descriptor for new connections, which are
/// accepted when there is one again.
#[test]
fn new_connections_wait_for_a_descriptor() {
    process::alone("limits::new_connections_wait_for_a_descriptor", || {
        let server = start(&[]);
        let mut early = connect(&server);
        // A thread sets its own name after it has started.
        early.call(&["PING"]);
        let mut threads = process::Threads::watch("lockwheel-");
        let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.pop();
        let mut late = connect(&server);
        late.send(&["GET", "k"]);
        for _ in 0..100 {
            assert_eq!(early.call(&["SET", "k", "v"]), b"+OK\r\n");
        }
        // A server that retried without a pause would never sleep. Several checks in a row: a
        // thread may sleep for a moment before it reacts to the connection.
        let mut asleep = 0;
        eventually("a pause between attempts to accept", || {
            asleep = if threads.are_asleep() { asleep + 1 } else { 0 };
            asleep == 20
        });
        drop(taken);
        assert_eq!(late.read(), b"$1\r\nv\r\n");
    });
}

#[test]
fn idle_clients_are_disconnected_and_subscribers_are_not() {
    let server = start(&[]);
    let mut idle = connect(&server);
    idle.call(&["GET", "k"]);
    let mut listener = connect(&server);
    listener.call(&["SUBSCRIBE", "news"]);
    // The client is idle already: the new setting must apply to it.
    server.call(&["CONFIG", "SET", "timeout", "1"]).expect("an answer");
    assert_eq!(idle.read_to_close(), b"");
    server.call(&["PUBLISH", "news", "on"]).expect("an answer");
    assert_eq!(
        show(&listener.read()),
        "*3\\r\\n$7\\r\\nmessage\\r\\n$4\\r\\nnews\\r\\n$2\\r\\non\\r\\n"
    );
}

/// A client that is not authenticated cannot fill an output buffer.
#[test]
fn unauthenticated_client_that_does_not_read_is_disconnected() {
    let server = start(&[("requirepass", "secret")]);
    let mut stream = open_tcp(server.addr());
    let requests = "GET k\r\n".repeat(10_000);
    let sends = 4 * MORE_THAN_THE_KERNEL_KEEPS / requests.len();
    let refused = (0..sends).find_map(|_| stream.write_all(requests.as_bytes()).err());
    assert_ne!(refused.expect("it is kept").kind(), ErrorKind::WouldBlock, "it is kept");
}

#[test]
fn unauthenticated_clients_have_smaller_limits() {
    let server = start(&[("requirepass", "secret")]);
    let request =
        [b"*2\r\n$3\r\nGET\r\n$20000\r\n", vec![b'k'; 20_000].as_slice(), b"\r\n"].concat();
    let mut wire = connect(&server);
    wire.send_bytes(&request[..24]);
    let refusal = "-ERR Protocol error: unauthenticated bulk length\\r\\n";
    assert_eq!(show(&wire.read_to_close()), refusal);
    let mut wire = connect(&server);
    assert_eq!(wire.call(&["AUTH", "secret"]), b"+OK\r\n");
    wire.send_bytes(&request);
    assert_eq!(wire.read(), b"$-1\r\n");
}

#[test]
fn request_above_the_query_buffer_limit_closes_the_connection() {
    let server = start(&[("client-query-buffer-limit", "1mb")]);
    let mut stream = open_tcp(server.addr());
    stream.write_all(b"*2\r\n$3\r\nGET\r\n$4000000\r\n").expect("it is taken");
    // The point at which it closes depends on the bytes in flight.
    let _ = stream.write_all(&vec![b'x'; 3_000_000]);
    assert_eq!(show(&read_to_end(stream)), "");
    assert_eq!(connect(&server).call(&["GET", "k"]), b"$-1\r\n");
}

/// A script of a kilobyte that returns its number.
fn script(number: usize) -> String {
    format!("local n = '{number}' {}return n", "n = n .. '' ".repeat(80))
}

/// Loads scripts, many requests at a time; returns their digests.
fn load_scripts(wire: &mut Wire, scripts: impl Iterator<Item = String>) -> Vec<String> {
    const TOGETHER: usize = 500;
    let scripts: Vec<String> = scripts.collect();
    let mut digests = Vec::new();
    for scripts in scripts.chunks(TOGETHER) {
        let request = |text: &String| {
            format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{text}\r\n", text.len())
        };
        wire.send_bytes(scripts.iter().map(request).collect::<String>().as_bytes());
        for _ in scripts {
            let reply = String::from_utf8(wire.read()).expect("a text");
            let digest = reply.strip_prefix("$40\r\n").and_then(|rest| rest.strip_suffix("\r\n"));
            digests.push(digest.expect("a digest").to_owned());
        }
    }
    digests
}

#[test]
fn loaded_scripts_do_not_displace_scripts_of_eval() {
    const LOADED: usize = 20_000;
    let server = start(&[]);
    let mut wire = connect(&server);
    let digests = load_scripts(&mut wire, (0..LOADED).map(script));
    let evaluated = (LOADED..LOADED + 300).map(script).collect::<Vec<String>>();
    for (number, text) in (LOADED..).zip(&evaluated) {
        let expected = format!("$5\\r\\n{number}\\r\\n");
        assert_eq!(show(&wire.call(&["EVAL", text, "0"])), expected);
    }
    let exists = wire.call(&["SCRIPT", "EXISTS", &digests[0], &digests[LOADED - 1]]);
    assert_eq!(show(&exists), "*2\\r\\n:1\\r\\n:1\\r\\n");
    assert_eq!(wire.call(&["EVALSHA", &digests[0], "0"]), b"$1\r\n0\r\n");
    let first = load_scripts(&mut connect(&start(&[])), std::iter::once(evaluated[0].clone()));
    assert_eq!(wire.call(&["EVALSHA", &first[0], "0"]), b"$5\r\n20000\r\n", "it is cached");
}

#[test]
fn only_the_client_that_loads_too_many_scripts_gets_an_error() {
    const SCRIPT_BYTES: usize = 1_000_000;
    let server = start(&[]);
    let mut wire = connect(&server);
    let text = |number: usize| format!("return {number} -- {}", "x".repeat(SCRIPT_BYTES));
    let refused = (0..300).find_map(|number| {
        let reply = wire.call(&["SCRIPT", "LOAD", &text(number)]);
        reply.starts_with(b"-").then(|| (number, show(&reply)))
    });
    let (number, refusal) = refused.expect("an error");
    assert_eq!(
        refusal,
        "-ERR Too many scripts loaded (the limit is 268435456 bytes). SCRIPT FLUSH removes \
         them.\\r\\n"
    );
    assert!((200..=268).contains(&number), "{number}");
    assert_eq!(wire.call(&["EVAL", "return 'new'", "0"]), b"$3\r\nnew\r\n");
    assert_eq!(wire.call(&["EVAL", &text(7), "0"]), b":7\r\n");
    assert_eq!(wire.call(&["SCRIPT", "FLUSH"]), b"+OK\r\n");
    assert!(wire.call(&["SCRIPT", "LOAD", &text(0)]).starts_with(b"$40\r\n"));
}
