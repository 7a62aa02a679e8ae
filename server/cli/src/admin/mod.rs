//! The listener for monitoring: health checks, figures and locks over HTTP, on a port and a thread
//! of its own. It uses the server as clients within the process do, so a slow reader of HTTP delays
//! no client of the server.

mod access;
pub(crate) mod commands;
mod locks;
pub(crate) mod metrics;
mod pages;
mod within;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lockwheel::Server;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use self::access::{Admin, Connection};
use self::within::within;
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
                // File descriptors are lacking; some may be closed soon.
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

    /// A port of a server with the default user and `viewer`, whose password is `secret`.
    fn port_of(hosts: &[&str]) -> Port {
        let server = Server::start().expect("a server");
        server.call(&["ACL", "SETUSER", "viewer", "on", ">secret", "+@all", "~*"]).expect("a user");
        let hosts = hosts.iter().map(ToString::to_string).collect();
        let settings = AdminSettings { hosts, ..AdminSettings::default() };
        Port::new(&settings, &Arc::new(server)).expect("pages")
    }

    /// The status of a reply to a client at `peer` that has connected to `local`.
    async fn status(port: &Port, local: &str, peer: &str, path: &str, headers: &str) -> u16 {
        let [local, peer] = [local, peer].map(|it| SocketAddr::new(it.parse().expect("one"), 1));
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let request = format!("GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        let mut reply = String::new();
        let exchange = async {
            near.write_all(request.as_bytes()).await.expect("a request");
            near.read_to_string(&mut reply).await.expect("a reply");
        };
        tokio::join!(port.converse(far, local, peer), exchange);
        let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {reply}"))
    }

    /// A forged header, and a page of another site whose name leads to this machine.
    #[tokio::test]
    async fn header_host_gives_no_rights_of_a_local_request_on_another_address() {
        const OUTSIDE: [&str; 4] = ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1"];
        const LOOPBACK: [&str; 4] = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"];
        let port = port_of(&["monitor.example"]);
        let local_names = ["localhost", "127.0.0.1", "127.0.0.2", "[::1]", "localhost:1"];
        for local in OUTSIDE {
            // 127.0.0.1 is a connection of this machine to its outer address.
            for peer in ["192.0.2.1", "192.0.2.9", "127.0.0.1"] {
                for name in local_names.into_iter().chain(["192.0.2.2", "evil.example"]) {
                    let host = format!("Host: {name}\r\n");
                    for path in ["/session", "/metrics", "/healthz"] {
                        let status = status(&port, local, peer, path, &host).await;
                        assert_eq!(status, 421, "{name} at {local}: {path}");
                    }
                }
                let own = local.trim_start_matches("::ffff:");
                let own = if own.contains(':') { format!("[{own}]") } else { own.to_owned() };
                for name in [own, "Monitor.Example:2".to_owned()] {
                    let host = format!("Host: {name}\r\n");
                    let forwarded = "X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\n";
                    let headers = format!("{host}{forwarded}X-Forwarded-Host: localhost\r\n");
                    for (path, expected) in
                        [("/session", 401), ("/metrics", 401), ("/healthz", 200)]
                    {
                        let status = status(&port, local, peer, path, &headers).await;
                        assert_eq!(status, expected, "{name} at {local}: {path}");
                    }
                    let both = format!("{host}Host: localhost\r\n");
                    let status = status(&port, local, peer, "/session", &both).await;
                    assert!(status == 421 || status == 400, "{status}");
                }
            }
        }
        for local in LOOPBACK {
            for name in local_names {
                let host = format!("Host: {name}\r\n");
                let status = status(&port, local, "127.0.0.1", "/session", &host).await;
                assert_eq!(status, 200, "{name} at {local}");
            }
            for (name, expected) in
                [("evil.example", 421), ("192.0.2.1", 421), ("monitor.example", 401)]
            {
                let host = format!("Host: {name}\r\n");
                let status = status(&port, local, "127.0.0.1", "/session", &host).await;
                assert_eq!(status, expected, "{name} at {local}");
            }
        }
    }

    const WRONG: &str = "Host: 192.0.2.1\r\nAuthorization: Basic dmlld2VyOnNlY3JldDI=\r\n";
    const RIGHT: &str = "Host: 192.0.2.1\r\nAuthorization: Basic dmlld2VyOnNlY3JldA==\r\n";

    /// The status of a request with these headers from another machine.
    async fn log_in(port: &Port, peer: &str, headers: &str) -> u16 {
        status(port, "192.0.2.1", peer, "/session", headers).await
    }

    #[tokio::test]
    async fn wrong_passwords_are_counted_for_each_network() {
        let port = port_of(&[]);
        let max = limits::ADMIN_LOGIN_FAILURES_MAX;
        for number in 0..max {
            assert_eq!(
                log_in(&port, &format!("2001:db8:0:1:{number}::{number}"), WRONG).await,
                401
            );
            // The same address in both forms.
            let form = if number % 2 == 0 { "::ffff:" } else { "" };
            assert_eq!(log_in(&port, &format!("{form}192.0.2.7"), WRONG).await, 401);
        }
        for peer in ["2001:db8:0:1:ffff::9", "2001:db8:0:1::", "192.0.2.7", "::ffff:192.0.2.7"] {
            assert_eq!(log_in(&port, peer, WRONG).await, 429, "{peer}");
            assert_eq!(log_in(&port, peer, RIGHT).await, 429, "{peer}");
        }
        for peer in ["2001:db8:0:2::9", "2001:db8::9", "192.0.2.8", "::1", "::ffff:192.0.2.6"] {
            assert_eq!(log_in(&port, peer, RIGHT).await, 200, "{peer}");
        }
    }

    #[tokio::test]
    async fn requests_at_once_do_not_pass_the_limit_of_wrong_passwords_together() {
        let port = port_of(&[]);
        let requests = (0..4 * limits::ADMIN_LOGIN_FAILURES_MAX).map(|_| {
            let port = port.clone();
            tokio::spawn(async move { log_in(&port, "192.0.2.7", WRONG).await })
        });
        let requests: Vec<_> = requests.collect();
        let mut checked = 0;
        for request in requests {
            checked += usize::from(request.await.expect("a status") == 401);
        }
        assert_eq!(checked, limits::ADMIN_LOGIN_FAILURES_MAX as usize);
    }

    #[tokio::test]
    async fn addresses_beyond_those_remembered_do_not_lift_the_limit() {
        let port = port_of(&[]);
        for _ in 0..limits::ADMIN_LOGIN_FAILURES_MAX {
            assert_eq!(log_in(&port, "10.0.0.1", WRONG).await, 401);
        }
        for number in 1..limits::ADMIN_LOGIN_ADDRESSES_MAX {
            let peer = format!("10.1.{}.{}", number / 256, number % 256);
            assert_eq!(log_in(&port, &peer, WRONG).await, 401);
        }
        // The first address is still limited, one that is remembered may go on.
        assert_eq!(log_in(&port, "10.0.0.1", RIGHT).await, 429);
        assert_eq!(log_in(&port, "10.1.0.1", RIGHT).await, 200);
        for number in 0..3 {
            assert_eq!(log_in(&port, &format!("10.9.0.{number}"), WRONG).await, 429);
        }
    }
}
