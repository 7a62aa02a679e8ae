//! The certificate authority of a cluster, and the TLS connections between its nodes.
//!
//! Every node has the key of the authority and makes its own certificate at each start: a node that
//! is compromised can stop a cluster anyway, and so any node can admit another one. The
//! certificates have no end; a node that was removed gets no entries, and ends when it asks to
//! enter.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use ring::{digest, hmac};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use serde::{Deserialize, Serialize};

use lockwheel_raft::NodeId;

/// The protocol of connections that replicate the log.
pub(super) const RAFT: &[u8] = b"lockwheel-raft";

/// The protocol of connections that ask for a change of the nodes, or for their state.
pub(super) const MEMBERSHIP: &[u8] = b"lockwheel-membership";

/// A name in the certificates of all nodes.
const ANY_NODE: &str = "node";

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    /// Its certificate, in PEM.
    certificate: String,
    /// Its private key, in PEM.
    key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Anything that goes wrong with keys and certificates, as text.
type Result<T> = std::result::Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Authority {
    /// A new authority.
    pub(super) fn create() -> Result<Authority> {
        let key = KeyPair::generate().map_err(text)?;
        let certificate = authority_params().self_signed(&key).map_err(text)?;
        Ok(Authority { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn certificate(&self) -> Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(text)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        roots(self.certificate()?)
    }

    /// What identifies the authority to a node that does not have its certificate yet.
    pub(super) fn fingerprint(&self) -> Result<[u8; 32]> {
        Ok(fingerprint(&self.certificate()?))
    }

    /// The proof that a node of the cluster has allowed others to join until then, in seconds since
    /// 1970.
    pub(super) fn permission(&self, until: u64) -> [u8; 32] {
        let tag = hmac::sign(&self.permission_key(), &permission_text(until));
        sha_256(tag.as_ref())
    }

    /// Whether a proof is that of [`Authority::permission`].
    pub(super) fn permits(&self, until: u64, permission: &[u8]) -> bool {
        hmac::verify(&self.permission_key(), &permission_text(until), permission).is_ok()
    }

    fn permission_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.key.as_bytes())
    }

    /// A new certificate of a node with that of the authority, and its key.
    fn credentials(
        &self,
        node: NodeId,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let authority_key = KeyPair::from_pem(&self.key).map_err(text)?;
        let issuer = Issuer::new(authority_params(), authority_key);
        let names = vec![ANY_NODE.to_owned(), name_of(node)];
        let mut params = CertificateParams::new(names).map_err(text)?;
        params.distinguished_name.push(DnType::CommonName, format!("Lockwheel node {node}"));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(text)?;
        let certificate = params.signed_by(&key, &issuer).map_err(text)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((vec![certificate.der().clone(), self.certificate()?], key.into()))
    }

    /// How a node accepts connections. Those without a certificate may only ask to join.
    pub(super) fn server_config(&self, node: NodeId) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(provider::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(text)?;
        let (chain, key) = self.credentials(node)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(text)?;
        config.alpn_protocols = vec![RAFT.to_vec(), MEMBERSHIP.to_vec()];
        Ok(Arc::new(config))
    }

    /// How a node makes connections for this protocol.
    pub(super) fn client_config(&self, node: NodeId, protocol: &[u8]) -> Result<Arc<ClientConfig>> {
        let (chain, key) = self.credentials(node)?;
        let mut config = ClientConfig::builder_with_provider(provider::default_provider().into())
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)
            .map_err(text)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }
}

/// How a node that has only the fingerprint of the authority asks to join.
pub(super) fn client_config_of_new_node(fingerprint: [u8; 32]) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(provider::default_provider());
    let verifier = Fingerprint { fingerprint, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(text)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![MEMBERSHIP.to_vec()];
    Ok(Arc::new(config))
}

/// The name in the certificate of a node, which no other node has.
pub(super) fn server_name(node: Option<NodeId>) -> ServerName<'static> {
    let name = node.map_or(ANY_NODE.to_owned(), name_of);
    ServerName::try_from(name).unwrap_or_else(|_| unreachable!("these names are valid"))
}

fn name_of(node: NodeId) -> String {
    format!("node-{node}")
}

/// The same for each cluster: certificates differ by the key.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Lockwheel cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn roots(certificate: CertificateDer<'static>) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(text)?;
    Ok(Arc::new(roots))
}

fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    sha_256(digest::digest(&digest::SHA256, certificate).as_ref())
}

/// The bytes of a digest of this kind.
fn sha_256(digest: &[u8]) -> [u8; 32] {
    digest.try_into().unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes"))
}

fn permission_text(until: u64) -> Vec<u8> {
    format!("join until {until}").into_bytes()
}

/// Accepts certificates of the authority with this fingerprint.
#[derive(Debug)]
struct Fingerprint {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Fingerprint {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let unknown = || rustls::Error::from(CertificateError::UnknownIssuer);
        let authority = chain.iter().find(|found| fingerprint(found) == self.fingerprint);
        let roots = roots(authority.ok_or_else(unknown)?.clone().into_owned());
        let verifier = WebPkiServerVerifier::builder_with_provider(
            roots.map_err(|_| unknown())?,
            Arc::clone(&self.provider),
        );
        let verifier = verifier.build().map_err(|_| unknown())?;
        verifier.verify_server_cert(certificate, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("nodes speak TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_is_that_of_its_authority_and_time() {
        let (own, other) = (Authority::create().expect("keys"), Authority::create().expect("keys"));
        let permission = own.permission(100);
        assert!(own.permits(100, &permission));
        assert!(!own.permits(101, &permission));
        assert!(!other.permits(100, &permission));
        assert_ne!(own.fingerprint(), other.fingerprint());
    }
}
