//! The servers under test: Lockwheel with a frozen clock, or a real `redis-server`.

use std::net::SocketAddr;

use lockwheel_engine::settings::{CompatVersion, Settings};

use crate::redis_server::RedisServer;
use crate::wire::Wire;
use crate::words;

/// The mode in which a server under test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A standalone server.
    Standalone,
    /// The only node of a cluster, with all slots.
    Cluster,
    /// A sentinel without masters.
    Sentinel,
}

/// The first two numbers of a version of Redis or Valkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    valkey: bool,
    numbers: (u32, u32),
}

impl Release {
    /// Parses `7.2`, `7.2.4` or `valkey-8.1`.
    pub fn parse(text: &str) -> Option<Release> {
        let numbers = text.strip_prefix("valkey-").unwrap_or(text);
        let mut parts = numbers.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return None };
        Some(Release { valkey: numbers != text, numbers: (major, minor) })
    }
}

/// The versions that a server reports.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    redis: Release,
    valkey: Option<Release>,
}

impl Version {
    /// Whether the server has the features of a release.
    pub fn has(self, since: Release) -> bool {
        let own = if since.valkey { self.valkey } else { Some(self.redis) };
        own.is_some_and(|own| own.numbers >= since.numbers)
    }

    /// The version that Lockwheel must report to behave like this server; at least its default.
    fn compat(self) -> CompatVersion {
        let default = CompatVersion::default();
        let Release { valkey, numbers: (major, minor) } = self.valkey.unwrap_or(self.redis);
        let name = format!("{}{major}.{minor}", if valkey { "valkey-" } else { "" });
        let version = CompatVersion::from_name(&name).unwrap_or(default);
        if version == CompatVersion::Redis70 { default } else { version }
    }
}

/// A server under test.
pub enum Target {
    /// Lockwheel, in this process.
    Lockwheel(Box<lockwheel::Server>),
    /// A real server, the reference.
    Redis(RedisServer),
}

impl Target {
    /// A new Lockwheel with a frozen clock.
    pub fn lockwheel() -> Target {
        let server = lockwheel::Server::builder().frozen_clock().start();
        Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
    }

    /// A new Lockwheel to compare with `oracle`: it uses the system clock and reports the same
    /// version, and a second engine verifies the effects of its commands.
    pub fn lockwheel_like(oracle: &Target, kind: Kind) -> Target {
        let mut settings = Settings::default();
        settings.compat_version = oracle.version().compat();
        settings.verify_effects = true;
        settings.port = 0;
        settings.apply("bind", "127.0.0.1").expect("an address");
        settings.cluster_enabled = kind == Kind::Cluster;
        settings.sentinel = (kind == Kind::Sentinel).then(Box::default);
        let server = lockwheel::Builder::from_settings(settings).start();
        Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
    }

    /// A new `redis-server`, if one is installed.
    pub fn redis() -> Option<Target> {
        Target::redis_of(Kind::Standalone)
    }

    /// As [`Target::redis`], of the given kind.
    pub fn redis_of(kind: Kind) -> Option<Target> {
        RedisServer::start_of(kind).map(Target::Redis)
    }

    /// All targets: Lockwheel, and a real server if one is installed.
    pub fn all() -> Vec<Target> {
        std::iter::once(Target::lockwheel()).chain(Target::redis()).collect()
    }

    /// The name for failure messages.
    pub fn name(&self) -> &'static str {
        match self {
            Target::Lockwheel(_) => "lockwheel",
            Target::Redis(_) => "redis-server",
        }
    }

    /// The versions that the server reports.
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

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        match self {
            Target::Lockwheel(server) => server.addr(),
            Target::Redis(server) => server.address(),
        }
    }

    /// A new connection with this protocol version.
    pub fn connect(&self, protocol: u8) -> Wire {
        Wire::connect(self.address(), protocol)
    }

    /// Runs one line of text as a command on a connection of its own.
    pub fn run(&self, line: &str) -> Vec<u8> {
        self.connect(2).call(&words(line))
    }
}
