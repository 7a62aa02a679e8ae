//! How long it takes until locks are granted again.

use std::collections::BTreeMap;
use std::fmt;

use lockwheel_compat::judge::history::{Action, Answer};
use lockwheel_tests::load::clients::Record;

use crate::faults::{FailoverFault, InjectedFault};

/// Longest time after a fault in which an answer can arrive that was sent before the fault.
const UNDER_WAY_US: i64 = 50_000;

/// The times from the faults to the next granted lock.
#[derive(Default)]
pub(crate) struct Times {
    failovers: u32,
    /// The times of a client that reconnects at once, by fault.
    probe_us: BTreeMap<FailoverFault, Vec<i64>>,
    libraries: BTreeMap<String, Waits>,
    /// The threads of clients: the time of the kill after which a thread has got no lock yet.
    waiting_us: BTreeMap<String, Option<i64>>,
}

/// The locks and the waits of the threads of a library.
#[derive(Default)]
struct Waits {
    locks: u64,
    /// The times from a kill of the leader to the next lock of each thread.
    times_us: Vec<i64>,
}

impl Times {
    /// Returns the number of faults after which another server led.
    pub(crate) fn failovers(&self) -> u32 {
        self.failovers
    }

    /// Returns the number of all faults.
    pub(crate) fn faults(&self) -> usize {
        self.probe_us.values().map(Vec::len).sum()
    }

    /// The longest time from a fault to the next granted lock, for a client that reconnects at
    /// once.
    pub(crate) fn longest_ms(&self) -> i64 {
        self.probe_us.values().flatten().max().map_or(0, |us| us / 1000)
    }

    /// Adds a fault, with the requests since the one before.
    pub(crate) fn add(&mut self, injected: &InjectedFault, records: &[Record]) {
        let InjectedFault { kind, fault, granted_us, has_moved } = injected;
        self.failovers += u32::from(*has_moved);
        self.probe_us.entry(*kind).or_default().push(granted_us - fault.begin_us);
        for record in records {
            let (_, library) = thread_and_library(record);
            let waits = self.libraries.entry(library.to_owned()).or_default();
            waits.locks += u64::from(is_grant(record));
        }
        let grants = || records.iter().filter(|record| is_grant(record));
        let is_later = |record: &&Record| returned_us(record) > fault.begin_us + UNDER_WAY_US;
        grants().filter(|record| !is_later(record)).for_each(|record| self.end_wait(record));
        if *kind == FailoverFault::KillLeader {
            for since_us in self.waiting_us.values_mut() {
                since_us.get_or_insert(fault.begin_us);
            }
        }
        grants().filter(is_later).for_each(|record| self.end_wait(record));
    }

    /// Ends the wait of a thread that was granted a lock.
    fn end_wait(&mut self, record: &Record) {
        let (thread, library) = thread_and_library(record);
        if let Some(since_us) = self.waiting_us.insert(thread.to_owned(), None).flatten() {
            let waits = self.libraries.entry(library.to_owned()).or_default();
            waits.times_us.push(returned_us(record) - since_us);
        }
    }
}

fn thread_and_library(record: &Record) -> (&str, &str) {
    let client = &record.event.client;
    let (thread, _) = client.rsplit_once('.').unwrap_or((client, ""));
    let (library, _) = thread.rsplit_once('-').unwrap_or((thread, ""));
    (thread, library)
}

fn returned_us(record: &Record) -> i64 {
    record.event.returned_us.unwrap_or(i64::MAX)
}

fn is_grant(record: &Record) -> bool {
    let is_acquire = matches!(record.event.action, Action::Acquire { .. });
    is_acquire && record.event.answer == Answer::Granted
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} failovers; time to the next granted lock, in ms", self.failovers)?;
        for (fault, times_us) in &self.probe_us {
            write!(f, "\n  {fault:?}: {}", Spread::of(times_us))?;
        }
        for (library, Waits { locks, times_us }) in &self.libraries {
            let spread = Spread::of(times_us);
            write!(f, "\n  {library}: {locks} locks; its threads after KillLeader: {spread}")?;
        }
        Ok(())
    }
}

/// The distribution of some times.
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
