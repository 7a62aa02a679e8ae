//! Lock objects for the native locks of a Lockwheel server (`LOCK.*`), over redis-rs.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod blocking;
mod error;
mod lock;
mod options;

pub use error::LockError;
pub use lock::{Guard, Lock};
pub use options::Options;
