//! Blocked clients that close their connections: no element is lost.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockwheel::Server;
use lockwheel_tests::frame::Frame;
use lockwheel_tests::frame_of;
use lockwheel_tests::wire::{Wire, open_tcp};
use socket2::SockRef;

fn server(threads: &str) -> Server {
    let builder = Server::builder().config("io-threads", threads);
    builder.config("enable-debug-command", "yes").start().expect("a server")
}

/// The number of checks for a condition that will hold soon: far more than needed.
const CHECKS_MAX: usize = 100_000;

/// The number of blocked clients.
fn blocked(control: &mut Wire) -> usize {
    let info = String::from_utf8(control.call(&["INFO", "clients"])).expect("text");
    let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    count.expect("INFO has the number of blocked clients").parse().expect("a number")
}

/// A client that is blocked on `queue`, as INFO shows.
fn waiter(address: SocketAddr, control: &mut Wire) -> TcpStream {
    let before = blocked(control);
    let mut socket = open_tcp(address);
    socket.write_all(b"BLPOP queue 0\r\n").expect("a request is sent");
    assert!((0..CHECKS_MAX).any(|_| blocked(control) > before), "it does not wait");
    socket
}

/// The reply to `BLPOP queue`.
fn taken(element: usize) -> String {
    let element = element.to_string();
    format!("*2\r\n$5\r\nqueue\r\n${}\r\n{element}\r\n", element.len())
}

/// The server cannot notice a closed connection before there is an element.
#[test]
fn closed_clients_get_no_element() {
    for threads in ["1", "2"] {
        let server = server(threads);
        let mut pusher = Wire::connect(server.addr(), 2);
        let waiters: Vec<_> = (0..60).map(|_| waiter(server.addr(), &mut pusher)).collect();
        let mut sleeper = Wire::connect(server.addr(), 2);
        sleeper.send(&["DEBUG", "SLEEP", "0.02"]);
        let mut living = Vec::new();
        for (n, socket) in waiters.into_iter().enumerate() {
            match n % 3 {
                0 => living.push(socket),
                1 => drop(socket),
                _ => {
                    // Sends a reset, as the system does when a process with unread replies is
                    // killed.
                    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("an option");
                    drop(socket);
                }
            }
        }
        let elements: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let push = ["RPUSH", "queue"].into_iter().chain(elements.iter().map(String::as_str));
        assert_eq!(pusher.call(&push.collect::<Vec<_>>()), b":25\r\n");
        for (n, socket) in living.iter_mut().enumerate() {
            let expected = taken(n);
            let mut got = vec![0; expected.len()];
            socket.read_exact(&mut got).expect("an element");
            assert_eq!(String::from_utf8_lossy(&got), expected, "{threads} threads");
        }
        assert_eq!(pusher.call(&["LLEN", "queue"]), b":5\r\n");
        assert_eq!(pusher.call(&["LINDEX", "queue", "0"]), b"$2\r\n20\r\n");
        assert!(
            (0..CHECKS_MAX).any(|_| blocked(&mut pusher) == 0),
            "closed clients are still blocked"
        );
    }
}

const PUSHERS: usize = 2;
const PUSHES: usize = 2_000;
/// The least number of elements to take, however long that takes.
const TAKEN_MIN: usize = PUSHES / 10;
/// The number of connections of each client after the last push by which that must be reached.
const CONNECTIONS_AFTER_MAX: usize = TAKEN_MIN;

/// The progress of the test.
struct PushProgress {
    pushing: AtomicUsize,
    taken: AtomicUsize,
}

impl PushProgress {
    fn is_over(&self) -> bool {
        let pushing = self.pushing.load(Ordering::Acquire) > 0;
        !pushing && self.taken.load(Ordering::Acquire) >= TAKEN_MIN
    }
}

/// Pushes its share, one by one and in transactions of several.
fn push(address: SocketAddr, pusher: usize) {
    let mut wire = Wire::connect(address, 2);
    for n in 0..PUSHES {
        let element = (pusher * PUSHES + n).to_string();
        if n % 16 == 0 {
            wire.call(&["MULTI"]);
        }
        wire.call(&["RPUSH", "queue", &element]);
        if n % 16 == 7 {
            wire.call(&["EXEC"]);
        }
    }
}

/// Takes elements, closes its connection while blocked, and connects again. Elements that arrive
/// until the server closes the connection too count as taken.
fn take_and_vanish(address: SocketAddr, seed: usize, progress: &PushProgress) -> Vec<usize> {
    let mut elements = Vec::new();
    let mut life = seed;
    let mut lives_left = CONNECTIONS_AFTER_MAX;
    while !progress.is_over() && lives_left > 0 {
        lives_left -= usize::from(progress.pushing.load(Ordering::Acquire) == 0);
        life = life * 7 % 11 + 1;
        let mut socket = open_tcp(address);
        socket.set_nodelay(true).expect("TCP_NODELAY");
        let mut received = Vec::new();
        for _ in 0..life {
            socket.write_all(b"BLPOP queue 0.002 \r\n").expect("a request is sent");
            let mut chunk = [0; 1024];
            let count = socket.read(&mut chunk).expect("an answer");
            received.extend_from_slice(&chunk[..count]);
        }
        socket.write_all(b"BLPOP queue 0\r\n").expect("a request is sent");
        socket.shutdown(Shutdown::Write).expect("an end");
        socket.read_to_end(&mut received).expect("the server hangs up, too");
        let received = elements_in(&received);
        progress.taken.fetch_add(received.len(), Ordering::AcqRel);
        elements.extend(received);
    }
    elements
}

/// The elements among replies to `BLPOP`.
fn elements_in(mut replies: &[u8]) -> Vec<usize> {
    let mut elements = Vec::new();
    while !replies.is_empty() {
        let first = Frame::first(replies).expect("well-formed");
        let (frame, length) = first.expect("whole replies");
        if let [_, element] = &frame.items[..] {
            elements.push(String::from_utf8_lossy(&element.text).parse().expect("a number"));
        }
        replies = &replies[length..];
    }
    elements
}

#[test]
fn under_load_every_element_is_taken_once_or_left() {
    for threads in ["1", "2"] {
        let server = server(threads);
        let address = server.addr();
        let progress =
            PushProgress { pushing: AtomicUsize::new(PUSHERS), taken: AtomicUsize::new(0) };
        let taken: Vec<usize> = thread::scope(|scope| {
            let progress = &progress;
            for pusher in 0..PUSHERS {
                scope.spawn(move || {
                    push(address, pusher);
                    progress.pushing.fetch_sub(1, Ordering::AcqRel);
                });
            }
            let take = |seed| scope.spawn(move || take_and_vanish(address, seed, progress));
            let takers: Vec<_> = (0..6).map(take).collect();
            takers.into_iter().flat_map(|taker| taker.join().expect("it returns")).collect()
        });
        let mut wire = Wire::connect(address, 2);
        let left = frame_of(&wire.call(&["LRANGE", "queue", "0", "-1"]));
        let left = left.items.iter();
        let left = left.map(|item| String::from_utf8_lossy(&item.text).parse().expect("a number"));
        assert!(taken.len() >= TAKEN_MIN, "hardly any was taken: {}", taken.len());
        let all: Vec<usize> = taken.iter().copied().chain(left).collect();
        assert_eq!(all.len(), PUSHERS * PUSHES, "{threads} threads, {} taken", taken.len());
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
