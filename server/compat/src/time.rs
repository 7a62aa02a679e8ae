//! The suite's clock: that of this machine, since the clock of a server under test cannot be set.
//! No other file of the crate reads a clock.

#![allow(clippy::disallowed_methods)]

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The default time within which a reply must arrive: 10 seconds. No case needs nearly as long, so
/// a loaded machine does not fail a case.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A moment after which nothing waits any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    at_us: i64,
}

impl Deadline {
    /// No deadline.
    pub const NEVER: Deadline = Deadline { at_us: i64::MAX };

    /// The moment after this span.
    pub fn after(span: Duration) -> Deadline {
        let span_us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Deadline { at_us: now_us().saturating_add(span_us) }
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        now_us() >= self.at_us
    }

    /// The time that is left; zero if it is over.
    pub fn remaining(self) -> Duration {
        Duration::from_micros(u64::try_from(self.at_us.saturating_sub(now_us())).unwrap_or(0))
    }

    /// The moment on the clock of [`now_us`], in microseconds.
    pub fn at_us(self) -> i64 {
        self.at_us
    }

    /// Sleeps for this span, but not beyond the deadline.
    pub fn sleep(self, span: Duration) {
        sleep(span.min(self.remaining()));
    }
}

/// Microseconds since the first call.
pub fn now_us() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// Sleeps.
pub fn sleep(span: Duration) {
    thread::sleep(span);
}

/// Parses a span of time with a unit: `100ms`, `90s`, `5m`. A number without a unit is in seconds.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let unit_ms = match &text[end..] {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        _ => return Err(format!("no span of time: {text}")),
    };
    let number = text[..end].parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
    number.map(Duration::from_millis).ok_or_else(|| format!("no span of time: {text}"))
}

/// The span in the largest unit of [`parse_span`] that divides it.
pub fn show_span(span: Duration) -> String {
    let span_ms = span.as_millis();
    let (unit_ms, unit) = match span_ms {
        _ if span_ms.is_multiple_of(60_000) => (60_000, "m"),
        _ if span_ms.is_multiple_of(1000) => (1000, "s"),
        _ => (1, "ms"),
    };
    format!("{}{unit}", span_ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::{Deadline, parse_span, show_span};
    use std::time::Duration;

    #[test]
    fn spans_have_a_unit() {
        for text in ["1ms", "1500ms", "90s", "5m"] {
            assert_eq!(parse_span(text).map(show_span).as_deref(), Ok(text));
        }
        assert_eq!(parse_span("120s").map(show_span).as_deref(), Ok("2m"));
        assert_eq!(parse_span("5"), Ok(Duration::from_secs(5)));
        for text in ["", "m", "1h", "-1s", "1.5s", "99999999999999999999s", "999999999999999999m"] {
            assert_eq!(parse_span(text), Err(format!("no span of time: {text}")));
        }
    }

    #[test]
    fn deadline_leaves_no_time_when_it_is_over() {
        let over = Deadline::after(Duration::ZERO);
        assert!(over.is_over());
        assert_eq!(over.remaining(), Duration::ZERO);
        assert!(!Deadline::NEVER.is_over());
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
        assert_eq!(over.min(Deadline::NEVER), over);
    }
}
