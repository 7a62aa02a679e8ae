//! What is common to the servers of both kinds.

use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_compat::wire::frame::Frame;
use nix::sys::signal::Signal;

use crate::network::Network;

/// How long a server that runs takes to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// Three servers, one of which serves: the leader of a cluster, or the master.
pub(crate) trait Servers {
    /// The hosts of the servers.
    fn network(&self) -> &Network;

    /// The addresses of the servers, by host.
    fn addresses(&self) -> Vec<String>;

    /// The addresses of what answers `SENTINEL`.
    fn sentinels(&self) -> Vec<String>;

    /// Kills a server.
    fn kill(&mut self, index: usize) -> Result<(), String>;

    /// Starts a server again.
    fn start_again(&mut self, index: usize) -> Result<(), String>;

    /// Sends a signal to a server.
    fn signal(&self, index: usize, signal: Signal) -> Result<(), String>;

    /// Waits until all servers work together, and returns the one that serves.
    fn wait_until_whole(&mut self) -> Result<usize, String>;

    /// Keeps the files when the program ends, and returns their paths.
    fn keep_folders(self: Box<Self>) -> Vec<String>;
}

/// The answer of a server to a line of words; `None` if there is none.
pub(crate) fn ask(address: &str, line: &str) -> Option<Frame> {
    let mut wire = open(address, ANSWER_TIMEOUT)?;
    wire.call(&line.split(' ').collect::<Vec<_>>()).ok()
}

/// Connects to `HOST:PORT`.
pub(crate) fn open(address: &str, timeout: Duration) -> Option<Wire> {
    let (host, port) = address.rsplit_once(':')?;
    Wire::open(&Endpoint::Tcp(host.to_owned(), port.parse().ok()?), timeout).ok()
}
