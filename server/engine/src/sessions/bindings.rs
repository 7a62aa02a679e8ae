//! Index of the native locks that are bound to a connection: they are released when it has ended
//! and their grace period is over.
//!
//! The lock itself names the client that it is bound to. An entry of the index may be stale: its
//! lock may have been removed or bound to another client.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClientId, Session};
use crate::store::DatabaseKey;

/// Fewest keys that count as those that the last sweep of a client has left: its stale keys are
/// removed when it has twice as many.
const KEYS_BEFORE_SWEEP: usize = 32;

/// The place of a key after databases `a` and `b` are swapped.
pub(super) fn swapped((database, key): DatabaseKey, a: usize, b: usize) -> DatabaseKey {
    match database {
        database if database == a => (b, key),
        database if database == b => (a, key),
        database => (database, key),
    }
}

/// The bound locks of all clients.
#[derive(Debug, Default)]
pub struct Bindings {
    /// The bound locks of each client, by its serial.
    keys: BTreeMap<u64, BoundKeys>,
    /// The bound locks of connections that have ended, until they are taken.
    ended: Vec<EndedBinding>,
}

/// The keys of the locks that are bound to one client.
#[derive(Debug, Default)]
struct BoundKeys {
    keys: BTreeSet<DatabaseKey>,
    /// Number of keys after the last sweep.
    kept: usize,
    /// The lock that the last acquiring command of the client was granted, and the name of that
    /// command.
    last_grant: Option<(DatabaseKey, &'static str)>,
    /// Whether the reply with that grant was not sent.
    is_lost: bool,
}

/// The locks that were bound to a client that has disconnected.
#[derive(Debug)]
pub(crate) struct EndedBinding {
    /// The serial of the client.
    pub(crate) client: u64,
    /// The keys of the locks.
    pub(crate) keys: BTreeSet<DatabaseKey>,
    /// The lock among them whose grant was not sent to the client.
    pub(crate) lost: Option<DatabaseKey>,
}

impl Bindings {
    /// Records that the lock at this key is bound to a client: by the command `granted_by`, or by a
    /// renewal if that is `None`. Returns whether a sweep is due: the caller then calls
    /// [`Bindings::retain`].
    pub(crate) fn bind(
        &mut self,
        client: ClientId,
        key: DatabaseKey,
        granted_by: Option<&'static str>,
    ) -> bool {
        let bound = self.keys.entry(client.serial).or_default();
        bound.last_grant = granted_by.map(|name| (key.clone(), name));
        bound.keys.insert(key);
        bound.keys.len() >= 2 * bound.kept.max(KEYS_BEFORE_SWEEP)
    }

    /// Whether locks are bound to a client.
    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.keys.contains_key(&client.serial)
    }

    /// Begins an acquiring command of a client: an earlier grant is no longer its last reply.
    pub(crate) fn begin_grant(&mut self, client: ClientId) {
        if let Some(bound) = self.keys.get_mut(&client.serial) {
            bound.last_grant = None;
        }
    }

    /// Keeps only the keys of a client that are still bound to it.
    pub(crate) fn retain(&mut self, client: ClientId, is_bound: impl FnMut(&DatabaseKey) -> bool) {
        if let Some(bound) = self.keys.get_mut(&client.serial) {
            bound.keys.retain(is_bound);
            bound.kept = bound.keys.len();
        }
    }

    /// Removes a key of a client.
    pub(crate) fn unbind(&mut self, client: u64, key: &DatabaseKey) {
        if let Some(bound) = self.keys.get_mut(&client) {
            bound.keys.remove(key);
            if bound.keys.is_empty() {
                self.keys.remove(&client);
            }
        }
    }

    /// Records that the last reply to a client, which is about to be disconnected, was not sent.
    pub(crate) fn lose_reply(&mut self, session: &Session) {
        if let Some(bound) = self.keys.get_mut(&session.id.serial) {
            let granted_by = bound.last_grant.as_ref().map(|(_, name)| *name);
            bound.is_lost = granted_by == Some(session.last_command);
        }
    }

    /// Moves the bound locks of a client that has disconnected to those of ended connections.
    pub(super) fn end(&mut self, client: ClientId) {
        let Some(bound) = self.keys.remove(&client.serial) else { return };
        let lost = bound.last_grant.filter(|_| bound.is_lost).map(|(key, _)| key);
        let (client, keys) = (client.serial, bound.keys);
        self.ended.push(EndedBinding { client, keys, lost });
    }

    /// Whether connections have ended that had locks bound to them.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the bound locks of connections that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<EndedBinding> {
        std::mem::take(&mut self.ended)
    }

    /// Moves the keys of two databases that are swapped.
    pub(crate) fn swap_databases(&mut self, a: usize, b: usize) {
        for bound in self.keys.values_mut() {
            let keys = std::mem::take(&mut bound.keys);
            bound.last_grant = None;
            bound.keys = keys.into_iter().map(|key| swapped(key, a, b)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::ClientId;
    use crate::settings::Settings;
    use crate::testing::Stage;

    /// Number of keys that all sweeps look at while a client binds this many locks.
    fn swept(client: ClientId, locks: usize) -> usize {
        let (mut bindings, mut swept) = (Bindings::default(), 0);
        for number in 0..locks {
            let key = (0, number.to_string().into_bytes().into());
            if bindings.bind(client, key, None) {
                bindings.retain(client, |_| {
                    swept += 1;
                    true
                });
            }
        }
        swept
    }

    #[test]
    fn work_of_sweeps_is_proportional_to_the_bound_locks() {
        let client = Stage::new(Settings::default()).client("a");
        for locks in [KEYS_BEFORE_SWEEP, 1_000, 50_000] {
            assert!(swept(client, locks) <= 2 * locks);
        }
    }
}
