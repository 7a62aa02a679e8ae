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

/// The name of each demo, and what it does.
const NAMES: &[(&str, Demo, &str)] = &[
    (
        "redis-sentinel",
        Demo::RedisSentinel,
        "Redis with two replicas and three sentinels; the primary is killed while the replicas \
         lag, or suspended",
    ),
    (
        "redis-restart",
        Demo::RedisRestart,
        "one Redis without persistence, which loses all locks when it is killed and started again",
    ),
    (
        "redlock-clock",
        Demo::RedlockClock,
        "Redlock on five Redis; the wall clocks of three at a time are moved",
    ),
    (
        "lockwheel",
        Demo::Lockwheel,
        "three nodes of Lockwheel; the leader is killed, suspended and started again",
    ),
    (
        "lockwheel-restart",
        Demo::LockwheelRestart,
        "one Lockwheel with a log, which is killed and started again",
    ),
];

impl Demo {
    /// The names of all demos.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, ..)| *name)
    }

    /// The servers, and what happens to them.
    pub fn description(self) -> &'static str {
        NAMES.iter().find(|(_, demo, _)| *demo == self).map_or("", |(.., text)| text)
    }
}

impl FromStr for Demo {
    type Err = String;

    fn from_str(text: &str) -> Result<Demo, String> {
        let found = NAMES.iter().find(|(name, ..)| *name == text).map(|(_, demo, _)| *demo);
        found.ok_or_else(|| {
            let names: Vec<_> = Demo::names().collect();
            format!("it is not one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, demo, _)| demo == self).map_or("", |(name, ..)| name);
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
