//! A place in the log, and the state that the entries up to it have led to.

use bytes::Bytes;
use lockwheel_defects::defect;
use lockwheel_log::Position;
use openraft::{Entry, EntryPayload, LogId, SnapshotMeta, StoredMembership};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::batch::{Batch, Peer, Types};
use crate::types::{NodeId, position_of};

/// A restart guard of the cluster, for leases that the log lacks: no leader grants anything before
/// their end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// When the last one ends in log time, in milliseconds.
    pub until_ms: i64,
    /// Reason why such leases may be held.
    pub reason: String,
}

/// A place in the log: the first part of each snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogPlace {
    pub(crate) last: Option<LogId<NodeId>>,
    pub(crate) membership: StoredMembership<NodeId, Peer>,
    /// The barrier of the leader whose batches have effects.
    pub(crate) barrier: u64,
    pub(crate) lease_ms: i64,
    /// The guard with which the cluster has begun, until it is over: each snapshot has it, and no
    /// entry, since the log of such a cluster begins with a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guard: Option<Guard>,
    /// What has been passed of a divided batch.
    #[serde(skip)]
    pub(crate) parts: Option<Parts>,
}

/// The first parts of a divided batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The place before the first one.
    begin: Box<LogPlace>,
    effects: Vec<u8>,
}

impl LogPlace {
    pub(crate) fn position(&self) -> Position {
        position_of(self.last)
    }

    pub(crate) fn meta(&self) -> SnapshotMeta<NodeId, Peer> {
        SnapshotMeta {
            last_log_id: self.last,
            last_membership: self.membership.clone(),
            snapshot_id: self.position().to_string(),
        }
    }

    /// The last place that is not within a divided batch. The state is the same, and the entries
    /// after it have all parts of that batch.
    pub(crate) fn whole(&self) -> LogPlace {
        match &self.parts {
            Some(parts) if !defect!(RaftSnapshotWithinABatch) => LogPlace::clone(&parts.begin),
            _ => LogPlace { parts: None, ..self.clone() },
        }
    }

    /// Moves the place behind this entry; returns the batch that has effects now, whole.
    pub(crate) fn pass(&mut self, entry: &Entry<Types>) -> Option<Batch> {
        let begins = matches!(&entry.payload, EntryPayload::Normal(batch) if batch.begins());
        let begin = begins.then(|| Box::new(self.whole()));
        self.last = Some(entry.log_id);
        let batch = self.pass_payload(entry, begin);
        self.guard.take_if(|guard| guard.until_ms <= self.lease_ms);
        batch
    }

    fn pass_payload(
        &mut self,
        entry: &Entry<Types>,
        begin: Option<Box<LogPlace>>,
    ) -> Option<Batch> {
        match &entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(self.last, membership.clone());
                None
            }
            EntryPayload::Normal(batch) if batch.is_barrier() => {
                self.barrier = entry.log_id.index;
                self.lease_ms = self.lease_ms.max(batch.lease_ms);
                self.parts = None;
                None
            }
            EntryPayload::Normal(batch) => {
                let has_effects =
                    batch.barrier == self.barrier || defect!(RaftBatchesOfEarlierLeadersApplied);
                if !has_effects {
                    return None;
                }
                self.lease_ms = self.lease_ms.max(batch.lease_ms);
                self.pass_batch(batch, begin)
            }
        }
    }

    /// Collects the parts of a divided batch; returns a batch that is complete.
    fn pass_batch(&mut self, batch: &Batch, begin: Option<Box<LogPlace>>) -> Option<Batch> {
        let passed = self.parts.as_ref().map_or(0, |parts| parts.effects.len() as u64);
        if batch.before != passed {
            // The leader has stopped within a batch, and what follows may depend on that.
            warn!("a part of a batch is missing: later ones of its leader have no effect");
            (self.barrier, self.parts) = (Batch::IS_BARRIER, None);
            return None;
        }
        if batch.is_whole() {
            return Some(batch.clone());
        }
        let parts = self.parts.take().or(begin.map(|begin| Parts { begin, effects: Vec::new() }));
        let Parts { begin, mut effects } = parts?;
        effects.extend_from_slice(&batch.effects);
        if batch.after > 0 {
            self.parts = Some(Parts { begin, effects });
            return None;
        }
        Some(Batch { effects: Bytes::from(effects), before: 0, ..batch.clone() })
    }
}
