//! TLS connections to servers.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, SignatureScheme, StreamOwned};

use super::describe;

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
    ///
    /// Each handshake is complete: a server with OpenSSL that checks certificates and does not
    /// cache sessions refuses clients that try to resume one, and a session would be resumed with
    /// the rights of its client.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<String>) -> TlsClient {
        let mut config = Arc::unwrap_or_clone(config);
        config.resumption = Resumption::disabled();
        TlsClient(Arc::new(Inner { config: Arc::new(config), server_name }))
    }

    /// Whether it presents a certificate of its own.
    pub fn has_certificate(&self) -> bool {
        self.0.config.client_auth_cert_resolver.has_certs()
    }

    /// The same client without a certificate of its own.
    #[must_use]
    pub fn without_certificate(&self) -> TlsClient {
        let mut config = (*self.0.config).clone();
        config.client_auth_cert_resolver = Arc::new(NoCertificate);
        TlsClient::new(Arc::new(config), self.0.server_name.clone())
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
            // Not to be confused with a reply that is missing or not valid.
            let failed =
                |error| io::Error::other(format!("no TLS connection: {}", describe(&error)));
            connection.complete_io(&mut tcp).map_err(failed)?;
        }
        Ok(StreamOwned::new(connection, tcp))
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
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
