//! The key of a node, and the TLS connections between nodes.
//!
//! Each node makes its own key and keeps it. The others know its *fingerprint*, the SHA-256 of the
//! public key: it is replicated with the nodes. TLS only proves that each end of a connection has
//! the key that it shows. Whether it is the expected one is checked afterwards, so that a refusal
//! can state the reason.

use std::fmt;
use std::io;
use std::sync::Arc;

use lockwheel_raft::{Connect, Connecting, NodeId, Peer, Stream};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client};

use super::authority::Authority;
use crate::limits;

/// The protocol of connections that replicate the log.
pub(super) const RAFT: &[u8] = b"lockwheel-raft";

/// The protocol of connections that ask for a change of the nodes, or for their state.
pub(super) const MEMBERSHIP: &[u8] = b"lockwheel-membership";

/// A name in the certificates of all nodes.
const ANY_NODE: &str = "node";

/// Anything that goes wrong with keys and certificates, as text.
pub(super) type Result<T> = std::result::Result<T, String>;

pub(super) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(super) fn sha_256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The private key of a node, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeKey(String);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey").finish_non_exhaustive()
    }
}

impl NodeKey {
    /// A new key.
    pub(super) fn generate() -> Result<NodeKey> {
        Ok(NodeKey(KeyPair::generate().map_err(text)?.serialize_pem()))
    }

    /// Its fingerprint.
    pub(super) fn fingerprint(&self) -> Result<String> {
        let pair = KeyPair::from_pem(&self.0).map_err(text)?;
        Ok(sha_256(&pair.subject_public_key_info()))
    }
}

/// What a node shows on its connections.
pub(super) struct Credentials {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Option<Authority>,
}

impl Credentials {
    /// Returns the credentials of a node with this key. A new node has no number yet. Nodes with an
    /// earlier program accept only certificates of their authority.
    pub(super) fn new(
        key: &NodeKey,
        node: Option<NodeId>,
        authority: Option<&Authority>,
    ) -> Result<Credentials> {
        let pair = KeyPair::from_pem(&key.0).map_err(text)?;
        let names = [Some(ANY_NODE.to_owned()), node.map(name_of)].into_iter().flatten();
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).map_err(text)?;
        params.distinguished_name.push(DnType::CommonName, "Lockwheel node");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let chain = match authority {
            Some(authority) => authority.sign(&params, &pair)?,
            None => vec![params.self_signed(&pair).map_err(text)?.der().clone()],
        };
        let key = PrivatePkcs8KeyDer::from(pair.serialize_der()).into();
        Ok(Credentials { chain, key, authority: authority.cloned() })
    }

    /// How a node accepts connections.
    pub(super) fn server_config(&self) -> Result<Arc<ServerConfig>> {
        let any_key = AnyKey::new();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&any_key.0))
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .with_client_cert_verifier(Arc::new(any_key))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(text)?;
        config.alpn_protocols = vec![RAFT.to_vec(), MEMBERSHIP.to_vec()];
        Ok(Arc::new(config))
    }

    /// What makes connections for this protocol.
    pub(super) fn connector(&self, protocol: &[u8]) -> Result<Connector> {
        let any_key = AnyKey::new();
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&any_key.0))
            .with_protocol_versions(&[&TLS13])
            .map_err(text)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any_key))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(text)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Connector { config: Arc::new(config), authority: self.authority.clone() })
    }
}

/// The name of a node, which no other node has.
fn name_of(node: NodeId) -> String {
    format!("node-{node}")
}

/// The name in the certificate of this node, or that of any node.
pub(super) fn server_name(node: Option<NodeId>) -> ServerName<'static> {
    let name = node.map_or(ANY_NODE.to_owned(), name_of);
    ServerName::try_from(name).unwrap_or_else(|_| unreachable!("these names are valid"))
}

/// What the other end of a connection has shown.
#[derive(Debug)]
pub(super) struct Shown {
    certificate: CertificateDer<'static>,
    /// The fingerprint of its key.
    pub(super) fingerprint: String,
}

impl Shown {
    /// What was shown in a complete handshake.
    pub(super) fn on(connection: &CommonState) -> io::Result<Shown> {
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.ok_or(io::ErrorKind::PermissionDenied)?.clone().into_owned();
        let parsed = ParsedCertificate::try_from(&certificate).map_err(io::Error::other)?;
        let fingerprint = sha_256(&parsed.subject_public_key_info());
        Ok(Shown { certificate, fingerprint })
    }

    /// Whether this is the key of a node. One without a recorded fingerprint may have any key that
    /// its authority has signed.
    pub(super) fn is_of(
        &self,
        node: Option<NodeId>,
        peer: &Peer,
        authority: Option<&Authority>,
    ) -> bool {
        match &*peer.fingerprint {
            "" => authority.is_some_and(|authority| authority.has_signed(&self.certificate, node)),
            fingerprint => fingerprint == self.fingerprint,
        }
    }
}

/// Makes connections to nodes whose keys are known.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
    authority: Option<Authority>,
}

impl Connector {
    /// Connects to the address of a node, of which the number may be unknown.
    pub(super) async fn connect(
        &self,
        node: Option<NodeId>,
        peer: &Peer,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect(&peer.address).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(Arc::clone(&self.config));
            connector.connect(server_name(node), stream).await
        };
        let stream = timeout(limits::RAFT_CONNECT_TIMEOUT, connecting).await??;
        if !Shown::on(stream.get_ref().1)?.is_of(node, peer, self.authority.as_ref()) {
            return Err(io::Error::other(
                "its key is not that of the node which is expected there",
            ));
        }
        Ok(stream)
    }
}

impl Connect for Connector {
    fn connect(&self, node: NodeId, peer: &Peer) -> Connecting<'_> {
        let peer = peer.clone();
        Box::pin(async move {
            let stream = self.connect(Some(node), &peer).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Accepts every certificate whose key the other end has.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl AnyKey {
    fn new() -> AnyKey {
        AnyKey(provider::default_provider().into())
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn no_tls_12() -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::Error::General("nodes speak TLS 1.3 only".to_owned()))
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        no_tls_12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        no_tls_12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
