//! Locks, recognised by the operations of commands on keys, whichever client sends them.
//!
//! These keys are locks:
//! - A string created by `SETNX`, `MSETNX` or `SET NX`, by a client or in a script; or by `SET`
//!   with a lease in a script that has the value among its arguments, unless the value is a number.
//!   The value is the owner. A number that a script sets without a lease is a counter, not a lock.
//! - A hash with a deadline that gets a field by `HSET`, `HSETNX` or `HINCRBY` in a script that has
//!   the field among its arguments, with a count as its value. Such fields are the owners. This
//!   covers Redisson's locks, fair locks and read/write locks.
//! - If `GETSET` replaces the value of a lock, the lock belongs to the client that replaced it,
//!   provided that the old value is a time that has passed, in milliseconds or seconds since 1970.
//!
//! These are not locks: semaphores, latches and limiters (counts), sets, lists, keys created by a
//! plain `SET`, and keys that a script sets without `NX` and without a lease. A key without
//! contention counts as a lock: the journal cannot distinguish the two.
//!
//! A lock is released by any command that removes it or its owner's field. A script, `DELEX` and
//! `DELIFEQ` act for the owner if the owner is among their arguments; any other command does if it
//! comes from the connection that acquired the lock, or from a transaction that watches the key and
//! has read it. A script with another known owner of that lock among its arguments acts for that
//! owner. All other releases are by non-owners. A client is a connection: if a pool acquires a lock
//! through one connection and deletes it through another, without proof, that is reported as a
//! release by a non-owner.
//!
//! If a script that acts for one owner of a hash also removes other owners, their leases have
//! expired: this is how the last reader releases a lock for readers.
//!
//! A refusal is a `SETNX` or `SET NX` that finds a lock, or a script that names a command that
//! acquires (`set`, `hset`, `hincrby`) and none that releases, and leaves a lock among its keys to
//! other owners. A script that names one that releases (`del`), or only one that renews
//! (`pexpire`), with the token of a lost lock is too late, and so is a plain `DEL` or `EXPIRE` of
//! the connection that lost it. The text of a function is not known, so functions are
//! recognised only by the keys they change.

use std::collections::{BTreeMap, VecDeque};

use crate::Engine;
use crate::limits::{JOURNAL_OWNER_BYTES_MAX, JOURNAL_REMEMBERED_MAX};
use crate::store::value::ValueRef;
use crate::time::Time;

use super::script::Purpose;

/// A key with its database.
pub(super) type LockKey = (usize, Vec<u8>);

/// A held lock.
#[derive(Debug)]
pub(super) struct Lock {
    /// More than one in a lock for readers.
    pub(super) holders: Vec<Holder>,
    pub(super) is_hash: bool,
    pub(super) deadline_ms: Option<i64>,
}

/// An owner that holds a lock.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) owner: Vec<u8>,
    pub(super) count: i64,
    pub(super) client: u64,
    pub(super) name: String,
    pub(super) since_ms: i64,
    /// The entry of the acquisition.
    pub(super) seq: u64,
}

/// An owner that has lost a lock and may not have noticed.
#[derive(Debug)]
pub(super) struct PreviousHolder {
    pub(super) lock_key: LockKey,
    pub(super) holder: Holder,
    pub(super) lost_ms: i64,
    /// The next holder, as text.
    pub(super) successor: Option<String>,
}

/// A client that was refused a lock and has not acquired it yet.
#[derive(Debug)]
pub(super) struct RefusedClient {
    pub(super) lock_key: LockKey,
    pub(super) client: u64,
    pub(super) token: Vec<u8>,
    pub(super) since_ms: i64,
}

/// A client that has read a lock.
#[derive(Debug)]
pub(super) struct LockReader {
    pub(super) lock_key: LockKey,
    pub(super) client: u64,
    pub(super) watches: bool,
}

/// The operations of a command on a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyAccess {
    /// Created a string.
    pub(super) made: bool,
    /// Set a string, whether or not it existed.
    pub(super) set: bool,
    /// Set a field.
    pub(super) field: bool,
    /// Set or cleared a deadline.
    pub(super) lease: bool,
    /// Removed the key or a field, or tried to.
    pub(super) removes: bool,
}

impl KeyAccess {
    pub(super) fn join(&mut self, other: KeyAccess) {
        self.made |= other.made;
        self.set |= other.set;
        self.field |= other.field;
        self.lease |= other.lease;
        self.removes |= other.removes;
    }
}

/// A command or script that may change locks.
#[derive(Debug)]
pub(super) struct LockOperation<'a> {
    pub(super) client: u64,
    pub(super) name: &'a str,
    pub(super) time: Time,
    pub(super) mechanism: LockMechanism,
    /// The owners it proves to know: arguments that may be tokens.
    pub(super) claims: Vec<&'a [u8]>,
    /// The number of the command's entry.
    pub(super) seq: u64,
}

/// How a command was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMechanism {
    Command,
    Transaction,
    Script(Purpose),
}

impl LockOperation<'_> {
    pub(super) fn now_ms(&self) -> i64 {
        self.time.now.0
    }

    pub(super) fn is_script(&self) -> bool {
        matches!(self.mechanism, LockMechanism::Script(_))
    }

    pub(super) fn claims(&self, owner: &[u8]) -> bool {
        self.claims.iter().any(|claim| cut(claim) == owner)
    }

    /// The claim that is most likely a token.
    pub(super) fn token(&self) -> &[u8] {
        let tokens = self.claims.iter().filter(|claim| !is_number(claim));
        tokens.max_by_key(|claim| claim.len()).map_or(b"", |claim| cut(claim))
    }
}

/// The present value of a key.
#[derive(Debug)]
pub(super) struct KeyState {
    /// The value of a string, the fields and counts of a hash, or nothing for other types.
    pub(super) owners: Vec<(Vec<u8>, i64)>,
    pub(super) is_hash: bool,
    pub(super) deadline_ms: Option<i64>,
}

/// Reads the present value of a key; `None` if it does not exist or has expired.
pub(super) fn look(engine: &Engine, lock_key: &LockKey, time: Time) -> Option<KeyState> {
    let (database, key) = lock_key;
    let slot = engine.writer.keyspace().find(*database, key)?;
    let database = engine.writer.keyspace().database(*database);
    if database.records().is_expired(slot, time) {
        return None;
    }
    let deadline = database.records().deadline(slot);
    let (owners, is_hash) = match database.record(slot).value() {
        ValueRef::String(text) => (vec![(cut(text.bytes()).to_vec(), 1)], false),
        // A lock for readers has as many fields as readers; a hash with far more is none.
        ValueRef::Hash(fields) => {
            let fields = fields.iter().take(JOURNAL_REMEMBERED_MAX);
            (fields.filter_map(|(field, value)| holder_field(field, value)).collect(), true)
        }
        _ => (Vec::new(), false),
    };
    Some(KeyState { owners, is_hash, deadline_ms: deadline.map(|deadline| deadline.0) })
}

fn holder_field(field: &[u8], value: &[u8]) -> Option<(Vec<u8>, i64)> {
    let count = lockwheel_resp::number::parse_integer(value).filter(|&count| count > 0)?;
    Some((cut(field).to_vec(), count))
}

/// The part of an owner that is stored and compared.
pub(super) fn cut(owner: &[u8]) -> &[u8] {
    &owner[..owner.len().min(JOURNAL_OWNER_BYTES_MAX)]
}

pub(super) fn is_number(text: &[u8]) -> bool {
    lockwheel_resp::number::parse_integer(text).is_some()
}

/// A token of this length is unlikely to be shared by two clients, so it identifies an owner.
const UNIQUE_TOKEN_BYTES: usize = 12;

fn is_unique(token: &[u8]) -> bool {
    token.len() >= UNIQUE_TOKEN_BYTES && !is_number(token)
}

/// Whether two pairs of client and token belong to the same owner.
fn are_same_owner(a: (u64, &[u8]), b: (u64, &[u8])) -> bool {
    if is_unique(a.1) && is_unique(b.1) { a.1 == b.1 } else { a.0 == b.0 }
}

/// All known locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) held: BTreeMap<LockKey, Lock>,
    pub(super) previous_holders: VecDeque<PreviousHolder>,
    pub(super) waiting: VecDeque<RefusedClient>,
    readers: VecDeque<LockReader>,
}

impl Locks {
    /// Whether a key that was not a lock has become one.
    pub(super) fn is_new(
        seen: &KeyState,
        access: KeyAccess,
        operation: &LockOperation<'_>,
    ) -> bool {
        if seen.is_hash {
            return access.field
                && operation.is_script()
                && seen.deadline_ms.is_some()
                && seen.owners.iter().any(|(owner, _)| operation.claims(owner));
        }
        let Some((owner, _)) = seen.owners.first() else { return false };
        let has_lease = seen.deadline_ms.is_some();
        if !operation.is_script() {
            return access.made;
        }
        access.made && (has_lease || !is_number(owner))
            || access.set && has_lease && operation.claims(owner) && !is_number(owner)
    }

    /// Records that a holder has lost a lock.
    pub(super) fn lose(&mut self, lock_key: &LockKey, holder: Holder, lost_ms: i64) {
        let previous =
            PreviousHolder { lock_key: lock_key.clone(), holder, lost_ms, successor: None };
        push(&mut self.previous_holders, previous);
    }

    /// Records a new holder: it becomes the successor of the previous holders, and is no longer one
    /// of them. Returns since when it had waited.
    pub(super) fn succeed(
        &mut self,
        lock_key: &LockKey,
        holder: &Holder,
        taker: &str,
    ) -> Option<i64> {
        let new = (holder.client, &holder.owner[..]);
        self.previous_holders.retain(|previous| {
            previous.lock_key != *lock_key
                || !are_same_owner((previous.holder.client, &previous.holder.owner), new)
        });
        for previous in
            self.previous_holders.iter_mut().filter(|previous| previous.lock_key == *lock_key)
        {
            previous.successor.get_or_insert_with(|| taker.to_owned());
        }
        let at = self.waiting.iter().position(|waiting| {
            waiting.lock_key == *lock_key && are_same_owner((waiting.client, &waiting.token), new)
        });
        at.and_then(|at| self.waiting.remove(at)).map(|waiting| waiting.since_ms)
    }

    /// Records that a lock was refused.
    pub(super) fn wait(&mut self, lock_key: &LockKey, client: u64, token: &[u8], now_ms: i64) {
        let known = self.waiting.iter().any(|waiting| {
            waiting.lock_key == *lock_key
                && are_same_owner((waiting.client, &waiting.token), (client, token))
        });
        if !known {
            let (lock_key, token) = (lock_key.clone(), token.to_vec());
            push(&mut self.waiting, RefusedClient { lock_key, client, token, since_ms: now_ms });
        }
    }

    /// Records that a client has read a lock.
    pub(super) fn read(&mut self, lock_key: &LockKey, client: u64, watches: bool) {
        self.take_reader(lock_key, client);
        push(&mut self.readers, LockReader { lock_key: lock_key.clone(), client, watches });
    }

    /// Removes and returns the record that a client has read a lock.
    pub(super) fn take_reader(&mut self, lock_key: &LockKey, client: u64) -> Option<LockReader> {
        let at =
            self.readers.iter().position(|it| it.client == client && it.lock_key == *lock_key)?;
        self.readers.remove(at)
    }

    /// The previous holder for which an operation is meant.
    pub(super) fn find_previous_holder(
        &self,
        lock_key: &LockKey,
        operation: &LockOperation<'_>,
    ) -> Option<usize> {
        self.previous_holders.iter().position(|previous| {
            let holder = &previous.holder;
            previous.lock_key == *lock_key
                && if operation.claims.is_empty() {
                    holder.client == operation.client
                } else {
                    operation.claims(&holder.owner)
                        && (is_unique(&holder.owner) || holder.client == operation.client)
                }
        })
    }

    /// Whether a script acts for another owner that has used or waited for the lock.
    pub(super) fn acts_for_another(
        &self,
        lock_key: &LockKey,
        owner: &[u8],
        operation: &LockOperation<'_>,
    ) -> bool {
        let previous_holders =
            self.previous_holders.iter().filter(|previous| previous.lock_key == *lock_key);
        let waiting = self.waiting.iter().filter(|waiting| waiting.lock_key == *lock_key);
        let mut others = previous_holders
            .map(|previous| &previous.holder.owner)
            .chain(waiting.map(|waiting| &waiting.token))
            .filter(|other| !other.is_empty() && &other[..] != owner);
        others.any(|other| operation.claims(other))
    }
}

/// Appends an item and drops the oldest beyond the limit.
fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= JOURNAL_REMEMBERED_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}
