//! What the name of a key and its value say about it.

use crate::timing::time::Time;

use super::table::is_number;

/// What a key is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A word for a lock.
    Lock,
    /// A word for data of which a value may look unique, but names no owner.
    Record,
    /// A word for other data.
    Data,
    /// Neither.
    Other,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// An owner that is unique, or the time at which a lock ends.
    Unique,
    /// It may name an owner.
    Owner,
    /// A number, a state, a document.
    Data,
}

const LOCK_WORDS: &[&str] = &[
    "election",
    "exclusive",
    "lck",
    "leader",
    "lease",
    "leases",
    "lock",
    "locked",
    "locks",
    "mutex",
    "mutexes",
    "running",
    "sem",
    "semaphore",
    "semaphores",
];

/// Words that end with `lock` and are no locks.
const OTHER_LOCKS: &[&str] = &["block", "clock", "flock", "livestock", "stock", "unblock"];

const RECORD_WORDS: &[&str] = &[
    "activation",
    "apikey",
    "confirm",
    "confirmation",
    "csrf",
    "dedup",
    "dedupe",
    "deduplication",
    "event",
    "events",
    "evt",
    "idem",
    "idempotence",
    "idempotency",
    "idempotent",
    "invitation",
    "invite",
    "jti",
    "jwt",
    "link",
    "message",
    "messages",
    "msg",
    "nonce",
    "nonces",
    "oauth",
    "otp",
    "password",
    "refresh",
    "replay",
    "request",
    "requests",
    "reset",
    "sess",
    "session",
    "sessions",
    "shorturl",
    "ticket",
    "token",
    "tokens",
    "verification",
    "verify",
];

const DATA_WORDS: &[&str] = &[
    "active",
    "balance",
    "cache",
    "cached",
    "caches",
    "captcha",
    "cart",
    "catalog",
    "code",
    "config",
    "count",
    "counter",
    "counters",
    "delay",
    "delayed",
    "email",
    "feature",
    "flag",
    "flags",
    "geo",
    "handle",
    "history",
    "init",
    "inventory",
    "jobs",
    "last",
    "leaderboard",
    "limit",
    "limiter",
    "limits",
    "log",
    "logs",
    "metric",
    "metrics",
    "migration",
    "notified",
    "notify",
    "online",
    "permits",
    "presence",
    "price",
    "prices",
    "processed",
    "profile",
    "queue",
    "quota",
    "rate",
    "ratelimit",
    "recent",
    "reminder",
    "reminders",
    "schedule",
    "scheduled",
    "schema",
    "score",
    "scores",
    "seen",
    "sent",
    "seq",
    "sequence",
    "setting",
    "settings",
    "slug",
    "stat",
    "stats",
    "status",
    "stock",
    "tasks",
    "throttle",
    "timeline",
    "total",
    "user",
    "username",
    "users",
    "version",
    "viewed",
    "views",
    "visited",
    "visits",
    "weather",
    "webhook",
    "window",
];

/// What the name of a key says. A word for a lock counts more than one for data.
pub(super) fn name(key: &[u8]) -> Name {
    let words = words(&String::from_utf8_lossy(key));
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&&word[..]));
    let is_lock = |word: &String| word.ends_with("lock") && !OTHER_LOCKS.contains(&word.as_str());
    if has(LOCK_WORDS) || words.iter().any(is_lock) {
        Name::Lock
    } else if has(RECORD_WORDS) {
        Name::Record
    } else if has(DATA_WORDS) {
        Name::Data
    } else {
        Name::Other
    }
}

/// The words of a name in lower case: `orderLock-12` has `order` and `lock`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for char in name.chars() {
        if !char.is_alphabetic() || char.is_uppercase() && after_lower {
            words.push(String::new());
        }
        after_lower = char.is_lowercase();
        if let (true, Some(word)) = (char.is_alphabetic(), words.last_mut()) {
            word.extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Length from which a text of letters and digits is unlikely to be shared by two clients.
const UNIQUE_BYTES: usize = 16;

/// Length of the longest value that can name an owner; a longer one is a document.
const OWNER_BYTES_MAX: usize = 200;

/// Words for the state of something, which name no owner.
const STATES: &[&str] = &[
    "",
    "0",
    "1",
    "active",
    "claimed",
    "complete",
    "completed",
    "created",
    "default",
    "disabled",
    "done",
    "enabled",
    "exists",
    "f",
    "failed",
    "false",
    "finished",
    "handled",
    "in-progress",
    "in_progress",
    "init",
    "initialized",
    "locked",
    "n",
    "new",
    "no",
    "null",
    "off",
    "ok",
    "on",
    "online",
    "open",
    "pending",
    "present",
    "processed",
    "processing",
    "ready",
    "received",
    "reserved",
    "running",
    "seen",
    "sent",
    "set",
    "started",
    "success",
    "t",
    "taken",
    "true",
    "used",
    "v",
    "val",
    "value",
    "visited",
    "x",
    "y",
    "yes",
];

/// What a value may be, at this time.
pub(super) fn value(value: &[u8], time: Time) -> Value {
    if is_number(value) {
        return if is_end(value, time) { Value::Unique } else { Value::Data };
    }
    if value.is_empty() || value.len() > OWNER_BYTES_MAX {
        return Value::Data;
    }
    let Ok(text) = std::str::from_utf8(value) else {
        // Random bytes, or a serialised document.
        return if matches!(value.len(), 16 | 20) { Value::Unique } else { Value::Data };
    };
    let is_document = text.starts_with(['{', '[', '<', '"'])
        || text.parse::<f64>().is_ok()
        || text.contains("://")
        || is_date(value)
        || text.split_whitespace().count() > 1;
    if is_document || STATES.contains(&text.to_ascii_lowercase().as_str()) {
        return Value::Data;
    }
    let has = |holds: fn(&u8) -> bool| value.iter().any(holds);
    let is_random = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
        || has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    if value.len() >= UNIQUE_BYTES && is_random { Value::Unique } else { Value::Owner }
}

/// Whether a text begins with a date: `2023-11-14`.
fn is_date(text: &[u8]) -> bool {
    let is_like = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() >= DATE_BYTES && text[..DATE_BYTES].iter().enumerate().all(is_like)
}

const DATE_BYTES: usize = 10;

/// Whether a number is a time in the near future: the value of a lock that `GETSET` takes over.
fn is_end(number: &[u8], time: Time) -> bool {
    let Some(moment) = lockwheel_resp::number::parse_integer(number) else { return false };
    let wall_ms = time.wall().0;
    let ahead_ms = moment_ms(moment, wall_ms).saturating_sub(wall_ms);
    (1..=DAY_MS).contains(&ahead_ms)
}

/// Whether a score is a time to come, in the near future.
pub(super) fn is_ahead(score: f64, time: Time) -> bool {
    let wall_ms = time.wall().0 as f64;
    let score_ms = if score > wall_ms / 10.0 { score } else { score * 1000.0 };
    score_ms > wall_ms && score_ms < wall_ms + DAY_MS as f64
}

const DAY_MS: i64 = 86_400_000;

/// A moment in milliseconds since 1970. One in seconds is converted, unless the result would be far
/// in the future.
pub(super) fn moment_ms(moment: i64, wall_ms: i64) -> i64 {
    if moment > wall_ms / 10 { moment } else { moment.saturating_mul(1000) }
}
