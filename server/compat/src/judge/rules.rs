//! The rules of a lock: what a correct lock may answer.

/// The rules of the lock of a history.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether the holder may acquire it again and must then release it as often.
    pub reentrant: bool,
    /// The number of clients that may hold it at once.
    pub permits: usize,
    /// Whether refused clients get it in the order of their first requests.
    pub fair: bool,
    /// The relative difference of two clocks, in millionths.
    pub drift_ppm: i64,
    /// The time by which a lease may be shorter than requested.
    pub early_us: i64,
    /// The time by which a lease may be longer than requested.
    pub late_us: i64,
    /// The longest time for which a lock may be free while a client waits; `None` for no limit.
    pub idle_us: Option<i64>,
}

impl Rules {
    /// A lock with one holder, not reentrant, and one clock for all clients.
    pub const LOCK: Rules = Rules {
        reentrant: false,
        permits: 1,
        fair: false,
        drift_ppm: 0,
        early_us: 0,
        late_us: 0,
        idle_us: None,
    };

    /// The largest difference of two clocks after that span.
    pub(super) fn drift_us(&self, span_us: i64) -> i64 {
        // Rounded up, so that a rounding error is not reported as a violation.
        let product = i128::from(span_us) * i128::from(self.drift_ppm);
        i64::try_from(product.div_euclid(1_000_000) + i128::from(product % 1_000_000 != 0))
            .unwrap_or(i64::MAX)
    }

    /// The earliest end of a lease that began at `began_us`.
    pub(super) fn earliest_end_us(&self, began_us: i64, ttl_us: i64) -> i64 {
        let end_us = began_us.saturating_add(ttl_us).saturating_sub(self.early_us);
        end_us.saturating_sub(self.drift_us(ttl_us))
    }

    /// The latest end of a lease that began at `began_us`.
    pub(super) fn latest_end_us(&self, began_us: i64, ttl_us: i64) -> i64 {
        let end_us = began_us.saturating_add(ttl_us).saturating_add(self.late_us);
        end_us.saturating_add(self.drift_us(ttl_us))
    }
}
