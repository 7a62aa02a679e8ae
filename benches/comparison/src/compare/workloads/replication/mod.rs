//! Cycles of locks on three nodes that replicate, beside one durable node: Lockwheel, etcd, and
//! Redis with two replicas and `WAIT`.
//!
//! Begin with `cycle.rs`; `cluster.rs` starts the nodes, `clients.rs` loads them.

mod clients;
mod cluster;
mod cycle;
mod etcd;

pub(crate) use cluster::servers;
pub(crate) use cycle::all;
