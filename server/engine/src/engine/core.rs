//! The parts of the engine, and its start.

use std::num::NonZeroU64;
use std::sync::Arc;

use lockwheel_scripting::{Interpreter, LogLevel, MathRandom};

use crate::acl::AccessControl;
use crate::command::{CommandStats, CommandTable};
use crate::durability::lease_ceiling;
use crate::durability::lease_ceiling::LeaseCeiling;
use crate::durability::persistence::Persistence;
use crate::durability::readiness::Role;
use crate::durability::unit_log::UnitLog;
use crate::engine::files::FileReads;
use crate::engine::inputs::Process;
use crate::engine::{Flow, Stats};
use crate::instruments::Instruments;
use crate::locks::script::Purposes;
use crate::random::Random;
use crate::replication::nodes::Nodes;
use crate::run::gates::{Conditions, GATES, Gates};
use crate::run::growth::Growth;
use crate::run::replies::Replies;
use crate::run::script::{Running, ScriptMonitor};
use crate::sessions::buffers::BufferSizes;
use crate::sessions::{ClientId, Sessions};
use crate::settings::{Settings, SettingsUser};
use crate::statistics::latency::Latency;
use crate::statistics::rates::{Samples, Traffic};
use crate::store::access_frequency::AccessCounter;
use crate::store::dict::HashSeed;
use crate::store::libraries::Libraries;
use crate::store::state::State;
use crate::store::writer::Writer;
use crate::store::{Due, Keyspace};
use crate::timing::time::{Millis, Rate, Time};
use crate::{commands, store};

/// The engine: a deterministic state machine of a server. [`inputs`](super::inputs) lists all that
/// its caller may do.
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
    /// Purposes of scripts, for the lock view.
    pub(crate) script_purposes: Purposes,
    /// Memory of Lua before any script is loaded.
    pub(crate) lua_bytes: usize,
    /// Memory of Lua when the running script began.
    pub(crate) script_bytes_before: usize,
    /// Serves other clients while a script runs for a long time.
    pub(crate) script_monitor: Option<Box<dyn ScriptMonitor>>,
    pub(crate) settings_user: Option<Box<dyn SettingsUser>>,
    /// The requests that need files.
    pub(crate) file_reads: FileReads,
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
    /// Bound below the fencing tokens of this run, all of which are greater.
    pub(crate) token_floor: u64,
    /// The lease ceiling, if the caller records it.
    pub(crate) lease_ceiling: Option<Box<LeaseCeiling>>,
    /// What this server does for its clients.
    pub(crate) role: Role,
    /// The nodes that replicate the log; none if it is not replicated.
    pub(crate) nodes: Nodes,
}

impl Engine {
    /// Creates an engine without keys or clients. `seed` is its only source of randomness.
    pub fn new(mut settings: Settings, process: Process, time: Time, seed: [u64; 4]) -> Engine {
        let (hash_seed, mut random) = (HashSeed(seed[0], seed[1]), Random::new(seed[2]));
        let (run_id, node_id, shard_id) = (random.hex_id(), random.hex_id(), random.hex_id());
        let configured_id = settings.sentinel.as_ref().and_then(|sentinel| sentinel.my_id.clone());
        let commands = CommandTable::of_server(&settings);
        let (version, math_random) = (settings.compat_version, MathRandom::new(seed[3]));
        let interpreter = commands::scripts::interpreter(math_random.clone(), version);
        let lua_bytes = interpreter.memory_bytes();
        // A cluster has one database.
        settings.databases = if settings.cluster_enabled { 1 } else { settings.databases };
        let functions = commands::functions::functions(math_random, version);
        let keyspace = Keyspace::new(settings.databases as usize, hash_seed, time.now);
        let state = State::new(keyspace, Libraries::new(functions));
        let access = AccessControl::new(&settings, commands);
        let mut engine = Engine {
            writer: Writer::new(state, settings.notify_keyspace_events),
            interpreter: Some(Box::new(interpreter)),
            first_settings: settings.clone(),
            gates: Gates::new(GATES, access.users.has_restricted()),
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
            file_reads: FileReads::default(),
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
            role: Role::default(),
            nodes: Nodes::default(),
        };
        engine.apply_settings();
        engine
    }

    /// Starts or stops the lock view, as the settings say. A follower takes no notes: its keys
    /// change without them.
    pub(crate) fn update_lock_notes(&mut self) {
        let has_notes = self.settings.lock_view && !self.is_follower();
        if has_notes != self.writer.lock_notes().is_some() {
            self.writer.set_lock_notes(has_notes);
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
}

/// Room for a key: more than most keys need.
const KEY_BYTES: usize = 256;
