//! Judges of histories: whether what clients saw of locks is possible if the locks are right.
//!
//! [`entitlement`] proves offences one by one and gives no false alarms; [`linear`] asks whether
//! there is any order of events in which a right lock, [`lock`], would have answered so.

pub mod entitlement;
mod holds;
#[cfg(test)]
mod known;
pub mod linear;
pub mod lock;

/// What kind of lock a history is of.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether who holds it may take it again, and must then release it as often.
    pub reentrant: bool,
    /// How many may hold it at once.
    pub permits: usize,
    /// Whether those who were refused get it in the order in which they first asked.
    pub fair: bool,
    /// By how much of itself a lease may differ between two clocks, in millionths.
    pub drift_ppm: i64,
    /// How much shorter than promised a lease may be.
    pub early_us: i64,
    /// How much longer than promised a lease may last.
    pub late_us: i64,
    /// For how long a lock may be free and waited for; `None` if nothing is promised.
    pub idle_us: Option<i64>,
}

impl Rules {
    /// A lock of one holder, once at a time, with one clock for all.
    pub const LOCK: Rules = Rules {
        reentrant: false,
        permits: 1,
        fair: false,
        drift_ppm: 0,
        early_us: 0,
        late_us: 0,
        idle_us: None,
    };

    /// How far two clocks may be apart after that span.
    fn drift_us(&self, span_us: i64) -> i64 {
        // Rounded up: an error must not become an alarm.
        let product = i128::from(span_us) * i128::from(self.drift_ppm);
        i64::try_from(product.div_euclid(1_000_000) + i128::from(product % 1_000_000 != 0))
            .unwrap_or(i64::MAX)
    }

    /// The end of a lease that began then, at the earliest.
    fn earliest_end_us(&self, began_us: i64, ttl_us: i64) -> i64 {
        let end_us = began_us.saturating_add(ttl_us).saturating_sub(self.early_us);
        end_us.saturating_sub(self.drift_us(ttl_us))
    }

    /// The end of a lease that began then, at the latest.
    fn latest_end_us(&self, began_us: i64, ttl_us: i64) -> i64 {
        let end_us = began_us.saturating_add(ttl_us).saturating_add(self.late_us);
        end_us.saturating_add(self.drift_us(ttl_us))
    }
}
