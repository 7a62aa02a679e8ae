//! The Redis wire format: requests in, replies out, RESP2 and RESP3.
//!
//! Architecture invariant: this crate does no I/O, knows no command, no server and no Lua.

#![forbid(unsafe_code)]

pub mod decode;
pub mod encode;
pub mod long_double;
pub mod number;
pub mod parse;
pub mod peek;
pub mod reply;

pub use decode::{DecodeError, decode};
pub use encode::{encode, encode_push, encode_request};
pub use long_double::LongDouble;
pub use number::{format_double, parse_double, parse_integer};
pub use parse::{Limits, Parser, ProtocolError};
pub use reply::{Protocol, Reply};
