//! The table of the connected clients. A place in it is used again, a [`ClientId`] is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwheel_resp::Protocol;

use crate::acl::Identity;
use crate::sessions::buffers::{AllBuffers, Buffers};
use crate::sessions::{ClientId, Origin, ReplyMode, Session};
use crate::statistics::memory::CLIENT_BYTES;
use crate::timing::time::Millis;

/// All connected clients.
#[derive(Debug, Default)]
pub struct Clients {
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    /// The slots by the serial numbers of their clients.
    by_serial: BTreeMap<u64, u32>,
    last_serial: u64,
    /// Bytes the engine holds for all clients.
    held_bytes: usize,
    /// The buffers of all connections.
    pub(crate) buffers: Arc<AllBuffers>,
    /// Whether any client has ever used `CLIENT NO-TOUCH`.
    pub no_touch_asked: bool,
}

impl Clients {
    /// Adds a client.
    pub(crate) fn add(&mut self, origin: Origin, now: Millis, identity: Identity) -> ClientId {
        self.last_serial += 1;
        let protocol = if origin.in_process { Protocol::Resp3 } else { Protocol::Resp2 };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 clients")
        });
        let id = ClientId { serial: self.last_serial, slot };
        self.slots[slot as usize] = Some(Box::new(Session {
            id,
            origin,
            name: Bytes::new(),
            library_name: Bytes::new(),
            library_version: Bytes::new(),
            database: 0,
            protocol,
            identity,
            reply_mode: ReplyMode::default(),
            read_only: false,
            slot: None,
            is_monitor: false,
            no_evict: false,
            no_touch: false,
            transaction: None,
            watched: Vec::new(),
            watch_broken: false,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            tracking: None,
            blocked: None,
            peer_closed: false,
            has_been_held: false,
            verdict: None,
            loses_reply: false,
            connected_at: now,
            active_at: now,
            last_command: "NULL",
            buffers: Arc::new(Buffers::new(&self.buffers)),
            held_bytes: 0,
            pending: BytesMut::new(),
            resume: false,
            close: None,
            queued: false,
            checks_output: false,
        }));
        self.by_serial.insert(id.serial, slot);
        id
    }

    /// Removes a client.
    pub fn remove(&mut self, id: ClientId) -> Option<Box<Session>> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.as_ref()?.id != id {
            return None;
        }
        self.by_serial.remove(&id.serial);
        self.free.push(id.slot);
        let client = place.take()?;
        self.held_bytes -= client.held_bytes;
        client.buffers.remove();
        Some(client)
    }

    /// Adds to the bytes that the engine holds for a client: transaction, watched keys,
    /// subscriptions.
    pub(crate) fn hold(&mut self, id: ClientId, bytes: usize) {
        if let Some(client) = self.get_mut(id) {
            client.held_bytes += bytes;
            self.held_bytes += bytes;
        }
    }

    /// Subtracts bytes that [`Clients::hold`] has added.
    pub(crate) fn release(&mut self, id: ClientId, bytes: usize) {
        if let Some(client) = self.get_mut(id) {
            client.held_bytes -= bytes;
            self.held_bytes -= bytes;
        }
    }

    /// Sets the name of a client, or the name or version of its library.
    pub(crate) fn set_text(
        &mut self,
        id: ClientId,
        place: impl FnOnce(&mut Session) -> &mut Bytes,
        text: Bytes,
    ) {
        let Some(client) = self.get_mut(id) else { return };
        let bytes = text.len();
        let before = std::mem::replace(place(client), text);
        self.hold(id, bytes);
        self.release(id, before.len());
    }

    /// The memory of all clients.
    pub fn memory_bytes(&self) -> usize {
        self.len() * CLIENT_BYTES + self.held_bytes + self.buffers.sum()
    }

    /// The client with this id, if it is still connected.
    pub fn get(&self, id: ClientId) -> Option<&Session> {
        self.slots.get(id.slot as usize)?.as_deref().filter(|client| client.id.serial == id.serial)
    }

    /// The client with this id, if it is still connected.
    #[inline]
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Session> {
        let client = self.slots.get_mut(id.slot as usize)?.as_deref_mut();
        client.filter(|client| client.id.serial == id.serial)
    }

    /// The client at that place of the table.
    pub fn at_place(&self, place: u32) -> Option<ClientId> {
        self.slots.get(place as usize)?.as_ref().map(|client| client.id)
    }

    /// The client with that `CLIENT ID`, unless it only monitors the server.
    pub fn by_serial(&self, serial: u64) -> Option<ClientId> {
        let client = self.by_serial.get(&serial).map(|&slot| ClientId { serial, slot });
        client.filter(|&client| self.is_reachable(client))
    }

    /// The clients in the order of connection, without those that only monitor the server: no
    /// command lists them or closes them.
    pub fn in_order(&self) -> Vec<ClientId> {
        self.all_in_order().filter(|&client| self.is_reachable(client)).collect()
    }

    /// All clients in the order of connection.
    pub fn all_in_order(&self) -> impl Iterator<Item = ClientId> {
        self.by_serial.iter().map(|(&serial, &slot)| ClientId { serial, slot })
    }

    fn is_reachable(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(|client| !client.origin.is_monitoring)
    }

    /// All clients in unspecified order.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|client| &**client)
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.by_serial.len()
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.by_serial.is_empty()
    }
}
