//! The time of a flush on the disk of each server: the lower bound of a durable change.

use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_timerslack;

use super::{histogram, on_disk, record};
use crate::Outcome;
use crate::figures::{Metric, Reading};
use crate::servers::ComparedServer;
use crate::workload::{Effort, Workload};

/// About the size of a logged lock and its release.
const WRITE_BYTES: usize = 200;
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

pub(super) fn all(flush_delays: &[Duration]) -> Vec<Box<dyn Workload>> {
    let of_delay = |&flush_delay| Box::new(Flush { flush_delay }) as Box<dyn Workload>;
    flush_delays.iter().map(of_delay).collect()
}

struct Flush {
    flush_delay: Duration,
}

impl Workload for Flush {
    fn group(&self) -> &'static str {
        "Durable: flush"
    }

    fn parameters(&self) -> String {
        on_disk("write of 200 bytes", self.flush_delay)
    }

    fn note(&self) -> &'static str {
        "The time of a write and its fdatasync by this program, in a loop in the directory in \
         which the server of the column has its log. A longer flush is followed by a sleep, as in \
         the servers."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let directory = server.log_directory(Duration::ZERO)?;
        let mut file = File::create(directory.path().join("flushed"))?;
        // By default, a sleep takes up to 50 us longer than requested.
        set_timerslack(1)?;
        let mut latencies = histogram()?;
        let began = Instant::now();
        while latencies.is_empty() || began.elapsed() < effort.span {
            let start = Instant::now();
            file.write_all(&[b'.'; WRITE_BYTES])?;
            file.sync_data()?;
            if !self.flush_delay.is_zero() {
                thread::sleep(self.flush_delay);
            }
            record(&mut latencies, start, Instant::now());
        }
        // Not compared: all servers have the same disk.
        let reading = |(name, quantile): (&str, f64)| {
            let latency_us = latencies.value_at_quantile(quantile) as f64 / 1e3;
            Metric::info(format!("flush, {name}"), "us").with(latency_us)
        };
        Ok(QUANTILES.map(reading).into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::all;
    use crate::workload::tests::check_runs;

    #[test]
    fn flush_workloads_run() {
        let delays = [Duration::ZERO, Duration::from_micros(100)];
        all(&delays).iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
