//! A raw, blocking connection: arguments or bytes in, replies out exactly as they were sent.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::frame;

/// How long a reply may take before the test fails: far more than any needs, so that a loaded
/// machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that keeps every byte it receives.
pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Wire {
    /// Connects, and switches to RESP3 when asked to.
    pub fn connect(address: SocketAddr, protocol: u8) -> Wire {
        let stream = TcpStream::connect(address).expect("the server accepts connections");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let mut wire = Wire { stream, received: Vec::new() };
        if protocol != 2 {
            let greeting = wire.call(&["HELLO", &protocol.to_string()]);
            assert_eq!(greeting[0], b'%', "HELLO failed: {}", frame::show(&greeting));
        }
        wire
    }

    /// Sends one command as an array of bulk strings.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            request.extend_from_slice(argument);
            request.extend_from_slice(b"\r\n");
        }
        self.send_bytes(&request);
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // A server may have closed after an error; the reply that says so is what the test reads.
        let _ = self.stream.write_all(bytes);
    }

    /// The next reply; an error when none comes in time or the server closed the connection.
    pub fn try_read(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(length) = frame::length(&self.received) {
                return Ok(self.received.drain(..length).collect());
            }
            self.fill()?;
        }
    }

    /// The next reply, which must come.
    pub fn read(&mut self) -> Vec<u8> {
        self.try_read().unwrap_or_else(|error| {
            panic!("no reply ({error}), received so far: {}", frame::show(&self.received))
        })
    }

    /// Sends one command and reads one reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Vec<u8> {
        self.send(arguments);
        self.read()
    }

    /// Everything until the server closes the connection, which it must.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while match self.fill() {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("still open"),
            Err(_) => false,
        } {}
        std::mem::take(&mut self.received)
    }

    /// Whether the server has closed the connection by now, with nothing left to read.
    pub fn is_closed(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a mode");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a mode");
        matches!(peeked, Ok(0))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(())
            }
        }
    }
}
