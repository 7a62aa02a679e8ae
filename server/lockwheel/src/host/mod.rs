//! The engine behind its lock, and the work around each use of it.
//!
//! - `core` has the lock, and the order of this work. Begin here.
//! - `requests` runs requests; `delivery` passes their output on; `slow_script` serves other
//!   clients while a script runs for long.
//! - `files` reads files for requests.
//! - `log` passes units to the log, and has the restart guard; `leadership` asks a replicated log.
//! - `clock_orders` moves the clock of a server for tests.
//!
//! Rule: all code that uses the engine calls [`Host::with`].

mod clock_orders;
mod core;
mod delivery;
mod files;
#[cfg(test)]
mod gate_tests;
#[cfg(feature = "replication")]
mod leadership;
mod log;
mod requests;
pub(crate) mod runtime_files;
pub(crate) mod slow_script;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use core::{Failed, Host};
pub(crate) use delivery::{log_client, output_limit, warn_overrun};
pub(crate) use requests::Next;
