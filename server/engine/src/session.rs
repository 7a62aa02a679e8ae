//! What the engine knows of each connection. Sockets are none of its business: it leaves what a
//! client is to receive in `pending`, and the caller collects it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use lockwheel_resp::Protocol;

use crate::buffers::Buffers;
use crate::memory::CLIENT_BYTES;
use crate::pubsub::Subscription;
use crate::time::Millis;
use crate::tracking::Tracking;
use crate::transaction::Transaction;
use crate::waiters::Blocked;

/// Names a client for as long as it is connected, and never names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// What `CLIENT ID` answers: counts up from 1.
    pub serial: u64,
    slot: u32,
}

/// Where a client comes from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Its address and port, or the path of the unix socket followed by `:0`.
    pub address: String,
    /// The address it connected to, likewise.
    pub local_address: String,
    /// The descriptor number `CLIENT LIST` shows, or -1.
    pub descriptor: i64,
    /// Whether it came through a unix socket.
    pub unix: bool,
    /// Whether it runs on this machine: a unix socket, the loopback network, or in process.
    pub local: bool,
    /// Whether it is the program that the server lives in.
    pub in_process: bool,
}

/// How a client has asked to be answered (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command.
    #[default]
    On,
    /// No command until it says otherwise.
    Off,
    /// Not the command after this one.
    SkipNext,
    /// Not this command.
    Skip,
}

/// Why a client is to be disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// After what it is owed has been sent.
    AfterReplies,
    /// At once.
    Now,
}

/// One connection's state.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: ClientId,
    /// Where it comes from.
    pub origin: Origin,
    /// `CLIENT SETNAME`
    pub name: Bytes,
    /// `CLIENT SETINFO LIB-NAME`
    pub library_name: Bytes,
    /// `CLIENT SETINFO LIB-VER`
    pub library_version: Bytes,
    /// The database it has selected.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Whether it has given the password, or needs none.
    pub authenticated: bool,
    /// How it wants to be answered.
    pub reply_mode: ReplyMode,
    /// `READONLY`
    pub read_only: bool,
    /// The slot of the keys of its request, in a cluster.
    pub slot: Option<u16>,
    /// `CLIENT NO-EVICT`
    pub no_evict: bool,
    /// `CLIENT NO-TOUCH`
    pub no_touch: bool,
    /// Between `MULTI` and `EXEC`.
    pub transaction: Option<Transaction>,
    /// The keys it watches, each with its database.
    pub watched: Vec<Watched>,
    /// A watched key has changed.
    pub watch_broken: bool,
    /// Channels it listens to.
    pub channels: BTreeSet<Bytes>,
    /// Patterns it listens to.
    pub patterns: BTreeSet<Bytes>,
    /// Sharded channels it listens to.
    pub shard_channels: BTreeSet<Bytes>,
    /// `CLIENT TRACKING`, if on.
    pub tracking: Option<Box<Tracking>>,
    /// Waiting for something to happen; no further request is run meanwhile.
    pub blocked: Option<Blocked>,
    /// Its request has been looked at by the rules of [`faults`](crate::faults) already.
    pub(super) has_been_held: bool,
    /// A fault has its request run and not answered.
    pub(super) loses_reply: bool,
    /// When it connected.
    pub connected_at: Millis,
    /// When it last sent a command.
    pub active_at: Millis,
    /// The full name of its last command.
    pub last_command: &'static str,
    /// What its connection holds.
    pub buffers: Arc<Buffers>,
    /// Bytes the engine keeps for it beside this: see [`Sessions::hold`].
    held_bytes: usize,
    pub(super) pending: BytesMut,
    pub(super) resume: bool,
    pub(super) close: Option<Close>,
    pub(super) queued: bool,
    pub(super) checks_output: bool,
}

/// A key under `WATCH`.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its database's number.
    pub database: usize,
    /// The key.
    pub key: Box<[u8]>,
}

impl Session {
    /// How many channels and patterns it listens to, sharded ones not counted: the number in a
    /// `subscribe` confirmation.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// What it listens to, of one kind.
    pub fn listens_to(&self, kind: Subscription) -> &BTreeSet<Bytes> {
        match kind {
            Subscription::Channel => &self.channels,
            Subscription::Pattern => &self.patterns,
            Subscription::Shard => &self.shard_channels,
        }
    }

    pub(super) fn listens_to_mut(&mut self, kind: Subscription) -> &mut BTreeSet<Bytes> {
        match kind {
            Subscription::Channel => &mut self.channels,
            Subscription::Pattern => &mut self.patterns,
            Subscription::Shard => &mut self.shard_channels,
        }
    }

    /// What it takes: itself, what the engine keeps for it, and the buffers of its connection.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffers.sizes().total();
        CLIENT_BYTES + self.held_bytes + buffers
    }

    /// Whether what it is answered now is not sent.
    pub fn is_muted(&self) -> bool {
        self.loses_reply || matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// Whether nothing about it keeps it from any command: it has given the password, is in no
    /// transaction, and listens to nothing or may do so meanwhile.
    pub(super) fn is_free(&self) -> bool {
        self.authenticated
            && self.transaction.is_none()
            && (self.protocol == Protocol::Resp3 || !self.is_subscriber())
    }

    /// Whether it listens to anything.
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
    /// What the engine keeps for all of them together.
    held_bytes: usize,
    /// What all their connections hold together.
    buffer_bytes: Arc<AtomicUsize>,
    /// Whether any client has ever asked for `CLIENT NO-TOUCH`.
    pub no_touch_asked: bool,
}

impl Sessions {
    /// Adds a client; `authenticated` if no password is asked for.
    pub fn add(&mut self, origin: Origin, now: Millis, authenticated: bool) -> ClientId {
        self.last_serial += 1;
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
            protocol: Protocol::Resp2,
            authenticated,
            reply_mode: ReplyMode::On,
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

    /// Forgets a client.
    pub fn remove(&mut self, id: ClientId) -> Option<Box<Session>> {
        let place = self.slots.get_mut(id.slot as usize)?;
        if place.as_ref()?.id != id {
            return None;
        }
        self.count -= 1;
        self.free.push(id.slot);
        let client = place.take()?;
        self.held_bytes -= client.held_bytes;
        client.buffers.forget();
        Some(client)
    }

    /// Counts bytes that the engine keeps for a client from now on: its transaction, what it
    /// watches, what it listens to.
    pub(super) fn hold(&mut self, id: ClientId, bytes: usize) {
        if let Some(client) = self.get_mut(id) {
            client.held_bytes += bytes;
            self.held_bytes += bytes;
        }
    }

    /// Counts bytes no longer that [`Sessions::hold`] has counted.
    pub(super) fn release(&mut self, id: ClientId, bytes: usize) {
        if let Some(client) = self.get_mut(id) {
            client.held_bytes -= bytes;
            self.held_bytes -= bytes;
        }
    }

    /// Gives a client a name, or a library's name or version.
    pub(super) fn set_text(
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

    /// What all clients take.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffer_bytes.load(Ordering::Relaxed);
        self.count * CLIENT_BYTES + self.held_bytes + buffers
    }

    /// The client of that name, if it is still connected.
    pub fn get(&self, id: ClientId) -> Option<&Session> {
        self.slots.get(id.slot as usize)?.as_deref().filter(|client| client.id.serial == id.serial)
    }

    /// The client of that name, if it is still connected.
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Session> {
        let client = self.slots.get_mut(id.slot as usize)?.as_deref_mut();
        client.filter(|client| client.id.serial == id.serial)
    }

    /// The client with that `CLIENT ID`.
    pub fn by_serial(&self, serial: u64) -> Option<ClientId> {
        self.iter().find(|client| client.id.serial == serial).map(|client| client.id)
    }

    /// All clients, the longest connected first.
    pub fn in_order(&self) -> Vec<ClientId> {
        let mut ids: Vec<ClientId> = self.iter().map(|client| client.id).collect();
        ids.sort_unstable();
        ids
    }

    /// All clients, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|client| &**client)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
