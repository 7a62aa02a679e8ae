//! Free ports for servers.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports of servers, below those from which Linux chooses the ports of clients: while no server
/// listens, a client could otherwise connect to its own port, and the server could not listen there
/// again.
const PORTS: Range<u16> = 15_000..30_000;

/// Coprime to the number of ports, so that programs that run at once begin far from each other.
const PORTS_PER_PROCESS: u32 = 61;

/// A port that is free on these hosts. This process gets each port once, if there are enough.
///
/// # Errors
/// If there is none.
pub fn free_port(hosts: &[&str]) -> Result<u16, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let end = PORTS.end.min(first_of_clients());
    let ports = if end > PORTS.start { PORTS.start..end } else { PORTS };
    let count = u32::from(ports.end.saturating_sub(ports.start));
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS);
    for _ in 0..count {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = ports.start + u16::try_from(place).unwrap_or_default();
        if hosts.iter().all(|host| TcpListener::bind((*host, port)).is_ok()) {
            return Ok(port);
        }
    }
    Err(format!("there is no free port from {} to {}", ports.start, ports.end))
}

/// A port that is free on the loopback address.
pub(super) fn local_port() -> Result<u16, String> {
    free_port(&[&Ipv4Addr::LOCALHOST.to_string()])
}

/// The first port of those that the system gives to clients.
fn first_of_clients() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|word| word.parse().ok());
    first.unwrap_or(u16::MAX)
}
