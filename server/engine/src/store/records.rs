//! The keys of one database with their values and deadlines, and the order in which they expire.
//!
//! A lock takes one header of 32 bytes in a slab, the bytes of its key and value in a slab of their
//! size class, and an entry in the index: no allocation of its own. The header is also its timer.
//!
//! Invariants:
//! - The bytes of a record are its length-prefixed key, followed by its payload. For strings and
//!   small hashes the payload is the value itself; for everything else it is four bytes with the
//!   position of the value in `values`, and each of those values belongs to one record.
//! - Every occupied slot is in the index under the hash of its key, and nothing else is.
//! - A header is a timer of the wheel if and only if it has a deadline and `active_expiry` is on.
//! - There is no wheel until there is a deadline: most databases never hold a key.
//! - A *plain* key, which only plain writes have made, so that it is no lock, is a string within
//!   the bytes of its record. What changes the value of such a key clears the mark.

use std::collections::TryReserveError;
use std::hint::black_box;

use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::dict::{HashSeed, Slot};
use super::garbage::Garbage;
use super::hash::{Fields, FieldsMut, FoundField, Hash, SmallHashLimits};
use super::index::Index;
use super::lock::Lock;
use super::packed::{self, PackedMut, Part};
use super::slab::{PodSlab, Slab};
use super::string_slabs::{StringHandle, StringMut, StringSlabs};
use super::string_value::{StringValue, Text, TextForm};
use super::value::{OutOfLine, Value, ValueRef};
use crate::limits;
use crate::random::Random;
use crate::timing::time::{Millis, Time};
use crate::timing::wheel::{Links, Nodes, Wheel};

/// A few items of the requests that come next.
pub type LookAhead<T> = SmallVec<[T; limits::LOOK_AHEAD_REQUESTS]>;

/// The keys of a database, with their values and deadlines.
#[derive(Debug)]
pub struct Records {
    /// Seeds every hash.
    seed: HashSeed,
    headers: PodSlab<Header>,
    strings: StringSlabs,
    values: Slab<Option<Value>>,
    index: Index,
    wheel: Option<Box<Wheel>>,
    with_deadline: usize,
    /// Whether the wheel expires keys (`DEBUG SET-ACTIVE-EXPIRE`).
    active_expiry: bool,
}

/// The fixed part of a record. A million of them are 32 MB, so every byte counts.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    deadline: Millis,
    /// Part of the handle of the record's bytes; the other one is `length`.
    number: u32,
    prev: u32,
    next: u32,
    used_at_low: u32,
    length: u16,
    list: u16,
    used_at_high: u8,
    form: Form,
    unused: [u8; 2],
}

const _: () = assert!(size_of::<Header>() == 32);

/// The kind of a record's payload, whether its deadline is set, and whether the key is plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
struct Form(u8);

impl Form {
    const INT: u8 = 0;
    const BYTES: u8 = 1;
    const FIELDS: u8 = 2;
    /// Four bytes with a position in `values`.
    const OUT_OF_LINE: u8 = 3;
    const PAYLOAD: u8 = 3;
    const HAS_DEADLINE: u8 = 4;
    /// Not set: the key may be a lock, which is the safe default.
    const IS_PLAIN: u8 = 8;

    fn payload(self) -> u8 {
        self.0 & Form::PAYLOAD
    }

    /// Sets the payload of a key that is not plain from now on.
    fn set_payload(&mut self, payload: u8) {
        self.0 = self.0 & Form::HAS_DEADLINE | payload;
    }

    fn has_deadline(self) -> bool {
        self.0 & Form::HAS_DEADLINE != 0
    }

    fn set_has_deadline(&mut self, on: bool) {
        self.0 = if on { self.0 | Form::HAS_DEADLINE } else { self.0 & !Form::HAS_DEADLINE };
    }

    fn is_plain(self) -> bool {
        self.0 & Form::IS_PLAIN != 0
    }

    /// Sets whether the key is plain, which only a string within the bytes of its record can be.
    fn set_plain(&mut self, on: bool) {
        let may_be_plain = matches!(self.payload(), Form::INT | Form::BYTES);
        self.0 &= !Form::IS_PLAIN;
        self.0 |= if on && may_be_plain { Form::IS_PLAIN } else { 0 };
    }
}

impl Default for Header {
    fn default() -> Header {
        let Links { prev, next, list } = Links::NONE;
        Header {
            deadline: Millis(0),
            number: 0,
            length: 0,
            prev,
            next,
            used_at_low: 0,
            list,
            used_at_high: 0,
            form: Form(Form::BYTES),
            unused: [0; 2],
        }
    }
}

/// A new value for a key.
#[derive(Debug)]
pub enum NewValue<'a> {
    /// These bytes, as `SET` stores them.
    Text(&'a [u8]),
    /// These bytes, never as an integer even if they could be one.
    Float(&'a [u8]),
    /// A small hash with one field.
    Field(&'a [u8], &'a [u8]),
    /// Any value.
    Value(Value),
}

impl NewValue<'_> {
    /// Whether it has the form of a lock.
    #[inline(always)]
    pub(super) fn may_be_lock(&self) -> bool {
        match self {
            NewValue::Text(_) | NewValue::Field(..) => true,
            NewValue::Float(_) => false,
            NewValue::Value(value) => {
                matches!(
                    value,
                    Value::String(_) | Value::Hash(_) | Value::SortedSet(_) | Value::Lock(_)
                )
            }
        }
    }
}

impl From<Value> for NewValue<'_> {
    fn from(value: Value) -> Self {
        NewValue::Value(value)
    }
}

/// A read-only view of a stored key.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    header: &'a Header,
    bytes: &'a [u8],
    values: &'a Slab<Option<Value>>,
}

/// A key that has been removed.
#[derive(Debug)]
pub struct Removed {
    bytes: Box<[u8]>,
    form: Form,
    deadline: Option<Millis>,
    out_of_line: Option<Value>,
}

/// A key that has expired or is to be removed.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Its slot.
    pub slot: Slot,
    /// The hash of the key.
    pub(super) hash: u64,
}

/// Keys that expire together, if as many are due: enough for the processor to fetch the memory of
/// one while it waits for that of others.
pub const DUE_TOGETHER: usize = 32;

/// A stored hash, to be changed.
#[derive(Debug)]
pub struct HashMut<'a> {
    records: &'a mut Records,
    slot: Slot,
}

/// What [`HashMut::update`] has done with the new value.
pub(super) enum Update<'v> {
    /// The field has the value.
    Overwritten(&'v [u8]),
    /// Nothing: the field, which was found here, is still to be set.
    Found(FoundField, &'v [u8]),
}

// --- reading ---

impl Records {
    /// Creates an empty table, which takes no memory.
    pub fn new(seed: HashSeed) -> Records {
        Records {
            seed,
            headers: PodSlab::default(),
            strings: StringSlabs::default(),
            values: Slab::default(),
            index: Index::default(),
            wheel: None,
            with_deadline: 0,
            active_expiry: true,
        }
    }

    /// The number of keys, including expired ones that have not been accessed yet.
    pub fn len(&self) -> usize {
        self.headers.chunks().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.headers.chunks().is_empty()
    }

    /// The number of keys with a deadline.
    pub fn with_deadline(&self) -> usize {
        self.with_deadline
    }

    /// The slot of a key with this hash.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<Slot> {
        self.find_if(hash, |it| *it == *key)
    }

    /// The slot of the key with this hash for which `is_it` returns true.
    #[inline]
    pub fn find_if(&self, hash: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Slot> {
        self.index.find(hash, |slot| {
            let bytes = self.bytes(slot);
            is_it(&bytes[packed::item_at(bytes, 0)])
        })
    }

    /// Prefetches the records of the keys with these hashes, so that later look-ups need not wait
    /// for memory. Each step for one key depends on the step before, but the steps for several keys
    /// do not depend on each other and can overlap: first all index entries, then all headers, then
    /// all bytes.
    pub fn look_ahead(&self, hashes: LookAhead<u64>) {
        let likely = |hash| self.index.find(hash, |_| true);
        let slots: LookAhead<Slot> = hashes.into_iter().filter_map(likely).collect();
        let handle = |&slot| self.headers.get(slot).handle();
        let handles: LookAhead<StringHandle> = slots.iter().map(handle).collect();
        for &handle in &handles {
            let bytes = self.strings.get(handle);
            black_box((bytes.first().copied(), bytes.last().copied()));
        }
    }

    /// The key in an occupied slot.
    #[inline]
    pub fn key(&self, slot: Slot) -> &[u8] {
        split(self.bytes(slot)).0
    }

    /// The deadline of the key in an occupied slot, if it has one.
    #[inline]
    pub fn deadline(&self, slot: Slot) -> Option<Millis> {
        self.headers.get(slot).deadline()
    }

    /// Whether the deadline of the key in an occupied slot has been reached.
    #[inline]
    pub fn is_expired(&self, slot: Slot, time: Time) -> bool {
        self.headers.get(slot).is_expired(time)
    }

    /// The record in an occupied slot.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> Record<'_> {
        let header = self.headers.get(slot);
        Record { header, bytes: self.strings.get(header.handle()), values: &self.values }
    }

    /// All keys with their records, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Record<'_>)> {
        self.iter_slots().map(|(_, record)| (record.key(), record))
    }

    /// All records with their slots, in slot order.
    pub fn iter_slots(&self) -> impl Iterator<Item = (Slot, Record<'_>)> {
        self.headers.chunks().numbers().map(|slot| (slot, self.get(slot)))
    }

    /// Reserves room in the index for this many keys, within limits, if there are none yet.
    pub(super) fn reserve(&mut self, keys: usize) {
        if self.is_empty() {
            self.index.reserve(keys.min(limits::RESERVED_KEYS_MAX));
        }
    }

    /// As [`Chunks::scan`](super::slab::Chunks::scan).
    pub fn scan(&self, cursor: u64, count: usize) -> (impl Iterator<Item = Slot>, u64) {
        self.headers.chunks().scan(cursor, count)
    }

    /// As [`Chunks::random`](super::slab::Chunks::random).
    pub fn random(&self, random: &mut Random) -> Option<Slot> {
        self.headers.chunks().random(random)
    }

    /// Whether the value of a record is a native lock.
    #[inline]
    pub fn is_lock(&self, slot: Slot) -> bool {
        // The header shows it for most values.
        !matches!(self.headers.get(slot).form.payload(), Form::INT | Form::BYTES | Form::FIELDS)
            && matches!(self.get(slot).value(), ValueRef::Lock(_))
    }

    /// Whether the key in an occupied slot is plain: see the module's documentation.
    #[inline]
    pub fn is_plain(&self, slot: Slot) -> bool {
        self.headers.get(slot).form.is_plain()
    }

    #[inline]
    fn bytes(&self, slot: Slot) -> &[u8] {
        self.strings.get(self.headers.get(slot).handle())
    }
}

impl<'a> Record<'a> {
    /// The deadline of the key, if it has one.
    #[inline]
    pub fn deadline(self) -> Option<Millis> {
        self.header.deadline()
    }

    /// Whether the deadline of the key has been reached.
    pub fn is_expired(self, time: Time) -> bool {
        self.header.is_expired(time)
    }

    /// Whether the key is plain: see the module's documentation.
    pub fn is_plain(self) -> bool {
        self.header.form.is_plain()
    }

    /// The bytes of the key.
    pub fn key(self) -> &'a [u8] {
        split(self.bytes).0
    }

    /// The value.
    #[inline(always)]
    pub fn value(self) -> ValueRef<'a> {
        let (_, payload) = split(self.bytes);
        let text = |form| ValueRef::String(Text { bytes: payload, form });
        match self.header.form.payload() {
            Form::INT => text(TextForm::Int),
            Form::BYTES => text(TextForm::Bytes),
            Form::FIELDS => ValueRef::Hash(Fields::Small(payload)),
            _ => match self.values.get(position_of(payload)) {
                Some(value) => value.view(),
                None => unreachable!("its entry is there"),
            },
        }
    }

    /// The last 40 bits of the time of last use; under an LFU policy see [`AccessCounter`].
    ///
    /// [`AccessCounter`]: super::access_frequency::AccessCounter
    pub fn usage(self) -> u64 {
        let Header { used_at_low, used_at_high, .. } = *self.header;
        u64::from(used_at_high) << u32::BITS | u64::from(used_at_low)
    }

    /// The time since the key was last used.
    pub fn idle(self, now: Millis) -> Millis {
        let idle = now.0.cast_unsigned().wrapping_sub(self.usage()) & MOMENT_MASK;
        // The clock can go back if the client controls the server's time.
        Millis(if idle > IDLE_MAX.0.cast_unsigned() { 0 } else { idle.cast_signed() })
    }
}

/// Mask of the bits that are kept of the time of last use: the last 40.
const MOMENT_MASK: u64 = (1 << 40) - 1;

/// The longest idle time that can be represented: more than 17 years.
const IDLE_MAX: Millis = Millis((MOMENT_MASK >> 1).cast_signed());

impl Header {
    fn handle(&self) -> StringHandle {
        StringHandle { number: self.number, length: self.length }
    }

    fn set_handle(&mut self, handle: StringHandle) {
        (self.number, self.length) = (handle.number, handle.length);
    }

    fn deadline(&self) -> Option<Millis> {
        self.form.has_deadline().then_some(self.deadline)
    }

    fn is_expired(&self, time: Time) -> bool {
        self.deadline().is_some_and(|deadline| time.reached(deadline))
    }

    fn set_used_at(&mut self, now: Millis) {
        self.set_usage(now.0.cast_unsigned());
    }

    fn set_usage(&mut self, usage: u64) {
        self.used_at_low = usage as u32;
        self.used_at_high = (usage >> u32::BITS) as u8;
    }
}

/// Splits the bytes of a record into the key and the payload.
#[inline]
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let key = packed::item_at(bytes, 0);
    let (head, payload) = bytes.split_at(key.end);
    (&head[key.start..], payload)
}

/// As [`split`], with a mutable payload.
#[inline]
fn split_mut(bytes: &mut [u8]) -> (&[u8], &mut [u8]) {
    let key = packed::item_at(bytes, 0);
    let (head, payload) = bytes.split_at_mut(key.end);
    (&head[key.start..], payload)
}

/// The form of a string that is set to these bytes.
fn form_of(text: &[u8]) -> u8 {
    if TextForm::of(text) == TextForm::Int { Form::INT } else { Form::BYTES }
}

/// The position in `values` that a payload contains.
fn position_of(payload: &[u8]) -> u32 {
    let mut place = [0; 4];
    place.copy_from_slice(payload);
    u32::from_le_bytes(place)
}

// --- changing ---

impl Records {
    /// Adds a key that is known to be absent.
    pub fn add(&mut self, key: &[u8], hash: u64, new_value: NewValue<'_>, now: Millis) -> Slot {
        let strings = &mut self.strings;
        let (handle, form) = store_payload(&mut self.values, new_value, |form, payload| {
            let handle = match payload {
                Payload::Bytes(bytes) => strings.add([Part::Item(key), Part::Bytes(bytes)]),
                Payload::Field(field, value) => {
                    strings.add([Part::Item(key), Part::Item(field), Part::Item(value)])
                }
            };
            (handle, form)
        });
        let StringHandle { number, length } = handle;
        let mut header = Header { number, length, form: Form(form), ..Header::default() };
        header.set_used_at(now);
        let slot = self.headers.insert(header);
        let (seed, headers, strings) = (self.seed, &self.headers, &self.strings);
        let bytes_of = |slot| strings.get(headers.get(slot).handle());
        let prefetch = |slot| {
            black_box(bytes_of(slot).first().copied());
        };
        self.index.insert(hash, slot, prefetch, |slot| seed.hash(split(bytes_of(slot)).0));
        slot
    }

    /// Gives a key another value. Its deadline stays; it is not plain any more.
    #[inline(always)]
    pub fn set_value(&mut self, slot: Slot, new_value: NewValue<'_>, garbage: &mut Garbage) {
        if let NewValue::Text(text) = new_value
            && self.overwrite(slot, text)
        {
            // It owns nothing that must be freed; this saves the call of the destructor.
            std::mem::forget(new_value);
            return;
        }
        self.replace(slot, new_value, garbage);
    }

    fn replace(&mut self, slot: Slot, new_value: NewValue<'_>, garbage: &mut Garbage) {
        if let Some(value) = self.take_out_of_line(slot) {
            garbage.add_value(value);
        }
        self.fill(slot, new_value);
    }

    /// Sets the value of a key that has no value in `values`.
    fn fill(&mut self, slot: Slot, new_value: NewValue<'_>) {
        let header = self.headers.get_mut(slot);
        let mut handle = header.handle();
        let mut bytes = self.strings.edit(&mut handle);
        let form = store_payload(&mut self.values, new_value, |form, payload| {
            let old = bytes.bytes_mut();
            let range = packed::item_at(old, 0).end..old.len();
            match payload {
                Payload::Bytes(new) => bytes.splice(range, &[Part::Bytes(new)]),
                Payload::Field(field, value) => {
                    bytes.splice(range, &[Part::Item(field), Part::Item(value)]);
                }
            }
            form
        });
        header.set_handle(handle);
        header.form.set_payload(form);
    }

    /// Overwrites a string with one of the same length; false if the value is not such a string.
    fn overwrite(&mut self, slot: Slot, text: &[u8]) -> bool {
        let header = self.headers.get_mut(slot);
        if !matches!(header.form.payload(), Form::INT | Form::BYTES) {
            return false;
        }
        let (_, old) = split_mut(self.strings.get_mut(header.handle()));
        if old.len() != text.len() {
            return false;
        }
        old.copy_from_slice(text);
        header.form.set_payload(form_of(text));
        true
    }

    /// Whether the deadline of a key has not been reached. If so, records that the key is used now.
    #[inline(always)]
    pub fn use_if_alive(&mut self, slot: Slot, time: Time) -> bool {
        let header = self.headers.get_mut(slot);
        let is_alive = !header.is_expired(time);
        if is_alive {
            header.set_used_at(time.now);
        }
        is_alive
    }

    /// Records that the key is used now.
    #[inline]
    pub fn set_used_at(&mut self, slot: Slot, now: Millis) {
        self.headers.get_mut(slot).set_used_at(now);
    }

    /// See [`Record::usage`].
    pub(super) fn usage(&self, slot: Slot) -> u64 {
        self.get(slot).usage()
    }

    /// See [`Record::usage`].
    pub(super) fn set_usage(&mut self, slot: Slot, usage: u64) {
        self.headers.get_mut(slot).set_usage(usage);
    }

    /// Sets whether a key is plain.
    pub fn set_plain(&mut self, slot: Slot, on: bool) {
        self.headers.get_mut(slot).form.set_plain(on);
    }

    /// Sets the idle time of a key.
    pub fn set_idle(&mut self, slot: Slot, idle: Millis, now: Millis) {
        self.set_used_at(slot, Millis(now.0.wrapping_sub(idle.0.min(IDLE_MAX.0))));
    }

    /// The value of a key, to be changed in place; `None` if it is of another type.
    pub fn value_mut<T: OutOfLine>(&mut self, slot: Slot) -> Option<&mut T> {
        self.out_of_line_mut(slot).and_then(T::of_mut)
    }

    /// Overwrites bytes of a string from `offset` on. The string is extended by zeros to there, and
    /// by the bytes. Returns the new length; changes nothing if there is no memory for it.
    pub fn patch(
        &mut self,
        slot: Slot,
        offset: usize,
        bytes: &[u8],
    ) -> Result<usize, TryReserveError> {
        let string = self.raw_mut(slot);
        let end = offset + bytes.len();
        if end > string.len() {
            string.try_reserve(end - string.len())?;
            string.resize(end, 0);
        }
        string[offset..end].copy_from_slice(bytes);
        Ok(string.len())
    }

    /// The bytes of a string, to be changed in place.
    fn raw_mut(&mut self, slot: Slot) -> &mut Vec<u8> {
        if !matches!(self.out_of_line_mut(slot), Some(Value::String(StringValue::Raw(_)))) {
            let raw = StringValue::Raw(split(self.bytes(slot)).1.to_vec());
            self.fill(slot, NewValue::Value(raw.into()));
        }
        match self.out_of_line_mut(slot) {
            Some(Value::String(StringValue::Raw(bytes))) => bytes,
            _ => unreachable!("made raw above"),
        }
    }

    /// The hash stored at a key, to be changed; `None` if it is of another type.
    #[inline(always)]
    pub fn hash_mut(&mut self, slot: Slot) -> Option<HashMut<'_>> {
        let is_hash = match self.headers.get(slot).form.payload() {
            Form::INT | Form::BYTES => false,
            Form::FIELDS => true,
            _ => matches!(self.get(slot).value(), ValueRef::Hash(_)),
        };
        is_hash.then_some(HashMut { records: self, slot })
    }

    /// Removes a key and its timer. The returned record still has its deadline.
    pub fn remove(&mut self, due: Due) -> Removed {
        let slot = due.slot;
        let header = self.headers.get(slot);
        let (form, deadline, handle) = (header.form, header.deadline(), header.handle());
        let bytes = self.strings.get(handle).into();
        let out_of_line = self.unlink(due);
        self.release(slot, handle);
        Removed { bytes, form, deadline, out_of_line }
    }

    /// As `remove`, without returning the record.
    #[inline]
    pub fn discard(&mut self, due: Due, garbage: &mut Garbage) {
        let handle = self.headers.get(due.slot).handle();
        if let Some(value) = self.unlink(due) {
            garbage.add_value(value);
        }
        self.release(due.slot, handle);
    }

    /// Identifies the key in `slot` for removal.
    pub fn due(&self, slot: Slot) -> Due {
        Due { slot, hash: self.seed.hash(self.key(slot)) }
    }

    /// Removes all keys; returns the number of keys.
    pub fn clear(&mut self, garbage: &mut Garbage) -> usize {
        let removed = self.len();
        let empty = Records { active_expiry: self.active_expiry, ..Records::new(self.seed) };
        garbage.add_records(std::mem::replace(self, empty));
        removed
    }

    /// About how many keys could be removed in the time of [`Records::free_part`].
    pub const PART_KEYS: usize = 64;

    /// Frees a part of a table that is no longer used and hands the values of `values` to `take`.
    /// Returns whether there was anything to free.
    pub fn free_part(&mut self, take: impl FnMut(Value)) -> bool {
        if let Some(values) = self.values.pop_chunk() {
            values.into_iter().flatten().for_each(take);
            return true;
        }
        self.headers.free_part() || self.strings.free_part() || self.index.free_part()
    }

    /// Takes a key out of the index and the wheel; returns its value if that was in `values`. Its
    /// header still has the deadline, and must be released.
    #[inline(always)]
    fn unlink(&mut self, Due { slot, hash }: Due) -> Option<Value> {
        let header = self.headers.get(slot);
        let (form, has_timer) = (header.form, header.list != Links::NONE.list);
        self.with_deadline -= usize::from(form.has_deadline());
        if let Some(wheel) = &mut self.wheel
            && has_timer
        {
            wheel.forget(&mut self.headers, slot);
        }
        let (seed, headers, strings) = (self.seed, &self.headers, &self.strings);
        let bytes_of = |slot| strings.get(headers.get(slot).handle());
        let prefetch = |slot| {
            black_box(bytes_of(slot).first().copied());
        };
        self.index.remove(hash, slot, prefetch, |slot| seed.hash(split(bytes_of(slot)).0));
        if form.payload() == Form::OUT_OF_LINE { self.take_out_of_line(slot) } else { None }
    }

    #[inline(always)]
    fn release(&mut self, slot: Slot, handle: StringHandle) {
        self.headers.release(slot);
        self.strings.remove(handle);
    }

    fn out_of_line_mut(&mut self, slot: Slot) -> Option<&mut Value> {
        let header = self.headers.get(slot);
        if header.form.payload() != Form::OUT_OF_LINE {
            return None;
        }
        let (_, payload) = split(self.strings.get(header.handle()));
        self.values.get_mut(position_of(payload)).as_mut()
    }

    /// Removes the value that the payload refers to. The payload is then invalid.
    #[inline(never)]
    fn take_out_of_line(&mut self, slot: Slot) -> Option<Value> {
        if self.headers.get(slot).form.payload() != Form::OUT_OF_LINE {
            return None;
        }
        let (_, payload) = split(self.bytes(slot));
        let place = position_of(payload);
        self.values.remove(place)
    }
}

/// What follows the key in the bytes of a record.
enum Payload<'a> {
    Bytes(&'a [u8]),
    /// The packed form of a hash with one field.
    Field(&'a [u8], &'a [u8]),
}

/// Stores a new value in `values` if it belongs there, and passes the form and the payload to
/// `put`.
#[inline(always)]
fn store_payload<R>(
    values: &mut Slab<Option<Value>>,
    new_value: NewValue<'_>,
    put: impl FnOnce(u8, Payload<'_>) -> R,
) -> R {
    let (form, payload) = match new_value {
        NewValue::Text(text) => (form_of(text), Payload::Bytes(text)),
        NewValue::Float(text) => (Form::BYTES, Payload::Bytes(text)),
        NewValue::Field(field, value) => (Form::FIELDS, Payload::Field(field, value)),
        NewValue::Value(value) => return store_value(values, value, put),
    };
    put(form, payload)
}

/// As [`store_payload`], for a value of any form.
#[inline(never)]
fn store_value<R>(
    values: &mut Slab<Option<Value>>,
    value: Value,
    put: impl FnOnce(u8, Payload<'_>) -> R,
) -> R {
    let (owned, place);
    let (form, bytes): (u8, &[u8]) = match value {
        Value::String(StringValue::Int(bytes)) => {
            owned = bytes;
            (Form::INT, &owned)
        }
        Value::String(StringValue::Bytes(bytes)) => {
            owned = bytes;
            (Form::BYTES, &owned)
        }
        Value::Hash(Hash::Small(bytes)) => {
            owned = bytes;
            (Form::FIELDS, &owned)
        }
        value => {
            place = values.insert(Some(value)).to_le_bytes();
            (Form::OUT_OF_LINE, &place)
        }
    };
    put(form, Payload::Bytes(bytes))
}

impl Removed {
    /// The key.
    pub fn key(&self) -> &[u8] {
        split(&self.bytes).0
    }

    /// The deadline it had, if any.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// The value.
    pub fn into_value(self) -> Value {
        let payload = || split(&self.bytes).1.into();
        match (self.out_of_line, self.form.payload()) {
            (Some(value), _) => value,
            (None, Form::INT) => Value::String(StringValue::Int(payload())),
            (None, Form::FIELDS) => Value::Hash(Hash::Small(payload())),
            (None, _) => Value::String(StringValue::Bytes(payload())),
        }
    }
}

impl HashMut<'_> {
    /// The fields, read-only.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        match self.records.get(self.slot).value() {
            ValueRef::Hash(fields) => fields,
            _ => unreachable!("looked at when this was made"),
        }
    }

    /// Searches for a field.
    pub fn find(&self, field: &[u8]) -> FoundField {
        self.fields().find(field)
    }

    /// Searches for a field and passes its value, if it exists, to `next`, which returns the new
    /// value. Overwrites the old value if it has the same length and the hash is small; otherwise
    /// changes nothing.
    #[inline]
    pub(super) fn update<'v, E>(
        &mut self,
        field: &[u8],
        next: impl FnOnce(Option<&[u8]>) -> Result<&'v [u8], E>,
    ) -> Result<Update<'v>, E> {
        let HashMut { records, slot } = self;
        let header = records.headers.get(*slot);
        if header.form.payload() != Form::FIELDS {
            let found = self.find(field);
            let value = next(self.fields().value(&found))?;
            return Ok(Update::Found(found, value));
        }
        let (_, payload) = split_mut(records.strings.get_mut(header.handle()));
        let fields = Fields::Small(payload);
        let found = fields.find(field);
        let value = next(fields.value(&found))?;
        match &found {
            FoundField::Small { value: old, .. } if old.len() == value.len() => {
                payload[old.clone()].copy_from_slice(value);
                Ok(Update::Overwritten(value))
            }
            _ => Ok(Update::Found(found, value)),
        }
    }

    /// Sets a field that has just been searched for; returns whether it is new.
    pub fn put(
        &mut self,
        mut found: FoundField,
        field: &[u8],
        value: &[u8],
        (limits, seed): (SmallHashLimits, HashSeed),
    ) -> bool {
        if found.outgrows(field, value, limits) {
            self.make_large(seed);
            found = self.find(field);
        }
        self.put_found(&found, field, value)
    }

    /// Takes the large form.
    pub(super) fn make_large(&mut self, seed: HashSeed) {
        if matches!(self.fields(), Fields::Small(_)) {
            let large = Hash::Large(Box::new(self.fields().to_large(seed)));
            self.records.fill(self.slot, NewValue::Value(large.into()));
        }
    }

    /// Sets a field and keeps the form; returns whether the field is new.
    pub(super) fn put_in_form(&mut self, field: &[u8], value: &[u8]) -> bool {
        let found = self.find(field);
        self.put_found(&found, field, value)
    }

    fn put_found(&mut self, found: &FoundField, field: &[u8], value: &[u8]) -> bool {
        if self.overwrite(found, value) {
            return false;
        }
        self.change(|fields| fields.put(found, field, value))
    }

    /// Overwrites a value of the small form with one of the same length; false if that is not
    /// possible.
    fn overwrite(&mut self, found: &FoundField, value: &[u8]) -> bool {
        let HashMut { records, slot } = self;
        match found {
            FoundField::Small { value: old, .. } if old.len() == value.len() => {
                let handle = records.headers.get(*slot).handle();
                let (_, payload) = split_mut(records.strings.get_mut(handle));
                payload[old.clone()].copy_from_slice(value);
                true
            }
            _ => false,
        }
    }

    /// Removes a field; returns whether it existed.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let found = self.find(field);
        self.change(|fields| fields.remove(&found))
    }

    /// Runs `act` on the fields in their current form. Their bytes may move.
    fn change<R>(&mut self, act: impl FnOnce(FieldsMut<'_, StringMut<'_>>) -> R) -> R {
        let HashMut { records, slot } = self;
        let header = records.headers.get_mut(*slot);
        if header.form.payload() == Form::FIELDS {
            let mut handle = header.handle();
            let mut bytes = records.strings.edit(&mut handle);
            let from = packed::item_at(bytes.bytes_mut(), 0).end;
            let result = act(FieldsMut::Small { bytes, from });
            header.set_handle(handle);
            return result;
        }
        match records.out_of_line_mut(*slot) {
            Some(Value::Hash(Hash::Large(fields))) => act(FieldsMut::Large(fields)),
            _ => unreachable!("a hash that is not in its record is large"),
        }
    }
}

// --- deadlines ---

impl Records {
    /// Sets the deadline of a key. Returns whether this created the wheel, which then begins at
    /// `now`.
    #[inline]
    pub fn set_deadline(&mut self, slot: Slot, deadline: Millis, now: Millis) -> bool {
        let header = self.headers.get_mut(slot);
        self.with_deadline += usize::from(!header.form.has_deadline());
        header.form.set_has_deadline(true);
        header.deadline = deadline;
        let has_timer = header.list != Links::NONE.list;
        if !self.active_expiry {
            return false;
        }
        let is_first = self.wheel.is_none();
        let wheel = self.wheel.get_or_insert_with(|| new_wheel(now));
        if has_timer {
            wheel.reschedule(&mut self.headers, slot);
        } else {
            wheel.insert(&mut self.headers, slot);
        }
        is_first
    }

    /// Removes the deadline of a key.
    #[inline(always)]
    pub fn clear_deadline(&mut self, slot: Slot) {
        let header = self.headers.get_mut(slot);
        if !header.form.has_deadline() {
            return;
        }
        self.with_deadline -= 1;
        header.form.set_has_deadline(false);
        if let Some(wheel) = &mut self.wheel
            && header.list != Links::NONE.list
        {
            wheel.cancel(&mut self.headers, slot);
        }
    }

    /// Adds `span` to every deadline.
    #[cold]
    pub fn postpone(&mut self, span: Millis, now: Millis) {
        let slots: Vec<Slot> = self.headers.chunks().numbers().collect();
        for slot in slots {
            if let Some(deadline) = self.deadline(slot) {
                self.set_deadline(slot, Millis(deadline.0.saturating_add(span.0)), now);
            }
            if let Some(lock) = self.value_mut::<Box<Lock>>(slot) {
                lock.postpone(span);
            }
        }
    }

    /// Turns the wheel on or off. Keys keep their deadlines either way.
    pub fn set_active_expiry(&mut self, on: bool, now: Millis) {
        self.active_expiry = on;
        let slots: Vec<Slot> = self.headers.chunks().numbers().collect();
        for slot in slots {
            let header = self.headers.get(slot);
            let has_timer = header.list != Links::NONE.list;
            if on && !has_timer && header.form.has_deadline() {
                let wheel = self.wheel.get_or_insert_with(|| new_wheel(now));
                wheel.insert(&mut self.headers, slot);
            } else if let Some(wheel) = &mut self.wheel
                && !on
                && has_timer
            {
                wheel.cancel(&mut self.headers, slot);
            }
        }
    }

    /// The number of pending timers.
    pub fn timers(&self) -> usize {
        self.wheel.as_ref().map_or(0, |wheel| wheel.len())
    }

    /// Whether there is a wheel, even an empty one.
    pub fn has_wheel(&self) -> bool {
        self.wheel.is_some()
    }

    /// Frees an empty wheel.
    pub fn drop_empty_wheel(&mut self) {
        self.wheel = self.wheel.take().filter(|wheel| !wheel.is_empty());
    }

    /// As [`Wheel::next_deadline`].
    pub fn next_deadline(&self) -> Option<Millis> {
        self.wheel.as_ref()?.next_deadline()
    }

    /// As [`Wheel::next_work_ahead`].
    pub fn next_work_ahead(&self) -> Option<Millis> {
        self.wheel.as_ref()?.next_work_ahead()
    }

    /// As [`Wheel::work_ahead`].
    pub fn work_ahead(&mut self, now: Millis, budget: u32) {
        if let Some(wheel) = &mut self.wheel {
            wheel.work_ahead(&mut self.headers, now, budget);
        }
    }

    /// As [`Wheel::advance`].
    pub fn advance(&mut self, now: Millis) {
        if let Some(wheel) = &mut self.wheel {
            wheel.advance(now);
        }
    }

    /// As [`Wheel::pop_due`], for several keys. They keep their deadlines, but not their timers.
    pub fn pop_due(&mut self, now: Millis, budget: &mut u32, due: &mut Vec<Due>) {
        let Some(wheel) = &mut self.wheel else { return };
        while due.len() < DUE_TOGETHER
            && let Some(slot) = wheel.pop_due(&mut self.headers, now, budget)
        {
            due.push(Due { slot, hash: 0 });
            // Here, so that the two memory accesses do not wait for each other.
            wheel.step_ahead(&mut self.headers);
        }
        // The bytes of a key can be anywhere in memory, and fetching them takes longer than all the
        // rest. So all of them are touched first: no access waits for the one before.
        for due in &*due {
            black_box(self.bytes(due.slot).first().copied());
        }
        for due in &mut *due {
            due.hash = self.seed.hash(self.key(due.slot));
        }
        for due in due {
            black_box(self.index.find(due.hash, |slot| slot == due.slot));
        }
    }
}

/// A function of its own, so that no other function needs this much stack: every stack page is
/// touched.
#[cold]
#[inline(never)]
fn new_wheel(now: Millis) -> Box<Wheel> {
    Box::new(Wheel::new(now))
}

impl Nodes for PodSlab<Header> {
    fn deadline(&self, index: u32) -> Millis {
        self.get(index).deadline
    }

    fn links(&self, index: u32) -> Links {
        let &Header { prev, next, list, .. } = self.get(index);
        Links { prev, next, list }
    }

    fn set_links(&mut self, index: u32, links: Links) {
        let header = self.get_mut(index);
        (header.prev, header.next, header.list) = (links.prev, links.next, links.list);
    }

    fn set_prev(&mut self, index: u32, prev: u32) {
        self.get_mut(index).prev = prev;
    }

    fn set_next(&mut self, index: u32, next: u32) {
        self.get_mut(index).next = next;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::store::list::{End, List};

    const SMALL: SmallHashLimits = SmallHashLimits { entries_max: 4, value_bytes_max: 300 };
    const SEED: HashSeed = HashSeed(1, 2);

    /// The value of the reference model.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum ModelValue {
        Text(Vec<u8>),
        Fields(Vec<(Vec<u8>, Vec<u8>)>),
        List(Vec<Vec<u8>>),
    }

    #[derive(Clone, Debug)]
    enum Step {
        Text(usize, Vec<u8>),
        Append(usize, Vec<u8>),
        Field(usize, u8, Vec<u8>),
        RemoveField(usize, u8),
        Push(usize, Vec<u8>),
        Deadline(usize, Option<i64>),
        ActiveExpiry(bool),
        Advance(i64),
        Remove(usize),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Step> {
        let key = || 0..12_usize;
        let bytes = || {
            prop_oneof![8 => 0..9_usize, 1 => 250..310_usize]
                .prop_flat_map(|length| prop::collection::vec(b'0'..b'4', length))
        };
        prop_oneof![
            4 => (key(), bytes()).prop_map(|(key, bytes)| Step::Text(key, bytes)),
            2 => (key(), bytes()).prop_map(|(key, bytes)| Step::Append(key, bytes)),
            6 => (key(), 0..7_u8, bytes()).prop_map(|(key, at, it)| Step::Field(key, at, it)),
            3 => (key(), 0..7_u8).prop_map(|(key, at)| Step::RemoveField(key, at)),
            2 => (key(), bytes()).prop_map(|(key, bytes)| Step::Push(key, bytes)),
            6 => (key(), prop::option::weighted(0.8, 1..40_i64))
                .prop_map(|(key, span)| Step::Deadline(key, span)),
            1 => any::<bool>().prop_map(Step::ActiveExpiry),
            4 => (0..20_i64).prop_map(Step::Advance),
            4 => key().prop_map(Step::Remove),
            1 => prop::bool::weighted(0.2).prop_map(|all| if all {
                Step::Clear
            } else {
                Step::Advance(1)
            }),
        ]
    }

    /// Keys with length prefixes of every size.
    fn name(key: usize) -> Vec<u8> {
        vec![b'a' + key as u8; [0, 1, 17, 254, 255, 300][key % 6] + usize::from(key > 0)]
    }

    struct Pair {
        records: Records,
        model: BTreeMap<Vec<u8>, (ModelValue, Option<i64>)>,
        now: i64,
    }

    impl Pair {
        fn step(&mut self, step: Step) {
            match step {
                Step::Text(key, bytes) => {
                    self.give(key, NewValue::Text(&bytes), ModelValue::Text(bytes.clone()));
                }
                Step::Append(key, bytes) => self.append(&name(key), &bytes),
                Step::Field(key, field, value) => {
                    self.set_field(key, &[b'f'; 9][..field.into()], &value);
                }
                Step::RemoveField(key, field) => {
                    self.remove_field(&name(key), &[b'f'; 9][..field.into()]);
                }
                Step::Push(key, bytes) => self.push(key, &bytes),
                Step::Deadline(key, span) => self.set_deadline(&name(key), span),
                Step::ActiveExpiry(on) => self.records.set_active_expiry(on, Millis(self.now)),
                Step::Advance(span) => self.advance(span),
                Step::Remove(key) => {
                    let key = name(key);
                    let removed =
                        self.find(&key).map(|at| self.records.remove(self.records.due(at)));
                    let expected = self.model.remove(&key);
                    assert_eq!(removed.is_some(), expected.is_some());
                    if let (Some(removed), Some((value, deadline))) = (removed, expected) {
                        assert_eq!(removed.key(), key);
                        assert_eq!(removed.deadline(), deadline.map(Millis));
                        assert_is(removed.into_value().view(), value);
                    }
                }
                Step::Clear => {
                    assert_eq!(self.records.clear(&mut Garbage::default()), self.model.len());
                    self.model.clear();
                }
            }
            self.compare();
        }

        fn find(&self, key: &[u8]) -> Option<Slot> {
            self.records.find(key, SEED.hash(key))
        }

        /// Adds a key or changes its value.
        fn give(&mut self, key: usize, new_value: NewValue<'_>, value: ModelValue) {
            let key = name(key);
            match self.find(&key) {
                Some(slot) => self.records.set_value(slot, new_value, &mut Garbage::default()),
                None => drop(self.records.add(&key, SEED.hash(&key), new_value, Millis(self.now))),
            }
            let deadline = self.model.get(&key).and_then(|(_, deadline)| *deadline);
            self.model.insert(key, (value, deadline));
        }

        fn append(&mut self, key: &[u8], more: &[u8]) {
            let Some(slot) = self.find(key) else { return };
            if let Some((ModelValue::Text(bytes), _)) = self.model.get_mut(key) {
                self.records.raw_mut(slot).extend_from_slice(more);
                bytes.extend_from_slice(more);
            }
        }

        fn set_field(&mut self, key: usize, field: &[u8], value: &[u8]) {
            let Some(slot) = self.find(&name(key)) else {
                if SMALL.admits(field, value) {
                    let fields = ModelValue::Fields(vec![(field.to_vec(), value.to_vec())]);
                    self.give(key, NewValue::Field(field, value), fields);
                }
                return;
            };
            let hash = self.records.hash_mut(slot);
            let Some((ModelValue::Fields(fields), _)) = self.model.get_mut(&name(key)) else {
                return assert!(hash.is_none());
            };
            let mut hash = hash.expect("fields in the model");
            let found = hash.find(field);
            let known = fields.iter_mut().find(|(name, _)| name == field);
            let old = hash.fields().value(&found);
            assert_eq!(old, known.as_ref().map(|(_, value)| &value[..]));
            assert_eq!(hash.put(found, field, value, (SMALL, SEED)), known.is_none());
            match known {
                Some((_, old)) => *old = value.to_vec(),
                None => fields.push((field.to_vec(), value.to_vec())),
            }
        }

        fn remove_field(&mut self, key: &[u8], field: &[u8]) {
            let Some(slot) = self.find(key) else { return };
            if let Some((ModelValue::Fields(fields), _)) = self.model.get_mut(key) {
                let mut hash = self.records.hash_mut(slot).expect("fields in the model");
                let known = fields.len();
                fields.retain(|(name, _)| name != field);
                assert_eq!(hash.remove(field), fields.len() < known);
            }
        }

        fn push(&mut self, key: usize, element: &[u8]) {
            let slot = self.find(&name(key));
            if let Some((ModelValue::List(elements), _)) = self.model.get_mut(&name(key)) {
                let slot = slot.expect("a list in the model");
                let list = self.records.value_mut::<List>(slot).expect("a list");
                list.push(End::Right, element);
                elements.push(element.to_vec());
            } else {
                let mut list = List::default();
                list.push(End::Right, element);
                self.give(
                    key,
                    NewValue::Value(list.into()),
                    ModelValue::List(vec![element.to_vec()]),
                );
            }
        }

        fn set_deadline(&mut self, key: &[u8], span: Option<i64>) {
            let Some(slot) = self.find(key) else { return };
            let deadline = span.map(|span| self.now + span);
            match deadline {
                Some(deadline) => {
                    self.records.set_deadline(slot, Millis(deadline), Millis(self.now));
                }
                None => self.records.clear_deadline(slot),
            }
            self.model.get_mut(key).expect("it is there").1 = deadline;
        }

        fn advance(&mut self, span: i64) {
            self.now += span;
            let mut budget = u32::MAX;
            while self.records.next_deadline().is_some_and(|next| next <= Millis(self.now)) {
                let mut due = Vec::new();
                self.records.pop_due(Millis(self.now), &mut budget, &mut due);
                for due in due {
                    let record = self.records.get(due.slot);
                    let (_, deadline) = self.model.remove(record.key()).expect("invented");
                    assert_eq!(deadline.map(Millis), record.deadline());
                    assert!(deadline.is_some_and(|deadline| deadline <= self.now), "early");
                    self.records.discard(due, &mut Garbage::default());
                }
            }
            self.records.advance(Millis(self.now));
            let overdue =
                self.model.values().any(|(_, end)| end.is_some_and(|end| end <= self.now));
            assert!(!overdue || !self.records.active_expiry, "lost or late");
        }

        /// Compares all visible state and checks the invariants of the module's documentation.
        fn compare(&self) {
            let Records { headers, values, index, with_deadline, .. } = &self.records;
            assert_eq!((self.records.len(), index.entries()), (self.model.len(), self.model.len()));
            let out_of_line = headers
                .chunks()
                .numbers()
                .filter(|&at| headers.get(at).form.payload() == Form::OUT_OF_LINE);
            assert_eq!(values.chunks().len(), out_of_line.count());
            let deadlines = self.model.values().filter(|(_, deadline)| deadline.is_some()).count();
            assert_eq!(*with_deadline, deadlines);
            let timers = if self.records.active_expiry { deadlines } else { 0 };
            assert_eq!(self.records.timers(), timers);
            for (key, (value, deadline)) in &self.model {
                let record = self.records.get(self.find(key).expect("in the model"));
                assert_eq!((record.key(), record.deadline()), (&key[..], deadline.map(Millis)));
                assert_is(record.value(), value.clone());
            }
        }
    }

    /// Panics if the value differs from that of the model.
    fn assert_is(value: ValueRef<'_>, model: ModelValue) {
        let in_order = |value| match value {
            ModelValue::Fields(mut fields) => {
                fields.sort();
                ModelValue::Fields(fields)
            }
            other => other,
        };
        if matches!(value, ValueRef::Hash(Fields::Large(_))) {
            // A dictionary reuses the slots of removed fields.
            assert_eq!(in_order(plain(value)), in_order(model));
        } else {
            assert_eq!(plain(value), model);
        }
    }

    fn plain(value: ValueRef<'_>) -> ModelValue {
        match value {
            ValueRef::String(text) => ModelValue::Text(text.bytes().to_vec()),
            ValueRef::Hash(fields) => {
                assert_eq!(fields.len(), fields.iter().count());
                ModelValue::Fields(fields.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect())
            }
            ValueRef::List(list) => ModelValue::List(list.iter().map(<[u8]>::to_vec).collect()),
            other => unreachable!("{other:?}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec(steps(), 1..120)) {
            let (records, model) = (Records::new(SEED), BTreeMap::new());
            let mut pair = Pair { records, model, now: 0 };
            for step in steps {
                pair.step(step);
            }
        }
    }

    #[test]
    fn removed_hash_reuses_the_slot_of_a_removed_field() {
        let (records, model) = (Records::new(SEED), BTreeMap::new());
        let mut pair = Pair { records, model, now: 0 };
        for field in 1..=5 {
            pair.step(Step::Field(7, field, b"1".to_vec()));
        }
        pair.step(Step::RemoveField(7, 1));
        pair.step(Step::Field(7, 6, b"1".to_vec()));
        pair.step(Step::Remove(7));
    }

    fn add(records: &mut Records, key: &[u8], new_value: NewValue<'_>, now: Millis) -> Slot {
        records.add(key, SEED.hash(key), new_value, now)
    }

    #[test]
    fn value_of_same_length_is_overwritten_in_place() {
        let mut records = Records::new(SEED);
        let place = |records: &Records, slot| records.bytes(slot).as_ptr();
        let slot = add(&mut records, b"lock", NewValue::Text(b"token-1"), Millis(0));
        let before = place(&records, slot);
        records.set_value(slot, NewValue::Text(b"token-2"), &mut Garbage::default());
        assert_eq!(place(&records, slot), before);
        assert_eq!(plain(records.get(slot).value()), ModelValue::Text(b"token-2".to_vec()));
        let slot = add(&mut records, b"count", NewValue::Field(b"owner", b"1"), Millis(0));
        let before = place(&records, slot);
        let mut hash = records.hash_mut(slot).expect("a hash");
        let found = hash.find(b"owner");
        hash.put(found, b"owner", b"2", (SMALL, SEED));
        assert_eq!(hash.fields().get(b"owner"), Some(&b"2"[..]));
        assert_eq!(place(&records, slot), before);
    }

    #[test]
    fn idle_time_is_exact_to_the_millisecond_for_years() {
        for now in [0, -5, 1_700_000_000_000, i64::MAX] {
            let mut records = Records::new(SEED);
            let slot = add(&mut records, b"k", NewValue::Text(b"v"), Millis(now));
            let idle = |records: &Records, after: i64| {
                records.get(slot).idle(Millis(now.wrapping_add(after))).0
            };
            for after in [0, 1, 999, 1_000_000_000, IDLE_MAX.0] {
                assert_eq!(idle(&records, after), after);
            }
            assert_eq!(idle(&records, -1), 0, "the clock went back");
            records.set_idle(slot, Millis(5_000), Millis(now));
            assert_eq!(idle(&records, 7), 5_007);
            records.set_idle(slot, Millis(i64::MAX), Millis(now));
            assert_eq!(idle(&records, 0), IDLE_MAX.0);
        }
    }
}
