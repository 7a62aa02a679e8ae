//! What has happened on a running server, for a test to read and to assert of.

use crate::error::{Error, ErrorKind};
use crate::net::host::Host;
use lockwheel_engine::Engine;
use lockwheel_engine::journal::HeldLock;
use lockwheel_engine::journal::Selection;
use lockwheel_engine::journal::checks::{Check, CheckResult, Finding};
use lockwheel_engine::journal::entry::{Entry, story};
use lockwheel_engine::time::Time;

/// What has happened on a server that was started for tests (`enable-test-commands`): its
/// commands, what became of its locks, and what is to be said of that.
///
/// Locks are recognised from what commands do, whatever library sends them: strings that `SETNX` or
/// `SET NX` made, and hashes that scripts keep as Redisson does. Clients are connections: who takes
/// a lock through one and deletes it through another, without its token, is a stranger to it.
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
/// An assertion that fails says what broke the rule, and what happened to that lock in time order:
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
    /// What has happened, in time order. The latest thousands are kept.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        self.ask(|engine, _| Some(engine.journal()?.select(Selection::default())))
    }

    /// The same as people read it: a line for each entry, with the milliseconds since the first.
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
        self.ask(|engine, time| engine.journal().map(|_| engine.held_locks(time)))
    }

    /// The mistakes that were made: a lock without a lease, a lease in a second step, a `DEL`
    /// without a look at whose lock it is, or with one in a step of its own, a lease shorter than
    /// the hold, a renewal after the loss.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn lint(&self) -> Result<Vec<Finding>, Error> {
        self.ask(Engine::lint_locks)
    }

    /// Whether a rule has been kept, and the story of what broke it first.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn check(&self, check: Check) -> Result<CheckResult, Error> {
        self.ask(|engine, time| engine.check_locks(check, time))
    }

    /// Forgets what has happened. Locks that are held stay known.
    ///
    /// # Errors
    /// If the server keeps no journal, or has ended.
    pub fn clear(&self) -> Result<(), Error> {
        self.host.with(Engine::clear_journal)?.ok_or_else(no_journal)
    }

    /// Nobody holds a lock any more.
    ///
    /// # Panics
    /// If somebody does, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_no_lock_held(&self) {
        self.assert(Check::NoLockHeld);
    }

    /// Nobody took a lock while another believed to have it: whoever lost a lock has not come back
    /// to release or renew it when it was somebody else's.
    ///
    /// # Panics
    /// If somebody did, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_never_two_holders(&self) {
        self.assert(Check::NeverTwoHolders);
    }

    /// Every lock was given a lease while it was held.
    ///
    /// # Panics
    /// If one was not, the server keeps no journal, or has ended.
    #[track_caller]
    pub fn assert_every_lock_has_a_lease(&self) {
        self.assert(Check::EveryLockHasALease);
    }

    /// No lock was taken away by somebody who had not shown to be its owner.
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
            Ok(verdict) => assert!(verdict.holds, "{verdict}"),
            Err(error) => panic!("{}: {error}", check.name()),
        }
    }

    fn ask<T>(&self, what: impl FnOnce(&Engine, Time) -> Option<T>) -> Result<T, Error> {
        let now = self.host.now();
        self.host.with(|engine| what(engine, now))?.ok_or_else(no_journal)
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
