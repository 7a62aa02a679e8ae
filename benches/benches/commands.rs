//! The cost of a single command at the engine, without sockets.
//!
//! From the arguments to the encoded reply, among 1 k and 1 M held locks; each time with another
//! key, so that the caches miss at 1 M. `publish` includes taking the messages to the subscribers;
//! `release` is the five requests `WATCH`, `GET`, `MULTI`, `DEL`, `EXEC`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockwheel_benches::engine_bench::{BenchCase, EngineBench};
use lockwheel_benches::is_measurement;

const SUBSCRIBERS: [usize; 3] = [0, 1, 100];

const CASES: &[(&str, BenchCase<'static>)] = &[
    ("get", BenchCase::new("GET {string}", HELD)),
    ("set", BenchCase::new("SET {string} {owner}", "+OK\r\n").cleanup("PEXPIRE {string} 30000")),
    ("set_nx_px", BenchCase::new(LOCK, "+OK\r\n").cleanup("DEL {fresh}")),
    ("set_nx_px_held", BenchCase::new("SET {string} x NX PX 30000", "$-1\r\n")),
    ("del", BenchCase::new("DEL {fresh}", ":1\r\n").setup(LOCK)),
    ("exists", BenchCase::new("EXISTS {string}", ":1\r\n")),
    ("pexpire", BenchCase::new("PEXPIRE {string} 30000", ":1\r\n")),
    ("pttl", BenchCase::new("PTTL {string}", ":30000\r\n")),
    (
        "hincrby",
        BenchCase::new("HINCRBY {hash} {owner} 1", ":2\r\n").cleanup("HINCRBY {hash} {owner} -1"),
    ),
    ("hexists", BenchCase::new("HEXISTS {hash} {owner}", ":1\r\n")),
    ("release", BenchCase::new(RELEASE, RELEASED).setup(LOCK)),
];

const LOCK: &str = "SET {fresh} {owner} NX PX 30000";
const HELD: &str = "$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n";
const RELEASE: &str = "WATCH {fresh}; GET {fresh}; MULTI; DEL {fresh}; EXEC";
const RELEASED: &str = "+OK\r\n$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n\
                        +OK\r\n+QUEUED\r\n*1\r\n:1\r\n";

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = all
}
criterion_main!(benches);

fn all(criterion: &mut Criterion) {
    for locks in sizes() {
        let mut engine = None;
        for (name, case) in CASES {
            bench(criterion, name, locks, &mut engine, case);
        }
        for subscribers in SUBSCRIBERS {
            let work = format!("PUBLISH topic:{subscribers} released");
            let replies = format!(":{subscribers}\r\n");
            let name = format!("publish_to_{subscribers}");
            bench(criterion, &name, locks, &mut engine, &BenchCase::new(&work, &replies));
        }
    }
}

fn bench(
    criterion: &mut Criterion,
    name: &str,
    locks: usize,
    engine: &mut Option<EngineBench>,
    case: &BenchCase<'_>,
) {
    let mut group = criterion.benchmark_group("commands");
    group.bench_function(BenchmarkId::new(name, locks), |bencher| {
        let engine = engine.get_or_insert_with(|| set_up(locks));
        bencher.iter_custom(|count| engine.time(case, count));
    });
}

fn sizes() -> Vec<usize> {
    if is_measurement() { vec![1_000, 1_000_000] } else { vec![1_000] }
}

fn set_up(locks: usize) -> EngineBench {
    let mut engine = EngineBench::new(locks);
    for subscribers in SUBSCRIBERS {
        engine.subscribe(&format!("topic:{subscribers}"), subscribers);
    }
    engine
}
