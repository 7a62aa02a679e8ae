//! Very many events at once: leases that end together, and waiting clients that wake together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockwheel::{Client, Reply, Server};
use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::store::events::Events;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_tests::wire::Wire;

use lockwheel_tests::scripts::{LOCK_3, UNLOCK_3};

const LOCKS: usize = 40_000;
const EXPIRED: &str = "__keyevent@0__:expired";
const LOCK_CHANNEL: &str = "redisson_lock__channel:{lock}";

/// The payload of a message.
fn payload(message: &Reply) -> String {
    let (Reply::Push(parts) | Reply::Array(parts)) = message else {
        panic!("no message: {message:?}")
    };
    match parts.as_slice() {
        [_, _, Reply::Bulk(bytes)] => String::from_utf8_lossy(bytes).into_owned(),
        _ => panic!("no message: {parts:?}"),
    }
}

/// Shows G9.
#[test]
fn expiry_events_of_many_leases_are_sent_once_and_in_order() {
    let server = Server::builder().frozen_clock().config("notify-keyspace-events", "Ex").start();
    let server = server.expect("a server");
    let mut listener = server.client().expect("a client");
    listener.call(&["SUBSCRIBE", EXPIRED]).expect("a subscription");
    let mut holder = server.client().expect("a client");
    let mut take = |name: String, lease_ms: &str| {
        let reply = holder.call(&["SET", &name, "token", "NX", "PX", lease_ms]);
        assert_eq!(reply.expect("an answer"), Reply::OK);
        name
    };
    let late = take("late".to_owned(), "30001");
    let together: Vec<String> = (0..LOCKS).map(|n| take(format!("lock:{n}"), "30000")).collect();
    let early = take("early".to_owned(), "29999");

    server.advance(Duration::from_millis(29_998)).expect("a server");
    assert_eq!(listener.try_receive().expect("a subscription"), None);
    server.advance(Duration::from_millis(3)).expect("a server");

    for name in [&early].into_iter().chain(&together).chain([&late]) {
        assert_eq!(&payload(&listener.receive().expect("a message")), name);
    }
    assert_eq!(listener.try_receive().expect("a subscription"), None);
    assert_eq!(server.call(&["DBSIZE"]).expect("an answer"), Reply::Integer(0));
    let keyspace = server.call(&["INFO", "keyspace"]).expect("an answer");
    assert!(format!("{keyspace:?}").contains("# Keyspace"), "{keyspace:?}");
    assert!(!format!("{keyspace:?}").contains("db0"), "{keyspace:?}");
}

/// An engine with expirations that are run slice by slice on request.
struct Slices {
    engine: Engine,
    client: ClientId,
    now: Time,
}

impl Slices {
    fn new() -> Slices {
        let mut settings = Settings::default();
        settings.notify_keyspace_events = Events::KEYEVENT | Events::EXPIRED;
        let now = Time::at(Millis(1_700_000_000_000));
        let mut engine = Engine::new(settings, Process::default(), now, [1, 2, 3, 4]);
        let client = engine.connect(Origin::default(), now);
        Slices { engine, client, now }
    }

    fn run(&mut self, command: &[&str]) -> Vec<u8> {
        let argv: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        let mut out = Default::default();
        self.engine.run(self.now, self.client, &argv, &mut out);
        out.to_vec()
    }

    /// The expiry events that a subscriber has received since the last call.
    fn expired(&mut self) -> Vec<String> {
        let bytes: Vec<u8> = self.engine.deliveries().into_iter().flat_map(|d| d.bytes).collect();
        let text = String::from_utf8(bytes).expect("text");
        text.split("\r\n").filter(|word| word.starts_with("lock:")).map(str::to_owned).collect()
    }
}

/// While the wheel is far behind, an expired lock is invisible and can be taken again.
/// Shows G2, G10.
#[test]
fn expired_lock_is_free_before_the_wheel_fires() {
    let mut slices = Slices::new();
    let listener = slices.engine.connect(Origin::default(), slices.now);
    let mut out = Default::default();
    slices.engine.run(slices.now, listener, &[b"SUBSCRIBE", EXPIRED.as_bytes()], &mut out);
    let names: Vec<String> = (0..LOCKS).map(|n| format!("lock:{n}")).collect();
    for name in &names {
        assert_eq!(slices.run(&["SET", name, "token", "PX", "30000"]), b"+OK\r\n");
    }
    slices.now = Time::at(Millis(slices.now.now.0 + 29_999));
    slices.engine.tick(slices.now, u32::MAX);
    assert_eq!(slices.run(&["DBSIZE"]), format!(":{LOCKS}\r\n").as_bytes());

    slices.now = Time::at(Millis(slices.now.now.0 + 1));
    let mut expired = Vec::new();
    let mut behind = 0;
    // Keys are read in the reverse order of the wheel.
    let mut reads = names.iter().rev();
    let is_due = |engine: &Engine, now| engine.next_deadline().is_some_and(|next| next <= now);
    while is_due(&slices.engine, slices.now.now) {
        for name in reads.by_ref().take(3) {
            behind += usize::from(slices.engine.key_count(0) > 0);
            assert_eq!(slices.run(&["GET", name]), b"$-1\r\n", "{name}");
            assert_eq!(slices.run(&["PTTL", name]), b":-2\r\n", "{name}");
            assert_eq!(slices.run(&["SET", name, "another", "NX"]), b"+OK\r\n", "{name}");
            assert_eq!(slices.run(&["DEL", name]), b":1\r\n", "{name}");
        }
        slices.engine.tick(slices.now, 500);
        expired.extend(slices.expired());
    }
    assert!(behind > 100, "the storm was over before anyone looked: {behind}");
    assert_eq!(expired.len(), LOCKS);
    assert_eq!(expired.iter().collect::<BTreeSet<_>>(), names.iter().collect());
    assert_eq!(slices.run(&["DBSIZE"]), b":0\r\n");
    assert_eq!(slices.engine.next_deadline(), None);
}

/// The number of waiting clients that get the lock after a release. They retry on several threads.
fn winners<W: Send>(waiters: Vec<W>, retry: impl Fn(W, &str) -> bool + Sync) -> usize {
    const THREADS: usize = 8;
    let won = AtomicUsize::new(0);
    let mut groups: Vec<Vec<(usize, W)>> = (0..THREADS).map(|_| Vec::new()).collect();
    for (n, waiter) in waiters.into_iter().enumerate() {
        groups[n % THREADS].push((n, waiter));
    }
    thread::scope(|scope| {
        for group in groups {
            let (won, retry) = (&won, &retry);
            scope.spawn(move || {
                for (n, waiter) in group {
                    won.fetch_add(usize::from(retry(waiter, &token(n))), Ordering::Relaxed);
                }
            });
        }
    });
    won.into_inner()
}

fn token(n: usize) -> String {
    format!("uuid-{n}:1")
}

fn lock(token: &str) -> [&str; 6] {
    ["EVAL", LOCK_3, "1", "lock", "30000", token]
}

fn unlock(token: &str) -> [&str; 8] {
    ["EVAL", UNLOCK_3, "2", "lock", LOCK_CHANNEL, "0", "30000", token]
}

/// Waiting clients of Redisson: each tries, subscribes, is woken by the unlock, and tries again.
#[test]
fn one_of_many_woken_clients_gets_the_lock() {
    let server = Server::start().expect("a server");
    assert_eq!(server.call(&lock("holder")).expect("an answer"), Reply::Null);
    let waiter = |n| {
        let mut client = server.client().expect("a client");
        let refused = client.call(&lock(&token(n))).expect("an answer");
        assert!(matches!(refused, Reply::Integer(_)), "{refused:?}");
        client.call(&["SUBSCRIBE", LOCK_CHANNEL]).expect("a subscription");
        client
    };
    let waiters: Vec<Client> = (0..500).map(waiter).collect();
    assert_eq!(server.call(&unlock("holder")).expect("an answer"), Reply::Integer(1));
    let won = winners(waiters, |mut client, token| {
        assert_eq!(payload(&client.receive().expect("a message")), "0");
        assert_eq!(client.try_receive().expect("a subscription"), None);
        client.call(&lock(token)).expect("an answer") == Reply::Null
    });
    assert_eq!(won, 1);
    assert_eq!(server.call(&["HLEN", "lock"]).expect("an answer"), Reply::Integer(1));
}

#[test]
fn one_of_many_connections_gets_the_lock() {
    let server = Server::builder().config("io-threads", "2").start().expect("a server");
    assert_eq!(server.call(&lock("holder")).expect("an answer"), Reply::Null);
    let waiter = |n| {
        let mut wire = Wire::connect(server.addr(), 3);
        assert_eq!(wire.call(&lock(&token(n)))[0], b':');
        assert_eq!(wire.call(&["SUBSCRIBE", LOCK_CHANNEL])[0], b'>');
        wire
    };
    // Two descriptors each, beside those of other tests.
    let waiters: Vec<Wire> = (0..150).map(waiter).collect();
    assert_eq!(server.call(&unlock("holder")).expect("an answer"), Reply::Integer(1));
    let message = format!(">3\r\n$7\r\nmessage\r\n${}\r\n{LOCK_CHANNEL}\r\n$1\r\n0\r\n", 29);
    let won = winners(waiters, |mut wire, token| {
        assert_eq!(wire.read(), message.as_bytes());
        wire.call(&lock(token)) == b"_\r\n"
    });
    assert_eq!(won, 1);
}
