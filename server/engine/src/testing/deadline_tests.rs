//! Tests that each command sees a key until its deadline and no longer, whether the wheel has
//! removed the key or the command is the first to access it.

use crate::settings::{CompatVersion, Settings};
use crate::testing::Stage;

/// The duration of the leases.
const LEASE: &str = "10";
/// Moments at which the key exists; the last one is a microsecond before the deadline.
const BEFORE: [&str; 4] = ["+0ms", "+9ms", "+9001us", "+9999us"];
/// Moments at which the key has expired.
const AFTER: [&str; 3] = ["+10ms", "+10001us", "+11ms"];

/// The command that creates `k`, a command, its reply while `k` exists, and its reply when `k` has
/// expired.
type Row = (&'static str, &'static str, &'static str, &'static str);

const STRING: &str = "SET k v";
const NUMBER: &str = "SET k 5";
const HASH: &str = "HSET k f v";
const LIST: &str = "RPUSH k a b";
const SET: &str = "SADD k a";
const ZSET: &str = "ZADD k 1 a";
const STREAM: &str = "XADD k 1-1 f v";

const ROWS: &[Row] = &[
    // Acquiring a lock.
    (STRING, "SET k w NX", "nil", "OK"),
    (STRING, "SET k w NX PX 10", "nil", "OK"),
    (STRING, "SET k w NX EX 10", "nil", "OK"),
    (STRING, "SET k w NX PXAT 1800000000000", "nil", "OK"),
    (STRING, "SET k w NX KEEPTTL", "nil", "OK"),
    (STRING, "SET k w NX GET", "\"v\"", "nil"),
    (HASH, "SET k w NX", "nil", "OK"),
    (STRING, "SETNX k w", "0", "1"),
    (STRING, "MSETNX k w other w", "0", "1"),
    (STRING, "MSETNX other w k w", "0", "1"),
    (HASH, "HSETNX k f w", "0", "1"),
    (STRING, "SET other w; RENAMENX other k", "0", "1"),
    (STRING, "SET other w; COPY other k", "0", "1"),
    (STRING, "b> SELECT 1; b> SET k w; b> MOVE k 0", "0", "1"),
    (STRING, "b> SELECT 1; b> SET k w; b> COPY k k DB 0", "0", "1"),
    (STRING, "EVAL \"return redis.call('set', KEYS[1], 'w', 'NX', 'PX', 10)\" 1 k", "nil", "OK"),
    (STRING, "EVAL \"return redis.call('setnx', KEYS[1], 'w')\" 1 k", "0", "1"),
    (STRING, "EVAL \"return redis.call('exists', KEYS[1])\" 1 k", "1", "0"),
    // Not supported by plans.
    (
        STRING,
        "EVAL \"local t = setmetatable({}, {}) return redis.call('set', KEYS[1], 'w', 'NX')\" 1 k",
        "nil",
        "OK",
    ),
    // Renewing and releasing a lock.
    (STRING, "SET k w XX", "OK", "nil"),
    (STRING, "SET k w XX KEEPTTL", "OK", "nil"),
    (STRING, "SET k w IFEQ v", "OK", "nil"),
    (STRING, "SET k w IFNE v", "nil", "OK"),
    (STRING, "SET k w GET", "\"v\"", "nil"),
    (STRING, "GETSET k w", "\"v\"", "nil"),
    (STRING, "GETDEL k", "\"v\"", "nil"),
    (STRING, "GETEX k", "\"v\"", "nil"),
    (STRING, "GETEX k PX 10", "\"v\"", "nil"),
    (STRING, "GETEX k PERSIST", "\"v\"", "nil"),
    (STRING, "PEXPIRE k 10", "1", "0"),
    (STRING, "PEXPIRE k 100 XX", "1", "0"),
    (STRING, "PEXPIRE k 100 GT", "1", "0"),
    (STRING, "PEXPIRE k 0 LT", "1", "0"),
    (STRING, "EXPIRE k 1", "1", "0"),
    (STRING, "PEXPIREAT k 1800000000000", "1", "0"),
    (STRING, "EXPIREAT k 1800000000", "1", "0"),
    (STRING, "PERSIST k", "1", "0"),
    (STRING, "DEL k", "1", "0"),
    (STRING, "UNLINK k", "1", "0"),
    (STRING, "DELEX k", "1", "0"),
    (STRING, "DELEX k IFEQ v", "1", "0"),
    (STRING, "RENAME k other", "OK", "!ERR no such key"),
    (STRING, "RENAMENX k other", "1", "!ERR no such key"),
    (STRING, "COPY k other", "1", "0"),
    (STRING, "COPY k other DB 1", "1", "0"),
    (STRING, "MOVE k 1", "1", "0"),
    // Reading a lock.
    (STRING, "GET k", "\"v\"", "nil"),
    (STRING, "MGET k", "[\"v\"]", "[nil]"),
    (STRING, "STRLEN k", "1", "0"),
    (STRING, "GETRANGE k 0 0", "\"v\"", "\"\""),
    (STRING, "EXISTS k", "1", "0"),
    (STRING, "TOUCH k", "1", "0"),
    (STRING, "TYPE k", "string", "none"),
    (STRING, "OBJECT ENCODING k", "\"embstr\"", "nil"),
    (STRING, "DIGEST k", "\"...\"", "nil"),
    (STRING, "DUMP k", "\"...\"", "nil"),
    (STRING, "RANDOMKEY", "\"k\"", "nil"),
    (STRING, "KEYS *", "[\"k\"]", "[]"),
    (STRING, "SCAN 0", "[\"0\", [\"k\"]]", "[\"0\", []]"),
    (STRING, "MULTI; GET k; EXEC", "[\"v\"]", "[nil]"),
    // Other types of values, and commands that add to a value.
    (STRING, "APPEND k w", "2", "1"),
    (STRING, "SETRANGE k 0 xy; GET k", "\"xy\"", "\"xy\""),
    (NUMBER, "INCR k", "6", "1"),
    (NUMBER, "INCRBY k 2", "7", "2"),
    (NUMBER, "DECR k", "4", "-1"),
    (NUMBER, "INCRBYFLOAT k 0.5", "\"5.5\"", "\"0.5\""),
    (NUMBER, "BITCOUNT k", "4", "0"),
    (NUMBER, "SETBIT k 2 1", "1", "0"),
    (NUMBER, "SORT l GET k", "[]", "[]"),
    (HASH, "HGET k f", "\"v\"", "nil"),
    (HASH, "HEXISTS k f", "1", "0"),
    (HASH, "HLEN k", "1", "0"),
    (HASH, "HSET k f w", "0", "1"),
    (HASH, "HDEL k f", "1", "0"),
    (HASH, "HINCRBY k n 1; HLEN k", "2", "1"),
    (HASH, "HGETALL k", "[\"f\", \"v\"]", "[]"),
    (LIST, "LPUSHX k c", "3", "0"),
    (LIST, "RPUSH k c", "3", "1"),
    (LIST, "LPOP k", "\"a\"", "nil"),
    (LIST, "RPOP k 1", "[\"b\"]", "nil-array"),
    (LIST, "LLEN k", "2", "0"),
    (LIST, "LINDEX k 0", "\"a\"", "nil"),
    (LIST, "LRANGE k 0 -1", "[\"a\", \"b\"]", "[]"),
    (LIST, "LSET k 0 c", "OK", "!ERR no such key"),
    (LIST, "LMOVE k other LEFT LEFT", "\"a\"", "nil"),
    (LIST, "LMPOP 1 k LEFT", "[\"k\", [\"a\"]]", "nil-array"),
    (LIST, "BLPOP k 0", "[\"k\", \"a\"]", ""),
    (LIST, "MULTI; BLPOP k 0; EXEC", "[[\"k\", \"a\"]]", "[nil-array]"),
    (LIST, "SORT k ALPHA", "[\"a\", \"b\"]", "[]"),
    (SET, "SADD k a", "0", "1"),
    (SET, "SISMEMBER k a", "1", "0"),
    (SET, "SCARD k", "1", "0"),
    (SET, "SPOP k", "\"a\"", "nil"),
    (SET, "SMEMBERS k", "[\"a\"]", "[]"),
    (SET, "SUNIONSTORE other k", "1", "0"),
    (ZSET, "ZADD k NX 2 a", "0", "1"),
    (ZSET, "ZADD k XX CH 2 a", "1", "0"),
    (ZSET, "ZSCORE k a", "\"1\"", "nil"),
    (ZSET, "ZINCRBY k 1 a", "\"2\"", "\"1\""),
    (ZSET, "ZPOPMIN k", "[\"a\", \"1\"]", "[]"),
    (ZSET, "ZCARD k", "1", "0"),
    (ZSET, "ZUNIONSTORE other 1 k", "1", "0"),
    (STREAM, "XLEN k", "1", "0"),
    (STREAM, "XADD k NOMKSTREAM 2-1 f v", "\"2-1\"", "nil"),
    (STREAM, "XADD k 1-1 f v", "!ERR The ID specified in XADD is equal or smaller...", "\"1-1\""),
    (STREAM, "XRANGE k - +", "[[\"1-1\", [\"f\", \"v\"]]]", "[]"),
    (STREAM, "XREAD STREAMS k 0", "[[\"k\", [[\"1-1\", [\"f\", \"v\"]]]]]", "nil-array"),
    (STREAM, "XGROUP CREATE k g 0", "OK", "!ERR The XGROUP subcommand requires the key..."),
];

fn stage(active_expiry: bool) -> Stage {
    let mut settings = Settings::default();
    settings.compat_version = CompatVersion::Redis84;
    let mut stage = Stage::new(settings);
    stage.engine.writer.set_active_expiry(active_expiry);
    stage
}

/// Runs `row` on a new server; the expected reply is that of its last command.
fn check_row(row: &Row, moment: &str, expected: &str) {
    let (setup, command, ..) = row;
    for active_expiry in [true, false] {
        // A lease that begins within a millisecond lasts slightly longer, never shorter.
        for begin in ["+0us", "+1us"] {
            if begin != "+0us" && AFTER.contains(&moment) {
                continue;
            }
            let conversation = format!(
                "{begin}; {setup}; PEXPIRE k {LEASE} => 1; {moment}; {command} => {expected}"
            );
            stage(active_expiry).check(&conversation);
        }
    }
}

/// Shows G2.
#[test]
fn every_command_sees_a_key_up_to_its_deadline() {
    for row in ROWS {
        for moment in BEFORE {
            check_row(row, moment, row.2);
        }
    }
}

/// Shows G2, G10.
#[test]
fn no_command_sees_a_key_from_its_deadline_on() {
    for row in ROWS {
        for moment in AFTER {
            check_row(row, moment, row.3);
        }
    }
}

#[test]
fn restore_refuses_a_key_up_to_its_deadline() {
    for active_expiry in [true, false] {
        for (moment, expected) in
            [("+9999us", "!BUSYKEY Target key name already exists."), ("+10ms", "OK")]
        {
            let mut stage = stage(active_expiry);
            let client = stage.client("a");
            stage.check("SET k v");
            let dump = stage.answers("DUMP k").remove(0);
            let lockwheel_resp::Reply::Bulk(payload) = dump else { panic!("no payload") };
            stage.check(&format!("PEXPIRE k {LEASE}; {moment}"));
            let argv = [b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), payload.to_vec()];
            assert_eq!(stage.run(client, &argv).0, expected, "{moment}");
        }
    }
}

#[test]
fn the_remaining_time_is_counted_down_to_the_last_millisecond() {
    for (moment, left_ms) in [
        ("+0us", 10),
        ("+1us", 9),
        ("+999us", 9),
        ("+1ms", 9),
        ("+9ms", 1),
        ("+9001us", 0),
        ("+10ms", -2),
    ] {
        stage(true).check(&format!("SET k v PX 10; {moment}; PTTL k => {left_ms}"));
        stage(false).check(&format!("SET k v PX 10; {moment}; PTTL k => {left_ms}"));
    }
}

/// Shows G3.
#[test]
fn watched_key_breaks_the_transaction_from_its_deadline_on() {
    for active_expiry in [true, false] {
        for moment in BEFORE {
            stage(active_expiry).check(&format!(
                "SET k v PX {LEASE}; WATCH k; {moment}; MULTI; GET k; EXEC => [\"v\"]"
            ));
        }
        for moment in AFTER {
            stage(active_expiry).check(&format!(
                "SET k v PX {LEASE}; WATCH k; {moment}; MULTI; GET k; EXEC => nil-array"
            ));
            // Even if the key has been created again.
            stage(active_expiry).check(&format!(
                "SET k v PX {LEASE}; WATCH k; {moment}; b> SET k v; MULTI; GET k; EXEC => nil-array"
            ));
        }
    }
}

#[test]
fn wait_ends_at_its_deadline_and_not_a_millisecond_before() {
    for command in [
        "BLPOP l 0.01",
        "BLMOVE l other LEFT LEFT 0.01",
        "BLMPOP 0.01 1 l LEFT",
        "BZPOPMIN l 0.01",
        "XREAD BLOCK 10 STREAMS l $",
    ] {
        stage(true).check(&format!("b> {command}; +9999us; b< => ; +1us; b< => nil-array"));
        stage(true).check(&format!("+1us; b> {command}; +10ms; b< => ; +999us; b< => nil-array"));
    }
    // An element pushed in the last microsecond of a wait is received; one pushed at its end is
    // not.
    stage(true)
        .check("b> BLPOP l 0.01; +9999us; RPUSH l a => 1; b< => [\"l\", \"a\"]; LLEN l => 0");
    stage(true).check("b> BLPOP l 0.01; +10ms; RPUSH l a => 1; b< => nil-array; LLEN l => 1");
}

#[test]
fn waiter_is_served_from_a_key_up_to_its_deadline() {
    stage(true).check("b> BLPOP l 0; MULTI; RPUSH l a; PEXPIRE l 0; EXEC; b< => ");
    for active_expiry in [true, false] {
        for (moment, expected) in [("+9999us", "[\"l\", \"a\"]"), ("+10ms", "")] {
            stage(active_expiry).check(&format!(
                "b> SELECT 1; RPUSH l a; PEXPIRE l {LEASE}; b> BLPOP l 0; {moment}; MOVE l 1; \
                 b< => {expected}"
            ));
        }
    }
}
