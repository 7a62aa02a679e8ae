//! Offences of a lock that are proved by what clients saw.
//!
//! A client that is told it has the lock may act from then on, and until the moment at which it
//! can no longer prove that its lease runs: when it sent what was last granted, and the lease from
//! there. The server's own lease begins no later and ends no earlier. So if two clients are
//! entitled at once, the lock was held twice, whatever the network or the scheduler did.
//!
//! All is done by sorting and sweeping, in O(n log n).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use super::super::history::{Action, Event, Outcome};
use super::Rules;
use super::holds::{self, Hold};

/// What a lock did wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// In which way.
    pub kind: Kind,
    /// Which lock.
    pub lock: String,
    /// The event that shows it, by its number in the history.
    pub event: usize,
    /// When.
    pub at_us: i64,
}

/// The ways in which a lock can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// More held it at once than may.
    DoubleGrant,
    /// A holder was told that it was none, in the time of its lease.
    EarlyLoss,
    /// It was still held after its lease was over.
    LateFree,
    /// Nobody held it, and it was refused.
    FreeRefused,
    /// It was released, and those who waited for it were left waiting.
    LostWakeUp,
    /// Somebody who did not hold it renewed it or released it.
    Stranger,
    /// A later holder got no higher token.
    Token,
    /// It was not held as many times as it was taken and not released.
    Count,
    /// Somebody who had asked later got it earlier.
    OutOfTurn,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::DoubleGrant => "the lock is held by two at once",
            Kind::EarlyLoss => "the holder is told that it is none before its lease is over",
            Kind::LateFree => "the lock is held after its lease is over",
            Kind::FreeRefused => "a free lock is refused",
            Kind::LostWakeUp => "the lock was released, and who waits for it does not get it",
            Kind::Stranger => "one who does not hold the lock renews or releases it",
            Kind::Token => "a later holder has no higher fencing token",
            Kind::Count => "the lock is not held as often as it was taken",
            Kind::OutOfTurn => "one who asked later gets the lock earlier",
        })
    }
}

/// Every offence that the history proves, lock by lock.
pub fn judge(events: &[Event], rules: Rules) -> Vec<Offence> {
    let mut locks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        locks.entry(&event.lock).or_default().push(number);
    }
    let mut offences = Vec::new();
    for (lock, mut numbers) in locks {
        numbers.sort_by_key(|&number| (events[number].invoked_us, events[number].returned_us));
        let mut court = Court { events, numbers: &numbers, rules, lock, offences: Vec::new() };
        court.judge();
        court.offences.sort_by_key(|offence| (offence.at_us, offence.kind));
        offences.append(&mut court.offences);
    }
    offences
}

/// One lock and what is said against it.
struct Court<'a> {
    events: &'a [Event],
    /// Its events, by when they began.
    numbers: &'a [usize],
    rules: Rules,
    lock: &'a str,
    offences: Vec<Offence>,
}

impl Court<'_> {
    fn judge(&mut self) {
        let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &number in self.numbers {
            owners.entry(&self.events[number].client).or_default().push(number);
        }
        let mut all = Vec::new();
        for numbers in owners.values() {
            let (holds, offences) = holds::of_owner(self.events, numbers, self.rules);
            all.extend(holds);
            for (kind, number) in offences {
                self.object(kind, number);
            }
        }
        self.overlaps(&mut all);
        self.tokens();
        if self.rules.fair {
            self.turns(&owners);
        }
        let shared = |&number: &usize| {
            matches!(self.events[number].action, Action::Acquire { shared: true, .. })
        };
        if self.rules.permits == 1 && !self.numbers.iter().any(shared) {
            self.idleness(&mut all);
        }
    }

    fn object(&mut self, kind: Kind, event: usize) {
        let Event { invoked_us, returned_us, .. } = self.events[event];
        let at_us = returned_us.unwrap_or(invoked_us);
        self.offences.push(Offence { kind, lock: self.lock.to_owned(), event, at_us });
    }

    /// Who are entitled at once must be few enough.
    fn overlaps(&mut self, holds: &mut [Hold]) {
        holds.sort_by_key(|hold| hold.start_us);
        let mut active: Vec<&Hold> = Vec::new();
        let mut doubled = Vec::new();
        for hold in holds.iter().filter(|hold| hold.is_known()) {
            active.retain(|other| other.end_us > hold.start_us);
            let is_empty = hold.end_us <= hold.start_us;
            let excluded = |other: &&&Hold| {
                let same = hold.client == other.client && self.rules.reentrant;
                // Of a lease that was over before it was known, only the moment of the grant
                // counts, and that was somewhere in between.
                let during = !is_empty || other.start_us <= hold.from_us;
                during && !same && !(hold.shared && other.shared)
            };
            if active.iter().filter(excluded).count() >= self.rules.permits {
                doubled.push(hold.event);
            }
            if !is_empty {
                active.push(hold);
            }
        }
        doubled.into_iter().for_each(|event| self.object(Kind::DoubleGrant, event));
    }

    /// Tokens rise from each grant to every one that was asked for after it, and none comes twice.
    fn tokens(&mut self) {
        let of = |&number: &usize| Some((self.events[number].token?, number));
        let granted: Vec<_> = self.numbers.iter().filter_map(of).collect();
        let mut returned = granted.clone();
        returned.sort_by_key(|&(_, number)| self.events[number].returned_us);
        let mut returned = returned.into_iter().peekable();
        let mut highest = i64::MIN;
        let mut holders: BTreeMap<i64, &str> = BTreeMap::new();
        let mut found = Vec::new();
        for (token, number) in granted {
            let event = &self.events[number];
            while let Some((token, _)) = returned.next_if(|&(_, earlier)| {
                self.events[earlier].returned_us.is_some_and(|us| us < event.invoked_us)
            }) {
                highest = highest.max(token);
            }
            let holder = holders.entry(token).or_insert(&event.client);
            let again = self.rules.reentrant && *holder == event.client;
            if *holder != event.client || highest > token || highest == token && !again {
                found.push(number);
            }
        }
        found.into_iter().for_each(|number| self.object(Kind::Token, number));
    }

    /// Who surely asked first must not surely get it later.
    fn turns(&mut self, owners: &BTreeMap<&str, Vec<usize>>) {
        let rounds = owners.values().flat_map(|numbers| rounds(self.events, numbers));
        let mut rounds: Vec<Round> = rounds.collect();
        rounds.sort_by_key(|round| round.asked_us);
        let mut waiting: Vec<&Round> = rounds.iter().filter(|round| round.is_sure).collect();
        waiting.sort_by_key(|round| round.queued_us);
        let mut waiting = waiting.into_iter().peekable();
        let mut longest_us = i64::MIN;
        let mut found = Vec::new();
        for round in &rounds {
            while let Some(earlier) = waiting.next_if(|it| it.queued_us < round.asked_us) {
                longest_us = longest_us.max(earlier.waited_until_us);
            }
            let granted_us = round.granted_us.filter(|&granted_us| granted_us < longest_us);
            found.extend(granted_us.map(|_| round.last));
        }
        found.into_iter().for_each(|number| self.object(Kind::OutOfTurn, number));
    }

    /// Who asks while it is free must not be refused, nor wait long.
    fn idleness(&mut self, holds: &mut [Hold]) {
        holds.sort_by_key(|hold| hold.from_us);
        let mut asked: Vec<_> = self.numbers.to_vec();
        asked.retain(|&number| {
            let Event { action, outcome, .. } = &self.events[number];
            let decided = matches!(outcome, Outcome::Granted | Outcome::Refused { .. });
            matches!(action, Action::Acquire { .. }) && decided
        });
        asked.sort_by_key(|&number| self.events[number].returned_us);
        // The two that may have held it longest, of those granted by then.
        let mut longest: [Option<&Hold>; 2] = [None, None];
        let mut rest = holds.iter().peekable();
        let mut found = Vec::new();
        for number in asked {
            let Event { invoked_us, returned_us, outcome, .. } = self.events[number];
            let returned_us = returned_us.unwrap_or(i64::MAX);
            while let Some(hold) = rest.next_if(|hold| hold.from_us <= returned_us) {
                let mut three = [Some(hold), longest[0], longest[1]];
                three.sort_by_key(|hold| Reverse(hold.map(|hold| hold.latest_end_us)));
                longest = [three[0], three[1]];
            }
            let others = |hold: &&&Hold| hold.event != number;
            let last = longest.iter().flatten().find(others);
            let free_us = last.map_or(i64::MIN, |hold| hold.latest_end_us);
            let refused = outcome != Outcome::Granted;
            let at_once = refused && free_us < invoked_us && !self.rules.fair;
            let idle_us = returned_us.saturating_sub(invoked_us.max(free_us));
            if at_once || self.rules.idle_us.is_some_and(|most_us| idle_us > most_us) {
                let kind = match last {
                    Some(hold) if !hold.released => Kind::LateFree,
                    _ if at_once => Kind::FreeRefused,
                    _ => Kind::LostWakeUp,
                };
                found.push((kind, number));
            }
        }
        found.into_iter().for_each(|(kind, number)| self.object(kind, number));
    }
}

/// The attempts of one client until it got the lock or the history ended.
struct Round {
    /// When it first asked.
    asked_us: i64,
    /// When it had its first answer: it was in the queue by then.
    queued_us: i64,
    /// When it was told that it has it.
    granted_us: Option<i64>,
    /// Until then it surely waited.
    waited_until_us: i64,
    /// Whether it surely did not get it on the way.
    is_sure: bool,
    last: usize,
}

fn rounds(events: &[Event], numbers: &[usize]) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    let (mut open, mut holds) = (false, false);
    for &number in numbers {
        let event = &events[number];
        if !matches!(event.action, Action::Acquire { .. }) {
            holds &= !matches!(event.outcome, Outcome::Released | Outcome::NotOwner);
            open = false;
            continue;
        }
        // A holder that enters again does not queue.
        if holds {
            continue;
        }
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        if !open {
            rounds.push(Round {
                asked_us: event.invoked_us,
                queued_us: returned_us,
                granted_us: None,
                waited_until_us: i64::MIN,
                is_sure: true,
                last: number,
            });
        }
        let Some(round) = rounds.last_mut() else { continue };
        round.last = number;
        round.waited_until_us = event.invoked_us;
        round.is_sure &= event.outcome != Outcome::Unknown;
        round.granted_us = event.returned_us.filter(|_| event.outcome == Outcome::Granted);
        holds = event.outcome == Outcome::Granted;
        open = !holds;
    }
    rounds
}
