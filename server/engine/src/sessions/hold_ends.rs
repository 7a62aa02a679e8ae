//! For each native lock, when its next lease ends if the lock outlasts it: the lease of one of
//! several owners, or of one of several connections of an owner. When the lock itself ends is the
//! deadline of its key.
//!
//! An entry may be stale: its lock may have been removed. One timer serves all locks.

use std::collections::{BTreeMap, BTreeSet};

use super::bindings::swapped;
use super::{Sessions, Timer};
use crate::store::DatabaseKey;
use crate::timing::time::Millis;
use crate::timing::timers::TimerId;

/// Fewest entries that count as those that the last sweep has left: stale ones are removed when
/// there are twice as many.
const LOCKS_BEFORE_SWEEP: usize = 1_000;

/// The next ends of leases, by lock and in time order.
#[derive(Debug, Default)]
pub(crate) struct HoldEnds {
    by_lock: BTreeMap<DatabaseKey, Millis>,
    by_time: BTreeSet<(Millis, DatabaseKey)>,
    /// The timer of the first end, and when it fires.
    timer: Option<(Millis, TimerId)>,
    /// Number of entries after the last sweep.
    kept: usize,
}

impl HoldEnds {
    fn remove(&mut self, place: &DatabaseKey) {
        if let Some((place, end)) = self.by_lock.remove_entry(place) {
            self.by_time.remove(&(end, place));
        }
    }
}

impl Sessions {
    /// Records when the next lease of a lock ends, or removes its entry. Returns whether a sweep is
    /// due: the caller then calls [`Sessions::retain_hold_ends`].
    pub(crate) fn set_hold_end(
        &mut self,
        (database, key): (usize, &[u8]),
        end: Option<Millis>,
    ) -> bool {
        let ends = &mut self.hold_ends;
        if end.is_none() && ends.by_lock.is_empty() {
            return false;
        }
        let place = (database, key.into());
        ends.remove(&place);
        if let Some(end) = end {
            ends.by_time.insert((end, place.clone()));
            ends.by_lock.insert(place, end);
        }
        self.set_hold_timer();
        self.hold_ends.by_lock.len() >= 2 * self.hold_ends.kept.max(LOCKS_BEFORE_SWEEP)
    }

    /// Removes the entries of locks that do not exist.
    pub(crate) fn retain_hold_ends(&mut self, mut exists: impl FnMut(&DatabaseKey) -> bool) {
        let ends = &mut self.hold_ends;
        ends.by_lock.retain(|place, _| exists(place));
        ends.by_time = ends.by_lock.iter().map(|(place, end)| (*end, place.clone())).collect();
        ends.kept = ends.by_lock.len();
        self.set_hold_timer();
    }

    /// Removes and returns the first lock in time order, after its timer has fired.
    pub(crate) fn take_ended_hold(&mut self) -> Option<DatabaseKey> {
        self.hold_ends.timer = None;
        let (_, place) = self.hold_ends.by_time.pop_first()?;
        self.hold_ends.by_lock.remove(&place);
        self.set_hold_timer();
        Some(place)
    }

    /// Moves the entries of two databases that are swapped.
    pub(crate) fn swap_hold_ends(&mut self, a: usize, b: usize) {
        let by_lock = std::mem::take(&mut self.hold_ends.by_lock);
        let moved = by_lock.into_iter().map(|(place, end)| (swapped(place, a, b), end));
        self.hold_ends.by_lock = moved.collect();
        self.retain_hold_ends(|_| true);
    }

    /// Removes all entries and the timer.
    pub(crate) fn clear_hold_ends(&mut self) {
        let ends = std::mem::take(&mut self.hold_ends);
        if let Some((_, timer)) = ends.timer {
            self.timers.cancel(timer);
        }
    }

    fn set_hold_timer(&mut self) {
        let first = self.hold_ends.by_time.first().map(|(end, _)| *end);
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
