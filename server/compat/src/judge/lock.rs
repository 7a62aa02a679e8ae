//! The lock that histories are compared with: free, or held by one owner so many times until a
//! deadline that is known within a band, since nobody outside knows when exactly it was set.

use std::collections::BTreeMap;

use super::super::history::{Action, Event, Outcome};
use super::Rules;
use super::linear::{Budget, Linear, Model, Operation, check};

/// How coarse a remaining time is told.
const REMAINING_GRAIN_US: i64 = 2000;

/// A lock of one holder that keeps these rules.
pub struct Lock(pub Rules);

/// What was asked of it and answered.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    owner: u32,
    action: Action,
    outcome: Outcome,
    count: Option<i64>,
}

/// What it remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    holder: Option<Holder>,
    /// It is at least so late.
    now_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    count: i64,
    /// The deadline, at the earliest.
    low_us: i64,
    /// The deadline, at the latest.
    high_us: i64,
}

/// Judges every lock of a history by itself. In case of an offence, the number of the event that
/// cannot be explained.
pub fn judge(events: &[Event], rules: Rules, budget: &mut Budget) -> Linear {
    let mut locks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        locks.entry(&event.lock).or_default().push(number);
    }
    let mut verdict = Linear::Legal;
    for numbers in locks.values() {
        let mut owners = BTreeMap::new();
        let operation = |&number: &usize| operation(&events[number], &mut owners);
        let operations: Vec<_> = numbers.iter().map(operation).collect();
        match check(&Lock(rules), &operations, budget) {
            Linear::Legal => {}
            Linear::Illegal(at) => return Linear::Illegal(numbers[at]),
            Linear::Unknown => verdict = Linear::Unknown,
        }
    }
    verdict
}

fn operation<'e>(event: &'e Event, owners: &mut BTreeMap<&'e str, u32>) -> Operation<Call> {
    let fresh = u32::try_from(owners.len()).unwrap_or(u32::MAX);
    let owner = *owners.entry(&event.client).or_insert(fresh);
    let Event { action, outcome, count, invoked_us, returned_us, .. } = *event;
    let answered = outcome != Outcome::Unknown;
    Operation { call: Call { owner, action, outcome, count }, invoked_us, returned_us, answered }
}

/// The moment at which an operation happens: not before and not after.
#[derive(Clone, Copy)]
struct Moment {
    from_us: i64,
    until_us: i64,
}

impl Model for Lock {
    type Call = Call;
    type State = State;

    fn start(&self) -> State {
        State { holder: None, now_us: i64::MIN }
    }

    fn step(&self, state: &State, operation: &Operation<Call>) -> [Option<State>; 2] {
        let until_us = operation.returned_us.unwrap_or(i64::MAX);
        let moment = Moment { from_us: state.now_us.max(operation.invoked_us), until_us };
        if moment.from_us > moment.until_us {
            return [None, None];
        }
        let call = &operation.call;
        match (call.action, call.outcome) {
            (Action::Acquire { ttl_us, .. }, Outcome::Granted | Outcome::Unknown) => {
                [self.taken(state, call, moment, ttl_us), self.again(state, call, moment, ttl_us)]
            }
            (Action::Acquire { .. }, Outcome::Refused { remaining_us }) => {
                [self.refused(state, call, moment, remaining_us), None]
            }
            (Action::Renew { ttl_us }, Outcome::Granted | Outcome::Unknown) => {
                let held = own(state, call, moment);
                let count = |holder: &Holder| fits(call, holder.count).then_some(holder.count);
                let count = held.and_then(count);
                [count.map(|count| self.held(call, moment, ttl_us, count)), None]
            }
            (Action::Release { ttl_us }, outcome) if outcome != Outcome::NotOwner => {
                [self.released(state, call, moment, ttl_us), None]
            }
            (Action::Renew { .. } | Action::Release { .. }, Outcome::NotOwner) => {
                match &state.holder {
                    Some(holder) if holder.owner == call.owner => [ended(state, moment), None],
                    _ => [Some(State { now_us: moment.from_us, ..state.clone() }), None],
                }
            }
            // No lock answers so.
            _ => [None, None],
        }
    }
}

impl Lock {
    /// It was free, and is now held.
    fn taken(&self, state: &State, call: &Call, moment: Moment, ttl_us: i64) -> Option<State> {
        let free = ended(state, moment)?;
        let moment = Moment { from_us: free.now_us, ..moment };
        fits(call, 1).then(|| self.held(call, moment, ttl_us, 1))
    }

    /// Its holder took it once more.
    fn again(&self, state: &State, call: &Call, moment: Moment, ttl_us: i64) -> Option<State> {
        let count = own(state, call, moment).filter(|_| self.0.reentrant)?.count + 1;
        fits(call, count).then(|| self.held(call, moment, ttl_us, count))
    }

    fn refused(
        &self,
        state: &State,
        call: &Call,
        moment: Moment,
        remaining_us: Option<i64>,
    ) -> Option<State> {
        let now = || State { now_us: moment.from_us, ..state.clone() };
        if self.0.fair {
            // It may have been another's turn.
            return Some(now());
        }
        let holder = state.holder.as_ref().filter(|holder| moment.from_us <= holder.high_us)?;
        if self.0.reentrant && holder.owner == call.owner {
            return None;
        }
        let possible = |remaining_us: i64| {
            let least_us = holder.low_us.saturating_sub(moment.until_us);
            let most_us = holder.high_us.saturating_sub(moment.from_us);
            remaining_us.saturating_add(REMAINING_GRAIN_US) >= least_us
                && remaining_us.saturating_sub(REMAINING_GRAIN_US) <= most_us
        };
        remaining_us.is_none_or(possible).then(now)
    }

    /// Its holder gave it back, once.
    fn released(
        &self,
        state: &State,
        call: &Call,
        moment: Moment,
        ttl_us: Option<i64>,
    ) -> Option<State> {
        let holder = own(state, call, moment)?;
        let left = holder.count - 1;
        let expected = match call.outcome {
            Outcome::Released => left == 0,
            Outcome::Kept => left > 0,
            _ => true,
        };
        if !expected || !fits(call, left) {
            return None;
        }
        Some(match ttl_us {
            _ if left == 0 => State { holder: None, now_us: moment.from_us },
            Some(ttl_us) => self.held(call, moment, ttl_us, left),
            None => {
                let holder = Some(Holder { count: left, ..holder.clone() });
                State { holder, now_us: moment.from_us }
            }
        })
    }

    fn held(&self, call: &Call, moment: Moment, ttl_us: i64, count: i64) -> State {
        let holder = Holder {
            owner: call.owner,
            count,
            low_us: self.0.earliest_end_us(moment.from_us, ttl_us),
            high_us: self.0.latest_end_us(moment.until_us, ttl_us),
        };
        State { holder: Some(holder), now_us: moment.from_us }
    }
}

/// Whoever asks, if it may hold the lock at that moment.
fn own<'s>(state: &'s State, call: &Call, moment: Moment) -> Option<&'s Holder> {
    let mine = |holder: &&Holder| holder.owner == call.owner && moment.from_us <= holder.high_us;
    state.holder.as_ref().filter(mine)
}

/// The lock as free, if nobody need hold it at that moment.
fn ended(state: &State, moment: Moment) -> Option<State> {
    let Some(holder) = &state.holder else {
        return Some(State { holder: None, now_us: moment.from_us });
    };
    let now_us = moment.from_us.max(holder.low_us);
    (now_us <= moment.until_us).then_some(State { holder: None, now_us })
}

/// Whether the count that was told is that one, if any was told.
fn fits(call: &Call, count: i64) -> bool {
    call.count.is_none_or(|told| told == count)
}
