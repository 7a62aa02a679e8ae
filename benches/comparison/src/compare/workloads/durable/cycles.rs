//! Durable locks without contention: each is taken and released again.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;

use super::logged::{on_disk, start};
use crate::measure::effort::Effort;
use crate::measure::generator::{Answered, Clients, REPLY_TIMEOUT, Throughput};
use crate::measure::latencies::{histogram, quantiles, record};
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::Cycles;
use crate::measure::rounds::Rounds;
use crate::measure::servers::ComparedServer;
use crate::workloads::cycles::{CycleType, LOCKS};
use crate::workloads::workload::Workload;

/// Connections and requests in a pipeline.
const CLIENTS: [(usize, usize); 5] = [(1, 1), (50, 1), (50, 16), (500, 1), (500, 16)];
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

pub(super) fn all(flush_delays: &[Duration]) -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for cycle in [CycleType::CompareAndDelete, CycleType::Redisson3] {
        for &flush_delay in flush_delays {
            for (connections, pipeline) in CLIENTS {
                all.push(Box::new(DurableCycle { cycle, connections, pipeline, flush_delay }));
            }
        }
    }
    all
}

struct DurableCycle {
    cycle: CycleType,
    connections: usize,
    pipeline: usize,
    flush_delay: Duration,
}

impl Workload for DurableCycle {
    fn group(&self) -> &'static str {
        match self.cycle {
            CycleType::CompareAndDelete => "Durable: SET NX PX and compare-and-delete",
            _ => "Durable: Redisson 3 cycle",
        }
    }

    fn parameters(&self) -> String {
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            several => format!("{several} connections"),
        };
        on_disk(&format!("{connections}, pipeline {}", self.pipeline), self.flush_delay)
    }

    fn note(&self) -> &'static str {
        "Lock and unlock of random keys without contention, each flushed before the reply. The \
         latency is the time from sending a request, or a pipeline, until its whole reply has \
         arrived. The floor only writes and flushes the requests, and replies. A round is a batch \
         that is flushed; rows about rounds are of servers that count them in INFO."
    }

    fn has_lower_bound(&self) -> bool {
        true
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = start(server, self.flush_delay)?;
        let steps = self.cycle.steps(&running)?;
        let cycles = Cycles::new(&steps, self.pipeline, self.connections, LOCKS);
        let mut load = TimedLoad::new(Clients::connect(running.address, self.connections)?, cycles);
        for client in 0..self.connections {
            load.send(client)?;
        }
        let mut latencies = histogram()?;
        load.run(effort.warm_up, &mut latencies)?;
        latencies.clear();
        let rounds = Rounds::of(&running)?;
        let (began, before) = (Instant::now(), running.cpu()?);
        let operations = load.run(effort.span, &mut latencies)?;
        let done = Throughput { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        let mut readings = vec![
            Metric::rate("operations", "/s").with(done.rate()),
            Metric::cost("server CPU per operation", "us").with(done.cpu_us()),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
        ];
        readings.extend(quantiles("reply", &latencies, &QUANTILES));
        if let Some((before, after)) = rounds.zip(Rounds::of(&running)?) {
            readings.extend(after.readings(before, &[("server CPU", done)]));
        }
        Ok(readings)
    }
}

/// Clients that are always busy, and when the request of each was sent.
struct TimedLoad {
    clients: Clients,
    cycles: Cycles,
    sent: Vec<Instant>,
}

impl TimedLoad {
    fn new(clients: Clients, cycles: Cycles) -> TimedLoad {
        TimedLoad { clients, cycles, sent: Vec::new() }
    }

    fn send(&mut self, client: usize) -> Outcome<()> {
        let now = Instant::now();
        if client == self.sent.len() {
            self.sent.push(now);
        }
        self.sent[client] = now;
        self.clients.send_next(client, &mut self.cycles)
    }

    /// Keeps all clients busy for this time, and until a cycle is complete. Returns the cycles.
    fn run(&mut self, span: Duration, latencies: &mut Histogram<u64>) -> Outcome<u64> {
        let began = Instant::now();
        let mut done = 0;
        while done == 0 || began.elapsed() < span {
            let waited = Instant::now();
            self.clients.wait(&self.cycles, REPLY_TIMEOUT)?;
            let now = Instant::now();
            if now - waited >= REPLY_TIMEOUT {
                return Err("the server does not reply any more".into());
            }
            for index in 0..self.clients.answered.len() {
                let Answered { client, operations } = self.clients.answered[index];
                done += operations;
                record(latencies, self.sent[client], now);
                self.send(client)?;
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn durable_cycle_workloads_run() {
        let delays = [Duration::ZERO, Duration::from_micros(100)];
        all(&delays).iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
