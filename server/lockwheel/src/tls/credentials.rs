//! Reads certificates and private keys from PEM files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

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
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| key_error(key_file, &error));
    let key = provider.key_provider.load_private_key(key?);
    let key = key.map_err(|error| format!("Failed to load private key: {key_file}: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    // Some certificates cannot be compared with the key; clients decide about them.
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(format!("Failed to load private key: {key_file}: it is not that of {cert_file}"))
        }
        _ => Ok(certified),
    }
}

fn key_error(key_file: &str, error: &Error) -> String {
    let text = fs::read_to_string(key_file).unwrap_or_default();
    let is_encrypted = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.contains(mark));
    match is_encrypted {
        true => format!(
            "Failed to load private key: {key_file}: encrypted keys are not supported by this \
             server"
        ),
        false => format!("Failed to load private key: {key_file}: {}", describe(error)),
    }
}

/// The certificates of the authorities in a file, in a directory, or in both. An empty name
/// means none.
///
/// # Errors
/// What is wrong with which file.
pub fn authorities(file: &str, directory: &str) -> Result<Arc<RootCertStore>, String> {
    let failed = |path: &Path, error: String| {
        let path = path.display();
        format!("Failed to configure CA certificate(s) file/directory: {path}: {error}")
    };
    let mut files: Vec<PathBuf> = Vec::new();
    if !directory.is_empty() {
        let path = Path::new(directory);
        let entries = fs::read_dir(path).map_err(|error| failed(path, error.to_string()))?;
        let found = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files.extend(found.filter(|path| path.is_file()));
        files.sort();
    }
    let mut store = RootCertStore::empty();
    for path in &files {
        // A directory may contain other files: OpenSSL reads only those that are named by hashes.
        store.add_parsable_certificates(certificates(path).unwrap_or_default());
    }
    if !file.is_empty() {
        let path = Path::new(file);
        for certificate in certificates(path).map_err(|error| failed(path, error))? {
            store.add(certificate).map_err(|error| failed(path, error.to_string()))?;
        }
    }
    match store.is_empty() {
        true => Err(failed(Path::new(directory), "no certificate was found".into())),
        false => Ok(Arc::new(store)),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
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
