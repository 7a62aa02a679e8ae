//! The engine as its callers see it: one state machine, its inputs and its outputs.
//!
//! Invariant: the same inputs in the same order give the same outputs. [`inputs`] lists all of
//! them. Only this folder and the folders named in `tests/it/boundaries.rs` add methods to
//! [`Engine`]; handlers of commands reach it through `run::context::Context`.

mod core;
pub mod inputs;
mod users;

pub(crate) use core::Outcome;
pub use core::{Engine, Flow, Stats};
