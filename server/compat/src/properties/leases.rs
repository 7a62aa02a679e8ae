//! Leases end neither early nor late: by the server's own clock, asked before and after whatever
//! is to be placed in time, in one go. What lies between two readings happened between them.

use std::time::Duration;

use super::super::frame::Frame;
use super::super::random::Random;
use super::super::report::Failure;
use super::super::time;
use super::arena::integer;
use super::{Arena, Client, Property, Trouble};

const EARLY: &str = "A lease that ends early lets another in while the holder still works.";

/// What is tried.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "SET PX: the lease ends at its deadline, to the millisecond",
        client: None,
        why: EARLY,
        run: |arena| leases(arena, &[Means::Set]),
    },
    Property {
        name: "PEXPIRE and PEXPIREAT: the lease ends at its deadline, to the millisecond",
        client: None,
        why: EARLY,
        run: |arena| leases(arena, &[Means::Pexpire, Means::PexpireAt]),
    },
    Property {
        name: "A lease set in a script ends at its deadline, to the millisecond",
        client: Some("Redisson RLock"),
        why: EARLY,
        run: |arena| leases(arena, &[Means::Script]),
    },
    Property {
        name: "A renewed lease ends at its new deadline, to the millisecond",
        client: None,
        why: "A watchdog relies on it that a renewal counts, and from when on.",
        run: |arena| leases(arena, &[Means::Renewed, Means::Shortened]),
    },
    Property {
        name: "What changes a value keeps its lease, to the millisecond",
        client: None,
        why: "A lock that loses its lease when it is entered again is held for ever once its \
              holder dies.",
        run: |arena| leases(arena, &[Means::Changed]),
    },
];

/// The lengths of the leases.
const TTL_MS: (i64, i64) = (4, 14);
/// From how long before the deadline on the lock is watched.
const WATCH_US: i64 = 2500;
/// A key is there at its deadline and gone a millisecond later; or its lease begins at the next
/// whole millisecond.
const LATE_US: i64 = 2000;
/// The clock of leases may run by so many millionths slower or faster than TIME.
const DRIFT_PPM: i64 = 1000;
/// How many watch: each is busy when a deadline is near.
const WATCHERS_MAX: usize = 4;
/// So many deadlines must have been seen.
const TRIALS_MIN: usize = 5;
/// On Redis 8 and later fewer than one lease in so many may be short, or fewer than [`SWEPT_MIN`].
/// A sweep there removes keys at their deadline, not after it, and the deadline is counted from the
/// millisecond in which the lease was set; so a lease that is swept just then is short by a part of
/// a millisecond. On any other server no lease may be short.
const SWEPT: usize = 16;
/// See [`SWEPT`].
const SWEPT_MIN: usize = 4;

/// How a lease comes about.
#[derive(Clone, Copy, Debug)]
enum Means {
    Set,
    Pexpire,
    PexpireAt,
    Script,
    Renewed,
    Shortened,
    Changed,
}

fn leases(arena: &Arena<'_>, means: &[Means]) -> Result<(), Trouble> {
    let ends = arena.crowd(arena.connections.min(WATCHERS_MAX), |number, client| {
        let mut random = arena.random(number);
        let key = arena.key(&format!("lease-{number}"));
        let mut ends = Vec::new();
        while !arena.is_over() {
            let means = *random.pick(means);
            ends.push(watch(client, &key, means, &mut random)?);
        }
        Ok(ends)
    })?;
    let mut ends = ends.concat();
    ends.retain(|end| !matches!(end, End::Unseen));
    let seen = ends.len();
    ends.retain(|end| matches!(end, End::Short(_)));
    if ends.len() > short_leases_max(arena.is_redis_since(8, 0), seen)
        && let Some(End::Short(failure)) = ends.pop()
    {
        let came = format!("{}; so were {} of {seen} leases", failure.came, ends.len() + 1);
        return Err(Trouble::Broken(Box::new(Failure { came, ..*failure })));
    }
    if seen < TRIALS_MIN {
        return Err(Trouble::unknown(format!("the ends of {seen} leases were seen only")));
    }
    Ok(())
}

/// How many of the leases that were seen to end may have been short.
fn short_leases_max(sweeps: bool, seen: usize) -> usize {
    if sweeps { SWEPT_MIN.max(seen / SWEPT) - 1 } else { 0 }
}

/// How a lease ended.
#[derive(Clone)]
enum End {
    /// It was not seen before it had ended.
    Unseen,
    /// In time.
    Seen,
    /// In the millisecond before its time.
    Short(Box<Failure>),
}

/// When a lease ends, by the server's clock: not before, and not after.
struct Deadline {
    earliest_us: i64,
    latest_us: i64,
    /// A sweep does not remove it before this.
    swept_us: i64,
    story: Vec<String>,
}

/// Sets a lease and watches its end.
fn watch(
    client: &mut Client,
    key: &str,
    means: Means,
    random: &mut Random,
) -> Result<End, Trouble> {
    client.call(&["DEL", key])?;
    let begun_us = time::now_us();
    let ttl_ms = random.between(TTL_MS.0, TTL_MS.1);
    let Some(mut deadline) = means.begin(client, key, ttl_ms, random)? else {
        return Ok(End::Unseen);
    };
    let asleep_us = begun_us + ttl_ms * 1000 - WATCH_US - time::now_us();
    if asleep_us > 0 {
        time::sleep(Duration::from_micros(asleep_us.unsigned_abs()));
    }
    let mut was_there = false;
    loop {
        let replies = client.pipeline(&[&["TIME"], &["EXISTS", key], &["TIME"]])?;
        let [before, exists, after] = &replies[..] else { return Ok(End::Unseen) };
        let (before_us, after_us) = (clock_us(before)?, clock_us(after)?);
        let exists = integer(&["EXISTS", key], exists)? != 0;
        let told = if exists { "it is there" } else { "it is not there" };
        deadline.story.push(format!("TIME {before_us}: {told}: TIME {after_us}"));
        if !exists && after_us < deadline.earliest_us {
            let early_us = deadline.earliest_us - after_us;
            let is_short = after_us >= deadline.swept_us;
            let failure = deadline.missed(means, format!("gone {early_us} us early, at least"));
            let failure = Box::new(failure);
            return if is_short { Ok(End::Short(failure)) } else { Err(Trouble::Broken(failure)) };
        }
        if exists && before_us > deadline.latest_us {
            let late_us = before_us - deadline.latest_us + LATE_US;
            let failure = deadline.missed(means, format!("there {late_us} us late, at least"));
            return Err(Trouble::Broken(Box::new(failure)));
        }
        if !exists {
            return Ok(if was_there { End::Seen } else { End::Unseen });
        }
        was_there = true;
    }
}

impl Deadline {
    /// Of a lease of that length, set between these two moments.
    fn after(begin: &Frame, end: &Frame, ttl_ms: i64, what: &str) -> Result<Deadline, Trouble> {
        let (begin_us, end_us) = (clock_us(begin)?, clock_us(end)?);
        let story = vec![format!("TIME {begin_us}: {what}: TIME {end_us}")];
        let slack_us = ttl_ms * DRIFT_PPM / 1000 + 10;
        Ok(Deadline {
            earliest_us: begin_us + ttl_ms * 1000 - slack_us,
            latest_us: end_us + ttl_ms * 1000 + LATE_US + slack_us,
            swept_us: begin_us.div_euclid(1000) * 1000 + ttl_ms * 1000 - slack_us,
            story,
        })
    }

    fn missed(self, means: Means, came: String) -> Failure {
        let expected = format!("the key goes between {} and {}", self.earliest_us, self.latest_us);
        let mut story = self.story;
        // The beginning, and the end.
        if story.len() > 8 {
            story.drain(1..story.len() - 7);
        }
        let sent = format!("{means:?}, then TIME, EXISTS, TIME");
        Failure { sent, expected, came, story, ..Failure::default() }
    }
}

impl Means {
    /// Sets a lease; nothing if that took so long that the key had gone before.
    fn begin(
        self,
        client: &mut Client,
        key: &str,
        ttl_ms: i64,
        random: &mut Random,
    ) -> Result<Option<Deadline>, Trouble> {
        let ttl = ttl_ms.to_string();
        let set: &[&str] = &["SET", key, "v", "PX", &ttl];
        match self {
            Means::Set => measured(client, set, ttl_ms).map(|(deadline, _)| Some(deadline)),
            Means::Script => {
                let script = "redis.call('hset', KEYS[1], 'owner', 1) \
                    return redis.call('pexpire', KEYS[1], ARGV[1])";
                if_one(measured(client, &["EVAL", script, "1", key, &ttl], ttl_ms)?)
            }
            Means::Pexpire => {
                client.call(&["SET", key, "v"])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            Means::PexpireAt => {
                client.call(&["RPUSH", key, "v"])?;
                let now_us = clock_us(&client.call(&["TIME"])?)?;
                let at_ms = now_us / 1000 + ttl_ms;
                let set = client.call(&["PEXPIREAT", key, &at_ms.to_string()])?;
                // To the millisecond it was told, whenever it was told.
                let slack_us = ttl_ms * DRIFT_PPM / 1000 + 10;
                let deadline = Deadline {
                    earliest_us: at_ms * 1000 - slack_us,
                    latest_us: at_ms * 1000 + LATE_US + slack_us,
                    swept_us: at_ms * 1000 - slack_us,
                    story: vec![format!("PEXPIREAT {at_ms}")],
                };
                if_one((deadline, set))
            }
            Means::Renewed => {
                let short = random.between(2, ttl_ms).to_string();
                client.call(&["SET", key, "v", "PX", &short])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            Means::Shortened => {
                client.call(&["SET", key, "v", "PX", "60000"])?;
                if_one(measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?)
            }
            Means::Changed => {
                let &(first, changes) = random.pick(CHANGES);
                client.call(&with_key(first, key))?;
                let (mut deadline, set) = measured(client, &["PEXPIRE", key, &ttl], ttl_ms)?;
                let change: &&[&str] = random.pick(changes);
                let change = with_key(change, key);
                // What must be there may have gone by then.
                if client.try_call(&change)?.kind == b'-' {
                    return Ok(None);
                }
                let remaining = client.integer(&["PTTL", key])?;
                let changed_us = clock_us(&client.call(&["TIME"])?)?;
                // It may have come too late, and made the key anew.
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

/// A key, and what changes it and not its lease.
type Changes = (&'static [&'static str], &'static [&'static [&'static str]]);

const CHANGES: &[Changes] = &[
    (
        &["HSET", "<k>", "owner", "1"],
        &[
            &["HINCRBY", "<k>", "owner", "1"],
            &["HSET", "<k>", "other", "1"],
            &["HSETNX", "<k>", "other", "1"],
            &["HDEL", "<k>", "nobody"],
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

/// Sends a command that sets a lease, with the time before and after.
fn measured(
    client: &mut Client,
    words: &[&str],
    ttl_ms: i64,
) -> Result<(Deadline, Frame), Trouble> {
    let mut replies = client.pipeline(&[&["TIME"], words, &["TIME"]])?;
    let (Some(end), Some(reply), Some(begin)) = (replies.pop(), replies.pop(), replies.pop())
    else {
        return Err(Trouble::unknown("no reply"));
    };
    let what = format!("{} {}", words.join(" "), reply.notation());
    Ok((Deadline::after(&begin, &end, ttl_ms, &what)?, reply))
}

/// The deadline, if the command found the key.
fn if_one((deadline, reply): (Deadline, Frame)) -> Result<Option<Deadline>, Trouble> {
    Ok((reply.text == b"1").then_some(deadline))
}

/// What TIME says.
fn clock_us(reply: &Frame) -> Result<i64, Trouble> {
    let [seconds, micros] = &reply.items[..] else {
        return Err(Trouble::broken("seconds and microseconds", &reply.notation(), Vec::new()));
    };
    let seconds = integer(&["TIME"], seconds)?;
    let micros = integer(&["TIME"], micros)?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::short_leases_max;

    #[test]
    fn no_lease_may_be_short_on_a_server_that_does_not_sweep() {
        for seen in [0, 1, 100, 10_000] {
            assert_eq!(short_leases_max(false, seen), 0);
        }
        assert_eq!([0, 50, 160, 1_600].map(|seen| short_leases_max(true, seen)), [3, 3, 9, 99]);
    }
}
