//! Judges of histories: check whether correct locks can have given the answers of a history.
//!
//! A [`history`] consists of the requests of clients with their times and answers; [`Rules`] say
//! what the lock promises. [`entitlement`] proves single violations without false alarms: it
//! derives the holds of each client (`holds.rs`) and compares them. [`linear`] checks whether the
//! history is linearizable with the model of a correct lock in [`lock`]. [`operations`] writes a
//! history for judges that are other programs.
//!
//! A judge concludes nothing from the speed of a machine. Begin with `entitlement.rs`.

pub mod entitlement;
pub mod history;
mod holds;
#[cfg(test)]
mod known;
pub mod linear;
pub mod lock;
pub mod operations;
mod rules;
mod violation;

pub use rules::Rules;
pub use violation::{Violation, ViolationKind};
