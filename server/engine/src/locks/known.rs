//! Recognises locks by what commands do to keys, whichever library sends them.
//!
//! It looks at each command after it has run, with the meaning of the command's row to a lock, and
//! compares the keys with what it knew of them. It changes nothing.
//!
//! `docs/recognition.md` has the rule by which a key is a lock: the shapes, and the confidence,
//! which follows from the first impression and from later proofs (`evidence.rs`).
//!
//! # Owners
//!
//! A lock is released by any command that removes it or its owner. A script, `DELEX`, `DELIFEQ` and
//! `ZREM` act for the owner if the owner is among their arguments; any other command does if it
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

use serde::Serialize;

use super::evidence::Confidence;
use super::table::LockKey;
use crate::Engine;
use crate::limits::LOCK_TEXT_BYTES_MAX;
use crate::timing::time::{Millis, Time};

/// A held lock, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldLock {
    /// The key.
    pub key: String,
    /// The key's database.
    pub database: usize,
    /// The token, the field of a hash, or the member of a sorted set.
    pub owner: String,
    /// How many times the owner holds it.
    pub count: i64,
    /// The `CLIENT ID` of the client that acquired it.
    pub client: u64,
    /// The name of that client.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it was acquired, in milliseconds since 1970 on the lease clock.
    pub since_ms: i64,
    /// The remaining lease in milliseconds; none without a lease.
    pub lease_ms: Option<i64>,
    /// The `CLIENT ID`s of the clients that were refused and have not acquired it since.
    pub waiting: Vec<u64>,
    /// How the lock is stored.
    pub shape: Shape,
    /// How sure it is that the key is a lock.
    pub confidence: Confidence,
    /// Why.
    pub reason: &'static str,
}

/// A key that is or was a lock, possibly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownLock {
    /// The key.
    pub key: String,
    /// The key's database.
    pub database: usize,
    /// How the lock is stored.
    pub shape: Shape,
    /// How sure it is that the key is a lock.
    pub confidence: Confidence,
    /// Why.
    pub reason: &'static str,
    /// Whether it is held now.
    pub held: bool,
}

/// How a lock is stored; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Shape {
    /// A string, whose value is the owner.
    Token,
    /// A hash, whose fields are the owners.
    Owners,
    /// A sorted set, whose members are the owners.
    Semaphore,
    /// A native lock.
    Native,
}

impl super::table::Locks {
    /// The locks that are held at present, by key; also the possible ones.
    pub(crate) fn held_locks(&self, engine: &Engine, time: Time) -> Vec<HeldLock> {
        let mut shown = Vec::new();
        for (lock_key, lock) in &self.held {
            let Some(seen) = super::table::look(engine, lock_key, time) else { continue };
            let lease_ms = seen.deadline_ms.map(|it| time.remaining(Millis(it)).0);
            let waiting = self.waiting.iter();
            let waiting: Vec<u64> = waiting
                .filter(|it| {
                    it.lock_key == *lock_key
                        && engine.sessions.clients.by_serial(it.client).is_some()
                })
                .map(|it| it.client)
                .collect();
            let (confidence, reason) = self.confidence(lock_key);
            shown.extend(lock.holders.iter().map(|holder| HeldLock {
                key: text(&lock_key.1),
                database: lock_key.0,
                owner: text(&holder.owner),
                count: holder.count,
                client: holder.client,
                name: holder.name.clone(),
                since_ms: holder.since_ms,
                lease_ms,
                waiting: waiting.clone(),
                shape: lock.shape,
                confidence,
                reason,
            }));
        }
        shown
    }

    /// The keys that are or were locks, also the possible ones, in order.
    pub(crate) fn known_locks(&self, engine: &Engine, time: Time) -> Vec<KnownLock> {
        let known = self.evidence.iter().map(|(lock_key, evidence)| {
            let (confidence, reason) = self.confidence(lock_key);
            let held = self.held.contains_key(lock_key) && Self::exists(engine, lock_key, time);
            let (key, database, shape) = (text(&lock_key.1), lock_key.0, evidence.shape);
            KnownLock { key, database, shape, confidence, reason, held }
        });
        known.collect()
    }

    /// Forgets the locks that match a pattern declared to be ignored.
    pub(crate) fn forget_ignored(&mut self) {
        let mut keys: Vec<LockKey> = self.evidence.keys().cloned().collect();
        keys.retain(|lock_key| self.declared.ignores(&lock_key.1));
        for lock_key in keys {
            self.forget(&lock_key);
        }
    }
}

/// Bytes as text, shortened.
pub(crate) fn text(bytes: &[u8]) -> String {
    match bytes.get(..LOCK_TEXT_BYTES_MAX) {
        Some(begin) if begin.len() < bytes.len() => {
            format!("{}...", String::from_utf8_lossy(begin))
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
