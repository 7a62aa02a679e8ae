//! Derives each client's holds on a lock from its events: when the client may act on the lock, and
//! when it may have held the lock. [`super::entitlement`] checks the holds.

use super::history::{Action, Answer, Event};
use super::rules::Rules;
use super::violation::ViolationKind;

/// A client's hold on a lock.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The number of the event that granted it.
    pub(super) event: usize,
    /// The number of the client's first event, which identifies the client.
    pub(super) client: usize,
    /// Whether it is shared.
    pub(super) shared: bool,
    /// Earliest time at which the client held the lock.
    pub(super) from_us: i64,
    /// Time from which the client may act; never, if it got no answer.
    pub(super) start_us: i64,
    /// Time from which the client may no longer act.
    pub(super) end_us: i64,
    /// Latest time at which the client held the lock.
    pub(super) latest_end_us: i64,
    /// Whether the client released the lock.
    pub(super) released: bool,
}

impl Hold {
    /// Whether the client got an answer.
    pub(super) fn is_known(&self) -> bool {
        self.start_us != i64::MAX
    }
}

/// The holds of one client and the wrong answers it got. `numbers` are its events, sorted by the
/// time of the request.
pub(super) fn of_owner(
    events: &[Event],
    numbers: &[usize],
    rules: Rules,
) -> (Vec<Hold>, Vec<(ViolationKind, usize)>) {
    let client = numbers.first().copied().unwrap_or_default();
    let mut owner = Owner {
        rules,
        client,
        current: None,
        count: None,
        last_return_us: i64::MIN,
        overlaps: false,
        alone: true,
        unanswered: Unanswered::default(),
        holds: Vec::new(),
        violations: Vec::new(),
    };
    for (place, &number) in numbers.iter().enumerate() {
        let next = numbers.get(place + 1).map_or(i64::MAX, |&next| events[next].invoked_us);
        owner.add(number, &events[number], next);
    }
    owner.end_hold();
    (owner.holds, owner.violations)
}

/// Requests without an answer, which may take effect at any later time.
#[derive(Default)]
struct Unanswered {
    /// A release: nothing is certain after it.
    release: bool,
    /// An acquisition.
    acquire: bool,
    /// The shortest lease that they may set.
    ttl_us: Option<i64>,
    /// The time by which they may extend a lease.
    longer_us: i64,
}

struct Owner {
    rules: Rules,
    client: usize,
    current: Option<Hold>,
    /// The number of holds, if it is certain.
    count: Option<i64>,
    last_return_us: i64,
    /// Whether an earlier request was unanswered when the current one was sent.
    overlaps: bool,
    /// Whether no other request of this client overlaps the current one.
    alone: bool,
    unanswered: Unanswered,
    holds: Vec<Hold>,
    violations: Vec<(ViolationKind, usize)>,
}

impl Owner {
    fn add(&mut self, number: usize, event: &Event, next_us: i64) {
        self.overlaps = event.invoked_us < self.last_return_us;
        self.alone = !self.overlaps && event.returned_us.is_none_or(|us| us <= next_us);
        match (event.action, event.answer) {
            (_, Answer::Unknown) => self.note_unanswered(number, event),
            (Action::Acquire { ttl_us, shared }, Answer::Granted) => {
                self.granted(number, event, ttl_us, shared);
            }
            (Action::Acquire { shared, .. }, _) => {
                let own = |hold: &Hold| !hold.shared || shared;
                let holds = self.current.as_ref().is_some_and(own);
                if self.rules.reentrant && holds && self.is_inside(event) {
                    self.violations.push((ViolationKind::EarlyLoss, number));
                }
            }
            (Action::Renew { ttl_us }, Answer::Granted) => {
                if self.may_hold(number, event) {
                    self.renewed(number, event, ttl_us);
                }
            }
            (_, Answer::NotOwner) => {
                if self.is_inside(event) {
                    self.violations.push((ViolationKind::EarlyLoss, number));
                }
                if let (Some(hold), Some(us)) = (&mut self.current, event.returned_us) {
                    // A client that releases gives the lock up when it asks.
                    let gives_up = matches!(event.action, Action::Release { .. });
                    let end_us = if gives_up { event.invoked_us } else { us };
                    hold.end_us = hold.end_us.min(end_us);
                    if !self.unanswered.acquire {
                        hold.latest_end_us = hold.latest_end_us.min(us);
                    }
                }
                self.end_hold();
            }
            (Action::Release { ttl_us }, _) => {
                if self.may_hold(number, event) {
                    self.released(number, event, ttl_us);
                }
            }
            (Action::Renew { .. }, _) => {}
        }
        self.last_return_us = self.last_return_us.max(event.returned_us.unwrap_or(i64::MIN));
    }

    /// Whether the client was entitled from the request to the answer, and no other request of its
    /// own can have changed that.
    fn is_inside(&self, event: &Event) -> bool {
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        let around = |hold: &Hold| hold.start_us <= event.invoked_us && returned_us < hold.end_us;
        self.alone && self.current.as_ref().is_some_and(around)
    }

    /// Whether the client may have held the lock when it got this answer.
    fn may_hold(&mut self, number: usize, event: &Event) -> bool {
        if self.unanswered.acquire || !self.alone {
            return true;
        }
        let kind = match &self.current {
            Some(hold) if event.invoked_us <= hold.latest_end_us => return true,
            Some(_) => ViolationKind::LateFree,
            None => ViolationKind::NotHolder,
        };
        self.violations.push((kind, number));
        false
    }

    fn granted(&mut self, number: usize, event: &Event, ttl_us: i64, shared: bool) {
        if self.rules.reentrant && self.current.is_some() {
            let again = self.certain_count().map(|count| count + 1);
            let inside = self.is_inside(event);
            if inside && differs(event.count, again) {
                self.violations.push((ViolationKind::Count, number));
            }
            if inside || event.count.is_some_and(|count| count > 1) {
                self.count = event.count.or(again);
                self.renewed(number, event, ttl_us);
                return;
            }
        }
        let unsure = self.rules.reentrant && self.current.is_some();
        let unsure = unsure || self.unanswered.acquire || !self.alone;
        if event.count.is_none() {
            self.may_end(self.end_us(event.invoked_us, ttl_us));
        }
        self.end_hold();
        self.count = if unsure { event.count } else { event.count.or(Some(1)) };
        if !unsure && differs(event.count, Some(1)) {
            self.violations.push((ViolationKind::Count, number));
        }
        self.current = Some(self.hold_from(number, event, ttl_us, shared));
    }

    /// The hold that begins with this event.
    fn hold_from(&self, number: usize, event: &Event, ttl_us: i64, shared: bool) -> Hold {
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        Hold {
            event: number,
            client: self.client,
            shared,
            from_us: event.invoked_us,
            start_us: returned_us,
            end_us: self.end_us(event.invoked_us, ttl_us),
            latest_end_us: self.latest_end_us(returned_us, ttl_us),
            released: false,
        }
    }

    fn certain_count(&self) -> Option<i64> {
        self.count.filter(|_| !self.unanswered.acquire && !self.unanswered.release)
    }

    /// Starts the lease again with this event.
    fn renewed(&mut self, number: usize, event: &Event, ttl_us: i64) {
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        let end_us = self.end_us(event.invoked_us, ttl_us);
        let latest_end_us = self.latest_end_us(returned_us, ttl_us);
        let overlaps = self.overlaps;
        let has_ended = self.current.as_ref().is_none_or(|hold| hold.end_us <= returned_us);
        if has_ended && self.unanswered.acquire {
            // The lock may have been lost and acquired again by a request without an answer.
            let shared = self.current.as_ref().is_some_and(|hold| hold.shared);
            self.may_end(end_us);
            self.end_hold();
            self.count = None;
            self.current = Some(self.hold_from(number, event, ttl_us, shared));
        } else if let Some(hold) = &mut self.current {
            hold.end_us = if overlaps { hold.end_us.min(end_us) } else { end_us };
            let longer_us = if overlaps { hold.latest_end_us } else { i64::MIN };
            hold.latest_end_us = latest_end_us.max(longer_us);
        }
    }

    fn released(&mut self, number: usize, event: &Event, ttl_us: Option<i64>) {
        let left = self.certain_count().map(|count| count - 1);
        let kept = event.answer == Answer::Kept;
        let other = left.is_some_and(|left| (left > 0) != kept);
        if self.is_inside(event) && (other || differs(event.count, left)) {
            self.violations.push((ViolationKind::Count, number));
        }
        if kept {
            self.count = event.count.or(left.filter(|&left| left > 0));
            if let Some(ttl_us) = ttl_us {
                self.renewed(number, event, ttl_us);
            }
            return;
        }
        if let Some(hold) = &mut self.current {
            hold.end_us = hold.end_us.min(event.invoked_us);
            let returned_us = event.returned_us.unwrap_or(i64::MAX);
            hold.latest_end_us = hold.latest_end_us.min(returned_us);
            hold.released = true;
        }
        self.end_hold();
    }

    /// Notes a request without an answer.
    fn note_unanswered(&mut self, number: usize, event: &Event) {
        let shortest = |unanswered: &mut Unanswered, ttl_us: i64| {
            unanswered.ttl_us = Some(unanswered.ttl_us.map_or(ttl_us, |us| us.min(ttl_us)));
        };
        match event.action {
            Action::Acquire { ttl_us, shared } => {
                self.unanswered.acquire = true;
                if self.rules.reentrant {
                    shortest(&mut self.unanswered, ttl_us);
                    self.count = None;
                }
                self.holds.push(Hold {
                    event: number,
                    client: self.client,
                    shared,
                    from_us: event.invoked_us,
                    start_us: i64::MAX,
                    end_us: i64::MAX,
                    latest_end_us: match event.returned_us {
                        Some(returned_us) => self.latest_end_us(returned_us, ttl_us),
                        None => i64::MAX,
                    },
                    released: false,
                });
            }
            Action::Renew { ttl_us } => {
                shortest(&mut self.unanswered, ttl_us);
                self.may_extend(ttl_us);
            }
            Action::Release { ttl_us } => {
                self.unanswered.release = true;
                self.count = None;
                ttl_us.into_iter().for_each(|ttl_us| self.may_extend(ttl_us));
            }
        }
        // It may take effect from here on.
        let least_us = match self.unanswered.ttl_us.filter(|_| !self.unanswered.release) {
            Some(ttl_us) => self.rules.earliest_end_us(event.invoked_us, ttl_us),
            None if self.unanswered.release => event.invoked_us,
            None => return,
        };
        self.may_end(least_us);
    }

    /// The time until which the client may act on a lease that it requested at `invoked_us`.
    fn end_us(&self, invoked_us: i64, ttl_us: i64) -> i64 {
        if self.unanswered.release || self.overlaps {
            return i64::MIN;
        }
        let ttl_us = self.unanswered.ttl_us.map_or(ttl_us, |least_us| least_us.min(ttl_us));
        self.rules.earliest_end_us(invoked_us, ttl_us)
    }

    /// The latest end of a lease that was granted by `returned_us`.
    fn latest_end_us(&self, returned_us: i64, ttl_us: i64) -> i64 {
        self.rules.latest_end_us(returned_us, ttl_us).saturating_add(self.unanswered.longer_us)
    }

    /// Allows for a renewal without an answer, which may extend this lease or a later one.
    fn may_extend(&mut self, ttl_us: i64) {
        let longer_us = self.rules.latest_end_us(0, ttl_us);
        self.unanswered.longer_us = self.unanswered.longer_us.saturating_add(longer_us);
        if let Some(hold) = &mut self.current {
            hold.latest_end_us = hold.latest_end_us.saturating_add(longer_us);
        }
    }

    /// Allows for a lease that was set now and ends at `end_us`: it may be the current one.
    fn may_end(&mut self, end_us: i64) {
        if let Some(hold) = &mut self.current {
            hold.end_us = hold.end_us.min(end_us);
        }
    }

    fn end_hold(&mut self) {
        self.count = None;
        self.holds.extend(self.current.take());
    }
}

fn differs(reported: Option<i64>, expected: Option<i64>) -> bool {
    matches!((reported, expected), (Some(reported), Some(expected)) if reported != expected)
}
