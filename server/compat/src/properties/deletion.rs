//! Compare-and-delete never deletes a stranger's lock: the token changes under it, because the
//! lease ends and another takes the lock at that moment, or because somebody overwrites it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::cases;
use super::super::time;
use super::{Arena, Client, Property, Trouble};

const WHY: &str = "Who releases a lock that another holds by now lets a third one in.";

/// What is tried.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "Compare-and-delete in a script never deletes a stranger's lock",
        client: None,
        why: WHY,
        run: |arena| deletes_its_own_only(arena, Means::Script),
    },
    Property {
        name: "Compare-and-delete by WATCH and EXEC never deletes a stranger's lock",
        client: None,
        why: WHY,
        run: |arena| deletes_its_own_only(arena, Means::Transaction),
    },
];

#[derive(Clone, Copy)]
enum Means {
    Script,
    Transaction,
}

/// The stranger's lease: longer than anybody waits.
const LONG_MS: &str = "3600000";
const TRIALS_MIN: u64 = 20;

fn deletes_its_own_only(arena: &Arena<'_>, means: Means) -> Result<(), Trouble> {
    let trials = arena.crowd((arena.connections / 2).max(1), |number, holder| {
        let mut random = arena.random(number);
        let key = arena.key(&format!("lock-{number}"));
        let mut stranger = arena.connect()?;
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
                let (stranger, key) = (&mut stranger, &key);
                let taking = scope.spawn(move || {
                    // Nothing is sent: the end of the channel is the word.
                    let _ = go.recv();
                    take(arena, stranger, key, overwrites)
                });
                if !overwrites {
                    let asleep_us = begun_us + delay_us - time::now_us();
                    time::sleep(Duration::from_micros(asleep_us.max(0).unsigned_abs()));
                }
                drop(ready);
                if random.once_in(2) {
                    time::sleep(Duration::from_micros(random.below(100)));
                }
                let deleted = means.delete(holder, key);
                (taking.join(), deleted)
            });
            let taken = taken.map_err(|_| Trouble::unknown("a client of the suite panicked"))??;
            let deleted = deleted?;
            if !taken {
                continue;
            }
            let left = holder.text(&["GET", &key])?;
            if left.as_deref() != Some("stranger") {
                return Err(stolen(overwrites, &ttl, deleted, left));
            }
            trials += 1;
        }
        Ok(trials)
    })?;
    match trials.iter().sum::<u64>() {
        trials if trials < TRIALS_MIN => {
            Err(Trouble::unknown(format!("the lock changed hands {trials} times only")))
        }
        _ => Ok(()),
    }
}

/// The stranger takes the lock, by force or as soon as it is free. Whether it did.
fn take(
    arena: &Arena<'_>,
    stranger: &mut Client,
    key: &str,
    overwrites: bool,
) -> Result<bool, Trouble> {
    if overwrites {
        stranger.call(&["SET", key, "stranger", "PX", LONG_MS])?;
        return Ok(true);
    }
    let words = ["SET", key, "stranger", "NX", "PX", LONG_MS];
    while stranger.text(&words)?.is_none() {
        if arena.is_over() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Means {
    /// Whether it says that it deleted the lock.
    fn delete(self, client: &mut Client, key: &str) -> Result<bool, Trouble> {
        match self {
            Means::Script => {
                let script = cases::script("compare-and-delete").unwrap_or_default();
                Ok(client.integer(&["EVAL", script, "1", key, "holder"])? == 1)
            }
            Means::Transaction => {
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

fn stolen(overwrites: bool, ttl: &str, deleted: bool, left: Option<String>) -> Trouble {
    let how = if overwrites { "PX" } else { "NX PX" };
    let story = vec![
        format!("a> SET lock holder PX {ttl}: OK"),
        format!("a> compare-and-delete of \"holder\": {}", if deleted { "done" } else { "not" }),
        format!("b> SET lock stranger {how} {LONG_MS}, at the same time: OK"),
        format!("a> GET lock: {left:?}"),
    ];
    let came = left.unwrap_or_else(|| "no lock: the stranger's was deleted".to_owned());
    Trouble::broken("the stranger holds the lock", &came, story)
}
