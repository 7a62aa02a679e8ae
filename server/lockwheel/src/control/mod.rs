//! What a test does to a running server, from the same process. Over the wire the same is done by
//! the commands of [`lockwheel_engine::commands::lockwheel`].

mod clock;
mod faults;
mod journal;

pub use clock::Clock;
pub(crate) use clock::since_epoch;
pub use faults::{Fault, FaultRule, Faults, Gate, Requests};
pub use journal::Journal;
