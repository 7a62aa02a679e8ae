//! Tests of the lock view, through `LOCKWHEEL LOCKS`.

use lockwheel_resp::Reply;
use serde_json::Value;

use crate::replication::nodes::{Address, Nodes};
use crate::settings::{Permission, Settings};
use crate::testing::Stage;
use crate::timing::time::Millis;

const LOCK: &str = "EVAL \"if redis.call('exists', KEYS[1]) == 0 or \
    redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); \
    return nil end; return redis.call('pttl', KEYS[1])\" 1 order 30000";
const RENEW: &str = "EVAL \"if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
    return redis.call('pexpire', KEYS[1], ARGV[1]) end; return 0\" 1 order 30000";
const UNLOCK: &str = "EVAL \"if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then \
    redis.call('pexpire', KEYS[1], 30000); return 0 else redis.call('del', KEYS[1]); \
    redis.call('publish', 'redisson_lock__channel:{order}', '0'); return 1 end\" 1 order";
const A: &str = "1f6e2c1a-2222-4333-8444-55d555555555:1";
const B: &str = "9a9b9999-2222-4333-8444-55d555555555:1";

fn ask(stage: &mut Stage, request: &str) -> Value {
    match &stage.answers(request)[..] {
        [Reply::Bulk(text)] => serde_json::from_slice(text).expect("JSON"),
        other => panic!("{request}: {other:?}"),
    }
}

/// The lock at `order`; null if there is none.
fn order(stage: &mut Stage) -> Value {
    ask(stage, "v> LOCKWHEEL LOCKS KEY order")["lock"].clone()
}

/// The events of all locks, each with its client.
fn events(stage: &mut Stage) -> Vec<String> {
    let changes = ask(stage, "v> LOCKWHEEL LOCKS SINCE 0");
    let events = changes["events"].as_array().expect("events");
    let text = |it: &Value| format!("{} {} {}", it["event"], it["key"], it["client"]);
    events.iter().map(|it| text(it).replace('"', "")).collect()
}

/// The locks in the reply to a request of `v`.
fn locks(stage: &mut Stage, request: &str) -> Vec<Value> {
    ask(stage, &format!("v> {request}"))["locks"].as_array().expect("locks").clone()
}

/// A stage with the connected clients `v` (1), `a` (2) and `b` (3).
fn stage() -> Stage {
    let mut stage = Stage::new(Settings::default());
    stage.check("v> PING; a> CLIENT SETNAME worker; b> PING");
    stage
}

/// A node that leads again, or a view that is on again, has not seen what has happened meanwhile.
#[test]
fn reader_of_events_before_new_notes_has_missed_some() {
    let mut stage = stage();
    stage.check("a> SET order x NX PX 30000 => OK");
    let known = ask(&mut stage, "v> LOCKWHEEL LOCKS SINCE 0")["sequence"].clone();
    stage.check("v> CONFIG SET lock-view no; CONFIG SET lock-view yes; a> DEL order");
    for sequence in ["0", &known.to_string()] {
        let request = format!("v> LOCKWHEEL LOCKS SINCE {sequence}");
        assert_eq!(ask(&mut stage, &request)["missed"], true, "{sequence}");
    }
}

#[test]
fn each_owner_of_a_native_lock_has_events() {
    let mut stage = stage();
    stage.check(
        "a> LOCK.ACQUIRE order one TTL 30000 SHARED; b> LOCK.ACQUIRE order two TTL 30000 SHARED; \
         b> LOCK.ACQUIRE order two TTL 30000 SHARED; b> LOCK.RELEASE order two => 1; \
         b> LOCK.RELEASE order two => 0; b> LOCK.ACQUIRE order three TTL 100 SHARED BOUND; +200ms; \
         a> LOCK.RENEW order one TTL 30000 => 1; w> LOCK.ACQUIRE order four TTL 9 WAIT 90; \
         INFO lockwheel => ...native_locks_waiting_clients:1...; a> LOCK.RELEASE order one => 0; \
         w< => ...acquired...; +9ms; b> LOCK.ACQUIRE order two TTL 30000 BOUND; b!; +2000ms",
    );
    let expected = [
        "acquired order 2",
        "acquired order 3",
        "released order 3",
        "acquired order 3",
        "expired order 3",
        "renewed order 2",
        "waiting order 4",
        "released order 2",
        "acquired order 4",
        "expired order 4",
        "acquired order 3",
        "expired order 3",
    ];
    assert_eq!(events(&mut stage), expected);
}

#[test]
fn lock_of_redisson_is_shown_from_acquisition_to_release() {
    let mut stage = stage();
    stage.check(&format!("a> {LOCK} {A} => nil; +10000ms; a> {RENEW} {A} => 1; +5000ms"));
    let lock = order(&mut stage);
    assert_eq!(lock["kind"], "redisson-lock", "{lock}");
    assert_eq!(lock["confidence"], "certain");
    assert_eq!(lock["since_ms"], 1_700_000_000_000_i64);
    assert_eq!((&lock["lease_ms"], &lock["lease_full_ms"]), (&25_000.into(), &30_000.into()));
    assert_eq!(lock["renewals"], 1);
    assert_eq!(lock["holders"][0]["client"], 2);
    assert_eq!(lock["holders"][0]["name"], "worker");
    assert_eq!(lock["holders"][0]["user"], "default");
    assert!(!lock.to_string().contains(A), "a token is shown: {lock}");

    stage.check(&format!("a> {LOCK} {A} => nil"));
    let lock = order(&mut stage);
    assert_eq!((&lock["holders"][0]["count"], &lock["renewals"]), (&2.into(), &1.into()));

    stage.check(&format!("b> {LOCK} {B} => 30000; b> SUBSCRIBE redisson_lock__channel:{{order}}"));
    let lock = order(&mut stage);
    assert_eq!(lock["waiters"][0]["client"], 3, "{lock}");
    assert_eq!((&lock["waiters"][0]["how"], &lock["refusals"]), (&"subscribed".into(), &1.into()));

    stage.check(&format!("a> {UNLOCK} {A} => 0; a> {UNLOCK} {A} => 1"));
    assert_eq!(order(&mut stage), Value::Null);
    let expected = [
        "acquired order 2",
        "renewed order 2",
        "refused order 3",
        "waiting order 3",
        "released order 2",
    ];
    assert_eq!(events(&mut stage), expected);
}

#[test]
fn lease_that_ends_is_an_event_of_its_holder() {
    let mut stage = stage();
    stage.check("a> SET lock:1 token NX PX 100; b> SET lock:1 other NX PX 100 => nil; +100ms");
    stage.check("b> GET lock:1 => nil");
    let changes = ask(&mut stage, "v> LOCKWHEEL LOCKS SINCE 0");
    assert_eq!(events(&mut stage), ["acquired lock:1 2", "refused lock:1 3", "expired lock:1 2"]);
    assert_eq!(changes["events"][2]["at_ms"], 1_700_000_000_100_i64);
    assert_eq!(changes["locks"], Value::Array(vec![]));
}

#[test]
fn each_reader_of_a_lock_is_shown_with_its_client() {
    let mut stage = stage();
    let read = "EVAL \"redis.call('hset', KEYS[1], 'mode', 'read'); \
        redis.call('hincrby', KEYS[1], ARGV[1], 1); \
        redis.call('pexpire', KEYS[1], 30000)\" 1 order";
    stage.check(&format!("a> {read} {A}; b> {read} {B}"));
    let lock = order(&mut stage);
    assert_eq!(lock["kind"], "redisson-read-lock");
    let clients: Vec<&Value> =
        lock["holders"].as_array().expect("holders").iter().map(|it| &it["client"]).collect();
    assert_eq!(clients, [2, 3], "{lock}");
    stage.check(&format!("a> EVAL \"redis.call('hdel', KEYS[1], ARGV[1])\" 1 order {A}"));
    let holders = order(&mut stage)["holders"].clone();
    assert_eq!((holders.as_array().map(Vec::len), &holders[0]["client"]), (Some(1), &3.into()));
}

#[test]
fn holder_is_the_last_client_that_has_acquired_the_lock() {
    let mut stage = stage();
    stage.check("a> SET order token1234 NX; b> SET order x NX; a> DEL order; +1ms");
    stage.check("b> SET order token5678 NX; a> SET order x NX => nil");
    let lock = order(&mut stage);
    assert_eq!(lock["holders"][0]["client"], 3);
    assert_eq!(lock["waiters"][0]["client"], 2);
    stage.check("a> GETSET order token9");
    assert_eq!(order(&mut stage)["holders"][0]["client"], 2);
}

#[test]
fn whole_lease_is_the_one_that_was_asked_for() {
    let mut stage = stage();
    stage.check("+1us; a> SET order token1234 NX PX 30000");
    assert_eq!(order(&mut stage)["lease_full_ms"], 30_000);
}

#[test]
fn refused_client_waits_for_some_seconds() {
    let mut stage = stage();
    stage.check("a> SET order token1234 NX PX 90000; b> SET order other NX PX 9000");
    assert_eq!(order(&mut stage)["waiters"][0]["how"], "refused");
    stage.check("+5000ms");
    let lock = order(&mut stage);
    assert_eq!((&lock["waiters"], &lock["refusals"]), (&Value::Array(vec![]), &1.into()));
    stage.check("+55000ms");
    assert_eq!(order(&mut stage)["refusals"], 0);
}

#[test]
fn keys_that_are_no_locks_are_not_shown() {
    let mut stage = stage();
    stage.check("a> SET user:1 x; a> HSET session:1 token abc; a> SET n 1 NX; a> INCR n");
    stage.check("a> EVAL \"redis.call('set', 'hits', 1)\" 0; a> LPUSH lock:list x");
    stage.check("a> SET redisson_unlock_latch:{order} 1 PX 1000 NX");
    let locks = locks(&mut stage, "LOCKWHEEL LOCKS");
    let keys: Vec<&str> = locks.iter().filter_map(|it| it["key"].as_str()).collect();
    assert_eq!(keys, ["n"], "only `SET NX` may make a lock");
    assert_eq!(locks[0]["confidence"], "possible");
}

#[test]
fn lock_is_released_by_force_and_its_waiters_are_woken() {
    let mut stage = stage();
    stage.check(&format!("a> {LOCK} {A}; b> SUBSCRIBE redisson_lock__channel:{{order}}; b<"));
    stage.check("v> LOCKWHEEL RELEASE order => 1; v> EXISTS order => 0");
    stage.check("b< => [\"message\", \"redisson_lock__channel:{order}\", \"0\"]");
    stage.check("v> LOCKWHEEL RELEASE order => 0; SET plain x; v> LOCKWHEEL RELEASE plain => 0");
    assert_eq!(events(&mut stage).last().map(String::as_str), Some("forced order 1"));
}

#[test]
fn lock_of_the_named_database_is_released() {
    let mut stage = stage();
    for (number, token) in [(0, "x"), (3, "y"), (5, "z")] {
        stage.check(&format!("a> SELECT {number}; a> SET order {token} NX PX 9000 => OK"));
    }
    stage.check("v> LOCKWHEEL RELEASE order DATABASE 3 => 1; v> GET order => \"x\"");
    stage.check("a> GET order => \"z\"; a> SELECT 3; a> EXISTS order => 0");
    stage.check("v> LOCKWHEEL RELEASE order DATABASE 3 => 0; a> LOCKWHEEL RELEASE order => 0");
    stage.check("v> SELECT 5; v> LOCKWHEEL RELEASE order => 1; v> LOCKWHEEL RELEASE order => 0");
    stage.check("v> SELECT 0; v> GET order => \"x\"");
}

#[test]
fn user_sees_only_keys_that_it_may_read() {
    let mut stage = stage();
    stage.check(
        "a> SET lock:mine x NX; a> SET lock:other x NX; ACL SETUSER u on nopass +@all ~*mine",
    );
    stage.check("v> AUTH u any");
    let locks = locks(&mut stage, "LOCKWHEEL LOCKS");
    assert_eq!(locks.iter().map(|it| &it["key"]).collect::<Vec<_>>(), ["lock:mine"]);
    assert_eq!(events(&mut stage), ["acquired lock:mine 2"]);
    let other = ask(&mut stage, "v> LOCKWHEEL LOCKS KEY lock:other");
    assert_eq!((&other["lock"], &other["history"]), (&Value::Null, &Value::Array(vec![])));
    stage.check("v> LOCKWHEEL RELEASE lock:other => !NOPERM...");
    stage.check(
        "ACL SETUSER u resetkeys ~*mine -@all +@lock; v> LOCKWHEEL LOCKS => ...lock:mine...",
    );
    stage.check("v> LOCKWHEEL RELEASE lock:mine => !NOPERM...");
}

#[test]
fn all_locks_are_read_in_parts() {
    let mut stage = stage();
    for n in 0..100 {
        stage.check(&format!("a> SELECT {}; a> SET lock:{n} token NX PX 1000", n % 3));
    }
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let part = ask(&mut stage, &format!("v> LOCKWHEEL LOCKS CURSOR {cursor} COUNT 7"));
        let locks = part["locks"].as_array().expect("locks").iter();
        keys.extend(locks.map(|it| it["key"].as_str().unwrap_or_default().to_owned()));
        cursor = part["cursor"].as_str().expect("a cursor").to_owned();
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
    assert_eq!(locks(&mut stage, "LOCKWHEEL LOCKS MATCH lock:1?").len(), 10);
}

#[test]
fn notes_follow_keys_that_are_moved_and_emptied() {
    let mut stage = stage();
    stage.check("a> SET lock:1 x NX; a> RENAME lock:1 order; a> SET lock:2 x NX; a> MOVE lock:2 1");
    assert_eq!(order(&mut stage)["holders"][0]["client"], 2);
    let moved = ask(&mut stage, "v> LOCKWHEEL LOCKS KEY lock:2 DATABASE 1");
    assert_eq!(moved["lock"]["holders"][0]["client"], 2);
    stage.check("a> SWAPDB 0 1; a> FLUSHDB; a> SELECT 1");
    let locks = locks(&mut stage, "LOCKWHEEL LOCKS");
    assert_eq!((locks.len(), &locks[0]["database"]), (1, &1.into()));
    stage.check("FLUSHALL; INFO lockwheel => ...locks_held:0\\r\\n...");
}

#[test]
fn view_can_be_turned_off_and_finds_the_locks_when_it_is_turned_on() {
    let mut stage = stage();
    stage.check("CONFIG SET lock-view no; v> LOCKWHEEL LOCKS => !ERR there is no lock view: ...");
    stage.check(
        "a> SET lock:1 token NX PX 9000; a> SET page:1 text PX 9000; CONFIG SET lock-view yes",
    );
    let locks = locks(&mut stage, "LOCKWHEEL LOCKS");
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!((&locks[0]["key"], &locks[0]["since_ms"]), (&"lock:1".into(), &0.into()));
    assert_eq!(ask(&mut stage, "v> LOCKWHEEL LOCKS SINCE 99")["missed"], true);
}

#[test]
fn numbers_of_events_go_on_when_the_locks_are_found_again() {
    let mut stage = stage();
    stage.engine.settings.enable_debug_command = Permission::Yes;
    stage.check("a> SET lock:1 token NX PX 9000; v> DEBUG RELOAD => OK");
    assert_eq!(events(&mut stage), ["acquired lock:1 2", "removed  1"]);
    let lock = &locks(&mut stage, "LOCKWHEEL LOCKS")[0];
    assert_eq!((&lock["key"], &lock["since_ms"]), (&"lock:1".into(), &0.into()));
}

#[test]
fn long_keys_with_the_same_beginning_are_distinguished() {
    let mut stage = stage();
    let [long, other] = ["a", "b"].map(|end| format!("lock:{}{end}", "x".repeat(300)));
    stage.check(&format!("a> SET {long} token1234 NX PX 9000; b> SET {other} token5678 NX PX 100"));
    stage.check(&format!("b> SET {long} x NX => nil"));
    let shown = ask(&mut stage, &format!("v> LOCKWHEEL LOCKS KEY {long}"));
    assert_eq!(shown["lock"]["refusals"], 1, "{shown}");
    assert_eq!(shown["lock"]["waiters"][0]["client"], 3);
    assert_eq!(shown["history"].as_array().map(Vec::len), Some(2), "{shown}");
    assert_eq!(
        (&shown["history"][1]["event"], &shown["history"][1]["key"]),
        (&"refused".into(), &long.clone().into())
    );
    let changes = ask(&mut stage, "v> LOCKWHEEL LOCKS SINCE 1");
    assert_eq!(changes["locks"].as_array().map(Vec::len), Some(2), "{changes}");
    stage.check("+100ms");
    let (acquired, refused) = (format!("acquired {long} 2"), format!("refused {long} 3"));
    assert_eq!(events(&mut stage), [&acquired, &refused, "removed  3"]);
}

#[test]
fn user_does_not_see_a_long_key_by_its_beginning() {
    let mut stage = stage();
    let [mine, other] = ["m", "o"].map(|end| format!("lock:{}{end}", "x".repeat(300)));
    stage.check(&format!("a> SET {mine} x NX; a> SET {other} x NX PX 100"));
    stage.check("ACL SETUSER u on nopass +@all ~*x ~*m; v> AUTH u any");
    assert_eq!(events(&mut stage), [format!("acquired {mine} 2")]);
    stage.check("+100ms");
    assert_eq!(events(&mut stage), [format!("acquired {mine} 2"), "removed  2".to_owned()]);
}

#[test]
fn native_lock_is_shown_with_its_owner_if_the_user_may_see_it() {
    let mut stage = stage();
    stage.check("a> LOCK.ACQUIRE order me TTL 9000 META host-7");
    let lock = order(&mut stage);
    let holder = lock["holders"][0].clone();
    assert_eq!((&holder["owner"], &holder["meta"]), (&"me".into(), &"host-7".into()), "{lock}");
    stage.check(&format!("LOCK.VALIDATE order {} => 1", holder["token"]));

    stage.check("ACL SETUSER u on nopass ~* +lockwheel; v> AUTH u any");
    let hidden = order(&mut stage)["holders"][0].clone();
    let shown = ["owner", "token", "meta"].map(|field| hidden.get(field));
    assert_eq!((shown, &hidden["client"]), ([None; 3], &2.into()));
    // One selector permits both commands, each for other keys.
    stage.check("ACL SETUSER u (+lock.info ~other)");
    assert_eq!(order(&mut stage)["holders"][0].get("owner"), None);
    stage.check("ACL SETUSER u (+lock.info %R~ord*)");
    assert_eq!(order(&mut stage)["holders"][0]["owner"], "me");
}

#[test]
fn lock_with_the_name_of_data_is_live_and_has_a_history() {
    let mut stage = stage();
    let redisson = |script: &str| script.replace("order", "stock:42");
    stage.check(&format!(
        "a> LOCK.ACQUIRE queue:1 me TTL 9000; a> SET cache-refresh token NX PX 9000; a> {} {A}",
        redisson(LOCK),
    ));
    let acquired = ["queue:1", "cache-refresh", "stock:42"].map(|key| format!("acquired {key} 2"));
    assert_eq!(events(&mut stage), acquired);
    stage.check(&format!(
        "a> LOCK.RELEASE queue:1 me; a> DEL cache-refresh; a> {} {A} => 1",
        redisson(UNLOCK),
    ));
    let released = ["queue:1", "cache-refresh", "stock:42"].map(|key| format!("released {key} 2"));
    let all = [acquired, released].concat();
    assert_eq!(events(&mut stage), all);
    for key in ["queue:1", "cache-refresh", "stock:42"] {
        let history = ask(&mut stage, &format!("v> LOCKWHEEL LOCKS KEY {key}"))["history"].clone();
        let events: Vec<&Value> =
            history.as_array().expect("events").iter().map(|it| &it["event"]).collect();
        assert_eq!(events, ["acquired", "released"], "{key}");
    }
    // A counter of a script is no lock.
    let count = "redis.call('incr', KEYS[1]) redis.call('pexpire', KEYS[1], 9000)";
    stage.check(&format!("a> EVAL \"{count}\" 1 rate:x; a> DEL rate:x => 1"));
    assert_eq!(events(&mut stage), all);
}

/// A server that follows the log of a leader with these locks.
fn follower(commands: &str) -> Stage {
    let mut leader = Stage::new(Settings::default());
    leader.engine.lead(0, leader.time());
    leader.check(commands);
    let mut effects = Vec::new();
    leader.engine.take_units(|units| effects.extend_from_slice(units.effects));
    let mut stage = stage();
    stage.engine.follow();
    let leader = Address { host: "10.0.0.1".into(), port: 9 };
    stage.set_nodes(Nodes { leader: Some(leader), ..Nodes::default() });
    let time = stage.time();
    stage.engine.apply_committed(&effects, Millis(time.now.0), time).expect("effects");
    stage
}

/// The reply of a follower to a request of `v`, which it serves when it has asked the leader.
fn ask_follower(stage: &mut Stage, request: &str) -> Value {
    stage.hold("v", request);
    let reads = stage.engine.held_reads().expect("a held read");
    stage.engine.grant_reads(reads);
    assert_eq!(stage.resumed().len(), 1);
    ask(stage, &format!("v> {request}"))
}

#[test]
fn follower_shows_what_the_state_has_and_the_leader() {
    let mut stage = follower(
        "SET lock:1 token NX PX 9000; LOCK.ACQUIRE queue:1 me TTL 9000; SET page text PX 9000",
    );
    // This takes no notes, with which later changes of the log would not agree.
    stage.check("CONFIG SET lock-view yes => OK");
    let reply = ask_follower(&mut stage, "LOCKWHEEL LOCKS");
    assert_eq!(reply["leader"], "10.0.0.1:9", "{reply}");
    let mut locks = reply["locks"].as_array().expect("locks").clone();
    locks.sort_by_key(|lock| lock["key"].to_string());
    let keys: Vec<&Value> = locks.iter().map(|lock| &lock["key"]).collect();
    assert_eq!(keys, ["lock:1", "queue:1"]);
    // Clients of the leader have the numbers of other clients here.
    assert_eq!(locks[0]["holders"][0]["client"], 0, "{reply}");
    let holder = &locks[1]["holders"][0];
    assert_eq!((&holder["owner"], &holder["client"]), (&"me".into(), &0.into()), "{reply}");
    assert_eq!(locks[1]["lease_ms"], 9000);
    assert_eq!(locks[1]["since_ms"], 1_700_000_000_000_i64);
    let one = ask_follower(&mut stage, "LOCKWHEEL LOCKS KEY lock:1");
    assert_eq!((&one["leader"], &one["lock"]["key"]), (&reply["leader"], &"lock:1".into()));
    assert_eq!(one["history"], Value::Array(vec![]));
}

#[test]
fn follower_has_no_events_and_names_the_leader() {
    let mut stage = follower("SET lock:1 token NX PX 9000");
    stage.hold("v", "LOCKWHEEL LOCKS SINCE 0");
    let reads = stage.engine.held_reads().expect("a held read");
    stage.engine.grant_reads(reads);
    stage.check("v> LOCKWHEEL LOCKS SINCE 0 => !ERR this is a follower, ...: ask 10.0.0.1:9");
    stage.check("CONFIG SET lock-view no => OK");
    stage.hold("v", "LOCKWHEEL LOCKS");
    let reads = stage.engine.held_reads().expect("a held read");
    stage.engine.grant_reads(reads);
    stage.check("v> LOCKWHEEL LOCKS => !ERR there is no lock view: ...");
}

#[test]
fn wrong_arguments_are_refused() {
    let mut stage = stage();
    for wrong in ["FOO", "KEY", "KEY a MATCH b", "SINCE x", "SINCE 1 COUNT 2", "DATABASE 1"] {
        stage.check(&format!("LOCKWHEEL LOCKS {wrong} => !ERR ..."));
    }
    stage.check("LOCKWHEEL LOCKS KEY a DATABASE 16 => !ERR DB index is out of range");
    stage.check(
        "LOCKWHEEL RELEASE a DATABASE 16 => !ERR DB index...; LOCKWHEEL RELEASE a b => !ERR...",
    );
}
