//! The workloads: what is measured on each server in turn.
//!
//! [`workload`] is the interface, [`list`] names them by family. A file has the workloads of one
//! group; [`durable`] those with a log that is flushed before each reply, [`replication`] those on
//! three nodes. A workload starts the server, measures it and ends it; an unexpected reply is an
//! error.
//!
//! Begin with `cycles.rs`.

pub(crate) mod cycles;
pub(crate) mod durable;
pub(crate) mod expiry;
pub(crate) mod handoff;
pub(crate) mod latency;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod native_handoff;
pub(crate) mod replication;
pub(crate) mod scale;
pub(crate) mod start;
pub(crate) mod watchdog;
pub(crate) mod workload;
