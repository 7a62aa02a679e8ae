//! Time in the engine: always an argument, never read from a clock.

use std::fmt;

use serde::Serialize;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A moment or a span in milliseconds. Moments count from the Unix epoch on the *lease clock*,
/// which is set from the wall clock once, at start, and is monotonic from then on.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Serialize,
)]
#[repr(transparent)]
pub struct Millis(pub i64);

/// The rate of the lease clock, in thousandths of the system's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

impl Rate {
    /// The clock is stopped.
    pub const STOPPED: Rate = Rate(0);
    /// The rate of the system's clock.
    pub const REAL: Rate = Rate(THOUSANDTHS);

    /// Whether the clock is stopped.
    pub fn is_stopped(self) -> bool {
        self == Rate::STOPPED
    }

    /// As a multiple of the system's rate.
    pub fn times(self) -> f64 {
        f64::from(self.0) / f64::from(THOUSANDTHS)
    }

    /// The microseconds on the lease clock that correspond to microseconds of the system's.
    pub fn scaled_us(self, real_us: i64) -> i64 {
        let scaled_us = i128::from(real_us) * i128::from(self.0) / i128::from(THOUSANDTHS);
        i64::try_from(scaled_us).unwrap_or(i64::MAX)
    }

    /// The microseconds of the system's clock that correspond to microseconds on the lease clock,
    /// rounded up; `None` if the clock is stopped.
    pub fn real_us(self, lease_us: u64) -> Option<u64> {
        let thousandths = u128::from(lease_us) * u128::from(THOUSANDTHS);
        let real_us = (self.0 > 0).then(|| thousandths.div_ceil(u128::from(self.0)))?;
        Some(u64::try_from(real_us).unwrap_or(u64::MAX))
    }
}

/// How a span is written, for the errors about one that [`span`] does not read.
pub const SPAN_SYNTAX: &str =
    "not whole milliseconds with a unit, such as 250ms, 30s, 1.5h or 1h30m (ms, s, m, h, d)";

/// Reads a span: numbers with units, the sign first (`30s`, `-1.5h`, `1h30m`), or `0`. Any other
/// number without a unit is refused, since readers would differ about the unit. `None` as well for
/// a fraction of a millisecond.
pub fn span(text: &[u8]) -> Option<Millis> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    if rest == "0" {
        return Some(Millis(0));
    }
    let mut span_ms = 0_i64;
    loop {
        let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        span_ms = span_ms.checked_add(scaled(number, unit_ms(unit)?)?)?;
        if after.is_empty() {
            return Some(Millis(sign * span_ms));
        }
        rest = after;
    }
}

fn unit_ms(unit: &str) -> Option<i64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    })
}

/// A decimal number without a sign, times `unit`, if that is whole.
fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let parsed = |digits: &str| -> Option<i64> {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?.parse().ok()
    };
    let parts = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = parsed(fraction)?.checked_mul(unit)?;
    let is_whole = scaled % parts == 0;
    is_whole.then_some(parsed(whole)?.checked_mul(unit)?.checked_add(scaled / parts)?)
}

/// The error for an order to set the clock to a moment before `now`.
pub fn never_back(now: Millis) -> String {
    format!("the clock shows {}, in milliseconds since 1970, and never goes back", now.0)
}

const THOUSANDTHS: u32 = 1_000;

/// The maximum: a day in less than a tenth of a second. At this rate there are still a thousand
/// chances per day to process what is due in between.
const RATE_MAX: f64 = 1_000_000.0;

impl std::str::FromStr for Rate {
    type Err = ();

    /// A decimal number from 0 to 1,000,000, rounded to thousandths; only 0 itself stops the clock.
    fn from_str(text: &str) -> Result<Rate, ()> {
        let times: f64 = text.parse().map_err(|_| ())?;
        if !(0.0..=RATE_MAX).contains(&times) {
            return Err(());
        }
        let thousandths = (times * f64::from(THOUSANDTHS)).round() as u32;
        if thousandths == 0 && times > 0.0 { Err(()) } else { Ok(Rate(thousandths)) }
    }
}

/// A change of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOrder {
    /// Run at this rate from now on.
    Run(Rate),
    /// Run at this rate from now on, and set the wall clock to the lease clock, as at the start.
    Restart(Rate),
    /// Advance by this span. Everything due in between is processed in order, each at its own
    /// moment.
    Advance(Millis),
    /// Advance to this moment of the lease clock, as by `Advance`.
    AdvanceTo(Millis),
    /// Step the wall clock together with all leases, as in Redis: after a step forward, leases that
    /// end in between expire at once; a step back prolongs every lease.
    Jump(Millis),
    /// Step the wall clock without affecting leases.
    StepWall(Millis),
}

/// The order as a sentence without its subject, the clock.
impl fmt::Display for ClockOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockOrder::Run(Rate::STOPPED) => write!(f, "was stopped"),
            ClockOrder::Run(Rate::REAL) => write!(f, "runs in real time"),
            ClockOrder::Run(rate) => write!(f, "runs at {} times real time", rate.times()),
            ClockOrder::Restart(_) => write!(f, "was restored"),
            ClockOrder::Advance(span) => write!(f, "was advanced by {} ms", span.0),
            ClockOrder::AdvanceTo(moment) => write!(f, "was advanced to {} ms", moment.0),
            ClockOrder::Jump(span) => write!(f, "jumped by {} ms", span.0),
            ClockOrder::StepWall(span) => write!(f, "stepped the wall clock by {} ms", span.0),
        }
    }
}

/// The present time, as the caller of the engine sees it.
///
/// Deadlines are whole milliseconds, but the clock is finer. So that no lease ends early, a lease
/// begins at the next whole millisecond, and ends when the clock, rounded down, has reached its
/// deadline. With a clock of whole milliseconds it ends exactly at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The lease clock, rounded down, which is compared with deadlines. Never goes back.
    pub now: Millis,
    /// Whether the lease clock is between `now` and the next millisecond.
    pub fraction: bool,
    /// The wall clock in microseconds since the Unix epoch, for `TIME`. An operator may step it at
    /// any moment.
    pub wall_us: i64,
    /// The difference between wall clock and lease clock, to the nearest millisecond, so that the
    /// microseconds between two readings have no effect. For the conversion of `EXPIREAT`.
    wall_ahead: Millis,
}

impl Time {
    /// A whole millisecond at which both clocks agree.
    pub const fn at(now: Millis) -> Time {
        let wall_us = now.0.saturating_mul(1000);
        Time { now, fraction: false, wall_us, wall_ahead: Millis(0) }
    }

    /// The present time from readings of both clocks, in microseconds since the Unix epoch.
    pub const fn from_micros(lease_us: i64, wall_us: i64) -> Time {
        let ahead_us = wall_us.saturating_sub(lease_us);
        Time {
            now: Millis(lease_us.div_euclid(1000)),
            fraction: lease_us.rem_euclid(1000) != 0,
            wall_us,
            wall_ahead: Millis(ahead_us.saturating_add(500).div_euclid(1000)),
        }
    }

    /// The deadline of a lease of `span` that begins now; `None` if it is out of range.
    pub fn after(self, span: Millis) -> Option<Millis> {
        let begin = self.now.0.checked_add(i64::from(self.fraction))?;
        begin.checked_add(span.0).map(Millis)
    }

    /// The remaining time of a lease until `deadline`, at least zero.
    pub fn remaining(self, deadline: Millis) -> Millis {
        let begin = self.now.0.saturating_add(i64::from(self.fraction));
        Millis(deadline.0.saturating_sub(begin).max(0))
    }

    /// Whether `deadline` has been reached.
    pub fn reached(self, deadline: Millis) -> bool {
        deadline <= self.now
    }

    /// The wall clock in milliseconds.
    pub const fn wall(self) -> Millis {
        Millis(self.wall_us.div_euclid(1000))
    }

    /// Converts a moment on the wall clock to the lease clock.
    pub const fn from_wall(self, wall: Millis) -> Millis {
        Millis(wall.0.saturating_sub(self.wall_ahead.0))
    }

    /// Converts a moment on the lease clock to the wall clock.
    pub const fn to_wall(self, moment: Millis) -> Millis {
        Millis(moment.0.saturating_add(self.wall_ahead.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G7.
    #[test]
    fn no_lease_ends_early_and_none_a_millisecond_late() {
        for begin_us in [5_000, 5_001, 5_999] {
            let begin = Time::from_micros(begin_us, begin_us);
            let deadline = begin.after(Millis(10)).expect("in range");
            assert_eq!(begin.remaining(deadline), Millis(10));
            let early = Time::from_micros(begin_us + 9_999, begin_us);
            assert!(!early.reached(deadline), "{begin_us}");
            let late = Time::from_micros(begin_us + 10_999, begin_us);
            assert!(late.reached(deadline), "{begin_us}");
        }
    }

    #[test]
    fn whole_milliseconds_end_exactly_when_due() {
        let deadline = Time::at(Millis(5)).after(Millis(10)).expect("in range");
        assert!(!Time::at(Millis(14)).reached(deadline));
        assert!(Time::at(Millis(15)).reached(deadline));
    }

    #[test]
    fn span_is_numbers_with_units() {
        for (text, span_ms) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1h0m0.25s", 3_600_250),
            ("-2H", -7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(span(text.as_bytes()), Some(Millis(span_ms)), "{text}");
        }
        for wrong in [
            "",
            "-",
            "1500",
            "-1",
            "1.5",
            "s",
            ".5s",
            "1.s",
            "1..5s",
            "+1s",
            "1s2",
            "1 s",
            "1s ",
            "1h-30m",
            "--1s",
            "1.5ms",
            "1us",
            "1e3s",
            "30 seconds",
            "\u{661}s",
            "9223372036854775807s",
            "0.0000000000000000000s",
        ] {
            assert_eq!(span(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn rate_is_a_multiple_in_thousandths() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("0"), Ok(Rate::STOPPED));
        assert_eq!(rate("1"), Ok(Rate::REAL));
        assert_eq!(rate("2.5").map(|rate| rate.scaled_us(1_000)), Ok(2_500));
        assert_eq!(rate("0.001").map(|rate| rate.real_us(7)), Ok(Some(7_000)));
        assert_eq!(rate("3").map(|rate| rate.real_us(7)), Ok(Some(3)));
        assert_eq!(Rate::STOPPED.real_us(1), None);
        assert_eq!(rate("1000000").map(|rate| rate.scaled_us(i64::MAX)), Ok(i64::MAX));
        for wrong in ["", "-1", "x", "nan", "inf", "1000001", "0.0004"] {
            assert_eq!(rate(wrong), Err(()), "{wrong}");
        }
    }

    /// Shows G6.
    #[test]
    fn stepped_wall_clock_changes_conversions_only() {
        let stepped = Time::from_micros(5_000, 3_605_000);
        assert_eq!(stepped.from_wall(Millis(3_615)), Millis(15));
        assert_eq!(stepped.to_wall(Millis(15)), Millis(3_615));
    }

    #[test]
    fn conversions_do_not_depend_on_the_moment_of_reading() {
        // The two clocks are read one after the other, so they differ by a microsecond or two.
        for (lease_us, wall_us) in [(5_000, 5_001), (5_999, 6_000), (6_000, 5_999), (6_500, 6_502)]
        {
            let time = Time::from_micros(lease_us, wall_us);
            assert_eq!(time.from_wall(Millis(70)), Millis(70), "{lease_us}");
            assert_eq!(time.to_wall(Millis(70)), Millis(70), "{lease_us}");
        }
    }
}
