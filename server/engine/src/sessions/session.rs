//! The state of one client, and the state of all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwheel_resp::Protocol;

use crate::acl::Identity;
use crate::limits;
use crate::replication::held::{HeldRequests, Verdict};
use crate::sessions::bindings::Bindings;
use crate::sessions::buffers::Buffers;
use crate::sessions::clients::Clients;
use crate::sessions::hold_ends::HoldEnds;
use crate::sessions::pauses::Pause;
use crate::sessions::pubsub::{PubSub, Subscription};
use crate::sessions::tracking::{Tracked, Tracking};
use crate::sessions::transaction::{Transaction, Watchers};
use crate::sessions::waiters::{Blocked, Waiters};
use crate::statistics::memory::CLIENT_BYTES;
use crate::store::dict::HashSeed;
use crate::timing::time::Millis;
use crate::timing::timers::{TimerId, Timers};

/// Identifies a client. An id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    /// The number in `CLIENT ID`: counts up from 1.
    pub serial: u64,
    pub(super) slot: u32,
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
    /// Whether it only monitors the server: then neither it nor its commands and errors are
    /// counted.
    pub is_monitoring: bool,
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
    /// What it may do.
    pub identity: Identity,
    /// Which replies are sent.
    pub reply_mode: ReplyMode,
    /// Whether `READONLY` is on.
    pub read_only: bool,
    /// In a cluster, the slot of the keys of the current request.
    pub slot: Option<u16>,
    /// Whether the client has sent `MONITOR`.
    pub is_monitor: bool,
    /// Whether `CLIENT NO-EVICT` is on.
    pub no_evict: bool,
    /// Whether `CLIENT NO-TOUCH` is on.
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
    /// The decision on its request, which was held.
    pub(crate) verdict: Option<Verdict>,
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
    /// Bytes the engine holds for the client outside this struct: see [`Clients::hold`].
    pub(super) held_bytes: usize,
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

/// The purpose of a timer that does not belong to a key. A client is given by its place in the
/// table of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A blocked client has reached its timeout.
    Blocked(u32),
    /// The command of a blocked client is run again.
    Retry(u32),
    /// `CLIENT PAUSE` has ended.
    Unpause,
    /// A client may have been above its soft output limit for too long.
    CheckOutput(u32),
    /// The restart guard is over.
    GuardEnd,
    /// Messages from before the restart are not sent any more.
    ForgetMessages,
    /// A lease of a native lock has ended before the lock does.
    HoldEnd,
}

/// The sessions of all clients, and what they share.
#[derive(Debug)]
pub struct Sessions {
    /// The connected clients.
    pub(crate) clients: Clients,
    /// The subscriptions.
    pub(crate) pubsub: PubSub,
    /// The keys and prefixes of client side caching.
    pub(crate) tracked: Tracked,
    /// The clients that receive all requests (`MONITOR`).
    pub(crate) monitors: BTreeSet<ClientId>,
    /// The clients that wait for keys.
    pub(crate) waiters: Waiters,
    /// The clients that wait until units of the log are durable.
    pub(crate) log_waiters: BTreeSet<ClientId>,
    /// The clients that watch keys.
    pub(crate) watchers: Watchers,
    /// The locks that are bound to connections.
    pub(crate) bindings: Bindings,
    /// When leases of locks end.
    pub(super) hold_ends: HoldEnds,
    /// The timers of clients and of the pause.
    pub(crate) timers: Timers<Timer>,
    /// The current pause, if any.
    pub(crate) pause: Option<Pause>,
    pub(crate) unpause_timer: Option<TimerId>,
    pub(crate) paused_clients: Vec<ClientId>,
    /// The requests that are held because this server does not lead.
    pub(crate) held: HeldRequests,
    /// The clients with output or a change of state that their connections have not got yet.
    pub(crate) deliveries: Vec<ClientId>,
    /// The clients that were disconnected here, of which their connections must be informed.
    pub(crate) killed: Vec<ClientId>,
}

impl Sessions {
    /// No clients.
    pub fn new(hash_seed: HashSeed, now: Millis) -> Sessions {
        Sessions {
            clients: Clients::default(),
            pubsub: PubSub::default(),
            tracked: Tracked::new(hash_seed),
            monitors: BTreeSet::new(),
            waiters: Waiters::new(hash_seed),
            log_waiters: BTreeSet::new(),
            watchers: Watchers::default(),
            bindings: Bindings::default(),
            hold_ends: HoldEnds::default(),
            timers: Timers::new(now),
            pause: None,
            unpause_timer: None,
            paused_clients: Vec::new(),
            held: HeldRequests::default(),
            deliveries: Vec::new(),
            killed: Vec::new(),
        }
    }

    /// The session of a client, if it is still connected.
    #[inline]
    pub fn get(&self, client: ClientId) -> Option<&Session> {
        self.clients.get(client)
    }

    /// The session of a client, if it is still connected.
    #[inline]
    pub fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.clients.get_mut(client)
    }

    /// Removes a client that has disconnected.
    pub(crate) fn remove(&mut self, client: ClientId) {
        self.stop_waiting(client);
        self.bindings.end(client);
        self.unwatch(client);
        self.unsubscribe_all(client);
        self.stop_tracking(client);
        self.stop_monitoring(client);
        self.clients.remove(client);
    }

    /// Whether any client must be informed of effects.
    pub(crate) fn use_effects(&self) -> bool {
        self.has_waiters() || !self.watchers.is_empty() || self.is_tracking()
    }
}
