//! The only module that reads time: from the system's clocks, or from a controlled clock.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clocks")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
#[cfg(not(any(target_os = "linux", feature = "simulation")))]
use std::time::Instant as Moment;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use lockwheel_engine::timing::time::{Millis, Rate, Time};
use lockwheel_log::files::Clocks;

#[cfg(feature = "simulation")]
use crate::simulation::clocks::{self, Moment};

/// Interval between readings of the wall clock, which is assumed to run as fast as the lease clock
/// in between: reading a clock costs as much as a small command.
const WALL_CLOCK_INTERVAL_US: i64 = 1_000;

/// Longest time between two readings of the lease clock for which no other thread ran in between,
/// so that the time of the wall clock's reading is known.
const READING_GAP_US_MAX: i64 = 50;

/// Most readings of both clocks to get two that are close together.
const READINGS_MAX: u32 = 5;

/// The lease clock and the wall clock of a server: the system's, until a caller moves, stops,
/// scales or steps them.
///
/// The lease clock is the wall clock at the start plus the monotonic time since; the wall clock is
/// the system's, with all its steps. Once controlled, both are independent of the system's wall
/// clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the clock was created.
    begin: Moment,
    /// Wall clock when the clock was created, in microseconds since the Unix epoch.
    begin_us: i64,
    /// How far the wall clock was ahead of the lease clock when it was last read.
    wall_ahead_us: AtomicI64,
    /// Lease clock when the wall clock was last read.
    wall_read_us: AtomicI64,
    /// Whether the clock has been moved, stopped, scaled or stepped: `control` determines the time.
    controlled: AtomicBool,
    control: Mutex<ControlledClock>,
    changes: AtomicU32,
}

/// A clock that was moved, stopped, scaled or stepped.
#[derive(Clone, Copy, Debug)]
struct ControlledClock {
    /// The lease clock at the last change, in microseconds since the Unix epoch.
    lease_us: i64,
    /// The monotonic time at the last change.
    since_us: i64,
    /// The rate since then.
    rate: Rate,
    /// How far the wall clock is ahead of the lease clock.
    wall_ahead_us: i64,
}

/// A moment of the monotonic clock, as [`std::time::Instant`], which costs twice as much: it
/// subtracts seconds and nanoseconds one by one.
#[cfg(all(target_os = "linux", not(feature = "simulation")))]
#[derive(Clone, Copy, Debug)]
struct Moment {
    ns: u64,
}

#[cfg(all(target_os = "linux", not(feature = "simulation")))]
impl Moment {
    #[inline]
    fn now() -> Moment {
        Moment::read(nix::time::ClockId::CLOCK_MONOTONIC)
    }

    /// When the system last ticked, which is several times cheaper to read than the time now.
    #[inline]
    fn at_tick() -> Moment {
        Moment::read(nix::time::ClockId::CLOCK_MONOTONIC_COARSE)
    }

    #[inline]
    fn read(clock: nix::time::ClockId) -> Moment {
        // Every Linux has these clocks.
        let time = nix::time::clock_gettime(clock);
        let ns = time.map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec());
        Moment { ns: u64::try_from(ns).unwrap_or(0) }
    }

    #[inline]
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(ns_between(*self, Moment::now()))
    }
}

/// The time from one moment to another in nanoseconds; 0 if that is earlier.
#[cfg(all(target_os = "linux", not(feature = "simulation")))]
#[inline]
fn ns_between(begin: Moment, end: Moment) -> u64 {
    end.ns.saturating_sub(begin.ns)
}

/// The time from one moment to another in nanoseconds; 0 if that is earlier.
#[cfg(not(all(target_os = "linux", not(feature = "simulation"))))]
fn ns_between(begin: Moment, end: Moment) -> u64 {
    u64::try_from(end.duration_since(begin).as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic time since the first call, in nanoseconds, by which commands are timed. Real time,
/// also if the clock of leases is controlled.
pub(crate) fn monotonic_ns() -> u64 {
    monotonic_ns_at(Moment::now())
}

/// The time of [`monotonic_ns`] when the system last ticked.
#[cfg(all(target_os = "linux", not(feature = "simulation")))]
pub(crate) fn tick_ns() -> u64 {
    monotonic_ns_at(Moment::at_tick())
}

#[inline]
fn monotonic_ns_at(moment: Moment) -> u64 {
    static BEGIN: OnceLock<Moment> = OnceLock::new();
    ns_between(*BEGIN.get_or_init(|| moment), moment)
}

impl Clock {
    /// The system's clocks; the lease clock begins at the wall clock now.
    pub(crate) fn system() -> Clock {
        let begin_us = wall_us();
        let control = ControlledClock {
            lease_us: begin_us,
            since_us: begin_us,
            rate: Rate::REAL,
            wall_ahead_us: 0,
        };
        Clock {
            begin: Moment::now(),
            begin_us,
            wall_ahead_us: AtomicI64::new(0),
            // Not read yet: the thread may have been interrupted just now.
            wall_read_us: AtomicI64::new(begin_us - WALL_CLOCK_INTERVAL_US),
            controlled: AtomicBool::new(false),
            control: Mutex::new(control),
            changes: AtomicU32::new(0),
        }
    }

    /// The system's clocks; the lease clock begins at `begin`.
    pub(crate) fn system_from(begin: Millis) -> Clock {
        let clock = Clock::system();
        let begin_us = begin.0.saturating_mul(1000);
        let wall_read_us = AtomicI64::new(begin_us - WALL_CLOCK_INTERVAL_US);
        Clock { begin_us, wall_read_us, ..clock }
    }

    /// The clocks that the log records.
    pub(crate) fn readings(&self) -> Clocks {
        let time = self.now();
        Clocks { lease_ms: time.now.0, boot_ms: boot_ms(), wall_ms: time.wall().0 }
    }

    /// A clock with this rate that begins at `begin`, or at the current millisecond.
    pub(crate) fn controlled(begin: Option<Millis>, rate: Rate) -> Clock {
        let clock = Clock::system();
        let begin_ms = begin.map_or(clock.begin_us.div_euclid(1000), |begin| begin.0);
        clock.change_control(|control, _| {
            (control.lease_us, control.wall_ahead_us) = (begin_ms.saturating_mul(1000), 0);
            control.rate = rate;
        });
        clock
    }

    /// The lease clock of a node that follows: it is stopped, and set to the log's time.
    #[cfg(feature = "replication")]
    pub(crate) fn following() -> Clock {
        Clock::controlled(Some(Millis(0)), Rate::STOPPED)
    }

    /// Starts the lease clock of a leader at `begin`, the log time. The first leader of a cluster
    /// starts at the wall clock.
    #[cfg(feature = "replication")]
    pub(crate) fn begin_leading(&self, begin: Millis) {
        self.set(if begin.0 > 0 { begin } else { Millis(wall_us().div_euclid(1000)) });
        self.set_rate(Rate::REAL);
        self.change_control(|control, monotonic_us| {
            control.wall_ahead_us = wall_us().saturating_sub(control.lease_us(monotonic_us));
        });
    }

    /// Stops the lease clock of a former leader and sets it to 0; the log, which is applied anew,
    /// then sets it. The clock has run ahead of the log if the node was suspended or cut off: log
    /// time stops while another node is elected.
    #[cfg(feature = "replication")]
    pub(crate) fn end_leading(&self) {
        self.change_control(|control, monotonic_us| {
            (control.lease_us, control.since_us) = (0, monotonic_us);
            control.rate = Rate::STOPPED;
        });
    }

    /// The current time.
    pub(crate) fn now(&self) -> Time {
        self.time_at(Moment::now())
    }

    /// The current time, and [`monotonic_ns`] of the same reading.
    pub(crate) fn now_and_ns(&self) -> (Time, u64) {
        let moment = Moment::now();
        (self.time_at(moment), monotonic_ns_at(moment))
    }

    /// The time at a moment that was just read.
    fn time_at(&self, moment: Moment) -> Time {
        let lease_us = self.monotonic_us_at(moment);
        if self.is_controlled() {
            return self.control.lock().time(lease_us);
        }
        if lease_us - self.wall_read_us.load(Ordering::Relaxed) >= WALL_CLOCK_INTERVAL_US {
            let ahead_us = ahead_us(|| self.monotonic_us(), wall_us);
            self.wall_ahead_us.store(ahead_us, Ordering::Relaxed);
            self.wall_read_us.store(lease_us, Ordering::Relaxed);
        }
        let ahead_us = self.wall_ahead_us.load(Ordering::Relaxed);
        Time::from_micros(lease_us, lease_us.saturating_add(ahead_us))
    }

    /// The lease clock, in microseconds since the Unix epoch.
    pub(crate) fn lease_us(&self) -> i64 {
        let monotonic_us = self.monotonic_us();
        if self.is_controlled() { self.control.lock().lease_us(monotonic_us) } else { monotonic_us }
    }

    /// The real time until the lease clock reaches `moment`; `None` if the clock is stopped, or the
    /// time is out of range.
    pub(crate) fn until(&self, moment: Millis) -> Option<Duration> {
        let deadline_us = moment.0.saturating_mul(1000);
        let left_us = deadline_us.saturating_sub(self.lease_us());
        self.rate().real_us(u64::try_from(left_us).unwrap_or(0)).map(Duration::from_micros)
    }

    /// The real time in which `span` passes on the lease clock; `None` if the clock is stopped.
    pub(crate) fn real_duration(&self, span: Duration) -> Option<Duration> {
        let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        self.rate().real_us(span_us).map(Duration::from_micros)
    }

    /// Number of times the clock has been moved, stopped, scaled or stepped.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The rate of the lease clock.
    pub(crate) fn rate(&self) -> Rate {
        if self.is_controlled() { self.control.lock().rate } else { Rate::REAL }
    }

    /// Whether the clock has been changed, so that it may be stopped or run at another rate than
    /// the system's.
    pub(crate) fn is_controlled(&self) -> bool {
        self.controlled.load(Ordering::Acquire)
    }

    /// Sets the rate of the lease clock and returns the rate before.
    pub(crate) fn set_rate(&self, rate: Rate) -> Rate {
        self.change_control(|control, monotonic_us| {
            (control.lease_us, control.since_us) = (control.lease_us(monotonic_us), monotonic_us);
            std::mem::replace(&mut control.rate, rate)
        })
    }

    /// Moves the lease clock to `moment`, never back.
    pub(crate) fn set(&self, moment: Millis) {
        self.set_us(moment.0.saturating_mul(1000));
    }

    /// As [`Clock::set`], to a moment in microseconds.
    pub(crate) fn set_us(&self, moment_us: i64) {
        self.change_control(|control, monotonic_us| {
            control.lease_us = control.lease_us(monotonic_us).max(moment_us);
            control.since_us = monotonic_us;
        });
    }

    /// Steps the wall clock and leaves the lease clock alone.
    pub(crate) fn step_wall(&self, by: Millis) {
        self.change_control(|control, _| {
            control.wall_ahead_us = control.wall_ahead_us.saturating_add(by.0.saturating_mul(1000));
        });
    }

    /// Sets the wall clock to the lease clock.
    pub(crate) fn align_wall(&self) {
        self.change_control(|control, _| control.wall_ahead_us = 0);
    }

    /// Takes control of the clock, if not taken yet, and changes how it runs.
    fn change_control<T>(&self, change: impl FnOnce(&mut ControlledClock, i64) -> T) -> T {
        let mut control = self.control.lock();
        let monotonic_us = self.monotonic_us();
        if !self.is_controlled() {
            let wall_ahead_us = ahead_us(|| self.monotonic_us(), wall_us);
            let (lease_us, since_us) = (monotonic_us, monotonic_us);
            *control = ControlledClock { lease_us, since_us, rate: Rate::REAL, wall_ahead_us };
        }
        let result = change(&mut control, monotonic_us);
        self.controlled.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        result
    }

    /// The lease clock without any control, in microseconds.
    fn monotonic_us(&self) -> i64 {
        self.monotonic_us_at(Moment::now())
    }

    fn monotonic_us_at(&self, moment: Moment) -> i64 {
        let elapsed_us = i64::try_from(ns_between(self.begin, moment) / 1000).unwrap_or(i64::MAX);
        self.begin_us.saturating_add(elapsed_us)
    }
}

/// The clocks of the machine, independent of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTime {
    /// Identifies this run of the machine; `None` where the system does not show it.
    pub(crate) boot_id: Option<[u8; 16]>,
    /// The time since the machine was started, in milliseconds; 0 where the system does not show
    /// it.
    pub(crate) boot_ms: i64,
    /// The wall clock, in milliseconds since 1970.
    pub(crate) wall_ms: i64,
}

impl MachineTime {
    /// The time now.
    pub(crate) fn now() -> MachineTime {
        MachineTime { boot_id: boot_id(), boot_ms: boot_ms(), wall_ms: wall_us().div_euclid(1000) }
    }
}

fn boot_ms() -> i64 {
    #[cfg(feature = "simulation")]
    if let Some(clocks) = clocks::get() {
        return clocks.boot_us / 1000;
    }
    #[cfg(target_os = "linux")]
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    // Here it includes the time that the machine was suspended.
    #[cfg(not(target_os = "linux"))]
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    match nix::time::clock_gettime(clock) {
        Ok(time) => Duration::from(time).as_millis().try_into().unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

fn boot_id() -> Option<[u8; 16]> {
    #[cfg(feature = "simulation")]
    if let Some(clocks) = clocks::get() {
        return Some(clocks.boot_id);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

impl ControlledClock {
    fn lease_us(&self, monotonic_us: i64) -> i64 {
        let elapsed_us = monotonic_us.saturating_sub(self.since_us).max(0);
        self.lease_us.saturating_add(self.rate.scaled_us(elapsed_us))
    }

    fn time(&self, monotonic_us: i64) -> Time {
        let lease_us = self.lease_us(monotonic_us);
        Time::from_micros(lease_us, lease_us.saturating_add(self.wall_ahead_us))
    }
}

/// Measures real time, independent of the lease clock.
#[derive(Debug)]
pub(crate) struct Stopwatch(Moment);

impl Stopwatch {
    /// Starts now.
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Moment::now())
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// How far the wall clock is ahead of the lease clock.
///
/// If the two cannot be read close together, the result is too small rather than too large: a lease
/// that ends at a time of the wall clock may end late, never early.
fn ahead_us(mut lease_us: impl FnMut() -> i64, mut wall_us: impl FnMut() -> i64) -> i64 {
    let (mut smallest_gap_us, mut ahead_us) = (i64::MAX, 0);
    for _ in 0..READINGS_MAX {
        let before_us = lease_us();
        let wall_us = wall_us();
        let after_us = lease_us();
        let gap_us = after_us.saturating_sub(before_us);
        if gap_us < smallest_gap_us {
            (smallest_gap_us, ahead_us) = (gap_us, wall_us.saturating_sub(after_us));
        }
        if gap_us <= READING_GAP_US_MAX {
            break;
        }
    }
    ahead_us
}

/// The wall clock in microseconds since the Unix epoch.
fn wall_us() -> i64 {
    #[cfg(feature = "simulation")]
    if let Some(clocks) = clocks::get() {
        return clocks.wall_us;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_clock_moves_only_when_set_and_never_back() {
        let clock = Clock::controlled(Some(Millis(1_000)), Rate::STOPPED);
        assert_eq!(clock.now(), Time::at(Millis(1_000)));
        assert_eq!(clock.until(Millis(1_001)), None);
        clock.set(Millis(1_500));
        clock.set(Millis(1_200));
        assert_eq!(clock.now().now, Millis(1_500));
    }

    #[cfg(feature = "replication")]
    #[test]
    fn former_leader_goes_on_from_the_time_of_the_log() {
        let clock = Clock::following();
        clock.begin_leading(Millis(9_000));
        clock.end_leading();
        clock.set(Millis(5_000));
        assert_eq!(clock.now().now, Millis(5_000));
    }

    #[test]
    fn stepping_wall_clock_does_not_change_lease_clock() {
        let clock = Clock::controlled(Some(Millis(1_000)), Rate::STOPPED);
        clock.step_wall(Millis(-500));
        assert_eq!(clock.now().now, Millis(1_000));
        assert_eq!(clock.now().wall(), Millis(500));
        clock.align_wall();
        assert_eq!(clock.now(), Time::at(Millis(1_000)));
    }

    #[test]
    fn controlled_clock_runs_at_its_rate() {
        let mut control =
            ControlledClock { lease_us: 5_000, since_us: 100, rate: Rate::REAL, wall_ahead_us: 70 };
        for (rate, lease_us) in [("1", 6_000), ("0.5", 5_500), ("3", 8_000), ("0", 5_000)] {
            control.rate = rate.parse().expect("a rate");
            assert_eq!(control.lease_us(1_100), lease_us, "{rate}");
            assert_eq!(control.time(1_100).wall_us, lease_us + 70, "{rate}");
        }
    }

    #[test]
    fn taking_control_does_not_move_clock() {
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
    fn clocks_are_read_again_after_an_interruption() {
        // The time that passes before each reading: lease, wall, lease, and so on. The wall clock
        // is 7 ms ahead.
        let check = |passes: &[i64], expected| {
            let now = std::cell::Cell::new(0);
            let mut passes = passes.iter().cycle();
            let passes = std::cell::RefCell::new(&mut passes);
            let step = || {
                let elapsed = passes.borrow_mut().next().copied().unwrap_or_default();
                now.set(now.get() + elapsed);
                now.get()
            };
            assert_eq!(ahead_us(step, || step() + 7_000), expected);
        };
        check(&[0, 0, 0], 7_000);
        check(&[0, 8_000, 0, 0, 0, 0], 7_000);
        check(&[0, 0, 8_000, 0, 0, 0], 7_000);
        // With a delay at every reading, the result is too small rather than too large.
        check(&[0, 8_000, 0], 7_000);
        check(&[0, 0, 8_000], -1_000);
    }

    #[test]
    fn system_clock_never_goes_back() {
        let clock = Clock::system();
        let mut last = clock.now().now;
        for _ in 0..1_000 {
            let now = clock.now().now;
            assert!(now >= last);
            last = now;
        }
    }
}
