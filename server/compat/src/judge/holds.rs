//! From when until when each client may act on a lock, and from when until when it may have had
//! it: all that is left of its events for the judge of entitlements.

use super::super::history::{Action, Event, Outcome};
use super::Rules;
use super::entitlement::Kind;

/// A client's hold on a lock.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The event of its grant, by number.
    pub(super) event: usize,
    /// The first event of the client that holds.
    pub(super) client: usize,
    /// Whether others may share it.
    pub(super) shared: bool,
    /// It was not held before.
    pub(super) from_us: i64,
    /// The client may act from here on; never, if it was not told.
    pub(super) start_us: i64,
    /// The client may not act from here on.
    pub(super) end_us: i64,
    /// It is not held after this.
    pub(super) latest_end_us: i64,
    /// Whether it ended because the client released it.
    pub(super) released: bool,
}

impl Hold {
    /// Whether the client was told of it.
    pub(super) fn is_known(&self) -> bool {
        self.start_us != i64::MAX
    }
}

/// The holds of one client, whose events these are in the order of their beginning, and what it
/// was wrongly told.
pub(super) fn of_owner(
    events: &[Event],
    numbers: &[usize],
    rules: Rules,
) -> (Vec<Hold>, Vec<(Kind, usize)>) {
    let client = numbers.first().copied().unwrap_or_default();
    let mut owner = Owner {
        rules,
        client,
        current: None,
        count: None,
        last_return_us: i64::MIN,
        overlaps: false,
        alone: true,
        limbo: Limbo::default(),
        holds: Vec::new(),
        offences: Vec::new(),
    };
    for (place, &number) in numbers.iter().enumerate() {
        let next = numbers.get(place + 1).map_or(i64::MAX, |&next| events[next].invoked_us);
        owner.hear(number, &events[number], next);
    }
    owner.let_go();
    (owner.holds, owner.offences)
}

/// What was asked and never answered, and may come to pass at any later time.
#[derive(Default)]
struct Limbo {
    /// A release: from here on nothing is certain.
    release: bool,
    /// An acquisition.
    acquire: bool,
    /// The shortest lease that may still be set.
    ttl_us: Option<i64>,
    /// By how much a lease may still be prolonged.
    longer_us: i64,
}

struct Owner {
    rules: Rules,
    client: usize,
    current: Option<Hold>,
    /// How many times it holds the lock, if that is certain.
    count: Option<i64>,
    last_return_us: i64,
    /// Whether an earlier event was still going on when the one at hand began.
    overlaps: bool,
    /// Whether nothing else of this client went on beside the one at hand.
    alone: bool,
    limbo: Limbo,
    holds: Vec<Hold>,
    offences: Vec<(Kind, usize)>,
}

impl Owner {
    fn hear(&mut self, number: usize, event: &Event, next_us: i64) {
        self.overlaps = event.invoked_us < self.last_return_us;
        self.alone = !self.overlaps && event.returned_us.is_none_or(|us| us <= next_us);
        match (event.action, event.outcome) {
            (_, Outcome::Unknown) => self.limbo(number, event),
            (Action::Acquire { ttl_us, shared }, Outcome::Granted) => {
                self.granted(number, event, ttl_us, shared);
            }
            (Action::Acquire { shared, .. }, _) => {
                let own = |hold: &Hold| !hold.shared || shared;
                let holds = self.current.as_ref().is_some_and(own);
                if self.rules.reentrant && holds && self.is_inside(event) {
                    self.offences.push((Kind::EarlyLoss, number));
                }
            }
            (Action::Renew { ttl_us }, Outcome::Granted) => {
                if self.may_hold(number, event) {
                    self.renewed(number, event, ttl_us);
                }
            }
            (_, Outcome::NotOwner) => {
                if self.is_inside(event) {
                    self.offences.push((Kind::EarlyLoss, number));
                }
                if let (Some(hold), Some(us)) = (&mut self.current, event.returned_us)
                    && !self.limbo.acquire
                {
                    hold.latest_end_us = hold.latest_end_us.min(us);
                }
                self.let_go();
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

    /// Whether the client was entitled while it asked, until it was answered, and nothing else it
    /// did can have changed that.
    fn is_inside(&self, event: &Event) -> bool {
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        let around = |hold: &Hold| hold.start_us <= event.invoked_us && returned_us < hold.end_us;
        self.alone && self.current.as_ref().is_some_and(around)
    }

    /// Whether it may have held the lock when it was told so.
    fn may_hold(&mut self, number: usize, event: &Event) -> bool {
        if self.limbo.acquire || !self.alone {
            return true;
        }
        let kind = match &self.current {
            Some(hold) if event.invoked_us <= hold.latest_end_us => return true,
            Some(_) => Kind::LateFree,
            None => Kind::Stranger,
        };
        self.offences.push((kind, number));
        false
    }

    fn granted(&mut self, number: usize, event: &Event, ttl_us: i64, shared: bool) {
        if self.rules.reentrant && self.current.is_some() {
            let again = self.certain_count().map(|count| count + 1);
            let inside = self.is_inside(event);
            if inside && wrong(event.count, again) {
                self.offences.push((Kind::Count, number));
            }
            if inside || event.count.is_some_and(|count| count > 1) {
                self.count = event.count.or(again);
                self.renewed(number, event, ttl_us);
                return;
            }
        }
        let unsure = self.rules.reentrant && self.current.is_some();
        let unsure = unsure || self.limbo.acquire || !self.alone;
        if event.count.is_none() {
            self.may_end(self.end_us(event.invoked_us, ttl_us));
        }
        self.let_go();
        self.count = if unsure { event.count } else { event.count.or(Some(1)) };
        if !unsure && wrong(event.count, Some(1)) {
            self.offences.push((Kind::Count, number));
        }
        self.current = Some(self.hold_from(number, event, ttl_us, shared));
    }

    /// What the client holds from this event on.
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
        self.count.filter(|_| !self.limbo.acquire && !self.limbo.release)
    }

    /// The lease runs from here on.
    fn renewed(&mut self, number: usize, event: &Event, ttl_us: i64) {
        let returned_us = event.returned_us.unwrap_or(i64::MAX);
        let end_us = self.end_us(event.invoked_us, ttl_us);
        let latest_end_us = self.latest_end_us(returned_us, ttl_us);
        let overlaps = self.overlaps;
        let lapsed = self.current.as_ref().is_none_or(|hold| hold.end_us <= returned_us);
        if lapsed && self.limbo.acquire {
            // It may have been lost, and taken again by what was never answered.
            let shared = self.current.as_ref().is_some_and(|hold| hold.shared);
            self.may_end(end_us);
            self.let_go();
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
        let kept = event.outcome == Outcome::Kept;
        let other = left.is_some_and(|left| (left > 0) != kept);
        if self.is_inside(event) && (other || wrong(event.count, left)) {
            self.offences.push((Kind::Count, number));
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
        self.let_go();
    }

    /// Nothing was answered.
    fn limbo(&mut self, number: usize, event: &Event) {
        let shortest = |limbo: &mut Limbo, ttl_us: i64| {
            limbo.ttl_us = Some(limbo.ttl_us.map_or(ttl_us, |us| us.min(ttl_us)));
        };
        match event.action {
            Action::Acquire { ttl_us, shared } => {
                self.limbo.acquire = true;
                if self.rules.reentrant {
                    shortest(&mut self.limbo, ttl_us);
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
                shortest(&mut self.limbo, ttl_us);
                self.may_last_longer(ttl_us);
            }
            Action::Release { ttl_us } => {
                self.limbo.release = true;
                self.count = None;
                ttl_us.into_iter().for_each(|ttl_us| self.may_last_longer(ttl_us));
            }
        }
        // From here on it may come to pass.
        let least_us = match self.limbo.ttl_us.filter(|_| !self.limbo.release) {
            Some(ttl_us) => self.rules.earliest_end_us(event.invoked_us, ttl_us),
            None if self.limbo.release => event.invoked_us,
            None => return,
        };
        self.may_end(least_us);
    }

    /// Until when the client may act on a lease that it asked for then.
    fn end_us(&self, invoked_us: i64, ttl_us: i64) -> i64 {
        if self.limbo.release || self.overlaps {
            return i64::MIN;
        }
        let ttl_us = self.limbo.ttl_us.map_or(ttl_us, |least_us| least_us.min(ttl_us));
        self.rules.earliest_end_us(invoked_us, ttl_us)
    }

    /// Until when a lease may last that was granted by then.
    fn latest_end_us(&self, returned_us: i64, ttl_us: i64) -> i64 {
        self.rules.latest_end_us(returned_us, ttl_us).saturating_add(self.limbo.longer_us)
    }

    /// A renewal that was not answered may prolong this lease or a later one.
    fn may_last_longer(&mut self, ttl_us: i64) {
        let longer_us = self.rules.latest_end_us(0, ttl_us);
        self.limbo.longer_us = self.limbo.longer_us.saturating_add(longer_us);
        if let Some(hold) = &mut self.current {
            hold.latest_end_us = hold.latest_end_us.saturating_add(longer_us);
        }
    }

    /// The lease at hand may be the one that was set now, and end then.
    fn may_end(&mut self, end_us: i64) {
        if let Some(hold) = &mut self.current {
            hold.end_us = hold.end_us.min(end_us);
        }
    }

    fn let_go(&mut self) {
        self.count = None;
        self.holds.extend(self.current.take());
    }
}

fn wrong(told: Option<i64>, expected: Option<i64>) -> bool {
    matches!((told, expected), (Some(told), Some(expected)) if told != expected)
}
