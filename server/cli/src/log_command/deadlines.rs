//! Deadlines of a log on the wall clock.

use lockwheel_engine::timing::time::{Millis, Time};

/// Converts deadlines from the lease clock of a log to the wall clock. They may be some
/// milliseconds late, but not early.
#[derive(Clone, Copy)]
pub(super) struct WallDeadlines {
    ahead_ms: i64,
}

impl WallDeadlines {
    /// At this time of the log.
    pub(super) fn at(time: Time) -> WallDeadlines {
        let wall_ms = time.wall_us.saturating_add(999).div_euclid(1000);
        // The lease clock is rounded down, and so never ahead.
        WallDeadlines { ahead_ms: wall_ms.saturating_sub(time.now.0) }
    }

    /// The moment on the wall clock, in milliseconds.
    pub(super) fn wall_ms(self, deadline: Millis) -> i64 {
        deadline.0.saturating_add(self.ahead_ms)
    }
}
