//! Instruments of servers started for tests: fault rules, the journal and the shadow. The engine of
//! another server has none, and tests for that once in a request.
//!
//! `set` has all of them; `reset` returns a server to its start; `shadow` is a second engine that
//! receives the effects of the first one and must be equal to it.

pub mod faults;
pub mod journal;
mod reset;
mod set;
pub mod shadow;

pub(crate) use set::Instruments;
