//! Mutable access to stored values. Each change is recorded as an effect.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use super::dict::HashSeed;
use super::effects::{Effect, Effects, Place};
use super::hash::{Fields, FoundField, SmallHashLimits};
use super::list::{Element, End, List, SmallListLimits};
use super::lock::{Hold, Leases, Lock};
use super::records::{HashMut, Update};
use super::set::{Set, SetForm, SmallSetLimits};
use super::sorted_set::{SmallSortedSetLimits, SortedSet};
use super::stream::group::Group;
use super::stream::id::StreamId;
use super::stream::nodes::NodeLimits;
use super::stream::{Entries, Extent, Stream, Trim};
use crate::timing::time::{Millis, Time};

/// Records effects at one place, if effects are recorded.
#[derive(Debug)]
pub(super) struct Recorder<'a> {
    effects: Option<&'a mut Effects>,
    place: Place<'a>,
}

impl<'a> Recorder<'a> {
    #[inline]
    pub(super) fn new(effects: Option<&'a mut Effects>, place: Place<'a>) -> Recorder<'a> {
        Recorder { effects, place }
    }

    #[inline]
    fn is_on(&self) -> bool {
        self.effects.is_some()
    }

    #[cold]
    fn push(&mut self, effect: &Effect<'_>) {
        if let Some(effects) = &mut self.effects {
            effects.push(self.place, effect);
        }
    }
}

/// A stored value of one type. It can be read as such a value, and changed through methods only.
#[derive(Debug)]
pub struct Edit<'a, T> {
    value: &'a mut T,
    recorder: Recorder<'a>,
}

impl<T> Deref for Edit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<'a, T> Edit<'a, T> {
    pub(super) fn new(value: &'a mut T, recorder: Recorder<'a>) -> Edit<'a, T> {
        Edit { value, recorder }
    }
}

/// A stored hash.
#[derive(Debug)]
pub struct HashEdit<'a> {
    hash: HashMut<'a>,
    recorder: Recorder<'a>,
}

impl<'a> HashEdit<'a> {
    #[inline]
    pub(super) fn new(hash: HashMut<'a>, recorder: Recorder<'a>) -> HashEdit<'a> {
        HashEdit { hash, recorder }
    }

    /// The fields.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        self.hash.fields()
    }

    /// Searches for a field.
    pub fn find(&self, field: &[u8]) -> FoundField {
        self.hash.find(field)
    }

    /// Sets a field to what `next` returns for its value; the value is `None` if there is no such
    /// field. An error of `next` changes nothing.
    #[inline]
    pub fn update<'v, E>(
        &mut self,
        field: &[u8],
        forms: (SmallHashLimits, HashSeed),
        next: impl FnOnce(Option<&[u8]>) -> Result<&'v [u8], E>,
    ) -> Result<(), E> {
        match self.hash.update(field, next)? {
            Update::Found(found, value) => drop(self.put(found, field, value, forms)),
            Update::Overwritten(value) => {
                self.recorder.push(&Effect::FieldSet { field, value });
            }
        }
        Ok(())
    }

    /// Sets a field that has just been searched for; returns whether it is new.
    #[inline]
    pub fn put(
        &mut self,
        found: FoundField,
        field: &[u8],
        value: &[u8],
        (limits, seed): (SmallHashLimits, HashSeed),
    ) -> bool {
        if self.recorder.is_on() {
            if found.outgrows(field, value, limits) {
                self.recorder.push(&Effect::HashGrown {});
            }
            self.recorder.push(&Effect::FieldSet { field, value });
        }
        self.hash.put(found, field, value, (limits, seed))
    }

    /// Removes a field; returns whether it existed.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.hash.remove(field);
        if removed && self.recorder.is_on() {
            self.recorder.push(&Effect::FieldRemoved { field });
        }
        removed
    }
}

impl Edit<'_, List> {
    /// As [`List::push`].
    pub fn push(&mut self, end: End, element: &[u8]) {
        self.recorder.push(&Effect::Pushed { end, element });
        self.value.push(end, element);
    }

    /// As [`List::pop`].
    pub fn pop(&mut self, end: End) -> Option<Element> {
        let element = self.value.pop(end)?;
        self.recorder.push(&Effect::Popped { end, count: 1 });
        Some(element)
    }

    /// As [`List::insert`].
    pub fn insert(&mut self, place: usize, element: &[u8]) {
        self.recorder.push(&Effect::Inserted { place, element });
        self.value.insert(place, element);
    }

    /// As [`List::set`].
    pub fn set(&mut self, place: usize, element: &[u8]) -> bool {
        let is_set = self.value.set(place, element);
        if is_set {
            self.recorder.push(&Effect::Replaced { place, element });
        }
        is_set
    }

    /// As [`List::keep`].
    pub fn keep(&mut self, Range { start, end }: Range<usize>) {
        self.recorder.push(&Effect::Cut { start, end });
        self.value.keep(start..end);
    }

    /// As [`List::remove`].
    pub fn remove(&mut self, element: &[u8], count: usize, from: End) -> usize {
        let removed = self.value.remove(element, count, from);
        if removed > 0 {
            self.recorder.push(&Effect::ElementsRemoved { element, count, from });
        }
        removed
    }

    /// As [`List::grow`].
    pub fn grow(&mut self, added: &[&[u8]], limits: SmallListLimits) {
        self.change_form(|list| list.grow(added, limits));
    }

    /// As [`List::shrink`].
    pub fn shrink(&mut self, limits: SmallListLimits) {
        self.change_form(|list| list.shrink(limits));
    }

    fn change_form(&mut self, change: impl FnOnce(&mut List)) {
        let before = self.value.is_outgrown();
        change(self.value);
        let is_outgrown = self.value.is_outgrown();
        if is_outgrown != before {
            self.recorder.push(&Effect::ListForm { is_outgrown });
        }
    }
}

impl Edit<'_, Set> {
    /// As [`Set::expect`].
    pub fn expect(&mut self, first: &[u8], count: usize, limits: SmallSetLimits, seed: HashSeed) {
        let before = self.value.form();
        self.value.expect(first, count, limits, seed);
        self.record_form(before);
    }

    /// As [`Set::add`].
    pub fn add(&mut self, member: &[u8], limits: SmallSetLimits, seed: HashSeed) -> bool {
        let before = self.value.form();
        let added = self.value.add(member, limits, seed);
        if added {
            self.record_form(before);
            self.recorder.push(&Effect::MemberAdded { member });
        }
        added
    }

    /// As [`Set::remove`].
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.value.remove(member);
        if removed {
            self.recorder.push(&Effect::MemberRemoved { member });
        }
        removed
    }

    /// As [`Set::rebuild`].
    pub fn rebuild(&mut self, limits: SmallSetLimits, seed: HashSeed) {
        let before = self.value.form();
        self.value.rebuild(limits, seed);
        self.record_form(before);
    }

    fn record_form(&mut self, before: SetForm) {
        let form = self.value.form();
        if form != before {
            self.recorder.push(&Effect::SetForm { form });
        }
    }
}

impl Edit<'_, SortedSet> {
    /// As [`SortedSet::set`].
    pub fn set(
        &mut self,
        member: &[u8],
        score: f64,
        limits: SmallSortedSetLimits,
        seed: HashSeed,
    ) -> Option<f64> {
        let was_small = matches!(self.value, SortedSet::Small(_));
        let old = self.value.set(member, score, limits, seed);
        if was_small && matches!(self.value, SortedSet::Large(_)) {
            self.recorder.push(&Effect::SortedSetGrown {});
        }
        self.recorder.push(&Effect::Scored { member, score });
        old
    }

    /// As [`SortedSet::remove`].
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.value.remove(member)?;
        self.recorder.push(&Effect::ScoreRemoved { member });
        Some(score)
    }

    /// As [`SortedSet::remove_range`].
    pub fn remove_range(&mut self, Range { start, end }: Range<usize>) {
        if start < end {
            self.recorder.push(&Effect::RanksRemoved { start, end });
        }
        self.value.remove_range(start..end);
    }
}

impl Edit<'_, Box<Lock>> {
    /// Adds the hold of an owner that has none. Its token must be the last one that was issued.
    pub fn grant(&mut self, hold: Hold) {
        if self.recorder.is_on() {
            self.recorder.push(&Effect::HoldGranted { hold: hold.clone() });
        }
        self.value.add(hold);
    }

    /// Changes the leases of an owner.
    pub fn set_leases(&mut self, owner: &[u8], leases: Leases) {
        if self.recorder.is_on() {
            self.recorder.push(&Effect::HoldChanged { owner, leases: leases.clone() });
        }
        self.value.set_leases(owner, leases);
    }

    /// Removes the hold of an owner.
    pub fn end(&mut self, owner: &[u8]) {
        if self.value.remove(owner) {
            self.recorder.push(&Effect::HoldEnded { owner });
        }
    }

    /// Removes expired leases. A hold without other leases is removed with them; returns these
    /// holds.
    pub fn remove_expired_leases(&mut self, time: Time) -> Vec<Hold> {
        let is_affected = |hold: &&Hold| hold.leases(time).count() < hold.leases.len();
        let affected: Vec<Hold> = self.value.stored().iter().filter(is_affected).cloned().collect();
        let (ended, shortened): (Vec<Hold>, Vec<Hold>) =
            affected.into_iter().partition(|hold| time.reached(hold.deadline()));
        for hold in &ended {
            self.end(&hold.owner);
        }
        for hold in &shortened {
            self.set_leases(&hold.owner, hold.leases(time).copied().collect());
        }
        ended
    }
}

impl<'a> Edit<'a, Box<Stream>> {
    /// As [`Stream::add`].
    pub fn add(&mut self, id: StreamId, fields: &[[&[u8]; 2]], limits: NodeLimits) {
        let begins_node = self.value.add(id, fields, limits);
        let fields = Cow::Borrowed(fields);
        self.recorder.push(&Effect::EntryAdded { id, begins_node, fields });
    }

    /// As [`Stream::delete`].
    pub fn delete(&mut self, id: StreamId) -> bool {
        let deleted = self.value.delete(id);
        if deleted {
            self.recorder.push(&Effect::EntryDeleted { id });
        }
        deleted
    }

    /// As [`Stream::trim`].
    pub fn trim(&mut self, trim: Trim) -> usize {
        let trimmed = self.value.trim(trim);
        if trimmed > 0 {
            self.recorder.push(&Effect::Trimmed { trim });
        }
        trimmed
    }

    /// Sets `last-generated-id`, `max-deleted-entry-id` and `entries-added` of the stream.
    pub fn set_totals(&mut self, last_id: StreamId, max_deleted_id: StreamId, entries_added: i64) {
        self.recorder.push(&Effect::StreamTotals { last_id, max_deleted_id, entries_added });
        self.value.set_totals(last_id, max_deleted_id, entries_added);
    }

    /// As [`Stream::add_group`], for a group without consumers.
    pub fn add_group(
        &mut self,
        group: &[u8],
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> bool {
        let added = self.value.add_group(group, Group::new(last_id, entries_read));
        if added {
            self.recorder.push(&Effect::GroupAdded { group, last_id, entries_read });
        }
        added
    }

    /// As [`Stream::remove_group`].
    pub fn remove_group(&mut self, group: &[u8]) -> bool {
        let removed = self.value.remove_group(group);
        if removed {
            self.recorder.push(&Effect::GroupRemoved { group });
        }
        removed
    }

    /// The group with this name, to be changed.
    pub fn into_group(self, name: &'a [u8]) -> Option<GroupEdit<'a>> {
        let extent = self.value.extent();
        let (group, entries) = self.value.group_mut(name)?;
        Some(GroupEdit { group, entries, extent, name, recorder: self.recorder })
    }
}

/// A stored consumer group. It can be read as such a group, and changed through methods only.
#[derive(Debug)]
pub struct GroupEdit<'a> {
    group: &'a mut Group,
    /// The entries of the stream.
    pub entries: &'a Entries,
    extent: Extent,
    name: &'a [u8],
    recorder: Recorder<'a>,
}

impl Deref for GroupEdit<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group
    }
}

impl GroupEdit<'_> {
    /// Sets `last-delivered-id` and `entries-read` of the group; the latter is `None` if unknown.
    pub fn set_position(&mut self, last_id: StreamId, entries_read: Option<i64>) {
        (self.group.last_id, self.group.entries_read) = (last_id, entries_read);
        self.record_position();
    }

    fn record_position(&mut self) {
        let Group { last_id, entries_read, .. } = *self.group;
        let group = self.name;
        self.recorder.push(&Effect::GroupPosition { group, last_id, entries_read });
    }

    /// As [`Group::add_consumer`].
    pub fn add_consumer(&mut self, consumer: &[u8], now: Millis) -> bool {
        let added = self.group.add_consumer(consumer, now);
        if added {
            self.recorder.push(&Effect::ConsumerSeen { group: self.name, consumer, at: now });
        }
        added
    }

    /// As [`Group::remove_consumer`].
    pub fn remove_consumer(&mut self, consumer: &[u8]) -> Option<usize> {
        let removed = self.group.remove_consumer(consumer)?;
        self.recorder.push(&Effect::ConsumerRemoved { group: self.name, consumer });
        Some(removed)
    }

    /// As [`Group::note_attempt`].
    pub fn note_attempt(&mut self, consumer: &[u8], now: Millis) -> bool {
        self.recorder.push(&Effect::ConsumerSeen { group: self.name, consumer, at: now });
        self.group.note_attempt(consumer, now)
    }

    /// As [`Group::note_delivery`].
    pub fn note_delivery(&mut self, consumer: &[u8], now: Millis) {
        self.recorder.push(&Effect::ConsumerActive { group: self.name, consumer, at: now });
        self.group.note_delivery(consumer, now);
    }

    /// As [`Group::assign`].
    pub fn assign(&mut self, id: StreamId, consumer: &[u8], delivered_at: Millis, deliveries: u64) {
        let group = self.name;
        self.recorder.push(&Effect::Assigned { group, id, consumer, delivered_at, deliveries });
        self.group.assign(id, consumer, delivered_at, deliveries);
    }

    /// As [`Group::deliver_again`].
    pub fn deliver_again(&mut self, id: StreamId, now: Millis) {
        self.group.deliver_again(id, now);
        if let Some(pending) = self.group.pending().get(&id) {
            let (consumer, deliveries) = (&*pending.consumer, pending.deliveries);
            let (group, delivered_at) = (self.name, pending.delivered_at);
            self.recorder.push(&Effect::Assigned { group, id, consumer, delivered_at, deliveries });
        }
    }

    /// Records that the entry is given to a consumer. It becomes pending if it `is_kept`.
    pub fn deliver(&mut self, id: StreamId, consumer: &[u8], now: Millis, is_kept: bool) {
        if self.group.advance(id, self.extent) {
            self.record_position();
        }
        if is_kept {
            self.assign(id, consumer, now, 1);
            self.note_delivery(consumer, now);
        }
    }

    /// As [`Group::acknowledge`].
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let acknowledged = self.group.acknowledge(id);
        if acknowledged {
            self.recorder.push(&Effect::Acknowledged { group: self.name, id });
        }
        acknowledged
    }
}
