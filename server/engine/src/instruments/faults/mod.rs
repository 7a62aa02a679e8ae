//! Fault injection for tests: rules that make requests fail, and gates that hold clients so that a
//! test can produce a race.
//!
//! `injection` applies rules before the engine's own gates; `rule` is a rule; `writes` keeps writes
//! back.
//!
//! Rule: `LOCKWHEEL` commands are exempt from all rules.

mod injection;
pub mod rule;
pub mod writes;

pub use injection::Faults;
