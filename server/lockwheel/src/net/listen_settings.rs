//! The settings that only the network uses, read once at the start: addresses, threads, unix socket
//! and pidfile.

use std::net::IpAddr;
use std::path::Path;

use lockwheel_engine::settings::{Settings, directive};

/// Where and how a server listens. The engine keeps the values of these directives for `CONFIG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenSettings {
    /// TCP port; 0 means none if there is another socket, and any free one otherwise.
    pub(crate) port: u16,
    /// TLS port, if any; 0 means any free one.
    pub(crate) tls_port: Option<u16>,
    /// Addresses to listen on; one with a `-` before it is optional.
    pub(crate) bind: Vec<String>,
    /// Connections that the kernel queues before they are accepted.
    pub(crate) tcp_backlog: u32,
    /// Path of the unix socket, if any.
    pub(crate) unixsocket: Option<String>,
    /// Permission bits of the unix socket; 0 leaves them to the umask.
    pub(crate) unixsocketperm: u32,
    /// Threads that serve connections.
    pub(crate) io_threads: usize,
    /// Path of the pidfile, if any.
    pub(crate) pidfile: Option<String>,
}

impl ListenSettings {
    /// Reads the directives.
    pub(crate) fn of(settings: &Settings) -> ListenSettings {
        ListenSettings {
            port: settings.port,
            tls_port: Some(settings.get(directive::TLS_PORT)).filter(|&port| port != 0),
            bind: settings.get(directive::BIND),
            tcp_backlog: settings.get(directive::TCP_BACKLOG),
            unixsocket: settings.get(directive::UNIXSOCKET),
            unixsocketperm: settings.get(directive::UNIXSOCKETPERM),
            io_threads: settings.get(directive::IO_THREADS) as usize,
            pidfile: settings.get(directive::PIDFILE),
        }
    }

    /// Whether the only socket is a unix socket whose path no server has used.
    pub(crate) fn is_at_new_socket(&self) -> bool {
        let is_new = |path: &String| !Path::new(path).exists();
        self.port == 0 && self.tls_port.is_none() && self.unixsocket.as_ref().is_some_and(is_new)
    }
}

/// Whether clients on other machines can connect to one of these addresses.
pub(crate) fn are_remote(bind: &[String]) -> bool {
    let is_local = |address: &String| {
        let address = address.strip_prefix('-').unwrap_or(address);
        address == "localhost"
            || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    !bind.iter().all(is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_are_recognised() {
        let are_remote = |bind: &str| {
            are_remote(&bind.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(!are_remote("127.0.0.1 -::1") && !are_remote("localhost"));
        assert!(are_remote("127.0.0.1 10.0.0.1") && are_remote("*") && are_remote("-::*"));
    }

    #[test]
    fn directives_are_read() {
        let mut settings = Settings::default();
        let defaults = ListenSettings::of(&settings);
        assert_eq!((defaults.port, defaults.io_threads, defaults.tcp_backlog), (6379, 1, 511));
        assert_eq!(defaults.bind, ["127.0.0.1", "-::1"]);
        assert_eq!(
            (defaults.unixsocket, defaults.pidfile, defaults.unixsocketperm),
            (None, None, 0)
        );
        for (name, value) in [
            ("bind", "::1"),
            ("unixsocket", "/run/s"),
            ("unixsocketperm", "700"),
            ("io-threads", "3"),
            ("pidfile", "p"),
        ] {
            settings.apply(name, value).expect("a value of its kind");
        }
        let read = ListenSettings::of(&settings);
        assert_eq!((read.bind, read.unixsocketperm), (vec!["::1".to_owned()], 0o700));
        assert_eq!(read.unixsocket.as_deref(), Some("/run/s"));
        assert_eq!((read.io_threads, read.pidfile.as_deref()), (3, Some("p")));
    }
}
