//! The table of known locks: holders, previous holders, clients that wait.

use std::collections::{BTreeMap, VecDeque};

use crate::Engine;
use crate::limits::{LOCK_OWNER_BYTES_MAX, LOCKS_REMEMBERED_MAX};
use crate::store::lock::Hold;
use crate::store::value::ValueRef;
use crate::timing::time::Time;

use super::Shape;
use super::evidence::{Declared, Evidence, Impression};
use super::script::{Purpose, Purposes};
use super::words::{self, Name, Value};

/// A key with its database.
pub(crate) type LockKey = (usize, Vec<u8>);

/// A held lock.
#[derive(Debug)]
pub(crate) struct KnownLock {
    /// Holders of the lock: more than one in a lock for readers.
    pub(crate) holders: Vec<Holder>,
    pub(crate) shape: Shape,
    pub(crate) deadline_ms: Option<i64>,
}

impl KnownLock {
    /// Whether it ends by itself. The scores of a semaphore are times.
    pub(crate) fn has_lease(&self) -> bool {
        self.deadline_ms.is_some() || self.shape == Shape::Semaphore
    }
}

/// An owner that holds a lock.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) owner: Vec<u8>,
    pub(crate) count: i64,
    pub(crate) client: u64,
    pub(crate) name: String,
    pub(crate) since_ms: i64,
    /// The entry of the acquisition.
    pub(crate) seq: u64,
}

/// An owner that has lost a lock and may not have noticed.
#[derive(Debug)]
pub(crate) struct PreviousHolder {
    pub(crate) lock_key: LockKey,
    pub(crate) holder: Holder,
    pub(crate) lost_ms: i64,
    /// The next holder.
    pub(crate) successor: Option<Holder>,
}

/// A client that was refused a lock and has not acquired it yet.
#[derive(Debug)]
pub(crate) struct RefusedClient {
    pub(crate) lock_key: LockKey,
    pub(crate) client: u64,
    pub(crate) token: Vec<u8>,
    pub(crate) since_ms: i64,
    /// How many times it was refused.
    pub(crate) refusals: u32,
    /// The name of the client.
    pub(crate) name: String,
    /// The entry of the last refusal.
    pub(crate) seq: u64,
}

/// A client that has read a lock, or a missing key.
#[derive(Debug)]
pub(crate) struct LockReader {
    pub(crate) lock_key: LockKey,
    pub(crate) client: u64,
    pub(crate) watches: bool,
    pub(crate) missing: bool,
}

/// The operations of a command on a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyAccess {
    /// Whether it created a string.
    pub(crate) made: bool,
    /// Whether it set a string that may have existed.
    pub(crate) set: bool,
    /// Whether it set a field.
    pub(crate) field: bool,
    /// Whether it set or cleared a deadline.
    pub(crate) lease: bool,
    /// Whether it added a member to a sorted set.
    pub(crate) member: bool,
    /// Whether it removed members by their scores.
    pub(crate) purges: bool,
    /// Whether it read the key.
    pub(crate) reads: bool,
    /// Whether it modified the value in a way in which no lock is modified.
    pub(crate) modifies: bool,
    /// Whether it removed the key, a field or a member, or tried to.
    pub(crate) removes: bool,
}

impl KeyAccess {
    pub(crate) fn join(&mut self, other: KeyAccess) {
        self.made |= other.made;
        self.set |= other.set;
        self.field |= other.field;
        self.lease |= other.lease;
        self.member |= other.member;
        self.purges |= other.purges;
        self.reads |= other.reads;
        self.modifies |= other.modifies;
        self.removes |= other.removes;
    }
}

/// A command or script that may change locks.
#[derive(Debug)]
pub(crate) struct LockOperation<'a> {
    pub(crate) client: u64,
    pub(crate) name: &'a str,
    /// The name of the client library (`CLIENT SETINFO`).
    pub(crate) library: &'a str,
    pub(crate) time: Time,
    pub(crate) mechanism: LockMechanism,
    /// The owners it proves to know: arguments that may be tokens.
    pub(crate) claims: Vec<&'a [u8]>,
    /// The number of the command's entry.
    pub(crate) seq: u64,
}

/// How a command was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMechanism {
    Command,
    Transaction,
    Script(Purpose),
}

impl LockOperation<'_> {
    /// What the clock does at this time.
    pub(crate) fn of_the_clock(time: Time) -> LockOperation<'static> {
        let (claims, mechanism) = (Vec::new(), LockMechanism::Command);
        LockOperation { client: 0, name: "", library: "", time, mechanism, claims, seq: 0 }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.time.now.0
    }

    pub(crate) fn is_script(&self) -> bool {
        matches!(self.mechanism, LockMechanism::Script(_))
    }

    pub(crate) fn claims(&self, owner: &[u8]) -> bool {
        // A group of locks in one hash has fields that contain the owner.
        let is_part =
            |claim: &[u8]| is_unique(claim) && owner.windows(claim.len()).any(|part| part == claim);
        self.claims.iter().any(|claim| cut(claim) == owner || is_part(claim))
    }

    /// The claim that is most likely a token.
    pub(crate) fn token(&self) -> &[u8] {
        let tokens = self.claims.iter().filter(|claim| !is_number(claim));
        tokens.max_by_key(|claim| claim.len()).map_or(b"", |claim| cut(claim))
    }
}

/// The present value of a key.
#[derive(Debug)]
pub(crate) struct KeyState {
    /// The value of a string, the fields and counts of a hash, or nothing for other types.
    pub(crate) owners: Vec<(Vec<u8>, i64)>,
    pub(crate) shape: Shape,
    pub(crate) deadline_ms: Option<i64>,
    /// Whether the scores of a sorted set are times to come.
    pub(crate) ends_later: bool,
}

/// Reads the present value of a key; `None` if it does not exist or has expired.
pub(crate) fn look(engine: &Engine, lock_key: &LockKey, time: Time) -> Option<KeyState> {
    let (database, key) = lock_key;
    let slot = engine.writer.keyspace().find(*database, key)?;
    let database = engine.writer.keyspace().database(*database);
    if database.records().is_expired(slot, time) {
        return None;
    }
    let deadline = database.records().deadline(slot);
    let mut ends_later = false;
    // A lock has as many owners as readers or permits; a collection with far more is none.
    let (owners, shape) = match database.record(slot).value() {
        ValueRef::String(text) => (vec![(cut(text.bytes()).to_vec(), 1)], Shape::Token),
        ValueRef::Hash(fields) => {
            let fields = fields.iter().take(LOCKS_REMEMBERED_MAX);
            let owners = fields.filter_map(|(field, value)| holder_field(field, value));
            (owners.collect(), Shape::Owners)
        }
        ValueRef::SortedSet(members) => {
            let members = members.iter().take(LOCKS_REMEMBERED_MAX);
            let mut owners = Vec::new();
            for (member, score) in members {
                ends_later |= words::is_ahead(score, time);
                owners.push((cut(member).to_vec(), 1));
            }
            (owners, Shape::Semaphore)
        }
        ValueRef::Lock(lock) => {
            let count = |hold: &Hold| i64::try_from(hold.count(time)).unwrap_or(i64::MAX);
            let owners = lock.holds(time).map(|hold| (cut(&hold.owner).to_vec(), count(hold)));
            (owners.collect(), Shape::Native)
        }
        _ => return None,
    };
    Some(KeyState { owners, shape, deadline_ms: deadline.map(|deadline| deadline.0), ends_later })
}

fn holder_field(field: &[u8], value: &[u8]) -> Option<(Vec<u8>, i64)> {
    let count = match lockwheel_resp::number::parse_integer(value) {
        Some(count) => Some(count).filter(|count| (1..TIMES_BEGIN).contains(count)),
        // The time at which the owner acquired it.
        None => std::str::from_utf8(value).ok()?.parse::<f64>().ok().map(|_| 1),
    };
    Some((cut(field).to_vec(), count?))
}

/// Number from which a value is taken for a time instead of a count.
const TIMES_BEGIN: i64 = 1_000_000_000;

/// The part of an owner that is stored and compared.
pub(crate) fn cut(owner: &[u8]) -> &[u8] {
    &owner[..owner.len().min(LOCK_OWNER_BYTES_MAX)]
}

pub(crate) fn is_number(text: &[u8]) -> bool {
    lockwheel_resp::number::parse_integer(text).is_some()
}

/// Length from which a token identifies an owner: two clients are unlikely to share it.
const UNIQUE_TOKEN_BYTES: usize = 12;

pub(crate) fn is_unique(token: &[u8]) -> bool {
    token.len() >= UNIQUE_TOKEN_BYTES && !is_number(token)
}

/// Whether two pairs of client and token belong to the same owner.
fn are_same_owner(a: (u64, &[u8]), b: (u64, &[u8])) -> bool {
    if is_unique(a.1) && is_unique(b.1) { a.1 == b.1 } else { a.0 == b.0 }
}

/// All known locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) held: BTreeMap<LockKey, KnownLock>,
    pub(crate) previous_holders: VecDeque<PreviousHolder>,
    pub(crate) waiting: VecDeque<RefusedClient>,
    pub(crate) declared: Declared,
    /// What is known of keys that are or were locks, possibly.
    pub(crate) evidence: BTreeMap<LockKey, Evidence>,
    /// The key at which each value was seen first, and whether it was seen at another.
    pub(super) values: BTreeMap<Vec<u8>, (LockKey, bool)>,
    /// The operations of the running script on keys.
    pub(super) accessed: BTreeMap<LockKey, KeyAccess>,
    pub(super) readers: VecDeque<LockReader>,
    /// Sorted sets from which a client has removed members by their scores.
    pub(super) purged: VecDeque<LockKey>,
    /// The purposes of cached scripts by their SHA-1 in hexadecimal.
    pub(super) purposes: Purposes,
}

impl Locks {
    /// No locks, with the patterns that the user has declared.
    pub(crate) fn new(declared: Declared) -> Locks {
        Locks { declared, ..Locks::default() }
    }

    /// The first impression of a key that is not known to be a lock; `None` if it is none.
    pub(crate) fn impression(
        &mut self,
        lock_key: &LockKey,
        seen: &KeyState,
        access: KeyAccess,
        operation: &LockOperation<'_>,
    ) -> Option<Impression> {
        let (owner, _) = seen.owners.first()?;
        let name = words::name(&lock_key.1);
        if self.declared.ignores(&lock_key.1) {
            return None;
        }
        if self.declared.is_lock(&lock_key.1) && seen.shape != Shape::Native {
            let created = access.made || access.set || access.field || access.member;
            return created.then_some(Impression::Declared);
        }
        let value = words::value(owner, operation.time);
        let has_lease = seen.deadline_ms.is_some();
        match seen.shape {
            Shape::Native => Some(Impression::Native),
            Shape::Token => {
                let watched = access.set
                    && operation.mechanism == LockMechanism::Transaction
                    && self
                        .take_reader(lock_key, operation.client)
                        .is_some_and(|reader| reader.watches && reader.missing);
                let is_lease_of_value = has_lease && value != Value::Data;
                let created = if operation.is_script() {
                    access.made && (has_lease || !is_number(owner))
                        || access.set
                            && is_lease_of_value
                            && (operation.claims(owner) || name == Name::Lock)
                } else {
                    access.made || watched && (is_lease_of_value || name == Name::Lock)
                };
                created.then(|| Impression::of(name, value, has_lease))
            }
            Shape::Owners => {
                let mut owners = seen.owners.iter().map(|(owner, _)| owner);
                let owner = owners.find(|owner| operation.claims(owner))?;
                (access.field && operation.is_script() && (has_lease || name == Name::Lock)).then(
                    || {
                        let value = words::value(owner, operation.time);
                        Impression::of_owner(name, value, access.reads)
                    },
                )
            }
            Shape::Semaphore => {
                let purges = access.purges
                    || operation.is_script() && access.reads
                    || self.purged.contains(lock_key);
                let mut members = seen.owners.iter().map(|(member, _)| member);
                let member = members.find(|member| operation.claims(member)).unwrap_or(owner);
                let value = words::value(member, operation.time);
                (access.member && purges)
                    .then(|| Impression::of_member(name, value, has_lease, seen.ends_later))
            }
        }
    }

    /// Whether a key exists at this time.
    pub(crate) fn exists(engine: &Engine, lock_key: &LockKey, time: Time) -> bool {
        look(engine, lock_key, time).is_some()
    }

    /// Whether a held lock has no lease.
    pub(crate) fn is_without_lease(&self, engine: &Engine, lock_key: &LockKey, time: Time) -> bool {
        let seen = look(engine, lock_key, time);
        seen.is_some_and(|seen| seen.deadline_ms.is_none() && seen.shape != Shape::Semaphore)
    }

    /// Records that a client has removed members of a sorted set by their scores.
    pub(super) fn purge(&mut self, lock_key: &LockKey) {
        if !self.purged.contains(lock_key) {
            push(&mut self.purged, lock_key.clone());
        }
    }

    /// Records that a string was set to a value that may name an owner.
    pub(super) fn remember_value(&mut self, lock_key: &LockKey, value: &[u8]) {
        if let Some((first, shared)) = self.values.get_mut(value) {
            *shared |= first != lock_key;
            return;
        }
        if self.values.len() >= LOCKS_REMEMBERED_MAX {
            self.values.pop_first();
        }
        self.values.insert(value.to_vec(), (lock_key.clone(), false));
    }

    /// Records that a holder has lost a lock.
    pub(crate) fn lose(&mut self, lock_key: &LockKey, holder: Holder, lost_ms: i64) {
        let previous =
            PreviousHolder { lock_key: lock_key.clone(), holder, lost_ms, successor: None };
        push(&mut self.previous_holders, previous);
    }

    /// Records a new holder: it becomes the successor of the previous holders, and is no longer one
    /// of them. Returns since when it had waited.
    pub(crate) fn succeed(&mut self, lock_key: &LockKey, holder: &Holder) -> Option<i64> {
        let new = (holder.client, &holder.owner[..]);
        self.previous_holders.retain(|previous| {
            previous.lock_key != *lock_key
                || !are_same_owner((previous.holder.client, &previous.holder.owner), new)
        });
        for previous in
            self.previous_holders.iter_mut().filter(|previous| previous.lock_key == *lock_key)
        {
            previous.successor.get_or_insert_with(|| holder.clone());
        }
        let at = self.waiting.iter().position(|waiting| {
            waiting.lock_key == *lock_key && are_same_owner((waiting.client, &waiting.token), new)
        });
        at.and_then(|at| self.waiting.remove(at)).map(|waiting| waiting.since_ms)
    }

    /// Records that a lock was refused. Returns how many times in a row.
    pub(crate) fn wait(
        &mut self,
        lock_key: &LockKey,
        operation: &LockOperation<'_>,
        token: &[u8],
        seq: u64,
    ) -> u32 {
        let client = operation.client;
        let known = self.waiting.iter_mut().find(|waiting| {
            waiting.lock_key == *lock_key
                && are_same_owner((waiting.client, &waiting.token), (client, token))
        });
        if let Some(known) = known {
            (known.refusals, known.seq) = (known.refusals + 1, seq);
            return known.refusals;
        }
        let waiting = RefusedClient {
            lock_key: lock_key.clone(),
            client,
            token: token.to_vec(),
            since_ms: operation.now_ms(),
            refusals: 1,
            name: operation.name.to_owned(),
            seq,
        };
        push(&mut self.waiting, waiting);
        1
    }

    /// Records that a client has read a key.
    pub(crate) fn read(&mut self, reader: LockReader) {
        self.take_reader(&reader.lock_key, reader.client);
        push(&mut self.readers, reader);
    }

    /// Removes and returns the record that a client has read a lock.
    pub(crate) fn take_reader(&mut self, lock_key: &LockKey, client: u64) -> Option<LockReader> {
        let at =
            self.readers.iter().position(|it| it.client == client && it.lock_key == *lock_key)?;
        self.readers.remove(at)
    }

    /// The previous holder for which an operation is meant.
    pub(crate) fn find_previous_holder(
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
    pub(crate) fn acts_for_another(
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
    if queue.len() >= LOCKS_REMEMBERED_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}
