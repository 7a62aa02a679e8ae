//! Numbers of nodes and of entries, and the errors of the disk.

use lockwheel_log::Position;
use openraft::{LogId, StorageError, StorageIOError};

/// The number of a node. It is never used for another one.
pub type NodeId = u64;

/// Where an entry is in the log: entries count from 0 and units of the log from 1.
pub(crate) fn position(index: u64) -> Position {
    index + 1
}

/// The position after which there are entries, if the entries up to `log_id` were purged.
pub(crate) fn position_of(log_id: Option<LogId<NodeId>>) -> Position {
    log_id.map_or(0, |log_id| position(log_id.index))
}

/// An error of the disk, after which the node must stop.
#[expect(clippy::needless_pass_by_value, reason = "it is an argument of `map_err`")]
pub(crate) fn storage_error(error: std::io::Error) -> StorageError<NodeId> {
    StorageIOError::write(&error).into()
}
