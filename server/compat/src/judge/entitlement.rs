//! Finds violations of lock rules that are proved by the requests and answers of clients.
//!
//! A client is entitled to act from the moment at which it receives a grant, until the lease has
//! passed since it sent the request that was last granted, or the server says that it does not hold
//! the lock. The server's lease begins no later and ends no earlier. So if two clients are entitled
//! at once, the lock was held twice, whatever the network or the scheduler did.
//!
//! The check sorts and sweeps, in O(n log n).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::history::{Action, Answer, Event};
use super::holds::{self, Hold};
use super::rules::Rules;
use super::violation::{Violation, ViolationKind};

/// All violations that the history proves, by lock.
pub fn judge(events: &[Event], rules: Rules) -> Vec<Violation> {
    let mut locks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        locks.entry(&event.lock).or_default().push(number);
    }
    let mut violations = Vec::new();
    for (lock, mut numbers) in locks {
        numbers.sort_by_key(|&number| (events[number].invoked_us, events[number].returned_us));
        let mut check =
            LockCheck { events, numbers: &numbers, rules, lock, violations: Vec::new() };
        check.judge();
        check.violations.sort_by_key(|violation| (violation.at_us, violation.kind));
        violations.append(&mut check.violations);
    }
    violations
}

/// The events of one lock and the violations found.
struct LockCheck<'a> {
    events: &'a [Event],
    /// The numbers of its events, sorted by the time of the request.
    numbers: &'a [usize],
    rules: Rules,
    lock: &'a str,
    violations: Vec<Violation>,
}

impl LockCheck<'_> {
    fn judge(&mut self) {
        let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &number in self.numbers {
            owners.entry(&self.events[number].client).or_default().push(number);
        }
        let mut all = Vec::new();
        for numbers in owners.values() {
            let (holds, violations) = holds::of_owner(self.events, numbers, self.rules);
            all.extend(holds);
            for (kind, number) in violations {
                self.report(kind, number);
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

    fn report(&mut self, kind: ViolationKind, event: usize) {
        let Event { invoked_us, returned_us, .. } = self.events[event];
        let at_us = returned_us.unwrap_or(invoked_us);
        self.violations.push(Violation { kind, lock: self.lock.to_owned(), event, at_us });
    }

    /// Checks that no more clients are entitled at once than there are permits.
    fn overlaps(&mut self, holds: &mut [Hold]) {
        holds.sort_by_key(|hold| hold.start_us);
        let mut active: Vec<&Hold> = Vec::new();
        let mut excess = Vec::new();
        for hold in holds.iter().filter(|hold| hold.is_known()) {
            active.retain(|other| other.end_us > hold.start_us);
            let is_empty = hold.end_us <= hold.start_us;
            let excluded = |other: &&&Hold| {
                let same = hold.client == other.client && self.rules.reentrant;
                // A lease that ended before the answer arrived counts only at the moment of
                // the grant, which was between the request and the answer.
                let during = !is_empty || other.start_us <= hold.from_us;
                during && !same && !(hold.shared && other.shared)
            };
            if active.iter().filter(excluded).count() >= self.rules.permits {
                excess.push(hold.event);
            }
            if !is_empty {
                active.push(hold);
            }
        }
        excess.into_iter().for_each(|event| self.report(ViolationKind::DoubleGrant, event));
    }

    /// Checks that the token of each grant is higher than those of all grants that returned before
    /// its request, and that no token is given twice.
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
        found.into_iter().for_each(|number| self.report(ViolationKind::Token, number));
    }

    /// Checks that no client that certainly asked first certainly gets the lock later.
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
        found.into_iter().for_each(|number| self.report(ViolationKind::OutOfTurn, number));
    }

    /// Checks that a client that asks for a free lock is not refused and does not wait long.
    fn idleness(&mut self, holds: &mut [Hold]) {
        holds.sort_by_key(|hold| hold.from_us);
        let mut asked: Vec<_> = self.numbers.to_vec();
        asked.retain(|&number| {
            let Event { action, answer, .. } = &self.events[number];
            let decided = matches!(answer, Answer::Granted | Answer::Refused { .. });
            matches!(action, Action::Acquire { .. }) && decided
        });
        asked.sort_by_key(|&number| self.events[number].returned_us);
        // The two holds granted so far that may have ended last.
        let mut longest: [Option<&Hold>; 2] = [None, None];
        let mut rest = holds.iter().peekable();
        let mut found = Vec::new();
        for number in asked {
            let Event { invoked_us, returned_us, answer, .. } = self.events[number];
            let returned_us = returned_us.unwrap_or(i64::MAX);
            while let Some(hold) = rest.next_if(|hold| hold.from_us <= returned_us) {
                let mut three = [Some(hold), longest[0], longest[1]];
                three.sort_by_key(|hold| Reverse(hold.map(|hold| hold.latest_end_us)));
                longest = [three[0], three[1]];
            }
            let others = |hold: &&&Hold| hold.event != number;
            let last = longest.iter().flatten().find(others);
            let free_us = last.map_or(i64::MIN, |hold| hold.latest_end_us);
            let refused = answer != Answer::Granted;
            let at_once = refused && free_us < invoked_us && !self.rules.fair;
            let idle_us = returned_us.saturating_sub(invoked_us.max(free_us));
            if at_once || self.rules.idle_us.is_some_and(|most_us| idle_us > most_us) {
                let kind = match last {
                    Some(hold) if !hold.released => ViolationKind::LateFree,
                    _ if at_once => ViolationKind::FreeRefused,
                    _ => ViolationKind::LostWakeUp,
                };
                found.push((kind, number));
            }
        }
        found.into_iter().for_each(|(kind, number)| self.report(kind, number));
    }
}

/// The attempts of one client until it gets the lock or the history ends.
struct Round {
    /// The time of the first request.
    asked_us: i64,
    /// The time of the first answer: the client was in the queue by then.
    queued_us: i64,
    /// The time of the answer that grants the lock.
    granted_us: Option<i64>,
    /// Time until which the client certainly waited.
    waited_until_us: i64,
    /// Whether the client certainly did not get the lock in between.
    is_sure: bool,
    last: usize,
}

fn rounds(events: &[Event], numbers: &[usize]) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    let (mut open, mut holds) = (false, false);
    for &number in numbers {
        let event = &events[number];
        if !matches!(event.action, Action::Acquire { .. }) {
            holds &= !matches!(event.answer, Answer::Released | Answer::NotOwner);
            open = false;
            continue;
        }
        // A holder that acquires the lock again does not queue.
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
        round.is_sure &= event.answer != Answer::Unknown;
        round.granted_us = event.returned_us.filter(|_| event.answer == Answer::Granted);
        holds = event.answer == Answer::Granted;
        open = !holds;
    }
    rounds
}
