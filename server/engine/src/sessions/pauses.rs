//! Pauses of clients (`CLIENT PAUSE`).

use crate::sessions::{Sessions, Timer};
use crate::store::Keyspace;
use crate::timing::time::Millis;

/// A pause of clients (`CLIENT PAUSE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When the pause ends.
    pub until: Millis,
    /// Whether only commands that write are delayed.
    pub writes_only: bool,
}

impl Sessions {
    /// Starts a pause or extends the current one: the later end and the wider scope apply.
    pub(crate) fn start_pause(&mut self, until: Millis, writes_only: bool) {
        let pause = match self.pause {
            Some(old) => {
                Pause { until: old.until.max(until), writes_only: old.writes_only && writes_only }
            }
            None => Pause { until, writes_only },
        };
        self.pause = Some(pause);
        match self.unpause_timer {
            Some(timer) => self.timers.reschedule(timer, pause.until),
            None => {
                self.unpause_timer = Some(self.timers.insert(pause.until, Timer::Unpause));
            }
        }
    }

    /// Ends the pause and resumes the clients it has stopped. Keys that changed meanwhile are
    /// marked again, since clients waiting for them could not be served.
    pub(crate) fn unpause(&mut self, keyspace: &Keyspace) {
        self.pause = None;
        self.mark_held_for_waiters(keyspace);
        if let Some(timer) = self.unpause_timer.take() {
            self.timers.cancel(timer);
        }
        for client in std::mem::take(&mut self.paused_clients) {
            if self.stop_waiting(client) {
                self.resume(client);
            }
        }
    }

    /// Moves the end of the pause and all timers.
    pub(crate) fn postpone(&mut self, span: Millis) {
        self.timers.postpone(span);
        if let Some(pause) = &mut self.pause {
            pause.until = Millis(pause.until.0.saturating_add(span.0));
        }
    }
}
