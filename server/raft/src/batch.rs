//! The entries of the replicated log, and the nodes that replicate it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::runtime::AsyncRuntime;
use crate::snapshot_file::SnapshotFile;
use crate::types::NodeId;

openraft::declare_raft_types!(
    /// The types of `openraft`'s parameters.
    pub Types:
        D = Batch,
        R = (),
        NodeId = NodeId,
        Node = Peer,
        Entry = openraft::Entry<Types>,
        SnapshotData = SnapshotFile,
        AsyncRuntime = AsyncRuntime,
);

/// The effects of units that follow each other, of one leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The index of the entry with which its leader began: see [`Batch::barrier`]. Batches of
    /// earlier leaders that are committed after that entry have no effect.
    pub barrier: u64,
    /// Log time after the batch, in milliseconds.
    pub lease_ms: i64,
    /// The number of the last unit of the batch, as its leader numbers them.
    pub last: u64,
    /// The effects in byte form, or a part of them if the batch is divided.
    pub effects: Bytes,
    /// Number of bytes of the effects in the entries before this part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    /// Number of bytes of the effects in the entries after this part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Batch {
    /// A batch that is not divided.
    pub fn new(barrier: u64, lease_ms: i64, last: u64, effects: impl Into<Bytes>) -> Batch {
        Batch { barrier, lease_ms, last, effects: effects.into(), before: 0, after: 0 }
    }

    /// The entry with which a leader begins. Its index is the field `barrier` of the batches that
    /// follow.
    pub fn barrier(lease_ms: i64) -> Batch {
        Batch { barrier: Batch::IS_BARRIER, lease_ms, ..Batch::default() }
    }

    /// Whether a leader begins with this entry.
    pub fn is_barrier(&self) -> bool {
        self.barrier == Batch::IS_BARRIER
    }

    /// The parts of the batch, of at most `bytes_max` bytes and for one entry each. The effects are
    /// applied when the last part is committed.
    pub(crate) fn divided(self, bytes_max: usize) -> impl Iterator<Item = Batch> {
        let length = self.effects.len();
        let count = length.div_ceil(bytes_max).max(1);
        (0..count).map(move |number| {
            let (begin, end) = (number * bytes_max, length.min((number + 1) * bytes_max));
            let (before, after) = (begin as u64, (length - end) as u64);
            Batch { effects: self.effects.slice(begin..end), before, after, ..self }
        })
    }

    /// Whether this is the first of several parts.
    pub(crate) fn begins(&self) -> bool {
        self.before == 0 && self.after > 0
    }

    /// Whether this is not a part of a batch.
    pub(crate) fn is_whole(&self) -> bool {
        self.before == 0 && self.after == 0
    }

    /// The value of `barrier` that marks the entry with which a leader begins. No batch has it, so
    /// that it also means: no batch has effects before the next such entry.
    pub(crate) const IS_BARRIER: u64 = u64::MAX;
}

/// A node of the cluster, as the others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Where it accepts connections of the other nodes.
    pub address: String,
    /// Where it accepts connections of clients.
    pub client_address: String,
    /// The fingerprint of its key: others accept no connection of this node with another one.
    /// Empty if an earlier program has recorded the node, which had no key of its own.
    #[serde(default)]
    pub fingerprint: String,
    /// The join tokens that were made on this node and not used yet.
    #[serde(default)]
    pub tokens: Vec<JoinToken>,
}

impl Peer {
    /// The node without its join tokens, which concern only the leader.
    pub(crate) fn without_tokens(&self) -> Peer {
        Peer { tokens: Vec::new(), ..self.clone() }
    }
}

/// The part of a join token that the cluster keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The digest of its secret.
    pub digest: String,
    /// Moment until which it is valid, in seconds since 1970.
    pub until: u64,
}
