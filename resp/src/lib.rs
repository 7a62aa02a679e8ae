//! The Redis wire format, RESP2 and RESP3: parses requests and encodes replies, and the reverse for
//! clients.
//!
//! Architecture invariant: this crate does no I/O and depends on no command, no server and no Lua.

#![forbid(unsafe_code)]

pub mod decode;
pub mod encode;
pub mod long_double;
pub mod number;
pub mod parse;
pub mod peek;
pub mod reply;
pub mod words;

pub use decode::{DecodeError, decode};
pub use encode::{encode, encode_push, encode_request};
pub use long_double::LongDouble;
pub use number::{format_double, parse_double, parse_integer};
pub use parse::{Limits, Parser, ProtocolError};
pub use reply::{Protocol, Reply};
