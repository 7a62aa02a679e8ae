//! A started demo.

use std::path::Path;
use std::time::Duration;

use super::kind::Demo;
use super::place::Place;
use super::{lockwheel_cluster, redis_sentinel, redlock_clock, restarts};
use crate::faults::FaultSource;
use crate::target::{Target, Topology};

/// How long a client waits for a reply. Shorter than a primary is stopped, so that some clients go
/// to the next one, while others still wait when it goes on.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// A started demo, with a load that shows the failure within the time.
pub struct DemoRun {
    /// The servers.
    pub target: Target,
    /// What breaks them. It owns the servers: they end when it is dropped.
    pub faults: Box<dyn FaultSource>,
    /// Number of clients.
    pub clients: usize,
    /// Requests of all clients in a second.
    pub rate: u32,
    /// Longest lease. Longer than a failover takes.
    pub lease: Duration,
    /// Number of locks of each kind.
    pub locks: usize,
    /// Length of the run.
    pub duration: Duration,
}

impl DemoRun {
    pub(super) fn new(target: Target, faults: Box<dyn FaultSource>) -> DemoRun {
        DemoRun {
            target,
            faults,
            clients: 100,
            rate: 2000,
            lease: Duration::from_secs(8),
            locks: 20,
            duration: Duration::from_secs(90),
        }
    }
}

/// Starts the servers of a demo. `lockwheel_program` is the path of the program `lockwheel`.
///
/// # Errors
/// If a program is missing or a server cannot be started.
pub fn start(demo: Demo, lockwheel_program: &Path) -> Result<DemoRun, String> {
    match demo {
        Demo::RedisSentinel => redis_sentinel::start(),
        Demo::RedisRestart => restarts::redis(),
        Demo::RedlockClock => redlock_clock::start(),
        Demo::Lockwheel => lockwheel_cluster::start(lockwheel_program),
        Demo::LockwheelRestart => restarts::durable_lockwheel(lockwheel_program),
    }
}

/// The servers at these places.
pub(super) fn target(places: &[Place], topology: Topology) -> Target {
    Target {
        addresses: places.iter().map(Place::address).collect(),
        topology,
        reply_timeout: REPLY_TIMEOUT,
        sentinel_password: None,
    }
}
