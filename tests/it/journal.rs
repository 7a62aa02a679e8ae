//! The journal of lock events, read by command and in process, for common lock recipes and for
//! Redisson's scripts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lockwheel::{
    Check, Client, Confidence, ErrorKind, Fault, JournalEvent, LintRule, Reply, Requests, Server,
};
use lockwheel_tests::scripts::{
    COMPARE_AND_DELETE, FAIR_LOCK, FORCE_UNLOCK, LOCK_2_2_17, LOCK_3, READ_LOCK, RENEW_3, UNLOCK,
    UNLOCK_2_2_17, UNLOCK_3, WRITE_LOCK,
};
use lockwheel_tests::wait_at;
use lockwheel_tests::wire::Wire;

const OWNER_A: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
const OWNER_B: &str = "f6d0b1a0-7d3b-4a6f-9a0c-b0ee2d1c4a11:1";

fn server() -> Server {
    Server::builder().frozen_clock().for_tests().start().expect("a server")
}

fn advance(server: &Server, milliseconds: u64) {
    server.advance(Duration::from_millis(milliseconds)).expect("a server");
}

fn call(client: &mut Client, command: &str) -> Reply {
    let words: Vec<&str> = command.split(' ').collect();
    client.call_raw(&words).expect("an answer")
}

/// Runs a script with the key `lock`, and with the channel of a Redisson lock if it has two keys.
fn script(client: &mut Client, text: &str, arguments: &[&str]) -> Reply {
    let keys =
        if text.contains("KEYS[2]") { &["2", "lock", "channel"][..] } else { &["1", "lock"] };
    let argv: Vec<&str> = [&["EVAL", text], keys, arguments].concat();
    client.call(&argv).expect("an answer")
}

/// The lock events of the journal.
fn lock_events(server: &Server) -> Vec<String> {
    let entries = server.journal().entries().expect("a journal");
    let locks = entries.iter().filter(|entry| {
        use JournalEvent::{Clock, Command, Connected, Disconnected, Fault};
        !matches!(
            entry.event,
            Command { .. } | Fault { .. } | Clock { .. } | Connected {} | Disconnected {}
        )
    });
    locks.map(|entry| entry.to_string().split_once(": ").expect("a line").1.to_owned()).collect()
}

fn rules(server: &Server) -> Vec<LintRule> {
    server.journal().lint().expect("a journal").iter().map(|finding| finding.rule).collect()
}

fn broken(server: &Server) -> Vec<Check> {
    let holds = |check: &Check| server.journal().check(*check).expect("a journal").holds;
    Check::GENERAL.into_iter().filter(|check| !holds(check)).collect()
}

/// A fault rule, not a command, discards the writes: the lock is lost all the same.
#[test]
fn lock_with_lost_write_is_no_longer_held() {
    let server = server();
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    let first = Requests::any().command("set").nth(1);
    server.faults().add(Fault::LoseWrites(1), first).expect("a rule");
    assert_eq!(call(&mut a, "SET lock a NX PX 30000"), Reply::OK);
    server.journal().assert_no_lock_held();
    assert_eq!(call(&mut b, "SET lock b NX PX 30000"), Reply::OK);
    assert_eq!(script(&mut a, COMPARE_AND_DELETE, &["a"]), Reply::Integer(0));
    let flushed = "removed 'lock' of 'a' among others";
    assert!(
        lock_events(&server).iter().any(|line| line.contains(flushed)),
        "{:?}",
        lock_events(&server)
    );
    assert_eq!(broken(&server), [Check::NoLockHeld, Check::NeverTwoHolders]);
}

#[test]
fn redisson_scripts_are_recognised_as_locks() {
    for (lock, unlock) in [(LOCK_3, UNLOCK_3), (LOCK_2_2_17, UNLOCK_2_2_17)] {
        let server = server();
        let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
        assert_eq!(script(&mut a, lock, &["30000", OWNER_A]), Reply::Null);
        assert_eq!(script(&mut b, lock, &["30000", OWNER_B]), Reply::Integer(30_000));
        let held = server.journal().locks().expect("a journal");
        assert_eq!((held.len(), &held[0].owner[..], held[0].lease_ms), (1, OWNER_A, Some(30_000)));
        assert_eq!(held[0].waiting.len(), 1);
        assert_eq!(script(&mut a, lock, &["30000", OWNER_A]), Reply::Null);
        advance(&server, 10_000);
        assert_eq!(script(&mut a, RENEW_3, &["30000", OWNER_A]), Reply::Integer(1));
        // Another connection of the same pool.
        let mut pooled = server.client().expect("a client");
        assert_eq!(script(&mut pooled, unlock, &["0", "30000", OWNER_A]), Reply::Integer(0));
        assert_eq!(script(&mut pooled, unlock, &["0", "30000", OWNER_A]), Reply::Integer(1));
        assert_eq!(script(&mut b, lock, &["30000", OWNER_B]), Reply::Null);
        assert_eq!(
            lock_events(&server),
            [
                format!("acquired 'lock' as '{OWNER_A}' for 30000 ms"),
                format!("was refused 'lock' as '{OWNER_B}', which '{OWNER_A}' has"),
                format!("acquired 'lock' as '{OWNER_A}', now 2 times, for 30000 ms"),
                format!("renewed 'lock' of '{OWNER_A}' for 30000 ms"),
                format!("released 'lock' as '{OWNER_A}', still held 1 times"),
                format!("released 'lock' as '{OWNER_A}'"),
                format!("acquired 'lock' as '{OWNER_B}' for 30000 ms"),
                format!("has waited 10000 ms for 'lock' as '{OWNER_B}'"),
            ]
        );
        assert_eq!((rules(&server), broken(&server)), (vec![], vec![Check::NoLockHeld]));
    }
}

#[test]
fn redisson_lock_held_past_its_lease_is_reported() {
    let server = server();
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    script(&mut a, LOCK_3, &["1000", OWNER_A]);
    advance(&server, 1_000);
    script(&mut b, LOCK_3, &["1000", OWNER_B]);
    assert_eq!(script(&mut a, RENEW_3, &["1000", OWNER_A]), Reply::Integer(0));
    script(&mut b, UNLOCK_3, &["0", "1000", OWNER_B]);
    assert_eq!(rules(&server), [LintRule::RenewalAfterLoss]);
    assert_eq!(broken(&server), [Check::NeverTwoHolders]);
}

fn eval(client: &mut Client, text: &str, rest: &str) -> Reply {
    let argv: Vec<&str> = ["EVAL", text].into_iter().chain(rest.split(' ')).collect();
    client.call(&argv).expect("an answer")
}

#[test]
fn other_redisson_locks_are_recognised() {
    let server = server();
    let mut clients = [(); 3].map(|()| server.client().expect("a client"));
    let [a, b, c] = &mut clients;
    for (client, reader) in [(&mut *a, "a"), (&mut *b, "b")] {
        let rest = format!("2 rw {{rw}}:{reader}:rwlock_timeout 30000 {reader} {reader}:write");
        assert_eq!(eval(client, READ_LOCK, &rest), Reply::Null);
    }
    assert_eq!(eval(c, WRITE_LOCK, "1 rw 30000 c:write"), Reply::Integer(30_000));
    let fair = "3 fair queue timeouts 30000 a 300000 1700000000000";
    assert_eq!(eval(a, FAIR_LOCK, fair), Reply::Null);
    assert_eq!(eval(b, FAIR_LOCK, &fair.replace(" a ", " b ")), Reply::Integer(30_000));
    let plain = fair.replace("fair queue timeouts", "plain others times");
    assert_eq!(eval(a, FAIR_LOCK, &plain), Reply::Null);
    // This release has a latch, so that the script may be sent again.
    let unlock = "3 plain channel latch 0 30000 a PUBLISH 16000";
    assert_eq!(eval(c, UNLOCK, unlock), Reply::Integer(1));
    assert_eq!(eval(c, UNLOCK, unlock), Reply::Integer(1));
    assert_eq!(eval(b, FORCE_UNLOCK, "2 fair channel 0 PUBLISH"), Reply::Integer(1));
    let events: Vec<String> = lock_events(&server);
    assert_eq!(
        events,
        [
            "acquired 'rw' as 'a' for 30000 ms",
            "acquired 'rw' as 'b' for 30000 ms",
            "was refused 'rw' as 'c:write', which 'a, b' has",
            "acquired 'fair' as 'a' for 30000 ms",
            "was refused 'fair' as 'b', which 'a' has",
            "acquired 'plain' as 'a' for 30000 ms",
            "released 'plain' as 'a'",
            "released 'fair', which is that of 'a', taken by client 1",
        ]
    );
    let owners: Vec<_> = server.journal().locks().expect("a journal");
    let owners: Vec<&str> = owners.iter().map(|lock| &lock.owner[..]).collect();
    assert_eq!(owners, ["a", "b"]);
}

#[test]
fn failed_assertions_name_the_rule_and_the_events() {
    let server = server();
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    call(&mut a, "CLIENT SETNAME worker");
    call(&mut a, "SET other token NX PX 50");
    call(&mut a, "SET lock OK NX PX 50");
    advance(&server, 50);
    call(&mut b, "SET lock OK NX PX 50");
    advance(&server, 20);
    call(&mut a, "DEL lock");
    server.journal().assert_no_lock_held();
    server.journal().assert_every_lock_has_a_lease();
    let fails = |assert: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(assert)).expect_err("a rule that is broken");
        panic.downcast_ref::<String>().expect("a message").clone()
    };
    let journal = server.journal();
    let not_owner = fails(&|| journal.assert_released_only_by_owner());
    let lines: Vec<&str> = not_owner.lines().collect();
    assert_eq!(
        lines,
        [
            "released-only-by-owner: the lock 'lock' of client 2 was released by client 1 \
             'worker'",
            "  +0 ms #4 client 1 'worker': SET lock OK NX PX 50 -> OK",
            "  +0 ms #5 client 1 'worker': acquired 'lock' as 'OK' for 50 ms",
            "  +0 ms #6 the clock: was advanced by 50 ms",
            "  +50 ms #8 the clock: ended the lease of 'lock', held as 'OK' by client 1",
            "  +50 ms #9 client 2: SET lock OK NX PX 50 -> OK",
            "  +50 ms #10 client 2: acquired 'lock' as 'OK' for 50 ms",
            "  +50 ms #11 the clock: was advanced by 20 ms",
            "  +70 ms #12 client 1 'worker': DEL lock -> 1",
            "=>+70 ms #13 client 1 'worker': released 'lock', which is that of 'OK', taken by \
             client 2",
        ]
    );
    let two = fails(&|| journal.assert_never_two_holders());
    assert!(two.starts_with("never-two-holders: client 1 'worker' had the lock 'lock'"), "{two}");
    journal.clear().expect("a journal");
    journal.assert_released_only_by_owner();
    journal.assert_never_two_holders();
}

#[test]
fn possible_locks_are_listed_and_break_no_check() {
    let server = server();
    let mut a = server.client().expect("a");
    call(&mut a, "SET idem:1 done NX EX 3600");
    call(&mut a, "SET stock 10 NX");
    let result = server.journal().check(Check::NoLockHeld).expect("a journal");
    assert!(result.holds);
    assert_eq!(
        result.to_string(),
        "no-lock-held: it holds\n\
         possibly: client 1 holds the lock 'idem:1' as 'done'\n\
         possibly: client 1 holds the lock 'stock' as '10'"
    );
    assert_eq!(rules(&server), []);
    let found = server.journal().key("idem:*").check(Check::NoLockHeld).expect("a journal");
    assert_eq!(found.sentence, "client 1 holds the lock 'idem:1' as 'done'");
    call(&mut a, "DECR stock");
    let known = server.journal().known_locks().expect("a journal");
    assert_eq!(known.iter().map(|it| &it.key[..]).collect::<Vec<_>>(), ["idem:1"]);
}

#[test]
fn key_becomes_a_lock_when_its_value_is_compared() {
    let server = server();
    let mut a = server.client().expect("a");
    call(&mut a, "SETNX job 17");
    let confidence = || server.journal().known_locks().expect("a journal")[0].confidence;
    assert_eq!(confidence(), Confidence::Possible);
    assert_eq!(rules(&server), []);
    let argv = ["EVAL", COMPARE_AND_DELETE, "1", "job", "17"];
    assert_eq!(a.call(&argv).expect("an answer"), Reply::Integer(1));
    assert_eq!(confidence(), Confidence::Certain);
    assert_eq!(rules(&server), [LintRule::LockWithoutLease]);
    let line = "showed that 'job' is a lock: its owner was compared before it was released or \
                renewed";
    assert!(lock_events(&server).iter().any(|event| event == line), "{:?}", lock_events(&server));
}

#[test]
fn value_of_two_keys_names_no_owner() {
    let server = server();
    let mut a = server.client().expect("a");
    call(&mut a, "SET a:1 worker NX EX 9");
    let holds = || server.journal().check(Check::NoLockHeld).expect("a journal").holds;
    assert!(!holds());
    call(&mut a, "SET a:2 worker NX EX 9");
    assert!(holds());
}

#[test]
fn declared_keys_are_locks_and_ignored_keys_are_none() {
    let by_method = server();
    by_method.journal().declare_locks("job:*").expect("a journal");
    by_method.journal().ignore_locks("job:cache:*").expect("a journal");
    declared_and_ignored_keys(&by_method);
    let builder = Server::builder().frozen_clock().for_tests();
    let mut by_option = builder
        .lock_keys(&["job:1", "job:*"])
        .ignored_lock_keys(&["job:cache:*"])
        .start()
        .expect("a server");
    declared_and_ignored_keys(&by_option);
    by_option.restart().expect("a server");
    by_option.journal().declare_locks("job:cache:*").expect("a journal");
    by_option.reset().expect("a server");
    declared_and_ignored_keys(&by_option);
}

fn declared_and_ignored_keys(server: &Server) {
    let mut a = server.client().expect("a");
    call(&mut a, "SET job:1 7 EX 9");
    call(&mut a, "SET job:cache:1 token NX EX 9");
    call(&mut a, "SADD job:2 x");
    call(&mut a, "HSET job:3 node-1 1");
    let known = server.journal().known_locks().expect("a journal");
    let known: Vec<(&str, Confidence)> =
        known.iter().map(|it| (&it.key[..], it.confidence)).collect();
    assert_eq!(known, [("job:1", Confidence::Certain), ("job:3", Confidence::Certain)]);
    let mut b = Wire::connect(server.addr(), 2);
    assert_eq!(b.ask("LOCKWHEEL JOURNAL IGNORE job:*"), "+OK\r\n");
    assert_eq!(b.ask("LOCKWHEEL JOURNAL KNOWN"), "$2\r\n[]\r\n");
    assert_eq!(b.ask("LOCKWHEEL JOURNAL DECLARE lock"), "+OK\r\n");
    let error = b.ask("LOCKWHEEL JOURNAL DECLAR lock");
    assert!(error.contains("DECLARE"), "{error}");
}

#[test]
fn checks_are_limited_to_a_client_and_to_later_entries() {
    let server = server();
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    call(&mut a, "CLIENT SETNAME worker");
    call(&mut a, "SET lock:1 x NX PX 50");
    call(&mut b, "DEL lock:1");
    let journal = server.journal();
    let holds = |journal: &lockwheel::Journal<'_>| {
        journal.check(Check::ReleasedOnlyByOwner).expect("a journal").holds
    };
    assert!(!holds(&journal.clone().client("worker")));
    assert!(!holds(&journal.clone().client(2)));
    assert!(holds(&journal.clone().client("other")));
    assert!(!holds(&journal.clone().key("lock:*")));
    assert!(holds(&journal.clone().key("other:*")));
    let last = journal.entries().expect("a journal").last().expect("an entry").seq;
    assert!(!holds(&journal.clone().since(last - 1)));
    assert!(holds(&journal.since(last)));
    let mut c = Wire::connect(server.addr(), 2);
    let ask = "LOCKWHEEL CHECK released-only-by-owner KEY lock:* CLIENT worker SINCE 0";
    assert!(c.ask(ask).starts_with("-CHECK released-only-by-owner: the lock 'lock:1'"));
    assert_eq!(c.ask("LOCKWHEEL CHECK released-only-by-owner KEY other"), "+OK\r\n");
    assert_eq!(c.ask("LOCKWHEEL LINT KEY other"), "$2\r\n[]\r\n");
    assert!(c.ask("LOCKWHEEL CHECK no-lock-held KEYS x").contains("KEY"));
}

/// A story shows what is needed to understand it without the code of the test.
#[test]
fn story_shows_faults_gates_clock_connections_scripts_and_transactions() {
    let server = server();
    let mut a = Wire::connect(server.addr(), 2);
    a.ask("CLIENT SETNAME worker");
    a.ask("CLIENT SETINFO LIB-NAME redis-py");
    let lost = Requests::any().command("set").nth(1);
    server.faults().add(Fault::LoseAndClose, lost).expect("a rule");
    a.send_line("SET orders token-of-worker-1 NX PX 50");
    assert!(a.closes());
    advance(&server, 50);
    let gate = server.faults().gate(Requests::any().command("eval")).expect("a gate");
    let mut b = Wire::connect(server.addr(), 2);
    b.ask("MULTI");
    b.ask("SET orders token-of-worker-2 NX PX 50");
    b.ask("EXEC");
    let mut c = Wire::connect(server.addr(), 2);
    // Its number is the next one only if it is accepted now.
    c.ask("PING");
    let release = ["EVAL", COMPARE_AND_DELETE, "1", "orders", "token-of-worker-1"];
    c.send(&release);
    wait_at(&gate).expect("a client");
    gate.open().expect("a server");
    assert_eq!(c.read_text(), ":0\r\n");
    let result = server.journal().check(Check::NeverTwoHolders).expect("a journal");
    let story = result.to_string();
    let mut lines = story.lines().map(|line| line.replace(COMPARE_AND_DELETE.trim(), "..."));
    let eval = "EVAL if redis.call";
    let cut = |line: String| match line.split_once(eval) {
        Some((before, _)) => format!("{before}{eval}..."),
        None => line,
    };
    assert!(lines.next().expect("a sentence").starts_with("never-two-holders: client 1 'worker'"));
    assert_eq!(
        lines.map(cut).collect::<Vec<_>>(),
        [
            "  +0 ms #4 client 1 'worker' (redis-py): SET orders token-of-worker-1 NX PX 50 -> OK \
             [fault 1: executed; reply lost; connection closed]",
            "  +0 ms #5 client 1 'worker' (redis-py): acquired 'orders' as 'token-of-worker-1' for \
             50 ms",
            "  +0 ms #6 client 1 'worker' (redis-py): disconnected",
            "  +0 ms #7 the clock: was advanced by 50 ms",
            "  +50 ms #8 the clock: ended the lease of 'orders', held as 'token-of-worker-1' by \
             client 1",
            "  +50 ms #9 client 2: connected",
            "  +50 ms #13 client 2: EXEC -> [1 items]",
            "    +50 ms #11 client 2: (transaction) SET orders token-of-worker-2 NX PX 50 -> OK",
            "    +50 ms #12 client 2: acquired 'orders' as 'token-of-worker-2' for 50 ms",
            "  +50 ms #14 client 3: connected",
            "  +50 ms #16 client 3: EVAL if redis.call...",
            "  +50 ms #17 client 3: was released by rule 2",
            "  +50 ms #19 client 3: EVAL if redis.call...",
            "    +50 ms #18 client 3: (script) get orders -> \"token-of-worker-2\"",
            "=>  +50 ms #20 client 3: came to release 'orders' as 'token-of-worker-1', lost 0 ms \
             ago",
        ]
    );
}

/// The reply of a `SET NX` is lost, and the client sends it again.
#[test]
fn refusal_by_the_own_token_is_reported() {
    let server = server();
    let mut a = Wire::connect(server.addr(), 2);
    let set = "SET orders 6ba7b810-9dad-41d1 NX PX 30000";
    let lost = Requests::any().command("set").nth(1);
    server.faults().add(Fault::LoseAndClose, lost).expect("a rule");
    a.send_line(set);
    assert!(a.closes());
    let mut a = Wire::connect(server.addr(), 2);
    assert_eq!(a.ask(set), "$-1\r\n");
    let result = server.journal().check(Check::RefusedByOwnToken).expect("a journal");
    assert!(result.sentence.contains("was refused the lock 'orders', which holds its own token"));
    assert_eq!(broken(&server), [Check::NoLockHeld, Check::RefusedByOwnToken]);
}

#[test]
fn lost_waiters_and_expired_leases_are_found_by_their_checks() {
    let server = server();
    let (mut a, mut b) = (server.client().expect("a"), server.client().expect("b"));
    call(&mut a, "SET lock x NX PX 50");
    call(&mut b, "SET lock y NX PX 50");
    let journal = server.journal();
    journal.assert_no_waiter_lost();
    journal.assert_renewed_before_expiry();
    advance(&server, 50);
    let lost = journal.check(Check::NoWaiterLost).expect("a journal").sentence;
    let expected = "client 2 was refused the lock 'lock' 50 ms ago and has not acquired it, \
                    although it is free";
    assert_eq!(lost, expected);
    let expired = journal.check(Check::RenewedBeforeExpiry).expect("a journal").sentence;
    assert_eq!(expired, "the lease of the lock 'lock' expired while client 1 held it as 'x'");
    call(&mut b, "SET lock y NX PX 50");
    journal.assert_no_waiter_lost();
}

#[test]
fn server_without_journal_returns_an_error() {
    let server = Server::start().expect("a server");
    let error = server.journal().entries().expect_err("no journal");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(catch_unwind(AssertUnwindSafe(|| server.journal().assert_no_lock_held())).is_err());
}

#[test]
fn journal_is_available_by_command() {
    let server = server();
    let mut a = Wire::connect(server.addr(), 2);
    let mut b = Wire::connect(server.addr(), 2);
    assert_eq!(a.ask("LOCKWHEEL JOURNAL HOLDERS"), "$2\r\n[]\r\n");
    a.ask("SETNX lock token");
    b.ask("SETNX lock other");
    let locks = a.ask("LOCKWHEEL JOURNAL HOLDERS");
    assert!(locks.contains("\"key\":\"lock\",\"database\":0,\"owner\":\"token\""), "{locks}");
    assert!(locks.contains("\"lease_ms\":null,\"waiting\":["), "{locks}");
    let lint = a.ask("LOCKWHEEL LINT");
    assert!(lint.contains("\"rule\":\"lock-without-lease\",\"key\":\"lock\""), "{lint}");
    let journal = a.ask("LOCKWHEEL JOURNAL KEY lo* SINCE 1 COUNT 2");
    assert!(journal.contains("\"argv\":[\"SETNX\",\"lock\",\"other\"]"), "{journal}");
    assert!(journal.contains("\"event\":\"refused\",\"by\":\"other\",\"holder\":\"token\""));
    assert!(!journal.contains("acquired"), "{journal}");
    let text = a.ask("LOCKWHEEL JOURNAL COUNT 1 TEXT");
    assert!(text.contains("  +0 ms #6 client 2: was refused 'lock' as 'other'"), "{text}");
    let story = a.ask("LOCKWHEEL CHECK every-lock-has-a-lease STORY");
    let begin = "{\"text\":\"every-lock-has-a-lease: the lock 'lock' that";
    assert!(story.contains(begin) && story.contains("SETNX lock token -> 1\\n"), "{story}");
    let check = a.ask("LOCKWHEEL CHECK every-lock-has-a-lease");
    assert!(check.starts_with("-CHECK every-lock-has-a-lease: the lock 'lock' that"), "{check}");
    let story = a.ask("LOCKWHEEL CHECK no-lock-held STORY");
    assert!(story.contains("\"check\":\"no-lock-held\",\"holds\":false,\"sentence\":"), "{story}");
    assert!(story.contains("\"event\":\"acquired\""), "{story}");
    assert!(a.ask("LOCKWHEEL CHECK").starts_with("-CHECK no-lock-held: "));
    assert!(
        a.ask("LOCKWHEEL CHECK no-such")
            .starts_with("-ERR unknown check 'no-such'. Known: no-lock-held, ")
    );
    a.ask("FLUSHALL");
    assert_eq!(a.ask("LOCKWHEEL CHECK no-lock-held"), "+OK\r\n");
    assert_eq!(a.ask("LOCKWHEEL JOURNAL CLEAR"), "+OK\r\n");
    assert_eq!(a.ask("LOCKWHEEL JOURNAL"), "$2\r\n[]\r\n");
}

#[test]
fn passwords_of_users_are_not_in_the_journal() {
    const SECRET: &str = "s3cret";
    let hash = "5ec4e7".repeat(11)[..64].to_owned();
    let server = server();
    let mut a = Wire::connect(server.addr(), 2);
    let rules = [
        format!("on >{SECRET} <{SECRET} #{hash} !{hash}"),
        format!("(+get >{SECRET})"),
        format!("<{SECRET}"),
        format!("#{SECRET}"),
    ];
    for rule in &rules {
        a.ask(&format!("ACL SETUSER locker {rule}"));
        a.ask("MULTI");
        assert_eq!(a.ask(&format!("ACL SETUSER locker {rule}")), "+QUEUED\r\n");
        a.ask("EXEC");
    }
    let entries = server.journal().entries().expect("a journal");
    let texts = [
        format!("{entries:?}"),
        entries.iter().map(|entry| format!("{entry}\n")).collect(),
        a.ask("LOCKWHEEL JOURNAL"),
        a.ask("LOCKWHEEL JOURNAL TEXT"),
    ];
    for text in texts {
        assert!(text.matches("SETUSER").count() >= 2 * rules.len(), "{text}");
        assert!(!text.contains(SECRET) && !text.contains(&hash), "{text}");
    }
}

/// Plans and Lua record the same calls.
#[test]
fn calls_of_scripts_are_recorded_in_both_tiers() {
    let calls = ["yes", "no"].map(|plans| {
        let server = Server::builder().frozen_clock().for_tests();
        let server = server.config("script-plans", plans).start().expect("a server");
        let mut client = server.client().expect("a client");
        script(&mut client, LOCK_3, &["30000", OWNER_A]);
        let entries = server.journal().entries().expect("a journal");
        entries.iter().map(ToString::to_string).collect::<Vec<_>>()
    });
    assert_eq!(calls[0], calls[1]);
    let called = |line: &&String| line.contains("(script)");
    assert_eq!(calls[0].iter().filter(called).count(), 3, "{:?}", calls[0]);
}
