//! Cases: conversations with known replies, as text beside the code (`*.txt`, `scripts/*.lua`).
//!
//! [`case`] documents the language and reads it, [`pattern`] compares a reply with a line of a
//! case, and [`player`] plays a case on a server. [`wrapping`] sends its commands inside `MULTI` or
//! a script instead, [`tidy`] removes what a case leaves behind, and [`record`] writes a server's
//! replies into a case. `cause.rs` names the kind of a failure.
//!
//! A case refers to keys by `<name>`, so that cases never share a key. Begin with `case.rs`.

pub mod case;
pub(crate) mod cause;
mod files;
pub mod pattern;
pub mod player;
pub mod record;
pub mod tidy;
pub mod wrapping;

pub(crate) use files::parsed;
pub use files::{FILES, SCRIPTS, all, is_quick, script};
