//! The simulation: whole servers in one thread, on simulated disks, clocks and connections. Lock
//! clients use them while faults happen that are drawn from a seed; judges check what the clients
//! saw. The same seed gives the same history.

#![forbid(unsafe_code)]

pub mod actors;
pub mod core;
pub mod defects;
pub mod events;
pub mod facts;
pub mod judge;
pub mod machine;
pub mod native;
pub mod operations;
pub mod plan;
pub mod run;
pub mod shrink;
pub mod trace;
