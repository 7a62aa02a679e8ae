//! Changing keys.

use super::Context;
use crate::Engine;
use crate::command::{Caller, Flags};
use crate::error::Error;
use crate::store::dict::Slot;
use crate::store::edit::{Edit, HashEdit};
use crate::store::effects::Place;
use crate::store::events::Events;
use crate::store::records::NewValue;
use crate::store::value::{OutOfLine, Typed};
use crate::timing::time::Millis;

impl Context<'_> {
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

    /// Whether the call is a plain write, if it has no condition: see [`Flags::PLAIN_WRITE`].
    pub fn writes_plainly(&self) -> bool {
        self.caller == Caller::Client && self.command.flags.contains(Flags::PLAIN_WRITE)
    }

    /// As [`Writer::set_plain`].
    ///
    /// [`Writer::set_plain`]: crate::store::writer::Writer::set_plain
    pub fn set_plain(&mut self, slot: Slot, is_plain: bool) {
        self.engine.writer.set_plain(self.database, slot, is_plain);
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

    /// As [`Context::remove`]; counts the change, and publishes its event.
    #[inline]
    pub fn remove_and_notify(&mut self, key: &[u8]) -> bool {
        let is_removed = self.remove(key);
        if is_removed {
            self.changed(Events::GENERIC, "del", key);
        }
        is_removed
    }

    /// Removes the key in `slot`, which has reached its deadline.
    pub fn remove_expired(&mut self, slot: Slot) {
        self.engine.expire(self.database, slot);
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

    /// Sets when the key in `slot` was last used or, if that is not counted, how often it is.
    pub fn set_usage(&mut self, slot: Slot, idle: Millis, frequency: Option<u8>) {
        let (writer, database, now) = (&mut self.engine.writer, self.database, self.time.now);
        match (writer.keyspace().access_counter(), frequency) {
            (None, _) => writer.set_idle(database, slot, idle, now),
            (Some(_), Some(frequency)) => writer.set_frequency(database, slot, frequency, now),
            (Some(_), None) => {}
        }
    }

    // --- whole databases ---

    /// Removes all keys of a database.
    pub fn flush(&mut self, database: usize) {
        self.engine.writer.flush(database);
    }

    /// Swaps two databases, for all clients.
    pub fn swap_databases(&mut self, first: usize, second: usize) {
        let Engine { writer, sessions, .. } = &mut *self.engine;
        writer.swap(first, second);
        sessions.bindings.swap_databases(first, second);
        sessions.swap_hold_ends(first, second);
    }

    // --- counting ---

    /// Counts changes that have no event.
    pub fn count_changes(&mut self, count: u64) {
        self.engine.writer.count_changes(count);
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
