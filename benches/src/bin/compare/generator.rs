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
const PATIENCE: Duration = Duration::from_secs(30);
/// Larger than what any batch is answered with, mostly.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many sockets are asked about at once.
const EVENTS_MAX: usize = 1024;
/// How much of a wrong reply is shown.
const SHOWN_BYTES: usize = 200;

/// What clients say.
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
    clients.work(traffic, effort.warm_up)?;
    let (began, before) = (Instant::now(), running.cpu()?);
    let operations = clients.work(traffic, effort.span)?;
    Ok(Done { operations, span: began.elapsed(), cpu: running.cpu()? - before })
}

struct Clients {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    /// What the batches under way are to be answered, and what they count for.
    under_way: Vec<UnderWay>,
    chunk: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct UnderWay {
    reply: usize,
    operations: u64,
    /// How much of the reply has come, and was right.
    received: usize,
}

impl Clients {
    fn connect(address: SocketAddr, connections: usize) -> Outcome<Clients> {
        let poll = Poll::new()?;
        let connect = |number| Connection::open(address, &poll, number);
        let connections = (0..connections).map(connect).collect::<io::Result<Vec<_>>>()?;
        let under_way = vec![UnderWay::default(); connections.len()];
        let events = Events::with_capacity(EVENTS_MAX);
        Ok(Clients { poll, events, connections, under_way, chunk: vec![0; CHUNK_BYTES] })
    }

    /// Sends a client's next batch.
    fn say(&mut self, client: usize, traffic: &mut impl Traffic) -> Outcome<()> {
        let Batch { sent, reply, operations } = traffic.next(client);
        self.under_way[client] = UnderWay { reply, operations, received: 0 };
        Ok(self.connections[client].send(sent)?)
    }

    /// Keeps all busy for so long, and until something is done. How many operations were it?
    fn work(&mut self, traffic: &mut impl Traffic, span: Duration) -> Outcome<u64> {
        let began = Instant::now();
        let mut done = 0;
        loop {
            if done > 0 && began.elapsed() >= span {
                return Ok(done);
            }
            self.poll.poll(&mut self.events, Some(PATIENCE))?;
            if self.events.is_empty() {
                return Err("the server has fallen silent".into());
            }
            let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
            for event in &events {
                let Token(client) = event.token();
                if event.is_writable() {
                    self.connections[client].flush()?;
                }
                if event.is_readable() {
                    done += self.hear(client, traffic)?;
                }
            }
            std::mem::swap(&mut self.events, &mut events);
        }
    }

    /// Reads what has come for a client. If its batch is answered, the next is sent. How many
    /// operations were done?
    ///
    /// Nothing comes after the end of a batch's answer, so a short read leaves nothing behind, and
    /// the socket need not be asked once more.
    fn hear(&mut self, client: usize, traffic: &mut impl Traffic) -> Outcome<u64> {
        loop {
            let count = match self.connections[client].stream.read(&mut self.chunk) {
                Ok(0) => return Err("the server has closed a connection".into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) => return Err(error.into()),
            };
            let UnderWay { reply, operations, received } = &mut self.under_way[client];
            let expected = &traffic.expected(*reply)[*received..];
            let came = &self.chunk[..count];
            if !expected.starts_with(came) {
                return Err(wrong(came, expected).into());
            }
            *received += count;
            if count == expected.len() {
                let operations = *operations;
                self.say(client, traffic)?;
                return Ok(operations);
            }
            if count < CHUNK_BYTES {
                return Ok(0);
            }
        }
    }
}

/// A socket, and what it would not take yet.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    unsent: Vec<u8>,
}

impl Connection {
    /// Connects, and has the poll tell of it under a number.
    pub(crate) fn open(address: SocketAddr, poll: &Poll, number: usize) -> io::Result<Connection> {
        // Blocking: a server's queue of connections may be shorter than their number.
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let interests = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(number), interests)?;
        Ok(Connection { stream, unsent: Vec::new() })
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
