//! The steps of the cluster, and what is true in every state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};

use crate::state::{Effect, Entry, Lease, Log, NODES, Node, Nodes, Phase, Power, State, View};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A node that starts again forgets its promise.
    PromiseForgotten,
    VotesDespitePromise,
    CandidateDespitePromise,
    VotesWhileItLeads,
    LeadsAfterItsLease,
    LeaseFromReceipt,
    LeaseWithoutMargin,
    LeaseTooLong,
    LessThanAMajority,
    BarrierLeftOut,
    EarlierLeadersApplied,
    TimeBeginsAnew,
    TimeJumps,
    ReplyBeforeCommit,
    ReadUnconfirmed,
    ReadBeforeApplied,
    VoteNotSaved,
    LostDiskVotes,
    CutLogTrusted,
    CutLogLeads,
    OnlyNewVotersCounted,
    NoException,
}

impl Defect {
    pub const ALL: [Defect; 22] = [
        Defect::PromiseForgotten,
        Defect::VotesDespitePromise,
        Defect::CandidateDespitePromise,
        Defect::VotesWhileItLeads,
        Defect::LeadsAfterItsLease,
        Defect::LeaseFromReceipt,
        Defect::LeaseWithoutMargin,
        Defect::LeaseTooLong,
        Defect::LessThanAMajority,
        Defect::BarrierLeftOut,
        Defect::EarlierLeadersApplied,
        Defect::TimeBeginsAnew,
        Defect::TimeJumps,
        Defect::ReplyBeforeCommit,
        Defect::ReadUnconfirmed,
        Defect::ReadBeforeApplied,
        Defect::VoteNotSaved,
        Defect::LostDiskVotes,
        Defect::CutLogTrusted,
        Defect::CutLogLeads,
        Defect::OnlyNewVotersCounted,
        Defect::NoException,
    ];
}

/// How much of it is checked.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub entries: u8,
    pub elections: u8,
    pub faults: u8,
    pub time: u8,
    pub fast: Vec<Nodes>,
    pub members: Vec<Nodes>,
    pub steps: Vec<Step>,
}

/// What happens. The nodes are those of the [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Tick,
    Heartbeat,
    Acknowledge,
    StepDown,
    Barrier,
    Begin,
    Grant,
    Release,
    End,
    Change,
    Append,
    Commit,
    Ask,
    Answer,
    Stand,
    Vote,
    Elect,
    Suspend,
    Resume,
    Restart,
    LoseDisk,
    CutLog,
    Confirm,
}

impl Step {
    pub const ALL: [Step; 23] = [
        Step::Tick,
        Step::Heartbeat,
        Step::Acknowledge,
        Step::StepDown,
        Step::Barrier,
        Step::Begin,
        Step::Grant,
        Step::Release,
        Step::End,
        Step::Change,
        Step::Append,
        Step::Commit,
        Step::Ask,
        Step::Answer,
        Step::Stand,
        Step::Vote,
        Step::Elect,
        Step::Suspend,
        Step::Resume,
        Step::Restart,
        Step::LoseDisk,
        Step::CutLog,
        Step::Confirm,
    ];

    fn has_other(self) -> bool {
        use Step::{Acknowledge, Answer, Change, Confirm, Heartbeat, Vote};
        matches!(self, Acknowledge | Answer | Change | Confirm | Heartbeat | Vote)
    }
}

/// A step, of `node`; with `other`, or to the members `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub step: Step,
    pub node: usize,
    pub other: usize,
}

/// The time of a promise.
const PROMISE: u8 = 4;
/// The part of it that a leader does not use.
const MARGIN: u8 = 2;
/// The time of a lease of the lock.
const TTL: u8 = 2;
/// How much a fast clock runs in a tick. Others run 1.
const FAST: u8 = 2;

/// The specification.
#[derive(Debug, Default)]
pub struct Specification {
    pub bounds: Bounds,
    pub defect: Option<Defect>,
    pub steps_seen: [AtomicU64; Step::ALL.len()],
    pub cases_seen: [AtomicU64; 8],
    pub violation: OnceLock<(&'static str, State)>,
}

impl Node {
    fn runs(&self) -> bool {
        matches!(self.power, Power::On | Power::Resumed(_))
    }

    /// Follows the node with this vote, or votes for it.
    fn accept(&mut self, vote: u8, is_elected: bool) {
        if (vote, is_elected) > (self.vote, self.is_elected) {
            (self.vote, self.is_elected) = (vote, is_elected);
            if !matches!(self.phase, Phase::Asking(_)) {
                self.phase = Phase::Follower;
            }
            (self.unit, self.sent) = (None, [None; NODES]);
        }
    }

    fn step_down(&mut self) {
        (self.leads, self.barrier, self.clock) = (false, 0, 0);
    }

    fn start(&mut self) {
        let Node { vote, is_elected, log, needed, .. } = *self;
        *self = Node { vote, is_elected, log, needed, promise: PROMISE, ..Node::default() };
    }

    fn permits(&self, last: (u8, u8)) -> bool {
        self.needed.is_none_or(|needed| last >= needed)
    }
}

impl Specification {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn members(&self, log: &Log) -> (Nodes, Nodes) {
        let members = log.entries().iter().rev().find_map(|entry| match entry.effect {
            Effect::Members(before, after) => Some((before, after)),
            _ => None,
        });
        members.unwrap_or((self.bounds.members[0], self.bounds.members[0]))
    }

    fn is_majority(members: (Nodes, Nodes), nodes: Nodes) -> bool {
        let is_of = |set: Nodes| (nodes & set).count_ones() * 2 > set.count_ones();
        is_of(members.0) && is_of(members.1)
    }

    fn longest_lease(&self) -> u8 {
        match self.defect {
            Some(Defect::LeaseWithoutMargin) => PROMISE,
            Some(Defect::LeaseTooLong) => 2 * PROMISE,
            _ => PROMISE - MARGIN,
        }
    }

    /// For how long a majority follows the leader.
    fn lease(&self, n: usize, node: &Node) -> u8 {
        let mut members = self.members(&node.log);
        if self.has(Defect::OnlyNewVotersCounted) {
            members.0 = members.1;
        }
        let confirms = |lease: &u8| {
            let mut nodes: Nodes = 1 << n;
            nodes |=
                (0..NODES).filter(|m| node.contact[*m] >= *lease).fold(0, |set, m| set | 1 << m);
            if self.has(Defect::LessThanAMajority) {
                nodes |= nodes + 1;
            }
            Specification::is_majority(members, nodes)
        };
        (1..=self.longest_lease()).rev().find(confirms).unwrap_or(0)
    }

    fn serves(&self, n: usize, node: &Node) -> bool {
        node.leads && (self.lease(n, node) > 0 || self.has(Defect::LeadsAfterItsLease))
    }

    /// What a leader has executed, or what a node has applied.
    fn view(&self, node: &Node) -> View {
        let mut view = View::default();
        for (place, entry) in node.log.entries().iter().enumerate() {
            let is_own = node.leads && entry.barrier == node.barrier && entry.vote == node.vote;
            if place < usize::from(node.applied) || is_own {
                let mut entry = *entry;
                if self.has(Defect::EarlierLeadersApplied) && entry.barrier > 0 {
                    entry.barrier = view.barrier;
                }
                view.pass(place, &entry, TTL);
            }
        }
        if let Some(unit) = node.unit.filter(|unit| node.leads && unit.barrier == node.barrier) {
            view.pass(node.log.len(), &unit, TTL);
        }
        view
    }

    fn leader_step(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let longest = self.longest_lease();
        let [node, other] = [state.nodes[n], state.nodes[m]];
        let is_leader = node.phase == Phase::Leader;
        let has_space = node.log.len() < usize::from(self.bounds.entries);
        let lease = self.lease(n, &node);
        let changed = &mut state.nodes;
        match step {
            Step::Heartbeat if is_leader && n != m && other.runs() => {
                if other.vote > node.vote {
                    changed[n].accept(other.vote, false);
                    return true;
                }
                changed[m].accept(node.vote, true);
                changed[m].log = node.log;
                changed[m].applied = other.applied.max(node.applied);
                changed[m].promise = PROMISE;
                changed[n].sent[m] = Some(longest);
            }
            Step::Acknowledge if n != m && node.sent[m].is_some() => {
                let is_late = self.has(Defect::LeaseFromReceipt);
                let lease = node.sent[m].filter(|_| !is_late).unwrap_or(longest);
                changed[n].contact[m] = node.contact[m].max(lease);
                changed[n].sent[m] = None;
            }
            Step::StepDown if node.leads && (!is_leader || lease == 0) => {
                changed[n].step_down();
            }
            Step::Barrier
                if has_space
                    && is_leader
                    && node.barrier == 0
                    && !node.leads
                    && node.unit.is_none() =>
            {
                let stamp = self.view(&node).time;
                let effect = Effect::Barrier;
                changed[n].log.push(Entry { vote: node.vote, barrier: 0, stamp, effect });
                changed[n].barrier = changed[n].log.len() as u8;
            }
            Step::Begin if is_leader && !node.leads && lease > 0 => {
                let view = self.view(&node);
                if self.has(Defect::BarrierLeftOut) {
                    if node.barrier > 0 {
                        return false;
                    }
                    changed[n].barrier = view.barrier;
                } else if node.barrier == 0 || view.barrier != node.barrier {
                    return false;
                }
                changed[n].leads = true;
                changed[n].clock = match self.defect {
                    Some(Defect::TimeBeginsAnew) => 0,
                    Some(Defect::TimeJumps) => view.time + TTL,
                    _ => view.time,
                };
            }
            Step::Append if has_space && is_leader && node.unit.is_some() => {
                changed[n].log.push(node.unit.unwrap_or_default());
                changed[n].unit = None;
            }
            Step::Commit if is_leader => return self.commit(state, n),
            _ => return false,
        }
        true
    }

    fn commit(&self, state: &mut State, n: usize) -> bool {
        let node = state.nodes[n];
        let members = self.members(&node.log);
        let is_committed = |length: &usize| {
            let part = node.log.prefix(*length);
            let have = (0..NODES).filter(|m| state.nodes[*m].log.has(&part));
            node.log.entries()[length - 1].vote == node.vote
                && Specification::is_majority(members, have.fold(0, |set, m| set | 1 << m))
        };
        let applied = usize::from(node.applied);
        let Some(length) = (applied + 1..=node.log.len()).rev().find(is_committed) else {
            return false;
        };
        state.nodes[n].applied = length as u8;
        if node.leads {
            self.acknowledge(state, &node, &node.log.prefix(length));
        }
        true
    }

    /// Notifies clients of the entries of this leadership up to here.
    fn acknowledge(&self, state: &mut State, node: &Node, log: &Log) {
        if log.len() > state.known.len() {
            state.known = *log;
        }
        for entry in log.entries() {
            match entry.effect {
                Effect::Grant(grant) if entry.barrier == node.barrier => {
                    state.leases[usize::from(grant)].is_acknowledged = true;
                }
                Effect::End(grant) => {
                    let lease = &mut state.leases[usize::from(grant)];
                    state.is_early |= !lease.is_over && lease.age < TTL;
                    lease.is_over = true;
                }
                _ => {}
            }
        }
    }

    fn command(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let node = state.nodes[n];
        let view = self.view(&node);
        let length = node.log.len();
        if node.phase != Phase::Leader
            || !self.serves(n, &node)
            || node.unit.is_some()
            || length >= usize::from(self.bounds.entries)
        {
            return false;
        }
        let next = state.leases.iter().position(|lease| !lease.is_executed);
        let effect = match (step, view.holder, next) {
            (Step::Grant, None, Some(grant)) => {
                state.leases[grant] = Lease { is_executed: true, ..Lease::default() };
                Effect::Grant(grant as u8)
            }
            (Step::Release, Some((grant, _)), _)
                if state.leases[usize::from(grant)].is_acknowledged =>
            {
                state.leases[usize::from(grant)].is_over = true;
                Effect::Release(grant)
            }
            (Step::End, Some((grant, end)), _) if end <= node.clock => Effect::End(grant),
            (Step::Change, ..) => {
                let (before, after) = self.members(&node.log);
                let next = self
                    .bounds
                    .members
                    .get(m)
                    .copied()
                    .filter(|next| *next != after && next & 1 << n != 0);
                match next {
                    _ if before != after && m == 0 => Effect::Members(after, after),
                    Some(next) if before == after && m > 0 => Effect::Members(after, next),
                    _ => return false,
                }
            }
            _ => return false,
        };
        if step == Step::Change && view_members_pending(&node) {
            return false;
        }
        let unit = Entry { vote: node.vote, barrier: node.barrier, stamp: node.clock, effect };
        state.nodes[n].unit = Some(unit);
        if self.has(Defect::ReplyBeforeCommit) {
            let mut log = node.log;
            log.push(unit);
            self.acknowledge(state, &node, &log);
        }
        true
    }

    fn election_step(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let [node, other] = [state.nodes[n], state.nodes[m]];
        let members = self.members(&node.log);
        let is_member = (members.0 | members.1) & 1 << n != 0;
        let has_promised = |node: &Node| node.promise > 0 && !self.has(Defect::VotesDespitePromise);
        let leads = self.serves(m, &other) && !self.has(Defect::VotesWhileItLeads);
        let is_as_far = other.log.last() <= node.log.last() && other.permits(node.log.last());
        let changed = &mut state.nodes;
        match (step, node.phase) {
            (Step::Ask, Phase::Follower) => {
                changed[n].phase = Phase::Asking(1 << n);
                is_member
                    && node.promise == 0
                    && node.permits(node.log.last())
                    && node.vote / 4 < self.bounds.elections
            }
            (Step::Answer, Phase::Asking(nodes)) => {
                changed[n].phase = Phase::Asking(nodes | 1 << m);
                nodes & 1 << m == 0 && other.runs() && !leads && !has_promised(&other) && is_as_far
            }
            (Step::Stand, Phase::Asking(nodes)) => {
                changed[n].accept((node.vote / 4 + 1) * 4 + n as u8, false);
                changed[n].phase = Phase::Candidate(1 << n);
                Specification::is_majority(members, nodes)
                    && !node.leads
                    && node.vote / 4 < self.bounds.elections
                    && (node.promise == 0 || self.has(Defect::CandidateDespitePromise))
            }
            (Step::Vote, Phase::Candidate(nodes)) => {
                changed[m].accept(node.vote, false);
                changed[n].phase = Phase::Candidate(nodes | 1 << m);
                nodes & 1 << m == 0
                    && other.runs()
                    && !leads
                    && other.vote <= node.vote
                    && is_as_far
                    && !(other.is_elected && has_promised(&other))
            }
            (Step::Elect, Phase::Candidate(nodes)) => {
                (changed[n].phase, changed[n].is_elected) = (Phase::Leader, true);
                changed[n].contact = [0; NODES];
                Specification::is_majority(members, nodes)
            }
            _ => false,
        }
    }

    fn fault(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let changed = &mut state.nodes[n];
        match step {
            Step::Resume => {
                changed.power = Power::Resumed(PROMISE);
                return node.power == Power::Suspended;
            }
            Step::Confirm => {
                changed.needed = Some(other.log.last());
                if node.needed.is_some_and(|needed| node.log.last() >= needed) {
                    changed.needed = None;
                    return n == m;
                }
                return n != m
                    && node.needed == Some((u8::MAX, 0))
                    && self.serves(m, &other)
                    && other.runs();
            }
            _ => {}
        }
        state.faults += 1;
        match step {
            Step::Suspend => changed.power = Power::Suspended,
            Step::LoseDisk if !self.has(Defect::LostDiskVotes) => {
                *changed = Node { power: Power::Gone, ..Node::default() };
            }
            Step::LoseDisk => *changed = Node::default(),
            Step::Restart | Step::CutLog => {
                changed.start();
                if step == Step::CutLog && !node.log.is_empty() {
                    changed.log = node.log.prefix(node.log.len() - 1);
                    let trusts = self.has(Defect::CutLogTrusted);
                    changed.needed = Some((u8::MAX, 0)).filter(|_| !trusts);
                    changed.is_elected &= self.has(Defect::CutLogLeads);
                }
                if self.has(Defect::VoteNotSaved) {
                    (changed.vote, changed.is_elected) = (changed.log.last().0, true);
                }
                if self.has(Defect::PromiseForgotten) {
                    changed.promise = 0;
                }
                if changed.is_elected && usize::from(changed.vote % 4) == n {
                    changed.phase = Phase::Leader;
                }
            }
            _ => return false,
        }
        state.faults <= self.bounds.faults && node.runs()
    }

    fn tick(&self, state: &mut State) {
        for (n, node) in state.nodes.iter_mut().enumerate().filter(|(_, node)| node.runs()) {
            let passed = if state.fast & 1 << n != 0 { FAST } else { 1 };
            for left in node.contact.iter_mut().chain([&mut node.promise]) {
                *left = left.saturating_sub(passed);
            }
            let is_late = self.has(Defect::LeaseFromReceipt);
            for sent in &mut node.sent {
                *sent = sent
                    .map(|left| left.saturating_sub(passed))
                    .filter(|left| *left > 0 || is_late);
            }
            if node.leads {
                node.clock = (node.clock + passed).min(self.bounds.time);
            }
            if let Power::Resumed(left) = node.power {
                node.power = match left.saturating_sub(passed) {
                    0 => Power::On,
                    left => Power::Resumed(left),
                };
            }
        }
        for lease in state.leases.iter_mut().filter(|lease| lease.is_executed) {
            lease.age = (lease.age + FAST).min(TTL);
        }
    }
}

fn view_members_pending(node: &Node) -> bool {
    let is_members = |entry: &Entry| matches!(entry.effect, Effect::Members(..));
    node.log
        .entries()
        .iter()
        .rposition(is_members)
        .is_some_and(|place| place >= usize::from(node.applied))
}

impl Specification {
    /// Whether a client may get an old state of this leader, in the documented case.
    fn is_excepted(&self, node: &Node) -> bool {
        let was_suspended = matches!(node.power, Power::Suspended | Power::Resumed(_));
        was_suspended && !self.has(Defect::NoException)
    }

    fn serving<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Node> {
        let serves = |(n, node): &(usize, &Node)| self.serves(*n, node) && !self.is_excepted(node);
        state.nodes.iter().enumerate().filter(serves).map(|(_, node)| node)
    }

    fn invariants() -> [(&'static str, fn(&Specification, &State) -> bool); 6] {
        [
            ("one node leads", |it, state| it.serving(state).count() <= 1),
            ("no lock is granted twice", |_, state| {
                let holds = |lease: &&Lease| lease.is_acknowledged && !lease.is_over;
                state.leases.iter().filter(holds).count() <= 1
            }),
            ("no lease ends early", |_, state| !state.is_early),
            ("log time never goes back", |it, state| {
                let known = state.known.entries().iter().map(|entry| entry.stamp);
                let time = known.max().unwrap_or(0);
                it.serving(state).all(|node| node.clock >= time)
            }),
            ("leader reads all that is acknowledged", |it, state| {
                it.serving(state).all(|node| it.reads(node, &state.known))
            }),
            ("follower reads all that is acknowledged", |it, state| it.followers_read(state)),
        ]
    }

    fn reads(&self, node: &Node, known: &Log) -> bool {
        let has = |(place, entry): (usize, &Entry)| {
            place < usize::from(node.applied)
                || entry.barrier == node.barrier
                || place + 1 == usize::from(node.barrier)
        };
        node.log.has(known) && known.entries().iter().enumerate().all(has)
    }

    fn followers_read(&self, state: &State) -> bool {
        let answers = |(n, node): &(usize, &Node)| {
            let leads = self.serves(*n, node)
                || self.has(Defect::ReadUnconfirmed) && node.phase == Phase::Leader;
            leads && node.runs() && !self.is_excepted(node)
        };
        state.nodes.iter().enumerate().filter(answers).all(|(_, leader)| {
            state
                .nodes
                .iter()
                .filter(|node| {
                    node.runs()
                        && node.is_elected
                        && node.vote == leader.vote
                        && !node.leads
                        && (node.applied >= leader.applied || self.has(Defect::ReadBeforeApplied))
                })
                .all(|node| node.log.prefix(node.applied.into()).has(&state.known))
        })
    }
}

impl Model for Specification {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = |fast: &Nodes| {
            let mut state = State { fast: *fast, ..State::default() };
            for node in &mut state.nodes {
                (node.vote, node.is_elected) = (4, true);
            }
            state.nodes[0].phase = Phase::Leader;
            state
        };
        self.bounds.fast.iter().map(state).collect()
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.push(Action { step: Step::Tick, node: 0, other: 0 });
        for step in self.bounds.steps.iter().copied() {
            for node in 0..NODES {
                let others = if step.has_other() { NODES } else { 1 };
                actions.extend((0..others).map(|other| Action { step, node, other }));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let Action { step, node, other } = action;
        let mut next = *state;
        let runs = state.nodes[node].runs();
        let happens = match step {
            Step::Tick => {
                self.tick(&mut next);
                true
            }
            Step::Grant | Step::Release | Step::End | Step::Change => {
                runs && self.command(&mut next, step, node, other)
            }
            Step::Ask | Step::Answer | Step::Stand | Step::Vote | Step::Elect => {
                runs && self.election_step(&mut next, step, node, other)
            }
            Step::Suspend
            | Step::Resume
            | Step::Restart
            | Step::LoseDisk
            | Step::CutLog
            | Step::Confirm => self.fault(&mut next, step, node, other),
            _ => runs && self.leader_step(&mut next, step, node, other),
        };
        let happens = happens && next != *state;
        if happens {
            self.steps_seen[step as usize].fetch_add(1, Ordering::Relaxed);
        }
        happens.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Specification>> {
        vec![
            Property::always("every invariant", |it, state: &State| {
                let broken =
                    Specification::invariants().into_iter().find(|(_, holds)| !holds(it, state));
                match broken {
                    None => true,
                    Some((name, _)) => it.violation.get_or_init(|| (name, *state)).1 != *state,
                }
            }),
            Property::sometimes("the end", |_, _| false),
        ]
    }
}
