//! What TLS connections are accepted with.

use std::sync::Arc;

use lockwheel_engine::settings::{ConfigError, Settings, SettingsReader, SettingsUser};
use parking_lot::RwLock;
use rustls::ServerConfig;
use tracing::{info, warn};

use super::server_config::build;

/// What TLS connections are accepted with, from now on until it is replaced. Connections that exist
/// keep theirs.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsConfig(Arc<RwLock<Option<Arc<ServerConfig>>>>);

impl TlsConfig {
    /// The current configuration; `None` if the server does not listen for TLS.
    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().clone()
    }

    /// Reads the files that the directives name. If that fails, the old configuration stays.
    ///
    /// # Errors
    /// What is wrong, with the name of the directive or file.
    pub(crate) fn load(&self, settings: &Settings) -> Result<(), String> {
        let config = build(settings)?;
        *self.0.write() = Some(Arc::new(config));
        Ok(())
    }

    /// As [`TlsConfig::load`], if there is a configuration, while others may load one: that of a
    /// later [`TlsConfig::load`] stays. Returns whether there is one.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<bool, String> {
        let Some(before) = self.current() else { return Ok(false) };
        let config = build(settings)?;
        let mut current = self.0.write();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &before)) {
            *current = Some(Arc::new(config));
        }
        Ok(true)
    }
}

/// `CONFIG SET` of a directive of TLS reads the files again, also if the value stays the same: a
/// certificate may have been renewed in its place.
impl SettingsUser for TlsConfig {
    fn reader(&self, next: &Settings, names: &[&'static str]) -> Option<SettingsReader> {
        let name = *names.iter().find(|name| name.starts_with("tls-"))?;
        self.current()?;
        let (tls, next) = (self.clone(), next.clone());
        Some(Box::new(move || match build(&next) {
            Ok(config) => Ok(Box::new(move || {
                *tls.0.write() = Some(Arc::new(config));
                info!("TLS is configured anew");
            })),
            Err(error) => {
                warn!("Failed to configure TLS, the old configuration stays in use: {error}");
                Err(ConfigError::Refused { name, reason: format!("{FAILED} {error}") })
            }
        }))
    }
}

/// The beginning of the error of Redis, which refers to its log for the reason.
const FAILED: &str = "Unable to update TLS configuration. Check server logs.";
