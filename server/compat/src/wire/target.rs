//! A server under test: its name, version and features, and where the suite may store keys while it
//! runs: in an empty database, with a prefix of the run.

use std::io;
use std::time::Duration;

use super::address::{Address, TlsMode};
use super::frame::Frame;
use crate::time::{self, Deadline};
use crate::wire::{Timeouts, Wire, describe, is_alert, is_end, is_silence};

/// The number of databases that are searched for an empty one.
const DATABASES_MAX: u32 = 16;

/// The number of attempts to reach a server before it counts as dead, and the pause in between.
const PING_ATTEMPTS: usize = 3;
const PING_PAUSE: Duration = Duration::from_millis(100);

/// The errors by which a server refuses to work for a client.
const REFUSALS: [&str; 3] = ["NOAUTH", "NOPERM", "DENIED"];

/// A server and what it reports about itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address, with the database that the suite uses.
    pub address: Address,
    /// Its name and version: `redis 7.0.15`.
    pub name: String,
    /// The version of Redis it reports.
    pub redis: (u32, u32),
    /// The version of Valkey it reports.
    pub valkey: Option<(u32, u32)>,
    /// The version of Lockwheel it reports.
    pub lockwheel: Option<(u32, u32)>,
    /// Whether it supports RESP3.
    pub resp3: bool,
    /// Whether the database was empty, so that no other program uses it.
    pub own_database: bool,
    /// Whether the server checks the certificate of the suite, which has one.
    pub checks_certificate: bool,
    /// Whether scripts and functions, which all databases share, may be flushed.
    pub may_flush: bool,
    /// The prefix of every key and channel of this run.
    pub prefix: String,
    /// How long its connections wait.
    pub timeouts: Timeouts,
}

/// A requirement on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A server that reports at least this version of Redis.
    Redis(u32, u32),
    /// A server that reports at least this version of Valkey.
    Valkey(u32, u32),
    /// A server that reports at least this version of Lockwheel.
    Lockwheel(u32, u32),
    /// A database that no other program uses.
    Database,
    /// The permission to flush scripts and functions.
    Flush,
    /// Connections with TLS.
    Tls,
    /// A certificate of the suite that the server checks, so that it can be required.
    Certificate,
}

impl Target {
    /// Connects, asks for name and version, looks for an empty database, and checks that the user
    /// may store keys, run scripts and publish messages.
    pub fn explore(
        address: &Address,
        prefix: &str,
        may_flush: bool,
        timeouts: Timeouts,
    ) -> io::Result<Target> {
        let begin = || -> io::Result<(Wire, Frame)> {
            let mut wire = Wire::connect(address, 2, timeouts)?;
            let info = wire.call(&["INFO", "server"])?;
            Ok((wire, info))
        };
        let (mut wire, info) = begin().map_err(without_reply)?;
        // Without the right to `INFO`, the server has no name.
        if !info.text.starts_with(b"NOPERM") {
            not_refused(&info)?;
        }
        let info = text(&info);
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line[name.len()..].trim().to_owned())
        };
        let redis = field("redis_version:");
        let valkey = field("valkey_version:");
        let lockwheel = field("lockwheel_version:");
        let own = ["lockwheel", "valkey", "dragonfly", "kvrocks", "garnet"];
        let own = own.iter().find_map(|name| Some((*name, field(&format!("{name}_version:"))?)));
        let name = match (own, &redis) {
            (Some((name, version)), _) => format!("{name} {version}"),
            (None, Some(version)) => format!("redis {version}"),
            (None, None) => "a server without INFO".to_owned(),
        };
        if field("redis_mode:").as_deref() == Some("cluster") {
            let advice = "the server is a node of a cluster: the suite uses keys of many slots";
            return Err(io::Error::other(advice));
        }
        // A server without these commands may close the connection.
        let resp3 = wire.call(&["HELLO", "3"]).is_ok_and(|reply| reply.kind == b'%');
        // Without a check, the server might refuse the certificate when a case requires one.
        let checks = |value: &Frame| matches!(&*value.text, b"yes" | b"optional");
        let checks_certificate = address.endpoint.has_certificate()
            && wire
                .call(&["CONFIG", "GET", "tls-auth-clients"])
                .is_ok_and(|reply| reply.items.get(1).is_some_and(checks));
        let numbers = |text: Option<String>| text.as_deref().and_then(version);
        let mut target = Target {
            address: address.clone(),
            name,
            redis: numbers(redis).unwrap_or((0, 0)),
            valkey: numbers(valkey),
            lockwheel: numbers(lockwheel),
            resp3,
            own_database: false,
            checks_certificate,
            may_flush,
            prefix: prefix.to_owned(),
            timeouts,
        };
        target.choose_database()?;
        target.check_rights()?;
        Ok(target)
    }

    /// An error if the server refuses what every run needs. A server without one of these commands
    /// may close the connection.
    fn check_rights(&self) -> io::Result<()> {
        let mut wire = self.connect(2)?;
        let key = format!("{}rights", self.prefix);
        let requests: [&[&str]; 4] = [
            &["SET", &key, "", "PX", "1"],
            &["DEL", &key],
            &["EVAL", "return 1", "0"],
            &["PUBLISH", &key, ""],
        ];
        for words in requests {
            let Ok(reply) = wire.call(words) else { break };
            not_refused(&reply)?;
        }
        Ok(())
    }

    /// Chooses the database of the URL, or else the last empty one, or else the first.
    fn choose_database(&mut self) -> io::Result<()> {
        let mut wire = self.connect(2)?;
        let mut is_empty = |database: u32| -> io::Result<bool> {
            let selected = wire.call(&["SELECT", &database.to_string()])?;
            Ok(selected.kind == b'+' && wire.call(&["DBSIZE"])?.text == b"0")
        };
        if let Some(database) = self.address.database {
            self.own_database = is_empty(database)?;
            return Ok(());
        }
        for database in (0..DATABASES_MAX).rev() {
            if is_empty(database)? {
                self.address.database = Some(database);
                self.own_database = true;
                return Ok(());
            }
        }
        self.address.database = Some(0);
        Ok(())
    }

    /// The address and the database, for messages.
    pub fn place(&self) -> String {
        let database = self.address.database.unwrap_or(0);
        format!("{}, database {database}", self.address)
    }

    /// Connects to the suite's database.
    pub fn connect(&self, protocol: u8) -> io::Result<Wire> {
        Wire::connect(&self.address, protocol, self.timeouts)
    }

    /// Connects to the port for TLS in another way, and sends nothing.
    pub fn connect_as(&self, mode: TlsMode) -> io::Result<Wire> {
        Wire::open(&self.address.endpoint.reached(mode), self.timeouts)
    }

    /// The same server, whose connections wait until this deadline.
    pub fn until(&self, deadline: Deadline) -> Target {
        Target { timeouts: Timeouts { deadline, ..self.timeouts }, ..self.clone() }
    }

    /// Why the server is dead or hangs, if it does. It is tried a few times.
    pub fn death(&self) -> Option<String> {
        let mut problem = None;
        for _ in 0..PING_ATTEMPTS {
            match self.connect(2).and_then(|mut wire| wire.call(&["PING"])) {
                Ok(_) => return None,
                // Another attempt with a server that hangs would take as long again.
                Err(error) if is_silence(&error) => return Some(describe(&error)),
                Err(error) => problem = Some(describe(&error)),
            }
            time::sleep(PING_PAUSE);
        }
        problem
    }

    /// Whether the server has what a case needs; otherwise the reason.
    pub fn offers(&self, needs: &[Need]) -> Result<(), String> {
        for need in needs {
            match *need {
                Need::Redis(major, minor) if self.redis < (major, minor) => {
                    return Err(format!("needs Redis {major}.{minor} or later"));
                }
                Need::Valkey(major, minor) if self.valkey < Some((major, minor)) => {
                    return Err(format!("needs Valkey {major}.{minor} or later"));
                }
                Need::Lockwheel(major, minor) if self.lockwheel < Some((major, minor)) => {
                    return Err(format!("needs Lockwheel {major}.{minor} or later"));
                }
                Need::Database if !self.own_database => {
                    return Err("needs an empty database".to_owned());
                }
                Need::Flush if !self.may_flush => {
                    return Err(
                        "flushes scripts or functions, which needs --allow-flush".to_owned()
                    );
                }
                Need::Tls if !self.address.endpoint.has_tls() => {
                    return Err("needs TLS: rediss://host:port".to_owned());
                }
                Need::Certificate if !self.checks_certificate => {
                    let needed = "needs --cert and --key, and a server that checks certificates";
                    return Err(needed.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The error if a server that was reached ends the first connection without a reply: it refuses the
/// client, or the port is for connections with TLS.
fn without_reply(error: io::Error) -> io::Error {
    match error {
        error if is_end(&error) => {
            io::Error::other("the server closed the connection before its first reply")
        }
        error if is_alert(&error) => io::Error::other(format!("no TLS connection: {error}")),
        error => error,
    }
}

/// An error if the server refuses to work for this client.
fn not_refused(reply: &Frame) -> io::Result<()> {
    let text = text(reply);
    match reply.kind == b'-' && REFUSALS.iter().any(|code| text.starts_with(code)) {
        true => Err(io::Error::other(text)),
        false => Ok(()),
    }
}

fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(&frame.text).into_owned()
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next().and_then(Result::ok).unwrap_or(0)))
}

impl Need {
    /// Reads the value of the attribute `needs` of a case.
    pub(crate) fn parse(text: &str) -> Result<Need, String> {
        let version = |text: &str| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        match text.split_once(' ') {
            None if text == "database" => return Ok(Need::Database),
            None if text == "flush" => return Ok(Need::Flush),
            None if text == "tls" => return Ok(Need::Tls),
            None if text == "certificate" => return Ok(Need::Certificate),
            Some(("redis", text)) => version(text).map(|(major, minor)| Need::Redis(major, minor)),
            Some(("valkey", text)) => {
                version(text).map(|(major, minor)| Need::Valkey(major, minor))
            }
            Some(("lockwheel", text)) => {
                version(text).map(|(major, minor)| Need::Lockwheel(major, minor))
            }
            _ => None,
        }
        .ok_or_else(|| format!("nothing that can be needed: {text}"))
    }
}
