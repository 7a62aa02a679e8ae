//! Connections to servers, without any code of Lockwheel.
//!
//! An [`address::Address`] says where a server is, a [`Wire`] is a connection to it, and each reply
//! is a [`frame::Frame`]. A [`target::Target`] is a server with what it can do. Every wait has an
//! end: see [`Timeouts`].
//!
//! Begin with `connection.rs`.

pub mod address;
mod connection;
pub mod frame;
pub mod target;
#[cfg(feature = "tls")]
pub mod tls;

pub use connection::{Timeouts, Wire, request};
pub(crate) use connection::{describe, is_alert, is_end, is_no_reply, is_silence};
