//! Time: instants and spans, and the wheel that gives deadlines back in order.
//!
//! - `time` defines the two clocks, the lease clock and the wall clock.
//! - `wheel` is the timer wheel; keys of a database are in one, `timers` has another for clients.
//!
//! Rule: time is an argument; no code reads a clock.

pub mod time;
pub mod timers;
pub mod wheel;
