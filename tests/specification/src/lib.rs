//! The part of replication that is not Raft, as a model whose states are all checked.
//!
//! `docs/specification.md` describes it. `state` has the nodes and what clients know, `rules` the
//! steps and the invariants, `bounds` the limits within which all states are checked, and `check`
//! the call of the checker. Begin with `rules`.
//!
//! `stateright` checks it. The smallest version had the same 12,418 states in `tla-checker` 0.24,
//! which computed 3,600 of them per second, and `stateright` 500,000. `tla-checker` also brings 130
//! crates and is built in minutes, while `stateright` brings eight that are new here.

mod bounds;
#[cfg(feature = "check")]
mod check;
mod defects;
mod follow;
mod log;
mod rules;
mod state;
pub mod trace;

pub use bounds::{Bounds, Step};
#[cfg(feature = "check")]
pub use check::{Checked, Violation, check};
pub use defects::Defect;
pub use follow::{Followed, Refusal, follow};
