//! How long clients wait for a lock at a rate that the server can bear.
//!
//! Locks are wanted at times that were drawn beforehand, whether or not the server has answered the
//! wishes before. If no connection is free a wish waits, and its time runs from when it was to be
//! sent, so a server that stalls is charged for all who would have waited.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_benches::Random;

use crate::Outcome;
use crate::cycles::redisson_3;
use crate::figures::{Metric, Reading};
use crate::generator::{Answered, Clients, Done, PATIENCE, saturate};
use crate::peers::Peer;
use crate::requests::Cycles;
use crate::running::Running;
use crate::workload::{Effort, Workload};

const CONNECTIONS: usize = 50;
const LOCKS: u32 = 10_000_000;
/// Of what the slowest server reaches.
const PERCENTS: [u32; 2] = [30, 60];
/// The latencies that are told.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
/// Longer than a measurement and what is left of it.
const LONGEST_NS: u64 = 120_000_000_000;

/// Every one of them. They share what the slowest server reaches.
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

    /// What few of a thousand wait for is mostly the machine's doing: only the median of many
    /// rounds says something.
    fn rounds(&self, asked: u32) -> u32 {
        asked * 3
    }

    fn prepare(&mut self, peers: &[&Peer], effort: &Effort) -> Outcome<()> {
        if self.slowest.get().is_some() {
            return Ok(());
        }
        let mut slowest = f64::INFINITY;
        for peer in peers {
            let running = peer.start(&[])?;
            let mut cycles = cycles(&running)?;
            let done = saturate(&running, &mut cycles, CONNECTIONS, effort)?;
            slowest = slowest.min(done.rate());
        }
        self.slowest.set(Some(slowest));
        Ok(())
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let slowest = self.slowest.get().ok_or("no rate is known")?;
        let rate = slowest * f64::from(self.percent) / 100.0;
        let running = peer.start(&[])?;
        let mut schedule = Schedule::new(&running, rate)?;
        schedule.keep(effort.warm_up)?;
        schedule.latencies.clear();
        let (began, before) = (Instant::now(), running.cpu()?);
        let operations = schedule.keep(effort.span)?;
        let done = Done { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        let us = |ns: u64| ns as f64 / 1e3;
        let latencies = &schedule.latencies;
        let quantile = |(name, quantile)| {
            let latency = us(latencies.value_at_quantile(quantile));
            Metric::less(format!("until granted, {name}"), "us").is(latency)
        };
        let mut readings: Vec<_> = QUANTILES.map(quantile).into();
        readings.extend([
            Metric::less("until granted, longest", "us").is(us(latencies.max())),
            Metric::less("server CPU per operation", "us").is(done.cpu_us()),
            Metric::told("operations", "/s").is(done.rate()),
            Metric::told("server CPU", "%").is(done.share()),
        ]);
        Ok(readings)
    }
}

fn cycles(running: &Running) -> Outcome<Cycles> {
    Ok(Cycles::new(&redisson_3(running)?, 1, CONNECTIONS, LOCKS))
}

/// Wishes at times drawn beforehand, and who sees to them.
struct Schedule {
    clients: Clients,
    cycles: Cycles,
    /// Connections with nothing under way.
    free: Vec<usize>,
    /// When what each connection has under way was to be sent.
    intended: Vec<Instant>,
    /// Wishes that are due, and for which no connection is free.
    waiting: VecDeque<Instant>,
    /// The mean time between two wishes.
    interval: Duration,
    random: Random,
    latencies: Histogram<u64>,
}

impl Schedule {
    fn new(running: &Running, rate: f64) -> Outcome<Schedule> {
        Ok(Schedule {
            clients: Clients::connect(running.address, CONNECTIONS)?,
            cycles: cycles(running)?,
            free: (0..CONNECTIONS).collect(),
            intended: vec![Instant::now(); CONNECTIONS],
            waiting: VecDeque::new(),
            interval: Duration::from_secs_f64(1.0 / rate),
            random: Random::new(),
            latencies: Histogram::new_with_max(LONGEST_NS, 3)?,
        })
    }

    /// Keeps to the times for so long, and sees to every wish of it. How many cycles were it?
    ///
    /// It never sleeps: a wake-up would come later than many a reply.
    fn keep(&mut self, span: Duration) -> Outcome<u64> {
        let began = Instant::now();
        let end = began + span;
        let (mut due, mut done) = (began, 0);
        while due < end || !self.waiting.is_empty() || self.free.len() < CONNECTIONS {
            let now = Instant::now();
            while due < end && due <= now {
                self.waiting.push_back(due);
                due += self.pause();
            }
            while !self.waiting.is_empty()
                && let Some(client) = self.free.pop()
            {
                self.intended[client] = self.waiting.pop_front().unwrap_or(now);
                self.clients.say(client, &mut self.cycles)?;
            }
            self.clients.wait(&self.cycles, Duration::ZERO)?;
            done += self.take_answers()?;
            if now > end + PATIENCE {
                return Err("the server has fallen silent".into());
            }
        }
        Ok(done)
    }

    /// A client whose lock is granted gives it back, and then is free.
    fn take_answers(&mut self) -> Outcome<u64> {
        let mut done = 0;
        let now = Instant::now();
        for index in 0..self.clients.answered.len() {
            let Answered { client, operations } = self.clients.answered[index];
            done += operations;
            if operations > 0 {
                self.free.push(client);
                continue;
            }
            let waited = now.duration_since(self.intended[client]).as_nanos();
            self.latencies.saturating_record(u64::try_from(waited).unwrap_or(LONGEST_NS));
            self.clients.say(client, &mut self.cycles)?;
        }
        Ok(done)
    }

    /// How long until the next wish: such pauses make wishes that know nothing of each other.
    fn pause(&mut self) -> Duration {
        let drawn = f64::from(self.random.below(u32::MAX)) + 1.0;
        self.interval.mul_f64(-(drawn / (f64::from(u32::MAX) + 1.0)).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::{Schedule, all};
    use crate::peers::Peer;
    use crate::workload::tests::works;
    use std::time::Duration;

    #[test]
    fn locks_are_granted_at_a_rate() {
        all().iter_mut().for_each(|workload| works(workload.as_mut()));
    }

    #[test]
    fn every_wish_is_seen_to_and_counted_once() {
        let running = Peer::lockwheel().start(&[]).expect("a server");
        let mut schedule = Schedule::new(&running, 20_000.0).expect("it lets us in");
        let done = schedule.keep(Duration::from_millis(20)).expect("locks");
        // On the mean 400; the draw is the same every time, and does not depend on the server.
        assert!((300..500).contains(&done), "{done}");
        assert_eq!(schedule.latencies.len(), done);
    }
}
