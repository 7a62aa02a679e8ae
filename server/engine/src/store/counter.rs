//! Counters of what happens with every command.

/// Adds one to a counter, without the check for an overflow: 64 bits last for centuries.
#[inline(always)]
pub(crate) fn increment(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
