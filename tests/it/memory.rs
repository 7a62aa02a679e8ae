//! Memory that clients cause counts as used memory, and is limited.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockwheel::{Reply, Server};
use lockwheel_tests::frame::show;
use lockwheel_tests::process::eventually;
use lockwheel_tests::wire::open_tcp;
use lockwheel_tests::{connect, start};

const MIB: usize = 1 << 20;

/// Bytes that are more than the kernel buffers for one connection that is not read.
const MORE_THAN_THE_KERNEL_KEEPS: usize = 24 * MIB;

fn text(server: &Server, command: &[&str]) -> String {
    match server.call(command).expect("an answer") {
        Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
            String::from_utf8(text.to_vec()).expect("text")
        }
        other => panic!("{command:?}: {other:?}"),
    }
}

/// The number that follows `name` and one character; 0 where there is no text.
fn number(text: &str, name: &str) -> usize {
    if text.is_empty() {
        return 0;
    }
    let at = text.find(name).unwrap_or_else(|| panic!("no {name} in {text}"));
    let digits = text[at + name.len() + 1..].split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

fn used_memory(server: &Server) -> usize {
    number(&text(server, &["INFO", "memory"]), "\r\nused_memory")
}

/// The line of `CLIENT LIST` about the client of this name.
fn line(server: &Server, name: &str) -> String {
    let lines = text(server, &["CLIENT", "LIST"]);
    let found = lines.lines().find(|line| line.contains(&format!(" name={name} ")));
    found.unwrap_or_default().to_owned()
}

fn is_refused(server: &Server) -> bool {
    let reply = server.call_raw(&["SET", "k", "v"]);
    matches!(reply, Ok(Reply::Error(line)) if line.starts_with(b"OOM "))
}

/// A connection that has sent a part of one long argument.
fn half_a_request(server: &Server, bytes: usize) -> TcpStream {
    let mut stream = open_tcp(server.addr());
    let begin = format!("*2\r\n$3\r\nGET\r\n${}\r\n", 2 * bytes);
    stream.write_all(begin.as_bytes()).expect("it is taken");
    stream.write_all(&vec![b'x'; bytes]).expect("it is taken");
    stream
}

/// A connection of this name that has requested this many bytes and reads nothing.
fn unread_replies(server: &Server, name: &str, bytes: usize) -> TcpStream {
    let value = vec![b'x'; MIB];
    server.call(&[b"SET", b"large".as_slice(), &value]).expect("an answer");
    let mut stream = open_tcp(server.addr());
    let requests = "GET large\r\n".repeat(bytes / MIB);
    let begin = format!("CLIENT SETNAME {name}\r\n");
    stream.write_all((begin + &requests).as_bytes()).expect("it is taken");
    stream
}

#[test]
fn unfinished_arguments_count_until_their_clients_disconnect() {
    const CONNECTIONS: usize = 16;
    let server = start(&[("maxmemory", "40mb")]);
    let mut named = connect(&server);
    named.call(&["CLIENT", "SETNAME", "half"]);
    named.send_bytes(format!("*2\r\n$3\r\nGET\r\n$100\r\n{}", "x".repeat(50)).as_bytes());
    eventually("half a request", || number(&line(&server, "half"), "qbuf") == 69);
    let held: Vec<TcpStream> = (0..CONNECTIONS).map(|_| half_a_request(&server, 4 * MIB)).collect();
    eventually("the arguments to count", || used_memory(&server) > CONNECTIONS * 4 * MIB);
    assert!(is_refused(&server));
    let clients = text(&server, &["INFO", "clients"]);
    assert!(number(&clients, "client_recent_max_input_buffer") >= 4 * MIB, "{clients}");
    drop(held);
    eventually("room", || used_memory(&server) < 4 * MIB);
    assert!(!is_refused(&server));
}

#[test]
fn transaction_above_maxmemory_is_refused() {
    const VALUE_BYTES: usize = 100_000;
    let server = start(&[("maxmemory", "10mb")]);
    let mut wire = connect(&server);
    let value = "x".repeat(VALUE_BYTES);
    assert_eq!(show(&wire.call(&["MULTI"])), "+OK\\r\\n");
    let mut queued = 0;
    while show(&wire.call(&["SET", "k", &value])) == "+QUEUED\\r\\n" {
        queued += 1;
        assert!(queued < 200, "everything is queued");
    }
    assert!((95..=105).contains(&queued), "{queued}");
    assert!(show(&wire.call(&["EXEC"])).starts_with("-EXECABORT Transaction discarded because of"));
    assert_eq!(show(&wire.call(&["SET", "k", "v"])), "+OK\\r\\n");
    assert!(used_memory(&server) < MIB);
}

#[test]
fn unread_replies_count_until_they_are_read() {
    const REPLIES: usize = 64;
    let server = start(&[("maxmemory", "30mb")]);
    let mut slow = unread_replies(&server, "slow", REPLIES * MIB);
    eventually("the replies to count", || used_memory(&server) > 32 * MIB);
    assert!(is_refused(&server));
    eventually("all requests to be run", || number(&line(&server, "slow"), "omem") > 32 * MIB);
    let slows = line(&server, "slow");
    assert!(number(&slows, "oll") > 0 && number(&slows, "tot-mem") > 32 * MIB, "{slows}");
    let stats = text(&server, &["INFO", "memory"]);
    assert!(number(&stats, "mem_clients_normal") > 32 * MIB, "{stats}");
    let expected = 5 + REPLIES * ("$1048576\r\n\r\n".len() + MIB);
    std::io::copy(&mut (&mut slow).take(expected as u64), &mut std::io::sink()).expect("replies");
    eventually("room", || !is_refused(&server));
    eventually("nothing to be left", || line(&server, "slow").contains(" obl=0 oll=0 omem=0 "));
}

#[test]
fn largest_clients_are_disconnected_above_maxmemory_clients() {
    for io_threads in ["1", "2"] {
        let server = start(&[("io-threads", io_threads)]);
        let mut other = connect(&server);
        let mut spared = unread_replies(&server, "spared", 0);
        spared.write_all(b"CLIENT NO-EVICT ON\r\n").expect("it is taken");
        spared.write_all("GET large\r\n".repeat(80).as_bytes()).expect("it is taken");
        let mut larger = unread_replies(&server, "larger", 64 * MIB);
        let mut smaller = unread_replies(&server, "smaller", 40 * MIB);
        let unread = |name: &str| number(&line(&server, name), "tot-mem");
        eventually("all requests to be run", || {
            text(&server, &["INFO", "commandstats"]).contains("cmdstat_get:calls=184,")
        });
        // The memory of the last of them is counted at the end of the batch.
        eventually("their replies to count", || unread("smaller") > 16 * MIB);
        let bound = unread("spared") + unread("smaller") + MIB;
        other.call(&["CONFIG", "SET", "maxmemory-clients", &bound.to_string()]);
        eventually("the largest to go", || line(&server, "larger").is_empty());
        assert!(!line(&server, "smaller").is_empty() && !line(&server, "spared").is_empty());
        let stats = text(&server, &["INFO", "stats"]);
        assert_eq!(number(&stats, "evicted_clients"), 1);
        let read = |stream: &mut TcpStream| {
            std::io::copy(stream, &mut std::io::sink()).expect("an end") as usize
        };
        assert!(read(&mut larger) < 64 * MIB);
        for (stream, count) in [(&mut smaller, 40), (&mut spared, 80)] {
            stream.shutdown(std::net::Shutdown::Write).expect("half a connection");
            assert!(read(stream) > count * MIB);
        }
        assert_eq!(other.call(&["GET", "k"]), b"$-1\r\n");
    }
}

/// Without any request.
#[test]
fn subscriber_that_does_not_read_is_disconnected_above_maxmemory_clients() {
    let server =
        start(&[("client-output-buffer-limit", "pubsub 0 0 0"), ("maxmemory-clients", "20mb")]);
    let mut slow = connect(&server);
    slow.call(&["SUBSCRIBE", "news"]);
    let mut quick = connect(&server);
    quick.call(&["SUBSCRIBE", "news"]);
    let message = vec![b'x'; MIB];
    let mut published = 0;
    let reaches_two = |reply: Result<Reply, _>| reply.expect("an answer") == Reply::Integer(2);
    while reaches_two(server.call(&[b"PUBLISH", b"news".as_slice(), &message])) {
        assert!(quick.read().len() > MIB);
        published += MIB;
        assert!(published < 2 * (20 * MIB + MORE_THAN_THE_KERNEL_KEEPS), "it is kept");
    }
    assert!(quick.read().len() > MIB);
    assert!(slow.read_to_close().len() <= published);
    assert_eq!(number(&text(&server, &["INFO", "stats"]), "evicted_clients"), 1);
}

#[test]
fn in_process_subscriber_counts_too() {
    let server = start(&[]);
    let mut listener = server.client().expect("a client");
    listener.call(&["SUBSCRIBE", "news"]).expect("an answer");
    let before = used_memory(&server);
    let message = vec![b'x'; MIB];
    for _ in 0..4 {
        server.call(&[b"PUBLISH", b"news".as_slice(), &message]).expect("an answer");
    }
    assert!(used_memory(&server) > before + 4 * MIB);
    for _ in 0..4 {
        listener.receive().expect("a message");
    }
    assert!(used_memory(&server) < before + MIB);
}

/// Without any further message to it.
#[test]
fn client_above_its_soft_limit_is_disconnected_after_the_soft_seconds() {
    const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    const MESSAGE_HEAD: &str = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1048576\r\n";
    for class in ["pubsub", "normal"] {
        let server = Server::builder()
            .frozen_clock()
            .config("client-output-buffer-limit", &format!("{class} 0 1mb 10"))
            .start()
            .expect("a server");
        // The client reads again in time.
        let mut reader = unread_replies(&server, "reader", 40 * MIB);
        let slow = match class {
            "normal" => unread_replies(&server, "slow", 40 * MIB),
            _ => unread_replies(&server, "slow", 0),
        };
        if class == "pubsub" {
            for mut stream in [&slow, &reader] {
                stream.write_all(b"SUBSCRIBE news\r\n").expect("it is taken");
            }
            let listeners = || number(&text(&server, &["INFO", "stats"]), "pubsub_channels");
            eventually("a subscription", || listeners() == 1);
            eventually("both", || line(&server, "slow").contains(" sub=1 "));
            eventually("both", || line(&server, "reader").contains(" sub=1 "));
            let message = vec![b'x'; MIB];
            for _ in 0..40 {
                server.call(&[b"PUBLISH", b"news".as_slice(), &message]).expect("an answer");
            }
        }
        eventually("both to be slow", || {
            let is_slow = |name: &str| number(&line(&server, name), "tot-mem") > 8 * MIB;
            is_slow("slow") && is_slow("reader")
        });
        server.advance(Duration::from_secs(9)).expect("a server");
        assert!(!line(&server, "slow").is_empty() && !line(&server, "reader").is_empty());
        let messages = match class {
            "pubsub" => SUBSCRIBED.len() + 40 * (MESSAGE_HEAD.len() + MIB + 2),
            _ => 0,
        };
        let expected = 5 + 40 * ("$1048576\r\n\r\n".len() + MIB) + messages;
        let mut all = (&mut reader).take(expected as u64);
        std::io::copy(&mut all, &mut std::io::sink()).expect("replies");
        eventually("nothing to be left", || {
            line(&server, "reader").contains(" obl=0 oll=0 omem=0 ")
        });
        server.advance(Duration::from_millis(1_002)).expect("a server");
        eventually("the client to be gone", || line(&server, "slow").is_empty());
        assert!(!line(&server, "reader").is_empty(), "{class}");
    }
}
