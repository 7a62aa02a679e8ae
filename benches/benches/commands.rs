//! What does a single command cost at the engine, without sockets?
//!
//! Arguments in, encoded reply out, among 1 k and 1 M locks held; each time for another key, so at
//! 1 M the caches miss. `publish` includes taking what the subscribers are to receive; `release`
//! is the five requests of `WATCH`, `GET`, `MULTI`, `DEL`, `EXEC`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockwheel_benches::measuring;
use lockwheel_benches::stage::{Conversation, Stage};

const SUBSCRIBERS: [usize; 3] = [0, 1, 100];

const CASES: &[(&str, Conversation<'static>)] = &[
    ("get", Conversation::new("GET {string}", HELD)),
    ("set", Conversation::new("SET {string} {owner}", "+OK\r\n").after("PEXPIRE {string} 30000")),
    ("set_nx_px", Conversation::new(LOCK, "+OK\r\n").after("DEL {fresh}")),
    ("set_nx_px_held", Conversation::new("SET {string} x NX PX 30000", "$-1\r\n")),
    ("del", Conversation::new("DEL {fresh}", ":1\r\n").before(LOCK)),
    ("exists", Conversation::new("EXISTS {string}", ":1\r\n")),
    ("pexpire", Conversation::new("PEXPIRE {string} 30000", ":1\r\n")),
    ("pttl", Conversation::new("PTTL {string}", ":30000\r\n")),
    (
        "hincrby",
        Conversation::new("HINCRBY {hash} {owner} 1", ":2\r\n").after("HINCRBY {hash} {owner} -1"),
    ),
    ("hexists", Conversation::new("HEXISTS {hash} {owner}", ":1\r\n")),
    ("release", Conversation::new(RELEASE, RELEASED).before(LOCK)),
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
        let mut stage = None;
        for (name, conversation) in CASES {
            bench(criterion, name, locks, &mut stage, conversation);
        }
        for subscribers in SUBSCRIBERS {
            let work = format!("PUBLISH topic:{subscribers} released");
            let replies = format!(":{subscribers}\r\n");
            let name = format!("publish_to_{subscribers}");
            bench(criterion, &name, locks, &mut stage, &Conversation::new(&work, &replies));
        }
    }
}

fn bench(
    criterion: &mut Criterion,
    name: &str,
    locks: usize,
    stage: &mut Option<Stage>,
    conversation: &Conversation<'_>,
) {
    let mut group = criterion.benchmark_group("commands");
    group.bench_function(BenchmarkId::new(name, locks), |bencher| {
        let stage = stage.get_or_insert_with(|| set_up(locks));
        bencher.iter_custom(|count| stage.time(conversation, count));
    });
}

fn sizes() -> Vec<usize> {
    if measuring() { vec![1_000, 1_000_000] } else { vec![1_000] }
}

fn set_up(locks: usize) -> Stage {
    let mut stage = Stage::new(locks);
    for subscribers in SUBSCRIBERS {
        stage.subscribe(&format!("topic:{subscribers}"), subscribers);
    }
    stage
}
