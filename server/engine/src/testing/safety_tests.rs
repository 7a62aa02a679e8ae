//! Tests of engine rules that no other test covers. Each detects a mutation of the code that no
//! other test detects.

use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use lockwheel_resp::Reply;

use crate::run::script::ScriptMonitor;
use crate::sessions::ClientId;
use crate::settings::Settings;
use crate::testing::{Stage, check, words};
use crate::timing::time::Time;
use crate::{Engine, Flow};

// --- transactions ---

#[test]
fn discard_ends_all_watches() {
    check("SET k v; WATCH k; MULTI; DISCARD => OK; b> SET k w; MULTI; GET k; EXEC => [\"w\"]");
}

#[test]
fn select_in_a_transaction_applies_to_later_commands() {
    check(
        "SET k v; MULTI; SELECT 1; EXISTS k; SET l w; SELECT 0; GET k; EXEC => \
         [OK, 0, OK, OK, \"v\"]; EXISTS l => 0; SELECT 1; GET l => \"w\"",
    );
    check("MULTI; SELECT 1; EXEC => [OK]; SET k v; SELECT 0; EXISTS k => 0");
}

#[test]
fn transaction_with_writes_is_refused_beyond_maxmemory() {
    check(
        "MULTI; SET k v; b> CONFIG SET maxmemory 1; EXEC => !EXECABORT ...; \
         b> CONFIG SET maxmemory 0; EXISTS k => 0",
    );
    check("MULTI; GET k; b> CONFIG SET maxmemory 1; EXEC => [nil]");
}

// --- blocked clients ---

/// Runs requests of another client at each interrupt of a script.
struct RequestsDuringScript {
    client: ClientId,
    time: Time,
}

impl ScriptMonitor for RequestsDuringScript {
    fn poll(&mut self, engine: &mut Engine) {
        engine.set_busy();
        for request in [&[&b"PING"[..]][..], &[b"SET", b"other", b"v"]] {
            engine.run(self.time, self.client, request, &mut BytesMut::new());
        }
    }
}

#[test]
fn blocked_client_is_served_after_the_script_has_ended() {
    let mut stage = Stage::new(Settings::default());
    stage.check("b> BLPOP k 0");
    let script_monitor = RequestsDuringScript { client: stage.client("c"), time: stage.time() };
    stage.engine.script_monitor = Some(Box::new(script_monitor));
    stage.check(
        "EVAL \"redis.call('rpush', 'k', 'v') for i = 1, 100000 do end \
         return redis.call('llen', 'k')\" 1 k => 1; b< => [\"k\", \"v\"]; EXISTS k other => 0",
    );
}

/// Records the number of the running script at each interrupt.
struct ScriptNumbers(Arc<Mutex<Vec<Option<u64>>>>);

impl ScriptMonitor for ScriptNumbers {
    fn poll(&mut self, engine: &mut Engine) {
        self.0.lock().expect("unpoisoned").push(engine.running_script());
    }
}

/// The monitor uses the number to measure the time of a script and to decide whether to kill it.
#[test]
fn each_script_has_its_own_number_while_it_runs() {
    let mut stage = Stage::new(Settings::default());
    let numbers = Arc::new(Mutex::new(Vec::new()));
    stage.engine.script_monitor = Some(Box::new(ScriptNumbers(Arc::clone(&numbers))));
    assert_eq!(stage.engine.running_script(), None);
    stage.check("EVAL \"for i = 1, 1000000 do end\" 0 => nil");
    let first = std::mem::take(&mut *numbers.lock().expect("unpoisoned"));
    stage.check("EVAL \"for i = 1, 1000000 do end\" 0 => nil");
    let second = std::mem::take(&mut *numbers.lock().expect("unpoisoned"));
    assert!(first.len() > 1 && first[0].is_some(), "{first:?}");
    assert!(first.iter().all(|number| *number == first[0]), "{first:?}");
    assert!(second.iter().all(|number| *number == second[0]), "{second:?}");
    assert_ne!(first[0], second[0]);
    assert_eq!(stage.engine.running_script(), None);
}

#[test]
fn keys_with_waiters_for_deletion_are_counted_separately() {
    let counts = |keys: u32, wake_if_gone: u32| {
        format!(
            "INFO clients => ...total_blocking_keys:{keys}\\r\\n\
             total_blocking_keys_on_nokey:{wake_if_gone}\\r\\n..."
        )
    };
    check(&format!(
        "XGROUP CREATE s g $ MKSTREAM; b> XREAD BLOCK 0 STREAMS s $; {}; \
         c> XREADGROUP GROUP g c BLOCK 10 STREAMS s >; {}; +10ms; {}",
        counts(1, 0),
        counts(1, 1),
        counts(1, 0),
    ));
}

// --- pauses ---

#[test]
fn pause_of_all_is_not_narrowed_by_a_pause_of_writes() {
    for pauses in [
        "CLIENT PAUSE 100 ALL; CLIENT PAUSE 100 WRITE",
        "CLIENT PAUSE 100 WRITE; \
        CLIENT PAUSE 100 ALL",
    ] {
        let mut stage = Stage::new(Settings::default());
        stage.check(pauses);
        let client = stage.client("b");
        assert_eq!(stage.run(client, &words("GET k")).1, Flow::Again, "{pauses}");
    }
}

// --- scripts in a cluster ---

#[test]
fn script_may_use_one_slot_unless_it_declares_otherwise() {
    let mut settings = Settings::default();
    settings.cluster_enabled = true;
    let mut stage = Stage::new(settings);
    stage.check("EVAL \"redis.call('set', 'a', 1) return redis.call('set', 'b', 1)\" 1 a => OK");
    stage.check(
        "EVAL \"return redis.call('mget', 'a', 'b')\" 1 a => !ERR Command 'mget' in script \
         attempted to access keys that don't hash to the same slot...",
    );
    let crossing = "!ERR Script attempted to access keys that do not hash to the same slot...";
    let get = |flags: &str| format!("EVAL \"#!lua{flags}\\x0areturn redis.call('get', 'b')\" 1");
    stage.check(&format!("{} a => {crossing}; {} b => \"1\"", get(""), get("")));
    stage.check(&format!("{} a => \"1\"", get(" flags=allow-cross-slot-keys")));
}

// --- scripts ---

#[test]
fn read_only_script_can_neither_write_nor_publish() {
    for call in ["'set', 'k', 'v'", "'publish', 'c', 'm'"] {
        check(&format!(
            "b> SUBSCRIBE c; b<; EVAL_RO \"return redis.call({call})\" 1 k => \
             !ERR Write commands are not allowed from read-only scripts...; EXISTS k => 0; b< => ",
        ));
    }
}

#[test]
fn script_declared_no_writes_runs_while_writes_are_paused() {
    let mut stage = Stage::new(Settings::default());
    let load = "SCRIPT LOAD \"#!lua flags=no-writes\\x0areturn 1\"";
    let sha = stage.step(load).replace('"', "");
    stage.check(&format!("CLIENT PAUSE 100 WRITE; EVALSHA {sha} 0 => 1; SCRIPT FLUSH"));
}

#[test]
fn flush_removes_all_scripts() {
    let call = "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0";
    for flush in ["SCRIPT FLUSH", "SCRIPT FLUSH SYNC", "SCRIPT FLUSH async"] {
        check(&format!("EVAL \"return 1\" 0; {call} => 1; {flush} => OK; {call} => !NOSCRIPT ..."));
    }
    check(&format!("EVAL \"return 1\" 0; SCRIPT FLUSH now => !ERR SCRIPT FLUSH ...; {call} => 1"));
}

#[test]
fn script_gets_replies_in_its_own_protocol() {
    let hash = "HSET h f v; EVAL \"return #redis.call('hgetall', KEYS[1])\" 1 h => 2";
    let map = "EVAL \"redis.setresp(3) return redis.call('hgetall', KEYS[1]).map.f\" 1 h => \"v\"";
    for protocol in [2, 3] {
        check(&format!("HELLO {protocol}; {hash}; {map}; {hash}"));
    }
}

/// Commands with protocol-dependent replies use the protocol that the script has chosen, not the
/// client's.
#[test]
fn protocol_dependent_commands_use_the_protocol_of_the_script() {
    for protocol in [2, 3] {
        check(&format!(
            "HELLO {protocol}; ZADD z 1 a; \
             EVAL \"return #redis.call('zrange', KEYS[1], 0, -1, 'withscores')\" 1 z => 2; \
             EVAL \"redis.setresp(3) \
             return #redis.call('zrange', KEYS[1], 0, -1, 'withscores')\" 1 z => 1",
        ));
    }
}

/// Cached scripts count towards `maxmemory` even while one of them runs.
#[test]
fn script_may_not_write_when_cached_scripts_exceed_maxmemory() {
    let long = "x".repeat(200_000);
    check(&format!(
        "CONFIG SET maxmemory 100000; \
         EVAL \"return redis.call('set', KEYS[1], 'v')\" 1 k => OK; DEL k; \
         CONFIG SET maxmemory 0; SCRIPT LOAD \"return '{long}'\"; CONFIG SET maxmemory 100000; \
         EVAL \"return redis.call('set', KEYS[1], 'v')\" 1 k => !OOM ...; EXISTS k => 0"
    ));
}

#[test]
fn errors_in_an_array_that_a_script_returns_are_counted() {
    check(
        "EVAL \"return {1, {err = 'MINE no'}}\" 0 => [1, !MINE no]; \
         INFO errorstats => ...errorstat_MINE:count=1\\r\\n...",
    );
}

#[test]
fn library_can_log_while_it_is_loaded() {
    let mut stage = Stage::new(Settings::default());
    stage.check(
        "FUNCTION LOAD \"#!lua name=l\\x0aredis.log(redis.LOG_WARNING, 'loaded') \
         redis.register_function('f', function() end)\" => \"l\"",
    );
    let texts: Vec<&str> =
        stage.engine.script_messages.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["loaded"]);
}

#[test]
fn command_refused_by_a_gate_is_counted_as_rejected() {
    check(
        "CONFIG SET maxmemory 1; SET k v => !OOM ...; \
         INFO commandstats => ...cmdstat_set:calls=0,...,rejected_calls=1,...",
    );
}

#[test]
fn script_can_log() {
    let mut stage = Stage::new(Settings::default());
    stage.check("EVAL \"redis.log(redis.LOG_WARNING, 'message')\" 0 => nil");
    let texts: Vec<&str> =
        stage.engine.script_messages.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["message"]);
}

#[test]
fn unknown_options_of_function_commands_are_refused() {
    check("FUNCTION FLUSH now => !ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    check("FUNCTION RESTORE x KEEP => !ERR Wrong restore policy given...");
    check("FUNCTION LIST LIBRARYNAME a LIBRARYNAME b => !ERR Unknown argument LIBRARYNAME");
}

// --- functions ---

const LIBRARY: &str = "\"#!lua name=l\\x0aredis.register_function('f', function() return 1 end)\"";

#[test]
fn every_change_of_the_functions_is_counted() {
    let changes =
        |count: u32| format!("INFO persistence => ...rdb_changes_since_last_save:{count}\\r\\n...");
    check(&format!(
        "FUNCTION LOAD {LIBRARY} => \"l\"; {}; FUNCTION DELETE l => OK; {}; \
         FUNCTION FLUSH SYNC => OK; {}; FUNCTION FLUSH async => OK; {}; \
         FUNCTION DELETE l => !ERR ...; {}",
        changes(1),
        changes(2),
        changes(3),
        changes(4),
        changes(4),
    ));
}

#[test]
fn library_is_replaced_only_with_the_replace_option() {
    check(&format!(
        "FUNCTION LOAD {LIBRARY} => \"l\"; \
         FUNCTION LOAD {LIBRARY} => !ERR Library 'l' already exists; \
         FUNCTION LOAD REPLACE {LIBRARY} => \"l\"; \
         FUNCTION LOAD nonsense {LIBRARY} => !ERR Unknown option given: nonsense"
    ));
}

#[test]
fn options_of_function_list_are_applied() {
    let mut stage = Stage::new(Settings::default());
    stage.check(&format!("FUNCTION LOAD {LIBRARY} => \"l\""));
    for (options, lists, shows_code) in [
        ("", true, false),
        ("WITHCODE", true, true),
        ("LIBRARYNAME l", true, false),
        ("LIBRARYNAME other", false, false),
        ("LIBRARYNAME l WITHCODE", true, true),
        ("WITHCODE LIBRARYNAME l", true, true),
    ] {
        let list = stage.step(&format!("FUNCTION LIST {options}"));
        let shown = (list.contains("library_name"), list.contains("register_function"));
        assert_eq!(shown, (lists, shows_code), "{options}: {list}");
    }
    stage.check(
        "FUNCTION LIST WITHCODE WITHCODE => !ERR Unknown argument WITHCODE; \
         FUNCTION LIST nonsense => !ERR Unknown argument nonsense; \
         FUNCTION LIST LIBRARYNAME => !ERR library name argument was not given",
    );
}

#[test]
fn function_restore_follows_its_policy() {
    let mut stage = Stage::new(Settings::default());
    stage.check(&format!("FUNCTION LOAD {LIBRARY}"));
    let [Reply::Bulk(payload)] = &stage.answers("FUNCTION DUMP")[..] else { panic!("no payload") };
    let client = stage.client("a");
    for (policy, there, reply) in [
        ("", false, "OK"),
        ("APPEND", false, "OK"),
        ("APPEND", true, "!ERR Library l already exists"),
        ("REPLACE", true, "OK"),
        ("FLUSH", true, "OK"),
    ] {
        stage.check("FUNCTION FLUSH");
        if there {
            stage.check(&format!("FUNCTION LOAD {LIBRARY}"));
        }
        let mut request = words("FUNCTION RESTORE");
        request.push(payload.to_vec());
        request.extend(words(policy));
        assert_eq!(stage.run(client, &request).0, reply, "{policy}");
        stage.check("FCALL f 0 => 1");
    }
}

// --- keys ---

#[test]
fn reading_a_key_counts_as_use_without_no_touch() {
    check(
        "SET k v; +5000ms; OBJECT IDLETIME k => 5; \
         CLIENT NO-TOUCH ON; GET k; OBJECT IDLETIME k => 5; b> GET k; OBJECT IDLETIME k => 0; \
         +5000ms; CLIENT NO-TOUCH OFF; GET k; OBJECT IDLETIME k => 0",
    );
    check("SET k v; +5000ms; GET k; OBJECT IDLETIME k => 0");
}

#[test]
fn every_change_is_counted() {
    check("SET k v; SET l v; INFO persistence => ...rdb_changes_since_last_save:2\\r\\n...");
}

/// The count of a reentrant lock replaces the old one in place.
#[test]
fn field_of_a_small_hash_accepts_a_value_of_another_length() {
    for key in ["h", "a-longer-name-of-a-lock:{and-its-slot}"] {
        check(&format!(
            "HSET {key} before b owner 1 behind c; HINCRBY {key} owner 1 => 2; \
             HGETALL {key} => [\"before\", \"b\", \"owner\", \"2\", \"behind\", \"c\"]; \
             HINCRBY {key} owner 100 => 102; HINCRBY {key} owner -100 => 2; \
             HGETALL {key} => [\"before\", \"b\", \"owner\", \"2\", \"behind\", \"c\"]"
        ));
    }
}

#[test]
fn field_of_a_large_hash_can_be_removed() {
    let long = "x".repeat(100);
    check(&format!(
        "HSET h f {long} g v; HDEL h f => 1; HDEL h f => 0; HGETALL h => [\"g\", \"v\"]"
    ));
}
