//! Builds the configuration of the server's side of TLS from the directives.

use std::sync::Arc;

use lockwheel_engine::settings::{Settings, TlsAuthClients, directive};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::client_verifier::ClientVerifier;
use super::session_cache::SessionCache;
use super::{ciphers, credentials};
use crate::limits;

/// Reads the directives and the files that they name.
///
/// # Errors
/// What is wrong.
pub(super) fn build(settings: &Settings) -> Result<ServerConfig, String> {
    let cert_file = settings.get(directive::TLS_CERT_FILE).ok_or("No tls-cert-file configured!")?;
    let key_file = settings.get(directive::TLS_KEY_FILE).ok_or("No tls-key-file configured!")?;
    let mut provider = ring::default_provider();
    let suites = settings.get(directive::TLS_CIPHERSUITES);
    provider.cipher_suites = ciphers::suites(&settings.get(directive::TLS_CIPHERS), &suites)?;
    let provider = Arc::new(provider);
    let versions = ciphers::versions(&settings.get(directive::TLS_PROTOCOLS))?;
    let certified = credentials::certified_key(&provider, &cert_file, &key_file)?;
    let verifier = client_verifier(settings, &provider)?;
    let mut config = with_versions(&provider, &versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.ignore_client_order = settings.get(directive::TLS_PREFER_SERVER_CIPHERS);
    if settings.get(directive::TLS_SESSION_CACHING) {
        // As in OpenSSL, 0 is no limit of the directive.
        let size = match settings.get(directive::TLS_SESSION_CACHE_SIZE) {
            0 => limits::TLS_SESSIONS_MAX,
            size => limits::TLS_SESSIONS_MAX.min(size as usize),
        };
        let age = settings.get(directive::TLS_SESSION_CACHE_TIMEOUT);
        config.session_storage = Arc::new(SessionCache::new(size, age));
        // Clients use one; each costs memory here and work in the handshake.
        config.send_tls13_tickets = 1;
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

type ConfigBuilder = rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>;

fn with_versions(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ConfigBuilder, String> {
    ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(|error| format!("Failed to configure tls-protocols: {error}"))
}

/// What `tls-auth-clients` requires of clients.
fn client_verifier(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let auth_clients = settings.get(directive::TLS_AUTH_CLIENTS);
    let file = settings.get(directive::TLS_CA_CERT_FILE);
    let directory = settings.get(directive::TLS_CA_CERT_DIR);
    let has_authorities = !(file.is_empty() && directory.is_empty());
    if auth_clients == TlsAuthClients::No && !has_authorities {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    if !has_authorities {
        return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when \
             tls-auth-clients is enabled!"
            .into());
    }
    let configured = credentials::authority_certificates(&file, &directory)?;
    if auth_clients == TlsAuthClients::No {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let is_mandatory = auth_clients == TlsAuthClients::Yes;
    match ClientVerifier::new(configured, is_mandatory, provider) {
        Ok(verifier) => Ok(Arc::new(verifier)),
        Err(error) => Err(format!("Failed to configure CA certificate(s) file/directory: {error}")),
    }
}
