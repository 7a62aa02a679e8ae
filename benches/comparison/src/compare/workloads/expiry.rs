//! How late `expired` events are, and how other clients are delayed while many leases end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_benches::Random;
use lockwheel_comparison::Outcome;

use crate::measure::bare_thread;
use crate::measure::effort::Effort;
use crate::measure::load::{self, DEADLINE_DIGITS, LEASE_KEY_BYTES, LeasedServer, OWNER};
use crate::measure::metric::{Metric, Reading};
use crate::measure::open_loop::{self, Schedule};
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

/// The reported quantiles of each distribution.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)];
/// Significant digits of the histograms: a precision of a thousandth.
const DIGITS: u8 = 3;

/// Largest recorded latency: longer than any.
const LONGEST_US: u64 = 600_000_000;

/// The encoded `expired` event up to the key.
const EVENT_PREFIX: &str = "*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n$21\r\n";
const EVENT_BYTES: usize = EVENT_PREFIX.len() + LEASE_KEY_BYTES + 2;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(SpreadDeadlines { leases: 100_000 }),
        Box::new(SpreadDeadlines { leases: 1_000_000 }),
        Box::new(SharedDeadline { leases: 1_000_000 }),
    ]
}

/// Leases with deadlines spread over a time.
struct SpreadDeadlines {
    leases: u32,
}

impl SpreadDeadlines {
    const SPAN_MS: u32 = 10_000;
    const QUICK_SPAN_MS: u32 = 300;
    const GETS_PER_SECOND: u32 = 1000;
}

impl Workload for SpreadDeadlines {
    fn group(&self) -> &'static str {
        "Expiry"
    }

    fn parameters(&self) -> String {
        format!("{} leases that end within 10 s", load::grouped(self.leases))
    }

    fn note(&self) -> &'static str {
        "Leases that end at random moments within 10 s, with a subscriber to `expired`: the time \
         from a lease's deadline to its event; the server's CPU time from the first deadline to \
         the last event, the GETs included; and the latency of 1,000 GETs a second on another \
         connection, each counted from the moment at which it was due. For comparison, the same \
         events from a thread on the server's processor that only wakes at each millisecond and \
         sends what is due: a server pays for this if it sends every event on its millisecond, and \
         does not if it ends leases a few times a second."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let (leases, span_ms) = match effort.quick {
            true => (self.leases / 100, SpreadDeadlines::QUICK_SPAN_MS),
            false => (self.leases, SpreadDeadlines::SPAN_MS),
        };
        let args = ["--notify-keyspace-events", "Ex"];
        let mut random = Random::new();
        let leased = load::start_leased(server, &args, leases, || random.below(span_ms).into())?;
        let results = measure(&leased, leases, span_ms)?;
        let mut readings = quantiles("late", "ms", &results.late_us, 1e-3);
        let cpu = results.cpu.as_secs_f64() * 1e6 / f64::from(leases);
        readings.push(Metric::cost("server CPU", "us per lease").with(cpu));
        readings.extend(quantiles("GET", "us", &results.gets_us, 1.0));
        drop(leased);
        let (late_us, cpu) = measure_bare_thread(server.core, leases, span_ms)?;
        let bare = |what, unit| Metric::info(format!("bare thread: {what}"), unit);
        let ms = |part| late_us.value_at_quantile(part) as f64 * 1e-3;
        readings.push(bare("late, p50", "ms").with(ms(0.5)));
        readings.push(bare("late, p99.9", "ms").with(ms(0.999)));
        readings.push(bare("late, longest", "ms").with(ms(1.0)));
        let cpu = cpu.as_secs_f64() * 1e6 / f64::from(leases);
        readings.push(bare("CPU", "us per lease").with(cpu));
        Ok(readings)
    }
}

/// The results of a measurement with spread deadlines.
struct ExpiryResults {
    late_us: Histogram<u64>,
    gets_us: Histogram<u64>,
    cpu: Duration,
}

fn measure(leased: &LeasedServer, leases: u32, span_ms: u32) -> Outcome<ExpiryResults> {
    let (running, address) = (&leased.running, leased.running.address);
    let mut subscriber = subscribe(address)?;
    running.ask(&["SET", "k", OWNER])?;
    sleep_until_ms(leased.first_ms);
    let before = running.cpu()?;
    let span = Duration::from_millis(span_ms.into());
    thread::scope(|scope| {
        let gets =
            scope.spawn(move || measure_gets(address, span).map_err(|error| error.to_string()));
        let late_us = receive_events(&mut subscriber, leases)?;
        let cpu = running.cpu()?.saturating_sub(before);
        Ok(ExpiryResults { late_us, gets_us: join(gets)?, cpu })
    })
}

/// Measures the same events sent by a thread that does nothing else.
fn measure_bare_thread(
    core: Option<usize>,
    leases: u32,
    span_ms: u32,
) -> Outcome<(Histogram<u64>, Duration)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut subscriber = load::connect(listener.local_addr()?)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let event = |moment_ms| format!("{EVENT_PREFIX}{moment_ms:0DEADLINE_DIGITS$}:0000000\r\n");
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let cpu = bare_thread::send_on_time(&mut stream, core, leases, span_ms, event);
            cpu.map_err(|error| error.to_string())
        });
        let late_us = receive_events(&mut subscriber, leases)?;
        Ok((late_us, join(sender)?))
    })
}

fn subscribe(address: SocketAddr) -> Outcome<TcpStream> {
    let mut subscriber = load::connect(address)?;
    subscriber.write_all(b"SUBSCRIBE __keyevent@0__:expired\r\n")?;
    let mut reply =
        vec![0; "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n".len()];
    subscriber.read_exact(&mut reply)?;
    Ok(subscriber)
}

/// Receives the events of all leases and returns how late they are.
fn receive_events(subscriber: &mut TcpStream, leases: u32) -> Outcome<Histogram<u64>> {
    let mut late_us = Histogram::new(DIGITS)?;
    let mut received = vec![0; READ_BYTES];
    let mut held = 0;
    while late_us.len() < u64::from(leases) {
        let read = subscriber.read(&mut received[held..])?;
        let now_us = load::wall_us();
        if read == 0 {
            return Err("the server has closed a connection".into());
        }
        held += read;
        let whole = held - held % EVENT_BYTES;
        for event in received[..whole].chunks(EVENT_BYTES) {
            late_us.record(lateness_us(event, now_us)?)?;
        }
        received.copy_within(whole..held, 0);
        held -= whole;
    }
    Ok(late_us)
}

/// How many microseconds after the deadline the event of a lease arrived.
fn lateness_us(event: &[u8], now_us: u64) -> Outcome<u64> {
    let unexpected = || format!("not an expired event: {}", event.escape_ascii());
    let rest = event.strip_prefix(EVENT_PREFIX.as_bytes()).ok_or_else(unexpected)?;
    let deadline_ms: u64 = std::str::from_utf8(&rest[..DEADLINE_DIGITS])?.parse()?;
    let late = now_us.checked_sub(deadline_ms * 1000);
    late.ok_or_else(|| format!("lease ended before {deadline_ms}, at {now_us} us").into())
}

/// Measures the latency of GETs, in microseconds.
fn measure_gets(address: SocketAddr, span: Duration) -> Outcome<Histogram<u64>> {
    let mut latency_us = Histogram::new_with_max(LONGEST_US, DIGITS)?;
    let schedule = Schedule::new(Instant::now(), span, SpreadDeadlines::GETS_PER_SECOND);
    open_loop::run(address, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", 2, schedule, |_, _, latency| {
        latency_us.saturating_record(us(latency));
        ControlFlow::Continue(())
    })?;
    Ok(latency_us)
}

/// Leases with the same deadline.
struct SharedDeadline {
    leases: u32,
}

impl SharedDeadline {
    const REQUESTS_PER_SECOND: u32 = 5000;
    /// How long requests are sent before the deadline, and counted after the last key was removed.
    const MARGIN: Duration = Duration::from_millis(300);
    /// The longest time until all keys are removed.
    const TIMEOUT: Duration = Duration::from_secs(60);
    /// The time given to a server to return memory to the system.
    const SETTLE_TIME: Duration = Duration::from_secs(1);
}

impl Workload for SharedDeadline {
    fn group(&self) -> &'static str {
        "Many leases on one deadline"
    }

    fn parameters(&self) -> String {
        format!("{} leases", load::grouped(self.leases))
    }

    fn note(&self) -> &'static str {
        "The view of another client while all leases end at the same millisecond: it sends DBSIZE \
         every 200 us without waiting for replies, and each reply counts from the moment at which \
         its request was due. For comparison, the same client while nothing ends, for the same \
         time."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let leases = if effort.quick { self.leases / 100 } else { self.leases };
        let leased = load::start_leased(server, &[], leases, || 0)?;
        let LeasedServer { running, empty_bytes, first_ms: deadline_ms } = leased;
        sleep_until_ms(deadline_ms - us(SharedDeadline::MARGIN) / 1000);
        let before = running.cpu()?;
        let delays = measure_delays(running.address, deadline_ms)?;
        let cpu = running.cpu()?.saturating_sub(before);
        thread::sleep(SharedDeadline::SETTLE_TIME);
        let left_bytes = running.resident_bytes()?.saturating_sub(empty_bytes);
        let left_mib = left_bytes as f64 / f64::from(1 << 20);
        let ms = |at: Duration| at.as_secs_f64() * 1e3;
        let wait = |seen: &Histogram<u64>, part| seen.value_at_quantile(part) as f64 * 1e-3;
        Ok(vec![
            Metric::cost("longest wait of another client", "ms").with(wait(&delays.waits_us, 1.0)),
            Metric::info("the same while nothing ends", "ms").with(wait(&delays.after_us, 1.0)),
            Metric::cost("wait of another client, p99.9", "ms").with(wait(&delays.waits_us, 0.999)),
            Metric::info("p99.9 while nothing ends", "ms").with(wait(&delays.after_us, 0.999)),
            Metric::cost("last lease gone after", "ms").with(ms(delays.gone_after)),
            Metric::info("server CPU, requests included", "ms").with(ms(cpu)),
            Metric::cost("memory left 1 s later", "MiB").with(left_mib),
        ])
    }
}

/// The latencies of another client.
struct Delays {
    /// Waits from the deadline until the margin after the end, because memory may be returned then.
    waits_us: Histogram<u64>,
    /// Waits in the same time after that.
    after_us: Histogram<u64>,
    /// Time from the deadline until the server replied that no key was left.
    gone_after: Duration,
}

fn measure_delays(address: SocketAddr, deadline_ms: u64) -> Outcome<Delays> {
    let now = Instant::now();
    let until = Duration::from_micros((deadline_ms * 1000).saturating_sub(load::wall_us()));
    let deadline = now + until;
    let schedule = Schedule::new(now, SharedDeadline::TIMEOUT, SharedDeadline::REQUESTS_PER_SECOND);
    let histogram = || Histogram::new_with_max(LONGEST_US, DIGITS);
    let (mut waits_us, mut after_us, mut gone) = (histogram()?, histogram()?, None);
    open_loop::run(address, b"*1\r\n$6\r\nDBSIZE\r\n", 1, schedule, |line, moment, latency| {
        let replied = moment + latency;
        // A request that was pending at the deadline counts.
        if replied < deadline {
            return ControlFlow::Continue(());
        }
        if line == b":0" {
            gone.get_or_insert(replied);
        }
        let over = gone.map(|gone| gone + SharedDeadline::MARGIN);
        match over {
            Some(over) if moment >= over => after_us.saturating_record(us(latency)),
            _ => waits_us.saturating_record(us(latency)),
        }
        match over {
            Some(over) if replied >= over + (over - deadline) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    let gone_after = gone.ok_or("leases are left")?.saturating_duration_since(deadline);
    Ok(Delays { waits_us, after_us, gone_after })
}

fn quantiles(
    subject: &str,
    unit: &'static str,
    histogram: &Histogram<u64>,
    factor: f64,
) -> Vec<Reading> {
    let reading = |(name, part): (&str, f64)| {
        let value = histogram.value_at_quantile(part) as f64 * factor;
        Metric::cost(format!("{subject}, {name}"), unit).with(value)
    };
    QUANTILES.into_iter().map(reading).collect()
}

fn sleep_until_ms(moment_ms: u64) {
    thread::sleep(Duration::from_micros((moment_ms * 1000).saturating_sub(load::wall_us())));
}

fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The result of a thread, with its error as a text, because boxed errors are not `Send`.
fn join<T>(thread: ScopedJoinHandle<'_, Result<T, String>>) -> Outcome<T> {
    let result = thread.join().map_err(|_| "a client has failed")?;
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::{all, lateness_us};
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn expiry_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }

    #[test]
    fn lateness_is_computed_from_the_key_of_an_event() {
        let event = "*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n\
            $21\r\n1700000000123:0000007\r\n";
        let late = |now| lateness_us(event.as_bytes(), now).map_err(|error| error.to_string());
        assert_eq!(late(1_700_000_000_123_456), Ok(456));
        assert!(late(1_700_000_000_122_999).is_err());
    }
}
