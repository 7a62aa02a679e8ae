//! Counts the engine's allocations for the operations of `benches/counts.txt`. An operation
//! allocates only for data that it stores: the keyspace has its own blocks, and all other buffers
//! are reused.

use allocation_counter::measure;
use lockwheel_benches::operations::{REPETITIONS, all};

/// Allocations of operations that build a list or a message to several subscribers.
const EXPECTED: &[(&str, u64)] = &[("redisson renew 100, plan", 1), ("publish to 16", 1)];

/// How often Lua runs a script as well, to be compared with its plan: once in 1,024 times. It
/// allocates up to ten times for each key then, and fifteen times besides.
const COMPARED: u64 = REPETITIONS / 1024;

#[test]
fn operations_allocate_only_for_stored_data() {
    for operation in all() {
        let mut count = 0;
        operation.perform(|work| count += measure(work).count_total);
        let name = operation.name.as_str();
        let keys = if name.contains("100") { 100 } else { 1 };
        if name.ends_with(", lua") {
            // Lua creates a new string for a key after collecting its old string.
            assert!(count <= REPETITIONS * keys, "{name}: {count}");
        } else {
            let expected = EXPECTED.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
            let compared = if name.ends_with(", plan") { COMPARED * (15 + 10 * keys) } else { 0 };
            let expected = REPETITIONS * expected;
            assert!((expected..=expected + compared).contains(&count), "{name}: {count}");
        }
    }
}
