//! What may happen, and what is true in every state.
//!
//! Raft is assumed: a node gets the log of its leader, each vote is of one node, and what a
//! majority has in the vote of its leader is committed.

use crate::bounds::{Bounds, Step};
use crate::defects::Defect;
use crate::log::Log;
use crate::state::{
    Effect, Entry, FAST, Node, Nodes, Phase, Power, State, TERM, TTL, Time, View, Vote,
};

/// What a log must have, if that is not known.
const UNKNOWN: (Vote, u8) = (Vote::MAX, 0);

/// The rules, within bounds. One may be broken.
#[derive(Debug)]
pub(crate) struct Rules<const N: usize, const E: usize> {
    pub(crate) bounds: Bounds,
    pub(crate) defect: Option<Defect>,
}

fn is_majority((before, after): (Nodes, Nodes), nodes: Nodes) -> bool {
    let is_of = |set: Nodes| (nodes & set).count_ones() * 2 > set.count_ones();
    is_of(before) && is_of(after)
}

fn nodes<const N: usize>(is_chosen: impl Fn(usize) -> bool) -> Nodes {
    (0..N).filter(|n| is_chosen(*n)).fold(0, |nodes, n| nodes | 1 << n)
}

impl<const N: usize, const E: usize> Rules<N, E> {
    #[cfg(feature = "check")]
    pub(crate) fn start(&self, fast: Nodes) -> State<N, E> {
        let mut state = State { fast, ..State::default() };
        state.nodes.iter_mut().for_each(|node| node.accept(TERM, true));
        state.nodes[0].phase = Phase::Leader;
        state
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(crate) fn members(&self, log: &Log<E>) -> (Nodes, Nodes) {
        let of = |entry: &Entry| match entry.effect {
            Effect::Members(before, after) => Some((before, after)),
            _ => None,
        };
        let first = self.bounds.members[0];
        log.entries().iter().rev().find_map(of).unwrap_or((first, first))
    }

    fn lease_max(&self) -> Time {
        match self.defect {
            Some(Defect::LeaseWithoutMargin) => self.bounds.promise,
            Some(Defect::LeaseTooLong) => self.bounds.promise * 2,
            _ => self.bounds.promise - self.bounds.margin,
        }
    }

    /// For how long a majority confirms the leader.
    pub(crate) fn lease(&self, n: usize, node: &Node<N, E>) -> Time {
        let mut members = self.members(&node.log);
        if self.has(Defect::OnlyNewVotersCounted) {
            members.0 = members.1;
        }
        let confirms = |lease: &Time| {
            let mut confirming = nodes::<N>(|m| m == n || node.contact[m] >= *lease);
            if self.has(Defect::LessThanAMajority) {
                confirming |= confirming + 1;
            }
            is_majority(members, confirming)
        };
        // It ends when one of them confirms the leader no more.
        let ends = node.contact.iter().copied().chain([self.lease_max()]);
        ends.filter(|lease| *lease > 0 && confirms(lease)).max().unwrap_or(0)
    }

    /// Whether it answers clients.
    pub(crate) fn serves(&self, n: usize, node: &Node<N, E>) -> bool {
        let has_lease = || self.lease(n, node) > 0 || self.has(Defect::LeadsAfterItsLease);
        node.leads && node.runs() && has_lease()
    }

    /// Whether the state of the node has this entry of its log.
    fn shows(&self, node: &Node<N, E>, place: usize, entry: &Entry) -> bool {
        let is_own = entry.vote == node.vote || !self.has(Defect::BarrierLeftOut);
        place < node.applied.into()
            || node.leads && is_own && [entry.barrier, place as u8 + 1].contains(&node.barrier)
    }

    fn view(&self, node: &Node<N, E>) -> View {
        let mut view = View::default();
        for (place, entry) in node.log.entries().iter().enumerate() {
            if self.shows(node, place, entry) {
                view.pass(place, entry);
            }
        }
        view
    }
}

// --- what may happen ---

impl<const N: usize, const E: usize> Rules<N, E> {
    /// The state after a step of node `n`, with node `m`; `None` if it cannot happen.
    pub(crate) fn next(
        &self,
        state: &State<N, E>,
        step: Step,
        n: usize,
        m: usize,
    ) -> Option<State<N, E>> {
        let (mut next, node) = (*state, &state.nodes[n]);
        let happens = match (step, node.power) {
            (Step::Tick, _) => self.tick(&mut next),
            (Step::Resume, Power::Suspended) => {
                next.nodes[n].power = Power::On(self.bounds.promise);
                true
            }
            (Step::Resume, _) | (_, Power::Suspended | Power::Gone) => false,
            (Step::Learn, _) => {
                next.nodes[n].accept(state.nodes[m].vote, false);
                state.nodes[m].runs()
            }
            (Step::Confirm, _) => self.confirm(&mut next, n, m),
            _ if step.is_fault() => self.fault(&mut next, step, n),
            _ if step.is_command() => self.command(&mut next, step, n, m),
            _ => match node.phase {
                Phase::Leader => self.lead(&mut next, step, n, m),
                Phase::Candidate(votes) if step == Step::Vote => self.elect(&mut next, n, m, votes),
                Phase::Candidate(votes) if step == Step::Win => self.win(&mut next, n, votes),
                Phase::Asking(nodes) => self.ask(&mut next, step, n, m, nodes),
                Phase::Follower | Phase::Candidate(_) => self.ask(&mut next, step, n, m, 0),
            },
        };
        (happens && next != *state).then_some(next)
    }

    fn tick(&self, state: &mut State<N, E>) -> bool {
        let fast = state.fast;
        self.pass(state, &std::array::from_fn(|n| if fast & 1 << n != 0 { FAST } else { 1 }));
        for lease in state.leases.iter_mut().filter(|lease| lease.is_executed) {
            lease.age = (lease.age + FAST).min(TTL);
        }
        true
    }

    /// The clocks of the nodes run on.
    pub(crate) fn pass(&self, state: &mut State<N, E>, passed: &[Time; N]) {
        let nodes = state.nodes.iter_mut().zip(passed);
        for (node, passed) in nodes.filter(|(node, _)| node.runs()) {
            let pass = |left: &mut Time| *left = left.saturating_sub(*passed);
            pass(&mut node.promise);
            node.contact.iter_mut().chain(node.sent.iter_mut().flatten()).for_each(pass);
            if let Power::On(left) = &mut node.power {
                pass(left);
            }
            if node.leads {
                node.clock = (node.clock + passed).min(self.bounds.time.max(node.clock));
            }
        }
    }

    fn lead(&self, state: &mut State<N, E>, step: Step, n: usize, m: usize) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let (view, lease) = (self.view(&node), self.lease(n, &node));
        let has_space = node.log.len() < self.bounds.entries;
        let leader = &mut state.nodes[n];
        match step {
            _ if step.is_message() && other.runs() && other.vote > node.vote => {
                leader.accept(other.vote, false);
            }
            _ if step.is_message() && other.runs() && n != m => {
                // Its reply arrives at once, or later.
                match step {
                    Step::Heartbeat => leader.contact[m] = self.lease_max(),
                    _ => leader.sent[m] = Some(self.lease_max()),
                }
                self.receive(&mut state.nodes[m], step, node.vote, &node.log, node.applied);
            }
            Step::Reply if node.sent[m].is_some() => {
                let is_late = self.has(Defect::LeaseFromReceipt);
                let lease = node.sent[m].filter(|_| !is_late).unwrap_or(self.lease_max());
                leader.contact[m] = node.contact[m].max(lease);
                leader.sent[m] = None;
            }
            Step::StepDown if node.leads => {
                (leader.leads, leader.barrier, leader.clock) = (false, 0, 0);
            }
            Step::Blank if has_space && node.log.last().0 != node.vote => {
                let effect = Effect::Blank;
                leader.log.push(Entry { vote: node.vote, effect, ..Entry::default() });
            }
            Step::Barrier if has_space && node.barrier == 0 => {
                leader.log.push(Entry { vote: node.vote, stamp: view.time, ..Entry::default() });
                leader.barrier = leader.log.len();
            }
            Step::Begin if !node.leads && lease > 0 => {
                let is_left_out = self.has(Defect::BarrierLeftOut) && node.barrier == 0;
                (leader.leads, leader.barrier) = (true, view.barrier);
                leader.clock = match self.defect {
                    Some(Defect::TimeBeginsAnew) => 0,
                    Some(Defect::TimeJumps) => view.time + TTL,
                    _ => view.time,
                };
                return is_left_out || node.barrier > 0 && node.barrier == view.barrier;
            }
            Step::Commit => return self.commit(state, n),
            _ => return false,
        }
        true
    }

    /// A message arrives that was sent with this vote and log.
    pub(crate) fn receive(
        &self,
        node: &mut Node<N, E>,
        step: Step,
        vote: Vote,
        log: &Log<E>,
        applied: u8,
    ) {
        node.accept(vote, true);
        node.promise = self.bounds.promise;
        let (common, length) = (node.log.common(log), node.log.len());
        match step {
            Step::Contact => {}
            Step::Part if common < length => node.log = node.log.prefix(length - 1),
            Step::Part => node.log = log.prefix(common + 1),
            _ => node.log = *log,
        }
        node.applied = node.applied.max(applied.min(node.log.common(log)));
    }

    fn commit(&self, state: &mut State<N, E>, n: usize) -> bool {
        let node = state.nodes[n];
        let is_committed = |length: &u8| {
            let log = node.log.prefix(*length);
            let have = nodes::<N>(|m| state.nodes[m].log.has(&log));
            log.last().0 == node.vote && is_majority(self.members(&node.log), have)
        };
        let committed = (node.applied + 1..=node.log.len()).rev().find(is_committed);
        state.nodes[n].applied = committed.unwrap_or(node.applied);
        if node.leads {
            self.acknowledge(state, n);
        }
        committed.is_some()
    }

    /// Notifies clients of what a leader has replicated.
    fn acknowledge(&self, state: &mut State<N, E>, n: usize) {
        let node = state.nodes[n];
        let is_early = self.has(Defect::ReplyBeforeCommit);
        let log = if is_early { node.log } else { node.log.prefix(node.applied) };
        use Effect::{Barrier, Blank, Members};
        let is_shown = |entry: &Entry| !matches!(entry.effect, Barrier | Blank | Members(..));
        let shown = log.entries().iter().rposition(is_shown).map_or(0, |place| place as u8 + 1);
        if shown > state.known.len() {
            state.known = log.prefix(shown);
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

    fn command(&self, state: &mut State<N, E>, step: Step, n: usize, m: usize) -> bool {
        let node = state.nodes[n];
        let has_space = node.log.len() < self.bounds.entries;
        // Raft changes the members, also while the leader answers no clients.
        let may_run = match step {
            Step::Change => node.phase == Phase::Leader,
            _ => self.serves(n, &node),
        };
        if !may_run || !has_space {
            return false;
        }
        let next = state.leases.iter().position(|lease| !lease.is_executed);
        let effect = match (step, self.view(&node).holder, next) {
            (Step::Grant, None, Some(grant)) => {
                state.leases[grant].is_executed = true;
                Effect::Grant(grant as u8)
            }
            (Step::Release, Some((grant, _)), _) => {
                let lease = &mut state.leases[usize::from(grant)];
                lease.is_over = true;
                if !lease.is_acknowledged {
                    return false;
                }
                Effect::Release(grant)
            }
            (Step::End, Some((grant, end)), _) if end <= node.clock => Effect::End(grant),
            (Step::Change, ..) => {
                let (before, after) = self.members(&node.log);
                let is_committed = self.members(&node.log.prefix(node.applied)) == (before, after);
                let next = self.bounds.members.get(m).filter(|next| **next & 1 << n != 0);
                match next.filter(|next| is_committed && **next != before) {
                    Some(next) if before == after || *next == after => {
                        Effect::Members(after, *next)
                    }
                    _ => return false,
                }
            }
            _ => return false,
        };
        let (vote, barrier, stamp) = (node.vote, node.barrier, node.clock);
        state.nodes[n].log.push(Entry { vote, barrier, stamp, effect });
        if self.has(Defect::ReplyBeforeCommit) {
            self.acknowledge(state, n);
        }
        true
    }

    fn ask(&self, state: &mut State<N, E>, step: Step, n: usize, m: usize, nodes: Nodes) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let members = self.members(&node.log);
        let may_run = (members.0 | members.1) & 1 << n != 0
            && node.vote / TERM < self.bounds.terms
            && node.would_follow(&node);
        let candidate = &mut state.nodes[n];
        match step {
            Step::StepDown => {
                (candidate.leads, candidate.barrier, candidate.clock) = (false, 0, 0);
                node.leads
            }
            Step::Ask => {
                candidate.phase = Phase::Asking(nodes | 1 << n | 1 << m);
                let begins = nodes > 0 || node.promise == 0;
                let has_promised = other.promise > 0 && !self.has(Defect::VotesDespitePromise);
                let votes = other.runs() && !self.serves(m, &other) && !has_promised;
                may_run && begins && votes && other.would_follow(&node)
            }
            Step::Stand => {
                candidate.accept((node.vote / TERM + 1) * TERM + n as Vote, false);
                candidate.phase = Phase::Candidate(1 << n);
                let asks = self.bounds.steps.contains(&Step::Ask);
                let is_free = node.promise == 0 || self.has(Defect::CandidateDespitePromise);
                may_run && is_free && !node.leads && (!asks || is_majority(members, nodes))
            }
            _ => false,
        }
    }

    fn elect(&self, state: &mut State<N, E>, n: usize, m: usize, votes: Nodes) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let votes = votes | 1 << m;
        let is_in_doubt = other.needed.is_some() && !other.is_elected;
        let forgets = is_in_doubt && self.has(Defect::PromiseForgottenInDoubt);
        let has_promised = other.promise > 0 && !forgets;
        let leads = self.serves(m, &other) && !self.has(Defect::VotesWhileItLeads);
        let may_vote = !leads && (!has_promised || self.has(Defect::VotesDespitePromise));
        state.nodes[m].accept(node.vote, false);
        let candidate = &mut state.nodes[n];
        candidate.phase = Phase::Candidate(votes);
        let votes = other.runs() && other.vote <= node.vote && other.would_follow(&node);
        votes && may_vote
    }

    /// A candidate knows that it has the votes of a majority.
    fn win(&self, state: &mut State<N, E>, n: usize, votes: Nodes) -> bool {
        let candidate = &mut state.nodes[n];
        (candidate.phase, candidate.is_elected) = (Phase::Leader, true);
        candidate.contact = [0; N];
        is_majority(self.members(&candidate.log), votes)
    }

    /// A node in doubt asks a leader, or all others, how far its log must be.
    fn confirm(&self, state: &mut State<N, E>, n: usize, m: usize) -> bool {
        let other = &state.nodes[m];
        let members = self.members(&state.nodes[n].log);
        let voters = members.0 | members.1;
        let all = state.nodes.iter().map(|node| node.log.last()).max();
        let answers = match n == m {
            true => (0..N).all(|m| voters & 1 << m == 0 || state.nodes[m].runs()),
            false => self.serves(m, other),
        };
        let needed = if n == m { all } else { Some(other.log.last()) };
        std::mem::replace(&mut state.nodes[n].needed, needed) == Some(UNKNOWN) && answers
    }

    fn fault(&self, state: &mut State<N, E>, step: Step, n: usize) -> bool {
        let old = state.nodes[n];
        state.faults += 1;
        let Node { mut vote, mut is_elected, log, needed, .. } = old;
        if self.has(Defect::VoteNotSaved) {
            (vote, is_elected) = (log.last().0, log.len() > 0);
        }
        let promise = self.bounds.promise * Time::from(!self.has(Defect::PromiseForgotten));
        let needed = needed.filter(|needed| *needed > log.last()).map(|_| UNKNOWN);
        // A node that has last voted for itself has promised nothing since.
        let is_own = vote > 0 && usize::from(vote % TERM) == n;
        let promise = if is_own { 0 } else { promise };
        let mut node = Node { vote, is_elected, log, needed, promise, ..Node::default() };
        match step {
            Step::Suspend => node = Node { power: Power::Suspended, ..old },
            Step::LoseDisk if self.has(Defect::LostDiskVotes) => node = Node::default(),
            Step::LoseDisk => node = Node { power: Power::Gone, ..Node::default() },
            // What two logs in doubt lack may be lost, as if a majority had failed.
            Step::CutLog if log.len() > 0 && !state.others_doubt(n) => {
                node.log = log.prefix(log.len() - 1);
                node.needed = Some(UNKNOWN).filter(|_| !self.has(Defect::CutLogTrusted));
                node.is_elected &= self.has(Defect::CutLogLeads);
            }
            // It may have sent entries that it lacks now: in its term it would make others in their
            // places.
            Step::Restart => node.is_elected &= usize::from(vote % TERM) != n,
            _ => return false,
        }
        if step != Step::Suspend && node.is_elected && usize::from(node.vote % TERM) == n {
            node.phase = Phase::Leader;
        }
        state.nodes[n] = node;
        state.faults <= self.bounds.faults
    }
}

// --- what is true ---

/// An invariant, and its name.
type Invariant<const N: usize, const E: usize> =
    (&'static str, fn(&Rules<N, E>, &State<N, E>) -> bool);

/// The invariants.
pub(crate) fn invariants<const N: usize, const E: usize>() -> [Invariant<N, E>; 6] {
    [
        ("one node leads", |rules, state| rules.leaders(state).count() <= 1),
        ("no lock is granted twice", |_, state| state.holders() <= 1),
        ("no lease ends early", |_, state| !state.is_early),
        ("log time never goes back", |rules, state| {
            let known = state.known.entries().iter().map(|entry| entry.stamp).max().unwrap_or(0);
            rules.leaders(state).all(|(_, node)| node.clock >= known)
        }),
        ("leaders read what is acknowledged", |rules, state| {
            rules.leaders(state).all(|(_, node)| {
                let mut known = state.known.entries().iter().enumerate();
                node.log.has(&state.known)
                    && known.all(|(place, entry)| rules.shows(node, place, entry))
            })
        }),
        ("followers read what is acknowledged", |rules, state| {
            rules.readers(state).all(|node| node.log.prefix(node.applied).has(&state.known))
        }),
    ]
}

impl<const N: usize, const E: usize> State<N, E> {
    /// Whether a node other than `n` lacks what it may have acknowledged.
    fn others_doubt(&self, n: usize) -> bool {
        let lacks = |node: &Node<N, E>| node.needed.is_some_and(|needed| needed > node.log.last());
        self.nodes.iter().enumerate().any(|(other, node)| other != n && lacks(node))
    }

    /// Number of clients that hold the lock, as far as they know.
    pub(crate) fn holders(&self) -> usize {
        self.leases.iter().filter(|lease| lease.is_acknowledged && !lease.is_over).count()
    }
}

impl<const N: usize, const E: usize> Rules<N, E> {
    /// Whether a client may get an old state of this node: the documented case.
    pub(crate) fn is_excepted(&self, node: &Node<N, E>) -> bool {
        node.power != Power::On(0) && !self.has(Defect::NoException)
    }

    /// The nodes that answer clients, apart from the documented case.
    pub(crate) fn leaders<'a>(
        &'a self,
        state: &'a State<N, E>,
    ) -> impl Iterator<Item = (usize, &'a Node<N, E>)> {
        let nodes = state.nodes.iter().enumerate();
        nodes.filter(|(n, node)| self.serves(*n, node) && !self.is_excepted(node))
    }

    /// The followers that read, since they have what their leader has.
    pub(crate) fn readers<'a>(
        &'a self,
        state: &'a State<N, E>,
    ) -> impl Iterator<Item = &'a Node<N, E>> {
        let answers = move |n: usize, node: &Node<N, E>| {
            let is_elected = node.phase == Phase::Leader && node.runs();
            let leads = self.serves(n, node) || is_elected && self.has(Defect::ReadUnconfirmed);
            leads && !self.is_excepted(node)
        };
        let reads = move |node: &&Node<N, E>| {
            state.nodes.iter().enumerate().any(|(n, leader)| {
                let has_all = node.applied >= leader.applied || self.has(Defect::ReadBeforeApplied);
                answers(n, leader) && node.vote == leader.vote && has_all
            })
        };
        let follows =
            |node: &&Node<N, E>| node.runs() && node.is_elected && node.phase != Phase::Leader;
        state.nodes.iter().filter(follows).filter(reads)
    }
}
