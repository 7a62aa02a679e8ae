//! Leasehold: a lock server that speaks Redis, for embedding and as a daemon.

#![forbid(unsafe_code)]

pub mod config;
pub mod engine;
pub mod limits;
