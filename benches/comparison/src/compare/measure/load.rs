//! Fills a server: many requests on one connection as fast as possible, which create locks and
//! leases.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use lockwheel_comparison::Outcome;
use lockwheel_resp::encode_request;

use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;

/// The owner of every lock.
pub(crate) const OWNER: &str = lockwheel_benches::engine_bench::OWNER;

/// Requests written at once. Their replies fit into the sockets' buffers, so neither side blocks
/// while both write.
const CHUNK: u32 = 500;
/// The longest time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time allowed to create a lease, for the slowest server on a slow machine.
const LOAD_US_PER_LEASE: u64 = 5;
/// The least time allowed for all leases.
const LOAD_MS_MIN: u64 = 800;
/// The least time that must remain before the first lease ends, to prepare the measurement.
const MARGIN_MS: u64 = 500;
/// A server that needs more time is an error.
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
    let mut unanswered = 0;
    for first in (0..count).step_by(CHUNK as usize) {
        let end = count.min(first + CHUNK);
        sent.clear();
        (first..end).for_each(|number| request(number, &mut sent));
        stream.write_all(&sent)?;
        // The server replies to the previous chunk while it receives this one.
        read_replies(&mut stream, unanswered, reply, &mut expected)?;
        unanswered = end - first;
    }
    read_replies(&mut stream, unanswered, reply, &mut expected)
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
        Some(other) => Err(format!("replied with {}", other.escape_ascii()).into()),
    }
}

/// Opens a blocking connection on which a missing reply is an error.
pub(crate) fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(stream)
}

/// The data type of a lock's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockType {
    /// A hash with a field for its owner, as in Redisson.
    Hash,
    /// A string that contains its owner, as in other libraries.
    String,
}

impl LockType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LockType::Hash => "hash",
            LockType::String => "string",
        }
    }
}

/// Takes this number of locks for an hour.
pub(crate) fn hold(address: SocketAddr, count: u32, kind: LockType) -> Outcome<()> {
    const HOUR_MS: &str = "3600000";
    match kind {
        LockType::Hash => fill(address, count, ":1\r\n:1\r\n", |number, sent| {
            let key = lock_key(number);
            encode_request(&["HSET", &key, OWNER, "1"], sent);
            encode_request(&["PEXPIRE", &key, HOUR_MS], sent);
        }),
        LockType::String => fill(address, count, "+OK\r\n", |number, sent| {
            encode_request(&["SET", &lock_key(number), OWNER, "PX", HOUR_MS], sent);
        }),
    }
}

/// Releases the locks of [`hold`].
pub(crate) fn release(address: SocketAddr, count: u32) -> Outcome<()> {
    fill(address, count, ":1\r\n", |number, sent| encode_request(&["DEL", &lock_key(number)], sent))
}

/// The key of a lock, which always has 17 bytes.
fn lock_key(number: u32) -> String {
    format!("lock:{{{number:010}}}")
}

/// A server with leases that have not ended yet.
pub(crate) struct LeasedServer {
    pub(crate) running: Running,
    /// Its resident memory while it was empty.
    pub(crate) empty_bytes: u64,
    /// The earliest deadline, in milliseconds of the wall clock.
    pub(crate) first_ms: u64,
}

/// Starts a server and creates leases on it, all before the first one ends. If that takes too long,
/// starts again with a fresh server and later deadlines.
pub(crate) fn start_leased(
    server: &ComparedServer,
    arguments: &[&str],
    leases: u32,
    mut after_first_ms: impl FnMut() -> u64,
) -> Outcome<LeasedServer> {
    let mut load_ms = LOAD_MS_MIN + u64::from(leases) * LOAD_US_PER_LEASE / 1000;
    loop {
        let running = server.start(arguments)?;
        let empty_bytes = running.resident_bytes()?;
        let first_ms = wall_us() / 1000 + load_ms;
        lease(running.address, leases, || first_ms + after_first_ms())?;
        if wall_us() / 1000 + MARGIN_MS < first_ms {
            return Ok(LeasedServer { running, empty_bytes, first_ms });
        }
        load_ms *= 2;
        if load_ms > LOAD_MS_MAX {
            return Err("the first leases ended before the last were created".into());
        }
    }
}

/// Creates a lease for each deadline. Its key contains the deadline, so that no look-up is needed.
fn lease(address: SocketAddr, count: u32, mut deadline_ms: impl FnMut() -> u64) -> Outcome<()> {
    fill(address, count, "+OK\r\n", |number, sent| {
        let deadline_ms = deadline_ms();
        let key = format!("{deadline_ms:0DEADLINE_DIGITS$}:{number:07}");
        encode_request(&["SET", &key, OWNER, "PXAT", &deadline_ms.to_string()], sent);
    })
}

/// A number with separators: 1,000,000.
pub(crate) fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Digits of a lease's deadline, with which its key begins.
pub(crate) const DEADLINE_DIGITS: usize = 13;
/// The length of the key of a lease.
pub(crate) const LEASE_KEY_BYTES: usize = DEADLINE_DIGITS + 8;

/// The time of the wall clock, which the servers also use.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use lockwheel::{Reply, Server};

    use super::{LockType, fill, grouped, hold, lease, release};

    /// Number of requests: more than a chunk, and not a multiple of it.
    const COUNT: u32 = 1_234;

    #[test]
    fn locks_of_both_types_are_taken_and_released() {
        for kind in [LockType::Hash, LockType::String] {
            let server = Server::start().expect("a server");
            hold(server.addr(), COUNT, kind).expect("locks");
            let count = server.call(&["DBSIZE"]).expect("a reply");
            assert_eq!(count, Reply::Integer(COUNT.into()), "{kind:?}");
            release(server.addr(), COUNT).expect("no locks");
            assert_eq!(server.call(&["DBSIZE"]).expect("a reply"), Reply::Integer(0), "{kind:?}");
        }
    }

    #[test]
    fn lease_ends_at_the_deadline_in_its_key() {
        let server = Server::start().expect("a server");
        lease(server.addr(), 1, || 9_999_999_999_999).expect("a lease");
        let deadline = server.call(&["PEXPIRETIME", "9999999999999:0000000"]).expect("a reply");
        assert_eq!(deadline, Reply::Integer(9_999_999_999_999));
    }

    #[test]
    fn large_numbers_have_separators() {
        assert_eq!([7, 1000, 5_000_000].map(grouped), ["7", "1,000", "5,000,000"]);
    }

    #[test]
    fn unexpected_reply_is_an_error() {
        let server = Server::start().expect("a server");
        let outcome = fill(server.addr(), 3, "+PONG\r\n", |_, sent| {
            sent.extend_from_slice(b"*2\r\n$4\r\nECHO\r\n$1\r\na\r\n");
        });
        assert_eq!(outcome.expect_err("an error").to_string(), "replied with $1\\r\\na\\r\\n");
    }
}
