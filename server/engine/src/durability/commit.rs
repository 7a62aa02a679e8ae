//! The consumers of effects.
//!
//! After each command, the effects it has recorded are passed to those that inform clients:
//! `WATCH`, blocked clients, client tracking and keyspace events. Not later, because the next
//! command of the same unit may subscribe, or publish a message that follows. At the end of the
//! unit its effects are committed as a whole.

use crate::Engine;
use crate::command::Caller;
use crate::sessions::ClientId;
use crate::store::apply::ApplyError;
use crate::store::digest::Digest;
use crate::store::effects::{Effect, Effects, Place};
use crate::store::events::Events;
use crate::store::value::Kind;
use crate::timing::time::Time;

/// The client and the kind of call that have caused a change.
pub(crate) type Cause = Option<(ClientId, Caller)>;

impl Engine {
    /// Turns the recording of effects and the observation of commands on if they have a consumer,
    /// else off. Must be called whenever a consumer comes or goes.
    pub(crate) fn update_consumers(&mut self) {
        let records = self.sessions.use_effects()
            || self.kept_effects.is_some()
            || self.unit_log.is_some()
            || self.lease_ceiling.is_some()
            || self.instruments.as_ref().is_some_and(|instruments| instruments.use_effects());
        self.writer.set_recording(records);
        self.has_consumers = records
            || !self.writer.events().is_empty()
            || !self.sessions.monitors.is_empty()
            || self.journal().is_some();
    }

    /// Sets the classes of keyspace events that are published.
    pub(crate) fn set_events(&mut self, events: Events) {
        self.writer.set_events(events);
        self.update_consumers();
    }

    /// Passes the effects of a command to those that inform clients. `cause` is its call.
    #[inline]
    pub(crate) fn observe_effects(&mut self, cause: Cause) {
        if self.writer.has_unobserved() {
            self.observe_new_effects(cause);
        }
    }

    #[cold]
    fn observe_new_effects(&mut self, cause: Cause) {
        let (effects, start) = self.writer.take_unobserved();
        let mut touched: Option<(Place<'_>, Option<Kind>)> = None;
        let mut is_flushed = false;
        let mut rest = effects.since(start).peekable();
        while let Some((place, effect)) = rest.next() {
            match effect {
                // The move touches it, after the key that is moved.
                Effect::Deleted {} if rest.peek().is_some_and(|next| moves_to(next, place)) => {}
                Effect::Event { kind: _, name } => self.publish_event(name, place),
                Effect::Flushed {} => {
                    self.touch_database(place.database, None);
                    is_flushed = true;
                }
                Effect::Swapped { with } => {
                    self.touch_database(place.database, Some(with));
                    self.touch_database(with, Some(place.database));
                }
                Effect::GroupRemoved { .. } => {
                    // Clients blocked on the group must be unblocked: it will get no more entries.
                    self.sessions.mark_for_waiters(place.database, place.key, Some(Kind::Stream));
                }
                Effect::Moved { database, key } => {
                    self.touch(place, None, cause);
                    let kind = self.writer.keyspace().kind_of(database, key);
                    self.touch(Place { database, key }, kind, cause);
                    touched = None;
                }
                Effect::Copied { database, key } => {
                    let kind = self.writer.keyspace().kind_of(database, key);
                    self.touch(Place { database, key }, kind, cause);
                    touched = None;
                }
                Effect::Expired { deadline } => {
                    self.note_end_of_lease(place, deadline);
                    self.touch(place, None, None);
                    touched = None;
                }
                effect if effect.modifies_key() => {
                    let kind = match effect {
                        Effect::Deadline { .. } | Effect::Touched {} => {
                            self.writer.keyspace().kind_of(place.database, place.key)
                        }
                        effect => effect.kind_after(),
                    };
                    // A command that changes many elements touches its key once.
                    if touched != Some((place, kind)) {
                        self.touch(place, kind, cause);
                        touched = Some((place, kind));
                    }
                }
                _ => {}
            }
        }
        if is_flushed {
            self.sessions.invalidate_all();
        }
        drop(rest);
        self.writer.put_back(effects);
    }

    /// Handles a change of a key, which now has a value of this type: breaks the transactions that
    /// watch it, marks it for waiting clients, and invalidates it for tracking clients.
    fn touch(&mut self, place: Place<'_>, kind: Option<Kind>, cause: Cause) {
        self.sessions.mark_for_waiters(place.database, place.key, kind);
        self.sessions.break_watches(place);
        self.sessions.invalidate(place.key, cause);
    }

    /// Handles a database that was emptied or swapped with `other`.
    fn touch_database(&mut self, database: usize, other: Option<usize>) {
        let keyspace = self.writer.keyspace();
        self.sessions.mark_all_for_waiters(keyspace, database, other.is_some());
        self.sessions.break_watches_of_database(keyspace, database, other.is_some());
    }

    /// Ends a unit: commits its effects.
    #[inline]
    pub(crate) fn end_unit(&mut self, time: Time) {
        // The shadow also compares the states after a unit without effects.
        if !self.writer.effects().is_empty() || self.instruments.is_some() {
            self.commit_unit(time);
        }
    }

    #[cold]
    fn commit_unit(&mut self, time: Time) {
        // A request that is run within a slow script belongs to the unit of the script.
        if self.script.is_some() {
            return;
        }
        debug_assert!(!self.writer.has_unobserved(), "effects that no command has caused");
        let effects: Effects = self.writer.take_committed();
        self.keep_write(&effects, time);
        let raises_ceiling = self.raise_ceiling(&effects, time.now);
        self.log_unit(&effects, raises_ceiling);
        if let Some(kept) = &mut self.kept_effects
            && !effects.is_empty()
        {
            kept.push(effects.bytes().to_vec());
        }
        if let Some(mut shadow) = self.instruments.as_mut().and_then(|it| it.shadow.take()) {
            shadow.follow(&effects, self, time);
            if let Some(instruments) = &mut self.instruments {
                instruments.shadow = Some(shadow);
            }
        }
        self.writer.reuse(effects);
    }
}

/// Whether this effect moves a key to `to`.
fn moves_to((_, effect): &(Place<'_>, Effect<'_>), to: Place<'_>) -> bool {
    matches!(effect, Effect::Moved { database, key } if (Place { database: *database, key }) == to)
}

impl Engine {
    /// Begins to keep the effects of each unit for [`Engine::take_effects`].
    pub fn keep_effects(&mut self) {
        self.kept_effects.get_or_insert_default();
        self.update_consumers();
    }

    /// Takes the effects of the units since the last call, in the byte form that [`Engine::apply`]
    /// reads.
    pub fn take_effects(&mut self) -> Vec<Vec<u8>> {
        self.kept_effects.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Applies effects in byte form to the state, as they were recorded by another engine.
    ///
    /// # Errors
    ///
    /// The bytes are no effects, or do not belong to this state. The effects before are applied.
    pub fn apply(&mut self, effects: &[u8], time: Time) -> Result<(), ApplyError> {
        self.writer.apply(effects, time.now)
    }

    /// The digest of the state.
    pub fn digest(&self) -> Digest {
        self.writer.state().digest()
    }
}
