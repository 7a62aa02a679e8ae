//! The lock compatibility suite: whether a server that speaks Redis's protocol is safe for locks.
//!
//! Conversations with known answers ([`case`]), for every command and script that lock libraries
//! send, and properties under contention, judged from what many clients saw. It knows of the
//! server under test nothing but an address, and nothing of our own: it would judge us as anybody.
//!
//! ```no_run
//! use leasehold::compat::{Options, Suite};
//!
//! let options = Options::new("redis://127.0.0.1:6379")?;
//! let report = Suite::new(&options)?.run(&mut ())?;
//! assert!(report.is_green(), "{report:?}");
//! # Ok::<(), leasehold::compat::Error>(())
//! ```

pub mod address;
pub mod case;
pub mod cases;
pub mod frame;
pub mod interrupt;
pub mod pattern;
pub mod properties;
pub mod random;
pub mod record;
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
pub use suite::{Error, Options, Progress, Suite};

/// How long a reply may take before a case fails: far more than any needs, so that a loaded
/// machine fails nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);
