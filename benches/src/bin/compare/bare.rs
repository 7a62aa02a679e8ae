//! A server that finds where each request ends and answers what it was told to, and does nothing
//! else: what is left of a server's cost when its work is taken away. It must not know what the
//! requests mean.
//!
//! It is told by a request [`ANSWER`] with the replies to a cycle of requests, as bytes. From then
//! on every client is answered those, in their order, again and again.

use std::io;
use std::net::SocketAddr;

use leasehold_resp::{Limits, Parser, ProtocolError};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::Outcome;
use crate::generator::Connection;
use crate::running::Running;

/// The request that tells it the replies.
const ANSWER: &str = "ANSWER";
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

/// Serves until the process is ended.
pub(crate) fn serve(address: SocketAddr) -> Outcome<()> {
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server = Bare { clients: Vec::new(), cycle: Vec::new(), chunk: vec![0; CHUNK_BYTES] };
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
    }
}

struct Bare {
    /// Those that are gone leave their places empty.
    clients: Vec<Option<Client>>,
    /// The replies to a cycle.
    cycle: Vec<Vec<u8>>,
    chunk: Vec<u8>,
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
                    let Ok(taken) = client.take(&all, &mut self.cycle) else {
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
    fn take(&mut self, all: &[u8], cycle: &mut Vec<Vec<u8>>) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(length) = self.parser.parse(&all[taken..])? {
            let request = &all[taken..taken + length];
            taken += length;
            if let Some(reply) = cycle.get(self.next) {
                self.replies.extend_from_slice(reply);
                self.next = if self.next + 1 == cycle.len() { 0 } else { self.next + 1 };
                continue;
            }
            let mut words = self.parser.iter(request);
            if words.next() == Some(ANSWER.as_bytes()) {
                cycle.extend(words.map(<[u8]>::to_vec));
            }
            self.replies.extend_from_slice(UNTOLD);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use leasehold::compat::address::Endpoint;
    use leasehold::compat::wire::Wire;
    use leasehold_tests::redis_server::free_port;

    use super::{ANSWER, serve};
    use crate::generator::PATIENCE;

    #[test]
    fn every_client_is_answered_the_cycle() {
        let port = free_port();
        thread::spawn(move || serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("it"));
        let open = || {
            let endpoint = Endpoint::Tcp(Ipv4Addr::LOCALHOST.to_string(), port);
            std::iter::repeat_with(|| Wire::open(&endpoint, PATIENCE))
                .find_map(Result::ok)
                .expect("a connection")
        };
        let ask = |wire: &mut Wire, request: &[&str]| {
            String::from_utf8(wire.call(request).expect("a reply").text).expect("a text")
        };
        assert_eq!(ask(&mut open(), &["PING"]), "PONG");
        ask(&mut open(), &[ANSWER, "+one\r\n", ":2\r\n"]);
        let (mut first, mut second) = (open(), open());
        assert_eq!(ask(&mut first, &["A"]), "one");
        assert_eq!(ask(&mut second, &["A"]), "one");
        assert_eq!(ask(&mut first, &["B"]), "2");
        assert_eq!(ask(&mut first, &["C"]), "one");
    }
}
