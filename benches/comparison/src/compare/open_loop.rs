//! Requests at fixed moments, whatever has been answered: how long after its moment each one is.
//! Who waits for a reply before asking again would notice only once that the server stood still.
//! It must not know what is asked.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use crate::Outcome;
use crate::load::connect;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// A reply that takes longer is not coming.
const PATIENCE: Duration = Duration::from_secs(60);

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    first: Instant,
    every: Duration,
    count: u32,
}

/// What whoever hears the replies wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    End,
}

impl Schedule {
    /// So many a second, for so long from `first` on.
    pub(crate) fn new(first: Instant, span: Duration, per_second: u32) -> Schedule {
        let every = Duration::from_secs(1) / per_second;
        let count = (span.as_nanos() / every.as_nanos()).max(1);
        Schedule { first, every, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// The moment of a request; none after the last.
    fn moment(&self, number: u32) -> Option<Instant> {
        (number < self.count).then(|| self.first + self.every * number)
    }
}

/// Sends the request at each moment of the schedule, until `heard` has enough. It is given the
/// last line of each reply, which has so many `lines`, with the request's moment and how long
/// after that the reply came.
pub(crate) fn run(
    address: SocketAddr,
    request: &[u8],
    lines: usize,
    schedule: Schedule,
    mut heard: impl FnMut(&[u8], Instant, Duration) -> Go,
) -> Outcome<()> {
    // Or sleep takes 50 us longer than it is told to.
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
        let next = schedule.moment(sent).unwrap_or_else(|| Instant::now() + PATIENCE);
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
            if heard(&line, moment, now.saturating_duration_since(moment)) == Go::End {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits until there is something to read, for so long at most.
fn readable(stream: &TcpStream, patience: Duration) -> Outcome<bool> {
    let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut polled, Some(TimeSpec::from_duration(patience)), None) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What has been read and not yet been heard.
struct Replies {
    lines: usize,
    received: Vec<u8>,
}

impl Replies {
    fn read(&mut self, stream: &mut TcpStream) -> Outcome<()> {
        let held = self.received.len();
        self.received.resize(held + READ_BYTES, 0);
        let read = match stream.read(&mut self.received[held..]) {
            Ok(0) => return Err("the server has hung up".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        self.received.truncate(held + read);
        Ok(())
    }

    /// The last line of the next reply, if it has come whole.
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

    use super::{Go, Schedule, run};

    #[test]
    fn each_request_is_answered_and_told_of() {
        let server = Server::start().expect("a server");
        server.call(&["SET", "k", "value"]).expect("a reply");
        let schedule = Schedule::new(Instant::now(), Duration::from_millis(10), 1000);
        let mut heard = Vec::new();
        let outcome = run(server.addr(), b"GET k\r\n", 2, schedule, |line, moment, _| {
            heard.push((line.to_vec(), moment));
            Go::On
        });
        outcome.expect("replies");
        let expected = (0..10).map(|number| schedule.first + Duration::from_millis(number));
        let expected: Vec<_> = expected.map(|moment| (b"value".to_vec(), moment)).collect();
        assert_eq!(heard, expected);
    }

    #[test]
    fn who_has_heard_enough_ends_it() {
        let server = Server::start().expect("a server");
        let schedule = Schedule::new(Instant::now(), Duration::from_secs(3600), 1000);
        let mut count = 0;
        let outcome = run(server.addr(), b"PING\r\n", 1, schedule, |line, _, _| {
            assert_eq!(line, b"+PONG");
            count += 1;
            if count == 3 { Go::End } else { Go::On }
        });
        outcome.expect("replies");
        assert_eq!(count, 3);
    }
}
