//! What is on disk before it is seen.
//!
//! - `log` is the interface of a log; `file_log` writes it to files, and `ceiling_file` the lease
//!   ceiling of a server that runs. Begin here.
//! - `commit_gate` holds output back until the log has released what it depends on; `dependencies`
//!   says how much of a queue that is.
//! - `restored` is what a start finds; `restart_guard` decides for how long leases from before it
//!   may still be held.
//! - `redis_files` warns of files that this server does not read.
//! - `snapshots` writes snapshots; `disk_watch` watches the free space.
//!
//! Rule: output that shows a change waits until the log has released the change's unit.

mod ceiling_file;
pub(crate) mod commit_gate;
pub(crate) mod dependencies;
pub(crate) mod disk_watch;
mod file_log;
mod log;
mod redis_files;
pub(crate) mod restart_guard;
mod restored;
pub(crate) mod snapshots;

pub(crate) use file_log::FileLog;
pub(crate) use log::{Log, LogOwner, LogSizes, directory};
pub(crate) use redis_files::warn_of_redis_files;
pub use restored::time_of_log;
pub(crate) use restored::{OpenFiles, Restored};
