//! The names of the demos.

use std::fmt;
use std::str::FromStr;

/// A demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demo {
    /// Redis with two replicas and three sentinels, whose primary is killed and stopped.
    RedisSentinel,
    /// One Redis without persistence, which is killed and started again.
    RedisRestart,
    /// Redlock on five Redis, whose wall clocks are moved. Needs `faketime`.
    RedlockClock,
    /// Three nodes of Lockwheel, whose leader is killed and stopped.
    Lockwheel,
    /// One Lockwheel with a log, which is killed and started again.
    LockwheelRestart,
}

const NAMES: &[(&str, Demo)] = &[
    ("redis-sentinel", Demo::RedisSentinel),
    ("redis-restart", Demo::RedisRestart),
    ("redlock-clock", Demo::RedlockClock),
    ("lockwheel", Demo::Lockwheel),
    ("lockwheel-restart", Demo::LockwheelRestart),
];

impl Demo {
    /// The names of all demos.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

impl FromStr for Demo {
    type Err = String;

    fn from_str(text: &str) -> Result<Demo, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, demo)| *demo);
        found.ok_or_else(|| {
            let names: Vec<_> = Demo::names().collect();
            format!("there is no demo {text}: write one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, demo)| demo == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::Demo;

    #[test]
    fn each_demo_has_a_name() {
        for name in Demo::names() {
            assert_eq!(name.parse::<Demo>().map(|demo| demo.to_string()).as_deref(), Ok(name));
        }
        let error = "redis".parse::<Demo>().expect_err("no name of a demo");
        assert!(error.ends_with(&Demo::names().collect::<Vec<_>>().join(", ")), "{error}");
    }
}
