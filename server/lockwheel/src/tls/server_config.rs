//! Builds the configuration of the server's side of TLS from the directives.

use std::sync::Arc;

use lockwheel_engine::settings::Settings;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::session_cache::SessionCache;
use super::{ciphers, credentials};
use crate::limits;

/// Reads the directives and the files that they name.
///
/// # Errors
/// What is wrong.
pub(super) fn build(settings: &Settings) -> Result<ServerConfig, String> {
    let text = |name| settings.text(name);
    let (cert_file, key_file) = (text("tls-cert-file"), text("tls-key-file"));
    if cert_file.is_empty() {
        return Err("No tls-cert-file configured!".into());
    }
    if key_file.is_empty() {
        return Err("No tls-key-file configured!".into());
    }
    let mut provider = ring::default_provider();
    provider.cipher_suites = ciphers::suites(&text("tls-ciphers"), &text("tls-ciphersuites"))?;
    let provider = Arc::new(provider);
    let versions = ciphers::versions(&text("tls-protocols"))?;
    let certified = credentials::certified_key(&provider, &cert_file, &key_file)?;
    let verifier = client_verifier(settings, &provider)?;
    let mut config = with_versions(&provider, &versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.ignore_client_order = text("tls-prefer-server-ciphers") == "yes";
    if text("tls-session-caching") == "yes" {
        let number = |name| text(name).parse::<u64>().unwrap_or(0);
        let size = usize::try_from(number("tls-session-cache-size")).unwrap_or(usize::MAX);
        // As in OpenSSL, 0 is no limit of the directive.
        let size = if size == 0 { usize::MAX } else { size };
        let size = size.min(limits::TLS_SESSIONS_MAX);
        let age_seconds = number("tls-session-cache-timeout");
        config.session_storage = Arc::new(SessionCache::new(size, age_seconds));
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
    let auth_clients = settings.text("tls-auth-clients");
    let file = settings.text("tls-ca-cert-file");
    let directory = settings.text("tls-ca-cert-dir");
    let has_authorities = !(file.is_empty() && directory.is_empty());
    if auth_clients == "no" && !has_authorities {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    if !has_authorities {
        return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when \
             tls-auth-clients is enabled!"
            .into());
    }
    let authorities = credentials::authorities(&file, &directory)?;
    let builder = WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(provider));
    let builder = match auth_clients.as_str() {
        "no" => return Ok(WebPkiClientVerifier::no_client_auth()),
        "optional" => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder
        .build()
        .map_err(|error| format!("Failed to configure CA certificate(s) file/directory: {error}"))
}
