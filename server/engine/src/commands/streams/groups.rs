//! Commands for consumer groups, which divide the entries of a stream among their consumers. The
//! commands for pending entries are in `pending.rs`.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is};
use crate::commands::help_row;
use crate::commands::streams::entries::{bound, entry_id};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::edit::Edit;
use crate::store::events::Events;
use crate::store::stream::Stream;
use crate::store::stream::id::StreamId;

const STREAM: Command = Command {
    group: Group::Stream,
    categories: Categories::STREAM,
    since: "5.0.0",
    keys: &[KeySpec::one(&["RW", "update"])],
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "xgroup",
    arity: Arity::AtLeast(2),
    categories: Categories::empty(),
    keys: &[],
    complexity: "that of the subcommand",
    doc: "A container for commands about consumer groups.",
    subcommands: XGROUP,
    ..STREAM
}];

const XGROUP: &[Command] = &[
    Command {
        name: "create",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::at(2, &["RW", "insert"])],
        doc: "Adds a group to a stream.",
        arguments: &[
            arg::key("key"),
            arg::string("groupname"),
            arg::one_of("id", &[arg::string("id"), arg::word("$").named("new_id")]),
            arg::word("MKSTREAM").optional(),
            arg::integer("entries_read").token("ENTRIESREAD").optional(),
        ],
        example: "XGROUP CREATE s g $ MKSTREAM => OK",
        run: xgroup_create,
        ..STREAM
    },
    Command {
        name: "createconsumer",
        arity: Arity::Exactly(5),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::at(2, &["RW", "insert"])],
        since: "6.2.0",
        doc: "Adds a consumer to a group.",
        arguments: &[arg::key("key"), arg::string("groupname"), arg::string("consumername")],
        example: "XGROUP CREATE s g $ MKSTREAM; XGROUP CREATECONSUMER s g c => 1",
        run: xgroup_createconsumer,
        ..STREAM
    },
    Command {
        name: "delconsumer",
        arity: Arity::Exactly(5),
        flags: Flags::WRITE,
        keys: &[KeySpec::at(2, &["RW", "delete"])],
        doc: "Removes a consumer and its pending entries; returns their number.",
        arguments: &[arg::key("key"), arg::string("groupname"), arg::string("consumername")],
        example: "XGROUP CREATE s g $ MKSTREAM; XGROUP DELCONSUMER s g c => 0",
        run: xgroup_delconsumer,
        ..STREAM
    },
    Command {
        name: "destroy",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE,
        keys: &[KeySpec::at(2, &["RW", "delete"])],
        complexity: "O(N) in what is pending",
        doc: "Removes a group.",
        arguments: &[arg::key("key"), arg::string("groupname")],
        example: "XGROUP CREATE s g $ MKSTREAM; XGROUP DESTROY s g => 1",
        run: xgroup_destroy,
        ..STREAM
    },
    help_row(STREAM, STREAM.since, "XGROUP HELP => [XGROUP <subcommand> ...]"),
    Command {
        name: "setid",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE,
        keys: &[KeySpec::at(2, &["RW", "update"])],
        doc: "Sets the last id that a group was given.",
        arguments: &[
            arg::key("key"),
            arg::string("groupname"),
            arg::one_of("id", &[arg::string("id"), arg::word("$").named("new_id")]),
            arg::integer("entries_read").token("ENTRIESREAD").optional(),
        ],
        example: "XGROUP CREATE s g $ MKSTREAM; XGROUP SETID s g 0 => OK",
        run: xgroup_setid,
        ..STREAM
    },
];

/// `XGROUP CREATE`: adds a group and replies with OK.
fn xgroup_create(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let options = GroupOptions::parse(argv, true)?;
    let (key, name) = (argv[2], argv[3]);
    let stream = context.write_as::<Box<Stream>>(key)?;
    let is_new = stream.is_none();
    if is_new && !options.make_stream {
        return Err(KEY_REQUIRED);
    }
    if argv.len() > 8 {
        return Err(wrong_subcommand("XGROUP", argv[1]));
    }
    let id = match argv[4] {
        b"$" => stream.map_or(StreamId::MIN, |stream| stream.last_id),
        id => entry_id(id)?,
    };
    let mut stream = context.open::<Box<Stream>>(key)?;
    if !stream.add_group(name, id, options.entries_read) {
        return Err(Error::line("BUSYGROUP Consumer Group name already exists"));
    }
    context.changed(Events::STREAM, "xgroup-create", key);
    Ok(Reply::OK)
}

/// `XGROUP SETID`: sets the last id of a group and replies with OK.
fn xgroup_setid(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let options = GroupOptions::parse(argv, false)?;
    let stream = stream_of_group(context, argv)?;
    if argv.len() > 7 {
        return Err(wrong_subcommand("XGROUP", argv[1]));
    }
    let id = match argv[4] {
        b"$" => stream.last_id,
        id => bound(id, 0)?,
    };
    if let Some(mut group) = stream.into_group(argv[3]) {
        group.set_position(id, options.entries_read);
    }
    context.changed(Events::STREAM, "xgroup-setid", argv[2]);
    Ok(Reply::OK)
}

/// `XGROUP DESTROY`: replies with 1 if the group was removed, else 0.
fn xgroup_destroy(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut stream = context.write_as::<Box<Stream>>(argv[2])?.ok_or(KEY_REQUIRED)?;
    let removed = stream.remove_group(argv[3]);
    if removed {
        context.changed(Events::STREAM, "xgroup-destroy", argv[2]);
    }
    Ok(removed.into())
}

/// `XGROUP CREATECONSUMER`: replies with 1 if the consumer was added, else 0.
fn xgroup_createconsumer(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let now = context.time.wall();
    let stream = stream_of_group(context, argv)?;
    let group = stream.into_group(argv[3]);
    let added = group.is_some_and(|mut group| group.add_consumer(argv[4], now));
    if added {
        context.changed(Events::STREAM, "xgroup-createconsumer", argv[2]);
    }
    Ok(added.into())
}

/// `XGROUP DELCONSUMER`: replies with the number of entries that were pending with the consumer.
fn xgroup_delconsumer(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let stream = stream_of_group(context, argv)?;
    let group = stream.into_group(argv[3]);
    let removed = group.and_then(|mut group| group.remove_consumer(argv[4]));
    if removed.is_some() {
        context.changed(Events::STREAM, "xgroup-delconsumer", argv[2]);
    }
    Ok(removed.unwrap_or(0).into())
}

const KEY_REQUIRED: Error = Error::line(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
     use the MKSTREAM option to create an empty stream automatically.",
);

/// The stream at argument 2, which has the group at argument 3.
fn stream_of_group<'a>(
    context: &'a mut Context<'_>,
    argv: &[&'a [u8]],
) -> Result<Edit<'a, Box<Stream>>, Error> {
    let stream = context.write_as::<Box<Stream>>(argv[2])?.ok_or(KEY_REQUIRED)?;
    if stream.group(argv[3]).is_none() {
        return Err(no_such_group(argv[2], argv[3]));
    }
    Ok(stream)
}

/// The error for a key that has no such group.
pub fn no_such_group(key: &[u8], group: &[u8]) -> Error {
    let [key, group] = [key, group].map(String::from_utf8_lossy);
    Error::text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The error for a subcommand with wrong arguments.
pub fn wrong_subcommand(command: &str, name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    Error::text(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."
    ))
}

/// The options after the id of `XGROUP CREATE` and `SETID`.
struct GroupOptions {
    make_stream: bool,
    entries_read: Option<i64>,
}

impl GroupOptions {
    fn parse(argv: &[&[u8]], creates: bool) -> Result<GroupOptions, Error> {
        let mut options = GroupOptions { make_stream: false, entries_read: None };
        let mut rest = &argv[5..];
        while let [word, after @ ..] = rest {
            rest = match after {
                _ if creates && is(word, "mkstream") => {
                    options.make_stream = true;
                    after
                }
                [count, after @ ..] if is(word, "entriesread") => {
                    options.entries_read = match integer(count)? {
                        -1 => None,
                        ..0 => {
                            return Err(Error::line(
                                "ERR value for ENTRIESREAD must be positive or -1",
                            ));
                        }
                        count => Some(count),
                    };
                    after
                }
                _ => return Err(wrong_subcommand("XGROUP", argv[1])),
            };
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_events};

    #[test]
    fn count_of_entries_read_wraps_around() {
        check(
            "XADD s 1-1 f v; XGROUP CREATE s g 0 ENTRIESREAD 9223372036854775807; \
             XREADGROUP GROUP g c STREAMS s > => [[\"s\", ...]]; XLEN s => 1",
        );
    }

    #[test]
    fn reading_sets_seen_time_and_delivery_sets_active_time() {
        let after = |command: &str, idle: &str, inactive: &str| {
            check(&format!(
                "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g other STREAMS s >; \
                 XADD s 2-1 f v; XGROUP CREATECONSUMER s g c; +7ms; {command}; +3ms; \
                 XINFO CONSUMERS s g => [[\"name\", \"c\", \"pending\", ..., \"idle\", {idle}, \
                 \"inactive\", {inactive}], ..."
            ));
        };
        after("XREADGROUP GROUP g c STREAMS s >", "3", "3");
        after("XREADGROUP GROUP g c NOACK STREAMS s >", "3", "-1");
        after("XREADGROUP GROUP g c STREAMS s 0", "3", "-1");
        after("XCLAIM s g c 0 1-1", "3", "3");
        after("XCLAIM s g c 8 1-1", "3", "-1");
        after("XAUTOCLAIM s g c 0 0", "3", "3");
        after("XAUTOCLAIM s g c 8 0", "3", "-1");
        after("XGROUP CREATECONSUMER s g c", "10", "-1");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("XGROUP CREATE s g 0", ""),
            ("XGROUP CREATE s g 0 MKSTREAM", "new s, xgroup-create s"),
            ("XGROUP CREATE s g 0", ""),
            ("XADD s 1-1 f v", "xadd s"),
            ("XREADGROUP GROUP g c STREAMS s >", "xgroup-createconsumer s"),
            ("XREADGROUP GROUP g c STREAMS t >", "keymiss t"),
            ("XCLAIM s g d 9 1-1", "xgroup-createconsumer s"),
            ("XAUTOCLAIM s g e 0 0", "xgroup-createconsumer s"),
            ("XPENDING t g", "keymiss t"),
            ("XACK t g 1-1", "keymiss t"),
            ("XCLAIM t g d 9 1-1", "keymiss t"),
            ("XAUTOCLAIM t g d 9 0", "keymiss t"),
            ("XACK s g 1-1", ""),
            ("XGROUP SETID s g 0", "xgroup-setid s"),
            ("XGROUP CREATECONSUMER s g x", "xgroup-createconsumer s"),
            ("XGROUP DELCONSUMER s g x", "xgroup-delconsumer s"),
            ("XGROUP DESTROY s g", "xgroup-destroy s"),
            ("XINFO STREAM t", "keymiss t"),
        ]);
    }
}
