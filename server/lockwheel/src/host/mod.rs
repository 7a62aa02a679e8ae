//! The engine behind its lock, and the work around each use of it: units go to the log, output to
//! connections, orders to the clock.
//!
//! Rule: a thread that has used the engine does this work before the lock is released. Use
//! [`Host::with`], which does it.

mod core;
#[cfg(test)]
mod gate_tests;
pub(crate) mod slow_script;

pub(crate) use core::{Failed, Host, Next, log_client, output_limit, warn_overrun};
