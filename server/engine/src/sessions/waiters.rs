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
//! is run. Queues without waiters are removed.
//!
//! [`Context::wait_for`]: crate::context::Context::wait_for

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use lockwheel_resp::Reply;

use crate::memory::ALLOCATION_BYTES;
use crate::sessions::{ClientId, ReplyMode, Sessions, Timer};
use crate::store::Keyspace;
use crate::store::lock_notes::Author;
use crate::store::value::Kind;
use crate::time::{Millis, Time};
use crate::timers::TimerId;
use crate::unit_log::Position;
use crate::{Engine, mutants};

/// The wait of a blocked client.
#[derive(Debug)]
pub struct Blocked {
    /// The reply on timeout and on `CLIENT UNBLOCK`.
    pub on_timeout: Reply,
    /// The position of the blocked command in the table; `None` if the client was stopped by
    /// `CLIENT PAUSE`, which `CLIENT UNBLOCK` does not end.
    pub command: Option<usize>,
    /// The rule of [`faults`](crate::instruments::faults) that blocks the client, if any.
    pub(crate) rule: Option<RuleBlock>,
    /// The client waits until the units up to this position are durable.
    pub(crate) flush: Option<Position>,
    timer: Option<TimerId>,
    /// The command is run again at this time, although no key has changed.
    retry_timer: Option<TimerId>,
    /// The keys that the client waits for, if any.
    key_wait: Option<Arc<KeyWait>>,
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

/// The condition that a blocked command waits for.
#[derive(Clone, Copy, Debug)]
pub struct WaitCondition<'a> {
    /// The keys, any of which may meet the condition.
    pub keys: &'a [&'a [u8]],
    /// The type of value that the key must hold.
    pub kind: Kind,
    /// Whether the client is also served when a key is deleted or changes its type.
    pub wake_if_gone: bool,
    /// Whether the clients that wait for a key are served strictly in their order: while one of
    /// them has to wait on, none behind it is served.
    pub in_order: bool,
}

impl<'a> WaitCondition<'a> {
    /// Any of these keys, as soon as it holds a value of this type.
    pub fn any(keys: &'a [&'a [u8]], kind: Kind) -> WaitCondition<'a> {
        WaitCondition { keys, kind, wake_if_gone: false, in_order: false }
    }
}

/// A wait for keys: the client's ticket in their queues, and the command to run.
#[derive(Debug)]
struct KeyWait {
    ticket: u64,
    database: usize,
    keys: Vec<Box<[u8]>>,
    argv: Vec<Box<[u8]>>,
    in_order: bool,
}

impl KeyWait {
    /// The command to run.
    fn words(&self) -> Vec<&[u8]> {
        self.argv.iter().map(|argument| &**argument).collect()
    }

    /// The memory of the wait. The queues hold a second copy of the keys.
    fn bytes(&self) -> usize {
        let words = |words: &[Box<[u8]>]| {
            words
                .iter()
                .map(|word| word.len() + size_of_val(word) + ALLOCATION_BYTES)
                .sum::<usize>()
        };
        size_of::<KeyWait>() + 2 * words(&self.keys) + words(&self.argv)
    }
}

/// All clients that wait for keys. They wait for keys of a database number, so `SWAPDB` does not
/// move them.
#[derive(Debug, Default)]
pub struct Waiters {
    queues: BTreeMap<usize, BTreeMap<Box<[u8]>, Queue>>,
    /// Changed keys that meet the condition of a waiter, in the order of the first such change.
    marked: VecDeque<(usize, Box<[u8]>)>,
    /// The key with waiters that are being served.
    served: Option<ServedKey>,
    /// Keys that were marked while a waiter was stopped by `CLIENT PAUSE`.
    held: Vec<(usize, Box<[u8]>)>,
    /// Tickets are numbered in the order of arrival. A client keeps its ticket during the wait.
    last_ticket: u64,
}

/// A marked key, and how far its waiters have been served.
#[derive(Debug)]
struct ServedKey {
    database: usize,
    key: Box<[u8]>,
    /// Waiters with earlier tickets have been served or skipped.
    from: u64,
    /// `CLIENT PAUSE` has stopped one of them.
    stopped: bool,
    /// One of those that are served in their order has to wait on.
    is_order_kept: bool,
}

/// The clients that wait for one key, by their tickets.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<u64, Waiter>,
    /// How many of them are also served when the key is deleted.
    wake_if_gone: usize,
    /// How many of them are served in their order.
    in_order: usize,
    marked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    client: ClientId,
    kind: Kind,
    wake_if_gone: bool,
    in_order: bool,
}

impl Waiters {
    /// The clients that wait for a key, in their order.
    pub(crate) fn of_key(&self, database: usize, key: &[u8]) -> impl Iterator<Item = ClientId> {
        let queue = self.queues.get(&database).and_then(|queues| queues.get(key));
        queue.into_iter().flat_map(|queue| queue.waiters.values()).map(|waiter| waiter.client)
    }

    /// The number of keys with waiting clients.
    pub fn keys(&self) -> usize {
        self.queues.values().map(BTreeMap::len).sum()
    }

    /// The number of keys with a client that is also served when the key is deleted.
    pub fn keys_with_wake_if_gone(&self) -> usize {
        let queues = self.queues.values().flat_map(BTreeMap::values);
        queues.filter(|queue| queue.wake_if_gone > 0).count()
    }

    /// Marks a key that now holds a value of this type, or none, if that meets a waiter's
    /// condition.
    fn mark(&mut self, database: usize, key: &[u8], kind: Option<Kind>) {
        let queue = self.queues.get_mut(&database).and_then(|queues| queues.get_mut(key));
        if let Some(queue) =
            queue.filter(|queue| !queue.marked && queue.first_ready(0, kind, false).is_some())
        {
            queue.marked = true;
            self.marked.push_back((database, key.into()));
        }
    }

    /// Marks the keys of a wait that other clients wait for, unless they are being served.
    fn mark_queues(&mut self, key_wait: &KeyWait) {
        let KeyWait { database, keys, .. } = key_wait;
        if mutants::is_on("queue-not-woken-when-first-leaves") {
            return;
        }
        for key in keys {
            let is_served = |served: &ServedKey| (served.database, &served.key) == (*database, key);
            if !self.served.as_ref().is_some_and(is_served) {
                self.mark(*database, key, Some(Kind::Lock));
            }
        }
    }

    /// The number of clients that wait for this key and are served in their order.
    pub(crate) fn queued_in_order(&self, database: usize, key: &[u8]) -> usize {
        let queue = self.queues.get(&database).and_then(|queues| queues.get(key));
        queue.map_or(0, |queue| queue.in_order)
    }

    /// The key with waiters to serve, and how far they have been served.
    fn take_served(&mut self) -> Option<ServedKey> {
        if let Some(served) = self.served.take() {
            return Some(served);
        }
        let (database, key) = self.marked.pop_front()?;
        if let Some(queue) = self.queues.get_mut(&database).and_then(|q| q.get_mut(&key)) {
            queue.marked = false;
        }
        Some(ServedKey { database, key, from: 0, stopped: false, is_order_kept: false })
    }

    /// Appends a client to the queues of some keys.
    fn join(&mut self, client: ClientId, database: usize, condition: WaitCondition<'_>) -> u64 {
        self.last_ticket += 1;
        let queues = self.queues.entry(database).or_default();
        for &key in condition.keys {
            let queue = queues.entry(key.into()).or_default();
            let WaitCondition { kind, wake_if_gone, in_order, .. } = condition;
            let waiter = Waiter { client, kind, wake_if_gone, in_order };
            // A key that is named twice is queued once.
            let before = queue.waiters.insert(self.last_ticket, waiter);
            let is_new = before.is_none();
            queue.wake_if_gone += usize::from(wake_if_gone && is_new);
            queue.in_order += usize::from(in_order && is_new);
        }
        self.last_ticket
    }

    fn leave(&mut self, key_wait: &KeyWait) {
        let Some(queues) = self.queues.get_mut(&key_wait.database) else { return };
        for key in &key_wait.keys {
            let Some(queue) = queues.get_mut(key) else { continue };
            let waiter = queue.waiters.remove(&key_wait.ticket);
            queue.wake_if_gone -= usize::from(waiter.is_some_and(|waiter| waiter.wake_if_gone));
            queue.in_order -= usize::from(waiter.is_some_and(|waiter| waiter.in_order));
            if queue.waiters.is_empty() {
                queues.remove(key);
            }
        }
        if queues.is_empty() {
            self.queues.remove(&key_wait.database);
        }
    }
}

impl Queue {
    /// The first waiter, from a ticket on, with a condition that is met by a value of this type, or
    /// by none; if `is_order_kept`, of those that are not served in their order.
    fn first_ready(
        &self,
        from: u64,
        kind: Option<Kind>,
        is_order_kept: bool,
    ) -> Option<(u64, ClientId)> {
        if kind.is_none() && self.wake_if_gone == 0
            || is_order_kept && self.in_order == self.waiters.len()
        {
            return None;
        }
        let is_ready = |waiter: &Waiter| {
            (waiter.wake_if_gone || kind == Some(waiter.kind))
                && !(is_order_kept && waiter.in_order)
        };
        let mut waiters = self.waiters.range(from..);
        waiters
            .find(|(_, waiter)| is_ready(waiter))
            .map(|(&ticket, waiter)| (ticket, waiter.client))
    }
}

impl Sessions {
    // --- waits begin ---

    /// Blocks a client, until `deadline` if there is one.
    pub(crate) fn block(&mut self, client: ClientId, on_timeout: Reply, deadline: Option<Millis>) {
        self.stop_waiting(client);
        let timer = deadline.map(|deadline| self.timers.insert(deadline, Timer::Blocked(client)));
        if let Some(state) = self.get_mut(client) {
            state.blocked = Some(Blocked {
                on_timeout,
                timer,
                retry_timer: None,
                command: None,
                rule: None,
                flush: None,
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
        self.clients.in_order().into_iter().filter(waits).collect()
    }

    fn block_for_keys(
        &mut self,
        client: ClientId,
        database: usize,
        condition: WaitCondition<'_>,
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) {
        self.block(client, Reply::NullArray, deadline);
        let ticket = self.waiters.join(client, database, condition);
        let copy = |words: &[&[u8]]| words.iter().map(|&word| word.into()).collect();
        let (keys, argv) = (copy(condition.keys), copy(argv));
        let in_order = condition.in_order;
        let key_wait = KeyWait { ticket, database, keys, argv, in_order };
        self.clients.hold(client, key_wait.bytes());
        if let Some(blocked) = self.get_mut(client).and_then(|s| s.blocked.as_mut()) {
            blocked.key_wait = Some(Arc::new(key_wait));
        }
    }

    /// Records which command has blocked its client.
    pub(crate) fn set_waiting_command(&mut self, client: ClientId, at: usize) {
        if let Some(blocked) = self.get_mut(client).and_then(|s| s.blocked.as_mut()) {
            blocked.command = Some(at);
        }
    }

    /// Blocks a client until the end of a pause; then its request is run again, in the reply mode
    /// it had before.
    pub(crate) fn block_until_unpaused(&mut self, client: ClientId, reply_mode: ReplyMode) {
        self.block(client, Reply::NOTHING, None);
        if let Some(state) = self.get_mut(client) {
            state.reply_mode = reply_mode;
            state.has_been_held = true;
            self.paused_clients.push(client);
        }
    }

    // --- waits are served ---

    /// The clients that wait for a key and are served in their order: with their commands and until
    /// when they wait.
    pub(crate) fn queue_in_order(
        &self,
        database: usize,
        key: &[u8],
    ) -> impl Iterator<Item = (ClientId, Vec<&[u8]>, Option<Millis>)> {
        self.waiters.of_key(database, key).filter_map(|client| {
            let blocked = self.get(client)?.blocked.as_ref()?;
            let key_wait = blocked.key_wait.as_deref().filter(|key_wait| key_wait.in_order)?;
            let until = blocked.timer.map(|timer| self.timers.deadline(timer));
            Some((client, key_wait.words(), until))
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
        let queues = self.waiters.queues.get(&database);
        let keys: Vec<Box<[u8]>> = queues.into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for key in keys {
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

    /// Whether keys are marked, so that [`Engine::next_waiter`] may name a client.
    #[inline]
    pub(crate) fn has_waiters_to_serve(&self) -> bool {
        !self.waiters.marked.is_empty()
    }

    /// The position of a blocked client's command in the table, and its wait for keys.
    fn blocked_command(&self, client: ClientId) -> Option<(usize, Arc<KeyWait>)> {
        let blocked = self.get(client)?.blocked.as_ref()?;
        blocked.command.zip(blocked.key_wait.clone())
    }

    fn exchange_pending(&mut self, client: ClientId, bytes: BytesMut) -> BytesMut {
        let state = self.get_mut(client);
        state.map(|state| std::mem::replace(&mut state.pending, bytes)).unwrap_or_default()
    }

    // --- waits end ---

    fn finish(&mut self, client: ClientId, reply: &Reply) -> bool {
        if !self.stop_waiting(client) {
            return false;
        }
        if self.get(client).is_some_and(|state| !state.is_muted()) {
            self.push(client, reply);
        } else if let Some(state) = self.get_mut(client) {
            state.loses_reply = false;
        }
        self.resume(client);
        true
    }

    /// Ends a client's wait without a reply.
    pub(super) fn stop_waiting(&mut self, client: ClientId) -> bool {
        let Some(state) = self.get_mut(client) else { return false };
        let Some(blocked) = state.blocked.take() else { return false };
        if let Some(timer) = blocked.timer {
            self.timers.cancel(timer);
        }
        if let Some(timer) = blocked.retry_timer {
            self.timers.cancel(timer);
        }
        if let Some(key_wait) = blocked.key_wait {
            self.clients.release(client, key_wait.bytes());
            self.waiters.leave(&key_wait);
            if key_wait.in_order {
                // Those behind may have waited for this client only.
                self.waiters.mark_queues(&key_wait);
            }
        }
        true
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
        condition: WaitCondition<'_>,
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) {
        self.sessions.block_for_keys(client, database, condition, deadline, argv);
        self.update_consumers();
    }

    // --- waits are served ---

    /// Whether [`Engine::next_waiter`] has something to do: keys are marked, or connections that
    /// have ended had locks bound to them.
    #[inline]
    pub fn has_waiters_to_serve(&self) -> bool {
        self.sessions.has_waiters_to_serve() || self.sessions.bindings.has_ended()
    }

    /// Names the client that is served next, until no key is marked. The caller answers with
    /// [`Engine::serve_waiter`], or with [`Engine::peer_closed`], which skips the client. No client
    /// is served within a script, which is atomic.
    #[cold]
    pub fn next_waiter(&mut self, time: Time) -> Option<ClientId> {
        if self.script.is_some() {
            return None;
        }
        self.release_bindings(time);
        while let Some(mut served) = self.sessions.waiters.take_served() {
            while let Some((ticket, client)) = self.next_ready_waiter(&served, time) {
                served.from = ticket + 1;
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
    /// disconnected. The client is not served any more.
    pub fn peer_closed(&mut self, client: ClientId) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.peer_closed = true;
        }
    }

    /// Serves all clients that wait for marked keys, for a caller without connections.
    pub fn serve_waiters(&mut self, time: Time) {
        if self.has_waiters_to_serve() {
            while let Some(client) = self.next_waiter(time) {
                self.serve_waiter(client, time);
            }
        }
    }

    /// Whether `CLIENT PAUSE` delays the command of a blocked client.
    fn is_stopped(&mut self, client: ClientId, time: Time) -> bool {
        self.sessions.pause.is_some()
            && self.sessions.blocked_command(client).is_some_and(|(at, key_wait)| {
                self.is_delayed(client, at, key_wait.database, &key_wait.words(), time)
            })
    }

    fn next_ready_waiter(&mut self, served: &ServedKey, time: Time) -> Option<(u64, ClientId)> {
        let ServedKey { database, key, from, is_order_kept, .. } = served;
        self.find_alive(*database, key, time);
        self.observe_effects(None);
        let kind = self.writer.keyspace().kind_of(*database, key);
        self.sessions.waiters.queues.get(database)?.get(key)?.first_ready(
            *from,
            kind,
            *is_order_kept,
        )
    }

    /// Runs the command of the client that [`Engine::next_waiter`] has named again. A client that
    /// has to wait on keeps its position in all queues, and its deadline.
    pub fn serve_waiter(&mut self, client: ClientId, time: Time) {
        let Some((at, key_wait)) = self.sessions.blocked_command(client) else { return };
        // Messages that the command causes for its own client are sent after the reply.
        let before = self.sessions.exchange_pending(client, BytesMut::new());
        // The key may have changed long after the last command, by an expiry or the end of a pause.
        self.begin_requests();
        self.writer.set_author(Author::of(client.serial, time));
        let reply = self.run_again(client, at, key_wait.database, &key_wait.words(), time);
        let messages = self.sessions.exchange_pending(client, before);
        if reply != Reply::NOTHING {
            self.finish(client, &reply);
        } else if key_wait.in_order
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

    /// Ends a client's wait with a reply that does not come from its command; false if the client
    /// was not blocked.
    pub(crate) fn unblock(&mut self, client: ClientId, reply: &Reply) -> bool {
        let blocked = self.sessions.get(client).and_then(|state| state.blocked.as_ref());
        if let Some(at) = blocked.and_then(|blocked| blocked.command) {
            self.count_call(at, reply.is_error());
            self.count_error(reply);
        }
        self.finish(client, reply)
    }

    /// Ends a client's wait with a reply; false if the client was not blocked.
    fn finish(&mut self, client: ClientId, reply: &Reply) -> bool {
        let is_finished = self.sessions.finish(client, reply);
        self.update_consumers();
        is_finished
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
        let command = self.sessions.blocked_command(client);
        match command.filter(|(_, key_wait)| key_wait.in_order) {
            Some((at, key_wait)) => {
                let (database, words) = (key_wait.database, key_wait.words());
                let reply = self.run_last(client, at, database, &words, time);
                self.finish(client, &reply);
            }
            None => self.end_wait(client),
        }
    }

    /// Handles the timer of a blocked client, which has fired and no longer exists.
    pub(crate) fn wait_timed_out(&mut self, client: ClientId, time: Time) {
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
            moment.map(|moment| self.sessions.timers.insert(moment, Timer::Retry(client)));
    }

    /// Handles that timer, which has fired and no longer exists.
    pub(crate) fn retry(&mut self, client: ClientId) {
        let Some(state) = self.sessions.clients.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        blocked.retry_timer = None;
        if let Some(key_wait) = blocked.key_wait.clone() {
            self.sessions.waiters.mark_queues(&key_wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::notify::Events;
    use crate::settings::Settings;
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

    #[test]
    fn client_list_and_info_show_blocked_clients() {
        check(
            "b> BLPOP k l 0; c> BLPOP k 1; CLIENT LIST ID 1 => ...flags=b ...cmd=blpop ...; \
             INFO clients => ...blocked_clients:2...clients_in_timeout_table:1\\r\\n\
             total_blocking_keys:2\\r\\ntotal_blocking_keys_on_nokey:0...",
        );
    }
}
