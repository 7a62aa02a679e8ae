//! What nodes and their clients remember. Times are what a clock still has to pass.

use crate::log::Log;

/// A time that a clock shows, or has to pass.
pub(crate) type Time = u16;

/// A vote: `term * TERM + node`.
pub(crate) type Vote = u16;

/// The votes of a term, one for each node.
pub(crate) const TERM: Vote = 16;

/// A set of nodes, one bit for each.
pub(crate) type Nodes = u16;

/// The lease of the lock, which is granted twice at most.
pub(crate) const TTL: Time = 3;

/// How far a fast clock runs in a tick. Others run 1.
pub(crate) const FAST: Time = 2;

/// What an entry does. A grant has a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    #[default]
    Barrier,
    /// None: Raft adds it when a leader begins.
    Blank,
    Grant(u8),
    Release(u8),
    End(u8),
    /// The nodes that vote: a majority of each set.
    Members(Nodes, Nodes),
}

/// An entry: the vote of its leader, the place after its barrier (of a barrier 0), log time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) vote: Vote,
    pub(crate) barrier: u8,
    pub(crate) stamp: Time,
    pub(crate) effect: Effect,
}

/// What a log has led to: the latest barrier, log time, the grant that has the lock and its end.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) barrier: u8,
    pub(crate) time: Time,
    pub(crate) holder: Option<(u8, Time)>,
}

impl View {
    pub(crate) fn pass(&mut self, place: usize, entry: &Entry) {
        match entry.effect {
            Effect::Blank | Effect::Members(..) => return,
            Effect::Barrier => self.barrier = place as u8 + 1,
            _ if entry.barrier != self.barrier => return,
            Effect::Grant(grant) => self.holder = Some((grant, entry.stamp + TTL)),
            Effect::Release(grant) | Effect::End(grant) => {
                self.holder.take_if(|holder| holder.0 == grant);
            }
        }
        self.time = self.time.max(entry.stamp);
    }
}

/// How a node takes part in elections: the nodes that would vote for it, or that have voted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Follower,
    Asking(Nodes),
    Candidate(Nodes),
    Leader,
}

/// Whether a node runs. `On` has the time for which it may have an old state after it was
/// suspended with all its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Power {
    On(Time),
    Suspended,
    Gone,
}

impl Default for Power {
    fn default() -> Power {
        Power::On(0)
    }
}

/// A node. The first four are on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node<const N: usize, const E: usize> {
    /// The greatest vote that it has given, or knows, of the node `vote % TERM`, and whether that
    /// was elected.
    pub(crate) vote: Vote,
    pub(crate) is_elected: bool,
    pub(crate) log: Log<E>,
    /// What the log of a candidate must have, if the end of its own was lost.
    pub(crate) needed: Option<(Vote, u8)>,
    pub(crate) phase: Phase,
    /// How long it neither votes nor is a candidate.
    pub(crate) promise: Time,
    /// The entries that it knows to be committed.
    pub(crate) applied: u8,
    /// For how long each node confirms this leader; of a reply that has not arrived, and known.
    pub(crate) sent: [Option<Time>; N],
    pub(crate) contact: [Time; N],
    /// The place after its barrier, whether it executes commands, and its log time.
    pub(crate) barrier: u8,
    pub(crate) leads: bool,
    pub(crate) clock: Time,
    pub(crate) power: Power,
}

impl<const N: usize, const E: usize> Default for Node<N, E> {
    fn default() -> Node<N, E> {
        Node {
            vote: 0,
            is_elected: false,
            log: Log::default(),
            needed: None,
            phase: Phase::default(),
            promise: 0,
            applied: 0,
            sent: [None; N],
            contact: [0; N],
            barrier: 0,
            leads: false,
            clock: 0,
            power: Power::default(),
        }
    }
}

impl<const N: usize, const E: usize> Node<N, E> {
    pub(crate) fn runs(&self) -> bool {
        matches!(self.power, Power::On(_))
    }

    /// Follows another node, or votes for it.
    pub(crate) fn accept(&mut self, vote: Vote, is_elected: bool) {
        if (vote, is_elected) > (self.vote, self.is_elected) {
            (self.vote, self.is_elected) = (vote, is_elected);
            self.sent = [None; N];
            self.barrier *= u8::from(self.leads);
            if !matches!(self.phase, Phase::Asking(_)) {
                self.phase = Phase::Follower;
            }
        }
    }

    pub(crate) fn would_follow(&self, other: &Node<N, E>) -> bool {
        let last = other.log.last();
        self.log.last() <= last && self.needed.is_none_or(|needed| needed <= last)
    }
}

/// A lease as its client sees it; the age by the fastest clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) is_executed: bool,
    pub(crate) is_acknowledged: bool,
    pub(crate) is_over: bool,
    pub(crate) age: Time,
}

/// The cluster, and what its clients know: the log up to the last entry that was acknowledged,
/// and whether a lease has ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize, const E: usize> {
    pub(crate) nodes: [Node<N, E>; N],
    pub(crate) fast: Nodes,
    pub(crate) leases: [Lease; 2],
    pub(crate) known: Log<E>,
    pub(crate) is_early: bool,
    pub(crate) faults: u8,
}

impl<const N: usize, const E: usize> Default for State<N, E> {
    fn default() -> State<N, E> {
        State {
            nodes: [Node::default(); N],
            fast: 0,
            leases: [Lease::default(); 2],
            known: Log::default(),
            is_early: false,
            faults: 0,
        }
    }
}
