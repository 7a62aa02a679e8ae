//! The clocks of a simulated machine. They belong to a thread: a simulation has one thread, and
//! sets the clocks of the machine whose server it is about to run.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What the clocks of a machine show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock in microseconds, from any beginning. It stops while the machine is
    /// suspended.
    pub monotonic_us: i64,
    /// The wall clock, in microseconds since the Unix epoch.
    pub wall_us: i64,
    /// The time since the machine was started, in microseconds.
    pub boot_us: i64,
    /// Identifies the run of the machine.
    pub boot_id: [u8; 16],
}

thread_local! {
    static CLOCKS: Cell<Option<Clocks>> = const { Cell::new(None) };
}

/// Lets this thread read these clocks instead of the system's.
pub fn set(clocks: Clocks) {
    CLOCKS.set(Some(clocks));
}

/// The clocks, if they are simulated.
pub(crate) fn get() -> Option<Clocks> {
    CLOCKS.get()
}

/// A moment of the monotonic clock, as [`Instant`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    simulated_us: i64,
    real: Instant,
}

impl Moment {
    #[expect(clippy::disallowed_methods, reason = "the clock that is simulated")]
    pub(crate) fn now() -> Moment {
        let simulated_us = get().map_or(0, |clocks| clocks.monotonic_us);
        Moment { simulated_us, real: Instant::now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Moment::now().duration_since(*self)
    }

    pub(crate) fn duration_since(&self, earlier: Moment) -> Duration {
        match get() {
            Some(_) => {
                let span_us = self.simulated_us.saturating_sub(earlier.simulated_us);
                Duration::from_micros(u64::try_from(span_us).unwrap_or(0))
            }
            None => self.real.duration_since(earlier.real),
        }
    }
}
