//! Blocked clients: the keys they wait for, how they are served, and the reply after a timeout.
//!
//! A blocking command first runs without blocking. If it finds nothing, its handler calls
//! [`Context::wait_for`], and the client is queued. A change of a key that has waiting clients
//! marks the key. After the outermost command (a whole transaction or script), the commands of the
//! clients that wait for marked keys run again: key by key in the order of the marks, and the
//! longest waiting client first. Where clients are served strictly in order, the first one that has
//! to wait on stops those behind it. The engine names each client before it is served, so that the
//! caller can report a closed connection: anything that such a client were given would be lost.
//!
//! Invariants: a waiter is a [`ClientId`], never a reference, since a client may disconnect at any
//! moment; it is then removed from all queues. While a client waits, none of its further requests
//! is run.
//!
//! [`Context::wait_for`]: crate::run::context::Context::wait_for

use std::collections::VecDeque;

use bytes::BytesMut;
use lockwheel_resp::Reply;

use crate::Engine;
use crate::durability::log_waits::LogWait;
use crate::sessions::queues::{Cursor, Queues, Wait};
use crate::sessions::{ClientId, ReplyMode, Sessions, Timer};
use crate::store::Keyspace;
use crate::store::dict::HashSeed;
use crate::store::lock_notes::Author;
use crate::store::packed::Items;
use crate::store::value::Kind;
use crate::timing::time::{Millis, Time};
use crate::timing::timers::TimerId;
use lockwheel_defects::defect;

/// The wait of a blocked client.
#[derive(Debug)]
pub struct Blocked {
    /// The reply on timeout and on `CLIENT UNBLOCK`.
    pub on_timeout: Reply,
    /// The position of the blocked command in the table; `None` if the client was stopped by
    /// `CLIENT PAUSE` or is held, which `CLIENT UNBLOCK` does not end.
    pub command: Option<usize>,
    /// How long the command has run so far, which is counted when the wait is over.
    pub(crate) ran_ns: u64,
    /// The rule of [`faults`](crate::instruments::faults) that blocks the client, if any.
    pub(crate) rule: Option<RuleBlock>,
    /// Units of the log whose durability the client waits for: it is in [`Sessions::log_waiters`].
    pub(crate) log_wait: Option<LogWait>,
    timer: Option<TimerId>,
    /// Timer with which the command is run again, although no key has changed.
    retry_timer: Option<TimerId>,
    /// The keys that the client waits for, if any.
    key_wait: Option<Wait>,
}

/// How a rule of the faults, given by its id, blocks a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleBlock {
    /// The rule holds the client.
    Held(u64),
    /// The client waits until the rule holds another client.
    Awaits(u64),
}

impl Blocked {
    /// Whether the wait has a timeout.
    pub fn has_deadline(&self) -> bool {
        self.timer.is_some()
    }
}

/// What a blocked client waits for at its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A value of this type.
    Value(Kind),
    /// A value of this type, or that there is none any more, which is an error.
    ValueOrNone(Kind),
    /// A native lock.
    Lock,
}

impl WaitKind {
    /// The type of the value that the key must hold.
    pub(super) fn value(self) -> Kind {
        match self {
            WaitKind::Value(kind) | WaitKind::ValueOrNone(kind) => kind,
            WaitKind::Lock => Kind::Lock,
        }
    }

    /// Whether the client is also served when a key is deleted or changes its type.
    pub(super) fn wakes_if_gone(self) -> bool {
        !matches!(self, WaitKind::Value(_))
    }

    /// Whether the clients that wait for a key are served strictly in their order: while one of
    /// them has to wait on, none behind it is served.
    fn is_in_order(self) -> bool {
        self == WaitKind::Lock
    }

    /// Whether the command runs a last time at the timeout, to give the reply.
    fn runs_at_timeout(self) -> bool {
        self == WaitKind::Lock
    }
}

/// The command of a client that waits for keys.
struct WaitingCommand {
    /// Its position in the table.
    at: usize,
    database: usize,
    kind: WaitKind,
    arguments: Box<[u8]>,
}

/// All clients that wait for keys. They wait for keys of a database number, so `SWAPDB` does not
/// move them.
#[derive(Debug)]
pub struct Waiters {
    queues: Queues,
    /// Changed keys that meet the condition of a waiter, in the order of the first such change.
    marked: VecDeque<(usize, Box<[u8]>)>,
    /// The key with waiters that are being served.
    served: Option<ServedKey>,
    /// Keys that were marked while a waiter was stopped by `CLIENT PAUSE`.
    held: Vec<(usize, Box<[u8]>)>,
}

/// A marked key, and how far its waiters have been served.
#[derive(Debug)]
struct ServedKey {
    database: usize,
    key: Box<[u8]>,
    /// The waiters before it have been served or skipped.
    next: Cursor,
    /// Whether `CLIENT PAUSE` has stopped one of them.
    stopped: bool,
    /// Whether one of those that are served in order must go on waiting.
    is_order_kept: bool,
    /// Whether the command of one of them is running.
    is_run: bool,
}

impl ServedKey {
    fn is(&self, database: usize, key: &[u8]) -> bool {
        self.database == database && *self.key == *key
    }
}

impl Waiters {
    pub(super) fn new(seed: HashSeed) -> Waiters {
        Waiters {
            queues: Queues::new(seed),
            marked: VecDeque::new(),
            served: None,
            held: Vec::new(),
        }
    }

    /// The number of keys with waiting clients.
    pub fn keys(&self) -> usize {
        self.queues.len()
    }

    /// The number of keys with a client that is also served when the key is removed.
    pub fn keys_with_wake_if_gone(&self) -> usize {
        self.queues.count_with_wake_if_gone()
    }

    /// The number of clients that wait for native locks.
    pub(crate) fn for_locks(&self) -> usize {
        self.queues.len_for_locks()
    }

    /// The number of clients that wait for the native lock at this key.
    pub(crate) fn queued_for_lock(&self, database: usize, key: &[u8]) -> usize {
        self.queues.count_for_lock(database, key)
    }

    /// Marks a key that now holds a value of this type, or none, if that meets a waiter's
    /// condition. A lock that the served client has just acquired needs no mark, since the clients
    /// behind it are looked at next.
    fn mark(&mut self, database: usize, key: &[u8], kind: Option<Kind>) {
        let is_run = |served: &ServedKey| served.is_run && served.is(database, key);
        let is_grant = kind == Some(Kind::Lock) && self.served.as_ref().is_some_and(is_run);
        if !is_grant && self.queues.mark(database, key, kind) {
            self.marked.push_back((database, key.into()));
        }
    }

    /// Marks keys that clients wait for, unless they are being served.
    fn mark_unless_served(&mut self, database: usize, keys: &[Box<[u8]>]) {
        if defect!(QueueNotWokenWhenFirstLeaves) {
            return;
        }
        for key in keys {
            if !self.served.as_ref().is_some_and(|served| served.is(database, key)) {
                self.mark(database, key, Some(Kind::Lock));
            }
        }
    }

    /// The key with waiters to serve, and how far they have been served.
    fn take_served(&mut self) -> Option<ServedKey> {
        if let Some(served) = self.served.take() {
            return Some(served);
        }
        let (database, key) = self.marked.pop_front()?;
        let next = self.queues.unmark(database, &key);
        Some(ServedKey { database, key, next, stopped: false, is_order_kept: false, is_run: false })
    }

    fn set_run(&mut self, is_run: bool) {
        if let Some(served) = &mut self.served {
            served.is_run = is_run;
        }
    }

    /// Ends the serving of a key to clients in order, unless the arguments of the next one's
    /// command are such that it can be served.
    pub(crate) fn stop_unless(&mut self, is_served: impl FnOnce(Items<'_>) -> bool) {
        let Some(served) = &mut self.served else { return };
        served.is_order_kept = !self.queues.next_arguments(served.next).is_some_and(is_served);
    }

    /// Removes a client from all queues.
    fn leave(&mut self, wait: &Wait) {
        let keys = if wait.kind.is_in_order() { self.queues.keys_of(wait) } else { Vec::new() };
        let mut unused = Cursor::END;
        let cursor = self.served.as_mut().map_or(&mut unused, |served| &mut served.next);
        self.queues.leave(wait, cursor);
        // Those behind may have waited for this client only.
        self.mark_unless_served(wait.database, &keys);
    }
}

impl Sessions {
    // --- waits begin ---

    /// Blocks a client, until `deadline` if there is one.
    pub(crate) fn block(&mut self, client: ClientId, on_timeout: Reply, deadline: Option<Millis>) {
        self.stop_waiting(client);
        let timer =
            deadline.map(|deadline| self.timers.insert(deadline, Timer::Blocked(client.slot)));
        if let Some(state) = self.get_mut(client) {
            state.blocked = Some(Blocked {
                on_timeout,
                timer,
                retry_timer: None,
                command: None,
                ran_ns: 0,
                rule: None,
                log_wait: None,
                key_wait: None,
            });
        }
    }

    /// As [`Sessions::block`], because of a rule.
    pub(crate) fn block_by_rule(
        &mut self,
        client: ClientId,
        rule: RuleBlock,
        on_timeout: Reply,
        deadline: Option<Millis>,
    ) {
        self.block(client, on_timeout, deadline);
        if let Some(blocked) = self.get_mut(client).and_then(|s| s.blocked.as_mut()) {
            blocked.rule = Some(rule);
        }
    }

    /// The clients blocked by a rule, in the order of connection.
    pub(crate) fn blocked_by(&self, rule: RuleBlock) -> Vec<ClientId> {
        let waits = |id: &ClientId| {
            let blocked = self.get(*id).and_then(|state| state.blocked.as_ref());
            blocked.is_some_and(|blocked| blocked.rule == Some(rule))
        };
        self.clients.all_in_order().filter(waits).collect()
    }

    fn block_for_keys(
        &mut self,
        client: ClientId,
        database: usize,
        kind: WaitKind,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) {
        self.block(client, Reply::NullArray, deadline);
        let wait = self.waiters.queues.join(client.slot, database, kind, keys, &argv[1..]);
        self.clients.hold(client, wait.bytes(&self.waiters.queues));
        if let Some(blocked) = self.get_mut(client).and_then(|s| s.blocked.as_mut()) {
            blocked.key_wait = Some(wait);
        }
    }

    /// Records which command has blocked its client, and how long it has run.
    pub(crate) fn set_waiting_command(&mut self, client: ClientId, at: usize, took_ns: u64) {
        if let Some(blocked) = self.get_mut(client).and_then(|s| s.blocked.as_mut()) {
            blocked.command = Some(at);
            blocked.ran_ns += took_ns;
        }
    }

    /// Takes the time that the command of a blocked client has run so far, in nanoseconds.
    pub(crate) fn take_ran_ns(&mut self, client: ClientId) -> u64 {
        let blocked = self.get_mut(client).and_then(|state| state.blocked.as_mut());
        blocked.map_or(0, |blocked| std::mem::take(&mut blocked.ran_ns))
    }

    /// Blocks a client until the end of a pause or hold; then its request is run again, in the
    /// reply mode it had before.
    pub(crate) fn block_until_resumed(&mut self, client: ClientId, reply_mode: ReplyMode) {
        self.block(client, Reply::NOTHING, None);
        if let Some(state) = self.get_mut(client) {
            state.reply_mode = reply_mode;
            state.has_been_held = true;
        }
    }

    // --- waits are served ---

    /// The clients that wait for a key, in their order.
    pub(crate) fn waiting_for(
        &self,
        database: usize,
        key: &[u8],
    ) -> impl Iterator<Item = ClientId> {
        let clients = self.waiters.queues.of_key(database, key);
        clients.filter_map(|place| self.clients.at_place(place))
    }

    /// The clients that wait for the native lock at a key, in their order: with the arguments of
    /// their commands and until when they wait.
    pub(crate) fn lock_queue(
        &self,
        database: usize,
        key: &[u8],
    ) -> impl Iterator<Item = (ClientId, Vec<&[u8]>, Option<Millis>)> {
        self.waiting_for(database, key).filter_map(|client| {
            let blocked = self.get(client)?.blocked.as_ref()?;
            let wait = blocked.key_wait.as_ref().filter(|wait| wait.kind == WaitKind::Lock)?;
            let until = blocked.timer.map(|timer| self.timers.deadline(timer));
            Some((client, self.waiters.queues.arguments(wait).collect(), until))
        })
    }

    /// Marks a key that has changed and now holds a value of this type, or none, if that meets the
    /// condition of a client that waits for it.
    #[inline]
    pub(crate) fn mark_for_waiters(&mut self, database: usize, key: &[u8], kind: Option<Kind>) {
        if self.has_waiters() {
            self.waiters.mark(database, key, kind);
        }
    }

    /// Whether any client waits for keys.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.queues.is_empty()
    }

    /// As [`Sessions::mark_for_waiters`], for all keys of a database that was emptied or swapped.
    pub(crate) fn mark_all_for_waiters(
        &mut self,
        keyspace: &Keyspace,
        database: usize,
        is_swapped: bool,
    ) {
        for key in self.waiters.queues.keys(database) {
            let kind = if is_swapped { keyspace.kind_of(database, &key) } else { None };
            self.waiters.mark(database, &key, kind);
        }
    }

    /// Marks the keys again that were marked while a waiter was stopped by `CLIENT PAUSE`.
    pub(super) fn mark_held_for_waiters(&mut self, keyspace: &Keyspace) {
        for (database, key) in std::mem::take(&mut self.waiters.held) {
            let kind = keyspace.kind_of(database, &key);
            self.mark_for_waiters(database, &key, kind);
        }
    }

    /// Whether keys are marked, so that [`Engine::serve_waiters`] may serve a client.
    #[inline]
    pub(crate) fn has_waiters_to_serve(&self) -> bool {
        !self.waiters.marked.is_empty()
    }

    /// The command of a client that waits for keys.
    fn waiting_command(&self, client: ClientId) -> Option<WaitingCommand> {
        let blocked = self.get(client)?.blocked.as_ref()?;
        let (at, wait) = (blocked.command?, blocked.key_wait.as_ref()?);
        let arguments = self.waiters.queues.arguments(wait).0.into();
        Some(WaitingCommand { at, database: wait.database, kind: wait.kind, arguments })
    }

    fn exchange_pending(&mut self, client: ClientId, bytes: BytesMut) -> BytesMut {
        let state = self.get_mut(client);
        state.map(|state| std::mem::replace(&mut state.pending, bytes)).unwrap_or_default()
    }

    // --- waits end ---

    fn finish(&mut self, client: ClientId, reply: &Reply) {
        if !self.stop_waiting(client) {
            return;
        }
        if self.get(client).is_some_and(|state| !state.is_muted()) {
            self.push(client, reply);
        } else if let Some(state) = self.get_mut(client) {
            state.loses_reply = false;
        }
        self.resume(client);
    }

    /// Ends a client's wait without a reply.
    pub(crate) fn stop_waiting(&mut self, client: ClientId) -> bool {
        let Some(state) = self.get_mut(client) else { return false };
        let Some(blocked) = state.blocked.take() else { return false };
        if let Some(timer) = blocked.timer {
            self.timers.cancel(timer);
        }
        if let Some(timer) = blocked.retry_timer {
            self.timers.cancel(timer);
        }
        if blocked.log_wait.is_some() {
            self.log_waiters.remove(&client);
        }
        if let Some(wait) = blocked.key_wait {
            self.release_wait(client, &wait);
        }
        true
    }

    /// Removes a client from the queues of the keys that it waits for.
    fn leave_queues(&mut self, client: ClientId) {
        let blocked = self.get_mut(client).and_then(|state| state.blocked.as_mut());
        if let Some(wait) = blocked.and_then(|blocked| blocked.key_wait.take()) {
            self.release_wait(client, &wait);
        }
    }

    /// Takes all clients out of the queues of keys.
    pub(crate) fn leave_all_queues(&mut self) {
        self.clients.in_order().into_iter().for_each(|client| self.leave_queues(client));
    }

    fn release_wait(&mut self, client: ClientId, wait: &Wait) {
        self.clients.release(client, wait.bytes(&self.waiters.queues));
        self.waiters.leave(wait);
    }
}

impl Engine {
    // --- waits begin ---

    /// Blocks a client on keys of a database. `argv` is run for it each time one of them has
    /// changed.
    pub(crate) fn block_for_keys(
        &mut self,
        client: ClientId,
        database: usize,
        kind: WaitKind,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) {
        self.sessions.block_for_keys(client, database, kind, keys, deadline, argv);
        self.update_consumers();
    }

    // --- waits are served ---

    /// Whether [`Engine::serve_waiters`] has something to do: keys are marked, or connections that
    /// have ended had locks bound to them. Not while another server may lead.
    #[inline]
    pub fn has_waiters_to_serve(&self) -> bool {
        let has_some = self.sessions.has_waiters_to_serve() || self.sessions.bindings.has_ended();
        has_some && self.may_serve_waiters()
    }

    /// Whether waiting clients are served. Not while another server may lead: then keys whose
    /// leases have ended stay until the log removes them.
    fn may_serve_waiters(&self) -> bool {
        self.leads() || defect!(WaitersServedInDoubt)
    }

    /// Ends a request of `client`, or several: serves the clients whose keys have changed, as
    /// [`Engine::serve_waiters`] does, and appends the messages to `out` that this has caused for
    /// `client`, after its reply.
    #[inline]
    pub fn end_request(
        &mut self,
        time: Time,
        client: ClientId,
        out: &mut BytesMut,
        has_left: impl FnMut(ClientId) -> bool,
    ) {
        if self.has_waiters_to_serve() {
            self.serve_waiters(time, has_left);
            self.sessions.take_messages(client, out);
        }
    }

    /// Serves the clients that wait for marked keys, until no key is marked. A client for which
    /// `has_left` is true is skipped: its peer has closed the connection, and what it were given
    /// would be lost.
    #[cold]
    pub fn serve_waiters(&mut self, time: Time, mut has_left: impl FnMut(ClientId) -> bool) {
        if !self.has_waiters_to_serve() {
            return;
        }
        while let Some(client) = self.next_waiter(time) {
            if has_left(client) {
                self.peer_closed(client);
            } else {
                self.serve_waiter(client, time);
            }
        }
    }

    /// The client that is served next, until no key is marked. No client is served within a script,
    /// which is atomic.
    fn next_waiter(&mut self, time: Time) -> Option<ClientId> {
        if self.script.is_some() || !self.may_serve_waiters() {
            return None;
        }
        self.release_bindings(time);
        while let Some(mut served) = self.sessions.waiters.take_served() {
            while let Some(client) = self.next_ready_waiter(&mut served, time) {
                if self.is_stopped(client, time) {
                    served.stopped = true;
                } else if self.sessions.get(client).is_some_and(|state| !state.peer_closed) {
                    self.sessions.waiters.served = Some(served);
                    return Some(client);
                }
            }
            if served.stopped {
                self.sessions.waiters.held.push((served.database, served.key));
            }
        }
        self.end_unit(time);
        self.sessions.broadcast_changes();
        None
    }

    /// Records that the peer of a client has closed the connection, before the client is
    /// disconnected. The client is not served any more: it leaves the queues at once, so that those
    /// behind it need not look at it again.
    pub fn peer_closed(&mut self, client: ClientId) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.peer_closed = true;
        }
        self.sessions.leave_queues(client);
    }

    /// Whether `CLIENT PAUSE` delays the command of a blocked client.
    fn is_stopped(&mut self, client: ClientId, time: Time) -> bool {
        self.sessions.pause.is_some()
            && self.sessions.waiting_command(client).is_some_and(|command| {
                let argv = self.argv(&command);
                self.is_delayed(client, command.at, command.database, &argv, time)
            })
    }

    /// The words of a command that waits.
    fn argv<'c>(&self, command: &'c WaitingCommand) -> Vec<&'c [u8]> {
        let name = self.commands.entry(command.at).command.name;
        std::iter::once(name.as_bytes()).chain(Items(&command.arguments)).collect()
    }

    fn next_ready_waiter(&mut self, served: &mut ServedKey, time: Time) -> Option<ClientId> {
        let ServedKey { database, key, next, is_order_kept, .. } = served;
        self.find_alive(*database, key, time);
        self.observe_effects(None);
        let kind = self.writer.keyspace().kind_of(*database, key);
        let place = self.sessions.waiters.queues.next_ready(next, kind, *is_order_kept)?;
        self.sessions.clients.at_place(place)
    }

    /// Runs the command of a client that waits again. A client that has to wait on keeps its
    /// position in all queues, and its deadline.
    fn serve_waiter(&mut self, client: ClientId, time: Time) {
        let Some(command) = self.sessions.waiting_command(client) else { return };
        // Messages that the command causes for its own client are sent after the reply.
        let before = self.sessions.exchange_pending(client, BytesMut::new());
        // The key may have changed long after the last command, by an expiry or the end of a pause.
        self.begin_requests();
        self.writer.set_author(Author::of(client.serial, time));
        let argv = self.argv(&command);
        self.sessions.waiters.set_run(true);
        let reply = self.run_again(client, command.at, command.database, &argv, time);
        self.sessions.waiters.set_run(false);
        let messages = self.sessions.exchange_pending(client, before);
        if reply != Reply::NOTHING {
            self.finish(client, &reply);
        } else if command.kind.is_in_order()
            && let Some(served) = &mut self.sessions.waiters.served
        {
            served.is_order_kept = true;
        }
        if let Some(state) = self.sessions.get_mut(client) {
            state.pending.extend_from_slice(&messages);
        }
        self.end_unit(time);
    }

    // --- waits end ---

    /// Ends a client's wait with a reply that does not come from its command.
    pub(crate) fn unblock(&mut self, client: ClientId, reply: &Reply) {
        let blocked = self.sessions.get(client).and_then(|state| state.blocked.as_ref());
        if let Some(at) = blocked.and_then(|blocked| blocked.command) {
            let ran_ns = self.sessions.take_ran_ns(client);
            self.count_time(at, ran_ns);
            self.count_call(at, reply.is_error());
            self.count_error(reply);
        }
        self.finish(client, reply);
    }

    /// Ends the wait of the client with this `CLIENT ID`, with the error or else as its timeout
    /// does; false if it does not wait.
    pub(crate) fn unblock_by_serial(
        &mut self,
        serial: u64,
        error: Option<&Reply>,
        time: Time,
    ) -> bool {
        let waits = |client: &ClientId| {
            let blocked = self.sessions.get(*client).and_then(|state| state.blocked.as_ref());
            blocked.is_some_and(|blocked| blocked.command.is_some())
        };
        let Some(client) = self.sessions.clients.by_serial(serial).filter(waits) else {
            return false;
        };
        match error {
            Some(error) => self.unblock(client, error),
            None => self.time_out(client, time),
        }
        true
    }

    /// Ends a client's wait with a reply.
    fn finish(&mut self, client: ClientId, reply: &Reply) {
        self.sessions.finish(client, reply);
        self.update_consumers();
    }

    /// Ends a client's wait with the reply for a timeout.
    pub(crate) fn end_wait(&mut self, client: ClientId) {
        let Some(state) = self.sessions.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        let reply = std::mem::replace(&mut blocked.on_timeout, Reply::NOTHING);
        self.unblock(client, &reply);
    }

    /// Ends the wait of a blocked command as its timeout does.
    pub(crate) fn time_out(&mut self, client: ClientId, time: Time) {
        let command = self.sessions.waiting_command(client);
        match command.filter(|command| command.kind.runs_at_timeout()) {
            Some(command) => {
                let argv = self.argv(&command);
                let reply = self.run_last(client, command.at, command.database, &argv, time);
                self.finish(client, &reply);
            }
            None => self.end_wait(client),
        }
    }

    /// Handles the timer of a blocked client, which has fired and no longer exists.
    pub(crate) fn wait_timed_out(&mut self, place: u32, time: Time) {
        let Some(client) = self.sessions.clients.at_place(place) else { return };
        let Some(state) = self.sessions.get_mut(client) else { return };
        if let Some(blocked) = state.blocked.as_mut() {
            blocked.timer = None;
            self.time_out(client, time);
        }
    }

    /// Runs the command of a blocked client again at this time, even if no key has changed.
    pub(crate) fn retry_at(&mut self, client: ClientId, moment: Option<Millis>) {
        let Some(state) = self.sessions.clients.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        if let Some(timer) = blocked.retry_timer.take() {
            self.sessions.timers.cancel(timer);
        }
        blocked.retry_timer =
            moment.map(|moment| self.sessions.timers.insert(moment, Timer::Retry(client.slot)));
    }

    /// Handles that timer, which has fired and no longer exists.
    pub(crate) fn retry(&mut self, place: u32) {
        let Some(client) = self.sessions.clients.at_place(place) else { return };
        let Some(state) = self.sessions.clients.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        blocked.retry_timer = None;
        if let Some(wait) = &blocked.key_wait {
            let keys = self.sessions.waiters.queues.keys_of(wait);
            self.sessions.waiters.mark_unless_served(wait.database, &keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::Flow;
    use crate::settings::Settings;
    use crate::store::events::Events;
    use crate::testing::{Stage, check, check_events, words};

    /// Asserts that no client is blocked and nothing is left of earlier waits.
    fn assert_no_waits(stage: &Stage) {
        let waiters = &stage.engine.sessions.waiters;
        assert!(waiters.queues.is_empty() && waiters.marked.is_empty(), "{waiters:?}");
        assert!(waiters.held.is_empty(), "{waiters:?}");
        assert!(stage.engine.sessions.timers.is_empty());
    }

    #[test]
    fn timeout_ends_on_the_exact_millisecond() {
        check("b> BLPOP k 0.5; +499ms; b< => ; +1ms; b< => nil-array");
        check("b> BLMOVE k l LEFT LEFT 0.0001; +1ms; b< => nil-array");
        check("b> BLPOP k 0; +100000000ms; b< => ; RPUSH k v; b< => [\"k\", \"v\"]");
        check("b> HELLO 3; b> BLMPOP 1 1 k LEFT; +1000ms; b< => nil; b> PING => PONG");
        check("b> BLPOP k 1; RPUSH k v; b< => [\"k\", \"v\"]; +1000ms; b< => ; b> PING => PONG");
    }

    #[test]
    fn element_pushed_at_the_timeout_stays_in_the_list() {
        check("b> BLPOP k 0.5; +500ms; RPUSH k v => 1; b< => nil-array; LRANGE k 0 -1 => [\"v\"]");
    }

    #[test]
    fn ended_wait_leaves_no_state() {
        for end in [
            "RPUSH k v",
            "RPUSH l v",
            "+1000ms",
            "PING; CLIENT UNBLOCK 1",
            "CLIENT UNBLOCK 1 ERROR",
            "CLIENT KILL ID 1",
        ] {
            let mut stage = Stage::new(Settings::default());
            stage.check(&format!("b> BLPOP k l k 1; {end}"));
            assert_no_waits(&stage);
        }
        let mut stage = Stage::new(Settings::default());
        stage.check("b> BLPOP k 1; c> BLPOP k l 0; b!; c!");
        assert_no_waits(&stage);
        stage.check("RPUSH k v; LLEN k => 1");
    }

    #[test]
    fn killed_and_unblocked_clients_are_skipped() {
        let mut stage = Stage::new(Settings::default());
        stage.check("b> BLPOP k 0; c> BLPOP k 0; d> BLPOP k 0; CLIENT KILL ID 1 => 1");
        stage.check("CLIENT UNBLOCK 2 => 1; c< => nil-array; RPUSH k v; d< => [\"k\", \"v\"]");
        assert_no_waits(&stage);
    }

    #[test]
    fn closed_connections_are_skipped_before_they_are_removed() {
        let mut stage = Stage::new(Settings::default());
        stage.check("b> BLPOP k 0; c> BLPOP k 0; d> BLPOP k 0");
        for name in ["b", "d"] {
            let client = stage.client(name);
            stage.engine.peer_closed(client);
        }
        stage.check("RPUSH k 1 2; c< => [\"k\", \"1\"]; b< => ; d< => ; LRANGE k 0 -1 => [\"2\"]");
    }

    /// Otherwise each client that leaves would have all those before it looked at again.
    #[test]
    fn closed_connections_leave_their_queues_at_once() {
        let mut stage = Stage::new(Settings::default());
        stage.check(
            "LOCK.ACQUIRE k a TTL 9; b> LOCK.ACQUIRE k b TTL 9 WAIT 9; \
             c> LOCK.ACQUIRE k c TTL 9 WAIT 9; d> BLPOP l m 0",
        );
        for name in ["b", "c", "d"] {
            let client = stage.client(name);
            stage.engine.peer_closed(client);
        }
        assert!(stage.engine.sessions.waiters.queues.is_empty());
        stage.check("LOCK.INFO k => ...\"queue\", []]; b!; c!; d!; LOCK.RELEASE k a => 0");
        assert_no_waits(&stage);
    }

    #[test]
    fn reply_precedes_the_messages_that_served_clients_cause() {
        let mut settings = Settings::default();
        settings.notify_keyspace_events = Events::KEYEVENT | Events::ALL;
        Stage::new(settings).check(
            "HELLO 3; PSUBSCRIBE __keyevent*; b> BLPOP k 0; \
             RPUSH k v => 1 & ...:rpush\", \"k\"] & ...:lpop\", \"k\"] & ...:del\", \"k\"]",
        );
    }

    #[test]
    fn blocked_client_runs_no_request_until_it_is_resumed() {
        let mut stage = Stage::new(Settings::default());
        let client = stage.client("b");
        assert_eq!(stage.run(client, &words("BLPOP k 1")), (String::new(), Flow::Wait));
        assert!(!stage.engine.has_deliveries());
        stage.check("RPUSH k v");
        let deliveries = stage.engine.deliveries();
        let [only] = &deliveries[..] else { panic!("{deliveries:?}") };
        assert_eq!((only.client, only.resume), (client, true));
        assert_eq!(&only.bytes[..], b"*2\r\n$1\r\nk\r\n$1\r\nv\r\n");
    }

    #[test]
    fn waiters_of_a_key_are_served_in_order_of_arrival() {
        check(
            "b> BLPOP k 1; c> BLPOP k 0; d> BLPOP k 0; +1000ms; b< => nil-array; \
             b> BLPOP k 0; RPUSH k 1 2 3; c< => [\"k\", \"1\"]; d< => [\"k\", \"2\"]; \
             b< => [\"k\", \"3\"]",
        );
    }

    #[test]
    fn keys_are_served_in_the_order_in_which_they_became_ready() {
        check_events(&[
            ("b> BLPOP k 0", ""),
            ("c> BLPOP l 0", ""),
            ("MULTI", ""),
            ("RPUSH l 1", ""),
            ("RPUSH k 1", ""),
            ("RPUSH l 2", ""),
            ("EXEC", "new l, rpush l, new k, rpush k, rpush l, lpop l, lpop k, del k"),
            ("b> BLMOVE l m RIGHT LEFT 0", "new m, lpush m, rpop l, del l"),
            ("b> BLMOVE l m RIGHT LEFT 0", ""),
            ("c> BLPOP l 0", ""),
            ("RPUSH l 1 2", "new l, rpush l, lpush m, rpop l, lpop l, del l"),
        ]);
    }

    /// The state within the transaction wakes no client; only the state at its end does.
    #[test]
    fn key_becomes_ready_when_it_has_the_awaited_type() {
        for (before, events) in
            [("SET l v", "new l, set l, "), ("DEL l", ""), ("SADD l m", "new l, sadd l, ")]
        {
            let served = "new k, rpush k, new l, rpush l, lpop k, del k, lpop l, del l";
            check_events(&[
                ("b> BLPOP k 0", ""),
                ("c> BLPOP l 0", ""),
                ("MULTI", ""),
                (before, ""),
                ("FLUSHALL", ""),
                ("RPUSH k 1", ""),
                ("RPUSH l 1", ""),
                ("EXEC", &format!("{events}{served}")),
            ]);
        }
    }

    #[test]
    fn pause_delays_the_element_for_a_blocked_client() {
        check(
            "b> BLPOP k 0; MULTI; CLIENT PAUSE 100 WRITE; RPUSH k v; EXEC; LLEN k => 1; b< => ; \
             +99ms; b< => ; +1ms; b< => [\"k\", \"v\"]; EXISTS k => 0",
        );
        check(
            "b> BLPOP k 0; MULTI; CLIENT PAUSE 100 WRITE; RPUSH k v; EXEC; CLIENT UNPAUSE => OK; \
             b< => [\"k\", \"v\"]",
        );
        check("b> BLPOP k 0.01; CLIENT PAUSE 100; +10ms; b< => nil-array");
    }

    #[test]
    fn element_goes_to_the_next_client_if_the_command_fails() {
        check(
            "SET s v; b> BLMOVE k s LEFT LEFT 0; c> BLPOP k 0; RPUSH k v; b< => !WRONGTYPE ...; \
             c< => [\"k\", \"v\"]; GET s => \"v\"",
        );
        check(
            "b> BLMOVE k l LEFT LEFT 0; c> BLPOP k 0; MULTI; RPUSH k v; CONFIG SET maxmemory 1; \
             EXEC => [1, OK]; b< => !OOM ...; c< => [\"k\", \"v\"]; INFO commandstats => \
             ...cmdstat_blmove:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,...",
        );
    }

    #[test]
    fn blocked_command_is_counted_when_its_wait_ends() {
        let stats = |steps: &str, expected: &str| {
            check(&format!("b> BLPOP k 1; {steps}; INFO commandstats => {expected}"));
        };
        let blpop = |calls, failed| {
            format!(
                "...cmdstat_blpop:calls={calls},usec=0,usec_per_call=0.00,rejected_calls=0,\
                 failed_calls={failed}\\r\\n..."
            )
        };
        check("b> BLPOP k 1; INFO commandstats => \"# Commandstats\\r\\n\"");
        check("b> BLPOP k 1; PING; INFO stats => ...total_commands_processed:1\\r\\n...");
        stats("RPUSH k v", &blpop(1, 0));
        stats("+1000ms", &blpop(1, 0));
        stats("CLIENT UNBLOCK 1", &blpop(1, 0));
        stats("CLIENT UNBLOCK 1 ERROR", &blpop(1, 1));
        check(
            "b> BLPOP k 1; CLIENT UNBLOCK 1 ERROR; INFO errorstats => \
             \"# Errorstats\\r\\nerrorstat_UNBLOCKED:count=1\\r\\n\"",
        );
        check("b> WAIT 1 10; +10ms; INFO commandstats => ...cmdstat_wait:calls=1,...");
    }

    /// Each reading of the clock is a millisecond after the one before.
    #[test]
    fn time_of_a_blocked_command_is_counted_when_its_wait_ends() {
        static NOW_NS: AtomicU64 = AtomicU64::new(0);
        let blpop = |steps: &str, expected: &str| {
            let mut stage = Stage::new(Settings::default());
            stage.engine.process.clock_ns = || NOW_NS.fetch_add(1_000_000, Ordering::Relaxed);
            stage.check("ACL SETUSER u on nopass ~* +@all; b> AUTH u any; b> BLPOP k 1");
            stage.check("INFO commandstats => ...; LATENCY HISTOGRAM blpop => []");
            assert!(!stage.step("INFO commandstats").contains("blpop"));
            stage.check(&format!("{steps}; INFO commandstats => ...cmdstat_blpop:{expected}..."));
        };
        let once = "calls=1,usec=1000,usec_per_call=1000.00,rejected_calls=0";
        blpop("+1000ms; LATENCY HISTOGRAM blpop => [\"blpop\", [\"calls\", 1, ...", once);
        blpop("CLIENT UNBLOCK 2", once);
        let twice = "calls=1,usec=2000,usec_per_call=2000.00,rejected_calls=0";
        blpop("RPUSH k v; LATENCY HISTOGRAM blpop => [\"blpop\", [\"calls\", 1, ...", twice);
        let never = "calls=0,usec=0,usec_per_call=0.00,rejected_calls=1";
        blpop("ACL SETUSER u -blpop; RPUSH k v; ACL LOG => [[\"count\", 1, ...", never);
    }

    #[test]
    fn client_list_and_info_show_blocked_clients() {
        check(
            "b> BLPOP k l 0; c> BLPOP k 1; CLIENT LIST ID 1 => ...flags=b ...cmd=blpop ...; \
             INFO clients => ...blocked_clients:2...clients_in_timeout_table:1\\r\\n\
             total_blocking_keys:2\\r\\ntotal_blocking_keys_on_nokey:0...",
        );
    }
}
