//! Demos: servers on this machine, which are broken in the way that their name says.
//!
//! [`start`] starts the servers of a [`Demo`] on free ports and in a temporary folder. The source
//! of faults owns them: when it is dropped, they end and the folder is removed. The public modules
//! are also for other programs that break servers.
//!
//! Begin with `restarts.rs`.

pub mod failovers;
mod kind;
pub mod lockwheel_cluster;
pub mod place;
pub mod ports;
pub mod program;
mod redis;
pub mod redis_sentinel;
mod redlock_clock;
mod restarts;
mod started;

pub use kind::Demo;
use started::target;
pub use started::{DemoRun, start};
