//! `CLIENT REPLY` in transactions: the bytes equal Redis's, although they are not whole replies, so
//! that no case can describe them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockwheel_compat::random::Random;
use lockwheel_compat::wire::request;
use lockwheel_tests::PROTOCOLS;
use lockwheel_tests::frame::show;
use lockwheel_tests::target::{Kind, Target};
use lockwheel_tests::words;

/// The requests that a transaction is made of.
const REQUESTS: &[&str] = &[
    "PING",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY ON",
    // Changes a tracked key.
    "INCR n",
    // Fails when it is run.
    "LPUSH n x",
    // A nested array.
    "LRANGE list 0 -1",
    "HELLO 3",
    "SUBSCRIBE a b",
    "UNSUBSCRIBE b a",
];

/// Requests that are refused or that end a transaction, for longer conversations.
const OTHERS: &[&str] = &["EXEC", "MULTI", "DISCARD", "WATCH n", "NOSUCH", "GET"];

/// Sends requests in one write, and returns all bytes that the server sends for them.
fn bytes_for(target: &Target, protocol: u8, requests: &[&str]) -> String {
    // Every connection begins with the same keys, and tracks one of them.
    let begin: [&str; 4] = [
        &format!("HELLO {protocol}"),
        "DEL n list",
        "RPUSH list 1 2",
        if protocol == 3 { "CLIENT TRACKING ON" } else { "PING" },
    ];
    // RESET ends every reply mode; it is allowed to subscribers.
    let end = ["PING", "RESET", "PING end"];
    let all = begin.iter().chain(&["GET n"]).chain(requests).chain(&end);
    let pipeline: Vec<u8> = all.flat_map(|line| request(&words(line))).collect();
    let mut stream = TcpStream::connect(target.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.write_all(&pipeline).expect("sent");
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while !received.ends_with(b"$3\r\nend\r\n") {
        let count = stream.read(&mut buffer).unwrap_or_else(|error| {
            panic!("{} to {requests:?}: {error}, {}", target.name(), show(&received))
        });
        received.extend_from_slice(&buffer[..count]);
    }
    // The version and the client's id in a reply to HELLO.
    let shown = without(&show(&received), "version\\r\\n", "$5\\r\\nproto");
    without(&shown, "$2\\r\\nid\\r\\n", "$4\\r\\nmode")
}

/// The text without everything between a `begin` and the next `end`.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut parts = text.split(begin);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(&part[part.find(end).expect("the end")..]);
    }
    rest
}

fn assert_same(ours: &Target, oracle: &Target, protocol: u8, requests: &[&str]) {
    let [ours, theirs] = [ours, oracle].map(|target| bytes_for(target, protocol, requests));
    assert_eq!(ours, theirs, "RESP{protocol}: {requests:?}");
}

#[test]
fn transactions_with_client_reply_send_the_bytes_of_redis() {
    let Some(oracle) = Target::redis() else { return };
    let ours = Target::lockwheel_like(&oracle, Kind::Standalone);
    for protocol in PROTOCOLS {
        for (first, second, third) in triples() {
            let queued = ["MULTI", first, second, third, "EXEC", "PING"];
            assert_same(&ours, &oracle, protocol, &queued);
        }
    }
}

/// All triples of requests.
fn triples() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let pairs = REQUESTS.iter().flat_map(|&a| REQUESTS.iter().map(move |&b| (a, b)));
    pairs.flat_map(|(a, b)| REQUESTS.iter().map(move |&c| (a, b, c)))
}

#[test]
fn pipelines_of_transactions_with_client_reply_send_the_bytes_of_redis() {
    let Some(oracle) = Target::redis() else { return };
    let ours = Target::lockwheel_like(&oracle, Kind::Standalone);
    let mut random = Random::new(15);
    for _ in 0..1_000 {
        let protocol = *random.pick(&PROTOCOLS);
        let count = random.between(4, 20);
        let draw = |random: &mut Random| match random.below(4) {
            0 => *random.pick(OTHERS),
            1 => *random.pick(&["MULTI", "EXEC"]),
            _ => *random.pick(REQUESTS),
        };
        let requests: Vec<&str> = (0..count).map(|_| draw(&mut random)).collect();
        assert_same(&ours, &oracle, protocol, &requests);
    }
}
