//! Checks all states within bounds, with `stateright`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::bounds::{Bounds, Step};
use crate::defects::Defect;
use crate::{rules, state};

/// Number of nodes. Not all of them need to be members.
const NODES: usize = 3;

/// The entries of a log at most.
const ENTRIES: usize = 6;

type Rules = rules::Rules<NODES, ENTRIES>;
type State = state::State<NODES, ENTRIES>;

/// What was found.
#[derive(Debug)]
pub struct Checked {
    /// Number of states.
    pub states: usize,
    /// How often each step has happened.
    pub steps: Vec<(Step, u64)>,
    /// In how many states each antecedent of an invariant was true.
    pub cases: Vec<(&'static str, u64)>,
    /// The shortest way to break an invariant.
    pub violation: Option<Violation>,
}

/// A history after which an invariant is broken.
#[derive(Debug)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// The steps, with the numbers of the nodes.
    pub steps: Vec<(Step, usize, usize)>,
}

/// Checks all states, or searches for a violation in the order of the length of histories.
pub fn check(bounds: Bounds, defect: Option<Defect>) -> Checked {
    let model = Checking {
        rules: Rules { bounds, defect },
        steps: Step::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        cases: CASES.iter().map(|_| AtomicU64::new(0)).collect(),
        violation: OnceLock::new(),
    };
    // The order of several threads is not that of the length.
    let threads = if defect.is_some() { 1 } else { 2 };
    let model = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = model.spawn_bfs().join();
    let model = checker.model();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let invariant = model.violation.get().map(|(invariant, _)| *invariant);
    Checked {
        states: checker.unique_state_count(),
        steps: Step::ALL.iter().copied().zip(model.steps.iter().map(count)).collect(),
        cases: CASES.iter().map(|(name, _)| *name).zip(model.cases.iter().map(count)).collect(),
        violation: invariant
            .zip(checker.discovery(INVARIANT))
            .map(|(invariant, path)| Violation { invariant, steps: path.into_actions() }),
    }
}

/// The name of the property that all invariants are.
const INVARIANT: &str = "invariants";

/// A case that must occur, and whether a state is one.
type Case = (&'static str, fn(&Rules, &State) -> bool);

/// The antecedents of the invariants, and the documented exception.
const CASES: [Case; 7] = [
    ("a node leads", |rules, state| rules.leaders(state).next().is_some()),
    ("a node other than the first leads", |rules, state| rules.leaders(state).any(|(n, _)| n > 0)),
    ("a client has the lock", |_, state| state.holders() > 0),
    ("the second client has the lock", |_, state| state.leases[1].is_acknowledged),
    ("a lease is over in time", |_, state| state.leases[0].is_over),
    ("a follower reads what is acknowledged", |rules, state| {
        state.known.len() > 0 && rules.readers(state).next().is_some()
    }),
    ("a leader reads an old state in the documented case", |rules, state| {
        state.nodes.iter().enumerate().any(|(n, node)| {
            rules.serves(n, node) && rules.is_excepted(node) && !node.log.has(&state.known)
        })
    }),
];

/// The model for `stateright`.
struct Checking {
    rules: Rules,
    steps: Vec<AtomicU64>,
    cases: Vec<AtomicU64>,
    /// The first violation, and its state.
    violation: OnceLock<(&'static str, State)>,
}

impl Model for Checking {
    type State = State;
    type Action = (Step, usize, usize);

    fn init_states(&self) -> Vec<State> {
        self.rules.bounds.fast.iter().map(|fast| self.rules.start(*fast)).collect()
    }

    fn actions(&self, _: &State, actions: &mut Vec<Self::Action>) {
        actions.push((Step::Tick, 0, 0));
        for step in self.rules.bounds.steps.iter().copied() {
            let others = if step.has_other() { NODES } else { 1 };
            actions.extend((0..NODES).flat_map(|n| (0..others).map(move |m| (step, n, m))));
        }
    }

    fn next_state(&self, state: &State, (step, n, m): Self::Action) -> Option<State> {
        let next = self.rules.next(state, step, n, m);
        if next.is_some() {
            self.steps[step as usize].fetch_add(1, Ordering::Relaxed);
        }
        next
    }

    fn properties(&self) -> Vec<Property<Checking>> {
        let holds = |model: &Checking, state: &State| {
            for ((_, occurs), count) in CASES.iter().zip(&model.cases) {
                count.fetch_add(u64::from(occurs(&model.rules, state)), Ordering::Relaxed);
            }
            let broken =
                rules::invariants().into_iter().find(|(_, holds)| !holds(&model.rules, state));
            broken
                .is_none_or(|(name, _)| model.violation.get_or_init(|| (name, *state)).1 != *state)
        };
        // The second one lets `stateright` go on to the last state.
        vec![Property::always(INVARIANT, holds), Property::sometimes("never", |_, _| false)]
    }
}
