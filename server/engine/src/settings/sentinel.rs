//! The configuration of a sentinel: the `sentinel` lines of a configuration file, which `SENTINEL
//! MONITOR`, `SET`, `REMOVE` and `CONFIG SET` change later. Invariant: no two masters have the same
//! name.

use core::net::IpAddr;

/// The configuration of a sentinel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sentinel {
    /// The configured id: 40 hex digits.
    pub my_id: Option<String>,
    /// The masters in the order in which they were added.
    pub masters: Vec<Master>,
    /// Whether masters may have host names. Clients then get the name: the server does not resolve
    /// it.
    pub resolve_hostnames: bool,
    /// Stored for clients that read it; no effect.
    pub announce_hostnames: bool,
    /// Stored for clients that read it; no effect.
    pub announce_ip: String,
    /// Stored for clients that read it; no effect.
    pub announce_port: u16,
}

/// A monitored master.
#[derive(Clone, Debug, PartialEq)]
pub struct Master {
    /// The name that clients ask for.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Number of sentinels that have to agree on a failure.
    pub quorum: u32,
    /// Milliseconds of silence after which a master counts as down.
    pub down_after_ms: u64,
    /// Time limit of a failover.
    pub failover_timeout_ms: u64,
    /// Replicas that are reconfigured at the same time after a failover.
    pub parallel_syncs: u32,
    /// The other sentinels of this master.
    pub sentinels: Vec<OtherSentinel>,
}

/// Another sentinel.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherSentinel {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its id: 40 hex digits.
    pub id: String,
}

/// Why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOptionError {
    /// There is no such option.
    Unknown,
    /// The option does not accept this value.
    Invalid,
}

const NO_SUCH_MASTER: &str = "No such master with specified name.";
const UNRECOGNIZED: &str = "Unrecognized sentinel configuration statement.";

impl Sentinel {
    /// The master of this name.
    pub fn master(&self, name: &[u8]) -> Option<&Master> {
        self.masters.iter().find(|master| master.name.as_bytes() == name)
    }

    /// The master of this name.
    pub fn master_mut(&mut self, name: &[u8]) -> Option<&mut Master> {
        self.masters.iter_mut().find(|master| master.name.as_bytes() == name)
    }

    /// Whether `host` is valid for a master.
    pub fn takes_host(&self, host: &str) -> bool {
        let is_name = || !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        host.parse::<IpAddr>().is_ok() || self.resolve_hostnames && is_name()
    }

    /// Adds a master.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn monitor(
        &mut self,
        name: &str,
        host: &str,
        port: i64,
        quorum: i64,
    ) -> Result<&Master, &'static str> {
        let quorum = u32::try_from(quorum).unwrap_or(0);
        if quorum == 0 {
            return Err("Quorum must be 1 or greater.");
        }
        if !self.takes_host(host) {
            return Err("Can't resolve instance hostname.");
        }
        let port = u16::try_from(port).map_err(|_| "Invalid port number.")?;
        if self.master(name.as_bytes()).is_some() {
            return Err("Duplicate master name.");
        }
        let host = host.to_owned();
        self.masters.push(Master { host, port, quorum, ..Master::named(name) });
        self.masters.last().ok_or(NO_SUCH_MASTER)
    }

    /// Applies a line of a configuration file, given as the words after `sentinel`.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn apply_line(&mut self, words: &[&str]) -> Result<(), &'static str> {
        let Some((statement, rest)) = words.split_first() else { return Err(UNRECOGNIZED) };
        match (statement.to_ascii_lowercase().as_str(), rest) {
            ("monitor", [name, host, port, quorum]) => {
                let port = port.parse().map_err(|_| "Invalid port number.")?;
                self.monitor(name, host, port, quorum.parse().unwrap_or(0)).map(drop)
            }
            ("myid", [id]) if id.len() == 40 => {
                self.my_id = Some((*id).to_owned());
                Ok(())
            }
            ("myid", [_]) => Err("Malformed Sentinel id in myid option."),
            ("known-sentinel", [name, host, port, id]) => {
                let peer = OtherSentinel {
                    host: (*host).to_owned(),
                    port: port.parse().map_err(|_| "Wrong hostname or port for sentinel.")?,
                    id: (*id).to_owned(),
                };
                let master = self.master_mut(name.as_bytes()).ok_or(NO_SUCH_MASTER)?;
                master.sentinels.push(peer);
                Ok(())
            }
            // Lines that a sentinel writes itself, and options for active sentinels only: ignored.
            ("known-sentinel" | "known-replica" | "known-slave", [_, _, _])
            | ("config-epoch" | "leader-epoch", [_, _])
            | (
                "current-epoch" | "deny-scripts-reconfig" | "sentinel-user" | "sentinel-pass",
                [_],
            ) => Ok(()),
            (option, [value]) if self.set(option, value).is_ok() => Ok(()),
            (option, [name, value @ ..]) if Master::has_option(option, value.len()) => {
                let master = self.master_mut(name.as_bytes()).ok_or(NO_SUCH_MASTER)?;
                master.set(option, value).map_err(|_| "Invalid value.")
            }
            _ => Err(UNRECOGNIZED),
        }
    }

    /// The options that apply to all masters, with their values.
    pub fn options(&self) -> [(&'static str, String); 6] {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        [
            ("resolve-hostnames", yes_no(self.resolve_hostnames)),
            ("announce-hostnames", yes_no(self.announce_hostnames)),
            ("announce-ip", self.announce_ip.clone()),
            ("announce-port", self.announce_port.to_string()),
            ("sentinel-user", String::new()),
            ("sentinel-pass", String::new()),
        ]
    }

    /// Sets one of [`Sentinel::options`].
    ///
    /// # Errors
    /// If there is no such option, or it does not accept the value.
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), SetOptionError> {
        let yes_no = match value.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(SetOptionError::Invalid),
        };
        match option.to_ascii_lowercase().as_str() {
            "resolve-hostnames" => self.resolve_hostnames = yes_no?,
            "announce-hostnames" => self.announce_hostnames = yes_no?,
            "announce-ip" => self.announce_ip = value.to_owned(),
            "announce-port" => {
                self.announce_port = value.parse().map_err(|_| SetOptionError::Invalid)?;
            }
            "sentinel-user" | "sentinel-pass" => {}
            _ => return Err(SetOptionError::Unknown),
        }
        Ok(())
    }
}

impl Master {
    /// A master with the options that Redis has by default, and without an address.
    pub(crate) fn named(name: &str) -> Master {
        Master {
            name: name.to_owned(),
            host: String::new(),
            port: 0,
            quorum: 1,
            down_after_ms: 30_000,
            failover_timeout_ms: 180_000,
            parallel_syncs: 1,
            sentinels: Vec::new(),
        }
    }

    /// Whether this option exists and has this number of values.
    pub fn has_option(option: &str, values: usize) -> bool {
        match option.to_ascii_lowercase().as_str() {
            "rename-command" => values == 2,
            "quorum" | "down-after-milliseconds" | "failover-timeout" | "parallel-syncs" => {
                values == 1
            }
            "master-reboot-down-after-period" | "auth-pass" | "auth-user" => values == 1,
            "notification-script" | "client-reconfig-script" => values == 1,
            _ => false,
        }
    }

    /// Sets an option that [`Master::has_option`]. Options that only a sentinel with a connection
    /// to its master uses are not stored.
    ///
    /// # Errors
    /// If the option does not accept the value.
    pub fn set(&mut self, option: &str, values: &[&str]) -> Result<(), SetOptionError> {
        fn positive<N: std::str::FromStr + Default + PartialEq>(
            text: &str,
        ) -> Result<N, SetOptionError> {
            let number = text.parse().map_err(|_| SetOptionError::Invalid)?;
            if number == N::default() { Err(SetOptionError::Invalid) } else { Ok(number) }
        }
        let value = values.first().copied().unwrap_or_default();
        match option.to_ascii_lowercase().as_str() {
            "quorum" => self.quorum = positive(value)?,
            "down-after-milliseconds" => self.down_after_ms = positive(value)?,
            "failover-timeout" => self.failover_timeout_ms = positive(value)?,
            "parallel-syncs" => self.parallel_syncs = positive(value)?,
            "master-reboot-down-after-period" => {
                value.parse::<u64>().map_err(|_| SetOptionError::Invalid)?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel_of(lines: &[&str]) -> Result<Sentinel, &'static str> {
        let mut sentinel = Sentinel::default();
        for line in lines {
            sentinel.apply_line(&line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(sentinel)
    }

    #[test]
    fn configuration_lines_are_applied() {
        let id = "0123456789012345678901234567890123456789";
        let sentinel = sentinel_of(&[
            &format!("myid {id}"),
            "monitor m 127.0.0.1 6379 2",
            "down-after-milliseconds m 5000",
            "FAILOVER-timeout m 6000",
            "parallel-syncs m 3",
            "auth-pass m secret",
            "announce-port 7",
            "config-epoch m 0",
            "known-replica m 127.0.0.1 6380",
            &format!("known-sentinel m 127.0.0.1 26380 {id}"),
        ])
        .expect("a good configuration");
        let master = sentinel.master(b"m").expect("a master");
        assert_eq!((master.port, master.quorum, master.parallel_syncs), (6379, 2, 3));
        assert_eq!((master.down_after_ms, master.failover_timeout_ms), (5000, 6000));
        assert_eq!((master.sentinels.len(), sentinel.announce_port), (1, 7));
        assert_eq!(sentinel.my_id.as_deref(), Some(id));
    }

    #[test]
    fn errors_of_lines_are_those_of_redis() {
        let monitor = "monitor m 127.0.0.1 6379 2";
        for (lines, expected) in [
            (&["monitor m 127.0.0.1 6379 0"][..], "Quorum must be 1 or greater."),
            (&["monitor m 127.0.0.1 x 1"], "Invalid port number."),
            (&["monitor m localhost 6379 1"], "Can't resolve instance hostname."),
            (&[monitor, monitor], "Duplicate master name."),
            (&["parallel-syncs n 1"], NO_SUCH_MASTER),
            (&[monitor, "down-after-milliseconds m 0"], "Invalid value."),
            (&["myid x"], "Malformed Sentinel id in myid option."),
            (&["announce-port x"], UNRECOGNIZED),
            (&["foo"], UNRECOGNIZED),
        ] {
            assert_eq!(sentinel_of(lines), Err(expected), "{lines:?}");
        }
        assert!(sentinel_of(&["resolve-hostnames yes", "monitor m localhost 6379 1"]).is_ok());
    }
}
