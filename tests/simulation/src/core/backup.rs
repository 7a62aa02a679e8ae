//! A cluster that begins with the backup of a server. The server has granted locks after it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lockwheel::simulation::{SimulatedServer, StartOptions, begin_cluster_from};
use lockwheel::{Client, Reply};
use lockwheel_compat::judge::history::{self, Action, Answer};
use lockwheel_compat::random::Random;
use lockwheel_log::Disk;
use lockwheel_simulated_disk::SimulatedDisk;

use super::{Core, SECOND_US};
use crate::actors::{request, words};
use crate::machine::peer;
use crate::plan::{NativeLock, Recipe, Role};

/// Span by which the wall clock of the server was ahead: its fencing tokens are greater than those
/// that begin at the present time.
const AHEAD_US: i64 = 3_600 * SECOND_US;

/// Most steps of the log until a request has its reply.
const STEPS_MAX: usize = 100;

/// The owner of all locks that the server has granted.
const OWNER: &str = "former";

/// The server, and a client in its process.
struct FormerServer {
    /// Ends before the process.
    client: Client,
    server: SimulatedServer,
}

impl FormerServer {
    /// Starts it. With a restart guard, its backup has a record of the lease ceiling.
    fn start(disk: &SimulatedDisk, random: &mut Random) -> Result<FormerServer, String> {
        let guard = if random.once_in(4) { "yes" } else { "no" };
        let options = StartOptions {
            settings: &[("appendonly", "yes"), ("restart-guard", guard)],
            disk: Arc::new(disk.clone()),
            seed: random.bits(),
            segment_bytes_max: 1 << 20,
            node: None,
        };
        let server = SimulatedServer::start(&options).map_err(|error| error.to_string())?;
        let client = server.client().map_err(|error| error.to_string())?;
        Ok(FormerServer { server, client })
    }

    fn call(&mut self, words: &[String]) -> Result<Reply, String> {
        let mut call = pin!(self.client.call_raw_async(words));
        for _ in 0..STEPS_MAX {
            match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(Reply::Error(error))) => {
                    return Err(format!("{words:?}: {error:?}"));
                }
                Poll::Ready(reply) => return reply.map_err(|error| error.to_string()),
                Poll::Pending => self.server.log_step(),
            }
        }
        Err(format!("{words:?}: no reply"))
    }

    /// Acquires a lock; returns its fencing token, if it has one.
    fn acquire(&mut self, role: Role, lock: &str, ttl_us: i64) -> Result<Option<i64>, String> {
        match role {
            Role::Locks(recipe, _) => {
                let action = Action::Acquire { ttl_us, shared: false };
                self.call(&request(recipe, lock, OWNER, action, 0)).map(|_| None)
            }
            _ => {
                let permits = if lock.starts_with("permits") { " PERMITS 1 OF 3" } else { "" };
                let ttl_ms = ttl_us / 1000;
                let line = format!("LOCK.ACQUIRE {lock} {OWNER} TTL {ttl_ms}{permits}");
                token(&self.call(&words(&line))?).map(Some).ok_or_else(|| "no token".to_owned())
            }
        }
    }
}

impl Core {
    /// Begins the cluster, with the first machine, from the backup of a server. The other nodes are
    /// admitted. No lease that is missing in the backup is longer than `lease_us`, that of a key in
    /// it.
    pub(super) fn begin_with_backup(&mut self, lease_us: i64) -> Result<(), String> {
        let mut random = Random::of(self.plan.seed, 40_000);
        self.machines[0].step_wall(AHEAD_US);
        self.machines[0].use_clocks(0);
        let disk = SimulatedDisk::new();
        let mut former = FormerServer::start(&disk, &mut random)?;
        let lease_ms = lease_us / 1000;
        former.call(&words(&format!("SET backup:key {OWNER} PX {lease_ms}")))?;
        former.call(&words(&format!("LOCK.ACQUIRE backup:lock {OWNER} TTL {lease_ms}")))?;
        let backup = copy(&disk)?;
        for (role, lock) in self.locks() {
            let ttl_us = random.between(lease_us / 2, lease_us) / 1000 * 1000;
            let token = former.acquire(role, &lock, ttl_us)?;
            let action = Action::Acquire { ttl_us, shared: false };
            let asked = history::Event::asked(&lock, OWNER, action, 0);
            self.record(history::Event { token, ..asked.answered(Answer::Granted, 0) });
        }
        drop(former);
        let disk: Arc<dyn Disk> = Arc::new(self.machines[0].disk.clone());
        let begun = begin_cluster_from(&backup, peer("1"), &disk, random.bits());
        begun.map_err(|error| error.to_string())?;
        self.machines[0].step_wall(-AHEAD_US);
        for server in 1..self.plan.servers {
            self.machines[server].set_node_id(0);
            self.begin_to_admit(server);
        }
        Ok(())
    }

    /// The locks of the clients that one server can grant alone and with a lease.
    fn locks(&self) -> Vec<(Role, String)> {
        let mut locks: Vec<(Role, String)> = Vec::new();
        for (_, role) in &self.plan.roles {
            let name = match role {
                Role::Locks(recipe @ (Recipe::Plain | Recipe::Redisson), lock) => recipe.key(*lock),
                Role::NativeLocks(kind @ (NativeLock::Exclusive | NativeLock::Semaphore), lock) => {
                    kind.key(*lock)
                }
                _ => continue,
            };
            if locks.iter().all(|(_, other)| *other != name) {
                locks.push((*role, name));
            }
        }
        locks
    }
}

/// A copy of a disk.
fn copy(disk: &SimulatedDisk) -> Result<SimulatedDisk, String> {
    let backup = SimulatedDisk::new();
    for name in disk.names().map_err(|error| error.to_string())? {
        backup.set_contents(&name, &disk.contents(&name).unwrap_or_default());
    }
    Ok(backup)
}

/// The fencing token in a reply of `LOCK.ACQUIRE`.
fn token(reply: &Reply) -> Option<i64> {
    let number = |value: &Reply| match value {
        Reply::Integer(number) => Some(*number),
        _ => None,
    };
    let is_token = |name: &Reply| *name == Reply::bulk("token");
    match reply {
        Reply::Map(fields) => {
            fields.iter().find(|(name, _)| is_token(name)).and_then(|(_, value)| number(value))
        }
        Reply::Array(items) => {
            let at = items.iter().position(is_token)?;
            items.get(at + 1).and_then(number)
        }
        _ => None,
    }
}
