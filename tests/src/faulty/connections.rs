//! The connections of a faulty server: their sockets and the requests that have not run yet.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::{Buf, BytesMut};
use lockwheel_engine::sessions::{ClientId, Close, Origin};
use lockwheel_engine::timing::time::Time;
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::{Limits, Parser, Reply, encode};
use socket2::SockRef;

use crate::replay::Input;

/// An event of the acceptor or of a reading thread.
pub(super) enum SocketEvent {
    /// A client has connected.
    Connected(TcpStream),
    /// A client has sent a request.
    Request(ClientId, Received),
    /// A client has closed its connection.
    Closed(ClientId),
    /// The server must stop.
    Stop,
}

/// A received request.
pub(super) enum Received {
    /// A command.
    Command(Vec<Vec<u8>>),
    /// Invalid bytes: the error reply, after which the connection is closed.
    Invalid(Reply),
}

/// All connections.
pub(super) struct Connections {
    /// The events of the sockets.
    pub(super) events: Receiver<SocketEvent>,
    /// Whether sockets are checked for closed connections before blocked clients are served.
    pub(super) check_sockets: bool,
    sender: Sender<SocketEvent>,
    sessions: BTreeMap<ClientId, Session>,
    /// The inputs of the engine, if they are recorded.
    pub(super) recording: Option<Recording>,
}

/// The inputs of the engine so far, shared with the test.
pub(super) struct Recording {
    pub(super) inputs: Arc<Mutex<Vec<Input>>>,
    /// Polls of the running script; `None` between two requests.
    pub(super) polls: Option<u32>,
}

struct Session {
    stream: TcpStream,
    /// The queue of the writing thread, which closes the socket when this is dropped.
    outbox: Sender<Vec<u8>>,
    pending: VecDeque<Received>,
    waiting: bool,
}

impl Connections {
    /// No connections yet, and the sender for events.
    pub(super) fn new() -> (Connections, Sender<SocketEvent>) {
        let (sender, events) = channel();
        let sessions = BTreeMap::new();
        let connections = Connections {
            events,
            check_sockets: true,
            sender: sender.clone(),
            sessions,
            recording: None,
        };
        (connections, sender)
    }

    /// Records an input of the engine, at the present poll of the running script.
    pub(super) fn record(&self, input: impl FnOnce() -> Input) {
        let Some(recording) = &self.recording else { return };
        let input = match recording.polls {
            Some(polls) => Input::Poll(polls, Box::new(input())),
            None => input(),
        };
        recording.inputs.lock().unwrap_or_else(PoisonError::into_inner).push(input);
    }

    /// Records the time of the inputs that follow.
    pub(super) fn record_time(&self, [lease_us, wall_us]: [i64; 2]) {
        self.record(|| Input::Time { lease_us, wall_us });
    }

    /// Sets the number of polls of the running script.
    pub(super) fn set_polls(&mut self, polls: Option<u32>) {
        if let Some(recording) = &mut self.recording {
            recording.polls = polls;
        }
    }

    /// Handles new connections and requests; returns a client that has closed its connection.
    pub(super) fn handle(
        &mut self,
        engine: &mut Engine,
        time: Time,
        event: SocketEvent,
    ) -> Option<ClientId> {
        match event {
            SocketEvent::Connected(stream) => self.add(engine, time, stream),
            SocketEvent::Request(client, pending) => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.pending.push_back(pending);
                }
            }
            SocketEvent::Closed(client) => return Some(client),
            SocketEvent::Stop => {}
        }
        None
    }

    fn add(&mut self, engine: &mut Engine, time: Time, stream: TcpStream) {
        let address = |address: std::io::Result<std::net::SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let origin = Origin {
            in_process: false,
            is_monitoring: false,
            address: address(stream.peer_addr()),
            local_address: address(stream.local_addr()),
            descriptor: 8,
            unix: false,
            local: true,
        };
        let client = engine.connect(origin, time);
        self.record(|| Input::Connect(client.serial));
        let (outbox, mail) = channel::<Vec<u8>>();
        let copies = stream.try_clone().and_then(|one| Ok((one, stream.try_clone()?)));
        let Ok((mut reader, mut writer)) = copies else {
            self.disconnect(engine, client);
            return;
        };
        let sender = self.sender.clone();
        thread::spawn(move || {
            read_requests(&mut reader, client, &sender);
            let _ = sender.send(SocketEvent::Closed(client));
        });
        thread::spawn(move || {
            // A closed connection is noticed by the reading thread.
            while let Ok(bytes) = mail.recv() {
                let _ = writer.write_all(&bytes);
            }
            let _ = writer.shutdown(Shutdown::Both);
        });
        let session = Session { stream, outbox, pending: VecDeque::new(), waiting: false };
        self.sessions.insert(client, session);
    }

    /// The next request of a client that is not waiting for a reply. The client then waits.
    pub(super) fn next(&mut self) -> Option<(ClientId, Received)> {
        let ready = |session: &Session| !session.waiting && !session.pending.is_empty();
        let (client, session) = self.sessions.iter_mut().find(|(_, session)| ready(session))?;
        session.waiting = true;
        Some((*client, session.pending.pop_front()?))
    }

    /// The number of requests of this client that have not run yet.
    pub(super) fn pending(&self, client: ClientId) -> usize {
        self.sessions.get(&client).map_or(0, |session| session.pending.len())
    }

    /// Removes the next request of this client, if it is a command.
    pub(super) fn take_pending(&mut self, client: ClientId) -> Option<Vec<Vec<u8>>> {
        let pending = &mut self.sessions.get_mut(&client)?.pending;
        match pending.pop_front()? {
            Received::Command(argv) => Some(argv),
            invalid => {
                pending.push_front(invalid);
                None
            }
        }
    }

    /// Completes a request: sends the bytes and applies the flow.
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
            Flow::Again => session.pending.push_front(Received::Command(argv.to_vec())),
            Flow::Close | Flow::Shutdown => {
                self.disconnect(engine, client);
                self.sessions.remove(&client);
            }
            _ => {}
        }
    }

    /// Removes a client from the engine.
    pub(super) fn disconnect(&self, engine: &mut Engine, client: ClientId) {
        engine.disconnect(client);
        self.record(|| Input::Disconnect(client.serial));
    }

    /// Lets the client's next request run.
    pub(super) fn resume(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.waiting = false;
        }
    }

    /// Sends bytes to a client.
    pub(super) fn send(&mut self, client: ClientId, bytes: &[u8]) {
        if let Some(session) = self.sessions.get(&client).filter(|_| !bytes.is_empty()) {
            let _ = session.outbox.send(bytes.to_vec());
        }
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, client: ClientId, how: Close) {
        if let Some(session) = self.sessions.remove(&client).filter(|_| how == Close::Now) {
            let _ = session.stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether a client has closed its connection, also before its thread has reported it.
    pub(super) fn peer_has_closed(&self, client: ClientId) -> bool {
        let session = self.sessions.get(&client).filter(|_| self.check_sockets);
        let Some(session) = session else { return false };
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let peeked =
            SockRef::from(&session.stream).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
        let has_hung_up = matches!(peeked, Ok(0));
        if has_hung_up {
            self.record(|| Input::PeerClosed(client.serial));
        }
        has_hung_up
    }
}

/// Parses the requests of a client until it closes the connection or sends invalid bytes.
fn read_requests(stream: &mut TcpStream, client: ClientId, sender: &Sender<SocketEvent>) {
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
                    let _ = sender.send(SocketEvent::Request(client, Received::Command(argv)));
                }
            }
            Ok(None) => match stream.read(&mut chunk) {
                Ok(read) if read > 0 => input.extend_from_slice(&chunk[..read]),
                _ => return,
            },
            Err(error) => {
                let invalid = Received::Invalid(error.into());
                let _ = sender.send(SocketEvent::Request(client, invalid));
                // Discard further bytes until the connection is closed.
                while stream.read(&mut chunk).is_ok_and(|read| read > 0) {}
                return;
            }
        }
    }
}

/// A reply as a client receives it.
pub(super) fn encoded(engine: &Engine, client: ClientId, reply: &Reply) -> BytesMut {
    let mut out = BytesMut::new();
    if let Some(state) = engine.session(client) {
        encode(reply, state.protocol, &mut out);
    }
    out
}
