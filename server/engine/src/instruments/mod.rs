//! Instruments of servers started for tests: fault rules, the journal and the shadow.

pub mod faults;
pub mod journal;
pub mod shadow;
