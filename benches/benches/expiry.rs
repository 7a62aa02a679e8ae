//! How late the `expired` event of a lease is sent by Lockwheel and by `redis-server`.
//!
//! Leases end at random moments within two seconds; a subscriber to `expired` compares the arrival
//! of each event with the key's deadline (`PEXPIRETIME`). Not a criterion bench: one run prints the
//! percentiles. As a test it uses a few leases within a few milliseconds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use lockwheel_benches::{Random, is_measurement};
use lockwheel_resp::Reply;
use lockwheel_resp::decode::decode;
use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::say;
use lockwheel_tests::wire::Wire;

fn main() {
    let (leases, span_ms) = if is_measurement() { (2_000, 2_000) } else { (20, 20) };
    let ours = lockwheel::Server::start().expect("a server on a free port");
    report("lockwheel", &mut lateness_us(ours.addr(), leases, span_ms));
    match RedisServer::start() {
        Some(redis) => report("redis", &mut lateness_us(redis.address(), leases, span_ms)),
        None => say("no redis-server on PATH: measured alone"),
    }
}

/// Returns how late each event arrived, in microseconds.
fn lateness_us(address: SocketAddr, leases: u32, span_ms: u32) -> Vec<i64> {
    let mut client = Wire::connect(address, 2);
    let mut subscriber = Wire::connect(address, 2);
    client.call(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    subscriber.call(&["SUBSCRIBE", "__keyevent@0__:expired"]);
    let mut random = Random::new();
    let mut deadlines_ms = BTreeMap::new();
    for lease in 0..leases {
        let key = format!("lock:{lease}");
        // The last lease is set before the first one ends.
        let lease_ms = (span_ms + random.below(span_ms)).to_string();
        client.call(&["SET", &key, "owner", "PX", &lease_ms]);
        if let Some((Reply::Integer(deadline_ms), _)) = read(&client.call(&["PEXPIRETIME", &key])) {
            deadlines_ms.insert(key.into_bytes(), deadline_ms);
        }
    }
    let mut lateness = Vec::new();
    while !deadlines_ms.is_empty() {
        let event = subscriber.read();
        let arrived_us = wall_us();
        let Some((Reply::Array(parts), _)) = read(&event) else { continue };
        if let Some(Reply::Bulk(key)) = parts.last()
            && let Some(deadline_ms) = deadlines_ms.remove(&key[..])
        {
            lateness.push(arrived_us - deadline_ms * 1000);
        }
    }
    lateness
}

fn read(bytes: &[u8]) -> Option<(Reply, usize)> {
    decode(bytes).expect("a well-formed reply")
}

fn report(server: &str, lateness_us: &mut [i64]) {
    lateness_us.sort_unstable();
    let at = |part: f64| {
        let index = ((lateness_us.len() - 1) as f64 * part) as usize;
        lateness_us[index] as f64 / 1000.0
    };
    say(&format!(
        "{server}: expired events late by p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    ));
}

#[expect(clippy::disallowed_methods, reason = "a bench measures")]
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
