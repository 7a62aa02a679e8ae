//! All instruments of an engine, and when they are used.

use lockwheel_resp::Reply;

use super::faults::Faults;
use super::journal::Journal;
use super::shadow::Shadow;
use crate::Engine;
use crate::error::Error;
use crate::run::dispatch::CompletedCommand;
use crate::settings::{Permission, Settings};
use crate::timing::time::Time;

/// The instruments of an engine.
#[derive(Default)]
pub(crate) struct Instruments {
    /// The fault rules.
    pub(crate) faults: Faults,
    /// The journal; `None` while an entry is written.
    pub(super) journal: Option<Box<Journal>>,
    /// An engine that follows the effects of this one, if they are verified.
    pub(crate) shadow: Option<Box<Shadow>>,
}

impl Instruments {
    /// The instruments that the settings ask for, if any.
    pub(crate) fn of(settings: &Settings, time: Time, seed: [u64; 4]) -> Option<Box<Instruments>> {
        let is_for_tests = settings.enable_test_commands != Permission::No;
        let instruments = Instruments {
            faults: Faults::new(is_for_tests),
            journal: is_for_tests.then(|| Box::new(Journal::new(settings))),
            shadow: Shadow::of(settings, time, seed),
        };
        (is_for_tests || instruments.shadow.is_some()).then(|| Box::new(instruments))
    }

    /// Whether effects must be recorded.
    pub(crate) fn use_effects(&self) -> bool {
        self.faults.writes.is_some() || self.journal.is_some() || self.shadow.is_some()
    }
}

impl Engine {
    /// The fault rules, if the engine has instruments.
    pub(crate) fn faults(&self) -> Option<&Faults> {
        self.instruments.as_ref().map(|instruments| &instruments.faults)
    }

    pub(crate) fn faults_mut(&mut self) -> Option<&mut Faults> {
        self.instruments.as_mut().map(|instruments| &mut instruments.faults)
    }

    /// The journal, if one is kept.
    pub fn journal(&self) -> Option<&Journal> {
        self.instruments.as_ref()?.journal.as_deref()
    }

    pub(super) fn journal_mut(&mut self) -> Option<&mut Journal> {
        self.instruments.as_mut()?.journal.as_deref_mut()
    }

    /// Calls `action` with the journal, if one is kept.
    pub(super) fn with_journal(&mut self, action: impl FnOnce(&mut Journal, &Engine)) {
        let Some(mut journal) = self.instruments.as_mut().and_then(|it| it.journal.take()) else {
            return;
        };
        action(&mut journal, self);
        if let Some(instruments) = &mut self.instruments {
            instruments.journal = Some(journal);
        }
    }

    /// Informs client tracking and the journal of a command that has run.
    pub(crate) fn observe_command(
        &mut self,
        done: CompletedCommand,
        argv: &[&[u8]],
        result: &Result<Reply, Error>,
    ) {
        if self.sessions.tracked.clients() > 0 {
            self.remember_reads(done.client, done.command, argv);
        }
        self.note(done, argv, result);
    }
}
