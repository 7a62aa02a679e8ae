//! Certificates for tests of TLS, made when they are needed, and clients that use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockwheel::{Builder, Server};
use lockwheel_compat::wire::tls::TlsClient;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::daemon::Folder;

/// A certificate of X.509 version 1, signed by itself; made with `openssl x509 -req`.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBFjCBvQIUK98QhQ+XnM4qahFkJA1afPZ7cjYwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwIBcNMjYxMTI5MjMxMjI2WhgPMjEyNjExMDUyMzEyMjZaMA0xCzAJ
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEzRJMkQk3ouFIAYs
YE1gIiBtR8IdtreyKSFpgn/y5USFc/kBxpcdpXhwDaw2R9TVuKaE+Ke4Cib6/tjl
8HA0WDAKBggqhkjOPQQDAgNIADBFAiEAp6XQTDc6Aa378smOqrc1A2dpak9HpB7l
L9rnSse1KnECIHuGylhfxHwm/9zEwiHlPq4xyC6cbPIfy4m+MfrOEWDx
-----END CERTIFICATE-----
";

/// An authority, and a folder with its certificate (`ca.crt`), and certificates and keys that it
/// has issued (`server.crt`, `server.key`, and those of [`Certificates::issue`]).
pub struct Certificates {
    folder: Folder,
    /// The root directory of the server.
    root: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Makes an authority, and a certificate of a server at this machine.
    pub fn new() -> Certificates {
        Certificates::within(Path::new("/"))
    }

    /// As [`Certificates::new`], for a server that is run by `chroot` in `root`.
    pub fn within(root: &Path) -> Certificates {
        let folder = Folder::within(root);
        let mut params = CertificateParams::new(Vec::new()).expect("valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // No two authorities may have the same name.
        params.distinguished_name = named(&folder.path(""));
        let key = new_key();
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.path("ca.crt"), certificate.pem()).expect("a file");
        let issuer = Issuer::new(params, key);
        let certificates = Certificates { folder, root: root.to_owned(), issuer };
        certificates.issue("server", Validity::Now);
        certificates
    }

    /// Makes a certificate and a key: `name.crt` and `name.key`.
    pub fn issue(&self, name: &str, validity: Validity) {
        let names = ["localhost", "127.0.0.1", name].map(String::from);
        let mut params = CertificateParams::new(names).expect("valid names");
        params.distinguished_name = named(name);
        if validity == Validity::Past {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = new_key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(self.path(&format!("{name}.crt")), certificate.pem()).expect("a file");
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).expect("a file");
    }

    /// Writes a certificate of X.509 version 1, `name.crt`, beside the key of another one, and adds
    /// it to `ca.crt`.
    pub fn write_version_1(&self, name: &str) {
        let authorities = self.path("ca.crt");
        let before = fs::read_to_string(&authorities).expect("a file");
        for (path, text) in [
            (authorities, before + VERSION_1),
            (self.path(&format!("{name}.crt")), VERSION_1.to_owned()),
            (self.path(&format!("{name}.key")), new_key_pem()),
        ] {
            fs::write(path, text).expect("a file");
        }
    }

    /// Makes a certificate that signs itself, that of an authority or not, with a key; and another
    /// one, `of_name`, that it signs. The first is added to `ca.crt`.
    pub fn issue_self_signed(&self, name: &str, is_authority: bool) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a valid name");
        params.distinguished_name = named(&self.path(name));
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let (key, key_of) = (new_key(), new_key());
        let certificate = params.self_signed(&key).expect("a certificate");
        let (key_pem, of) = (key.serialize_pem(), format!("of_{name}"));
        let params_of = CertificateParams::new([of.clone()]).expect("a valid name");
        let issued = params_of.signed_by(&key_of, &Issuer::new(params, key)).expect("another one");
        let authorities = self.path("ca.crt");
        let before = fs::read_to_string(&authorities).expect("a file");
        for (path, text) in [
            (authorities, before + &certificate.pem()),
            (self.path(&format!("{name}.crt")), certificate.pem()),
            (self.path(&format!("{name}.key")), key_pem),
            (self.path(&format!("{of}.crt")), issued.pem()),
            (self.path(&format!("{of}.key")), key_of.serialize_pem()),
        ] {
            fs::write(path, text).expect("a file");
        }
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    /// The path of a file for the server.
    fn path_in_root(&self, name: &str) -> String {
        let path = PathBuf::from(self.path(name));
        let inner = path.strip_prefix(&self.root).expect("the folder is within the root");
        Path::new("/").join(inner).to_string_lossy().into_owned()
    }

    /// The options of a daemon that listens for TLS only, on this port.
    pub fn options(&self, port: u16) -> Vec<String> {
        let port = port.to_string();
        let paths = ["server.crt", "server.key", "ca.crt"].map(|name| self.path_in_root(name));
        let [cert, key, ca] = paths.each_ref();
        let words = ["--port", "0", "--tls-port", &port, "--tls-cert-file", cert];
        let more = ["--tls-key-file", key, "--tls-ca-cert-file", ca];
        words.into_iter().chain(more).map(String::from).collect()
    }

    /// A server in this process that listens for TLS only. It asks clients for no certificate.
    pub fn server(&self) -> Builder {
        Server::builder()
            .tls(self.path("server.crt"), self.path("server.key"))
            .config("tls-ca-cert-file", &self.path("ca.crt"))
    }

    /// A client without a certificate that trusts the authority.
    pub fn client(&self) -> TlsClient {
        self.client_with(None, &[&rustls::version::TLS13, &rustls::version::TLS12])
    }

    /// A client with the certificate of this name.
    pub fn client_as(&self, name: &str) -> TlsClient {
        self.client_with(Some(name), &[&rustls::version::TLS13])
    }

    /// A client with a certificate, if it has a name, that speaks these versions of TLS.
    pub fn client_with(
        &self,
        name: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsClient {
        TlsClient::new(Arc::new(self.client_config(name, versions)), None)
    }

    /// The configuration of [`Certificates::client_with`].
    pub fn client_config(
        &self,
        name: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("supported versions")
            .with_root_certificates(self.authorities());
        let Some(name) = name else { return builder.with_no_client_auth() };
        let (chain, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        let chain = vec![CertificateDer::from_pem_file(chain).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a usable key");
        // Tests also use a certificate with the key of another one.
        let certified = CertifiedKey::new(chain, key);
        builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
    }

    fn authorities(&self) -> RootCertStore {
        let mut authorities = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.path("ca.crt"));
        authorities.add(authority.expect("a certificate")).expect("a usable certificate");
        authorities
    }
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now.
    Now,
    /// It has expired.
    Past,
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// A new private key, in PEM.
pub fn new_key_pem() -> String {
    new_key().serialize_pem()
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// A client that speaks this protocol with any server. It has this private key, in PEM, and a
/// certificate of a name that an authority with another key has signed, or else itself.
pub fn client_of_any_server(
    protocol: &str,
    key: &str,
    name: &str,
    authority: Option<&str>,
) -> ClientConfig {
    let read = |key: &str| KeyPair::from_pem(key).expect("a key");
    let key = read(key);
    let params = CertificateParams::new([name.to_owned()]).expect("a valid name");
    let signed = match authority {
        Some(authority) => {
            let mut of_authority = CertificateParams::default();
            of_authority.distinguished_name = named("Lockwheel cluster");
            params.signed_by(&key, &Issuer::new(of_authority, read(authority)))
        }
        None => params.self_signed(&key),
    };
    let chain = vec![signed.expect("a certificate").der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = any_server().with_client_auth_cert(chain, key);
    let mut config = config.expect("a usable certificate");
    config.alpn_protocols = vec![protocol.into()];
    config
}

/// As [`client_of_any_server`], without a certificate.
pub fn client_without_certificate(protocol: &str) -> ClientConfig {
    let mut config = any_server().with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    config
}

/// A client that accepts every server.
fn any_server() -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a supported version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}
