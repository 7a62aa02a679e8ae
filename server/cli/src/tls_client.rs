//! The options for TLS connections to servers, with the names of `redis-cli`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockwheel::tls::{ciphers, credentials};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The options for TLS connections.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsOptions {
    /// The name in the server's certificate, instead of the host
    #[arg(long, value_name = "host")]
    pub(crate) sni: Option<String>,
    /// File with the certificates of trusted authorities (default: those of the system)
    #[arg(long, value_name = "file")]
    cacert: Option<PathBuf>,
    /// Directory with the certificates of trusted authorities
    #[arg(long, value_name = "dir")]
    cacertdir: Option<PathBuf>,
    /// Accept any certificate of the server
    #[arg(long)]
    insecure: bool,
    /// File with the client's certificate
    #[arg(long, value_name = "path", requires = "key")]
    cert: Option<PathBuf>,
    /// File with the client's private key
    #[arg(long, value_name = "path", requires = "cert")]
    key: Option<PathBuf>,
    /// Ciphers of TLS 1.2, as a list of OpenSSL
    #[arg(long, value_name = "list", default_value = "", hide_default_value = true)]
    tls_ciphers: String,
    /// Cipher suites of TLS 1.3, separated by colons
    #[arg(long, value_name = "list", default_value = "", hide_default_value = true)]
    tls_ciphersuites: String,
}

impl TlsOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut provider = ring::default_provider();
        provider.cipher_suites = ciphers::suites(&self.tls_ciphers, &self.tls_ciphersuites)?;
        let provider = Arc::new(provider);
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let certified = credentials::certified_key(&provider, &text(cert), &text(key))?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, String> {
        if self.insecure {
            return Ok(Arc::new(AnyCertificate(Arc::clone(provider))));
        }
        let name = |path: &Option<PathBuf>| path.as_deref().map(text).unwrap_or_default();
        let (mut file, directory) = (name(&self.cacert), name(&self.cacertdir));
        if file.is_empty() && directory.is_empty() {
            file = system_authorities().ok_or("the system has no certificates: --cacert")?;
        }
        let authorities = credentials::authorities(&file, &directory)?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(provider));
        Ok(verifier.build().map_err(|error| error.to_string())?)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The file with the certificates that the system trusts.
fn system_authorities() -> Option<String> {
    const FILES: &[&str] = &[
        // Debian and Alpine; Fedora; SUSE; macOS and FreeBSD.
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let from_environment = std::env::var("SSL_CERT_FILE").ok();
    let mut files = from_environment.into_iter().chain(FILES.iter().map(|&file| file.to_owned()));
    files.find(|file| Path::new(file).is_file())
}

/// Accepts any certificate (`--insecure`). The server still has to have its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
