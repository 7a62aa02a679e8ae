//! Locks, recognised from what commands do to keys, not from who sends them.
//!
//! What is a lock:
//! - a string made by `SETNX`, `MSETNX` or `SET NX`, by a client or in a script, or by `SET` with a
//!   lease in a script among whose arguments its value is, unless that is a mere number; its owner
//!   is its value; a number that a script sets for good is a counter, and no lock;
//! - a hash with a deadline, given a field by `HSET`, `HSETNX` or `HINCRBY` in a script among whose
//!   arguments the field is, with a count as its value; its owners are such fields. So Redisson's
//!   locks, fair locks and read/write locks keep theirs.
//! - A lock that `GETSET` gives another value belongs to whoever set it if the old value was a
//!   moment that has passed, in milliseconds or seconds since 1970.
//!
//! What is none: semaphores, latches and limiters (counts), sets, lists, what a plain `SET` made,
//! and what a script sets for good without `NX`. A key that nobody else ever wants is a lock like
//! any other: it cannot be told from one that nobody has contended for yet.
//!
//! A lock is let go by whatever removes it, or its owner's field. A script, `DELEX` and `DELIFEQ`
//! act for its owner if the owner is among their arguments; anything else does if it comes through
//! the connection that took the lock, or in a transaction that watches the key and has read it. A
//! script that is given another known owner of that lock acts for that one. Everybody else is a
//! stranger. A client is a connection: a pool that takes a lock through one and deletes it through
//! another, without proof, is reported as a stranger.
//!
//! A script that acts for one owner of a hash and removes others with it says that their leases
//! have ended: so the last reader leaves a lock for readers.
//!
//! A refusal is `SETNX` or `SET NX` that finds a lock, or a script that names `set`, `hset` or
//! `hincrby` and no `del`, and leaves a lock among its keys to others. A script that names `del`,
//! or only `pexpire`, with the token of a lock that was lost comes too late, as does a plain `DEL`
//! or `EXPIRE` of the connection that lost it. Functions are not recognised by their text, so
//! theirs are told only where keys change.

use std::collections::{BTreeMap, VecDeque};

use crate::Engine;
use crate::keyspace::value::ValueRef;
use crate::limits::{JOURNAL_OWNER_BYTES_MAX, JOURNAL_REMEMBERED_MAX};
use crate::time::Time;

use super::script::Purpose;

/// A key and its database.
pub(super) type Place = (usize, Vec<u8>);

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Lock {
    /// By whom: more than one have a lock for readers.
    pub(super) holders: Vec<Holder>,
    pub(super) is_hash: bool,
    pub(super) deadline_ms: Option<i64>,
}

/// Who holds a lock.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) owner: Vec<u8>,
    pub(super) count: i64,
    pub(super) client: u64,
    pub(super) name: String,
    pub(super) since_ms: i64,
    /// The entry that tells of it.
    pub(super) seq: u64,
}

/// Who held a lock, lost it, and may not know.
#[derive(Debug)]
pub(super) struct PreviousHolder {
    pub(super) place: Place,
    pub(super) holder: Holder,
    pub(super) lost_ms: i64,
    /// Who got it since, in words.
    pub(super) next: Option<String>,
}

/// Who was refused a lock and has not got it yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) place: Place,
    pub(super) client: u64,
    pub(super) token: Vec<u8>,
    pub(super) since_ms: i64,
}

/// Who has read a lock.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) place: Place,
    pub(super) client: u64,
    pub(super) watches: bool,
}

/// What a command has done to a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Touch {
    /// Made a string that was not there.
    pub(super) made: bool,
    /// Set a string, whatever was there.
    pub(super) set: bool,
    /// Set a field.
    pub(super) field: bool,
    /// Set or cleared a deadline.
    pub(super) lease: bool,
    /// Removed it, or wanted to.
    pub(super) removes: bool,
}

impl Touch {
    pub(super) fn join(&mut self, other: Touch) {
        self.made |= other.made;
        self.set |= other.set;
        self.field |= other.field;
        self.lease |= other.lease;
        self.removes |= other.removes;
    }
}

/// Who does something, and how.
#[derive(Debug)]
pub(super) struct LockOperation<'a> {
    pub(super) client: u64,
    pub(super) name: &'a str,
    pub(super) time: Time,
    pub(super) means: LockMechanism,
    /// What it shows to know.
    pub(super) claims: Vec<&'a [u8]>,
    /// The entry of the command.
    pub(super) seq: u64,
}

/// Through what something is done.
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
        matches!(self.means, LockMechanism::Script(_))
    }

    pub(super) fn claims(&self, owner: &[u8]) -> bool {
        self.claims.iter().any(|claim| cut(claim) == owner)
    }

    /// What looks most like a token among the claims.
    pub(super) fn token(&self) -> &[u8] {
        let tokens = self.claims.iter().filter(|claim| !is_number(claim));
        tokens.max_by_key(|claim| claim.len()).map_or(b"", |claim| cut(claim))
    }
}

/// What stands at a key.
#[derive(Debug)]
pub(super) struct Seen {
    /// The value of a string, or the counts of a hash by their fields, or neither.
    pub(super) owners: Vec<(Vec<u8>, i64)>,
    pub(super) is_hash: bool,
    pub(super) deadline_ms: Option<i64>,
}

/// What stands at a key; `None` if nothing does that is alive.
pub(super) fn look(engine: &Engine, place: &Place, time: Time) -> Option<Seen> {
    let (database, key) = place;
    let slot = engine.keyspace.find(*database, key)?;
    let database = engine.keyspace.database(*database);
    let deadline = database.records().deadline(slot);
    if deadline.is_some_and(|deadline| time.reached(deadline)) {
        return None;
    }
    let (owners, is_hash) = match database.record(slot).value() {
        ValueRef::String(text) => (vec![(cut(text.bytes()).to_vec(), 1)], false),
        // A lock for readers has as many fields as readers; what has far more is none.
        ValueRef::Hash(fields) => {
            let fields = fields.iter().take(JOURNAL_REMEMBERED_MAX);
            (fields.filter_map(|(field, value)| holder_field(field, value)).collect(), true)
        }
        _ => (Vec::new(), false),
    };
    Some(Seen { owners, is_hash, deadline_ms: deadline.map(|deadline| deadline.0) })
}

fn holder_field(field: &[u8], value: &[u8]) -> Option<(Vec<u8>, i64)> {
    let count = lockwheel_resp::number::parse_integer(value).filter(|&count| count > 0)?;
    Some((cut(field).to_vec(), count))
}

/// As much of an owner as is kept and compared.
pub(super) fn cut(owner: &[u8]) -> &[u8] {
    &owner[..owner.len().min(JOURNAL_OWNER_BYTES_MAX)]
}

pub(super) fn is_number(text: &[u8]) -> bool {
    lockwheel_resp::number::parse_integer(text).is_some()
}

/// A token that two clients hardly share: one of theirs alone tells who it is.
const TELLING_BYTES: usize = 12;

fn is_telling(token: &[u8]) -> bool {
    token.len() >= TELLING_BYTES && !is_number(token)
}

/// Whether two are the same to a lock.
fn are_same(a: (u64, &[u8]), b: (u64, &[u8])) -> bool {
    if is_telling(a.1) && is_telling(b.1) { a.1 == b.1 } else { a.0 == b.0 }
}

/// All that is known of locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) held: BTreeMap<Place, Lock>,
    pub(super) losers: VecDeque<PreviousHolder>,
    pub(super) waiting: VecDeque<Waiting>,
    readers: VecDeque<Reader>,
}

impl Locks {
    /// Whether a key that is no lock yet has become one, and whose.
    pub(super) fn is_new(seen: &Seen, touch: Touch, operation: &LockOperation<'_>) -> bool {
        if seen.is_hash {
            return touch.field
                && operation.is_script()
                && seen.deadline_ms.is_some()
                && seen.owners.iter().any(|(owner, _)| operation.claims(owner));
        }
        let Some((owner, _)) = seen.owners.first() else { return false };
        let has_lease = seen.deadline_ms.is_some();
        if !operation.is_script() {
            return touch.made;
        }
        touch.made && (has_lease || !is_number(owner))
            || touch.set && has_lease && operation.claims(owner) && !is_number(owner)
    }

    /// Somebody had a lock and lost it.
    pub(super) fn lose(&mut self, place: &Place, holder: Holder, lost_ms: i64) {
        let loser = PreviousHolder { place: place.clone(), holder, lost_ms, next: None };
        push(&mut self.losers, loser);
    }

    /// Somebody has got a lock: those who lost it have a successor, and the new holder is none of
    /// them any more. Returns since when it was waited for.
    pub(super) fn succeed(&mut self, place: &Place, holder: &Holder, who: &str) -> Option<i64> {
        let new = (holder.client, &holder.owner[..]);
        self.losers.retain(|loser| {
            loser.place != *place || !are_same((loser.holder.client, &loser.holder.owner), new)
        });
        for loser in self.losers.iter_mut().filter(|loser| loser.place == *place) {
            loser.next.get_or_insert_with(|| who.to_owned());
        }
        let at = self.waiting.iter().position(|waiting| {
            waiting.place == *place && are_same((waiting.client, &waiting.token), new)
        });
        at.and_then(|at| self.waiting.remove(at)).map(|waiting| waiting.since_ms)
    }

    /// Somebody was refused a lock.
    pub(super) fn wait(&mut self, place: &Place, client: u64, token: &[u8], now_ms: i64) {
        let known = self.waiting.iter().any(|waiting| {
            waiting.place == *place && are_same((waiting.client, &waiting.token), (client, token))
        });
        if !known {
            let (place, token) = (place.clone(), token.to_vec());
            push(&mut self.waiting, Waiting { place, client, token, since_ms: now_ms });
        }
    }

    /// A client has read a lock.
    pub(super) fn read(&mut self, place: &Place, client: u64, watches: bool) {
        self.take_reader(place, client);
        push(&mut self.readers, Reader { place: place.clone(), client, watches });
    }

    /// Whether a client has read a lock before; not after this.
    pub(super) fn take_reader(&mut self, place: &Place, client: u64) -> Option<Reader> {
        let at = self.readers.iter().position(|it| it.client == client && it.place == *place)?;
        self.readers.remove(at)
    }

    /// Who has lost a lock and comes back for it now.
    pub(super) fn find_loser(&self, place: &Place, operation: &LockOperation<'_>) -> Option<usize> {
        self.losers.iter().position(|loser| {
            let holder = &loser.holder;
            loser.place == *place
                && if operation.claims.is_empty() {
                    holder.client == operation.client
                } else {
                    operation.claims(&holder.owner)
                        && (is_telling(&holder.owner) || holder.client == operation.client)
                }
        })
    }

    /// Whether a script acts for somebody else who has had to do with the lock.
    pub(super) fn acts_for_another(
        &self,
        place: &Place,
        owner: &[u8],
        operation: &LockOperation<'_>,
    ) -> bool {
        let losers = self.losers.iter().filter(|loser| loser.place == *place);
        let waiting = self.waiting.iter().filter(|waiting| waiting.place == *place);
        let mut others = losers
            .map(|loser| &loser.holder.owner)
            .chain(waiting.map(|waiting| &waiting.token))
            .filter(|other| !other.is_empty() && &other[..] != owner);
        others.any(|other| operation.claims(other))
    }
}

/// Keeps the latest only.
fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= JOURNAL_REMEMBERED_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}
