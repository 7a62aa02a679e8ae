//! Locks without contention: each is taken and released again.

use lockwheel_comparison::Outcome;
use lockwheel_compat::cases::script;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, LOCK_3, UNLOCK_3};

use crate::measure::bare_server;
use crate::measure::effort::Effort;
use crate::measure::generator::saturate;
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::{Cycles, NUMBER, Step};
use crate::measure::running::Running;
use crate::measure::servers::{ComparedServer, ServerType};
use crate::workloads::workload::Workload;

/// The owner of every lock: a client's UUID and a thread number, as Redisson writes them.
pub(crate) const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1";
/// The lease that Redisson requests, and many others.
pub(crate) const LEASE_MS: &str = "30000";
/// The time to live of Redisson 4.7's latch: for all attempts and the pauses between them.
const LATCH_MS: &str = "20000";
/// The number of locks: far more than are held at once.
pub(crate) const LOCKS: u32 = 10_000_000;

const CONNECTIONS: [usize; 3] = [1, 50, 500];
const PIPELINES: [usize; 2] = [1, 16];

/// All cycles, connections and pipelines.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for cycle in [CycleType::Redisson3, CycleType::Redisson4, CycleType::CompareAndDelete] {
        for connections in CONNECTIONS {
            for pipeline in PIPELINES {
                all.push(Box::new(Uncontended { cycle, connections, pipeline }));
            }
        }
    }
    for (cycle, pipeline) in [(CycleType::Set, 16), (CycleType::Ping, 1), (CycleType::Ping, 16)] {
        all.push(Box::new(Uncontended { cycle, connections: 50, pipeline }));
    }
    all
}

/// The requests of a cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CycleType {
    Redisson3,
    Redisson4,
    CompareAndDelete,
    Set,
    Ping,
}

struct Uncontended {
    cycle: CycleType,
    connections: usize,
    pipeline: usize,
}

impl Workload for Uncontended {
    fn group(&self) -> &'static str {
        match self.cycle {
            CycleType::Redisson3 => "Redisson 3 cycle",
            CycleType::Redisson4 => "Redisson 4.7 cycle",
            CycleType::CompareAndDelete => "SET NX PX and compare-and-delete",
            CycleType::Set => "SET PX",
            CycleType::Ping => "PING",
        }
    }

    fn parameters(&self) -> String {
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            several => format!("{several} connections"),
        };
        format!("{connections}, pipeline {}", self.pipeline)
    }

    fn note(&self) -> &'static str {
        match self.cycle {
            CycleType::Redisson3 => {
                "RLock of Redisson 3 up to 3.23, on random keys without contention: the lock \
                 script and the unlock script, which publishes, by EVALSHA."
            }
            CycleType::Redisson4 => {
                "RLock of Redisson 4.7, on random keys without contention: the lock script and the \
                 unlock script, which publishes and keeps a latch, by EVALSHA, and the DEL of the \
                 latch. A pipeline of 16 holds five cycles, 15 requests."
            }
            CycleType::CompareAndDelete => {
                "A lock as a string, on random keys without contention: SET NX PX, and the script \
                 that deletes the key if it holds the token, by EVALSHA."
            }
            CycleType::Set => "SET with PX on 100,000 random keys.",
            CycleType::Ping => "The cost of a request that does nothing.",
        }
    }

    fn runs_scripts(&self) -> bool {
        !matches!(self.cycle, CycleType::Set | CycleType::Ping)
    }

    fn has_lower_bound(&self) -> bool {
        true
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = server.start(&[])?;
        let steps = self.cycle.steps(&running)?;
        if server.server_type == ServerType::Bare {
            let replies: Vec<_> = steps.iter().map(|step| step.reply).collect();
            bare_server::configure_replies(&running, &replies)?;
        }
        let locks = if self.cycle == CycleType::Set { 100_000 } else { LOCKS };
        let mut cycles = Cycles::new(&steps, self.pipeline, self.connections, locks);
        let done = saturate(&running, &mut cycles, self.connections, effort)?;
        Ok(vec![
            Metric::cost("server CPU per operation", "us").with(done.cpu_us()),
            Metric::rate("operations", "/s").with(done.rate()),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
        ])
    }
}

impl CycleType {
    /// The requests of a cycle. Loads its scripts.
    pub(crate) fn steps(self, running: &Running) -> Outcome<Vec<Step>> {
        let (key, channel) = (&key(), &channel());
        Ok(match self {
            CycleType::Redisson3 => redisson_3(running)?.to_vec(),
            CycleType::Redisson4 => redisson_4(running, key, channel, OWNER)?.to_vec(),
            CycleType::CompareAndDelete => {
                let delete = &load(running, COMPARE_AND_DELETE)?;
                vec![
                    Step::new(&["SET", key, OWNER, "NX", "PX", LEASE_MS], "+OK\r\n"),
                    Step::new(&["EVALSHA", delete, "1", key, OWNER], ":1\r\n"),
                ]
            }
            CycleType::Set => vec![Step::new(&["SET", key, OWNER, "PX", LEASE_MS], "+OK\r\n")],
            CycleType::Ping => vec![Step::new(&["PING"], "+PONG\r\n")],
        })
    }
}

/// A cycle of Redisson 3 on a numbered lock: lock and unlock. Loads the scripts.
pub(crate) fn redisson_3(running: &Running) -> Outcome<[Step; 2]> {
    let (key, channel) = (&key(), &channel());
    let (lock, unlock) = (&load(running, LOCK_3)?, &load(running, UNLOCK_3)?);
    let unlock = ["EVALSHA", unlock, "2", key, channel, "0", LEASE_MS, OWNER];
    Ok([
        Step::new(&["EVALSHA", lock, "1", key, LEASE_MS, OWNER], "$-1\r\n"),
        Step::new(&unlock, ":1\r\n"),
    ])
}

/// A cycle of Redisson 4.7 on a lock: lock, unlock, and delete the latch. Loads the scripts.
pub(crate) fn redisson_4(
    running: &Running,
    key: &str,
    channel: &str,
    owner: &str,
) -> Outcome<[Step; 3]> {
    let lock = &load(running, named("redisson/lock")?)?;
    let unlock = &load(running, named("redisson/unlock")?)?;
    // The latch contains the lock and the request's id; a client has one request at a time.
    let latch = &format!("redisson_unlock_latch:{{{key}}}:5b3f8e1d0c7a49d2b6e48f{NUMBER}");
    let unlock = ["EVALSHA", unlock, "3", key, channel, latch, "0", LEASE_MS, owner, "PUBLISH"];
    Ok([
        Step::new(&["EVALSHA", lock, "1", key, LEASE_MS, owner], "$-1\r\n"),
        Step::new(&[unlock.as_slice(), &[LATCH_MS]].concat(), ":1\r\n"),
        Step::new(&["DEL", latch], ":1\r\n"),
    ])
}

fn key() -> String {
    format!("lock:{NUMBER}")
}

fn channel() -> String {
    format!("redisson_lock__channel:{{lock:{NUMBER}}}")
}

/// A script of the compatibility suite, as the client sends it.
pub(crate) fn named(name: &str) -> Outcome<&'static str> {
    script(name).ok_or_else(|| format!("no script {name}").into())
}

/// Loads a script and returns its digest.
pub(crate) fn load(running: &Running, script: &str) -> Outcome<String> {
    running.ask(&["SCRIPT", "LOAD", script])
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn cycle_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
