//! Replies and messages are sent together at the end of a turn of the event loop: in order, to all
//! clients, without loss.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockwheel::Server;
use lockwheel_tests::frame::show;
use lockwheel_tests::wire::{Wire, open_tcp, open_unix};
use lockwheel_tests::{connect, start};

/// Servers with one and with two threads, so that senders and receivers may be on different ones.
fn servers() -> [Server; 2] {
    [1, 2].map(|io_threads| start(&[("io-threads", &io_threads.to_string())]))
}

fn listener(server: &Server, channel: &str) -> Wire {
    let mut wire = connect(server);
    wire.call(&["SUBSCRIBE", channel]);
    wire
}

fn message(text: &str) -> String {
    format!("*3\\r\\n$7\\r\\nmessage\\r\\n$4\\r\\nnews\\r\\n${}\\r\\n{text}\\r\\n", text.len())
}

/// The next replies and messages, as one line.
fn read_shown(wire: &mut Wire, count: usize) -> String {
    (0..count).map(|_| show(&wire.read())).collect()
}

#[test]
fn messages_to_oneself_come_next_to_the_reply_of_publish() {
    for server in servers() {
        let mut wire = Wire::connect(server.addr(), 3);
        wire.call(&["SUBSCRIBE", "news"]);
        wire.send_bytes(b"PUBLISH news a\r\nECHO b\r\nPUBLISH news c\r\nECHO d\r\n");
        let push = |text| message(text).replacen('*', ">", 1);
        let received = read_shown(&mut wire, 6);
        let (b, d) = ("$1\\r\\nb\\r\\n", "$1\\r\\nd\\r\\n");
        assert_eq!(received, [":1\\r\\n", &push("a"), b, ":1\\r\\n", &push("c"), d].concat());
    }
}

#[test]
fn message_published_before_a_request_comes_before_its_reply() {
    for server in servers() {
        // More than one batch of deliveries.
        let mut listeners: Vec<Wire> = (0..40).map(|_| Wire::connect(server.addr(), 3)).collect();
        for wire in &mut listeners {
            wire.call(&["SUBSCRIBE", "news"]);
        }
        let mut publisher = connect(&server);
        for round in 0..100 {
            let text = round.to_string();
            assert_eq!(publisher.call(&["PUBLISH", "news", &text]), b":40\r\n");
            // The subscribers that get the message last send first.
            for wire in listeners.iter_mut().rev() {
                wire.send_bytes(b"ECHO reply\r\n");
                let expected = message(&text).replacen('*', ">", 1) + "$5\\r\\nreply\\r\\n";
                assert_eq!(read_shown(wire, 2), expected);
            }
        }
    }
}

/// Publishers and subscribers on all threads: all subscribers receive all messages in one order.
#[test]
fn all_subscribers_receive_all_messages_in_one_order() {
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 300;
    for server in servers() {
        let mut listeners: Vec<Wire> = (0..6).map(|_| listener(&server, "news")).collect();
        let address = server.addr();
        let publish_all = |publisher: usize| {
            let mut wire = Wire::connect(address, 2);
            let mut unread = 0;
            for number in 0..MESSAGES {
                wire.send_bytes(format!("PUBLISH news {publisher}:{number}\r\n").as_bytes());
                unread += 1;
                // Some in batches, some alone.
                if number % 7 == 0 {
                    read_shown(&mut wire, std::mem::take(&mut unread));
                }
            }
            // A client that closes with unread replies may lose its last requests.
            read_shown(&mut wire, unread);
        };
        thread::scope(|scope| {
            for publisher in 0..PUBLISHERS {
                scope.spawn(move || publish_all(publisher));
            }
        });
        let mut received = listeners
            .iter_mut()
            .map(|wire| (0..PUBLISHERS * MESSAGES).map(|_| show(&wire.read())).collect::<Vec<_>>());
        let first = received.next().expect("a listener");
        for publisher in 0..PUBLISHERS {
            let its =
                first.iter().filter(|received| received.contains(&format!("\\n{publisher}:")));
            let expected = (0..MESSAGES).map(|number| message(&format!("{publisher}:{number}")));
            assert!(its.cloned().eq(expected), "publisher {publisher}");
        }
        for others in received {
            assert!(others == first);
        }
    }
}

#[test]
fn subscriber_that_does_not_read_delays_no_other_and_misses_nothing() {
    const MESSAGES: usize = 100;
    let text = vec![b'x'; 256 << 10];
    for io_threads in ["1", "2"] {
        let server =
            start(&[("io-threads", io_threads), ("client-output-buffer-limit", "pubsub 0 0 0")]);
        let mut slow = listener(&server, "news");
        let mut quick: Vec<Wire> = (0..5).map(|_| listener(&server, "news")).collect();
        let mut publisher = connect(&server);
        for _ in 0..MESSAGES {
            assert_eq!(publisher.call(&[b"PUBLISH", b"news".as_slice(), &text]), b":6\r\n");
            for wire in &mut quick {
                assert!(wire.read().len() > text.len());
            }
        }
        for _ in 0..MESSAGES {
            assert!(slow.read().len() > text.len());
        }
        assert_eq!(publisher.call(&["PUBLISH", "news", "on"]), b":6\r\n");
        assert_eq!(read_shown(&mut slow, 1), message("on"));
    }
}

/// The limit is for clients that do not read, not for a turn with many messages.
#[test]
fn burst_within_one_turn_disconnects_no_client() {
    let server = start(&[("client-output-buffer-limit", "pubsub 64kb 0 0")]);
    let mut listener = listener(&server, "news");
    let mut publisher = connect(&server);
    let text = "x".repeat(1_000);
    publisher.send_bytes(format!("PUBLISH news {text}\r\n").repeat(200).as_bytes());
    for _ in 0..200 {
        assert_eq!(read_shown(&mut listener, 1), message(&text));
        assert_eq!(publisher.read(), b":1\r\n");
    }
}

#[test]
fn subscriber_that_does_not_read_is_disconnected_while_others_publish() {
    for server in servers() {
        let mut slow = listener(&server, "news");
        let mut quick = listener(&server, "news");
        let mut publisher = connect(&server);
        publisher.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
        let text = vec![b'x'; 256 << 10];
        let mut published_bytes = 0;
        while publisher.call(&[b"PUBLISH", b"news".as_slice(), &text]) == b":2\r\n" {
            assert!(quick.read().len() > text.len());
            published_bytes += text.len();
            assert!(published_bytes < 64 << 20, "it is kept");
        }
        assert!(slow.read_to_close().len() <= published_bytes + text.len());
    }
}

/// A thread that is never idle still answers clients with few requests.
#[test]
fn flood_of_requests_delays_no_other_client() {
    for (begin, request) in [("", "PING\r\n"), ("CLIENT REPLY OFF\r\n", "SET k v\r\n")] {
        let server = start(&[]);
        let ended = AtomicBool::new(false);
        let flood = |address: SocketAddr| {
            let mut stream = open_tcp(address);
            let mut replies = stream.try_clone().expect("the same");
            let reads = thread::spawn(move || std::io::copy(&mut replies, &mut std::io::sink()));
            stream.write_all(begin.as_bytes()).expect("it is taken");
            let requests = request.repeat(10_000);
            while !ended.load(Ordering::Relaxed) {
                stream.write_all(requests.as_bytes()).expect("it is taken");
            }
            stream.shutdown(std::net::Shutdown::Both).expect("an end");
            drop(reads.join());
        };
        thread::scope(|scope| {
            scope.spawn(|| flood(server.addr()));
            scope.spawn(|| flood(server.addr()));
            let mut listener = listener(&server, "news");
            let mut wire = connect(&server);
            for _ in 0..20 {
                assert_eq!(wire.call(&["PUBLISH", "news", "on"]), b":1\r\n");
                assert_eq!(read_shown(&mut listener, 1), message("on"));
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}

/// Over both kinds of sockets, whether or not the client waits for its replies.
#[test]
fn pipeline_longer_than_a_turn_is_answered_completely() {
    const REQUESTS: usize = 50_000;
    let path = std::env::temp_dir().join(format!("lockwheel-turns-{}.sock", std::process::id()));
    let server = start(&[("unixsocket", &path.to_string_lossy()), ("port", "0")]);
    let stream = open_unix(&path);
    drive(stream, REQUESTS);
    server.stop();
    let server = start(&[]);
    drive(open_tcp(server.addr()), REQUESTS);
}

fn drive(mut stream: impl Read + Write, requests: usize) {
    // Few enough that the kernel buffers the replies meanwhile.
    for number in 0..requests / 1_000 {
        let begin = number * 1_000;
        let asked: String = (begin..begin + 1_000).map(|n| format!("ECHO {n:06}\r\n")).collect();
        stream.write_all(asked.as_bytes()).expect("it is taken");
        let expected: String =
            (begin..begin + 1_000).map(|n| format!("$6\r\n{n:06}\r\n")).collect();
        let mut replies = vec![0; expected.len()];
        stream.read_exact(&mut replies).expect("all replies");
        assert!(replies == expected.as_bytes());
    }
}

/// Many connections send long pipelines, read slowly and receive messages in between: every byte
/// arrives in order.
#[test]
fn slow_readers_of_long_pipelines_get_every_byte() {
    const CONNECTIONS: usize = 12;
    const REQUESTS: usize = 3_000;
    for server in servers() {
        let address = server.addr();
        let drive = |client: usize| {
            let mut wire = Wire::connect(address, 3);
            wire.call(&["SUBSCRIBE", &format!("own {client}")]);
            let mut stream = open_tcp(address);
            let text = |number: usize| {
                format!("{client}:{number}:").repeat(1 + (number * 7 + client) % 97)
            };
            let own = format!("own {client}");
            for number in 0..REQUESTS {
                let text = text(number);
                let request: &[&str] = match number % 50 {
                    0 => &["PUBLISH", &own, &text],
                    _ => &["ECHO", &text],
                };
                stream.write_all(&lockwheel_compat::wire::request(request)).expect("it is taken");
            }
            // A little at a time, and less later.
            let mut replies = Vec::new();
            let mut piece = vec![0; 1 + 40_000 / (client + 1)];
            let expected: String = (0..REQUESTS)
                .map(|number| match (number % 50, text(number)) {
                    (0, _) => ":1\r\n".to_owned(),
                    (_, text) => format!("${}\r\n{text}\r\n", text.len()),
                })
                .collect();
            while replies.len() < expected.len() {
                let count = stream.read(&mut piece).expect("more replies");
                assert!(count > 0, "the connection has ended");
                replies.extend_from_slice(&piece[..count]);
                thread::yield_now();
            }
            assert!(replies == expected.as_bytes(), "client {client}");
            for number in (0..REQUESTS).step_by(50) {
                let text = text(number);
                let received = String::from_utf8(wire.read()).expect("text");
                let (size, channel_size) = (text.len(), own.len());
                let expected = format!(
                    ">3\r\n$7\r\nmessage\r\n${channel_size}\r\n{own}\r\n${size}\r\n{text}\r\n"
                );
                assert!(received == expected, "message {number} to {client}");
            }
        };
        thread::scope(|scope| {
            for client in 0..CONNECTIONS {
                scope.spawn(move || drive(client));
            }
        });
    }
}

#[test]
fn replies_are_sent_before_the_server_ends() {
    for server in servers() {
        let mut listeners: Vec<Wire> = (0..4).map(|_| listener(&server, "news")).collect();
        let mut wire = connect(&server);
        wire.send_bytes(b"SET k v\r\nPUBLISH news end\r\nGET k\r\nSHUTDOWN NOSAVE\r\nGET k\r\n");
        assert_eq!(show(&wire.read_to_close()), "+OK\\r\\n:4\\r\\n$1\\r\\nv\\r\\n");
        for listener in &mut listeners {
            assert_eq!(show(&listener.read_to_close()), message("end"));
        }
    }
}

#[test]
fn reply_to_quit_and_its_messages_are_sent() {
    for server in servers() {
        let mut listener = listener(&server, "news");
        let mut wire = connect(&server);
        wire.send_bytes(b"PUBLISH news last\r\nQUIT\r\nPUBLISH news never\r\n");
        assert_eq!(show(&wire.read_to_close()), ":1\\r\\n+OK\\r\\n");
        assert_eq!(read_shown(&mut listener, 1), message("last"));
    }
}

/// The wait ends without a wake-up of the connection's task: later requests are answered too.
#[test]
fn requests_after_a_wait_run_when_it_ends() {
    for server in servers() {
        let mut waiters: Vec<Wire> = (0..4).map(|_| connect(&server)).collect();
        let mut giver = connect(&server);
        for round in 0..50 {
            for wire in &mut waiters {
                wire.send_bytes(b"BLPOP list 0\r\n");
                if round % 2 == 0 {
                    wire.send_bytes(b"ECHO after\r\n");
                }
            }
            giver.send_bytes(b"RPUSH list a b c d\r\n");
            giver.read();
            for wire in &mut waiters {
                assert!(show(&wire.read()).starts_with("*2\\r\\n$4\\r\\nlist\\r\\n$1\\r\\n"));
                if round % 2 == 1 {
                    wire.send_bytes(b"ECHO after\r\n");
                }
                assert_eq!(show(&wire.read()), "$5\\r\\nafter\\r\\n");
            }
        }
    }
}
