//! Commands for pending entries, which consumers of a stream were given: they acknowledge them,
//! list them, and assign them to another consumer.
//!
//! Invariant: a pending entry remains pending until it is acknowledged, assigned to another
//! consumer, or found to be deleted.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is};
use crate::commands::streams::entries::{
    entry_id, entry_ids, entry_reply, id_reply, range_end, range_start,
};
use crate::commands::streams::reads::no_group;
use crate::error::Error;
use crate::run::context::Context;
use crate::store::events::Events;
use crate::store::stream::Stream;
use crate::store::stream::group::{Group as ReaderGroup, Pending};
use crate::store::stream::id::StreamId;
use crate::timing::time::Millis;

const STREAM: Command = Command {
    group: Group::Stream,
    categories: Categories::STREAM,
    flags: Flags::WRITE.union(Flags::FAST),
    since: "5.0.0",
    keys: &[KeySpec::one(&["RW", "update"])],
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "xack",
        arity: Arity::AtLeast(4),
        complexity: "O(1) for each id",
        doc: "Acknowledges entries, which are then no longer pending; returns how many were.",
        arguments: &[arg::key("key"), arg::string("group"), arg::string("id").multiple()],
        example: "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; \
                  XACK s g 1-1 2-1 => 1",
        run: xack,
        ..STREAM
    },
    Command {
        name: "xautoclaim",
        arity: Arity::AtLeast(6),
        keys: &[KeySpec::one(&["RW", "delete"])],
        since: "6.2.0",
        complexity: "O(1) if COUNT is small",
        tips: &["nondeterministic_output"],
        doc: "Assigns entries that have been pending for long to a consumer, in steps.",
        arguments: &[
            arg::key("key"),
            arg::string("group"),
            arg::string("consumer"),
            arg::string("min-idle-time"),
            arg::string("start"),
            arg::integer("count").token("COUNT").optional(),
            arg::word("JUSTID").optional(),
        ],
        example: "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; \
                  XAUTOCLAIM s g other 0 0 JUSTID => [\"0-0\", [\"1-1\"], []]",
        run: xautoclaim,
        ..STREAM
    },
    Command {
        name: "xclaim",
        arity: Arity::AtLeast(6),
        complexity: "O(log N) for each id, N being what is pending",
        tips: &["nondeterministic_output"],
        doc: "Assigns given entries that have been pending for long to a consumer.",
        arguments: &[
            arg::key("key"),
            arg::string("group"),
            arg::string("consumer"),
            arg::string("min-idle-time"),
            arg::string("id").multiple(),
            arg::integer("ms").token("IDLE").optional(),
            arg::unix_time("unix-time-milliseconds").token("TIME").optional(),
            arg::integer("count").token("RETRYCOUNT").optional(),
            arg::word("FORCE").optional(),
            arg::word("JUSTID").optional(),
            arg::string("id").token("LASTID").optional(),
        ],
        example: "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; \
                  XCLAIM s g other 0 1-1 => [[\"1-1\", [\"f\", \"v\"]]]",
        run: xclaim,
        ..STREAM
    },
    Command {
        name: "xpending",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        keys: &[KeySpec::one(&["RO", "access"])],
        complexity: "O(N) in the number of entries looked at",
        tips: &["nondeterministic_output"],
        doc: "Returns the pending entries of a group.",
        arguments: &[
            arg::key("key"),
            arg::string("group"),
            arg::block(
                "filters",
                &[
                    arg::integer("min-idle-time").token("IDLE").optional().since("6.2.0"),
                    arg::string("start"),
                    arg::string("end"),
                    arg::integer("count"),
                    arg::string("consumer").optional(),
                ],
            )
            .optional(),
        ],
        example: "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; \
                  XPENDING s g => [1, \"1-1\", \"1-1\", [[\"c\", \"1\"]]]",
        run: xpending,
        ..STREAM
    },
];

/// `XACK`: replies with the number of acknowledged entries.
fn xack(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, name) = (argv[1], argv[2]);
    context.find_for_read(key);
    let stream = context.write_as::<Box<Stream>>(key)?;
    let Some(mut group) = stream.and_then(|stream| stream.into_group(name)) else {
        return Ok(0_i64.into());
    };
    let ids = entry_ids(&argv[3..])?;
    let acknowledged = ids.into_iter().filter(|&id| group.acknowledge(id)).count();
    context.count_changes(acknowledged as u64);
    Ok(acknowledged.into())
}

/// `XPENDING`: replies with a summary, or with the pending entries of a range.
fn xpending(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, name) = (argv[1], argv[2]);
    let filter = match argv.len() {
        3 => None,
        6..=9 => Some(PendingFilter::parse(&argv[3..])?),
        _ => return Err(Error::Syntax),
    };
    let now = context.time.wall();
    let stream = context.read_as::<Box<Stream>>(key)?;
    let group = stream.and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_group(key, name, ""))?;
    Ok(match filter {
        None => summary(group),
        Some(filter) => Reply::Array(filter.apply(group, now)),
    })
}

fn summary(group: &ReaderGroup) -> Reply {
    let pending = group.pending();
    let (Some((&first, _)), Some((&last, _))) =
        (pending.first_key_value(), pending.last_key_value())
    else {
        return Reply::Array(vec![Reply::Integer(0), Reply::Null, Reply::Null, Reply::NullArray]);
    };
    let consumers = group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
    let consumers = consumers.map(|(name, consumer)| {
        let count = consumer.pending().len().to_string();
        Reply::Array(vec![Reply::bulk(name), Reply::bulk(count)])
    });
    Reply::Array(vec![
        pending.len().into(),
        id_reply(first),
        id_reply(last),
        Reply::Array(consumers.collect()),
    ])
}

/// The pending entries to return.
struct PendingFilter<'a> {
    idle_min: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingFilter<'a> {
    fn parse(arguments: &[&'a [u8]]) -> Result<PendingFilter<'a>, Error> {
        let (idle_min, arguments) = match arguments {
            [word, idle, rest @ ..] if is(word, "idle") => (integer(idle)?, rest),
            _ => (0, arguments),
        };
        let [start, end, count, rest @ ..] = arguments else { return Err(Error::Syntax) };
        Ok(PendingFilter {
            count: usize::try_from(integer(count)?).unwrap_or(0),
            idle_min,
            start: range_start(start)?,
            end: range_end(end)?,
            consumer: rest.first().copied(),
        })
    }

    fn apply(&self, group: &ReaderGroup, now: Millis) -> Vec<Reply> {
        if self.start > self.end {
            return Vec::new();
        }
        let range = self.start..=self.end;
        let shown = |(&id, pending): (&StreamId, &Pending)| {
            let long = self.idle_min == 0 || idle(pending, now) >= self.idle_min;
            long.then(|| {
                Reply::Array(vec![
                    id_reply(id),
                    Reply::bulk(&pending.consumer),
                    idle(pending, now).max(0).into(),
                    (pending.deliveries as i64).into(),
                ])
            })
        };
        let Some(consumer) = self.consumer else {
            return group.pending().range(range).filter_map(shown).take(self.count).collect();
        };
        let ids =
            group.consumer(consumer).into_iter().flat_map(|c| c.pending().range(range.clone()));
        let pending = ids.filter_map(|id| group.pending().get_key_value(id));
        pending.filter_map(shown).take(self.count).collect()
    }
}

/// The time since an entry was delivered to its consumer.
fn idle(pending: &Pending, now: Millis) -> i64 {
    now.0.wrapping_sub(pending.delivered_at.0)
}

// --- claims ---

/// `XCLAIM`: replies with the claimed entries, with `JUSTID` with their ids.
fn xclaim(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, name, consumer) = (argv[1], argv[2], argv[3]);
    let stream = context.read_as::<Box<Stream>>(key)?;
    if stream.is_none_or(|stream| stream.group(name).is_none()) {
        return Err(no_group(key, name, ""));
    }
    let now = context.time.wall();
    let claim = Claim::parse(&argv[4..], now)?;
    let stream = context.write_as::<Box<Stream>>(key)?;
    let Some(mut group) = stream.and_then(|stream| stream.into_group(name)) else {
        return Err(no_group(key, name, ""));
    };
    let entries = group.entries;
    let moves = claim.last_id > group.last_id;
    if moves {
        let entries_read = group.entries_read;
        group.set_position(claim.last_id, entries_read);
    }
    let mut changes = u64::from(moves);
    let is_new = group.note_attempt(consumer, now);
    let mut replies = Vec::new();
    for &id in &claim.ids {
        let Some(entry) = entries.get(&id) else {
            changes += u64::from(group.acknowledge(id));
            continue;
        };
        let deliveries = match group.pending().get(&id) {
            Some(pending) if claim.idle_min > 0 && idle(pending, now) < claim.idle_min => continue,
            Some(pending) => pending.deliveries,
            None if claim.force => 1,
            None => continue,
        };
        let deliveries = claim.deliveries_after(deliveries);
        group.assign(id, consumer, claim.delivered_at, deliveries);
        group.note_delivery(consumer, now);
        replies.push(if claim.just_id { id_reply(id) } else { entry_reply((id, entry)) });
        changes += 1;
    }
    context.count_changes(changes);
    if is_new {
        context.changed(Events::STREAM, "xgroup-createconsumer", key);
    }
    Ok(Reply::Array(replies))
}

/// The arguments after the consumer of `XCLAIM`.
struct Claim {
    idle_min: i64,
    ids: Vec<StreamId>,
    delivered_at: Millis,
    deliveries: Option<u64>,
    last_id: StreamId,
    force: bool,
    just_id: bool,
}

impl Claim {
    fn parse(arguments: &[&[u8]], now: Millis) -> Result<Claim, Error> {
        let (idle_min, rest) = arguments.split_first().ok_or(Error::Syntax)?;
        let mut claim = Claim {
            idle_min: claim_integer(idle_min, "min-idle-time", "XCLAIM")?,
            ids: rest.iter().map_while(|id| entry_id(id).ok()).collect(),
            delivered_at: now,
            deliveries: None,
            last_id: StreamId::MIN,
            force: false,
            just_id: false,
        };
        let mut rest = &rest[claim.ids.len()..];
        while let [word, after @ ..] = rest {
            rest = after;
            if is(word, "force") {
                claim.force = true;
            } else if is(word, "justid") {
                claim.just_id = true;
            } else if let [value, after @ ..] = after {
                claim.take(word, value, now)?;
                rest = after;
            } else {
                return Err(unknown_option(word));
            }
        }
        Ok(claim)
    }

    /// Parses an option that has a value.
    fn take(&mut self, word: &[u8], value: &[u8], now: Millis) -> Result<(), Error> {
        let within = |at: i64| Millis(if (0..=now.0).contains(&at) { at } else { now.0 });
        if is(word, "idle") {
            let idle = claim_integer(value, "IDLE option", "XCLAIM")?;
            self.delivered_at = within(now.0.wrapping_sub(idle));
        } else if is(word, "time") {
            self.delivered_at = within(claim_integer(value, "TIME option", "XCLAIM")?);
        } else if is(word, "retrycount") {
            let count = claim_integer(value, "RETRYCOUNT option", "XCLAIM")?;
            self.deliveries = u64::try_from(count).ok();
        } else if is(word, "lastid") {
            self.last_id = entry_id(value)?;
        } else {
            return Err(unknown_option(word));
        }
        Ok(())
    }

    fn deliveries_after(&self, before: u64) -> u64 {
        self.deliveries.unwrap_or(before.wrapping_add(u64::from(!self.just_id)))
    }
}

fn claim_integer(argument: &[u8], name: &str, command: &str) -> Result<i64, Error> {
    integer(argument).map_err(|_| Error::text(format!("ERR Invalid {name} argument for {command}")))
}

fn unknown_option(word: &[u8]) -> Error {
    Error::text(format!("ERR Unrecognized XCLAIM option '{}'", String::from_utf8_lossy(word)))
}

/// `XAUTOCLAIM`: replies with the next id, the claimed entries and the ids of deleted ones.
fn xautoclaim(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, name, consumer) = (argv[1], argv[2], argv[3]);
    let idle_min = claim_integer(argv[4], "min-idle-time", "XAUTOCLAIM")?;
    let start = range_start(argv[5])?;
    let (mut room, just_id) = autoclaim_options(&argv[6..])?;
    // The number of entries to examine, so that a group of busy consumers does not delay other
    // clients.
    let mut examinations_left = room.saturating_mul(10);
    let now = context.time.wall();
    context.find_for_read(key);
    let stream = context.write_as::<Box<Stream>>(key)?;
    let Some(mut group) = stream.and_then(|stream| stream.into_group(name)) else {
        return Err(no_group(key, name, ""));
    };
    let entries = group.entries;
    let is_new = group.note_attempt(consumer, now);
    let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
    let mut next = group.pending().range(start..).next().map(|(&id, _)| id);
    while let Some(id) = next.filter(|_| examinations_left > 0 && room > 0) {
        examinations_left -= 1;
        let pending = group.pending().get(&id);
        let long = pending.is_none_or(|p| idle_min <= 0 || idle(p, now) >= idle_min);
        let deliveries = pending.map_or(0, |pending| pending.deliveries);
        if let Some(entry) = entries.get(&id) {
            if long {
                room -= 1;
                let deliveries = deliveries.wrapping_add(u64::from(!just_id));
                group.assign(id, consumer, now, deliveries);
                group.note_delivery(consumer, now);
                claimed.push(if just_id { id_reply(id) } else { entry_reply((id, entry)) });
            }
        } else {
            room -= 1;
            group.acknowledge(id);
            deleted.push(id_reply(id));
        }
        let after = id.next();
        next = after.and_then(|after| group.pending().range(after..).next()).map(|(&id, _)| id);
    }
    context.count_changes((claimed.len() + deleted.len()) as u64);
    if is_new {
        context.changed(Events::STREAM, "xgroup-createconsumer", key);
    }
    let next = id_reply(next.unwrap_or(StreamId::MIN));
    Ok(Reply::Array(vec![next, Reply::Array(claimed), Reply::Array(deleted)]))
}

/// The maximum number of entries, and whether only their ids are requested.
fn autoclaim_options(arguments: &[&[u8]]) -> Result<(usize, bool), Error> {
    /// As in Redis, which examines ten times as many and keeps their ids.
    const COUNT_MAX: i64 = i64::MAX / 16;
    let (mut count, mut just_id) = (100, false);
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        rest = match after {
            [value, after @ ..] if is(word, "count") => {
                let given = integer(value).ok().filter(|given| (1..=COUNT_MAX).contains(given));
                let given = given.ok_or(Error::line("ERR COUNT must be > 0"))?;
                count = usize::try_from(given).unwrap_or(usize::MAX);
                after
            }
            _ if is(word, "justid") => {
                just_id = true;
                after
            }
            _ => return Err(Error::Syntax),
        };
    }
    Ok((count, just_id))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn long_idle_entries_can_be_claimed() {
        check(
            "XADD s 1-1 f v; XADD s 2-1 f v; XGROUP CREATE s g 0; \
             XREADGROUP GROUP g c COUNT 1 STREAMS s >; +50ms; XREADGROUP GROUP g c STREAMS s >; \
             +50ms; XPENDING s g - + 9 => [[\"1-1\", \"c\", 100, 1], [\"2-1\", \"c\", 50, 1]]; \
             XPENDING s g IDLE 100 - + 9 => [[\"1-1\", \"c\", 100, 1]]; \
             XCLAIM s g d 101 1-1 2-1 => []; \
             XAUTOCLAIM s g d 100 0 => [\"0-0\", [[\"1-1\", [\"f\", \"v\"]]], []]; \
             XPENDING s g - + 9 => [[\"1-1\", \"d\", 0, 2], [\"2-1\", \"c\", 50, 1]]; \
             XCLAIM s g d 50 2-1 JUSTID => [\"2-1\"]; \
             XPENDING s g => [2, \"1-1\", \"2-1\", [[\"d\", \"2\"]]]",
        );
    }

    #[test]
    fn claims_set_the_idle_time_of_an_entry() {
        let conversation = |option: &str, idle: &str| {
            check(&format!(
                "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; +50ms; \
                 XCLAIM s g d 0 1-1 {option}; XPENDING s g - + 9 => [[\"1-1\", \"d\", {idle}, 2]]"
            ));
        };
        conversation("", "0");
        conversation("IDLE 20", "20");
        conversation("IDLE -20", "0");
        conversation("TIME 1700000000000", "50");
        conversation("TIME 1700000000051", "0");
        conversation("TIME -1", "0");
        conversation("IDLE 9223372036854775807", "0");
    }

    #[test]
    fn wall_clock_set_back_makes_no_entry_idle() {
        check(
            "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; wall-50ms; \
             XPENDING s g - + 9 => [[\"1-1\", \"c\", 0, 1]]; XCLAIM s g d 1 1-1 => []; \
             XINFO CONSUMERS s g => [[\"name\", \"c\", \"pending\", 1, \"idle\", 0, \
             \"inactive\", 0], [\"name\", \"d\", \"pending\", 0, \"idle\", 0, \"inactive\", -1]]",
        );
    }

    #[test]
    fn search_for_entries_to_claim_is_bounded() {
        let mut conversation = String::from("XGROUP CREATE s g 0 MKSTREAM");
        for id in 1..=25 {
            conversation.push_str(&format!("; XADD s {id} f v"));
        }
        conversation.push_str(
            "; XREADGROUP GROUP g c STREAMS s >; XAUTOCLAIM s g d 1 0 COUNT 2 => \
               [\"21-0\", [], []]; XAUTOCLAIM s g d 1 21 COUNT 2 => [\"0-0\", [], []]",
        );
        check(&conversation);
    }
}
