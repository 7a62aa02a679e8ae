//! Transactions: `MULTI`, `EXEC` and `WATCH`.

use std::collections::{BTreeMap, BTreeSet};

use crate::Engine;
use crate::sessions::{ClientId, Sessions, Watched};
use crate::statistics::memory::ALLOCATION_BYTES;
use crate::store::Keyspace;
use crate::store::effects::Place;
use crate::timing::time::Time;

/// The commands a client has queued since `MULTI`.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The commands in order.
    pub queue: Vec<Queued>,
    /// Whether a command could not be queued: `EXEC` then fails.
    pub broken: bool,
    /// Bytes of all arguments.
    pub argument_bytes: usize,
    /// Bytes that count as held for the client.
    held_bytes: usize,
}

/// A queued command.
#[derive(Debug)]
pub struct Queued {
    /// Its position in the command table.
    pub command: usize,
    /// Its arguments with its name.
    pub argv: Vec<Box<[u8]>>,
}

impl Transaction {
    /// Bytes that count as held for the client.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// The memory of a watch besides the key, which is stored twice: its entries in both tables.
const WATCH_BYTES: usize = 128;

fn watch_bytes(key: &[u8]) -> usize {
    2 * key.len() + WATCH_BYTES
}

impl Sessions {
    /// Queues a command for `EXEC`. If the transaction is broken, nothing is stored.
    pub(crate) fn queue(&mut self, client: ClientId, command: usize, argv: &[&[u8]]) {
        let Some(state) = self.get_mut(client) else { return };
        let Some(transaction) = state.transaction.as_mut() else { return };
        if transaction.broken || state.watch_broken {
            return;
        }
        let argument_bytes: usize = argv.iter().map(|argument| argument.len()).sum();
        let overhead = size_of::<Queued>() + size_of_val(argv) + argv.len() * ALLOCATION_BYTES;
        let argv = argv.iter().map(|&argument| argument.into()).collect();
        transaction.queue.push(Queued { command, argv });
        transaction.argument_bytes += argument_bytes;
        transaction.held_bytes += argument_bytes + overhead;
        self.clients.hold(client, argument_bytes + overhead);
    }

    /// Replaces the queue of a client's transaction and returns it.
    pub(crate) fn exchange_queue(&mut self, client: ClientId, queue: Vec<Queued>) -> Vec<Queued> {
        let state = self.get_mut(client);
        let transaction = state.and_then(|state| state.transaction.as_mut());
        let queued = transaction.map(|transaction| &mut transaction.queue);
        queued.map(|queued| std::mem::replace(queued, queue)).unwrap_or_default()
    }

    /// Ends a client's transaction and returns it.
    pub(crate) fn take_transaction(&mut self, client: ClientId) -> Option<Transaction> {
        let transaction = self.get_mut(client)?.transaction.take()?;
        self.clients.release(client, transaction.held_bytes);
        Some(transaction)
    }

    /// Starts watching a key for a client, unless the client watches it already.
    fn watch(&mut self, client: ClientId, watched: Watched) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let Watched { database, ref key, .. } = watched;
        if state.watched.iter().any(|w| w.database == database && w.key == *key) {
            return;
        }
        self.watchers.add(database, key, client);
        let bytes = watch_bytes(key);
        state.watched.push(watched);
        self.clients.hold(client, bytes);
    }

    /// Ends all watches of a client.
    pub(super) fn unwatch(&mut self, client: ClientId) {
        let Some(state) = self.get_mut(client) else { return };
        state.watch_broken = false;
        for watched in std::mem::take(&mut state.watched) {
            self.clients.release(client, watch_bytes(&watched.key));
            self.watchers.remove(watched.database, &watched.key, client);
        }
    }

    /// Breaks the transactions that watch a key, which has changed.
    pub(crate) fn break_watches(&mut self, place: Place<'_>) {
        let watchers = self.watchers.keys.get(&place.database);
        for &client in watchers.and_then(|keys| keys.get(place.key)).into_iter().flatten() {
            if let Some(state) = self.clients.get_mut(client) {
                state.watch_broken = true;
            }
        }
    }

    /// Breaks the transactions that watch a key of a database that was emptied or swapped, unless
    /// the key existed neither before nor after the change. While a transaction is not broken, the
    /// key exists exactly if it did when the watch began.
    pub(crate) fn break_watches_of_database(
        &mut self,
        keyspace: &Keyspace,
        database: usize,
        is_swapped: bool,
    ) {
        let watchers = self.watchers.keys.get(&database);
        for (key, clients) in watchers.into_iter().flatten() {
            let exists = is_swapped && keyspace.find(database, key).is_some();
            for &client in clients {
                let Some(state) = self.clients.get_mut(client) else { continue };
                let mut watched = state.watched.iter();
                let here = |it: &&Watched| it.database == database && it.key == *key;
                let existed = watched.find(here).is_some_and(|it| it.existed);
                state.watch_broken |= exists || existed;
            }
        }
    }
}

impl Engine {
    /// Starts watching a key for a client, unless the client watches it already.
    pub(crate) fn watch(&mut self, client: ClientId, database: usize, key: &[u8], time: Time) {
        // An expired key is removed first, so that its removal does not count as a change.
        let existed = self.find_alive(database, key, time).is_some();
        self.observe_effects(None);
        self.sessions.watch(client, Watched { database, key: key.into(), existed });
        self.update_consumers();
    }

    /// Ends all watches of a client.
    pub(crate) fn unwatch(&mut self, client: ClientId) {
        self.sessions.unwatch(client);
        self.update_consumers();
    }

    /// Whether a watched key has changed or expired since the watch began.
    pub fn is_watch_broken(&self, client: ClientId, time: Time) -> bool {
        self.sessions.get(client).is_some_and(|state| {
            state.watch_broken
                || state.watched.iter().any(|w| self.has_expired(w.database, &w.key, time))
        })
    }
}

/// The clients that watch keys, by database and key.
#[derive(Debug, Default)]
pub struct Watchers {
    keys: BTreeMap<usize, BTreeMap<Box<[u8]>, BTreeSet<ClientId>>>,
}

impl Watchers {
    /// Whether no key is watched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of watched keys of a database.
    #[cfg(test)]
    pub(crate) fn keys_of(&self, database: usize) -> usize {
        self.keys.get(&database).map_or(0, BTreeMap::len)
    }

    fn add(&mut self, database: usize, key: &[u8], client: ClientId) {
        let keys = self.keys.entry(database).or_default();
        keys.entry(key.into()).or_default().insert(client);
    }

    fn remove(&mut self, database: usize, key: &[u8], client: ClientId) {
        let Some(keys) = self.keys.get_mut(&database) else { return };
        if let Some(clients) = keys.get_mut(key) {
            clients.remove(&client);
            if clients.is_empty() {
                keys.remove(key);
            }
        }
        if keys.is_empty() {
            self.keys.remove(&database);
        }
    }
}
