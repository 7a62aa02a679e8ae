//! How a command runs: its row is found, the gates decide, the handler runs and its effects are
//! observed.
//!
//! - `dispatch` is the way of a request, of a call by a script and of a waiting client that is
//!   served. Begin here.
//! - `gates` is the table of checks before a command, in Redis's order; `growth` is the gate that
//!   refuses what needs more memory or space.
//! - `context` is what a handler sees of the engine; `replies` has the memory of its reply.
//! - `script` runs scripts and functions; `look_ahead` prefetches what the next requests need.
//!
//! Rule: every command passes the gates, whichever way it comes.

pub mod context;
pub mod dispatch;
pub mod gates;
pub(crate) mod growth;
mod look_ahead;
pub mod replies;
pub mod script;
