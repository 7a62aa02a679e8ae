//! When the next lease of a native lock ends before the lock does: one owner of several, or one
//! connection of an owner. The end of the lock itself is the deadline of its key.
//!
//! An entry may be out of date: its lock may be gone. One timer serves all locks.

use std::collections::{BTreeMap, BTreeSet};

use super::bindings::swapped;
use super::{Sessions, Timer};
use crate::store::DatabaseKey;
use crate::timing::time::Millis;
use crate::timing::timers::TimerId;

/// Half the locks that are recorded before those that are gone are removed.
const LOCKS_BEFORE_SWEEP: usize = 1_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct HoldEnds {
    of_locks: BTreeMap<DatabaseKey, Millis>,
    in_order: BTreeSet<(Millis, DatabaseKey)>,
    /// Fires at the first end.
    timer: Option<(Millis, TimerId)>,
    /// The locks that were left when those that are gone were removed last.
    kept: usize,
}

impl HoldEnds {
    fn remove(&mut self, place: &DatabaseKey) {
        if let Some((place, end)) = self.of_locks.remove_entry(place) {
            self.in_order.remove(&(end, place));
        }
    }
}

impl Sessions {
    /// Records when the next lease of a lock ends, if that is before the lock does. Returns whether
    /// the locks that are gone are to be removed: there are twice as many as when that was done
    /// last.
    pub(crate) fn set_hold_end(
        &mut self,
        (database, key): (usize, &[u8]),
        end: Option<Millis>,
    ) -> bool {
        let ends = &mut self.hold_ends;
        if end.is_none() && ends.of_locks.is_empty() {
            return false;
        }
        let place = (database, key.into());
        ends.remove(&place);
        if let Some(end) = end {
            ends.in_order.insert((end, place.clone()));
            ends.of_locks.insert(place, end);
        }
        self.set_hold_timer();
        self.hold_ends.of_locks.len() >= 2 * self.hold_ends.kept.max(LOCKS_BEFORE_SWEEP)
    }

    /// Keeps only the locks that are still there.
    pub(crate) fn retain_hold_ends(&mut self, mut is_there: impl FnMut(&DatabaseKey) -> bool) {
        let ends = &mut self.hold_ends;
        ends.of_locks.retain(|place, _| is_there(place));
        ends.in_order = ends.of_locks.iter().map(|(place, end)| (*end, place.clone())).collect();
        ends.kept = ends.of_locks.len();
        self.set_hold_timer();
    }

    /// Removes a lock of which a lease has ended; the timer has fired and no longer exists.
    pub(crate) fn take_ended_hold(&mut self) -> Option<DatabaseKey> {
        self.hold_ends.timer = None;
        let (_, place) = self.hold_ends.in_order.pop_first()?;
        self.hold_ends.of_locks.remove(&place);
        self.set_hold_timer();
        Some(place)
    }

    /// Two databases were swapped.
    pub(crate) fn swap_hold_ends(&mut self, a: usize, b: usize) {
        let of_locks = std::mem::take(&mut self.hold_ends.of_locks);
        let moved = of_locks.into_iter().map(|(place, end)| (swapped(place, a, b), end));
        self.hold_ends.of_locks = moved.collect();
        self.retain_hold_ends(|_| true);
    }

    /// Forgets all locks.
    pub(crate) fn clear_hold_ends(&mut self) {
        let ends = std::mem::take(&mut self.hold_ends);
        if let Some((_, timer)) = ends.timer {
            self.timers.cancel(timer);
        }
    }

    fn set_hold_timer(&mut self) {
        let first = self.hold_ends.in_order.first().map(|(end, _)| *end);
        if self.hold_ends.timer.map(|(end, _)| end) == first {
            return;
        }
        if let Some((_, timer)) = self.hold_ends.timer.take() {
            self.timers.cancel(timer);
        }
        let timer = first.map(|end| (end, self.timers.insert(end, Timer::HoldEnd)));
        self.hold_ends.timer = timer;
    }
}
