//! A blocking connection: sends arguments or raw bytes, and returns replies exactly as received.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::frame::Frame;

/// A connection that keeps every byte it receives.
pub struct Wire {
    stream: Stream,
    received: Vec<u8>,
    reply_timeout: Duration,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    /// Connects and sends nothing yet. A reply may take as long as `reply_timeout`.
    pub fn open(endpoint: &Endpoint, reply_timeout: Duration) -> io::Result<Wire> {
        let stream = match endpoint {
            Endpoint::Tcp(host, port) => {
                let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    outcome = TcpStream::connect_timeout(&address, reply_timeout);
                    if outcome.is_ok() {
                        break;
                    }
                }
                let stream = outcome?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        let mut wire = Wire { stream, received: Vec::new(), reply_timeout };
        wire.set_reply_timeout(reply_timeout)?;
        Ok(wire)
    }

    /// Connects, authenticates, and selects the protocol and the database.
    pub fn connect(address: &Address, protocol: u8, reply_timeout: Duration) -> io::Result<Wire> {
        let mut wire = Wire::open(&address.endpoint, reply_timeout)?;
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

    /// How long a reply may take from here on.
    pub fn set_reply_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.reply_timeout = timeout;
        // Zero would mean no time-out.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        match &self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }

    /// Sends one command as an array of bulk strings.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        self.send_bytes(&request(arguments))
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// The next reply; an error if none comes in time, the server closed the connection
    /// (`UnexpectedEof`), or the bytes are not a reply (`InvalidData`).
    pub fn read(&mut self) -> io::Result<Frame> {
        self.read_with_bytes().map(|(frame, _)| frame)
    }

    /// As [`Wire::read`], with the received bytes.
    pub fn read_with_bytes(&mut self) -> io::Result<(Frame, Vec<u8>)> {
        loop {
            let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            if let Some((frame, length)) = Frame::first(&self.received).map_err(malformed)? {
                return Ok((frame, self.received.drain(..length).collect()));
            }
            self.fill()?;
        }
    }

    /// The next reply if one comes within `timeout`; otherwise `None`.
    pub fn read_within(&mut self, timeout: Duration) -> io::Result<Option<Frame>> {
        let usual = self.reply_timeout;
        self.set_reply_timeout(timeout)?;
        let reply = self.read();
        self.set_reply_timeout(usual)?;
        match reply {
            Err(error) if is_silence(&error) => Ok(None),
            reply => reply.map(Some),
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
        let mut chunk = [0; 16 * 1024];
        let count = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut chunk)?,
            Stream::Unix(stream) => stream.read(&mut chunk)?,
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    /// Removes and returns the received bytes.
    pub fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Shuts down one or both directions.
    pub fn shut(&self, how: Shutdown) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(how),
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
pub(super) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Whether the server closed the connection.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// The error of a connection in the words of the report.
pub(super) fn describe(error: &io::Error) -> String {
    match error {
        error if is_silence(error) => "nothing in time".to_owned(),
        error if is_end(error) => "the server closed the connection".to_owned(),
        error => error.to_string(),
    }
}
