//! The node that clients use: it replies to a batch of requests when its own log has it and, if
//! there are followers, that of one of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use lockwheel_resp::{Limits, Parser};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::log::Log;
use super::{CHUNK_BYTES, HEADER_BYTES};
use crate::Outcome;

const EVENTS_MAX: usize = 1024;
/// The number of the listener's events. Those of followers come next, then those of clients.
const LISTENER: usize = 0;
/// The number of arguments of the lock script of Redisson 3, which replies with nil. Other scripts
/// reply with 1.
const LOCK_SCRIPT_WORDS: usize = 6;
/// The digest of every script.
const DIGEST: &str = "+0000000000000000000000000000000000000000\r\n";

/// Serves clients until the process ends.
///
/// # Errors
/// The address cannot be bound, a follower ends or cannot be reached, or the log cannot be written.
pub fn serve(address: SocketAddr, directory: &Path, followers: &[SocketAddr]) -> Outcome<()> {
    let mut leader = Leader::open(address, directory, followers)?;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let count = leader.epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            leader.handle(usize::try_from(event.data())?)?;
        }
        leader.advance()?;
    }
}

struct Leader {
    epoll: Epoll,
    listener: TcpListener,
    followers: Vec<Follower>,
    /// In the order of their connections; `None` after a client has disconnected.
    clients: Vec<Option<Client>>,
    log: Log,
    /// Requests that came while a batch was in flight.
    collected: Batch,
    /// Requests that are written, flushed and sent; empty if there are none.
    in_flight: Batch,
    /// The number of batches that were begun.
    rounds: u64,
    /// The number of requests that were committed.
    commits: u64,
    chunk: Vec<u8>,
}

struct Follower {
    stream: TcpStream,
    /// The number of batches that it has acknowledged.
    acknowledged: u64,
}

struct Client {
    stream: TcpStream,
    parser: Parser,
    /// The beginning of an incomplete request.
    rest: Vec<u8>,
}

/// Requests that are committed together.
#[derive(Default)]
struct Batch {
    /// The length of the requests, and the requests.
    bytes: Vec<u8>,
    replies: Vec<u8>,
    /// The client of each request, and where its reply ends.
    requests: Vec<(usize, usize)>,
}

impl Leader {
    fn open(address: SocketAddr, directory: &Path, followers: &[SocketAddr]) -> Outcome<Leader> {
        let follower = |address| -> Outcome<Follower> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(Follower { stream, acknowledged: 0 })
        };
        let leader = Leader {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            followers: followers.iter().map(follower).collect::<Outcome<_>>()?,
            log: Log::open(directory)?,
            listener: TcpListener::bind(address)?,
            clients: Vec::new(),
            collected: Batch::default(),
            in_flight: Batch::default(),
            rounds: 0,
            commits: 0,
            chunk: vec![0; CHUNK_BYTES],
        };
        leader.epoll.add(&leader.listener, event(LISTENER))?;
        for (number, follower) in leader.followers.iter().enumerate() {
            leader.epoll.add(&follower.stream, event(LISTENER + 1 + number))?;
        }
        Ok(leader)
    }

    /// Handles an event of the socket with this number. Its socket is readable, so that one read
    /// does not block; the next wait returns it again if bytes are left.
    fn handle(&mut self, number: usize) -> Outcome<()> {
        if number == LISTENER {
            let (stream, _) = self.listener.accept()?;
            stream.set_nodelay(true)?;
            let number = LISTENER + 1 + self.followers.len() + self.clients.len();
            self.epoll.add(&stream, event(number))?;
            let mut parser = Parser::new(Limits::default());
            parser.set_authenticated(true);
            self.clients.push(Some(Client { stream, parser, rest: Vec::new() }));
        } else if let Some(follower) = self.followers.get_mut(number - LISTENER - 1) {
            match follower.stream.read(&mut self.chunk)? {
                0 => return Err("a follower has ended".into()),
                count => follower.acknowledged += count as u64,
            }
        } else {
            let client = number - LISTENER - 1 - self.followers.len();
            if self.read(client).is_err() {
                self.clients[client] = None;
            }
        }
        Ok(())
    }

    /// Reads requests of a client. Those that change nothing are answered at once.
    fn read(&mut self, number: usize) -> Outcome<()> {
        let Some(client) = &mut self.clients[number] else { return Ok(()) };
        match client.stream.read(&mut self.chunk)? {
            0 => return Err("disconnected".into()),
            count => client.rest.extend_from_slice(&self.chunk[..count]),
        }
        let mut taken = 0;
        while let Some(bytes) = client.parser.parse(&client.rest[taken..])? {
            let request = &client.rest[taken..taken + bytes];
            taken += bytes;
            let mut words = client.parser.iter(request);
            let count = words.len();
            let reply = match words.next() {
                Some(b"SET") => "+OK\r\n",
                Some(b"EVALSHA") if count == LOCK_SCRIPT_WORDS => "$-1\r\n",
                Some(b"EVALSHA") => ":1\r\n",
                other => {
                    let reply = match other {
                        Some(b"INFO") => counters(self.rounds, self.commits),
                        Some(b"SCRIPT") => DIGEST.to_owned(),
                        _ => "+PONG\r\n".to_owned(),
                    };
                    client.stream.write_all(reply.as_bytes())?;
                    continue;
                }
            };
            self.collected.add(number, request, reply);
        }
        client.rest.drain(..taken);
        Ok(())
    }

    /// Replies to the batch in flight if it is committed, and begins the next one.
    fn advance(&mut self) -> Outcome<()> {
        loop {
            if !self.in_flight.requests.is_empty() {
                let is_committed = self.followers.iter().any(|it| it.acknowledged >= self.rounds);
                if !is_committed && !self.followers.is_empty() {
                    return Ok(());
                }
                self.release();
            }
            if self.collected.requests.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut self.collected, &mut self.in_flight);
            self.rounds += 1;
            let bytes = self.in_flight.sealed()?;
            // Sent first, so that all nodes flush at the same time.
            for follower in &mut self.followers {
                follower.stream.write_all(bytes)?;
            }
            self.log.append(bytes)?;
        }
    }

    /// Sends the replies of the batch in flight, those of a client at once.
    fn release(&mut self) {
        let Batch { bytes, replies, requests } = &mut self.in_flight;
        self.commits += requests.len() as u64;
        let mut begin = 0;
        for of_client in requests.chunk_by(|one, other| one.0 == other.0) {
            let [.., (number, end)] = *of_client else { continue };
            if let Some(client) = &mut self.clients[number]
                && client.stream.write_all(&replies[begin..end]).is_err()
            {
                self.clients[number] = None;
            }
            begin = end;
        }
        bytes.clear();
        replies.clear();
        requests.clear();
    }
}

impl Batch {
    fn add(&mut self, client: usize, request: &[u8], reply: &str) {
        if self.bytes.is_empty() {
            self.bytes.extend([0; HEADER_BYTES]);
        }
        self.bytes.extend_from_slice(request);
        self.replies.extend_from_slice(reply.as_bytes());
        self.requests.push((client, self.replies.len()));
    }

    /// The bytes for the logs, with their length.
    fn sealed(&mut self) -> Outcome<&[u8]> {
        let (header, requests) = self.bytes.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&u32::try_from(requests.len())?.to_be_bytes());
        Ok(&self.bytes)
    }
}

/// The reply to INFO, with the names that Lockwheel has for the same counters.
fn counters(rounds: u64, commits: u64) -> String {
    let text = format!("raft_rounds:{rounds}\r\nraft_commits:{commits}\r\n");
    format!("${}\r\n{text}\r\n", text.len())
}

/// That the socket with this number is readable.
fn event(number: usize) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, number as u64)
}
