//! One lock that many want: whoever releases it publishes that, and all who wait try again.
//!
//! Every client is a process of its own, with a connection for commands and one that listens. One
//! that has held the lock competes again once another has held it, so that every grant is a
//! hand-off. It follows from that who may heed which message: the release of the n-th grant sends
//! the n-th message, and a client pays no regard to those up to its own release.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_compat::wire::request;
use mio::{Events, Poll, Token};

use crate::cycles::redisson_4;
use crate::figures::{Metric, Reading};
use crate::generator::{Connection, Done, PATIENCE, wrong};
use crate::peers::Peer;
use crate::running::Running;
use crate::workload::{Effort, Workload};
use crate::{Outcome, bare};

const CONTESTS: [(usize, Heed); 5] =
    [(2, Heed::Each), (16, Heed::Each), (128, Heed::Each), (16, Heed::Latest), (128, Heed::Latest)];
const KEY: &str = "lock:orders";
/// A process and a thread of it: every client is another.
const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-@@@@@@@@@@c4:1";
const CHANNEL: &str = "redisson_lock__channel:{lock:orders}";
/// Far more than can come to one client at once: a reply or two, a message or two.
const CHUNK_BYTES: usize = 4 * 1024;
const EVENTS_MAX: usize = 1024;
/// Longer than a measurement.
const LONGEST_NS: u64 = 120_000_000_000;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    CONTESTS.map(|(clients, heed)| Box::new(HandOff { clients, heed }) as Box<dyn Workload>).into()
}

/// What a client makes of several messages that have come since it last tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heed {
    /// It tries as often, as Redisson does: a message is a permit of its semaphore.
    Each,
    /// It tries once, as who is only woken by them.
    Latest,
}

struct HandOff {
    clients: usize,
    heed: Heed,
}

impl Workload for HandOff {
    fn group(&self) -> &'static str {
        "Contended hand-off"
    }

    fn parameters(&self) -> String {
        match self.heed {
            Heed::Each => format!("{} clients", self.clients),
            Heed::Latest => format!("{} clients, one attempt for all messages", self.clients),
        }
    }

    fn note(&self) -> &'static str {
        "One lock that all clients want, with the protocol of Redisson 4.7's RLock: a refused \
         client subscribes to the lock's channel and tries again, once for every message or, as \
         some clients do, once for all messages received; the holder releases the lock at once, \
         with the script that publishes, and deletes the latch. Every grant goes to another \
         client. Release to grant is the time from sending the release until another client has \
         its grant."
    }

    fn runs_scripts(&self) -> bool {
        true
    }

    fn has_floor(&self) -> bool {
        true
    }

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = peer.start(&[])?;
        if peer.bare {
            let words = redisson_4(&running, KEY, CHANNEL, OWNER)?.map(|step| step.words);
            bare::tell_lock(&running, words[0], words[1], &welcome(), &message())?;
        }
        let mut contest = Contest::begin(&running, self.clients, self.heed)?;
        contest.go_on(effort.warm_up)?;
        contest.latencies.clear();
        let (granted, tried) = (contest.granted, contest.tried);
        let (began, before) = (Instant::now(), running.cpu()?);
        contest.go_on(effort.span)?;
        let operations = contest.granted - granted;
        let done = Done { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        let latency = |quantile| contest.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let tried = (contest.tried - tried) as f64;
        Ok(vec![
            Metric::less("server CPU per hand-off", "us").is(done.cpu_us()),
            Metric::more("hand-offs", "/s").is(done.rate()),
            Metric::less("release to grant, p50", "us").is(latency(0.5)),
            Metric::less("release to grant, p99", "us").is(latency(0.99)),
            Metric::told("attempts per hand-off", "").is(tried / operations as f64),
            Metric::told("server CPU", "%").is(done.share()),
        ])
    }
}

/// What a client sends, each time the same.
struct Words {
    lock: Vec<u8>,
    unlock: Vec<u8>,
    delete_latch: Vec<u8>,
}

/// Who a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Lock,
    Unlock,
    DeleteLatch,
}

struct Contender {
    words: Words,
    commands: Connection,
    listener: Connection,
    /// What is not answered yet.
    asked: VecDeque<Asked>,
    /// The part of a line that has come from either.
    line: Vec<u8>,
    message_received: usize,
    trying: bool,
    /// How many messages have come.
    heard: u64,
    /// How many of them it has tried for.
    heeded: u64,
    /// The number of the last grant it had.
    released: u64,
}

/// Those who want the lock.
struct Contest {
    poll: Poll,
    events: Events,
    contenders: Vec<Contender>,
    heed: Heed,
    /// What every release sends to all.
    message: Vec<u8>,
    chunk: Vec<u8>,
    granted: u64,
    tried: u64,
    released_at: Instant,
    latencies: Histogram<u64>,
}

impl Contest {
    /// All listen, and all have asked for the lock.
    fn begin(running: &Running, clients: usize, heed: Heed) -> Outcome<Contest> {
        let requests = redisson_4(running, KEY, CHANNEL, OWNER)?.map(|step| step.request);
        let poll = Poll::new()?;
        let contender = |number| {
            let mut requests = requests.clone();
            let [lock, unlock, delete_latch] =
                requests.each_mut().map(|it| it.fill(number as u64).to_vec());
            Contender::open(running, &poll, number, Words { lock, unlock, delete_latch })
        };
        let contenders = (0..clients).map(contender).collect::<Outcome<Vec<_>>>()?;
        let mut contest = Contest {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            contenders,
            heed,
            message: message().into_bytes(),
            chunk: vec![0; CHUNK_BYTES],
            granted: 0,
            tried: 0,
            released_at: Instant::now(),
            latencies: Histogram::new_with_max(LONGEST_NS, 3)?,
        };
        for client in 0..clients {
            contest.attempt(client)?;
        }
        Ok(contest)
    }

    /// For so long, and until the lock has been granted.
    fn go_on(&mut self, span: Duration) -> Outcome<()> {
        let (began, granted) = (Instant::now(), self.granted);
        while self.granted == granted || began.elapsed() < span {
            self.poll.poll(&mut self.events, Some(PATIENCE))?;
            if self.events.is_empty() {
                return Err("nobody gets the lock any more".into());
            }
            let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
            for event in &events {
                let Token(number) = event.token();
                let (client, listens) = (number / 2, number % 2 == 1);
                if event.is_writable() {
                    self.contenders[client].commands.flush()?;
                }
                match (event.is_readable(), listens) {
                    (true, true) => self.hear(client)?,
                    (true, false) => self.take_replies(client)?,
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
        contender.ask(Asked::Lock)
    }

    /// Reads messages.
    fn hear(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let Some(count) = contender.listener.read(&mut self.chunk)? else { return Ok(()) };
        contender.count_messages(&self.chunk[..count], &self.message)?;
        if contender.heard > self.granted {
            return Err("more messages than releases".into());
        }
        self.try_again(client)
    }

    /// Whoever waits tries again if there are messages that it has not tried for.
    fn try_again(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let heeded = contender.heeded.max(contender.released);
        if contender.trying || contender.heard <= heeded {
            return Ok(());
        }
        contender.heeded = match self.heed {
            Heed::Each => heeded + 1,
            Heed::Latest => contender.heard,
        };
        self.attempt(client)
    }

    /// Reads replies. Whoever is granted the lock releases it.
    fn take_replies(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        let Some(count) = contender.commands.read(&mut self.chunk)? else { return Ok(()) };
        contender.line.extend_from_slice(&self.chunk[..count]);
        while let Some((asked, reply)) = self.contenders[client].next_reply() {
            match (asked, reply.as_slice()) {
                (Asked::Lock, b"$-1") => self.granted(client)?,
                (Asked::Lock, [b':', b'1'..=b'9', ..]) => self.refused(client)?,
                (Asked::Unlock, b":1") => {
                    self.contenders[client].ask(Asked::DeleteLatch)?;
                }
                (Asked::DeleteLatch, b":1") => {}
                (asked, _) => return Err(format!("{asked:?}: {}", wrong(&reply, b":1")).into()),
            }
        }
        Ok(())
    }

    fn granted(&mut self, client: usize) -> Outcome<()> {
        let now = Instant::now();
        if self.granted > 0 {
            let took = now.duration_since(self.released_at).as_nanos();
            self.latencies.saturating_record(u64::try_from(took).unwrap_or(LONGEST_NS));
        }
        self.granted += 1;
        self.released_at = now;
        let contender = &mut self.contenders[client];
        contender.released = self.granted;
        contender.trying = false;
        contender.ask(Asked::Unlock)
    }

    fn refused(&mut self, client: usize) -> Outcome<()> {
        self.contenders[client].trying = false;
        self.try_again(client)
    }
}

impl Contender {
    /// Connects twice, and listens.
    fn open(running: &Running, poll: &Poll, number: usize, words: Words) -> Outcome<Contender> {
        let commands = Connection::open(running.address, poll, number * 2)?;
        let listener = Connection::of(listen(running)?, poll, number * 2 + 1)?;
        Ok(Contender {
            words,
            commands,
            listener,
            asked: VecDeque::new(),
            line: Vec::new(),
            message_received: 0,
            trying: false,
            heard: 0,
            heeded: 0,
            released: 0,
        })
    }

    fn ask(&mut self, what: Asked) -> Outcome<()> {
        self.asked.push_back(what);
        Ok(self.commands.send(match what {
            Asked::Lock => &self.words.lock,
            Asked::Unlock => &self.words.unlock,
            Asked::DeleteLatch => &self.words.delete_latch,
        })?)
    }

    /// The next reply that is all there, each of which is a line, and what it is to.
    fn next_reply(&mut self) -> Option<(Asked, Vec<u8>)> {
        let end = self.line.windows(2).position(|it| it == b"\r\n")?;
        let reply = self.line[..end].to_vec();
        self.line.drain(..end + 2);
        Some((self.asked.pop_front()?, reply))
    }

    /// All that comes are messages, and all messages are alike.
    fn count_messages(&mut self, mut came: &[u8], message: &[u8]) -> Outcome<()> {
        while !came.is_empty() {
            let missing = &message[self.message_received..];
            let (part, rest) = came.split_at(came.len().min(missing.len()));
            if !missing.starts_with(part) {
                return Err(wrong(part, missing).into());
            }
            self.message_received += part.len();
            if self.message_received == message.len() {
                self.message_received = 0;
                self.heard += 1;
            }
            came = rest;
        }
        Ok(())
    }
}

/// What those who listen are answered.
fn welcome() -> String {
    let length = CHANNEL.len();
    format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{CHANNEL}\r\n:1\r\n")
}

/// What they hear of a release.
fn message() -> String {
    let length = CHANNEL.len();
    format!("*3\r\n$7\r\nmessage\r\n${length}\r\n{CHANNEL}\r\n$1\r\n0\r\n")
}

/// A connection that has been told that it will hear of releases.
fn listen(running: &Running) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(running.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&request(&["SUBSCRIBE", CHANNEL]))?;
    let expected = welcome();
    let mut came = vec![0; expected.len()];
    stream.read_exact(&mut came)?;
    if came != expected.as_bytes() {
        return Err(wrong(&came, expected.as_bytes()).into());
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workload::tests::works;

    #[test]
    fn the_lock_goes_from_hand_to_hand() {
        all().iter_mut().for_each(|workload| works(workload.as_mut()));
    }
}
