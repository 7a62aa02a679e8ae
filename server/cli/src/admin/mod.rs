//! The listener for monitoring: health checks and figures over HTTP, on a port and a thread of its
//! own. It uses the server as a client within the process does, so a slow reader of HTTP delays no
//! client of the server.

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
use lockwheel::{Client, Server};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use crate::limits;

/// Where to listen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    /// The port; 0 if there is no such listener.
    pub(crate) port: u16,
    /// The addresses. One that begins with `-` may be missing on this machine, as for `bind`.
    pub(crate) bind: Vec<String>,
}

/// Starts the listener, if there is one. It ends with the process.
///
/// # Errors
/// If an address cannot be bound, or is not one of this machine alone.
pub(crate) fn start(settings: &AdminSettings, server: &Server) -> io::Result<()> {
    if settings.port == 0 {
        return Ok(());
    }
    let listeners = bind(settings)?;
    let client = server.client().map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()?;
    for listener in &listeners {
        info!("Monitoring at http://{}/metrics", listener.local_addr()?);
    }
    let run = move || runtime.block_on(serve(listeners, client));
    std::thread::Builder::new().name("admin".to_owned()).spawn(run)?;
    Ok(())
}

/// Binds all addresses.
fn bind(settings: &AdminSettings) -> io::Result<Vec<std::net::TcpListener>> {
    let mut listeners = Vec::new();
    for text in &settings.bind {
        let (address, may_be_missing) = match text.strip_prefix('-') {
            Some(address) => (address, true),
            None => (&**text, false),
        };
        let address = loopback(address)?;
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

/// An address that only this machine reaches: the pages ask for no password and are not encrypted.
fn loopback(text: &str) -> io::Result<IpAddr> {
    let address: Option<IpAddr> = text.parse().ok();
    address.filter(IpAddr::is_loopback).ok_or_else(|| {
        io::Error::other(format!("admin-bind {text}: only loopback addresses are allowed"))
    })
}

/// Accepts connections for ever.
async fn serve(listeners: Vec<std::net::TcpListener>, client: Client) {
    let pages = pages::router(client);
    let places = Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS_MAX));
    let mut tasks = tokio::task::JoinSet::new();
    for listener in listeners {
        let (pages, places) = (pages.clone(), Arc::clone(&places));
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                tasks.spawn(accept(listener, pages, places));
            }
            Err(error) => warn!(%error, "cannot listen for monitoring"),
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Accepts the connections of one listener. Those beyond the limit wait in the kernel's queue.
async fn accept(listener: TcpListener, pages: axum::Router, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = pages.clone();
                tokio::spawn(async move {
                    converse(stream, pages).await;
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

/// Serves one connection until it is closed, or for as long as one may last.
async fn converse(stream: TcpStream, pages: axum::Router) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::ADMIN_REQUEST_TIMEOUT)
        .max_buf_size(limits::ADMIN_BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    // A client that does not read its reply would keep its place for ever.
    let _ = within(limits::ADMIN_CONNECTION_LIFETIME, connection).await;
}

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, pin!(future)).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_bound() {
        for text in ["127.0.0.1", "127.1.2.3", "::1"] {
            assert!(loopback(text).is_ok(), "{text}");
        }
        for text in ["0.0.0.0", "::", "192.168.1.1", "localhost", "*", ""] {
            let error = loopback(text).expect_err(text).to_string();
            assert_eq!(error, format!("admin-bind {text}: only loopback addresses are allowed"));
        }
    }
}
