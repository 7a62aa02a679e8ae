//! Counts the engine's allocations for the operations of `benches/counts.txt`. An operation
//! allocates only for data that it stores: the keyspace has its own blocks, and all other buffers
//! are reused.

use allocation_counter::measure;
use lockwheel_benches::operations::{REPETITIONS, all};

/// Allocations of operations that build a list or a message to several subscribers.
const EXPECTED: &[(&str, u64)] = &[("redisson renew 100, plan", 1), ("publish to 16", 1)];

#[test]
fn operations_allocate_only_for_stored_data() {
    for operation in all() {
        let mut count = 0;
        operation.perform(|work| count += measure(work).count_total);
        let name = operation.name.as_str();
        if name.ends_with(", lua") {
            // Lua creates a new string for a key after collecting its old string.
            let keys = if name.contains("100") { 100 } else { 1 };
            assert!(count <= REPETITIONS * keys, "{name}: {count}");
        } else {
            let expected = EXPECTED.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
            assert_eq!(count, REPETITIONS * expected, "{name}");
        }
    }
}
