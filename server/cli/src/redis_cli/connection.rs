//! A blocking connection to a server: sends commands and reads replies.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lockwheel_resp::{Reply, decode, encode_request};
#[cfg(feature = "tls")]
use rustls::pki_types::ServerName;
#[cfg(feature = "tls")]
use rustls::{ClientConnection, StreamOwned};
use socket2::{SockRef, TcpKeepalive};

#[cfg(feature = "tls")]
use crate::tls_client::TlsOptions;

/// Time without data after which the peer is asked whether it is still there, as in `redis-cli`.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Bytes read from a socket at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The commands to send first: password, database and protocol.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    pub(crate) protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
    /// RESP2 with servers that do not support RESP3.
    Resp3IfSupported,
}

trait Stream: Read + Write + Send {
    /// Sets the longest time of a read or a write.
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

#[cfg(feature = "tls")]
impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.sock.set_timeout(limit)
    }
}

pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    received: BytesMut,
}

impl Connection {
    /// Connects, for `limit` at most, which is also the longest time of a later read or write.
    pub(crate) fn open(
        address: &Address,
        limit: Option<Duration>,
        #[cfg(feature = "tls")] tls: Option<&TlsOptions>,
    ) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match address {
            Address::Tcp(host, port) => {
                let stream = connect(host, *port, limit)?;
                stream.set_nodelay(true)?;
                SockRef::from(&stream)
                    .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
                stream.set_timeout(limit)?;
                #[cfg(feature = "tls")]
                match tls {
                    Some(options) => Box::new(connect_tls(host, stream, options)?),
                    None => Box::new(stream),
                }
                #[cfg(not(feature = "tls"))]
                Box::new(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_timeout(limit)?;
                Box::new(stream)
            }
        };
        Ok(Connection { stream, received: BytesMut::new() })
    }

    /// Sets the longest time of a read or a write. After a read that takes longer, the connection
    /// cannot be used any more.
    pub(crate) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(limit)
    }

    /// Sends the password and selects database and protocol. Returns the error if the server
    /// refuses one of them.
    pub(crate) fn log_in(&mut self, login: &Login) -> io::Result<Result<(), String>> {
        let mut steps = Vec::new();
        if let Some(password) = login.password.clone() {
            let words = ["AUTH".to_owned()].into_iter().chain(login.user.clone());
            steps.push(("AUTH".to_owned(), words.chain([password]).collect()));
        }
        if login.database != 0 {
            let words = vec!["SELECT".to_owned(), login.database.to_string()];
            steps.push((words.join(" "), words));
        }
        if login.protocol != Protocol::Resp2 {
            let words = vec!["HELLO".to_owned(), "3".to_owned()];
            steps.push((words.join(" "), words));
        }
        for (name, words) in steps {
            self.send(&words)?;
            // The server may refuse an optional protocol.
            let is_optional = login.protocol == Protocol::Resp3IfSupported && words[0] == "HELLO";
            if let (Reply::Error(text), false) = (self.read()?, is_optional) {
                return Ok(Err(format!("{name} failed: {}", String::from_utf8_lossy(&text))));
            }
        }
        Ok(Ok(()))
    }

    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let mut request = BytesMut::new();
        encode_request(words, &mut request);
        self.stream.write_all(&request)
    }

    /// The next reply or message. `UnexpectedEof` if the server has closed the connection.
    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        loop {
            let malformed = |error| io::Error::new(ErrorKind::InvalidData, error);
            if let Some((reply, length)) = decode(&self.received).map_err(malformed)? {
                self.received.advance(length);
                return Ok(reply);
            }
            // The longer the reply, the more is read before the next attempt to decode it.
            let begin = self.received.len();
            self.received.resize(begin + CHUNK_BYTES.max(begin), 0);
            let count = self.stream.read(&mut self.received[begin..]);
            self.received.truncate(begin + count.as_ref().copied().unwrap_or(0));
            if count? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn connect(host: &str, port: u16, limit: Option<Duration>) -> io::Result<TcpStream> {
    let Some(limit) = limit else { return TcpStream::connect((host, port)) };
    let mut failed = io::Error::from(ErrorKind::NotFound);
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    for address in &addresses {
        match TcpStream::connect_timeout(address, limit / addresses.len() as u32) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The text of an error, as `redis-cli` prints it.
pub(crate) fn error_text(error: &io::Error) -> String {
    if error.kind() == ErrorKind::UnexpectedEof {
        return "Server closed the connection".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

/// Completes the handshake.
#[cfg(feature = "tls")]
fn connect_tls(
    host: &str,
    mut tcp: TcpStream,
    options: &TlsOptions,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = options.sni.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let config = options.config().map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        let failed = |error| io::Error::other(format!("SSL_connect failed: {error}"));
        connection.complete_io(&mut tcp).map_err(failed)?;
    }
    Ok(StreamOwned::new(connection, tcp))
}
