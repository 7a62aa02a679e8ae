//! A client that uses locks as programs do.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use lockwheel_compat::judge::history::{Action, Answer};
use lockwheel_compat::random::Random;
use lockwheel_compat::recipes;
use lockwheel_compat::wire::Wire;

use super::client::{LockClient, Request};
use super::shared::{Shared, key_of};
use crate::clock::now_us;
use crate::lock_kind::LockKind;
use crate::record::Record;
use crate::route::REFUSALS;

/// Number of requests of which the reply of one is lost.
const LOST_REPLY_ONCE_IN: u64 = 200;

/// Shortest and longest time between two attempts of a client that is refused.
const RETRY_US: (i64, i64) = (5_000, 100_000);

/// Longest time for which a client waits for a message, which can be lost.
const MESSAGE_WAIT: Duration = Duration::from_millis(500);

/// Shortest and longest hold of a short piece of work.
const SHORT_HOLD_US: (i64, i64) = (0, 100_000);

/// Part of the longest lease that an abandoned lock has.
const ABANDONED_DIVISOR: i64 = 8;

/// Number of renewals in a lease.
const RENEWALS_IN_LEASE: i64 = 3;

/// Number of releases of which one is repeated.
const RELEASED_AGAIN_ONCE_IN: u64 = 8;

/// What a client does with a lock that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Releases it soon.
    Short,
    /// Renews it for a time of up to the longest lease, then releases it.
    Long,
    /// Acquires it once more, if it is reentrant, and releases it as often.
    Twice,
    /// Holds it without a renewal, and releases it shortly before the lease ends.
    WholeLease,
    /// Ends without a release, as a program that crashes.
    Abandoned,
}

/// What the clients do, by how often.
const USES: [Use; 10] = [
    Use::Short,
    Use::Short,
    Use::Short,
    Use::Short,
    Use::Short,
    Use::Long,
    Use::Long,
    Use::Twice,
    Use::WholeLease,
    Use::Abandoned,
];

/// The thread of a client.
pub(super) struct Worker {
    shared: Arc<Shared>,
    client: Box<dyn LockClient>,
    number: usize,
    random: Random,
    records: Sender<Record>,
    /// The epoch of the locks that it uses.
    epoch: Arc<AtomicU64>,
    round: u64,
    next_request_us: i64,
    ended_connections: u64,
    /// Whether the last reply is an error that another attempt would get, too.
    is_refused_for_good: bool,
}

/// The lock of one round, and its owner.
struct Round {
    epoch: u64,
    kind: &'static LockKind,
    lock: String,
    owner: String,
    ttl_us: i64,
    shared: bool,
    /// When the lease ends that was granted last.
    until_us: i64,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        client: Box<dyn LockClient>,
        number: usize,
        records: Sender<Record>,
        epoch: Arc<AtomicU64>,
    ) -> Worker {
        let random = Random::of(shared.seed, number as u64);
        let (round, next_request_us, ended_connections) = (0, 0, 0);
        Worker {
            shared,
            client,
            number,
            random,
            records,
            epoch,
            round,
            next_request_us,
            ended_connections,
            is_refused_for_good: false,
        }
    }

    /// Uses locks until the load ends.
    pub(super) fn run(mut self) {
        while !self.shared.end.is_asked() {
            self.round += 1;
            // Ends early if the load ends.
            let _ = self.use_lock();
        }
        self.epoch.store(u64::MAX, Ordering::Release);
    }

    fn use_lock(&mut self) -> ControlFlow<()> {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        self.epoch.store(epoch, Ordering::Release);
        let use_of_lock = *self.random.pick(&USES);
        let kind = *self.random.pick(&self.shared.kinds);
        let number = self.random.below(self.shared.locks as u64);
        let shared = kind.recipe.shared && !self.random.once_in(3);
        let lease_us = match use_of_lock {
            Use::Abandoned => self.shared.lease_us / ABANDONED_DIVISOR,
            _ => self.shared.lease_us,
        };
        let ttl_ms = self.random.between(lease_us / 2, lease_us) / 1000;
        let reader = if shared { ".r" } else { "" };
        let mut round = Round {
            epoch,
            kind,
            lock: key_of(&self.shared.prefix, kind.name, epoch, number),
            owner: format!("client-{}.{}{reader}", self.number, self.round),
            ttl_us: ttl_ms.max(1) * 1000,
            shared,
            until_us: 0,
        };
        if self.acquire(&mut round)? {
            self.hold(&mut round, use_of_lock)?;
        }
        ControlFlow::Continue(())
    }

    /// Whether the lock was granted, at the latest after as long as the longest lease.
    fn acquire(&mut self, round: &mut Round) -> ControlFlow<(), bool> {
        let give_up_us = now_us() + self.random.between(0, self.shared.lease_us);
        let mut channel = None;
        loop {
            let action = Action::Acquire { ttl_us: round.ttl_us, shared: round.shared };
            let answer = self.ask(round, action)?;
            match answer {
                Some(Answer::Granted) => return ControlFlow::Continue(true),
                Some(Answer::Refused { .. }) => {}
                // Otherwise the place of the client in the queue would keep all others out.
                _ if round.kind.recipe.insists && !self.is_refused_for_good => {}
                _ => return ControlFlow::Continue(false),
            }
            // A server that lost a grant can keep the place of its owner in the queue for ever.
            let is_over = match round.kind.recipe.insists {
                true => self.shared.epoch.load(Ordering::Acquire) > round.epoch,
                false => now_us() >= give_up_us,
            };
            if is_over {
                return ControlFlow::Continue(false);
            }
            self.wait(round, &mut channel)?;
        }
    }

    /// Waits before the next attempt: for the message of a release, or for a time.
    fn wait(&mut self, round: &Round, channel: &mut Option<Wire>) -> ControlFlow<()> {
        if round.kind.has_channel {
            if let Some(wire) = channel {
                if wire.read_within(MESSAGE_WAIT).is_err() {
                    *channel = None;
                }
                return self.go_on();
            }
            // Another attempt follows at once: the release can have come before.
            *channel = self.client.subscribe(&recipes::channel(&round.lock));
            if channel.is_some() {
                return self.go_on();
            }
        }
        self.pause_between(RETRY_US)
    }

    fn hold(&mut self, round: &mut Round, use_of_lock: Use) -> ControlFlow<()> {
        match use_of_lock {
            Use::Abandoned => return ControlFlow::Continue(()),
            Use::Short => self.pause_between(SHORT_HOLD_US)?,
            Use::WholeLease => self.pause((round.until_us - now_us()) * 3 / 4)?,
            Use::Twice if round.kind.recipe.rules.reentrant && !round.kind.recipe.shared => {
                let action = Action::Acquire { ttl_us: round.ttl_us, shared: false };
                if self.ask(round, action)? == Some(Answer::Granted) {
                    self.release(round)?;
                }
            }
            Use::Long | Use::Twice if has_renewal(round) => {
                if !self.renew(round)? {
                    return ControlFlow::Continue(());
                }
            }
            Use::Long | Use::Twice => self.pause_between(SHORT_HOLD_US)?,
        }
        self.release(round)?;
        // As a program of which two parts release the lock: the second request must be refused.
        match self.random.once_in(RELEASED_AGAIN_ONCE_IN) {
            true => self.release(round),
            false => ControlFlow::Continue(()),
        }
    }

    fn release(&mut self, round: &mut Round) -> ControlFlow<()> {
        let ttl_us = round.kind.restarts_lease.then_some(round.ttl_us);
        self.ask(round, Action::Release { ttl_us })?;
        ControlFlow::Continue(())
    }

    /// Renews the lease for a time. Returns whether the client still holds the lock.
    fn renew(&mut self, round: &mut Round) -> ControlFlow<(), bool> {
        let end_us = now_us() + self.random.between(0, self.shared.lease_us);
        while now_us() < end_us {
            self.pause((round.ttl_us / RENEWALS_IN_LEASE).min(end_us - now_us()))?;
            // An unanswered renewal is repeated soon, as long as the lease lasts.
            loop {
                match self.ask(round, Action::Renew { ttl_us: round.ttl_us })? {
                    Some(Answer::NotOwner) => return ControlFlow::Continue(false),
                    Some(Answer::Unknown) | None if now_us() < round.until_us => {
                        self.pause_between(RETRY_US)?;
                    }
                    Some(Answer::Unknown) | None => return ControlFlow::Continue(false),
                    Some(_) => break,
                }
            }
        }
        ControlFlow::Continue(true)
    }

    /// Sends a request and records it. `None` if nothing was sent.
    fn ask(&mut self, round: &mut Round, action: Action) -> ControlFlow<(), Option<Answer>> {
        if !self.shared.sleep_until(self.next_request_us) {
            return ControlFlow::Break(());
        }
        self.next_request_us = now_us() + self.shared.interval_us;
        let loses_reply = !round.kind.recipe.insists && self.random.once_in(LOST_REPLY_ONCE_IN);
        let Round { kind, lock, owner, .. } = &*round;
        let record = self.client.perform(Request { kind, lock, owner, action, loses_reply });
        let ended = self.client.ended_connections();
        self.shared.add_ended_connections(ended - self.ended_connections);
        self.ended_connections = ended;
        let Some(record) = record else { return ControlFlow::Continue(None) };
        let is_passing = REFUSALS.iter().any(|code| record.reply.contains(code));
        self.is_refused_for_good = record.reply.starts_with('-') && !is_passing;
        let (answer, invoked_us) = (record.event.answer, record.event.invoked_us);
        if answer == Answer::Granted {
            round.until_us = match record.event.action {
                Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us } => invoked_us + ttl_us,
                Action::Release { .. } => round.until_us,
            };
        }
        // Fails only if the run has ended.
        let _ = self.records.send(record);
        ControlFlow::Continue(Some(answer))
    }

    fn pause_between(&mut self, (least_us, most_us): (i64, i64)) -> ControlFlow<()> {
        let span_us = self.random.between(least_us, most_us);
        self.pause(span_us)
    }

    fn pause(&self, span_us: i64) -> ControlFlow<()> {
        match self.shared.sleep_until(now_us().saturating_add(span_us)) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn go_on(&self) -> ControlFlow<()> {
        match self.shared.end.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

fn has_renewal(round: &Round) -> bool {
    let action = Action::Renew { ttl_us: round.ttl_us };
    (round.kind.recipe.words)(&round.lock, &round.owner, action).is_some()
}
