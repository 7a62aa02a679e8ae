//! The part of replication that is not Raft, as a model whose states are all checked.

mod bounds;
mod check;
mod defects;
mod log;
mod rules;
mod state;

pub use bounds::{Bounds, Step};
pub use check::{Checked, Violation, check};
pub use defects::Defect;
