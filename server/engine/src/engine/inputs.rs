//! The inputs and outputs of the engine: a closed set. [`Engine`] has no public fields, and its
//! public methods are those listed here; a test of the sources compares them with these lists.
//!
//! # Inputs
//!
//! The same inputs in the same order give the same outputs. Time is an argument; randomness comes
//! from the seed.
//!
//! - **Start**: [`Engine::new`], [`Engine::set_script_monitor`], [`Engine::set_settings_user`],
//!   [`Engine::load_users`].
//! - **A client connects or disconnects**: [`Engine::admit`], [`Engine::connect`],
//!   [`Engine::disconnect`], [`Engine::kill`]; before it disconnects, that its last reply was not
//!   sent: [`Engine::reply_is_lost`].
//! - **Requests begin**, for their times: [`Engine::begin_requests`]; at a time that was read:
//!   [`Engine::begin_requests_at`]; with the sizes of their connection's buffers:
//!   [`Engine::begin_requests_of`].
//! - **A request**, also one that changes the configuration (`CONFIG SET`): [`Engine::run`], or
//!   [`Engine::call`] from this process; then its end, [`Engine::end_request`]. The caller may
//!   announce requests with [`Engine::look_ahead`], which changes nothing that a client can
//!   observe.
//! - **Time passes**: [`Engine::tick`].
//! - **The peer of a client has closed its connection**: [`Engine::peer_closed`].
//! - **Waiting clients are served**: [`Engine::serve_waiters`].
//! - **An order to the clock** is carried out: [`Engine::clock_order`], [`Engine::set_clock_rate`],
//!   [`Engine::count_as_active`].
//! - **Effects** of another engine are applied: [`Engine::apply`]. The caller asks for those of
//!   this one with [`Engine::keep_effects`].
//! - **The log** begins ([`Engine::start_log`], [`Engine::start_log_of_ceilings`]), has released
//!   units ([`Engine::release_units`]), has other sizes ([`Engine::set_log_sizes`]), or was flushed
//!   before replies ([`Engine::note_flush`]).
//! - **A restart**: the log is applied ([`Engine::begin_loading`], [`Engine::load`],
//!   [`Engine::end_loading`]); the restart guard begins ([`Engine::begin_guard`]) and is long
//!   ([`Engine::explain_guard`]); the lease ceiling is recorded from now on
//!   ([`Engine::track_ceiling`]). Tokens that it may lack are not given out again
//!   ([`Engine::raise_tokens`]).
//! - **A replicated log**: this server follows ([`Engine::follow`], [`Engine::apply_committed`],
//!   [`Engine::clear_state`]) or leads ([`Engine::lead`], [`Engine::set_serves`]); the nodes have
//!   changed ([`Engine::set_nodes`]); held requests may run ([`Engine::grant_reads`]) or have
//!   waited for too long ([`Engine::refuse_held`]).
//! - **Files** that a request needs were read: [`Engine::end_file_read`].
//! - **A snapshot** begins ([`Engine::begin_snapshot`]) or ends ([`Engine::end_snapshot`]).
//! - **The disk of the log is full**, or not any more: [`Engine::set_disk_is_full`].
//! - **A script runs for long**: [`Engine::set_busy`], [`Engine::kill_script`].
//! - **Buffers of connections**: [`Engine::check_output_at`], [`Engine::evict_clients`].
//!
//! # Outputs
//!
//! - **Replies and messages**: `Engine::run` writes the reply and `Engine::call` returns it; the
//!   end of a request appends what it has caused for its own client. [`Engine::hand_out`],
//!   [`Engine::deliveries`] and [`Engine::has_deliveries`] give messages for clients.
//! - **Next work**: [`Engine::snapshot_is_due`], [`Engine::has_waiters_to_serve`],
//!   [`Engine::next_deadline`], [`Engine::has_garbage`],
//!   [`Engine::has_clients_to_evict`]; requests that are held, [`Engine::last_held`] and
//!   [`Engine::held_reads`]; files to read, [`Engine::has_file_reads`] and
//!   [`Engine::next_file_read`].
//! - **Effects** of the units: [`Engine::take_effects`]; for a log, [`Engine::take_units`], and the
//!   unit that the output depends on, [`Engine::take_dependency`]; what is waited for,
//!   [`Engine::is_flush_awaited`].
//! - **The lease ceiling**: [`Engine::take_ceiling`], [`Engine::lower_ceiling`],
//!   [`Engine::ceiling_of_keys`], [`Engine::groups_of_keys`].
//! - **Parts of a snapshot**: [`Engine::snapshot_part`].
//! - **Messages of scripts** for the log file: [`Engine::take_script_messages`].
//! - **Views**: [`Engine::settings`], [`Engine::session`], [`Engine::is_watch_broken`],
//!   [`Engine::client_line`], [`Engine::running_script`], [`Engine::is_busy`],
//!   [`Engine::node_id`], [`Engine::stats`], [`Engine::command_stats`],
//!   [`Engine::script_tiers`], [`Engine::changes`],
//!   [`Engine::key_count`], [`Engine::client_memory_bytes`], [`Engine::dataset_bytes`],
//!   [`Engine::digest`],
//!   [`Engine::is_protected`], [`Engine::is_ready`], [`Engine::role`], [`Engine::guard`],
//!   [`Engine::outlives_leader`], [`Engine::is_monitoring`]; what the caller
//!   counts, [`Engine::traffic`] and [`Engine::unwritten_bytes`].
//! - **The state**: [`Engine::libraries`], [`Engine::replicated_users`], [`Engine::records`].
//!
//! # Servers for tests
//!
//! - **Faults**: [`Engine::add_fault`], [`Engine::fault`], [`Engine::clear_faults`],
//!   [`Engine::show_faults`], [`Engine::keeps_writes`].
//! - **Gates** of a test: [`Engine::set_gates`].
//! - **Journal**: [`Engine::journal`], [`Engine::clear_journal`], [`Engine::held_locks`],
//!   [`Engine::known_locks`], [`Engine::declare_locks`], [`Engine::ignore_locks`],
//!   [`Engine::lint_locks`], [`Engine::check_locks`].

use std::sync::Arc;

use lockwheel_scripting::{LogLevel, Tiers};

use crate::command::{CommandStats, Entry};
use crate::run::script::ScriptMonitor;
use crate::sessions::{ClientId, Origin, Session};
use crate::settings::{Settings, SettingsUser};
use crate::statistics::rates::Traffic;
use crate::store::records::Record;
use crate::timing::time::{ClockOrder, Millis, Rate, Time};
use crate::{Engine, Stats};

/// The process that the engine runs in, for `INFO`.
#[derive(Clone)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// The path of its program.
    pub executable: String,
    /// Returns what it uses. Called only by commands that show it.
    pub usage: Arc<dyn Fn() -> ProcessUsage + Send + Sync>,
    /// Returns the time since any moment in nanoseconds, by which commands are timed.
    pub clock_ns: fn() -> u64,
    /// Returns the time of `clock_ns` at the last tick of the system, which is cheaper to read, and
    /// at most 10 ms ago; or `u64::MAX`, where the system does not show it.
    pub tick_ns: fn() -> u64,
    /// When the server was started, by `clock_ns`.
    pub started_ns: u64,
    /// Blocks the calling thread, which holds the engine, for a time.
    pub sleep: fn(Millis),
}

impl Default for Process {
    /// A process that nothing is known of.
    fn default() -> Process {
        let usage = Arc::new(ProcessUsage::default);
        Process {
            id: 0,
            executable: String::new(),
            usage,
            clock_ns: || 0,
            tick_ns: || u64::MAX,
            started_ns: 0,
            sleep: |_| (),
        }
    }
}

/// What a process uses, as far as the system shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// Its resident memory.
    pub resident_bytes: Option<u64>,
    /// The memory of the machine.
    pub machine_bytes: Option<u64>,
    /// The processor time of the process.
    pub process: Option<CpuTimes>,
    /// The processor time of processes that it has started and that have ended.
    pub children: Option<CpuTimes>,
    /// The processor time of the thread that accepts connections and ends leases.
    pub main_thread: Option<CpuTimes>,
}

/// Processor time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in the kernel.
    pub system_us: u64,
    /// Time in the program.
    pub user_us: u64,
}

/// Inputs.
impl Engine {
    /// Sets what serves other clients while a script runs for a long time.
    pub fn set_script_monitor(&mut self, monitor: Box<dyn ScriptMonitor>) {
        self.script_monitor = Some(monitor);
    }

    /// Sets the part of the server that has to adopt the directives that `CONFIG SET` changes.
    pub fn set_settings_user(&mut self, user: Box<dyn SettingsUser>) {
        self.settings_user = Some(user);
    }

    /// Whether clients from other hosts are refused: there is no password (`protected-mode`).
    pub fn is_protected(&self) -> bool {
        self.settings.protected_mode && self.access.users.default_user().needs_no_password()
    }

    /// Adds a client that has connected, unless the server is full, protected, or a rule of a test
    /// refuses the connection. An error is the line to send before the connection is closed.
    pub fn admit(&mut self, origin: Origin, time: Time) -> Result<ClientId, &'static str> {
        let settings = &self.settings;
        let protected = self.is_protected();
        let refusal = if self.sessions.clients.len() >= settings.maxclients as usize {
            Some("-ERR max number of clients reached\r\n")
        } else if protected && !origin.local {
            Some(PROTECTED)
        } else {
            self.refuses_connection().then_some("")
        };
        match refusal {
            Some(line) => {
                self.stats.rejected_connections += 1;
                Err(line)
            }
            None => Ok(self.connect(origin, time)),
        }
    }

    /// Carries out the part of an order to the clock that concerns the engine: the rate, for
    /// clients that query it, and the deadlines, which a step back moves. While a script runs,
    /// deadlines stay.
    pub fn clock_order(&mut self, order: ClockOrder, time: Time) {
        self.note_clock_order(order, time);
        match order {
            ClockOrder::Run(rate) | ClockOrder::Restart(rate) => self.set_clock_rate(rate),
            ClockOrder::Jump(span) if span.0 < 0 && self.script.is_none() => {
                self.postpone(Millis(span.0.saturating_neg()), time);
            }
            _ => {}
        }
    }

    /// Sets the rate of the clock that clients are shown.
    pub fn set_clock_rate(&mut self, rate: Rate) {
        self.clock_rate = rate;
    }

    /// Counts a client as active at `now`: the client was not idle while it moved the clock.
    pub fn count_as_active(&mut self, client: ClientId, now: Millis) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.active_at = now;
        }
    }
}

/// Outputs.
impl Engine {
    /// Takes the log messages, most of them of scripts.
    #[inline]
    pub fn take_script_messages(&mut self) -> Vec<(LogLevel, String)> {
        std::mem::take(&mut self.script_messages)
    }

    /// The settings, which `CONFIG` shows and changes.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The session of a client, if the client is connected.
    #[inline]
    pub fn session(&self, client: ClientId) -> Option<&Session> {
        self.sessions.get(client)
    }

    /// The id of this cluster node or sentinel: 40 hex digits.
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// The counters of the network.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The counters of `INFO`.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The commands with the statistics of each.
    pub fn command_stats(&self) -> impl Iterator<Item = (&'static Entry, &CommandStats)> {
        self.commands.entries().iter().zip(&self.command_stats)
    }

    /// How scripts have been run.
    pub fn script_tiers(&self) -> Tiers {
        self.interpreter.as_ref().map(|lua| lua.tiers()).unwrap_or_default()
    }

    /// The number of changes to keys since the start.
    pub fn changes(&self) -> u64 {
        self.writer.dirty()
    }

    /// The number of keys in a database, with those past their deadlines that still use memory.
    pub fn key_count(&self, database: usize) -> usize {
        self.writer.keyspace().database(database).len()
    }

    /// The texts of the function libraries.
    pub fn libraries(&self) -> impl Iterator<Item = &[u8]> {
        let libraries = self.writer.libraries().into_iter();
        libraries.flat_map(|libraries| libraries.libraries()).map(|library| &*library.code)
    }

    /// The users that are a part of the state: the name and the rules of each.
    pub fn replicated_users(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rules = self.writer.state().users().rules();
        rules.into_iter().flatten().map(|(name, rules)| (&**name, &**rules))
    }

    /// The keys of a database with their values, those past their deadlines included.
    pub fn records(&self, database: usize) -> impl Iterator<Item = Record<'_>> {
        self.writer.keyspace().database(database).records().iter().map(|(_, record)| record)
    }

    /// The memory of all clients.
    pub fn client_memory_bytes(&self) -> usize {
        self.sessions.clients.memory_bytes()
    }
}

/// Error line of a protected server, which starts as that of Redis does, since clients compare
/// that.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is \
    enabled and no password is set for the default user. In this mode connections are only \
    accepted from the loopback interface. To connect from elsewhere, set a password with \
    requirepass, or start the server with '--protected-mode no' on a network you trust.\r\n";
