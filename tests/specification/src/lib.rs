//! The part of replication that is not Raft: which node may grant locks, and when.
//!
//! (to be written)

pub mod rules;
pub mod state;
