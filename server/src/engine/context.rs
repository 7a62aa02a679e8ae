//! What a command's handler works with: the engine, the caller, the present, and safe ways to look
//! at keys and to change them.
//!
//! What must hold: a handler looks at keys only through here, so it never sees a dead one; and it
//! tells of every change through [`Context::changed`], so watchers and subscribers learn of it.

use leasehold_resp::{Protocol, number};

use crate::engine::Engine;
use crate::engine::client::{Client, ClientId};
use crate::engine::command::Command;
use crate::engine::error::Error;
use crate::engine::keyspace::Record;
use crate::engine::keyspace::dict::Slot;
use crate::engine::keyspace::hash::Hash;
use crate::engine::keyspace::string::StringValue;
use crate::engine::keyspace::value::Value;
use crate::engine::notify::Events;
use crate::engine::time::{Millis, Time};

/// Who runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client, directly.
    Client,
    /// `EXEC`, for a client.
    Transaction,
    /// A script, for a client.
    Script,
}

/// See the module's documentation.
pub struct Context<'a> {
    /// The engine, for what keys are not about.
    pub engine: &'a mut Engine,
    /// The client that asked, directly or through a transaction or script.
    pub client: ClientId,
    /// Who runs the command.
    pub caller: Caller,
    /// The selected database.
    pub database: usize,
    /// The present: the same for a whole transaction and a whole script.
    pub time: Time,
    /// The row of the command.
    pub command: &'static Command,
    /// `incr`, or `client|id` for a subcommand.
    pub name: &'static str,
}

impl Context<'_> {
    /// The client that asked. It is connected for as long as its command runs.
    pub fn client(&self) -> &Client {
        self.engine.clients.get(self.client).expect("the client whose command runs")
    }

    /// The client that asked.
    pub fn client_mut(&mut self) -> &mut Client {
        self.engine.clients.get_mut(self.client).expect("the client whose command runs")
    }

    /// The protocol the reply is for: the script's if a script asks, else the client's.
    pub fn protocol(&self) -> Protocol {
        match (&self.engine.script, self.caller) {
            (Some(script), Caller::Script) => script.protocol,
            _ => self.client().protocol,
        }
    }

    /// Selects a database for the commands that follow.
    pub fn select(&mut self, database: usize) {
        self.database = database;
        match (&mut self.engine.script, self.caller) {
            (Some(script), Caller::Script) => script.database = database,
            _ => self.client_mut().database = database,
        }
    }

    /// Does something in another database, without selecting it.
    pub fn within<T>(&mut self, database: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let selected = std::mem::replace(&mut self.database, database);
        let result = work(self);
        self.database = selected;
        result
    }

    /// Whether a command that would block must answer at once instead.
    pub fn may_not_block(&self) -> bool {
        self.caller != Caller::Client
    }

    // --- looking ---

    /// The slot of a key that is alive. Does not count as a use or as a hit.
    pub fn find(&mut self, key: &[u8]) -> Option<Slot> {
        self.engine.find_alive(self.database, key, self.time)
    }

    /// The slot of a key, for a command that reads about it: a hit or a miss, but not a use.
    pub fn find_for_read(&mut self, key: &[u8]) -> Option<Slot> {
        let Some(slot) = self.find(key) else {
            self.engine.stats.keyspace_misses += 1;
            self.engine.notify(Events::KEY_MISS, "keymiss", self.database, key);
            return None;
        };
        self.engine.stats.keyspace_hits += 1;
        Some(slot)
    }

    /// The slot of a key, for a command that changes it.
    pub fn find_for_write(&mut self, key: &[u8]) -> Option<Slot> {
        let slot = self.find(key)?;
        self.mark_used(slot);
        Some(slot)
    }

    /// The value of a key, for a command that reads it.
    pub fn read(&mut self, key: &[u8]) -> Option<&Value> {
        let slot = self.find_for_read(key)?;
        self.mark_used(slot);
        Some(&self.record(slot).value)
    }

    /// The value of a key, for a command that changes it.
    pub fn write(&mut self, key: &[u8]) -> Option<&mut Value> {
        let slot = self.find_for_write(key)?;
        Some(&mut self.engine.keyspace.database_mut(self.database).record_mut(slot).value)
    }

    /// What stands in a slot of the selected database that has just been found.
    pub fn record(&self, slot: Slot) -> &Record {
        self.engine.keyspace.database(self.database).record(slot)
    }

    /// The string at a key.
    pub fn read_string(&mut self, key: &[u8]) -> Result<Option<&StringValue>, Error> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(Error::WrongType),
        }
    }

    /// The string at a key, to be changed.
    pub fn write_string(&mut self, key: &[u8]) -> Result<Option<&mut StringValue>, Error> {
        match self.write(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(Error::WrongType),
        }
    }

    /// The hash at a key.
    pub fn read_hash(&mut self, key: &[u8]) -> Result<Option<&Hash>, Error> {
        match self.read(key) {
            None => Ok(None),
            Some(Value::Hash(value)) => Ok(Some(value)),
            Some(_) => Err(Error::WrongType),
        }
    }

    /// The hash at a key, to be changed.
    pub fn write_hash(&mut self, key: &[u8]) -> Result<Option<&mut Hash>, Error> {
        match self.write(key) {
            None => Ok(None),
            Some(Value::Hash(value)) => Ok(Some(value)),
            Some(_) => Err(Error::WrongType),
        }
    }

    /// The deadline of a key that is alive: `None` if there is no such key, `Some(None)` if it has
    /// no deadline.
    pub fn deadline(&mut self, key: &[u8]) -> Option<Option<Millis>> {
        let slot = self.find(key)?;
        Some(self.record(slot).deadline())
    }

    // --- changing ---

    /// Sets a key to a new value without a deadline, whatever it held before.
    pub fn set(&mut self, key: &[u8], value: Value) {
        if let Some(slot) = self.replace(key, value) {
            self.set_deadline_at(slot, None);
        }
    }

    /// Sets a key to a new value and keeps its deadline; returns its slot if it was there before.
    pub fn replace(&mut self, key: &[u8], value: Value) -> Option<Slot> {
        let found = self.find(key);
        self.put(key, found, value);
        found
    }

    /// Sets a key that has just been found, or found missing, to a new value and keeps its
    /// deadline; returns its slot.
    pub fn put(&mut self, key: &[u8], found: Option<Slot>, value: Value) -> Slot {
        let Some(slot) = found else { return self.add(key, value) };
        let now = self.time.now;
        let record = self.engine.keyspace.database_mut(self.database).record_mut(slot);
        record.value = value;
        record.used_at = now;
        slot
    }

    /// The hash at a key, to be given fields; an empty one is added where there is nothing.
    pub fn open_hash(&mut self, key: &[u8]) -> Result<&mut Hash, Error> {
        let slot = match self.find(key) {
            Some(slot) => slot,
            None => self.add(key, Value::Hash(Hash::default())),
        };
        self.mark_used(slot);
        match &mut self.engine.keyspace.database_mut(self.database).record_mut(slot).value {
            Value::Hash(hash) => Ok(hash),
            _ => Err(Error::WrongType),
        }
    }

    /// Adds a key that is known to be absent.
    pub fn add(&mut self, key: &[u8], value: Value) -> Slot {
        let slot = self.engine.keyspace.add(self.database, key, value, self.time);
        self.engine.notify(Events::NEW, "new", self.database, key);
        slot
    }

    /// Removes a key; returns its value and deadline. Says nothing to watchers or subscribers.
    pub fn remove(&mut self, key: &[u8]) -> Option<(Value, Option<Millis>)> {
        let slot = self.find(key)?;
        let wheel = &mut self.engine.wheel;
        let (_, record) = self.engine.keyspace.remove(self.database, slot, wheel);
        let deadline = record.deadline();
        Some((record.value, deadline))
    }

    /// Sets or clears the deadline of a key; false if there is no such key.
    pub fn set_deadline(&mut self, key: &[u8], deadline: Option<Millis>) -> bool {
        match self.find(key) {
            Some(slot) => {
                self.set_deadline_at(slot, deadline);
                true
            }
            None => false,
        }
    }

    /// Sets or clears the deadline of the key in `slot`.
    pub fn set_deadline_at(&mut self, slot: Slot, deadline: Option<Millis>) {
        let wheel = &mut self.engine.wheel;
        self.engine.keyspace.set_deadline(self.database, slot, deadline, wheel);
    }

    /// Tells watchers and subscribers that a key has changed, and counts the change.
    pub fn changed(&mut self, kind: Events, event: &str, key: &[u8]) {
        self.engine.dirty += 1;
        self.engine.touch(self.database, key);
        self.engine.notify(kind, event, self.database, key);
    }

    fn mark_used(&mut self, slot: Slot) {
        let now = self.time.now;
        if self.client().no_touch {
            return;
        }
        self.engine.keyspace.database_mut(self.database).record_mut(slot).used_at = now;
    }
}

/// Reads an integer argument.
pub fn integer(argument: &[u8]) -> Result<i64, Error> {
    number::parse_integer(argument).ok_or(Error::NotAnInteger)
}

/// Whether an argument is the option `word`, in any case.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
