//! Positions of the log.

/// The number of a unit, counted from 1; 0 is the position before the first one.
pub type Position = u64;
