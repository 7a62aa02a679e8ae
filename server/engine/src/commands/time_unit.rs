//! The units in which commands take deadlines: a span from now or a time since 1970, each in
//! seconds or milliseconds.

use crate::command::is;
use crate::timing::time::{Millis, Time};

/// The unit of a deadline argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since 1970 on the wall clock.
    UnixSeconds,
    /// Milliseconds since 1970 on the wall clock.
    UnixMillis,
}

impl TimeUnit {
    /// The unit of an option of `SET` or `GETEX`, if it is one that sets a deadline.
    #[inline(always)]
    pub(super) fn of_option(option: &[u8]) -> Option<TimeUnit> {
        match option {
            [b'p' | b'P', b'x' | b'X'] => Some(TimeUnit::Millis),
            [b'e' | b'E', b'x' | b'X'] => Some(TimeUnit::Seconds),
            _ if is(option, "exat") => Some(TimeUnit::UnixSeconds),
            _ if is(option, "pxat") => Some(TimeUnit::UnixMillis),
            _ => None,
        }
    }

    /// The deadline that is given by an amount, which may be in the past; `None` if it is too late
    /// to be represented.
    #[inline]
    pub(super) fn deadline(self, amount: i64, time: Time) -> Option<Millis> {
        let millis = match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => amount.checked_mul(1000).map(Millis)?,
            TimeUnit::Millis | TimeUnit::UnixMillis => Millis(amount),
        };
        match self {
            TimeUnit::UnixSeconds | TimeUnit::UnixMillis => Some(time.from_wall(millis)),
            // A lease that ends before it begins ends now, not with the current millisecond.
            _ if millis.0 <= 0 => Some(Millis(time.now.0.saturating_add(millis.0))),
            _ => time.after(millis),
        }
    }
}
