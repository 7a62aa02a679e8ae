//! The engine: one synchronous, deterministic state machine.

pub mod time;
pub mod wheel;
