//! The bare thread: wakes at every millisecond and sends the events that are due. Its lateness and
//! cost are lower bounds on a machine.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use lockwheel_comparison::Outcome;
use nix::sys::prctl::set_timerslack;
use nix::time::{ClockId, clock_gettime};

use crate::measure::load::wall_us;
use crate::measure::running::bind_to;

/// Sends `events` evenly over `span_ms` on the servers' processor, each created from its time.
/// Returns the thread's processor time.
pub(crate) fn send_on_time(
    stream: &mut TcpStream,
    core: Option<usize>,
    events: u32,
    span_ms: u32,
    event: impl Fn(u64) -> String,
) -> Outcome<Duration> {
    if let Some(core) = core {
        bind_to(core)?;
    }
    // By default, a sleep takes up to 50 us longer than requested.
    set_timerslack(1)?;
    let first_ms = wall_us() / 1000 + 1;
    let sent_by = |ms: u64| u64::from(events) * (ms + 1) / u64::from(span_ms);
    let before = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    let mut sent = 0;
    for ms in 0..u64::from(span_ms) {
        let moment_ms = first_ms + ms;
        let left = |now_us: u64| (moment_ms * 1000).checked_sub(now_us).filter(|&us| us > 0);
        while let Some(us) = left(wall_us()) {
            thread::sleep(Duration::from_micros(us));
        }
        let due = sent_by(ms) - sent;
        sent += due;
        stream.write_all(event(moment_ms).repeat(usize::try_from(due)?).as_bytes())?;
    }
    let after = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(after).saturating_sub(Duration::from(before)))
}
