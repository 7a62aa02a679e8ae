//! The only way to change the state. Each change is recorded as an [`Effect`], if there is a
//! consumer of effects; otherwise a change costs one test of a flag more.
//!
//! The mutators of the keyspace and of stored values are private to the store, so a change without
//! an effect does not compile outside it:
//!
//! ```compile_fail,E0616
//! fn handler(writer: &mut lockwheel_engine::store::writer::Writer) {
//!     writer.state.keyspace.clear(0);
//! }
//! ```
//! ```compile_fail,E0624
//! use lockwheel_engine::store::Keyspace;
//! fn handler(keyspace: &mut Keyspace) {
//!     keyspace.clear(0);
//! }
//! ```
//! ```compile_fail,E0596
//! use lockwheel_engine::store::{edit::Edit, list::{End, List}};
//! fn handler(edit: &mut Edit<'_, List>) {
//!     List::push(edit, End::Left, b"element");
//! }
//! ```
//!
//! [`State`] documents what belongs to the state.

use std::collections::TryReserveError;

use super::access_frequency::AccessCounter;
use super::apply::ApplyError;
use super::dict::Slot;
use super::edit::{Edit, HashEdit, Recorder};
use super::effects::image::Image;
use super::effects::{Effect, Effects, Place};
use super::libraries::Libraries;
use super::lock_notes::{Author, LockEventKind, LockNotes, MadeBy, OwnerChange};
use super::records::NewValue;
use super::snapshot::{Snapshot, SnapshotProgress};
use super::state::State;
use super::value::OutOfLine;
use super::{Due, Keyspace};
use crate::store::counter::increment;
use crate::store::events::Events;
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

/// Access for changes of the state, which it records as effects.
pub struct Writer {
    pub(super) state: State,
    effects: Effects,
    /// The bytes of the effects that consumers of each command have read.
    observed: usize,
    is_recording: bool,
    events: Events,
    dirty: u64,
    /// The snapshot that is being given out.
    snapshot: Option<Box<Snapshot>>,
    /// The notes for the lock view, if there is one.
    lock_notes: Option<Box<LockNotes>>,
    /// A number above those of the events of earlier notes.
    next_lock_event: u64,
    author: Author,
}

// --- consumers ---

impl Writer {
    /// A writer to this state; `events` are the classes of keyspace events that are published.
    pub fn new(state: State, events: Events) -> Writer {
        let effects = Effects::default();
        Writer {
            state,
            effects,
            observed: 0,
            is_recording: false,
            events,
            dirty: 0,
            snapshot: None,
            lock_notes: None,
            next_lock_event: 0,
            author: Author::NONE,
        }
    }

    /// The databases.
    #[inline(always)]
    pub fn keyspace(&self) -> &Keyspace {
        &self.state.keyspace
    }

    /// The function libraries; `None` while a function runs.
    #[inline]
    pub fn libraries(&self) -> Option<&Libraries> {
        self.state.libraries.as_ref()
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The number of changes since the start, as Redis counts them.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Whether effects are recorded.
    pub fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Turns the recording of effects on or off.
    pub fn set_recording(&mut self, on: bool) {
        self.is_recording = on;
    }

    /// The classes of keyspace events that are recorded.
    #[inline]
    pub fn events(&self) -> Events {
        self.events
    }

    /// Sets the classes of keyspace events that are recorded.
    pub fn set_events(&mut self, events: Events) {
        self.events = events;
    }

    /// Whether there are effects that [`Writer::take_unobserved`] has not returned yet.
    #[inline]
    pub fn has_unobserved(&self) -> bool {
        self.effects.bytes().len() > self.observed
    }

    /// The effects since the last call, and where they begin in their bytes. To be returned with
    /// [`Writer::put_back`]; no state may be changed meanwhile.
    pub fn take_unobserved(&mut self) -> (Effects, usize) {
        let start = std::mem::replace(&mut self.observed, self.effects.split());
        (std::mem::take(&mut self.effects), start)
    }

    /// Returns effects that were taken.
    pub fn put_back(&mut self, effects: Effects) {
        debug_assert!(self.effects.is_empty(), "a consumer of effects has changed the state");
        self.effects = effects;
    }

    /// Records no effects with this tag.
    #[cfg(test)]
    pub(crate) fn leave_out(&mut self, tag: u8) {
        self.effects.left_out = Some(tag);
    }

    /// The effects of the unit.
    #[inline]
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Ends the unit and returns its effects. To be returned with [`Writer::reuse`].
    pub fn take_committed(&mut self) -> Effects {
        self.observed = 0;
        std::mem::take(&mut self.effects)
    }

    /// Returns the buffer of effects that were committed.
    pub fn reuse(&mut self, mut effects: Effects) {
        debug_assert!(self.effects.is_empty(), "a consumer of effects has changed the state");
        effects.clear();
        self.effects = effects;
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self, database: usize, key: &[u8], effect: &Effect<'_>) {
        self.effects.push(Place { database, key }, effect);
    }

    /// As `record`, for the key in a slot, which is about to be changed.
    #[cold]
    #[inline(never)]
    fn record_at(&mut self, database: usize, slot: Slot, effect: &Effect<'_>) {
        self.save(database, slot);
        let key = self.state.keyspace.database(database).key(slot);
        self.effects.push(Place { database, key }, effect);
    }

    /// Passes the key in `slot` to the snapshot before it is changed.
    #[cold]
    #[inline(never)]
    fn save(&mut self, database: usize, slot: Slot) {
        if let Some(snapshot) = &mut self.snapshot
            && !defect!(SnapshotMissesChanges)
        {
            snapshot.save(&self.state.keyspace, database, slot);
        }
    }

    /// Makes the snapshot void, since it cannot follow a change of whole databases.
    fn make_snapshot_void(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.make_void();
        }
    }

    /// Records a keyspace event, if events of its class are published.
    #[inline]
    pub fn event(&mut self, kind: Events, name: &str, database: usize, key: &[u8]) {
        if self.events.contains(kind) {
            self.record(database, key, &Effect::Event { kind, name: name.as_bytes() });
        }
    }

    /// Counts changes that have no event.
    pub fn count_changes(&mut self, count: u64) {
        self.dirty += count;
    }

    /// Counts a change, and records its event.
    #[inline]
    pub fn changed(&mut self, kind: Events, event: &str, database: usize, key: &[u8]) {
        increment(&mut self.dirty);
        self.event(kind, event, database, key);
    }
}

// --- keys ---

impl Writer {
    /// Adds a key that is known to be absent.
    #[inline(always)]
    pub fn add(&mut self, database: usize, key: &[u8], value: NewValue<'_>, now: Millis) -> Slot {
        self.event(Events::NEW, "new", database, key);
        let may_be_lock = self.author.made_by != MadeBy::Command && value.may_be_lock();
        let slot = if self.is_recording {
            self.add_recorded(database, key, value, now)
        } else {
            self.state.keyspace.add(database, key, value, now)
        };
        if may_be_lock && let Some(notes) = &mut self.lock_notes {
            notes.made(database, slot, key, self.author);
        }
        slot
    }

    #[cold]
    #[inline(never)]
    fn add_recorded(
        &mut self,
        database: usize,
        key: &[u8],
        value: NewValue<'_>,
        now: Millis,
    ) -> Slot {
        self.record(database, key, &Effect::Set { value: Image::New(&value) });
        let slot = self.state.keyspace.add(database, key, value, now);
        if let Some(snapshot) = &mut self.snapshot
            && !defect!(SnapshotHasLaterKeys)
        {
            snapshot.leave_out(database, slot);
        }
        slot
    }

    /// Gives the key in `slot` another value. Its deadline stays; it is not plain any more.
    #[inline(always)]
    pub fn set_value(&mut self, database: usize, slot: Slot, value: NewValue<'_>) {
        if self.is_recording {
            self.record_value(database, slot, &value);
        }
        self.state.keyspace.set_value(database, slot, value);
        if let Some(notes) = &mut self.lock_notes
            && notes.has(database, slot)
        {
            let records = self.state.keyspace.database(database).records();
            notes.value_set(database, slot, records, self.author);
        }
    }

    #[cold]
    fn record_value(&mut self, database: usize, slot: Slot, value: &NewValue<'_>) {
        self.set_plain(database, slot, false);
        self.record_at(database, slot, &Effect::Set { value: Image::New(value) });
    }

    /// Sets whether the key in `slot` is plain: no lock, since only plain writes have made it.
    pub fn set_plain(&mut self, database: usize, slot: Slot, is_plain: bool) {
        if self.state.keyspace.database(database).records().is_plain(slot) == is_plain {
            return;
        }
        if self.is_recording {
            self.record_at(database, slot, &Effect::Plain { is_plain });
        }
        self.state.keyspace.database_mut(database).records_mut().set_plain(slot, is_plain);
    }

    /// As [`Writer::set_value`], and records that the key is used now.
    #[inline(always)]
    pub fn set_value_used(
        &mut self,
        database: usize,
        slot: Slot,
        value: NewValue<'_>,
        now: Millis,
    ) {
        self.set_value(database, slot, value);
        self.state.keyspace.set_used_at(database, slot, now);
    }

    /// Removes the key in `slot`.
    #[inline]
    pub fn remove(&mut self, database: usize, slot: Slot) {
        if self.is_recording {
            self.record_at(database, slot, &Effect::Deleted {});
        }
        self.note_removed(database, slot, LockEventKind::Released);
        self.state.keyspace.discard(database, slot);
    }

    /// Removes a key whose deadline has been reached.
    pub fn remove_expired(&mut self, database: usize, due: Due) {
        increment(&mut self.dirty);
        if self.is_recording {
            let deadline = self.state.keyspace.database(database).records().deadline(due.slot);
            let deadline = deadline.unwrap_or(Millis(0));
            self.record_at(database, due.slot, &Effect::Expired { deadline });
        }
        if self.events.contains(Events::EXPIRED) {
            let event = Effect::Event { kind: Events::EXPIRED, name: b"expired" };
            self.record_at(database, due.slot, &event);
        }
        self.note_removed(database, due.slot, LockEventKind::Expired);
        self.state.keyspace.discard_due(database, due);
    }

    /// Moves the key in `slot` with its deadline to a place where no key is.
    pub fn move_key(&mut self, database: usize, slot: Slot, to: Place<'_>, now: Millis) {
        self.event(Events::NEW, "new", to.database, to.key);
        if self.is_recording {
            let Place { database: to_database, key } = to;
            self.record_at(database, slot, &Effect::Moved { database: to_database, key });
        }
        let from = (database, slot);
        let slot = self.state.keyspace.move_key(database, slot, to, now);
        if let Some(notes) = &mut self.lock_notes {
            notes.moved(from, (to.database, slot), to.key, self.author);
        }
        if let Some(snapshot) = &mut self.snapshot
            && !defect!(SnapshotHasLaterKeys)
        {
            snapshot.leave_out(to.database, slot);
        }
    }

    /// Copies the value and deadline of the key in `slot` to a place where no key is.
    pub fn copy_key(&mut self, database: usize, slot: Slot, to: Place<'_>, now: Millis) {
        self.event(Events::NEW, "new", to.database, to.key);
        if self.is_recording {
            let Place { database: to_database, key } = to;
            self.record_at(database, slot, &Effect::Copied { database: to_database, key });
        }
        let slot = self.state.keyspace.copy_key(database, slot, to, now);
        if let Some(snapshot) = &mut self.snapshot
            && !defect!(SnapshotHasLaterKeys)
        {
            snapshot.leave_out(to.database, slot);
        }
    }

    /// Sets or removes the deadline of the key in `slot`.
    #[inline]
    pub fn set_deadline(&mut self, database: usize, slot: Slot, deadline: Option<Millis>) {
        if self.is_recording {
            self.record_deadline(database, slot, deadline);
        }
        if let Some(notes) = &mut self.lock_notes {
            let records = self.state.keyspace.database(database).records();
            notes.lease_set(database, slot, deadline, records, self.author);
        }
        self.state.keyspace.set_deadline(database, slot, deadline);
    }

    #[cold]
    fn record_deadline(&mut self, database: usize, slot: Slot, deadline: Option<Millis>) {
        let before = self.state.keyspace.database(database).records().deadline(slot);
        if deadline.is_some() || before.is_some() {
            self.record_at(database, slot, &Effect::Deadline { deadline });
        }
    }

    // --- values ---

    /// The value of the key in `slot`, to be changed; `None` if it is of another type.
    pub fn edit<'a, T: OutOfLine>(
        &'a mut self,
        database: usize,
        slot: Slot,
        key: &'a [u8],
    ) -> Option<Edit<'a, T>> {
        if self.is_recording {
            self.save(database, slot);
        }
        let value = self.state.keyspace.database_mut(database).records_mut().value_mut(slot)?;
        let effects = self.is_recording.then_some(&mut self.effects);
        Some(Edit::new(value, Recorder::new(effects, Place { database, key })))
    }

    /// The hash of the key in `slot`, to be changed; `None` if it is of another type.
    #[inline]
    pub fn edit_hash<'a>(
        &'a mut self,
        database: usize,
        slot: Slot,
        key: &'a [u8],
    ) -> Option<HashEdit<'a>> {
        if self.is_recording {
            self.save(database, slot);
        }
        self.author.edit(slot, OwnerChange::Acquired);
        let hash = self.state.keyspace.database_mut(database).records_mut().hash_mut(slot)?;
        let effects = self.is_recording.then_some(&mut self.effects);
        Some(HashEdit::new(hash, Recorder::new(effects, Place { database, key })))
    }

    /// Overwrites bytes of the string in `slot`, which is extended by zeros to `offset` and then by
    /// the bytes. Without bytes, the string only takes the form that can be changed in place.
    /// Returns the new length. It is an error if there is no memory for it.
    pub fn patch(
        &mut self,
        database: usize,
        slot: Slot,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, TryReserveError> {
        if self.is_recording {
            self.save(database, slot);
            self.set_plain(database, slot, false);
        }
        let length =
            self.state.keyspace.database_mut(database).records_mut().patch(slot, offset, bytes)?;
        if self.is_recording {
            self.record_at(database, slot, &Effect::Patched { offset, bytes });
        }
        Ok(length)
    }

    /// Records that the key counts as changed, although its value has not.
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        if self.is_recording {
            self.record(database, key, &Effect::Touched {});
        }
    }

    /// Records that a message was sent to the subscribers of a channel.
    pub fn publish(&mut self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        self.record(0, channel, &Effect::Published { is_sharded, message });
    }

    // --- locks ---

    /// The last fencing token that was given out; 0 for none.
    pub fn last_token(&self) -> u64 {
        self.state.last_token
    }

    /// Makes the fencing tokens that follow greater than `floor`. There is no effect: the next
    /// snapshot records it.
    pub fn raise_tokens(&mut self, floor: u64) {
        self.state.last_token = self.state.last_token.max(floor);
    }

    /// Gives out the next fencing token, which is greater than `floor`. The effect of the grant
    /// that follows records it.
    pub fn issue_token(&mut self, floor: u64) -> u64 {
        self.state.last_token = self.state.last_token.max(floor).saturating_add(1);
        self.state.last_token
    }

    // --- databases ---

    /// Removes all keys of a database; returns their number.
    pub fn flush(&mut self, database: usize) -> usize {
        if self.is_recording {
            self.record(database, &[], &Effect::Flushed {});
            self.make_snapshot_void();
        }
        let removed = self.state.keyspace.clear(database);
        if let Some(notes) = &mut self.lock_notes {
            notes.flushed(database, self.author);
        }
        self.dirty += removed as u64;
        removed
    }

    /// Swaps two databases.
    pub fn swap(&mut self, database: usize, with: usize) {
        increment(&mut self.dirty);
        if database == with {
            return;
        }
        if self.is_recording {
            self.record(database, &[], &Effect::Swapped { with });
            self.make_snapshot_void();
        }
        self.state.keyspace.swap(database, with);
        if let Some(notes) = &mut self.lock_notes {
            notes.swapped(database, with, self.author);
        }
    }

    /// Moves the deadlines of all keys.
    pub fn postpone(&mut self, span: Millis) {
        if self.is_recording {
            self.record(0, &[], &Effect::Postponed { span });
            self.make_snapshot_void();
        }
        self.state.keyspace.postpone(span);
    }

    // --- functions ---

    /// Records a change of the function libraries or of the users.
    pub(super) fn record_global(&mut self, effect: &Effect<'_>) {
        if self.is_recording {
            self.record(0, &[], effect);
        }
    }

    /// Takes the function libraries out, to call a function. To be returned with
    /// [`Writer::return_libraries`].
    pub fn take_libraries(&mut self) -> Option<Libraries> {
        self.state.libraries.take()
    }

    /// Returns function libraries that were taken.
    pub fn return_libraries(&mut self, libraries: Libraries) {
        debug_assert!(self.state.libraries.is_none(), "only libraries that were taken");
        self.state.libraries = Some(libraries);
    }

    // --- snapshots ---

    /// Begins a snapshot of the state as it is now; one that was not complete is given up. From now
    /// on effects must be recorded until it is complete.
    pub fn begin_snapshot(&mut self) {
        self.snapshot = Some(Box::new(Snapshot::begin(&self.state)));
    }

    /// Passes the next part of the snapshot, with about `keys` keys, to `take`: effects in byte
    /// form. All parts in their order, applied to an empty state, give the state at its beginning.
    pub fn snapshot_part(&mut self, keys: usize, take: impl FnOnce(&[u8])) -> SnapshotProgress {
        let Some(snapshot) = &mut self.snapshot else { return SnapshotProgress::Void };
        let progress = snapshot.next_part(&self.state.keyspace, keys, take);
        if progress != SnapshotProgress::Partial {
            self.snapshot = None;
        }
        progress
    }

    /// Replaces the state by a copy that is made of a snapshot. Nothing has changed afterwards.
    ///
    /// # Errors
    /// If a snapshot is being given out. Then nothing is done.
    pub fn reload(&mut self, now: Millis) -> Result<(), &'static str> {
        if self.snapshot.is_some() {
            return Err("Background save already in progress");
        }
        let mut effects = Effects::default();
        effects.push(Place { database: 0, key: &[] }, &Effect::LibrariesFlushed {});
        let mut bytes = effects.bytes().to_vec();
        self.begin_snapshot();
        while self.snapshot_part(usize::MAX, |part| bytes.extend_from_slice(part))
            == SnapshotProgress::Partial
        {}
        for database in 0..self.state.keyspace.count() {
            self.state.keyspace.clear(database);
        }
        // The engine has written the effects just now.
        self.state.apply(&bytes, now).expect("effects of the state itself");
        self.set_lock_notes(self.lock_notes.is_some());
        Ok(())
    }

    /// Gives up a snapshot that is not complete.
    pub fn give_up_snapshot(&mut self) {
        self.snapshot = None;
    }

    // --- effects of another engine ---

    /// As [`State::apply`]. Records nothing and counts no changes.
    ///
    /// # Errors
    ///
    /// As those of [`State::apply`].
    pub fn apply(&mut self, effects: &[u8], now: Millis) -> Result<(), ApplyError> {
        self.state.apply(effects, now)
    }

    /// Removes all keys, functions and users, and records no effects. A snapshot that is being
    /// given out is void.
    ///
    /// # Errors
    ///
    /// As those of [`State::apply`].
    pub fn clear(&mut self, now: Millis) -> Result<(), ApplyError> {
        self.snapshot = None;
        self.state.users.clear();
        // The log has all tokens that clients were given.
        self.state.last_token = 0;
        let mut effects = Effects::default();
        for database in 0..self.state.keyspace.count() {
            effects.push(Place { database, key: &[] }, &Effect::Flushed {});
        }
        if self.state.libraries.is_some() {
            effects.push(Place { database: 0, key: &[] }, &Effect::LibrariesFlushed {});
        }
        self.state.apply(effects.bytes(), now)
    }
}

// --- the lock view ---

impl Writer {
    /// Turns the notes for the lock view on or off. If on, also finds the locks that are there.
    pub fn set_lock_notes(&mut self, on: bool) {
        if !on {
            let notes = self.lock_notes.take();
            self.next_lock_event = notes.map_or(self.next_lock_event, |it| it.sequence() + 1);
            return;
        }
        let keyspace = &self.state.keyspace;
        let earlier = self.next_lock_event;
        let new = || Box::new(LockNotes::new(keyspace.count(), keyspace.seed, earlier));
        let notes = self.lock_notes.get_or_insert_with(new);
        for number in 0..keyspace.count() {
            notes.find(number, keyspace.database(number).records(), self.author);
        }
    }

    /// The notes for the lock view, if they are on.
    pub fn lock_notes(&self) -> Option<&LockNotes> {
        self.lock_notes.as_deref()
    }

    /// Sets the request that makes the changes that follow.
    #[inline(always)]
    pub fn set_author(&mut self, author: Author) {
        self.author = author;
    }

    /// Sets what the keys that follow are made by.
    #[inline(always)]
    pub fn set_made_by(&mut self, made_by: MadeBy) {
        self.author.made_by = made_by;
    }

    /// Marks the keys that the command makes next as made only if they do not exist.
    #[inline(always)]
    pub fn make_conditional(&mut self) {
        if self.author.made_by == MadeBy::Command {
            self.author.made_by = MadeBy::Conditional;
        }
    }

    /// Notes how the owners of the lock in `slot` change, before the change.
    #[inline]
    pub fn change_owners(&mut self, slot: Slot, change: OwnerChange) {
        self.author.edit(slot, change);
    }

    /// Notes the end of the lease of one of several owners of the lock in `slot`: its client, and
    /// when it ended.
    pub fn hold_expired(&mut self, database: usize, slot: Slot, hold: (u64, Millis)) {
        if let Some(notes) = &mut self.lock_notes {
            let records = self.state.keyspace.database(database).records();
            notes.hold_expired(database, slot, records, hold);
        }
    }

    /// Notes that the author has tried to acquire the key in `slot`, if it is a lock.
    #[inline]
    pub fn refuse_lock(&mut self, database: usize, slot: Slot) {
        if let Some(notes) = &mut self.lock_notes {
            let records = self.state.keyspace.database(database).records();
            notes.refused(database, slot, records, self.author);
        }
    }

    /// Notes that the author waits for the release of a lock.
    pub fn wait_for_lock(&mut self, database: usize, key: &[u8]) {
        if let Some(notes) = &mut self.lock_notes {
            notes.push(LockEventKind::Waiting, database, key, self.author);
        }
    }

    #[inline(always)]
    fn note_removed(&mut self, database: usize, slot: Slot, kind: LockEventKind) {
        if let Some(notes) = &mut self.lock_notes
            && notes.has(database, slot)
        {
            let records = self.state.keyspace.database(database).records();
            notes.removed(database, slot, records, kind, self.author);
        }
    }
}

// --- what is not state ---

impl Writer {
    /// The slot of a key that is not expired, if the look-up is cached. If `IS_USE`, records that
    /// the key is used now.
    #[inline(always)]
    pub fn find_in_cache<const IS_USE: bool>(
        &mut self,
        database: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Option<Slot>> {
        self.state.keyspace.find_in_cache::<IS_USE>(database, key, time)
    }

    /// Whether the deadline of the key in `slot` has not been reached. If so and if `IS_USE`,
    /// records that the key is used now.
    #[inline(always)]
    pub fn is_alive<const IS_USE: bool>(
        &mut self,
        database: usize,
        slot: Slot,
        time: Time,
    ) -> bool {
        self.state.keyspace.is_alive::<IS_USE>(database, slot, time)
    }

    /// Sets whether [`Writer::find_in_cache`] finds nothing instead of what is cached.
    pub fn bypass_lookup_cache(&mut self, is_bypassed: bool) {
        self.state.keyspace.bypass_lookup_cache(is_bypassed);
    }

    /// Finds a key, expired or not, with the cache of recent look-ups.
    #[inline]
    pub fn find_cached(&mut self, database: usize, key: &[u8]) -> Option<Slot> {
        self.state.keyspace.find_cached(database, key)
    }

    /// Prefetches the records of keys.
    pub fn look_ahead(&mut self, database: usize, keys: &[&[u8]]) {
        self.state.keyspace.look_ahead(database, keys);
    }

    /// Sets the counter of uses of keys; `None` unless the policy is LFU.
    pub fn set_access_counter(&mut self, counter: Option<AccessCounter>) {
        self.state.keyspace.access_counter = counter.map(Box::new);
    }

    /// Sets the access frequency of the key in `slot`.
    pub fn set_frequency(&mut self, database: usize, slot: Slot, frequency: u8, now: Millis) {
        self.state.keyspace.set_frequency(database, slot, frequency, now);
    }

    /// Sets the idle time of the key in `slot`.
    pub fn set_idle(&mut self, database: usize, slot: Slot, idle: Millis, now: Millis) {
        self.state.keyspace.database_mut(database).records_mut().set_idle(slot, idle, now);
    }

    /// Turns the wheels on or off that remove keys at their deadline.
    pub fn set_active_expiry(&mut self, on: bool) {
        self.state.keyspace.set_active_expiry(on);
    }

    /// Records that everything due by `now` has been processed; returns whether the time has
    /// changed.
    pub fn advance(&mut self, now: Millis) -> bool {
        self.state.keyspace.advance(now)
    }

    /// Processes the next thing that is due at `moment`. Fills `due` with expired keys of one
    /// database and returns its number. The keys are still stored, but without their timers.
    pub fn pop_due(
        &mut self,
        moment: Millis,
        budget: &mut u32,
        due: &mut Vec<Due>,
    ) -> Option<usize> {
        self.state.keyspace.pop_due(moment, budget, due)
    }

    /// Prepares for times at which many keys are due, if none is due now, in at most `budget`
    /// steps.
    pub fn work_ahead(&mut self, now: Millis, budget: u32) {
        self.state.keyspace.work_ahead(now, budget);
    }

    /// Frees about `items` removed items, and some of the garbage of libraries.
    pub fn free_garbage(&mut self, items: usize) {
        self.state.keyspace.garbage.free(items);
        if let Some(libraries) = self.state.libraries.as_mut() {
            libraries.tidy();
        }
    }

    /// Sets the counter of freed keys to 0.
    pub fn reset_freed_objects(&mut self) {
        self.state.keyspace.garbage.freed_objects = 0;
    }
}
