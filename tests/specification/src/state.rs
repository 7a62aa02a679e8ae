//! A state of the cluster: what each node remembers, and what its clients have seen.

use std::hash::{Hash, Hasher};

/// The nodes there are; not all of them need to be members.
pub const NODES: usize = 3;

/// The entries of a log at most.
pub const ENTRIES: usize = 6;

/// The locks that are granted at most, one after the other.
pub const GRANTS: usize = 2;

/// A set of nodes, one bit for each.
pub type Nodes = u8;

/// What an entry does. A grant has a number: it is the lease that a client has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// A leader begins.
    #[default]
    Barrier,
    /// A client gets the lock.
    Grant(u8),
    /// Its client releases the lock.
    Release(u8),
    /// The leader ends the lease.
    End(u8),
    /// The nodes that vote: a majority of both sets is needed.
    Members(Nodes, Nodes),
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The vote by which its leader was elected.
    pub vote: u8,
    /// The place after the barrier of its leadership; of a barrier, 0.
    pub barrier: u8,
    /// Log time.
    pub stamp: u8,
    /// What it does.
    pub effect: Effect,
}

/// A log, or its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    length: u8,
    entries: [Entry; ENTRIES],
}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries().hash(state);
    }
}

impl Log {
    /// Its entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.len()]
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// What decides whose log is further: the vote of the last entry, and its place.
    pub fn last(&self) -> (u8, u8) {
        (self.entries().last().map_or(0, |last| last.vote), self.length)
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) {
        self.entries[self.len()] = entry;
        self.length += 1;
    }

    /// The first entries of the log.
    pub fn prefix(mut self, length: usize) -> Log {
        while self.len() > length {
            self.length -= 1;
            self.entries[self.len()] = Entry::default();
        }
        self
    }

    /// Whether it has all entries of the other one.
    pub fn has(&self, other: &Log) -> bool {
        self.entries().starts_with(other.entries())
    }
}

/// What the effects of a log have led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The place after the latest barrier.
    pub barrier: u8,
    /// Log time.
    pub time: u8,
    /// The grant that has the lock, and when its lease ends in log time.
    pub holder: Option<(u8, u8)>,
}

impl View {
    /// Passes an entry. It has no effect if its leadership is over.
    pub fn pass(&mut self, place: usize, entry: &Entry, ttl: u8) {
        match entry.effect {
            Effect::Barrier => self.barrier = place as u8 + 1,
            Effect::Members(..) => return,
            _ if entry.barrier != self.barrier => return,
            Effect::Grant(grant) => self.holder = Some((grant, entry.stamp + ttl)),
            Effect::Release(grant) | Effect::End(grant) => {
                self.holder.take_if(|(holder, _)| *holder == grant);
            }
        }
        self.time = self.time.max(entry.stamp);
    }
}

/// What a node does for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It follows, or has no leader.
    #[default]
    Follower,
    /// It asks whether it would be elected; these nodes have said yes.
    Asking(Nodes),
    /// It asks for votes; these nodes have given theirs.
    Candidate(Nodes),
    /// It was elected.
    Leader,
}

/// Whether a node runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Power {
    /// It runs; for so long it may have been suspended with all its clocks shortly before.
    #[default]
    On,
    /// It is suspended, and its clocks are stopped.
    Suspended,
    /// It was resumed, and its clock has not passed so much since.
    Resumed(u8),
    /// Its disk was lost: it does not start again.
    Gone,
}

/// A node. Times are those that its clock still has to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Of the disk: the greatest vote that it has given. Each vote is of one node.
    pub vote: u8,
    /// Of the disk: whether the node with this vote was elected.
    pub is_elected: bool,
    /// Of the disk.
    pub log: Log,
    /// Of the disk: the last entry that a node must have to get the vote of this one, which has
    /// lost the end of its log. `(u8::MAX, 0)` if it is not known.
    pub needed: Option<(u8, u8)>,
    /// How it takes part in elections.
    pub phase: Phase,
    /// How long it neither votes nor is a candidate.
    pub promise: u8,
    /// Number of entries that it knows to be committed.
    pub applied: u8,
    /// A leader: how long it may lead by the message that the node has got, when that is
    /// acknowledged.
    pub sent: [Option<u8>; NODES],
    /// A leader: the same for the last message that was acknowledged.
    pub contact: [u8; NODES],
    /// The place after its barrier, from when it is in the log until it steps down.
    pub barrier: u8,
    /// Whether it executes commands.
    pub leads: bool,
    /// Its log time, while it leads.
    pub clock: u8,
    /// A unit that it has executed and that is not in the log yet.
    pub unit: Option<Entry>,
    /// Whether it runs.
    pub power: Power,
}

/// A lease as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Whether it was granted.
    pub is_executed: bool,
    /// Whether the client was notified.
    pub is_acknowledged: bool,
    /// Whether the client has released it, or the end was shown to any client.
    pub is_over: bool,
    /// The time since it was granted, by the fastest clock.
    pub age: u8,
}

/// The cluster, and what its clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The nodes.
    pub nodes: [Node; NODES],
    /// The nodes whose clock is fast.
    pub fast: Nodes,
    /// The leases.
    pub leases: [Lease; GRANTS],
    /// The entries that clients were notified of, and those before them.
    pub known: Log,
    /// Whether a client has seen the end of a lease too early.
    pub is_early: bool,
    /// Number of faults.
    pub faults: u8,
}
