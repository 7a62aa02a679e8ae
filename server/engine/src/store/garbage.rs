//! Memory that clients cannot see any more: large values and whole databases. It is freed in parts,
//! and requests are served in between: freeing a hash of three million fields at once would stop
//! the server for 60 ms.
//!
//! Invariant: a value in here is in no database and is not accessed again.

use std::collections::VecDeque;

use super::records::Records;
use super::value::Value;
use crate::limits;

/// The removed values and databases whose memory is not freed yet.
#[derive(Debug, Default)]
pub struct Garbage {
    queue: VecDeque<Discarded>,
    /// About how many items are left to free.
    items: usize,
    /// Keys that are not freed yet (`lazyfree_pending_objects`).
    pending_objects: usize,
    /// Keys that have been freed here (`lazyfreed_objects`).
    pub freed_objects: u64,
}

#[derive(Debug)]
struct Discarded {
    contents: Contents,
    /// About how many of its items are left to free.
    items: usize,
    /// The number of keys it counts as in the counters.
    objects: usize,
}

#[derive(Debug)]
enum Contents {
    Value(Value),
    Records(Box<Records>),
}

impl Garbage {
    /// Whether there is nothing to free.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Keys that are not freed yet.
    pub fn pending_objects(&self) -> usize {
        self.pending_objects
    }

    /// Takes the value of a key that has been removed. A small value is freed at once.
    #[cold]
    pub fn add_value(&mut self, value: Value) {
        let items = value.items();
        if items > limits::FREED_AT_ONCE_ITEMS_MAX {
            self.free_excess();
            self.push(Contents::Value(value), items, 1);
        }
    }

    /// Takes the records of a database. Most databases that are emptied hold few keys; those are
    /// freed at once, so that no background work is scheduled.
    pub fn add_records(&mut self, records: Records) {
        let keys = records.len();
        if keys > 0 {
            self.free_excess();
            self.push(Contents::Records(Box::new(records)), keys, keys);
            self.free(limits::FREED_AT_ONCE_PARTS_MAX * Records::PART_KEYS);
        }
    }

    /// Frees as much as exceeds the limit, so that garbage cannot grow faster than it is freed.
    fn free_excess(&mut self) {
        self.free(self.items.saturating_sub(limits::GARBAGE_ITEMS_MAX));
    }

    fn push(&mut self, contents: Contents, items: usize, objects: usize) {
        self.items += items;
        self.pending_objects += objects;
        self.queue.push_back(Discarded { contents, items, objects });
    }

    /// Frees about `budget` items: elements, fields, entries; or keys with their small values.
    pub fn free(&mut self, budget: usize) {
        let mut left = budget;
        while left > 0
            && let Some(mut first) = self.queue.pop_front()
        {
            let before = left;
            let more = match &mut first.contents {
                Contents::Value(value) => value.free_part(&mut left),
                Contents::Records(records) => {
                    self.free_records(records, &mut first.objects, &mut left)
                }
            };
            let freed = if more { first.items.min(before - left) } else { first.items };
            self.items -= freed;
            first.items -= freed;
            if more {
                self.queue.push_front(first);
            } else {
                self.pending_objects -= first.objects;
                self.freed_objects += first.objects as u64;
            }
        }
    }

    /// Frees a part of the records of a database with `objects` keys. Its large values go to the
    /// end of the queue and from then on count as one key each.
    fn free_records(
        &mut self,
        records: &mut Records,
        objects: &mut usize,
        budget: &mut usize,
    ) -> bool {
        let mut freed = Records::PART_KEYS;
        let more = records.free_part(|value| {
            let items = value.items();
            if items > limits::FREED_AT_ONCE_ITEMS_MAX {
                *objects -= 1;
                self.pending_objects -= 1;
                self.push(Contents::Value(value), items, 1);
            } else {
                freed += items;
            }
        });
        *budget = budget.saturating_sub(freed);
        more
    }
}

/// Bytes by which the memory of a vector shrinks at a time: large enough that system calls are
/// rare, and small enough that each is short.
const SHRUNK_BYTES: usize = 256 << 10;

/// Frees up to `budget` of the last items of a vector that is no longer used. Returns whether there
/// are more.
pub(super) fn free_end<T>(items: &mut Vec<T>, budget: &mut usize) -> bool {
    let kept = items.len().saturating_sub(*budget);
    *budget -= items.len() - kept;
    items.truncate(kept);
    if (items.capacity() - kept).saturating_mul(size_of::<T>()) >= SHRUNK_BYTES {
        items.shrink_to(kept);
    }
    kept > 0
}

#[cfg(test)]
mod tests {
    use crate::limits;
    use crate::settings::Settings;
    use crate::testing::Stage;

    const FIELDS: usize = 5_000;

    /// Calls a command with `i` from 1 to `FIELDS`.
    fn fill(stage: &mut Stage, command: &str) {
        let script = format!("for i = 1, {FIELDS} do redis.call({command}) end return 1");
        stage.check(&format!("EVAL \"{script}\" 0 => 1"));
    }

    /// Runs ticks until everything is free; returns the number of ticks.
    fn ticks(stage: &mut Stage) -> usize {
        let mut ticks = 0;
        while stage.engine.has_garbage() {
            stage.tick(64);
            ticks += 1;
            assert!(ticks <= 10 * FIELDS, "no progress");
        }
        ticks
    }

    #[test]
    fn large_values_of_every_type_are_freed_in_parts() {
        for command in [
            "'hset', 'k', 'field' .. i, 'v'",
            "'rpush', 'k', 'element' .. i",
            "'sadd', 'k', 'member' .. i",
            "'zadd', 'k', i, 'member' .. i",
            "'xadd', 'k', i, 'field', 'v'",
        ] {
            for removal in ["UNLINK k", "DEL k", "SET k v", "RENAME l k", "PEXPIRE k 5; +5ms"] {
                let mut stage = Stage::new(Settings::default());
                fill(&mut stage, command);
                stage.check(&format!(
                    "SET l v; {removal}; INFO memory => ...lazyfree_pending_objects:1..."
                ));
                let full = stage.engine.writer.keyspace().garbage.items;
                stage.tick(64);
                let freed = full - stage.engine.writer.keyspace().garbage.items;
                assert!((1..=64).contains(&freed), "{command}, {removal}: {freed}");
                assert!(ticks(&mut stage) > 1, "{command}, {removal}");
                stage.check(
                    "INFO memory => ...lazyfree_pending_objects:0\\r\\nlazyfreed_objects:1...",
                );
            }
        }
    }

    #[test]
    fn small_values_are_freed_at_once() {
        let mut stage = Stage::new(Settings::default());
        stage.check("RPUSH k a b c; UNLINK k => 1; HSET k f v; SET k v; FLUSHALL ASYNC => OK");
        assert!(!stage.engine.has_garbage());
        stage.check("INFO memory => ...lazyfree_pending_objects:0\\r\\nlazyfreed_objects:1...");
        stage.check("CONFIG RESETSTAT; INFO memory => ...lazyfreed_objects:0...");
    }

    #[test]
    fn databases_are_freed_in_parts() {
        let mut stage = Stage::new(Settings::default());
        let script = "for i = 1, 20000 do redis.call('set', 'key' .. i, 'value' .. i) end";
        stage.check(&format!("EVAL \"{script}\" 0; SELECT 1"));
        fill(&mut stage, "'hset', 'k', 'field' .. i, 'v'");
        stage.check(&format!("SET long {}; RPUSH small a b c", "x".repeat(1_000)));
        stage.check(
            "FLUSHALL => OK; SET k new; INFO memory => ...lazyfree_pending_objects:20003...",
        );
        assert!(ticks(&mut stage) >= FIELDS / 64);
        stage.check("INFO memory => ...pending_objects:0\\r\\nlazyfreed_objects:20003...");
        stage.check("GET k => \"new\"; SELECT 0; DBSIZE => 0");
    }

    /// A client that discards faster than is freed has to free the excess.
    #[test]
    fn garbage_is_bounded() {
        let mut stage = Stage::new(Settings::default());
        fill(&mut stage, "'rpush', 'l', 'element' .. i");
        let copies = 2 * limits::GARBAGE_ITEMS_MAX / FIELDS;
        for _ in 0..copies {
            stage.check("COPY l k REPLACE => 1");
            let items = stage.engine.writer.keyspace().garbage.items;
            assert!(items <= limits::GARBAGE_ITEMS_MAX + FIELDS, "{items}");
        }
    }
}
