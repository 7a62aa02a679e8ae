//! The engine: one synchronous, deterministic state machine. It is the whole lock server without
//! its sockets.
//!
//! Time, randomness and input are arguments; the caller collects the output. The same calls with
//! the same arguments give the same bytes.
//!
//! Invariant: no code in this crate uses the network, a clock, a file, a thread or the system's
//! entropy.

#![forbid(unsafe_code)]

pub mod acl;
pub mod command;
pub mod commands;
pub mod durability;
pub mod engine;
pub mod error;
pub mod glob;
pub mod instruments;
pub mod limits;
pub mod locks;
pub mod random;
pub mod replication;
pub mod run;
pub mod sessions;
pub mod settings;
pub mod statistics;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
pub mod timing;

pub(crate) use engine::RequestOutcome;
pub use engine::{Engine, Flow, Stats};
pub use sessions::deliveries::Delivery;
