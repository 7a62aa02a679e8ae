//! The certificate authority of a cluster that an earlier program has begun.
//!
//! Every node has its key, and so have the nodes that were removed. So its signature counts only
//! for nodes whose own key is not recorded yet, since they run that program. Nodes that have joined
//! later do not have it.

use std::fmt;
use std::sync::Arc;

use lockwheel_raft::NodeId;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::{Deserialize, Serialize};

use super::keys::{Result, server_name, text};

/// The certificate authority of an older cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    /// Its certificate, in PEM.
    certificate: String,
    /// Its private key, in PEM.
    key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    fn certificate(&self) -> Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(text)
    }

    /// A certificate for a key, followed by that of the authority.
    pub(super) fn sign(
        &self,
        params: &CertificateParams,
        key: &KeyPair,
    ) -> Result<Vec<CertificateDer<'static>>> {
        let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&self.key).map_err(text)?);
        let certificate = params.signed_by(key, &issuer).map_err(text)?;
        Ok(vec![certificate.der().clone(), self.certificate()?])
    }

    /// Whether it has signed a certificate of this node, or of any.
    pub(super) fn has_signed(&self, signed: &CertificateDer<'_>, node: Option<NodeId>) -> bool {
        let verifier = self.verifier();
        let now = UnixTime::now();
        verifier.is_ok_and(|verifier| {
            verifier.verify_server_cert(signed, &[], &server_name(node), &[], now).is_ok()
        })
    }

    fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()?).map_err(text)?;
        let provider = provider::default_provider().into();
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().map_err(text)
    }
}

/// The same for each authority: they differ by the key.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Lockwheel cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}
