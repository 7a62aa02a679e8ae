//! The daemon that is attacked, in a process of its own, so that its end is seen from outside.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lockwheel_compat::address::{Address, Endpoint};
use lockwheel_compat::wire::Wire;

use crate::daemon::{Daemon, Folder, command};
use crate::process::{Held, eventually};
use crate::redis_server::free_port;

/// What the daemon writes its errors to, a panic among them.
const ERRORS: &str = "errors.txt";

/// A daemon that is attacked.
pub struct Victim {
    daemon: Daemon,
    port: u16,
    errors: String,
}

impl Victim {
    /// Starts one with these settings, besides a port and a log that nobody has to read.
    pub fn start(settings: &[&str]) -> Victim {
        let folder = Folder::new();
        let (errors, log) = (folder.path(ERRORS), folder.path("log.txt"));
        let port = free_port();
        let port_text = port.to_string();
        let own = ["--port", &port_text, "--bind", "127.0.0.1", "--logfile", &log];
        let mut command = command(&folder, &[&own[..], settings].concat());
        command.stderr(File::create(&errors).expect("a file"));
        let daemon = Daemon::spawn(folder, command, "");
        let victim = Victim { daemon, port, errors };
        eventually("the daemon", || victim.try_connect(2, Duration::from_secs(1)).is_ok());
        victim
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// A new connection, whose replies may take so long.
    pub fn try_connect(&self, protocol: u8, patience: Duration) -> io::Result<Wire> {
        connect(self.address(), protocol, patience)
    }

    /// What it holds.
    pub fn held(&self) -> Held {
        Held::by(self.daemon.process_id())
    }

    /// What is wrong with it, if something is: it has ended, does not answer, or has panicked.
    pub fn trouble(&mut self, patience: Duration) -> Option<String> {
        if let Some(status) = self.daemon.status() {
            return Some(format!("the server has ended: {status}\n{}", self.errors()));
        }
        let ping = self.try_connect(2, patience).and_then(|mut wire| wire.call(&["PING"]));
        match ping {
            Err(error) => Some(format!("the server does not answer: {error}\n{}", self.errors())),
            Ok(reply) if reply.text != b"PONG" => Some(format!("PING: {}", reply.notation())),
            Ok(_) => self.panic(),
        }
    }

    /// Ends it. Tells what went wrong until then.
    pub fn end(mut self, patience: Duration) -> Option<String> {
        if let Some(trouble) = self.trouble(patience) {
            return Some(trouble);
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

/// A new connection to a server, whose replies may take so long.
pub fn connect(address: SocketAddr, protocol: u8, patience: Duration) -> io::Result<Wire> {
    let endpoint = Endpoint::Tcp(address.ip().to_string(), address.port());
    let address = Address { endpoint, user: None, password: None, database: None };
    Wire::connect(&address, protocol, patience)
}
