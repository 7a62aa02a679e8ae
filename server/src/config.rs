//! Stub.
use crate::engine::notify::Events;
pub const REDIS_VERSION: &str = "7.2.4";
pub struct Config { pub databases: u32, pub requirepass: Option<String>, pub notify_keyspace_events: Events }
impl Default for Config { fn default() -> Self { Config { databases: 16, requirepass: None, notify_keyspace_events: Events::empty() } } }
