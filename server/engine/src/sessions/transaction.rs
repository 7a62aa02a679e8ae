//! Transactions: `MULTI`, `EXEC` and `WATCH`.

use crate::Engine;
use crate::memory::ALLOCATION_BYTES;
use crate::sessions::{ClientId, Watched};
use crate::time::Time;

/// The commands a client has queued since `MULTI`.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The commands in order.
    pub queue: Vec<Queued>,
    /// A command could not be queued, so `EXEC` fails.
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

/// The memory of a watch besides the key, which is stored twice: its entries in both tables.
const WATCH_BYTES: usize = 128;

fn watch_bytes(key: &[u8]) -> usize {
    2 * key.len() + WATCH_BYTES
}

impl Engine {
    /// Queues a command for `EXEC`. If the transaction is broken, nothing is stored.
    pub(crate) fn queue(&mut self, client: ClientId, command: usize, argv: &[&[u8]]) {
        let Some(state) = self.sessions.get_mut(client) else { return };
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
        self.sessions.hold(client, argument_bytes + overhead);
    }

    /// Ends a client's transaction and returns it.
    pub(crate) fn take_transaction(&mut self, client: ClientId) -> Option<Transaction> {
        let transaction = self.sessions.get_mut(client)?.transaction.take()?;
        self.sessions.release(client, transaction.held_bytes);
        Some(transaction)
    }

    /// Starts watching a key for a client, unless the client watches it already.
    pub fn watch(&mut self, client: ClientId, database: usize, key: &[u8], time: Time) {
        // An expired key is removed first, so that its removal does not count as a change.
        self.find_alive(database, key, time);
        let Some(state) = self.sessions.get_mut(client) else { return };
        if state.watched.iter().any(|w| w.database == database && *w.key == *key) {
            return;
        }
        state.watched.push(Watched { database, key: key.into() });
        self.sessions.hold(client, watch_bytes(key));
        let watchers = &mut self.keyspace.database_mut(database).watchers;
        watchers.entry(key.into()).or_default().push(client);
    }

    /// Ends all watches of a client.
    pub fn unwatch(&mut self, client: ClientId) {
        let Some(state) = self.sessions.get_mut(client) else { return };
        state.watch_broken = false;
        for watched in std::mem::take(&mut state.watched) {
            self.sessions.release(client, watch_bytes(&watched.key));
            let watchers = &mut self.keyspace.database_mut(watched.database).watchers;
            if let Some(clients) = watchers.get_mut(&watched.key) {
                clients.retain(|&other| other != client);
                if clients.is_empty() {
                    watchers.remove(&watched.key);
                }
            }
        }
    }

    /// Whether a watched key has changed or expired since the watch began.
    pub fn is_watch_broken(&self, client: ClientId, time: Time) -> bool {
        self.sessions.get(client).is_some_and(|state| {
            state.watch_broken
                || state.watched.iter().any(|w| self.has_expired(w.database, &w.key, time))
        })
    }

    /// Handles a change of a key: breaks the transactions that watch it, and marks it for waiting
    /// clients.
    #[inline]
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        if self.handles_touch(database) {
            self.handle_touch(database, key);
        }
    }

    /// Whether [`Engine::touch`] has anything to do.
    #[inline]
    pub fn handles_touch(&self, database: usize) -> bool {
        self.has_waiters()
            || self.faults.writes.is_some()
            || !self.keyspace.database(database).watchers.is_empty()
    }

    #[cold]
    fn handle_touch(&mut self, database: usize, key: &[u8]) {
        self.mark_for_waiters(database, key);
        if let Some(writes) = &mut self.faults.writes {
            writes.touch(database, key);
        }
        if !self.keyspace.database(database).watchers.is_empty() {
            self.break_watches(database, key);
        }
    }

    #[cold]
    fn break_watches(&mut self, database: usize, key: &[u8]) {
        let watchers = &self.keyspace.database(database).watchers;
        for &client in watchers.get(key).into_iter().flatten() {
            if let Some(state) = self.sessions.get_mut(client) {
                state.watch_broken = true;
            }
        }
    }

    /// Handles a database that is about to be emptied or swapped with `other`: breaks the
    /// transactions that watch a key that exists before or after the change, and marks keys for
    /// waiting clients. Must be called before the change.
    pub fn touch_all(&mut self, database: usize, other: Option<usize>) {
        self.mark_all_for_waiters(database, other);
        if let Some(writes) = &mut self.faults.writes {
            writes.touch_all(database);
        }
        let watched: Vec<(Box<[u8]>, Vec<ClientId>)> = self
            .keyspace
            .database(database)
            .watchers
            .iter()
            .map(|(key, clients)| (key.clone(), clients.clone()))
            .collect();
        for (key, clients) in watched {
            let here = self.keyspace.find(database, &key).is_some();
            let there = other.is_some_and(|other| self.keyspace.find(other, &key).is_some());
            if !here && !there {
                continue;
            }
            for client in clients {
                if let Some(state) = self.sessions.get_mut(client) {
                    state.watch_broken = true;
                }
            }
        }
    }
}
