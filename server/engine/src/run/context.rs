//! The context of a command's handler: the engine, the caller, the time, and safe ways to read and
//! change keys.
//!
//! Invariant: a handler accesses keys only through this type, so that it never sees an expired key.

use lockwheel_resp::{Protocol, Reply};

use crate::Engine;
use crate::command::syntax_error;
use crate::command::{Caller, Command};
use crate::error::Error;
use crate::sessions::waiters::WaitCondition;
use crate::sessions::{ClientId, Session};
use crate::store::counter::increment;
use crate::store::dict::Slot;
use crate::store::edit::{Edit, HashEdit};
use crate::store::effects::Place;
use crate::store::events::Events;
use crate::store::records::{NewValue, Record};
use crate::store::value::{OutOfLine, Typed, ValueRef};
use crate::timing::time::{Millis, Time};

/// See the module's documentation.
pub struct Context<'a> {
    /// The engine.
    pub engine: &'a mut Engine,
    /// The client that sent the request, transaction or script.
    pub client: ClientId,
    /// How the command was called.
    pub caller: Caller,
    /// The selected database.
    pub database: usize,
    /// The time: the same for a whole transaction or script.
    pub time: Time,
    /// The row of the command.
    pub command: &'static Command,
    /// The full name: `incr`, or `client|id` for a subcommand.
    pub name: &'static str,
}

impl Context<'_> {
    /// The client of the request. It stays connected while its command runs.
    pub fn client(&self) -> &Session {
        self.engine.sessions.get(self.client).expect("the client of the running command")
    }

    /// The client of the request, mutable.
    pub fn client_mut(&mut self) -> &mut Session {
        self.engine.sessions.get_mut(self.client).expect("the client of the running command")
    }

    /// The protocol of the reply: the script's for a call from a script, otherwise the client's.
    pub fn protocol(&self) -> Protocol {
        match (&self.engine.script, self.caller) {
            (Some(script), Caller::Script) => script.protocol,
            _ => self.client().protocol,
        }
    }

    /// The error for the arguments of a subcommand: names the word that its row does not allow.
    pub(crate) fn syntax_error(&self, argv: &[&[u8]]) -> Error {
        syntax_error::explain(self.command.arguments, argv.get(2..).unwrap_or_default())
    }

    /// Selects a database for the commands that follow.
    pub fn select(&mut self, database: usize) {
        self.database = database;
        if self.caller != Caller::Script {
            self.client_mut().database = database;
        }
    }

    /// Runs `work` in another database, without selecting it.
    pub fn within<T>(&mut self, database: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let selected = std::mem::replace(&mut self.database, database);
        let result = work(self);
        self.database = selected;
        result
    }

    /// Whether a command that would block must reply at once instead.
    pub fn may_not_block(&self) -> bool {
        matches!(self.caller, Caller::Transaction | Caller::Script)
    }

    /// Blocks the client until a key meets the condition, or until `deadline`. Then `argv` is run
    /// for the client: the command itself, or one that names its start more exactly. For commands
    /// that have changed nothing; they return the result of this function, `Reply::NOTHING`. `None`
    /// if the client may not block.
    pub fn wait_for(
        &mut self,
        condition: WaitCondition<'_>,
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) -> Option<Reply> {
        match self.caller {
            Caller::Transaction | Caller::Script | Caller::TimedOutWaiter => return None,
            // The client keeps its position in all queues and its deadline.
            Caller::Waiter => {}
            Caller::Client => {
                self.engine.block_for_keys(self.client, self.database, condition, deadline, argv);
            }
        }
        Some(Reply::NOTHING)
    }

    // --- reading ---

    /// The slot of a live key. Counts neither as a use nor as a hit.
    #[inline]
    pub fn find(&mut self, key: &[u8]) -> Option<Slot> {
        self.engine.find_alive(self.database, key, self.time)
    }

    /// The slot of a key, for a command that reads its metadata: counts as a hit or a miss, but not
    /// as a use.
    #[inline]
    pub fn find_for_read(&mut self, key: &[u8]) -> Option<Slot> {
        let found = self.find(key);
        self.count_read(key, found);
        found
    }

    /// The slot of a key, for a command that reads its value.
    #[inline]
    pub fn read_slot(&mut self, key: &[u8]) -> Option<Slot> {
        let found = self.find_for_write(key);
        self.count_read(key, found);
        found
    }

    /// Counts a hit or a miss.
    #[inline(always)]
    pub fn count_read(&mut self, key: &[u8], found: Option<Slot>) {
        if found.is_some() {
            increment(&mut self.engine.stats.keyspace_hits);
        } else {
            increment(&mut self.engine.stats.keyspace_misses);
            self.event(Events::KEY_MISS, "keymiss", key);
        }
    }

    /// The slot of a key, for a command that changes it: a use of the key.
    #[inline]
    pub fn find_for_write(&mut self, key: &[u8]) -> Option<Slot> {
        // Checked first, since clients rarely use `CLIENT NO-TOUCH`.
        if self.engine.sessions.clients.no_touch_asked && self.client().no_touch {
            return self.find(key);
        }
        self.use_now(key)
    }

    /// As [`Context::find_for_write`], even if the client has set `CLIENT NO-TOUCH`.
    #[inline]
    pub fn use_now(&mut self, key: &[u8]) -> Option<Slot> {
        self.engine.look_up::<true>(self.database, key, self.time)
    }

    /// The value of a key, for a command that reads it.
    #[inline(always)]
    pub fn read(&mut self, key: &[u8]) -> Option<ValueRef<'_>> {
        let slot = self.read_slot(key)?;
        Some(self.record(slot).value())
    }

    /// Part of the value of a key as a reply, for a command that reads it.
    pub fn reply_with(
        &mut self,
        key: &[u8],
        part: impl FnOnce(ValueRef<'_>) -> Result<Option<&[u8]>, Error>,
    ) -> Result<Reply, Error> {
        let Some(slot) = self.read_slot(key) else { return Ok(Reply::Null) };
        let Engine { writer, replies, .. } = &mut *self.engine;
        let part = part(writer.keyspace().database(self.database).record(slot).value())?;
        Ok(part.map_or(Reply::Null, |bytes| replies.bulk(bytes)))
    }

    /// The record in a slot of the selected database. The slot must have just been found.
    #[inline(always)]
    pub fn record(&self, slot: Slot) -> Record<'_> {
        self.engine.writer.keyspace().database(self.database).record(slot)
    }

    /// The value of a key that must be of one type, for a command that reads it.
    #[inline(always)]
    pub fn read_as<T: Typed>(&mut self, key: &[u8]) -> Result<Option<T::View<'_>>, Error> {
        match self.read(key).map(T::of) {
            Some(None) => Err(Error::WrongType),
            found => Ok(found.flatten()),
        }
    }

    /// The values of several keys. Those that exist must be of one type.
    pub fn read_all_as<T: Typed>(
        &mut self,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<T::View<'_>>>, Error> {
        let mut slots = Vec::with_capacity(keys.len());
        for key in keys {
            let slot = self.read_slot(key);
            if slot.is_some_and(|slot| T::of(self.record(slot).value()).is_none()) {
                return Err(Error::WrongType);
            }
            slots.push(slot);
        }
        Ok(slots.into_iter().map(|slot| T::of(self.record(slot?).value())).collect())
    }

    /// The slot and the value of a key that must be of one type, for a command that changes it.
    pub fn find_to_write<T: Typed>(
        &mut self,
        key: &[u8],
    ) -> Result<Option<(Slot, T::View<'_>)>, Error> {
        let Some(slot) = self.find_for_write(key) else { return Ok(None) };
        match T::of(self.record(slot).value()) {
            Some(value) => Ok(Some((slot, value))),
            None => Err(Error::WrongType),
        }
    }

    /// The value of a key that must be of one type, for a command that changes it.
    pub fn write_as<'c, T: OutOfLine>(
        &'c mut self,
        key: &'c [u8],
    ) -> Result<Option<Edit<'c, T>>, Error> {
        let Some(slot) = self.find_for_write(key) else { return Ok(None) };
        let edit = self.engine.writer.edit(self.database, slot, key);
        edit.ok_or(Error::WrongType).map(Some)
    }

    /// The hash of a key, for a command that changes it.
    #[inline(always)]
    pub fn write_hash<'c>(&'c mut self, key: &'c [u8]) -> Result<Option<HashEdit<'c>>, Error> {
        let Some(slot) = self.find_for_write(key) else { return Ok(None) };
        let edit = self.engine.writer.edit_hash(self.database, slot, key);
        edit.ok_or(Error::WrongType).map(Some)
    }

    /// As [`Writer::patch`], for a string in a slot that has just been found.
    ///
    /// [`Writer::patch`]: crate::store::writer::Writer::patch
    pub fn patch(&mut self, slot: Slot, offset: usize, bytes: &[u8]) -> Result<usize, Error> {
        let patched = self.engine.writer.patch(self.database, slot, offset, bytes);
        patched.map_err(|_| Error::OutOfMemory)
    }

    /// As [`Writer::touch`].
    ///
    /// [`Writer::touch`]: crate::store::writer::Writer::touch
    pub fn touch(&mut self, key: &[u8]) {
        self.engine.writer.touch(self.database, key);
    }

    /// The deadline of the key in a slot that has just been found.
    #[inline]
    pub fn deadline_at(&self, slot: Slot) -> Option<Millis> {
        self.engine.writer.keyspace().database(self.database).records().deadline(slot)
    }

    /// The deadline of a live key: `None` if there is no such key, `Some(None)` if it has no
    /// deadline.
    pub fn deadline(&mut self, key: &[u8]) -> Option<Option<Millis>> {
        let slot = self.find(key)?;
        Some(self.deadline_at(slot))
    }

    // --- changing ---

    /// Refuses the command if the key in `slot` holds a native lock; `instead` is what to use.
    #[inline(always)]
    pub fn refuse_lock(&self, slot: Slot, instead: &'static str) -> Result<(), Error> {
        let records = self.engine.writer.keyspace().database(self.database).records();
        if records.is_lock(slot) { Err(self.refusal_of_lock(instead)) } else { Ok(()) }
    }

    /// Refuses the command if a native lock was found: only its own commands replace or move it.
    #[inline(always)]
    pub fn expect_no_lock(&self, found: Option<Slot>) -> Result<(), Error> {
        found.map_or(Ok(()), |slot| self.refuse_lock(slot, "LOCK.RELEASE and LOCK.ACQUIRE"))
    }

    #[cold]
    #[inline(never)]
    fn refusal_of_lock(&self, instead: &'static str) -> Error {
        let name = self.name.to_ascii_uppercase();
        Error::text(format!("ERR the key holds a lock: use {instead} instead of {name}"))
    }

    /// Sets a key to a new value without a deadline. Any old value but a native lock is replaced.
    pub fn set(&mut self, key: &[u8], value: NewValue<'_>) -> Result<(), Error> {
        let found = self.find(key);
        self.expect_no_lock(found)?;
        let slot = self.put(key, found, value);
        if found.is_some() {
            self.set_deadline_at(slot, None);
        }
        Ok(())
    }

    /// As [`Context::set`], to no value: removes the key. Returns whether it existed.
    pub fn clear(&mut self, key: &[u8]) -> Result<bool, Error> {
        let found = self.find(key);
        self.expect_no_lock(found)?;
        Ok(self.remove(key))
    }

    /// Sets a key to a new value, keeps its deadline, and returns its slot. `found` is the result
    /// of looking the key up.
    #[inline(always)]
    pub fn put(&mut self, key: &[u8], found: Option<Slot>, value: NewValue<'_>) -> Slot {
        let Some(slot) = found else { return self.add(key, value) };
        self.engine.writer.set_value_used(self.database, slot, value, self.time.now);
        slot
    }

    /// Replaces the value of a key that has just been found and keeps its deadline.
    #[inline(always)]
    pub fn set_value(&mut self, slot: Slot, value: NewValue<'_>) {
        self.engine.writer.set_value(self.database, slot, value);
    }

    /// The value of a key, for adding elements; an empty value is created if the key does not
    /// exist.
    pub fn open<'c, T: OutOfLine + Default>(
        &'c mut self,
        key: &'c [u8],
    ) -> Result<Edit<'c, T>, Error> {
        let slot = match self.find_for_write(key) {
            Some(slot) => slot,
            None => self.add(key, NewValue::Value(T::default().into())),
        };
        self.engine.writer.edit(self.database, slot, key).ok_or(Error::WrongType)
    }

    /// Adds a key. It must not exist.
    pub fn add(&mut self, key: &[u8], value: NewValue<'_>) -> Slot {
        self.engine.writer.add(self.database, key, value, self.time.now)
    }

    /// Removes a key; returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let found = self.find(key);
        if let Some(slot) = found {
            self.engine.writer.remove(self.database, slot);
        }
        found.is_some()
    }

    /// Moves the key in `slot` with its deadline to a place where no key is.
    pub fn move_key(&mut self, slot: Slot, to: Place<'_>) {
        self.engine.writer.move_key(self.database, slot, to, self.time.now);
    }

    /// Copies the value and deadline of the key in `slot` to a place where no key is.
    pub fn copy_key(&mut self, slot: Slot, to: Place<'_>) {
        self.engine.writer.copy_key(self.database, slot, to, self.time.now);
    }

    /// Removes a key that has become empty, and publishes the event.
    pub fn remove_emptied(&mut self, key: &[u8]) {
        self.remove(key);
        self.event(Events::GENERIC, "del", key);
    }

    /// Sets or clears the deadline of the key in `slot`.
    #[inline]
    pub fn set_deadline_at(&mut self, slot: Slot, deadline: Option<Millis>) {
        self.engine.writer.set_deadline(self.database, slot, deadline);
    }

    /// Counts a change of a key, and publishes its event.
    #[inline]
    pub fn changed(&mut self, kind: Events, event: &str, key: &[u8]) {
        self.engine.writer.changed(kind, event, self.database, key);
    }

    /// Publishes a keyspace event.
    #[inline]
    pub fn event(&mut self, kind: Events, event: &str, key: &[u8]) {
        self.engine.writer.event(kind, event, self.database, key);
    }
}
