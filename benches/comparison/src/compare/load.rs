//! Many requests on one connection as fast as the server takes them, and leases made so. It must
//! not know what they are for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use lockwheel_resp::encode_request;

use crate::Outcome;
use crate::peers::Peer;
use crate::running::Running;

/// Who holds every lock: a process and a thread of it, as Redisson names them.
pub(crate) const OWNER: &str = lockwheel_benches::engine_bench::OWNER;

/// Requests written at once. Their replies fit into the sockets' buffers, so neither side waits
/// for the other while both write.
const CHUNK: u32 = 500;
/// A reply that takes longer is not coming.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a million leases may take to be made, by the slowest server on a slow machine.
const LOAD_US_PER_LEASE: u64 = 5;
/// And how long a few of them.
const LOAD_MS_MIN: u64 = 800;
/// What must be left of it, for whoever wants to get ready.
const GRACE_MS: u64 = 500;
/// A server that takes longer will not do it.
const LOAD_MS_MAX: u64 = 120_000;

/// Sends `count` requests, each made by `request` from its number, and checks that each is
/// answered with `reply`.
pub(crate) fn fill(
    address: SocketAddr,
    count: u32,
    reply: &str,
    mut request: impl FnMut(u32, &mut BytesMut),
) -> Outcome<()> {
    let mut stream = connect(address)?;
    let (mut sent, mut expected) = (BytesMut::new(), Vec::new());
    let mut on_the_way = 0;
    for first in (0..count).step_by(CHUNK as usize) {
        let end = count.min(first + CHUNK);
        sent.clear();
        (first..end).for_each(|number| request(number, &mut sent));
        stream.write_all(&sent)?;
        // The chunk before is answered while this one travels.
        read_replies(&mut stream, on_the_way, reply, &mut expected)?;
        on_the_way = end - first;
    }
    read_replies(&mut stream, on_the_way, reply, &mut expected)
}

fn read_replies(
    stream: &mut TcpStream,
    count: u32,
    reply: &str,
    received: &mut Vec<u8>,
) -> Outcome<()> {
    received.resize(reply.len() * count as usize, 0);
    stream.read_exact(received)?;
    match received.chunks(reply.len()).find(|it| *it != reply.as_bytes()) {
        None => Ok(()),
        Some(other) => Err(format!("answered with {}", other.escape_ascii()).into()),
    }
}

/// A connection whose replies come, or it is an error.
pub(crate) fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a lock is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As Redisson's are: a hash with a field for its owner.
    Hash,
    /// As all others are: a string that names its owner.
    Text,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Text => "string",
        }
    }
}

/// Makes so many locks that are held for an hour.
pub(crate) fn hold(address: SocketAddr, count: u32, kind: Kind) -> Outcome<()> {
    const HOUR_MS: &str = "3600000";
    match kind {
        Kind::Hash => fill(address, count, ":1\r\n:1\r\n", |number, sent| {
            let key = lock(number);
            encode_request(&["HSET", &key, OWNER, "1"], sent);
            encode_request(&["PEXPIRE", &key, HOUR_MS], sent);
        }),
        Kind::Text => fill(address, count, "+OK\r\n", |number, sent| {
            encode_request(&["SET", &lock(number), OWNER, "PX", HOUR_MS], sent);
        }),
    }
}

/// Releases what [`hold`] has made.
pub(crate) fn release(address: SocketAddr, count: u32) -> Outcome<()> {
    fill(address, count, ":1\r\n", |number, sent| encode_request(&["DEL", &lock(number)], sent))
}

/// Seventeen bytes, whatever the number.
fn lock(number: u32) -> String {
    format!("lock:{{{number:010}}}")
}

/// A server with leases, the first of which ends at a moment to come. What the moments are follows
/// from that first one, in milliseconds of the wall clock.
pub(crate) struct Leased {
    pub(crate) running: Running,
    /// What it had resident while it was empty.
    pub(crate) empty_bytes: u64,
    pub(crate) first_ms: u64,
}

/// Starts a server and makes leases there, all before the first one ends: if it takes longer than
/// was thought, once more with a fresh server and more time.
pub(crate) fn start_leased(
    peer: &Peer,
    arguments: &[&str],
    leases: u32,
    mut after_first_ms: impl FnMut() -> u64,
) -> Outcome<Leased> {
    let mut load_ms = LOAD_MS_MIN + u64::from(leases) * LOAD_US_PER_LEASE / 1000;
    loop {
        let running = peer.start(arguments)?;
        let empty_bytes = running.resident_bytes()?;
        let first_ms = wall_us() / 1000 + load_ms;
        lease(running.address, leases, || first_ms + after_first_ms())?;
        if wall_us() / 1000 + GRACE_MS < first_ms {
            return Ok(Leased { running, empty_bytes, first_ms });
        }
        load_ms *= 2;
        if load_ms > LOAD_MS_MAX {
            return Err("the first leases ended before the last had been made".into());
        }
    }
}

/// Makes a lease for each deadline. It names its deadline, so nobody has to look it up.
fn lease(address: SocketAddr, count: u32, mut deadline_ms: impl FnMut() -> u64) -> Outcome<()> {
    fill(address, count, "+OK\r\n", |number, sent| {
        let deadline_ms = deadline_ms();
        let key = format!("{deadline_ms:0DEADLINE_DIGITS$}:{number:07}");
        encode_request(&["SET", &key, OWNER, "PXAT", &deadline_ms.to_string()], sent);
    })
}

/// A number as people write it: 1,000,000.
pub(crate) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Digits of a lease's deadline, which begin its name.
pub(crate) const DEADLINE_DIGITS: usize = 13;
/// Bytes of the name of a lease.
pub(crate) const LEASE_NAME_BYTES: usize = DEADLINE_DIGITS + 8;

/// The wall clock, which is the servers' too.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use lockwheel::{Reply, Server};

    use super::{Kind, fill, grouped, hold, lease, release};

    /// More than a chunk, and no multiple of it.
    const COUNT: u32 = 1_234;

    #[test]
    fn locks_of_both_kinds_are_made_and_released() {
        for kind in [Kind::Hash, Kind::Text] {
            let server = Server::start().expect("a server");
            hold(server.addr(), COUNT, kind).expect("locks");
            let count = server.call(&["DBSIZE"]).expect("a reply");
            assert_eq!(count, Reply::Integer(COUNT.into()), "{kind:?}");
            release(server.addr(), COUNT).expect("no locks");
            assert_eq!(server.call(&["DBSIZE"]).expect("a reply"), Reply::Integer(0), "{kind:?}");
        }
    }

    #[test]
    fn a_lease_ends_when_its_name_says() {
        let server = Server::start().expect("a server");
        lease(server.addr(), 1, || 9_999_999_999_999).expect("a lease");
        let deadline = server.call(&["PEXPIRETIME", "9999999999999:0000000"]).expect("a reply");
        assert_eq!(deadline, Reply::Integer(9_999_999_999_999));
    }

    #[test]
    fn large_numbers_are_written_in_groups() {
        assert_eq!([7, 1000, 5_000_000].map(grouped), ["7", "1,000", "5,000,000"]);
    }

    #[test]
    fn another_reply_is_an_error() {
        let server = Server::start().expect("a server");
        let outcome = fill(server.addr(), 3, "+PONG\r\n", |_, sent| {
            sent.extend_from_slice(b"*2\r\n$4\r\nECHO\r\n$1\r\na\r\n");
        });
        assert_eq!(outcome.expect_err("an error").to_string(), "answered with $1\\r\\na\\r\\n");
    }
}
