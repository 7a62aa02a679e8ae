//! Locks that nobody else wants: taken and released again and again.

use lockwheel_compat::cases::script;
use lockwheel_tests::scripts::{COMPARE_AND_DELETE_ONE_LINE, LOCK_3, UNLOCK_3};

use crate::figures::{Metric, Reading};
use crate::generator::saturate;
use crate::peers::Peer;
use crate::requests::{Cycles, NUMBER, Step};
use crate::running::Running;
use crate::workload::{Effort, Workload};
use crate::{Outcome, bare};

/// Who holds every lock: a process and a thread of it, as Redisson names them.
pub(crate) const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1";
/// What Redisson asks for, and others often.
pub(crate) const LEASE_MS: &str = "30000";
/// How long Redisson 4.7's latch is kept: for all attempts and the pauses between them.
const LATCH_MS: &str = "20000";
/// How many locks there are to draw from: far more than are held at once.
const LOCKS: u32 = 10_000_000;

const CONNECTIONS: [usize; 3] = [1, 50, 500];
const PIPELINES: [usize; 2] = [1, 16];

/// Every one of them.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for what in [What::Redisson3, What::Redisson4, What::CompareAndDelete] {
        for connections in CONNECTIONS {
            for pipeline in PIPELINES {
                all.push(Box::new(Uncontended { what, connections, pipeline }));
            }
        }
    }
    for (what, pipeline) in [(What::Set, 16), (What::Ping, 1), (What::Ping, 16)] {
        all.push(Box::new(Uncontended { what, connections: 50, pipeline }));
    }
    all
}

/// What a cycle consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Redisson3,
    Redisson4,
    CompareAndDelete,
    Set,
    Ping,
}

struct Uncontended {
    what: What,
    connections: usize,
    pipeline: usize,
}

impl Workload for Uncontended {
    fn group(&self) -> &'static str {
        match self.what {
            What::Redisson3 => "Redisson 3 cycle",
            What::Redisson4 => "Redisson 4.7 cycle",
            What::CompareAndDelete => "SET NX PX and compare-and-delete",
            What::Set => "SET PX",
            What::Ping => "PING",
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
        match self.what {
            What::Redisson3 => {
                "RLock of Redisson 3 up to 3.23, on random keys without contention: the lock \
                 script and the unlock script, which publishes, by EVALSHA."
            }
            What::Redisson4 => {
                "RLock of Redisson 4.7, on random keys without contention: the lock script and the \
                 unlock script, which publishes and keeps a latch, by EVALSHA, and the DEL of the \
                 latch. A pipeline of 16 holds five cycles, 15 requests."
            }
            What::CompareAndDelete => {
                "A lock as a string, on random keys without contention: SET NX PX, and the script \
                 that deletes the key if it holds the token, by EVALSHA."
            }
            What::Set => "SET with PX on 100,000 random keys.",
            What::Ping => "The cost of a request that does nothing.",
        }
    }

    fn runs_scripts(&self) -> bool {
        !matches!(self.what, What::Set | What::Ping)
    }

    fn has_floor(&self) -> bool {
        true
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = peer.start(&[])?;
        let steps = self.what.steps(&running)?;
        if peer.bare {
            bare::tell(&running, &steps.iter().map(|step| step.reply).collect::<Vec<_>>())?;
        }
        let locks = if self.what == What::Set { 100_000 } else { LOCKS };
        let mut cycles = Cycles::new(&steps, self.pipeline, self.connections, locks);
        let done = saturate(&running, &mut cycles, self.connections, effort)?;
        Ok(vec![
            Metric::less("server CPU per operation", "us").is(done.cpu_us()),
            Metric::more("operations", "/s").is(done.rate()),
            Metric::told("server CPU", "%").is(done.share()),
        ])
    }
}

impl What {
    /// The requests of a cycle. The scripts are loaded.
    fn steps(self, running: &Running) -> Outcome<Vec<Step>> {
        let (key, channel) = (&key(), &channel());
        Ok(match self {
            What::Redisson3 => redisson_3(running)?.to_vec(),
            What::Redisson4 => redisson_4(running, key, channel, OWNER)?.to_vec(),
            What::CompareAndDelete => {
                let delete = &load(running, COMPARE_AND_DELETE_ONE_LINE)?;
                vec![
                    Step::new(&["SET", key, OWNER, "NX", "PX", LEASE_MS], "+OK\r\n"),
                    Step::new(&["EVALSHA", delete, "1", key, OWNER], ":1\r\n"),
                ]
            }
            What::Set => vec![Step::new(&["SET", key, OWNER, "PX", LEASE_MS], "+OK\r\n")],
            What::Ping => vec![Step::new(&["PING"], "+PONG\r\n")],
        })
    }
}

/// A cycle of Redisson 3 on a lock with a number: lock and unlock. Scripts are loaded.
pub(crate) fn redisson_3(running: &Running) -> Outcome<[Step; 2]> {
    let (key, channel) = (&key(), &channel());
    let (lock, unlock) = (&load(running, LOCK_3)?, &load(running, UNLOCK_3)?);
    let unlock = ["EVALSHA", unlock, "2", key, channel, "0", LEASE_MS, OWNER];
    Ok([
        Step::new(&["EVALSHA", lock, "1", key, LEASE_MS, OWNER], "$-1\r\n"),
        Step::new(&unlock, ":1\r\n"),
    ])
}

/// A cycle of Redisson 4.7 on a lock: lock, unlock, and away with the latch. Scripts are loaded.
pub(crate) fn redisson_4(
    running: &Running,
    key: &str,
    channel: &str,
    owner: &str,
) -> Outcome<[Step; 3]> {
    let lock = &load(running, named("redisson/lock")?)?;
    let unlock = &load(running, named("redisson/unlock")?)?;
    // Named after the lock and the request, of which each client has one at a time.
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

/// A script of the compatibility suite: statement for statement as the client sends it.
pub(crate) fn named(name: &str) -> Outcome<&'static str> {
    script(name).ok_or_else(|| format!("no script {name}").into())
}

/// Has the server keep a script. Returns the digest that names it.
pub(crate) fn load(running: &Running, script: &str) -> Outcome<String> {
    running.ask(&["SCRIPT", "LOAD", script])
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workload::tests::works;

    #[test]
    fn locks_are_taken_and_released() {
        all().iter_mut().for_each(|workload| works(workload.as_mut()));
    }
}
