//! Clients of one server, on one thread: each keeps one batch of requests under way, and every
//! reply is checked byte for byte. It must not know what the requests mean.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::Outcome;
use crate::running::Running;
use crate::workload::Effort;

/// A server that is silent for so long will not answer any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Larger than what any batch is answered with, mostly.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many sockets are asked about at once.
const EVENTS_MAX: usize = 1024;
/// How much of a wrong reply is shown.
const SHOWN_BYTES: usize = 200;

/// What clients say. A reply is known by its number, so that they need not keep it.
pub(crate) trait Traffic {
    /// The next batch of a connection.
    fn next(&mut self, connection: usize) -> Batch<'_>;

    /// What the batches with that number must be answered.
    fn expected(&self, reply: usize) -> &[u8];
}

/// Requests that are sent at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) sent: &'a [u8],
    /// Which of the expected replies it must be answered with.
    pub(crate) reply: usize,
    /// How many operations are done when it is answered.
    pub(crate) operations: u64,
}

/// What was done in a span of time, and what it cost the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    pub(crate) span: Duration,
    pub(crate) cpu: Duration,
}

impl Done {
    /// What the server spent on one of them, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// How many were done in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.span.as_secs_f64()
    }

    /// How much of a processor the server had, in hundredths.
    pub(crate) fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.span.as_secs_f64() * 100.0
    }
}

/// Keeps that many clients busy, and measures after a while.
pub(crate) fn saturate(
    running: &Running,
    traffic: &mut impl Traffic,
    connections: usize,
    effort: &Effort,
) -> Outcome<Done> {
    let mut clients = Clients::connect(running.address, connections)?;
    for client in 0..connections {
        clients.say(client, traffic)?;
    }
    keep_busy(&mut clients, traffic, effort.warm_up)?;
    let (began, before) = (Instant::now(), running.cpu()?);
    let operations = keep_busy(&mut clients, traffic, effort.span)?;
    Ok(Done { operations, span: began.elapsed(), cpu: running.cpu()? - before })
}

/// Keeps all busy for so long, and until something is done. How many operations were it?
fn keep_busy(clients: &mut Clients, traffic: &mut impl Traffic, span: Duration) -> Outcome<u64> {
    let began = Instant::now();
    let mut done = 0;
    while done == 0 || began.elapsed() < span {
        clients.wait(traffic, PATIENCE)?;
        if clients.answered.is_empty() && clients.events.is_empty() {
            return Err("the server has fallen silent".into());
        }
        for index in 0..clients.answered.len() {
            let Answered { client, operations } = clients.answered[index];
            done += operations;
            clients.say(client, traffic)?;
        }
    }
    Ok(done)
}

/// Clients of one server, each with one batch under way at most.
pub(crate) struct Clients {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    under_way: Vec<UnderWay>,
    chunk: Vec<u8>,
    /// Whose batches were answered at the last look.
    pub(crate) answered: Vec<Answered>,
}

/// A batch that was answered as it must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) client: usize,
    /// As in [`Batch`].
    pub(crate) operations: u64,
}

/// What the batch under way is to be answered, and what it counts for.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    reply: usize,
    operations: u64,
    /// How much of the reply has come, and was right.
    received: usize,
}

impl Clients {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> Outcome<Clients> {
        let poll = Poll::new()?;
        let connect = |number| Connection::open(address, &poll, number);
        let connections = (0..connections).map(connect).collect::<io::Result<Vec<_>>>()?;
        let under_way = vec![UnderWay::default(); connections.len()];
        let events = Events::with_capacity(EVENTS_MAX);
        let (chunk, answered) = (vec![0; CHUNK_BYTES], Vec::new());
        Ok(Clients { poll, events, connections, under_way, chunk, answered })
    }

    /// Sends a client's next batch.
    pub(crate) fn say(&mut self, client: usize, traffic: &mut impl Traffic) -> Outcome<()> {
        let Batch { sent, reply, operations } = traffic.next(client);
        self.under_way[client] = UnderWay { reply, operations, received: 0 };
        Ok(self.connections[client].send(sent)?)
    }

    /// Waits until something comes, but no longer than that, and reads it.
    pub(crate) fn wait(&mut self, traffic: &impl Traffic, patience: Duration) -> Outcome<()> {
        self.answered.clear();
        self.poll.poll(&mut self.events, Some(patience))?;
        for event in &self.events {
            let Token(client) = event.token();
            let connection = &mut self.connections[client];
            if event.is_writable() {
                connection.flush()?;
            }
            let under_way = &mut self.under_way[client];
            let expected = traffic.expected(under_way.reply);
            if event.is_readable() && under_way.hear(connection, expected, &mut self.chunk)? {
                self.answered.push(Answered { client, operations: under_way.operations });
            }
        }
        Ok(())
    }
}

impl UnderWay {
    /// Reads what has come. Is the batch answered?
    ///
    /// Nothing comes after the end of a batch's answer, so a short read leaves nothing behind, and
    /// the socket need not be asked once more.
    fn hear(
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
            if count < chunk.len() {
                return Ok(false);
            }
        }
    }
}

/// A socket, and what it would not take yet.
pub(crate) struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
}

impl Connection {
    /// Connects, and has the poll tell of it under a number.
    pub(crate) fn open(address: SocketAddr, poll: &Poll, number: usize) -> io::Result<Connection> {
        // Blocking: a server's queue of connections may be shorter than their number.
        Connection::of(std::net::TcpStream::connect(address)?, poll, number)
    }

    /// One that is there already.
    pub(crate) fn of(
        stream: std::net::TcpStream,
        poll: &Poll,
        number: usize,
    ) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(number), interests)?;
        Ok(Connection { stream, unsent: Vec::new() })
    }

    /// Reads what has come; `None` if nothing has. It is an error if the server has gone.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(chunk) {
            Ok(0) => Err(io::Error::other("the server has closed a connection")),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends, now or when the socket takes it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let sent = write_some(&mut self.stream, bytes)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// The socket takes more.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let sent = write_some(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

/// Until all is written, or the socket is full.
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

/// What to say of a reply that is not what it must be.
pub(crate) fn wrong(came: &[u8], expected: &[u8]) -> String {
    let show = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        String::from_utf8_lossy(shown).escape_debug().to_string()
    };
    format!("answered \"{}\" instead of \"{}\"", show(came), show(expected))
}
