//! The clock of a running server, in the hands of a test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind};
use crate::net::host::Host;
use lockwheel_engine::time::{ClockOrder, Millis, Rate};

/// The clock of a server: everything that happens by itself happens by it. Leases end, `expired`
/// is published, blocking commands time out, `CLIENT PAUSE` is over, scripts are found slow and
/// idle clients closed when this clock says so, whatever the system's says.
///
/// It runs in real time until it is told otherwise. While a script keeps the server for long, the
/// clock only moves; what is due by then happens when the script is over.
///
/// ```
/// use std::time::Duration;
///
/// use lockwheel::{Reply, Server};
///
/// let server = Server::start()?;
/// server.clock().freeze()?;
/// server.call(&["SET", "lock", "token", "NX", "PX", "30000"])?;
/// server.clock().advance(Duration::from_millis(29_999))?;
/// assert_eq!(server.call(&["PTTL", "lock"])?, Reply::Integer(1));
/// server.clock().advance(Duration::from_millis(1))?;
/// assert_eq!(server.call(&["GET", "lock"])?, Reply::Null);
/// # Ok::<(), lockwheel::Error>(())
/// ```
///
/// A client library's own timers are its own: a watchdog that renews every ten seconds does so by
/// the clock of its process.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    pub(crate) host: &'a Host,
}

impl Clock<'_> {
    /// What the clock shows that leases run on, to the millisecond.
    pub fn now(&self) -> SystemTime {
        moment(self.host.now().now)
    }

    /// What the wall clock shows, of which `TIME` and `EXPIREAT` speak, to the millisecond.
    pub fn wall(&self) -> SystemTime {
        moment(self.host.now().wall())
    }

    /// How fast it runs: 1 in real time, 0 when it stands.
    pub fn rate(&self) -> f64 {
        self.host.clock.rate().times()
    }

    /// Stops it.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn freeze(&self) -> Result<(), Error> {
        self.order(ClockOrder::Run(Rate::STOPPED))
    }

    /// Lets it run in real time, from where it stands.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn run(&self) -> Result<(), Error> {
        self.order(ClockOrder::Run(Rate::REAL))
    }

    /// Lets it run `times` as fast as real time, from 0 to 1,000,000, rounded to thousandths.
    ///
    /// # Errors
    /// If `times` is out of range, or the server has ended.
    pub fn run_at(&self, times: f64) -> Result<(), Error> {
        let rate = times.to_string().parse().map_err(|()| {
            Error::new(ErrorKind::Usage, format!("a clock cannot run {times} times as fast"))
        })?;
        self.order(ClockOrder::Run(rate))
    }

    /// Moves it on by `span`, to the millisecond. What is due on the way happens in order, each
    /// thing at its own moment, before this returns. Only clients within this process, who have
    /// threads of their own, go on when it has.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn advance(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Advance(millis(span)))
    }

    /// Moves it on to `moment`, as [`Clock::advance`] does. A moment that has passed leaves it
    /// where it is: the clock leases run on never goes back.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn set(&self, moment: SystemTime) -> Result<(), Error> {
        self.order(ClockOrder::AdvanceTo(since_epoch(moment)))
    }

    /// Steps the wall clock forward with the leases following it, as in Redis: whatever would have
    /// ended in between ends at once, all of it at the new moment.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn jump_forward(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Jump(millis(span)))
    }

    /// Steps the wall clock back with the leases following it, as in Redis: each of them lasts
    /// longer by `span`.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn jump_back(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Jump(Millis(-millis(span).0)))
    }

    /// Steps the wall clock that `TIME` and `EXPIREAT` speak of, as an operator or NTP might, and
    /// leaves the clock that leases run on alone. `milliseconds` may be negative.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn step_wall(&self, milliseconds: i64) -> Result<(), Error> {
        self.order(ClockOrder::StepWall(Millis(milliseconds)))
    }

    fn order(&self, order: ClockOrder) -> Result<(), Error> {
        Ok(self.host.run_clock_order(order)?)
    }
}

impl std::fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (now, rate) = (self.now(), self.rate());
        f.debug_struct("Clock").field("now", &now).field("rate", &rate).finish_non_exhaustive()
    }
}

fn moment(moment: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(moment.0).unwrap_or(0))
}

pub(super) fn millis(span: Duration) -> Millis {
    Millis(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

pub(crate) fn since_epoch(moment: SystemTime) -> Millis {
    millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}
