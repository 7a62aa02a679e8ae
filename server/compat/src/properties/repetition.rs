//! Every repetition of a command gets the right reply. A case sends a command once or twice, and
//! does not find a server that errs now and then.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::cases;
use crate::random::Random;
use crate::report::Question;
use crate::wire::frame::Frame;

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "Each release of a lock is reported to one client",
        client: None,
        question: Question::ReleasedByOthers,
        why: "A client that releases a lock twice, or after its lease, must notice that another \
              client may have held the lock.",
        run: each_release_is_reported_once,
    },
    Property {
        name: "Every repetition of a lock command gets the right reply",
        client: None,
        question: Question::HeldTwice,
        why: "A reply that is wrong once in many times grants a lock twice, or loses it.",
        run: every_reply_is_right,
    },
];

/// The number of locks that the clients take from one another.
const LOCKS: u64 = 2;
/// The number of releases, or of commands, that must have been tried.
const TRIALS_MIN: i64 = 100;
/// The leases: longer than a run.
const LEASE_MS: (i64, i64) = (1_000_000, 9_000_000);
/// Largest difference between a lease and its remaining time.
const ELAPSED_MS_MAX: i64 = 900_000;
/// The number of events in a story.
const STORY_LINES: usize = 12;

/// Checks that each release is reported once: clients take and release a few locks, whichever
/// client holds them. A lock cannot be released more often than it was taken.
fn each_release_is_reported_once(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let locks: Vec<String> = (0..LOCKS).map(|lock| arena.key(&format!("lock-{lock}"))).collect();
    let counts = arena.run_clients(arena.connections, |number, client| {
        let mut random = arena.random(number);
        let (mut taken, mut released) = (0, 0);
        while !arena.is_over() {
            let lock = random.pick(&locks).as_str();
            if random.once_in(3) {
                let reply = client.text(&["SET", lock, "token", "NX", "PX", "9000000"])?;
                taken += i64::from(reply.is_some());
            } else {
                let script = cases::script("compare-and-delete").unwrap_or_default();
                released += match random.below(3) {
                    0 => client.integer(&["DEL", lock])?,
                    1 => client.integer(&["UNLINK", lock])?,
                    _ => client.integer(&["EVAL", script, "1", lock, "token"])?,
                };
            }
        }
        Ok((taken, released))
    })?;
    let mut client = arena.connect()?;
    let held = locks.iter().map(|lock| client.integer(&["EXISTS", lock]));
    let held: i64 = held.sum::<Result<_, _>>()?;
    let taken: i64 = counts.iter().map(|(taken, _)| taken).sum();
    let released: i64 = counts.iter().map(|(_, released)| released).sum();
    if released != taken - held {
        let expected =
            format!("{} releases: {taken} locks were taken, {held} are held", taken - held);
        let came = format!("{released} releases were reported");
        return Err(PropertyError::violated(&expected, &came, Vec::new()));
    }
    PropertyError::unknown_unless(released >= TRIALS_MIN, || {
        format!("{released} releases are too few")
    })
}

/// Checks every reply: each client sends commands for keys of its own, so that each reply is known.
fn every_reply_is_right(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let sent = arena.run_clients(arena.connections, |number, client| {
        let mut random = arena.random(number);
        let mut own = OwnKeys::new(arena, number);
        let mut sent = 0_i64;
        while !arena.is_over() {
            own.send_one(client, &mut random)?;
            sent += 1;
        }
        Ok(sent)
    })?;
    let sent: i64 = sent.iter().sum();
    PropertyError::unknown_unless(sent >= TRIALS_MIN, || format!("{sent} commands are too few"))
}

/// The right reply to a command.
enum Right {
    /// This text, number, or nil.
    Text(Option<String>),
    /// A number in this range.
    Between(RangeInclusive<i64>),
}

/// The lock, the counter and the hash of one client, as they must be.
struct OwnKeys {
    lock: String,
    counter: String,
    hash: String,
    /// The token of the lock and its lease in milliseconds, if it is held.
    held: Option<(String, Option<i64>)>,
    count: i64,
    holds: i64,
    story: VecDeque<String>,
}

impl OwnKeys {
    fn new(arena: &Arena<'_>, number: usize) -> OwnKeys {
        let key = |name: &str| arena.key(&format!("{name}-{number}"));
        OwnKeys {
            lock: key("own-lock"),
            counter: key("own-counter"),
            hash: key("own-hash"),
            held: None,
            count: 0,
            holds: 0,
            story: VecDeque::new(),
        }
    }

    fn send_one(
        &mut self,
        client: &mut ArenaClient,
        random: &mut Random,
    ) -> Result<(), PropertyError> {
        let (words, right) = self.next(random);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = client.call(&words)?;
        self.story.push_back(format!("a> {}", words.join(" ")));
        self.story.push_back(format!("a< {}", reply.notation()));
        if right.is(&reply) {
            let extra = self.story.len().saturating_sub(STORY_LINES);
            self.story.drain(..extra);
            return Ok(());
        }
        let story = self.story.drain(..).collect();
        Err(PropertyError::violated(&right.to_string(), &reply.notation(), story))
    }

    /// A random command and its right reply.
    fn next(&mut self, random: &mut Random) -> (Vec<String>, Right) {
        let lease_ms = random.between(LEASE_MS.0, LEASE_MS.1);
        let (token, lease) = (format!("t{lease_ms}"), lease_ms.to_string());
        let was_held = self.held.is_some();
        let number = |is_so: bool| Right::Text(Some(i64::from(is_so).to_string()));
        let ok_if = |is_so: bool| Right::Text(is_so.then(|| "OK".to_owned()));
        let lock = self.lock.clone();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match random.below(12) {
            0 => {
                self.held.get_or_insert((token.clone(), Some(lease_ms)));
                (words(&["SET", &lock, &token, "NX", "PX", &lease]), ok_if(!was_held))
            }
            1 => {
                self.held = self.held.take().map(|_| (token.clone(), Some(lease_ms)));
                (words(&["SET", &lock, &token, "XX", "PX", &lease]), ok_if(was_held))
            }
            2 => {
                self.held.get_or_insert((token.clone(), None));
                (words(&["SETNX", &lock, &token]), number(!was_held))
            }
            3 => {
                let held = self.held.as_ref().map(|(token, _)| token.clone());
                (words(&["GET", &lock]), Right::Text(held))
            }
            4 => (words(&["EXISTS", &lock]), number(was_held)),
            5 => {
                self.held = None;
                (words(&["DEL", &lock]), number(was_held))
            }
            6 => {
                self.held = self.held.take().map(|(token, _)| (token, Some(lease_ms)));
                (words(&["PEXPIRE", &lock, &lease]), number(was_held))
            }
            7 => {
                let remaining = match self.held {
                    None => -2..=-2,
                    Some((_, None)) => -1..=-1,
                    Some((_, Some(lease_ms))) => lease_ms - ELAPSED_MS_MAX..=lease_ms,
                };
                (words(&["PTTL", &lock]), Right::Between(remaining))
            }
            8 => {
                let had_lease = self.held.as_mut().and_then(|(_, lease)| lease.take()).is_some();
                (words(&["PERSIST", &lock]), number(had_lease))
            }
            9 => {
                let own = self.held.clone().filter(|_| random.once_in(2)).map(|(token, _)| token);
                let is_own = own.is_some();
                self.held = self.held.take().filter(|_| !is_own);
                let script = cases::script("compare-and-delete").unwrap_or_default();
                let token = own.unwrap_or_else(|| "another".to_owned());
                (words(&["EVAL", script, "1", &lock, &token]), number(is_own))
            }
            10 => {
                self.count += 1;
                let right = Right::Text(Some(self.count.to_string()));
                (words(&["INCR", &self.counter]), right)
            }
            _ => {
                let step = random.between(-1, 1);
                self.holds += step;
                let right = Right::Text(Some(self.holds.to_string()));
                (words(&["HINCRBY", &self.hash, "holder", &step.to_string()]), right)
            }
        }
    }
}

impl Right {
    fn is(&self, reply: &Frame) -> bool {
        let reply = reply.as_text();
        match self {
            Right::Text(right) => reply == *right,
            Right::Between(range) => {
                reply.and_then(|reply| reply.parse().ok()).is_some_and(|it| range.contains(&it))
            }
        }
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Right::Text(None) => f.write_str("nil"),
            Right::Text(Some(text)) => f.write_str(text),
            Right::Between(range) => write!(f, "{} to {}", range.start(), range.end()),
        }
    }
}
