//! The journal of a running server, for a test to read and to assert.

use crate::error::{Error, ErrorKind};
use crate::net::host::Host;
use lockwheel_engine::Engine;
use lockwheel_engine::instruments::journal::HeldLock;
use lockwheel_engine::instruments::journal::Selection;
use lockwheel_engine::instruments::journal::checks::{Check, CheckResult, Finding};
use lockwheel_engine::instruments::journal::entry::{Entry, story};
use lockwheel_engine::time::Time;

/// The journal of a server that was started for tests (`enable-test-commands`): the commands it has
/// run, the locks they took and released, and mistakes in the use of locks.
///
/// Locks are recognised by the effects of commands, whichever library sends them: strings set by
/// `SETNX` or `SET NX`, and hashes written by scripts as in Redisson. A client is a connection: a
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
#[derive(Clone, Copy)]
pub struct Journal<'a> {
    pub(crate) host: &'a Host,
}

impl Journal<'_> {
    /// The entries in order of time. The last few thousand are kept.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        self.query(|engine, _| Some(engine.journal()?.select(Selection::default())))
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
        Ok(story(&self.entries()?))
    }

    /// The locks that are held.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn locks(&self) -> Result<Vec<HeldLock>, Error> {
        self.query(|engine, time| engine.journal().map(|_| engine.held_locks(time)))
    }

    /// The mistakes found: a lock without a lease, a lease set in a second step, a `DEL` without a
    /// check of the owner, or with the check in a separate step, a lease shorter than the hold, a
    /// renewal after the loss of the lock.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn lint(&self) -> Result<Vec<Finding>, Error> {
        self.query(Engine::lint_locks)
    }

    /// Whether a check holds, and the entries that led to the first violation.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn check(&self, check: Check) -> Result<CheckResult, Error> {
        self.query(|engine, time| engine.check_locks(check, time))
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
