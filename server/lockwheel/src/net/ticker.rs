//! Fires the timer wheel at its deadlines: a task of the first thread's event loop, which sleeps
//! until a socket is ready or a lease ends. The output of a tick is sent like all other output, at
//! the end of the turn.
//!
//! The ticker has no thread of its own. On the same processor a tick would cost two more context
//! switches than in the loop that sends its output, and during mass expiry the system would decide,
//! by slices of milliseconds, when clients are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::{io, time::Duration};

use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::clock::{Clock, Stopwatch};
use crate::host::Host;
use crate::limits;
use crate::net::turn;
use crate::net::wake_timer::{WakeListener, WakeTimer};
use lockwheel_engine::Engine;
use lockwheel_engine::timing::time::Millis;

/// Wakes the ticker at the engine's next deadline. Only the thread that holds the engine sets it.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    /// Deadline at which the timer fires; `i64::MAX` for none. It may be earlier than the engine's,
    /// of a lock that was released since: an unnecessary wake-up once in a while is cheaper than
    /// setting the timer at every release.
    armed: AtomicI64,
    timer: WakeTimer,
}

impl DeadlineTimer {
    /// A timer without a deadline.
    pub(crate) fn new() -> io::Result<DeadlineTimer> {
        Ok(DeadlineTimer { armed: AtomicI64::new(i64::MAX), timer: WakeTimer::new()? })
    }

    /// Sets the timer to the engine's next deadline.
    pub(crate) fn set(&self, deadline: Option<Millis>, clock: &Clock) {
        let Some(deadline) = deadline else { return };
        if deadline.0 >= self.armed.load(Ordering::Relaxed) {
            return;
        }
        if let Some(wait) = clock.until(deadline) {
            self.armed.store(deadline.0, Ordering::Relaxed);
            self.timer.set(wait);
        } else if clock.now().reached(deadline) {
            // The clock is stopped. A thread that moves it handles deadlines that this makes
            // due, but this deadline is due already.
            self.timer.set(Duration::ZERO);
        }
    }

    /// Wakes the ticker at once: there is work without a deadline.
    pub(crate) fn fire_now(&self) {
        if self.armed.load(Ordering::Relaxed) != i64::MIN {
            self.armed.store(i64::MIN, Ordering::Relaxed);
            self.timer.set(Duration::ZERO);
        }
    }

    /// Disarms the timer when all due work is done: the next [`DeadlineTimer::set`] arms it again.
    pub(crate) fn disarm(&self) {
        self.armed.store(i64::MAX, Ordering::Relaxed);
    }
}

/// Spawns the ticker on `runtime`; it runs until the server ends.
pub(crate) fn start(host: &Arc<Host>, runtime: &Handle) -> io::Result<()> {
    let _entered = runtime.enter();
    let listener = host.deadline_timer.timer.listen()?;
    runtime.spawn(keep_ticking(Arc::clone(host), listener));
    Ok(())
}

async fn keep_ticking(host: Arc<Host>, listener: WakeListener) {
    while !host.is_stopping() {
        listener.fired().await;
        while let Ok(More::Due) = host.with_fair(|engine| tick(&host, engine)) {
            // Mass expiry: clients are served and pending output is sent between two slices.
            turn::before_sleep();
            yield_now().await;
        }
    }
}

/// Whether a tick has left work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Due,
    Nothing,
}

/// Does the work that is due, for one slice of time at most.
pub(crate) fn tick(host: &Host, engine: &mut Engine) -> More {
    let slice = Stopwatch::start();
    loop {
        let now = host.now();
        host.tick(engine, now);
        let is_due = engine.next_deadline().is_some_and(|next| now.reached(next));
        if !is_due && !engine.has_garbage() {
            host.deadline_timer.disarm();
            return More::Nothing;
        }
        if slice.elapsed() >= limits::EXPIRE_SLICE {
            return More::Due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_deadline_arms_timer_and_later_one_does_not() {
        let (timer, clock) = (DeadlineTimer::new().expect("a timer"), Clock::system());
        let now_ms = clock.now().now.0;
        for (in_seconds, armed_for) in
            [(None, None), (Some(50), Some(50)), (Some(60), Some(50)), (Some(-1), Some(-1))]
        {
            let moment = |seconds: i64| Millis(now_ms + seconds * 1000);
            timer.set(in_seconds.map(moment), &clock);
            let armed = Millis(timer.armed.load(Ordering::Relaxed));
            assert_eq!(armed, armed_for.map_or(Millis(i64::MAX), moment), "{in_seconds:?}");
        }
        timer.disarm();
        timer.set(Some(Millis(now_ms + 70_000)), &clock);
        assert_eq!(timer.armed.load(Ordering::Relaxed), now_ms + 70_000);
    }
}
