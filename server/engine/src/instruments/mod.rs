//! Instruments of servers started for tests: fault rules and the journal.

pub mod faults;
pub mod journal;
