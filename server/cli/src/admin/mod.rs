//! The listener for monitoring: health checks, figures and locks over HTTP, on a port and a thread
//! of its own. It uses the server as clients within the process do, so a slow reader of HTTP delays
//! no client of the server.

mod access;
mod commands;
mod locks;
mod metrics;
mod pages;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lockwheel::Server;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use self::access::{Admin, Connection};
use crate::limits;

/// Where to listen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    /// The port; 0 if there is no such listener.
    pub(crate) port: u16,
    /// The addresses. One that begins with `-` may be missing on this machine, as for `bind`.
    pub(crate) bind: Vec<String>,
    /// The names by which this machine is reached, besides its addresses.
    pub(crate) hosts: Vec<String>,
    /// Whether connections use TLS, with the server's certificate.
    pub(crate) uses_tls: bool,
}

/// Starts the listener, if there is one. It ends with the process.
///
/// # Errors
/// If an address cannot be bound, or is one that other machines reach and there is no TLS.
pub(crate) fn start(settings: &AdminSettings, server: &Arc<Server>) -> io::Result<()> {
    if settings.port == 0 {
        return Ok(());
    }
    if settings.uses_tls && cfg!(not(feature = "tls")) {
        let problem = "admin-tls: this program was built without TLS (the cargo feature `tls`)";
        return Err(io::Error::other(problem));
    }
    let listeners = bind(settings)?;
    let port = Port::new(settings, server)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()?;
    let scheme = if settings.uses_tls { "https" } else { "http" };
    for listener in &listeners {
        info!("Monitoring at {scheme}://{}/", listener.local_addr()?);
    }
    let run = move || runtime.block_on(serve(listeners, port));
    std::thread::Builder::new().name("admin".to_owned()).spawn(run)?;
    Ok(())
}

/// What serves the connections.
#[derive(Clone)]
pub(crate) struct Port {
    pages: axum::Router,
    places: Arc<Semaphore>,
    /// The server whose certificate is used, if connections use TLS.
    tls: Option<Arc<Server>>,
}

/// Binds all addresses.
fn bind(settings: &AdminSettings) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners = Vec::new();
    for text in &settings.bind {
        let (address, may_be_missing) = match text.strip_prefix('-') {
            Some(address) => (address, true),
            None => (&**text, false),
        };
        let address = allowed(address, settings.uses_tls)?;
        match std::net::TcpListener::bind(SocketAddr::new(address, settings.port)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                listeners.push(listener);
            }
            Err(error) if may_be_missing && error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => {
                let port = settings.port;
                return Err(io::Error::other(format!("admin-bind {address}:{port}: {error}")));
            }
        }
    }
    if listeners.is_empty() {
        return Err(io::Error::other("admin-port needs an address in admin-bind"));
    }
    Ok(listeners)
}

/// An address that only this machine reaches, or any if connections use TLS.
fn allowed(text: &str, uses_tls: bool) -> io::Result<IpAddr> {
    let problem = |reason: &str| io::Error::other(format!("admin-bind {text}: {reason}"));
    let address: IpAddr = text.parse().map_err(|_| problem("not an address"))?;
    if !uses_tls && !address.is_loopback() {
        return Err(problem("an address other than loopback needs `admin-tls yes`"));
    }
    Ok(address)
}

/// Accepts connections for ever.
async fn serve(listeners: Vec<std::net::TcpListener>, port: Port) {
    let mut tasks = tokio::task::JoinSet::new();
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                tasks.spawn(accept(listener, port.clone()));
            }
            Err(error) => warn!(%error, "cannot listen for monitoring"),
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Accepts the connections of one listener. Those beyond the limit wait in the kernel's queue.
async fn accept(listener: TcpListener, port: Port) {
    loop {
        let Ok(place) = Arc::clone(&port.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let port = port.clone();
                tokio::spawn(async move {
                    // A client that does not read its reply would keep its place for ever.
                    let _ = within(limits::ADMIN_CONNECTION_LIFETIME, port.serve(stream)).await;
                    drop(place);
                });
            }
            Err(error) => {
                // For want of file descriptors: some may be closed soon.
                warn!(%error, "cannot accept a connection for monitoring");
                tokio::time::sleep(limits::ADMIN_ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Port {
    /// # Errors
    /// If the server has ended, or there is no randomness.
    pub(crate) fn new(settings: &AdminSettings, server: &Arc<Server>) -> io::Result<Port> {
        let admin = Admin::new(Arc::clone(server), settings.hosts.clone());
        Ok(Port {
            pages: pages::router(Arc::new(admin.map_err(io::Error::other)?)),
            places: Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS_MAX)),
            tls: settings.uses_tls.then(|| Arc::clone(server)),
        })
    }

    /// Serves one connection until it is closed.
    async fn serve(self, stream: TcpStream) {
        let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
        match &self.tls {
            None => self.converse(stream, local, peer).await,
            #[cfg(feature = "tls")]
            Some(server) => {
                let Some(config) = server.tls_config() else { return };
                let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
                let stream = within(limits::ADMIN_REQUEST_TIMEOUT, handshake).await;
                if let Some(Ok(stream)) = stream {
                    self.converse(stream, local, peer).await;
                }
            }
            #[cfg(not(feature = "tls"))]
            Some(_) => {}
        }
    }

    /// Serves the requests of one connection, after the handshake of TLS if there is one.
    pub(crate) async fn converse<S>(&self, stream: S, local: SocketAddr, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let local = local.ip().to_canonical();
        let connection = Connection { local, peer, uses_tls: self.tls.is_some() };
        let pages = self.pages.clone().layer(axum::Extension(connection));
        // A connection that fails is closed.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::ADMIN_REQUEST_TIMEOUT)
            .max_buf_size(limits::ADMIN_BUFFER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages))
            .await;
    }
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, pin!(future)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_other_than_loopback_need_tls() {
        for text in ["127.0.0.1", "127.1.2.3", "::1"] {
            assert!(allowed(text, false).is_ok(), "{text}");
        }
        for text in ["0.0.0.0", "::", "192.168.1.1"] {
            let error = allowed(text, false).expect_err(text).to_string();
            assert!(error.contains("needs `admin-tls yes`"), "{error}");
            assert!(allowed(text, true).is_ok(), "{text}");
        }
        for text in ["localhost", "*", ""] {
            let error = allowed(text, true).expect_err(text).to_string();
            assert_eq!(error, format!("admin-bind {text}: not an address"));
        }
    }
}
