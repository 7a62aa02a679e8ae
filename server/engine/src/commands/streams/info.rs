//! `XINFO`: describes a stream, its groups and their consumers.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is};
use crate::commands::streams::entries::{entry_reply, id_reply};
use crate::commands::streams::groups::{no_such_group, wrong_subcommand};
use crate::commands::{help_row, map};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::stream::group::{Consumer, Group as ReaderGroup};
use crate::store::stream::id::StreamId;
use crate::store::stream::{Extent, Stream};
use crate::timing::time::Millis;

const XINFO: Command = Command {
    flags: Flags::READONLY,
    group: Group::Stream,
    categories: Categories::STREAM,
    since: "5.0.0",
    keys: &[KeySpec::at(2, &["RO", "access"])],
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "xinfo",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    categories: Categories::empty(),
    keys: &[],
    complexity: "that of the subcommand",
    doc: "A container for commands that describe streams.",
    subcommands: SUBCOMMANDS,
    ..XINFO
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "consumers",
        arity: Arity::Exactly(4),
        tips: &["nondeterministic_output"],
        doc: "Describes the consumers of a group.",
        arguments: &[arg::key("key"), arg::string("groupname")],
        example: "XGROUP CREATE s g $ MKSTREAM; XINFO CONSUMERS s g => []",
        run: consumers,
        ..XINFO
    },
    Command {
        name: "groups",
        arity: Arity::Exactly(3),
        doc: "Describes the groups of a stream.",
        arguments: &[arg::key("key")],
        example: "XGROUP CREATE s g $ MKSTREAM; XINFO GROUPS s => [[\"name\", \"g\", ...]]",
        run: groups,
        ..XINFO
    },
    help_row(XINFO, XINFO.since, "XINFO HELP => [XINFO <subcommand> ...]"),
    Command {
        name: "stream",
        arity: Arity::AtLeast(3),
        doc: "Describes a stream.",
        arguments: &[
            arg::key("key"),
            arg::block("full", &[arg::integer("count").token("COUNT").optional()])
                .token("FULL")
                .optional(),
        ],
        example: "XADD s 1-1 f v; XINFO STREAM s => [\"length\", 1, ...]",
        run: stream,
        ..XINFO
    },
];

/// `XINFO STREAM`: replies with a description of the stream.
fn stream(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let stream = context.read_as::<Box<Stream>>(argv[2])?.ok_or(Error::NoSuchKey)?;
    match argv[3..] {
        [] => Ok(brief(stream)),
        [word] if is(word, "full") => Ok(full(stream, COUNT_DEFAULT)),
        [word, option, count] if is(word, "full") && is(option, "count") => Ok(full(
            stream,
            match usize::try_from(integer(count)?) {
                Ok(0) => usize::MAX,
                Ok(count) => count,
                Err(_) => COUNT_DEFAULT,
            },
        )),
        _ => Err(wrong_subcommand("XINFO", argv[1])),
    }
}

/// Entries of each list that `FULL` shows, as in Redis.
const COUNT_DEFAULT: usize = 10;

/// `XINFO GROUPS`: replies with a description of each group.
fn groups(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let stream = context.read_as::<Box<Stream>>(argv[2])?.ok_or(Error::NoSuchKey)?;
    let extent = stream.extent();
    let describe = |(name, group): (_, &ReaderGroup)| {
        map([
            ("name", Reply::bulk(name)),
            ("consumers", group.consumers().len().into()),
            ("pending", group.pending().len().into()),
            ("last-delivered-id", id_reply(group.last_id)),
            ("entries-read", group.entries_read.map_or(Reply::Null, Reply::from)),
            ("lag", group.lag(extent).map_or(Reply::Null, Reply::from)),
        ])
    };
    Ok(Reply::Array(stream.groups().iter().map(describe).collect()))
}

/// `XINFO CONSUMERS`: replies with a description of each consumer.
fn consumers(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let now = context.time.wall();
    let stream = context.read_as::<Box<Stream>>(argv[2])?.ok_or(Error::NoSuchKey)?;
    let group = stream.group(argv[3]).ok_or_else(|| no_such_group(argv[2], argv[3]))?;
    let since = |moment: Millis| now.0.saturating_sub(moment.0).max(0);
    let describe = |(name, consumer): (_, &Consumer)| {
        map([
            ("name", Reply::bulk(name)),
            ("pending", consumer.pending().len().into()),
            ("idle", since(consumer.seen_at).into()),
            ("inactive", consumer.active_at.map_or(-1, since).into()),
        ])
    };
    Ok(Reply::Array(group.consumers().map(describe).collect()))
}

/// The fields at the start of both descriptions.
fn head(stream: &Stream) -> Vec<(Reply, Reply)> {
    let head = map([
        ("length", stream.len().into()),
        ("radix-tree-keys", stream.nodes().count().into()),
        ("radix-tree-nodes", stream.nodes().radix_tree_nodes().into()),
        ("last-generated-id", id_reply(stream.last_id)),
        ("max-deleted-entry-id", id_reply(stream.max_deleted_id)),
        ("entries-added", stream.entries_added.into()),
        ("recorded-first-entry-id", id_reply(stream.first_id().unwrap_or_default())),
    ]);
    pairs(head)
}

fn pairs(map: Reply) -> Vec<(Reply, Reply)> {
    match map {
        Reply::Map(pairs) => pairs,
        _ => Vec::new(),
    }
}

fn brief(stream: &Stream) -> Reply {
    let mut range = stream.range(StreamId::MIN, StreamId::MAX).map(entry_reply);
    let first = range.next();
    let last = range.next_back().or_else(|| first.clone());
    let mut description = head(stream);
    description.extend(pairs(map([
        ("groups", stream.groups().len().into()),
        ("first-entry", first.unwrap_or(Reply::Null)),
        ("last-entry", last.unwrap_or(Reply::Null)),
    ])));
    Reply::Map(description)
}

/// A stream with its first `count` entries, and as many of each list of pending entries.
fn full(stream: &Stream, count: usize) -> Reply {
    let extent = stream.extent();
    let entries = stream.range(StreamId::MIN, StreamId::MAX).take(count).map(entry_reply);
    let groups = stream.groups().iter();
    let groups = groups.map(|(name, group)| full_group(name, group, extent, count));
    let mut description = head(stream);
    description.extend(pairs(map([
        ("entries", Reply::Array(entries.collect())),
        ("groups", Reply::Array(groups.collect())),
    ])));
    Reply::Map(description)
}

fn full_group(name: &[u8], group: &ReaderGroup, extent: Extent, count: usize) -> Reply {
    let pending = group.pending().iter().take(count).map(|(&id, pending)| {
        Reply::Array(vec![
            id_reply(id),
            Reply::bulk(&pending.consumer),
            pending.delivered_at.0.into(),
            (pending.deliveries as i64).into(),
        ])
    });
    let consumers = group.consumers().map(|(name, consumer)| {
        let pending = consumer.pending().iter().take(count);
        let pending = pending.filter_map(|id| group.pending().get_key_value(id));
        let pending = pending.map(|(&id, pending)| {
            let deliveries = pending.deliveries as i64;
            Reply::Array(vec![id_reply(id), pending.delivered_at.0.into(), deliveries.into()])
        });
        map([
            ("name", Reply::bulk(name)),
            ("seen-time", consumer.seen_at.0.into()),
            ("active-time", consumer.active_at.map_or(-1, |moment| moment.0).into()),
            ("pel-count", consumer.pending().len().into()),
            ("pending", Reply::Array(pending.collect())),
        ])
    });
    map([
        ("name", Reply::bulk(name)),
        ("last-delivered-id", id_reply(group.last_id)),
        ("entries-read", group.entries_read.map_or(Reply::Null, Reply::from)),
        ("lag", group.lag(extent).map_or(Reply::Null, Reply::from)),
        ("pel-count", group.pending().len().into()),
        ("pending", Reply::Array(pending.collect())),
        ("consumers", Reply::Array(consumers.collect())),
    ])
}
