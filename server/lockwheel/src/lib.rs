//! Lockwheel is a lock server that speaks the Redis protocol. This crate runs the server inside
//! your program or test, on a free port. Redis clients and lock libraries work with it unmodified.
//!
//! # A first lock
//!
//! Start a server, take a lock for 30 seconds, and see a second client refused:
//!
//! ```
//! use lockwheel::{Reply, Server};
//!
//! let server = Server::start()?;
//! let taken = server.call(&["SET", "lock", "first client", "NX", "PX", "30000"])?;
//! assert_eq!(taken, Reply::OK);
//! let refused = server.call(&["SET", "lock", "second client", "NX", "PX", "30000"])?;
//! assert_eq!(refused, Reply::Null);
//!
//! println!("Redis clients connect to {}", server.url());
//! # Ok::<(), lockwheel::Error>(())
//! ```
//!
//! # Control of time
//!
//! A test can stop the server's clock and move it. Leases end on the millisecond, without waiting:
//!
//! ```
//! use std::time::Duration;
//!
//! use lockwheel::{Reply, Server};
//!
//! let server = Server::builder().frozen_clock().start()?;
//! server.call(&["SET", "lock", "token", "NX", "PX", "30000"])?;
//! server.advance(Duration::from_millis(29_999))?;
//! assert_eq!(server.call(&["GET", "lock"])?, Reply::bulk("token"));
//! server.advance(Duration::from_millis(1))?;
//! assert_eq!(server.call(&["GET", "lock"])?, Reply::Null);
//! # Ok::<(), lockwheel::Error>(())
//! ```
//!
//! # Where to find what
//!
//! - [`Server`] and [`Builder`] start, configure and stop a server.
//! - [`Client`] runs commands without a socket, from synchronous or asynchronous code. No runtime
//!   is needed: a call returns at once unless the command waits.
//! - [`Clock`] stops, moves and scales the server's clock.
//! - [`Faults`] delays, drops and fails requests of any client.
//! - [`Journal`] shows the locks that were taken and released, and asserts that no lock was held
//!   twice.

#![forbid(unsafe_code)]

mod bounded_file;
mod clock;
mod durability;
mod error;
mod host;
mod in_process;
mod instruments;
mod limits;
mod net;
mod process_usage;
#[cfg(feature = "replication")]
#[doc(hidden)]
pub mod replication;
mod seeds;
mod server;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod sync;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub mod tls;

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// Runs the examples of the page about testing as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
mod testing_page {}

/// Runs the examples of the page about running the server as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/running.md")]
mod running_page {}

pub use durability::time_of_log;
pub use error::{Error, ErrorKind};
pub use in_process::Client;
pub use instruments::{Clock, Fault, FaultRule, Faults, Gate, Journal, Requests};
pub use lockwheel_engine::instruments::journal::checks::{Check, CheckResult, Finding, LintRule};
pub use lockwheel_engine::instruments::journal::entry::{Entry as JournalEntry, JournalEvent};
pub use lockwheel_engine::locks::evidence::Confidence;
pub use lockwheel_engine::locks::{HeldLock, KnownLock, Shape};
pub use lockwheel_engine::settings::Settings;
pub use lockwheel_resp::Reply;
pub use server::{Builder, Server, share_descriptors};
