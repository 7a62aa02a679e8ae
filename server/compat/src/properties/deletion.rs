//! Compare-and-delete never deletes another client's lock. The token changes concurrently: the
//! lease ends and another client takes the lock at that moment, or another client overwrites it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::cases;
use crate::report::Question;
use crate::time;

const WHY: &str = "A client that releases another client's lock admits a third one.";

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "Compare-and-delete in a script never deletes another client's lock",
        client: None,
        question: Question::ReleasedByOthers,
        why: WHY,
        run: |arena| deletes_only_its_own_lock(arena, DeleteBy::Script),
    },
    Property {
        name: "Compare-and-delete by WATCH and EXEC never deletes another client's lock",
        client: None,
        question: Question::ReleasedByOthers,
        why: WHY,
        run: |arena| deletes_only_its_own_lock(arena, DeleteBy::Transaction),
    },
];

#[derive(Clone, Copy)]
enum DeleteBy {
    Script,
    Transaction,
}

/// The other client's lease: longer than any run.
const LONG_MS: &str = "3600000";
const TRIALS_MIN: u64 = 20;

fn deletes_only_its_own_lock(arena: &Arena<'_>, method: DeleteBy) -> Result<(), PropertyError> {
    let trials = arena.run_clients((arena.connections / 2).max(1), |number, holder| {
        let mut random = arena.random(number);
        let key = arena.key(&format!("lock-{number}"));
        let mut other = arena.connect()?;
        let mut trials = 0_u64;
        while !arena.is_over() {
            let overwrites = random.once_in(2);
            let ttl_ms = random.between(2, 5);
            let delay_us = random.between(ttl_ms * 1000 - 800, ttl_ms * 1000 + 1200);
            let ttl = if overwrites { LONG_MS.to_owned() } else { ttl_ms.to_string() };
            holder.call(&["SET", &key, "holder", "PX", &ttl])?;
            let begun_us = time::now_us();
            let (ready, go) = mpsc::channel::<()>();
            let (taken, deleted) = thread::scope(|scope| {
                let (other, key) = (&mut other, &key);
                let taking = scope.spawn(move || {
                    // Nothing is sent: the closed channel is the signal.
                    let _ = go.recv();
                    take(arena, other, key, overwrites)
                });
                if !overwrites {
                    let asleep_us = begun_us + delay_us - time::now_us();
                    time::sleep(Duration::from_micros(asleep_us.max(0).unsigned_abs()));
                }
                drop(ready);
                if random.once_in(2) {
                    time::sleep(Duration::from_micros(random.below(100)));
                }
                let deleted = method.delete(holder, key);
                (taking.join(), deleted)
            });
            let taken =
                taken.map_err(|_| PropertyError::unknown("a client of the suite panicked"))??;
            let deleted = deleted?;
            if !taken {
                continue;
            }
            let left = holder.text(&["GET", &key])?;
            if left.as_deref() != Some("other") {
                return Err(stolen(overwrites, &ttl, deleted, left));
            }
            trials += 1;
        }
        Ok(trials)
    })?;
    let trials: u64 = trials.iter().sum();
    PropertyError::unknown_unless(trials >= TRIALS_MIN, || {
        format!("the lock changed hands {trials} times only")
    })
}

/// Lets the other client overwrite the lock, or take it as soon as it is free. Returns whether it
/// did.
fn take(
    arena: &Arena<'_>,
    other: &mut ArenaClient,
    key: &str,
    overwrites: bool,
) -> Result<bool, PropertyError> {
    if overwrites {
        other.call(&["SET", key, "other", "PX", LONG_MS])?;
        return Ok(true);
    }
    let words = ["SET", key, "other", "NX", "PX", LONG_MS];
    while other.text(&words)?.is_none() {
        if arena.is_over() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl DeleteBy {
    /// Compares and deletes; returns whether the server reports a deletion.
    fn delete(self, client: &mut ArenaClient, key: &str) -> Result<bool, PropertyError> {
        match self {
            DeleteBy::Script => {
                let script = cases::script("compare-and-delete").unwrap_or_default();
                Ok(client.integer(&["EVAL", script, "1", key, "holder"])? == 1)
            }
            DeleteBy::Transaction => {
                client.call(&["WATCH", key])?;
                if client.text(&["GET", key])?.as_deref() != Some("holder") {
                    client.call(&["UNWATCH"])?;
                    return Ok(false);
                }
                let replies = client.pipeline(&[&["MULTI"], &["DEL", key], &["EXEC"]])?;
                Ok(replies.last().is_some_and(|reply| !reply.items.is_empty()))
            }
        }
    }
}

fn stolen(overwrites: bool, ttl: &str, deleted: bool, left: Option<String>) -> PropertyError {
    let how = if overwrites { "PX" } else { "NX PX" };
    let story = vec![
        format!("a> SET lock holder PX {ttl}: OK"),
        format!("a> compare-and-delete of \"holder\": {}", if deleted { "done" } else { "not" }),
        format!("b> SET lock other {how} {LONG_MS}, at the same time: OK"),
        format!("a> GET lock: {left:?}"),
    ];
    let came = left.unwrap_or_else(|| "no lock: the other client's lock was deleted".to_owned());
    PropertyError::violated("the other client holds the lock", &came, story)
}
