//! Workloads with a log that is flushed before each reply: cycles, reads beside writers, restarts
//! and snapshots, and the time of a flush on the same disk.

mod closed_loop;
mod cycles;
mod flush;
mod reads;
mod restart;
mod snapshot;

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;

use crate::measure::load::{LockType, hold};
use crate::measure::metric::{Metric, Reading};
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Family;

/// Longer than any latency.
const LONGEST_NS: u64 = 120_000_000_000;
/// Significant digits of the histograms: a precision of a thousandth.
const DIGITS: u8 = 3;
/// By which factor a quick run has fewer locks.
const QUICK_DIVISOR: u32 = 100;
/// The log is rewritten only when a workload requests it.
const NO_REWRITE: [&str; 2] = ["--auto-aof-rewrite-percentage", "0"];
/// The longest time of a rewrite.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two looks at the state of a rewrite.
const REWRITE_POLL: Duration = Duration::from_millis(20);

/// All workloads, on disks whose flushes take longer by each of these delays.
pub(crate) fn families(flush_delays: &[Duration]) -> Vec<Family> {
    vec![
        ("flushes", flush::all(flush_delays)),
        ("cycles", cycles::all(flush_delays)),
        ("reads", reads::all(flush_delays)),
        ("restart", restart::all()),
        ("snapshot", snapshot::all()),
    ]
}

/// The parameters of a workload on a disk.
fn on_disk(parameters: &str, flush_delay: Duration) -> String {
    match flush_delay.is_zero() {
        true => parameters.to_owned(),
        false => format!("{parameters}, flush {} ms longer", flush_delay.as_secs_f64() * 1e3),
    }
}

/// Starts a server on a disk, and checks that the delay works: if its library cannot be loaded, the
/// server starts without it.
fn start(server: &ComparedServer, flush_delay: Duration) -> Outcome<Running> {
    let running = server.start_with_log(&server.log_directory(flush_delay)?, &[])?;
    let began = Instant::now();
    running.ask(&["SET", "flushed", "", "PX", "1"])?;
    match began.elapsed() < flush_delay {
        true => Err("the flushes of the server are not delayed".into()),
        false => Ok(running),
    }
}

/// Takes locks for an hour without flushing each, and flushes them all at the end.
fn hold_and_flush(running: &Running, locks: u32) -> Outcome<()> {
    running.ask(&["CONFIG", "SET", "appendfsync", "no"])?;
    hold(running.address, locks, LockType::String)?;
    running.ask(&["CONFIG", "SET", "appendfsync", "always"])?;
    running.ask(&["SET", "flushed", "", "PX", "1"])?;
    Ok(())
}

/// Rewrites the log (Lockwheel: takes a snapshot) and waits for the end. Returns how long it took.
fn rewrite(running: &Running) -> Outcome<Duration> {
    let began = Instant::now();
    let mut wire = running.open()?;
    wire.call(&["BGREWRITEAOF"])?;
    loop {
        thread::sleep(REWRITE_POLL);
        let info = String::from_utf8_lossy(&wire.call(&["INFO", "persistence"])?.text).into_owned();
        let holds = |field: &str| info.lines().any(|line| line.trim_end() == field);
        let fields = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
        if fields.into_iter().all(holds) && holds("rdb_bgsave_in_progress:0") {
            return match holds("aof_last_bgrewrite_status:ok") {
                true => Ok(began.elapsed()),
                false => Err("the log could not be rewritten".into()),
            };
        }
        if began.elapsed() > REWRITE_TIMEOUT {
            return Err("the rewrite of the log does not end".into());
        }
    }
}

/// An empty histogram of nanoseconds.
pub(crate) fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_max(LONGEST_NS, DIGITS)?)
}

/// Adds the time since a moment.
pub(crate) fn record(latencies: &mut Histogram<u64>, since: Instant, now: Instant) {
    let latency = now.saturating_duration_since(since).as_nanos();
    latencies.saturating_record(u64::try_from(latency).unwrap_or(LONGEST_NS));
}

/// Readings of a distribution of latencies.
pub(crate) fn quantiles(
    what: &str,
    latencies: &Histogram<u64>,
    quantiles: &[(&str, f64)],
) -> Vec<Reading> {
    let reading = |(name, quantile): &(&str, f64)| {
        let latency_us = latencies.value_at_quantile(*quantile) as f64 / 1e3;
        Metric::cost(format!("{what}, {name}"), "us").with(latency_us)
    };
    quantiles.iter().map(reading).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{on_disk, start};
    use crate::measure::servers::ComparedServer;

    #[test]
    fn disk_is_named_by_its_delay() {
        let named = |us| on_disk("1 connection", Duration::from_micros(us));
        assert_eq!(named(0), "1 connection");
        assert_eq!(named(250), "1 connection, flush 0.25 ms longer");
        assert_eq!(named(2000), "1 connection, flush 2 ms longer");
    }

    #[test]
    fn flushes_of_a_server_are_delayed() {
        start(&ComparedServer::lockwheel(), Duration::from_millis(50)).expect("delayed flushes");
    }
}
