//! Fires the wheel at its deadlines.
//!
//! A thread of its own, because a lease should end on the millisecond: it wakes within some tens
//! of microseconds, where the runtimes' timers round up by one to two milliseconds.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::time::Millis;
use crate::limits;
use crate::net::host::Host;

/// What the ticker sleeps on.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// The engine's next deadline; `i64::MAX` for none.
    next: AtomicI64,
    /// The one the ticker sleeps towards. It may be earlier, for a lock that was released since:
    /// waking for nothing once in a while is cheaper than being told of every release.
    armed: AtomicI64,
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Alarm {
    /// An alarm without a deadline.
    pub(crate) fn new() -> Alarm {
        Alarm {
            next: AtomicI64::new(i64::MAX),
            armed: AtomicI64::new(i64::MAX),
            rung: Mutex::new(false),
            ringing: Condvar::new(),
        }
    }

    /// The engine's next deadline is this now.
    pub(crate) fn set(&self, deadline: Option<Millis>) {
        let deadline = deadline.map_or(i64::MAX, |deadline| deadline.0);
        // Only one at a time sets it: whoever has the engine.
        if self.next.load(Ordering::Relaxed) == deadline {
            return;
        }
        self.next.store(deadline, Ordering::SeqCst);
        if deadline < self.armed.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Wakes the ticker.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.ringing.notify_one();
    }

    /// The engine's next deadline.
    fn next(&self) -> Millis {
        Millis(self.next.load(Ordering::SeqCst))
    }

    /// Sleeps until the deadline has been reached or somebody rings.
    fn sleep(&self, clock: &Clock) {
        let deadline = self.arm();
        let wait = if deadline == Millis(i64::MAX) { None } else { clock.until(deadline) };
        let mut rung = self.rung.lock();
        if !*rung {
            match wait {
                Some(wait) => drop(self.ringing.wait_for(&mut rung, wait.min(limits::SLEEP_MAX))),
                None => self.ringing.wait(&mut rung),
            }
        }
        *rung = false;
    }

    /// Settles on the deadline to sleep towards. Whoever sets an earlier one from here on sees
    /// which it was: both sides write before they read.
    fn arm(&self) -> Millis {
        loop {
            let deadline = self.next.load(Ordering::SeqCst);
            self.armed.store(deadline, Ordering::SeqCst);
            if self.next.load(Ordering::SeqCst) >= deadline {
                return Millis(deadline);
            }
        }
    }
}

impl Host {
    /// Does what is due, again and again as it becomes due, until the server ends.
    pub(crate) fn keep_ticking(&self) {
        wake_on_time();
        while !self.is_stopping() {
            self.alarm.sleep(&self.clock);
            if !self.now().reached(self.alarm.next()) {
                continue;
            }
            let tick = |engine: &mut Engine| engine.tick(self.now(), limits::EXPIRE_SLICE_KEYS);
            // Others get their turn between two slices of a storm: those who wait for the engine,
            // and those who wait for the processor that this thread is on.
            if self.with_in_turn(tick).is_err() {
                return;
            }
            if self.now().reached(self.alarm.next()) {
                std::thread::yield_now();
            }
        }
    }
}

/// Has the system wake this thread at the moment it asks for: unless told so, Linux takes 50 us
/// more to find others to wake together with it. Where it cannot be told, it stays so.
fn wake_on_time() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(number) = thread.as_deref().and_then(|path| path.file_name()) {
        let slack = Path::new("/proc").join(number).join("timerslack_ns");
        let _ = std::fs::write(slack, "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_deadline_rings_and_a_later_one_does_not() {
        let alarm = Alarm::new();
        for (deadline, rings) in [
            (Some(50), true),
            (Some(60), false),
            (None, false),
            (Some(50), false),
            (Some(40), true),
        ] {
            alarm.set(deadline.map(Millis));
            assert_eq!(std::mem::take(&mut *alarm.rung.lock()), rings, "{deadline:?}");
            if rings {
                alarm.arm();
            }
        }
    }
}
