//! Records requests and the changes of locks. `dispatch` reports each command after it has run; the
//! journal then looks at the keys that the command names. Requests that a gate refuses are not
//! recorded, and those of a transaction are recorded when they run. The calls of a script precede
//! the script.

use std::collections::VecDeque;

use lockwheel_resp::Reply;

use super::checks::{Scope, Violations, is_client};
use super::entry::{self, AppliedFault, Entry, JournalEvent};
use crate::Engine;
use crate::command::{Caller, Command};
use crate::error::Error;
use crate::glob;
use crate::limits::JOURNAL_ARGUMENTS_MAX;
use crate::locks::evidence::{Confidence, Declared};
use crate::locks::recognise::{LockEvent, LockObserver, Recognition};
use crate::locks::table::{LockKey, LockMechanism, LockOperation, Locks};
use crate::locks::{HeldLock, KnownLock, meaning, text};
use crate::run::dispatch::CompletedCommand;
use crate::sessions::{ClientId, Session};
use crate::settings::Settings;
use crate::store::effects::Place;
use crate::timing::time::{ClockOrder, Millis, Time};

/// The journal of requests and lock events.
#[derive(Debug)]
pub struct Journal {
    pub(super) locks: Locks,
    pub(super) record: Record,
    /// The fault that happens to the present request.
    fault: Option<AppliedFault>,
}

/// What the journal has written.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(super) entries: VecDeque<Entry>,
    entries_max: usize,
    /// Entries that newer ones have replaced.
    pub(super) dropped: u64,
    last_seq: u64,
    /// The number of the present request.
    request: u64,
    last_ms: i64,
    pub(super) violations: Violations,
}

/// Which entries to select.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// The keys, the client and the first entry that it is about.
    pub scope: Scope<'a>,
    /// The last ones, up to this number.
    pub count: Option<usize>,
}

impl Journal {
    /// An empty journal.
    pub(crate) fn new(settings: &Settings) -> Journal {
        let entries_max = settings.journal_max_entries as usize;
        let locks = Locks::new(Declared::of(settings));
        Journal { locks, record: Record { entries_max, ..Record::default() }, fault: None }
    }

    /// How many entries newer ones have replaced.
    pub fn dropped(&self) -> u64 {
        self.record.dropped
    }

    /// The selected entries, the oldest first.
    pub fn select(&self, selection: Selection<'_>) -> Vec<Entry> {
        let about = |entry: &&Entry| {
            let scope = selection.scope;
            let is_like = |pattern: &[u8]| {
                entry.keys.iter().any(|key| glob::matches(pattern, key.as_bytes()))
            };
            entry.seq > scope.since
                && scope.key.is_none_or(is_like)
                && scope.client.is_none_or(|client| is_client(client, entry.client, &entry.name))
        };
        let entries = self.record.entries.iter();
        let last = entries.rev().filter(about).take(selection.count.unwrap_or(usize::MAX));
        let mut entries: Vec<Entry> = last.cloned().collect();
        entries.reverse();
        entries
    }

    /// Removes all entries and findings. Held locks are kept.
    pub fn clear(&mut self) {
        self.record.entries.clear();
        self.record.dropped = 0;
        self.record.violations = Violations::default();
        self.locks.previous_holders.clear();
        self.locks.waiting.clear();
    }

    fn note(&mut self, engine: &Engine, done: CompletedCommand, argv: &[&[u8]], reply: &Reply) {
        if meaning::is_query(done.command, argv) {
            return;
        }
        let state = engine.sessions.get(done.client);
        let text_of = |text: fn(&Session) -> &[u8]| {
            state.map(|state| String::from_utf8_lossy(text(state))).unwrap_or_default()
        };
        let (name, library) = (text_of(|state| &state.name), text_of(|state| &state.library_name));
        let is_part = matches!(done.caller, Caller::Script | Caller::Transaction);
        let runs_script = done.caller != Caller::Script && done.command.script.is_some();
        let mut operation = LockOperation {
            client: done.client.serial,
            name: &name,
            library: &library,
            time: done.time,
            mechanism: if runs_script {
                LockMechanism::Script(self.locks.purpose(done.command, argv))
            } else if done.caller == Caller::Transaction {
                LockMechanism::Transaction
            } else {
                LockMechanism::Command
            },
            claims: meaning::claims(done.command, argv),
            seq: 0,
        };
        let places = done.command.key_places(argv).unwrap_or_default();
        let keys: Vec<&[u8]> = places.iter().filter_map(|&at| argv.get(at).copied()).collect();
        let event = JournalEvent::Command {
            argv: entry::request(done.command, done.name, argv),
            reply: entry::answer(reply),
            script: done.caller == Caller::Script,
            transaction: done.caller == Caller::Transaction,
            fault: self.fault.take_if(|_| !is_part),
        };
        let shown = shown_keys(&places, argv);
        operation.seq = self.record.write(&operation, shown, event);
        self.recognition().update(engine, &operation, done, &keys, argv, reply);
        if !is_part {
            self.record.request += 1;
        }
    }

    /// Writes an entry that belongs to no request of a client, or to one that was not run.
    fn note_event(
        &mut self,
        time: Option<Time>,
        client: u64,
        session: Option<&Session>,
        keys: Vec<String>,
        event: JournalEvent,
    ) {
        let text_of = |text: fn(&Session) -> &[u8]| {
            session.map(|session| String::from_utf8_lossy(text(session))).unwrap_or_default()
        };
        let (name, library) =
            (text_of(|session| &session.name), text_of(|session| &session.library_name));
        let time = time.unwrap_or(Time::at(Millis(self.record.last_ms)));
        let operation = LockOperation {
            client,
            name: &name,
            library: &library,
            ..LockOperation::of_the_clock(time)
        };
        self.record.write(&operation, keys, event);
    }

    fn recognition(&mut self) -> Recognition<'_> {
        Recognition { locks: &mut self.locks, observer: &mut self.record }
    }
}

impl Record {
    /// Appends an entry and returns its number.
    fn write(
        &mut self,
        operation: &LockOperation<'_>,
        keys: Vec<String>,
        event: JournalEvent,
    ) -> u64 {
        self.last_seq += 1;
        // An expired lease may be recorded after a later event.
        self.last_ms = self.last_ms.max(operation.now_ms());
        if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
            self.dropped += 1;
        }
        let is_of_request = operation.client > 0
            && !matches!(
                event,
                JournalEvent::Connected {}
                    | JournalEvent::Disconnected {}
                    | JournalEvent::Freed { .. }
            );
        self.entries.push_back(Entry {
            seq: self.last_seq,
            time_ms: self.last_ms,
            client: operation.client,
            name: operation.name.to_owned(),
            library: operation.library.to_owned(),
            request: if is_of_request { self.request + 1 } else { 0 },
            possible: false,
            event,
            keys,
        });
        self.last_seq
    }
}

/// The keys of a request, shortened.
fn shown_keys(places: &[usize], argv: &[&[u8]]) -> Vec<String> {
    let keys = places.iter().filter_map(|&at| argv.get(at));
    keys.take(JOURNAL_ARGUMENTS_MAX).map(|key| text(key)).collect()
}

impl LockObserver for Record {
    fn observe(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        confidence: Confidence,
        event: LockEvent<'_>,
    ) -> u64 {
        let seq = self.write(operation, vec![text(&lock_key.1)], JournalEvent::of(event));
        if let Some(entry) = self.entries.back_mut() {
            entry.possible = confidence == Confidence::Possible;
        }
        self.violations.judge(operation, lock_key, event, seq);
        seq
    }
}

impl Engine {
    /// Clears the journal; `None` if none is kept.
    pub fn clear_journal(&mut self) -> Option<()> {
        self.journal_mut().map(Journal::clear)
    }

    /// Declares that keys that match `pattern` are locks; `None` if no journal is kept.
    pub fn declare_locks(&mut self, pattern: &[u8]) -> Option<()> {
        self.journal_mut().map(|journal| journal.locks.declared.declare(pattern))
    }

    /// Declares that keys that match `pattern` are no locks; `None` if no journal is kept.
    pub fn ignore_locks(&mut self, pattern: &[u8]) -> Option<()> {
        self.journal_mut().map(|journal| {
            journal.locks.declared.ignore(pattern);
            journal.locks.forget_ignored();
        })
    }

    /// Records a command that has run.
    pub(crate) fn note(
        &mut self,
        done: CompletedCommand,
        argv: &[&[u8]],
        result: &Result<Reply, Error>,
    ) {
        let failure;
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                failure = Reply::from(error.clone());
                &failure
            }
        };
        if *reply == Reply::NOTHING {
            // The command waits and will run again.
            return;
        }
        self.with_journal(|journal, engine| journal.note(engine, done, argv, reply));
    }

    /// Announces the fault that happens to the present request of a client.
    pub(crate) fn announce_fault(&mut self, rule: u64, effect: String) {
        if let Some(journal) = self.journal_mut() {
            journal.fault = Some(AppliedFault { rule, effect });
        }
    }

    /// Records a fault that was announced, if the request was not run.
    pub(crate) fn note_fault(&mut self, time: Time, client: ClientId, argv: &[&[u8]]) {
        self.with_journal(|journal, engine| {
            let Some(fault) = journal.fault.take() else { return };
            let entry = engine.commands.find(argv[0]).map(|at| engine.commands.entry(at));
            let (command, name) =
                entry.map_or((&Command::BASE, ""), |entry| (entry.command, &entry.full_name));
            let keys = shown_keys(&command.key_places(argv).unwrap_or_default(), argv);
            let event = JournalEvent::Fault { argv: entry::request(command, name, argv), fault };
            let session = engine.sessions.get(client);
            journal.note_event(Some(time), client.serial, session, keys, event);
            journal.record.request += 1;
        });
    }

    /// Records a client that a rule no longer holds.
    pub(crate) fn note_freed(&mut self, client: ClientId, rule: u64) {
        self.with_journal(|journal, engine| {
            let session = engine.sessions.get(client);
            journal.note_event(
                None,
                client.serial,
                session,
                Vec::new(),
                JournalEvent::Freed { rule },
            );
        });
    }

    /// Records that a connection was opened.
    pub(crate) fn note_connection(&mut self, client: ClientId, time: Time) {
        self.with_journal(|journal, _| {
            journal.note_event(
                Some(time),
                client.serial,
                None,
                Vec::new(),
                JournalEvent::Connected {},
            );
        });
    }

    /// Records that a connection is closed.
    pub(crate) fn note_disconnection(&mut self, client: ClientId) {
        self.with_journal(|journal, engine| {
            let session = engine.sessions.get(client);
            if session.is_some_and(|session| !session.origin.in_process) {
                journal.note_event(
                    None,
                    client.serial,
                    session,
                    Vec::new(),
                    JournalEvent::Disconnected {},
                );
            }
        });
    }

    /// Records an order to the clock.
    pub(crate) fn note_clock_order(&mut self, order: ClockOrder, time: Time) {
        self.with_journal(|journal, _| {
            let event = JournalEvent::Clock { order: order.to_string() };
            journal.note_event(Some(time), 0, None, Vec::new(), event);
        });
    }

    /// Records that a fault has undone writes after a command of this client.
    pub(crate) fn note_lost_writes(&mut self, time: Time, client: ClientId) {
        let operation =
            LockOperation { client: client.serial, ..LockOperation::of_the_clock(time) };
        self.with_journal(|journal, engine| {
            journal.recognition().update_all(engine, &operation, true);
        });
    }

    /// Records a key that has been removed at its deadline.
    #[cold]
    pub(crate) fn note_end_of_lease(&mut self, place: Place<'_>, deadline: Millis) {
        if let Some(journal) = self.journal_mut() {
            journal.recognition().end_lease(&(place.database, place.key.to_vec()), deadline);
        }
    }

    /// The keys that are or were locks, also the possible ones, in order.
    pub fn known_locks(&self, time: Time) -> Vec<KnownLock> {
        self.journal().map(|journal| journal.locks.known_locks(self, time)).unwrap_or_default()
    }

    /// The locks that are held at present, by key; also the possible ones.
    pub fn held_locks(&self, time: Time) -> Vec<HeldLock> {
        self.journal().map(|journal| journal.locks.held_locks(self, time)).unwrap_or_default()
    }
}
