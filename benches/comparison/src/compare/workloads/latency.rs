//! How long clients wait for a lock at a fixed rate below the server's limit.
//!
//! Lock requests are due at random times that do not depend on earlier replies. If no connection is
//! free, a request waits. Its latency counts from the time at which it was due, so a stall of the
//! server counts for all requests that it delays.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_benches::Random;
use lockwheel_comparison::Outcome;

use crate::measure::effort::Effort;
use crate::measure::generator::{Answered, Clients, REPLY_TIMEOUT, Throughput, saturate};
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::Cycles;
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;
use crate::workloads::cycles::redisson_3;
use crate::workloads::workload::Workload;

const CONNECTIONS: usize = 50;
const LOCKS: u32 = 10_000_000;
/// The rates, as a part of the highest rate of the slowest server.
const PERCENTS: [u32; 2] = [30, 60];
/// The reported latencies.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
/// Largest recorded latency: longer than any.
const LONGEST_NS: u64 = 120_000_000_000;

/// Both rates. They share the measured rate of the slowest server.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let slowest = Rc::new(Cell::new(None));
    let at = |percent| AtRate { percent, slowest: Rc::clone(&slowest) };
    PERCENTS.map(|percent| Box::new(at(percent)) as Box<dyn Workload>).into()
}

struct AtRate {
    percent: u32,
    slowest: Rc<Cell<Option<f64>>>,
}

impl Workload for AtRate {
    fn group(&self) -> &'static str {
        "Latency at a fixed rate"
    }

    fn parameters(&self) -> String {
        format!("{} % of what the slowest server reaches", self.percent)
    }

    fn note(&self) -> &'static str {
        "Redisson 3 cycles begin at random moments at the same rate for all servers, on 50 \
         connections. The latency is the time until a lock is granted, counted from the moment at \
         which the request was due, so that waiting behind other requests counts."
    }

    fn runs_scripts(&self) -> bool {
        true
    }

    /// The highest latencies depend mostly on the machine: only the median of many rounds is
    /// meaningful.
    fn rounds(&self, requested: u32) -> u32 {
        requested * 3
    }

    fn prepare(&mut self, servers: &[&ComparedServer], effort: &Effort) -> Outcome<()> {
        if self.slowest.get().is_some() {
            return Ok(());
        }
        let mut slowest = f64::INFINITY;
        for server in servers {
            let running = server.start(&[])?;
            let mut cycles = cycles(&running)?;
            let done = saturate(&running, &mut cycles, CONNECTIONS, effort)?;
            slowest = slowest.min(done.rate());
        }
        self.slowest.set(Some(slowest));
        Ok(())
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let slowest = self.slowest.get().ok_or("no rate is known")?;
        let rate = slowest * f64::from(self.percent) / 100.0;
        let running = server.start(&[])?;
        let mut load = RandomLoad::new(&running, rate)?;
        load.run(effort.warm_up)?;
        load.latencies.clear();
        let (began, before) = (Instant::now(), running.cpu()?);
        let operations = load.run(effort.span)?;
        let done = Throughput { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        let us = |ns: u64| ns as f64 / 1e3;
        let latencies = &load.latencies;
        let quantile = |(name, quantile)| {
            let latency = us(latencies.value_at_quantile(quantile));
            Metric::cost(format!("until granted, {name}"), "us").with(latency)
        };
        let mut readings: Vec<_> = QUANTILES.map(quantile).into();
        readings.extend([
            Metric::cost("until granted, longest", "us").with(us(latencies.max())),
            Metric::cost("server CPU per operation", "us").with(done.cpu_us()),
            Metric::info("operations", "/s").with(done.rate()),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
        ]);
        Ok(readings)
    }
}

fn cycles(running: &Running) -> Outcome<Cycles> {
    Ok(Cycles::new(&redisson_3(running)?, 1, CONNECTIONS, LOCKS))
}

/// Lock requests at random times, and the connections that send them.
struct RandomLoad {
    clients: Clients,
    cycles: Cycles,
    /// Connections without a pending request.
    free: Vec<usize>,
    /// When the pending request of each connection was due.
    due: Vec<Instant>,
    /// The due times of requests for which no connection is free.
    waiting: VecDeque<Instant>,
    /// The mean time between two requests.
    interval: Duration,
    random: Random,
    latencies: Histogram<u64>,
}

impl RandomLoad {
    fn new(running: &Running, rate: f64) -> Outcome<RandomLoad> {
        Ok(RandomLoad {
            clients: Clients::connect(running.address, CONNECTIONS)?,
            cycles: cycles(running)?,
            free: (0..CONNECTIONS).collect(),
            due: vec![Instant::now(); CONNECTIONS],
            waiting: VecDeque::new(),
            interval: Duration::from_secs_f64(1.0 / rate),
            random: Random::new(),
            latencies: Histogram::new_with_max(LONGEST_NS, 3)?,
        })
    }

    /// Generates requests for this time and waits until all are complete. Returns the number of
    /// cycles. It never sleeps, because waking up takes longer than many replies.
    fn run(&mut self, span: Duration) -> Outcome<u64> {
        let began = Instant::now();
        let end = began + span;
        let (mut next, mut done) = (began, 0);
        while next < end || !self.waiting.is_empty() || self.free.len() < CONNECTIONS {
            let now = Instant::now();
            while next < end && next <= now {
                self.waiting.push_back(next);
                next += self.pause();
            }
            while !self.waiting.is_empty()
                && let Some(client) = self.free.pop()
            {
                self.due[client] = self.waiting.pop_front().unwrap_or(now);
                self.clients.send_next(client, &mut self.cycles)?;
            }
            self.clients.wait(&self.cycles, Duration::ZERO)?;
            done += self.handle_replies()?;
            if now > end + REPLY_TIMEOUT {
                return Err("the server does not reply any more".into());
            }
        }
        Ok(done)
    }

    /// Handles the replies of clients: one releases a lock that it was granted, which is free after
    /// the release.
    fn handle_replies(&mut self) -> Outcome<u64> {
        let mut done = 0;
        let now = Instant::now();
        for index in 0..self.clients.answered.len() {
            let Answered { client, operations } = self.clients.answered[index];
            done += operations;
            if operations > 0 {
                self.free.push(client);
                continue;
            }
            let waited = now.duration_since(self.due[client]).as_nanos();
            self.latencies.saturating_record(u64::try_from(waited).unwrap_or(LONGEST_NS));
            self.clients.send_next(client, &mut self.cycles)?;
        }
        Ok(done)
    }

    /// The time until the next request, exponentially distributed: requests are independent.
    fn pause(&mut self) -> Duration {
        let drawn = f64::from(self.random.below(u32::MAX)) + 1.0;
        self.interval.mul_f64(-(drawn / (f64::from(u32::MAX) + 1.0)).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::{RandomLoad, all};
    use crate::measure::servers::ComparedServer;
    use crate::workloads::workload::tests::check_runs;
    use std::time::Duration;

    #[test]
    fn latency_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }

    #[test]
    fn every_request_is_completed_and_counted_once() {
        let running = ComparedServer::lockwheel().start(&[]).expect("a server");
        let mut load = RandomLoad::new(&running, 20_000.0).expect("connections");
        let done = load.run(Duration::from_millis(20)).expect("locks");
        // 400 on average; the random numbers have a fixed seed.
        assert!((300..500).contains(&done), "{done}");
        assert_eq!(load.latencies.len(), done);
    }
}
