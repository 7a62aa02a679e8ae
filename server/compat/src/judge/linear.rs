//! Checks whether a concurrent history is linearizable.
//!
//! The search of Wing and Gong tries the operations in every order that the clients' clocks allow,
//! with Lowe's cache of visited configurations: the set of completed operations and the state. The
//! set is stored as the operations that are missing from a prefix, so that a configuration is small
//! however long the history. An operation without an answer may take effect at any time after its
//! request, or never.

use std::collections::HashSet;
use std::hash::Hash;

use crate::time;

/// The number of steps between two readings of the clock.
const STEPS_PER_CLOCK_READ: u64 = 4096;

/// A sequential specification.
pub trait Model {
    /// A request and its answer.
    type Call;
    /// The state of the object.
    type State: Clone + Eq + Hash;

    /// The initial state.
    fn start(&self) -> Self::State;

    /// The possible states after the operation with this answer; none if the answer is not
    /// possible. For an operation without an answer, only an effect on the state matters.
    fn step(
        &self,
        state: &Self::State,
        operation: &Operation<Self::Call>,
    ) -> [Option<Self::State>; 2];
}

/// One operation and its times.
#[derive(Clone, Debug)]
pub struct Operation<C> {
    /// The request and its answer.
    pub call: C,
    /// The time of the request.
    pub invoked_us: i64,
    /// The time of the answer, or after which the operation can no longer take effect; `None` if it
    /// always may.
    pub returned_us: Option<i64>,
    /// Whether there was an answer. If not, the operation need not have taken effect.
    pub answered: bool,
}

/// The limits of a search.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The number of steps left.
    pub steps: u64,
    /// The time at which the search ends.
    pub until_us: i64,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// The history is linearizable.
    Legal,
    /// It is not. The number is that of the operation that must come next, but cannot, after the
    /// longest valid prefix.
    Illegal(usize),
    /// The budget is used up.
    Unknown,
}

impl Budget {
    /// A number of steps, without a time limit.
    pub fn steps(steps: u64) -> Budget {
        Budget { steps, until_us: i64::MAX }
    }

    fn is_spent(&mut self) -> bool {
        if self.steps == 0 {
            return true;
        }
        self.steps -= 1;
        let reads_clock =
            self.until_us != i64::MAX && self.steps.is_multiple_of(STEPS_PER_CLOCK_READ);
        reads_clock && time::now_us() > self.until_us
    }
}

/// Checks whether the operations are linearizable.
pub fn check<M: Model>(
    model: &M,
    operations: &[Operation<M::Call>],
    budget: &mut Budget,
) -> Linear {
    Search::new(operations).run(model, operations, budget)
}

/// A choice of the search: the next operation, and which of its possible states.
#[derive(Clone, Copy)]
struct Choice {
    candidate: Candidate,
    state: usize,
}

/// A candidate for the next operation.
#[derive(Clone, Copy, PartialEq)]
enum Candidate {
    /// An operation with an answer, by its entry in the list.
    Answered(usize),
    /// An operation without an answer, by its place in `unanswered`.
    Unanswered(usize),
    /// No further candidate.
    None,
}

/// The head of the list, which is also its end.
const HEAD: usize = 0;

struct Search {
    /// The operations without an answer, sorted by the time of the request.
    unanswered: Vec<usize>,
    /// The entries of the list, its head first: the operation, and whether the entry is its answer.
    entries: Vec<(usize, bool)>,
    times_us: Vec<i64>,
    /// The entry of an operation's answer, by the entry of its request.
    answers: Vec<usize>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The rank of an operation by the time of its request, by the entry of its request.
    ranks: Vec<usize>,
    done: Bits,
    done_unanswered: Bits,
}

impl Search {
    fn new<C>(operations: &[Operation<C>]) -> Search {
        let mut moments = Vec::with_capacity(operations.len() * 2);
        let mut unanswered = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            match operation.returned_us.filter(|_| operation.answered) {
                Some(returned_us) => {
                    moments.push((operation.invoked_us, false, number));
                    moments.push((returned_us, true, number));
                }
                None => unanswered.push(number),
            }
        }
        // At the same time, requests come before answers: the operations may have overlapped.
        moments.sort_unstable();
        unanswered.sort_by_key(|&number| operations[number].invoked_us);
        let length = moments.len() + 1;
        let mut search = Search {
            entries: vec![(usize::MAX, false)],
            times_us: vec![i64::MIN],
            answers: vec![HEAD; length],
            next: (1..=length).map(|next| next % length).collect(),
            previous: (0..length).map(|entry| (entry + length - 1) % length).collect(),
            ranks: vec![0; length],
            done: Bits::new(moments.len() / 2),
            done_unanswered: Bits::new(unanswered.len()),
            unanswered,
        };
        let mut sent = vec![HEAD; operations.len()];
        let mut rank = 0;
        for (entry, (time_us, is_answer, number)) in moments.into_iter().enumerate() {
            let entry = entry + 1;
            search.entries.push((number, is_answer));
            search.times_us.push(time_us);
            if is_answer {
                search.answers[sent[number]] = entry;
            } else {
                sent[number] = entry;
                search.ranks[entry] = rank;
                rank += 1;
            }
        }
        search
    }

    fn run<M: Model>(
        &mut self,
        model: &M,
        operations: &[Operation<M::Call>],
        budget: &mut Budget,
    ) -> Linear {
        let mut state = model.start();
        let mut seen = HashSet::new();
        let mut made: Vec<(Choice, M::State)> = Vec::new();
        let mut choice = Choice { candidate: self.first(), state: 0 };
        let mut deepest = None;
        while self.next[HEAD] != HEAD {
            let Some(number) = self.operation(choice.candidate) else {
                if deepest.is_none_or(|(depth, _)| depth < made.len()) {
                    deepest = Some((made.len(), self.overdue()));
                }
                let Some((last, before)) = made.pop() else {
                    return Linear::Illegal(deepest.map_or(0, |(_, number)| number));
                };
                self.undo(last.candidate);
                state = before;
                choice = Choice { state: last.state + 1, ..last };
                continue;
            };
            if budget.is_spent() {
                return Linear::Unknown;
            }
            let states = model.step(&state, &operations[number]);
            let Some(after) = states.into_iter().flatten().nth(choice.state) else {
                choice = Choice { candidate: self.after(choice.candidate, operations), state: 0 };
                continue;
            };
            self.do_next(choice.candidate);
            if seen.insert((self.place(), after.clone())) {
                made.push((choice, std::mem::replace(&mut state, after)));
                choice = Choice { candidate: self.first(), state: 0 };
            } else {
                self.undo(choice.candidate);
                choice.state += 1;
            }
        }
        Linear::Legal
    }

    /// The first candidate.
    fn first(&self) -> Candidate {
        Candidate::Answered(self.next[HEAD])
    }

    /// The candidate after `candidate`. Operations without an answer come last: most of them need
    /// not take effect.
    fn after<C>(&self, candidate: Candidate, operations: &[Operation<C>]) -> Candidate {
        let from = match candidate {
            Candidate::Answered(entry) => {
                let next = self.next[entry];
                if next != HEAD && !self.entries[next].1 {
                    return Candidate::Answered(next);
                }
                0
            }
            Candidate::Unanswered(place) => place + 1,
            Candidate::None => return Candidate::None,
        };
        // No operation takes effect before its request, or after an answer that must come first.
        let until_us = self.overdue_us();
        let open = (from..self.unanswered.len()).find(|&place| !self.done_unanswered.has(place));
        let sent = |place: &usize| operations[self.unanswered[*place]].invoked_us <= until_us;
        open.filter(sent).map_or(Candidate::None, Candidate::Unanswered)
    }

    fn operation(&self, candidate: Candidate) -> Option<usize> {
        match candidate {
            Candidate::Answered(entry) => Some(self.entries[entry].0),
            Candidate::Unanswered(place) => Some(self.unanswered[place]),
            Candidate::None => None,
        }
    }

    /// The first answer in the list: its operation must be among the next candidates.
    fn overdue_entry(&self) -> usize {
        let mut entry = self.next[HEAD];
        while !self.entries[entry].1 && entry != HEAD {
            entry = self.next[entry];
        }
        entry
    }

    fn overdue(&self) -> usize {
        self.entries[self.overdue_entry()].0
    }

    fn overdue_us(&self) -> i64 {
        self.times_us[self.overdue_entry()]
    }

    fn do_next(&mut self, candidate: Candidate) {
        match candidate {
            Candidate::Answered(entry) => {
                self.done.set(self.ranks[entry], true);
                for entry in [entry, self.answers[entry]] {
                    self.next[self.previous[entry]] = self.next[entry];
                    self.previous[self.next[entry]] = self.previous[entry];
                }
            }
            Candidate::Unanswered(place) => self.done_unanswered.set(place, true),
            Candidate::None => {}
        }
    }

    fn undo(&mut self, candidate: Candidate) {
        match candidate {
            Candidate::Answered(entry) => {
                self.done.set(self.ranks[entry], false);
                for entry in [self.answers[entry], entry] {
                    self.next[self.previous[entry]] = entry;
                    self.previous[self.next[entry]] = entry;
                }
            }
            Candidate::Unanswered(place) => self.done_unanswered.set(place, false),
            Candidate::None => {}
        }
    }

    fn place(&self) -> Box<[u64]> {
        let mut place = Vec::with_capacity(4);
        self.done.write(&mut place);
        if !self.unanswered.is_empty() {
            self.done_unanswered.write(&mut place);
        }
        place.into_boxed_slice()
    }
}

/// A set of small numbers.
struct Bits {
    words: Vec<u64>,
    /// Index of the first word that may lack a bit.
    full: usize,
    /// Index from which no word has a bit.
    end: usize,
}

impl Bits {
    fn new(length: usize) -> Bits {
        Bits { words: vec![0; length.div_ceil(64)], full: 0, end: 0 }
    }

    fn has(&self, bit: usize) -> bool {
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, bit: usize, on: bool) {
        let (word, mask) = (bit / 64, 1 << (bit % 64));
        if on {
            self.words[word] |= mask;
            self.end = self.end.max(word + 1);
            while self.words.get(self.full) == Some(&u64::MAX) {
                self.full += 1;
            }
        } else {
            self.words[word] &= !mask;
            self.full = self.full.min(word);
            while self.end > 0 && self.words[self.end - 1] == 0 {
                self.end -= 1;
            }
        }
    }

    /// The set, in few words.
    fn write(&self, out: &mut Vec<u64>) {
        let rest = self.words.get(self.full..self.end).unwrap_or_default();
        out.extend([self.full as u64, rest.len() as u64]);
        out.extend(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Linear, Model, Operation, check};

    /// A register with read, write and compare-and-set, a common test of linearizability checkers.
    struct Register;

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Read(i64),
        Write(i64),
        Swap(i64, i64, bool),
    }

    impl Model for Register {
        type Call = Call;
        type State = i64;

        fn start(&self) -> i64 {
            0
        }

        fn step(&self, state: &i64, operation: &Operation<Call>) -> [Option<i64>; 2] {
            let answered = operation.answered;
            let after = match operation.call {
                Call::Read(value) => (*state == value && answered).then_some(value),
                Call::Write(value) => Some(value),
                Call::Swap(from, to, true) => (*state == from).then_some(to),
                Call::Swap(from, _, false) => (*state != from && answered).then_some(*state),
            };
            [after, None]
        }
    }

    fn operations(history: &[(i64, i64, Call)]) -> Vec<Operation<Call>> {
        let operation = |&(invoked_us, returned_us, call): &(i64, i64, Call)| Operation {
            call,
            invoked_us,
            returned_us: (returned_us >= 0).then_some(returned_us),
            answered: returned_us >= 0,
        };
        history.iter().map(operation).collect()
    }

    #[test]
    fn register_histories_get_known_verdicts() {
        use Call::{Read, Swap, Write};
        let check = |history: &[(i64, i64, Call)], expected: bool| {
            let operations = operations(history);
            let found = check(&Register, &operations, &mut Budget::steps(10_000));
            assert_eq!(found == Linear::Legal, expected, "{history:?}: {found:?}");
            assert_ne!(found, Linear::Unknown);
        };
        check(&[], true);
        check(&[(0, 1, Read(0))], true);
        check(&[(0, 1, Read(1))], false);
        check(&[(0, 1, Write(1)), (2, 3, Read(1))], true);
        check(&[(0, 1, Write(1)), (2, 3, Read(0))], false);
        check(&[(0, 5, Write(1)), (1, 2, Read(0)), (3, 4, Read(1))], true);
        check(&[(0, 5, Write(1)), (1, 2, Read(1)), (3, 4, Read(0))], false);
        check(&[(0, 5, Write(1)), (0, 5, Write(2)), (6, 7, Read(1))], true);
        check(&[(0, 1, Write(1)), (2, 3, Write(2)), (4, 5, Read(1))], false);
        check(&[(0, 9, Write(1)), (1, 2, Read(1)), (3, 9, Write(0)), (4, 5, Read(1))], true);
        check(&[(0, 1, Swap(0, 1, true)), (0, 1, Swap(0, 2, true))], false);
        check(&[(0, 1, Swap(0, 1, true)), (0, 1, Swap(1, 2, true))], true);
        check(&[(0, 1, Swap(0, 1, true)), (2, 3, Swap(0, 2, false)), (4, 5, Read(1))], true);
        check(&[(0, 1, Swap(3, 1, false)), (2, 3, Read(0))], true);
        check(&[(0, 1, Swap(0, 1, false))], false);
        // An operation without an answer takes effect late or never, and not before its request.
        check(&[(0, -1, Write(1)), (2, 3, Read(1))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(0)), (4, 5, Read(1))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(0))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(1)), (4, 5, Read(0))], false);
        check(&[(2, 3, Read(1)), (4, -1, Write(1))], false);
        check(&[(0, -1, Write(1)), (0, -1, Write(2)), (1, 2, Read(2)), (3, 4, Read(1))], true);
        check(&[(0, -1, Write(1)), (1, 2, Read(1)), (3, 4, Write(0)), (5, 6, Read(1))], false);
    }

    #[test]
    fn operations_that_share_a_moment_overlap() {
        let history = operations(&[(0, 1, Call::Write(1)), (1, 2, Call::Read(0))]);
        assert_eq!(check(&Register, &history, &mut Budget::steps(100)), Linear::Legal);
    }

    #[test]
    fn exhausted_budget_gives_unknown() {
        // Forty concurrent writes, and a read of a value that none of them wrote.
        let mut history: Vec<_> = (1..=40).map(|value| (0, 100, Call::Write(value))).collect();
        history.push((101, 102, Call::Read(41)));
        let verdict = check(&Register, &operations(&history), &mut Budget::steps(10_000));
        assert_eq!(verdict, Linear::Unknown);
    }

    #[test]
    fn impossible_operation_is_named() {
        let history = [(0, 1, Call::Write(1)), (2, 3, Call::Read(0)), (4, 5, Call::Read(1))];
        let verdict = check(&Register, &operations(&history), &mut Budget::steps(100));
        assert_eq!(verdict, Linear::Illegal(1));
    }
}
