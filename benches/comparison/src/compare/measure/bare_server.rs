//! The bare server: finds the end of each request and sends a configured reply. Its cost is the
//! lower bound for a server.
//!
//! The request [`REPLIES`] sets the encoded replies to a cycle of requests, which every client then
//! receives repeatedly. Alternatively, [`LOCK`] sets the number of arguments of a lock request and
//! of an unlock request, the reply to [`SUBSCRIBE`], and the message to subscribers at a release:
//! the server then stores only whether the lock is held. [`QUEUE`] sets the same numbers, and the
//! replies to a client that gets the lock and to one that releases it: the server then has a queue.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use lockwheel_comparison::Outcome;
use lockwheel_resp::{Limits, Parser, ProtocolError};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::measure::generator::Connection;
use crate::measure::running::Running;

/// Sets the replies.
const REPLIES: &str = "REPLIES";
/// The request that configures the lock.
const LOCK: &str = "LOCK";
/// The request that configures the queue.
const QUEUE: &str = "QUEUE";
/// The request of clients that wait for messages.
const SUBSCRIBE: &str = "SUBSCRIBE";
const GRANTED: &[u8] = b"$-1\r\n";
const REFUSED: &[u8] = b":30000\r\n";
const DONE: &[u8] = b":1\r\n";
/// The reply before the configuration: correct for PING, and a text for SCRIPT LOAD.
const UNCONFIGURED: &[u8] = b"+PONG\r\n";

const LISTENER: Token = Token(usize::MAX);
const EVENTS_MAX: usize = 1024;
/// Bytes that are read at once: more than most batches of a client.
const CHUNK_BYTES: usize = 64 * 1024;

/// Sets the replies to the requests of a cycle.
pub(crate) fn configure_replies(running: &Running, replies: &[&str]) -> Outcome<()> {
    running.ask(&[&[REPLIES], replies].concat()).map(drop)
}

/// Configures the lock. Its requests are distinguished by their number of arguments.
pub(crate) fn configure_lock(
    running: &Running,
    lock_words: usize,
    unlock_words: usize,
    subscribed: &str,
    message: &str,
) -> Outcome<()> {
    let (lock, unlock) = (lock_words.to_string(), unlock_words.to_string());
    running.ask(&[LOCK, &lock, &unlock, subscribed, message]).map(drop)
}

/// Configures the queue. Its requests are distinguished by their number of arguments.
pub(crate) fn configure_queue(
    running: &Running,
    acquire_words: usize,
    release_words: usize,
    granted: &str,
    released: &str,
) -> Outcome<()> {
    let (acquire, release) = (acquire_words.to_string(), release_words.to_string());
    running.ask(&[QUEUE, &acquire, &release, granted, released]).map(drop)
}

/// Serves clients until the process ends.
pub(crate) fn serve(address: SocketAddr) -> Outcome<()> {
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let replies = Replies::default();
    let mut server = BareServer { clients: Vec::new(), replies, chunk: vec![0; CHUNK_BYTES] };
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => server.accept(&listener, &poll)?,
                Token(client) => server.read(client),
            }
        }
        // Replies are sent after all reads, so that clients that wait together continue together.
        for event in events.iter().filter(|event| event.token() != LISTENER) {
            server.send_replies(event.token().0);
        }
        server.send_messages();
        server.send_grants();
    }
}

struct BareServer {
    /// Indexed by token; `None` after a client has disconnected.
    clients: Vec<Option<BareClient>>,
    replies: Replies,
    chunk: Vec<u8>,
}

/// The configured replies.
#[derive(Default)]
struct Replies {
    /// The replies to a cycle.
    cycle: Vec<Vec<u8>>,
    lock: Option<BareLock>,
    queue: Option<BareQueue>,
}

/// The only lock of the server.
#[derive(Default)]
struct BareLock {
    lock_words: usize,
    unlock_words: usize,
    subscribed: Vec<u8>,
    message: Vec<u8>,
    held: bool,
    /// Releases for which no messages have been sent yet.
    released: usize,
    subscribers: Vec<usize>,
}

/// The only lock of the server, with the clients that wait for it.
#[derive(Default)]
struct BareQueue {
    acquire_words: usize,
    release_words: usize,
    granted: Vec<u8>,
    released: Vec<u8>,
    /// The holder, then the clients that wait.
    clients: VecDeque<usize>,
    /// Clients that have the lock and have not been sent the reply yet.
    grants: Vec<usize>,
}

struct BareClient {
    connection: Connection,
    parser: Parser,
    /// The beginning of an incomplete request.
    rest: Vec<u8>,
    /// The index of the next reply of the cycle.
    next: usize,
    unsent: Vec<u8>,
}

impl BareServer {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> Outcome<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let connection = Connection::from_stream(stream.into(), poll, self.clients.len())?;
            let mut parser = Parser::new(Limits::default());
            parser.set_authenticated(true);
            let (rest, unsent) = (Vec::new(), Vec::new());
            self.clients.push(Some(BareClient { connection, parser, rest, next: 0, unsent }));
        }
    }

    /// Reads and handles all available requests of a client.
    fn read(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        loop {
            match client.connection.read(&mut self.chunk) {
                Ok(Some(count)) => {
                    client.rest.extend_from_slice(&self.chunk[..count]);
                    let all = std::mem::take(&mut client.rest);
                    let Ok(taken) = client.take(number, &all, &mut self.replies) else {
                        return self.clients[number] = None;
                    };
                    client.rest = all;
                    client.rest.drain(..taken);
                    if count < self.chunk.len() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(_) => return self.clients[number] = None,
            }
        }
    }

    /// Sends the messages about releases to all subscribers.
    fn send_messages(&mut self) {
        let Some(lock) = &mut self.replies.lock else { return };
        let messages = lock.message.repeat(std::mem::take(&mut lock.released));
        if messages.is_empty() {
            return;
        }
        for subscriber in lock.subscribers.clone() {
            if let Some(client) = &mut self.clients[subscriber] {
                client.unsent.extend_from_slice(&messages);
            }
            self.send_replies(subscriber);
        }
    }

    /// Sends the replies to clients that have waited for the lock.
    fn send_grants(&mut self) {
        let Some(queue) = &mut self.replies.queue else { return };
        let granted = std::mem::take(&mut queue.grants);
        for &client in &granted {
            if let Some(client) = &mut self.clients[client] {
                client.unsent.extend_from_slice(&queue.granted);
            }
        }
        for client in granted {
            self.send_replies(client);
        }
    }

    /// Sends the pending replies of a client.
    fn send_replies(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        let flushed = client.connection.flush();
        let sent = flushed.and_then(|()| match client.unsent.is_empty() {
            true => Ok(()),
            false => client.connection.send(&client.unsent),
        });
        client.unsent.clear();
        if sent.is_err() {
            self.clients[number] = None;
        }
    }
}

impl BareClient {
    /// Handles the complete requests and returns their length in bytes.
    fn take(
        &mut self,
        number: usize,
        all: &[u8],
        replies: &mut Replies,
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(length) = self.parser.parse(&all[taken..])? {
            let request = &all[taken..taken + length];
            taken += length;
            if let Some(reply) = replies.cycle.get(self.next) {
                self.unsent.extend_from_slice(reply);
                self.next = if self.next + 1 == replies.cycle.len() { 0 } else { self.next + 1 };
                continue;
            }
            let mut words = self.parser.iter(request);
            let reply = match (&mut replies.lock, &mut replies.queue) {
                (Some(lock), _) => lock.reply(number, words),
                (None, Some(queue)) => queue.reply(number, words.count()),
                (None, None) => {
                    replies.configure(&mut words);
                    UNCONFIGURED
                }
            };
            self.unsent.extend_from_slice(reply);
        }
        Ok(taken)
    }
}

impl Replies {
    /// Applies a request that configures the replies; ignores others.
    fn configure<'a>(&mut self, words: &mut impl Iterator<Item = &'a [u8]>) {
        let name = words.next();
        let mut words = words.map(<[u8]>::to_vec);
        if name == Some(REPLIES.as_bytes()) {
            self.cycle.extend(words);
            return;
        }
        let mut word = || words.next().unwrap_or_default();
        let mut number = || String::from_utf8_lossy(&word()).parse().unwrap_or_default();
        if name == Some(LOCK.as_bytes()) {
            let (lock_words, unlock_words) = (number(), number());
            let (subscribed, message) = (word(), word());
            let rest = BareLock::default();
            self.lock = Some(BareLock { lock_words, unlock_words, subscribed, message, ..rest });
        } else if name == Some(QUEUE.as_bytes()) {
            let (acquire_words, release_words) = (number(), number());
            let (granted, released) = (word(), word());
            let rest = BareQueue::default();
            self.queue =
                Some(BareQueue { acquire_words, release_words, granted, released, ..rest });
        }
    }
}

impl BareLock {
    fn reply<'a>(&mut self, client: usize, words: impl Iterator<Item = &'a [u8]>) -> &[u8] {
        let mut words = words.peekable();
        if words.peek() == Some(&SUBSCRIBE.as_bytes()) {
            self.subscribers.push(client);
            return &self.subscribed;
        }
        match words.count() {
            count if count == self.lock_words && self.held => REFUSED,
            count if count == self.lock_words => {
                self.held = true;
                GRANTED
            }
            count if count == self.unlock_words => {
                self.held = false;
                self.released += 1;
                DONE
            }
            _ => DONE,
        }
    }
}

impl BareQueue {
    /// The reply to a request of this many words; empty while the client waits.
    fn reply(&mut self, client: usize, words: usize) -> &[u8] {
        if words == self.acquire_words {
            self.clients.push_back(client);
            return if self.clients.len() == 1 { &self.granted } else { b"" };
        }
        if words == self.release_words {
            self.clients.pop_front();
            self.grants.extend(self.clients.front());
            return &self.released;
        }
        DONE
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use lockwheel_compat::wire::Wire;
    use lockwheel_compat::wire::address::Endpoint;
    use lockwheel_tests::redis_server::free_port;

    use super::{LOCK, QUEUE, REPLIES, SUBSCRIBE, serve};
    use crate::measure::generator::REPLY_TIMEOUT;

    /// Starts a server and returns a function that connects to it.
    fn start() -> impl Fn() -> Wire {
        let port = free_port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        thread::spawn(move || serve(address).expect("a server"));
        move || {
            let endpoint = Endpoint::Tcp(Ipv4Addr::LOCALHOST.to_string(), port);
            std::iter::repeat_with(|| Wire::open(&endpoint, REPLY_TIMEOUT))
                .find_map(Result::ok)
                .expect("a connection")
        }
    }

    fn ask(wire: &mut Wire, request: &[&str]) -> String {
        String::from_utf8(wire.call(request).expect("a reply").text).expect("a text")
    }

    #[test]
    fn every_client_receives_the_replies_of_the_cycle() {
        let open = start();
        assert_eq!(ask(&mut open(), &["PING"]), "PONG");
        ask(&mut open(), &[REPLIES, "+one\r\n", ":2\r\n"]);
        let (mut first, mut second) = (open(), open());
        assert_eq!(ask(&mut first, &["A"]), "one");
        assert_eq!(ask(&mut second, &["A"]), "one");
        assert_eq!(ask(&mut first, &["B"]), "2");
        assert_eq!(ask(&mut first, &["C"]), "one");
    }

    #[test]
    fn lock_has_one_holder_and_subscribers_receive_its_release() {
        let open = start();
        ask(&mut open(), &[LOCK, "3", "4", "+subscribed\r\n", "+free\r\n"]);
        let (mut first, mut second, mut subscriber) = (open(), open(), open());
        assert_eq!(ask(&mut subscriber, &[SUBSCRIBE, "c"]), "subscribed");
        assert_eq!(first.call(&["LOCK", "k", "1"]).expect("a reply").kind, b'$');
        assert_eq!(ask(&mut second, &["LOCK", "k", "2"]), "30000");
        assert_eq!(ask(&mut first, &["UNLOCK", "k", "1", "c"]), "1");
        assert_eq!(subscriber.read().expect("a message").text, b"free");
        assert_eq!(second.call(&["LOCK", "k", "2"]).expect("a reply").kind, b'$');
    }

    #[test]
    fn queue_grants_the_lock_in_order() {
        let open = start();
        ask(&mut open(), &[QUEUE, "3", "2", "+granted\r\n", "+released\r\n"]);
        let [mut first, mut second, mut third] = [(); 3].map(|()| open());
        assert_eq!(ask(&mut first, &["ACQUIRE", "a", "b"]), "granted");
        for waiter in [&mut second, &mut third] {
            waiter.send(&["ACQUIRE", "a", "b"]).expect("a request");
            assert_eq!(ask(&mut open(), &["PING"]), "1");
        }
        assert_eq!(ask(&mut first, &["RELEASE", "a"]), "released");
        assert_eq!(second.read().expect("a reply").text, b"granted");
        assert_eq!(ask(&mut second, &["RELEASE", "a"]), "released");
        assert_eq!(third.read().expect("a reply").text, b"granted");
    }
}
