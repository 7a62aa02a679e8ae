//! Reading keys: no key is found after its deadline.

use lockwheel_resp::Reply;

use super::Context;
use crate::Engine;
use crate::error::Error;
use crate::store::counter::increment;
use crate::store::dict::Slot;
use crate::store::events::Events;
use crate::store::records::Record;
use crate::store::value::{Typed, ValueRef};
use crate::timing::time::Millis;

impl Context<'_> {
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

    /// The slot of a random key, which may have reached its deadline.
    pub fn random_slot(&mut self) -> Option<Slot> {
        let Engine { writer, random, .. } = &mut *self.engine;
        writer.keyspace().database(self.database).records().random(random)
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
}
