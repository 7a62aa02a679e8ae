//! Who is connected: from a client's name to its connection, for many threads and in no order.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use dashmap::DashMap;

use crate::limits;
use crate::net::connection::Connection;
use crate::net::outbox::Outbox;
use lockwheel_engine::session::ClientId;

/// The other end of a client.
#[derive(Clone, Debug)]
pub(crate) enum Receiver {
    /// A socket.
    Socket(Arc<Connection>),
    /// A caller in this process.
    InProcess(Arc<Outbox>),
}

impl Receiver {
    /// Where its messages go.
    pub(crate) fn outbox(&self) -> &Outbox {
        match self {
            Receiver::Socket(connection) => &connection.outbox,
            Receiver::InProcess(outbox) => outbox,
        }
    }
}

/// All peers. No guard of the map is held across a call: callers get clones.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Every message looks up its receiver here.
    peers: DashMap<ClientId, Receiver, BuildHasherDefault<Scatter>>,
}

impl Default for Registry {
    fn default() -> Registry {
        let (scatter, shards) = (BuildHasherDefault::default(), limits::REGISTRY_SHARDS);
        Registry { peers: DashMap::with_hasher_and_shard_amount(scatter, shards) }
    }
}

/// Clients are numbered by ourselves, so nobody can prepare collisions, and a product scatters the
/// numbers well enough.
#[derive(Debug, Default)]
struct Scatter(u64);

impl Hasher for Scatter {
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
    /// Adds a client's peer.
    pub(crate) fn add(&self, client: ClientId, peer: Receiver) {
        self.peers.insert(client, peer);
    }

    /// Forgets a client.
    pub(crate) fn remove(&self, client: ClientId) {
        self.peers.remove(&client);
    }

    /// Forgets everyone.
    pub(crate) fn clear(&self) {
        self.peers.clear();
    }

    /// The peer of a client.
    pub(crate) fn get(&self, client: ClientId) -> Option<Receiver> {
        self.peers.get(&client).map(|peer| peer.clone())
    }

    /// All sockets.
    pub(crate) fn sockets(&self) -> Vec<Arc<Connection>> {
        self.peers
            .iter()
            .filter_map(|entry| match entry.value() {
                Receiver::Socket(connection) => Some(Arc::clone(connection)),
                Receiver::InProcess(_) => None,
            })
            .collect()
    }

    /// All peers.
    pub(crate) fn all(&self) -> Vec<Receiver> {
        self.peers.iter().map(|entry| entry.value().clone()).collect()
    }
}
