//! Applies effects to the state.

use super::Keyspace;
use super::dict::{HashSeed, Slot};
use super::effects::{Effect, EffectIter, Place};
use super::list::List;
use super::lock::Lock;
use super::records::{LookAhead, NewValue, Records};
use super::serialised::Malformed;
use super::set::Set;
use super::sorted_set::SortedSet;
use super::state::State;
use super::stream::Stream;
use super::stream::group::Group;
use super::value::OutOfLine;
use crate::limits;
use crate::timing::time::Millis;
use lockwheel_defects::defect;

/// The error for an effect that cannot be applied to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The bytes are not effects.
    Malformed,
    /// The database, the key or the part of its value that the effect changes does not exist.
    Missing,
    /// There is no memory for the change.
    OutOfMemory,
}

impl From<Malformed> for ApplyError {
    fn from(_: Malformed) -> ApplyError {
        ApplyError::Malformed
    }
}

/// An effect that was read from its byte form.
type Read<'a> = Result<(Place<'a>, Effect<'a>), Malformed>;

impl State {
    /// Applies effects in byte form, as they were recorded by another writer.
    ///
    /// # Errors
    ///
    /// The bytes are no effects, or do not belong to this state. The effects before are applied.
    pub fn apply(&mut self, effects: &[u8], now: Millis) -> Result<(), ApplyError> {
        let mut effects = EffectIter::new(effects);
        loop {
            let next: LookAhead<Read<'_>> =
                effects.by_ref().take(limits::LOOK_AHEAD_REQUESTS).collect();
            if next.is_empty() {
                return Ok(());
            }
            self.look_ahead(&next);
            // By reference: to move an effect would take as long as to apply it.
            for read in &next {
                let (place, effect) = read.as_ref().map_err(|_| Malformed)?;
                self.apply_effect(*place, effect, now)?;
            }
        }
    }

    /// Prefetches the records of the keys of these effects, as far as one database has them.
    fn look_ahead(&mut self, effects: &[Read<'_>]) {
        let places = || effects.iter().flatten().map(|(place, _)| *place);
        let Some(Place { database, .. }) = places().next() else { return };
        let mut keys: LookAhead<&[u8]> =
            places().filter(|place| place.database == database).map(|place| place.key).collect();
        keys.dedup();
        if keys.len() > 1 && database < self.keyspace.count() {
            self.keyspace.look_ahead(database, &keys);
        }
    }

    /// Makes the fencing tokens that follow greater than this one.
    fn restore_token(&mut self, token: u64) {
        if !defect!(TokenNotRestored) {
            self.last_token = self.last_token.max(token);
        }
    }

    /// Applies an effect. Events are ignored.
    fn apply_effect(
        &mut self,
        place: Place<'_>,
        effect: &Effect<'_>,
        now: Millis,
    ) -> Result<(), ApplyError> {
        let keyspace = &mut self.keyspace;
        if place.database >= keyspace.count() {
            return Err(ApplyError::Missing);
        }
        let Place { database, key } = place;
        match *effect {
            Effect::Event { .. } | Effect::Touched {} | Effect::Published { .. } => {}
            Effect::TokensIssued { last } => self.restore_token(last),
            Effect::Reserved { keys } => {
                keyspace.database_mut(database).records_mut().reserve(keys);
            }
            Effect::LibraryLoaded { .. }
            | Effect::LibraryDeleted { .. }
            | Effect::LibrariesFlushed {} => {
                let libraries = self.libraries.as_mut().ok_or(ApplyError::Missing)?;
                libraries.apply(effect)?;
            }
            Effect::UsersCleared {} | Effect::UserSet { .. } | Effect::UserRemoved { .. } => {
                self.users.apply(effect)?;
            }
            Effect::Set { value } => {
                let value = NewValue::Value(value.to_value(keyspace.seed)?);
                match keyspace.find_cached(database, key) {
                    Some(slot) => keyspace.set_value(database, slot, value),
                    None => drop(keyspace.add(database, key, value, now)),
                }
            }
            Effect::Flushed {} => drop(keyspace.clear(database)),
            Effect::Swapped { with } if with < keyspace.count() => keyspace.swap(database, with),
            Effect::Swapped { .. } => return Err(ApplyError::Missing),
            Effect::Postponed { span } => keyspace.postpone(span),
            _ => {
                let slot = keyspace.find_cached(database, key).ok_or(ApplyError::Missing)?;
                self.apply_to_key(database, slot, effect, now)?;
            }
        }
        Ok(())
    }

    fn apply_to_key(
        &mut self,
        database: usize,
        slot: Slot,
        effect: &Effect<'_>,
        now: Millis,
    ) -> Result<(), ApplyError> {
        let keyspace = &mut self.keyspace;
        match *effect {
            Effect::HoldGranted { ref hold } => {
                self.restore_token(hold.token);
                let keyspace = &mut self.keyspace;
                let records = keyspace.database_mut(database).records_mut();
                let lock: &mut Box<Lock> = records.value_mut(slot).ok_or(ApplyError::Missing)?;
                lock.add(hold.clone());
            }
            Effect::Deleted {} | Effect::Expired { .. } => keyspace.discard(database, slot),
            Effect::Deadline { deadline } => keyspace.set_deadline(database, slot, deadline),
            Effect::Plain { is_plain } => {
                keyspace.database_mut(database).records_mut().set_plain(slot, is_plain);
            }
            Effect::Moved { database: other, key } => {
                let to = absent(keyspace, other, key)?;
                keyspace.move_key(database, slot, to, now);
            }
            Effect::Copied { database: other, key } => {
                let to = absent(keyspace, other, key)?;
                keyspace.copy_key(database, slot, to, now);
            }
            _ => {
                let seed = keyspace.seed;
                let records = keyspace.database_mut(database).records_mut();
                apply_to_value(Target { records, slot, seed }, effect)?;
            }
        }
        Ok(())
    }
}

/// A place where no key is.
fn absent<'a>(
    keyspace: &mut Keyspace,
    database: usize,
    key: &'a [u8],
) -> Result<Place<'a>, ApplyError> {
    let is_free = database < keyspace.count() && keyspace.find_cached(database, key).is_none();
    if is_free { Ok(Place { database, key }) } else { Err(ApplyError::Missing) }
}

/// A stored value.
struct Target<'a> {
    records: &'a mut Records,
    slot: Slot,
    seed: HashSeed,
}

impl<'a> Target<'a> {
    fn value<T: OutOfLine>(self) -> Result<&'a mut T, ApplyError> {
        self.records.value_mut(self.slot).ok_or(ApplyError::Missing)
    }

    fn group(self, name: &[u8]) -> Result<&'a mut Group, ApplyError> {
        let stream: &'a mut Box<Stream> = self.value()?;
        stream.group_mut(name).map(|(group, _)| group).ok_or(ApplyError::Missing)
    }
}

fn apply_to_value(mut target: Target<'_>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    match effect {
        Effect::Patched { offset, bytes } => {
            let patched = target.records.patch(target.slot, *offset, bytes);
            patched.map(drop).map_err(|_| ApplyError::OutOfMemory)
        }
        Effect::FieldSet { .. } | Effect::FieldRemoved { .. } | Effect::HashGrown {} => {
            apply_to_hash(&mut target, effect)
        }
        Effect::Pushed { .. }
        | Effect::Popped { .. }
        | Effect::Inserted { .. }
        | Effect::Replaced { .. }
        | Effect::Cut { .. }
        | Effect::ElementsRemoved { .. }
        | Effect::ListForm { .. } => apply_to_list(target.value()?, effect),
        Effect::MemberAdded { .. } | Effect::MemberRemoved { .. } | Effect::SetForm { .. } => {
            apply_to_set(target, effect)
        }
        Effect::Scored { .. }
        | Effect::ScoreRemoved { .. }
        | Effect::RanksRemoved { .. }
        | Effect::SortedSetGrown {} => apply_to_sorted_set(target, effect),
        Effect::EntryAdded { .. }
        | Effect::EntryDeleted { .. }
        | Effect::Trimmed { .. }
        | Effect::StreamTotals { .. }
        | Effect::GroupAdded { .. }
        | Effect::GroupRemoved { .. } => apply_to_stream(target.value()?, effect),
        Effect::HoldChanged { .. } | Effect::HoldEnded { .. } => {
            apply_to_lock(target.value()?, effect)
        }
        _ => apply_to_group(target, effect),
    }
}

fn apply_to_hash(target: &mut Target<'_>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    let mut hash = target.records.hash_mut(target.slot).ok_or(ApplyError::Missing)?;
    match *effect {
        Effect::FieldSet { field, value } => drop(hash.put_in_form(field, value)),
        Effect::FieldRemoved { field } if hash.remove(field) => {}
        Effect::HashGrown {} => hash.make_large(target.seed),
        _ => return Err(ApplyError::Missing),
    }
    Ok(())
}

fn apply_to_list(list: &mut List, effect: &Effect<'_>) -> Result<(), ApplyError> {
    match *effect {
        Effect::Pushed { end, element } => list.push(end, element),
        Effect::Popped { end, count } => {
            for _ in 0..count {
                list.pop(end).ok_or(ApplyError::Missing)?;
            }
        }
        Effect::Inserted { place, element } if place <= list.len() => list.insert(place, element),
        Effect::Replaced { place, element } if list.set(place, element) => {}
        Effect::Cut { start, end } if start <= end && end <= list.len() => list.keep(start..end),
        Effect::ElementsRemoved { element, count, from } => drop(list.remove(element, count, from)),
        Effect::ListForm { is_outgrown } => list.set_outgrown(is_outgrown),
        _ => return Err(ApplyError::Missing),
    }
    Ok(())
}

fn apply_to_set(target: Target<'_>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    let seed = target.seed;
    let set: &mut Set = target.value()?;
    let is_applied = match *effect {
        Effect::MemberAdded { member } => set.add_in_form(member),
        Effect::MemberRemoved { member } => set.remove(member),
        Effect::SetForm { form } => {
            set.take_form(form, seed);
            true
        }
        _ => false,
    };
    is_applied.then_some(()).ok_or(ApplyError::Missing)
}

fn apply_to_sorted_set(target: Target<'_>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    let seed = target.seed;
    let set: &mut SortedSet = target.value()?;
    match *effect {
        Effect::Scored { member, score } => drop(set.set_in_form(member, score)),
        Effect::ScoreRemoved { member } => drop(set.remove(member).ok_or(ApplyError::Missing)?),
        Effect::RanksRemoved { start, end } if start <= end && end <= set.len() => {
            set.remove_range(start..end);
        }
        Effect::SortedSetGrown {} => set.make_large(seed),
        _ => return Err(ApplyError::Missing),
    }
    Ok(())
}

fn apply_to_stream(stream: &mut Box<Stream>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    let is_applied = match effect {
        Effect::EntryAdded { id, begins_node, fields } if *id > stream.last_id => {
            stream.add_to_node(*id, fields, *begins_node);
            true
        }
        Effect::EntryDeleted { id } => stream.delete(*id),
        Effect::Trimmed { trim } => stream.trim(*trim) > 0,
        &Effect::StreamTotals { last_id, max_deleted_id, entries_added } => {
            stream.set_totals(last_id, max_deleted_id, entries_added);
            true
        }
        Effect::GroupAdded { group, last_id, entries_read } => {
            stream.add_group(group, Group::new(*last_id, *entries_read))
        }
        Effect::GroupRemoved { group } => stream.remove_group(group),
        _ => false,
    };
    is_applied.then_some(()).ok_or(ApplyError::Missing)
}

fn apply_to_lock(lock: &mut Box<Lock>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    let is_applied = match *effect {
        Effect::HoldChanged { owner, ref leases } => lock.set_leases(owner, leases.clone()),
        Effect::HoldEnded { owner } => lock.remove(owner),
        _ => false,
    };
    is_applied.then_some(()).ok_or(ApplyError::Missing)
}

fn apply_to_group(target: Target<'_>, effect: &Effect<'_>) -> Result<(), ApplyError> {
    match *effect {
        Effect::GroupPosition { group, last_id, entries_read } => {
            let group = target.group(group)?;
            (group.last_id, group.entries_read) = (last_id, entries_read);
        }
        Effect::ConsumerSeen { group, consumer, at } => {
            target.group(group)?.note_attempt(consumer, at);
        }
        Effect::ConsumerActive { group, consumer, at } => {
            target.group(group)?.note_delivery(consumer, at);
        }
        Effect::ConsumerRemoved { group, consumer } => {
            target.group(group)?.remove_consumer(consumer).ok_or(ApplyError::Missing)?;
        }
        Effect::Assigned { group, id, consumer, delivered_at, deliveries } => {
            target.group(group)?.assign(id, consumer, delivered_at, deliveries);
        }
        Effect::Acknowledged { group, id } => {
            if !target.group(group)?.acknowledge(id) {
                return Err(ApplyError::Missing);
            }
        }
        _ => return Err(ApplyError::Missing),
    }
    Ok(())
}
