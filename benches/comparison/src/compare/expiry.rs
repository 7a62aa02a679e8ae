//! How late the end of a lease is told, and what others notice while many leases end. It must not
//! know how a server ends them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_benches::Random;

use crate::Outcome;
use crate::figures::{Metric, Reading};
use crate::floor;
use crate::load::{self, DEADLINE_DIGITS, LEASE_NAME_BYTES, Leased, OWNER};
use crate::open_loop::{self, Go, Schedule};
use crate::peers::Peer;
use crate::workload::{Effort, Workload};

/// The parts of all that are told of, of each distribution.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0)];
/// Digits of a time that are kept: a thousandth of it is close enough.
const DIGITS: u8 = 3;

/// Longer than anything here takes.
const LONGEST_US: u64 = 600_000_000;

/// As Redis and we send the end of a lease to whoever listens, but for the lease's name.
const EVENT_BEGINS: &str = "*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n$21\r\n";
const EVENT_BYTES: usize = EVENT_BEGINS.len() + LEASE_NAME_BYTES + 2;
/// Bytes read at once: all that may have come.
const READ_BYTES: usize = 256 << 10;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(OneAfterTheOther { leases: 100_000 }),
        Box::new(OneAfterTheOther { leases: 1_000_000 }),
        Box::new(AllAtOnce { leases: 1_000_000 }),
    ]
}

/// Leases that end one after the other.
struct OneAfterTheOther {
    leases: u32,
}

impl OneAfterTheOther {
    const SPAN_MS: u32 = 10_000;
    const QUICK_SPAN_MS: u32 = 300;
    const GETS_PER_SECOND: u32 = 1000;
}

impl Workload for OneAfterTheOther {
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

    fn there_and_back(&self) -> bool {
        false
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let (leases, span_ms) = match effort.quick {
            true => (self.leases / 100, OneAfterTheOther::QUICK_SPAN_MS),
            false => (self.leases, OneAfterTheOther::SPAN_MS),
        };
        let arguments = ["--notify-keyspace-events", "Ex"];
        let mut random = Random::new();
        let leased = load::start_leased(peer, &arguments, leases, || random.below(span_ms).into())?;
        let seen = watch(&leased, leases, span_ms)?;
        let mut readings = quantiles("late", "ms", &seen.late_us, 1e-3);
        let cpu = seen.cpu.as_secs_f64() * 1e6 / f64::from(leases);
        readings.push(Metric::less("server CPU", "us per lease").is(cpu));
        readings.extend(quantiles("GET", "us", &seen.gets_us, 1.0));
        drop(leased);
        let (late_us, cpu) = watch_bare_thread(peer.core(), leases, span_ms)?;
        let told = |what, unit| Metric::told(format!("bare thread: {what}"), unit);
        let ms = |part| late_us.value_at_quantile(part) as f64 * 1e-3;
        readings.push(told("late, p50", "ms").is(ms(0.5)));
        readings.push(told("late, p99.9", "ms").is(ms(0.999)));
        readings.push(told("late, longest", "ms").is(ms(1.0)));
        let cpu = cpu.as_secs_f64() * 1e6 / f64::from(leases);
        readings.push(told("CPU", "us per lease").is(cpu));
        Ok(readings)
    }
}

/// What came of leases that ended one after the other.
struct Seen {
    late_us: Histogram<u64>,
    gets_us: Histogram<u64>,
    cpu: Duration,
}

fn watch(leased: &Leased, leases: u32, span_ms: u32) -> Outcome<Seen> {
    let (running, address) = (&leased.running, leased.running.address);
    let mut listener = subscribe(address)?;
    running.ask(&["SET", "k", OWNER])?;
    sleep_until_ms(leased.first_ms);
    let before = running.cpu()?;
    let span = Duration::from_millis(span_ms.into());
    thread::scope(|scope| {
        let gets =
            scope.spawn(move || get_now_and_then(address, span).map_err(|error| error.to_string()));
        let late_us = hear(&mut listener, leases)?;
        let cpu = running.cpu()?.saturating_sub(before);
        Ok(Seen { late_us, gets_us: joined(gets)?, cpu })
    })
}

/// The same events from a thread that does nothing else.
fn watch_bare_thread(
    core: Option<usize>,
    leases: u32,
    span_ms: u32,
) -> Outcome<(Histogram<u64>, Duration)> {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut listener = load::connect(door.local_addr()?)?;
    let (mut stream, _) = door.accept()?;
    stream.set_nodelay(true)?;
    let event = |moment_ms| format!("{EVENT_BEGINS}{moment_ms:0DEADLINE_DIGITS$}:0000000\r\n");
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let cpu = floor::send_on_time(&mut stream, core, leases, span_ms, event);
            cpu.map_err(|error| error.to_string())
        });
        let late_us = hear(&mut listener, leases)?;
        Ok((late_us, joined(sender)?))
    })
}

fn subscribe(address: SocketAddr) -> Outcome<TcpStream> {
    let mut listener = load::connect(address)?;
    listener.write_all(b"SUBSCRIBE __keyevent@0__:expired\r\n")?;
    let mut reply =
        vec![0; "*3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n".len()];
    listener.read_exact(&mut reply)?;
    Ok(listener)
}

/// Hears so many leases end: how late each of them did.
fn hear(listener: &mut TcpStream, leases: u32) -> Outcome<Histogram<u64>> {
    let mut late_us = Histogram::new(DIGITS)?;
    let mut received = vec![0; READ_BYTES];
    let mut held = 0;
    while late_us.len() < u64::from(leases) {
        let read = listener.read(&mut received[held..])?;
        let now_us = load::wall_us();
        if read == 0 {
            return Err("the server has hung up".into());
        }
        held += read;
        let whole = held - held % EVENT_BYTES;
        for event in received[..whole].chunks(EVENT_BYTES) {
            late_us.record(late(event, now_us)?)?;
        }
        received.copy_within(whole..held, 0);
        held -= whole;
    }
    Ok(late_us)
}

/// How many microseconds after its deadline a lease's event arrived.
fn late(event: &[u8], now_us: u64) -> Outcome<u64> {
    let strange = || format!("not the end of a lease: {}", event.escape_ascii());
    let rest = event.strip_prefix(EVENT_BEGINS.as_bytes()).ok_or_else(strange)?;
    let deadline_ms: u64 = std::str::from_utf8(&rest[..DEADLINE_DIGITS])?.parse()?;
    let late = now_us.checked_sub(deadline_ms * 1000);
    late.ok_or_else(|| format!("lease ended before {deadline_ms}, at {now_us} us").into())
}

/// The latency of GETs, in microseconds.
fn get_now_and_then(address: SocketAddr, span: Duration) -> Outcome<Histogram<u64>> {
    let mut latency_us = Histogram::new_with_max(LONGEST_US, DIGITS)?;
    let schedule = Schedule::new(Instant::now(), span, OneAfterTheOther::GETS_PER_SECOND);
    open_loop::run(address, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", 2, schedule, |_, _, latency| {
        latency_us.saturating_record(us(latency));
        Go::On
    })?;
    Ok(latency_us)
}

/// Leases that all end at one moment.
struct AllAtOnce {
    leases: u32,
}

impl AllAtOnce {
    const ASKED_PER_SECOND: u32 = 5000;
    /// How long is asked before they end, and after they are gone as if they still did.
    const MARGIN: Duration = Duration::from_millis(300);
    /// Servers that have not freed them by then never will.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// How long a server may take to give memory back.
    const RESPITE: Duration = Duration::from_secs(1);
}

impl Workload for AllAtOnce {
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

    fn there_and_back(&self) -> bool {
        false
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let leases = if effort.quick { self.leases / 100 } else { self.leases };
        let leased = load::start_leased(peer, &[], leases, || 0)?;
        let Leased { running, empty_bytes, first_ms: deadline_ms } = leased;
        sleep_until_ms(deadline_ms - us(AllAtOnce::MARGIN) / 1000);
        let before = running.cpu()?;
        let storm = endure(running.address, deadline_ms)?;
        let cpu = running.cpu()?.saturating_sub(before);
        thread::sleep(AllAtOnce::RESPITE);
        let left_bytes = running.resident_bytes()?.saturating_sub(empty_bytes);
        let ms = |at: Duration| at.as_secs_f64() * 1e3;
        let wait = |seen: &Histogram<u64>, part| seen.value_at_quantile(part) as f64 * 1e-3;
        Ok(vec![
            Metric::less("longest wait of another client", "ms").is(wait(&storm.waits_us, 1.0)),
            Metric::told("the same while nothing ends", "ms").is(wait(&storm.after_us, 1.0)),
            Metric::less("wait of another client, p99.9", "ms").is(wait(&storm.waits_us, 0.999)),
            Metric::told("p99.9 while nothing ends", "ms").is(wait(&storm.after_us, 0.999)),
            Metric::less("last lease gone after", "ms").is(ms(storm.gone_after)),
            Metric::told("server CPU, the questions included", "ms").is(ms(cpu)),
            Metric::less("memory left 1 s later", "MiB").is(left_bytes as f64 / f64::from(1 << 20)),
        ])
    }
}

/// What another client has seen.
struct Storm {
    /// From the deadline until they were gone, and a little longer: memory may be given back.
    waits_us: Histogram<u64>,
    /// For as long after that.
    after_us: Histogram<u64>,
    /// From the deadline until the server said that no key was left.
    gone_after: Duration,
}

fn endure(address: SocketAddr, deadline_ms: u64) -> Outcome<Storm> {
    let now = Instant::now();
    let until = Duration::from_micros((deadline_ms * 1000).saturating_sub(load::wall_us()));
    let deadline = now + until;
    let schedule = Schedule::new(now, AllAtOnce::PATIENCE, AllAtOnce::ASKED_PER_SECOND);
    let histogram = || Histogram::new_with_max(LONGEST_US, DIGITS);
    let (mut waits_us, mut after_us, mut gone) = (histogram()?, histogram()?, None);
    open_loop::run(address, b"*1\r\n$6\r\nDBSIZE\r\n", 1, schedule, |line, moment, latency| {
        let replied = moment + latency;
        // A request that was under way when they ended was one of those that waited.
        if replied < deadline {
            return Go::On;
        }
        if line == b":0" {
            gone.get_or_insert(replied);
        }
        let over = gone.map(|gone| gone + AllAtOnce::MARGIN);
        match over {
            Some(over) if moment >= over => after_us.saturating_record(us(latency)),
            _ => waits_us.saturating_record(us(latency)),
        }
        match over {
            Some(over) if replied >= over + (over - deadline) => Go::End,
            _ => Go::On,
        }
    })?;
    let gone_after = gone.ok_or("leases are left")?.saturating_duration_since(deadline);
    Ok(Storm { waits_us, after_us, gone_after })
}

fn quantiles(
    what: &str,
    unit: &'static str,
    histogram: &Histogram<u64>,
    factor: f64,
) -> Vec<Reading> {
    let reading = |(name, part): (&str, f64)| {
        let value = histogram.value_at_quantile(part) as f64 * factor;
        Metric::less(format!("{what}, {name}"), unit).is(value)
    };
    QUANTILES.into_iter().map(reading).collect()
}

fn sleep_until_ms(moment_ms: u64) {
    thread::sleep(Duration::from_micros((moment_ms * 1000).saturating_sub(load::wall_us())));
}

fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What came of a thread. Errors cannot go from one to another, their words can.
fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, String>>) -> Outcome<T> {
    let result = thread.join().map_err(|_| "a client has failed")?;
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::{all, late};
    use crate::workload::tests::works;

    #[test]
    fn leases_end_and_are_told_of() {
        all().iter_mut().for_each(|workload| works(workload.as_mut()));
    }

    #[test]
    fn an_event_says_how_late_it_is() {
        let event = "*3\r\n$7\r\nmessage\r\n$22\r\n__keyevent@0__:expired\r\n\
            $21\r\n1700000000123:0000007\r\n";
        let late = |now_us| late(event.as_bytes(), now_us).map_err(|error| error.to_string());
        assert_eq!(late(1_700_000_000_123_456), Ok(456));
        assert!(late(1_700_000_000_122_999).is_err());
    }
}
