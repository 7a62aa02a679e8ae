//! Leases end neither early nor late by the server's own clock. TIME is sent before and after each
//! command, in one pipeline, so that the command ran between the two readings.

use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError, integer};
use super::property::Property;
use crate::random::Random;
use crate::report::{Failure, Question};
use crate::time;
use crate::wire::frame::Frame;

const EARLY: &str = "A lease that ends early admits another client while the holder still works.";

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "SET PX: the lease ends at its deadline, to the millisecond",
        client: None,
        question: Question::LostEarly,
        why: EARLY,
        run: |arena| leases(arena, &[LeaseSource::Set]),
    },
    Property {
        name: "PEXPIRE and PEXPIREAT: the lease ends at its deadline, to the millisecond",
        client: None,
        question: Question::LostEarly,
        why: EARLY,
        run: |arena| leases(arena, &[LeaseSource::Pexpire, LeaseSource::PexpireAt]),
    },
    Property {
        name: "A lease set in a script ends at its deadline, to the millisecond",
        client: Some("Redisson RLock"),
        question: Question::LostEarly,
        why: EARLY,
        run: |arena| leases(arena, &[LeaseSource::Script]),
    },
    Property {
        name: "A renewed lease ends at its new deadline, to the millisecond",
        client: None,
        question: Question::LostEarly,
        why: "A watchdog relies on the new deadline of a renewal.",
        run: |arena| leases(arena, &[LeaseSource::Renewed, LeaseSource::Shortened]),
    },
    Property {
        name: "Commands that change a value keep its lease, to the millisecond",
        client: None,
        question: Question::LostEarly,
        why: "A lock that loses its lease on re-entry is held for ever if its holder crashes.",
        run: |arena| leases(arena, &[LeaseSource::Changed]),
    },
];

/// The range of leases, on a machine that is not busy.
const TTL_MS: (i64, i64) = (4, 14);
/// How long before the deadline the key is watched, on such a machine.
const WATCH_US: i64 = 2500;
/// Largest factor by which both are longer on a busy machine, where clients come too late to see
/// the end of a short lease.
const SLOWNESS_MAX: i64 = 16;
/// Longest time for which a key may exist after its deadline: it is gone a millisecond later; or
/// its lease begins at the next whole millisecond.
const LATE_US: i64 = 2000;
/// Difference between the clock of leases and TIME that is allowed, in millionths.
const DRIFT_PPM: i64 = 1000;
/// The most clients that watch: each is busy when a deadline is near.
const WATCHERS_MAX: usize = 4;
/// The number of deadlines that must have been observed.
const TRIALS_MIN: usize = 5;
/// Number of leases of which fewer than one may be short on Redis 8 and later, or fewer than
/// [`SWEPT_MIN`] in all.
const SWEPT: usize = 16;
/// See [`SWEPT`].
const SWEPT_MIN: usize = 4;

/// The ways to set a lease.
#[derive(Clone, Copy, Debug)]
enum LeaseSource {
    Set,
    Pexpire,
    PexpireAt,
    Script,
    Renewed,
    Shortened,
    Changed,
}

fn leases(arena: &Arena<'_>, source: &[LeaseSource]) -> Result<(), PropertyError> {
    let ends = arena.run_clients(arena.connections.min(WATCHERS_MAX), |number, client| {
        let mut random = arena.random(number);
        let key = arena.key(&format!("lease-{number}"));
        let mut ends = Vec::new();
        let mut slowness = 1;
        while !arena.is_over() {
            let source = *random.pick(source);
            let end = watch(client, &key, source, slowness, &mut random)?;
            slowness = match end {
                LeaseEnd::Unseen => (slowness * 2).min(SLOWNESS_MAX),
                LeaseEnd::Seen | LeaseEnd::Short(_) => (slowness / 2).max(1),
            };
            ends.push(end);
        }
        Ok(ends)
    })?;
    let mut ends = ends.concat();
    ends.retain(|end| !matches!(end, LeaseEnd::Unseen));
    let seen = ends.len();
    ends.retain(|end| matches!(end, LeaseEnd::Short(_)));
    if ends.len() > short_leases_max(arena.is_redis_since(8, 0), seen)
        && let Some(LeaseEnd::Short(failure)) = ends.pop()
    {
        let came = format!("{}; so were {} of {seen} leases", failure.came, ends.len() + 1);
        return Err(PropertyError::Violated(Box::new(Failure { came, ..*failure })));
    }
    PropertyError::unknown_unless(seen >= TRIALS_MIN, || {
        format!("only {seen} deadlines were observed")
    })
}

/// The number of observed leases that may be short.
fn short_leases_max(sweeps: bool, seen: usize) -> usize {
    if sweeps { SWEPT_MIN.max(seen / SWEPT) - 1 } else { 0 }
}

/// How a lease ended.
#[derive(Clone)]
enum LeaseEnd {
    /// The key was not observed before its end.
    Unseen,
    /// At its deadline.
    Seen,
    /// In the millisecond before its deadline.
    Short(Box<Failure>),
}

/// The range of times in which a lease must end, by the server's clock.
struct Deadline {
    earliest_us: i64,
    latest_us: i64,
    /// Earliest time at which the expiry cycle removes the key.
    swept_us: i64,
    story: Vec<String>,
}

/// Sets a lease and watches its end.
fn watch(
    client: &mut ArenaClient,
    key: &str,
    source: LeaseSource,
    slowness: i64,
    random: &mut Random,
) -> Result<LeaseEnd, PropertyError> {
    client.call(&["DEL", key])?;
    let begun_us = time::now_us();
    let ttl_ms = random.between(TTL_MS.0, TTL_MS.1) * slowness;
    let Some(mut deadline) = source.begin(client, key, ttl_ms, random)? else {
        return Ok(LeaseEnd::Unseen);
    };
    let asleep_us = begun_us + ttl_ms * 1000 - WATCH_US * slowness - time::now_us();
    if asleep_us > 0 {
        time::sleep(Duration::from_micros(asleep_us.unsigned_abs()));
    }
    let mut was_there = false;
    loop {
        let replies = client.pipeline(&[&["TIME"], &["EXISTS", key], &["TIME"]])?;
        let [before, exists, after] = &replies[..] else { return Ok(LeaseEnd::Unseen) };
        let (before_us, after_us) = (clock_us(before)?, clock_us(after)?);
        let exists = integer(&["EXISTS", key], exists)? != 0;
        let found = if exists { "it is there" } else { "it is not there" };
        deadline.story.push(format!("TIME {before_us}: {found}: TIME {after_us}"));
        if !exists && after_us < deadline.earliest_us {
            let early_us = deadline.earliest_us - after_us;
            let is_short = after_us >= deadline.swept_us;
            let failure = deadline.missed(source, format!("gone {early_us} us early, at least"));
            let failure = Box::new(failure);
            return if is_short {
                Ok(LeaseEnd::Short(failure))
            } else {
                Err(PropertyError::Violated(failure))
            };
        }
        if exists && before_us > deadline.latest_us {
            let late_us = before_us - deadline.latest_us + LATE_US;
            let failure = deadline.missed(source, format!("there {late_us} us late, at least"));
            return Err(PropertyError::Violated(Box::new(failure)));
        }
        if !exists {
            return Ok(if was_there { LeaseEnd::Seen } else { LeaseEnd::Unseen });
        }
        was_there = true;
    }
}

impl Deadline {
    /// The deadline of a lease that `exchange` has set between these replies of `TIME`.
    fn after(
        begin: &Frame,
        end: &Frame,
        ttl_ms: i64,
        exchange: &str,
    ) -> Result<Deadline, PropertyError> {
        let (begin_us, end_us) = (clock_us(begin)?, clock_us(end)?);
        let story = vec![format!("TIME {begin_us}: {exchange}: TIME {end_us}")];
        let slack_us = ttl_ms * DRIFT_PPM / 1000 + 10;
        Ok(Deadline {
            earliest_us: begin_us + ttl_ms * 1000 - slack_us,
            latest_us: end_us + ttl_ms * 1000 + LATE_US + slack_us,
            swept_us: begin_us.div_euclid(1000) * 1000 + ttl_ms * 1000 - slack_us,
            story,
        })
    }

    fn missed(self, source: LeaseSource, came: String) -> Failure {
        let expected = format!("the key goes between {} and {}", self.earliest_us, self.latest_us);
        let mut story = self.story;
        // Keep the beginning and the end.
        if story.len() > 8 {
            story.drain(1..story.len() - 7);
        }
        let sent = format!("{source:?}, then TIME, EXISTS, TIME");
        Failure { sent, expected, came, story, ..Failure::default() }
    }
}

impl LeaseSource {
    /// Sets a lease; `None` if that took so long that the key had expired before.
    fn begin(
        self,
        client: &mut ArenaClient,
        key: &str,
        ttl_ms: i64,
        random: &mut Random,
    ) -> Result<Option<Deadline>, PropertyError> {
        let ttl = ttl_ms.to_string();
        let set: &[&str] = &["SET", key, "v", "PX", &ttl];
        match self {
            LeaseSource::Set => measured(client, set, ttl_ms).map(|(deadline, _)| Some(deadline)),
            LeaseSource::Script => {
                let script = "redis.call('hset', KEYS[1], 'owner', 1) \
                    return redis.call('pexpire', KEYS[1], ARGV[1])";
                if_one(measured(client, &["EVAL", script, "1", key, &ttl], ttl_ms)?)
            }
            LeaseSource::Pexpire => {
                client.call(&["SET", key, "v"])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            LeaseSource::PexpireAt => {
                client.call(&["RPUSH", key, "v"])?;
                let now_us = clock_us(&client.call(&["TIME"])?)?;
                let at_ms = now_us / 1000 + ttl_ms;
                let set = client.call(&["PEXPIREAT", key, &at_ms.to_string()])?;
                // The deadline is given in milliseconds, whenever the command runs.
                let slack_us = ttl_ms * DRIFT_PPM / 1000 + 10;
                let deadline = Deadline {
                    earliest_us: at_ms * 1000 - slack_us,
                    latest_us: at_ms * 1000 + LATE_US + slack_us,
                    swept_us: at_ms * 1000 - slack_us,
                    story: vec![format!("PEXPIREAT {at_ms}")],
                };
                if_one((deadline, set))
            }
            LeaseSource::Renewed => {
                let short = random.between(2, ttl_ms).to_string();
                client.call(&["SET", key, "v", "PX", &short])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            LeaseSource::Shortened => {
                client.call(&["SET", key, "v", "PX", "60000"])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            LeaseSource::Changed => {
                let &(first, changes) = random.pick(CHANGES);
                client.call(&with_key(first, key))?;
                let (mut deadline, set) = measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?;
                let change: &&[&str] = random.pick(changes);
                let change = with_key(change, key);
                // The key may have expired before the change.
                if client.try_call(&change)?.kind == b'-' {
                    return Ok(None);
                }
                let remaining = client.integer(&["PTTL", key])?;
                let changed_us = clock_us(&client.call(&["TIME"])?)?;
                // The change may have come too late and created the key again.
                if changed_us >= deadline.earliest_us {
                    return Ok(None);
                }
                deadline.story.push(format!("{}: PTTL {remaining}", change.join(" ")));
                deadline.story.push(format!("TIME {changed_us}"));
                if_one((deadline, set))
            }
        }
    }
}

/// A command that creates a key, and commands that change it but not its lease.
type Changes = (&'static [&'static str], &'static [&'static [&'static str]]);

const CHANGES: &[Changes] = &[
    (
        &["HSET", "<k>", "owner", "1"],
        &[
            &["HINCRBY", "<k>", "owner", "1"],
            &["HSET", "<k>", "other", "1"],
            &["HSETNX", "<k>", "other", "1"],
            &["HDEL", "<k>", "missing"],
        ],
    ),
    (
        &["SET", "<k>", "1"],
        &[
            &["APPEND", "<k>", "1"],
            &["INCR", "<k>"],
            &["SETRANGE", "<k>", "1", "1"],
            &["SET", "<k>", "2", "KEEPTTL"],
        ],
    ),
    (
        &["RPUSH", "<k>", "1", "2"],
        &[&["LPUSH", "<k>", "1"], &["LPOP", "<k>"], &["LSET", "<k>", "0", "1"]],
    ),
    (&["SADD", "<k>", "1", "2"], &[&["SADD", "<k>", "3"], &["SREM", "<k>", "1"]]),
    (&["ZADD", "<k>", "1", "m"], &[&["ZADD", "<k>", "2", "m"], &["ZINCRBY", "<k>", "1", "m"]]),
];

fn with_key<'w>(words: &[&'w str], key: &'w str) -> Vec<&'w str> {
    words.iter().map(|word| if *word == "<k>" { key } else { word }).collect()
}

/// Sends a command that sets a lease, with TIME before and after.
fn measured(
    client: &mut ArenaClient,
    words: &[&str],
    ttl_ms: i64,
) -> Result<(Deadline, Frame), PropertyError> {
    let mut replies = client.pipeline(&[&["TIME"], words, &["TIME"]])?;
    let (Some(end), Some(reply), Some(begin)) = (replies.pop(), replies.pop(), replies.pop())
    else {
        return Err(PropertyError::unknown("no reply"));
    };
    let exchange = format!("{} {}", words.join(" "), reply.notation());
    Ok((Deadline::after(&begin, &end, ttl_ms, &exchange)?, reply))
}

/// The deadline, if the command returned 1.
fn if_one((deadline, reply): (Deadline, Frame)) -> Result<Option<Deadline>, PropertyError> {
    Ok((reply.text == b"1").then_some(deadline))
}

/// The reply of TIME in microseconds.
fn clock_us(reply: &Frame) -> Result<i64, PropertyError> {
    let [seconds, micros] = &reply.items[..] else {
        return Err(PropertyError::violated(
            "seconds and microseconds",
            &reply.notation(),
            Vec::new(),
        ));
    };
    let seconds = integer(&["TIME"], seconds)?;
    let micros = integer(&["TIME"], micros)?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::short_leases_max;

    #[test]
    fn short_leases_are_allowed_only_where_keys_are_swept() {
        for seen in [0, 1, 100, 10_000] {
            assert_eq!(short_leases_max(false, seen), 0);
        }
        assert_eq!([0, 50, 160, 1_600].map(|seen| short_leases_max(true, seen)), [3, 3, 9, 99]);
    }
}
