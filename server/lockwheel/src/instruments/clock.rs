//! Control of the server's clock by a test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind};
use crate::host::Host;
use lockwheel_engine::timing::time::{ClockOrder, Millis, Rate, never_back};

/// The clock of a server, which all timing in the server uses instead of the system's clock: leases
/// end, `expired` events are published, blocking commands time out, `CLIENT PAUSE` ends, scripts
/// become slow and idle clients are closed by this clock.
///
/// The clock runs in real time until a test changes it. While a slow script runs, a test can move
/// the clock, but work that becomes due is done after the script.
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
/// The timers of a client library are not affected: a watchdog that renews every ten seconds uses
/// the clock of its own process.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    pub(crate) host: &'a Host,
}

impl Clock<'_> {
    /// The lease clock, to the millisecond.
    pub fn now(&self) -> SystemTime {
        moment(self.host.now().now)
    }

    /// The wall clock, which `TIME` and `EXPIREAT` use, to the millisecond.
    pub fn wall(&self) -> SystemTime {
        moment(self.host.now().wall())
    }

    /// The rate of the clock: 1 in real time, 0 when stopped.
    pub fn rate(&self) -> f64 {
        self.host.clock.rate().times()
    }

    /// Stops the clock.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn freeze(&self) -> Result<(), Error> {
        self.order(ClockOrder::Run(Rate::STOPPED))
    }

    /// Runs the clock in real time, from its current time.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn run(&self) -> Result<(), Error> {
        self.order(ClockOrder::Run(Rate::REAL))
    }

    /// Runs the clock `times` as fast as real time, from 0 to 1,000,000, rounded to thousandths.
    ///
    /// # Errors
    /// If `times` is out of range, or the server has ended.
    pub fn run_at(&self, times: f64) -> Result<(), Error> {
        let rate = times.to_string().parse().map_err(|()| {
            Error::new(ErrorKind::Usage, format!("invalid rate of a clock: {times}"))
        })?;
        self.order(ClockOrder::Run(rate))
    }

    /// Moves the clock forward by `span`, to the millisecond. All deadlines on the way are handled
    /// in order, each at its own time, before this returns. Only waiting clients within this
    /// process continue afterwards, on their own threads.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn advance(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Advance(millis(span)))
    }

    /// Moves the clock forward to `moment`, to the millisecond, as [`Clock::advance`] does.
    ///
    /// # Errors
    /// If `moment` is in the past, since the clock never goes back, or the server has ended.
    pub fn set(&self, moment: SystemTime) -> Result<(), Error> {
        let (moment, now) = (since_epoch(moment), self.host.now().now);
        if moment < now {
            return Err(Error::new(ErrorKind::Usage, never_back(now)));
        }
        self.order(ClockOrder::AdvanceTo(moment))
    }

    /// Steps the wall clock forward, and leases follow, as in Redis: all leases that would have
    /// ended in between end at once, at the new time.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn jump_forward(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Jump(millis(span)))
    }

    /// Steps the wall clock back, and leases follow, as in Redis: each lease lasts longer by
    /// `span`.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn jump_back(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::Jump(Millis(-millis(span).0)))
    }

    /// Steps the wall clock forward, which `TIME` and `EXPIREAT` use, as an operator or NTP might.
    /// Leases do not follow.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn step_wall_forward(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::StepWall(millis(span)))
    }

    /// As [`Clock::step_wall_forward`], back.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn step_wall_back(&self, span: Duration) -> Result<(), Error> {
        self.order(ClockOrder::StepWall(Millis(-millis(span).0)))
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

pub(crate) fn millis(span: Duration) -> Millis {
    Millis(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

pub(crate) fn since_epoch(moment: SystemTime) -> Millis {
    millis(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}
