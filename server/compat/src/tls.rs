//! TLS connections to servers.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A connection with TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// How to connect with TLS: the trusted certificates, those of the client, and the rest.
#[derive(Clone)]
pub struct TlsClient(Arc<Inner>);

struct Inner {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl TlsClient {
    /// A client with this configuration. The server's certificate must be for `server_name`, or for
    /// the host of the URL if there is none.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<String>) -> TlsClient {
        TlsClient(Arc::new(Inner { config, server_name }))
    }

    /// Completes the handshake on a connection to `host`.
    ///
    /// # Errors
    /// If the connection or the handshake fails.
    pub fn connect(&self, host: &str, mut tcp: TcpStream) -> io::Result<TlsStream> {
        let name = self.0.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0.config), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut tcp).map_err(|error| match error.kind() {
                // Not to be confused with a reply that is not valid.
                ErrorKind::InvalidData => io::Error::other(format!("no TLS connection: {error}")),
                _ => error,
            })?;
        }
        Ok(StreamOwned::new(connection, tcp))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient")
            .field("server_name", &self.0.server_name)
            .finish_non_exhaustive()
    }
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &TlsClient) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsClient {}
