//! The server that a command runs on: what all of them may read, and what some may change.

use super::Context;
use crate::acl::Users;
use crate::command::CommandTable;
use crate::error::Error;
use crate::random::Random;
use crate::run::script::LogLevel;
use crate::settings::{ConfigError, Sentinel, Settings, directive};
use crate::statistics::latency::Latency;
use crate::statistics::rates::BufferPeaks;
use crate::store::{Database, Keyspace};
use crate::{Engine, Flow};

impl Context<'_> {
    // --- reading ---

    /// The whole engine, for commands that show the state of the server.
    #[inline]
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// The settings.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.engine.settings
    }

    /// The commands of the server.
    #[inline]
    pub fn commands(&self) -> &'static CommandTable {
        self.engine.commands
    }

    /// The users.
    pub fn users(&self) -> &Users {
        &self.engine.access.users
    }

    /// All databases, with the keys that have reached their deadlines.
    #[inline]
    pub fn keyspace(&self) -> &Keyspace {
        self.engine.writer.keyspace()
    }

    /// The selected database, with the keys that have reached their deadlines.
    #[inline]
    pub fn selected(&self) -> &Database {
        self.keyspace().database(self.database)
    }

    /// The greatest memory use so far, including the present one.
    pub fn peak_memory_bytes(&mut self) -> u64 {
        self.engine.peak_memory_bytes()
    }

    /// The largest buffers of one connection in the last seconds and at present.
    pub(crate) fn recent_buffer_peaks(&mut self) -> BufferPeaks {
        self.engine.recent_buffer_peaks()
    }

    /// Returns an error if this server follows another one.
    pub fn check_leads(&mut self) -> Result<(), Error> {
        self.engine.check_leads(self.client)
    }

    // --- changing ---

    /// The source of randomness of commands.
    #[inline]
    pub fn random(&mut self) -> &mut Random {
        &mut self.engine.random
    }

    /// Sets what the caller of the engine does after the reply.
    pub fn end_with(&mut self, flow: Flow) {
        self.engine.flow = Some(flow);
    }

    /// Writes a line to the log of the server.
    pub fn log(&mut self, level: LogLevel, line: String) {
        self.engine.script_messages.push((level, line));
    }

    /// The times of commands, and the log of slow ones.
    pub(crate) fn latency_mut(&mut self) -> &mut Latency {
        &mut self.engine.latency
    }

    /// Sets the counters of `INFO` to zero.
    pub fn reset_stats(&mut self) {
        self.engine.reset_stats();
    }

    // --- configuration ---

    /// Sets all named directives, or none.
    pub fn change_settings(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), ConfigError> {
        self.engine.change_settings(pairs, self.client)
    }

    /// The masters that a sentinel monitors, and its options. Only a sentinel has the commands for
    /// them; another server gets settings without masters.
    pub fn sentinel_mut(&mut self) -> &mut Sentinel {
        self.engine.settings.sentinel.get_or_insert_default()
    }

    /// Sets the directive `loglevel`, for a sentinel.
    ///
    /// # Errors
    /// Why the level is refused.
    pub fn set_log_level(&mut self, level: &str) -> Result<(), String> {
        self.engine.settings.assign(directive::LOGLEVEL.row(), &[level])
    }

    // --- users ---

    /// Replaces the users. Connections that have lost a right are closed.
    pub fn replace_users(&mut self, users: Users) {
        self.engine.replace_users(users, Some(self.client));
    }

    /// The users of the ACL file.
    ///
    /// # Errors
    /// If there is no file, or it cannot be read or is not valid; the text describes the reason.
    pub fn users_of_file(&mut self) -> Result<Users, String> {
        self.engine.read_acl_file(Some(self.client))
    }

    /// Writes the users to the ACL file.
    ///
    /// # Errors
    /// If there is no file, or it cannot be written; the text describes the reason.
    pub fn save_users(&mut self) -> Result<(), String> {
        self.engine.save_users()
    }

    /// Removes the refusals that are in the log.
    pub fn clear_acl_log(&mut self) {
        self.engine.access.log.clear();
    }

    // --- durability and replication ---

    /// Asks for a snapshot, which the caller of the engine writes.
    pub fn request_snapshot(&mut self) {
        self.engine.request_snapshot(self.time);
        self.end_with(Flow::Snapshot);
    }

    /// Blocks the client until the snapshot that is being written is complete: it gets `+OK`, or an
    /// error if that fails.
    pub fn wait_for_snapshot(&mut self) {
        self.engine.wait_for_snapshot(self.client);
    }

    /// Ends the restart guard; returns whether it was on.
    pub fn end_guard(&mut self) -> bool {
        self.engine.end_guard()
    }

    // --- debugging ---

    /// Replaces the state by a copy that is made of a snapshot.
    ///
    /// # Errors
    /// If a snapshot is being written.
    pub fn reload(&mut self) -> Result<(), &'static str> {
        self.engine.writer.reload(self.time.now)
    }

    /// Sets whether keys are removed at their deadlines, or when they are looked up next.
    pub fn set_active_expiry(&mut self, on: bool) {
        self.engine.writer.set_active_expiry(on);
    }

    /// Replaces the id of the history of changes by a new one.
    pub fn change_replication_id(&mut self) {
        self.engine.replication_id = self.engine.random.hex_id();
    }
}
