//! The connected clients: finds a client's receiver by its id, from any thread, in no order.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use dashmap::DashMap;

use crate::limits;
use crate::net::connection::Connection;
use crate::net::outbox::Outbox;
use lockwheel_engine::sessions::ClientId;

/// Receives what the engine sends to a client.
#[derive(Clone, Debug)]
pub(crate) enum Receiver {
    /// A socket.
    Socket(Arc<Connection>),
    /// A caller in this process.
    InProcess(Arc<Outbox>),
}

impl Receiver {
    /// The outbox for its messages.
    pub(crate) fn outbox(&self) -> &Outbox {
        match self {
            Receiver::Socket(connection) => &connection.outbox,
            Receiver::InProcess(outbox) => outbox,
        }
    }

    /// Whether it may have output that is not sent.
    #[cfg(feature = "replication")]
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Receiver::Socket(connection) => connection.has_output(),
            Receiver::InProcess(outbox) => outbox.is_filled(),
        }
    }
}

/// The receivers of all clients. No lock is held across a call: callers get clones.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The receivers by client; every message looks up its own.
    receivers: DashMap<ClientId, Receiver, BuildHasherDefault<ClientIdHasher>>,
}

impl Default for Registry {
    fn default() -> Registry {
        let hasher = BuildHasherDefault::default();
        let shards = limits::REGISTRY_SHARDS;
        Registry { receivers: DashMap::with_hasher_and_shard_amount(hasher, shards) }
    }
}

/// A hasher of client ids. The server numbers clients itself, so a client cannot prepare
/// collisions, and a product spreads the numbers well enough.
#[derive(Debug, Default)]
struct ClientIdHasher(u64);

impl Hasher for ClientIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(ODD);
    }
}

impl Registry {
    /// Adds a client's receiver.
    pub(crate) fn add(&self, client: ClientId, receiver: Receiver) {
        self.receivers.insert(client, receiver);
    }

    /// Removes a client.
    pub(crate) fn remove(&self, client: ClientId) {
        self.receivers.remove(&client);
    }

    /// Removes all clients.
    pub(crate) fn clear(&self) {
        self.receivers.clear();
    }

    /// The receiver of a client.
    pub(crate) fn get(&self, client: ClientId) -> Option<Receiver> {
        self.receivers.get(&client).map(|receiver| receiver.clone())
    }

    /// The connections of all clients that have a socket.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        let receivers = self.all().into_iter();
        let connections = receivers.filter_map(|receiver| match receiver {
            Receiver::Socket(connection) => Some(connection),
            Receiver::InProcess(_) => None,
        });
        connections.collect()
    }

    /// All clients with their receivers.
    #[cfg(feature = "replication")]
    pub(crate) fn all_with_clients(&self) -> Vec<(ClientId, Receiver)> {
        self.receivers.iter().map(|entry| (*entry.key(), entry.value().clone())).collect()
    }

    /// All receivers.
    pub(crate) fn all(&self) -> Vec<Receiver> {
        self.receivers.iter().map(|receiver| receiver.clone()).collect()
    }
}
