//! What is replicated.

use bytes::Bytes;
use openraft::TokioRuntime;
use serde::{Deserialize, Serialize};

use crate::NodeId;
use crate::state_machine::SnapshotFile;

openraft::declare_raft_types!(
    /// The types of `openraft`'s parameters.
    pub Types:
        D = Batch,
        R = (),
        NodeId = NodeId,
        Node = Peer,
        Entry = openraft::Entry<Types>,
        SnapshotData = SnapshotFile,
        AsyncRuntime = TokioRuntime,
);

/// The effects of units that follow each other, of one leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The index of the entry with which its leader began. Batches of earlier leaders that are
    /// committed after this entry have no effect.
    pub barrier: u64,
    /// Log time after the batch, in milliseconds.
    pub lease_ms: i64,
    /// The last unit of the batch, as its leader counts them.
    pub last: u64,
    /// The effects, in byte form.
    pub effects: Bytes,
}

impl Batch {
    /// The entry with which a leader begins: its own index is the barrier of the batches that
    /// follow.
    pub fn barrier(lease_ms: i64) -> Batch {
        Batch { barrier: Batch::IS_BARRIER, lease_ms, ..Batch::default() }
    }

    /// Whether a leader begins with this entry.
    pub fn is_barrier(&self) -> bool {
        self.barrier == Batch::IS_BARRIER
    }

    const IS_BARRIER: u64 = u64::MAX;
}

/// A node of the cluster, as the others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Where it accepts connections of the other nodes.
    pub address: String,
    /// Where it accepts connections of clients.
    pub client_address: String,
}
