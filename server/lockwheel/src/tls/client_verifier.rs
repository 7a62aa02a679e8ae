//! Which certificates of clients are accepted: those that a configured authority has issued, and
//! self-signed ones that are configured themselves.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

use super::x509::Outline;

type Verifier = Arc<dyn ClientCertVerifier>;

/// Does what OpenSSL does where webpki alone does not. A self-signed certificate that is byte for
/// byte a configured one is accepted, also if it is that of an authority; and a configured
/// certificate that is not that of an authority is none. The client must always prove that it has
/// the key.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// Verifier with the certificates of authorities, if there are any.
    authorities: Option<Verifier>,
    /// Verifier with all configured certificates.
    all: Verifier,
    configured: HashSet<CertificateDer<'static>>,
    is_mandatory: bool,
}

impl ClientVerifier {
    /// A verifier with the configured certificates. If a certificate is not mandatory, clients
    /// without one are accepted too.
    ///
    /// # Errors
    /// If none of the certificates can be used.
    pub(super) fn new(
        configured: Vec<CertificateDer<'static>>,
        is_mandatory: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, String> {
        let may_issue = |certificate: &&CertificateDer<'static>| {
            Outline::of(certificate).is_some_and(|it| it.may_issue())
        };
        let authorities: Vec<_> = configured.iter().filter(may_issue).cloned().collect();
        let authorities = match authorities.is_empty() {
            true => None,
            false => Some(verifier(authorities, provider)?),
        };
        let all = verifier(configured.clone(), provider)?;
        let configured = configured.into_iter().collect();
        Ok(ClientVerifier { authorities, all, configured, is_mandatory })
    }

    /// Whether the owner of the certificate may be a client with it. Its dates have been checked.
    fn is_configured(&self, certificate: &CertificateDer<'_>) -> bool {
        self.configured.contains(&certificate.clone().into_owned())
            && Outline::of(certificate).is_some_and(|it| it.is_self_issued())
    }
}

fn verifier(
    certificates: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates);
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.all.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if Outline::of(certificate).is_some_and(|it| it.is_version_1()) {
            return Err(CertificateError::Other(OtherError(Arc::new(Version1))).into());
        }
        let issued = self.authorities.as_ref().map_or_else(
            || Err(CertificateError::UnknownIssuer.into()),
            |authorities| authorities.verify_client_cert(certificate, intermediates, now),
        );
        if issued.is_ok() || !self.is_configured(certificate) {
            return issued;
        }
        match self.all.verify_client_cert(certificate, &[], now) {
            // The certificate is that of an authority, which webpki refuses after it has checked
            // the dates.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) => {
                Ok(ClientCertVerified::assertion())
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.all.supported_verify_schemes()
    }
}

/// The reason why a certificate of version 1 is refused.
struct Version1;

impl fmt::Display for Version1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has X.509 version 1, and version 3 is required")
    }
}

/// rustls logs this form.
impl fmt::Debug for Version1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Version1 {}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Signed by itself; made with `openssl x509 -req`.
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

    #[test]
    fn certificate_of_version_1_is_refused_with_the_reason() {
        let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).expect("one");
        let provider = Arc::new(ring::default_provider());
        let verifier = ClientVerifier::new(vec![certificate.clone()], true, &provider);
        let verifier = verifier.expect("a usable certificate");
        let result = verifier.verify_client_cert(&certificate, &[], UnixTime::now());
        let error = result.expect_err("a refusal").to_string();
        assert!(error.contains("it has X.509 version 1, and version 3 is required"), "{error}");
    }

    #[test]
    fn malformed_certificate_has_no_outline() {
        let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).expect("one");
        assert!(Outline::of(&certificate).is_some_and(|it| it.is_self_issued()));
        for length in 0..certificate.len() {
            assert!(Outline::of(&certificate[..length]).is_none(), "{length}");
        }
        assert!(Outline::of(&[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF]).is_none());
        assert!(Outline::of(&[0x30, 0x89]).is_none());
    }
}
