//! The Redis wire format: requests in, replies out, RESP2 and RESP3.
//!
//! Architecture invariant: this crate does no I/O, knows no command, no server and no Lua.

#![forbid(unsafe_code)]

pub mod reply;

pub use reply::{Protocol, Reply};
