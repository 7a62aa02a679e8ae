//! Mistakes of common lock recipes. Each has two tests: the mistake, shown with the clock and the
//! faults, and its correction under the same conditions.
//!
//! The packages of other languages have the same tests, with the same names, in `tests/packages`.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lockwheel::{Check, Client, Error, Fault, LintRule, Reply, Requests, Server};
use lockwheel_tests::process::eventually;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, COMPARE_AND_RENEW, LOCK_3, UNLOCK_3};
use lockwheel_tests::wait_at;

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// The lease of [`take`].
const LEASE: Duration = Duration::from_secs(10);

type TestResult = Result<(), Error>;

/// A server with a stopped clock.
fn server() -> Result<Server, Error> {
    Server::builder().frozen_clock().for_tests().start()
}

fn call(client: &mut Client, command: &str) -> Result<Reply, Error> {
    client.call(&command.split(' ').collect::<Vec<_>>())
}

fn eval(client: &mut Client, script: &str, keys_and_arguments: &str) -> Result<Reply, Error> {
    let words = keys_and_arguments.split(' ');
    client.call(&["EVAL", script].into_iter().chain(words).collect::<Vec<_>>())
}

/// Acquires the lock for `token` for ten seconds. Returns whether it was granted.
fn take(client: &mut Client, token: &str) -> Result<bool, Error> {
    Ok(call(client, &format!("SET lock {token} NX PX 10000"))? == Reply::OK)
}

/// Releases the lock if it is held by `token`. Returns whether it was.
fn release(client: &mut Client, token: &str) -> Result<bool, Error> {
    Ok(eval(client, COMPARE_AND_DELETE, &format!("1 lock {token}"))? == Reply::Integer(1))
}

/// Renews the lock for ten seconds if it is held by `token`. Returns whether it was.
fn renew(client: &mut Client, token: &str) -> Result<bool, Error> {
    Ok(eval(client, COMPARE_AND_RENEW, &format!("1 lock {token} 10000"))? == Reply::Integer(1))
}

fn lint(server: &Server) -> Result<Vec<LintRule>, Error> {
    Ok(server.journal().lint()?.iter().map(|finding| finding.rule).collect())
}

fn holds(server: &Server, check: Check) -> Result<bool, Error> {
    Ok(server.journal().check(check)?.holds)
}

#[test]
fn setnx_without_a_lease() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert_eq!(call(&mut a, "SETNX lock a")?, Reply::Integer(1));
    drop(a); // It dies.
    server.advance(YEAR)?;
    assert_eq!(call(&mut b, "SETNX lock b")?, Reply::Integer(0));
    assert!(!holds(&server, Check::EveryLockHasALease)?);
    assert_eq!(lint(&server)?, [LintRule::LockWithoutLease]);
    Ok(())
}

#[test]
fn setnx_without_a_lease_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    drop(a);
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?);
    server.journal().assert_every_lock_has_a_lease();
    Ok(())
}

#[test]
fn setnx_then_expire() -> TestResult {
    let server = server()?;
    server.faults().add(Fault::Close, Requests::any().command("expire"))?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert_eq!(call(&mut a, "SETNX lock a")?, Reply::Integer(1));
    assert!(call(&mut a, "EXPIRE lock 10").is_err());
    server.advance(YEAR)?;
    assert_eq!(call(&mut b, "SETNX lock b")?, Reply::Integer(0));
    assert!(!holds(&server, Check::EveryLockHasALease)?);
    Ok(())
}

#[test]
fn setnx_then_expire_corrected() -> TestResult {
    let server = server()?;
    server.faults().add(Fault::LoseAndClose, Requests::any().command("set").nth(1))?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a").is_err());
    assert!(!take(&mut b, "b")?, "a has it, and does not know");
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?);
    server.journal().assert_every_lock_has_a_lease();
    Ok(())
}

#[test]
fn release_without_a_check() -> TestResult {
    let server = server()?;
    let (mut a, mut b, mut c) = (server.client()?, server.client()?, server.client()?);
    assert!(take(&mut a, "OK")?);
    server.advance(LEASE)?; // It still works ...
    assert!(take(&mut b, "OK")?);
    call(&mut a, "DEL lock")?; // ... and is done.
    assert!(take(&mut c, "OK")?, "b and c are inside");
    assert!(!holds(&server, Check::ReleasedOnlyByOwner)?);
    assert!(lint(&server)?.contains(&LintRule::DeleteWithoutCheck));
    Ok(())
}

#[test]
fn release_without_a_check_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b, mut c) = (server.client()?, server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?);
    assert!(!release(&mut a, "a")?);
    assert!(!take(&mut c, "c")?);
    assert!(release(&mut b, "b")?);
    server.journal().assert_released_only_by_owner();
    server.journal().assert_no_lock_held();
    Ok(())
}

/// Releases a lock of a client whose lease ends before the last command of the release, so that
/// another client takes the lock.
fn while_it_is_released<T: Send>(
    server: &Server,
    last_command: &str,
    release: impl FnOnce(&mut Client) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    let gate = server.faults().gate(Requests::any().command(last_command))?;
    std::thread::scope(|scope| {
        let releases = scope.spawn(move || release(&mut a));
        wait_at(&gate)?;
        server.advance(LEASE)?;
        assert!(take(&mut b, "b")?);
        gate.open()?;
        releases.join().expect("a thread")
    })
}

#[test]
fn check_then_delete() -> TestResult {
    let server = server()?;
    while_it_is_released(&server, "del", |a| {
        assert_eq!(call(a, "GET lock")?, Reply::bulk("a"));
        call(a, "DEL lock")
    })?;
    assert_eq!(server.call(&["GET", "lock"])?, Reply::Null, "b works, and holds nothing");
    assert!(lint(&server)?.contains(&LintRule::CompareAndDeleteInTwoSteps));
    Ok(())
}

#[test]
fn check_then_delete_corrected() -> TestResult {
    let by_script = server()?;
    assert!(!while_it_is_released(&by_script, "eval", |a| release(a, "a"))?);
    assert_eq!(by_script.call(&["GET", "lock"])?, Reply::bulk("b"));

    let by_transaction = server()?;
    let deleted = while_it_is_released(&by_transaction, "exec", |a| {
        call(a, "WATCH lock")?;
        assert_eq!(call(a, "GET lock")?, Reply::bulk("a"));
        call(a, "MULTI")?;
        call(a, "DEL lock")?;
        call(a, "EXEC")
    })?;
    assert_eq!(deleted, Reply::Null);
    assert_eq!(by_transaction.call(&["GET", "lock"])?, Reply::bulk("b"));
    Ok(())
}

#[test]
fn work_longer_than_the_lease() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?, "both are inside");
    server.advance(5 * SECOND)?;
    assert!(!release(&mut a, "a")?, "the release fails after fifteen seconds");
    assert!(lint(&server)?.contains(&LintRule::LeaseShorterThanHold));
    assert!(!holds(&server, Check::NeverTwoHolders)?);
    Ok(())
}

#[test]
fn work_longer_than_the_lease_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    for _ in 0..5 {
        server.advance(LEASE / 3)?;
        assert!(renew(&mut a, "a")?);
        assert!(!take(&mut b, "b")?);
    }
    assert!(release(&mut a, "a")?);
    assert!(take(&mut b, "b")?);
    assert!(lint(&server)?.is_empty());
    server.journal().assert_never_two_holders();
    Ok(())
}

#[test]
fn renewal_without_a_check() -> TestResult {
    let server = server()?;
    let (mut a, mut b, mut c) = (server.client()?, server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?);
    drop(b); // Other clients should not wait longer than its lease.
    server.advance(9 * SECOND)?;
    assert_ne!(call(&mut a, "GET lock")?, Reply::Null, "there is a lock ...");
    assert_eq!(call(&mut a, "EXPIRE lock 10")?, Reply::Integer(1), "... so it is renewed");
    server.advance(SECOND)?;
    assert!(!take(&mut c, "c")?);
    assert!(lint(&server)?.contains(&LintRule::RenewalAfterLoss));
    Ok(())
}

#[test]
fn renewal_without_a_check_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b, mut c) = (server.client()?, server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    server.advance(LEASE)?;
    assert!(take(&mut b, "b")?);
    drop(b);
    server.advance(9 * SECOND)?;
    assert!(!renew(&mut a, "a")?, "and so it learns that it must stop");
    server.advance(SECOND)?;
    assert!(take(&mut c, "c")?);
    Ok(())
}

#[test]
fn not_reentrant() -> TestResult {
    let server = server()?;
    let mut a = server.client()?;
    assert!(take(&mut a, "a")?);
    assert!(!take(&mut a, "a")?, "it waits for itself ...");
    server.advance(LEASE)?;
    assert!(take(&mut a, "a")?, "... until it has lost what it waited for");
    Ok(())
}

#[test]
fn not_reentrant_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    let lock = |client: &mut Client, owner| eval(client, LOCK_3, &format!("1 lock 10000 {owner}"));
    let unlock = |client: &mut Client| eval(client, UNLOCK_3, "2 lock released 0 10000 a:1");
    assert_eq!(lock(&mut a, "a:1")?, Reply::Null);
    assert_eq!(lock(&mut a, "a:1")?, Reply::Null);
    assert_eq!(call(&mut a, "HGET lock a:1")?, Reply::bulk("2"));
    assert_eq!(unlock(&mut a)?, Reply::Integer(0), "still inside");
    assert_eq!(lock(&mut b, "b:1")?, Reply::Integer(10_000));
    assert_eq!(unlock(&mut a)?, Reply::Integer(1));
    assert_eq!(lock(&mut b, "b:1")?, Reply::Null);
    Ok(())
}

#[test]
fn waiting_for_the_release_message_alone() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    assert!(take(&mut a, "a")?);
    assert!(!take(&mut b, "b")?);
    call(&mut b, "SUBSCRIBE released")?;
    drop(a); // A closed client does not publish.
    server.advance(YEAR)?;
    assert_eq!(server.call(&["EXISTS", "lock"])?, Reply::Integer(0));
    assert_eq!(b.try_receive()?, None, "the lock is free, and b waits");
    Ok(())
}

#[test]
fn waiting_for_the_release_message_alone_corrected() -> TestResult {
    let server = server()?;
    let (mut a, mut b) = (server.client()?, server.client()?);
    call(&mut b, "CONFIG SET notify-keyspace-events Ex")?;
    assert!(take(&mut a, "a")?);
    assert!(!take(&mut b, "b")?);
    // The client waits for a message no longer than the lease, or also for the end of the lease.
    let Reply::Integer(remaining_ms) = call(&mut b, "PTTL lock")? else { panic!("no lease") };
    call(&mut b, "SUBSCRIBE released __keyevent@0__:expired")?;
    assert!(b.try_receive()?.is_some(), "the second subscription");
    drop(a);
    server.advance(Duration::from_millis(remaining_ms.cast_unsigned()))?;
    assert!(b.try_receive()?.is_some(), "expired");
    assert!(take(&mut b, "b")?);
    Ok(())
}

#[test]
fn lost_reply() -> TestResult {
    let server = server()?;
    server.faults().add(Fault::LoseAndClose, Requests::any().command("set").nth(1))?;
    assert!(take(&mut server.client()?, "a1").is_err());
    let mut a = server.client()?;
    for token in ["a2", "a3", "a4"] {
        assert!(!take(&mut a, token)?, "its own lock keeps it out");
        server.advance(3 * SECOND)?;
    }
    server.advance(SECOND)?;
    assert!(take(&mut a, "a5")?);
    Ok(())
}

#[test]
fn lost_reply_corrected() -> TestResult {
    let server = server()?;
    server.faults().add(Fault::LoseAndClose, Requests::any().command("set").nth(1))?;
    assert!(take(&mut server.client()?, "a").is_err());
    let mut a = server.client()?;
    // The same token again: the client gets the lock, or sees that it has it.
    assert!(take(&mut a, "a")? || call(&mut a, "GET lock")? == Reply::bulk("a"));
    assert!(renew(&mut a, "a")?, "from now on for the whole lease");
    assert!(release(&mut a, "a")?);
    Ok(())
}

#[test]
fn failover_loses_the_lock() -> TestResult {
    let server = server()?;
    assert!(take(&mut server.client()?, "a")?);
    assert_eq!(server.faults().failover(1)?, 1);
    let mut b = server.client()?;
    assert!(take(&mut b, "b")?, "both are inside");
    assert!(!release(&mut server.client()?, "a")?, "the release of a fails, too late");
    Ok(())
}

/// Several independent servers; a lock is held on a majority of them.
struct Majority {
    servers: Vec<Server>,
}

impl Majority {
    fn of_three() -> Result<Majority, Error> {
        Ok(Majority { servers: (0..3).map(|_| server()).collect::<Result<_, _>>()? })
    }

    /// Acquires the lock on all servers. Returns the number of servers that report a grant.
    fn take(&self, token: &str) -> usize {
        let taken = |server: &&Server| take(&mut server.client()?, token);
        self.servers.iter().filter(|server| taken(server).unwrap_or(false)).count()
    }

    fn release(&self, token: &str) -> TestResult {
        self.servers.iter().try_for_each(|it| release(&mut it.client()?, token).map(|_| ()))
    }

    fn advance(&self, span: Duration) -> TestResult {
        // In reverse order: the first server releases the clients that request in this order.
        self.servers.iter().rev().try_for_each(|server| server.advance(span))
    }

    fn now(&self) -> SystemTime {
        self.servers[0].clock().now()
    }
}

#[test]
fn failover_loses_the_lock_corrected() -> TestResult {
    let majority = Majority::of_three()?;
    assert_eq!(majority.take("a"), 3);
    majority.servers[1].faults().failover(1)?;
    assert_eq!(majority.take("b"), 1, "and one of three is not most of them");
    Ok(())
}

/// Takes the lock while each server needs four seconds for it. Returns the number of grants and the
/// time that passed.
fn take_slowly(majority: &Majority, token: &str) -> Result<(usize, Duration), Error> {
    let begin = majority.now();
    let slow = majority.servers.iter().map(|server| {
        server.faults().add(Fault::Delay(4 * SECOND), Requests::any().command("set").nth(1))
    });
    let slow = slow.collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let takes = scope.spawn(|| majority.take(token));
        for rule in slow {
            eventually("it is held", || rule.fired().is_ok_and(|count| count == 1));
            majority.advance(4 * SECOND)?;
        }
        let count = takes.join().expect("a thread");
        Ok((count, majority.now().duration_since(begin).expect("it does not go back")))
    })
}

#[test]
fn slow_majority() -> TestResult {
    let majority = Majority::of_three()?;
    let (count, _) = take_slowly(&majority, "a")?;
    assert_eq!(count, 3, "so it believes that it holds the lock, for ten seconds");
    majority.advance(6 * SECOND)?;
    assert_eq!(majority.take("b"), 2, "b holds it as well");
    Ok(())
}

#[test]
fn slow_majority_corrected() -> TestResult {
    let majority = Majority::of_three()?;
    let (count, elapsed) = take_slowly(&majority, "a")?;
    let valid = LEASE.checked_sub(elapsed);
    assert_eq!((count, valid), (3, None), "there is nothing left of the lease");
    majority.release("a")?;
    assert_eq!(majority.take("b"), 3);
    Ok(())
}

/// Takes the lock on three servers; the replies of two are lost.
fn take_unknowingly(majority: &Majority, token: &str) -> TestResult {
    for server in &majority.servers[1..] {
        server.faults().add(Fault::LoseAndClose, Requests::any().command("set").nth(1))?;
    }
    assert_eq!(majority.take(token), 1, "it gives up");
    Ok(())
}

#[test]
fn leftovers_of_a_failed_majority() -> TestResult {
    let majority = Majority::of_three()?;
    take_unknowingly(&majority, "a")?;
    assert!(release(&mut majority.servers[0].client()?, "a")?, "where it knows that it has it");
    assert_eq!(majority.take("b"), 1, "no client holds the lock, and none gets it");
    majority.servers[1].journal().assert_released_only_by_owner();
    assert!(!holds(&majority.servers[1], Check::NoLockHeld)?);
    Ok(())
}

#[test]
fn leftovers_of_a_failed_majority_corrected() -> TestResult {
    let majority = Majority::of_three()?;
    take_unknowingly(&majority, "a")?;
    majority.release("a")?;
    majority.servers.iter().for_each(|server| server.journal().assert_no_lock_held());
    assert_eq!(majority.take("b"), 3);
    Ok(())
}

/// The letters of a name, which are the same in the naming style of every language.
fn letters(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphabetic);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

#[test]
fn every_language_has_every_recipe() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages");
    let files = [
        "go/recipes_test.go",
        "java/junit5/src/test/java/lockwheel/packages/RecipesTest.java",
        "node/recipes.test.js",
        "python/test_recipes.py",
    ];
    let this = include_str!("recipes.rs");
    let tests = this.split("#[test]\nfn ").skip(1);
    let named = tests.filter_map(|text| text.lines().next()?.strip_suffix("() -> TestResult {"));
    let names: Vec<String> = named.map(letters).collect();
    assert_eq!(names.len(), 24);
    for file in files {
        let text = fs::read_to_string(packages.join(file)).expect(file);
        let text = letters(&text);
        // The name of the correction begins with that of the mistake.
        let times = |name: &str| if name.ends_with("corrected") { 1 } else { 2 };
        let is_present = |name: &&String| text.matches(&name[..]).count() >= times(name);
        let missing: Vec<_> = names.iter().filter(|name| !is_present(name)).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
}
