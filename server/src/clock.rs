//! The only reader of time: the system's clocks, or one that moves when told to.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clocks")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::engine::time::{Millis, Time};

/// Reading a clock costs as much as a small command: the wall clock is read once in a while, and
/// taken to run as fast as the lease clock in between.
const LOOK_AT_WALL_CLOCK_EVERY_US: i64 = 1_000;

/// Two readings of the lease clock further apart than this had somebody else on the processor in
/// between, and the wall clock was read who knows when.
const APART_US_MAX: i64 = 50;

/// Looks at both clocks for the sake of two close readings.
const LOOKS_MAX: u32 = 5;

/// Where the present comes from.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The lease clock is the wall clock at start plus the monotonic time since; the wall clock is
    /// the system's, whatever happens to it.
    System {
        /// When the clock was made.
        begin: Instant,
        /// The wall clock then, in microseconds since the Unix epoch.
        begin_us: i64,
        /// How far the wall clock was ahead of the lease clock when it was last looked at.
        wall_ahead_us: AtomicI64,
        /// What the lease clock showed then.
        looked_us: AtomicI64,
    },
    /// Both clocks stand still until they are moved.
    Manual {
        /// Microseconds since the Unix epoch.
        lease_us: AtomicI64,
        /// How far the wall clock is ahead of the lease clock.
        wall_ahead_us: AtomicI64,
    },
}

impl Clock {
    /// The system's clocks, anchored now.
    pub(crate) fn system() -> Clock {
        let begin_us = wall_us();
        Clock::System {
            begin: Instant::now(),
            begin_us,
            wall_ahead_us: AtomicI64::new(0),
            // Not looked at yet: the thread may have been kept waiting just now.
            looked_us: AtomicI64::new(begin_us - LOOK_AT_WALL_CLOCK_EVERY_US),
        }
    }

    /// A clock that stands at `begin`, or at the present to the millisecond.
    pub(crate) fn manual(begin: Option<Millis>) -> Clock {
        let begin_ms = begin.map_or_else(|| wall_us() / 1000, |begin| begin.0);
        Clock::Manual {
            lease_us: AtomicI64::new(begin_ms.saturating_mul(1000)),
            wall_ahead_us: AtomicI64::new(0),
        }
    }

    /// The present.
    pub(crate) fn now(&self) -> Time {
        match self {
            Clock::System { begin, begin_us, wall_ahead_us, looked_us } => {
                let lease = || lease_us(*begin, *begin_us);
                let lease_us = lease();
                if lease_us - looked_us.load(Ordering::Relaxed) >= LOOK_AT_WALL_CLOCK_EVERY_US {
                    wall_ahead_us.store(ahead_us(lease, wall_us), Ordering::Relaxed);
                    looked_us.store(lease_us, Ordering::Relaxed);
                }
                let ahead_us = wall_ahead_us.load(Ordering::Relaxed);
                Time::from_micros(lease_us, lease_us.saturating_add(ahead_us))
            }
            Clock::Manual { lease_us, wall_ahead_us } => {
                let lease_us = lease_us.load(Ordering::Acquire);
                let ahead_us = wall_ahead_us.load(Ordering::Acquire);
                Time::from_micros(lease_us, lease_us.saturating_add(ahead_us))
            }
        }
    }

    /// How long until the lease clock shows `moment`; `None` if it has to be moved there.
    pub(crate) fn until(&self, moment: Millis) -> Option<Duration> {
        match self {
            Clock::System { begin, begin_us, .. } => {
                let deadline_us = moment.0.saturating_mul(1000);
                let left_us = deadline_us.saturating_sub(lease_us(*begin, *begin_us));
                Some(Duration::from_micros(u64::try_from(left_us).unwrap_or(0)))
            }
            Clock::Manual { .. } => None,
        }
    }

    /// Whether it has to be moved.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual { .. })
    }

    /// Moves a manual lease clock to `moment`, never back; false if the clock is the system's.
    pub(crate) fn set(&self, moment: Millis) -> bool {
        match self {
            Clock::System { .. } => false,
            Clock::Manual { lease_us, .. } => {
                lease_us.fetch_max(moment.0.saturating_mul(1000), Ordering::AcqRel);
                true
            }
        }
    }

    /// Steps a manual wall clock and leaves the lease clock alone; false if the clock is the
    /// system's.
    pub(crate) fn step_wall(&self, by_us: i64) -> bool {
        match self {
            Clock::System { .. } => false,
            Clock::Manual { wall_ahead_us, .. } => {
                wall_ahead_us.fetch_add(by_us, Ordering::AcqRel);
                true
            }
        }
    }
}

/// How long something takes, whatever the clock of the leases shows.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// From now on.
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// What has passed since.
    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// How far the wall clock is ahead of the lease clock.
///
/// If the two cannot be read close together the difference comes out too small rather than too
/// large: a lease until a moment of the wall clock may end late, never early.
fn ahead_us(mut lease_us: impl FnMut() -> i64, mut wall_us: impl FnMut() -> i64) -> i64 {
    let (mut closest_us, mut ahead_us) = (i64::MAX, 0);
    for _ in 0..LOOKS_MAX {
        let before_us = lease_us();
        let wall_us = wall_us();
        let after_us = lease_us();
        let apart_us = after_us.saturating_sub(before_us);
        if apart_us < closest_us {
            (closest_us, ahead_us) = (apart_us, wall_us.saturating_sub(after_us));
        }
        if apart_us <= APART_US_MAX {
            break;
        }
    }
    ahead_us
}

/// The lease clock in microseconds since the Unix epoch.
fn lease_us(begin: Instant, begin_us: i64) -> i64 {
    let passed = begin.elapsed();
    let passed_us = i64::try_from(passed.as_secs())
        .unwrap_or(i64::MAX)
        .saturating_mul(1_000_000)
        .saturating_add(passed.subsec_micros().into());
    begin_us.saturating_add(passed_us)
}

/// The wall clock in microseconds since the Unix epoch.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_when_told_and_never_back() {
        let clock = Clock::manual(Some(Millis(1_000)));
        assert_eq!(clock.now(), Time::at(Millis(1_000)));
        assert!(clock.set(Millis(1_500)));
        assert!(clock.set(Millis(1_200)));
        assert_eq!(clock.now().now, Millis(1_500));
    }

    #[test]
    fn stepping_the_wall_clock_leaves_leases_alone() {
        let clock = Clock::manual(Some(Millis(1_000)));
        assert!(clock.step_wall(-500_000));
        assert_eq!(clock.now().now, Millis(1_000));
        assert_eq!(clock.now().wall(), Millis(500));
    }

    #[test]
    fn who_is_kept_waiting_between_two_clocks_looks_again() {
        // What passes before each reading: lease, wall, lease, and once more. The wall clock is
        // 7 ms ahead.
        let check = |passes: &[i64], expected| {
            let present = std::cell::Cell::new(0);
            let mut passes = passes.iter().cycle();
            let passes = std::cell::RefCell::new(&mut passes);
            let step = || {
                let passed = passes.borrow_mut().next().copied().unwrap_or_default();
                present.set(present.get() + passed);
                present.get()
            };
            assert_eq!(ahead_us(step, || step() + 7_000), expected);
        };
        check(&[0, 0, 0], 7_000);
        check(&[0, 8_000, 0, 0, 0, 0], 7_000);
        check(&[0, 0, 8_000, 0, 0, 0], 7_000);
        // Always: then too little rather than too much.
        check(&[0, 8_000, 0], 7_000);
        check(&[0, 0, 8_000], -1_000);
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let mut last = clock.now().now;
        for _ in 0..1_000 {
            let now = clock.now().now;
            assert!(now >= last);
            last = now;
        }
    }
}
