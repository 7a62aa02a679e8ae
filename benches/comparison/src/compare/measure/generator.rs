//! Clients of one server, on one thread: each has one batch of requests pending, and every reply is
//! checked byte for byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::measure::effort::Effort;
use crate::measure::running::Running;

/// The longest time to wait for a reply.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read at once: more than the replies to most batches.
const CHUNK_BYTES: usize = 64 * 1024;
/// Events taken from the poll at once.
const EVENTS_MAX: usize = 1024;
/// The part of a wrong reply that is shown.
const SHOWN_BYTES: usize = 200;

/// A source of requests. Expected replies have numbers, so that clients need not store them.
pub(crate) trait Requests {
    /// Returns the next batch of a connection.
    fn next(&mut self, connection: usize) -> Batch<'_>;

    /// Returns the expected reply with this number.
    fn expected(&self, reply: usize) -> &[u8];
}

/// Requests that are sent at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) sent: &'a [u8],
    /// The number of the expected reply.
    pub(crate) reply: usize,
    /// How many operations are complete when the reply has arrived.
    pub(crate) operations: u64,
}

/// The operations of a span of time, and the server's processor time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throughput {
    pub(crate) operations: u64,
    pub(crate) span: Duration,
    pub(crate) cpu: Duration,
}

impl Throughput {
    /// The server's processor time for one operation, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.span.as_secs_f64()
    }

    /// The server's share of a processor, in percent.
    pub(crate) fn cpu_percent(&self) -> f64 {
        self.cpu.as_secs_f64() / self.span.as_secs_f64() * 100.0
    }
}

/// Keeps this number of clients busy, and measures after the warm-up.
pub(crate) fn saturate(
    running: &Running,
    source: &mut impl Requests,
    connections: usize,
    effort: &Effort,
) -> Outcome<Throughput> {
    let mut clients = match &running.tls {
        Some((address, config)) => Clients::connect_tls(*address, config, connections)?,
        None => Clients::connect(running.address, connections)?,
    };
    for client in 0..connections {
        clients.send_next(client, source)?;
    }
    keep_busy(&mut clients, source, effort.warm_up)?;
    let (began, before) = (Instant::now(), running.cpu()?);
    let operations = keep_busy(&mut clients, source, effort.span)?;
    Ok(Throughput { operations, span: began.elapsed(), cpu: running.cpu()? - before })
}

/// Keeps all clients busy for this time, and until an operation is complete; counts operations.
fn keep_busy(clients: &mut Clients, source: &mut impl Requests, span: Duration) -> Outcome<u64> {
    let began = Instant::now();
    let mut done = 0;
    while done == 0 || began.elapsed() < span {
        clients.wait(source, REPLY_TIMEOUT)?;
        if clients.answered.is_empty() && clients.events.is_empty() {
            return Err("the server does not reply any more".into());
        }
        for index in 0..clients.answered.len() {
            let Answered { client, operations } = clients.answered[index];
            done += operations;
            clients.send_next(client, source)?;
        }
    }
    Ok(done)
}

/// Clients of one server, each with at most one pending batch.
pub(crate) struct Clients {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    pending: Vec<PendingBatch>,
    chunk: Vec<u8>,
    /// The batches that were answered during the last wait.
    pub(crate) answered: Vec<Answered>,
}

/// A batch that has received its expected reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) client: usize,
    /// The operations of the [`Batch`].
    pub(crate) operations: u64,
}

/// The expected reply of the pending batch, and the operations it completes.
#[derive(Clone, Copy, Default)]
struct PendingBatch {
    reply: usize,
    operations: u64,
    /// How much of the reply has arrived and was correct.
    received: usize,
}

impl Clients {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> Outcome<Clients> {
        Clients::open(connections, |poll, number| Connection::open(address, poll, number))
    }

    pub(crate) fn connect_tls(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        connections: usize,
    ) -> Outcome<Clients> {
        Clients::open(connections, |poll, number| {
            Connection::open_tls(address, config, poll, number)
        })
    }

    fn open(
        connections: usize,
        connect: impl Fn(&Poll, usize) -> io::Result<Connection>,
    ) -> Outcome<Clients> {
        let poll = Poll::new()?;
        let connections = (0..connections).map(|number| connect(&poll, number));
        let connections = connections.collect::<io::Result<Vec<_>>>()?;
        let pending = vec![PendingBatch::default(); connections.len()];
        let events = Events::with_capacity(EVENTS_MAX);
        let (chunk, answered) = (vec![0; CHUNK_BYTES], Vec::new());
        Ok(Clients { poll, events, connections, pending, chunk, answered })
    }

    /// Sends a client's next batch.
    pub(crate) fn send_next(&mut self, client: usize, source: &mut impl Requests) -> Outcome<()> {
        let Batch { sent, reply, operations } = source.next(client);
        self.pending[client] = PendingBatch { reply, operations, received: 0 };
        Ok(self.connections[client].send(sent)?)
    }

    /// Waits for replies until the timeout, and reads them.
    pub(crate) fn wait(&mut self, source: &impl Requests, timeout: Duration) -> Outcome<()> {
        self.answered.clear();
        self.poll.poll(&mut self.events, Some(timeout))?;
        for event in &self.events {
            let Token(client) = event.token();
            let connection = &mut self.connections[client];
            if event.is_writable() {
                connection.flush()?;
            }
            let pending = &mut self.pending[client];
            let expected = source.expected(pending.reply);
            if event.is_readable() && pending.receive(connection, expected, &mut self.chunk)? {
                self.answered.push(Answered { client, operations: pending.operations });
            }
        }
        Ok(())
    }
}

impl PendingBatch {
    /// Reads available bytes. Returns whether the reply is complete.
    ///
    /// No bytes follow the reply of a batch, so a short read has emptied the socket, unless it is
    /// of TLS, which is read by records.
    fn receive(
        &mut self,
        connection: &mut Connection,
        expected: &[u8],
        chunk: &mut [u8],
    ) -> Outcome<bool> {
        loop {
            let Some(count) = connection.read(chunk)? else { return Ok(false) };
            let (came, missing) = (&chunk[..count], &expected[self.received..]);
            if !missing.starts_with(came) {
                return Err(wrong(came, missing).into());
            }
            self.received += count;
            if count == missing.len() {
                return Ok(true);
            }
            if count < chunk.len() && connection.tls.is_none() {
                return Ok(false);
            }
        }
    }
}

/// A non-blocking socket with unsent bytes.
pub(crate) struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
    tls: Option<Box<ClientConnection>>,
}

impl Connection {
    /// Connects, and registers the socket with the poll under a number.
    pub(crate) fn open(address: SocketAddr, poll: &Poll, number: usize) -> io::Result<Connection> {
        // Blocking, because the server's backlog may be shorter than the number of connections.
        Connection::from_stream(std::net::TcpStream::connect(address)?, poll, number)
    }

    /// Registers an open socket with the poll.
    pub(crate) fn from_stream(
        stream: std::net::TcpStream,
        poll: &Poll,
        number: usize,
    ) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(number), interests)?;
        Ok(Connection { stream, unsent: Vec::new(), tls: None })
    }

    /// As [`Connection::open`], with TLS. The handshake is complete.
    fn open_tls(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        poll: &Poll,
        number: usize,
    ) -> io::Result<Connection> {
        let mut stream = std::net::TcpStream::connect(address)?;
        let name = ServerName::IpAddress(address.ip().into());
        let client = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut tls = Box::new(client);
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        let connection = Connection::from_stream(stream, poll, number)?;
        Ok(Connection { tls: Some(tls), ..connection })
    }

    /// Reads available bytes; `None` if there are none. A closed connection is an error.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match &mut self.tls {
            Some(tls) => read_decrypted(tls, &mut self.stream, chunk),
            None => self.stream.read(chunk),
        };
        match read {
            Ok(0) => Err(io::Error::other("the server has closed a connection")),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends bytes now, or when the socket is writable.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            return self.flush();
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let sent = write_some(&mut self.stream, bytes)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends unsent bytes to a writable socket.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(tls) = &mut self.tls
            && tls.wants_write()
        {
            match tls.write_tls(&mut self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                written => written?,
            };
        }
        if !self.unsent.is_empty() {
            let sent = write_some(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

/// Reads decrypted bytes, after the socket if there are none.
fn read_decrypted(
    tls: &mut ClientConnection,
    stream: &mut TcpStream,
    chunk: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(chunk) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        if tls.read_tls(stream)? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

/// Writes until all bytes are written or the socket is full.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// The message about an unexpected reply.
pub(crate) fn wrong(came: &[u8], expected: &[u8]) -> String {
    let show = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        String::from_utf8_lossy(shown).escape_debug().to_string()
    };
    format!("replied \"{}\" instead of \"{}\"", show(came), show(expected))
}
