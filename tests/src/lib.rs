//! The harness of the integration tests: servers to talk to, raw connections, and conversations
//! that must read the same on Leasehold and on a real `redis-server`.
//!
//! It judges from outside: nothing here uses the server's own parser, so a mistake there cannot
//! hide itself.

pub mod conversation;
pub mod daemon;
pub mod differential;
pub mod frame;
pub mod process;
pub mod redis_server;
pub mod scripts;
pub mod target;
pub mod wire;
pub mod words;

/// The protocol versions every comparison runs in.
pub const PROTOCOLS: [u8; 2] = [2, 3];

/// Says on standard error why a test compared nothing.
#[allow(clippy::print_stderr)] // The one place where the harness speaks to whoever runs it.
pub fn say(line: &str) {
    eprintln!("{line}");
}
