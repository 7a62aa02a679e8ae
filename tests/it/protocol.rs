//! Raw bytes: requests that no client library sends, and requests that arrive in pieces.

use std::io::ErrorKind;

use lockwheel_tests::frame::show;
use lockwheel_tests::target::Target;
use lockwheel_tests::wire::Wire;

/// Requests that no client library sends, beside those of `cases/protocol.txt`. Most close the
/// connection, some after an error.
const REQUESTS: &[&[u8]] = &[
    b"ping\r\n",
    b"\r\n",
    b"\n",
    b"\r\n\r\nPING\r\n",
    b"PING \"hello world\"\r\n",
    b"PING 'hello world'\r\n",
    b"PING \"\\x41\\n\\t\\\\\\\"\"\r\n",
    b"PING 'it\\'s'\r\n",
    b"PING \"\"\r\n",
    b"SET k v\r\nGET k\r\n",
    b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n",
    b"*-5\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n",
    b"*1\r\n$4\r\nNOPE\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\x00\xff\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    b"* 1\r\n",
    b"*1048577\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"PING 'open\r\n",
    b"PING 'a'b\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

const LAST: &[u8] = b"*2\r\n$4\r\nECHO\r\n$11\r\nthat is all\r\n";

/// The replies to these bytes, and whether the connection is then still open.
fn answers(target: &Target, pieces: &[&[u8]]) -> String {
    let mut wire = target.connect(2);
    let (end, others) = pieces.split_last().expect("at least one piece");
    others.iter().for_each(|piece| wire.send_bytes(piece));
    // In one write: bytes that arrive after a close could discard the last reply.
    wire.send_bytes(&[end, LAST].concat());
    let mut replies = String::new();
    loop {
        match wire.try_read() {
            Ok(reply) if reply == b"$11\r\nthat is all\r\n" => return replies,
            Ok(reply) => replies.push_str(&show(&reply)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("{} does not answer {}", target.name(), show(&pieces.concat()));
            }
            Err(_) => return replies + " (closed)",
        }
    }
}

#[test]
fn odd_requests_get_the_replies_of_redis() {
    let Some(oracle) = Target::redis() else { return };
    let ours = Target::lockwheel();
    for request in REQUESTS {
        assert_eq!(answers(&ours, &[request]), answers(&oracle, &[request]), "{}", show(request));
    }
}

#[test]
fn unauthenticated_client_has_small_limits() {
    let Some(oracle) = Target::redis() else { return };
    let ours = Target::lockwheel();
    for target in [&ours, &oracle] {
        target.run("CONFIG SET requirepass secret");
    }
    for request in [&b"*11\r\n"[..], b"*2147483647\r\n", b"*10\r\n$16385\r\n"] {
        assert_eq!(answers(&ours, &[request]), answers(&oracle, &[request]), "{}", show(request));
    }
}

#[test]
fn request_may_be_split_at_any_byte() {
    const PIPELINE: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nPING hi\r\n\
        *2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    for target in Target::all() {
        let whole = answers(&target, &[PIPELINE]);
        assert_eq!(whole, "+OK\\r\\n$2\\r\\nhi\\r\\n$4\\r\\n\\r\\n\\r\\n\\r\\n");
        for cut in 1..PIPELINE.len() {
            let (head, tail) = PIPELINE.split_at(cut);
            assert_eq!(answers(&target, &[head, tail]), whole, "{} at {cut}", target.name());
        }
        let bytes: Vec<_> = PIPELINE.chunks(1).collect();
        assert_eq!(answers(&target, &bytes), whole, "{} byte by byte", target.name());
    }
}

/// A client that finds its connection closed opens another before it sends; it cannot if the
/// connection is closed a moment after the reply that announces it.
#[test]
fn killed_client_is_closed_before_the_reply_to_client_kill() {
    for target in Target::all() {
        let mut other = target.connect(2);
        let id_of = |wire: &mut Wire| {
            let reply = wire.call(&["CLIENT", "ID"]);
            String::from_utf8_lossy(&reply[1..]).trim().to_owned()
        };
        for _ in 0..20 {
            let mut killed = target.connect(2);
            let id = id_of(&mut killed);
            assert_eq!(other.call(&["CLIENT", "KILL", "ID", &id]), b":1\r\n");
            assert!(killed.is_closed(), "{}", target.name());

            let mut itself = target.connect(2);
            let id = id_of(&mut itself);
            itself.call(&["CLIENT", "KILL", "ID", &id, "SKIPME", "no"]);
            // Redis usually closes the connection a little later.
            assert!(itself.is_closed() || target.name() != "lockwheel");
            let listed = other.call(&["CLIENT", "LIST", "ID", &id]);
            assert_eq!(show(&listed), "$0\\r\\n\\r\\n", "{}", target.name());
        }
    }
}
