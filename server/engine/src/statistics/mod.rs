//! Figures for `INFO` and its like: counters, rates, times of commands and estimates of memory.
//!
//! Rule: nothing here decides what a command does; `memory` alone is also used for limits.

pub mod latency;
pub mod memory;
pub mod rates;
pub(crate) mod slow_log;
