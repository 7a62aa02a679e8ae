//! Recipes of lock libraries: the commands that take, renew and release a lock, and the meaning of
//! their replies.
//!
//! Properties use them with leases of milliseconds; a program that loads a server with locks may
//! use them with any.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cases;
use crate::judge::Rules;
use crate::judge::history::{Action, Answer};
use crate::wire::frame::Frame;

/// An answer, and the fencing token in it.
pub type AnswerAndToken = (Answer, Option<i64>);

/// The use of one kind of lock.
pub struct Recipe {
    /// The rules of the lock.
    pub rules: Rules,
    /// Whether some clients share it.
    pub shared: bool,
    /// Whether a client repeats its request until the lock is granted.
    pub insists: bool,
    /// Whether it has a lease.
    pub leased: bool,
    /// The command for a lock, an owner and an action; `None` if there is no such request.
    pub words: fn(&str, &str, Action) -> Option<Vec<String>>,
    /// The meaning of the reply; `None` if the reply is invalid.
    pub meaning: fn(Action, &Frame) -> Option<AnswerAndToken>,
}

/// The rules of real servers: their clock is not ours, and a lease begins and ends on a whole
/// millisecond.
const REAL: Rules = Rules { drift_ppm: 1000, early_us: 1000, late_us: 2000, ..Rules::LOCK };
/// The permits of a semaphore.
pub const PERMITS: usize = 3;
/// The waiting time for a fair lock: no client gives up.
const FAIR_WAIT_MS: &str = "600000";
const LATCH_MS: &str = "1000";

/// A key with the owner's token, deleted and renewed by scripts that compare the token.
pub const SET_NX: Recipe = Recipe {
    rules: REAL,
    shared: false,
    insists: false,
    leased: true,
    words: |lock, owner, action| {
        Some(match action {
            Action::Acquire { ttl_us, .. } => owned(&["SET", lock, owner, "NX", "PX", &ms(ttl_us)]),
            Action::Renew { ttl_us } => {
                let script = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                    return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
                owned(&["EVAL", script, "1", lock, owner, &ms(ttl_us)])
            }
            Action::Release { .. } => eval("compare-and-delete", &[lock], &[owner]),
        })
    },
    meaning: |action, reply| match action {
        Action::Acquire { .. } if reply.kind == b'+' => Some((Answer::Granted, None)),
        Action::Acquire { .. } => missing(reply).then_some((REFUSED, None)),
        action => one_or_zero(action, reply),
    },
};

/// SETNX and PEXPIRE in one script.
pub const SETNX_IN_SCRIPT: Recipe = Recipe {
    words: |lock, owner, action| match action {
        Action::Acquire { ttl_us, .. } => {
            let script = "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then \
                return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
            Some(owned(&["EVAL", script, "1", lock, owner, &ms(ttl_us)]))
        }
        action => (SET_NX.words)(lock, owner, action),
    },
    meaning: one_or_zero,
    ..SET_NX
};

/// A reentrant lock: a hash with the owner's count.
pub const REDISSON_LOCK: Recipe = Recipe {
    rules: Rules { reentrant: true, ..REAL },
    shared: false,
    insists: false,
    leased: true,
    words: |lock, owner, action| {
        Some(match action {
            Action::Acquire { ttl_us, .. } => eval("redisson/lock", &[lock], &[&ms(ttl_us), owner]),
            Action::Renew { ttl_us } => eval("redisson/renew", &[lock], &[&ms(ttl_us), owner]),
            Action::Release { ttl_us } => {
                let keys = [lock, &channel(lock), &latch(lock)];
                let lease = ms(ttl_us.unwrap_or_default());
                eval("redisson/unlock", &keys, &["0", &lease, owner, "PUBLISH", LATCH_MS])
            }
        })
    },
    meaning: redisson,
};

/// The same with a fencing token.
pub const REDISSON_FENCED_LOCK: Recipe = Recipe {
    words: |lock, owner, action| match action {
        Action::Acquire { ttl_us, .. } => {
            let keys = [lock, &format!("{lock}:token")];
            Some(eval("redisson/fenced-lock-token", &keys, &[&ms(ttl_us), owner]))
        }
        action => (REDISSON_LOCK.words)(lock, owner, action),
    },
    meaning: |action, reply| match (action, &reply.items[..]) {
        (Action::Acquire { .. }, [remaining, token]) => {
            match (number(remaining)?, number(token)?) {
                (-1, token) => Some((Answer::Granted, Some(token))),
                (remaining, _) => {
                    let remaining_us = Some(remaining.checked_mul(1000)?);
                    Some((Answer::Refused { remaining_us }, None))
                }
            }
        }
        _ => redisson(action, reply),
    },
    ..REDISSON_LOCK
};

/// The same with a queue of waiting clients.
pub const REDISSON_FAIR_LOCK: Recipe = Recipe {
    rules: Rules { reentrant: true, fair: true, ..REAL },
    insists: true,
    words: |lock, owner, action| {
        let (queue, timeouts) = (format!("{lock}:queue"), format!("{lock}:timeouts"));
        let now = "1000000000000";
        Some(match action {
            Action::Acquire { ttl_us, .. } => {
                let arguments = [&ms(ttl_us), owner, FAIR_WAIT_MS, now];
                eval("redisson/fair-lock", &[lock, &queue, &timeouts], &arguments)
            }
            Action::Renew { .. } => return (REDISSON_LOCK.words)(lock, owner, action),
            Action::Release { ttl_us } => {
                let keys = [lock, &queue, &timeouts, &channel(lock), &latch(lock)];
                let lease = ms(ttl_us.unwrap_or_default());
                let arguments = ["0", &lease, owner, now, "PUBLISH", LATCH_MS];
                eval("redisson/fair-unlock", &keys, &arguments)
            }
        })
    },
    // The reported time is not the remaining time of the holder's lease. And a free lock is
    // reported as released to any client that releases it.
    meaning: |action, reply| match redisson(action, reply)? {
        (Answer::Refused { .. }, token) => Some((REFUSED, token)),
        (Answer::Released, token) => Some((Answer::Unknown, token)),
        answer => Some(answer),
    },
    ..REDISSON_LOCK
};

/// Many readers or one writer. When a reader releases the lock, the lease of the others is set
/// anew, in whole milliseconds; and a reader with an expired lease is not refused while others
/// read.
pub const REDISSON_READ_WRITE_LOCK: Recipe = Recipe {
    rules: Rules { reentrant: true, early_us: 2000, late_us: i64::MAX / 4, ..REAL },
    shared: true,
    insists: false,
    leased: true,
    words: |lock, owner, action| {
        let prefix = prefix_of_leases(lock);
        let entries = format!("{prefix}:{owner}:rwlock_timeout");
        let reads = owner.ends_with(".r");
        Some(match action {
            Action::Acquire { ttl_us, .. } if reads => {
                let writer = format!("{owner}:write");
                eval("redisson/read-lock", &[lock, &entries], &[&ms(ttl_us), owner, &writer])
            }
            Action::Acquire { ttl_us, .. } => {
                eval("redisson/write-lock", &[lock], &[&ms(ttl_us), owner])
            }
            Action::Renew { .. } => return None,
            Action::Release { .. } if reads => {
                let keys = [lock, &channel(lock), &entries, &prefix, &latch(lock)];
                eval("redisson/read-unlock", &keys, &["0", owner, "PUBLISH", LATCH_MS])
            }
            Action::Release { ttl_us } => {
                let keys = [lock, &channel(lock), &latch(lock)];
                let lease = ms(ttl_us.unwrap_or_default());
                eval("redisson/write-unlock", &keys, &["1", &lease, owner, "PUBLISH", LATCH_MS])
            }
        })
    },
    meaning: |action, reply| match (action, redisson(action, reply)?) {
        // Other readers still hold the lock; this one does not.
        (Action::Release { .. }, (Answer::Kept, _)) => Some((Answer::Released, None)),
        (Action::Acquire { .. }, (Answer::Refused { .. }, _)) => Some((REFUSED, None)),
        (_, answer) => Some(answer),
    },
};

/// A semaphore with [`PERMITS`] permits and without leases.
pub const REDISSON_SEMAPHORE: Recipe = Recipe {
    rules: Rules { permits: PERMITS, ..REAL },
    shared: false,
    insists: false,
    leased: false,
    words: |lock, _, action| match action {
        Action::Acquire { .. } => Some(eval("redisson/semaphore-acquire", &[lock], &["1"])),
        Action::Renew { .. } => None,
        Action::Release { .. } => {
            let keys = [lock, &channel(lock)];
            Some(eval("redisson/semaphore-release", &keys, &["1", "PUBLISH"]))
        }
    },
    meaning: |action, reply| match action {
        Action::Release { .. } => Some((Answer::Released, None)),
        action => one_or_zero(action, reply),
    },
};

const REFUSED: Answer = Answer::Refused { remaining_us: None };

/// Returns the meaning of the reply of a script that returns 1 or 0.
fn one_or_zero(action: Action, reply: &Frame) -> Option<AnswerAndToken> {
    let answer = match (action, number(reply)?) {
        (Action::Release { .. }, 1) => Answer::Released,
        (_, 1) => Answer::Granted,
        (Action::Acquire { .. }, 0) => REFUSED,
        (_, 0) => Answer::NotOwner,
        _ => return None,
    };
    Some((answer, None))
}

/// Returns the meaning of the reply of a script of Redisson. Nil means that the lock was acquired,
/// or was not held; a number is a remaining time, or the result of the release.
fn redisson(action: Action, reply: &Frame) -> Option<AnswerAndToken> {
    let answer = match (action, &reply.items[..]) {
        (Action::Renew { .. }, [renewed]) => return one_or_zero(action, renewed),
        (Action::Acquire { .. }, _) if missing(reply) => Answer::Granted,
        (Action::Release { .. }, _) if missing(reply) => Answer::NotOwner,
        (Action::Acquire { .. }, _) => {
            Answer::Refused { remaining_us: Some(number(reply)?.checked_mul(1000)?) }
        }
        (Action::Release { .. }, _) if number(reply)? == 0 => Answer::Kept,
        (Action::Release { .. }, _) if number(reply)? == 1 => Answer::Released,
        _ => return None,
    };
    Some((answer, None))
}

fn missing(reply: &Frame) -> bool {
    reply.as_text().is_none()
}

fn number(reply: &Frame) -> Option<i64> {
    std::str::from_utf8(&reply.text).ok()?.parse().ok().filter(|_| reply.kind != b'-')
}

fn ms(span_us: i64) -> String {
    (span_us / 1000).to_string()
}

/// The channel of a lock of Redisson in these recipes.
pub fn channel(lock: &str) -> String {
    format!("{lock}:channel")
}

/// The beginning of the keys with the leases of readers. Redisson adds braces to a name without
/// any, so that all keys have the same slot in a cluster.
fn prefix_of_leases(lock: &str) -> String {
    if lock.contains('{') { lock.to_owned() } else { format!("{{{lock}}}") }
}

/// The latch key of a request: a new one each time.
fn latch(lock: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{lock}:latch:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The words of `EVAL` for a script of the suite, by its name.
pub fn eval(script: &str, keys: &[&str], arguments: &[&str]) -> Vec<String> {
    let text = cases::script(script).unwrap_or_default();
    let count = keys.len().to_string();
    owned(&[&["EVAL", text, &count], keys, arguments].concat())
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
