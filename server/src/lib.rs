//! Leasehold: a lock server that speaks Redis, for embedding and as a daemon.

pub mod config;
pub mod engine;
