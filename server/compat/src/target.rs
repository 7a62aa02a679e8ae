//! What is known about a server under test, and the place in it where the suite may leave traces
//! until it is done: an empty database, and keys that begin with the run's name.

use std::io;
use std::time::Duration;

use super::address::Address;
use super::case::Need;
use super::frame::Frame;
use super::stage::Scene;
use super::wire::{Wire, is_silence, told};
use super::{PATIENCE, time};

/// How many databases are looked at for an empty one.
const DATABASES_MAX: u32 = 16;

/// How often a server is asked for a sign of life, and how long to wait in between.
const DEATH_ATTEMPTS: usize = 3;
const DEATH_PAUSE: Duration = Duration::from_millis(100);

/// A server and what it says about itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is, with the database the suite works in.
    pub address: Address,
    /// What it calls itself and its version, for people: `redis 7.0.15`.
    pub name: String,
    /// The version of Redis it announces.
    pub redis: (u32, u32),
    /// The version of Valkey it announces.
    pub valkey: Option<(u32, u32)>,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// Whether the database was empty, so that nobody else uses it.
    pub own_database: bool,
    /// Whether what belongs to all may be flushed.
    pub may_flush: bool,
    /// What every key and channel of this run begins with.
    pub prefix: String,
    /// How long a reply may take.
    pub patience: Duration,
}

impl Target {
    /// Connects, asks what it is, and looks for an empty database.
    pub fn explore(address: &Address, prefix: &str, may_flush: bool) -> io::Result<Target> {
        let mut wire = Wire::connect(address, 2, PATIENCE)?;
        let info = wire.call(&["INFO", "server"])?;
        if info.kind == b'-' && info.text.starts_with(b"NOAUTH") {
            return Err(io::Error::other("it wants a password: redis://:password@host:port"));
        }
        let info = text(&info);
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line[name.len()..].trim().to_owned())
        };
        let redis = field("redis_version:");
        let valkey = field("valkey_version:");
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
        let resp3 = wire.call(&["HELLO", "3"]).is_ok_and(|reply| reply.kind == b'%');
        let numbers = |text: Option<String>| text.as_deref().and_then(version);
        let mut target = Target {
            address: address.clone(),
            name,
            redis: numbers(redis).unwrap_or((0, 0)),
            valkey: numbers(valkey),
            resp3,
            own_database: false,
            may_flush,
            prefix: prefix.to_owned(),
            patience: PATIENCE,
        };
        target.choose_database()?;
        Ok(target)
    }

    /// The database of the URL, or else the last one that is empty, or else the first.
    fn choose_database(&mut self) -> io::Result<()> {
        let mut wire = Wire::connect(&self.address, 2, PATIENCE)?;
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

    /// Its address and the suite's database, for people.
    pub fn place(&self) -> String {
        let database = self.address.database.unwrap_or(0);
        format!("{}, database {database}", self.address)
    }

    /// Connects to the suite's database.
    pub fn connect(&self, protocol: u8) -> io::Result<Wire> {
        Wire::connect(&self.address, protocol, self.patience)
    }

    /// Why it is as good as dead, if it is: it is asked a few times.
    pub fn death(&self) -> Option<String> {
        let mut problem = None;
        for _ in 0..DEATH_ATTEMPTS {
            match self.connect(2).and_then(|mut wire| wire.call(&["PING"])) {
                Ok(_) => return None,
                // To ask a server that hangs again takes as long again.
                Err(error) if is_silence(&error) => return Some(told(&error)),
                Err(error) => problem = Some(told(&error)),
            }
            time::sleep(DEATH_PAUSE);
        }
        problem
    }

    /// Whether it is what a case needs; otherwise why not.
    pub fn offers(&self, needs: &[Need]) -> Result<(), String> {
        for need in needs {
            match *need {
                Need::Redis(major, minor) if self.redis < (major, minor) => {
                    return Err(format!("needs Redis {major}.{minor} or later"));
                }
                Need::Valkey(major, minor) if self.valkey < Some((major, minor)) => {
                    return Err(format!("needs Valkey {major}.{minor} or later"));
                }
                Need::Database if !self.own_database => {
                    return Err("needs an empty database".to_owned());
                }
                Need::Flush if !self.may_flush => {
                    return Err("flushes what belongs to all: --allow-flush".to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Conversations held on a target, whose time is everybody's.
pub struct OnTarget<'a>(pub &'a Target);

impl Scene for OnTarget<'_> {
    fn connect(&mut self, _client: &str, protocol: u8) -> io::Result<Wire> {
        self.0.connect(protocol)
    }

    fn pass(&mut self, span: Duration) -> io::Result<()> {
        time::sleep(span);
        Ok(())
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
