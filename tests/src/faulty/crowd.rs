//! The clients of a faulty server: their sockets, and what they have asked for.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::{Buf, BytesMut};
use lockwheel_engine::session::{ClientId, Close, Origin};
use lockwheel_engine::time::Time;
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::{Limits, Parser, Reply, encode};
use socket2::SockRef;

/// What a socket's thread has to say.
pub(super) enum Event {
    /// Somebody has connected.
    Came(TcpStream),
    /// A client asks for something.
    Asked(ClientId, Asked),
    /// A client has gone.
    Left(ClientId),
    /// The server is to end.
    Stop,
}

/// What a client asks for.
pub(super) enum Asked {
    /// A command.
    Command(Vec<Vec<u8>>),
    /// Something that is no request: it is told so, and the connection closed.
    Nonsense(Reply),
}

/// Everyone who is connected.
pub(super) struct Crowd {
    /// What has happened at the sockets.
    pub(super) events: Receiver<Event>,
    sender: Sender<Event>,
    sessions: BTreeMap<ClientId, Session>,
}

struct Session {
    stream: TcpStream,
    /// Where the thread that writes takes from; it closes the socket when this is gone.
    outbox: Sender<Vec<u8>>,
    asked: VecDeque<Asked>,
    waiting: bool,
}

impl Crowd {
    /// Nobody yet, and where to say who comes.
    pub(super) fn new() -> (Crowd, Sender<Event>) {
        let (sender, events) = channel();
        (Crowd { events, sender: sender.clone(), sessions: BTreeMap::new() }, sender)
    }

    /// Takes in who comes and what is asked; returns who has left, which somebody else decides.
    pub(super) fn hear(
        &mut self,
        engine: &mut Engine,
        time: Time,
        event: Event,
    ) -> Option<ClientId> {
        match event {
            Event::Came(stream) => self.let_in(engine, time, stream),
            Event::Asked(client, asked) => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.asked.push_back(asked);
                }
            }
            Event::Left(client) => return Some(client),
            Event::Stop => {}
        }
        None
    }

    fn let_in(&mut self, engine: &mut Engine, time: Time, stream: TcpStream) {
        let address = |address: std::io::Result<std::net::SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let origin = Origin {
            in_process: false,
            address: address(stream.peer_addr()),
            local_address: address(stream.local_addr()),
            descriptor: 8,
            unix: false,
            local: true,
        };
        let client = engine.connect(origin, time);
        let (outbox, mail) = channel::<Vec<u8>>();
        let copies = stream.try_clone().and_then(|one| Ok((one, stream.try_clone()?)));
        let Ok((mut reader, mut writer)) = copies else {
            engine.disconnect(client);
            return;
        };
        let sender = self.sender.clone();
        thread::spawn(move || {
            read_requests(&mut reader, client, &sender);
            let _ = sender.send(Event::Left(client));
        });
        thread::spawn(move || {
            // Whoever does not listen any more will be seen to have left.
            while let Ok(bytes) = mail.recv() {
                let _ = writer.write_all(&bytes);
            }
            let _ = writer.shutdown(Shutdown::Both);
        });
        let session = Session { stream, outbox, asked: VecDeque::new(), waiting: false };
        self.sessions.insert(client, session);
    }

    /// Somebody who has asked for something and waits for nothing, and what it is; from now on
    /// it waits.
    pub(super) fn next(&mut self) -> Option<(ClientId, Asked)> {
        let ready = |session: &Session| !session.waiting && !session.asked.is_empty();
        let (client, session) = self.sessions.iter_mut().find(|(_, session)| ready(session))?;
        session.waiting = true;
        Some((*client, session.asked.pop_front()?))
    }

    /// How many requests of this client are behind the one that runs.
    pub(super) fn asked(&self, client: ClientId) -> usize {
        self.sessions.get(&client).map_or(0, |session| session.asked.len())
    }

    /// The next request of this client, if it is a command: it is not run any more.
    pub(super) fn take_asked(&mut self, client: ClientId) -> Option<Vec<Vec<u8>>> {
        let asked = &mut self.sessions.get_mut(&client)?.asked;
        match asked.pop_front()? {
            Asked::Command(argv) => Some(argv),
            nonsense => {
                asked.push_front(nonsense);
                None
            }
        }
    }

    /// A request has been run: what is sent, and how it goes on.
    pub(super) fn settle(
        &mut self,
        engine: &mut Engine,
        client: ClientId,
        argv: &[Vec<u8>],
        bytes: &[u8],
        flow: Flow,
    ) {
        self.send(client, bytes);
        let Some(session) = self.sessions.get_mut(&client) else { return };
        session.waiting = matches!(flow, Flow::Wait | Flow::Again);
        match flow {
            Flow::Again => session.asked.push_front(Asked::Command(argv.to_vec())),
            Flow::Close | Flow::Shutdown => {
                engine.disconnect(client);
                self.sessions.remove(&client);
            }
            _ => {}
        }
    }

    /// A client may ask again.
    pub(super) fn resume(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.waiting = false;
        }
    }

    /// Sends something to a client.
    pub(super) fn send(&mut self, client: ClientId, bytes: &[u8]) {
        if let Some(session) = self.sessions.get(&client).filter(|_| !bytes.is_empty()) {
            let _ = session.outbox.send(bytes.to_vec());
        }
    }

    /// Sends a client away.
    pub(super) fn close(&mut self, client: ClientId, how: Close) {
        if let Some(session) = self.sessions.remove(&client).filter(|_| how == Close::Now) {
            let _ = session.stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether a client has hung up, though its thread may not have said so yet.
    pub(super) fn has_hung_up(&self, client: ClientId) -> bool {
        let Some(session) = self.sessions.get(&client) else { return false };
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let peeked =
            SockRef::from(&session.stream).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
        matches!(peeked, Ok(0))
    }
}

/// Cuts requests out of what a client sends, until it goes or sends nonsense.
fn read_requests(stream: &mut TcpStream, client: ClientId, sender: &Sender<Event>) {
    let mut parser = Parser::new(Limits::default());
    parser.set_authenticated(true);
    let mut input = BytesMut::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        match parser.parse(&input) {
            Ok(Some(used)) => {
                let argv: Vec<_> = parser.iter(&input).map(<[u8]>::to_vec).collect();
                input.advance(used);
                if !argv.is_empty() {
                    let _ = sender.send(Event::Asked(client, Asked::Command(argv)));
                }
            }
            Ok(None) => match stream.read(&mut chunk) {
                Ok(read) if read > 0 => input.extend_from_slice(&chunk[..read]),
                _ => return,
            },
            Err(error) => {
                let told = Asked::Nonsense(error.into());
                let _ = sender.send(Event::Asked(client, told));
                // Until it is closed: what comes now is thrown away.
                while stream.read(&mut chunk).is_ok_and(|read| read > 0) {}
                return;
            }
        }
    }
}

/// A reply as a client receives it.
pub(super) fn encoded(engine: &Engine, client: ClientId, reply: &Reply) -> BytesMut {
    let mut out = BytesMut::new();
    if let Some(state) = engine.sessions.get(client) {
        encode(reply, state.protocol, &mut out);
    }
    out
}
