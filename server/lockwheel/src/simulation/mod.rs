//! A server without threads, sockets and clocks, for the simulation of `tests/simulation`: the
//! engine, the connections, the commit gate, the log, snapshots and the start are those of every
//! server; the simulation decides when each of them goes on.
//!
//! `machine` has the server; `clocks` are those of its machine, and `pipe` is a connection. `node`
//! joins it to a cluster, and begins one with a backup.

pub mod clocks;
mod machine;
mod node;
pub mod pipe;

pub use lockwheel_log as log;
pub use lockwheel_raft as raft;
pub use machine::{SimulatedServer, StartOptions};
pub(crate) use machine::{is_on, segment_bytes_max, takes_snapshot};
pub use node::{NodeOptions, begin_cluster_from};
