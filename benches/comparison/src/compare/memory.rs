//! What locks that are held, and nothing else, cost: memory, and the processor's time while nobody
//! asks for anything. It must not know how a server keeps them.

use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::figures::{Metric, Reading};
use crate::load::{Kind, grouped, hold, release};
use crate::peers::Peer;
use crate::running::Running;
use crate::workload::{Effort, Workload};

/// How long a server may take to give memory back, or to come to rest.
const RESPITE: Duration = Duration::from_secs(1);
/// How long is looked at a server that has nothing to do.
const IDLE_SPAN: Duration = Duration::from_secs(5);
/// How much less there is of everything in a quick run.
const QUICK_SHARE: u32 = 100;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for kind in [Kind::Hash, Kind::Text] {
        for locks in [1_000_000, 5_000_000] {
            all.push(Box::new(Held { locks, kind }));
        }
    }
    all.push(Box::new(Idle { locks: 1_000_000 }));
    all
}

/// So many locks, held for an hour.
struct Held {
    locks: u32,
    kind: Kind,
}

impl Workload for Held {
    fn group(&self) -> &'static str {
        "Memory"
    }

    fn parameters(&self) -> String {
        format!("{} locks, each a {} with a lease", grouped(self.locks), self.kind.name())
    }

    fn note(&self) -> &'static str {
        "Growth of the resident memory for each lock: a key of 17 bytes, an owner of 38 bytes, a \
         lease of an hour. A hash has one field, as Redisson's have. A server is filled once for \
         each line. The last row is the memory that the server holds more than when it was empty, \
         1 s after the last lock was deleted."
    }

    fn there_and_back(&self) -> bool {
        false
    }

    fn rounds(&self, _: u32) -> u32 {
        1
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let locks = if effort.quick { self.locks / QUICK_SHARE } else { self.locks };
        let running = peer.start(&[])?;
        let empty = running.resident_bytes()?;
        let before = running.cpu()?;
        hold(running.address, locks, self.kind)?;
        let cpu = running.cpu()?.saturating_sub(before);
        let held = running.resident_bytes()?.saturating_sub(empty);
        let mut readings = vec![
            Metric::less("memory per lock", "B").is(held as f64 / f64::from(locks)),
            Metric::less("server CPU to take one", "us").is(us_each(cpu, locks)),
        ];
        let before = running.cpu()?;
        release(running.address, locks)?;
        let cpu = running.cpu()?.saturating_sub(before);
        thread::sleep(if effort.quick { effort.span } else { RESPITE });
        let left = running.resident_bytes()?.saturating_sub(empty);
        readings.extend([
            Metric::less("server CPU to delete one", "us").is(us_each(cpu, locks)),
            Metric::less("left when all are deleted", "MiB").is(mib(left)),
        ]);
        Ok(readings)
    }
}

/// Nobody asks for anything.
struct Idle {
    locks: u32,
}

impl Workload for Idle {
    fn group(&self) -> &'static str {
        "Idle"
    }

    fn parameters(&self) -> String {
        format!("{} locks that end in an hour, no clients", grouped(self.locks))
    }

    fn note(&self) -> &'static str {
        "Processor time of the server while nothing happens, measured for 5 s."
    }

    fn there_and_back(&self) -> bool {
        false
    }

    fn rounds(&self, _: u32) -> u32 {
        1
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let (locks, span) = match effort.quick {
            true => (self.locks / QUICK_SHARE, effort.span),
            false => (self.locks, IDLE_SPAN),
        };
        let running = peer.start(&[])?;
        hold(running.address, locks, Kind::Hash)?;
        thread::sleep(effort.span.min(RESPITE));
        Ok(vec![Metric::less("server CPU", "% of a processor").is(busy_percent(&running, span)?)])
    }
}

/// How busy the server keeps a processor, as a percentage. Never quite nothing, so that others can
/// be compared with it.
fn busy_percent(running: &Running, span: Duration) -> Outcome<f64> {
    const CLOCK_STEP: Duration = Duration::from_micros(1);
    let (began, before) = (Instant::now(), running.cpu()?);
    thread::sleep(span);
    let busy = running.cpu()?.saturating_sub(before).max(CLOCK_STEP);
    Ok(busy.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0)
}

fn us_each(cpu: Duration, locks: u32) -> f64 {
    cpu.as_secs_f64() * 1e6 / f64::from(locks)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workload::tests::works;

    #[test]
    fn locks_are_held_and_released() {
        all().iter_mut().for_each(|workload| works(workload.as_mut()));
    }
}
