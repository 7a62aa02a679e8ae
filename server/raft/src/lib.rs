//! Replicates the log of a server to other machines by Raft, with `openraft`.
//!
//! One entry of the Raft log is one [`Batch`]: the effects of some units of the leader's engine. A
//! batch is durable on this machine before this machine acknowledges it, and *committed* when a
//! majority of the machines has it. The files are those of `lockwheel_log`: each entry is a frame.
//!
//! The engine is behind the trait [`State`]. On a follower it has the effects of the committed
//! entries. On a leader it is ahead of them: it has executed what is not committed yet. When a
//! leader steps down, its state is rebuilt from the snapshot and the committed entries.

mod batch;
mod contact;
mod doubt;
mod elections;
mod handover;
mod import;
mod limits;
mod log_store;
mod membership;
mod network;
mod node;
mod pace;
mod place;
mod promises;
mod reads;
mod rounds;
mod runtime;
mod snapshot_file;
mod state_machine;
mod types;
mod vote;
mod wire;

pub use batch::{Batch, JoinToken, Peer, Types};
pub use import::{Contents, OfNode, begin_with, read_log};
pub use log_store::{LogReader, LogStore, WritesOn};
pub use membership::{Members, MembershipError, NodeStatus, Status};
pub use network::{Connect, Connecting};
pub use node::{Failure, LostLog, Node, Role, Settings};
pub use place::Guard;
pub use reads::Reads;
pub use rounds::{MOMENT_NAMES, MOMENTS, RoundTotals, Rounds};
#[cfg(feature = "simulation")]
pub use runtime::set_seed;
pub use snapshot_file::SnapshotFile;
pub use state_machine::{SnapshotBuilder, SnapshotParts, State, StateMachine, blocking};
pub use types::NodeId;
pub use wire::{Stream, receive, refuse, send};

pub use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
