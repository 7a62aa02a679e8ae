//! Runs a real `redis-server`, the oracle: found on `PATH`, started on a free loopback port, and
//! ended when the value is dropped.
//!
//! A variable names another server, with words before it if needed:
//! `LOCKWHEEL_TEST_REDIS_SERVER="chroot /opt/other valkey-server"`. It must see the same folder for
//! temporary files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::certificates::Certificates;
use crate::daemon::Folder;
use crate::left_out;
use crate::process::eventually;
use crate::target::Kind;
use crate::wire::Wire;

/// The command of another server than the one on `PATH`.
const PROGRAM_VARIABLE: &str = "LOCKWHEEL_TEST_REDIS_SERVER";
/// The folder of [`debian_13`].
const DEBIAN_13_VARIABLE: &str = "LOCKWHEEL_TEST_DEBIAN_13";
/// Lower ports belong to well-known services.
const LOWEST_PORT: u16 = 10_000;
/// Coprime to the number of ports, so that all are used.
const PORTS_PER_PROCESS: usize = 61;
/// Number of attempts to find a port: another program can take a free one before the server binds
/// it.
const PORT_ATTEMPTS: usize = 10;

/// A running `redis-server`, empty, with its default configuration.
pub struct RedisServer {
    child: Child,
    /// The server's working folder.
    _folder: Folder,
    /// Output of the server, kept open so that it can write its log.
    _log: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts a server, or returns `None` if none is installed and none is required.
    pub fn start() -> Option<RedisServer> {
        RedisServer::start_of(Kind::Standalone)
    }

    /// As [`RedisServer::start`], for a kind of server.
    pub fn start_of(kind: Kind) -> Option<RedisServer> {
        let program = program_or_none()?;
        let start = |_| {
            let folder = Folder::new();
            let arguments = arguments(kind, &folder);
            RedisServer::start_on(&program, &arguments, folder, free_port())
        };
        let server = (0..PORT_ATTEMPTS).find_map(start).expect("redis-server starts");
        if kind == Kind::Cluster {
            server.take_all_slots();
        }
        Some(server)
    }

    /// As [`RedisServer::start`], with a port for TLS too. Clients may have a certificate there.
    pub fn start_with_tls(certificates: &Certificates) -> Option<(RedisServer, u16)> {
        let program = program_or_none()?;
        let start = |_| {
            let (folder, tls_port) = (Folder::new(), free_port());
            let mut arguments = arguments(Kind::Standalone, &folder);
            arguments.extend(certificates.options(tls_port));
            arguments.extend(["--tls-auth-clients", "optional"].map(String::from));
            let server = RedisServer::start_on(&program, &arguments, folder, free_port())?;
            Some((server, tls_port))
        };
        Some((0..PORT_ATTEMPTS).find_map(start).expect("redis-server starts"))
    }

    /// Starts a server that loads this append-only file. `None` if no server is installed and none
    /// is required; an error if it does not load the file.
    pub fn start_with(file: &[u8]) -> Option<Result<RedisServer, String>> {
        let program = program_or_none()?;
        let start = |_| {
            let folder = Folder::new();
            fs::create_dir(folder.path("log")).expect("a folder");
            fs::write(folder.path("log/keys.aof.1.base.aof"), file).expect("a file");
            let manifest = "file keys.aof.1.base.aof seq 1 type b\n";
            fs::write(folder.path("log/keys.aof.manifest"), manifest).expect("a file");
            let words = ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--dir"];
            let mut arguments: Vec<String> = words.map(String::from).into();
            arguments.push(folder.path(""));
            let words = ["--appenddirname", "log", "--appendfilename", "keys.aof"];
            arguments.extend(words.map(String::from));
            arguments.extend(["--aof-load-truncated", "no"].map(String::from));
            RedisServer::start_on(&program, &arguments, folder, free_port())
        };
        let server = (0..PORT_ATTEMPTS).find_map(start);
        Some(server.ok_or("redis-server does not load the file".to_owned()))
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn start_on(
        program: &[String],
        arguments: &[String],
        folder: Folder,
        port: u16,
    ) -> Option<RedisServer> {
        let (first, rest) = program.split_first().expect("a program");
        let mut child = Command::new(first)
            .args(rest)
            .args(arguments)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server can be run");
        let mut log = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        while log.read_line(&mut line).is_ok_and(|length| length > 0) {
            if line.contains("Ready to accept connections") || line.contains("Sentinel ID is") {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                return Some(RedisServer { child, _folder: folder, _log: log, address });
            }
            line.clear();
        }
        let _ = child.wait();
        None
    }

    /// Assigns all slots and waits until the node reports its cluster as complete.
    fn take_all_slots(&self) {
        let mut wire = Wire::connect(self.address, 2);
        wire.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        eventually("the cluster's state", || {
            let info = wire.call(&["CLUSTER", "INFO"]);
            String::from_utf8_lossy(&info).contains("cluster_state:ok")
        });
    }
}

fn arguments(kind: Kind, folder: &Folder) -> Vec<String> {
    let nodes = folder.path("nodes.conf");
    let conf = folder.path("sentinel.conf");
    let bus_port = free_port().to_string();
    let words: &[&str] = match kind {
        Kind::Standalone => &["--save", "", "--appendonly", "no"],
        Kind::Cluster => &[
            "--save",
            "",
            "--cluster-enabled",
            "yes",
            "--cluster-announce-ip",
            "127.0.0.1",
            "--cluster-config-file",
            &nodes,
            "--cluster-port",
            &bus_port,
        ],
        Kind::Sentinel => {
            std::fs::write(&conf, "").expect("a file");
            &[&conf, "--sentinel"]
        }
    };
    words.iter().map(ToString::to_string).collect()
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As [`program`]; notes what is left out without it.
fn program_or_none() -> Option<Vec<String>> {
    let program = program();
    if program.is_none() {
        left_out::without("redis-server");
    }
    program
}

/// The command of the server, if there is one.
pub fn program() -> Option<Vec<String>> {
    if let Ok(words) = std::env::var(PROGRAM_VARIABLE) {
        return Some(words.split_whitespace().map(String::from).collect());
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join("redis-server"));
    let place = places.find(|place| place.is_file())?;
    Some(vec![place.to_string_lossy().into_owned()])
}

/// The folder of a Debian 13 installation with servers that are run by `chroot`, if one is named.
pub fn debian_13() -> Option<PathBuf> {
    std::env::var_os(DEBIAN_13_VARIABLE).map(PathBuf::from)
}

/// A free loopback port outside the range from which the system assigns ports, so that no other
/// program gets it by chance. This process gets each port once.
pub fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let assigned = assigned_ports();
    let ports: Vec<u16> =
        (LOWEST_PORT..=u16::MAX).filter(|port| !assigned.contains(port)).collect();
    // Concurrent processes begin at different ports.
    let begin = std::process::id() as usize * PORTS_PER_PROCESS;
    loop {
        let port = ports[(begin + NEXT.fetch_add(1, Ordering::Relaxed)) % ports.len()];
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// The range from which the system assigns ports.
fn assigned_ports() -> RangeInclusive<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = range.unwrap_or_default();
    let mut bounds = range.split_whitespace().map_while(|bound| bound.parse().ok());
    // The default of Linux.
    bounds.next().unwrap_or(32_768)..=bounds.next().unwrap_or(60_999)
}
