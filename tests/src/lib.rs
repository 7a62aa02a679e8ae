//! The harness of the integration tests: servers to talk to, raw connections, and conversations
//! that must read the same on Lockwheel and on a real `redis-server`.
//!
//! It judges from outside, with the connection and the reader of replies of the compatibility
//! suite, which uses nothing of the server: a mistake there cannot hide itself.

pub mod attack;
pub mod conversation;
pub mod daemon;
pub mod differential;
pub mod faulty;
pub mod process;
pub mod redis_server;
pub mod scripts;
pub mod suites;
pub mod target;
pub mod tiers;
pub mod wire;

pub use lockwheel_compat::frame;
use lockwheel_compat::frame::Frame;

/// The protocol versions every comparison runs in.
pub const PROTOCOLS: [u8; 2] = [2, 3];

/// Says on standard error why a test compared nothing.
#[allow(clippy::print_stderr)] // The one place where the harness speaks to whoever runs it.
pub fn say(line: &str) {
    eprintln!("{line}");
}

/// The words of a line of a test, quoted as in `redis-cli`.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    lockwheel_compat::words::split(line).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Takes apart what is one whole reply.
pub fn frame_of(reply: &[u8]) -> Frame {
    Frame::whole(reply).unwrap_or_else(|| panic!("not one whole reply: {}", frame::show(reply)))
}
