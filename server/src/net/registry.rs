//! Who is connected: from a client's name to its connection, for many threads and in no order.

use std::sync::Arc;

use dashmap::DashMap;

use crate::engine::client::ClientId;
use crate::limits;
use crate::net::connection::Connection;
use crate::net::outbox::Outbox;

/// The other end of a client.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A socket.
    Socket(Arc<Connection>),
    /// A caller in this process.
    InProcess(Arc<Outbox>),
}

impl Peer {
    /// Where its messages go.
    pub(crate) fn outbox(&self) -> &Outbox {
        match self {
            Peer::Socket(connection) => &connection.outbox,
            Peer::InProcess(outbox) => outbox,
        }
    }
}

/// All peers. No guard of the map is held across a call: callers get clones.
#[derive(Debug)]
pub(crate) struct Registry {
    peers: DashMap<ClientId, Peer>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry { peers: DashMap::with_shard_amount(limits::REGISTRY_SHARDS) }
    }
}

impl Registry {
    /// Adds a client's peer.
    pub(crate) fn add(&self, client: ClientId, peer: Peer) {
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
    pub(crate) fn get(&self, client: ClientId) -> Option<Peer> {
        self.peers.get(&client).map(|peer| peer.clone())
    }

    /// All sockets.
    pub(crate) fn sockets(&self) -> Vec<Arc<Connection>> {
        self.peers
            .iter()
            .filter_map(|entry| match entry.value() {
                Peer::Socket(connection) => Some(Arc::clone(connection)),
                Peer::InProcess(_) => None,
            })
            .collect()
    }

    /// All peers.
    pub(crate) fn all(&self) -> Vec<Peer> {
        self.peers.iter().map(|entry| entry.value().clone()).collect()
    }
}
