//! How long commands take: the times of each command, the slow log, and the events of the latency
//! monitor. The caller's clock is read once at the end of each command; a command begins when the
//! one before it ended, or when its caller says so.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;

use crate::Engine;
use crate::argument::without_secrets;
use crate::command::{Entry, Flags};
use crate::context::Context;
use crate::sessions::ClientId;
use crate::sessions::buffers::BufferSizes;
use crate::settings::Settings;
use crate::slow_log::{SlowCommand, SlowLog, shortened};
use crate::time::Time;

/// Longer times count as this one, as in Redis: one second.
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
    histogram: Option<Box<Histogram<u64>>>,
}

impl Times {
    /// Adds the time of one call.
    #[inline(always)]
    fn add(&mut self, took_ns: u64, is_tracked: bool) {
        self.total_ns = self.total_ns.wrapping_add(took_ns);
        if is_tracked {
            match &mut self.histogram {
                Some(histogram) => histogram.saturating_record(took_ns.max(1)),
                None => self.begin_histogram(took_ns),
            }
        }
    }

    #[cold]
    fn begin_histogram(&mut self, took_ns: u64) {
        // Two digits, as in Redis. The bounds are valid.
        if let Ok(mut histogram) = Histogram::new_with_bounds(1, TIME_NS_MAX, 2) {
            histogram.saturating_record(took_ns.max(1));
            self.histogram = Some(Box::new(histogram));
        }
    }

    /// The distribution of the times, in nanoseconds, if any was recorded.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.histogram.as_deref()
    }
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

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Latency {
    /// When the last command ended, by the caller's clock.
    boundary_ns: u64,
    /// Commands that take so long are noted in the slow log or as events.
    noted_ns: u64,
    /// What takes so long is an event of the latency monitor.
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

    /// Something has ended. It is an event of the latency monitor if it has taken long enough.
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
    /// The next request begins now: what was before belongs to no command.
    #[inline]
    pub fn begin_requests(&mut self) {
        let now_ns = (self.process.clock_ns)();
        self.latency.boundary_ns = now_ns;
        if now_ns >= self.samples.next_ns {
            self.sample(now_ns);
        }
    }

    /// As [`Engine::begin_requests`], of a connection whose buffers have these sizes now.
    #[inline]
    pub fn begin_requests_of(&mut self, client: ClientId, sizes: BufferSizes) {
        self.requests_of = Some((client, sizes));
        self.begin_requests();
    }

    /// A flush of the log that replies have waited for has taken so long.
    pub fn note_flush(&mut self, took_ns: u64, time: Time) {
        self.latency.note(FLUSH, took_ns, time);
    }

    /// When the command that is about to run begins.
    #[inline(always)]
    pub(crate) fn command_begin_ns(&self) -> u64 {
        self.latency.boundary_ns
    }

    /// A command has ended. Returns how long it took if that must be noted.
    #[inline(always)]
    pub(crate) fn end_command(&mut self, at: usize, begin_ns: u64) -> Option<u64> {
        let end_ns = (self.process.clock_ns)();
        self.latency.boundary_ns = end_ns;
        let took_ns = end_ns.saturating_sub(begin_ns);
        self.command_stats[at].times.add(took_ns, self.latency.is_tracking);
        (took_ns >= self.latency.noted_ns).then_some(took_ns)
    }
}

impl Context<'_> {
    /// Notes a command that took long.
    #[cold]
    pub(crate) fn note_slow_command(&mut self, entry: &Entry, argv: &[&[u8]], took_ns: u64) {
        let Settings { slowlog_log_slower_than_us, slowlog_max_len, .. } = self.engine.settings;
        let (flags, took_us) = (entry.command.flags, took_ns / 1_000);
        let Time { wall_us, .. } = self.time;
        let at_seconds = wall_us.div_euclid(1_000_000);
        let is_slow = u64::try_from(slowlog_log_slower_than_us).is_ok_and(|limit| took_us >= limit);
        if is_slow && !flags.contains(Flags::SKIP_SLOWLOG) {
            let name_words = entry.full_name.split('|').count();
            let words = without_secrets(entry.command.arguments, name_words, argv);
            let client = self.engine.sessions.get(self.client);
            let command = SlowCommand {
                number: 0,
                at_seconds,
                took_us,
                words: shortened(&words),
                address: client.map(|it| it.origin.address.clone()).unwrap_or_default(),
                client_name: client.map(|it| it.name.to_vec().into()).unwrap_or_default(),
            };
            let length_max = usize::try_from(slowlog_max_len).unwrap_or(usize::MAX);
            self.engine.latency.slow_log.add(command, length_max);
        }
        let kind = if flags.contains(Flags::FAST) { "fast-command" } else { "command" };
        self.engine.latency.note(kind, took_ns, self.time);
    }
}
