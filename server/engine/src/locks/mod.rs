//! Recognises locks by what commands do to keys, whichever library sends them.
//!
//! - `known` has what is shown of a lock, and how a lock is recognised. Begin here.
//! - `recognise` compares a command's keys before and after it; `table` has the locks found so far.
//! - `kinds`, `words` and `evidence` decide whether a key is a lock; `meaning` is what a row says.
//! - `script` has the purposes of scripts; `view` is the lock view of a server in production.
//!
//! Rule: nothing here changes a key. `docs/recognition.md` has the rule by which a key is a lock.

pub mod evidence;
pub(crate) mod kinds;
mod known;
pub(crate) mod meaning;
pub(crate) mod recognise;
pub(crate) mod script;
pub(crate) mod table;
pub mod view;
#[cfg(test)]
mod view_tests;
mod words;

pub(crate) use known::text;
pub use known::{HeldLock, KnownLock, Shape};
