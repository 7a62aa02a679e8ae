//! A real `redis-server`, the oracle: found on `PATH`, started on a free loopback port, ended with
//! the value that owns it.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Names the program to use instead of the one on `PATH`.
const PROGRAM_VARIABLE: &str = "LEASEHOLD_TEST_REDIS_SERVER";
/// Set to 1 where a missing `redis-server` is a failure: in CI.
const REQUIRE_VARIABLE: &str = "LEASEHOLD_REQUIRE_REDIS";
/// A free port can be taken by somebody else before the server binds it; so often we try again.
const PORT_ATTEMPTS: usize = 10;

/// A running `redis-server`, empty, with its default configuration.
pub struct RedisServer {
    child: Child,
    /// Kept open, or the server's next log line would fail.
    _log: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts one, or returns `None` where none is installed and none is required.
    pub fn start() -> Option<RedisServer> {
        let Some(program) = program() else {
            let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
            assert!(!required, "{REQUIRE_VARIABLE}=1, but there is no redis-server on PATH");
            return None;
        };
        let started = (0..PORT_ATTEMPTS).find_map(|_| RedisServer::start_on(&program, free_port()));
        Some(started.expect("redis-server starts"))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn start_on(program: &PathBuf, port: u16) -> Option<RedisServer> {
        let mut child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server can be run");
        let mut log = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        while log.read_line(&mut line).is_ok_and(|length| length > 0) {
            if line.contains("Ready to accept connections") {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                return Some(RedisServer { child, _log: log, address });
            }
            line.clear();
        }
        let _ = child.wait();
        None
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|it| it.is_file())
}

/// A loopback port that nobody listens at: for now.
pub fn free_port() -> u16 {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    probe.local_addr().expect("its address").port()
}
