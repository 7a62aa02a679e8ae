//! Tests of the journal: conversations, and the entries, locks, checks and findings they lead to.

use super::checks::{Check, LintRule, Scope};
use super::entry::{Entry, JournalEvent};
use super::*;
use crate::settings::{Permission, Settings};
use crate::testing::{Stage, check};

const COMPARE_AND_DELETE: &str = "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return \
    redis.call('del',KEYS[1]) else return 0 end\" 1 lock";
const COMPARE_AND_RENEW: &str = "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return \
    redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end\" 1 lock";

fn stage() -> Stage {
    let mut settings = Settings::default();
    settings.enable_test_commands = Permission::Yes;
    Stage::new(settings)
}

/// The events of locks in short form: `1 acquired token 30000`.
fn lock_events(stage: &Stage) -> Vec<String> {
    let entries = stage.engine.journal().expect("a journal").select(Selection::default());
    entries.iter().filter_map(short).collect()
}

fn short(entry: &Entry) -> Option<String> {
    let lease =
        |lease_ms: &Option<i64>| lease_ms.map_or("for good".to_owned(), |ms| ms.to_string());
    let event = match &entry.event {
        JournalEvent::Command { .. }
        | JournalEvent::Fault { .. }
        | JournalEvent::Freed { .. }
        | JournalEvent::Clock { .. }
        | JournalEvent::Connected {}
        | JournalEvent::Disconnected {} => return None,
        JournalEvent::Acquired { owner, count: 1, lease_ms } => {
            format!("acquired {owner} {}", lease(lease_ms))
        }
        JournalEvent::Acquired { owner, count, lease_ms } => {
            format!("acquired {owner} {} x{count}", lease(lease_ms))
        }
        JournalEvent::Renewed { owner, lease_ms } => format!("renewed {owner} {}", lease(lease_ms)),
        JournalEvent::Refused { by, holder } => format!("refused {by} for {holder}"),
        JournalEvent::Released { owner, left: 0 } => format!("released {owner}"),
        JournalEvent::Released { owner, left } => format!("released {owner}, {left} left"),
        JournalEvent::ReleasedByNonOwner { owner, holder } => {
            format!("took {owner} from {holder}")
        }
        JournalEvent::ExpiredWhileHeld { owner, .. } => format!("expired {owner}"),
        JournalEvent::Flushed { owner } => format!("flushed {owner}"),
        JournalEvent::Waited { owner, waited_ms } => format!("waited {owner} {waited_ms}"),
        JournalEvent::ReleasedTooLate { owner, late_ms } => format!("too late {owner} {late_ms}"),
        JournalEvent::RenewedTooLate { owner, late_ms } => {
            format!("renewed late {owner} {late_ms}")
        }
        JournalEvent::Recognised { reason } => format!("recognised: {reason}"),
    };
    Some(format!("{} {event}", entry.client))
}

/// Holds a conversation and compares the events of locks.
fn check_events(conversation: &str, expected: &[&str]) -> Stage {
    let mut stage = stage();
    stage.check(conversation);
    assert_eq!(lock_events(&stage), expected, "{conversation}");
    stage
}

fn rules(stage: &Stage) -> Vec<LintRule> {
    let findings = stage.engine.lint_locks(Scope::default(), stage.time()).expect("a journal");
    findings.iter().map(|finding| finding.rule).collect()
}

/// The checks that fail.
fn broken(stage: &Stage) -> Vec<Check> {
    let fails = |check: &Check| {
        !stage.engine.check_locks(*check, Scope::default(), stage.time()).expect("a journal").holds
    };
    Check::GENERAL.into_iter().filter(fails).collect()
}

#[test]
fn servers_without_test_commands_keep_no_journal() {
    check("SET lock token NX PX 10; LOCKWHEEL JOURNAL => !ERR LOCKWHEEL command not allowed....");
    assert!(Stage::new(Settings::default()).engine.journal().is_none());
}

#[test]
fn commands_are_recorded_in_order_and_shortened() {
    let mut stage = stage();
    stage.check(
        "SET k v; +5ms; b> CLIENT SETNAME worker; b> GET k; INCR k => !ERR ...; LOCKWHEEL JOURNAL",
    );
    let entries = stage.engine.journal().expect("a journal").select(Selection::default());
    let lines: Vec<String> = entries.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "#1 client 1: connected",
            "#2 client 1: SET k v -> OK",
            "#3 client 2: connected",
            "#4 client 2 'worker': CLIENT SETNAME worker -> OK",
            "#5 client 2 'worker': GET k -> \"v\"",
            "#6 client 1: INCR k -> error: ERR value is not an integer or out of range",
        ]
    );
    assert_eq!(entries[4].time_ms - entries[1].time_ms, 5);
    let long = "x".repeat(200);
    stage.check(&format!("LOCKWHEEL JOURNAL CLEAR; GET {long}; AUTH {long} => !ERR ..."));
    let entries = stage.engine.journal().expect("a journal").select(Selection::default());
    let cut = format!("#7 client 1: GET {}... -> nil", "x".repeat(128));
    assert_eq!(entries[0].to_string(), cut);
    assert!(entries[1].to_string().starts_with("#8 client 1: AUTH (redacted) -> error: ERR"));
}

#[test]
fn entries_are_selected_by_number_key_and_count() {
    let mut stage = stage();
    stage.check("SET a 1; SET b 1; SET a 2; MGET b a");
    let numbers = |wanted: Selection<'_>| -> Vec<u64> {
        let entries = stage.engine.journal().expect("a journal").select(wanted);
        entries.iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(
        numbers(Selection { scope: Scope { since: 3, ..Scope::default() }, count: None }),
        [4, 5]
    );
    assert_eq!(
        numbers(Selection { scope: Scope { key: Some(b"a*"), ..Scope::default() }, count: None }),
        [2, 4, 5]
    );
    assert_eq!(numbers(Selection { count: Some(1), ..Selection::default() }), [5]);
    let mut stage = self::stage();
    stage.check("SET a 1; LOCKWHEEL JOURNAL KEY b COUNT 3 SINCE 0 => \"[]\"");
    for wrong in ["SINCE", "SINCE x", "SINCE -1", "FOO 1", "CLEAR 1"] {
        stage.check(&format!("LOCKWHEEL JOURNAL {wrong} => !ERR ..."));
    }
}

#[test]
fn oldest_entries_are_dropped() {
    let mut settings = Settings::default();
    settings.enable_test_commands = Permission::Yes;
    settings.journal_max_entries = 3;
    let mut stage = Stage::new(settings);
    stage.check("SETNX lock x; SETNX lock y; PING; DEL lock");
    let entries = stage.engine.journal().expect("a journal").select(Selection::default());
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [6, 7, 8]);
    let check = Check::EveryLockHasALease;
    let result = stage.engine.check_locks(check, Scope::default(), stage.time());
    let text = result.expect("a journal").to_string();
    let dropped = "  (5 older entries were dropped; journal-max-entries sets how many are kept)";
    assert_eq!(text.lines().nth(1), Some(dropped), "{text}");
}

#[test]
fn string_lock_from_acquisition_to_release() {
    let stage = check_events(
        &format!(
            "SET lock token-a NX PX 30000; b> SET lock token-b NX PX 30000 => nil; +10ms; \
             {COMPARE_AND_RENEW} token-a 40000 => 1; b> {COMPARE_AND_DELETE} token-b => 0; \
             {COMPARE_AND_DELETE} token-a => 1; +5ms; b> SET lock token-b NX PX 30000 => OK"
        ),
        &[
            "1 acquired token-a 30000",
            "2 refused token-b for token-a",
            "1 renewed token-a 40000",
            "1 released token-a",
            "2 acquired token-b 30000",
            "2 waited token-b 15",
        ],
    );
    assert_eq!((rules(&stage), broken(&stage)), (vec![], vec![Check::NoLockHeld]));
}

#[test]
fn lease_that_expires_while_the_lock_is_held() {
    let stage = check_events(
        &format!(
            "SET lock token-a NX PX 100; +100ms; b> SET lock token-b NX PX 100; +10ms; \
             {COMPARE_AND_DELETE} token-a => 0; b> {COMPARE_AND_DELETE} token-b => 1"
        ),
        &[
            "1 acquired token-a 100",
            "0 expired token-a",
            "2 acquired token-b 100",
            "1 too late token-a 10",
            "2 released token-b",
        ],
    );
    assert_eq!(rules(&stage), [LintRule::LeaseShorterThanHold]);
    assert_eq!(broken(&stage), [Check::NeverTwoHolders]);
    let late = format!("SET lock t NX PX 9; +9ms; {COMPARE_AND_RENEW} t 9 => 0");
    let stage = check_events(&late, &["1 acquired t 9", "0 expired t", "1 renewed late t 0"]);
    assert_eq!((rules(&stage), broken(&stage)), (vec![LintRule::RenewalAfterLoss], vec![]));
}

#[test]
fn deletion_by_a_non_owner_breaks_checks() {
    let stage = check_events(
        "SET lock OK NX EX 5; +5000ms; b> SET lock OK NX EX 5; +2000ms; DEL lock => 1; \
         c> SET lock OK NX EX 5",
        &[
            "1 acquired OK 5000",
            "0 expired OK",
            "2 acquired OK 5000",
            "1 took OK from 2",
            "1 too late OK 2000",
            "3 acquired OK 5000",
        ],
    );
    assert_eq!(rules(&stage), [LintRule::DeleteWithoutCheck, LintRule::LeaseShorterThanHold]);
    let checks = [Check::NoLockHeld, Check::NeverTwoHolders, Check::ReleasedOnlyByOwner];
    assert_eq!(broken(&stage), checks);
}

#[test]
fn lint_reports_common_mistakes() {
    for (conversation, expected) in [
        ("SETNX lock a; DEL lock", &[LintRule::LockWithoutLease, LintRule::DeleteWithoutCheck][..]),
        ("SETNX lock a", &[LintRule::LockWithoutLease]),
        ("SETNX lock a; EXPIRE lock 5", &[LintRule::LeaseInASecondStep]),
        ("SET lock a NX PX 9; DEL lock", &[LintRule::DeleteWithoutCheck]),
        ("SET lock a NX PX 9; GET lock; DEL lock", &[LintRule::CompareAndDeleteInTwoSteps]),
        ("SET lock a NX PX 9; +9ms; EXPIRE lock 5", &[LintRule::RenewalAfterLoss]),
        ("SET lock a NX PX 9; +9ms; DEL lock", &[LintRule::LeaseShorterThanHold]),
        ("SET lock a NX PX 9; WATCH lock; GET lock; MULTI; DEL lock; EXEC", &[]),
        ("SET k v; GET k; DEL k; HSET h f 1; PEXPIRE h 9; DEL h; SADD s 1; DEL s", &[]),
    ] {
        let mut stage = stage();
        stage.check(conversation);
        assert_eq!(rules(&stage), expected, "{conversation}");
    }
}

#[test]
fn commands_that_acquire_a_lock_are_recognised() {
    for (conversation, locks) in [
        ("SETNX k a", 1),
        ("MSETNX k a l b", 2),
        ("SET k a NX", 1),
        ("SET k a NX GET", 1),
        ("SET k a; SET k b PX 9; SETEX l 9 v; GETSET m v", 0),
        ("EVAL \"redis.call('set', KEYS[1], ARGV[1], 'PX', 9)\" 1 k token", 1),
        ("EVAL \"redis.call('set', KEYS[1], ARGV[1], 'PX', 9)\" 1 k 12", 0),
        ("EVAL \"redis.call('set', KEYS[1], ARGV[1])\" 1 k token", 0),
        ("EVAL \"redis.call('set', KEYS[1], ARGV[1], 'NX')\" 1 k token", 1),
        ("EVAL \"redis.call('hset', 'k', 'rate', 1); redis.call('pexpire', 'k', 9)\" 1 k", 0),
        ("EVAL \"redis.call('setnx', KEYS[1], ARGV[1])\" 1 k 5000", 0),
        ("SET k 5; DECR k; HINCRBY h f 1; PEXPIRE h 9", 0),
        ("SETNX k a; FLUSHALL", 0),
        ("SETNX k a; RENAME k l", 0),
        ("SET k a NX PX 9; +9ms", 0),
    ] {
        let mut stage = stage();
        stage.check(conversation);
        assert_eq!(stage.engine.held_locks(stage.time()).len(), locks, "{conversation}");
    }
}

#[test]
fn getset_acquires_a_lock_after_its_deadline() {
    // The clock of the tests begins at 1700000000000.
    check_events(
        "SETNX lock 1700000000010; b> SETNX lock 1700000000011; b> GETSET lock 1700000000011; \
         +20ms; b> GETSET lock 1700000000040; c> GETSET lock 1700000000041",
        &[
            "1 acquired 1700000000010 for good",
            "2 refused 1700000000011 for 1700000000010",
            "2 refused 1700000000011 for 1700000000010",
            "2 acquired 1700000000040 for good",
            "2 waited 1700000000040 20",
            "3 refused 1700000000041 for 1700000000040",
        ],
    );
}

#[test]
fn commands_that_compare_act_for_the_owner() {
    let mut settings = Settings::default();
    settings.enable_test_commands = Permission::Yes;
    settings.apply("compat-version", "8.4").expect("a version");
    let mut stage = Stage::new(settings);
    stage.check("SET lock token NX PX 9; b> DELEX lock IFEQ token => 1");
    assert_eq!(lock_events(&stage), ["1 acquired token 9", "2 released token"]);
    assert_eq!((rules(&stage), broken(&stage)), (vec![], vec![]));
}

#[test]
fn late_renewals_and_late_releases_are_reported() {
    let stage = check_events(
        &format!(
            "SET lock token-a NX PX 9; +9ms; {COMPARE_AND_RENEW} token-a 9; +1ms; \
             {COMPARE_AND_RENEW} token-a 9; {COMPARE_AND_DELETE} token-a; \
             {COMPARE_AND_DELETE} token-a"
        ),
        &[
            "1 acquired token-a 9",
            "0 expired token-a",
            "1 renewed late token-a 0",
            "1 renewed late token-a 1",
            "1 too late token-a 1",
        ],
    );
    let findings = stage.engine.lint_locks(Scope::default(), stage.time()).expect("a journal");
    let counted: Vec<(LintRule, u64)> = findings.iter().map(|it| (it.rule, it.count)).collect();
    assert_eq!(counted, [(LintRule::RenewalAfterLoss, 2), (LintRule::LeaseShorterThanHold, 1)]);
    let shown: Vec<u64> = findings[0].entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(shown, [3, 6, 7]);
}

#[test]
fn last_reader_removes_expired_readers() {
    let enter = "EVAL \"redis.call('hincrby', KEYS[1], ARGV[1], 1) \
                 redis.call('pexpire', KEYS[1], 30)\" 1 lock";
    let leave = "EVAL \"redis.call('hdel', KEYS[1], ARGV[1]) redis.call('del', KEYS[1])\" 1 lock";
    let stage = check_events(
        &format!("{enter} one; b> {enter} two; {leave} one"),
        &["1 acquired one 30", "2 acquired two 30", "1 released one", "1 expired two"],
    );
    assert_eq!((rules(&stage), broken(&stage)), (vec![], vec![]));
}

#[test]
fn lease_is_rounded_to_whole_milliseconds() {
    check_events("+1us; SET lock token NX PX 30", &["1 acquired token 30"]);
}

#[test]
fn failover_flushes_a_lock() {
    let stage = check_events(
        &format!(
            "SET lock token-a NX PX 9; b> LOCKWHEEL FAILOVER LOSE 1 => 1; \
             c> SET lock token-c NX PX 9 => OK; d> {COMPARE_AND_DELETE} token-a => 0"
        ),
        &["1 acquired token-a 9", "2 flushed token-a", "3 acquired token-c 9"],
    );
    assert_eq!(broken(&stage), [Check::NoLockHeld]);
}
