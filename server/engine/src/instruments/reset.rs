//! `LOCKWHEEL RESET`: restores the state after the start, for a server that several tests share.

use bytes::Bytes;

use crate::Engine;
use crate::error::Error;
use crate::instruments::faults::Faults;
use crate::instruments::journal::Journal;
use crate::sessions::ClientId;
use crate::settings::directive;
use crate::timing::time::{Rate, Time};

impl Engine {
    /// Restores the state after the start, except connections and the time: removes keys, scripts,
    /// functions, rules, gates, the journal and the names of clients, ends a pause, and restores
    /// settings, users and counters. Returns the rate that the clock had at the start.
    ///
    /// # Errors
    /// While a script runs.
    pub(crate) fn reset(&mut self, caller: ClientId, time: Time) -> Result<Rate, Error> {
        self.change_functions(|writer, libraries, _| writer.flush_libraries(libraries))?;
        self.flush_scripts();
        for database in 0..self.writer.keyspace().count() {
            self.writer.flush(database);
        }
        // The removal of the keys is observed before the observers are reset.
        self.observe_effects(None);
        self.end_unit(time);
        self.clear_faults(|_| true);
        let keeps_writes = self.keeps_writes();
        if let Some(instruments) = &mut self.instruments {
            instruments.faults = Faults::new(keeps_writes);
            let journal = instruments.journal.take();
            instruments.journal = journal.map(|_| Box::new(Journal::new(&self.first_settings)));
        }
        for client in self.sessions.clients.in_order() {
            self.sessions.clients.set_text(client, |session| &mut session.name, Bytes::new());
        }
        self.unpause();
        self.settings = self.first_settings.clone();
        self.file_reads.void();
        self.apply_settings();
        self.reset_users(Some(caller));
        self.reset_stats();
        Ok(if self.settings.get(directive::CLOCK_FROZEN) { Rate::STOPPED } else { Rate::REAL })
    }
}
