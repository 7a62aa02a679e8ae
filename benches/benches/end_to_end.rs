//! The time a client needs to take and release a lock over loopback, with Lockwheel and with
//! `redis-server`.
//!
//! One connection. `pipeline_1` waits for each reply before the next request; `pipeline_16` sends
//! 8 cycles of two requests at once. The servers are measured one after the other, each in its own
//! thread or process, with the same client. Without `redis-server` on `PATH`, only Lockwheel is
//! measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockwheel_benches::engine_bench::OWNER;
use lockwheel_resp::encode_request;
use lockwheel_scripting::Sha;
use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, LOCK_3, UNLOCK_3};

const KEY: &str = "lock:orders:4711";
const CHANNEL: &str = "redisson_lock__channel:{lock:orders:4711}";
const LEASE_MS: &str = "30000";
const PIPELINE_REQUESTS: usize = 16;

/// The longest time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);

fn all(criterion: &mut Criterion) {
    let ours = lockwheel::Server::start().expect("a server on a free port");
    let redis = RedisServer::start();
    let mut servers = vec![("lockwheel", BlockingClient::connect(ours.addr()))];
    match &redis {
        Some(redis) => servers.push(("redis", BlockingClient::connect(redis.address()))),
        None => lockwheel_tests::say("no redis-server on PATH: measured alone"),
    }
    for (_, client) in &mut servers {
        for script in [COMPARE_AND_DELETE, LOCK_3, UNLOCK_3] {
            client.load(script);
        }
    }
    for cycle in [set_and_delete(), redisson()] {
        for requests in [1, PIPELINE_REQUESTS] {
            let mut group =
                criterion.benchmark_group(format!("{}/pipeline_{requests}", cycle.name));
            let exchanges = cycle.pipelined(requests);
            let cycles = exchanges.iter().map(|exchange| exchange.requests).sum::<usize>() / 2;
            group.throughput(Throughput::Elements(cycles as u64));
            for (name, client) in &mut servers {
                group.bench_function(*name, |bencher| {
                    bencher.iter(|| {
                        for exchange in &exchanges {
                            client.exchange(exchange);
                        }
                    });
                });
            }
        }
    }
}

/// A request that takes a lock and one that releases it, each with its reply.
struct LockCycle {
    name: &'static str,
    lock: (Vec<String>, &'static str),
    unlock: (Vec<String>, &'static str),
}

/// Requests that are sent at once, and the expected replies.
struct Exchange {
    requests: usize,
    sent: BytesMut,
    received: Vec<u8>,
}

fn set_and_delete() -> LockCycle {
    let delete = digest(COMPARE_AND_DELETE);
    LockCycle {
        name: "set_nx_px_and_compare_and_delete",
        lock: (words(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS]), "+OK\r\n"),
        unlock: (words(&["EVALSHA", &delete, "1", KEY, OWNER]), ":1\r\n"),
    }
}

fn redisson() -> LockCycle {
    let (lock, unlock) = (digest(LOCK_3), digest(UNLOCK_3));
    let unlock = words(&["EVALSHA", &unlock, "2", KEY, CHANNEL, "0", LEASE_MS, OWNER]);
    LockCycle {
        name: "redisson_lock_and_unlock",
        lock: (words(&["EVALSHA", &lock, "1", KEY, LEASE_MS, OWNER]), "$-1\r\n"),
        unlock: (unlock, ":1\r\n"),
    }
}

impl LockCycle {
    fn pipelined(&self, requests: usize) -> Vec<Exchange> {
        let halves = [&self.lock, &self.unlock].repeat(requests.div_ceil(2));
        halves.chunks(requests).map(Exchange::of).collect()
    }
}

impl Exchange {
    fn of(pipeline: &[&(Vec<String>, &'static str)]) -> Exchange {
        let (mut sent, mut received) = (BytesMut::new(), Vec::new());
        for (request, reply) in pipeline {
            encode_request(request, &mut sent);
            received.extend_from_slice(reply.as_bytes());
        }
        Exchange { requests: pipeline.len(), sent, received }
    }
}

/// A blocking connection. The length of each reply is known, so that reading it costs little.
struct BlockingClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl BlockingClient {
    fn connect(address: SocketAddr) -> BlockingClient {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a read timeout");
        BlockingClient { stream, received: Vec::new() }
    }

    fn load(&mut self, script: &str) {
        let mut sent = BytesMut::new();
        encode_request(&["SCRIPT", "LOAD", script], &mut sent);
        let received = format!("$40\r\n{}\r\n", digest(script)).into_bytes();
        self.exchange(&Exchange { requests: 1, sent, received });
    }

    fn exchange(&mut self, exchange: &Exchange) {
        self.stream.write_all(&exchange.sent).expect("the server reads");
        self.received.resize(exchange.received.len(), 0);
        let read = self.stream.read_exact(&mut self.received);
        if read.is_err() || self.received != exchange.received {
            panic!("{read:?}: {}", String::from_utf8_lossy(&self.received));
        }
    }
}

fn digest(script: &str) -> String {
    Sha::of(script.as_bytes()).to_string()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
