//! The acceptor: listens, accepts or refuses connections, and assigns them to threads.

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
use tokio::time::timeout;
use tracing::{debug, error, warn};

use crate::host::runtime_files::RuntimeFiles;
use crate::host::{Failed, Host};
use crate::limits;
use crate::net::connection::Connection;
#[cfg(feature = "tls")]
use crate::net::handshakes::Handshakes;
use crate::net::listen_settings::ListenSettings;
use crate::net::registry::Receiver;
use crate::net::stream::Stream;
use crate::net::turn;
use crate::net::workers::ClientTasks;
#[cfg(feature = "tls")]
use crate::tls::TlsConfig;
use lockwheel_engine::Engine;
use lockwheel_engine::sessions::Origin;
#[cfg(feature = "tls")]
use lockwheel_engine::settings::directive;

/// The listening sockets of a server, and the threads that serve accepted connections.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    /// One for each thread; clients are assigned to them in rotation.
    runtimes: Vec<Handle>,
    next_runtime: AtomicUsize,
    /// Counts the clients' tasks.
    client_tasks: ClientTasks,
    /// What TLS connections are accepted with.
    #[cfg(feature = "tls")]
    tls: TlsConfig,
    #[cfg(feature = "tls")]
    handshakes: Arc<Handshakes>,
}

#[derive(Debug)]
enum Listener {
    Tcp {
        listener: TcpListener,
        /// Whether connections use TLS.
        is_tls: bool,
    },
    Unix(UnixListener),
}

/// An accepted connection that is not a client yet.
#[derive(Debug)]
enum PendingConnection {
    /// Through a TCP socket.
    Tcp {
        stream: std::net::TcpStream,
        from: SocketAddr,
        /// Whether its connections use TLS.
        #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
        is_tls: bool,
    },
    /// Through the unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// Whether the kernel may have more connections to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Empty,
    MayHaveMore,
}

impl Acceptor {
    /// Opens all listening sockets of the configuration; uses those of `kept` that listen at the
    /// right addresses already. Clients are assigned to `runtimes` and counted in `client_tasks`.
    /// The unix socket is added to `runtime_files`.
    ///
    /// # Errors
    /// If an address cannot be listened on, unless it is optional (`-` before it), or the unix
    /// socket cannot be created.
    pub(crate) fn open(
        settings: &ListenSettings,
        kept: &[TcpListener],
        runtimes: Vec<Handle>,
        client_tasks: ClientTasks,
        runtime_files: &RuntimeFiles,
    ) -> io::Result<Acceptor> {
        let mut listeners = Vec::new();
        let has_other = settings.unixsocket.is_some() || settings.tls_port.is_some();
        let mut listen = |port, is_tls| {
            let found = listen_at_all(&settings.bind, port, settings.tcp_backlog, kept)?;
            listeners.extend(found.into_iter().map(|listener| Listener::Tcp { listener, is_tls }));
            Ok::<(), io::Error>(())
        };
        if settings.port != 0 || !has_other {
            listen(settings.port, false)?;
        }
        if let Some(port) = settings.tls_port {
            listen(port, true)?;
        }
        if let Some(path) = &settings.unixsocket {
            let listener = unix_listener(Path::new(path), settings.unixsocketperm, runtime_files);
            let listener = listener.map_err(|error| {
                let reason = reason(&error);
                let message = format!("Could not create the unix socket {path}: {reason}");
                io::Error::new(error.kind(), message)
            })?;
            listeners.push(Listener::Unix(listener));
        }
        Ok(Acceptor {
            listeners,
            runtimes,
            next_runtime: AtomicUsize::new(0),
            client_tasks,
            #[cfg(feature = "tls")]
            tls: TlsConfig::default(),
            #[cfg(feature = "tls")]
            handshakes: Arc::default(),
        })
    }

    /// TLS connections are accepted with this configuration.
    #[cfg(feature = "tls")]
    pub(crate) fn use_tls(&mut self, config: TlsConfig) {
        self.tls = config;
    }

    /// The TCP sockets, for a server that takes the place of this one: meanwhile no other program
    /// can get their ports.
    pub(crate) fn tcp_listeners(&self) -> Vec<TcpListener> {
        let tcp = self.listeners.iter().filter_map(|listener| match listener {
            Listener::Tcp { listener, .. } => listener.try_clone().ok(),
            Listener::Unix(_) => None,
        });
        tcp.collect()
    }

    /// The first address clients can connect to by TCP without TLS.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.first_address(false)
    }

    /// The first address clients can connect to with TLS.
    pub(crate) fn tls_address(&self) -> Option<SocketAddr> {
        self.first_address(true)
    }

    fn first_address(&self, wants_tls: bool) -> Option<SocketAddr> {
        self.listeners.iter().find_map(|listener| match listener {
            Listener::Tcp { listener, is_tls } if *is_tls == wants_tls => {
                listener.local_addr().ok()
            }
            _ => None,
        })
    }

    /// Accepts connections on all listening sockets until the server ends. They wait in the queues
    /// of the sockets until the server is ready, so that the first requests after a start are
    /// served; but for [`limits::ACCEPT_DELAY_MAX`] at most.
    pub(crate) fn start(self: &Arc<Acceptor>, host: &Arc<Host>) {
        for at in 0..self.listeners.len() {
            let (acceptor, host) = (Arc::clone(self), Arc::clone(host));
            self.runtimes[0].spawn(async move {
                if let Err(error) = acceptor.accept_loop(at, &host).await {
                    error!(%error, "a listening socket has failed");
                }
            });
        }
    }

    /// Accepts all connections that are queued now, without the runtime, as far as possible.
    pub(crate) fn accept_all(&self, host: &Arc<Host>, engine: &mut Engine) {
        for listener in &self.listeners {
            let mut some = || self.accept_some(|| listener.accept(), host, engine);
            while matches!(some(), Ok(Backlog::MayHaveMore)) {}
        }
        #[cfg(feature = "tls")]
        self.handshakes.continue_all(host, engine);
    }

    async fn accept_loop(&self, at: usize, host: &Arc<Host>) -> io::Result<()> {
        let listener = self.listeners[at].register()?;
        host.until_stopped(timeout(limits::ACCEPT_DELAY_MAX, host.ready())).await;
        let mut has_failed = false;
        loop {
            let accept = poll_fn(|context| {
                let accept_one = || match listener.poll_accept(context) {
                    Poll::Ready(accepted) => accepted,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                };
                match host.with(|engine| self.accept_some(accept_one, host, engine)) {
                    Ok(Ok(Backlog::Empty)) => Poll::Pending,
                    outcome => Poll::Ready(outcome),
                }
            });
            let Some(outcome) = host.until_stopped(accept).await else {
                return Ok(());
            };
            match outcome {
                Ok(Ok(_)) => {
                    has_failed = false;
                    turn::end();
                    tokio::task::yield_now().await;
                }
                Ok(Err(error)) => {
                    // Probably no file descriptor is left: connected clients are still served.
                    if !has_failed {
                        warn!(%error, "cannot accept connections for now");
                    }
                    has_failed = true;
                    tokio::time::sleep(limits::ACCEPT_BACKOFF).await;
                }
                Err(Failed) => return Ok(()),
            }
        }
    }

    /// Accepts some connections. Connections are accepted only while holding the engine: otherwise
    /// one could be accepted and then not be served while a script holds the engine.
    fn accept_some(
        &self,
        mut accept: impl FnMut() -> io::Result<PendingConnection>,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> io::Result<Backlog> {
        for _ in 0..limits::ACCEPTS_PER_TURN {
            match accept() {
                Ok(pending) => {
                    if let Err(error) = self.admit(pending, host, engine) {
                        debug!(%error, "connection lost before it was served");
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Backlog::Empty),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(Backlog::MayHaveMore)
    }

    /// Makes the connection a client, or refuses it with an error. One with TLS becomes a client
    /// after its handshake.
    fn admit(
        &self,
        pending: PendingConnection,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> io::Result<()> {
        let turn = self.next_runtime.fetch_add(1, Ordering::Relaxed);
        let runtime = &self.runtimes[turn % self.runtimes.len()];
        let origin = pending.origin();
        #[cfg(feature = "tls")]
        let is_tls = matches!(pending, PendingConnection::Tcp { is_tls: true, .. });
        let stream = {
            // A socket belongs to the runtime that is entered when it is created.
            let _entered = runtime.enter();
            pending.into_stream(engine.settings().tcp_keepalive_seconds)?
        };
        #[cfg(feature = "tls")]
        let stream = match stream {
            Stream::Tcp(tcp) if is_tls => {
                let handshake = self.begin_handshake(tcp, origin, host, engine)?;
                self.client_tasks.spawn_on(runtime, handshake);
                return Ok(());
            }
            stream => stream,
        };
        if let Some(connection) = admit(host, engine, origin, stream) {
            self.client_tasks.spawn_on(runtime, connection.run(Arc::clone(host)));
        }
        Ok(())
    }

    /// Begins a handshake; returns the task of the connection.
    #[cfg(feature = "tls")]
    fn begin_handshake(
        &self,
        tcp: tokio::net::TcpStream,
        origin: Origin,
        host: &Arc<Host>,
        engine: &Engine,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        // A server with a TLS port has a configuration.
        let config = self.tls.current().ok_or(io::ErrorKind::NotConnected)?;
        let limit = engine.settings().get(directive::TLS_HANDSHAKE_TIMEOUT);
        let others_max = engine.settings().tls_handshakes_max;
        let others_max = others_max.unwrap_or(limits::TLS_HANDSHAKES_MAX);
        let handshake = self.handshakes.begin(tcp, config, origin, others_max)?;
        Ok(handshake.run(Arc::clone(&self.handshakes), Arc::clone(host), limit))
    }
}

/// Makes the connection of `stream` a client, or refuses it with an error.
pub(crate) fn admit(
    host: &Host,
    engine: &mut Engine,
    origin: Origin,
    stream: Stream,
) -> Option<Arc<Connection>> {
    let address = origin.address.clone();
    let client = match engine.admit(origin, host.now()) {
        Ok(client) => {
            debug!("Accepted {address}");
            client
        }
        Err(refusal) => {
            debug!("Refused connection from {address}: {}", refusal.trim_end());
            // If the socket does not take the error, the client gets none.
            let _ = stream.write_directly(refusal.as_bytes());
            stream.shut_down();
            return None;
        }
    };
    let buffers = Arc::clone(&engine.session(client)?.buffers);
    let (gate, parser) = (Arc::clone(&host.gate), Parser::new(REQUEST_LIMITS));
    let traffic = Arc::clone(engine.traffic());
    let connection = Arc::new(Connection::new(client, buffers, gate, traffic, stream, parser));
    // From now on messages are delivered, even before the task runs.
    host.registry.add(client, Receiver::Socket(Arc::clone(&connection)));
    Some(connection)
}

impl Listener {
    /// Accepts one connection that is queued now.
    fn accept(&self) -> io::Result<PendingConnection> {
        match self {
            Listener::Tcp { listener, is_tls } => {
                let (stream, from) = listener.accept()?;
                Ok(PendingConnection::Tcp { stream, from, is_tls: *is_tls })
            }
            Listener::Unix(listener) => {
                listener.accept().map(|(stream, _)| PendingConnection::Unix(stream))
            }
        }
    }

    /// Registers the socket with the runtime that has been entered.
    fn register(&self) -> io::Result<RegisteredListener> {
        Ok(match self {
            Listener::Tcp { listener, is_tls } => RegisteredListener::Tcp {
                listener: tokio::net::TcpListener::from_std(listener.try_clone()?)?,
                is_tls: *is_tls,
            },
            Listener::Unix(listener) => {
                RegisteredListener::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?)
            }
        })
    }
}

/// A listening socket that a runtime polls.
enum RegisteredListener {
    Tcp { listener: tokio::net::TcpListener, is_tls: bool },
    Unix(tokio::net::UnixListener),
}

impl RegisteredListener {
    fn poll_accept(&self, context: &mut task::Context<'_>) -> Poll<io::Result<PendingConnection>> {
        Poll::Ready(match self {
            RegisteredListener::Tcp { listener, is_tls } => {
                let (stream, from) = ready!(listener.poll_accept(context))?;
                let is_tls = *is_tls;
                stream.into_std().map(|stream| PendingConnection::Tcp { stream, from, is_tls })
            }
            RegisteredListener::Unix(listener) => {
                let (stream, _) = ready!(listener.poll_accept(context))?;
                stream.into_std().map(PendingConnection::Unix)
            }
        })
    }
}

impl PendingConnection {
    fn origin(&self) -> Origin {
        match self {
            PendingConnection::Tcp { stream, from, .. } => Origin {
                address: from.to_string(),
                local_address: stream
                    .local_addr()
                    .map_or_else(|_| String::new(), |a| a.to_string()),
                descriptor: i64::from(stream.as_raw_fd()),
                unix: false,
                local: is_loopback(from.ip()),
                in_process: false,
                is_monitoring: false,
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
                    is_monitoring: false,
                }
            }
        }
    }

    fn into_stream(self, keepalive_seconds: u32) -> io::Result<Stream> {
        match self {
            PendingConnection::Tcp { stream, .. } => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                if keepalive_seconds > 0 {
                    let every = Duration::from_secs(u64::from(keepalive_seconds));
                    let probe = (every / 3).max(Duration::from_secs(1));
                    let keepalive = TcpKeepalive::new()
                        .with_time(every)
                        .with_interval(probe)
                        .with_retries(limits::KEEPALIVE_PROBES);
                    let socket = SockRef::from(&stream);
                    socket.set_tcp_keepalive(&keepalive)?;
                    // No probes are sent while data is not acknowledged.
                    #[cfg(target_os = "linux")]
                    socket.set_tcp_user_timeout(Some(every + probe * limits::KEEPALIVE_PROBES))?;
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

/// Limits of a request. Those that an operator can change are set again before each request.
const REQUEST_LIMITS: Limits = Limits {
    query_buffer_bytes_max: lockwheel_engine::limits::QUERY_BUFFER_BYTES_MAX,
    inline_bytes_max: limits::INLINE_BYTES_MAX,
    args_max: limits::ARGS_MAX,
    bulk_bytes_max: lockwheel_engine::limits::BULK_BYTES_MAX,
    unauthenticated_args_max: limits::UNAUTHENTICATED_ARGS_MAX,
    unauthenticated_bulk_bytes_max: limits::UNAUTHENTICATED_BULK_BYTES_MAX,
};

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|a| a.is_loopback())
        }
    }
}

/// The reason why a socket could not be created. Launchers look for the text of Redis, which not
/// every system's library uses.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "bind: Address already in use".to_owned(),
        _ => error.to_string(),
    }
}

/// Listens at all addresses of `bind`, by the sockets of `kept` that do so already. An address that
/// begins with `-` may be missing on this machine.
pub(crate) fn listen_at_all(
    bind: &[String],
    mut port: u16,
    backlog: u32,
    kept: &[TcpListener],
) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in bind {
        let (address, optional) = match address.strip_prefix('-') {
            Some(address) => (address, true),
            None => (address.as_str(), false),
        };
        match listen(address, port, backlog, kept) {
            Ok(listener) => {
                // A free port is chosen once and then shared by all addresses.
                port = listener.local_addr()?.port();
                listeners.push(listener);
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
    Ok(listeners)
}

fn listen(address: &str, port: u16, backlog: u32, kept: &[TcpListener]) -> io::Result<TcpListener> {
    let address = match address {
        "*" => "0.0.0.0",
        "::*" => "::",
        address => address,
    };
    let address = (address, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))?;
    let is_here = |kept: &&TcpListener| kept.local_addr().is_ok_and(|local| local == address);
    if let Some(kept) = kept.iter().find(is_here) {
        return kept.try_clone();
    }
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
