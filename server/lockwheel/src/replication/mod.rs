//! A server that is a node of a cluster: its log is replicated by `lockwheel_raft`.
//!
//! - `cluster_node` starts and ends a node, and `setup` makes a new one. Begin here.
//! - `raft_log` is the log of a server that leads; `node_state` passes committed entries to the
//!   engine; `held` confirms how recent the state is, for reads that the engine holds.
//! - `identity`, `keys`, `authority` and `token` say which node another one is; `membership`,
//!   `known_nodes` and `peers` let nodes in; `shown_nodes` shows them to clients.
//! - `import` begins a cluster with the log of a server.
//!
//! Rule: units are replicated only while this server leads, and end with its leadership.

mod authority;
mod cluster_node;
mod held;
mod identity;
mod import;
mod keys;
mod known_nodes;
mod membership;
mod node_state;
mod peers;
mod raft_log;
mod settings;
mod setup;
mod shown_nodes;
mod token;

pub(crate) use cluster_node::Replication;
#[cfg(feature = "simulation")]
pub(crate) use cluster_node::join;
#[cfg(feature = "simulation")]
pub(crate) use import::ImportedState;
pub use import::Taken;
pub use lockwheel_raft::{NodeStatus, Status};
#[cfg(feature = "simulation")]
pub(crate) use node_state::NodeState;
pub(crate) use raft_log::RaftLog;
pub(crate) use settings::NodeSettings;
pub use setup::{
    begin_cluster, begin_cluster_from, has_node, join_cluster, lead, lost_voters, new_token,
    remove_node, status,
};
