//! How long it takes until locks are granted again.

use std::collections::BTreeMap;
use std::fmt;

use lockwheel_compat::history::{Action, Answer};
use lockwheel_tests::load::clients::Record;

use crate::faults::{Failed, Fault};

/// An answer that comes sooner after a fault was under way before.
const UNDER_WAY_US: i64 = 50_000;

/// The times from the faults to the next granted lock.
#[derive(Default)]
pub(crate) struct Times {
    failovers: u32,
    /// Of a client that connects anew at once, by fault.
    probe_us: BTreeMap<Fault, Vec<i64>>,
    /// After the kills of leaders, by library: of each of its threads.
    libraries_us: BTreeMap<String, Vec<i64>>,
}

impl Times {
    /// The faults after which another server led.
    pub(crate) fn failovers(&self) -> u32 {
        self.failovers
    }

    /// All faults.
    pub(crate) fn faults(&self) -> usize {
        self.probe_us.values().map(Vec::len).sum()
    }

    /// Adds a fault, with the requests until its end.
    pub(crate) fn add(&mut self, failed: &Failed, records: &[Record]) {
        let Failed { fault, span, granted_us, has_moved } = *failed;
        self.failovers += u32::from(has_moved);
        self.probe_us.entry(fault).or_default().push(granted_us - span.begin_us);
        if fault != Fault::KillLeader {
            return;
        }
        let mut first_us: BTreeMap<&str, i64> = BTreeMap::new();
        for Record { event, .. } in records {
            let returned_us = event.returned_us.unwrap_or(i64::MAX);
            let is_later = returned_us > span.begin_us + UNDER_WAY_US;
            let is_acquired = matches!(event.action, Action::Acquire { .. });
            if is_acquired && event.answer == Answer::Granted && is_later {
                let thread = event.client.rsplit_once('.').map_or("", |(thread, _)| thread);
                let first_us = first_us.entry(thread).or_insert(i64::MAX);
                *first_us = returned_us.min(*first_us);
            }
        }
        for (thread, first_us) in first_us {
            let library = thread.rsplit_once('-').map_or(thread, |(library, _)| library);
            let times = self.libraries_us.entry(library.to_owned()).or_default();
            times.push(first_us - span.begin_us);
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} failovers; time to the next granted lock, in ms", self.failovers)?;
        for (fault, times_us) in &self.probe_us {
            write!(f, "\n  {fault:?}: {}", Spread::of(times_us))?;
        }
        for (library, times_us) in &self.libraries_us {
            write!(f, "\n  {library}, threads after KillLeader: {}", Spread::of(times_us))?;
        }
        Ok(())
    }
}

/// How some times are spread.
struct Spread {
    count: usize,
    median_ms: i64,
    most_of_100_ms: i64,
    greatest_ms: i64,
}

impl Spread {
    fn of(times_us: &[i64]) -> Spread {
        let mut sorted = times_us.to_owned();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).map_or(0, |us| us / 1000)
        };
        let count = sorted.len();
        Spread { count, median_ms: at(50), most_of_100_ms: at(99), greatest_ms: at(100) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { count, median_ms, most_of_100_ms, greatest_ms } = self;
        write!(f, "{count} times, median {median_ms}, 99 % {most_of_100_ms}, max {greatest_ms}")
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn ranks_are_those_of_the_sorted_times() {
        let times_us: Vec<i64> = (1..=200).rev().map(|ms| ms * 1000).collect();
        let spread = Spread::of(&times_us).to_string();
        assert_eq!(spread, "200 times, median 100, 99 % 198, max 200");
    }
}
