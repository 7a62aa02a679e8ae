//! Counters of the network, and the rates of the last seconds, for `INFO`.
//!
//! A sample of the counters is kept at most every [`SAMPLE_INTERVAL_NS`], when requests begin or a
//! deadline is reached: an idle server takes none. A rate is the growth since the newest sample
//! that is as old as the samples that Redis takes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Engine;
use crate::limits::{RATE_SAMPLES, SAMPLE_INTERVAL_NS};

/// What the connections of a server have read and written. They count without the engine.
#[derive(Debug, Default)]
pub struct Traffic {
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Traffic {
    /// Counts a read from a socket.
    #[inline]
    pub fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.input_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a write to a socket.
    #[inline]
    pub fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.output_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were read.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were written.
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes.load(Ordering::Relaxed)
    }

    /// Reads that returned bytes.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Writes that took bytes.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Sets all counters to zero.
    pub(crate) fn reset(&self) {
        for counter in [&self.input_bytes, &self.output_bytes, &self.reads, &self.writes] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The counters that have a rate.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_ns: u64,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
    expired_keys: u64,
}

/// The last samples, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    last: VecDeque<Sample>,
    /// When the next one is taken.
    pub(crate) next_ns: u64,
}

/// Growth per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) commands: f64,
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
    pub(crate) expired_keys: f64,
}

impl Engine {
    /// Keeps a sample of the counters, and the peak of the memory.
    #[cold]
    pub(crate) fn sample(&mut self, now_ns: u64) {
        let sample = self.sample_at(now_ns);
        self.samples.next_ns = now_ns.saturating_add(SAMPLE_INTERVAL_NS);
        self.samples.last.push_back(sample);
        if self.samples.last.len() > RATE_SAMPLES {
            self.samples.last.pop_front();
        }
        self.peak_memory_bytes();
    }

    fn sample_at(&self, at_ns: u64) -> Sample {
        Sample {
            at_ns,
            commands: self.commands_processed(),
            input_bytes: self.traffic.input_bytes(),
            output_bytes: self.traffic.output_bytes(),
            expired_keys: self.stats.expired_keys,
        }
    }

    /// The number of commands that have run.
    pub(crate) fn commands_processed(&self) -> u64 {
        self.command_stats.iter().map(|stats| stats.calls).sum()
    }

    /// The rates of the last seconds.
    pub(crate) fn rates(&self) -> Rates {
        let now = self.sample_at((self.process.clock_ns)());
        let window_ns = SAMPLE_INTERVAL_NS * RATE_SAMPLES as u64;
        let is_old = |sample: &&Sample| now.at_ns.saturating_sub(sample.at_ns) >= window_ns;
        let samples = &self.samples.last;
        let Some(from) = samples.iter().rev().find(is_old).or(samples.front()) else {
            return Rates::default();
        };
        let seconds = now.at_ns.saturating_sub(from.at_ns) as f64 / 1e9;
        let rate = |now: u64, then: u64| match seconds {
            0.0 => 0.0,
            _ => now.saturating_sub(then) as f64 / seconds,
        };
        Rates {
            commands: rate(now.commands, from.commands),
            input_bytes: rate(now.input_bytes, from.input_bytes),
            output_bytes: rate(now.output_bytes, from.output_bytes),
            expired_keys: rate(now.expired_keys, from.expired_keys),
        }
    }

    /// Forgets the samples, since the counters were reset.
    pub(crate) fn reset_rates(&mut self) {
        self.traffic.reset();
        self.samples = Samples::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::settings::Settings;
    use crate::testing::Stage;

    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    /// Two commands every 100 ms, then nothing for a minute.
    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || NOW_NS.load(Ordering::Relaxed);
        for _ in 0..100 {
            NOW_NS.fetch_add(100_000_000, Ordering::Relaxed);
            stage.engine.begin_requests();
            stage.check("SET k v; GET k");
            stage.engine.traffic().count_read(1024);
            stage.engine.traffic().count_write(2048);
        }
        NOW_NS.fetch_add(100_000_000, Ordering::Relaxed);
        stage.engine.begin_requests();
        let rates = stage.engine.rates();
        assert_eq!(
            (rates.commands, rates.input_bytes, rates.output_bytes),
            (20.0, 10240.0, 20480.0)
        );
        stage.check(
            "INFO stats => ...instantaneous_ops_per_sec:20\\r\\n...\
               instantaneous_input_kbps:10.00\\r\\ninstantaneous_output_kbps:20.00...",
        );
        NOW_NS.fetch_add(60_000_000_000, Ordering::Relaxed);
        assert!(stage.engine.rates().commands < 0.1);
        stage.check("CONFIG RESETSTAT; INFO stats => ...instantaneous_ops_per_sec:0\\r\\n...");
        assert_eq!(stage.engine.traffic().reads(), 0);
    }
}
