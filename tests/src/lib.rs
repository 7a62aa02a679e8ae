//! The harness of the integration tests: servers, raw connections, and commands that must give
//! the same replies on Lockwheel and on a real `redis-server`.
//!
//! It uses the connection and the reply parser of the compatibility suite, which share no code
//! with the server, so that an error there cannot hide itself.

pub mod attack;
pub mod certificates;
pub mod cluster;
pub mod daemon;
pub mod differential;
pub mod faulty;
pub mod left_out;
pub mod load;
pub mod log_oracle;
pub mod process;
pub mod random_inputs;
pub mod recorded_suite;
pub mod redis_server;
pub mod replay;
pub mod scripts;
pub mod suites;
pub mod target;
pub mod tiers;
pub mod wire;
pub mod wrong;

use lockwheel::{Error, Gate, Reply, Server};
pub use lockwheel_compat::wire::frame;
use lockwheel_compat::wire::frame::Frame;

/// Protocol versions of every comparison.
pub const PROTOCOLS: [u8; 2] = [2, 3];

/// Prints lines on standard error, such as the reason why a test compared nothing.
#[allow(clippy::print_stderr)] // The only place where the harness prints.
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// Starts a server with these settings.
pub fn start(settings: &[(&str, &str)]) -> Server {
    let builder = Server::builder();
    let builder =
        settings.iter().fold(builder, |builder, (name, value)| builder.config(name, value));
    builder.start().expect("a server")
}

/// Runs a line of words as a command, in this process.
pub fn call(server: &Server, command: &str) -> Reply {
    server.call_raw(&command.split(' ').collect::<Vec<&str>>()).expect("an answer")
}

/// The number of blocked clients.
pub fn blocked_clients(server: &Server) -> usize {
    let Reply::Verbatim { text, .. } = call(server, "INFO clients") else { panic!("no text") };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

/// Waits until a gate holds a client, as long as [`process::eventually`]; returns its number.
///
/// # Errors
/// If the server has ended.
pub fn wait_at(gate: &Gate<'_>) -> Result<u64, Error> {
    process::eventually("a client at the gate", || gate.fired().is_ok_and(|count| count > 0));
    gate.wait()
}

/// A connection to a server in RESP2.
pub fn connect(server: &Server) -> wire::Wire {
    wire::Wire::connect(server.addr(), 2)
}

/// Splits a line into words, with the quoting of `redis-cli`.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    lockwheel_compat::words::split(line).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Parses exactly one reply.
pub fn frame_of(reply: &[u8]) -> Frame {
    Frame::whole(reply).unwrap_or_else(|| panic!("not one whole reply: {}", frame::show(reply)))
}
