//! The lock compatibility suite: looks for behaviour that breaks locks in a server that speaks
//! Redis's protocol.
//!
//! It plays conversations with known replies ([`cases`]) for every command and script that lock
//! libraries send, and checks properties under contention from the replies that many clients
//! received. It needs only the address of the server under test, and uses no Lockwheel code.
//!
//! The command line is `lockwheel compat redis://host:port`. The tests of another server, or of a
//! fork, call the library:
//!
//! ```
//! use lockwheel::Server;
//! use lockwheel_compat::{Options, Suite};
//!
//! let server = Server::start()?; // or your own server: only its URL is needed
//! let mut options = Options::new(&server.url())?;
//! options.only = vec!["SET NX refuses".to_owned()]; // omit this line to run everything
//! options.allow_missing = true; // a missing command does not fail the run
//! let report = Suite::new(&options)?.run(&mut ())?;
//! assert!(report.is_green(), "{}", report.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Report`] holds a verdict for each case; [`Report::write`] formats it for people and programs.

#![forbid(unsafe_code)]

pub mod cases;
pub mod fuzz;
pub mod interrupt;
pub mod judge;
pub mod properties;
pub mod random;
pub mod recipes;
pub mod report;
mod suite;
pub mod time;
pub mod wire;
pub mod words;

pub use interrupt::Interrupt;
pub use report::{Failure, Outcome, Report, Verdict};
pub use suite::{Error, Options, Progress, QUICK_TIME_LIMIT, Suite, TIME_LIMIT, key_prefix_of_run};
pub use time::REPLY_TIMEOUT;
pub use wire::address::Address;
