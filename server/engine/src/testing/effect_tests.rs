//! Every effect is necessary: if one kind is not recorded, the shadow finds a difference.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::settings::Settings;
use crate::store::effects::TAGS;
use crate::testing::Stage;
use crate::timing::time::Millis;

/// Records every kind of effect that changes the state.
fn converse(stage: &mut Stage) {
    // Users are a part of the state if the log is replicated.
    stage.engine.lead(0, stage.time());
    stage.check("ACL SETUSER u on => OK; ACL DELUSER u => 1");
    stage.check(
        "SET k v => OK; SET k w PX 5 => OK; +5ms; GET k => nil; SET k 7; EXPIRE k 10 => 1; \
         PERSIST k => 1; APPEND k x => 2; SETRANGE k 4 y => 5; SETBIT b 100 1 => 0; \
         RENAME k l => OK; COPY l m => 1; MOVE m 1 => 1; DEL l => 1",
    );
    let long = "x".repeat(9_000);
    stage.check(&format!(
        "HSET h f v g w => 2; HINCRBY h n 1 => 1; HDEL h g => 1; HSET h f {long} => 0; \
         HDEL h n => 1"
    ));
    stage.check(&format!(
        "RPUSH l a b c d e b => 6; LPOP l => \"a\"; RPOP l => \"b\"; LINSERT l BEFORE c z => 5; \
         LSET l 0 y => OK; LREM l 1 z => 1; LTRIM l 0 2 => OK; RPUSH l {long} => 4; \
         RPOP l => \"{long}\""
    ));
    stage.check(&format!(
        "SADD s 1 2 3 => 3; SADD s a => 1; SREM s 2 => 1; SADD s {long} => 1; \
         ZADD z 1 a 2 b 3 c 4 d => 4; ZREM z a => 1; ZREMRANGEBYRANK z 0 0 => 1; \
         ZADD z 5 {long} => 1; ZADD z 6 c => 0"
    ));
    stage.check(
        "XADD x 1-1 f v; XADD x 2-1 f v; XADD x 3-1 g w; XADD x 4-1 f v; XDEL x 3-1 => 1; \
         XTRIM x MAXLEN 2 => 1; XSETID x 9-9 => OK; XGROUP CREATE x g 0 => OK; \
         XREADGROUP GROUP g c COUNT 1 STREAMS x >; XREADGROUP GROUP g d STREAMS x >; \
         XCLAIM x g d 0 2-1; XACK x g 2-1 => 1; XGROUP SETID x g 1 => OK; \
         XGROUP CREATECONSUMER x g e => 1; XGROUP DELCONSUMER x g d => 1; \
         XGROUP DESTROY x g => 1",
    );
    stage.check(
        "LOCK.ACQUIRE o a TTL 90; LOCK.RENEW o a TTL 80; LOCK.RELEASE o a; \
         LOCK.ACQUIRE o a TTL 90 SHARED; LOCK.ACQUIRE o b TTL 90 SHARED; LOCK.RELEASE o a",
    );
    stage.check("SWAPDB 0 1 => OK; SET p v PX 100; SWAPDB 1 0 => OK");
    let time = stage.time();
    stage.engine.postpone(Millis(50), time);
    stage.check("SELECT 1; PTTL p => 150; FLUSHDB => OK; SELECT 0");
    for name in ["one", "two"] {
        let function = format!("redis.register_function('{name}', function() return 1 end)");
        stage.check(&format!("FUNCTION LOAD \"#!lua name={name}\n{function}\" => \"{name}\""));
    }
    stage.check("FUNCTION DELETE one => OK; FUNCTION FLUSH => OK; FLUSHALL => OK");
}

#[test]
fn effects_give_the_state_of_the_engine() {
    converse(&mut Stage::new(Settings::default()));
}

#[test]
fn missing_effect_of_any_kind_is_found() {
    // `TokensIssued` is part of snapshots only.
    const OTHERS: [&str; 5] = ["Event", "Touched", "Published", "Reserved", "TokensIssued"];
    let changes_state = |name: &str| !OTHERS.contains(&name);
    for &(tag, name) in TAGS.iter().filter(|(_, name)| changes_state(name)) {
        let mut stage = Stage::new(Settings::default());
        stage.engine.writer.leave_out(tag);
        let outcome = catch_unwind(AssertUnwindSafe(|| converse(&mut stage)));
        assert!(outcome.is_err(), "the shadow does not find that {name} is not recorded");
    }
}
