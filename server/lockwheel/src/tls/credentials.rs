//! Reads certificates and private keys from PEM files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use crate::bounded_file;
use crate::limits;

/// The certificate in `cert_file`, with its chain, and the key in `key_file`.
///
/// # Errors
/// What is wrong with which file.
pub fn certified_key(
    provider: &CryptoProvider,
    cert_file: &str,
    key_file: &str,
) -> Result<CertifiedKey, String> {
    let chain = certificates(Path::new(cert_file))
        .map_err(|error| format!("Failed to load certificate: {cert_file}: {error}"))?;
    let failed = |error: String| format!("Failed to load private key: {key_file}: {error}");
    let bytes = read(Path::new(key_file)).map_err(failed)?;
    let key =
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| failed(key_error(&bytes, &error)));
    let key = provider.key_provider.load_private_key(key?);
    let key = key.map_err(|error| failed(error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    // Some certificates cannot be compared with the key; clients decide about them.
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(failed(format!("it is not that of {cert_file}")))
        }
        _ => Ok(certified),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    bounded_file::read(path, limits::CERTIFICATE_FILE_BYTES_MAX).map_err(|error| error.to_string())
}

fn key_error(key: &[u8], error: &Error) -> String {
    let text = String::from_utf8_lossy(key);
    let is_encrypted = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.contains(mark));
    match is_encrypted {
        true => "encrypted keys are not supported by this server".into(),
        false => describe(error),
    }
}

/// The certificates of the authorities in a file, in a directory, or in both.
///
/// # Errors
/// What is wrong with which file.
pub fn authorities(file: &str, directory: &str) -> Result<Arc<RootCertStore>, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(authority_certificates(file, directory)?);
    Ok(Arc::new(store))
}

/// The certificates in a file, in a directory, or in both: at least one that can be that of an
/// authority. An empty name means none.
///
/// # Errors
/// What is wrong with which file.
pub(super) fn authority_certificates(
    file: &str,
    directory: &str,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |path: &Path, error: String| {
        let path = path.display();
        format!("Failed to configure CA certificate(s) file/directory: {path}: {error}")
    };
    let mut files: Vec<PathBuf> = Vec::new();
    if !directory.is_empty() {
        let path = Path::new(directory);
        let entries = fs::read_dir(path).map_err(|error| failed(path, error.to_string()))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files.extend(paths.filter(|path| path.is_file()));
        files.sort();
    }
    let (mut found, mut store) = (Vec::new(), RootCertStore::empty());
    for path in &files {
        // A directory may contain other files: OpenSSL reads only those that are named by hashes.
        found.extend(certificates(path).unwrap_or_default());
    }
    store.add_parsable_certificates(found.iter().cloned());
    if !file.is_empty() {
        let path = Path::new(file);
        for certificate in certificates(path).map_err(|error| failed(path, error))? {
            store.add(certificate.clone()).map_err(|error| failed(path, error.to_string()))?;
            found.push(certificate);
        }
    }
    match store.is_empty() {
        true => Err(failed(Path::new(directory), "no certificate was found".into())),
        false => Ok(found),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if certificates.is_empty() => Err("no certificate was found".into()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(describe(&error)),
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => "no private key was found".into(),
        error => error.to_string(),
    }
}
