//! The file of a snapshot on its way between nodes.

use lockwheel_log::replicated::ReceivedSnapshot;
use lockwheel_log::{DiskFile, Position};

/// A snapshot that is sent or received.
#[derive(Debug)]
pub enum SnapshotFile {
    /// Nothing is known of it yet.
    Expected,
    /// Its file is being received.
    Received(ReceivedSnapshot),
    /// It is one of this node.
    Complete {
        /// The position whose state it contains.
        position: Position,
        /// Its file.
        file: Box<dyn DiskFile>,
    },
}
