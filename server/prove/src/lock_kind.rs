//! The kinds of locks that clients use, as lock libraries do.

use lockwheel_compat::judge::Rules;
use lockwheel_compat::judge::history::{Action, Answer};
use lockwheel_compat::recipes::{self, Recipe};
use lockwheel_compat::wire::frame::Frame;

/// A kind of lock.
pub struct LockKind {
    /// Its name, in options, keys and reports.
    pub name: &'static str,
    /// What uses it.
    pub description: &'static str,
    /// How it is acquired, renewed and released.
    pub recipe: &'static Recipe,
    /// Whether a release that leaves a hold starts the lease again.
    pub restarts_lease: bool,
    /// Whether a waiting client subscribes to the channel of the lock.
    pub has_channel: bool,
    /// The keys of a lock beside its own.
    pub other_keys: &'static [&'static str],
    /// The commands that its requests and scripts run.
    pub commands: &'static [&'static str],
    /// Whether only Lockwheel has it.
    pub needs_lockwheel: bool,
}

/// All kinds of locks, except those of [`crate::Topology::Independent`] servers.
pub const LOCK_KINDS: &[LockKind] = &[
    SET_NX,
    LockKind {
        name: "redis-py",
        description: "the class Lock of redis-py",
        recipe: &REDIS_PY,
        commands: &["SET", "GET", "DEL", "PTTL", "PEXPIRE", "EVAL"],
        ..SET_NX
    },
    REDISSON,
    LockKind {
        name: "redisson-fenced",
        description: "RFencedLock of Redisson, with fencing tokens",
        recipe: &recipes::REDISSON_FENCED_LOCK,
        other_keys: &[":token"],
        ..REDISSON
    },
    LockKind {
        name: "redisson-fair",
        description: "the fair lock of Redisson",
        recipe: &recipes::REDISSON_FAIR_LOCK,
        has_channel: false,
        other_keys: &[":queue", ":timeouts"],
        ..REDISSON
    },
    LockKind {
        name: "redisson-read-write",
        description: "RReadWriteLock of Redisson",
        recipe: &recipes::REDISSON_READ_WRITE_LOCK,
        restarts_lease: false,
        ..REDISSON
    },
    LockKind {
        name: "native",
        description: "LOCK.ACQUIRE, LOCK.RENEW and LOCK.RELEASE",
        recipe: &NATIVE,
        commands: &["LOCK.ACQUIRE", "LOCK.RENEW", "LOCK.RELEASE"],
        needs_lockwheel: true,
        ..SET_NX
    },
];

/// The kind of lock on [`crate::Topology::Independent`] servers.
pub const REDLOCK: LockKind = LockKind {
    name: "redlock",
    description: "Redlock: SET NX PX on a majority of independent servers",
    ..SET_NX
};

const SET_NX: LockKind = LockKind {
    name: "set-nx",
    description: "SET NX PX with a compare-and-delete script",
    recipe: &recipes::SET_NX,
    restarts_lease: false,
    has_channel: false,
    other_keys: &[],
    commands: &["SET", "GET", "DEL", "PEXPIRE", "EVAL"],
    needs_lockwheel: false,
};

const REDISSON: LockKind = LockKind {
    name: "redisson",
    description: "RLock of Redisson",
    recipe: &recipes::REDISSON_LOCK,
    restarts_lease: true,
    has_channel: true,
    commands: REDISSON_COMMANDS,
    ..SET_NX
};

/// The commands in the scripts of Redisson's locks.
const REDISSON_COMMANDS: &[&str] = &[
    "EVAL", "EXISTS", "HEXISTS", "HINCRBY", "PEXPIRE", "PTTL", "HGET", "HDEL", "HSET", "HLEN",
    "HKEYS", "DEL", "SET", "GET", "INCR", "PUBLISH", "LINDEX", "LPOP", "RPUSH", "ZADD", "ZINCRBY",
    "ZREM", "ZSCORE", "ZRANGE",
];

/// The class `Lock` of redis-py.
const REDIS_PY: Recipe = Recipe {
    words: |lock, owner, action| match action {
        Action::Acquire { .. } => (recipes::SET_NX.words)(lock, owner, action),
        Action::Renew { ttl_us } => {
            Some(recipes::eval("redis-py/extend", &[lock], &[owner, &ms(ttl_us), "1"]))
        }
        Action::Release { .. } => Some(recipes::eval("redis-py/release", &[lock], &[owner])),
    },
    ..recipes::SET_NX
};

/// A native lock of Lockwheel.
const NATIVE: Recipe = Recipe {
    rules: Rules { reentrant: true, ..recipes::SET_NX.rules },
    words: |lock, owner, action| {
        let (command, ttl_us) = match action {
            Action::Acquire { ttl_us, .. } => ("LOCK.ACQUIRE", Some(ttl_us)),
            Action::Renew { ttl_us } => ("LOCK.RENEW", Some(ttl_us)),
            Action::Release { .. } => ("LOCK.RELEASE", None),
        };
        let lease = ttl_us.map(|ttl_us| ["TTL".to_owned(), ms(ttl_us)]);
        let words = [command, lock, owner].map(str::to_owned);
        Some(words.into_iter().chain(lease.into_iter().flatten()).collect())
    },
    meaning: |action, reply| {
        let number = || reply.as_text()?.parse::<i64>().ok();
        let answer = match action {
            Action::Acquire { .. } => {
                let field = |name: &str| {
                    let pair = |pair: &&[Frame]| pair[0].as_text().as_deref() == Some(name);
                    reply.items.chunks_exact(2).find(pair)?[1].as_text()
                };
                let token = || field("token")?.parse().ok();
                return match field("status")?.as_str() {
                    "acquired" => Some((Answer::Granted, token())),
                    _ => Some((Answer::Refused { remaining_us: None }, None)),
                };
            }
            Action::Renew { .. } if number()? == 1 => Answer::Granted,
            Action::Renew { .. } => Answer::NotOwner,
            Action::Release { .. } if reply.as_text().is_none() => Answer::NotOwner,
            Action::Release { .. } if number()? == 0 => Answer::Released,
            Action::Release { .. } => Answer::Kept,
        };
        Some((answer, None))
    },
    ..recipes::SET_NX
};

fn ms(span_us: i64) -> String {
    (span_us / 1000).to_string()
}

#[cfg(test)]
mod tests {
    use lockwheel_compat::judge::history::Action;

    use super::{LOCK_KINDS, REDLOCK};

    #[test]
    fn commands_of_a_kind_are_those_of_its_requests_and_scripts() {
        for kind in LOCK_KINDS.iter().chain([&REDLOCK]) {
            let mut used = Vec::new();
            for owner in ["client-1.1", "client-1.1.r"] {
                for action in [
                    Action::Acquire { ttl_us: 1000, shared: false },
                    Action::Renew { ttl_us: 1000 },
                    Action::Release { ttl_us: Some(1000) },
                ] {
                    let Some(words) = (kind.recipe.words)("lock", owner, action) else { continue };
                    used.push(words[0].clone());
                    let script = if words[0] == "EVAL" { &*words[1] } else { "" };
                    let calls = script.split("redis.call('").skip(1);
                    let names = calls.filter_map(|call| call.split('\'').next());
                    used.extend(names.map(str::to_uppercase));
                }
            }
            for command in &used {
                assert!(kind.commands.contains(&&**command), "{}: {command}", kind.name);
            }
        }
    }
}
