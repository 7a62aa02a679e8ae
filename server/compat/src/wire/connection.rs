//! A blocking connection: sends arguments or raw bytes, and returns replies exactly as received.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::frame::Frame;
#[cfg(feature = "tls")]
use super::tls::TlsStream;
use crate::time::Deadline;

/// The shortest time-out of a socket (zero would mean none), and the precision of time-outs.
const SOCKET_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// A connection that keeps every byte it receives.
pub struct Wire {
    stream: Stream,
    /// The time-outs of the socket for reading and writing, as they were last set.
    socket_timeouts: [Option<Duration>; 2],
    received: Vec<u8>,
    timeouts: Timeouts,
}

/// How long a connection waits.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time-out of one reply, of sending a request, and of connecting.
    pub reply: Duration,
    /// Deadline of all operations, which fail after it.
    pub deadline: Deadline,
}

impl From<Duration> for Timeouts {
    fn from(reply: Duration) -> Timeouts {
        Timeouts { reply, deadline: Deadline::NEVER }
    }
}

impl Timeouts {
    /// The end of a wait that begins now; an error after the deadline.
    fn next(self) -> io::Result<Deadline> {
        match self.deadline.is_over() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Deadline::after(self.reply).min(self.deadline)),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

impl Stream {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(chunk),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.read(chunk),
            Stream::Unix(stream) => stream.read(chunk),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn set_timeout(&self, direction: Direction, timeout: Duration) -> io::Result<()> {
        match (self, direction) {
            (Stream::Tcp(stream), Direction::Read) => stream.set_read_timeout(Some(timeout)),
            (Stream::Tcp(stream), Direction::Write) => stream.set_write_timeout(Some(timeout)),
            #[cfg(feature = "tls")]
            (Stream::Tls(stream), Direction::Read) => stream.sock.set_read_timeout(Some(timeout)),
            #[cfg(feature = "tls")]
            (Stream::Tls(stream), Direction::Write) => stream.sock.set_write_timeout(Some(timeout)),
            (Stream::Unix(stream), Direction::Read) => stream.set_read_timeout(Some(timeout)),
            (Stream::Unix(stream), Direction::Write) => stream.set_write_timeout(Some(timeout)),
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Wire {
    /// Connects and sends nothing yet. The time-out of replies alone also converts to
    /// [`Timeouts`].
    pub fn open(endpoint: &Endpoint, timeouts: impl Into<Timeouts>) -> io::Result<Wire> {
        let timeouts = timeouts.into();
        let stream = match endpoint {
            Endpoint::Tcp(host, port) => Stream::Tcp(connect(host, *port, timeouts.next()?)?),
            #[cfg(feature = "tls")]
            Endpoint::Tls(host, port, client) => {
                let client = client.as_ref().ok_or_else(|| {
                    io::Error::other("a rediss:// address needs certificates to trust")
                })?;
                let until = timeouts.next()?;
                let tcp = connect(host, *port, until)?;
                let timeout = Some(until.remaining().max(SOCKET_TIMEOUT_MIN));
                tcp.set_read_timeout(timeout)?;
                tcp.set_write_timeout(timeout)?;
                Stream::Tls(Box::new(client.connect(host, tcp)?))
            }
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        Ok(Wire { stream, socket_timeouts: [None; 2], received: Vec::new(), timeouts })
    }

    /// Connects, authenticates, and selects the protocol and the database.
    pub fn connect(
        address: &Address,
        protocol: u8,
        timeouts: impl Into<Timeouts>,
    ) -> io::Result<Wire> {
        let mut wire = Wire::open(&address.endpoint, timeouts)?;
        if let Some(password) = &address.password {
            let user = address.user.as_deref();
            let auth: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([&**password]).collect();
            wire.expect_no_error(&auth)?;
        }
        if protocol != 2 {
            wire.expect_no_error(&["HELLO", &protocol.to_string()])?;
        }
        if let Some(database) = address.database.filter(|&database| database != 0) {
            wire.expect_no_error(&["SELECT", &database.to_string()])?;
        }
        Ok(wire)
    }

    /// Sets how long a reply may take.
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.timeouts.reply = timeout;
    }

    /// Sends one command as an array of bulk strings.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        self.send_bytes(&request(arguments))
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let until = self.timeouts.next()?;
        while !bytes.is_empty() {
            self.limit(Direction::Write, until)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if until.is_over() && !bytes.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// The next reply; an error if none comes in time, the server closed the connection
    /// (`UnexpectedEof`), or the bytes are not a reply (`InvalidData`).
    pub fn read(&mut self) -> io::Result<Frame> {
        self.read_with_bytes().map(|(frame, _)| frame)
    }

    /// As [`Wire::read`], with the received bytes.
    pub fn read_with_bytes(&mut self) -> io::Result<(Frame, Vec<u8>)> {
        self.read_until(self.timeouts.next()?)
    }

    fn read_until(&mut self, until: Deadline) -> io::Result<(Frame, Vec<u8>)> {
        let mut is_late = false;
        loop {
            let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            if let Some((frame, length)) = Frame::first(&self.received).map_err(malformed)? {
                return Ok((frame, self.received.drain(..length).collect()));
            }
            // A server may send bytes without end that are never a whole reply.
            if is_late {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.fill_until(until)?;
            is_late = until.is_over();
        }
    }

    /// The next reply if one comes within `timeout`; otherwise `None`.
    pub fn read_within(&mut self, timeout: Duration) -> io::Result<Option<Frame>> {
        let until = Timeouts { reply: timeout, ..self.timeouts }.next()?;
        match self.read_until(until) {
            Err(error) if is_silence(&error) => Ok(None),
            reply => reply.map(|(frame, _)| Some(frame)),
        }
    }

    /// Sends one command and reads one reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Frame> {
        self.send(arguments)?;
        self.read()
    }

    /// Received bytes that were not yet read as a reply.
    pub fn unread(&self) -> &[u8] {
        &self.received
    }

    /// Reads once from the socket; `UnexpectedEof` if the server closed it.
    pub fn fill(&mut self) -> io::Result<()> {
        self.fill_until(self.timeouts.next()?)
    }

    fn fill_until(&mut self, until: Deadline) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        let count = loop {
            self.limit(Direction::Read, until)?;
            match self.stream.read(&mut chunk) {
                // The process was stopped and continued, or a debugger was attached.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    /// Sets the time-out of the socket, unless it is the last one: that saves a system call for
    /// most requests and replies.
    fn limit(&mut self, direction: Direction, until: Deadline) -> io::Result<()> {
        let precision = SOCKET_TIMEOUT_MIN.as_micros();
        let count = until.remaining().as_micros().div_ceil(precision).max(1);
        let timeout = SOCKET_TIMEOUT_MIN * u32::try_from(count).unwrap_or(u32::MAX);
        let set = &mut self.socket_timeouts[direction as usize];
        if *set != Some(timeout) {
            self.stream.set_timeout(direction, timeout)?;
            *set = Some(timeout);
        }
        Ok(())
    }

    /// Reads until the server has closed the connection, perhaps after an alert of TLS.
    pub(crate) fn read_refusal(&mut self) -> io::Result<()> {
        let until = self.timeouts.next()?;
        loop {
            match self.fill_until(until) {
                Err(error) if is_end(&error) || is_alert(&error) => return Ok(()),
                filled => filled?,
            }
        }
    }

    /// Removes and returns the received bytes.
    pub fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Shuts down one or both directions.
    pub fn shut(&self, how: Shutdown) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(how),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.sock.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        }
    }

    fn expect_no_error(&mut self, arguments: &[&str]) -> io::Result<()> {
        let reply = self.call(arguments)?;
        if reply.kind == b'-' {
            let text = format!("{}: {}", arguments[0], String::from_utf8_lossy(&reply.text));
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

fn connect(host: &str, port: u16, until: Deadline) -> io::Result<TcpStream> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in (host, port).to_socket_addrs()? {
        let timeout = until.remaining().max(SOCKET_TIMEOUT_MIN);
        outcome = TcpStream::connect_timeout(&address, timeout);
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome.map_err(|error| match is_silence(&error) {
        // Not to be confused with a reply that does not come.
        true => io::Error::new(io::ErrorKind::HostUnreachable, "no connection in time"),
        false => error,
    })?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A command as an array of bulk strings.
pub fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// Whether the error is a time-out.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Whether the server closed the connection.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Whether the server has ended TLS with an alert.
pub(crate) fn is_alert(error: &io::Error) -> bool {
    #[cfg(feature = "tls")]
    if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref()) {
        return matches!(error, rustls::Error::AlertReceived(_));
    }
    let _ = error;
    false
}

/// Whether the server has accepted the connection and has not given a valid reply.
pub(crate) fn is_no_reply(error: &io::Error) -> bool {
    is_silence(error) || is_end(error) || error.kind() == io::ErrorKind::InvalidData
}

/// The error of a connection in the words of the report.
pub(crate) fn describe(error: &io::Error) -> String {
    match error {
        error if is_silence(error) => "nothing in time".to_owned(),
        error if is_end(error) => "the server closed the connection".to_owned(),
        error => error.to_string(),
    }
}
