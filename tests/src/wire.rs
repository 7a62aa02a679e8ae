//! A connection for tests that panics on errors. Replies are returned exactly as received.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lockwheel_compat::wire;
use lockwheel_compat::wire::address::{Address, Endpoint};
use lockwheel_compat::wire::frame::show;
use lockwheel_compat::wire::tls::TlsClient;

/// The time within which a reply must arrive. No reply needs nearly as long, so a loaded machine
/// does not fail a test.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait for the end of a connection.
const CLOSE_CHECK: Duration = Duration::from_millis(1);

/// A connection that keeps every byte it receives.
pub struct Wire(wire::Wire);

impl Wire {
    /// Connects with this protocol version.
    pub fn connect(address: SocketAddr, protocol: u8) -> Wire {
        let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
        let address = Address { endpoint, user: None, password: None, database: None };
        Wire(
            wire::Wire::connect(&address, protocol, REPLY_TIMEOUT)
                .expect("the server accepts the connection"),
        )
    }

    /// Connects with TLS.
    pub fn connect_tls(address: SocketAddr, client: &TlsClient) -> Wire {
        Wire::try_connect_tls(address, client).expect("the server accepts the connection")
    }

    /// Connects with TLS, and gets a reply to a first request: a server may refuse the client's
    /// certificate after the client believes the handshake complete.
    pub fn try_connect_tls(address: SocketAddr, client: &TlsClient) -> io::Result<Wire> {
        let mut wire = open_tls(address, client)?;
        wire.call(&["PING"])?;
        Ok(Wire(wire))
    }

    /// Connects with TLS and sends nothing.
    pub fn open_tls(address: SocketAddr, client: &TlsClient) -> Wire {
        Wire(open_tls(address, client).expect("the server accepts the connection"))
    }

    /// Sends one command as an array of bulk strings.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.send_bytes(&wire::request(arguments));
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // The server may have closed the connection after an error; the test reads its reply.
        let _ = self.0.send_bytes(bytes);
    }

    /// The next reply; an error when none comes in time or the server closed the connection.
    pub fn try_read(&mut self) -> io::Result<Vec<u8>> {
        self.0.read_with_bytes().map(|(_, bytes)| bytes)
    }

    /// The next reply, which must come.
    pub fn read(&mut self) -> Vec<u8> {
        self.try_read().unwrap_or_else(|error| {
            panic!("no reply ({error}), received so far: {}", show(self.0.unread()))
        })
    }

    /// Sends one command and reads one reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Vec<u8> {
        self.send(arguments);
        self.read()
    }

    /// Sends one command with words separated by single spaces.
    pub fn send_line(&mut self, command: &str) {
        self.send(&command.split(' ').collect::<Vec<_>>());
    }

    /// As [`Wire::read`], as text.
    pub fn read_text(&mut self) -> String {
        String::from_utf8_lossy(&self.read()).into_owned()
    }

    /// Sends one command as [`Wire::send_line`] does, and reads one reply as text.
    pub fn ask(&mut self, command: &str) -> String {
        self.send_line(command);
        self.read_text()
    }

    /// All bytes until the server closes the connection, which it must do.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while match self.0.fill() {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("still open"),
            Err(_) => false,
        } {}
        self.0.take_unread()
    }

    /// Whether the server has closed the connection already, with nothing left to read.
    pub fn is_closed(&mut self) -> bool {
        self.0.set_reply_timeout(CLOSE_CHECK);
        let is_closed = self.closes();
        self.0.set_reply_timeout(REPLY_TIMEOUT);
        is_closed
    }

    /// Whether the server closes the connection, with nothing left to read. Waits for that as long
    /// as for a reply.
    pub fn closes(&mut self) -> bool {
        let read = self.0.fill();
        read.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            && self.0.unread().is_empty()
    }
}

impl From<Wire> for wire::Wire {
    fn from(wire: Wire) -> wire::Wire {
        wire.0
    }
}

/// Opens a TCP connection without a protocol. No read or write waits for longer than for a reply.
pub fn open_tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts the connection");
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a time limit");
    stream.set_write_timeout(Some(REPLY_TIMEOUT)).expect("a time limit");
    stream
}

/// As [`open_tcp`], at a unix socket.
pub fn open_unix(path: impl AsRef<Path>) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the server accepts the connection");
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a time limit");
    stream.set_write_timeout(Some(REPLY_TIMEOUT)).expect("a time limit");
    stream
}

/// Reads what comes until the server closes or resets a connection, which it must do in the time of
/// a reply.
pub fn read_to_end(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "still open: {}", show(&bytes));
    }
    bytes
}

fn open_tls(address: SocketAddr, client: &TlsClient) -> io::Result<wire::Wire> {
    let (host, port) = (address.ip().to_string(), address.port());
    wire::Wire::open(&Endpoint::Tls(host, port, Some(client.clone())), REPLY_TIMEOUT)
}
