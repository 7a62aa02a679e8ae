//! The journal of a server for tests: requests and the changes of locks, in time order. `dispatch`
//! reports each command after it has run; the journal then looks at the keys that the command
//! names. It changes nothing. Requests that a gate refuses are not recorded, and those of a
//! transaction are recorded when they run. The calls of a script precede the script.

pub mod checks;
pub mod entry;
pub mod handlers;
mod locks;
mod meaning;
mod reconcile;
mod script;

use std::collections::{BTreeMap, VecDeque};

use lockwheel_resp::Reply;
use serde::Serialize;
use sha1::{Digest, Sha1};

use crate::Engine;
use crate::command::{Command, ScriptArgument};
use crate::context::Caller;
use crate::error::Error;
use crate::glob;
use crate::limits::{JOURNAL_ARGUMENTS_MAX, JOURNAL_ENTRIES_MAX, JOURNAL_REMEMBERED_MAX};
use crate::sessions::ClientId;
use crate::store::effects::Place;
use crate::time::{Millis, Time};
use checks::Violations;
use entry::{Entry, JournalEvent};
use locks::{KeyAccess, LockKey, LockMechanism, LockOperation, Locks, look};
use script::Purpose;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
    last_seq: u64,
    last_ms: i64,
    locks: Locks,
    violations: Violations,
    /// The purposes of cached scripts by their SHA-1 in hexadecimal.
    purposes: BTreeMap<String, Purpose>,
    /// The operations of the running script on keys.
    accessed: BTreeMap<LockKey, KeyAccess>,
}

/// A command that has run.
#[derive(Clone, Copy)]
pub(crate) struct CompletedCommand {
    pub(crate) client: ClientId,
    pub(crate) caller: Caller,
    pub(crate) command: &'static Command,
    pub(crate) name: &'static str,
    pub(crate) database: usize,
    pub(crate) time: Time,
}

/// A held lock, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldLock {
    /// The key.
    pub key: String,
    /// The key's database.
    pub database: usize,
    /// The token, or the field of a hash.
    pub owner: String,
    /// How many times the owner holds it.
    pub count: i64,
    /// The `CLIENT ID` of the client that acquired it.
    pub client: u64,
    /// The name of that client.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it was acquired, in milliseconds since 1970 on the lease clock.
    pub since_ms: i64,
    /// The remaining lease in milliseconds; none without a lease.
    pub lease_ms: Option<i64>,
    /// The `CLIENT ID`s of the clients that were refused and have not acquired it since.
    pub waiting: Vec<u64>,
}

/// Which entries to select.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Those with greater numbers.
    pub since: u64,
    /// Those with a key that matches this pattern.
    pub key: Option<&'a [u8]>,
    /// The last ones, up to this number.
    pub count: Option<usize>,
}

impl Journal {
    /// The selected entries, the oldest first.
    pub fn select(&self, selection: Selection<'_>) -> Vec<Entry> {
        let about = |entry: &&Entry| {
            let is_like = |key: &String| {
                selection.key.is_none_or(|pattern| glob::matches(pattern, key.as_bytes()))
            };
            entry.seq > selection.since
                && (selection.key.is_none() || entry.keys.iter().any(is_like))
        };
        let last =
            self.entries.iter().rev().filter(about).take(selection.count.unwrap_or(usize::MAX));
        let mut entries: Vec<Entry> = last.cloned().collect();
        entries.reverse();
        entries
    }

    /// Removes all entries and findings. Held locks are kept.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.violations = Violations::default();
        self.locks.previous_holders.clear();
        self.locks.waiting.clear();
    }

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
        if self.entries.len() >= JOURNAL_ENTRIES_MAX {
            self.entries.pop_front();
        }
        let (seq, time_ms) = (self.last_seq, self.last_ms);
        let (client, name) = (operation.client, operation.name.to_owned());
        self.entries.push_back(Entry { seq, time_ms, client, name, event, keys });
        seq
    }

    fn note(&mut self, engine: &Engine, done: CompletedCommand, argv: &[&[u8]], reply: &Reply) {
        if meaning::is_query(done.command, argv) {
            return;
        }
        let state = engine.sessions.get(done.client);
        let name = state.map(|state| String::from_utf8_lossy(&state.name)).unwrap_or_default();
        let mut operation = LockOperation {
            client: done.client.serial,
            name: &name,
            time: done.time,
            mechanism: if done.caller == Caller::Transaction {
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
        };
        let shown = keys.iter().take(JOURNAL_ARGUMENTS_MAX).map(|key| entry::text(key)).collect();
        operation.seq = self.write(&operation, shown, event);
        let access = meaning::access(done.command, argv, reply);
        if done.caller == Caller::Script {
            for key in keys {
                self.accessed.entry((done.database, key.to_vec())).or_default().join(access);
            }
            return;
        }
        if done.command.script.is_some() {
            operation.mechanism = LockMechanism::Script(self.purpose(done.command, argv));
            operation.claims = script_arguments(argv);
            self.reconcile_script(engine, &operation, done.database, &keys);
            return;
        }
        if let Some(text) = meaning::loaded_script(done.command, argv) {
            self.remember_purpose(text);
        }
        let failover = meaning::is_failover(done.command);
        if failover || meaning::takes_away(done.command) {
            self.reconcile_all(engine, &operation, failover);
        }
        for key in keys {
            let lock_key = (done.database, key.to_vec());
            self.reconcile_command(engine, &operation, done, &lock_key, access, argv, reply);
        }
    }

    fn remember_purpose(&mut self, text: &[u8]) -> Purpose {
        let purpose = Purpose::of(text);
        if self.purposes.len() >= JOURNAL_REMEMBERED_MAX {
            self.purposes.pop_first();
        }
        self.purposes.insert(format!("{:x}", Sha1::digest(text)), purpose);
        purpose
    }

    fn purpose(&mut self, command: &Command, argv: &[&[u8]]) -> Purpose {
        let Some(script) = argv.get(1) else { return Purpose::Other };
        match command.script {
            Some(ScriptArgument::Text) => self.remember_purpose(script),
            Some(ScriptArgument::Digest) => {
                let digest = String::from_utf8_lossy(script).to_ascii_lowercase();
                self.purposes.get(&digest).copied().unwrap_or(Purpose::Other)
            }
            Some(ScriptArgument::Function) | None => Purpose::Other,
        }
    }
}

impl Engine {
    /// Clears the journal; `None` if none is kept.
    pub fn clear_journal(&mut self) -> Option<()> {
        self.journal_mut().map(Journal::clear)
    }

    /// Records a command that has run.
    pub(super) fn note(
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

    /// Records that a fault has undone writes after a command of this client.
    pub(crate) fn note_lost_writes(&mut self, time: Time, client: ClientId) {
        let (claims, mechanism) = (Vec::new(), LockMechanism::Command);
        let operation =
            LockOperation { client: client.serial, name: "", time, mechanism, claims, seq: 0 };
        self.with_journal(|journal, engine| journal.reconcile_all(engine, &operation, true));
    }

    /// Records a key that has been removed at its deadline.
    #[cold]
    pub(crate) fn note_end_of_lease(&mut self, place: Place<'_>, deadline: Millis) {
        if let Some(journal) = self.journal_mut() {
            journal.end_lease(&(place.database, place.key.to_vec()), deadline);
        }
    }

    /// The locks that are held at present, by key.
    pub fn held_locks(&self, time: Time) -> Vec<HeldLock> {
        let Some(journal) = self.journal() else { return Vec::new() };
        let mut shown = Vec::new();
        for (lock_key, lock) in &journal.locks.held {
            let Some(seen) = look(self, lock_key, time) else { continue };
            let lease_ms = seen.deadline_ms.map(|it| time.remaining(Millis(it)).0);
            let waiting = journal.locks.waiting.iter();
            let waiting: Vec<u64> = waiting
                .filter(|it| {
                    it.lock_key == *lock_key && self.sessions.clients.by_serial(it.client).is_some()
                })
                .map(|it| it.client)
                .collect();
            shown.extend(lock.holders.iter().map(|holder| HeldLock {
                key: entry::text(&lock_key.1),
                database: lock_key.0,
                owner: entry::text(&holder.owner),
                count: holder.count,
                client: holder.client,
                name: holder.name.clone(),
                since_ms: holder.since_ms,
                lease_ms,
                waiting: waiting.clone(),
            }));
        }
        shown
    }
}

/// The arguments of a script after its keys.
fn script_arguments<'a>(argv: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let keys = argv.get(2).and_then(|count| lockwheel_resp::number::parse_integer(count));
    let keys = keys.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    argv.iter().skip(keys.saturating_add(3)).copied().collect()
}

#[cfg(test)]
mod tests;
