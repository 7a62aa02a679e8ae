//! Sends requests at fixed times without waiting for replies, and measures each latency from the
//! scheduled time. A client that waits for each reply would count a stall of the server only once.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use crate::measure::load::connect;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// The longest time to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    first: Instant,
    every: Duration,
    count: u32,
}

impl Schedule {
    /// This number of requests a second, for a time that begins with `first`.
    pub(crate) fn new(first: Instant, span: Duration, per_second: u32) -> Schedule {
        let every = Duration::from_secs(1) / per_second;
        let count = (span.as_nanos() / every.as_nanos()).max(1);
        Schedule { first, every, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// The time of a request; `None` after the last.
    fn moment(&self, number: u32) -> Option<Instant> {
        (number < self.count).then(|| self.first + self.every * number)
    }
}

/// Sends the request at each time of the schedule, until `on_reply` breaks. It receives the last
/// line of each reply (which has `lines` lines), the request's scheduled time and the latency.
pub(crate) fn run(
    address: SocketAddr,
    request: &[u8],
    lines: usize,
    schedule: Schedule,
    mut on_reply: impl FnMut(&[u8], Instant, Duration) -> ControlFlow<()>,
) -> Outcome<()> {
    // By default, a sleep takes up to 50 us longer than requested.
    set_timerslack(1)?;
    let mut stream = connect(address)?;
    stream.set_nonblocking(true)?;
    let (mut sent, mut answered) = (0, 0);
    let mut replies = Replies { lines, received: Vec::new() };
    while answered < schedule.count {
        while schedule.moment(sent).is_some_and(|moment| moment <= Instant::now()) {
            stream.write_all(request)?;
            sent += 1;
        }
        let next = schedule.moment(sent).unwrap_or_else(|| Instant::now() + REPLY_TIMEOUT);
        if !readable(&stream, next.saturating_duration_since(Instant::now()))? {
            if sent == schedule.count {
                return Err("a reply did not come".into());
            }
            continue;
        }
        replies.read(&mut stream)?;
        let now = Instant::now();
        while let (Some(line), Some(moment)) = (replies.next(), schedule.moment(answered)) {
            answered += 1;
            if on_reply(&line, moment, now.saturating_duration_since(moment)).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits until the socket is readable, or until the timeout.
fn readable(stream: &TcpStream, timeout: Duration) -> Outcome<bool> {
    let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut polled, Some(TimeSpec::from_duration(timeout)), None) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Received bytes that have not been processed.
struct Replies {
    lines: usize,
    received: Vec<u8>,
}

impl Replies {
    fn read(&mut self, stream: &mut TcpStream) -> Outcome<()> {
        let held = self.received.len();
        self.received.resize(held + READ_BYTES, 0);
        let read = match stream.read(&mut self.received[held..]) {
            Ok(0) => return Err("the server has closed a connection".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        self.received.truncate(held + read);
        Ok(())
    }

    /// The last line of the next reply, if it is complete.
    fn next(&mut self) -> Option<Vec<u8>> {
        let ends = self.received.windows(2).enumerate().filter(|(_, it)| it == b"\r\n");
        let ends: Vec<usize> = ends.map(|(at, _)| at).take(self.lines).collect();
        let end = *ends.get(self.lines - 1)?;
        let begin = if self.lines > 1 { ends[self.lines - 2] + 2 } else { 0 };
        let line = self.received[begin..end].to_vec();
        self.received.drain(..end + 2);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use lockwheel::Server;

    use super::{ControlFlow, Schedule, run};

    #[test]
    fn each_reply_is_passed_on_with_its_scheduled_time() {
        let server = Server::start().expect("a server");
        server.call(&["SET", "k", "value"]).expect("a reply");
        let schedule = Schedule::new(Instant::now(), Duration::from_millis(10), 1000);
        let mut received = Vec::new();
        let outcome = run(server.addr(), b"GET k\r\n", 2, schedule, |line, moment, _| {
            received.push((line.to_vec(), moment));
            ControlFlow::Continue(())
        });
        outcome.expect("replies");
        let expected = (0..10).map(|number| schedule.first + Duration::from_millis(number));
        let expected: Vec<_> = expected.map(|moment| (b"value".to_vec(), moment)).collect();
        assert_eq!(received, expected);
    }

    #[test]
    fn break_ends_the_run() {
        let server = Server::start().expect("a server");
        let schedule = Schedule::new(Instant::now(), Duration::from_secs(3600), 1000);
        let mut count = 0;
        let outcome = run(server.addr(), b"PING\r\n", 1, schedule, |line, _, _| {
            assert_eq!(line, b"+PONG");
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        outcome.expect("replies");
        assert_eq!(count, 3);
    }
}
