//! The server that is attacked, in its own process, so that a crash can be observed.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::{Address, Endpoint};

use crate::daemon::{Daemon, Folder, command};
use crate::process::{HeldResources, eventually};
use crate::redis_server::free_port;

/// The file with the daemon's standard error, which shows panics.
const ERRORS: &str = "errors.txt";

/// The server that is attacked.
pub struct AttackTarget {
    daemon: Daemon,
    port: u16,
    errors: String,
}

impl AttackTarget {
    /// Starts a server with these settings, on a free port and with a log file.
    pub fn start(settings: &[&str]) -> AttackTarget {
        let folder = Folder::new();
        let (errors, log) = (folder.path(ERRORS), folder.path("log.txt"));
        let port = free_port();
        let port_text = port.to_string();
        let own = ["--port", &port_text, "--bind", "127.0.0.1", "--logfile", &log];
        let mut command = command(&folder, &[&own[..], settings].concat());
        command.stderr(File::create(&errors).expect("a file"));
        let daemon = Daemon::spawn(folder, command, "");
        let server = AttackTarget { daemon, port, errors };
        eventually("the daemon", || server.try_connect(2, Duration::from_secs(1)).is_ok());
        server
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// A new connection with this time-out for replies.
    pub fn try_connect(&self, protocol: u8, timeout: Duration) -> io::Result<Wire> {
        connect(self.address(), protocol, timeout)
    }

    /// The resources of the process.
    pub fn held(&self) -> HeldResources {
        HeldResources::by(self.daemon.process_id())
    }

    /// The problem of the server, if any: it has ended, does not reply, or has panicked.
    pub fn problem(&mut self, timeout: Duration) -> Option<String> {
        if let Some(status) = self.daemon.status() {
            return Some(format!("the server has ended: {status}\n{}", self.errors()));
        }
        let ping = self.try_connect(2, timeout).and_then(|mut wire| wire.call(&["PING"]));
        match ping {
            Err(error) => Some(format!("the server does not answer: {error}\n{}", self.errors())),
            Ok(reply) if reply.text != b"PONG" => Some(format!("PING: {}", reply.notation())),
            Ok(_) => self.panic(),
        }
    }

    /// Ends the server. Returns its problem, if any.
    pub fn end(mut self, timeout: Duration) -> Option<String> {
        if let Some(problem) = self.problem(timeout) {
            return Some(problem);
        }
        self.daemon.signal("TERM");
        let status = self.daemon.end();
        match status.success() {
            true => self.panic(),
            false => Some(format!("it ended with {status}\n{}", self.errors())),
        }
    }

    fn panic(&self) -> Option<String> {
        let errors = self.errors();
        errors.contains("panicked").then_some(errors)
    }

    fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

/// A new connection to a server with this time-out for replies.
pub fn connect(address: SocketAddr, protocol: u8, timeout: Duration) -> io::Result<Wire> {
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let address = Address { endpoint, user: None, password: None, database: None };
    Wire::connect(&address, protocol, timeout)
}
