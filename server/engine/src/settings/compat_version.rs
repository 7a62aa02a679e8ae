//! `compat-version`: the announced server and version, which determine the available commands and
//! options. Those that all versions have behave as in Redis 7.2.

use super::types::choice;

choice! {
    /// A server and version that can be announced.
    #[derive(Default)]
    CompatVersion {
        /// Redis 7.0.
        Redis70 = "7.0",
        /// Redis 7.2, the behaviour that is implemented.
        #[default]
        Redis72 = "7.2",
        /// Redis 7.4.
        Redis74 = "7.4",
        /// Redis 8.0.
        Redis80 = "8.0",
        /// Redis 8.2.
        Redis82 = "8.2",
        /// Redis 8.4: `SET IFEQ` and related options, `DELEX`, `DIGEST`.
        Redis84 = "8.4",
        /// Valkey 8.0.
        Valkey80 = "valkey-8.0",
        /// Valkey 8.1: `SET IFEQ`.
        Valkey81 = "valkey-8.1",
        /// Valkey 9.0: `DELIFEQ`.
        Valkey90 = "valkey-9.0",
    }
}

/// Which servers have a feature. Valkey has everything that Redis had when Valkey forked from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Redis and all versions of Valkey.
    Both,
    /// Redis only.
    Redis,
    /// Valkey only.
    Valkey,
}

impl CompatVersion {
    /// The announced version of Redis; for Valkey, the version that it forked from.
    pub const fn redis_version(self) -> &'static str {
        match self {
            CompatVersion::Redis70 => "7.0.15",
            CompatVersion::Redis74 => "7.4.0",
            CompatVersion::Redis80 => "8.0.0",
            CompatVersion::Redis82 => "8.2.0",
            CompatVersion::Redis84 => "8.4.0",
            CompatVersion::Redis72
            | CompatVersion::Valkey80
            | CompatVersion::Valkey81
            | CompatVersion::Valkey90 => "7.2.4",
        }
    }

    /// The announced version of Valkey, if any.
    pub const fn valkey_version(self) -> Option<&'static str> {
        match self {
            CompatVersion::Valkey80 => Some("8.0.0"),
            CompatVersion::Valkey81 => Some("8.1.0"),
            CompatVersion::Valkey90 => Some("9.0.0"),
            _ => None,
        }
    }

    /// The name and version of the server in `HELLO`.
    pub fn introduction(self) -> (&'static str, &'static str) {
        match self.valkey_version() {
            Some(version) => ("valkey", version),
            None => ("redis", self.redis_version()),
        }
    }

    /// Whether this version has a feature that `maker` introduced in version `since`.
    pub fn has(self, maker: Vendor, since: &str) -> bool {
        let has = |version| release(since) <= release(version);
        match (maker, self.valkey_version()) {
            (Vendor::Both, _) | (Vendor::Redis, None) => has(self.redis_version()),
            (Vendor::Valkey, Some(version)) => has(version),
            (Vendor::Redis, Some(_)) | (Vendor::Valkey, None) => false,
        }
    }
}

/// The first two numbers of a version.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_announced_releases() {
        for &version in CompatVersion::ALL {
            let announced = version.valkey_version().unwrap_or(version.redis_version());
            let name = version.name();
            let name = name.strip_prefix("valkey-").unwrap_or(name);
            assert_eq!(release(name), release(announced));
        }
    }

    #[test]
    fn later_features_of_one_vendor_are_missing_from_the_other() {
        let having = |maker, since| {
            let all = CompatVersion::ALL.iter().filter(|version| version.has(maker, since));
            all.map(|version| version.name()).collect::<Vec<_>>().join(" ")
        };
        let valkey = "valkey-8.0 valkey-8.1 valkey-9.0";
        assert_eq!(having(Vendor::Both, "7.2.0"), format!("7.2 7.4 8.0 8.2 8.4 {valkey}"));
        assert_eq!(having(Vendor::Both, "1.0.0").split(' ').count(), CompatVersion::ALL.len());
        assert_eq!(having(Vendor::Redis, "8.0.0"), "8.0 8.2 8.4");
        assert_eq!(having(Vendor::Valkey, "8.1.0"), "valkey-8.1 valkey-9.0");
    }
}
