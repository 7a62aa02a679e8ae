//! How long other clients wait while a snapshot of many locks is written.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use lockwheel_benches::Random;
use lockwheel_comparison::Outcome;

use super::closed_loop;
use super::logged::{NO_REWRITE, QUICK_DIVISOR, hold_and_flush, rewrite};
use crate::measure::effort::Effort;
use crate::measure::latencies::quantiles;
use crate::measure::load::{OWNER, grouped};
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::{NUMBER, Step};
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

const QUANTILES: [(&str, f64); 2] = [("p99.9", 0.999), ("longest", 1.0)];
/// The reply to GET: [`OWNER`].
const HELD_REPLY: &str = "$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n";
/// The lease of the locks that are taken meanwhile, in milliseconds.
const LEASE_MS: &str = "30000";

pub(super) fn all() -> Vec<Box<dyn Workload>> {
    vec![Box::new(Snapshot { locks: 5_000_000 })]
}

struct Snapshot {
    locks: u32,
}

impl Workload for Snapshot {
    fn group(&self) -> &'static str {
        "Durable: snapshot"
    }

    fn parameters(&self) -> String {
        format!("{} locks", grouped(self.locks))
    }

    fn note(&self) -> &'static str {
        "BGREWRITEAOF, which takes a snapshot in Lockwheel, while two clients send requests in \
         closed loops: GET of random held locks, and SET NX PX of free ones, each flushed before \
         the reply. The longest wait is that of a single request, so it contains any delay \
         by the machine: the rows without a snapshot show the same requests before it. The \
         servers run on any processor."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn rounds(&self, _: u32) -> u32 {
        1
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let locks = if effort.quick { self.locks / QUICK_DIVISOR } else { self.locks };
        let directory = server.log_directory(Duration::ZERO)?;
        let running = server.start_with_log_anywhere(&directory, &NO_REWRITE)?;
        hold_and_flush(&running, locks)?;
        let pause = || {
            thread::sleep(effort.span);
            Ok(effort.span)
        };
        let address = running.address;
        let (quiet, _) = observe(address, 0, locks, pause)?;
        let begun = u32::try_from(quiet[1].len())?;
        let (busy, span) = observe(address, begun, locks, || rewrite(&running))?;
        let mut readings = Vec::new();
        for (name, latencies) in NAMES.into_iter().zip(&busy) {
            readings.extend(quantiles(name, latencies, &QUANTILES));
        }
        for (name, latencies) in NAMES.into_iter().zip(&quiet) {
            let longest_us = latencies.max() as f64 / 1e3;
            let name = format!("{name}, longest without a snapshot");
            readings.push(Metric::info(name, "us").with(longest_us));
        }
        readings.push(Metric::cost("snapshot", "s").with(span.as_secs_f64()));
        Ok(readings)
    }
}

/// The requests of the two clients.
const NAMES: [&str; 2] = ["GET", "SET NX"];

/// Runs both clients until `work` returns. Earlier calls have taken `taken` locks, which are not
/// free. Returns the latencies of the clients in nanoseconds, and the result of `work`.
fn observe<R>(
    address: SocketAddr,
    taken: u32,
    locks: u32,
    work: impl FnOnce() -> Outcome<R>,
) -> Outcome<([Histogram<u64>; 2], R)> {
    let ended = AtomicBool::new(false);
    let is_over = || ended.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let get = scope.spawn(|| {
            let key = format!("lock:{{{NUMBER}}}");
            let mut random = Random::new();
            let next = || (!is_over()).then(|| u64::from(random.below(locks)));
            let step = Step::new(&["GET", &key], HELD_REPLY);
            closed_loop::run(address, step, next).map_err(|error| error.to_string())
        });
        let set = scope.spawn(|| {
            let key = format!("free:{{{NUMBER}}}");
            let mut number = u64::from(taken);
            let next = || {
                number += 1;
                (!is_over()).then_some(number)
            };
            let step = Step::new(&["SET", &key, OWNER, "NX", "PX", LEASE_MS], "+OK\r\n");
            closed_loop::run(address, step, next).map_err(|error| error.to_string())
        });
        let outcome = work();
        ended.store(true, Ordering::Relaxed);
        let latencies = [closed_loop::join(get)?, closed_loop::join(set)?];
        Ok((latencies, outcome?))
    })
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn snapshot_workload_runs() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
