//! The engine: its parts, its start, its clients, requests and outputs, and how time passes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::BytesMut;
use lockwheel_resp::encode::encode;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Interpreter, LogLevel};

use crate::acl::AccessControl;
use crate::command::{CommandStats, CommandTable};
use crate::durability::lease_ceiling;
use crate::durability::lease_ceiling::LeaseCeiling;
use crate::durability::persistence::Persistence;
use crate::durability::readiness::Readiness;
use crate::durability::unit_log::UnitLog;
use crate::engine::inputs::Process;
use crate::instruments::Instruments;
use crate::locks::script::Purposes;
use crate::random::Random;
use crate::replication::nodes::Nodes;
use crate::run::dispatch::DispatchResult;
use crate::run::gates::{Conditions, GATES, Gates};
use crate::run::growth::Growth;
use crate::run::replies;
use crate::run::replies::Replies;
use crate::run::script::{Running, ScriptMonitor};
use crate::sessions::buffers::BufferSizes;
use crate::sessions::deliveries::Delivery;
use crate::sessions::{ClientId, Close, Origin, ReplyMode, Session, Sessions, Timer};
use crate::settings::{MemoryShare, Settings, SettingsUser};
use crate::statistics::counter::increment;
use crate::statistics::latency::{EXPIRE_CYCLE, Latency};
use crate::statistics::rates::{Samples, Traffic};
use crate::store::access_frequency::AccessCounter;
use crate::store::dict::{HashSeed, Slot};
use crate::store::libraries::Libraries;
use crate::store::lock_notes::Author;
use crate::store::state::State;
use crate::store::writer::Writer;
use crate::store::{Due, Keyspace};
use crate::timing::time::{ClockOrder, Millis, Rate, Time};
use crate::{commands, limits, store};

/// The next step for the caller of [`Engine::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Run the client's next request.
    Next,
    /// Run no request of this client until a [`Delivery`] resumes it.
    Wait,
    /// As `Wait`; then run the same request again.
    Again,
    /// Send the pending replies and disconnect the client.
    Close,
    /// Block all clients for this many milliseconds (`DEBUG SLEEP`), then run the next request.
    Sleep(Millis),
    /// Apply this order to the clock, then run the next request.
    Clock(ClockOrder),
    /// Shut the server down.
    Shutdown,
    /// Write a snapshot beside the requests that follow.
    Snapshot,
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
    pub peak_memory_bytes: u64,
    pub evicted_clients: u64,
    /// How late keys were removed after their deadlines, in milliseconds: the sum and the longest.
    pub expired_late_ms: u64,
    pub expired_late_ms_max: u64,
    /// The time in which keys were removed at their deadlines.
    pub expire_ns: u64,
}

/// What a request has led to.
pub(crate) struct Outcome {
    pub(crate) flow: Flow,
    /// The reply, if the client gets one.
    pub(crate) reply: Option<Reply>,
    /// The protocol of the client.
    pub(crate) protocol: Protocol,
    /// Whether messages for the client follow the reply.
    pub(crate) has_messages: bool,
    /// How many bytes a fault lets through.
    pub(crate) bytes_max: usize,
}

/// What receives the reply to a request.
pub(crate) enum Receiver<'a> {
    /// The output of a connection.
    Bytes(&'a mut BytesMut),
    /// A caller in this process, or rules that may still suppress the reply.
    Value(&'a mut Outcome),
}

impl Receiver<'_> {
    /// Receives a reply to the client of this session, unless the session is muted. Messages for
    /// the client follow the reply.
    #[inline(always)]
    pub(crate) fn receive(&mut self, reply: Reply, session: &mut Session) {
        match self {
            Receiver::Bytes(out) => {
                if !session.is_muted() {
                    encode(&reply, session.protocol, out);
                }
                if !session.pending.is_empty() {
                    out.extend_from_slice(&session.pending);
                    session.clear_pending();
                }
                match reply {
                    // These replies own no memory; forgetting them saves the call of the
                    // destructor.
                    Reply::Integer(_) | Reply::Null => std::mem::forget(reply),
                    Reply::Bulk(bytes) | Reply::Simple(bytes) => drop(bytes),
                    reply => drop(reply),
                }
            }
            Receiver::Value(outcome) => {
                outcome.reply = (!session.is_muted()).then_some(reply);
                outcome.protocol = session.protocol;
                outcome.has_messages = !session.pending.is_empty();
            }
        }
    }
}

impl Outcome {
    pub(crate) fn without_reply(flow: Flow) -> Outcome {
        let (protocol, bytes_max) = (Protocol::Resp2, usize::MAX);
        Outcome { flow, reply: None, protocol, has_messages: false, bytes_max }
    }
}

/// Number of error codes that are counted separately; further codes count only towards the total. A
/// script can return any number of codes.
const ERROR_CODES_MAX: usize = 128;

/// See the module's documentation; [`inputs`] lists all that its caller may do.
pub struct Engine {
    /// The settings, as `CONFIG` shows and changes them.
    pub(crate) settings: Settings,
    /// The settings at the start, to which a reset returns.
    pub(crate) first_settings: Settings,
    /// The replicated state, and the only way to change it.
    pub(crate) writer: Writer,
    /// The state of all connections.
    pub(crate) sessions: Sessions,
    /// The users.
    pub(crate) access: AccessControl,
    /// The commands.
    pub(crate) commands: &'static CommandTable,
    pub(crate) gates: Gates,
    /// Statistics of each command, by its position in the table.
    pub(crate) command_stats: Vec<CommandStats>,
    /// The counters.
    pub(crate) stats: Stats,
    /// What connections have read and written.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) samples: Samples,
    /// The client of the running requests, and the sizes of its buffers when they began.
    pub(crate) requests_of: Option<(ClientId, BufferSizes)>,
    /// How long commands take.
    pub(crate) latency: Latency,
    /// The source of randomness of commands such as `RANDOMKEY`.
    pub(crate) random: Random,
    /// When the engine was created, on the lease clock.
    pub(crate) started_at: Millis,
    /// The process that the engine runs in.
    pub(crate) process: Process,
    /// The run id of the server: 40 hex digits.
    pub(crate) run_id: String,
    /// The id of the history of changes: 40 hex digits.
    pub(crate) replication_id: String,
    /// The id of this cluster node or sentinel: 40 hex digits.
    pub(crate) node_id: String,
    /// The id of the node's shard: 40 hex digits.
    pub(crate) shard_id: String,
    /// The Lua interpreter; `None` while a script runs.
    pub(crate) interpreter: Option<Box<Interpreter>>,
    /// The running script or function.
    pub(crate) script: Option<Running>,
    pub(crate) scripts_started: u64,
    /// For the lock view.
    pub(crate) script_purposes: Purposes,
    /// Memory of Lua before any script is loaded.
    pub(crate) lua_bytes: usize,
    /// Memory of Lua when the running script began.
    pub(crate) script_bytes_before: usize,
    /// Serves other clients while a script runs for a long time.
    pub(crate) script_monitor: Option<Box<dyn ScriptMonitor>>,
    pub(crate) settings_user: Option<Box<dyn SettingsUser>>,
    /// Log messages, most of them of scripts; the caller takes them.
    pub(crate) script_messages: Vec<(LogLevel, String)>,
    /// The rate of the caller's lease clock; for clients that query it.
    pub(crate) clock_rate: Rate,
    /// The instruments of a server for tests.
    pub(crate) instruments: Option<Box<Instruments>>,
    /// Whether commands or their effects have a consumer.
    pub(crate) has_consumers: bool,
    /// The value that the next [`Engine::run`] returns instead of `Next`; set by a handler.
    pub(crate) flow: Option<Flow>,
    /// The last moment at which more was due than one request may process.
    pub(crate) expiry_backlog_at: Option<Millis>,
    /// Memory for bulk strings in replies.
    pub(crate) replies: Replies,
    /// The conditions of gates that the engine meets.
    pub(crate) conditions: Conditions,
    /// Bytes of the arguments of a request, if they are bounded; see `raft-request-max`.
    pub(crate) request_bytes_max: Option<NonZeroU64>,
    pub(crate) due: Vec<Due>,
    pub(crate) event_channel: Vec<u8>,
    /// The effects of each unit, if the caller takes them.
    pub(crate) kept_effects: Option<Vec<Vec<u8>>>,
    /// What may be changed when memory or the disk is full.
    pub(crate) growth: Growth,
    /// Its log and its snapshots.
    pub(crate) persistence: Persistence,
    /// The units for a log, if there is one.
    pub(crate) unit_log: Option<Box<UnitLog>>,
    /// Whether the log has units that are not released.
    pub(crate) has_unreleased: bool,
    /// The fencing tokens of this run are greater.
    pub(crate) token_floor: u64,
    /// The lease ceiling, if the caller records it.
    pub(crate) lease_ceiling: Option<Box<LeaseCeiling>>,
    /// Whether commands are served.
    pub(crate) readiness: Readiness,
    /// The nodes that replicate the log; none if it is not replicated.
    pub(crate) nodes: Nodes,
}

impl Engine {
    /// Creates an engine without keys or clients. `seed` is its only source of randomness.
    pub fn new(mut settings: Settings, process: Process, time: Time, seed: [u64; 4]) -> Engine {
        let hash_seed = HashSeed(seed[0], seed[1]);
        let mut random = Random::new(seed[2]);
        let (run_id, node_id, shard_id) = (random.hex_id(), random.hex_id(), random.hex_id());
        let configured_id = settings.sentinel.as_ref().and_then(|sentinel| sentinel.my_id.clone());
        let commands = CommandTable::of_server(&settings);
        let interpreter = commands::scripts::interpreter(seed[3], settings.compat_version);
        let lua_bytes = interpreter.memory_bytes();
        // A cluster has one database.
        settings.databases = if settings.cluster_enabled { 1 } else { settings.databases };
        let functions = commands::functions::functions(seed[3], settings.compat_version);
        let keyspace = Keyspace::new(settings.databases as usize, hash_seed, time.now);
        let state = State::new(keyspace, Libraries::new(functions));
        let access = AccessControl::new(&settings, commands);
        let mut engine = Engine {
            writer: Writer::new(state, settings.notify_keyspace_events),
            interpreter: Some(Box::new(interpreter)),
            first_settings: settings.clone(),
            gates: Gates::new(GATES, access.users().has_restricted()),
            access,
            latency: Latency::new(&settings),
            instruments: Instruments::of(&settings, time, seed),
            settings,
            sessions: Sessions::new(hash_seed, time.now),
            commands,
            command_stats: vec![CommandStats::default(); commands.entries().len()],
            has_consumers: false,
            stats: Stats::default(),
            traffic: Arc::default(),
            samples: Samples::default(),
            requests_of: None,
            random,
            started_at: time.now,
            process,
            replication_id: run_id.clone(),
            run_id,
            node_id: configured_id.unwrap_or(node_id),
            shard_id,
            script: None,
            scripts_started: 0,
            script_purposes: Purposes::default(),
            lua_bytes,
            script_bytes_before: lua_bytes,
            script_monitor: None,
            settings_user: None,
            script_messages: Vec::new(),
            clock_rate: Rate::REAL,
            flow: None,
            expiry_backlog_at: None,
            replies: Replies::default(),
            conditions: Conditions::empty(),
            request_bytes_max: None,
            // Allocated now: a long-lived allocation behind a million keys would keep their memory
            // from being returned to the system.
            due: Vec::with_capacity(store::DUE_TOGETHER),
            event_channel: Vec::with_capacity(2 * KEY_BYTES),
            kept_effects: None,
            growth: Growth::default(),
            persistence: Persistence::new(time),
            unit_log: None,
            has_unreleased: false,
            token_floor: lease_ceiling::token_floor_at_start(time),
            lease_ceiling: None,
            readiness: Readiness::Ready,
            nodes: Nodes::default(),
        };
        engine.apply_settings();
        engine
    }

    /// Starts or stops the lock view, as the settings say.
    pub(crate) fn update_lock_notes(&mut self) {
        if self.settings.lock_view != self.writer.lock_notes().is_some() {
            self.writer.set_lock_notes(self.settings.lock_view);
        }
    }

    /// Starts or stops counting the uses of keys, as the settings say.
    pub(crate) fn update_access_counter(&mut self) {
        let Settings { maxmemory_policy, lfu_log_factor, lfu_decay_minutes, .. } = self.settings;
        let counter = maxmemory_policy.is_lfu().then(|| {
            let random = Random::new(self.random.bits());
            AccessCounter::new(lfu_log_factor, lfu_decay_minutes, random)
        });
        self.writer.set_access_counter(counter);
    }

    // --- clients ---

    /// Adds a client that has connected. A client in this process needs no password and uses RESP3.
    pub fn connect(&mut self, origin: Origin, time: Time) -> ClientId {
        self.stats.connections_received += u64::from(!origin.is_monitoring);
        let is_in_process = origin.in_process;
        let identity = self.access.first_identity(is_in_process);
        let client = self.sessions.clients.add(origin, time.now, identity);
        if self.instruments.is_some() && !is_in_process {
            self.note_connection(client, time);
        }
        client
    }

    /// Removes a client that has disconnected.
    pub fn disconnect(&mut self, client: ClientId) {
        if self.instruments.is_some() {
            self.note_disconnection(client);
        }
        self.sessions.remove(client);
        self.update_consumers();
    }

    /// Runs one request of a client and appends the reply to `out`.
    ///
    /// `argv` must not be empty. Output for other clients is in [`Engine::deliveries`]. Before the
    /// next input, the caller serves the clients that [`Engine::next_waiter`] names, and then calls
    /// [`Engine::take_messages`].
    #[inline]
    pub fn run(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        if self.instruments.is_some() {
            return self.run_and_write(time, client, argv, out);
        }
        self.run_request(time, client, argv, &mut Receiver::Bytes(out))
    }

    /// As [`Engine::run`], with the rules of [`faults`].
    #[cold]
    pub(crate) fn run_and_write(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        let outcome = self.run_with_faults(time, client, argv);
        let sent = out.len();
        if let Some(reply) = &outcome.reply {
            encode(reply, outcome.protocol, out);
        }
        if outcome.has_messages {
            self.take_messages(client, out);
        }
        out.truncate(sent.saturating_add(outcome.bytes_max));
        outcome.flow
    }

    /// As [`Engine::run`], for a client in this process: returns the reply as the client would
    /// decode it, if there is one, and appends only messages to `messages`.
    pub fn call(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        messages: &mut BytesMut,
    ) -> (Flow, Option<Reply>) {
        let run = |engine: &mut Engine| engine.run_with_faults(time, client, argv);
        let session = self.sessions.get(client);
        let outcome = match session.is_some_and(|session| session.origin.is_monitoring) {
            true => self.without_counting(argv, run),
            false => run(self),
        };
        if outcome.has_messages {
            self.take_messages(client, messages);
        }
        let reply = outcome.reply.and_then(|reply| {
            let is_whole = outcome.bytes_max == usize::MAX || {
                let mut out = BytesMut::new();
                encode(&reply, outcome.protocol, &mut out);
                out.len() <= outcome.bytes_max
            };
            is_whole.then(|| replies::received(reply, outcome.protocol))
        });
        (outcome.flow, reply)
    }

    /// Runs a request without the rules of [`faults`], and keeps the reply as a value.
    pub(crate) fn run_for_outcome(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
    ) -> Outcome {
        let mut outcome = Outcome::without_reply(Flow::Next);
        let flow = self.run_request(time, client, argv, &mut Receiver::Value(&mut outcome));
        Outcome { flow, ..outcome }
    }

    /// Runs a request without the rules of [`faults`]. One function for both kinds of receivers, so
    /// that what it calls is inlined in it.
    pub(crate) fn run_request(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        receiver: &mut Receiver<'_>,
    ) -> Flow {
        // While a script runs, no other change may happen, although requests of other clients are
        // run.
        let is_free = self.script.is_none() && self.expiry_backlog_at != Some(time.now);
        if !self.is_done_for(time.now) && is_free {
            let budget_left = self.expire_due(time, DUE_PER_REQUEST_MAX);
            self.expiry_backlog_at = (budget_left == 0).then_some(time.now);
        }
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        state.active_at = time.now;
        self.writer.set_author(Author::of(client.serial, time));
        let reply_mode = state.reply_mode;
        if reply_mode != ReplyMode::default() {
            state.reply_mode = reply_mode.next();
        }
        let DispatchResult::Reply(reply) = self.dispatch(client, argv, time) else {
            self.sessions.block_until_resumed(client, reply_mode);
            return Flow::Again;
        };
        self.end_unit(time);
        if self.sessions.tracked.clients() > 0 {
            self.finish_tracking(client, argv);
        }
        // After the command, which may have changed the protocol or the reply mode.
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        receiver.receive(reply, state);
        let waits = state.blocked.is_some();
        match (self.flow.take(), state.close) {
            (Some(flow), close) => {
                if close.is_some() {
                    self.sessions.queue_delivery(client);
                }
                flow
            }
            (None, Some(_)) => Flow::Close,
            (None, None) if waits => Flow::Wait,
            (None, None) => Flow::Next,
        }
    }

    /// Appends messages for a client that were caused after its reply, by clients that its request
    /// has served.
    pub fn take_messages(&mut self, client: ClientId, out: &mut BytesMut) {
        self.sessions.take_messages(client, out);
    }

    /// Takes the output for clients since the last call.
    pub fn deliveries(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        self.hand_out(|_, delivery| {
            let (client, bytes) = (delivery.client, std::mem::take(&mut delivery.bytes));
            let (resume, close) = (delivery.resume, delivery.close);
            deliveries.push(Delivery { client, bytes, resume, close });
        });
        deliveries
    }

    /// As [`Engine::deliveries`], one by one. The receiver may swap the bytes for an empty buffer,
    /// which is then used for the client's next output.
    pub fn hand_out(&mut self, mut deliver: impl FnMut(&Engine, &mut Delivery)) {
        let mut queued = std::mem::take(&mut self.sessions.deliveries);
        for client in queued.drain(..) {
            let Some(mut delivery) = self.sessions.delivery(client) else { continue };
            deliver(self, &mut delivery);
            if let Some(state) = self.sessions.get_mut(client)
                && delivery.bytes.capacity() <= limits::IDLE_BUFFER_BYTES
            {
                delivery.bytes.clear();
                state.pending = delivery.bytes;
            }
        }
        self.sessions.deliveries = queued;
        for client in std::mem::take(&mut self.sessions.killed) {
            let (bytes, close) = (BytesMut::new(), Some(Close::Now));
            deliver(self, &mut Delivery { client, bytes, resume: false, close });
        }
    }

    /// Whether [`Engine::deliveries`] would return anything.
    pub fn has_deliveries(&self) -> bool {
        self.sessions.has_deliveries()
    }

    /// Disconnects and removes a client. Must not be called for the client of the running command.
    pub fn kill(&mut self, client: ClientId) {
        self.disconnect(client);
        self.sessions.killed.push(client);
    }

    /// Disconnects a client: that of the running command after its reply.
    pub(crate) fn close_client(&mut self, client: ClientId, caller: Option<ClientId>) {
        if Some(client) != caller {
            self.kill(client);
        } else if let Some(session) = self.sessions.get_mut(client) {
            session.close = Some(Close::AfterReplies);
        }
    }

    /// Asks the caller to check the client's output limit at `moment`: the client gets an empty
    /// [`Delivery`] then.
    pub fn check_output_at(&mut self, client: ClientId, moment: Millis) {
        self.sessions.check_output_at(client, moment);
    }

    /// Whether clients use more memory than `maxmemory-clients` allows. Always false while a script
    /// runs, since the script's client must stay connected.
    #[inline]
    pub fn has_clients_to_evict(&self) -> bool {
        self.settings.maxmemory_clients != MemoryShare::NONE
            && self.script.is_none()
            && self.is_over_client_limit()
    }

    /// Disconnects the clients that use most memory until the others use no more than
    /// `maxmemory-clients`; returns them with their memory in bytes. Must not be called while a
    /// command runs.
    #[cold]
    pub fn evict_clients(&mut self) -> Vec<(ClientId, usize)> {
        let mut evicted = Vec::new();
        let evictable = |client: &&Session| !client.no_evict && !client.origin.in_process;
        let sizes =
            self.sessions.clients.iter().filter(evictable).map(|c| (c.memory_bytes(), c.id));
        let mut sizes: Vec<(usize, ClientId)> = sizes.collect();
        sizes.sort_unstable();
        while let Some((bytes, client)) = sizes.pop().filter(|_| self.is_over_client_limit()) {
            self.kill(client);
            self.stats.evicted_clients += 1;
            evicted.push((client, bytes));
        }
        evicted
    }

    pub(crate) fn is_over_client_limit(&self) -> bool {
        let limit = self.settings.maxmemory_clients.bytes_of(self.settings.maxmemory_bytes);
        let limit = limit.map(|bytes| bytes.max(limits::CLIENTS_MEMORY_BYTES_MIN));
        limit.is_some_and(|limit| self.sessions.clients.memory_bytes() as u64 >= limit)
    }

    // --- time ---

    /// Processes what is due, in at most `budget` steps; the rest of the budget is used to free
    /// memory. The caller then serves the clients that [`Engine::next_waiter`] names. More may be
    /// left to do if [`Engine::next_deadline`] has been reached or [`Engine::has_garbage`] is true:
    /// timers that are later than a change for which clients wait fire after these are served.
    pub fn tick(&mut self, time: Time, budget: u32) {
        if self.applies_log() {
            let budget_left =
                if self.is_follower() { self.fire_timers(time, budget) } else { budget };
            self.free(budget_left);
            return;
        }
        let begin_ns = (self.process.clock_ns)();
        if begin_ns >= self.samples.next_ns {
            self.sample(begin_ns);
        }
        let budget_left = self.expire_due(time, budget);
        let took_ns = (self.process.clock_ns)().saturating_sub(begin_ns);
        self.stats.expire_ns += took_ns;
        self.latency.note(EXPIRE_CYCLE, took_ns, time);
        if budget_left > 0 {
            self.writer.work_ahead(time.now, budget_left);
            self.free(budget_left);
        }
        self.sessions.broadcast_changes();
    }

    /// Frees memory, in at most `budget` steps.
    pub(crate) fn free(&mut self, budget: u32) {
        self.writer.free_garbage(budget as usize);
        if let Some(interpreter) = self.interpreter.as_mut() {
            interpreter.tidy();
        }
    }

    /// Whether [`Engine::tick`] has memory to free, independent of time.
    #[inline]
    pub fn has_garbage(&self) -> bool {
        !self.writer.keyspace().garbage().is_empty()
            || self.interpreter.as_ref().is_some_and(|lua| lua.has_garbage())
            || self.writer.libraries().is_some_and(|functions| functions.has_garbage())
    }

    /// Moves all deadlines and timers `span` later.
    pub(crate) fn postpone(&mut self, span: Millis, time: Time) {
        self.writer.postpone(span);
        self.observe_effects(None);
        self.end_unit(time);
        self.sessions.postpone(span);
        self.find_hold_ends(time);
        if let Some(guard) = self.guard_mut() {
            guard.until = Millis(guard.until.0.saturating_add(span.0));
        }
    }

    /// When [`Engine::tick`] next has something to do.
    pub fn next_deadline(&self) -> Option<Millis> {
        if self.applies_log() {
            return self.sessions.timers.next_deadline().filter(|_| self.is_follower());
        }
        let moments = [self.next_due(), self.writer.keyspace().next_work_ahead()];
        moments.into_iter().flatten().min()
    }

    /// When the next key or timer is due.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let moments =
            [self.writer.keyspace().next_deadline(), self.sessions.timers.next_deadline()];
        moments.into_iter().flatten().min()
    }

    /// Whether everything due by `now` has been processed. A cheap check, since many requests
    /// arrive in one millisecond.
    #[inline]
    pub(crate) fn is_done_for(&self, now: Millis) -> bool {
        self.writer.keyspace().is_done_for(now)
            && self.sessions.timers.next_deadline().is_none_or(|next| next > now)
    }

    /// Processes what is due and returns the rest of `budget`. Nothing is due while the log is
    /// loaded: it contains the expirations that follow.
    pub(crate) fn expire_due(&mut self, time: Time, mut budget: u32) -> u32 {
        if self.applies_log() {
            return budget;
        }
        while budget > 0 {
            let Some(moment) = self.next_due().filter(|&moment| moment <= time.now) else {
                if self.writer.advance(time.now) {
                    self.sessions.timers.advance(time.now);
                }
                break;
            };
            // A lease that ended before a client's wait did is granted to the client first.
            let is_timer = self.writer.keyspace().next_deadline().is_none_or(|next| next > moment);
            if is_timer && self.script.is_none() && self.sessions.has_waiters_to_serve() {
                break;
            }
            let expired_before = self.stats.expired_keys;
            self.process_next(moment, time, &mut budget);
            let expired = self.stats.expired_keys - expired_before;
            let late_ms = u64::try_from(time.now.0 - moment.0).unwrap_or(0);
            self.stats.expired_late_ms += late_ms.saturating_mul(expired);
            if expired > 0 {
                self.stats.expired_late_ms_max = self.stats.expired_late_ms_max.max(late_ms);
            }
        }
        self.end_unit(time);
        budget
    }

    /// Processes the next key or timer, which is due at `moment`. At the same moment keys expire
    /// before timers fire.
    pub(crate) fn process_next(&mut self, moment: Millis, time: Time, budget: &mut u32) {
        if self.writer.keyspace().next_deadline().is_some_and(|next| next <= moment) {
            let mut due = std::mem::take(&mut self.due);
            if let Some(database) = self.writer.pop_due(moment, budget, &mut due) {
                for due in due.drain(..) {
                    self.remove_expired(database, due);
                }
            }
            self.due = due;
            self.observe_effects(None);
            return;
        }
        self.fire_next(moment, time, budget);
    }

    /// Fires all timers that are due, on a server that follows: its log ends the leases. Returns
    /// the rest of `budget`.
    pub(crate) fn fire_timers(&mut self, time: Time, mut budget: u32) -> u32 {
        while budget > 0
            && let Some(moment) = self.sessions.timers.next_deadline()
            && moment <= time.now
        {
            self.fire_next(moment, time, &mut budget);
        }
        budget
    }

    /// Fires the next timer, which is due at `moment`.
    pub(crate) fn fire_next(&mut self, moment: Millis, time: Time, budget: &mut u32) {
        match self.sessions.timers.pop_due(moment, budget) {
            Some((_, Timer::Blocked(place))) => self.wait_timed_out(place, time),
            Some((_, Timer::Retry(place))) => self.retry(place),
            Some((_, Timer::Unpause)) => {
                self.sessions.unpause_timer = None;
                self.unpause();
            }
            Some((_, Timer::CheckOutput(place))) => self.sessions.request_output_check(place),
            Some((_, Timer::GuardEnd)) => self.guard_is_over(),
            Some((_, Timer::ForgetMessages)) => {
                self.sessions.pubsub.recent_timer = None;
                self.sessions.pubsub.recent.clear();
            }
            Some((_, Timer::HoldEnd)) => self.hold_has_ended(time),
            None => {}
        }
    }

    /// Removes the key in `slot`, which has reached its deadline, and notifies watchers and
    /// subscribers.
    #[cold]
    pub(crate) fn expire(&mut self, database: usize, slot: Slot) {
        self.remove_expired(database, self.writer.keyspace().due(database, slot));
    }

    pub(crate) fn remove_expired(&mut self, database: usize, due: Due) {
        self.stats.expired_keys += 1;
        self.writer.remove_expired(database, due);
    }

    /// The slot of a key, if the key exists and its deadline has not been reached. An expired key
    /// is removed, unless a log is applied.
    #[inline(always)]
    pub(crate) fn find_alive(&mut self, database: usize, key: &[u8], time: Time) -> Option<Slot> {
        self.look_up::<false>(database, key, time)
    }

    /// As [`Engine::find_alive`]. If `IS_USE`, records that the key is used now.
    pub(crate) fn look_up<const IS_USE: bool>(
        &mut self,
        database: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Slot> {
        match self.writer.find_in_cache::<IS_USE>(database, key, time) {
            Some(found) => found,
            None => self.search_alive::<IS_USE>(database, key, time),
        }
    }

    /// As [`Engine::look_up`], for a key that is not cached. Not inlined, so that the other
    /// function saves no registers.
    #[inline(never)]
    pub(crate) fn search_alive<const IS_USE: bool>(
        &mut self,
        database: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Slot> {
        // While there are such units, no key is found in the cache.
        if self.has_unreleased {
            self.depend_on_key(database, key);
        }
        let slot = self.writer.find_cached(database, key)?;
        if self.writer.is_alive::<IS_USE>(database, slot, time) {
            return Some(slot);
        }
        // While a log is applied, its effects remove the key.
        if !self.applies_log() {
            self.expire(database, slot);
        }
        None
    }

    /// Whether a key exists and has reached its deadline.
    pub(crate) fn has_expired(&self, database: usize, key: &[u8], time: Time) -> bool {
        self.writer.keyspace().find(database, key).is_some_and(|slot| {
            self.writer.keyspace().database(database).records().is_expired(slot, time)
        })
    }

    // --- pauses ---

    /// As [`Sessions::start_pause`].
    pub(crate) fn start_pause(&mut self, until: Millis, writes_only: bool) {
        self.sessions.start_pause(until, writes_only);
        self.update_conditions();
    }

    /// As [`Sessions::unpause`].
    pub(crate) fn unpause(&mut self) {
        self.sessions.unpause(self.writer.keyspace());
        self.update_conditions();
        self.update_consumers();
    }

    // --- scripts ---

    /// Records that a script runs longer than `busy-reply-threshold`: from now on requests of other
    /// clients are refused.
    pub fn set_busy(&mut self) {
        self.conditions.set(Conditions::BUSY, self.script.is_some());
    }

    /// Whether a script runs longer than `busy-reply-threshold`.
    pub fn is_busy(&self) -> bool {
        self.conditions.contains(Conditions::BUSY)
    }

    // --- counting ---

    /// Counts a command that has run.
    pub(crate) fn count_call(&mut self, at: usize, failed: bool) {
        let stats = &mut self.command_stats[at];
        increment(&mut stats.calls);
        if failed {
            increment(&mut stats.failed);
        }
    }

    /// A client has sent a wrong user or password, which are not logged.
    #[cold]
    pub(crate) fn note_denied_authentication(&mut self, client: ClientId) {
        let address = self.sessions.get(client).map_or("", |session| &session.origin.address);
        let line = format!("Authentication failed for client id={} addr={address}", client.serial);
        self.script_messages.push((LogLevel::Verbose, line));
    }

    #[cold]
    pub(crate) fn count_error(&mut self, reply: &Reply) {
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

/// Keys and timers that are processed before a request, so that events of expired leases precede
/// the reply. The bound keeps one request, or all requests of a millisecond, from paying for a mass
/// expiry.
const DUE_PER_REQUEST_MAX: u32 = 64;
