//! When faults are due, and how long they last.

use std::time::Duration;

use lockwheel_compat::time::Deadline;

use super::FaultRun;

/// The shortest time from one fault to the next.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// How long a fault lasts unless the user says otherwise, if faults are not more frequent.
const LASTS: Duration = Duration::from_secs(10);

/// The part of the time between two faults that is left without one, if a fault took too long.
const REST_DIVISOR: u32 = 4;

/// Faults at regular times. The first is due after half of the time between two.
pub(super) struct Schedule {
    every: Duration,
    lasts: Duration,
    due: Option<Deadline>,
}

impl Schedule {
    /// A fault each `every`. It lasts for half of that, but 10 seconds at most, unless `lasts`
    /// says otherwise.
    pub(super) fn new(every: Duration, lasts: Option<Duration>) -> Schedule {
        let every = every.max(EVERY_MIN);
        Schedule { every, lasts: lasts.unwrap_or(LASTS.min(every / 2)), due: None }
    }

    /// How long a fault lasts.
    pub(super) fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Waits for the next fault; false if the run ends.
    pub(super) fn wait(&mut self, run: &FaultRun) -> bool {
        let rest = self.every / REST_DIVISOR;
        let span = self.due.map_or(self.every / 2, |due| due.remaining().max(rest));
        let is_due = run.pause(span);
        self.due = Some(Deadline::after(self.every));
        is_due
    }
}
