//! Where a server of a demo is, and questions to it.

use std::fmt;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_compat::Address;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_compat::wire::frame::Frame;

use super::ports::local_port;
use super::program::{Folder, Program};
use crate::faults::FaultRun;

/// How long a server that runs takes to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a server takes until it answers after its start: far longer than it needs.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Where replicated servers run.
pub struct Hosts {
    /// The servers.
    pub servers: Vec<Place>,
    /// Returns the command that runs a command on the host of the server of that index.
    pub on: Box<dyn Fn(usize, Command) -> Command + Send>,
    /// The folder of their files.
    pub folder: Arc<Folder>,
}

impl Hosts {
    /// This number of servers at free places on this machine.
    pub(super) fn local(count: usize) -> Result<Hosts, String> {
        let servers = Place::locals(count)?;
        Ok(Hosts { servers, on: Box::new(|_, command| command), folder: Arc::new(Folder::new()?) })
    }
}

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// An IP address.
    pub host: String,
    /// A TCP port.
    pub port: u16,
}

impl Place {
    /// A free place on this machine.
    pub(super) fn local() -> Result<Place, String> {
        Ok(Place { host: Ipv4Addr::LOCALHOST.to_string(), port: local_port()? })
    }

    /// This number of free places on this machine.
    pub(super) fn locals(count: usize) -> Result<Vec<Place>, String> {
        (0..count).map(|_| Place::local()).collect()
    }

    /// The address for clients.
    pub(super) fn address(&self) -> Address {
        let endpoint = Endpoint::Tcp(self.host.clone(), self.port);
        Address { endpoint, user: None, password: None, database: None }
    }

    /// Whether an answer has this host and port as its elements from that one on.
    pub(super) fn is_in(&self, answer: &Frame, index: usize) -> bool {
        item(answer, index) == self.host && item(answer, index + 1) == self.port.to_string()
    }

    /// The answer of the server to a line of words; `None` if there is none.
    pub fn ask(&self, line: &str) -> Option<Frame> {
        let mut wire = Wire::connect(&self.address(), 2, ANSWER_TIMEOUT).ok()?;
        wire.call(&line.split(' ').collect::<Vec<_>>()).ok()
    }

    /// Waits until the server answers commands, or the run ends.
    ///
    /// # Errors
    /// If its program ends, or it does not answer for long.
    pub fn wait_until_ready(&self, program: &mut Program, run: &FaultRun) -> Result<(), String> {
        let ended = run.wait_for(READY_TIMEOUT, || match program.check_alive() {
            Err(reason) => Some(Err(reason)),
            Ok(()) => self.ask("PING").filter(|reply| reply.text == b"PONG").map(|_| Ok(())),
        });
        match ended {
            Some(outcome) => outcome,
            None if run.is_over() => Ok(()),
            None => Err(format!("the server at {self} is not ready:\n{}", program.last_lines())),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An element of an answer, as text.
pub(super) fn item(frame: &Frame, index: usize) -> String {
    frame.items.get(index).map_or(String::new(), text)
}

pub(super) fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(&frame.text).into_owned()
}
