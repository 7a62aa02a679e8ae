//! The servers, from environment variables.

use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Servers of `REDIS_SERVERS` that only one test uses, since it stops them or changes their state.
pub const OF_RSLOCK_WITH_ALL: Range<usize> = 0..3;
/// Servers for a test that stops one of them.
pub const OF_RSLOCK_WITH_ONE_DEAD: Range<usize> = 3..6;
/// Servers for a test that stops two of them.
pub const OF_RSLOCK_WITHOUT_QUORUM: Range<usize> = 6..9;
/// A server for a test that flushes its scripts.
pub const OF_SCRIPT_FLUSH: Range<usize> = 9..10;

/// The server that most tests share.
pub fn main() -> String {
    required("REDIS_URL")
}

/// Some of the servers that a test may stop.
pub fn disposable(which: Range<usize>) -> Vec<String> {
    let servers = required("REDIS_SERVERS");
    let servers: Vec<_> = servers.split(',').map(str::to_owned).collect();
    servers[which].to_vec()
}

/// A server that is not always available.
pub fn optional(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}

fn required(variable: &str) -> String {
    optional(variable).unwrap_or_else(|| panic!("{variable} is not set"))
}

/// A name that is unique in this run of the suite and in all earlier ones.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}:{}:{number}", std::process::id())
}
