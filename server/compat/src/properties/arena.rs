//! Where properties are tried: a server, keys of the property's own, many connections, a bound on
//! time, and a seed.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::super::frame::Frame;
use super::super::random::Random;
use super::super::report::Failure;
use super::super::stage::lacking;
use super::super::target::Target;
use super::super::time;
use super::super::wire::{Wire, is_end, request, told};

/// A server and what a property may use of it.
pub struct Arena<'a> {
    target: &'a Target,
    number: usize,
    /// How many clients are at it at once.
    pub connections: usize,
    /// What decides what they do.
    pub seed: u64,
    span: Duration,
    ends_us: i64,
    stopped: AtomicBool,
    attempt: usize,
}

/// Why a property did not pass.
#[derive(Debug)]
pub enum Trouble {
    /// It does not hold.
    Broken(Box<Failure>),
    /// The server has not got a command that it needs.
    Lacking(String),
    /// Whether it holds was not found out.
    Unknown(String),
}

/// One connection, whose every error is a trouble.
pub struct Client {
    wire: Wire,
}

impl Trouble {
    /// The property does not hold: what was expected, what came, and what had happened.
    pub fn broken(expected: &str, came: &str, story: Vec<String>) -> Trouble {
        let (expected, came) = (expected.to_owned(), came.to_owned());
        Trouble::Broken(Box::new(Failure { expected, came, story, ..Failure::default() }))
    }

    /// Too little was seen to say anything.
    pub fn unknown(reason: impl Into<String>) -> Trouble {
        Trouble::Unknown(reason.into())
    }

    fn unexpected(sent: &[&str], expected: &str, came: String) -> Trouble {
        let sent = sent.join(" ");
        let expected = expected.to_owned();
        Trouble::Broken(Box::new(Failure { sent, expected, came, ..Failure::default() }))
    }
}

impl<'a> Arena<'a> {
    /// For the property of that number. What it does ends when the time is over.
    pub fn new(
        target: &'a Target,
        number: usize,
        span: Duration,
        connections: usize,
        seed: u64,
    ) -> Arena<'a> {
        let span_us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let ends_us = time::now_us().saturating_add(span_us);
        let (connections, stopped) = (connections.max(2), AtomicBool::new(false));
        Arena { target, number, connections, seed, span, ends_us, stopped, attempt: 0 }
    }

    /// The same with other keys, for so many times as long.
    pub fn again(&self, times: u32) -> Arena<'a> {
        let span = self.span.saturating_mul(times);
        let arena = Arena::new(self.target, self.number, span, self.connections, self.seed);
        Arena { attempt: self.attempt + 1, ..arena }
    }

    /// A key or channel of this property's own.
    pub fn key(&self, name: &str) -> String {
        format!("{}p{}.{}:{name}", self.target.prefix, self.number, self.attempt)
    }

    /// Whether the server is Redis itself, of this version or a later one.
    pub fn is_redis_since(&self, major: u32, minor: u32) -> bool {
        self.target.name.starts_with("redis ") && self.target.redis >= (major, minor)
    }

    /// Whether the time is over, or somebody has seen enough.
    pub fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || time::now_us() >= self.ends_us
    }

    /// Ends the property for all who take part.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The stream of numbers of the client of that number.
    pub fn random(&self, client: usize) -> Random {
        Random::of(self.seed, (self.number as u64) << 32 | client as u64)
    }

    /// Connects.
    pub fn connect(&self) -> Result<Client, Trouble> {
        let wire = self.target.connect(2);
        let unreachable = |error| Trouble::unknown(format!("no connection: {}", told(&error)));
        Ok(Client { wire: wire.map_err(unreachable)? })
    }

    /// Has so many clients do something at once, each on a thread and a connection of its own,
    /// and returns what each brought back. The first trouble ends it for all.
    pub fn crowd<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize, &mut Client) -> Result<T, Trouble> + Sync,
    ) -> Result<Vec<T>, Trouble> {
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
            let panicked = |_| Err(Trouble::unknown("a client of the suite panicked"));
            threads.into_iter().map(|it| it.join().unwrap_or_else(panicked)).collect()
        });
        let (fine, mut troubles): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        // What one client saw broken says more than what others then could not find out.
        troubles.sort_by_key(|trouble| !matches!(trouble, Err(Trouble::Broken(_))));
        match troubles.into_iter().next() {
            Some(trouble) => trouble.map(|_| Vec::new()),
            None => fine.into_iter().collect(),
        }
    }
}

impl Client {
    /// Sends a command and reads its reply, which must be no error.
    pub fn call(&mut self, words: &[&str]) -> Result<Frame, Trouble> {
        let reply = self.try_call(words)?;
        no_error(words, reply)
    }

    /// The same, and the reply must be an integer.
    pub fn integer(&mut self, words: &[&str]) -> Result<i64, Trouble> {
        let reply = self.call(words)?;
        integer(words, &reply)
    }

    /// The same, and the reply must be a string or nil.
    pub fn text(&mut self, words: &[&str]) -> Result<Option<String>, Trouble> {
        let reply = self.call(words)?;
        Ok(text(&reply))
    }

    /// Sends a command and reads its reply; an error is a reply, too, unless it says that there
    /// is no such command.
    pub fn try_call(&mut self, words: &[&str]) -> Result<Frame, Trouble> {
        let failed = |error: io::Error| Trouble::unexpected(words, "a reply", told(&error));
        let reply = self.wire.call(words).map_err(failed)?;
        known(words, reply)
    }

    /// Sends several commands in one go and reads their replies, none of which may be an error.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> Result<Vec<Frame>, Trouble> {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
        let first = commands.first().copied().unwrap_or_default();
        let failed = |error: io::Error| Trouble::unexpected(first, "a reply", told(&error));
        self.wire.send_bytes(&bytes).map_err(failed)?;
        let read = |words: &&[&str]| {
            let failed = |error: io::Error| Trouble::unexpected(words, "a reply", told(&error));
            let reply = self.wire.read().map_err(failed)?;
            known(words, reply).and_then(|reply| no_error(words, reply))
        };
        commands.iter().map(read).collect()
    }

    /// Sends a command and does not wait for its reply.
    pub fn send(&mut self, words: &[&str]) -> Result<(), Trouble> {
        let failed = |error: io::Error| Trouble::unexpected(words, "to be heard", told(&error));
        self.wire.send(words).map_err(failed)
    }

    /// Says no more, and hears no more than that the server closes the connection. Whether it did.
    pub fn die(mut self) -> bool {
        let quiet = self.wire.shut(Shutdown::Write);
        while self.wire.fill().is_ok() {}
        quiet.is_ok() && self.wire.fill().is_err_and(|error| is_end(&error))
    }

    /// The next thing that comes, if something comes within `patience`.
    pub fn hear(&mut self, patience: Duration) -> Result<Option<Frame>, Trouble> {
        let failed = |error: io::Error| Trouble::unexpected(&[], "a reply", told(&error));
        self.wire.read_within(patience).map_err(failed)
    }
}

/// The integer that a reply is.
pub(super) fn integer(words: &[&str], reply: &Frame) -> Result<i64, Trouble> {
    let digits = std::str::from_utf8(&reply.text).ok().filter(|_| b":$+".contains(&reply.kind));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Trouble::unexpected(words, "an integer", reply.notation()))
}

/// The text that a reply is; `None` for nil.
pub(super) fn text(reply: &Frame) -> Option<String> {
    let is_nil = reply.missing || reply.kind == b'_';
    (!is_nil).then(|| String::from_utf8_lossy(&reply.text).into_owned())
}

fn known(words: &[&str], reply: Frame) -> Result<Frame, Trouble> {
    let owned: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match lacking(&reply, &owned) {
        Some(command) => Err(Trouble::Lacking(command)),
        None => Ok(reply),
    }
}

fn no_error(words: &[&str], reply: Frame) -> Result<Frame, Trouble> {
    match reply.kind {
        b'-' => Err(Trouble::unexpected(words, "no error", reply.notation())),
        _ => Ok(reply),
    }
}
