//! Commands for the entries of a stream: a log with entries appended at its end and trimmed from
//! its front.
//!
//! Invariant: a stream remains when its last entry is deleted, so that no id is given out twice.

use lockwheel_resp::Reply;

use crate::command::argument::{self as arg, Argument};
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::events::Events;
use crate::store::stream::id::{NewId, StreamId};
use crate::store::stream::nodes::NodeLimits;
use crate::store::stream::{Entry, Keep, Stream, Trim};

const STREAM: Command = Command {
    group: Group::Stream,
    categories: Categories::STREAM,
    since: "5.0.0",
    keys: &[KeySpec::one(&["RO", "access"])],
    ..Command::BASE
};

const DELETED_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "delete"])];
const CHANGED_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "update"])];

/// How many entries to keep.
const TRIM: Argument = arg::block(
    "trim",
    &[
        arg::one_of("strategy", &[arg::word("MAXLEN"), arg::word("MINID").since("6.2.0")]),
        arg::one_of(
            "operator",
            &[arg::word("=").named("equal"), arg::word("~").named("approximately")],
        )
        .optional(),
        arg::string("threshold"),
        arg::integer("count").token("LIMIT").optional().since("6.2.0"),
    ],
);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "xadd",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: CHANGED_KEY,
        complexity: "O(1), and O(N) in the number of entries trimmed",
        tips: &["nondeterministic_output"],
        doc: "Adds an entry to a stream and returns its id.",
        arguments: &[
            arg::key("key"),
            arg::word("NOMKSTREAM").optional().since("6.2.0"),
            TRIM.optional(),
            arg::one_of("id_or_auto", &[arg::word("*").named("auto_id"), arg::string("id")]),
            arg::block("field_value", &[arg::string("field"), arg::string("value")]).multiple(),
        ],
        example: "XADD s 1-1 f v => \"1-1\"",
        run: xadd,
        ..STREAM
    },
    Command {
        name: "xdel",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: DELETED_KEY,
        complexity: "O(1) for each id",
        doc: "Deletes entries; returns how many existed.",
        arguments: &[arg::key("key"), arg::string("id").multiple()],
        example: "XADD s 1-1 f v; XDEL s 1-1 2-1 => 1",
        run: xdel,
        ..STREAM
    },
    Command {
        name: "xlen",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(&["RO"])],
        doc: "Returns the number of entries.",
        arguments: &[arg::key("key")],
        example: "XADD s 1-1 f v; XLEN s => 1",
        run: xlen,
        ..STREAM
    },
    Command {
        name: "xrange",
        arity: Arity::AtLeast(4),
        flags: Flags::READONLY,
        complexity: "O(N) in the number of entries returned",
        doc: "Returns the entries between two ids.",
        arguments: &[
            arg::key("key"),
            arg::string("start"),
            arg::string("end"),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "XADD s 1-1 f v; XRANGE s - + => [[\"1-1\", [\"f\", \"v\"]]]",
        run: |context, argv| xrange(context, argv, false),
        ..STREAM
    },
    Command {
        name: "xrevrange",
        arity: Arity::AtLeast(4),
        flags: Flags::READONLY,
        complexity: "O(N) in the number of entries returned",
        doc: "Returns the entries between two ids, in reverse order.",
        arguments: &[
            arg::key("key"),
            arg::string("end"),
            arg::string("start"),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "XADD s 1-1 f v; XREVRANGE s + - => [[\"1-1\", [\"f\", \"v\"]]]",
        run: |context, argv| xrange(context, argv, true),
        ..STREAM
    },
    Command {
        name: "xsetid",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: CHANGED_KEY,
        doc: "Sets the last id that a stream has given out, and its counters.",
        arguments: &[
            arg::key("key"),
            arg::string("last-id"),
            arg::integer("entries_added").token("ENTRIESADDED").optional().since("7.0.0"),
            arg::string("max_deleted_entry_id").token("MAXDELETEDID").optional().since("7.0.0"),
        ],
        example: "XADD s 1-1 f v; XSETID s 5-1; XADD s 5-* f v => \"5-2\"",
        run: xsetid,
        ..STREAM
    },
    Command {
        name: "xtrim",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE,
        keys: DELETED_KEY,
        complexity: "O(N) in the number of entries trimmed",
        tips: &["nondeterministic_output"],
        doc: "Removes the oldest entries of a stream; returns how many.",
        arguments: &[arg::key("key"), TRIM],
        example: "XADD s 1-1 f v; XADD s 2-1 f v; XTRIM s MAXLEN 1 => 1",
        run: xtrim,
        ..STREAM
    },
];

// --- ids and entries, for all files about streams ---

/// The error for an invalid id.
pub const INVALID_ID: Error =
    Error::line("ERR Invalid stream ID specified as stream command argument");

/// Parses the id of an entry.
pub fn entry_id(argument: &[u8]) -> Result<StreamId, Error> {
    StreamId::parse(argument, 0).ok_or(INVALID_ID)
}

/// Parses the ids of entries.
pub fn entry_ids(arguments: &[&[u8]]) -> Result<Vec<StreamId>, Error> {
    arguments.iter().map(|argument| entry_id(argument)).collect()
}

/// Parses an id, `-` for the least and `+` for the greatest. `seq` is used if the text has none.
pub fn bound(argument: &[u8], seq: u64) -> Result<StreamId, Error> {
    match argument {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => StreamId::parse(argument, seq).ok_or(INVALID_ID),
    }
}

/// Parses the start of a range; `(` excludes the id itself.
pub fn range_start(argument: &[u8]) -> Result<StreamId, Error> {
    match argument {
        [b'(', id @ ..] if !id.is_empty() => {
            entry_id(id)?.next().ok_or(Error::line("ERR invalid start ID for the interval"))
        }
        _ => bound(argument, 0),
    }
}

/// Parses the end of a range; `(` excludes the id itself.
pub fn range_end(argument: &[u8]) -> Result<StreamId, Error> {
    match argument {
        [b'(', id @ ..] if !id.is_empty() => StreamId::parse(id, u64::MAX)
            .ok_or(INVALID_ID)?
            .previous()
            .ok_or(Error::line("ERR invalid end ID for the interval")),
        _ => bound(argument, u64::MAX),
    }
}

/// An id as a reply.
pub fn id_reply(id: StreamId) -> Reply {
    Reply::bulk(id.to_string())
}

/// An entry as a reply: its id, then fields and values, alternating.
pub fn entry_reply((id, entry): (StreamId, &Entry)) -> Reply {
    let fields = entry.fields().flat_map(|(name, value)| [name, value]);
    Reply::Array(vec![id_reply(id), Reply::Array(fields.map(Reply::bulk).collect())])
}

// --- reading ---

/// `XLEN`: replies with the number of entries.
fn xlen(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<Box<Stream>>(argv[1])?.map_or(0, |stream| stream.len()).into())
}

/// `XRANGE` and `XREVRANGE`: reply with the entries of the range.
fn xrange(context: &mut Context<'_>, argv: &[&[u8]], backwards: bool) -> Result<Reply, Error> {
    let (start, end) = if backwards { (argv[3], argv[2]) } else { (argv[2], argv[3]) };
    let (start, end) = (range_start(start)?, range_end(end)?);
    let mut count = usize::MAX;
    for option in argv[4..].chunks(2) {
        match *option {
            [name, value] if is(name, "count") => {
                count = usize::try_from(integer(value)?).unwrap_or(0);
            }
            _ => return Err(Error::Syntax),
        }
    }
    let Some(stream) = context.read_as::<Box<Stream>>(argv[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    if count == 0 {
        return Ok(Reply::NullArray);
    }
    let range = stream.range(start, end);
    Ok(Reply::Array(if backwards {
        range.rev().take(count).map(entry_reply).collect()
    } else {
        range.take(count).map(entry_reply).collect()
    }))
}

// --- changing ---

/// `XADD`: replies with the id of the new entry, or nil with `NOMKSTREAM` and without the key.
fn xadd(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let options = AddOptions::parse(context, argv)?;
    let key = argv[1];
    let (fields, []) = options.fields.as_chunks() else {
        return Err(Error::Arity(context.name.to_owned()));
    };
    if fields.is_empty() {
        return Err(Error::Arity(context.name.to_owned()));
    }
    if options.id == NewId::Exactly(StreamId::MIN) {
        return Err(Error::line("ERR The ID specified in XADD must be greater than 0-0"));
    }
    if options.only_if_there && context.find(key).is_none() {
        return Ok(Reply::Null);
    }
    let wall_ms = context.time.wall().0.unsigned_abs();
    let limits = node_limits(context);
    // A new stream accepts any id except the one refused above, so no empty stream remains.
    let mut stream = context.open::<Box<Stream>>(key)?;
    if stream.last_id == StreamId::MAX {
        return Err(Error::line(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = stream.new_id(options.id, wall_ms).ok_or(Error::line(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))?;
    stream.add(id, fields, limits);
    let trimmed = options.trim.map_or(0, |trim| stream.trim(trim));
    context.changed(Events::STREAM, "xadd", key);
    if trimmed > 0 {
        context.event(Events::STREAM, "xtrim", key);
    }
    Ok(id_reply(id))
}

/// `XTRIM`: replies with the number of removed entries.
fn xtrim(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut options = TrimOptions::default();
    let mut rest = &argv[2..];
    while !rest.is_empty() {
        rest = options.take(rest)?.ok_or(Error::Syntax)?;
    }
    options.check_limit()?;
    if options.keep.is_none() {
        return Err(Error::line("ERR syntax error, XTRIM must be called with a trimming strategy"));
    }
    let trim = options.trim(context)?;
    let Some(mut stream) = context.write_as::<Box<Stream>>(argv[1])? else {
        return Ok(0_i64.into());
    };
    let trimmed = trim.map_or(0, |trim| stream.trim(trim));
    if trimmed > 0 {
        context.changed(Events::STREAM, "xtrim", argv[1]);
    }
    Ok(trimmed.into())
}

/// `XDEL`: replies with the number of deleted entries.
fn xdel(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(mut stream) = context.write_as::<Box<Stream>>(argv[1])? else {
        return Ok(0_i64.into());
    };
    let ids = entry_ids(&argv[2..])?;
    let deleted = ids.into_iter().filter(|&id| stream.delete(id)).count();
    if deleted > 0 {
        context.changed(Events::STREAM, "xdel", argv[1]);
    }
    Ok(deleted.into())
}

/// `XSETID`: sets the last id and replies with OK.
fn xsetid(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let id = entry_id(argv[2])?;
    let (mut entries_added, mut max_deleted_id) = (None, StreamId::MIN);
    for option in argv[3..].chunks(2) {
        match *option {
            [name, value] if is(name, "entriesadded") => {
                let added = integer(value)?;
                if added < 0 {
                    return Err(Error::line("ERR entries_added must be positive"));
                }
                entries_added = Some(added);
            }
            [name, value] if is(name, "maxdeletedid") => {
                max_deleted_id = entry_id(value)?;
                if id < max_deleted_id {
                    return Err(Error::line(
                        "ERR The ID specified in XSETID is smaller than the provided \
                         max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(Error::Syntax),
        }
    }
    let mut stream = context.write_as::<Box<Stream>>(argv[1])?.ok_or(Error::NoSuchKey)?;
    let smaller_than = if id < stream.max_deleted_id {
        Some("ID specified in XSETID is smaller than current max_deleted_entry_id")
    } else if stream.has_after(id) {
        Some("ID specified in XSETID is smaller than the target stream top item")
    } else if entries_added.is_some_and(|added| (added as u64) < stream.len() as u64) {
        Some("entries_added specified in XSETID is smaller than the target stream length")
    } else {
        None
    };
    if let Some(refusal) = smaller_than {
        return Err(Error::text(format!("ERR The {refusal}")));
    }
    let entries_added = entries_added.unwrap_or(stream.entries_added);
    let is_given = max_deleted_id != StreamId::MIN;
    let max_deleted_id = if is_given { max_deleted_id } else { stream.max_deleted_id };
    stream.set_totals(id, max_deleted_id, entries_added);
    context.changed(Events::STREAM, "xsetid", argv[1]);
    Ok(Reply::OK)
}

pub(crate) fn node_limits(context: &Context<'_>) -> NodeLimits {
    let settings = context.settings();
    NodeLimits {
        entries_max: settings.stream_node_max_entries,
        bytes_max: settings.stream_node_max_bytes,
    }
}

// --- options ---

/// The arguments after the key of `XADD`.
struct AddOptions<'a> {
    only_if_there: bool,
    trim: Option<Trim>,
    id: NewId,
    fields: &'a [&'a [u8]],
}

impl<'a> AddOptions<'a> {
    fn parse(context: &Context<'_>, argv: &'a [&'a [u8]]) -> Result<AddOptions<'a>, Error> {
        let mut trim = TrimOptions::default();
        let mut only_if_there = false;
        // If the id is missing there are too few arguments, which is reported after all other
        // errors.
        let mut id = NewId::Now;
        let mut rest = &argv[2..];
        while let [word, after @ ..] = rest {
            if let Some(after) = trim.take(rest)? {
                rest = after;
            } else if is(word, "nomkstream") {
                only_if_there = true;
                rest = after;
            } else {
                id = NewId::parse(word).ok_or(INVALID_ID)?;
                rest = after;
                break;
            }
        }
        trim.check_limit()?;
        Ok(AddOptions { only_if_there, trim: trim.trim(context)?, id, fields: rest })
    }
}

/// The trimming options parsed so far.
#[derive(Default)]
struct TrimOptions {
    keep: Option<Keep>,
    approximate: bool,
    limit: Option<u64>,
}

impl TrimOptions {
    /// Parses an option; returns the arguments after it, or `None` if it is no trimming option.
    fn take<'a>(&mut self, arguments: &'a [&'a [u8]]) -> Result<Option<&'a [&'a [u8]]>, Error> {
        let &[word, ref rest @ ..] = arguments else { return Ok(None) };
        if rest.is_empty() {
            return Ok(None);
        }
        if is(word, "limit") {
            let limit = u64::try_from(integer(rest[0])?)
                .map_err(|_| Error::line("ERR The LIMIT argument must be >= 0."))?;
            self.limit = Some(limit);
            return Ok(Some(&rest[1..]));
        }
        let by_length = is(word, "maxlen");
        if !by_length && !is(word, "minid") {
            return Ok(None);
        }
        if self.keep.is_some() {
            return Err(Error::line(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let (value, rest) = match rest {
            [b"~", value, rest @ ..] => {
                self.approximate = true;
                (value, rest)
            }
            [b"=", value, rest @ ..] => (value, rest),
            _ => (&rest[0], &rest[1..]),
        };
        self.keep = Some(if by_length {
            let count = usize::try_from(integer(value)?)
                .map_err(|_| Error::line("ERR The MAXLEN argument must be >= 0."))?;
            Keep::Latest(count)
        } else {
            Keep::From(entry_id(value)?)
        });
        Ok(Some(rest))
    }

    fn check_limit(&self) -> Result<(), Error> {
        if self.keep.is_none() && self.limit.is_some_and(|limit| limit > 0) {
            return Err(Error::line(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        Ok(())
    }

    /// The parsed options. Without a limit, `~` removes at most a hundred nodes.
    fn trim(&self, context: &Context<'_>) -> Result<Option<Trim>, Error> {
        if self.limit.is_some() && !self.approximate {
            return Err(Error::line(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        let limit_default = match context.settings().stream_node_max_entries {
            0 => 10_000,
            entries => entries.saturating_mul(100).min(1_000_000),
        };
        let whole_nodes = self.approximate.then(|| self.limit.unwrap_or(limit_default));
        Ok(self.keep.map(|keep| Trim { keep, whole_nodes }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_events};

    #[test]
    fn ids_come_from_the_wall_clock_and_never_go_back() {
        check(
            "XADD s * f v => \"1700000000000-0\"; XADD s * f v => \"1700000000000-1\"; +5ms; \
             XADD s * f v => \"1700000000005-0\"; wall-10ms; XADD s * f v => \"1700000000005-1\"",
        );
        check("XADD s 1800000000000-7 f v; XADD s * f v => \"1800000000000-8\"");
        check(
            "XADD s * f v; XTRIM s MAXLEN 0 => 1; XADD s * f v => \"1700000000000-1\"; \
             XDEL s 1700000000000-1; XADD s * f v => \"1700000000000-2\"",
        );
        check(
            "EVAL \"local function add() return redis.call('XADD', 's', '*', 'a', 'b') end \
             return {add(), add()}\" 0 => [\"1700000000000-0\", \"1700000000000-1\"]",
        );
    }

    #[test]
    fn many_whole_nodes_are_trimmed() {
        let mut conversation = String::from("CONFIG SET stream-node-max-entries 10");
        for id in 1..=95 {
            conversation.push_str(&format!("; XADD s {id} f v"));
        }
        conversation.push_str(
            "; XTRIM s MAXLEN ~ 12 LIMIT 25 => 20; XTRIM s MAXLEN ~ 12 => 60; XLEN s => 15; \
             XTRIM s MINID ~ 91 => 10; XTRIM s MINID ~ 95 => 0; XTRIM s MINID 95 => 4; XLEN s => 1",
        );
        check(&conversation);
    }

    #[test]
    fn only_changes_of_entries_break_watches() {
        for (command, exec) in [
            ("XADD s 9-9 f v", "nil-array"),
            ("XDEL s 1-1", "nil-array"),
            ("XTRIM s MAXLEN 0", "nil-array"),
            ("XGROUP CREATE new g 0 MKSTREAM", "nil-array"),
            ("XDEL s 5-5", "[]"),
            ("XSETID s 9-9", "[]"),
            ("XACK s g 1-1", "[]"),
            ("XCLAIM s g d 0 1-1", "[]"),
            ("XAUTOCLAIM s g d 0 0", "[]"),
            ("XREADGROUP GROUP g d STREAMS s >", "[]"),
            ("XGROUP CREATE s h 0", "[]"),
            ("XGROUP DESTROY s g", "[]"),
        ] {
            check(&format!(
                "XADD s 1-1 f v; XADD s 2-1 f v; XGROUP CREATE s g 0; \
                 XREADGROUP GROUP g c COUNT 1 STREAMS s >; WATCH s new; b> {command}; MULTI; \
                 EXEC => {exec}"
            ));
        }
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("XADD s NOMKSTREAM 1-1 f v", ""),
            ("XADD s 1-1 f v", "new s, xadd s"),
            ("XADD s MAXLEN 1 2-1 f v", "xadd s, xtrim s"),
            ("XADD s 1-1 f v", ""),
            ("XLEN t", "keymiss t"),
            ("XRANGE t - +", "keymiss t"),
            ("XREAD STREAMS t 0", "keymiss t, keymiss t"),
            ("XDEL t 1-1", ""),
            ("XTRIM t MAXLEN 0", ""),
            ("XDEL s 2-1", "xdel s"),
            ("XSETID s 3-1", "xsetid s"),
        ]);
    }
}
