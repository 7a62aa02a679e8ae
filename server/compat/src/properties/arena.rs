//! The environment of a property: a server, keys of its own, connections, a deadline and a seed.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::cases::player::lacking;
use crate::random::Random;
use crate::report::Failure;
use crate::time::Deadline;
use crate::wire::frame::Frame;
use crate::wire::target::Target;
use crate::wire::{Wire, describe, is_end, request};

/// A property that has not ended this long after its time is given up: far longer than the
/// time-outs in properties, of at most 10 seconds.
const OVERTIME: Duration = Duration::from_secs(30);

/// The environment of one property.
pub struct Arena<'a> {
    target: &'a Target,
    number: usize,
    /// The number of concurrent clients.
    pub connections: usize,
    /// The seed of the clients' choices.
    pub seed: u64,
    span: Duration,
    /// Moment at which the clients finish what they do, and end.
    end: Deadline,
    /// Moment after which all requests fail.
    deadline: Deadline,
    stopped: AtomicBool,
    attempt: usize,
    connected: AtomicUsize,
}

/// Why a property did not pass.
#[derive(Debug)]
pub enum PropertyError {
    /// The property does not hold.
    Violated(Box<Failure>),
    /// The server lacks a command that the property needs.
    Lacking(String),
    /// Whether it holds could not be determined.
    Unknown(String),
}

/// A connection. Its errors end the property.
pub struct ArenaClient {
    wire: Wire,
    deadline: Deadline,
}

impl PropertyError {
    /// A violation of the property: the expected behaviour, the actual one, and the events before
    /// it.
    pub fn violated(expected: &str, came: &str, story: Vec<String>) -> PropertyError {
        let (expected, came) = (expected.to_owned(), came.to_owned());
        PropertyError::Violated(Box::new(Failure { expected, came, story, ..Failure::default() }))
    }

    /// The error that too little happened to judge the property.
    pub fn unknown(reason: impl Into<String>) -> PropertyError {
        PropertyError::Unknown(reason.into())
    }

    /// Holds if enough happened to judge the property.
    pub fn unknown_unless(
        is_enough: bool,
        reason: impl FnOnce() -> String,
    ) -> Result<(), PropertyError> {
        if is_enough { Ok(()) } else { Err(PropertyError::unknown(reason())) }
    }

    fn out_of_time() -> PropertyError {
        PropertyError::unknown("it did not end in time")
    }

    fn unexpected(sent: &[&str], expected: &str, came: String) -> PropertyError {
        let sent = sent.join(" ");
        let expected = expected.to_owned();
        PropertyError::Violated(Box::new(Failure { sent, expected, came, ..Failure::default() }))
    }
}

impl<'a> Arena<'a> {
    /// The environment of the property of that number. It ends after `span`.
    pub fn new(
        target: &'a Target,
        number: usize,
        span: Duration,
        connections: usize,
        seed: u64,
    ) -> Arena<'a> {
        let limit = target.timeouts.deadline;
        Arena {
            target,
            number,
            connections: connections.max(2),
            seed,
            span,
            end: Deadline::after(span).min(limit),
            deadline: Deadline::after(span.saturating_add(OVERTIME)).min(limit),
            stopped: AtomicBool::new(false),
            attempt: 0,
            connected: AtomicUsize::new(0),
        }
    }

    /// The moment after which all requests fail.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The same for another attempt, which has keys of its own, and takes `times` times as long.
    pub fn again(&self, attempt: usize, times: u32) -> Arena<'a> {
        let span = self.span.saturating_mul(times);
        let arena = Arena::new(self.target, self.number, span, self.connections, self.seed);
        Arena { attempt, ..arena }
    }

    /// The name of a key or channel of this property.
    pub fn key(&self, name: &str) -> String {
        format!("{}p{}.{}:{name}", self.target.prefix, self.number, self.attempt)
    }

    /// Whether the server is Redis itself, of this version or a later one.
    pub fn is_redis_since(&self, major: u32, minor: u32) -> bool {
        self.target.name.starts_with("redis ") && self.target.redis >= (major, minor)
    }

    /// Whether the time is over or a client has ended the property.
    pub fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.end.is_over()
    }

    /// Ends the property for all its clients.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The random numbers of the client of that number.
    pub fn random(&self, client: usize) -> Random {
        Random::of(self.seed, (self.number as u64) << 32 | client as u64)
    }

    /// Connects. Every second connection speaks RESP3, if the server does.
    pub fn connect(&self) -> Result<ArenaClient, PropertyError> {
        let is_second = self.connected.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let protocol = if is_second && self.target.resp3 { 3 } else { 2 };
        let wire = self.target.until(self.deadline).connect(protocol);
        let unreachable =
            |error| PropertyError::unknown(format!("no connection: {}", describe(&error)));
        Ok(ArenaClient { wire: wire.map_err(unreachable)?, deadline: self.deadline })
    }

    /// Runs `work` in `count` clients at once, each on its own thread and connection, and returns
    /// their results. The first error ends the property for all.
    pub fn run_clients<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize, &mut ArenaClient) -> Result<T, PropertyError> + Sync,
    ) -> Result<Vec<T>, PropertyError> {
        let one = |number: usize| {
            let result = self.connect().and_then(|mut client| work(number, &mut client));
            if result.is_err() {
                self.stop();
            }
            result
        };
        let results: Vec<_> = thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> =
                (0..count).map(|number| scope.spawn(move || one(number))).collect();
            let panicked = |_| Err(PropertyError::unknown("a client of the suite panicked"));
            threads.into_iter().map(|it| it.join().unwrap_or_else(panicked)).collect()
        });
        let (fine, mut errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        // A violation that one client saw matters more than what others could not determine.
        errors.sort_by_key(|error| !matches!(error, Err(PropertyError::Violated(_))));
        match errors.into_iter().next() {
            Some(error) => error.map(|_| Vec::new()),
            None => fine.into_iter().collect(),
        }
    }
}

impl ArenaClient {
    /// Sends a command and reads its reply, which must not be an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Frame, PropertyError> {
        let reply = self.try_call(words)?;
        no_error(words, reply)
    }

    /// The same, and the reply must be an integer.
    pub fn integer(&mut self, words: &[&str]) -> Result<i64, PropertyError> {
        let reply = self.call(words)?;
        integer(words, &reply)
    }

    /// The same, and the reply must be a string or nil.
    pub fn text(&mut self, words: &[&str]) -> Result<Option<String>, PropertyError> {
        let reply = self.call(words)?;
        Ok(reply.as_text())
    }

    /// Sends a command and reads its reply, which may be an error, except that the command is
    /// unknown.
    pub fn try_call(&mut self, words: &[&str]) -> Result<Frame, PropertyError> {
        let reply = self.wire.call(words).map_err(|error| self.lost(words, &error))?;
        known(words, reply)
    }

    /// Sends several commands at once and reads their replies, none of which may be an error.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> Result<Vec<Frame>, PropertyError> {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
        let first = commands.first().copied().unwrap_or_default();
        self.wire.send_bytes(&bytes).map_err(|error| self.lost(first, &error))?;
        let read = |words: &&[&str]| {
            let reply = self.wire.read().map_err(|error| self.lost(words, &error))?;
            known(words, reply).and_then(|reply| no_error(words, reply))
        };
        commands.iter().map(read).collect()
    }

    /// Sends a command and does not wait for its reply.
    pub fn send(&mut self, words: &[&str]) -> Result<(), PropertyError> {
        self.wire.send(words).map_err(|error| self.lost(words, &error))
    }

    /// Sends nothing more, and waits until the server closes the connection. Returns whether it
    /// did.
    pub fn shut_down(mut self) -> bool {
        let quiet = self.wire.shut(Shutdown::Write);
        while self.wire.fill().is_ok() {}
        quiet.is_ok() && self.wire.fill().is_err_and(|error| is_end(&error))
    }

    /// The next reply or message, if one comes within `timeout`.
    pub fn read_within(&mut self, timeout: Duration) -> Result<Option<Frame>, PropertyError> {
        match self.wire.read_within(timeout) {
            Ok(None) if self.deadline.is_over() => Err(PropertyError::out_of_time()),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.lost(&[], &error)),
        }
    }

    /// A request that has no reply: after the deadline this means nothing.
    fn lost(&self, words: &[&str], error: &io::Error) -> PropertyError {
        match self.deadline.is_over() {
            true => PropertyError::out_of_time(),
            false => PropertyError::unexpected(words, "a reply", describe(error)),
        }
    }
}

/// The reply as an integer.
pub(super) fn integer(words: &[&str], reply: &Frame) -> Result<i64, PropertyError> {
    let digits = std::str::from_utf8(&reply.text).ok().filter(|_| b":$+".contains(&reply.kind));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| PropertyError::unexpected(words, "an integer", reply.notation()))
}

fn known(words: &[&str], reply: Frame) -> Result<Frame, PropertyError> {
    let owned: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match lacking(&reply, &owned) {
        Some(command) => Err(PropertyError::Lacking(command)),
        None => Ok(reply),
    }
}

fn no_error(words: &[&str], reply: Frame) -> Result<Frame, PropertyError> {
    match reply.kind {
        b'-' => Err(PropertyError::unexpected(words, "no error", reply.notation())),
        _ => Ok(reply),
    }
}
