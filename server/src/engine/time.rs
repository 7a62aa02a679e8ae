//! Moments as the engine knows them: always an argument, never read from a clock.

/// A moment or a span in milliseconds. Moments count from the Unix epoch on the *lease clock*,
/// which is anchored to the wall clock once, at start, and monotonic from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub i64);

/// The present, as the caller of the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The lease clock: what deadlines are compared with. Never goes back.
    pub now: Millis,
    /// The wall clock in microseconds since the Unix epoch: what `TIME` answers and what
    /// `EXPIREAT` is translated from. May be stepped by an operator at any moment.
    pub wall_us: i64,
}

impl Time {
    /// A moment at which both clocks agree.
    pub const fn at(now: Millis) -> Time {
        Time { now, wall_us: now.0.saturating_mul(1000) }
    }

    /// The wall clock in milliseconds.
    pub const fn wall(self) -> Millis {
        Millis(self.wall_us.div_euclid(1000))
    }

    /// Translates a wall-clock moment into one on the lease clock.
    pub const fn from_wall(self, wall: Millis) -> Millis {
        Millis(wall.0.saturating_sub(self.wall().0.saturating_sub(self.now.0)))
    }

    /// Translates a moment on the lease clock into what the wall clock will show then.
    pub const fn to_wall(self, moment: Millis) -> Millis {
        Millis(moment.0.saturating_add(self.wall().0.saturating_sub(self.now.0)))
    }
}
