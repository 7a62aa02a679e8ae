//! A lock is never held twice. Clients take, renew, release and abandon a few locks as libraries
//! do, with leases of milliseconds, and both judges check the history.

use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::judge::history::{Action, Answer, Event, around};
use crate::judge::linear::{Budget, Linear};
use crate::judge::{entitlement, lock};
use crate::random::Random;
use crate::recipes::{self, Recipe};
use crate::report::Question;
use crate::time::{self, Deadline};

const TWICE: &str = "Two clients that hold the lock at once both run the code that it guards.";

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "A lock of SET NX PX is never held by two clients",
        client: None,
        question: Question::HeldTwice,
        why: TWICE,
        run: |arena| exclusive(arena, &recipes::SET_NX),
    },
    Property {
        name: "A lock of SETNX and PEXPIRE in a script is never held by two clients",
        client: None,
        question: Question::HeldTwice,
        why: TWICE,
        run: |arena| exclusive(arena, &recipes::SETNX_IN_SCRIPT),
    },
    Property {
        name: "An RLock is never held by two clients, and re-entry is counted",
        client: Some("Redisson RLock"),
        question: Question::HeldTwice,
        why: TWICE,
        run: |arena| exclusive(arena, &recipes::REDISSON_LOCK),
    },
    Property {
        name: "An RFencedLock is never held by two clients, and its tokens increase",
        client: Some("Redisson FencedLock"),
        question: Question::HeldTwice,
        why: "A token that does not grow lets an earlier holder overwrite the current one's work.",
        run: |arena| exclusive(arena, &recipes::REDISSON_FENCED_LOCK),
    },
    Property {
        name: "An RFairLock is never held by two clients, and is granted in request order",
        client: Some("Redisson FairLock"),
        question: Question::HeldTwice,
        why: "A client that is skipped may wait for ever.",
        run: |arena| exclusive(arena, &recipes::REDISSON_FAIR_LOCK),
    },
    Property {
        name: "An RReadWriteLock has either one writer or readers",
        client: Some("Redisson ReadWriteLock"),
        question: Question::HeldTwice,
        why: "A reader beside a writer reads partial changes.",
        run: |arena| exclusive(arena, &recipes::REDISSON_READ_WRITE_LOCK),
    },
    Property {
        name: "An RSemaphore grants no more permits than it has",
        client: Some("Redisson Semaphore"),
        question: Question::HeldTwice,
        why: "The permits count a limited resource.",
        run: |arena| exclusive(arena, &recipes::REDISSON_SEMAPHORE),
    },
];

/// The number of locks that the clients contend for.
const LOCKS: u64 = 2;
const TTL_MS: (i64, i64) = (4, 30);
/// The lease in the history of a lock without a lease.
const ENDLESS_US: i64 = 3_600_000_000;
/// The longest pause of a refused client before its next request.
const PAUSE_US: i64 = 2000;
/// Number of requests of which one is sent on a connection that is then closed.
const ABORT_ONE_IN: u64 = 50;
/// The explanation of the lines of a story.
const LEGEND: &str = "request time..answer time (us), the lock, the client and its turn, the \
                      request with its lease, and the answer:";
/// The number of events in a story.
const STORY_LINES: usize = 14;
/// The limits of the search for a linear order.
const BUDGET_STEPS: u64 = 100_000_000;
const BUDGET: Duration = Duration::from_secs(10);

fn exclusive(arena: &Arena<'_>, recipe: &Recipe) -> Result<(), PropertyError> {
    if !recipe.leased {
        let mut client = arena.connect()?;
        for number in 0..LOCKS {
            let permits = recipe.rules.permits.to_string();
            client.call(&["SET", &arena.key(&format!("lock-{number}")), &permits])?;
        }
    }
    let histories = arena.run_clients(arena.connections, |number, _| {
        let random = arena.random(number);
        let client = arena.connect()?;
        let mut lock_client =
            LockClient { arena, recipe, client, random, number, round: 0, events: Vec::new() };
        while !arena.is_over() {
            lock_client.take_turn()?;
        }
        Ok(lock_client.events)
    })?;
    judge(arena, &histories.concat(), recipe)
}

/// The events of a lock around a moment.
fn story(events: &[Event], lock: &str, at_us: i64) -> Vec<String> {
    let mut story = around(events, lock, at_us, STORY_LINES);
    story.insert(0, LEGEND.to_owned());
    story
}

/// Runs both judges.
fn judge(arena: &Arena<'_>, events: &[Event], recipe: &Recipe) -> Result<(), PropertyError> {
    let is_grant = |event: &&Event| {
        event.answer == Answer::Granted && matches!(event.action, Action::Acquire { .. })
    };
    let grants = events.iter().filter(is_grant).count();
    if let Some(violation) = entitlement::judge(events, recipe.rules).first() {
        let story = story(events, &violation.lock, violation.at_us);
        let came = format!("{}: {}", violation.kind, events[violation.event]);
        return Err(PropertyError::violated(
            "no client gets it while another may rely on it",
            &came,
            story,
        ));
    }
    if recipe.rules.permits == 1 && !recipe.shared {
        let until_us = Deadline::after(BUDGET).min(arena.deadline()).at_us();
        let mut budget = Budget { steps: BUDGET_STEPS, until_us };
        match lock::judge(events, recipe.rules, &mut budget) {
            Linear::Legal => {}
            Linear::Illegal(number) => {
                let event = &events[number];
                let at_us = event.returned_us.unwrap_or(event.invoked_us);
                let story = story(events, &event.lock, at_us);
                let expected = "an order of the events that a correct lock can produce";
                let came = format!("none: {event} does not fit");
                return Err(PropertyError::violated(expected, &came, story));
            }
            Linear::Unknown => {
                let reason = format!("{} events could not be put in order in time", events.len());
                return Err(PropertyError::unknown(reason));
            }
        }
    }
    PropertyError::unknown_unless(grants >= 10, || {
        format!("the lock was granted {grants} times only")
    })
}

/// A client that repeatedly takes and releases locks.
struct LockClient<'a> {
    arena: &'a Arena<'a>,
    recipe: &'a Recipe,
    client: ArenaClient,
    random: Random,
    number: usize,
    round: usize,
    events: Vec<Event>,
}

impl LockClient<'_> {
    /// Requests a lock, holds it for a while if it is granted, and releases or abandons it.
    fn take_turn(&mut self) -> Result<(), PropertyError> {
        self.round += 1;
        let shared = self.recipe.shared && !self.random.once_in(3);
        let role = if shared { ".r" } else { "" };
        let owner = format!("c{}.{}{role}", self.number, self.round);
        let lock = format!("lock-{}", self.random.below(LOCKS));
        loop {
            let ttl_us = self.ttl_us();
            match self.request(&lock, &owner, Action::Acquire { ttl_us, shared })? {
                Some(Answer::Granted) => return self.hold(&lock, &owner, ttl_us),
                Some(_) if self.recipe.insists && !self.arena.is_over() => self.pause(PAUSE_US),
                _ => {
                    self.pause(PAUSE_US);
                    return Ok(());
                }
            }
        }
    }

    fn hold(&mut self, lock: &str, owner: &str, ttl_us: i64) -> Result<(), PropertyError> {
        let mut count = 1;
        self.pause(ttl_us.min(TTL_MS.1 * 1000) / 2);
        while self.recipe.leased && self.random.once_in(2) {
            let ttl_us = self.ttl_us();
            let again = self.recipe.rules.reentrant && !self.recipe.shared;
            let action = if again && self.random.once_in(2) {
                Action::Acquire { ttl_us, shared: false }
            } else {
                Action::Renew { ttl_us }
            };
            let entered = matches!(action, Action::Acquire { .. });
            match self.request(lock, owner, action)? {
                Some(Answer::Granted) => count += i64::from(entered),
                Some(_) => return Ok(()),
                None if entered || (self.recipe.words)(lock, owner, action).is_some() => {
                    return Ok(());
                }
                None => {}
            }
            self.pause(ttl_us / 2);
        }
        if self.recipe.leased {
            match self.random.below(8) {
                // The lock is abandoned; or its lease ends before it is released.
                0 => return Ok(()),
                1 => self.pause(ttl_us * 2),
                _ => {}
            }
        }
        for _ in 0..count {
            let ttl_us = self.recipe.leased.then(|| self.ttl_us());
            let ttl_us = ttl_us.filter(|_| self.recipe.rules.reentrant);
            match self.request(lock, owner, Action::Release { ttl_us })? {
                Some(Answer::Kept) => {}
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends a request and notes it with its answer; `None` if there is no answer.
    fn request(
        &mut self,
        lock: &str,
        owner: &str,
        action: Action,
    ) -> Result<Option<Answer>, PropertyError> {
        let Some(words) = (self.recipe.words)(&self.arena.key(lock), owner, action) else {
            return Ok(None);
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let event = Event::asked(lock, owner, action, time::now_us());
        let aborts =
            self.recipe.leased && !self.recipe.insists && self.random.once_in(ABORT_ONE_IN);
        if aborts {
            self.client.send(&words)?;
            let next = self.arena.connect()?;
            // Once the server has closed the connection, the request cannot take effect later.
            let closed = std::mem::replace(&mut self.client, next).shut_down();
            let returned_us = closed.then(time::now_us);
            self.events.push(Event { returned_us, ..event });
            return Ok(None);
        }
        let reply = self.client.call(&words)?;
        let returned_us = time::now_us();
        let Some((answer, token)) = (self.recipe.meaning)(action, &reply) else {
            let came = reply.notation();
            return Err(PropertyError::violated(
                &format!("an answer to {action}"),
                &came,
                Vec::new(),
            ));
        };
        self.events.push(Event { token, ..event.answered(answer, returned_us) });
        Ok(Some(answer))
    }

    fn ttl_us(&mut self) -> i64 {
        let ttl_ms = self.random.between(TTL_MS.0, TTL_MS.1);
        if self.recipe.leased { ttl_ms * 1000 } else { ENDLESS_US }
    }

    /// Sleeps for a random time of at most `most_us`.
    fn pause(&mut self, most_us: i64) {
        let span_us = self.random.between(0, most_us);
        time::sleep(Duration::from_micros(span_us.unsigned_abs()));
    }
}
