//! The access frequency of keys under an LFU policy, counted as in Redis: a logarithmic counter of
//! eight bits, which decays with time, and the minute at which it was last changed, in sixteen
//! bits. Under other policies the same bits hold the time of last use.

use super::dict::Slot;
use super::records::Records;
use crate::random::Random;
use crate::timing::time::Millis;

/// The counter of a new key, so that it is not the least used one at once.
pub(super) const INITIAL: u8 = 5;
const COUNTER_BITS: u32 = 8;
const MINUTE_MASK: u64 = 0xFFFF;

/// Counts uses of keys.
#[derive(Debug)]
pub struct AccessCounter {
    /// `lfu-log-factor`: a greater factor counts more slowly.
    log_factor: u32,
    /// `lfu-decay-time`: the minutes after which the counter is decremented; 0 for never.
    decay_minutes: u32,
    random: Random,
}

impl AccessCounter {
    /// A counter with these directives.
    pub fn new(log_factor: u32, decay_minutes: u32, random: Random) -> AccessCounter {
        AccessCounter { log_factor, decay_minutes, random }
    }

    /// The frequency that is shown of a key with these bits.
    pub fn frequency(&self, usage: u64, now: Millis) -> u8 {
        let counter = usage as u8;
        let passed = minute(now).wrapping_sub(usage >> COUNTER_BITS) & MINUTE_MASK;
        let periods = passed.checked_div(u64::from(self.decay_minutes)).unwrap_or(0);
        counter.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// Counts a use of a key.
    #[cold]
    pub(super) fn count_use(&mut self, records: &mut Records, slot: Slot, now: Millis) {
        let counter = self.frequency(records.usage(slot), now);
        let counter = if self.is_counted(counter) { counter + 1 } else { counter };
        records.set_usage(slot, usage(counter, now));
    }

    /// Whether one more use increments this counter: always up to its initial value, then less and
    /// less often.
    fn is_counted(&mut self, counter: u8) -> bool {
        if counter == u8::MAX {
            return false;
        }
        let above = u64::from(counter.saturating_sub(INITIAL));
        let one_in = above * u64::from(self.log_factor) + 1;
        one_in == 1 || self.random.below(usize::try_from(one_in).unwrap_or(usize::MAX)) == 0
    }
}

/// The bits of a key with this counter.
pub(super) fn usage(counter: u8, now: Millis) -> u64 {
    minute(now) << COUNTER_BITS | u64::from(counter)
}

fn minute(now: Millis) -> u64 {
    now.0.div_euclid(60_000).cast_unsigned() & MINUTE_MASK
}
