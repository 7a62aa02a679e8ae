//! The sequential model of a lock: free, or held by one owner with a count and a deadline. The
//! deadline is known only within a range, since clients cannot observe when exactly it was set.

use std::collections::BTreeMap;

use super::history::{Action, Answer, Event};
use super::linear::{Budget, Linear, Model, Operation, check};
use super::rules::Rules;

/// The precision of a reported remaining time, in microseconds.
const REMAINING_GRAIN_US: i64 = 2000;

/// The model of a lock with one holder, under these rules.
pub struct LockModel(pub Rules);

/// A request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    owner: u32,
    action: Action,
    answer: Answer,
    count: Option<i64>,
}

/// The state of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    holder: Option<Holder>,
    /// The earliest possible current time.
    now_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    owner: u32,
    count: i64,
    /// The earliest possible deadline.
    low_us: i64,
    /// The latest possible deadline.
    high_us: i64,
}

/// Judges each lock of a history separately. A history that is not linearizable gives the number
/// of the event that does not fit.
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
        match check(&LockModel(rules), &operations, budget) {
            Linear::Legal => {}
            Linear::Illegal(at) => return Linear::Illegal(numbers[at]),
            Linear::Unknown => verdict = Linear::Unknown,
        }
    }
    verdict
}

fn operation<'e>(event: &'e Event, owners: &mut BTreeMap<&'e str, u32>) -> Operation<Call> {
    let next_number = u32::try_from(owners.len()).unwrap_or(u32::MAX);
    let owner = *owners.entry(&event.client).or_insert(next_number);
    let Event { action, answer, count, invoked_us, returned_us, .. } = *event;
    let answered = answer != Answer::Unknown;
    Operation { call: Call { owner, action, answer, count }, invoked_us, returned_us, answered }
}

/// The range of times in which an operation takes effect.
#[derive(Clone, Copy)]
struct Moment {
    from_us: i64,
    until_us: i64,
}

impl Model for LockModel {
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
        match (call.action, call.answer) {
            (Action::Acquire { ttl_us, .. }, Answer::Granted | Answer::Unknown) => {
                [self.taken(state, call, moment, ttl_us), self.again(state, call, moment, ttl_us)]
            }
            (Action::Acquire { .. }, Answer::Refused { remaining_us }) => {
                [self.refused(state, call, moment, remaining_us), None]
            }
            (Action::Renew { ttl_us }, Answer::Granted | Answer::Unknown) => {
                let held = own(state, call, moment);
                let count = |holder: &Holder| fits(call, holder.count).then_some(holder.count);
                let count = held.and_then(count);
                [count.map(|count| self.held(call, moment, ttl_us, count)), None]
            }
            (Action::Release { ttl_us }, answer) if answer != Answer::NotOwner => {
                [self.released(state, call, moment, ttl_us), None]
            }
            (Action::Renew { .. } | Action::Release { .. }, Answer::NotOwner) => {
                match &state.holder {
                    Some(holder) if holder.owner == call.owner => [ended(state, moment), None],
                    _ => [Some(State { now_us: moment.from_us, ..state.clone() }), None],
                }
            }
            // No lock gives this answer.
            _ => [None, None],
        }
    }
}

impl LockModel {
    /// Returns the state after a grant of a free lock.
    fn taken(&self, state: &State, call: &Call, moment: Moment, ttl_us: i64) -> Option<State> {
        let free = ended(state, moment)?;
        let moment = Moment { from_us: free.now_us, ..moment };
        fits(call, 1).then(|| self.held(call, moment, ttl_us, 1))
    }

    /// Returns the state after the holder has acquired the lock once more.
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
            // It may be the turn of another client.
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

    /// Returns the state after the holder has released one hold.
    fn released(
        &self,
        state: &State,
        call: &Call,
        moment: Moment,
        ttl_us: Option<i64>,
    ) -> Option<State> {
        let holder = own(state, call, moment)?;
        let left = holder.count - 1;
        let expected = match call.answer {
            Answer::Released => left == 0,
            Answer::Kept => left > 0,
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

/// The holder, if it is the caller and may hold the lock at that moment.
fn own<'s>(state: &'s State, call: &Call, moment: Moment) -> Option<&'s Holder> {
    let is_own = |holder: &&Holder| holder.owner == call.owner && moment.from_us <= holder.high_us;
    state.holder.as_ref().filter(is_own)
}

/// The state without a holder, if its lease may have ended at that moment.
fn ended(state: &State, moment: Moment) -> Option<State> {
    let Some(holder) = &state.holder else {
        return Some(State { holder: None, now_us: moment.from_us });
    };
    let now_us = moment.from_us.max(holder.low_us);
    (now_us <= moment.until_us).then_some(State { holder: None, now_us })
}

/// Whether the answer reports this count, or none.
fn fits(call: &Call, count: i64) -> bool {
    call.count.is_none_or(|reported| reported == count)
}
