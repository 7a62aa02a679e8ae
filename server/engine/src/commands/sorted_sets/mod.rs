//! The commands for sorted sets: `members` for single members, `ranges` for parts of a set,
//! `algebra` for several sets.

pub mod algebra;
pub mod members;
pub mod ranges;
