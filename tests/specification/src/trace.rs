//! What the nodes of a real cluster have done, as events.

use std::collections::BTreeSet;

/// The number of a node.
pub type NodeId = u64;

/// A vote for a node in a term, and whether that node was elected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GivenVote {
    /// The term.
    pub term: u64,
    /// The node that gets the vote.
    pub node: NodeId,
    /// Whether it was elected.
    pub is_elected: bool,
}

/// An entry of a log: the term and the node of its leader, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The term.
    pub term: u64,
    /// The leader.
    pub node: NodeId,
    /// The index.
    pub index: u64,
}

/// What a node shows of itself after a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The greatest vote that it has given, or knows.
    pub vote: GivenVote,
    /// The last entry of its log.
    pub last: Option<EntryId>,
    /// The last entry that it has applied.
    pub applied: Option<EntryId>,
    /// The entry with the members that it knows, and the sets of nodes that vote.
    pub members: (Option<EntryId>, Vec<BTreeSet<NodeId>>),
    /// The index of the barrier of a leader that executes commands.
    pub barrier: Option<u64>,
    /// For how long it says that no other node leads, in microseconds of its clock.
    pub lease_us: i64,
}

/// What has happened on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Its process has started, with this vote on the disk.
    Started {
        /// Millionths by which its clock is slow.
        slow_ppm: i64,
        /// The vote.
        vote: GivenVote,
        /// Whether the end of the log was cut off and is not confirmed.
        is_in_doubt: bool,
    },
    /// A message of the leader with this vote has arrived; then this is the last entry of the log.
    Message(GivenVote, Option<EntryId>),
    /// The reply of this node to a message has arrived.
    Reply(NodeId),
    /// It has given this vote, or learned of it.
    Voted(GivenVote),
    /// It shows this.
    Shows(Shown),
    /// The process has ended while it did this: the first ones of these have happened.
    Ended(Vec<What>),
    /// Its disk is lost.
    Removed,
    /// A client has got an answer to a request that it has sent at this time, in microseconds.
    Answered(i64),
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds.
    pub at_us: i64,
    /// The node.
    pub node: NodeId,
    /// What.
    pub what: What,
}

/// The history of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The nodes that vote at first.
    pub members: BTreeSet<NodeId>,
    /// The time in milliseconds for which a follower votes for no other node.
    pub promise_ms: u16,
    /// The part of it that a leader does not use.
    pub margin_ms: u16,
    /// What has happened, in this order.
    pub events: Vec<Event>,
}
