//! The lock compatibility suite: whether a server that speaks Redis's protocol is safe for locks.
//!
//! Conversations with known answers ([`case`]), for every command and script that lock libraries
//! send, and properties under contention, judged from what many clients saw. It knows of the
//! server under test nothing but an address, and nothing of our own: it would judge us as anybody.
//!
//! On the command line it is `lockwheel compat redis://host:port`. The tests of another server, or
//! of a fork, call it as a library:
//!
//! ```
//! use lockwheel::Server;
//! use lockwheel_compat::{Options, Suite};
//!
//! let server = Server::start()?; // or yours: all that is needed is its URL
//! let mut options = Options::new(&server.url())?;
//! options.only = vec!["SET NX refuses".to_owned()]; // leave this out to try everything
//! options.allow_missing = true; // lacking commands do not fail the run
//! let report = Suite::new(&options)?.run(&mut ())?;
//! assert!(report.is_green(), "{}", report.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Report`] holds the verdicts, case by case; [`Report::write`] writes it for people and
//! programs.

#![forbid(unsafe_code)]

pub mod address;
pub mod case;
pub mod cases;
pub mod frame;
pub mod fuzz;
pub mod history;
pub mod interrupt;
pub mod judge;
pub mod pattern;
pub mod properties;
pub mod random;
pub mod record;
pub mod reference;
pub mod report;
pub mod stage;
mod suite;
pub mod target;
pub mod tidy;
pub mod time;
pub mod wire;
pub mod words;

use std::time::Duration;

pub use address::Address;
pub use interrupt::Interrupt;
pub use report::{Failure, Outcome, Report, Verdict};
pub use suite::{Error, Options, Progress, Suite, UNTRIED, key_prefix_of_run};

/// How long a reply may take before a case fails: far more than any needs, so that a loaded
/// machine fails nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);
