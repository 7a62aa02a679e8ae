//! Lockwheel: a lock server that speaks Redis, for embedding and as a daemon.
//!
//! Start one inside a program or a test, on a free port, and point any Redis client at it:
//!
//! ```
//! let server = lockwheel::Server::start()?;
//! println!("connect to {}", server.url());
//! # Ok::<(), lockwheel::Error>(())
//! ```
//!
//! Stop its clock, and move it:
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
//! No asynchronous runtime is needed, and none is in the way: every call here returns at once
//! unless the command it runs waits.

#![forbid(unsafe_code)]

mod client;
mod clock;
mod control;
mod error;
pub mod limits;
mod listen_settings;
mod net;
mod server;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// So are those of the page about testing.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
mod testing_page {}

/// So are those of the page about running it.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/running.md")]
mod running_page {}

pub use client::Client;
pub use control::{Clock, Fault, FaultRule, Faults, Gate, Journal, Requests};
pub use error::{Error, ErrorKind};
pub use lockwheel_engine::journal::HeldLock;
pub use lockwheel_engine::journal::checks::{Check, CheckResult, Finding, LintRule};
pub use lockwheel_engine::journal::entry::{Entry as JournalEntry, JournalEvent};
pub use lockwheel_engine::settings::Settings;
pub use lockwheel_resp::Reply;
pub use server::{Builder, Server};
