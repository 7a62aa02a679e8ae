//! The memory of clients that wait for native locks, without their connections, and the cost of one
//! that leaves: many clients of one lock, and many locks with one client each. Clients leave in a
//! random order.
//!
//! `cargo bench -p lockwheel-benches --bench waiters` prints the figures; as a test it only checks
//! that no client waits in the end.

#![allow(clippy::print_stdout)] // A program with text output.

use bytes::BytesMut;
use lockwheel_benches::{Random, is_measurement, time};
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_tests::process::resident_bytes;

/// The engine's time, which does not advance.
const NOW: Time = Time::at(Millis(1_700_000_000_000));

fn main() {
    let (few, many) = if is_measurement() { (1_000, 1_000_000) } else { (10, 100) };
    for (locks, clients) in [(1, few), (1, many / 10), (1, many), (many, many)] {
        measure(locks, clients);
    }
}

fn measure(locks: usize, clients: usize) {
    let mut engine = Engine::new(Settings::default(), Process::default(), NOW, [1, 2, 3, 4]);
    let holder = engine.connect(Origin::default(), NOW);
    for lock in 0..locks {
        assert_eq!(acquire(&mut engine, holder, lock, "holder-0000000", &[]), Flow::Next);
    }
    let mut waiting: Vec<ClientId> =
        (0..clients).map(|_| engine.connect(Origin::default(), NOW)).collect();
    let before_bytes = resident_bytes();
    for (number, &client) in waiting.iter().enumerate() {
        let owner = format!("worker-{number:07}");
        let flow = acquire(&mut engine, client, number % locks, &owner, &[b"WAIT", b"60000"]);
        assert_eq!(flow, Flow::Wait);
    }
    let bytes = resident_bytes().saturating_sub(before_bytes);
    let mut random = Random::new();
    for last in (1..clients).rev() {
        let other = random.below(u32::try_from(last + 1).expect("a small number"));
        waiting.swap(last, other as usize);
    }
    let elapsed = time(|| {
        for &client in &waiting {
            engine.disconnect(client);
        }
    });
    let mut info = BytesMut::new();
    engine.run(NOW, holder, &[b"INFO", b"clients"], &mut info);
    assert!(String::from_utf8_lossy(&info).contains("blocked_clients:0\r\n"));
    println!(
        "{locks} locks, {clients} waiting clients: {} bytes and {} ns to leave for each client",
        bytes / clients as u64,
        elapsed.as_nanos() / clients as u128,
    );
}

fn acquire(
    engine: &mut Engine,
    client: ClientId,
    lock: usize,
    owner: &str,
    options: &[&[u8]],
) -> Flow {
    let key = format!("order:{lock:08}");
    let words: [&[u8]; 5] = [b"LOCK.ACQUIRE", key.as_bytes(), owner.as_bytes(), b"TTL", b"30000"];
    engine.run(NOW, client, &[&words, options].concat(), &mut BytesMut::new())
}
