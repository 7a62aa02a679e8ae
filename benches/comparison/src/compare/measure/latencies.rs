//! Distributions of latencies.

use std::time::Instant;

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;

use super::metric::{Metric, Reading};

/// Largest recorded latency: longer than any.
const LONGEST_NS: u64 = 120_000_000_000;
/// Significant digits of the histograms: a precision of a thousandth.
const DIGITS: u8 = 3;

/// An empty histogram of nanoseconds.
pub(crate) fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_max(LONGEST_NS, DIGITS)?)
}

/// Adds the time since a moment.
pub(crate) fn record(latencies: &mut Histogram<u64>, since: Instant, now: Instant) {
    let latency = now.saturating_duration_since(since).as_nanos();
    latencies.saturating_record(u64::try_from(latency).unwrap_or(LONGEST_NS));
}

/// Readings of the latencies of a subject, in microseconds: one for each quantile.
pub(crate) fn quantiles(
    subject: &str,
    latencies: &Histogram<u64>,
    quantiles: &[(&str, f64)],
) -> Vec<Reading> {
    let reading = |(name, quantile): &(&str, f64)| {
        let latency_us = latencies.value_at_quantile(*quantile) as f64 / 1e3;
        Metric::cost(format!("{subject}, {name}"), "us").with(latency_us)
    };
    quantiles.iter().map(reading).collect()
}
