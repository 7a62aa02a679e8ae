//! The doors: listening sockets, who may come in, and which thread looks after them.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_resp::{Limits, Parser};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tracing::{error, warn};

use crate::config::Config;
use crate::engine::Engine;
use crate::engine::client::Origin;
use crate::limits;
use crate::net::connection::Connection;
use crate::net::host::Host;
use crate::net::stream::Stream;

/// All listening sockets of a server.
#[derive(Debug)]
pub(crate) struct Doors {
    doors: Vec<Door>,
}

#[derive(Debug)]
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Someone at a door, not yet a client.
#[derive(Debug)]
pub(crate) enum Visitor {
    /// From the network.
    Tcp(std::net::TcpStream, SocketAddr),
    /// Through the unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Doors {
    /// Opens every door the configuration names.
    ///
    /// # Errors
    /// If none can be opened at an address, unless the address is optional (`-` before it), or
    /// the unix socket cannot be made.
    pub(crate) fn open(config: &Config) -> io::Result<Doors> {
        let mut doors = Vec::new();
        let mut port = config.port;
        let networked = config.unixsocket.is_none() || config.port != 0;
        for address in config.bind.iter().filter(|_| networked) {
            let (address, optional) = match address.strip_prefix('-') {
                Some(address) => (address, true),
                None => (address.as_str(), false),
            };
            match listen(address, port, config.tcp_backlog) {
                Ok(listener) => {
                    // A free port is chosen once and then shared by all addresses.
                    port = listener.local_addr()?.port();
                    doors.push(Door::Tcp(listener));
                }
                Err(error) if optional => {
                    warn!(address, %error, "not listening at an optional address");
                }
                Err(error) => {
                    let message = format!("could not listen at {address}:{port}: {error}");
                    return Err(io::Error::new(error.kind(), message));
                }
            }
        }
        if let Some(path) = &config.unixsocket {
            doors.push(unix_door(Path::new(path), config.unixsocketperm)?);
        }
        Ok(Doors { doors })
    }

    /// The first address clients can connect to by TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.doors.iter().find_map(|door| match door {
            Door::Tcp(listener) => listener.local_addr().ok(),
            Door::Unix(..) => None,
        })
    }

    /// Lets visitors in through all doors until the server ends; `place` gives each client to a
    /// thread.
    pub(crate) async fn attend(
        self: Arc<Doors>,
        host: Arc<Host>,
        place: impl Fn(Visitor) + Clone + 'static,
    ) {
        let attending = (0..self.doors.len()).map(|at| {
            let (doors, host, place) = (Arc::clone(&self), Arc::clone(&host), place.clone());
            tokio::task::spawn_local(async move {
                if let Err(error) = doors.doors[at].attend(&host, place).await {
                    error!(%error, "a listening socket has failed");
                }
            })
        });
        for attendant in attending.collect::<Vec<_>>() {
            // It ends with the server.
            let _ = attendant.await;
        }
    }

    /// Lets in whoever waits outside now, past the runtime.
    pub(crate) fn accept_directly(
        &self,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> Vec<Arc<Connection>> {
        let visitors: Vec<Visitor> =
            self.doors.iter().flat_map(|door| std::iter::from_fn(|| door.accept().ok())).collect();
        let admitted = visitors.into_iter().filter_map(|visitor| visitor.admit(host, engine).ok());
        admitted.flatten().collect()
    }
}

impl Door {
    async fn attend(&self, host: &Host, place: impl Fn(Visitor)) -> io::Result<()> {
        let ready = match self {
            Door::Tcp(listener) => {
                Ready::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?)
            }
            Door::Unix(listener, _) => {
                Ready::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?)
            }
        };
        loop {
            let visitor = tokio::select! {
                visitor = ready.accept() => visitor,
                () = host.shutdown.cancelled() => return Ok(()),
            };
            match visitor {
                Ok(visitor) => place(visitor),
                Err(error) => {
                    // Out of descriptors, most likely: those who are in keep working.
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(limits::ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    /// Lets in one who waits outside now, past the runtime.
    fn accept(&self) -> io::Result<Visitor> {
        match self {
            Door::Tcp(listener) => {
                listener.accept().map(|(stream, from)| Visitor::Tcp(stream, from))
            }
            Door::Unix(listener, _) => listener.accept().map(|(stream, _)| Visitor::Unix(stream)),
        }
    }
}

/// A door as the runtime sees it.
enum Ready {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Ready {
    async fn accept(&self) -> io::Result<Visitor> {
        match self {
            Ready::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok(Visitor::Tcp(stream.into_std()?, from))
            }
            Ready::Unix(listener) => Ok(Visitor::Unix(listener.accept().await?.0.into_std()?)),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Door::Unix(_, path) = self {
            // Nobody can connect to it any more; if it is gone already, all the better.
            let _ = fs::remove_file(path);
        }
    }
}

impl Visitor {
    /// Makes a client of the visitor, or sends it away with a word why. Must be called on the
    /// thread whose runtime is to drive the socket.
    pub(crate) fn admit(
        self,
        host: &Arc<Host>,
        engine: &mut Engine,
    ) -> io::Result<Option<Arc<Connection>>> {
        let origin = self.origin();
        let stream = self.into_stream(engine.config.tcp_keepalive_seconds)?;
        if let Some(refusal) = refusal(engine, &origin) {
            engine.stats.rejected_connections += 1;
            // If even this does not fit, the visitor learns nothing, and that is all.
            let _ = stream.write_directly(refusal.as_bytes());
            return Ok(None);
        }
        let client = engine.connect(origin, host.now());
        let limits = Limits {
            bulk_bytes_max: usize::try_from(engine.config.proto_max_bulk_len_bytes)
                .unwrap_or(usize::MAX),
            ..Limits::default()
        };
        Ok(Some(Arc::new(Connection::new(client, stream, Parser::new(limits)))))
    }

    fn origin(&self) -> Origin {
        match self {
            Visitor::Tcp(stream, from) => Origin {
                address: from.to_string(),
                local_address: stream
                    .local_addr()
                    .map_or_else(|_| String::new(), |a| a.to_string()),
                descriptor: i64::from(stream.as_raw_fd()),
                unix: false,
                local: is_loopback(from.ip()),
            },
            Visitor::Unix(stream) => {
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
                }
            }
        }
    }

    fn into_stream(self, keepalive_seconds: u32) -> io::Result<Stream> {
        match self {
            Visitor::Tcp(stream, _) => {
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
            Visitor::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(tokio::net::UnixStream::from_std(stream)?))
            }
        }
    }
}

/// Why a visitor is sent away, if it is.
fn refusal(engine: &Engine, origin: &Origin) -> Option<&'static str> {
    if engine.clients.len() >= engine.config.maxclients as usize {
        return Some("-ERR max number of clients reached\r\n");
    }
    let config = &engine.config;
    let guarded = config.protected_mode && config.requirepass.is_none();
    (guarded && !origin.local).then_some(PROTECTED)
}

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

fn unix_door(path: &Path, permissions: u32) -> io::Result<Door> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    if permissions != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(permissions))?;
    }
    listener.set_nonblocking(true)?;
    Ok(Door::Unix(listener, path.to_owned()))
}
