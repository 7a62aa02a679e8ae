//! Counters of the network, and the rates and largest buffers of the last seconds, for `INFO`.
//!
//! A sample of the counters is kept at most every [`SAMPLE_INTERVAL_NS`], when requests begin or a
//! deadline is reached: an idle server takes none. A rate is the growth since the newest sample
//! that is as old as the samples that Redis takes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Engine;
use crate::limits::{PEAK_SECONDS, RATE_SAMPLES, SAMPLE_INTERVAL_NS};

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
    /// Rounds of replication.
    rounds: u64,
    /// Units that were replicated.
    commits: u64,
}

/// The largest buffers of one connection in one second, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferPeaks {
    second: u64,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// The last samples, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    last: VecDeque<Sample>,
    /// When the last one was taken.
    at_ns: u64,
    /// When the next one is taken.
    pub(crate) next_ns: u64,
    /// Peaks of the last seconds, by the last digits of the seconds.
    peaks: [BufferPeaks; PEAK_SECONDS],
}

impl Samples {
    /// Keeps the largest buffers since the last sample, as of its time: an active server has taken
    /// it just before.
    fn keep_peaks(&mut self, (input, output): (usize, usize)) {
        let second = self.at_ns / 1_000_000_000;
        let kept = &mut self.peaks[second as usize % PEAK_SECONDS];
        if kept.second != second {
            *kept = BufferPeaks { second, ..BufferPeaks::default() };
        }
        (kept.input, kept.output) = (kept.input.max(input), kept.output.max(output));
    }

    /// The largest buffers of the last seconds.
    fn recent_peaks(&self, now_ns: u64) -> BufferPeaks {
        let second = now_ns / 1_000_000_000;
        let is_recent = |peaks: &&BufferPeaks| peaks.second + PEAK_SECONDS as u64 > second;
        let recent = || self.peaks.iter().filter(is_recent);
        let input = recent().map(|peaks| peaks.input).max().unwrap_or(0);
        let output = recent().map(|peaks| peaks.output).max().unwrap_or(0);
        BufferPeaks { second, input, output }
    }
}

/// Growth per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) commands: f64,
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
    pub(crate) expired_keys: f64,
    pub(crate) rounds: f64,
    pub(crate) commits: f64,
}

impl Engine {
    /// Keeps a sample of the counters, and the peak of the memory.
    #[cold]
    pub(crate) fn sample(&mut self, now_ns: u64) {
        let sample = self.sample_at(now_ns);
        self.samples.keep_peaks(self.sessions.clients.buffers.take_peaks());
        self.samples.at_ns = now_ns;
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
            rounds: self.nodes.rounds.count,
            commits: self.nodes.rounds.units,
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
            rounds: rate(now.rounds, from.rounds),
            commits: rate(now.commits, from.commits),
        }
    }

    /// The largest buffers of one connection in the last seconds and at present.
    pub(crate) fn recent_buffer_peaks(&mut self) -> BufferPeaks {
        let clients = &self.sessions.clients;
        self.samples.keep_peaks(clients.buffers.take_peaks());
        let mut peaks = self.samples.recent_peaks((self.process.clock_ns)());
        let present = clients.iter().map(|client| client.buffers.sizes());
        for sizes in present.chain(self.requests_of.map(|(_, sizes)| sizes)) {
            peaks.input = peaks.input.max(sizes.input());
            peaks.output = peaks.output.max(sizes.output());
        }
        peaks
    }

    /// Forgets the samples, since the counters were reset.
    pub(crate) fn reset_rates(&mut self) {
        self.traffic.reset();
        (self.samples.last, self.samples.next_ns) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::sessions::buffers::BufferSizes;
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

    static SECOND: AtomicU64 = AtomicU64::new(100);

    #[test]
    fn largest_buffers_are_those_of_the_last_seconds() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || SECOND.load(Ordering::Relaxed) * 1_000_000_000;
        let client = stage.client("b");
        let buffers = stage.engine.session(client).expect("a client").buffers.clone();
        let pass = |stage: &mut Stage, seconds| {
            for _ in 0..seconds {
                SECOND.fetch_add(1, Ordering::Relaxed);
                stage.engine.begin_requests();
            }
        };
        let shown = |input: usize, output: usize| {
            format!(
                "INFO clients => ...max_input_buffer:{input}\\r\\n\
                 client_recent_max_output_buffer:{output}..."
            )
        };
        pass(&mut stage, 1);
        buffers.set(BufferSizes { input: 5000, reply: 70, ..BufferSizes::default() });
        buffers.set(BufferSizes { arguments: 200, ..BufferSizes::default() });
        stage.check(&shown(5000, 70));
        pass(&mut stage, 7);
        stage.check(&shown(5000, 70));
        pass(&mut stage, 1);
        stage.check(&shown(200, 0));
        // A buffer that was freed counts from then on.
        pass(&mut stage, 20);
        buffers.set(BufferSizes::default());
        stage.check(&shown(200, 0));
        pass(&mut stage, 8);
        stage.check(&shown(0, 0));
        // What an idle server has done long ago is not recent.
        buffers.set(BufferSizes { input: 300, ..BufferSizes::default() });
        buffers.set(BufferSizes::default());
        SECOND.fetch_add(60, Ordering::Relaxed);
        stage.check(&shown(0, 0));
    }
}
