//! The engine: one synchronous, deterministic state machine that is the whole lock server but for
//! its sockets.
//!
//! Time, randomness and input are arguments; output is collected by the caller. The same calls
//! with the same arguments give the same bytes.
//!
//! Architecture invariant: nothing in here names the network, a clock, a file, a thread or the
//! system's entropy.

#![forbid(unsafe_code)]

pub mod buffers;
pub mod command;
pub mod commands;
pub mod context;
#[cfg(test)]
mod database_tests;
#[cfg(test)]
mod deadline_tests;
pub mod dispatch;
pub mod error;
pub mod faults;
pub mod glob;
pub mod journal;
pub mod keyspace;
pub mod limits;
mod look_ahead;
pub mod memory;
mod names;
pub mod notify;
pub mod pubsub;
pub mod random;
pub mod replies;
#[cfg(test)]
mod safety_tests;
pub mod script;
pub mod session;
pub mod settings;
pub mod slots;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;
pub mod timers;
pub mod tracking;
pub mod transaction;
pub mod waiters;
pub mod wheel;

use std::collections::BTreeMap;

use bytes::BytesMut;
use lockwheel_resp::Reply;
use lockwheel_resp::encode::encode;
use lockwheel_scripting::{Functions, Interpreter, LogLevel};

use crate::settings::{MemoryShare, Permission, Settings};
use command::{CommandStats, CommandTable};
use dispatch::Outcome;
use faults::Faults;
use journal::Journal;
use keyspace::dict::{HashSeed, Slot};
use keyspace::{Due, Keyspace};
use notify::Events;
use pubsub::PubSub;
use random::Random;
use replies::Replies;
use script::{Running, ScriptMonitor};
use session::{ClientId, Close, Origin, ReplyMode, Session, Sessions};
use time::{ClockOrder, Millis, Rate, Time};
use timers::Timers;
use tracking::Tracked;
use waiters::Waiters;

/// What a timer is for that belongs to no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A waiting client's time is up.
    Blocked(ClientId),
    /// `CLIENT PAUSE` is over.
    Unpause,
    /// A client may have been above its soft output limit for too long.
    CheckOutput(ClientId),
}

/// `CLIENT PAUSE`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it ends.
    pub until: Millis,
    /// Only commands that write wait.
    pub writes_only: bool,
}

/// What the caller of [`Engine::run`] has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Run the client's next request.
    Next,
    /// Run nothing of this client until a [`Delivery`] resumes it.
    Wait,
    /// As `Wait`, and then run the same request again.
    Again,
    /// Send what the client is owed and disconnect it.
    Close,
    /// Keep everyone waiting for so many milliseconds (`DEBUG SLEEP`), then go on.
    Sleep(Millis),
    /// Do this with the clock, then go on.
    Clock(ClockOrder),
    /// End the server.
    Shutdown,
}

/// Something a client is to receive or to suffer.
#[derive(Debug)]
pub struct Delivery {
    /// Which client.
    pub client: ClientId,
    /// Bytes to send, after whatever it was sent before.
    pub bytes: BytesMut,
    /// Its wait is over: run its next request.
    pub resume: bool,
    /// It is to be disconnected.
    pub close: Option<Close>,
}

/// Counters that `INFO` shows.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is INFO's field of that name")]
pub struct Stats {
    pub connections_received: u64,
    pub rejected_connections: u64,
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub expired_keys: u64,
    pub total_error_replies: u64,
    /// Error replies by their code.
    pub errors: BTreeMap<String, u64>,
    /// Bytes read and written by the network, which the caller adds.
    pub net_input_bytes: u64,
    pub net_output_bytes: u64,
    pub peak_memory_bytes: u64,
    pub evicted_clients: u64,
}

/// Error codes counted one by one; further ones are only part of the total. A script can invent
/// as many codes as it likes.
const ERROR_CODES_MAX: usize = 128;

/// See the module's documentation.
pub struct Engine {
    /// The settings, as `CONFIG` shows and changes them.
    pub settings: Settings,
    /// The databases.
    pub keyspace: Keyspace,
    /// What happens at a moment and is no key's end.
    pub timers: Timers<Timer>,
    /// The connected clients.
    pub sessions: Sessions,
    /// The subscriptions.
    pub pubsub: PubSub,
    /// What clients want to hear of because they keep copies of it.
    pub tracked: Tracked,
    /// Who waits for which keys.
    pub waiters: Waiters,
    /// The commands.
    pub commands: &'static CommandTable,
    /// What each command has done so far, by its place in the table.
    pub command_stats: Vec<CommandStats>,
    /// Which keyspace events are sent: `notify-keyspace-events`, read.
    pub events: Events,
    /// The counters.
    pub stats: Stats,
    /// Changes to keys since the start.
    pub dirty: u64,
    /// The source of `RANDOMKEY` and friends.
    pub random: Random,
    /// When the engine was made, on the lease clock.
    pub started_at: Millis,
    /// What `INFO` shows as the process's number; the caller knows it.
    pub process_id: u32,
    /// The bytes of memory that the process has resident, which the caller can find out.
    pub resident_bytes: fn() -> Option<u64>,
    /// Forty hex digits that name this run of the server.
    pub run_id: String,
    /// Forty hex digits that name this node of a cluster, or this sentinel.
    pub node_id: String,
    /// Forty hex digits that name the node's shard.
    pub shard_id: String,
    /// The Lua state; taken while a script runs.
    pub interpreter: Option<Box<Interpreter>>,
    /// The libraries of functions; taken while one of their functions runs.
    pub functions: Option<Functions>,
    /// The script or function that is running.
    pub script: Option<Running>,
    scripts_started: u64,
    /// What Lua takes before there is any script.
    lua_bytes: usize,
    /// What Lua took when the script began that is running.
    script_bytes_before: usize,
    /// Looks after the others while a script runs for long.
    pub script_monitor: Option<Box<dyn ScriptMonitor>>,
    /// What scripts have logged; the caller takes it.
    pub log: Vec<(LogLevel, String)>,
    /// The pause in force.
    pub pause: Option<Pause>,
    /// How fast the caller's lease clock runs, which tells; for clients who ask.
    pub clock_rate: Rate,
    /// What is to go wrong.
    pub faults: Faults,
    /// What has happened, for a server that is started for tests; taken while it is written.
    journal: Option<Box<Journal>>,
    /// What the next [`Engine::run`] returns instead of `Next`, set by a handler.
    pub flow: Option<Flow>,
    /// When a request last found more due than it had to pay for.
    storm_seen_at: Option<Millis>,
    /// Memory for what commands answer.
    pub replies: Replies,
    paused_clients: Vec<ClientId>,
    unpause_timer: Option<timers::TimerId>,
    busy: bool,
    deliveries: Vec<ClientId>,
    due: Vec<Due>,
    ended_key: Vec<u8>,
    event_channel: Vec<u8>,
    killed: Vec<ClientId>,
}

impl Engine {
    /// An engine without keys or clients. `seed` is all the randomness it will ever have.
    pub fn new(mut settings: Settings, time: Time, seed: [u64; 4]) -> Engine {
        let hash_seed = HashSeed(seed[0], seed[1]);
        let mut random = Random::new(seed[2]);
        let mut id = || {
            let (a, b, c) = (random.bits(), random.bits(), random.bits() >> 32);
            format!("{a:016x}{b:016x}{c:08x}")
        };
        let (run_id, node_id, shard_id) = (id(), id(), id());
        let faults = Faults::new(settings.enable_test_commands != Permission::No);
        let told_id = settings.sentinel.as_ref().and_then(|sentinel| sentinel.my_id.clone());
        let journal = Journal::of(&settings);
        let commands = CommandTable::of(settings.mode(), settings.compat_version);
        let interpreter = commands::scripts::interpreter(seed[3], settings.compat_version);
        let lua_bytes = interpreter.memory_bytes();
        if settings.cluster_enabled {
            // All keys of a cluster are in one database.
            settings.databases = 1;
        }
        Engine {
            keyspace: Keyspace::new(settings.databases as usize, hash_seed, time.now),
            events: settings.notify_keyspace_events,
            interpreter: Some(Box::new(interpreter)),
            functions: Some(commands::functions::functions(seed[3], settings.compat_version)),
            settings,
            timers: Timers::new(time.now),
            sessions: Sessions::default(),
            pubsub: PubSub::default(),
            tracked: Tracked::new(hash_seed),
            commands,
            command_stats: vec![CommandStats::default(); commands.entries().len()],
            waiters: Waiters::default(),
            stats: Stats::default(),
            dirty: 0,
            random,
            started_at: time.now,
            process_id: 0,
            resident_bytes: || None,
            run_id,
            node_id: told_id.unwrap_or(node_id),
            shard_id,
            script: None,
            scripts_started: 0,
            lua_bytes,
            script_bytes_before: lua_bytes,
            script_monitor: None,
            log: Vec::new(),
            pause: None,
            clock_rate: Rate::REAL,
            faults,
            journal,
            flow: None,
            storm_seen_at: None,
            replies: Replies::default(),
            paused_clients: Vec::new(),
            unpause_timer: None,
            busy: false,
            deliveries: Vec::new(),
            // Made now: what is kept must not lie behind a million locks, whose memory could not go
            // back to the system before it.
            due: Vec::with_capacity(keyspace::DUE_TOGETHER),
            ended_key: Vec::with_capacity(KEY_BYTES),
            event_channel: Vec::with_capacity(2 * KEY_BYTES),
            killed: Vec::new(),
        }
    }

    // --- clients ---

    /// A client has connected.
    pub fn connect(&mut self, origin: Origin, time: Time) -> ClientId {
        self.stats.connections_received += 1;
        let authenticated = self.settings.requirepass.is_none();
        self.sessions.add(origin, time.now, authenticated)
    }

    /// A client has gone, or is to be forgotten.
    pub fn disconnect(&mut self, client: ClientId) {
        self.stop_waiting(client);
        self.unwatch(client);
        self.unsubscribe_all(client);
        self.stop_tracking(client);
        self.sessions.remove(client);
    }

    /// Runs one request of a client and appends what it is answered to `out`.
    ///
    /// `argv` must not be empty. What other clients are to receive is in [`Engine::deliveries`].
    #[inline]
    pub fn run(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        if self.faults.watch_requests() {
            return self.run_with_faults(time, client, argv, out);
        }
        self.run_alone(time, client, argv, out)
    }

    /// As [`Engine::run`], whatever the rules of [`faults`] say.
    fn run_alone(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        // While a script runs nothing else changes, though clients may be heard.
        let is_free = self.script.is_none() && self.storm_seen_at != Some(time.now);
        if !self.is_done_for(time.now) && is_free {
            let budget_left = self.expire_due(time, DUE_BEFORE_REQUEST);
            self.storm_seen_at = (budget_left == 0).then_some(time.now);
        }
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        state.active_at = time.now;
        let reply_mode = state.reply_mode;
        match reply_mode {
            ReplyMode::On | ReplyMode::Off => {}
            ReplyMode::SkipNext => state.reply_mode = ReplyMode::Skip,
            ReplyMode::Skip => state.reply_mode = ReplyMode::On,
        }
        let outcome = self.dispatch(client, argv, time);
        let Outcome::Reply(reply) = &outcome else {
            self.block_until_unpaused(client, reply_mode);
            return Flow::Again;
        };
        self.serve_waiters(time);
        if self.tracked.clients() > 0 {
            self.finish_tracking(client, argv);
        }
        // After the command: it may have changed the protocol or the mode.
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        if !state.is_muted() {
            encode(reply, state.protocol, out);
        }
        if !state.pending.is_empty() {
            out.extend_from_slice(&state.pending);
            state.pending.clear();
        }
        let waits = state.blocked.is_some();
        if matches!(outcome, Outcome::Reply(Reply::Integer(_) | Reply::Null)) {
            // There is nothing in it to be freed, which is not seen from here.
            std::mem::forget(outcome);
        }
        match (self.flow.take(), state.close) {
            (Some(flow), close) => {
                if close.is_some() {
                    self.queue_delivery(client);
                }
                flow
            }
            (None, Some(_)) => Flow::Close,
            (None, None) if waits => Flow::Wait,
            (None, None) => Flow::Next,
        }
    }

    /// What clients are to receive since the last call.
    pub fn deliveries(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        self.hand_out(|_, delivery| {
            let (client, bytes) = (delivery.client, std::mem::take(&mut delivery.bytes));
            let (resume, close) = (delivery.resume, delivery.close);
            deliveries.push(Delivery { client, bytes, resume, close });
        });
        deliveries
    }

    /// As [`Engine::deliveries`], one by one. The receiver may swap the bytes for an empty buffer:
    /// its room is used for what the client is to receive next.
    pub fn hand_out(&mut self, mut give: impl FnMut(&Engine, &mut Delivery)) {
        let mut queued = std::mem::take(&mut self.deliveries);
        for client in queued.drain(..) {
            let Some(mut delivery) = self.delivery(client) else { continue };
            give(self, &mut delivery);
            if let Some(state) = self.sessions.get_mut(client)
                && delivery.bytes.capacity() <= limits::IDLE_BUFFER_BYTES
            {
                delivery.bytes.clear();
                state.pending = delivery.bytes;
            }
        }
        self.deliveries = queued;
        for client in std::mem::take(&mut self.killed) {
            let (bytes, close) = (BytesMut::new(), Some(Close::Now));
            give(self, &mut Delivery { client, bytes, resume: false, close });
        }
    }

    /// Whether there is anything in [`Engine::deliveries`].
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty() || !self.killed.is_empty()
    }

    fn delivery(&mut self, client: ClientId) -> Option<Delivery> {
        let state = self.sessions.get_mut(client)?;
        state.queued = false;
        let checks_output = std::mem::take(&mut state.checks_output);
        let is_empty = state.pending.is_empty() && !state.resume && state.close.is_none();
        if is_empty && !checks_output {
            return None;
        }
        Some(Delivery {
            client,
            bytes: std::mem::take(&mut state.pending),
            resume: std::mem::take(&mut state.resume),
            close: state.close.take(),
        })
    }

    /// Gives a client something it did not ask for just now.
    pub fn push(&mut self, client: ClientId, reply: &Reply) {
        if let Some(state) = self.sessions.get_mut(client) {
            encode(reply, state.protocol, &mut state.pending);
            self.queue_delivery(client);
        }
    }

    /// Disconnects a client, and forgets it: from now on it hears nothing, holds nothing and waits
    /// for nothing. Not for the client whose command runs.
    pub fn kill(&mut self, client: ClientId) {
        self.disconnect(client);
        self.killed.push(client);
    }

    /// Has the caller look at the client's output at `moment`, if it is above its soft limit then:
    /// the client is given a [`Delivery`] without anything in it.
    pub fn check_output_at(&mut self, client: ClientId, moment: Millis) {
        self.timers.insert(moment, Timer::CheckOutput(client));
    }

    fn request_output_check(&mut self, client: ClientId) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.checks_output = true;
            self.queue_delivery(client);
        }
    }

    /// Whether clients take more memory than `maxmemory-clients` allows them. Not while a script
    /// runs, whose client must stay.
    #[inline]
    pub fn has_clients_to_evict(&self) -> bool {
        self.settings.maxmemory_clients != MemoryShare::NONE
            && self.script.is_none()
            && self.is_over_client_limit()
    }

    /// Disconnects clients, those that take most memory first, until the others take no more than
    /// `maxmemory-clients` allows; returns them with what they took. Not while a client's command
    /// runs.
    #[cold]
    pub fn evict_clients(&mut self) -> Vec<(ClientId, usize)> {
        let mut evicted = Vec::new();
        let may_go = |client: &&Session| !client.no_evict && !client.origin.in_process;
        let sizes = self.sessions.iter().filter(may_go).map(|c| (c.memory_bytes(), c.id));
        let mut sizes: Vec<(usize, ClientId)> = sizes.collect();
        sizes.sort_unstable();
        while let Some((bytes, client)) = sizes.pop().filter(|_| self.is_over_client_limit()) {
            self.kill(client);
            self.stats.evicted_clients += 1;
            evicted.push((client, bytes));
        }
        evicted
    }

    fn is_over_client_limit(&self) -> bool {
        let limit = self.settings.maxmemory_clients.bytes_of(self.settings.maxmemory_bytes);
        let limit = limit.map(|bytes| bytes.max(limits::CLIENTS_MEMORY_BYTES_MIN));
        limit.is_some_and(|limit| self.sessions.memory_bytes() as u64 >= limit)
    }

    fn resume(&mut self, client: ClientId) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.resume = true;
            self.queue_delivery(client);
        }
    }

    fn queue_delivery(&mut self, client: ClientId) {
        if let Some(state) = self.sessions.get_mut(client)
            && !state.queued
        {
            state.queued = true;
            self.deliveries.push(client);
        }
    }

    // --- time ---

    /// Does what is due, at most `budget` steps of it; with what is left of the budget it frees
    /// memory. There may be more to do if [`Engine::next_deadline`] has still been reached, or if
    /// there [is garbage](Engine::has_garbage).
    pub fn tick(&mut self, time: Time, budget: u32) {
        let budget_left = self.expire_due(time, budget);
        if budget_left > 0 {
            self.keyspace.work_ahead(time.now, budget_left);
            self.keyspace.garbage.free(budget_left as usize);
            if let Some(interpreter) = self.interpreter.as_mut() {
                interpreter.tidy();
            }
            if let Some(functions) = self.functions.as_mut() {
                functions.tidy();
            }
        }
        self.broadcast_changes();
    }

    /// Whether there is memory to be freed by [`Engine::tick`], whatever the time.
    #[inline]
    pub fn has_garbage(&self) -> bool {
        !self.keyspace.garbage.is_empty()
            || self.interpreter.as_ref().is_some_and(|lua| lua.has_garbage())
            || self.functions.as_ref().is_some_and(Functions::has_garbage)
    }

    /// Everything that is to happen at a moment happens `span` later.
    pub fn postpone(&mut self, span: Millis) {
        self.keyspace.postpone(span);
        self.timers.postpone(span);
        if let Some(pause) = &mut self.pause {
            pause.until = Millis(pause.until.0.saturating_add(span.0));
        }
    }

    /// When [`Engine::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let moments = [self.next_due(), self.keyspace.next_work_ahead()];
        moments.into_iter().flatten().min()
    }

    /// When something is due next.
    fn next_due(&self) -> Option<Millis> {
        let moments = [self.keyspace.next_deadline(), self.timers.next_deadline()];
        moments.into_iter().flatten().min()
    }

    /// Whether all that is due by `now` is known to have been done: many requests come in one
    /// millisecond.
    fn is_done_for(&self, now: Millis) -> bool {
        self.keyspace.is_done_for(now) && self.timers.next_deadline().is_none_or(|next| next > now)
    }

    /// Returns what is left of `budget`.
    fn expire_due(&mut self, time: Time, mut budget: u32) -> u32 {
        while budget > 0 {
            let Some(moment) = self.next_due().filter(|&moment| moment <= time.now) else {
                if self.keyspace.advance(time.now) {
                    self.timers.advance(time.now);
                }
                break;
            };
            self.do_next(moment, &mut budget);
        }
        self.serve_waiters(time);
        budget
    }

    /// Does what is next, which is due at `moment`. Leases end before waits of the same moment.
    fn do_next(&mut self, moment: Millis, budget: &mut u32) {
        if self.keyspace.next_deadline().is_some_and(|next| next <= moment) {
            let mut due = std::mem::take(&mut self.due);
            if let Some(database) = self.keyspace.pop_due(moment, budget, &mut due) {
                for due in due.drain(..) {
                    self.end_lease(database, due);
                }
            }
            self.due = due;
            return;
        }
        match self.timers.pop_due(moment, budget) {
            Some((_, Timer::Blocked(client))) => self.wait_timed_out(client),
            Some((_, Timer::Unpause)) => {
                self.unpause_timer = None;
                self.unpause();
            }
            Some((_, Timer::CheckOutput(client))) => self.request_output_check(client),
            None => {}
        }
    }

    /// The key in `slot` has reached its deadline: removes it and tells who wants to know.
    #[cold]
    fn expire(&mut self, database: usize, slot: Slot) {
        self.end_lease(database, self.keyspace.due(database, slot));
    }

    fn end_lease(&mut self, database: usize, due: Due) {
        if self.journal.is_some() {
            self.note_end_of_lease(database, due.slot);
        }
        // Keys end by the million, so the copy of theirs is made in a place that is there.
        let mut key = std::mem::take(&mut self.ended_key);
        key.clear();
        key.extend_from_slice(self.keyspace.database(database).key(due.slot));
        self.keyspace.discard_due(database, due);
        self.stats.expired_keys += 1;
        self.dirty += 1;
        self.touch(database, &key);
        self.invalidate(&key, None);
        self.notify(Events::EXPIRED, "expired", database, &key);
        self.ended_key = key;
    }

    /// The slot of a key, if it is there and its deadline has not been reached. A dead key is
    /// removed on the way.
    #[inline]
    fn find_alive(&mut self, database: usize, key: &[u8], time: Time) -> Option<Slot> {
        let slot = self.keyspace.find_cached(database, key)?;
        if self.keyspace.database(database).records().is_expired(slot, time) {
            self.expire(database, slot);
            return None;
        }
        Some(slot)
    }

    /// Whether a key is there and past its deadline.
    fn is_dead(&self, database: usize, key: &[u8], time: Time) -> bool {
        self.keyspace
            .find(database, key)
            .is_some_and(|slot| self.keyspace.database(database).records().is_expired(slot, time))
    }

    // --- pauses ---

    /// Starts a pause, or prolongs the one in force: the later end and the wider kind win.
    pub fn start_pause(&mut self, until: Millis, writes_only: bool) {
        let pause = match self.pause {
            Some(old) => {
                Pause { until: old.until.max(until), writes_only: old.writes_only && writes_only }
            }
            None => Pause { until, writes_only },
        };
        self.pause = Some(pause);
        match self.unpause_timer {
            Some(timer) => self.timers.reschedule(timer, pause.until),
            None => self.unpause_timer = Some(self.timers.insert(pause.until, Timer::Unpause)),
        }
    }

    /// Ends the pause and resumes everyone it stopped. What has changed meanwhile may be what
    /// others wait for, who could not be served.
    pub fn unpause(&mut self) {
        self.pause = None;
        self.mark_held_for_waiters();
        if let Some(timer) = self.unpause_timer.take() {
            self.timers.cancel(timer);
        }
        for client in std::mem::take(&mut self.paused_clients) {
            if self.stop_waiting(client) {
                self.resume(client);
            }
        }
    }

    // --- scripts ---

    /// A script has run past its time: from now on other clients are refused.
    pub fn set_busy(&mut self) {
        self.busy = self.script.is_some();
    }

    /// Whether a script has run past its time.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    // --- counting ---

    /// Counts a command that has run, for good.
    fn count_call(&mut self, at: usize, failed: bool) {
        let stats = &mut self.command_stats[at];
        stats.calls += 1;
        stats.failed += u64::from(failed);
    }

    #[cold]
    fn count_error(&mut self, reply: &Reply) {
        let Reply::Error(line) = reply else { return };
        self.stats.total_error_replies += 1;
        let blank = line.iter().position(|&byte| byte == b' ');
        let code = blank.map_or(&b"ERR"[..], |at| &line[..at]);
        let code = String::from_utf8_lossy(code);
        let errors = &mut self.stats.errors;
        if let Some(count) = errors.get_mut(&*code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into_owned(), 1);
        }
    }
}

/// Longer than most keys.
const KEY_BYTES: usize = 256;

/// How much of what is due is done before a request, so that the events of leases that ended while
/// nobody looked come before the reply, without one request paying for a storm; nor do all that
/// come within the same millisecond.
const DUE_BEFORE_REQUEST: u32 = 64;
