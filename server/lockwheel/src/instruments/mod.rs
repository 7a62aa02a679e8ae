//! Control of a running server by a test in the same process. Clients do the same with the commands
//! of [`lockwheel_engine::commands::lockwheel`].

mod clock;
mod faults;
mod journal;

pub use clock::Clock;
pub(crate) use clock::since_epoch;
pub use faults::{Fault, FaultRule, Faults, Gate, Requests};
pub use journal::Journal;
