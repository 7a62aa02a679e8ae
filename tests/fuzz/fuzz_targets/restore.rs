//! Random bytes as the payload of `RESTORE`, with a correct checksum. Checks that nothing panics,
//! and that the restored value can be dumped, restored again and read.

use bytes::BytesMut;
use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::store::serialised::{seal, unseal};
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_resp::Reply;
use lockwheel_resp::decode::decode;

const NOW: Time = Time::at(Millis(1_700_000_000_000));

pub(crate) fn check(body: &[u8]) {
    let mut engine = Engine::new(Settings::default(), Process::default(), NOW, [1, 2, 3, 4]);
    let client = engine.connect(Origin::default(), NOW);
    let payload = seal(body.to_vec());
    if !matches!(run(&mut engine, client, &[b"RESTORE", b"k", b"0", &payload]), Reply::Simple(_)) {
        return;
    }
    let Reply::Bulk(dumped) = run(&mut engine, client, &[b"DUMP", b"k"]) else {
        panic!("the restored value cannot be dumped")
    };
    assert!(unseal(&dumped).is_some());
    let again = run(&mut engine, client, &[b"RESTORE", b"l", b"0", &dumped]);
    assert_eq!(again, Reply::OK);
    for read in [
        &[b"GET".as_slice(), b"k"][..],
        &[b"LRANGE", b"k", b"0", b"-1"],
        &[b"SMEMBERS", b"k"],
        &[b"HGETALL", b"k"],
        &[b"ZRANGE", b"k", b"0", b"-1", b"WITHSCORES"],
        &[b"XINFO", b"STREAM", b"k", b"FULL"],
        &[b"XINFO", b"GROUPS", b"k"],
        &[b"SORT", b"k", b"ALPHA"],
        &[b"MEMORY", b"USAGE", b"k"],
    ] {
        run(&mut engine, client, read);
    }
    // A restored value may be changed like any other.
    for write in [
        &[b"APPEND".as_slice(), b"k", b"v"][..],
        &[b"RPUSH", b"k", b"v"],
        &[b"LPOP", b"k"],
        &[b"SADD", b"k", b"v"],
        &[b"SPOP", b"k"],
        &[b"HINCRBY", b"k", b"v", b"1"],
        &[b"ZINCRBY", b"k", b"1", b"v"],
        &[b"ZPOPMIN", b"k"],
        &[b"XADD", b"k", b"*", b"f", b"v"],
        &[b"XTRIM", b"k", b"MAXLEN", b"~", b"1"],
        &[b"DEL", b"k"],
    ] {
        run(&mut engine, client, write);
    }
}

fn run(engine: &mut Engine, client: ClientId, argv: &[&[u8]]) -> Reply {
    let mut out = BytesMut::new();
    engine.run(NOW, client, argv, &mut out);
    let (reply, used) = decode(&out).expect("well-formed").expect("a whole reply");
    assert_eq!(used, out.len());
    reply
}
