//! Requests on a server that follows, that leads but not for certain, or whose restart guard is
//! about to end.
//!
//! A read must see everything that was acknowledged before it arrived. So it is held until the
//! caller has confirmed with the leader how far the log was then, and the state has come as far. A
//! request that only a leader serves is held while no leader is known: perhaps this server is about
//! to lead. The caller measures how long requests are held, since the lease clock of a follower
//! does not run by itself.
//!
//! In the last second of the restart guard, requests that would be refused are held until its end.

use crate::Engine;
use crate::command::Flags;
use crate::error::Error;
use crate::run::gates::{Closed, Invocation, Paths};
use crate::sessions::{ClientId, Sessions};

/// What a request needs that the server does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The state with everything that has been acknowledged.
    State,
    /// To lead.
    Leadership,
    /// The end of the restart guard.
    GuardEnd,
}

impl Need {
    /// What a command needs; `None` if it concerns neither keys nor other clients.
    fn of(call: &Invocation<'_>) -> Option<Need> {
        const CHANGES: Flags = Flags::WRITE.union(Flags::MAY_REPLICATE);
        let flags = call.flags;
        // Commands that are allowed while data is loaded need no keys.
        let waits = flags.contains(Flags::BLOCKING) && !flags.contains(Flags::LOADING);
        if flags.intersects(CHANGES) || waits {
            return Some(Need::Leadership);
        }
        let reads = flags.contains(Flags::READONLY) || call.entry.command.script.is_some();
        reads.then_some(Need::State)
    }
}

/// The requests that are held, in the order in which they arrived.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    /// In the order of their numbers.
    requests: Vec<HeldRequest>,
    /// The number of the last one.
    last: u64,
    /// Number of times when the state was replaced or the server began to serve: verdicts of
    /// earlier ones are void.
    era: u64,
}

impl HeldRequests {
    /// Makes earlier verdicts void: the state is no longer that of which they speak.
    pub(crate) fn void_verdicts(&mut self) {
        self.era += 1;
    }
}

/// A held request. Its client may have disconnected.
#[derive(Debug)]
struct HeldRequest {
    number: u64,
    client: ClientId,
    need: Need,
}

/// The decision on a held request, for when it is run again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    is_granted: bool,
    era: u64,
}

/// The reads that are held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldReads {
    last: u64,
    era: u64,
}

impl Sessions {
    /// Holds the request of a client, which is going to be blocked.
    pub(crate) fn hold(&mut self, client: ClientId, need: Need) {
        self.held.last += 1;
        self.held.requests.push(HeldRequest { number: self.held.last, client, need });
    }

    /// Runs all held requests again: this server serves from now on.
    pub(crate) fn run_held(&mut self) {
        self.held.void_verdicts();
        self.end_holds(None, |_| true);
    }

    /// Runs those held requests again that are chosen, with this verdict.
    fn end_holds(&mut self, is_granted: Option<bool>, is_chosen: impl Fn(&HeldRequest) -> bool) {
        let verdict = is_granted.map(|is_granted| Verdict { is_granted, era: self.held.era });
        let requests = std::mem::take(&mut self.held.requests);
        let (chosen, others): (Vec<HeldRequest>, _) = requests.into_iter().partition(is_chosen);
        self.held.requests = others;
        for HeldRequest { client, .. } in chosen {
            if self.stop_waiting(client) {
                if let Some(session) = self.get_mut(client) {
                    session.verdict = verdict;
                }
                self.resume(client);
            }
        }
    }

    /// Removes the verdict of a client, which counts for one request.
    pub(crate) fn forget_verdict(&mut self, client: ClientId) {
        if let Some(session) = self.get_mut(client) {
            session.verdict = None;
        }
    }
}

impl Engine {
    /// The number of the last request that was held, ever.
    pub fn last_held(&self) -> u64 {
        self.sessions.held.last
    }

    /// The reads that are held by a server which follows, if there are any.
    pub fn held_reads(&self) -> Option<HeldReads> {
        let HeldRequests { requests, era, .. } = &self.sessions.held;
        let is_read = |held: &&HeldRequest| held.need == Need::State && self.is_follower();
        let last = requests.iter().rev().find(is_read)?.number;
        Some(HeldReads { last, era: *era })
    }

    /// Runs held reads: the state has everything that was acknowledged when [`Engine::held_reads`]
    /// returned them. Without effect if the state has been replaced since.
    pub fn grant_reads(&mut self, reads: HeldReads) {
        if reads.era == self.sessions.held.era {
            let is_granted =
                |held: &HeldRequest| held.need == Need::State && held.number <= reads.last;
            self.sessions.end_holds(Some(true), is_granted);
        }
    }

    /// Refuses the held requests up to the one with this number: they have waited for too long.
    pub fn refuse_held(&mut self, last: u64) {
        self.sessions.end_holds(Some(false), |held| held.number <= last);
    }

    /// Refuses the held requests that need leadership, if another server leads.
    pub(crate) fn refuse_held_for_leader(&mut self) {
        if self.follows_leader() {
            self.sessions.end_holds(Some(false), |held| held.need == Need::Leadership);
        }
    }

    /// Whether another server leads, as far as this one has been notified.
    fn follows_leader(&self) -> bool {
        self.is_follower() && self.nodes.leader.is_some()
    }

    /// The error for a request of a client that needs what this server does not have.
    fn refuse(&mut self, client: ClientId, need: Need) -> Error {
        match need {
            Need::State => Error::NoLeader,
            Need::Leadership | Need::GuardEnd => self.refuse_to_lead(client),
        }
    }

    /// Holds a request if the restart guard ends within
    /// [`GUARD_HELD_MS`](crate::limits::GUARD_HELD_MS); but not that of a client that monitors the
    /// server.
    pub(crate) fn check_guard_end(&self, call: &Invocation<'_>) -> Result<(), Closed> {
        match self.guard_is_ending(call.time) && !self.is_monitoring(call.client) {
            true => Err(Closed::Held(Need::GuardEnd)),
            false => Ok(()),
        }
    }

    /// Lets a command pass that this server may serve although it does not lead, or not for
    /// certain.
    pub(crate) fn check_leadership(&mut self, call: &Invocation<'_>) -> Result<(), Closed> {
        let Some(need) = Need::of(call) else { return Ok(()) };
        let Some(session) = self.sessions.get(call.client) else { return Ok(()) };
        if need == Need::Leadership && self.follows_leader() {
            return Err(self.refuse(call.client, need).into());
        }
        let is_queued = session.transaction.is_some() && !call.flags.contains(Flags::NOT_QUEUED);
        if is_queued && call.path == Paths::REQUEST {
            // `EXEC` passes with it.
            return Ok(());
        }
        match session.verdict.filter(|verdict| verdict.era == self.sessions.held.era) {
            Some(Verdict { is_granted: false, .. }) => Err(self.refuse(call.client, need).into()),
            Some(_) if need == Need::State => Ok(()),
            _ => Err(Closed::Held(need)),
        }
    }
}
