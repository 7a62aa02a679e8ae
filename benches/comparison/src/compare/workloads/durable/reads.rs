//! Requests that change nothing, beside clients that take and release other locks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;

use super::closed_loop;
use super::logged::{on_disk, start};
use crate::measure::effort::Effort;
use crate::measure::generator::{Clients, REPLY_TIMEOUT};
use crate::measure::latencies::quantiles;
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::{Cycles, Step};
use crate::measure::servers::ComparedServer;
use crate::workloads::cycles::{CycleType, LOCKS, OWNER};
use crate::workloads::workload::Workload;

const WRITERS: usize = 8;
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// A lock that is held all the time, and its lease.
const HELD: &str = "held";
const HELD_MS: &str = "3600000";
/// The reply to GET: [`OWNER`].
const HELD_REPLY: &str = "$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n";

pub(super) fn all(flush_delays: &[Duration]) -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for request in [ReadType::Get, ReadType::RefusedAttempt] {
        for &flush_delay in flush_delays {
            all.push(Box::new(BesideWriters { request, flush_delay }));
        }
    }
    all
}

#[derive(Clone, Copy)]
enum ReadType {
    Get,
    RefusedAttempt,
}

impl ReadType {
    fn name(self) -> &'static str {
        match self {
            ReadType::Get => "GET",
            ReadType::RefusedAttempt => "refused attempt",
        }
    }

    fn step(self) -> Step {
        match self {
            ReadType::Get => Step::new(&["GET", HELD], HELD_REPLY),
            ReadType::RefusedAttempt => {
                Step::new(&["SET", HELD, "another", "NX", "PX", HELD_MS], "$-1\r\n")
            }
        }
    }
}

struct BesideWriters {
    request: ReadType,
    flush_delay: Duration,
}

impl Workload for BesideWriters {
    fn group(&self) -> &'static str {
        "Durable: reads beside writers"
    }

    fn parameters(&self) -> String {
        on_disk(self.request.name(), self.flush_delay)
    }

    fn note(&self) -> &'static str {
        "One client repeats a request that changes nothing: GET of a held lock, or SET NX of it, \
         which is refused. Eight clients take and release other locks, each flushed before the \
         reply."
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = start(server, self.flush_delay)?;
        running.ask(&["SET", HELD, OWNER, "PX", HELD_MS])?;
        let steps = CycleType::CompareAndDelete.steps(&running)?;
        let (address, ended) = (running.address, AtomicBool::new(false));
        let (latencies, cycles_per_second) = thread::scope(|scope| {
            let write = || write(address, &steps, &ended).map_err(|error| error.to_string());
            let writers = scope.spawn(write);
            let latencies = read(address, self.request, effort);
            ended.store(true, Ordering::Relaxed);
            let cycles_per_second = closed_loop::join(writers)?;
            Outcome::Ok((latencies?, cycles_per_second))
        })?;
        let mut readings = quantiles(self.request.name(), &latencies, &QUANTILES);
        readings.push(Metric::rate("cycles of the writers", "/s").with(cycles_per_second));
        Ok(readings)
    }
}

fn read(address: SocketAddr, request: ReadType, effort: &Effort) -> Outcome<Histogram<u64>> {
    let during = |span| {
        let began = Instant::now();
        let mut sent = 0;
        closed_loop::run(address, request.step(), move || {
            sent += 1;
            (sent == 1 || began.elapsed() < span).then_some(sent)
        })
    };
    during(effort.warm_up)?;
    during(effort.span)
}

/// Takes and releases locks until the end. Returns the cycles a second.
fn write(address: SocketAddr, steps: &[Step], ended: &AtomicBool) -> Outcome<f64> {
    let mut cycles = Cycles::new(steps, 1, WRITERS, LOCKS);
    let mut clients = Clients::connect(address, WRITERS)?;
    for client in 0..WRITERS {
        clients.send_next(client, &mut cycles)?;
    }
    let began = Instant::now();
    let mut done = 0;
    while !ended.load(Ordering::Relaxed) {
        clients.wait(&cycles, REPLY_TIMEOUT)?;
        for index in 0..clients.answered.len() {
            done += clients.answered[index].operations;
            clients.send_next(clients.answered[index].client, &mut cycles)?;
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn read_workloads_run() {
        let delays = [Duration::ZERO, Duration::from_micros(100)];
        all(&delays).iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
