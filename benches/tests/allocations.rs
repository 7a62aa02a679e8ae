//! What is done for a lock allocates nothing but what is stored: the keyspace has its own blocks,
//! and everything else that is needed is there from the last time. Counted at the engine, for the
//! same operations as `benches/instructions.txt`.

use allocation_counter::measure;
use lockwheel_benches::operations::{TIMES, all};

/// What is answered with a list, or told to many, is made for that.
const MADE: &[(&str, u64)] = &[("redisson renew 100, plan", 1), ("publish to 16", 1)];

#[test]
fn a_lock_allocates_only_what_is_stored() {
    for operation in all() {
        let mut count = 0;
        operation.perform(|work| count += measure(work).count_total);
        let name = operation.name.as_str();
        if name.ends_with(", lua") {
            // Lua makes a text of its own of a key that it does not hold any more.
            let keys = if name.contains("100") { 100 } else { 1 };
            assert!(count <= TIMES * keys, "{name}: {count}");
        } else {
            let made = MADE.iter().find(|(known, _)| *known == name).map_or(0, |(_, made)| *made);
            assert_eq!(count, TIMES * made, "{name}");
        }
    }
}
