//! `XREAD` and `XREADGROUP`: the entries after an id, of several streams at once.
//!
//! Invariants: an entry that a consumer of a group is given is pending with that consumer, unless
//! the consumer has declared that it needs no acknowledgement (`NOACK`), and is given to no other
//! consumer. A blocked client receives all entries added after it began to wait.

use lockwheel_resp::{Protocol, Reply};

use crate::command::argument as arg;
use crate::command::{
    Arity, Caller, Categories, Command, FindKeys, Flags, Group, KeySpec, integer, is,
};
use crate::commands::streams::entries::{entry_id, entry_reply, id_reply};
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::waiters::WaitKind;
use crate::store::edit::GroupEdit;
use crate::store::events::Events;
use crate::store::stream::Stream;
use crate::store::stream::id::StreamId;
use crate::store::value::Kind;
use crate::timing::time::Millis;

const READ: Command = Command {
    group: Group::Stream,
    categories: Categories::STREAM,
    since: "5.0.0",
    complexity: "O(N) in the number of entries returned",
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "xread",
        arity: Arity::AtLeast(4),
        flags: Flags::READONLY.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: &["RO", "access"],
            begin: 1,
            find: FindKeys::HalfAfter("STREAMS", &[("count", 1), ("block", 1)]),
        }],
        doc: "Returns the entries after an id, of several streams.",
        arguments: &[
            arg::integer("count").token("COUNT").optional(),
            arg::integer("milliseconds").token("BLOCK").optional(),
            arg::block("streams", &[arg::key("key").multiple(), arg::string("id").multiple()])
                .token("STREAMS"),
        ],
        example: "XADD s 1-1 f v; XADD s 2-1 g w; \
                  XREAD STREAMS s 1-1 => [[\"s\", [[\"2-1\", [\"g\", \"w\"]]]]]",
        run: |context, argv| read(context, argv, false),
        ..READ
    },
    Command {
        name: "xreadgroup",
        arity: Arity::AtLeast(7),
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            flags: &["RO", "access"],
            begin: 4,
            find: FindKeys::HalfAfter(
                "STREAMS",
                &[("group", 2), ("count", 1), ("block", 1), ("noack", 0)],
            ),
        }],
        doc: "Gives a consumer entries that no consumer of the group was given before.",
        arguments: &[
            arg::block("group_consumer", &[arg::string("group"), arg::string("consumer")])
                .token("GROUP"),
            arg::integer("count").token("COUNT").optional(),
            arg::integer("milliseconds").token("BLOCK").optional(),
            arg::word("NOACK").optional(),
            arg::block("streams", &[arg::key("key").multiple(), arg::string("id").multiple()])
                .token("STREAMS"),
        ],
        example: "XADD s 1-1 f v; XGROUP CREATE s g 0; \
                  XREADGROUP GROUP g c STREAMS s > => [[\"s\", [[\"1-1\", [\"f\", \"v\"]]]]]",
        run: |context, argv| read(context, argv, true),
        ..READ
    },
];

/// The parsed arguments.
struct Request<'a> {
    /// The group and its consumer.
    reader: Option<(&'a [u8], &'a [u8])>,
    keys: &'a [&'a [u8]],
    ids: &'a [&'a [u8]],
    /// Entries of each stream; 0 is all.
    count: usize,
    acknowledged: bool,
    /// Whether to wait for entries if there are none, and until when.
    wait: Option<Option<Millis>>,
}

/// The position in a stream from which to read.
#[derive(Clone, Copy)]
enum ReadFrom {
    After(StreamId),
    /// `>`: the position of the group.
    New,
}

/// `XREAD` and `XREADGROUP`: reply with the entries of each stream, or nil.
fn read(context: &mut Context<'_>, argv: &[&[u8]], grouped: bool) -> Result<Reply, Error> {
    let request = Request::parse(context, argv, grouped)?;
    let positions = positions(context, &request)?;
    let mut served = Vec::new();
    for (&key, &position) in request.keys.iter().zip(&positions) {
        let entries = match (request.reader, position) {
            (Some(reader), _) => read_for_consumer(context, &request, reader, key, position)?,
            (None, ReadFrom::After(id)) => read_streams(context, &request, key, id)?,
            (None, ReadFrom::New) => None,
        };
        served.extend(entries.map(|entries| (Reply::bulk(key), Reply::Array(entries))));
    }
    if served.is_empty() {
        let wait = |deadline| wait(context, &request, &positions, deadline, argv);
        return Ok(request.wait.and_then(wait).unwrap_or(Reply::NullArray));
    }
    Ok(match context.protocol() {
        Protocol::Resp3 => Reply::Map(served),
        Protocol::Resp2 => {
            let pairs = served.into_iter().map(|(key, entries)| Reply::Array(vec![key, entries]));
            Reply::Array(pairs.collect())
        }
    })
}

/// Waits for entries, if the command may block. The id of `$` is determined now. Readers of a group
/// are also unblocked when the group or its stream is removed.
fn wait(
    context: &mut Context<'_>,
    request: &Request<'_>,
    positions: &[ReadFrom],
    deadline: Option<Millis>,
    argv: &[&[u8]],
) -> Option<Reply> {
    let settled: Vec<Option<String>> = request
        .ids
        .iter()
        .zip(positions)
        .map(|(&id, position)| match position {
            ReadFrom::After(last) if id == b"$" => Some(last.to_string()),
            _ => None,
        })
        .collect();
    let mut argv = argv.to_vec();
    let first = argv.len() - settled.len();
    for (id, settled) in argv[first..].iter_mut().zip(&settled) {
        *id = settled.as_ref().map_or(*id, |text| text.as_bytes());
    }
    let kind = match request.reader {
        Some(_) => WaitKind::ValueOrNone(Kind::Stream),
        None => WaitKind::Value(Kind::Stream),
    };
    context.wait_for(kind, request.keys, deadline, &argv)
}

impl<'a> Request<'a> {
    fn parse(
        context: &Context<'_>,
        argv: &'a [&'a [u8]],
        grouped: bool,
    ) -> Result<Request<'a>, Error> {
        let mut request = Request {
            reader: None,
            keys: &[],
            ids: &[],
            count: 0,
            acknowledged: false,
            wait: None,
        };
        let mut rest = &argv[1..];
        while let [word, after @ ..] = rest {
            rest = match *after {
                [timeout, ref after @ ..] if is(word, "block") => {
                    if context.caller == Caller::Script {
                        let name = String::from_utf8_lossy(argv[0]);
                        return Err(Error::text(format!(
                            "ERR {name} command is not allowed with BLOCK option from scripts"
                        )));
                    }
                    request.wait = Some(crate::commands::timeout(context.time, timeout)?);
                    after
                }
                [count, ref after @ ..] if is(word, "count") => {
                    request.count = usize::try_from(integer(count)?).unwrap_or(0);
                    after
                }
                [_, ..] if is(word, "streams") => {
                    request.set_streams(context.name, after, grouped)?;
                    break;
                }
                [group, consumer, ref after @ ..] if is(word, "group") => {
                    if !grouped {
                        return Err(only_for_groups("GROUP"));
                    }
                    request.reader = Some((group, consumer));
                    after
                }
                _ if is(word, "noack") => {
                    if !grouped {
                        return Err(only_for_groups("NOACK"));
                    }
                    request.acknowledged = true;
                    after
                }
                _ => return Err(Error::Syntax),
            };
        }
        if request.keys.is_empty() {
            return Err(Error::Syntax);
        }
        if grouped && request.reader.is_none() {
            return Err(Error::line("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(request)
    }

    fn set_streams(
        &mut self,
        command: &str,
        arguments: &'a [&'a [u8]],
        grouped: bool,
    ) -> Result<(), Error> {
        if !arguments.len().is_multiple_of(2) {
            let special = if grouped { ">" } else { "$" };
            return Err(Error::text(format!(
                "ERR Unbalanced '{command}' list of streams: for each stream key an ID or \
                 '{special}' must be specified."
            )));
        }
        (self.keys, self.ids) = arguments.split_at(arguments.len() / 2);
        Ok(())
    }
}

fn only_for_groups(option: &str) -> Error {
    Error::text(format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    ))
}

/// The positions from which to read. All of them are parsed before the first stream is read.
fn positions(context: &mut Context<'_>, request: &Request<'_>) -> Result<Vec<ReadFrom>, Error> {
    let mut positions = Vec::with_capacity(request.keys.len());
    for (&key, &id) in request.keys.iter().zip(request.ids) {
        let stream = context.read_as::<Box<Stream>>(key)?;
        if let Some((group, _)) = request.reader
            && stream.is_none_or(|stream| stream.group(group).is_none())
        {
            return Err(no_group(key, group, " in XREADGROUP with GROUP option"));
        }
        positions.push(match (id, request.reader) {
            (b"$", None) => ReadFrom::After(stream.map_or(StreamId::MIN, |stream| stream.last_id)),
            (b"$", Some(_)) => {
                return Err(Error::line(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read \
                     the history of this consumer by specifying a proper ID, or use the > ID to \
                     get new messages. The $ ID would just return an empty result set.",
                ));
            }
            (b">", Some(_)) => ReadFrom::New,
            (b">", None) => {
                return Err(Error::line(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            _ => match entry_id(id)? {
                // Redis represents `>` by this id, and so accepts it.
                StreamId::MAX if request.reader.is_some() => ReadFrom::New,
                id => ReadFrom::After(id),
            },
        });
    }
    Ok(positions)
}

/// The error for a key without the requested group; `where_from` names the command.
pub fn no_group(key: &[u8], group: &[u8], where_from: &str) -> Error {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    Error::text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{where_from}"))
}

/// The entries after the requested ids, if there are any.
fn read_streams(
    context: &mut Context<'_>,
    request: &Request<'_>,
    key: &[u8],
    after: StreamId,
) -> Result<Option<Vec<Reply>>, Error> {
    let Some(stream) = context.read_as::<Box<Stream>>(key)? else { return Ok(None) };
    if !stream.has_after(after) {
        return Ok(None);
    }
    let entries = after.next().into_iter().flat_map(|from| stream.range(from, StreamId::MAX));
    Ok(Some(entries.take(request.count_max()).map(entry_reply).collect()))
}

/// The entries for a consumer: new ones, or those pending with it.
fn read_for_consumer(
    context: &mut Context<'_>,
    request: &Request<'_>,
    (group, consumer): (&[u8], &[u8]),
    key: &[u8],
    position: ReadFrom,
) -> Result<Option<Vec<Reply>>, Error> {
    let now = context.time.wall();
    let count = request.count_max();
    context.find_for_read(key);
    let Some(stream) = context.write_as::<Box<Stream>>(key)? else { return Ok(None) };
    let Some(mut group) = stream.into_group(group) else { return Ok(None) };
    let is_new = group.note_attempt(consumer, now);
    let entries = match position {
        ReadFrom::After(id) => Some(history(&mut group, consumer, id, count, now)),
        ReadFrom::New => new_entries(&mut group, consumer, count, now, !request.acknowledged),
    };
    if is_new {
        context.changed(Events::STREAM, "xgroup-createconsumer", key);
    }
    context.count_changes(u64::from(entries.is_some()));
    Ok(entries)
}

/// The entries pending with a consumer, delivered once more.
fn history(
    group: &mut GroupEdit<'_>,
    consumer: &[u8],
    after: StreamId,
    count: usize,
    now: Millis,
) -> Vec<Reply> {
    let entries = group.entries;
    let pending = group.consumer(consumer).into_iter().zip(after.next());
    let pending = pending.flat_map(|(consumer, from)| consumer.pending().range(from..));
    let ids: Vec<StreamId> = pending.copied().take(count).collect();
    let give = |id: StreamId| match entries.get(&id) {
        Some(entry) => {
            group.deliver_again(id, now);
            entry_reply((id, entry))
        }
        None => Reply::Array(vec![id_reply(id), Reply::NullArray]),
    };
    ids.into_iter().map(give).collect()
}

/// The entries that no consumer of the group was given before, if there are any.
fn new_entries(
    group: &mut GroupEdit<'_>,
    consumer: &[u8],
    count: usize,
    now: Millis,
    pending: bool,
) -> Option<Vec<Reply>> {
    let new = group.entries.range(group.last_id.next()?..).take(count);
    let mut replies = Vec::new();
    for (&id, entry) in new {
        group.deliver(id, consumer, now, pending);
        replies.push(entry_reply((id, entry)));
    }
    (!replies.is_empty()).then_some(replies)
}

impl Request<'_> {
    fn count_max(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_events};

    #[test]
    fn wait_ends_on_the_millisecond() {
        check("b> XREAD BLOCK 5 STREAMS s $; +4ms; b< => ; +1ms; b< => nil-array");
        check("b> HELLO 3; b> XREAD BLOCK 5 STREAMS s $; +5ms; b< => nil; b> PING => PONG");
        check("b> XREAD BLOCK 0 STREAMS s $; +100000000ms; b< => ; XADD s 1-1 f v; b< => [...");
        check(
            "XGROUP CREATE s g $ MKSTREAM; b> XREADGROUP GROUP g c BLOCK 5 STREAMS s >; +5ms; \
             b< => nil-array; XADD s 1-1 f v; XPENDING s g => [0, nil, nil, nil-array]",
        );
        check(
            "XREAD BLOCK 9223372036854775807 STREAMS s $ => !ERR timeout is out of range; \
             XREAD BLOCK 9223372036854775808 STREAMS s $ => \
             !ERR timeout is not an integer or out of range",
        );
    }

    #[test]
    fn dollar_is_the_last_id_when_the_wait_began() {
        check(
            "XADD s 1-1 f v; b> XREAD BLOCK 0 STREAMS t s $ $; XSETID s 5-5; XADD s 5-6 g w; \
             b< => [[\"s\", [[\"5-6\", [\"g\", \"w\"]]]]]",
        );
        check(
            "XADD s 1-1 f v; b> XREAD BLOCK 0 STREAMS s $; MULTI; XADD s 1-2 f v; \
             XADD s 1-3 f v; EXEC; \
             b< => [[\"s\", [[\"1-2\", [\"f\", \"v\"]], [\"1-3\", [\"f\", \"v\"]]]]]",
        );
    }

    #[test]
    fn entry_goes_to_the_next_reader_if_the_first_was_killed() {
        check(
            "XGROUP CREATE s g $ MKSTREAM; b> XREADGROUP GROUP g b BLOCK 0 STREAMS s >; \
             c> XREADGROUP GROUP g c BLOCK 0 STREAMS s >; CLIENT KILL ID 2; XADD s 1-1 f v; \
             c< => [[\"s\", [[\"1-1\", [\"f\", \"v\"]]]]]; \
             XPENDING s g => [1, \"1-1\", \"1-1\", [[\"c\", \"1\"]]]",
        );
    }

    #[test]
    fn readers_of_a_group_are_unblocked_when_it_is_removed() {
        let gone = "!NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
        for (end, reply) in [
            ("XGROUP DESTROY s g", gone),
            ("DEL s", gone),
            ("RENAME s t", gone),
            ("FLUSHALL", gone),
            ("SWAPDB 0 1", gone),
            ("PEXPIRE s 1; +1ms", gone),
            ("XADD t 1-1 f v; COPY t s REPLACE", gone),
            ("SET s v", "!WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("CLIENT UNBLOCK 2", "nil-array"),
            ("CLIENT UNBLOCK 2 ERROR", "!UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        ] {
            check(&format!(
                "XGROUP CREATE s g $ MKSTREAM; b> XREADGROUP GROUP g b BLOCK 0 STREAMS s >; \
                 {end}; b< => {reply}; b> PING => PONG"
            ));
        }
        check("b> XREAD BLOCK 0 STREAMS s $; XGROUP CREATE s g $ MKSTREAM; DEL s; b< => ");
    }

    #[test]
    fn blocked_read_sets_the_seen_time() {
        check(
            "XGROUP CREATE s g $ MKSTREAM; b> XREADGROUP GROUP g c BLOCK 0 STREAMS s >; +5ms; \
             XINFO CONSUMERS s g => [[..., \"pending\", 0, \"idle\", 5, \"inactive\", -1]]; \
             XADD s 1-1 f v; \
             XINFO CONSUMERS s g => [[..., \"pending\", 1, \"idle\", 0, \"inactive\", 0]]",
        );
        check_events(&[
            ("XGROUP CREATE s g $ MKSTREAM", "new s, xgroup-create s"),
            ("b> XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "xgroup-createconsumer s"),
            ("XADD s 1-1 f v", "xadd s"),
        ]);
    }

    #[test]
    fn scripts_do_not_wait() {
        for (name, reader) in [("xRead", ""), ("XREADGROUP", "'GROUP', 'g', 'c', ")] {
            check(&format!(
                "EVAL \"return redis.pcall('{name}', {reader}'BLOCK', '0', 'STREAMS', 's', '1')\" \
                 0 => !ERR {name} command is not allowed with BLOCK option from scripts"
            ));
        }
    }
}
