//! A TCP proxy that passes on requests one by one, and does with each what a handler says.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_compat::wire::frame::Frame;

/// The time within which the server behind the proxy replies.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks at whether a subscriber has closed its connection.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Answers a request of a client. It is given a connection to the server of this client alone. An
/// error ends the connection of the client.
pub type Handler = dyn Fn(&[String], &mut Wire) -> io::Result<Frame> + Send + Sync;

/// A proxy in front of a server. Its port is closed when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    handler: Box<Handler>,
    connections: Mutex<Vec<TcpStream>>,
    /// Held while nothing is passed on.
    frozen: RwLock<()>,
    is_closed: AtomicBool,
    has_ended: AtomicBool,
}

impl Proxy {
    /// Starts a proxy on a free loopback port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start(
        upstream: SocketAddr,
        handler: impl Fn(&[String], &mut Wire) -> io::Result<Frame> + Send + Sync + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            upstream,
            handler: Box::new(handler),
            connections: Mutex::default(),
            frozen: RwLock::default(),
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let accepted = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepted.has_ended.load(Ordering::Acquire) {
                    return;
                }
                accept(&accepted, stream);
            }
        });
        Proxy { shared, address, acceptor: Some(acceptor) }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections. New ones end at once, until [`Proxy::open`].
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.end_connections(|_| true);
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.shared.is_closed.store(false, Ordering::Release);
    }

    /// Ends each second connection.
    pub fn end_half(&self) {
        self.shared.end_connections(|number| number % 2 == 0);
    }

    /// Passes on nothing for that time. All connections stay.
    pub fn freeze(&self, span: Duration) {
        let _frozen = self.shared.frozen.write().unwrap_or_else(PoisonError::into_inner);
        time::sleep(span);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.end_connections(|_| true);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_connections(&self, is_meant: impl Fn(usize) -> bool) {
        let mut number = 0;
        self.connections().retain(|stream| {
            number += 1;
            let ends = is_meant(number);
            if ends {
                let _ = stream.shutdown(Shutdown::Both);
            }
            !ends
        });
    }

    /// Waits as long as nothing is passed on.
    fn wait(&self) {
        drop(self.frozen.read());
    }
}

/// Serves a client on a thread of its own.
fn accept(shared: &Arc<Shared>, stream: TcpStream) {
    let Ok(kept) = stream.try_clone() else { return };
    let peer = stream.peer_addr().ok();
    // In this order: a proxy that closes meanwhile ends this connection, too.
    shared.connections().push(kept);
    if shared.is_closed.load(Ordering::Acquire) {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _ = serve(&shared, &stream);
        let _ = stream.shutdown(Shutdown::Both);
        shared.connections().retain(|other| other.peer_addr().ok() != peer);
    });
}

fn serve(shared: &Shared, mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let upstream = Endpoint::Tcp(shared.upstream.ip().to_string(), shared.upstream.port());
    let mut upstream = Wire::open(&upstream, REPLY_TIMEOUT)?;
    let mut received = Vec::new();
    loop {
        let words = read_request(stream, &mut received)?;
        shared.wait();
        let is_subscription = words.first().is_some_and(|it| it.eq_ignore_ascii_case("subscribe"));
        if is_subscription {
            upstream.send(&words)?;
            return pass_messages(shared, stream, &mut upstream);
        }
        let reply = (shared.handler)(&words, &mut upstream)?;
        shared.wait();
        stream.write_all(&reply.bytes())?;
    }
}

fn read_request(mut stream: &TcpStream, received: &mut Vec<u8>) -> io::Result<Vec<String>> {
    let mut chunk = [0; 4096];
    loop {
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        // A request has the form of a reply with bulk strings.
        if let Some((request, length)) = Frame::first(received).map_err(malformed)? {
            received.drain(..length);
            let word = |item: &Frame| String::from_utf8_lossy(&item.text).into_owned();
            return Ok(request.items.iter().map(word).collect());
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Passes on messages until the client ends its connection.
fn pass_messages(shared: &Shared, mut stream: &TcpStream, upstream: &mut Wire) -> io::Result<()> {
    loop {
        if let Some(message) = upstream.read_within(LOOK_INTERVAL)? {
            shared.wait();
            stream.write_all(&message.bytes())?;
        }
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        if let Ok(0) = peeked {
            return Ok(());
        }
    }
}
