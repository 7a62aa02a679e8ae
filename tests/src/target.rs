//! The server under test: Lockwheel, or a real `redis-server`.

use std::net::SocketAddr;

use lockwheel_engine::settings::{CompatVersion, Settings};

use crate::redis_server::RedisServer;
use crate::wire::Wire;
use crate::{say, words};

/// What a server under test is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server by itself.
    Standalone,
    /// The only node of a cluster, with all slots.
    Cluster,
    /// A sentinel that knows no master.
    Sentinel,
}

/// The first two numbers of a version, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    valkey: bool,
    numbers: (u32, u32),
}

impl Release {
    /// Reads `7.2`, `7.2.4` or `valkey-8.1`.
    pub fn parse(text: &str) -> Option<Release> {
        let numbers = text.strip_prefix("valkey-").unwrap_or(text);
        let mut parts = numbers.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return None };
        Some(Release { valkey: numbers != text, numbers: (major, minor) })
    }
}

/// What a server says it is.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    redis: Release,
    valkey: Option<Release>,
}

impl Version {
    /// Whether it has what came with a release.
    pub fn has(self, since: Release) -> bool {
        let own = if since.valkey { self.valkey } else { Some(self.redis) };
        own.is_some_and(|own| own.numbers >= since.numbers)
    }

    /// What Lockwheel has to announce to be like it: nothing of before what is its usual.
    fn compat(self) -> CompatVersion {
        let usual = CompatVersion::default();
        let Release { valkey, numbers: (major, minor) } = self.valkey.unwrap_or(self.redis);
        let name = format!("{}{major}.{minor}", if valkey { "valkey-" } else { "" });
        let version = CompatVersion::from_name(&name).unwrap_or(usual);
        if version == CompatVersion::Redis70 { usual } else { version }
    }
}

/// A server under test.
pub enum Target {
    /// Ours, in this process.
    Lockwheel(Box<lockwheel::Server>),
    /// The oracle.
    Redis(RedisServer),
}

impl Target {
    /// A fresh Lockwheel whose clock is stopped.
    pub fn lockwheel() -> Target {
        let server = lockwheel::Server::builder().frozen_clock().start();
        Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
    }

    /// A fresh Lockwheel to be compared with `oracle`: its time is the machine's, and it has what
    /// the other has.
    pub fn lockwheel_like(oracle: &Target, kind: Kind) -> Target {
        let mut settings = Settings::default();
        settings.compat_version = oracle.version().compat();
        settings.port = 0;
        settings.apply("bind", "127.0.0.1").expect("an address");
        settings.cluster_enabled = kind == Kind::Cluster;
        settings.sentinel = (kind == Kind::Sentinel).then(Box::default);
        let server = lockwheel::Builder::from_settings(settings).start();
        Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
    }

    /// A fresh `redis-server`, or a line saying that the comparison is skipped.
    pub fn redis() -> Option<Target> {
        Target::redis_of(Kind::Standalone)
    }

    /// As [`Target::redis`], of some kind.
    pub fn redis_of(kind: Kind) -> Option<Target> {
        let server = RedisServer::start_of(kind);
        if server.is_none() {
            say("skipped: no redis-server found");
        }
        server.map(Target::Redis)
    }

    /// Every target there is: Lockwheel always, a real server where one is installed.
    pub fn all() -> Vec<Target> {
        std::iter::once(Target::lockwheel()).chain(Target::redis()).collect()
    }

    /// For failure messages.
    pub fn name(&self) -> &'static str {
        match self {
            Target::Lockwheel(_) => "lockwheel",
            Target::Redis(_) => "redis-server",
        }
    }

    /// What it says it is.
    pub fn version(&self) -> Version {
        let info = self.run("INFO server");
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let redis = field("redis_version:").and_then(Release::parse);
        let valkey = field("valkey_version:").map(|version| format!("valkey-{version}"));
        Version {
            redis: redis.expect("INFO names the version"),
            valkey: valkey.and_then(|version| Release::parse(&version)),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Target::Lockwheel(server) => server.addr(),
            Target::Redis(server) => server.address(),
        }
    }

    /// A new connection speaking `protocol`.
    pub fn connect(&self, protocol: u8) -> Wire {
        Wire::connect(self.address(), protocol)
    }

    /// Runs one line of text as a command on a connection of its own.
    pub fn run(&self, line: &str) -> Vec<u8> {
        self.connect(2).call(&words(line))
    }
}
