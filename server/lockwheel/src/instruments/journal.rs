//! The journal of a running server, for a test to read and to assert.

use crate::error::{Error, ErrorKind};
use crate::host::Host;
use lockwheel_engine::Engine;
use lockwheel_engine::instruments::journal::Selection;
use lockwheel_engine::instruments::journal::checks::{Check, CheckResult, Finding, Scope};
use lockwheel_engine::instruments::journal::entry::{Entry, story};
use lockwheel_engine::locks::{HeldLock, KnownLock};
use lockwheel_engine::timing::time::Time;

/// The journal of a server that was started for tests (`enable-test-commands`): the commands it has
/// run, the locks they took and released, and mistakes in the use of locks.
///
/// Locks are recognised by what commands do to keys, whichever library sends them;
/// `docs/recognition.md` has the rule. Keys that are only possibly locks are listed, and break no
/// check unless the journal is narrowed to their [`key`](Journal::key). A client is a connection: a
/// connection that deletes a lock taken through another one, without its token, is not its owner.
///
/// ```
/// use lockwheel::Server;
///
/// let server = Server::builder().for_tests().start()?;
/// let mut worker = server.client()?;
/// worker.call(&["SET", "lock", "token", "NX", "PX", "30000"])?;
/// assert_eq!(server.journal().locks()?[0].owner, "token");
/// let compare_and_delete = "if redis.call('get', KEYS[1]) == ARGV[1] then \
///     return redis.call('del', KEYS[1]) else return 0 end";
/// worker.call(&["EVAL", compare_and_delete, "1", "lock", "token"])?;
///
/// server.journal().assert_no_lock_held();
/// server.journal().assert_never_two_holders();
/// server.journal().assert_every_lock_has_a_lease();
/// server.journal().assert_released_only_by_owner();
/// assert!(server.journal().lint()?.is_empty());
/// # Ok::<(), lockwheel::Error>(())
/// ```
///
/// A failed assertion shows the violation, and the entries of that lock in order of time:
///
/// ```should_panic
/// # let server = lockwheel::Server::builder().for_tests().start()?;
/// server.call(&["SET", "lock", "token", "NX", "PX", "30000"])?;
/// server.call(&["DEL", "lock"])?;
/// // released-only-by-owner: the lock 'lock' of client 1 was released by client 2
/// //   +0 ms #1 client 1: SET lock token NX PX 30000 -> OK
/// //   +0 ms #2 client 1: acquired 'lock' as 'token' for 30000 ms
/// //   +0 ms #3 client 2: DEL lock -> 1
/// //   +0 ms #4 client 2: released 'lock', which is that of 'token', taken by client 1
/// server.journal().assert_released_only_by_owner();
/// # Ok::<(), lockwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct Journal<'a> {
    pub(crate) host: &'a Host,
    key: Option<String>,
    client: Option<String>,
    since: u64,
}

impl<'a> Journal<'a> {
    pub(crate) fn new(host: &'a Host) -> Journal<'a> {
        Journal { host, key: None, client: None, since: 0 }
    }

    /// Only keys that match this pattern, with the wildcards of `KEYS`. Checks and lint then also
    /// consider keys that are only possibly locks.
    ///
    /// ```
    /// let server = lockwheel::Server::builder().for_tests().start()?;
    /// server.call(&["SET", "job:1", "1", "NX", "EX", "60"])?;
    /// server.journal().assert_no_lock_held();
    /// assert!(!server.journal().key("job:*").check(lockwheel::Check::NoLockHeld)?.holds);
    /// # Ok::<(), lockwheel::Error>(())
    /// ```
    #[must_use]
    pub fn key(mut self, pattern: &str) -> Journal<'a> {
        self.key = Some(pattern.to_owned());
        self
    }

    /// Only what this client has done: its `CLIENT ID`, or its name.
    #[must_use]
    pub fn client(mut self, client: impl std::fmt::Display) -> Journal<'a> {
        self.client = Some(client.to_string());
        self
    }

    /// Only what happened after the entry with this number.
    #[must_use]
    pub fn since(mut self, seq: u64) -> Journal<'a> {
        self.since = seq;
        self
    }

    /// Declares that keys that match `pattern` are locks, however they are made.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn declare_locks(&self, pattern: &str) -> Result<(), Error> {
        let declare = |engine: &mut Engine| engine.declare_locks(pattern.as_bytes());
        self.host.with(declare)?.ok_or_else(no_journal)
    }

    /// Declares that keys that match `pattern` are no locks, also if they match another pattern.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn ignore_locks(&self, pattern: &str) -> Result<(), Error> {
        let ignore = |engine: &mut Engine| engine.ignore_locks(pattern.as_bytes());
        self.host.with(ignore)?.ok_or_else(no_journal)
    }

    fn scope(&self) -> Scope<'_> {
        let key = self.key.as_deref().map(str::as_bytes);
        let client = self.client.as_deref().map(str::as_bytes);
        Scope { key, client, since: self.since }
    }

    /// The entries in order of time. The last few thousand are kept.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let scope = self.scope();
        self.query(|engine, _| Some(engine.journal()?.select(Selection { scope, count: None })))
    }

    /// The entries as text: a line for each, with the milliseconds since the first.
    ///
    /// ```
    /// let server = lockwheel::Server::builder().frozen_clock().for_tests().start()?;
    /// server.call(&["SETNX", "lock", "token"])?;
    /// let story = "  +0 ms #1 client 1: SETNX lock token -> 1\n  \
    ///     +0 ms #2 client 1: acquired 'lock' as 'token' without a lease\n";
    /// assert_eq!(server.journal().story()?, story);
    /// # Ok::<(), lockwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn story(&self) -> Result<String, Error> {
        Ok(story(&self.entries()?, None))
    }

    /// The locks that are held, also the possible ones.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn locks(&self) -> Result<Vec<HeldLock>, Error> {
        self.query(|engine, time| engine.journal().map(|_| engine.held_locks(time)))
    }

    /// The keys that are or were locks, also the possible ones, and why.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn known_locks(&self) -> Result<Vec<KnownLock>, Error> {
        self.query(|engine, time| engine.journal().map(|_| engine.known_locks(time)))
    }

    /// The mistakes found: a lock without a lease, a lease set in a second step, a `DEL` without a
    /// check of the owner, or with the check in a separate step, a lease shorter than the hold, a
    /// renewal after the loss of the lock.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn lint(&self) -> Result<Vec<Finding>, Error> {
        self.query(|engine, time| engine.lint_locks(self.scope(), time))
    }

    /// Whether a check holds, and the entries that led to the first violation.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn check(&self, check: Check) -> Result<CheckResult, Error> {
        self.query(|engine, time| engine.check_locks(check, self.scope(), time))
    }

    /// Removes all entries. Locks that are held stay in the journal.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn clear(&self) -> Result<(), Error> {
        self.host.with(Engine::clear_journal)?.ok_or_else(no_journal)
    }

    /// Asserts that no lock is held.
    ///
    /// # Panics
    /// If a lock is held, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_no_lock_held(&self) {
        self.assert(Check::NoLockHeld);
    }

    /// Asserts that no client took a lock while another believed to hold it: no client has tried to
    /// release or renew a lock that it had lost to another.
    ///
    /// # Panics
    /// If a client did, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_never_two_holders(&self) {
        self.assert(Check::NeverTwoHolders);
    }

    /// Asserts that every lock got a lease while it was held.
    ///
    /// # Panics
    /// If one was not, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_every_lock_has_a_lease(&self) {
        self.assert(Check::EveryLockHasALease);
    }

    /// Asserts that no lock was removed by a client that had not proved to be its owner.
    ///
    /// # Panics
    /// If one was, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_released_only_by_owner(&self) {
        self.assert(Check::ReleasedOnlyByOwner);
    }

    /// Asserts that no client was refused a lock that holds the client's own token.
    ///
    /// # Panics
    /// If one was, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_not_refused_by_own_token(&self) {
        self.assert(Check::RefusedByOwnToken);
    }

    /// Asserts that every client that was refused a lock has acquired it since, unless it is held.
    ///
    /// # Panics
    /// If one has not, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_no_waiter_lost(&self) {
        self.assert(Check::NoWaiterLost);
    }

    /// Asserts that no lease expired: every lock was renewed or released before.
    ///
    /// # Panics
    /// If one has, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_renewed_before_expiry(&self) {
        self.assert(Check::RenewedBeforeExpiry);
    }

    #[track_caller]
    fn assert(&self, check: Check) {
        match self.check(check) {
            Ok(result) => assert!(result.holds, "{result}"),
            Err(error) => panic!("{}: {error}", check.name()),
        }
    }

    fn query<T>(&self, query: impl FnOnce(&Engine, Time) -> Option<T>) -> Result<T, Error> {
        let now = self.host.now();
        self.host.with(|engine| query(engine, now))?.ok_or_else(no_journal)
    }
}

impl std::fmt::Debug for Journal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

fn no_journal() -> Error {
    Error::new(
        ErrorKind::Usage,
        "no journal is kept: start the server with enable-test-commands yes (or local)",
    )
}
