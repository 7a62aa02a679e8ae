//! A cluster that begins with the state of a log: that of a single server, or of a node of another
//! cluster.
//!
//! The new log begins with a snapshot, which only its first node has: all others get it from there,
//! with the guard that it may contain.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use lockwheel_log::Disk;
use lockwheel_log::files::{Clocks, Files, Snapshot};
use lockwheel_log::recovery::{Recovered, RecoveryError, recover};
use openraft::{CommittedLeaderId, Entry, LogId, Membership, StoredMembership, Vote};

use crate::batch::{Peer, Types};
use crate::log_store::{Stored, decode, encode};
use crate::place::{Guard, LogPlace};
use crate::types::NodeId;
use crate::vote;

/// The term of the snapshot with which a log begins.
const FIRST_TERM: u64 = 1;

/// The index of that snapshot. Entries that follow have greater ones.
const FIRST_INDEX: u64 = 1;

/// What a log contains.
#[derive(Clone, Debug)]
pub struct Contents {
    /// What was read.
    pub recovered: Recovered,
    /// The lease clock at its end, in milliseconds.
    pub lease_ms: i64,
    /// What only the log of a node has.
    pub of_node: Option<OfNode>,
}

/// What only the log of a node has.
#[derive(Clone, Debug, Default)]
pub struct OfNode {
    /// The index of its last entry.
    pub last_index: u64,
    /// A guard that is not over.
    pub guard: Option<Guard>,
}

/// Reads a log, which must not be in use, and calls `apply` with the effects in it and the time
/// after each, in milliseconds; of a node, also with those that are not known to be committed:
/// clients may have been notified of them. `None` if there is no log. Changes nothing on the disk.
///
/// # Errors
/// As [`recover`].
pub fn read_log(
    disk: &dyn Disk,
    mut apply: impl FnMut(&[u8], i64) -> Result<(), String>,
) -> Result<Option<Contents>, RecoveryError> {
    let of_vote = |error| RecoveryError::Io { file: "vote".into(), error };
    let mut place = vote::read(disk).map_err(of_vote)?.map(|_| LogPlace::default());
    let mut has_place = false;
    let recovered = recover(disk, |effects| match &mut place {
        None => apply(effects.bytes, effects.lease_ms),
        Some(place) if effects.is_snapshot && !has_place => {
            (*place, has_place) = (decode(effects.bytes)?, true);
            Ok(())
        }
        Some(_) if effects.is_snapshot => apply(effects.bytes, effects.lease_ms),
        Some(place) => {
            let Stored::<Entry<Types>> { entry, .. } = decode(effects.bytes)?;
            place.pass(&entry).map_or(Ok(()), |batch| apply(&batch.effects, batch.lease_ms))
        }
    })?;
    if recovered.snapshot.is_none() && recovered.segments.is_empty() {
        return Ok(None);
    }
    let of_server = recovered.time.map_or(0, |time| time.lease_ms);
    let lease_ms = place.as_ref().map_or(of_server, |place| place.lease_ms);
    let of_node = place.map(|place| OfNode {
        last_index: place.last.map_or(0, |last| last.index),
        guard: place.guard,
    });
    Ok(Some(Contents { recovered, lease_ms, of_node }))
}

/// Writes the log of a new cluster, of which `node` is the only one, to an empty disk. It begins
/// with the state that `write` writes, at this time in milliseconds.
///
/// # Errors
/// As the disk and `write` return them: what is on the disk cannot be used.
pub fn begin_with(
    disk: &Arc<dyn Disk>,
    (node, peer): (NodeId, Peer),
    lease_ms: i64,
    guard: Option<Guard>,
    write: impl FnOnce(&mut Snapshot) -> io::Result<()>,
) -> io::Result<()> {
    let last = Some(LogId::new(CommittedLeaderId::new(FIRST_TERM, node), FIRST_INDEX));
    let membership = Membership::new(vec![BTreeSet::from([node])], BTreeMap::from([(node, peer)]));
    let membership = StoredMembership::new(last, membership);
    let place = LogPlace { last, membership, barrier: FIRST_INDEX, lease_ms, guard, parts: None };
    let clocks = Clocks { lease_ms, ..Clocks::default() };
    let opened = Files::open(Arc::clone(disk), [0; 16], |_| Ok(()), |_| Ok(clocks));
    let (mut files, _) = opened.map_err(io::Error::other)?;
    let mut snapshot = files.begin_snapshot_at(place.position(), clocks)?;
    snapshot.write(&encode(&place)?)?;
    write(&mut snapshot)?;
    snapshot.finish()?;
    files.go_on_after(place.position(), clocks)?.remove()?;
    vote::write(&**disk, &Vote::new_committed(FIRST_TERM, node))
}
