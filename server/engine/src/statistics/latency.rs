//! How long commands take: the times of each command, the slow log, and the events of the latency
//! monitor. The caller's clock is read once at the end of each command; a command begins when the
//! one before it ended, or when its caller says so.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;

use crate::Engine;
use crate::command::argument::without_secrets;
use crate::command::{Entry, Flags};
use crate::sessions::ClientId;
use crate::sessions::buffers::BufferSizes;
use crate::settings::Settings;
use crate::statistics::slow_log::{SlowCommand, SlowLog, shortened};
use crate::timing::time::Time;

/// Longest time of the distribution, as in Redis: longer ones count as this one, a second.
const TIME_NS_MAX: u64 = 1_000_000_000;

/// Events that are kept of each kind, as in Redis.
const EVENTS_MAX: usize = 160;

/// The event of the time in which keys were removed at their deadlines, between commands.
pub(crate) const EXPIRE_CYCLE: &str = "expire-cycle";

/// The event of a flush of the log that replies have waited for.
const FLUSH: &str = "aof-fsync-always";

/// The times of one command. They use memory when the command is first called.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The sum, in nanoseconds.
    pub total_ns: u64,
    /// How many calls took a time of each class ([`class_of`]). A histogram takes 70 instructions
    /// to record one, so that it is made when it is asked for.
    counts: Box<[u64]>,
}

impl Times {
    /// Adds the time of one call.
    #[inline(always)]
    fn add(&mut self, took_ns: u64, is_tracked: bool) {
        self.total_ns = self.total_ns.wrapping_add(took_ns);
        if is_tracked {
            match self.counts.get_mut(class_of(took_ns.min(TIME_NS_MAX))) {
                Some(count) => *count += 1,
                None => self.begin_counts(took_ns),
            }
        }
    }

    /// Takes back the time of a call that was just added.
    fn remove(&mut self, took_ns: u64, is_tracked: bool) {
        self.total_ns = self.total_ns.wrapping_sub(took_ns);
        if is_tracked && let Some(count) = self.counts.get_mut(class_of(took_ns.min(TIME_NS_MAX))) {
            *count -= 1;
        }
    }

    #[cold]
    fn begin_counts(&mut self, took_ns: u64) {
        self.counts = vec![0; class_of(TIME_NS_MAX) + 1].into();
        self.counts[class_of(took_ns.min(TIME_NS_MAX))] = 1;
    }

    /// The distribution of the times, in nanoseconds, if any was recorded.
    pub fn histogram(&self) -> Option<Histogram<u64>> {
        // The same classes, so nothing is lost.
        let mut histogram = Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).ok()?;
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.for_each(|(class, &count)| {
            histogram.saturating_record_n(least_of(class).max(1), count);
        });
        (!histogram.is_empty()).then_some(histogram)
    }
}

/// The decimal digits of a time that determine its class, as in Redis.
const DIGITS: u8 = 2;

/// The binary digits of a time that determine its class, without the first one.
const CLASS_BITS: u32 = 7;

/// The class of a time. The classes are those of a histogram with two decimal digits: each time of
/// less than 256 ns has one, and between powers of two, 128 have the same width.
#[inline(always)]
fn class_of(ns: u64) -> usize {
    let shift = (u64::BITS - 1 - CLASS_BITS).saturating_sub(ns.leading_zeros());
    ((shift as usize) << CLASS_BITS) + (ns >> shift) as usize
}

/// The least time of a class.
fn least_of(class: usize) -> u64 {
    let shift = (class >> CLASS_BITS).saturating_sub(1);
    ((class - (shift << CLASS_BITS)) as u64) << shift
}

/// One event of the latency monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatencyEvent {
    /// In seconds since the Unix epoch.
    pub(crate) at_seconds: i64,
    /// How long it took, in milliseconds.
    pub(crate) took_ms: u64,
}

/// The events of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyEvents {
    /// The last ones, the oldest first. Of one second, the longest.
    pub(crate) last: VecDeque<LatencyEvent>,
    /// The longest of all, in milliseconds.
    pub(crate) longest_ms: u64,
}

/// The thresholds, the slow log and the events of the latency monitor.
#[derive(Debug)]
pub(crate) struct Latency {
    /// When the last command ended, by the caller's clock.
    boundary_ns: u64,
    /// Shortest time of a command that is noted in the slow log or as an event.
    noted_ns: u64,
    /// Shortest time of an event of the latency monitor.
    event_ns: u64,
    /// Whether the distribution of times is recorded.
    is_tracking: bool,
    /// The last slow commands.
    pub(crate) slow_log: SlowLog,
    /// The events of the latency monitor by their kind.
    pub(crate) events: BTreeMap<&'static str, LatencyEvents>,
}

impl Latency {
    /// No times yet.
    pub(crate) fn new(settings: &Settings) -> Latency {
        let (slow_log, events) = (SlowLog::default(), BTreeMap::new());
        let (boundary_ns, noted_ns, event_ns, is_tracking) = (0, 0, 0, true);
        let mut latency =
            Latency { boundary_ns, noted_ns, event_ns, is_tracking, slow_log, events };
        latency.set_limits(settings);
        latency
    }

    /// Takes over the directives of the slow log and the latency monitor.
    pub(crate) fn set_limits(&mut self, settings: &Settings) {
        let slow_us = u64::try_from(settings.slowlog_log_slower_than_us);
        let slow_ns = slow_us.map_or(u64::MAX, |us| us.saturating_mul(1_000));
        self.event_ns = match settings.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.noted_ns = slow_ns.min(self.event_ns);
        self.is_tracking = settings.latency_tracking;
    }

    /// Adds an event to the latency monitor, if it took at least the threshold.
    #[inline]
    pub(crate) fn note(&mut self, kind: &'static str, took_ns: u64, time: Time) {
        if took_ns >= self.event_ns {
            self.add_event(kind, took_ns, time);
        }
    }

    #[cold]
    fn add_event(&mut self, kind: &'static str, took_ns: u64, time: Time) {
        let at_seconds = time.wall_us.div_euclid(1_000_000);
        let event = LatencyEvent { at_seconds, took_ms: took_ns / 1_000_000 };
        let events = self.events.entry(kind).or_default();
        events.longest_ms = events.longest_ms.max(event.took_ms);
        match events.last.back_mut() {
            Some(last) if last.at_seconds == event.at_seconds => {
                last.took_ms = last.took_ms.max(event.took_ms);
            }
            _ => events.last.push_back(event),
        }
        if events.last.len() > EVENTS_MAX {
            events.last.pop_front();
        }
    }
}

impl Engine {
    /// Begins the time of the next request: the time before belongs to no command.
    #[inline]
    pub fn begin_requests(&mut self) {
        self.begin_requests_at((self.process.clock_ns)());
    }

    /// As [`Engine::begin_requests`], at this time of the caller's clock.
    #[inline]
    pub fn begin_requests_at(&mut self, now_ns: u64) {
        self.latency.boundary_ns = now_ns;
        if now_ns >= self.samples.next_ns {
            self.sample(now_ns);
        }
    }

    /// As [`Engine::begin_requests_at`], of a connection whose buffers have these sizes now.
    #[inline]
    pub fn begin_requests_of(&mut self, client: ClientId, sizes: BufferSizes, now_ns: u64) {
        self.requests_of = Some((client, sizes));
        self.begin_requests_at(now_ns);
    }

    /// Notes the time of a flush of the log for which replies have waited.
    pub fn note_flush(&mut self, took_ns: u64, time: Time) {
        self.latency.note(FLUSH, took_ns, time);
    }

    /// When the command that is about to run begins.
    #[inline(always)]
    pub(crate) fn command_begin_ns(&self) -> u64 {
        self.latency.boundary_ns
    }

    /// Ends the time of a command. Returns how long it took, if that must be noted.
    #[inline(always)]
    pub(crate) fn end_command(&mut self, at: usize, begin_ns: u64) -> Option<u64> {
        let end_ns = (self.process.clock_ns)();
        self.latency.boundary_ns = end_ns;
        let took_ns = end_ns.saturating_sub(begin_ns);
        self.command_stats[at].times.add(took_ns, self.latency.is_tracking);
        (took_ns >= self.latency.noted_ns).then_some(took_ns)
    }

    /// Counts the time of a call.
    pub(crate) fn count_time(&mut self, at: usize, took_ns: u64) {
        self.command_stats[at].times.add(took_ns, self.latency.is_tracking);
    }

    /// Takes the time of a command that has just blocked its client out of the statistics, until
    /// the wait is over.
    pub(crate) fn count_time_later(&mut self, client: ClientId, at: usize, begin_ns: u64) {
        let took_ns = self.latency.boundary_ns.saturating_sub(begin_ns);
        self.command_stats[at].times.remove(took_ns, self.latency.is_tracking);
        self.sessions.set_waiting_command(client, at, took_ns);
    }

    /// Notes a command that took long, in the slow log with its words: a blocking command has none
    /// until it is served.
    #[cold]
    pub(crate) fn note_slow_command(
        &mut self,
        client: ClientId,
        entry: &Entry,
        argv: Option<&[&[u8]]>,
        took_ns: u64,
        time: Time,
    ) {
        let Settings { slowlog_log_slower_than_us, slowlog_max_len, .. } = self.settings;
        let (flags, took_us) = (entry.command.flags, took_ns / 1_000);
        let at_seconds = time.wall_us.div_euclid(1_000_000);
        let is_slow = u64::try_from(slowlog_log_slower_than_us).is_ok_and(|limit| took_us >= limit);
        if let Some(argv) = argv
            && is_slow
            && !flags.contains(Flags::SKIP_SLOWLOG)
        {
            let name_words = entry.full_name.split('|').count();
            let words = without_secrets(entry.command.arguments, name_words, argv);
            let client = self.sessions.get(client);
            let command = SlowCommand {
                number: 0,
                at_seconds,
                took_us,
                words: shortened(&words),
                address: client.map(|it| it.origin.address.clone()).unwrap_or_default(),
                client_name: client.map(|it| it.name.to_vec().into()).unwrap_or_default(),
            };
            let length_max = usize::try_from(slowlog_max_len).unwrap_or(usize::MAX);
            self.latency.slow_log.add(command, length_max);
        }
        let kind = if flags.contains(Flags::FAST) { "fast-command" } else { "command" };
        self.latency.note(kind, took_ns, time);
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::{DIGITS, TIME_NS_MAX, Times, class_of, least_of};

    #[test]
    fn classes_are_those_of_the_histogram() {
        let histogram = Histogram::<u64>::new_with_bounds(1, TIME_NS_MAX, DIGITS).expect("bounds");
        let powers = (0..30).map(|power| 1_u64 << power);
        let near = powers.flat_map(|power| [power - 1, power, power + 1, power * 5 / 4]);
        for ns in near.chain(1..2_000).chain([999_999_999, TIME_NS_MAX]) {
            let least = least_of(class_of(ns));
            assert_eq!(class_of(least), class_of(ns), "{ns}");
            assert_eq!(least.max(1), histogram.lowest_equivalent(ns).max(1), "{ns}");
        }
    }

    #[test]
    fn times_are_counted_up_to_one_second() {
        let mut times = Times::default();
        assert!(times.histogram().is_none());
        for took_ns in [0, 700, 701, 5_000_000_000, u64::MAX >> 1] {
            times.add(took_ns, true);
        }
        times.add(9, false);
        let histogram = times.histogram().expect("times");
        assert_eq!(histogram.len(), 5);
        assert_eq!(histogram.count_between(700, 703), 2);
        assert_eq!(histogram.max(), histogram.highest_equivalent(TIME_NS_MAX));
    }
}
