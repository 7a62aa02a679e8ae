//! The server that is killed.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::load::{FaultSpan, now_us};

/// Ports of servers, below those from which Linux chooses the ports of clients: while no server
/// listens, a client could otherwise connect to its own port, and the server could not listen there
/// again.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// The longest time until the server is ready; far longer than it needs.
const READY_TIMEOUT_US: i64 = 120_000_000;
/// The longest time until a `PING` is answered.
const PING_TIMEOUT: Duration = Duration::from_secs(30);
const PING_INTERVAL: Duration = Duration::from_millis(2);

/// What keeps the locks over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// The log, with a flush before each reply
    Always,
    /// The log, with a flush each second
    Everysec,
    /// No log: the restart guard waits for the end of all leases
    Guard,
    /// Nothing: locks are lost and granted twice
    Memory,
}

impl Policy {
    /// Returns the shortest and the longest lease. The guard lasts as long as the longest.
    pub(crate) fn lease_ms(self) -> (u32, u32) {
        if self == Policy::Guard { (300, 600) } else { (1000, 3000) }
    }

    /// Returns whether the judge requires that locks survive a restart. `Memory` does not keep
    /// them, which the judge must find.
    pub(crate) fn keeps_locks(self) -> bool {
        self != Policy::Guard
    }

    fn arguments(self) -> Vec<&'static str> {
        let log = |policy| vec!["--appendonly", "yes", "--appendfsync", policy];
        match self {
            Policy::Always => log("always"),
            Policy::Everysec => log("everysec"),
            Policy::Guard => vec!["--restart-guard", "yes"],
            Policy::Memory => vec!["--restart-guard", "no"],
        }
    }
}

/// A server process and its folder.
pub(crate) struct Server {
    folder: Folder,
    port: u16,
    policy: Policy,
    child: Child,
}

impl Server {
    /// Starts a server in an empty folder.
    pub(crate) fn start(policy: Policy) -> Result<Server, String> {
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let first = std::process::id() % u32::from(PORTS.end - PORTS.start);
        let ports = PORTS.cycle().skip(first as usize).take(PORTS.len());
        let port = ports.into_iter().find(free).ok_or("there is no free port")?;
        let folder = Folder::new();
        let child = run(&folder, port, policy)?;
        Ok(Server { folder, port, policy, child })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Starts the server again, after a kill.
    pub(crate) fn start_again(&mut self) -> Result<(), String> {
        self.child = run(&self.folder, self.port, self.policy)?;
        Ok(())
    }

    /// Waits until the server answers commands.
    pub(crate) fn wait_until_ready(&mut self) -> Result<(), String> {
        let until_us = time::now_us() + READY_TIMEOUT_US;
        while time::now_us() < until_us {
            self.check_alive()?;
            if self.is_ready() {
                return Ok(());
            }
            time::sleep(PING_INTERVAL);
        }
        Err(format!("the server is not ready:\n{}", self.log()))
    }

    fn is_ready(&self) -> bool {
        let endpoint = Endpoint::Tcp(Ipv4Addr::LOCALHOST.to_string(), self.port);
        let Ok(mut wire) = Wire::open(&endpoint, PING_TIMEOUT) else { return false };
        let reply = wire.send(&["PING"]).and_then(|()| wire.read_with_bytes());
        reply.is_ok_and(|(_, bytes)| bytes == b"+PONG\r\n")
    }

    /// Returns an error if the process has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the server has ended, {status}:\n{}", self.log())),
            Err(error) => Err(format!("the server: {error}")),
        }
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<FaultSpan, String> {
        self.check_alive()?;
        let begin_us = now_us();
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map_err(|error| format!("the server cannot be killed: {error}"))?;
        Ok(FaultSpan { begin_us, end_us: now_us() })
    }

    /// Keeps the files when the program ends, and returns their path.
    pub(crate) fn keep_folder(self) -> String {
        let mut server = std::mem::ManuallyDrop::new(self);
        let _ = server.child.kill();
        let _ = server.child.wait();
        server.folder.path("")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(folder: &Folder, port: u16, policy: Policy) -> Result<Child, String> {
    let (port, dir) = (port.to_string(), folder.path(""));
    let mut arguments = vec!["--port", &port, "--bind", "127.0.0.1", "--dir", &dir];
    // A small log is rewritten often, so that many kills come while a snapshot is written.
    arguments.extend(["--auto-aof-rewrite-min-size", "64kb"]);
    arguments.extend(policy.arguments());
    // A log of this process alone is complete and short.
    let log = File::create(folder.path("log")).map_err(|error| format!("the log: {error}"))?;
    let mut command = daemon::command(folder, &arguments);
    command.stdout(Stdio::from(log));
    command.spawn().map_err(|error| format!("the server cannot be started: {error}"))
}
