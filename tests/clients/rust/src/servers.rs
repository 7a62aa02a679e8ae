//! The servers, as the environment names them.

use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Servers that a test ends are that test's alone. Here is who has which of `REDIS_SERVERS`.
pub const OF_RSLOCK_WITH_ALL: Range<usize> = 0..3;
/// One of them is ended.
pub const OF_RSLOCK_WITH_ONE_DEAD: Range<usize> = 3..6;
/// Two of them are ended.
pub const OF_RSLOCK_WITHOUT_QUORUM: Range<usize> = 6..9;
/// Its scripts are forgotten.
pub const OF_A_FORGETFUL_ONE: Range<usize> = 9..10;

/// The server that most tests share.
pub fn main() -> String {
    required("REDIS_URL")
}

/// Some of the servers that may be ended.
pub fn disposable(which: Range<usize>) -> Vec<String> {
    let servers = required("REDIS_SERVERS");
    let servers: Vec<_> = servers.split(',').map(str::to_owned).collect();
    servers[which].to_vec()
}

/// A server that is there or is not.
pub fn optional(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}

fn required(variable: &str) -> String {
    optional(variable).unwrap_or_else(|| panic!("{variable} is not set"))
}

/// A name that nobody else uses, on this run of the suite or on an earlier one.
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}:{}:{number}", std::process::id())
}
