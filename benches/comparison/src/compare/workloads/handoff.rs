//! Many clients compete for one lock: a release publishes a message, and all waiting clients retry.
//!
//! Every client represents a process, with a connection for commands and one for messages. After a
//! client has held the lock, it tries again only when another client has held it, so that every
//! grant is a hand-off. The n-th message belongs to the release of the n-th grant, so a client
//! ignores the messages up to its own release.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;
use lockwheel_compat::wire::request;
use mio::{Events, Poll, Token};

use crate::measure::bare_server;
use crate::measure::effort::Effort;
use crate::measure::generator::{Connection, REPLY_TIMEOUT, Throughput, wrong};
use crate::measure::metric::{Metric, Reading};
use crate::measure::running::Running;
use crate::measure::servers::{ComparedServer, ServerType};
use crate::workloads::cycles::redisson_4;
use crate::workloads::workload::Workload;

const CONTESTS: [(usize, Retry); 5] =
    [(2, Retry::Each), (16, Retry::Each), (128, Retry::Each), (16, Retry::All), (128, Retry::All)];
const KEY: &str = "lock:orders";
/// The owner of a lock, with a placeholder for the number of the client.
const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-@@@@@@@@@@c4:1";
const CHANNEL: &str = "redisson_lock__channel:{lock:orders}";
/// Far more than a client receives at once: one or two replies or messages.
const CHUNK_BYTES: usize = 4 * 1024;
const EVENTS_MAX: usize = 1024;
/// Largest recorded time: longer than a measurement.
const LONGEST_NS: u64 = 120_000_000_000;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let workload = |(clients, retry)| -> Box<dyn Workload> { Box::new(HandOff { clients, retry }) };
    CONTESTS.map(workload).into()
}

/// How often a client retry when it has received several messages since its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// Once for each message, like Redisson: a message is a permit of its semaphore.
    Each,
    /// Once for all messages.
    All,
}

pub(crate) struct HandOff {
    clients: usize,
    retry: Retry,
}

impl HandOff {
    /// With one attempt for each message.
    pub(crate) fn like_redisson(clients: usize) -> HandOff {
        HandOff { clients, retry: Retry::Each }
    }
}

/// How long clients have waited for the lock.
pub(crate) struct Waits {
    released_at: Option<Instant>,
    /// Times from each release to the next grant, in nanoseconds.
    to_grant: Histogram<u64>,
    /// Moments since which the clients have waited.
    since: Vec<Instant>,
    /// The longest wait of each client.
    longest: Vec<Duration>,
}

impl Waits {
    /// Lets all clients begin to wait.
    pub(crate) fn begin(clients: usize) -> Outcome<Waits> {
        Ok(Waits {
            released_at: None,
            to_grant: Histogram::new_with_max(LONGEST_NS, 3)?,
            since: vec![Instant::now(); clients],
            longest: vec![Duration::ZERO; clients],
        })
    }

    /// Records that a client begins to wait.
    pub(crate) fn begins(&mut self, client: usize) {
        self.since[client] = Instant::now();
    }

    /// Records that a client was granted the lock and releases it at once.
    pub(crate) fn granted(&mut self, client: usize) {
        let now = Instant::now();
        if let Some(released_at) = self.released_at {
            let took = now.duration_since(released_at).as_nanos();
            self.to_grant.saturating_record(u64::try_from(took).unwrap_or(LONGEST_NS));
        }
        self.longest[client] = self.longest[client].max(now.duration_since(self.since[client]));
        self.released_at = Some(now);
    }

    /// Discards the waits until now.
    pub(crate) fn clear(&mut self) {
        self.to_grant.clear();
        self.longest.fill(Duration::ZERO);
    }

    pub(crate) fn readings(&self, done: &Throughput, attempts: f64) -> Vec<Reading> {
        let latency = |quantile| self.to_grant.value_at_quantile(quantile) as f64 / 1e3;
        // A client that still waits has waited for that time.
        let present = self.since.iter().map(Instant::elapsed);
        let mut longest: Vec<Duration> = self
            .longest
            .iter()
            .zip(present)
            .map(|(before, present)| present.max(*before))
            .collect();
        longest.sort_unstable();
        let [median, most] = [longest.len() / 2, longest.len() - 1].map(|at| longest[at]);
        vec![
            Metric::cost("server CPU per hand-off", "us").with(done.cpu_us()),
            Metric::rate("hand-offs", "/s").with(done.rate()),
            Metric::cost("release to grant, p50", "us").with(latency(0.5)),
            Metric::cost("release to grant, p99", "us").with(latency(0.99)),
            Metric::info("unfairness", "").with(most.as_secs_f64() / median.as_secs_f64()),
            Metric::info("attempts per hand-off", "").with(attempts),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
        ]
    }
}

impl Workload for HandOff {
    fn group(&self) -> &'static str {
        "Contended hand-off"
    }

    fn parameters(&self) -> String {
        match self.retry {
            Retry::Each => format!("{} clients", self.clients),
            Retry::All => format!("{} clients, one attempt for all messages", self.clients),
        }
    }

    fn note(&self) -> &'static str {
        "One lock that all clients want, with the protocol of Redisson 4.7's RLock: a refused \
         client subscribes to the lock's channel and tries again, once for every message or, as \
         some clients do, once for all messages received; the holder releases the lock at once, \
         with the script that publishes, and deletes the latch. Every grant goes to another \
         client. Release to grant is the time from sending the release until another client has \
         its grant. Unfairness is the longest wait of any client, divided by the median of the \
         clients' longest waits."
    }

    fn runs_scripts(&self) -> bool {
        true
    }

    fn has_lower_bound(&self) -> bool {
        true
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = server.start(&[])?;
        if server.server_type == ServerType::Bare {
            let words = redisson_4(&running, KEY, CHANNEL, OWNER)?.map(|step| step.words);
            bare_server::configure_lock(&running, words[0], words[1], &subscribed(), &message())?;
        }
        let mut contest = Contest::begin(&running, self.clients, self.retry)?;
        contest.run(effort.warm_up)?;
        contest.waits.clear();
        let (granted, tried) = (contest.granted, contest.tried);
        let (began, before) = (Instant::now(), running.cpu()?);
        contest.run(effort.span)?;
        let operations = contest.granted - granted;
        let done = Throughput { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        let tried = (contest.tried - tried) as f64;
        Ok(contest.waits.readings(&done, tried / operations as f64))
    }
}

/// The encoded requests of a client.
struct ClientRequests {
    lock: Vec<u8>,
    unlock: Vec<u8>,
    delete_latch: Vec<u8>,
}

/// A request without a reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingRequest {
    Lock,
    Unlock,
    DeleteLatch,
}

struct Contender {
    requests: ClientRequests,
    commands: Connection,
    subscriber: Connection,
    pending: VecDeque<PendingRequest>,
    /// Received bytes of replies that have not been handled.
    line: Vec<u8>,
    /// Received bytes of an incomplete message.
    message_received: usize,
    trying: bool,
    /// The number of received messages.
    messages: u64,
    /// The number of messages for which it has tried.
    messages_handled: u64,
    /// The number of its last grant.
    released: u64,
}

/// Waits until clients can continue. While clients compete for a lock, one always can.
pub(crate) fn await_events(poll: &mut Poll, events: &mut Events) -> Outcome<()> {
    poll.poll(events, Some(REPLY_TIMEOUT))?;
    if events.is_empty() {
        return Err("the lock is not granted any more".into());
    }
    Ok(())
}

/// The clients that compete for the lock.
struct Contest {
    poll: Poll,
    events: Events,
    contenders: Vec<Contender>,
    retry: Retry,
    /// The message that every release sends to all clients.
    message: Vec<u8>,
    chunk: Vec<u8>,
    granted: u64,
    tried: u64,
    waits: Waits,
}

impl Contest {
    /// Connects and subscribes all clients, and sends their first lock requests.
    fn begin(running: &Running, clients: usize, retry: Retry) -> Outcome<Contest> {
        let requests = redisson_4(running, KEY, CHANNEL, OWNER)?.map(|step| step.request);
        let poll = Poll::new()?;
        let contender = |number| {
            let mut requests = requests.clone();
            let [lock, unlock, delete_latch] =
                requests.each_mut().map(|it| it.fill(number as u64).to_vec());
            let requests = ClientRequests { lock, unlock, delete_latch };
            Contender::open(running, &poll, number, requests)
        };
        let contenders = (0..clients).map(contender).collect::<Outcome<Vec<_>>>()?;
        let mut contest = Contest {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            contenders,
            retry,
            message: message().into_bytes(),
            chunk: vec![0; CHUNK_BYTES],
            granted: 0,
            tried: 0,
            waits: Waits::begin(clients)?,
        };
        for client in 0..clients {
            contest.attempt(client)?;
        }
        Ok(contest)
    }

    /// Runs for this time, and until the lock has been granted.
    fn run(&mut self, span: Duration) -> Outcome<()> {
        let (began, granted) = (Instant::now(), self.granted);
        while self.granted == granted || began.elapsed() < span {
            await_events(&mut self.poll, &mut self.events)?;
            let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
            for event in &events {
                let Token(number) = event.token();
                let (client, is_subscriber) = (number / 2, number % 2 == 1);
                if event.is_writable() {
                    self.contenders[client].commands.flush()?;
                }
                match (event.is_readable(), is_subscriber) {
                    (true, true) => self.handle_messages(client)?,
                    (true, false) => self.handle_replies(client)?,
                    (false, _) => {}
                }
            }
            self.events = events;
        }
        Ok(())
    }

    fn attempt(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        contender.trying = true;
        self.tried += 1;
        contender.send(PendingRequest::Lock)
    }

    /// Reads messages.
    fn handle_messages(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let Some(count) = contender.subscriber.read(&mut self.chunk)? else { return Ok(()) };
        contender.count_messages(&self.chunk[..count], &self.message)?;
        if contender.messages > self.granted {
            return Err("more messages than releases".into());
        }
        self.retry(client)
    }

    /// Lets a waiting client try again if it has messages for which it has not tried.
    fn retry(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let handled = contender.messages_handled.max(contender.released);
        if contender.trying || contender.messages <= handled {
            return Ok(());
        }
        contender.messages_handled = match self.retry {
            Retry::Each => handled + 1,
            Retry::All => contender.messages,
        };
        self.attempt(client)
    }

    /// Reads replies. A client with a granted lock releases it.
    fn handle_replies(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let Some(count) = contender.commands.read(&mut self.chunk)? else { return Ok(()) };
        contender.line.extend_from_slice(&self.chunk[..count]);
        while let Some((request, reply)) = self.contenders[client].next_reply() {
            match (request, reply.as_slice()) {
                (PendingRequest::Lock, b"$-1") => self.granted(client)?,
                (PendingRequest::Lock, [b':', b'1'..=b'9', ..]) => self.refused(client)?,
                (PendingRequest::Unlock, b":1") => {
                    self.contenders[client].send(PendingRequest::DeleteLatch)?;
                }
                (PendingRequest::DeleteLatch, b":1") => {}
                (request, _) => return Err(format!("{request:?}: {}", wrong(&reply, b":1")).into()),
            }
        }
        Ok(())
    }

    fn granted(&mut self, client: usize) -> Outcome<()> {
        self.waits.granted(client);
        self.granted += 1;
        let contender = &mut self.contenders[client];
        contender.released = self.granted;
        contender.trying = false;
        self.waits.begins(client);
        contender.send(PendingRequest::Unlock)
    }

    fn refused(&mut self, client: usize) -> Outcome<()> {
        self.contenders[client].trying = false;
        self.retry(client)
    }
}

impl Contender {
    /// Opens the connection for commands and the subscribed one.
    fn open(
        running: &Running,
        poll: &Poll,
        number: usize,
        requests: ClientRequests,
    ) -> Outcome<Contender> {
        let commands = Connection::open(running.address, poll, number * 2)?;
        let subscriber = Connection::from_stream(subscribe(running)?, poll, number * 2 + 1)?;
        Ok(Contender {
            requests,
            commands,
            subscriber,
            pending: VecDeque::new(),
            line: Vec::new(),
            message_received: 0,
            trying: false,
            messages: 0,
            messages_handled: 0,
            released: 0,
        })
    }

    fn send(&mut self, request: PendingRequest) -> Outcome<()> {
        self.pending.push_back(request);
        Ok(self.commands.send(match request {
            PendingRequest::Lock => &self.requests.lock,
            PendingRequest::Unlock => &self.requests.unlock,
            PendingRequest::DeleteLatch => &self.requests.delete_latch,
        })?)
    }

    /// The next complete reply, which is a line, and its request.
    fn next_reply(&mut self) -> Option<(PendingRequest, Vec<u8>)> {
        let end = self.line.windows(2).position(|it| it == b"\r\n")?;
        let reply = self.line[..end].to_vec();
        self.line.drain(..end + 2);
        Some((self.pending.pop_front()?, reply))
    }

    /// Counts received messages, which are all equal.
    fn count_messages(&mut self, mut received: &[u8], message: &[u8]) -> Outcome<()> {
        while !received.is_empty() {
            let missing = &message[self.message_received..];
            let (part, rest) = received.split_at(received.len().min(missing.len()));
            if !missing.starts_with(part) {
                return Err(wrong(part, missing).into());
            }
            self.message_received += part.len();
            if self.message_received == message.len() {
                self.message_received = 0;
                self.messages += 1;
            }
            received = rest;
        }
        Ok(())
    }
}

/// The reply to SUBSCRIBE.
fn subscribed() -> String {
    let length = CHANNEL.len();
    format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{CHANNEL}\r\n:1\r\n")
}

/// The message about a release.
fn message() -> String {
    let length = CHANNEL.len();
    format!("*3\r\n$7\r\nmessage\r\n${length}\r\n{CHANNEL}\r\n$1\r\n0\r\n")
}

/// Opens a connection that is subscribed to the messages.
fn subscribe(running: &Running) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(running.address)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(&request(&["SUBSCRIBE", CHANNEL]))?;
    let expected = subscribed();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply)?;
    if reply != expected.as_bytes() {
        return Err(wrong(&reply, expected.as_bytes()).into());
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn handoff_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
