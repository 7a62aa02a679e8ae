//! The time of a flush on the disk of each server: the lower bound of a durable change.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use nix::sys::prctl::set_timerslack;

use super::logged::on_disk;
use crate::measure::effort::Effort;
use crate::measure::latencies::{histogram, record};
use crate::measure::metric::{Metric, Reading};
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

/// About the size of a logged lock and its release.
const WRITE_BYTES: usize = 200;
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)];
/// About the part of a snapshot that is flushed at once.
const PART_BYTES: usize = 1 << 20;
/// The length of a large file.
const LARGE_FILE_PARTS: u32 = 200;

pub(super) fn all(flush_delays: &[Duration]) -> Vec<Box<dyn Workload>> {
    let of_delay = |&flush_delay| {
        Box::new(Flush { flush_delay, beside_large_files: false }) as Box<dyn Workload>
    };
    let beside = Flush { flush_delay: Duration::ZERO, beside_large_files: true };
    flush_delays.iter().map(of_delay).chain([Box::new(beside) as Box<dyn Workload>]).collect()
}

struct Flush {
    flush_delay: Duration,
    /// Whether another thread writes large files meanwhile, and flushes each part.
    beside_large_files: bool,
}

impl Workload for Flush {
    fn group(&self) -> &'static str {
        "Durable: flush"
    }

    fn parameters(&self) -> String {
        match self.beside_large_files {
            true => "write of 200 bytes, beside a thread that writes large files".to_owned(),
            false => on_disk("write of 200 bytes", self.flush_delay),
        }
    }

    fn note(&self) -> &'static str {
        "The time of a write and its fdatasync by this program, in a loop in the directory in \
         which the server of the column has its log. A longer flush is followed by a sleep, as in \
         the servers. The longest wait for a durable reply is at least as long as the longest \
         flush; beside large files, that is the limit while a snapshot is written."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let directory = server.log_directory(Duration::ZERO)?;
        let mut file = File::create(directory.path().join("flushed"))?;
        let large_file = directory.path().join("large");
        let is_over = AtomicBool::new(!self.beside_large_files);
        thread::scope(|scope| {
            let large = scope.spawn(|| write_large_files(&large_file, &is_over));
            let readings = self.flush_in_loop(&mut file, effort.span);
            is_over.store(true, Ordering::Relaxed);
            large.join().map_err(|_| "the thread that writes large files has failed")??;
            readings
        })
    }
}

impl Flush {
    fn flush_in_loop(&self, file: &mut File, span: Duration) -> Outcome<Vec<Reading>> {
        // By default, a sleep takes up to 50 us longer than requested.
        set_timerslack(1)?;
        let mut latencies = histogram()?;
        let began = Instant::now();
        while latencies.is_empty() || began.elapsed() < span {
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

fn write_large_files(path: &Path, is_over: &AtomicBool) -> io::Result<()> {
    let part = vec![b'.'; PART_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        let mut file = File::create(path)?;
        for _ in (0..LARGE_FILE_PARTS).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            file.write_all(&part)?;
            file.sync_data()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn flush_workloads_run() {
        let delays = [Duration::ZERO, Duration::from_micros(100)];
        all(&delays).iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
