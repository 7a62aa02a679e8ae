//! How long commands take: the times of each command, the slow log, and the events of the latency
//! monitor. The caller's clock is read once at the end of each command; a command begins when the
//! one before it ended, or when its caller says so. Commands in a script or transaction share a
//! reading while the system has not ticked, since a reading costs as much as a small command.

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

/// Longest time between two ticks of a system. Commands share a reading of the clock only if those
/// that take less are not noted.
const TICK_NS_MAX: u64 = 10_000_000;

/// Most commands that share a reading of the clock.
const SHARING_MAX: usize = 64;

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
    /// When the last command ended whose end was read from the caller's clock.
    boundary_ns: u64,
    /// The commands that have ended since, in a script or transaction, and before the next tick.
    sharing: Vec<usize>,
    /// Whether commands may share a reading.
    may_share: bool,
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
        let mut latency = Latency {
            boundary_ns: 0,
            sharing: Vec::new(),
            may_share: false,
            noted_ns: 0,
            event_ns: 0,
            is_tracking: true,
            slow_log,
            events,
        };
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
        self.may_share = self.noted_ns >= TICK_NS_MAX;
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
    /// Begins the time of the next request: the time before belongs to no command, but to those of
    /// a script that runs.
    #[inline]
    pub fn begin_requests(&mut self) {
        self.begin_requests_at((self.process.clock_ns)());
    }

    /// As [`Engine::begin_requests`], at this time of the caller's clock.
    #[inline]
    pub fn begin_requests_at(&mut self, now_ns: u64) {
        self.end_sharing(now_ns, 0);
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

    /// As [`Engine::command_begin_ns`], for a command in a script or transaction that shares no
    /// reading.
    pub(crate) fn command_begin_read_ns(&mut self) -> u64 {
        if !self.latency.sharing.is_empty() {
            self.end_sharing((self.process.clock_ns)(), 0);
        }
        self.latency.boundary_ns
    }

    /// Ends the time of a command. Returns how long it took, if that must be noted.
    #[inline(always)]
    pub(crate) fn end_command(&mut self, at: usize, begin_ns: u64) -> Option<u64> {
        let end_ns = (self.process.clock_ns)();
        self.end_sharing(end_ns, 0);
        self.add_time(at, end_ns.saturating_sub(begin_ns))
    }

    /// As [`Engine::end_command`], for a command that may share the next reading. It is noted if it
    /// took long, since the system has ticked then.
    #[inline(always)]
    pub(crate) fn end_sharing_command(&mut self, at: usize) -> Option<u64> {
        let latency = &mut self.latency;
        if latency.may_share
            && latency.sharing.len() < SHARING_MAX
            && (self.process.tick_ns)() <= latency.boundary_ns
        {
            latency.sharing.push(at);
            return None;
        }
        let took_ns = self.end_sharing((self.process.clock_ns)(), 1);
        self.add_time(at, took_ns)
    }

    #[inline(always)]
    fn add_time(&mut self, at: usize, took_ns: u64) -> Option<u64> {
        self.command_stats[at].times.add(took_ns, self.latency.is_tracking);
        (took_ns >= self.latency.noted_ns).then_some(took_ns)
    }

    /// Ends the time since the last reading of the clock, and divides it among the commands that
    /// share it and `further` ones. Returns the part of the further ones.
    #[inline(always)]
    fn end_sharing(&mut self, now_ns: u64, further: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.latency.boundary_ns);
        self.latency.boundary_ns = now_ns;
        if self.latency.sharing.is_empty() { span_ns } else { self.divide(span_ns, further) }
    }

    /// Divides a time equally. Those that share it ended before the next tick: if it is longer,
    /// they get nothing.
    fn divide(&mut self, span_ns: u64, further: u64) -> u64 {
        let Latency { sharing, is_tracking, .. } = &mut self.latency;
        let sharers = sharing.len() as u64;
        let share_ns = if span_ns < TICK_NS_MAX { span_ns / (sharers + further) } else { 0 };
        for &at in &*sharing {
            self.command_stats[at].times.add(share_ns, *is_tracking);
        }
        sharing.clear();
        span_ns - share_ns * sharers
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
    use std::sync::atomic::{AtomicU64, Ordering};

    use hdrhistogram::Histogram;

    use super::{DIGITS, SHARING_MAX, TIME_NS_MAX, Times, class_of, least_of};
    use crate::settings::Settings;
    use crate::testing::Stage;

    /// A server on which each reading of the clock is a step after the one before, and the system
    /// has ticked since, or never.
    macro_rules! stage_with_clock {
        ($step_ns:expr, $has_ticked:expr) => {{
            static NOW_NS: AtomicU64 = AtomicU64::new(0);
            let mut stage = Stage::new(Settings::default());
            stage.engine.process.clock_ns = || NOW_NS.fetch_add($step_ns, Ordering::Relaxed);
            stage.engine.process.tick_ns = match $has_ticked {
                true => || NOW_NS.load(Ordering::Relaxed),
                false => || 0,
            };
            stage
        }};
    }

    #[test]
    fn commands_of_a_script_or_transaction_share_a_reading() {
        let check = |steps: &str, expected: &[(&str, usize, u32)]| {
            let mut stage = stage_with_clock!(600_000, false);
            stage.check(&format!("GET k; CONFIG RESETSTAT; {steps}"));
            let shown = stage.step("INFO commandstats");
            for (name, calls, us) in expected {
                let part = format!("cmdstat_{name}:calls={calls},usec={us},");
                assert!(shown.contains(&part), "{part} after {steps}: {shown}");
            }
        };
        let script = "EVAL \"redis.call('set', 'k', 'v') return redis.call('get', 'k')\" 0";
        check(script, &[("set", 1, 300), ("get", 1, 300), ("eval", 1, 600)]);
        check("MULTI; GET k; PING; EXEC", &[("get", 1, 300), ("ping", 1, 300), ("exec", 1, 600)]);
        // A reading ends the time of the commands before the script.
        check(
            &format!("MULTI; GET k; GET k; {script}; SET k w; EXEC"),
            &[("get", 3, 900), ("set", 2, 900), ("eval", 1, 600), ("exec", 1, 1_800)],
        );
        check(
            "MULTI; GET k; CONFIG RESETSTAT; PING; EXEC",
            &[("config|resetstat", 1, 600), ("ping", 1, 600), ("exec", 1, 1_800)],
        );
        let calls = SHARING_MAX + 1;
        check(
            &format!("EVAL \"for i = 1, {calls} do redis.call('ping') end\" 0"),
            &[("ping", calls, 600), ("eval", 1, 1_200)],
        );
    }

    #[test]
    fn slow_command_of_a_script_has_its_own_entry() {
        let script = "EVAL \"redis.call('get', 'k') return redis.call('get', 'l')\" 0";
        for (threshold_us, has_ticked, is_noted) in
            [(10_000, false, false), (10_000, true, true), (9_999, false, true)]
        {
            let mut stage = stage_with_clock!(20_000_000, has_ticked);
            stage.check(&format!("CONFIG SET slowlog-log-slower-than {threshold_us}"));
            stage.check(&format!("SLOWLOG RESET; {script}"));
            let shown = stage.step("SLOWLOG GET");
            assert!(shown.contains("EVAL"), "{shown}");
            for words in ["[\"get\", \"k\"]", "[\"get\", \"l\"]"] {
                assert_eq!(shown.contains(words), is_noted, "{threshold_us} {has_ticked} {shown}");
            }
        }
    }

    #[test]
    fn command_that_runs_at_its_time_out_does_not_get_the_time_before() {
        static NOW_NS: AtomicU64 = AtomicU64::new(0);
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || NOW_NS.load(Ordering::Relaxed);
        stage.check("LOCK.ACQUIRE k a TTL 60000; CONFIG RESETSTAT; SLOWLOG RESET");
        stage.step("b> LOCK.ACQUIRE k b TTL 60000 WAIT 1000");
        // Nothing runs meanwhile.
        NOW_NS.fetch_add(1_000_000_000, Ordering::Relaxed);
        stage.check("+1000ms");
        let shown = stage.step("INFO commandstats");
        assert!(shown.contains("cmdstat_lock.acquire:calls=1,usec=0,"), "{shown}");
        assert_eq!(stage.step("SLOWLOG LEN"), "0");
    }

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
