//! How time passes: leases end, timers fire, and no key is found after its deadline.

use crate::engine::Engine;
use crate::sessions::Timer;
use crate::statistics::latency::EXPIRE_CYCLE;
use crate::store::Due;
use crate::store::dict::Slot;
use crate::timing::time::{Millis, Time};

impl Engine {
    /// Processes what is due, in at most `budget` steps; the rest of the budget is used to free
    /// memory. The caller then calls [`Engine::serve_waiters`]. More may be left to do if
    /// [`Engine::next_deadline`] has been reached or [`Engine::has_garbage`] is true: timers that
    /// are later than a change for which clients wait fire after these are served.
    pub fn tick(&mut self, time: Time, budget: u32) {
        if !self.leads() {
            let budget_left =
                if self.is_follower() { self.fire_timers(time, budget) } else { budget };
            self.free(budget_left);
            return;
        }
        let begin_ns = (self.process.clock_ns)();
        if begin_ns >= self.samples.next_ns {
            self.sample(begin_ns);
        }
        let budget_left = self.expire_due(time, budget);
        let took_ns = (self.process.clock_ns)().saturating_sub(begin_ns);
        self.stats.expire_ns += took_ns;
        self.latency.note(EXPIRE_CYCLE, took_ns, time);
        if budget_left > 0 {
            self.writer.work_ahead(time.now, budget_left);
            self.free(budget_left);
        }
        self.sessions.broadcast_changes();
    }

    /// Frees memory, in at most `budget` steps.
    pub(crate) fn free(&mut self, budget: u32) {
        self.writer.free_garbage(budget as usize);
        if let Some(interpreter) = self.interpreter.as_mut() {
            interpreter.tidy();
        }
    }

    /// Whether [`Engine::tick`] has memory to free, independent of time.
    #[inline]
    pub fn has_garbage(&self) -> bool {
        !self.writer.keyspace().garbage().is_empty()
            || self.interpreter.as_ref().is_some_and(|lua| lua.has_garbage())
            || self.writer.libraries().is_some_and(|functions| functions.has_garbage())
    }

    /// Moves all deadlines and timers `span` later.
    pub(crate) fn postpone(&mut self, span: Millis, time: Time) {
        self.writer.postpone(span);
        self.observe_effects(None);
        self.end_unit(time);
        self.sessions.postpone(span);
        self.find_hold_ends(time);
        if let Some(guard) = self.guard_mut() {
            guard.until = Millis(guard.until.0.saturating_add(span.0));
        }
    }

    /// When [`Engine::tick`] next has something to do.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.leads() {
            return self.sessions.timers.next_deadline().filter(|_| self.is_follower());
        }
        let moments = [self.next_due(), self.writer.keyspace().next_work_ahead()];
        moments.into_iter().flatten().min()
    }

    /// When the next key or timer is due.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let moments =
            [self.writer.keyspace().next_deadline(), self.sessions.timers.next_deadline()];
        moments.into_iter().flatten().min()
    }

    /// Whether everything due by `now` has been processed. A cheap check, since many requests
    /// arrive in one millisecond.
    #[inline]
    pub(crate) fn is_done_for(&self, now: Millis) -> bool {
        self.writer.keyspace().is_done_for(now)
            && self.sessions.timers.next_deadline().is_none_or(|next| next > now)
    }

    /// Processes what is due and returns the rest of `budget`. Nothing is due while the log is
    /// loaded: it contains the expirations that follow.
    pub(crate) fn expire_due(&mut self, time: Time, mut budget: u32) -> u32 {
        if !self.leads() {
            return budget;
        }
        while budget > 0 {
            let Some(moment) = self.next_due().filter(|&moment| moment <= time.now) else {
                if self.writer.advance(time.now) {
                    self.sessions.timers.advance(time.now);
                }
                break;
            };
            // A lease that ended before a client's wait did is granted to the client first.
            let is_timer = self.writer.keyspace().next_deadline().is_none_or(|next| next > moment);
            if is_timer && self.script.is_none() && self.sessions.has_waiters_to_serve() {
                break;
            }
            let expired_before = self.stats.expired_keys;
            self.process_next(moment, time, &mut budget);
            let expired = self.stats.expired_keys - expired_before;
            let late_ms = u64::try_from(time.now.0 - moment.0).unwrap_or(0);
            self.stats.expired_late_ms += late_ms.saturating_mul(expired);
            if expired > 0 {
                self.stats.expired_late_ms_max = self.stats.expired_late_ms_max.max(late_ms);
            }
        }
        self.end_unit(time);
        budget
    }

    /// Processes the next key or timer, which is due at `moment`. At the same moment keys expire
    /// before timers fire.
    pub(crate) fn process_next(&mut self, moment: Millis, time: Time, budget: &mut u32) {
        if self.writer.keyspace().next_deadline().is_some_and(|next| next <= moment) {
            let mut due = std::mem::take(&mut self.due);
            if let Some(database) = self.writer.pop_due(moment, budget, &mut due) {
                for due in due.drain(..) {
                    self.remove_expired(database, due);
                }
            }
            self.due = due;
            self.observe_effects(None);
            return;
        }
        self.fire_next(moment, time, budget);
    }

    /// Fires all timers that are due, on a server that follows: its log ends the leases. Returns
    /// the rest of `budget`.
    pub(crate) fn fire_timers(&mut self, time: Time, mut budget: u32) -> u32 {
        while budget > 0
            && let Some(moment) = self.sessions.timers.next_deadline()
            && moment <= time.now
        {
            self.fire_next(moment, time, &mut budget);
        }
        budget
    }

    /// Fires the next timer, which is due at `moment`.
    pub(crate) fn fire_next(&mut self, moment: Millis, time: Time, budget: &mut u32) {
        match self.sessions.timers.pop_due(moment, budget) {
            Some((_, Timer::Blocked(place))) => self.wait_timed_out(place, time),
            Some((_, Timer::Retry(place))) => self.retry(place),
            Some((_, Timer::Unpause)) => {
                self.sessions.unpause_timer = None;
                self.unpause();
            }
            Some((_, Timer::CheckOutput(place))) => self.sessions.request_output_check(place),
            Some((_, Timer::GuardEnd)) => self.guard_is_over(),
            Some((_, Timer::ForgetMessages)) => {
                self.sessions.pubsub.recent_timer = None;
                self.sessions.pubsub.recent.clear();
            }
            Some((_, Timer::HoldEnd)) => self.hold_has_ended(time),
            None => {}
        }
    }

    /// Removes the key in `slot`, which has reached its deadline, and notifies watchers and
    /// subscribers.
    #[cold]
    pub(crate) fn expire(&mut self, database: usize, slot: Slot) {
        self.remove_expired(database, self.writer.keyspace().due(database, slot));
    }

    pub(crate) fn remove_expired(&mut self, database: usize, due: Due) {
        self.stats.expired_keys += 1;
        self.writer.remove_expired(database, due);
    }

    /// The slot of a key, if the key exists and its deadline has not been reached. An expired key
    /// is removed, unless a log is applied.
    #[inline(always)]
    pub(crate) fn find_alive(&mut self, database: usize, key: &[u8], time: Time) -> Option<Slot> {
        self.look_up::<false>(database, key, time)
    }

    /// As [`Engine::find_alive`]. If `IS_USE`, records that the key is used now.
    pub(crate) fn look_up<const IS_USE: bool>(
        &mut self,
        database: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Slot> {
        match self.writer.find_in_cache::<IS_USE>(database, key, time) {
            Some(found) => found,
            None => self.search_alive::<IS_USE>(database, key, time),
        }
    }

    /// As [`Engine::look_up`], for a key that is not cached. Not inlined, so that the other
    /// function saves no registers.
    #[inline(never)]
    pub(crate) fn search_alive<const IS_USE: bool>(
        &mut self,
        database: usize,
        key: &[u8],
        time: Time,
    ) -> Option<Slot> {
        // While there are such units, no key is found in the cache.
        if self.has_unreleased {
            self.depend_on_key(database, key);
        }
        let slot = self.writer.find_cached(database, key)?;
        if self.writer.is_alive::<IS_USE>(database, slot, time) {
            return Some(slot);
        }
        // While a log is applied, its effects remove the key.
        if self.leads() {
            self.expire(database, slot);
        }
        None
    }

    /// Whether a key exists and has reached its deadline.
    pub(crate) fn has_expired(&self, database: usize, key: &[u8], time: Time) -> bool {
        self.writer.keyspace().find(database, key).is_some_and(|slot| {
            self.writer.keyspace().database(database).records().is_expired(slot, time)
        })
    }
}
