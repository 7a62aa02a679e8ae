//! Whether a concurrent history could have come from something that does one thing at a time.
//!
//! The search of Wing and Gong, which tries operations in every order that the clients' clocks
//! allow, with Lowe's memory of where it has already been: the operations that are done, and the
//! state they led to. The set of those done is kept as what is missing from a prefix, so that a
//! place is small however long the history. An operation whose answer never came may be done at
//! a time when it was under way, or never.

use std::collections::HashSet;
use std::hash::Hash;

use super::super::time;

/// How often the time is looked at, in steps.
const STEPS_PER_LOOK: u64 = 4096;

/// Something that does one thing at a time.
pub trait Model {
    /// What is asked of it and what it answers.
    type Call;
    /// What it remembers.
    type State: Clone + Eq + Hash;

    /// What it remembers at first.
    fn start(&self) -> Self::State;

    /// What it may remember after doing this and answering so; nothing if it would not answer so.
    /// Of an operation without an answer, only what it changes is of interest.
    fn step(
        &self,
        state: &Self::State,
        operation: &Operation<Self::Call>,
    ) -> [Option<Self::State>; 2];
}

/// Something that was asked, and when.
#[derive(Clone, Debug)]
pub struct Operation<C> {
    /// What was asked and answered.
    pub call: C,
    /// When it was sent.
    pub invoked_us: i64,
    /// When the answer was there, or could no longer come; `None` if it always may.
    pub returned_us: Option<i64>,
    /// Whether there was an answer: if not, it need not have happened.
    pub answered: bool,
}

/// What may be spent on an answer.
#[derive(Clone, Debug)]
pub struct Budget {
    /// How many steps may still be tried.
    pub steps: u64,
    /// Until when.
    pub until_us: i64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// There is such an order.
    Legal,
    /// There is none. The longest orders that are possible so far all lack an operation that
    /// should have happened by then: the one of this number.
    Illegal(usize),
    /// The budget is used up.
    Unknown,
}

impl Budget {
    /// So many steps, however long they take.
    pub fn steps(steps: u64) -> Budget {
        Budget { steps, until_us: i64::MAX }
    }

    fn is_spent(&mut self) -> bool {
        if self.steps == 0 {
            return true;
        }
        self.steps -= 1;
        let looks = self.until_us != i64::MAX && self.steps.is_multiple_of(STEPS_PER_LOOK);
        looks && time::now_us() > self.until_us
    }
}

/// Whether such an order exists.
pub fn check<M: Model>(
    model: &M,
    operations: &[Operation<M::Call>],
    budget: &mut Budget,
) -> Linear {
    Search::new(operations).run(model, operations, budget)
}

/// A choice that was made: which operation came next, and which of the states it led to.
#[derive(Clone, Copy)]
struct Choice {
    candidate: Candidate,
    state: usize,
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Candidate {
    /// An operation that was answered, by its entry in the list.
    Answered(usize),
    /// One that was not, by its place among them.
    Unanswered(usize),
    /// There is no other.
    None,
}

/// The beginning and the end of the list.
const HEAD: usize = 0;

struct Search {
    /// The operations that were not answered, by when they were sent.
    unanswered: Vec<usize>,
    /// Entry by entry, that of the list's head first: the operation, and whether this is its
    /// answer.
    entries: Vec<(usize, bool)>,
    times_us: Vec<i64>,
    /// The entry of an operation's answer, by that of its sending.
    answers: Vec<usize>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The place of an operation in the order of sending, by the entry of its sending.
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
        // At the same moment, what is sent comes first: they may have overlapped.
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

    /// The first candidate to come next.
    fn first(&self) -> Candidate {
        Candidate::Answered(self.next[HEAD])
    }

    /// The candidate after that one. What was not answered comes last: most of it need not happen.
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
        // Nothing may happen before it was sent, nor after an answer that must come first.
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

    /// The first answer in the list: its operation must be among what comes next.
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
    /// No word before this one lacks a bit.
    full: usize,
    /// No word from this one on has a bit.
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

    /// A register, as many checkers are tried with: read, write, compare and set.
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
    fn registers_with_known_verdicts() {
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
        // What was not answered may have happened, late, or never; and not before it was sent.
        check(&[(0, -1, Write(1)), (2, 3, Read(1))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(0)), (4, 5, Read(1))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(0))], true);
        check(&[(0, -1, Write(1)), (2, 3, Read(1)), (4, 5, Read(0))], false);
        check(&[(2, 3, Read(1)), (4, -1, Write(1))], false);
        check(&[(0, -1, Write(1)), (0, -1, Write(2)), (1, 2, Read(2)), (3, 4, Read(1))], true);
        check(&[(0, -1, Write(1)), (1, 2, Read(1)), (3, 4, Write(0)), (5, 6, Read(1))], false);
    }

    #[test]
    fn a_moment_shared_is_an_overlap() {
        let history = operations(&[(0, 1, Call::Write(1)), (1, 2, Call::Read(0))]);
        assert_eq!(check(&Register, &history, &mut Budget::steps(100)), Linear::Legal);
    }

    #[test]
    fn what_was_not_found_out_in_time_is_unknown() {
        // Forty writes at once, and a read of what none of them wrote.
        let mut history: Vec<_> = (1..=40).map(|value| (0, 100, Call::Write(value))).collect();
        history.push((101, 102, Call::Read(41)));
        let verdict = check(&Register, &operations(&history), &mut Budget::steps(10_000));
        assert_eq!(verdict, Linear::Unknown);
    }

    #[test]
    fn the_operation_that_cannot_be_is_named() {
        let history = [(0, 1, Call::Write(1)), (2, 3, Call::Read(0)), (4, 5, Call::Read(1))];
        let verdict = check(&Register, &operations(&history), &mut Budget::steps(100));
        assert_eq!(verdict, Linear::Illegal(1));
    }
}
