//! Fires the wheel at its deadlines: a task of the first thread's loop, which sleeps until there is
//! something at a socket or a lease ends. So what comes of a tick is sent as all else is, when the
//! turn ends.
//!
//! It has no thread of its own. On the same processor a tick would cost two changes of threads more
//! than the loop that sends what comes of it, and in a storm of leases that end the system would
//! decide, by slices of milliseconds, when the others are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::{io, time::Duration};

use tokio::runtime::Handle;
use tokio::task::yield_now;

use crate::clock::{Clock, Stopwatch};
use crate::limits;
use crate::net::bell::{Bell, Listener};
use crate::net::host::Host;
use crate::net::turn;
use lockwheel_engine::Engine;
use lockwheel_engine::time::Millis;

/// What the ticker sleeps on. Whoever has the engine sets it, so only one at a time does.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// The deadline the bell rings at; `i64::MAX` for none. It may be earlier than the next, for a
    /// lock that was released since: waking for nothing once in a while is cheaper than setting the
    /// bell at every release.
    armed: AtomicI64,
    bell: Bell,
}

impl Alarm {
    /// An alarm without a deadline.
    pub(crate) fn new() -> io::Result<Alarm> {
        Ok(Alarm { armed: AtomicI64::new(i64::MAX), bell: Bell::new()? })
    }

    /// The engine's next deadline is this now.
    pub(crate) fn set(&self, deadline: Option<Millis>, clock: &Clock) {
        let Some(deadline) = deadline else { return };
        if deadline.0 >= self.armed.load(Ordering::Relaxed) {
            return;
        }
        if let Some(wait) = clock.until(deadline) {
            self.armed.store(deadline.0, Ordering::Relaxed);
            self.bell.set(wait);
        } else if clock.now().reached(deadline) {
            // Whoever moves the clock sees to what becomes due by it, but this is due already.
            self.bell.set(Duration::ZERO);
        }
    }

    /// There is work that waits for no deadline.
    pub(crate) fn ring(&self) {
        if self.armed.load(Ordering::Relaxed) != i64::MIN {
            self.armed.store(i64::MIN, Ordering::Relaxed);
            self.bell.set(Duration::ZERO);
        }
    }

    /// All that was due is done: the next deadline is to be set, whichever it is.
    pub(crate) fn disarm(&self) {
        self.armed.store(i64::MAX, Ordering::Relaxed);
    }
}

/// Has the loop of this thread to be fire the wheel until the server ends.
pub(crate) fn attend(host: &Arc<Host>, runtime: &Handle) -> io::Result<()> {
    let _entered = runtime.enter();
    let listener = host.alarm.bell.listen()?;
    runtime.spawn(keep_ticking(Arc::clone(host), listener));
    Ok(())
}

async fn keep_ticking(host: Arc<Host>, listener: Listener) {
    while !host.is_stopping() {
        listener.rung().await;
        while let Ok(More::Due) = host.with_in_turn(|engine| tick(&host, engine)) {
            // A storm. The others are served between two slices of it, and sent what they are owed.
            turn::rest();
            yield_now().await;
        }
    }
}

/// Whether something is left to be done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum More {
    Due,
    Nothing,
}

/// Does what is due, for a slice of time at most.
fn tick(host: &Host, engine: &mut Engine) -> More {
    let slice = Stopwatch::start();
    loop {
        let now = host.now();
        engine.tick(now, limits::EXPIRE_KEYS_BETWEEN_LOOKS);
        let is_due = engine.next_deadline().is_some_and(|next| now.reached(next));
        if !is_due && !engine.has_garbage() {
            host.alarm.disarm();
            return More::Nothing;
        }
        if slice.passed() >= limits::EXPIRE_SLICE {
            return More::Due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_deadline_arms_it_and_a_later_one_does_not() {
        let (alarm, clock) = (Alarm::new().expect("an alarm"), Clock::system());
        let now_ms = clock.now().now.0;
        for (in_seconds, armed_for) in
            [(None, None), (Some(50), Some(50)), (Some(60), Some(50)), (Some(-1), Some(-1))]
        {
            let moment = |seconds: i64| Millis(now_ms + seconds * 1000);
            alarm.set(in_seconds.map(moment), &clock);
            let armed = Millis(alarm.armed.load(Ordering::Relaxed));
            assert_eq!(armed, armed_for.map_or(Millis(i64::MAX), moment), "{in_seconds:?}");
        }
        alarm.disarm();
        alarm.set(Some(Millis(now_ms + 70_000)), &clock);
        assert_eq!(alarm.armed.load(Ordering::Relaxed), now_ms + 70_000);
    }
}
