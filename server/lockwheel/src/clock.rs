//! The only reader of time: the system's clocks, or one that runs as it is told to.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clocks")]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use lockwheel_engine::time::{Millis, Rate, Time};

/// Reading a clock costs as much as a small command: the wall clock is read once in a while, and
/// taken to run as fast as the lease clock in between.
const LOOK_AT_WALL_CLOCK_EVERY_US: i64 = 1_000;

/// Two readings of the lease clock further apart than this had somebody else on the processor in
/// between, and the wall clock was read who knows when.
const APART_US_MAX: i64 = 50;

/// Looks at both clocks for the sake of two close readings.
const LOOKS_MAX: u32 = 5;

/// Where the present comes from: the system's clocks, until somebody takes it in hand.
///
/// The lease clock is the wall clock at start plus the monotonic time since; the wall clock is the
/// system's, whatever happens to it. In hand, both run as they are told to and no longer know the
/// system's wall clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the clock was made.
    begin: Instant,
    /// The wall clock then, in microseconds since the Unix epoch.
    begin_us: i64,
    /// How far the wall clock was ahead of the lease clock when it was last looked at.
    wall_ahead_us: AtomicI64,
    /// What the lease clock showed then.
    looked_us: AtomicI64,
    /// Somebody has moved, stopped or scaled it: it shows what `hands` say.
    in_hand: AtomicBool,
    hands: Mutex<Hands>,
    changes: AtomicU32,
}

/// A clock that is told how to run.
#[derive(Clone, Copy, Debug)]
struct Hands {
    /// What the lease clock showed, in microseconds since the Unix epoch,
    lease_us: i64,
    /// when the system's showed this.
    since_us: i64,
    /// How fast it has run since.
    rate: Rate,
    /// How far the wall clock is ahead of the lease clock.
    wall_ahead_us: i64,
}

impl Clock {
    /// The system's clocks, anchored now.
    pub(crate) fn system() -> Clock {
        let begin_us = wall_us();
        let hands =
            Hands { lease_us: begin_us, since_us: begin_us, rate: Rate::REAL, wall_ahead_us: 0 };
        Clock {
            begin: Instant::now(),
            begin_us,
            wall_ahead_us: AtomicI64::new(0),
            // Not looked at yet: the thread may have been kept waiting just now.
            looked_us: AtomicI64::new(begin_us - LOOK_AT_WALL_CLOCK_EVERY_US),
            in_hand: AtomicBool::new(false),
            hands: Mutex::new(hands),
            changes: AtomicU32::new(0),
        }
    }

    /// A clock that stands at `begin`, or at the present to the millisecond.
    pub(crate) fn stopped(begin: Option<Millis>) -> Clock {
        let clock = Clock::system();
        let begin_ms = begin.map_or(clock.begin_us.div_euclid(1000), |begin| begin.0);
        clock.with_hands(|hands, _| {
            (hands.lease_us, hands.wall_ahead_us) = (begin_ms.saturating_mul(1000), 0);
            hands.rate = Rate::STOPPED;
        });
        clock
    }

    /// The present.
    pub(crate) fn now(&self) -> Time {
        if self.is_in_hand() {
            return self.hands.lock().time(self.monotonic_us());
        }
        let lease_us = self.monotonic_us();
        if lease_us - self.looked_us.load(Ordering::Relaxed) >= LOOK_AT_WALL_CLOCK_EVERY_US {
            let ahead_us = ahead_us(|| self.monotonic_us(), wall_us);
            self.wall_ahead_us.store(ahead_us, Ordering::Relaxed);
            self.looked_us.store(lease_us, Ordering::Relaxed);
        }
        let ahead_us = self.wall_ahead_us.load(Ordering::Relaxed);
        Time::from_micros(lease_us, lease_us.saturating_add(ahead_us))
    }

    /// What the lease clock shows, in microseconds since the Unix epoch.
    pub(crate) fn lease_us(&self) -> i64 {
        let monotonic_us = self.monotonic_us();
        if self.is_in_hand() { self.hands.lock().lease_us(monotonic_us) } else { monotonic_us }
    }

    /// How long until the lease clock shows `moment`; `None` if it stands, or that is beyond all
    /// time.
    pub(crate) fn until(&self, moment: Millis) -> Option<Duration> {
        let deadline_us = moment.0.saturating_mul(1000);
        let left_us = deadline_us.saturating_sub(self.lease_us());
        self.rate().real_us(u64::try_from(left_us).unwrap_or(0)).map(Duration::from_micros)
    }

    /// How much real time passes while `span` does on the lease clock; `None` if it stands.
    pub(crate) fn real(&self, span: Duration) -> Option<Duration> {
        let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.rate().real_us(span_us).map(Duration::from_micros)
    }

    /// How often it has been moved, stopped, scaled or stepped.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// How fast the lease clock runs.
    pub(crate) fn rate(&self) -> Rate {
        if self.is_in_hand() { self.hands.lock().rate } else { Rate::REAL }
    }

    /// Whether it may stand still, or run faster or slower than the system's.
    pub(crate) fn is_in_hand(&self) -> bool {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Has the lease clock run at `rate` from now on; returns how fast it has run.
    pub(crate) fn set_rate(&self, rate: Rate) -> Rate {
        self.with_hands(|hands, monotonic_us| {
            (hands.lease_us, hands.since_us) = (hands.lease_us(monotonic_us), monotonic_us);
            std::mem::replace(&mut hands.rate, rate)
        })
    }

    /// Moves the lease clock to `moment`, never back.
    pub(crate) fn set(&self, moment: Millis) {
        self.set_us(moment.0.saturating_mul(1000));
    }

    /// As [`Clock::set`], to a moment in microseconds.
    pub(crate) fn set_us(&self, moment_us: i64) {
        self.with_hands(|hands, monotonic_us| {
            hands.lease_us = hands.lease_us(monotonic_us).max(moment_us);
            hands.since_us = monotonic_us;
        });
    }

    /// Steps the wall clock and leaves the lease clock alone.
    pub(crate) fn step_wall(&self, by: Millis) {
        self.with_hands(|hands, _| {
            hands.wall_ahead_us = hands.wall_ahead_us.saturating_add(by.0.saturating_mul(1000));
        });
    }

    /// Takes it in hand, if it is not yet, and changes how it runs.
    fn with_hands<T>(&self, change: impl FnOnce(&mut Hands, i64) -> T) -> T {
        let mut hands = self.hands.lock();
        let monotonic_us = self.monotonic_us();
        if !self.is_in_hand() {
            let wall_ahead_us = ahead_us(|| self.monotonic_us(), wall_us);
            let (lease_us, since_us) = (monotonic_us, monotonic_us);
            *hands = Hands { lease_us, since_us, rate: Rate::REAL, wall_ahead_us };
        }
        let result = change(&mut hands, monotonic_us);
        self.in_hand.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        result
    }

    /// What the lease clock would show had nobody taken it in hand, in microseconds.
    fn monotonic_us(&self) -> i64 {
        let passed_us = i64::try_from(self.begin.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.begin_us.saturating_add(passed_us)
    }
}

impl Hands {
    fn lease_us(&self, monotonic_us: i64) -> i64 {
        let passed_us = monotonic_us.saturating_sub(self.since_us).max(0);
        self.lease_us.saturating_add(self.rate.scaled_us(passed_us))
    }

    fn time(&self, monotonic_us: i64) -> Time {
        let lease_us = self.lease_us(monotonic_us);
        Time::from_micros(lease_us, lease_us.saturating_add(self.wall_ahead_us))
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

/// The wall clock in microseconds since the Unix epoch.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_when_told_and_never_back() {
        let clock = Clock::stopped(Some(Millis(1_000)));
        assert_eq!(clock.now(), Time::at(Millis(1_000)));
        assert_eq!(clock.until(Millis(1_001)), None);
        clock.set(Millis(1_500));
        clock.set(Millis(1_200));
        assert_eq!(clock.now().now, Millis(1_500));
    }

    #[test]
    fn stepping_the_wall_clock_leaves_leases_alone() {
        let clock = Clock::stopped(Some(Millis(1_000)));
        clock.step_wall(Millis(-500));
        assert_eq!(clock.now().now, Millis(1_000));
        assert_eq!(clock.now().wall(), Millis(500));
    }

    #[test]
    fn the_hands_run_as_fast_as_they_are_told() {
        let mut hands =
            Hands { lease_us: 5_000, since_us: 100, rate: Rate::REAL, wall_ahead_us: 70 };
        for (rate, lease_us) in [("1", 6_000), ("0.5", 5_500), ("3", 8_000), ("0", 5_000)] {
            hands.rate = rate.parse().expect("a rate");
            assert_eq!(hands.lease_us(1_100), lease_us, "{rate}");
            assert_eq!(hands.time(1_100).wall_us, lease_us + 70, "{rate}");
        }
    }

    #[test]
    fn taking_it_in_hand_moves_nothing() {
        let clock = Clock::system();
        let before = clock.now();
        assert_eq!(clock.set_rate(Rate::STOPPED), Rate::REAL);
        let stopped = clock.now();
        assert!(before.now <= stopped.now && stopped.now <= Clock::system().now().now);
        assert_eq!(clock.now(), stopped);
        clock.set_rate("1000000".parse().expect("a rate"));
        while clock.now().now < Millis(stopped.now.0 + 60_000) {
            std::hint::spin_loop();
        }
        assert!(clock.until(Millis(clock.now().now.0 + 1_000)) < Some(Duration::from_millis(2)));
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
