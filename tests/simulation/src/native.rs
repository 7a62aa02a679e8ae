//! What is known of native locks besides the answers to their holders: the queue and the holders as
//! `LOCK.INFO` shows them, and connections that are lost. An attempt has an owner of its own, so
//! that its place in the queue is known.

use std::collections::{BTreeMap, BTreeSet};

use lockwheel_compat::wire::frame::Frame;

use crate::actors::{number, text};
use crate::core::Violation;

/// The permits of a native semaphore.
pub const PERMITS: u32 = 3;

/// Longest time until a server notices a lost connection.
const SLACK_US: i64 = 100_000;

/// Shortest remaining lease that is not reported as 0.
const MILLISECOND_US: i64 = 1_000;

/// Longest time for which a lock is free while a client waits for it.
const IDLE_US: i64 = 200_000;

/// Longest time until a request has arrived.
const ARRIVED_US: i64 = 300_000;

/// How an owner holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// With others that share it.
    Shared,
    /// This number of permits.
    Permits(u32),
}

/// An attempt to acquire a lock.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The lock.
    pub lock: String,
    /// How the client wants to hold it.
    pub mode: Mode,
    /// When it was sent.
    pub asked_us: i64,
    /// How long it waits.
    pub wait_us: i64,
    /// Grace of an attempt that is bound.
    pub grace_us: Option<i64>,
    outcome: Outcome,
    /// When it was first known to wait in the queue, and the last time at which it did.
    queued_us: Option<(i64, i64)>,
    lost: Option<Loss>,
    /// Moment since which its holder is shown without a millisecond left.
    expired_us: Option<i64>,
    /// Time since which the owner knows that it does not hold the lock.
    ended_us: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Open,
    /// With this token, as a reply at this time said.
    Granted(i64, i64),
    NotGranted,
}

/// The loss of the connection of an owner that has sent nothing since.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at_us: i64,
    /// Whether the server has sent no reply to the attempt.
    is_unanswered: bool,
}

impl Attempt {
    /// An attempt without an outcome.
    pub fn new(
        lock: &str,
        mode: Mode,
        asked_us: i64,
        wait_us: i64,
        grace_us: Option<i64>,
    ) -> Attempt {
        Attempt {
            lock: lock.to_owned(),
            mode,
            asked_us,
            wait_us,
            grace_us,
            outcome: Outcome::Open,
            queued_us: None,
            lost: None,
            expired_us: None,
            ended_us: None,
        }
    }

    fn is_waiting(&self, lock: &str, since_us: i64) -> bool {
        let has_arrived = self.asked_us + ARRIVED_US < since_us && self.wait_us > 0;
        has_arrived && self.outcome == Outcome::Open && self.lost.is_none() && self.lock == lock
    }
}

/// A reply of `LOCK.INFO`.
#[derive(Debug)]
struct Shown {
    holders: Vec<Holder>,
    /// The owners that wait.
    queue: Vec<String>,
}

#[derive(Debug)]
struct Holder {
    owner: String,
    ttl_ms: i64,
    held_ms: i64,
}

/// A lock that is free, and the moment since which a client waits for it.
#[derive(Clone, Debug)]
pub struct Idle {
    since_us: i64,
    owner: String,
}

/// The moment of a reply of `LOCK.INFO`.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// When it was asked for.
    pub asked_us: i64,
    /// When it was received.
    pub now_us: i64,
    /// When something last kept servers from answering.
    pub disturbed_us: i64,
    /// Longest time by which the lease clock of the reply may be behind.
    pub lag_us: i64,
}

/// The native locks, and what clients have observed of them.
#[derive(Debug, Default)]
pub struct Native {
    attempts: BTreeMap<String, Attempt>,
    /// Pairs of owners of which the first has been before the second in a queue.
    before: BTreeSet<(String, String)>,
}

/// What clients report.
impl Native {
    /// Records that a client requests a lock.
    pub fn asked(&mut self, owner: &str, attempt: Attempt) {
        self.attempts.insert(owner.to_owned(), attempt);
    }

    fn change(&mut self, owner: &str, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.attempts.get_mut(owner) {
            change(attempt);
        }
    }

    /// Records that the request is granted, for the first time.
    pub fn granted(&mut self, owner: &str, token: i64, now_us: i64) {
        self.change(owner, |attempt| attempt.outcome = Outcome::Granted(token, now_us));
    }

    /// Records that the request is not granted. `has_waited` is whether it was in the queue until
    /// the end of its wait.
    pub fn not_granted(&mut self, owner: &str, has_waited: bool) {
        self.change(owner, |attempt| {
            attempt.outcome = Outcome::NotGranted;
            if let Some((_, last_us)) = attempt.queued_us.as_mut().filter(|_| has_waited) {
                *last_us = attempt.asked_us + attempt.wait_us;
            }
        });
    }

    /// Records that the owner sends a request on a new connection.
    pub fn sent(&mut self, owner: &str) {
        self.change(owner, |attempt| attempt.lost = None);
    }

    /// Records that the connection was lost. `is_unanswered` is whether there was no reply to the
    /// attempt.
    pub fn lost(&mut self, owner: &str, at_us: i64, is_unanswered: bool) {
        self.change(owner, |attempt| attempt.lost = Some(Loss { at_us, is_unanswered }));
    }

    /// Records that the owner no longer holds the lock and does not request it again.
    pub fn ended(&mut self, owner: &str, now_us: i64) {
        self.change(owner, |attempt| attempt.ended_us = Some(now_us));
    }
}

/// What an observer reports.
impl Native {
    /// A reply of `LOCK.INFO`; `idle` is what the one before has led to. Returns a
    /// description of a violation.
    pub fn shown(
        &mut self,
        lock: &str,
        reply: &Frame,
        look: Look,
        idle: &mut Option<Idle>,
    ) -> Option<String> {
        let shown = Shown::read(reply);
        for holder in &shown.holders {
            let Some(attempt) = self.attempts.get_mut(&holder.owner) else {
                return Some(format!("{} holds {lock} and never asked for it", holder.owner));
            };
            if let Some(wrong) = attempt.wrong_holder(holder, look) {
                return Some(format!("{} is shown as holder of {lock}, {wrong}", holder.owner));
            }
        }
        self.note_queue(&shown.queue, look);
        let owner = self.idle_for(lock, &shown, look).cloned();
        let lasts = idle.take().filter(|idle| Some(&idle.owner) == owner.as_ref());
        *idle = owner.map(|owner| Idle { since_us: look.now_us, owner });
        if let Some(first) = lasts {
            let is_calm = look.disturbed_us + ARRIVED_US < first.since_us;
            if is_calm && look.asked_us > first.since_us + IDLE_US {
                let Idle { owner, since_us } = first;
                return Some(format!("{lock} is free since {since_us} us, and {owner} waits"));
            }
            *idle = Some(first);
        }
        None
    }

    fn note_queue(&mut self, queue: &[String], look: Look) {
        for (at, owner) in queue.iter().enumerate() {
            self.change(owner, |attempt| {
                let (first_us, _) = attempt.queued_us.unwrap_or((look.now_us, 0));
                attempt.queued_us = Some((first_us, look.asked_us));
            });
            for later in &queue[at + 1..] {
                self.before.insert((owner.clone(), later.clone()));
            }
        }
    }

    /// The client that waits although the lock is free for it.
    fn idle_for<'a>(&'a self, lock: &str, shown: &'a Shown, look: Look) -> Option<&'a String> {
        if shown.holders.is_empty() && shown.queue.is_empty() {
            let waits = |attempt: &Attempt| attempt.is_waiting(lock, look.asked_us);
            return self
                .attempts
                .iter()
                .find(|(_, attempt)| waits(attempt))
                .map(|(owner, _)| owner);
        }
        let first = shown.queue.first()?;
        let modes = shown.holders.iter().filter_map(|holder| self.attempts.get(&holder.owner));
        let modes: Vec<Mode> = modes.map(|attempt| attempt.mode).collect();
        let is_free = match self.attempts.get(first)?.mode {
            Mode::Exclusive => modes.is_empty(),
            Mode::Shared => modes.iter().all(|mode| *mode == Mode::Shared),
            Mode::Permits(count) => {
                modes.iter().map(|mode| mode.permits()).sum::<u32>() + count <= PERMITS
            }
        };
        is_free.then_some(first)
    }
}

impl Mode {
    fn permits(self) -> u32 {
        match self {
            Mode::Permits(count) => count,
            Mode::Exclusive | Mode::Shared => 0,
        }
    }
}

impl Attempt {
    /// What is wrong if this holder is shown.
    fn wrong_holder(&mut self, holder: &Holder, look: Look) -> Option<&'static str> {
        if holder.ttl_ms > 0 {
            self.expired_us = None;
        } else if look.asked_us > *self.expired_us.get_or_insert(look.now_us) + MILLISECOND_US {
            return Some("after its lease");
        }
        if self.ended_us.is_some_and(|ended_us| ended_us < look.asked_us) {
            return Some("after its end");
        }
        let loss = self.lost.filter(|loss| look.disturbed_us < loss.at_us)?;
        let granted_us = look.asked_us - (holder.held_ms + 1) * 1000;
        if granted_us > loss.at_us + SLACK_US + look.lag_us {
            return Some("granted after its connection was lost");
        }
        let lasts_us = if loss.is_unanswered { 0 } else { self.grace_us? };
        let is_late = self.grace_us.is_some() && look.asked_us > loss.at_us + lasts_us + SLACK_US;
        is_late.then_some("after its connection was lost")
    }
}

impl Shown {
    fn read(reply: &Frame) -> Shown {
        let list = |name: &str| field(reply, name).map_or(&[][..], |frame| &frame.items);
        let owner = |frame: &Frame| field(frame, "owner").map(text).unwrap_or_default();
        let number_of = |frame: &Frame, name| field(frame, name).and_then(number).unwrap_or(0);
        let holder = |frame: &Frame| Holder {
            owner: owner(frame),
            ttl_ms: number_of(frame, "ttl"),
            held_ms: number_of(frame, "held"),
        };
        Shown {
            holders: list("holders").iter().map(holder).collect(),
            queue: list("queue").iter().map(owner).collect(),
        }
    }
}

/// A field of a map.
pub fn field<'a>(map: &'a Frame, name: &str) -> Option<&'a Frame> {
    let pair = map.items.chunks(2).find(|pair| pair[0].text == name.as_bytes())?;
    pair.get(1)
}

// --- judging ---

impl Native {
    /// Grants that were out of turn, as the whole history shows.
    pub fn judge(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut report = |first: &str, later: &str| {
            let text =
                format!("{later} was granted before {first}, which was before it in the queue");
            violations.push(Violation { kind: "turn".to_owned(), text });
        };
        let granted = |owner: &String| match self.attempts.get(owner)?.outcome {
            Outcome::Granted(token, _) => Some(token),
            _ => None,
        };
        for (first, later) in &self.before {
            if let (Some(token), Some(later_token)) = (granted(first), granted(later))
                && later_token < token
            {
                report(first, later);
            }
        }
        for (owner, waiter) in &self.attempts {
            let overtakers = self.attempts.iter().filter(|(_, other)| other.overtakes(waiter));
            overtakers.for_each(|(other, _)| report(owner, other));
        }
        violations
    }
}

impl Attempt {
    /// Whether this one certainly asked later than `waiter`, and was granted while that one waited.
    fn overtakes(&self, waiter: &Attempt) -> bool {
        let (Outcome::Granted(token, granted_us), Some((queued_us, last_us))) =
            (self.outcome, waiter.queued_us)
        else {
            return false;
        };
        let has_waited = match waiter.outcome {
            Outcome::Granted(later_token, _) => token < later_token,
            _ => granted_us < last_us,
        };
        self.lock == waiter.lock && queued_us < self.asked_us && has_waited
    }
}
