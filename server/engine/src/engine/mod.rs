//! The engine as its callers see it: one state machine, its inputs and its outputs.
//!
//! - `inputs` lists all inputs and outputs. Begin here.
//! - `core` has the parts of the engine; `requests` runs a request; `clients` has those that come
//!   and go, `users` what they may do; `expiry` ends leases, `locks` holds of native locks;
//!   `settings` changes directives; `files` has requests that need files; `counts` has the
//!   counters of `INFO`.
//!
//! Rule: the same inputs in the same order give the same outputs.

mod clients;
mod core;
mod counts;
mod expiry;
pub mod files;
pub mod inputs;
mod locks;
mod requests;
mod settings;
mod users;

pub use core::Engine;
pub use counts::Stats;
pub use requests::Flow;
pub(crate) use requests::RequestOutcome;
