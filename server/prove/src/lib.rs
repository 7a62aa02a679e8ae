//! Loads servers that speak the Redis protocol with lock clients while they fail, and judges
//! whether a lock was granted twice or lost early.
//!
//! A [`Target`] says where the servers are, a [`Plan`] what is done, and [`run`] returns a
//! [`Report`]. The command line is `lockwheel prove`. The judges are those of
//! `lockwheel-compat`; nothing here uses code of a server.
//!
//! Begin with `run.rs`.

#![forbid(unsafe_code)]

mod cause;
pub mod clock;
pub mod demo;
pub mod faults;
pub mod history_file;
mod ledger;
mod load;
mod lock_kind;
mod monitor;
mod record;
pub mod report;
mod route;
mod run;
mod target;

pub use cause::Cause;
pub use ledger::Ledger;
pub use lock_kind::{LOCK_KINDS, LockKind, REDLOCK};
pub use record::{Change, Fault, Observation, Record, ServerProcess};
pub use report::{Format, Report};
pub use run::{Plan, Progress, RATE, run};
pub use target::{Target, Topology};
