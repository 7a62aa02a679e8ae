//! What may happen, and what is true in every state.
//!
//! Raft is assumed: a node gets the log of its leader, each vote is of one node, and what a
//! majority has in the vote of its leader is committed.

use crate::bounds::{Bounds, Step};
use crate::defects::Defect;
use crate::log::Log;
use crate::state::{Effect, Entry, FAST, NODES, Node, Nodes, Phase, Power, State, TTL, View};

/// What a log must have, if that is not known.
const UNKNOWN: (u8, u8) = (u8::MAX, 0);

/// The rules, within bounds. One may be broken.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) bounds: Bounds,
    pub(crate) defect: Option<Defect>,
}

fn is_majority((before, after): (Nodes, Nodes), nodes: Nodes) -> bool {
    let is_of = |set: Nodes| (nodes & set).count_ones() * 2 > set.count_ones();
    is_of(before) && is_of(after)
}

fn nodes(is_chosen: impl Fn(usize) -> bool) -> Nodes {
    (0..NODES).filter(|n| is_chosen(*n)).fold(0, |nodes, n| nodes | 1 << n)
}

impl Rules {
    pub(crate) fn start(&self, fast: Nodes) -> State {
        let mut state = State { fast, ..State::default() };
        state.nodes.iter_mut().for_each(|node| node.accept(4, true));
        state.nodes[0].phase = Phase::Leader;
        state
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn members(&self, log: &Log) -> (Nodes, Nodes) {
        let of = |entry: &Entry| match entry.effect {
            Effect::Members(before, after) => Some((before, after)),
            _ => None,
        };
        let first = self.bounds.members[0];
        log.entries().iter().rev().find_map(of).unwrap_or((first, first))
    }

    fn lease_max(&self) -> u8 {
        match self.defect {
            Some(Defect::LeaseWithoutMargin) => self.bounds.promise,
            Some(Defect::LeaseTooLong) => self.bounds.promise * 2,
            _ => self.bounds.promise - self.bounds.margin,
        }
    }

    /// For how long a majority confirms the leader.
    fn lease(&self, n: usize, node: &Node) -> u8 {
        let mut members = self.members(&node.log);
        if self.has(Defect::OnlyNewVotersCounted) {
            members.0 = members.1;
        }
        let confirms = |lease: &u8| {
            let mut confirming = nodes(|m| m == n || node.contact[m] >= *lease);
            if self.has(Defect::LessThanAMajority) {
                confirming |= confirming + 1;
            }
            is_majority(members, confirming)
        };
        (1..=self.lease_max()).rev().find(confirms).unwrap_or(0)
    }

    /// Whether it answers clients.
    pub(crate) fn serves(&self, n: usize, node: &Node) -> bool {
        let has_lease = self.lease(n, node) > 0 || self.has(Defect::LeadsAfterItsLease);
        node.leads && node.runs() && has_lease
    }

    /// Whether the state of the node has this entry of its log.
    fn shows(&self, node: &Node, place: usize, entry: &Entry) -> bool {
        let is_own = entry.vote == node.vote || !self.has(Defect::BarrierLeftOut);
        place < node.applied.into()
            || node.leads && is_own && [entry.barrier, place as u8 + 1].contains(&node.barrier)
    }

    fn view(&self, node: &Node) -> View {
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

impl Rules {
    /// The state after a step of node `n`, with node `m`; `None` if it cannot happen.
    pub(crate) fn next(&self, state: &State, step: Step, n: usize, m: usize) -> Option<State> {
        let (mut next, node) = (*state, &state.nodes[n]);
        let happens = match (step, node.power) {
            (Step::Tick, _) => self.tick(&mut next),
            (Step::Resume, Power::Suspended) => {
                next.nodes[n].power = Power::On(self.bounds.promise);
                true
            }
            (Step::Resume, _) | (_, Power::Suspended | Power::Gone) => false,
            (Step::Confirm, _) => self.confirm(&mut next, n, m),
            _ if step.is_fault() => self.fault(&mut next, step, n),
            _ if step.is_command() => self.command(&mut next, step, n, m),
            _ => match node.phase {
                Phase::Leader => self.lead(&mut next, step, n, m),
                Phase::Candidate(votes) if step == Step::Vote => self.elect(&mut next, n, m, votes),
                Phase::Asking(nodes) => self.ask(&mut next, step, n, m, nodes),
                Phase::Follower | Phase::Candidate(_) => self.ask(&mut next, step, n, m, 0),
            },
        };
        (happens && next != *state).then_some(next)
    }

    fn tick(&self, state: &mut State) -> bool {
        for (n, node) in state.nodes.iter_mut().enumerate().filter(|(_, node)| node.runs()) {
            let passed = if state.fast & 1 << n != 0 { FAST } else { 1 };
            let pass = |left: &mut u8| *left = left.saturating_sub(passed);
            pass(&mut node.promise);
            node.contact.iter_mut().chain(node.sent.iter_mut().flatten()).for_each(pass);
            if let Power::On(left) = &mut node.power {
                pass(left);
            }
            if node.leads {
                node.clock = (node.clock + passed).min(self.bounds.time.max(node.clock));
            }
        }
        for lease in state.leases.iter_mut().filter(|lease| lease.is_executed) {
            lease.age = (lease.age + FAST).min(TTL);
        }
        true
    }

    fn lead(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let (view, lease) = (self.view(&node), self.lease(n, &node));
        let has_space = node.log.len() < self.bounds.entries;
        let leader = &mut state.nodes[n];
        match step {
            // Its reply arrives at once, or later.
            Step::Heartbeat | Step::Message if other.runs() && other.vote > node.vote => {
                leader.accept(other.vote, false);
            }
            Step::Heartbeat | Step::Message if other.runs() && n != m => {
                match step {
                    Step::Heartbeat => leader.contact[m] = self.lease_max(),
                    _ => leader.sent[m] = Some(self.lease_max()),
                }
                let follower = &mut state.nodes[m];
                follower.accept(node.vote, true);
                (follower.log, follower.promise) = (node.log, self.bounds.promise);
                follower.applied = other.applied.max(node.applied);
            }
            Step::Reply if node.sent[m].is_some() => {
                let is_late = self.has(Defect::LeaseFromReceipt);
                let lease = node.sent[m].filter(|_| !is_late).unwrap_or(self.lease_max());
                leader.contact[m] = node.contact[m].max(lease);
                leader.sent[m] = None;
            }
            Step::StepDown if node.leads && lease == 0 => {
                (leader.leads, leader.barrier, leader.clock) = (false, 0, 0);
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

    fn commit(&self, state: &mut State, n: usize) -> bool {
        let node = state.nodes[n];
        let is_committed = |length: &u8| {
            let log = node.log.prefix(*length);
            let have = nodes(|m| state.nodes[m].log.has(&log));
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
    fn acknowledge(&self, state: &mut State, n: usize) {
        let node = state.nodes[n];
        let is_early = self.has(Defect::ReplyBeforeCommit);
        let log = if is_early { node.log } else { node.log.prefix(node.applied) };
        let is_shown =
            |entry: &Entry| !matches!(entry.effect, Effect::Barrier | Effect::Members(..));
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

    fn command(&self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let node = state.nodes[n];
        let has_space = node.log.len() < self.bounds.entries;
        if !self.serves(n, &node) || !has_space {
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

    fn ask(&self, state: &mut State, step: Step, n: usize, m: usize, nodes: Nodes) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let members = self.members(&node.log);
        let may_run = (members.0 | members.1) & 1 << n != 0
            && node.vote / 4 < self.bounds.terms
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
                candidate.accept((node.vote / 4 + 1) * 4 + n as u8, false);
                candidate.phase = Phase::Candidate(1 << n);
                let asks = self.bounds.steps.contains(&Step::Ask);
                let is_free = node.promise == 0 || self.has(Defect::CandidateDespitePromise);
                may_run && is_free && !node.leads && (!asks || is_majority(members, nodes))
            }
            _ => false,
        }
    }

    fn elect(&self, state: &mut State, n: usize, m: usize, votes: Nodes) -> bool {
        let (node, other) = (state.nodes[n], state.nodes[m]);
        let votes = votes | 1 << m;
        let is_in_doubt = other.needed.is_some() && !self.has(Defect::PromiseForgottenInDoubt);
        let has_promised = (other.is_elected || is_in_doubt) && other.promise > 0;
        let leads = self.serves(m, &other) && !self.has(Defect::VotesWhileItLeads);
        let may_vote = !leads && (!has_promised || self.has(Defect::VotesDespitePromise));
        state.nodes[m].accept(node.vote, false);
        let candidate = &mut state.nodes[n];
        candidate.phase = Phase::Candidate(votes);
        if is_majority(self.members(&node.log), votes) {
            (candidate.phase, candidate.is_elected) = (Phase::Leader, true);
            candidate.contact = [0; NODES];
        }
        let votes = other.runs() && other.vote <= node.vote && other.would_follow(&node);
        votes && may_vote
    }

    /// A node in doubt asks a leader, or all others, how far its log must be.
    fn confirm(&self, state: &mut State, n: usize, m: usize) -> bool {
        let other = &state.nodes[m];
        let all = state.nodes.iter().map(|node| node.log.last()).max();
        let answers = match n == m {
            true => state.nodes.iter().all(Node::runs),
            false => self.serves(m, other),
        };
        let needed = if n == m { all } else { Some(other.log.last()) };
        std::mem::replace(&mut state.nodes[n].needed, needed) == Some(UNKNOWN) && answers
    }

    fn fault(&self, state: &mut State, step: Step, n: usize) -> bool {
        let old = state.nodes[n];
        state.faults += 1;
        let Node { mut vote, mut is_elected, log, needed, .. } = old;
        if self.has(Defect::VoteNotSaved) {
            (vote, is_elected) = (log.last().0, log.len() > 0);
        }
        let promise = self.bounds.promise * u8::from(!self.has(Defect::PromiseForgotten));
        let needed = needed.filter(|needed| *needed > log.last()).map(|_| UNKNOWN);
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
            Step::Restart => {}
            _ => return false,
        }
        if step != Step::Suspend && node.is_elected && usize::from(node.vote % 4) == n {
            node.phase = Phase::Leader;
        }
        state.nodes[n] = node;
        state.faults <= self.bounds.faults
    }
}

// --- what is true ---

/// An invariant, and its name.
type Invariant = (&'static str, fn(&Rules, &State) -> bool);

pub(crate) const INVARIANTS: [Invariant; 6] = [
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
];

impl State {
    /// Whether a node other than `n` lacks what it may have acknowledged.
    fn others_doubt(&self, n: usize) -> bool {
        let lacks = |node: &Node| node.needed.is_some_and(|needed| needed > node.log.last());
        self.nodes.iter().enumerate().any(|(other, node)| other != n && lacks(node))
    }

    /// Number of clients that hold the lock, as far as they know.
    pub(crate) fn holders(&self) -> usize {
        self.leases.iter().filter(|lease| lease.is_acknowledged && !lease.is_over).count()
    }
}

impl Rules {
    /// Whether a client may get an old state of this node: the documented case.
    pub(crate) fn is_excepted(&self, node: &Node) -> bool {
        node.power != Power::On(0) && !self.has(Defect::NoException)
    }

    /// The nodes that answer clients, apart from the documented case.
    pub(crate) fn leaders<'a>(
        &'a self,
        state: &'a State,
    ) -> impl Iterator<Item = (usize, &'a Node)> {
        let nodes = state.nodes.iter().enumerate();
        nodes.filter(|(n, node)| self.serves(*n, node) && !self.is_excepted(node))
    }

    /// The followers that read, since they have what their leader has.
    pub(crate) fn readers<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Node> {
        let answers = move |n: usize, node: &Node| {
            let is_elected = node.phase == Phase::Leader && node.runs();
            let leads = self.serves(n, node) || is_elected && self.has(Defect::ReadUnconfirmed);
            leads && !self.is_excepted(node)
        };
        let reads = move |node: &&Node| {
            state.nodes.iter().enumerate().any(|(n, leader)| {
                let has_all = node.applied >= leader.applied || self.has(Defect::ReadBeforeApplied);
                answers(n, leader) && node.vote == leader.vote && has_all
            })
        };
        let follows = |node: &&Node| node.runs() && node.is_elected && node.phase != Phase::Leader;
        state.nodes.iter().filter(follows).filter(reads)
    }
}
