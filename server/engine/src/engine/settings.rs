//! Changes of directives, and what follows from them.

use crate::command::CommandStats;
use crate::engine::files::Files;
use crate::engine::{Engine, Stats};
use crate::sessions::ClientId;
use crate::settings::{Change, ConfigError, Settings, SettingsReader, find};

impl Engine {
    /// Sets all named directives, or none, for a command of the caller.
    pub(crate) fn change_settings(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        caller: ClientId,
    ) -> Result<(), ConfigError> {
        let files = self.take_files(caller);
        let changes = self.set_directives(pairs, files)?;
        self.apply_settings();
        if changes.iter().any(|change| change.directive.sets_default_password()) {
            self.set_default_password(Some(caller));
        }
        Ok(())
    }

    fn set_directives(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        files: Option<Files>,
    ) -> Result<Vec<Change>, ConfigError> {
        let mut next = self.settings.clone();
        let changes = next.set(pairs)?;
        let sets_password = changes.iter().any(|change| change.directive.sets_default_password());
        if sets_password && self.replicates_default_user() {
            let reason = "the default user is replicated: use ACL SETUSER on the leader".into();
            return Err(ConfigError::Refused { name: "requirepass", reason });
        }
        let adoption = match files {
            Some(Files::Settings(adoption)) => Some(adoption),
            _ => self.reader_with(&next, pairs).map(|read| read()),
        };
        if let Some(adopt) = adoption {
            adopt?();
            self.file_reads.void();
        }
        self.settings = next;
        Ok(changes)
    }

    /// What reads the files that `CONFIG SET` with these arguments needs, if any.
    pub(crate) fn reader_of_settings(&self, arguments: &[&[u8]]) -> Option<SettingsReader> {
        self.settings_user.as_ref()?;
        let (pairs, []) = arguments.as_chunks::<2>() else { return None };
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|&[name, value]| (name, value)).collect();
        let mut next = self.settings.clone();
        next.set(&pairs).ok()?;
        self.reader_with(&next, &pairs)
    }

    fn reader_with(&self, next: &Settings, pairs: &[(&[u8], &[u8])]) -> Option<SettingsReader> {
        // Includes directives that keep their value, since their files may have changed.
        let names = pairs.iter().filter_map(|(name, _)| find(std::str::from_utf8(name).ok()?));
        let names: Vec<&'static str> = names.map(|(name, _)| name).collect();
        self.settings_user.as_ref()?.reader(next, &names)
    }

    /// Updates the state that the engine derives from its settings.
    pub(crate) fn apply_settings(&mut self) {
        self.set_events(self.settings.notify_keyspace_events);
        self.update_conditions();
        self.update_access_counter();
        self.update_lock_notes();
        self.latency.set_limits(&self.settings);
    }

    /// Sets the counters of `INFO` to zero.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.reset_rates();
        self.access.log.reset_counts();
        self.writer.reset_freed_objects();
        self.command_stats.fill(CommandStats::default());
    }
}
