//! A server that finds where each request ends and answers what it was told to, and does nothing
//! else: what is left of a server's cost when its work is taken away. It must not know what the
//! requests mean.
//!
//! It is told by a request [`ANSWER`] with the replies to a cycle of requests, as bytes. From then
//! on every client is answered those, in their order, again and again. Or it is told by [`LOCK`]
//! how many words ask for the one lock there is, how many release it, what those who listen are
//! answered, and what they hear of a release: who holds it is all that it keeps.

use std::io;
use std::net::SocketAddr;

use lockwheel_resp::{Limits, Parser, ProtocolError};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::Outcome;
use crate::generator::Connection;
use crate::running::Running;

/// The request that tells it the replies.
const ANSWER: &str = "ANSWER";
/// The request that makes it a lock.
const LOCK: &str = "LOCK";
/// The request of those who listen.
const SUBSCRIBE: &str = "SUBSCRIBE";
const GRANTED: &[u8] = b"$-1\r\n";
const REFUSED: &[u8] = b":30000\r\n";
const DONE: &[u8] = b":1\r\n";
/// What it answers before it was told: who asks whether it is there wants this, and who has a
/// script kept wants a text.
const UNTOLD: &[u8] = b"+PONG\r\n";

const LISTENER: Token = Token(usize::MAX);
const EVENTS_MAX: usize = 1024;
/// Larger than what a client sends at once, mostly.
const CHUNK_BYTES: usize = 64 * 1024;

/// Has the server answer the requests of a cycle with these.
pub(crate) fn tell(running: &Running, replies: &[&str]) -> Outcome<()> {
    running.ask(&[&[ANSWER], replies].concat()).map(drop)
}

/// Makes it a lock. What requests are for is told by how many words they have.
pub(crate) fn tell_lock(
    running: &Running,
    lock_words: usize,
    unlock_words: usize,
    welcome: &str,
    message: &str,
) -> Outcome<()> {
    let (lock, unlock) = (lock_words.to_string(), unlock_words.to_string());
    running.ask(&[LOCK, &lock, &unlock, welcome, message]).map(drop)
}

/// Serves until the process is ended.
pub(crate) fn serve(address: SocketAddr) -> Outcome<()> {
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server =
        Bare { clients: Vec::new(), orders: Orders::default(), chunk: vec![0; CHUNK_BYTES] };
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => server.welcome(&listener, &poll)?,
                Token(client) => server.read(client),
            }
        }
        // All at the end: clients that are answered together ask together.
        for event in events.iter().filter(|event| event.token() != LISTENER) {
            server.answer(event.token().0);
        }
        server.tell_listeners();
    }
}

struct Bare {
    /// Those that are gone leave their places empty.
    clients: Vec<Option<Client>>,
    orders: Orders,
    chunk: Vec<u8>,
}

/// What it was told to answer.
#[derive(Default)]
struct Orders {
    /// The replies to a cycle.
    cycle: Vec<Vec<u8>>,
    lock: Option<Lock>,
}

/// The one lock there is.
#[derive(Default)]
struct Lock {
    lock_words: usize,
    unlock_words: usize,
    welcome: Vec<u8>,
    message: Vec<u8>,
    held: bool,
    /// Releases of which nobody has been told yet.
    released: usize,
    listeners: Vec<usize>,
}

struct Client {
    connection: Connection,
    parser: Parser,
    /// The beginning of a request.
    rest: Vec<u8>,
    /// Which reply of the cycle is next.
    next: usize,
    replies: Vec<u8>,
}

impl Bare {
    fn welcome(&mut self, listener: &TcpListener, poll: &Poll) -> Outcome<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let connection = Connection::of(stream.into(), poll, self.clients.len())?;
            let mut parser = Parser::new(Limits::default());
            parser.set_authenticated(true);
            let (rest, replies) = (Vec::new(), Vec::new());
            self.clients.push(Some(Client { connection, parser, rest, next: 0, replies }));
        }
    }

    /// Reads all that a client has sent.
    fn read(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        loop {
            match client.connection.read(&mut self.chunk) {
                Ok(Some(count)) => {
                    client.rest.extend_from_slice(&self.chunk[..count]);
                    let all = std::mem::take(&mut client.rest);
                    let Ok(taken) = client.take(number, &all, &mut self.orders) else {
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

    /// Tells all who listen of what has been released.
    fn tell_listeners(&mut self) {
        let Some(lock) = &mut self.orders.lock else { return };
        let messages = lock.message.repeat(std::mem::take(&mut lock.released));
        if messages.is_empty() {
            return;
        }
        for listener in lock.listeners.clone() {
            if let Some(client) = &mut self.clients[listener] {
                client.replies.extend_from_slice(&messages);
            }
            self.answer(listener);
        }
    }

    /// Sends a client the replies to what it has sent.
    fn answer(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else { return };
        let flushed = client.connection.flush();
        let sent = flushed.and_then(|()| match client.replies.is_empty() {
            true => Ok(()),
            false => client.connection.send(&client.replies),
        });
        client.replies.clear();
        if sent.is_err() {
            self.clients[number] = None;
        }
    }
}

impl Client {
    /// Takes the whole requests of what has come, and says how many bytes they were.
    fn take(
        &mut self,
        number: usize,
        all: &[u8],
        orders: &mut Orders,
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(length) = self.parser.parse(&all[taken..])? {
            let request = &all[taken..taken + length];
            taken += length;
            if let Some(reply) = orders.cycle.get(self.next) {
                self.replies.extend_from_slice(reply);
                self.next = if self.next + 1 == orders.cycle.len() { 0 } else { self.next + 1 };
                continue;
            }
            let mut words = self.parser.iter(request);
            let reply = match &mut orders.lock {
                Some(lock) => lock.answer(number, words),
                None => {
                    orders.heed(&mut words);
                    UNTOLD
                }
            };
            self.replies.extend_from_slice(reply);
        }
        Ok(taken)
    }
}

impl Orders {
    /// Hears what to answer, if that is what a request is about.
    fn heed<'a>(&mut self, words: &mut impl Iterator<Item = &'a [u8]>) {
        let name = words.next();
        let mut words = words.map(<[u8]>::to_vec);
        if name == Some(ANSWER.as_bytes()) {
            self.cycle.extend(words);
        } else if name == Some(LOCK.as_bytes()) {
            let mut word = || words.next().unwrap_or_default();
            let mut number = || String::from_utf8_lossy(&word()).parse().unwrap_or_default();
            let (lock_words, unlock_words) = (number(), number());
            let (welcome, message) = (word(), word());
            let lock = Lock { lock_words, unlock_words, welcome, message, ..Lock::default() };
            self.lock = Some(lock);
        }
    }
}

impl Lock {
    fn answer<'a>(&mut self, client: usize, words: impl Iterator<Item = &'a [u8]>) -> &[u8] {
        let mut words = words.peekable();
        if words.peek() == Some(&SUBSCRIBE.as_bytes()) {
            self.listeners.push(client);
            return &self.welcome;
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use lockwheel_compat::address::Endpoint;
    use lockwheel_compat::wire::Wire;
    use lockwheel_tests::redis_server::free_port;

    use super::{ANSWER, LOCK, SUBSCRIBE, serve};
    use crate::generator::PATIENCE;

    /// A server of its own, as a way to connect to it.
    fn served() -> impl Fn() -> Wire {
        let port = free_port();
        thread::spawn(move || serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("it"));
        move || {
            let endpoint = Endpoint::Tcp(Ipv4Addr::LOCALHOST.to_string(), port);
            std::iter::repeat_with(|| Wire::open(&endpoint, PATIENCE))
                .find_map(Result::ok)
                .expect("a connection")
        }
    }

    fn ask(wire: &mut Wire, request: &[&str]) -> String {
        String::from_utf8(wire.call(request).expect("a reply").text).expect("a text")
    }

    #[test]
    fn every_client_is_answered_the_cycle() {
        let open = served();
        assert_eq!(ask(&mut open(), &["PING"]), "PONG");
        ask(&mut open(), &[ANSWER, "+one\r\n", ":2\r\n"]);
        let (mut first, mut second) = (open(), open());
        assert_eq!(ask(&mut first, &["A"]), "one");
        assert_eq!(ask(&mut second, &["A"]), "one");
        assert_eq!(ask(&mut first, &["B"]), "2");
        assert_eq!(ask(&mut first, &["C"]), "one");
    }

    #[test]
    fn one_at_a_time_holds_the_lock_and_those_who_listen_hear_of_its_release() {
        let open = served();
        ask(&mut open(), &[LOCK, "3", "4", "+welcome\r\n", "+free\r\n"]);
        let (mut first, mut second, mut listener) = (open(), open(), open());
        assert_eq!(ask(&mut listener, &[SUBSCRIBE, "c"]), "welcome");
        assert_eq!(first.call(&["LOCK", "k", "1"]).expect("a reply").kind, b'$');
        assert_eq!(ask(&mut second, &["LOCK", "k", "2"]), "30000");
        assert_eq!(ask(&mut first, &["UNLOCK", "k", "1", "c"]), "1");
        assert_eq!(String::from_utf8(listener.read().expect("it").text).expect("it"), "free");
        assert_eq!(second.call(&["LOCK", "k", "2"]).expect("a reply").kind, b'$');
    }
}
