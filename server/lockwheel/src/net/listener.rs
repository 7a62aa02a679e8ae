//! The acceptor: listening sockets, who may come in, and which thread looks after them.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll, ready};
use std::time::Duration;

use lockwheel_resp::{Limits, Parser};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, warn};

use crate::limits;
use crate::listen_settings::ListenSettings;
use crate::net::connection::Connection;
use crate::net::host::{Failed, Host};
use crate::net::registry::Receiver;
use crate::net::runtime_files::RuntimeFiles;
use crate::net::stream::Stream;
use crate::net::turn;
use lockwheel_engine::Engine;
use lockwheel_engine::session::Origin;

/// All listening sockets of a server, and the threads behind them.
#[derive(Debug)]
pub(crate) struct Acceptor {
    acceptor: Vec<Listener>,
    /// One for each thread, which get the clients in turn.
    runtimes: Vec<Handle>,
    next_runtime: AtomicUsize,
    /// The clients' tasks.
    clients: TaskTracker,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Someone at a door, not yet a client.
#[derive(Debug)]
enum PendingConnection {
    /// From the network.
    Tcp(std::net::TcpStream, SocketAddr),
    /// Through the unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// Whether somebody may still be waiting outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionLimit {
    Gone,
    Perhaps,
}

impl Acceptor {
    /// Opens every door the configuration names. Clients will be dealt out to `runtimes`, and
    /// `clients` will keep track of them. A unix socket is one of the server's `runtime_files`.
    ///
    /// # Errors
    /// If none can be opened at an address, unless the address is optional (`-` before it), or
    /// the unix socket cannot be made.
    pub(crate) fn open(
        settings: &ListenSettings,
        runtimes: Vec<Handle>,
        clients: TaskTracker,
        runtime_files: &RuntimeFiles,
    ) -> io::Result<Acceptor> {
        let mut acceptor = Vec::new();
        let mut port = settings.port;
        let networked = settings.unixsocket.is_none() || settings.port != 0;
        for address in settings.bind.iter().filter(|_| networked) {
            let (address, optional) = match address.strip_prefix('-') {
                Some(address) => (address, true),
                None => (address.as_str(), false),
            };
            match listen(address, port, settings.tcp_backlog) {
                Ok(listener) => {
                    // A free port is chosen once and then shared by all addresses.
                    port = listener.local_addr()?.port();
                    acceptor.push(Listener::Tcp(listener));
                }
                Err(error) if optional => {
                    warn!(address, %error, "not listening at an optional address");
                }
                Err(error) => {
                    let reason = reason(&error);
                    let message = format!(
                        "Could not create server TCP listening socket {address}:{port}: {reason}"
                    );
                    return Err(io::Error::new(error.kind(), message));
                }
            }
        }
        if let Some(path) = &settings.unixsocket {
            let listener = unix_listener(Path::new(path), settings.unixsocketperm, runtime_files);
            let listener = listener.map_err(|error| {
                let reason = reason(&error);
                let message = format!("Could not create the unix socket {path}: {reason}");
                io::Error::new(error.kind(), message)
            })?;
            acceptor.push(Listener::Unix(listener));
        }
        Ok(Acceptor { acceptor, runtimes, next_runtime: AtomicUsize::new(0), clients })
    }

    /// The first address clients can connect to by TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.acceptor.iter().find_map(|door| match door {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        })
    }

    /// Lets visitors in through all acceptor until the server ends.
    pub(crate) fn attend(self: &Arc<Acceptor>, host: &Arc<Host>) {
        for at in 0..self.acceptor.len() {
            let (acceptor, host) = (Arc::clone(self), Arc::clone(host));
            self.runtimes[0].spawn(async move {
                if let Err(error) = acceptor.attend_one(at, &host).await {
                    error!(%error, "a listening socket has failed");
                }
            });
        }
    }

    /// Lets in whoever waits outside now, as far as that is possible, past the runtime.
    pub(crate) fn let_all_in(&self, host: &Arc<Host>, engine: &mut Engine) {
        for door in &self.acceptor {
            let mut some = || self.let_some_in(|| door.accept(), host, engine);
            while matches!(some(), Ok(ConnectionLimit::Perhaps)) {}
        }
    }

    async fn attend_one(&self, at: usize, host: &Arc<Host>) -> io::Result<()> {
        let door = self.acceptor[at].watched()?;
        let mut refused = false;
        loop {
            let turn = poll_fn(|context| {
                let accept = || match door.poll_accept(context) {
                    Poll::Ready(pending) => pending,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                };
                match host.with(|engine| self.let_some_in(accept, host, engine)) {
                    Ok(Ok(ConnectionLimit::Gone)) => Poll::Pending,
                    outcome => Poll::Ready(outcome),
                }
            });
            let Some(outcome) = host.shutdown.run_until_cancelled(turn).await else {
                return Ok(());
            };
            match outcome {
                Ok(Ok(_)) => {
                    refused = false;
                    turn::end();
                    tokio::task::yield_now().await;
                }
                Ok(Err(error)) => {
                    // Out of descriptors, most likely: those who are in keep working.
                    if !refused {
                        warn!(%error, "cannot accept connections for now");
                    }
                    refused = true;
                    tokio::time::sleep(limits::ACCEPT_BACKOFF).await;
                }
                Err(Failed) => return Ok(()),
            }
        }
    }

    /// Lets in some of those whom `accept` brings. Nobody is taken from the kernel's queue but by
    /// one who is alone with the engine: so nobody is in the house and unheard while a script
    /// keeps the engine.
    fn let_some_in(
        &self,
        mut accept: impl FnMut() -> io::Result<PendingConnection>,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> io::Result<ConnectionLimit> {
        for _ in 0..limits::ACCEPTS_PER_TURN {
            match accept() {
                Ok(pending) => {
                    if let Err(error) = self.admit(pending, host, engine) {
                        debug!(%error, "a pending was lost");
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(ConnectionLimit::Gone),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(ConnectionLimit::Perhaps)
    }

    /// Makes a client of the pending, or sends it away with a word why.
    fn admit(
        &self,
        pending: PendingConnection,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> io::Result<()> {
        let turn = self.next_runtime.fetch_add(1, Ordering::Relaxed);
        let runtime = &self.runtimes[turn % self.runtimes.len()];
        let origin = pending.origin();
        let stream = {
            // A socket belongs to the runtime within which it is made.
            let _within = runtime.enter();
            pending.into_stream(engine.settings.tcp_keepalive_seconds)?
        };
        if let Some(refusal) = refusal(engine, &origin) {
            engine.stats.rejected_connections += 1;
            // If even this does not fit, the pending learns nothing, and that is all.
            let _ = stream.write_directly(refusal.as_bytes());
            return Ok(());
        }
        if engine.refuses_connection() {
            engine.stats.rejected_connections += 1;
            return Ok(());
        }
        let client = engine.connect(origin, host.now());
        let Some(state) = engine.sessions.get(client) else { return Ok(()) };
        let (buffers, parser) = (Arc::clone(&state.buffers), Parser::new(REQUEST_LIMITS));
        let connection = Arc::new(Connection::new(client, buffers, stream, parser));
        // From now on it can be spoken to, whenever its task begins.
        host.registry.add(client, Receiver::Socket(Arc::clone(&connection)));
        self.clients.spawn_on(connection.run(Arc::clone(host)), runtime);
        Ok(())
    }
}

impl Listener {
    /// Takes in one who waits outside now.
    fn accept(&self) -> io::Result<PendingConnection> {
        match self {
            Listener::Tcp(listener) => {
                listener.accept().map(|(stream, from)| PendingConnection::Tcp(stream, from))
            }
            Listener::Unix(listener) => {
                listener.accept().map(|(stream, _)| PendingConnection::Unix(stream))
            }
        }
    }

    /// The same door as the runtime sees it. Must be called within one.
    fn watched(&self) -> io::Result<WatchedListener> {
        Ok(match self {
            Listener::Tcp(listener) => {
                WatchedListener::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?)
            }
            Listener::Unix(listener) => {
                WatchedListener::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?)
            }
        })
    }
}

/// A door whose runtime tells when somebody comes.
enum WatchedListener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl WatchedListener {
    fn poll_accept(&self, context: &mut task::Context<'_>) -> Poll<io::Result<PendingConnection>> {
        Poll::Ready(match self {
            WatchedListener::Tcp(listener) => {
                let (stream, from) = ready!(listener.poll_accept(context))?;
                stream.into_std().map(|stream| PendingConnection::Tcp(stream, from))
            }
            WatchedListener::Unix(listener) => {
                let (stream, _) = ready!(listener.poll_accept(context))?;
                stream.into_std().map(PendingConnection::Unix)
            }
        })
    }
}

impl PendingConnection {
    fn origin(&self) -> Origin {
        match self {
            PendingConnection::Tcp(stream, from) => Origin {
                address: from.to_string(),
                local_address: stream
                    .local_addr()
                    .map_or_else(|_| String::new(), |a| a.to_string()),
                descriptor: i64::from(stream.as_raw_fd()),
                unix: false,
                local: is_loopback(from.ip()),
                in_process: false,
            },
            PendingConnection::Unix(stream) => {
                let path = stream
                    .local_addr()
                    .ok()
                    .and_then(|address| address.as_pathname().map(|p| p.display().to_string()))
                    .unwrap_or_default();
                Origin {
                    address: format!("{path}:0"),
                    local_address: format!("{path}:0"),
                    descriptor: i64::from(stream.as_raw_fd()),
                    unix: true,
                    local: true,
                    in_process: false,
                }
            }
        }
    }

    fn into_stream(self, keepalive_seconds: u32) -> io::Result<Stream> {
        match self {
            PendingConnection::Tcp(stream, _) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                if keepalive_seconds > 0 {
                    let every = Duration::from_secs(u64::from(keepalive_seconds));
                    let probe = (every / 3).max(Duration::from_secs(1));
                    let keepalive = TcpKeepalive::new()
                        .with_time(every)
                        .with_interval(probe)
                        .with_retries(limits::KEEPALIVE_PROBES);
                    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                }
                Ok(Stream::Tcp(tokio::net::TcpStream::from_std(stream)?))
            }
            PendingConnection::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(tokio::net::UnixStream::from_std(stream)?))
            }
        }
    }
}

/// Why a pending is sent away, if it is.
fn refusal(engine: &Engine, origin: &Origin) -> Option<&'static str> {
    if engine.sessions.len() >= engine.settings.maxclients as usize {
        return Some("-ERR max number of clients reached\r\n");
    }
    let settings = &engine.settings;
    let guarded = settings.protected_mode && settings.requirepass.is_none();
    (guarded && !origin.local).then_some(PROTECTED)
}

/// What one request may cost. What an operator may change of it is set before each request.
const REQUEST_LIMITS: Limits = Limits {
    query_buffer_bytes_max: lockwheel_engine::limits::QUERY_BUFFER_BYTES_MAX,
    inline_bytes_max: limits::INLINE_BYTES_MAX,
    args_max: limits::ARGS_MAX,
    bulk_bytes_max: lockwheel_engine::limits::BULK_BYTES_MAX,
    unauthenticated_args_max: limits::UNAUTHENTICATED_ARGS_MAX,
    unauthenticated_bulk_bytes_max: limits::UNAUTHENTICATED_BULK_BYTES_MAX,
};

/// Starts as Redis's refusal does, since that is what clients look for.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is \
    enabled and no password is set for the default user. In this mode connections are only \
    accepted from the loopback interface. To connect from elsewhere, set a password with \
    requirepass, or start the server with '--protected-mode no' on a network you trust.\r\n";

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|a| a.is_loopback())
        }
    }
}

/// Why there is no socket. Launchers look for Redis's words, which not every system's library has.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "bind: Address already in use".to_owned(),
        _ => error.to_string(),
    }
}

fn listen(address: &str, port: u16, backlog: u32) -> io::Result<TcpListener> {
    let address = match address {
        "*" => "0.0.0.0",
        "::*" => "::",
        address => address,
    };
    let address = (address, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))?;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn unix_listener(
    path: &Path,
    permissions: u32,
    runtime_files: &RuntimeFiles,
) -> io::Result<UnixListener> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    runtime_files.add(path);
    if permissions != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(permissions))?;
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}
