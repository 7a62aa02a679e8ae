//! The requests of lock libraries and the meaning of the replies.

use lockwheel_compat::cases;
use lockwheel_compat::judge::history::{Action, Answer};
use lockwheel_compat::wire::frame::Frame;

use super::{is_missing, number, owned};
use crate::plan::Recipe;

/// How long a latch is kept, in milliseconds.
const LATCH_MS: &str = "10000";

/// The request for an action. `latch` identifies a release, for retries of the same one.
pub fn request(recipe: Recipe, lock: &str, owner: &str, action: Action, latch: u64) -> Vec<String> {
    let channel = format!("{lock}:channel");
    let latch = format!("{lock}:latch:{owner}:{latch}");
    let keys = [lock, channel.as_str(), latch.as_str()];
    match (recipe, action) {
        (Recipe::Plain | Recipe::Redlock, Action::Acquire { ttl_us, .. }) => {
            owned(&["SET", lock, owner, "NX", "PX", &ms(ttl_us)])
        }
        (Recipe::Plain | Recipe::Redlock, Action::Renew { ttl_us }) => {
            eval("compare-and-pexpire", &[lock], &[owner, &ms(ttl_us)])
        }
        (Recipe::Plain | Recipe::Redlock, Action::Release { .. }) => {
            eval("compare-and-delete", &[lock], &[owner])
        }
        (Recipe::Redisson, Action::Acquire { ttl_us, .. }) => {
            eval("redisson/lock", &[lock], &[&ms(ttl_us), owner])
        }
        (Recipe::Redisson, Action::Renew { ttl_us }) => {
            eval("redisson/renew", &[lock], &[&ms(ttl_us), owner])
        }
        (Recipe::Redisson, Action::Release { ttl_us }) => {
            let lease = ms(ttl_us.unwrap_or_default());
            eval("redisson/unlock", &keys, &["0", &lease, owner, "PUBLISH", LATCH_MS])
        }
        (Recipe::ReadWrite, action) => read_write(lock, owner, action, &keys),
        (Recipe::Semaphore, Action::Release { .. }) => {
            eval("redisson/semaphore-release", &[lock, &channel], &["1", "PUBLISH"])
        }
        (Recipe::Semaphore, _) => eval("redisson/semaphore-acquire", &[lock], &["1"]),
    }
}

fn read_write(lock: &str, owner: &str, action: Action, keys: &[&str; 3]) -> Vec<String> {
    let entries = format!("{{{lock}}}:{owner}:rwlock_timeout");
    let reads = owner.ends_with(".r");
    match action {
        Action::Acquire { ttl_us, .. } if reads => {
            let writer = format!("{owner}:write");
            eval("redisson/read-lock", &[lock, &entries], &[&ms(ttl_us), owner, &writer])
        }
        Action::Release { .. } if reads => {
            let all = format!("{{{lock}}}");
            let keys = [lock, keys[1], &entries, &all, keys[2]];
            eval("redisson/read-unlock", &keys, &["0", owner, "PUBLISH", LATCH_MS])
        }
        Action::Release { ttl_us } => {
            let lease = ms(ttl_us.unwrap_or_default());
            eval("redisson/write-unlock", keys, &["1", &lease, owner, "PUBLISH", LATCH_MS])
        }
        Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us } => {
            eval("redisson/write-lock", &[lock], &[&ms(ttl_us), owner])
        }
    }
}

/// The meaning of a reply; `None` if it is an error.
pub fn meaning(recipe: Recipe, action: Action, reply: &Frame) -> Option<Answer> {
    if reply.kind == b'-' {
        return None;
    }
    let refused = Answer::Refused { remaining_us: None };
    Some(match (recipe, action) {
        (Recipe::Plain | Recipe::Redlock, Action::Acquire { .. }) => {
            if is_missing(reply) {
                refused
            } else {
                Answer::Granted
            }
        }
        (Recipe::Redisson | Recipe::ReadWrite, Action::Acquire { .. }) => {
            match (recipe, is_missing(reply)) {
                (_, true) => Answer::Granted,
                (Recipe::Redisson, _) => {
                    Answer::Refused { remaining_us: Some(number(reply)? * 1000) }
                }
                _ => refused,
            }
        }
        (Recipe::Redisson | Recipe::ReadWrite, Action::Release { .. }) => {
            match (is_missing(reply), number(reply)) {
                (true, _) => Answer::NotOwner,
                (_, Some(1)) => Answer::Released,
                // Other readers still hold the lock; this one does not.
                (_, Some(0)) if recipe == Recipe::ReadWrite => Answer::Released,
                (_, Some(0)) => Answer::Kept,
                _ => return None,
            }
        }
        (Recipe::Semaphore, Action::Release { .. }) => Answer::Released,
        // The script renews several locks.
        (_, action) => match (action, number(reply.items.first().unwrap_or(reply))?) {
            (Action::Release { .. }, 1) => Answer::Released,
            (_, 1) => Answer::Granted,
            (Action::Acquire { .. }, 0) => refused,
            _ => Answer::NotOwner,
        },
    })
}

fn ms(span_us: i64) -> String {
    (span_us / 1000).to_string()
}

fn eval(script: &str, keys: &[&str], arguments: &[&str]) -> Vec<String> {
    let text = cases::script(script).expect("a script of the suite");
    let count = keys.len().to_string();
    owned(&[&["EVAL", text, &count], keys, arguments].concat())
}
