//! The cost of held locks: memory, and processor time without requests.

use std::thread;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;

use crate::measure::effort::Effort;
use crate::measure::load::{LockType, grouped, hold, release};
use crate::measure::metric::{Metric, Reading};
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

/// The time given to a server to return memory to the system, or to become idle.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// The length of the measurement of an idle server.
const IDLE_SPAN: Duration = Duration::from_secs(5);
/// Factor by which a quick run is smaller.
const QUICK_DIVISOR: u32 = 100;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for kind in [LockType::Hash, LockType::String] {
        for locks in [1_000_000, 5_000_000] {
            all.push(Box::new(HeldLocks { locks, kind }));
        }
    }
    all.push(Box::new(Idle { locks: 1_000_000 }));
    all
}

/// The memory of locks, held for an hour.
struct HeldLocks {
    locks: u32,
    kind: LockType,
}

impl Workload for HeldLocks {
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

    fn measures_twice(&self) -> bool {
        false
    }

    fn rounds(&self, _: u32) -> u32 {
        1
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let locks = if effort.quick { self.locks / QUICK_DIVISOR } else { self.locks };
        let running = server.start(&[])?;
        let empty = running.resident_bytes()?;
        let before = running.cpu()?;
        hold(running.address, locks, self.kind)?;
        let cpu = running.cpu()?.saturating_sub(before);
        let held = running.resident_bytes()?.saturating_sub(empty);
        let mut readings = vec![
            Metric::cost("memory per lock", "B").with(held as f64 / f64::from(locks)),
            Metric::cost("server CPU to take one", "us").with(us_each(cpu, locks)),
        ];
        let before = running.cpu()?;
        release(running.address, locks)?;
        let cpu = running.cpu()?.saturating_sub(before);
        thread::sleep(if effort.quick { effort.span } else { SETTLE_TIME });
        let left = running.resident_bytes()?.saturating_sub(empty);
        readings.extend([
            Metric::cost("server CPU to delete one", "us").with(us_each(cpu, locks)),
            Metric::cost("left when all are deleted", "MiB").with(mib(left)),
        ]);
        Ok(readings)
    }
}

/// The processor time of a server without requests.
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

    fn measures_twice(&self) -> bool {
        false
    }

    fn rounds(&self, _: u32) -> u32 {
        1
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let (locks, span) = match effort.quick {
            true => (self.locks / QUICK_DIVISOR, effort.span),
            false => (self.locks, IDLE_SPAN),
        };
        let running = server.start(&[])?;
        hold(running.address, locks, LockType::Hash)?;
        thread::sleep(effort.span.min(SETTLE_TIME));
        Ok(vec![Metric::cost("server CPU", "% of a processor").with(busy_percent(&running, span)?)])
    }
}

/// The server's share of a processor in percent. At least a microsecond of processor time counts,
/// so that ratios are finite.
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
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn memory_and_idle_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
