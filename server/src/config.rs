//! The settings. Replaced by the table of directives.

use crate::engine::notify::Events;

/// The Redis version we announce.
pub const REDIS_VERSION: &str = "7.2.4";

/// The settings.
#[expect(missing_docs, reason = "placeholder")]
pub struct Config {
    pub databases: u32,
    pub requirepass: Option<String>,
    pub notify_keyspace_events: Events,
}

impl Default for Config {
    fn default() -> Self {
        Config { databases: 16, requirepass: None, notify_keyspace_events: Events::empty() }
    }
}
