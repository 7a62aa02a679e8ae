//! The cost of parsing the requests of lock clients, and of encoding their replies.
//!
//! - `parse`: a request in the buffer with its arguments; in a pipeline, all 16.
//! - `encode`: one small reply appended to a buffer with enough capacity.

use std::hint::black_box;
use std::time::Duration;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockwheel_resp::{Limits, Parser, Protocol, Reply, encode, encode_request};

const PIPELINE_REQUESTS: usize = 16;
const TOKEN: &str = "0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1";
const UNLOCK_SHA1: &str = "e9f69f2beb755be68b5e456ee2ce9aadfbc4ebf4";

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = parsing, encoding
}
criterion_main!(benches);

fn parsing(criterion: &mut Criterion) {
    let lock = ["SET", "lock:orders:4711", TOKEN, "NX", "PX", "30000"];
    let unlock = ["EVALSHA", UNLOCK_SHA1, "1", "lock:orders:4711", TOKEN];
    let cases = [
        ("set_nx_px", lock.as_slice(), 1),
        ("evalsha_pipeline_of_16", unlock.as_slice(), PIPELINE_REQUESTS),
    ];
    let mut group = criterion.benchmark_group("parse");
    for (name, request, requests) in cases {
        let mut wire = BytesMut::new();
        for _ in 0..requests {
            encode_request(request, &mut wire);
        }
        group.throughput(Throughput::Elements(requests as u64));
        group.bench_function(name, |bencher| {
            let mut parser = Parser::new(Limits::default());
            parser.set_authenticated(true);
            bencher.iter(|| {
                let args = parse_all(&mut parser, black_box(&wire));
                assert_eq!(args, requests * request.len());
            });
        });
    }
}

/// Parses every request as a connection does; returns the total number of arguments.
fn parse_all(parser: &mut Parser, mut wire: &[u8]) -> usize {
    let mut args = 0;
    while let Ok(Some(end)) = parser.parse(wire) {
        args += parser.iter(wire).map(black_box).count();
        wire = &wire[end..];
    }
    args
}

fn encoding(criterion: &mut Criterion) {
    let cases = [
        ("ok", Reply::OK),
        ("null", Reply::Null),
        ("integer", Reply::Integer(29_987)),
        ("bulk", Reply::bulk(TOKEN)),
    ];
    let mut group = criterion.benchmark_group("encode");
    for (name, reply) in cases {
        for (version, protocol) in [("resp2", Protocol::Resp2), ("resp3", Protocol::Resp3)] {
            group.bench_function(format!("{name}/{version}"), |bencher| {
                let mut out = BytesMut::with_capacity(1024);
                bencher.iter(|| {
                    out.clear();
                    encode(black_box(&reply), protocol, &mut out);
                    assert!(!out.is_empty());
                });
            });
        }
    }
}
