//! The state of each connection in the engine. The engine does no I/O: it appends output to
//! `pending`, and the caller collects it.

pub mod buffers;
pub mod pubsub;
pub mod tracking;
pub mod transaction;
pub mod waiters;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use lockwheel_resp::Protocol;

use crate::limits;
use crate::memory::CLIENT_BYTES;
use crate::sessions::buffers::Buffers;
use crate::sessions::pubsub::Subscription;
use crate::sessions::tracking::Tracking;
use crate::sessions::transaction::Transaction;
use crate::sessions::waiters::Blocked;
use crate::time::Millis;

/// Identifies a client. An id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// The number in `CLIENT ID`: counts up from 1.
    pub serial: u64,
    slot: u32,
}

/// Where a client comes from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The client's address and port, or the path of the unix socket followed by `:0`.
    pub address: String,
    /// The address that the client connected to, in the same form.
    pub local_address: String,
    /// The file descriptor in `CLIENT LIST`, or -1.
    pub descriptor: i64,
    /// Whether the client uses a unix socket.
    pub unix: bool,
    /// Whether the client runs on this machine: unix socket, loopback network, or in process.
    pub local: bool,
    /// Whether the client is the program that embeds the server.
    pub in_process: bool,
}

/// Which replies are not sent (`CLIENT REPLY`). The flags are independent, as in Redis: a
/// transaction can set several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyMode {
    /// All, until the client changes the mode.
    pub off: bool,
    /// The one to this request.
    pub skip: bool,
    /// The one to the next request.
    pub skip_next: bool,
}

impl ReplyMode {
    /// The mode for the request after this one.
    #[must_use]
    pub fn next(self) -> ReplyMode {
        ReplyMode { off: self.off, skip: self.skip_next, skip_next: false }
    }

    /// Whether no reply is sent at present.
    pub fn is_muted(self) -> bool {
        self.off || self.skip
    }
}

/// How to disconnect a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// After its pending replies have been sent.
    AfterReplies,
    /// At once.
    Now,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    /// The client's id.
    pub id: ClientId,
    /// Where the client comes from.
    pub origin: Origin,
    /// `CLIENT SETNAME`
    pub name: Bytes,
    /// `CLIENT SETINFO LIB-NAME`
    pub library_name: Bytes,
    /// `CLIENT SETINFO LIB-VER`
    pub library_version: Bytes,
    /// The selected database.
    pub database: usize,
    /// The protocol of its replies.
    pub protocol: Protocol,
    /// Whether it has authenticated, or no password is set.
    pub authenticated: bool,
    /// Which replies are sent.
    pub reply_mode: ReplyMode,
    /// `READONLY`
    pub read_only: bool,
    /// In a cluster, the slot of the keys of the current request.
    pub slot: Option<u16>,
    /// `CLIENT NO-EVICT`
    pub no_evict: bool,
    /// `CLIENT NO-TOUCH`
    pub no_touch: bool,
    /// The transaction, between `MULTI` and `EXEC`.
    pub transaction: Option<Transaction>,
    /// The keys under `WATCH`.
    pub watched: Vec<Watched>,
    /// Whether a watched key has changed.
    pub watch_broken: bool,
    /// Subscribed channels.
    pub channels: BTreeSet<Bytes>,
    /// Subscribed patterns.
    pub patterns: BTreeSet<Bytes>,
    /// Subscribed sharded channels.
    pub shard_channels: BTreeSet<Bytes>,
    /// `CLIENT TRACKING`, if on.
    pub tracking: Option<Box<Tracking>>,
    /// The wait of a blocked client. Its further requests are not run meanwhile.
    pub blocked: Option<Blocked>,
    /// Whether the peer has closed the connection, although the client is still connected here.
    pub(crate) peer_closed: bool,
    /// Whether the rules of [`faults`](crate::instruments::faults) have already been applied to the
    /// request.
    pub(crate) has_been_held: bool,
    /// Whether a fault suppresses the reply to the current request.
    pub(crate) loses_reply: bool,
    /// When it connected.
    pub connected_at: Millis,
    /// When it last sent a command.
    pub active_at: Millis,
    /// The full name of its last command.
    pub last_command: &'static str,
    /// The sizes of its connection's buffers.
    pub buffers: Arc<Buffers>,
    /// Bytes the engine holds for the client outside this struct: see [`Sessions::hold`].
    held_bytes: usize,
    pub(crate) pending: BytesMut,
    pub(crate) resume: bool,
    pub(crate) close: Option<Close>,
    pub(crate) queued: bool,
    pub(crate) checks_output: bool,
}

/// A key under `WATCH`.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The number of its database.
    pub database: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// Whether the key existed when the watch began.
    pub existed: bool,
}

impl Session {
    /// The number of subscribed channels and patterns, without sharded channels: the number in a
    /// `subscribe` confirmation.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// The subscriptions of one kind.
    pub fn listens_to(&self, kind: Subscription) -> &BTreeSet<Bytes> {
        match kind {
            Subscription::Channel => &self.channels,
            Subscription::Pattern => &self.patterns,
            Subscription::Shard => &self.shard_channels,
        }
    }

    pub(crate) fn listens_to_mut(&mut self, kind: Subscription) -> &mut BTreeSet<Bytes> {
        match kind {
            Subscription::Channel => &mut self.channels,
            Subscription::Pattern => &mut self.patterns,
            Subscription::Shard => &mut self.shard_channels,
        }
    }

    /// The client's memory: this struct, what the engine holds for it, and its connection's
    /// buffers.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffers.sizes().total();
        CLIENT_BYTES + self.held_bytes + buffers
    }

    /// Empties `pending` and frees its memory if it is large.
    pub(crate) fn clear_pending(&mut self) {
        self.pending.clear();
        if self.pending.capacity() > limits::IDLE_BUFFER_BYTES {
            self.pending = BytesMut::new();
        }
    }

    /// Whether replies are not sent at present.
    pub fn is_muted(&self) -> bool {
        self.loses_reply || self.reply_mode.is_muted()
    }

    /// The protocol in which a reply is sent now, or `None` if it is not sent.
    pub fn protocol_unless_muted(&self) -> Option<Protocol> {
        (!self.is_muted()).then_some(self.protocol)
    }

    /// Whether the client has any subscription.
    pub fn is_subscriber(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty() || !self.shard_channels.is_empty()
    }
}

/// All connected clients.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    count: usize,
    last_serial: u64,
    /// Bytes the engine holds for all clients.
    held_bytes: usize,
    /// Bytes in the buffers of all connections.
    buffer_bytes: Arc<AtomicUsize>,
    /// Whether any client has ever used `CLIENT NO-TOUCH`.
    pub no_touch_asked: bool,
}

impl Sessions {
    /// Adds a client. `authenticated` is true if no password is set.
    pub fn add(&mut self, origin: Origin, now: Millis, authenticated: bool) -> ClientId {
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
            authenticated,
            reply_mode: ReplyMode::default(),
            read_only: false,
            slot: None,
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
            loses_reply: false,
            connected_at: now,
            active_at: now,
            last_command: "NULL",
            buffers: Arc::new(Buffers::new(&self.buffer_bytes)),
            held_bytes: 0,
            pending: BytesMut::new(),
            resume: false,
            close: None,
            queued: false,
            checks_output: false,
        }));
        self.count += 1;
        id
    }

    /// Removes a client.
    pub fn remove(&mut self, id: ClientId) -> Option<Box<Session>> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.as_ref()?.id != id {
            return None;
        }
        self.count -= 1;
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

    /// Subtracts bytes that [`Sessions::hold`] has added.
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
        let buffers = self.buffer_bytes.load(Ordering::Relaxed);
        self.count * CLIENT_BYTES + self.held_bytes + buffers
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

    /// The client with that `CLIENT ID`.
    pub fn by_serial(&self, serial: u64) -> Option<ClientId> {
        self.iter().find(|client| client.id.serial == serial).map(|client| client.id)
    }

    /// All clients in the order of connection.
    pub fn in_order(&self) -> Vec<ClientId> {
        let mut ids: Vec<ClientId> = self.iter().map(|client| client.id).collect();
        ids.sort_unstable();
        ids
    }

    /// All clients in unspecified order.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|client| &**client)
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
