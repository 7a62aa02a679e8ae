//! Whether the history of a real cluster is one of the specification.
//!
//! Each event is mapped to steps of the specification, which `rules` carries out. If it is not
//! certain what has happened, the states after each possibility are kept.

use std::collections::BTreeMap;
use std::fmt;

use crate::bounds::{Bounds, Step};
use crate::log::Log;
use crate::rules::{self, invariants};
use crate::state::{self, Nodes, Phase, TERM, Time, Vote};
use crate::trace::{EntryId, Event, GivenVote, NodeId, Shown, Trace, What};

/// The nodes of a history at most, with those that were replaced.
const NODES: usize = TERM as usize;

/// The entries of a history that matter, at most.
const ENTRIES: usize = 64;

type Rules = rules::Rules<NODES, ENTRIES>;
type State = state::State<NODES, ENTRIES>;

/// Why a history is none of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When, in microseconds.
    pub at_us: i64,
    /// The node.
    pub node: NodeId,
    /// What the specification does not permit.
    pub reason: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { at_us, node, reason } = self;
        write!(f, "at {:.3} ms on node {node}: {reason}", *at_us as f64 / 1000.0)
    }
}

/// What a history consisted of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// How often each step has happened, apart from those that have changed nothing.
    pub steps: BTreeMap<Step, u64>,
    /// The states that were possible at once, at most.
    pub states_max: usize,
}

/// Follows a history.
///
/// # Errors
/// If the specification does not permit it.
pub fn follow(trace: &Trace) -> Result<Followed, Refusal> {
    let mut follower = Follower::new(trace);
    for event in &trace.events {
        let refuse = |reason| Refusal { at_us: event.at_us, node: event.node, reason };
        follower.follow(event).map_err(refuse)?;
    }
    Ok(follower.followed)
}

/// What an entry of a real log is here. Others are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Planned {
    Blank,
    Barrier,
    Members(Nodes, Nodes),
}

/// The states that are possible.
struct Follower {
    rules: Rules,
    states: Vec<State>,
    /// The nodes, in the order of their numbers.
    nodes: Vec<NodeId>,
    /// Millionths by which their clocks are slow, once they have started; what they show.
    slow_ppm: [Option<i64>; NODES],
    clocks_us: [i64; NODES],
    /// The entries of each leader that matter, by their indexes; and the length of the log with
    /// each of them.
    planned: BTreeMap<(Vote, u64), Planned>,
    lengths: BTreeMap<(Vote, u64), u8>,
    /// The logs of leaders, of which messages may arrive when they lead no more.
    logs: BTreeMap<Vote, Log<ENTRIES>>,
    /// How far leaders that may answer clients have applied the log, as they show, and until when
    /// one with each length could.
    leaders: Vec<u8>,
    led_us: BTreeMap<u8, i64>,
    /// How far nodes have applied the log, as they show.
    applied: [u8; NODES],
    /// The longest log that is known to be committed.
    committed: Log<ENTRIES>,
    followed: Followed,
}

type Happens = Result<(), &'static str>;

impl Follower {
    fn new(trace: &Trace) -> Follower {
        let mut nodes: Vec<NodeId> = trace.members.iter().copied().collect();
        for event in &trace.events {
            match &event.what {
                What::Started { .. } | What::Removed => nodes.push(event.node),
                What::Shows(shown) => nodes.extend(shown.members.1.iter().flatten()),
                _ => {}
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        let steps = Step::ALL.iter().copied().filter(|step| *step != Step::Ask).collect();
        let bounds = Bounds {
            name: "trace",
            promise: trace.promise_ms,
            margin: trace.margin_ms,
            entries: ENTRIES as u8,
            terms: Vote::MAX / TERM,
            faults: u8::MAX,
            time: 0,
            fast: &[],
            members: Vec::new(),
            steps,
        };
        let mut follower = Follower {
            rules: Rules { bounds, defect: None },
            states: vec![State::default()],
            nodes,
            slow_ppm: [None; NODES],
            clocks_us: [0; NODES],
            planned: BTreeMap::new(),
            lengths: BTreeMap::new(),
            logs: BTreeMap::new(),
            leaders: Vec::new(),
            led_us: BTreeMap::new(),
            applied: [0; NODES],
            committed: Log::default(),
            followed: Followed::default(),
        };
        follower.rules.bounds.members = vec![follower.set(&trace.members)];
        follower.plan(trace);
        follower
    }

    /// Finds the entries that matter.
    fn plan(&mut self, trace: &Trace) {
        let mut last_index: BTreeMap<NodeId, u64> = BTreeMap::new();
        for event in &trace.events {
            let What::Shows(shown) = &event.what else { continue };
            let vote = self.vote(shown.vote);
            if let Some(last) = shown.last {
                let before = last_index.insert(event.node, last.index).map_or(0, |last| last + 1);
                let of = self.vote_of(last);
                let first = if of == vote && last.node == event.node { before } else { last.index };
                let is_known = self.planned.range((of, 0)..=(of, last.index)).next().is_some();
                if last.term > 0 && !is_known {
                    self.planned.insert((of, first.min(last.index)), Planned::Blank);
                }
            }
            if let Some(barrier) = shown.barrier {
                self.planned.insert((vote, barrier), Planned::Barrier);
            }
            if let (Some(entry), sets) = &shown.members
                && entry.term > 0
            {
                let sets: Vec<Nodes> = sets.iter().map(|set| self.set(set)).collect();
                let (Some(before), Some(after)) = (sets.first(), sets.last()) else { continue };
                let planned = Planned::Members(*before, *after);
                self.planned.insert((self.vote_of(*entry), entry.index), planned);
                for set in [*before, *after] {
                    if !self.rules.bounds.members.contains(&set) {
                        self.rules.bounds.members.push(set);
                    }
                }
            }
        }
    }

    fn number(&self, node: NodeId) -> usize {
        self.nodes.binary_search(&node).unwrap_or(NODES)
    }

    fn set(&self, set: &std::collections::BTreeSet<NodeId>) -> Nodes {
        set.iter().fold(0, |nodes, node| nodes | 1 << self.number(*node))
    }

    fn vote(&self, GivenVote { term, node, .. }: GivenVote) -> Vote {
        if term == 0 { 0 } else { term as Vote * TERM + self.number(node) as Vote }
    }

    fn vote_of(&self, EntryId { term, node, .. }: EntryId) -> Vote {
        self.vote(GivenVote { term, node, is_elected: true })
    }

    /// The vote of the last entry that matters, and the length of a log that ends with this one.
    fn place(&self, entry: Option<EntryId>) -> Option<(Vote, u8)> {
        let Some(entry) = entry.filter(|entry| entry.term > 0) else { return Some((0, 0)) };
        let vote = self.vote_of(entry);
        let (_, length) = self.lengths.range((vote, 0)..=(vote, entry.index)).next_back()?;
        Some((vote, *length))
    }
}

// --- steps ---

impl Follower {
    /// Carries out a step; returns whether it has changed anything.
    fn step(&mut self, state: &mut State, step: Step, n: usize, m: usize) -> bool {
        let next = self.rules.next(state, step, n, m);
        if let Some(next) = next {
            *state = next;
            *self.followed.steps.entry(step).or_default() += 1;
        }
        next.is_some()
    }

    fn follow(&mut self, event: &Event) -> Happens {
        self.pass(event.at_us);
        self.note_leaders(event.at_us);
        let n = self.number(event.node);
        let mut refused = Ok(());
        let mut next = Vec::new();
        for mut state in std::mem::take(&mut self.states) {
            for (happens, state) in self.what(&mut state, n, &event.what) {
                let happens = happens.and_then(|()| self.settle(state));
                match happens {
                    Ok(state) if next.contains(&state) => {}
                    Ok(state) => next.push(state),
                    Err(reason) => refused = Err(reason),
                }
            }
        }
        self.states = next;
        self.note_leaders(event.at_us);
        self.followed.states_max = self.followed.states_max.max(self.states.len());
        if self.states.is_empty() { refused } else { Ok(()) }
    }

    /// All clocks run on.
    fn pass(&mut self, at_us: i64) {
        let mut passed = [0; NODES];
        for (n, passed) in passed.iter_mut().enumerate() {
            let Some(slow_ppm) = self.slow_ppm[n] else { continue };
            let shows_us = at_us - at_us * slow_ppm / 1_000_000;
            let before_us = std::mem::replace(&mut self.clocks_us[n], shows_us);
            *passed = Time::try_from(shows_us / 1000 - before_us / 1000).unwrap_or(Time::MAX);
        }
        if passed != [0; NODES] {
            self.states.iter_mut().for_each(|state| self.rules.pass(state, &passed));
        }
    }

    /// Notes how far the leaders that may answer clients have applied the log. One that could
    /// before has been able to until now.
    fn note_leaders(&mut self, at_us: i64) {
        let leaders = self.states.iter().flat_map(|state| self.rules.leaders(state));
        let applied: Vec<u8> = leaders.map(|(n, _)| self.applied[n]).collect();
        for applied in self.leaders.iter().chain(&applied) {
            self.led_us.insert(*applied, at_us);
        }
        self.leaders = applied;
    }

    /// A node executes a request if it leads, or has applied what a leader had since.
    fn answers(&self, n: usize, asked_us: i64) -> Happens {
        match self.led_us.range(..=self.applied[n]).any(|(_, led_us)| *led_us >= asked_us) {
            true => Ok(()),
            false => Err("it answers although another node may lead"),
        }
    }

    /// What follows at once, and what must be true.
    fn settle(&mut self, mut state: State) -> Result<State, &'static str> {
        for n in 0..self.nodes.len() {
            let node = &state.nodes[n];
            if node.needed.is_some_and(|needed| needed > node.log.last()) {
                // As early as it can be.
                let _ = (0..self.nodes.len()).any(|m| self.step(&mut state, Step::Confirm, n, m));
            }
        }
        for node in &state.nodes {
            let committed = node.log.prefix(node.applied);
            if committed.len() > self.committed.len() {
                self.committed = committed;
            }
        }
        match invariants().into_iter().find(|(_, holds)| !holds(&self.rules, &state)) {
            Some((name, _)) => Err(name),
            None => Ok(state),
        }
    }

    /// The states after an event.
    fn what(&mut self, state: &mut State, n: usize, what: &What) -> Vec<(Happens, State)> {
        let happens = match what {
            What::Started { slow_ppm, vote, is_in_doubt } => {
                return self.start(state, n, *slow_ppm, (*vote, *is_in_doubt));
            }
            What::Ended(all) => {
                let mut states = vec![(Ok(()), *state)];
                for what in all {
                    if self.what_certain(state, n, what).is_err() {
                        break;
                    }
                    states.push((Ok(()), *state));
                    // It may have got a part of the entries.
                    while let What::Message(vote, _) = what
                        && self.part(state, n, self.vote(*vote))
                    {
                        states.push((Ok(()), *state));
                    }
                }
                return states;
            }
            what => self.what_certain(state, n, what),
        };
        vec![(happens, *state)]
    }

    fn what_certain(&mut self, state: &mut State, n: usize, what: &What) -> Happens {
        match what {
            What::Message(vote, last) => self.message(state, n, *vote, *last),
            What::Reply(from) => {
                let from = self.number(*from);
                self.step(state, Step::Reply, n, from);
                Ok(())
            }
            What::Voted(vote) => self.voted(state, n, *vote),
            What::Shows(shown) => self.shows(state, n, shown),
            What::Removed => {
                self.step(state, Step::LoseDisk, n, n);
                Ok(())
            }
            What::Answered(asked_us) => self.answers(n, *asked_us),
            What::Started { .. } | What::Ended(_) => Ok(()),
        }
    }

    fn start(
        &mut self,
        state: &mut State,
        n: usize,
        slow_ppm: i64,
        (given, is_in_doubt): (GivenVote, bool),
    ) -> Vec<(Happens, State)> {
        let vote = self.vote(given);
        if self.slow_ppm[n].is_none() {
            self.slow_ppm[n] = Some(slow_ppm);
            if vote == 0 {
                return vec![(Ok(()), *state)];
            }
            // A cluster that begins with a backup.
            state.nodes[n].accept(vote, given.is_elected);
        }
        let mut states = Vec::new();
        let mut cut = *state;
        while is_in_doubt && self.step(&mut cut, Step::CutLog, n, n) {
            states.push(cut);
        }
        self.step(state, Step::Restart, n, n);
        let node = &mut state.nodes[n];
        if given.is_elected && node.vote == vote && usize::from(vote % TERM) == n {
            // It was stopped, and has flushed what it has sent.
            (node.phase, node.is_elected) = (Phase::Leader, true);
        }
        states.push(*state);
        let happens = |state: &State| match state.nodes[n].vote == vote {
            true => Ok(()),
            false => Err("its vote is not on its disk"),
        };
        states.iter().map(|state| (happens(state), *state)).collect()
    }
}

// --- messages and votes ---

impl Follower {
    /// A message arrives, perhaps of a node that leads no more.
    fn deliver(&mut self, state: &mut State, step: Step, n: usize, vote: Vote) -> bool {
        let leader = usize::from(vote % TERM);
        let other = &state.nodes[leader];
        if other.phase == Phase::Leader && other.vote == vote {
            return self.step(state, step, leader, n);
        }
        let Some(log) = self.logs.get(&vote) else { return false };
        let before = *state;
        self.rules.receive(&mut state.nodes[n], step, vote, log, 0);
        *state != before
    }

    fn part(&mut self, state: &mut State, n: usize, vote: Vote) -> bool {
        let log = state.nodes[n].log;
        self.deliver(state, Step::Part, n, vote) && state.nodes[n].log != log
    }

    fn message(
        &mut self,
        state: &mut State,
        n: usize,
        vote: GivenVote,
        last: Option<EntryId>,
    ) -> Happens {
        let vote = self.vote(vote);
        if vote < state.nodes[n].vote {
            return Ok(());
        }
        let leader = usize::from(vote % TERM);
        let is_elected = state.nodes[leader].vote == vote && state.nodes[leader].is_elected;
        if !is_elected && !self.logs.contains_key(&vote) {
            return Err("a message of a node that is not elected");
        }
        self.deliver(state, Step::Contact, n, vote);
        self.catch_up(state, n, vote, last);
        Ok(())
    }

    /// The log of the node becomes that with this last entry, by messages of this leader, if it
    /// can.
    fn catch_up(&mut self, state: &mut State, n: usize, vote: Vote, last: Option<EntryId>) -> bool {
        if let Some(last) = last.filter(|last| self.vote_of(*last) == vote) {
            // What the leader must not have added is noticed on the leader.
            let _ = self.extend(state, usize::from(vote % TERM), vote, last.index);
        }
        let (Some(place), before) = (self.place(last), *state) else { return false };
        while state.nodes[n].log.last() != place {
            if !self.part(state, n, vote) {
                *state = before;
                return false;
            }
        }
        true
    }

    fn voted(&mut self, state: &mut State, n: usize, given: GivenVote) -> Happens {
        let vote = self.vote(given);
        let node = &state.nodes[n];
        if (node.vote, node.is_elected) == (vote, given.is_elected) {
            return Ok(());
        }
        let other = usize::from(vote % TERM);
        match (other == n, given.is_elected) {
            (true, true) => match self.step(state, Step::Win, n, n) {
                true => {
                    self.logs.insert(vote, state.nodes[n].log);
                    Ok(())
                }
                false => Err("it is elected without the votes of a majority"),
            },
            (true, false) => match self.step(state, Step::Stand, n, n) {
                true if state.nodes[n].vote == vote => Ok(()),
                _ => Err("it is a candidate although it must not be"),
            },
            (false, true) => self.message(state, n, given, None),
            (false, false) => self.votes(state, n, other, vote),
        }
    }

    /// The node votes for another one, or learns of a vote.
    fn votes(&mut self, state: &mut State, n: usize, other: usize, vote: Vote) -> Happens {
        let is_candidate = state.nodes[other].vote == vote;
        if is_candidate && self.step(state, Step::Vote, other, n) {
            return Ok(());
        }
        let mut others = (0..self.nodes.len()).filter(|m| state.nodes[*m].vote >= vote);
        let Some(known) = others.next() else { return Err("a vote that no node has asked for") };
        if state.nodes[known].vote == vote {
            self.step(state, Step::Learn, n, known);
        } else {
            // The other one has given a later vote since.
            state.nodes[n].accept(vote, false);
        }
        Ok(())
    }
}

// --- what a node shows ---

impl Follower {
    fn shows(&mut self, state: &mut State, n: usize, shown: &Shown) -> Happens {
        let vote = self.vote(shown.vote);
        if state.nodes[n].vote != vote {
            return Err("it has another vote");
        }
        // It may have added entries with other members after it has extended its lease.
        let lease = self.rules.lease(n, &state.nodes[n]);
        if let Some(last) = shown.last.filter(|last| self.vote_of(*last) == vote)
            && last.node == self.nodes[n]
        {
            // It begins to lead before it does anything else.
            if let Some(barrier) = shown.barrier {
                self.extend(state, n, vote, barrier)?;
                self.step(state, Step::Commit, n, n);
                self.step(state, Step::Begin, n, n);
            }
            self.extend(state, n, vote, last.index)?;
        }
        let is_at = |state: &State, place| Some(state.nodes[n].log.last()) == place;
        // A snapshot has arrived.
        if !is_at(state, self.place(shown.last)) && !self.catch_up(state, n, vote, shown.last) {
            return Err("its log is another one");
        }
        self.applied[n] = self.check_applied(state, shown.applied)?;
        self.leads(state, n, vote, (shown, lease))
    }

    /// A leader adds its entries up to this index.
    fn extend(&mut self, state: &mut State, n: usize, vote: Vote, index: u64) -> Happens {
        let is_leader = state.nodes[n].phase == Phase::Leader && state.nodes[n].vote == vote;
        let planned: Vec<(u64, Planned)> = self
            .planned
            .range((vote, 0)..=(vote, index))
            .map(|((_, index), planned)| (*index, planned.clone()))
            .collect();
        for (index, planned) in planned {
            let known = self.lengths.get(&(vote, index)).copied();
            if !is_leader || known.is_some_and(|length| state.nodes[n].log.len() >= length) {
                continue;
            }
            let before = state.nodes[n].log.len();
            let members = self.rules.members(&state.nodes[n].log);
            let is_same = planned == Planned::Members(members.0, members.1);
            match planned {
                Planned::Members(..) if is_same => {}
                Planned::Blank => {
                    self.step(state, Step::Blank, n, n);
                }
                Planned::Barrier => {
                    if !self.step(state, Step::Barrier, n, n) {
                        self.step(state, Step::StepDown, n, n);
                        self.step(state, Step::Barrier, n, n);
                    }
                }
                Planned::Members(from, to) => self.change(state, n, (from, to)),
            }
            // Members that are the same as before are no entry of their own.
            let log = state.nodes[n].log;
            if log.len() > before || is_same {
                self.lengths.insert((vote, index), log.len());
                self.logs.insert(vote, log);
            } else {
                return Err("it adds an entry although it must not");
            }
        }
        Ok(())
    }

    /// Changes the members.
    fn change(&mut self, state: &mut State, n: usize, (before, after): (Nodes, Nodes)) {
        let is_joint = |(before, after): (Nodes, Nodes)| before != after;
        let members = self.rules.members(&state.nodes[n].log);
        let to = |set| self.rules.bounds.members.iter().position(|members| *members == set);
        let Some(to) = to(after) else { return };
        self.step(state, Step::Commit, n, n);
        self.step(state, Step::Change, n, to);
        // Both entries were added in one step of the node.
        if !is_joint((before, after)) && !is_joint(members) {
            self.step(state, Step::Commit, n, n);
            self.step(state, Step::Change, n, to);
        }
    }

    /// What is applied is committed. Returns its length.
    fn check_applied(
        &mut self,
        state: &mut State,
        applied: Option<EntryId>,
    ) -> Result<u8, &'static str> {
        for leader in 0..self.nodes.len() {
            if state.nodes[leader].phase == Phase::Leader {
                self.step(state, Step::Commit, leader, leader);
            }
        }
        let committed = |node: &state::Node<NODES, ENTRIES>| node.log.prefix(node.applied);
        let mut logs = state.nodes.iter().map(committed).chain([self.committed]);
        let Some((vote, length)) = self.place(applied) else {
            return Err("it has applied what no leader had");
        };
        let is_committed =
            |log: Log<ENTRIES>| log.len() >= length && log.prefix(length).last() == (vote, length);
        match length == 0 || logs.any(is_committed) {
            true => Ok(length),
            false => Err("it has applied what is not committed"),
        }
    }

    fn leads(
        &mut self,
        state: &mut State,
        n: usize,
        vote: Vote,
        (shown, before): (&Shown, Time),
    ) -> Happens {
        let barrier = match shown.barrier {
            Some(barrier) => match self.lengths.get(&(vote, barrier)) {
                Some(length) => *length,
                None => return Err("it leads without a barrier of its own"),
            },
            None => {
                self.step(state, Step::StepDown, n, n);
                return Ok(());
            }
        };
        if state.nodes[n].barrier != barrier {
            return Err("it leads with another barrier");
        }
        if !state.nodes[n].leads && !self.step(state, Step::Begin, n, n) {
            return Err("it begins to lead although it must not");
        }
        let until_us = self.clocks_us[n] + shown.lease_us;
        let left = (until_us / 1000 - self.clocks_us[n] / 1000).max(0);
        let node = &state.nodes[n];
        let lease = i64::from(self.rules.lease(n, node).max(before));
        match left == 0 || self.rules.serves(n, node) && lease >= left {
            true => Ok(()),
            false => Err("it leads for longer than a majority has promised"),
        }
    }
}
