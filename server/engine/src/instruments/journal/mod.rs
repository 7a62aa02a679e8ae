//! The journal of a server for tests: requests and the changes of locks, in time order.
//!
//! `recorder` records them; `entry` is what is recorded; `checks` looks for violations.
//!
//! Rule: the journal changes nothing.

pub mod checks;
pub mod entry;
mod recorder;
#[cfg(test)]
mod tests;

pub(crate) use recorder::Record;
pub use recorder::{Journal, Selection};
