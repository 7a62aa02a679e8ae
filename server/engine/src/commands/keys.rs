//! Commands for keys of any type: remove, rename, copy, move and list them, and empty databases.
//!
//! Invariants: a key that is moved or renamed keeps its deadline, and no command here shows a key
//! past its deadline.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, LockMeaning, integer, is};
use crate::commands::{help_row, scan};
use crate::error::Error;
use crate::glob;
use crate::run::context::Context;
use crate::store::dict::Slot;
use crate::store::effects::Place;
use crate::store::events::Events;
use crate::store::records::Record;
use crate::store::string_value::TextForm;
use crate::store::value::ValueRef;
use crate::timing::time::Millis;

const KEYS: Command =
    Command { group: Group::Generic, categories: Categories::KEYSPACE, ..Command::BASE };

const SERVER: Command = Command { group: Group::Server, ..KEYS };

const DANGEROUS: Categories = Categories::KEYSPACE.union(Categories::DANGEROUS);
const FAST_READ: Flags = Flags::READONLY.union(Flags::FAST);
const FAST_WRITE: Flags = Flags::WRITE.union(Flags::FAST);
const SUM_OF_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const ALL_SHARDS_SUCCEED: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "copy",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(&["RO", "access"]), KeySpec::at(2, &["OW", "update"])],
        since: "6.2.0",
        complexity: "O(N), N being the size of the value",
        doc: "Copies a key with its deadline, optionally to another database.",
        arguments: &[
            arg::key("source"),
            arg::key("destination").spec(1),
            arg::integer("destination-db").token("DB").optional(),
            arg::word("REPLACE").optional(),
        ],
        example: "SET k v; COPY k l => 1",
        run: copy,
        ..KEYS
    },
    Command {
        name: "dbsize",
        arity: Arity::Exactly(1),
        flags: FAST_READ,
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        doc: "Counts the keys of the selected database.",
        example: "SET k v; DBSIZE => 1",
        run: |context, _| Ok(context.selected().len().into()),
        ..SERVER
    },
    Command {
        name: "del",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE,
        keys: &[KeySpec::all(&["RM", "delete"])],
        complexity: "O(N), N being the size of the values",
        tips: SUM_OF_SHARDS,
        doc: "Removes keys; returns how many existed.",
        arguments: &[arg::key("key").multiple()],
        lock: LockMeaning::Release,
        example: "SET k v; DEL k l => 1",
        run: del,
        ..KEYS
    },
    Command {
        name: "exists",
        arity: Arity::AtLeast(2),
        flags: FAST_READ,
        keys: &[KeySpec::all(&["RO"])],
        complexity: "O(1) a key",
        tips: SUM_OF_SHARDS,
        doc: "Counts how many of the given keys exist, each as often as it is given.",
        arguments: &[arg::key("key").multiple()],
        lock: LockMeaning::Inspect,
        example: "SET k v; EXISTS k l k => 2",
        run: exists,
        ..KEYS
    },
    Command {
        name: "flushall",
        flags: Flags::WRITE,
        categories: DANGEROUS,
        complexity: "O(N), N being the number of all keys",
        tips: ALL_SHARDS_SUCCEED,
        doc: "Removes all keys of all databases.",
        arguments: &[arg::one_of(
            "async",
            &[arg::word("ASYNC").since("4.0.0"), arg::word("SYNC").since("6.2.0")],
        )
        .optional()],
        example: "SET k v; FLUSHALL => OK",
        run: flushall,
        ..SERVER
    },
    Command {
        name: "flushdb",
        flags: Flags::WRITE,
        categories: DANGEROUS,
        complexity: "O(N), N being the number of keys in the database",
        tips: ALL_SHARDS_SUCCEED,
        doc: "Removes all keys of the selected database.",
        arguments: &[arg::one_of(
            "async",
            &[arg::word("ASYNC").since("4.0.0"), arg::word("SYNC").since("6.2.0")],
        )
        .optional()],
        example: "SET k v; FLUSHDB => OK",
        run: flushdb,
        ..SERVER
    },
    Command {
        name: "keys",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY,
        categories: DANGEROUS,
        complexity: "O(N), N being the number of keys in the database",
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        doc: "Returns all keys that match a pattern.",
        arguments: &[arg::pattern("pattern")],
        example: "SET k v; SET l v; KEYS l* => [\"l\"]",
        run: keys,
        ..KEYS
    },
    Command {
        name: "move",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "access", "update"])],
        doc: "Moves a key with its deadline to another database, unless the key exists there.",
        arguments: &[arg::key("key"), arg::integer("db")],
        example: "SET k v; MOVE k 1 => 1",
        run: move_key,
        ..KEYS
    },
    Command {
        name: "object",
        arity: Arity::AtLeast(2),
        categories: Categories::empty(),
        since: "2.2.3",
        complexity: "that of the subcommand",
        doc: "Shows how a value is stored.",
        subcommands: OBJECT,
        ..KEYS
    },
    Command {
        name: "randomkey",
        arity: Arity::Exactly(1),
        flags: Flags::READONLY.union(Flags::TOUCHES_ARBITRARY_KEYS),
        tips: &["request_policy:all_shards", "nondeterministic_output"],
        doc: "Returns a random key.",
        example: "SET k v; RANDOMKEY => \"k\"",
        run: randomkey,
        ..KEYS
    },
    Command {
        name: "rename",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE,
        keys: &[KeySpec::one(&["RW", "access", "delete"]), KeySpec::at(2, &["OW", "update"])],
        doc: "Renames a key with its deadline, and replaces the key that has the new name.",
        arguments: &[arg::key("key"), arg::key("newkey").spec(1)],
        example: "SET k v PX 10; RENAME k l => OK",
        run: |context, argv| rename(context, argv, false).map(|_| Reply::OK),
        ..KEYS
    },
    Command {
        name: "renamenx",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "access", "delete"]), KeySpec::at(2, &["OW", "insert"])],
        doc: "Renames a key with its deadline, unless the new name exists.",
        arguments: &[arg::key("key"), arg::key("newkey").spec(1)],
        example: "SET k v; SET l v; RENAMENX k l => 0",
        run: |context, argv| rename(context, argv, true).map(Reply::from),
        ..KEYS
    },
    Command {
        name: "scan",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.union(Flags::TOUCHES_ARBITRARY_KEYS),
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for all N keys",
        tips: &["nondeterministic_output", "request_policy:special"],
        doc: "Returns some keys and the next cursor; returns every key that exists throughout the \
              iteration.",
        arguments: &[
            arg::integer("cursor"),
            arg::pattern("pattern").token("MATCH").optional(),
            arg::integer("count").token("COUNT").optional(),
            arg::string("type").token("TYPE").optional().since("6.0.0"),
        ],
        example: "SET k v; SCAN 0 MATCH k* TYPE string => [\"0\", [\"k\"]]",
        run: scan_keys,
        ..KEYS
    },
    Command {
        name: "swapdb",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        categories: DANGEROUS,
        since: "4.0.0",
        complexity: "O(N), N being the number of watches in both databases",
        doc: "Swaps two databases.",
        arguments: &[arg::integer("index1"), arg::integer("index2")],
        example: "SWAPDB 0 1 => OK",
        run: swapdb,
        ..SERVER
    },
    Command {
        name: "touch",
        arity: Arity::AtLeast(2),
        flags: FAST_READ,
        keys: &[KeySpec::all(&["RO"])],
        since: "3.2.1",
        complexity: "O(1) a key",
        tips: SUM_OF_SHARDS,
        doc: "Marks keys as used now; returns how many exist.",
        arguments: &[arg::key("key").multiple()],
        example: "SET k v; TOUCH k l => 1",
        run: touch,
        ..KEYS
    },
    Command {
        name: "type",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: &[KeySpec::one(&["RO"])],
        doc: "Returns the type of a key's value.",
        arguments: &[arg::key("key")],
        example: "SET k v; TYPE k => string",
        run: type_of,
        ..KEYS
    },
    Command {
        name: "unlink",
        arity: Arity::AtLeast(2),
        flags: FAST_WRITE,
        keys: &[KeySpec::all(&["RM", "delete"])],
        since: "4.0.0",
        complexity: "O(1) a key, and O(N) for the size of the values",
        tips: SUM_OF_SHARDS,
        doc: "Removes keys, as DEL does; returns how many existed.",
        arguments: &[arg::key("key").multiple()],
        lock: LockMeaning::Release,
        example: "SET k v; UNLINK k l => 1",
        run: del,
        ..KEYS
    },
];

const OF_A_KEY: Command = Command {
    arity: Arity::Exactly(3),
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, &["RO"])],
    since: "2.2.3",
    tips: &["nondeterministic_output"],
    ..KEYS
};

const OBJECT: &[Command] = &[
    Command {
        name: "encoding",
        doc: "Returns the encoding of a value.",
        arguments: &[arg::key("key")],
        example: "SET k 5; OBJECT ENCODING k => \"int\"",
        run: |context, argv| object(context, argv[2], |r, _| Ok(Reply::bulk(r.value().encoding()))),
        ..OF_A_KEY
    },
    Command {
        name: "freq",
        since: "4.0.0",
        doc: "Returns the logarithmic access frequency of a key, under an LFU policy.",
        arguments: &[arg::key("key")],
        example: "OBJECT FREQ k => nil",
        run: object_freq,
        ..OF_A_KEY
    },
    help_row(OF_A_KEY, "6.2.0", "OBJECT HELP; OBJECT ENCODING k => nil"),
    Command {
        name: "idletime",
        doc: "Returns the number of seconds since a key was last used.",
        arguments: &[arg::key("key")],
        example: "SET k v; +2500ms; OBJECT IDLETIME k => 2",
        run: object_idletime,
        ..OF_A_KEY
    },
    Command {
        name: "refcount",
        doc: "Returns the reference count of a value, as Redis would report it.",
        arguments: &[arg::key("key")],
        example: "SET k v; OBJECT REFCOUNT k => 1",
        run: |context, argv| object(context, argv[2], |r, _| Ok(references(r.value()).into())),
        ..OF_A_KEY
    },
];

const NOT_COUNTED: Error = Error::line(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const IDLE_NOT_TRACKED: Error = Error::line(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
     switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
const SAME_OBJECT: Error = Error::line("ERR source and destination objects are the same");

// --- single keys ---

/// `DEL` and `UNLINK`: reply with the number of removed keys.
fn del(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut removed = 0_usize;
    for key in &argv[1..] {
        removed += usize::from(context.remove_and_notify(key));
    }
    Ok(Reply::from(removed))
}

/// `EXISTS`: replies with the number of keys that exist.
fn exists(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut found = 0_usize;
    for key in &argv[1..] {
        found += usize::from(context.find_for_read(key).is_some());
    }
    Ok(Reply::from(found))
}

/// `TOUCH`: replies with the number of keys that exist. Counts as a use even after `CLIENT
/// NO-TOUCH`, because the client asks for it.
fn touch(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut touched = 0_usize;
    for key in &argv[1..] {
        let found = context.use_now(key);
        context.count_read(key, found);
        touched += usize::from(found.is_some());
    }
    Ok(Reply::from(touched))
}

/// `TYPE`: replies with the name of the type, `none` without the key.
fn type_of(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let slot = context.find_for_read(argv[1]);
    Ok(Reply::status(slot.map_or("none", |slot| context.record(slot).value().kind().name())))
}

/// `OBJECT`: replies with the result of `shown` for a key, or nil without the key. Not a use of it.
fn object(
    context: &mut Context<'_>,
    key: &[u8],
    shown: impl Fn(Record<'_>, Millis) -> Result<Reply, Error>,
) -> Result<Reply, Error> {
    match context.find(key) {
        Some(slot) => shown(context.record(slot), context.time.now),
        None => Ok(Reply::Null),
    }
}

/// `OBJECT FREQ`: replies with the access frequency of a key.
fn object_freq(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(slot) = context.find(argv[2]) else { return Ok(Reply::Null) };
    let usage = context.record(slot).usage();
    let counter = context.keyspace().access_counter().ok_or(NOT_COUNTED)?;
    Ok(Reply::Integer(i64::from(counter.frequency(usage, context.time.now))))
}

/// `OBJECT IDLETIME`: replies with the seconds since the last use of a key.
fn object_idletime(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let is_counted = context.keyspace().access_counter().is_some();
    object(context, argv[2], |record, now| match is_counted {
        true => Err(IDLE_NOT_TRACKED),
        false => Ok(Reply::Integer(record.idle(now).0 / 1000)),
    })
}

/// Returns the number of references that Redis shows: it shares one object for each value below
/// 10000, and reports the greatest count for it.
fn references(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::String(text) if text.form == TextForm::Int => match text.integer() {
            Some(0..10_000) => i64::from(i32::MAX),
            _ => 1,
        },
        _ => 1,
    }
}

// --- renaming, copying, moving ---

/// `RENAME` and `RENAMENX`. Returns whether the key was renamed.
fn rename(context: &mut Context<'_>, argv: &[&[u8]], only_if_free: bool) -> Result<bool, Error> {
    let (from, to) = (argv[1], argv[2]);
    let found = context.find_for_write(from).ok_or(Error::NoSuchKey)?;
    context.expect_no_lock(Some(found))?;
    let replaced = context.find(to);
    if from == to || (only_if_free && replaced.is_some()) {
        return Ok(!only_if_free);
    }
    context.clear(to)?;
    let Some(slot) = context.find(from) else { return Err(Error::NoSuchKey) };
    context.move_key(slot, Place { database: context.database, key: to });
    context.changed(Events::GENERIC, "rename_from", from);
    context.changed(Events::GENERIC, "rename_to", to);
    Ok(true)
}

/// `COPY`: replies with 1 if the key was copied, else 0.
fn copy(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (from, to) = (argv[1], argv[2]);
    let (mut database, mut replace) = (context.database, false);
    let mut options = argv[3..].iter();
    while let Some(option) = options.next() {
        if is(option, "replace") {
            replace = true;
        } else if is(option, "db") {
            database = database_number(context, options.next().ok_or(Error::Syntax)?)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    if database == context.database && from == to {
        return Err(SAME_OBJECT);
    }
    let Some(slot) = context.read_slot(from) else { return Ok(Reply::from(false)) };
    context.expect_no_lock(Some(slot))?;
    let is_free = context.within(database, |context| {
        let replaced = context.find(to);
        if replace {
            context.clear(to)?;
        }
        Ok(replace || replaced.is_none())
    })?;
    let Some(slot) = context.find(from).filter(|_| is_free) else { return Ok(Reply::from(false)) };
    context.copy_key(slot, Place { database, key: to });
    context.within(database, |context| context.changed(Events::GENERIC, "copy_to", to));
    Ok(Reply::from(true))
}

/// `MOVE`: replies with 1 if the key was moved, else 0.
fn move_key(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    if context.settings().cluster_enabled {
        return Err(Error::line("ERR MOVE is not allowed in cluster mode"));
    }
    let database = database_number(context, argv[2])?;
    if database == context.database {
        return Err(SAME_OBJECT);
    }
    let taken = context.within(database, |context| context.find(key).is_some());
    let Some(slot) = context.find_for_write(key).filter(|_| !taken) else {
        return Ok(Reply::from(false));
    };
    context.expect_no_lock(Some(slot))?;
    context.move_key(slot, Place { database, key });
    context.changed(Events::GENERIC, "move_from", key);
    context.within(database, |context| context.changed(Events::GENERIC, "move_to", key));
    Ok(Reply::from(true))
}

/// Parses the number of an existing database.
pub(crate) fn database_number(context: &Context<'_>, argument: &[u8]) -> Result<usize, Error> {
    let number = integer(argument)?;
    if i32::try_from(number).is_err() {
        return Err(Error::line(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    existing(context, number)
}

fn existing(context: &Context<'_>, number: i64) -> Result<usize, Error> {
    usize::try_from(number)
        .ok()
        .filter(|&number| number < context.keyspace().count())
        .ok_or(Error::OutOfRange("DB index"))
}

// --- listing ---

fn is_expired(context: &Context<'_>, slot: Slot) -> bool {
    context.record(slot).is_expired(context.time)
}

fn key_at<'c>(context: &'c Context<'_>, slot: Slot) -> &'c [u8] {
    context.selected().key(slot)
}

/// `KEYS`: replies with the keys that match a pattern.
fn keys(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let database = context.selected();
    let matching = database
        .records()
        .iter()
        .filter(|&(key, record)| !record.is_expired(context.time) && glob::matches(argv[1], key));
    Ok(Reply::Array(matching.map(|(key, _)| Reply::bulk(key)).collect()))
}

/// `RANDOMKEY`: replies with a random key, or nil if there is none. Some random trials suffice
/// unless nearly all keys have expired; then it chooses among the others. It leaves the expired
/// keys to the wheel, so that one request does not have to remove many keys.
fn randomkey(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    const TRIALS: usize = 128;
    for _ in 0..TRIALS {
        let Some(slot) = context.random_slot() else { return Ok(Reply::Null) };
        if !is_expired(context, slot) {
            return Ok(Reply::bulk(key_at(context, slot)));
        }
        context.remove_expired(slot);
    }
    let records = context.selected().records();
    let unexpired: Vec<Slot> =
        records.scan(0, usize::MAX).0.filter(|&slot| !is_expired(context, slot)).collect();
    if unexpired.is_empty() {
        return Ok(Reply::Null);
    }
    let slot = unexpired[context.random().below(unexpired.len())];
    Ok(Reply::bulk(key_at(context, slot)))
}

/// `SCAN`: replies with the next cursor and some keys.
fn scan_keys(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let cursor = scan::cursor(argv[1])?;
    let options = scan::options(&argv[2..], true)?;
    let (slots, next) = scan_slots(context, cursor, options.count);
    let mut shown = Vec::new();
    for slot in slots {
        if is_expired(context, slot) {
            context.remove_expired(slot);
            continue;
        }
        let key = key_at(context, slot);
        let kind = context.record(slot).value().kind().name();
        if options.pattern.is_none_or(|pattern| glob::matches(pattern, key))
            && options.kind.is_none_or(|wanted| is(wanted, kind))
        {
            shown.push(Reply::bulk(key));
        }
    }
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(shown)]))
}

/// The next `count` keys from a cursor on, fewer if there are many free slots between them, and the
/// next cursor.
fn scan_slots(context: &Context<'_>, cursor: u64, count: usize) -> (Vec<Slot>, u64) {
    /// Slots examined for each key requested, as in Redis.
    const PLACES_PER_KEY: usize = 10;
    let records = context.selected().records();
    let (mut slots, mut at) = (Vec::new(), cursor);
    let mut places_left = count.saturating_mul(PLACES_PER_KEY);
    loop {
        let step = (count - slots.len()).min(places_left);
        let (taken, next) = records.scan(at, step);
        slots.extend(taken);
        places_left -= step;
        at = next;
        if at == 0 || places_left == 0 || slots.len() == count {
            return (slots, at);
        }
    }
}

// --- whole databases ---

/// `FLUSHDB`: removes the keys of the selected database and replies with OK.
fn flushdb(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    check_flush_option(argv)?;
    context.flush(context.database);
    Ok(Reply::OK)
}

/// `FLUSHALL`: removes all keys and replies with OK.
fn flushall(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    check_flush_option(argv)?;
    for database in 0..context.keyspace().count() {
        context.flush(database);
    }
    Ok(Reply::OK)
}

/// `ASYNC` and `SYNC` have the same effect here.
fn check_flush_option(argv: &[&[u8]]) -> Result<(), Error> {
    match argv[1..] {
        [] => Ok(()),
        [option] if is(option, "async") || is(option, "sync") => Ok(()),
        _ => Err(Error::Syntax),
    }
}

/// `SWAPDB`: swaps two databases and replies with OK.
fn swapdb(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.settings().cluster_enabled {
        return Err(Error::line("ERR SWAPDB is not allowed in cluster mode"));
    }
    let number = |argument, refusal| match integer(argument).map(i32::try_from) {
        Ok(Ok(number)) => Ok(i64::from(number)),
        _ => Err(Error::line(refusal)),
    };
    let first = number(argv[1], "ERR invalid first DB index")?;
    let second = number(argv[2], "ERR invalid second DB index")?;
    let (first, second) = (existing(context, first)?, existing(context, second)?);
    context.swap_databases(first, second);
    Ok(Reply::OK)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::settings::Settings;
    use crate::testing::{Stage, check, check_events, words};

    /// `SELECT` belongs to another family, so the test reaches other databases by `SWAPDB`.
    #[test]
    fn moved_or_swapped_lease_keeps_its_deadline() {
        check("SET k v PX 10; MOVE k 1 => 1; EXISTS k => 0; SWAPDB 0 1 => OK; PTTL k => 10");
        check("SET k v PX 10; MOVE k 1; SWAPDB 0 1; +9ms; GET k => \"v\"; +1ms; GET k => nil");
        check("SET k v PX 10; MOVE k 1; +10ms; SWAPDB 0 1; DBSIZE => 0");
        check(
            "SET k v PX 10; SWAPDB 0 1; SET k w; +10ms; GET k => \"w\"; SWAPDB 1 0; GET k => nil",
        );
        check("SET k v PX 10; SWAPDB 0 1; SWAPDB 1 2; SWAPDB 2 0; +9ms; GET k => \"v\"");
        check(
            "SET k v PX 10; SWAPDB 0 1; SET l w PX 5; +5ms; \
             SWAPDB 0 1; PTTL k => 5; +5ms; DBSIZE => 0",
        );
        check("SET k v PX 10; MOVE k 1; SET k w; MOVE k 1 => 0; +10ms; MOVE k 1 => 1");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("MSET k v l w", "new k, set k, new l, set l"),
            ("RENAME k l", "new l, rename_from k, rename_to l"),
            ("RENAME l l", ""),
            ("COPY l k", "new k, copy_to k"),
            ("COPY k l REPLACE", "new l, copy_to l"),
            ("PEXPIRE k 10", "expire k"),
            ("PERSIST k", "persist k"),
            ("PEXPIRE k 10", "expire k"),
            ("+10ms", "expired k"),
            ("EXISTS k", "keymiss k"),
            ("TTL k", "keymiss k"),
            ("DEL k l", "del l"),
            ("SET k v", "new k, set k"),
            ("FLUSHALL", ""),
        ]);
    }

    #[test]
    fn expired_keys_are_not_shown_before_they_are_removed() {
        let mut stage = Stage::new(Settings::default());
        let engine = &mut stage.engine;
        engine.writer.set_active_expiry(false);
        stage.check("SET k v PX 10; SET l v; +9ms");
        stage.check("KEYS k => [\"k\"]; SCAN 0 MATCH k => [\"0\", [\"k\"]]");
        stage.check("+1ms; DBSIZE => 2; KEYS * => [\"l\"]; DBSIZE => 2; RANDOMKEY => \"l\"");
        stage.check("SCAN 0 => [\"0\", [\"l\"]]; DBSIZE => 1");
        stage.check("SET k v PX 10; DEL l; +10ms; RANDOMKEY => nil; DBSIZE => 0");
    }

    #[test]
    fn random_key_is_never_an_expired_one() {
        let mut stage = Stage::new(Settings::default());
        let engine = &mut stage.engine;
        engine.writer.set_active_expiry(false);
        for number in 0..500 {
            stage.check(&format!("SET k{number} v PX 10"));
        }
        stage.check("SET alive v; +10ms; RANDOMKEY => \"alive\"; DEL alive; RANDOMKEY => nil");
    }

    #[test]
    fn scan_returns_keys_from_its_cursor_on() {
        check("SET k v; SCAN 0 TYPE foo => [\"0\", []]");
        check(
            "SET k v; SET l v; SCAN 0 COUNT 1 => [\"1\", [\"k\"]]; \
             SCAN 1 COUNT 1 => [\"0\", [\"l\"]]",
        );
        check("SET k v; SCAN 18446744073709551615 => [\"0\", []]; SCAN 00 => [\"0\", [\"k\"]]");
    }

    #[test]
    fn object_describes_values() {
        check("SET k 9999; OBJECT REFCOUNT k => 2147483647; SET k 10000; OBJECT REFCOUNT k => 1");
        check("SET k v; +1999ms; OBJECT IDLETIME k => 1; TYPE k; OBJECT IDLETIME k => 1");
        check("SET k v; +1999ms; TOUCH k; OBJECT IDLETIME k => 0");
        check(
            "SET k v; OBJECT FREQ k => !ERR An LFU maxmemory policy is not selected, access \
             frequency not tracked. Please note that when switching between policies at runtime \
             LRU and LFU data will take some time to adjust.",
        );
    }

    #[test]
    fn access_frequency_decays_and_is_moved_but_not_copied() {
        check(
            "CONFIG SET maxmemory-policy volatile-lfu lfu-log-factor 0 lfu-decay-time 1; SET k v; \
             GET k; GET k; OBJECT FREQ k => 7; RENAME k l; OBJECT FREQ l => 8; COPY l m; \
             OBJECT FREQ m => 5; OBJECT FREQ l => 9; +120000ms; OBJECT FREQ l => 7; GET l; \
             OBJECT FREQ l => 8; +36000000ms; OBJECT FREQ l => 0; \
             CONFIG SET lfu-decay-time 0; OBJECT FREQ l => 8",
        );
    }

    #[test]
    fn flushing_removes_the_timers() {
        let mut stage = Stage::new(Settings::default());
        stage.check("SET k v PX 10; MOVE k 1; SET k v PX 10; FLUSHDB SYNC => OK; DBSIZE => 0");
        assert_eq!(stage.engine.writer.keyspace().timers(), 1);
        stage.check("FLUSHALL ASYNC => OK; SET k v; +10ms; GET k => \"v\"");
        assert_eq!(stage.engine.writer.keyspace().timers(), 0);
    }

    proptest! {
        // Each case runs hundreds of commands.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn scan_shows_every_key_that_exists_throughout(
            others in prop::collection::vec(0..300_u32, 0..400),
            count in 1..20_u32,
        ) {
            let mut stage = Stage::new(Settings::default());
            let client = stage.client("a");
            let mut run = |command: &str| stage.run(client, &words(command)).0;
            let stays: BTreeSet<String> = (0..40).map(|number| format!("stays:{number}")).collect();
            // The temporary keys are between the permanent ones.
            let mut others = others.into_iter();
            for key in &stays {
                run(&format!("SET {key} v"));
                for other in others.by_ref().take(5) {
                    run(&format!("SET {other} v"));
                }
            }
            let (mut seen, mut cursor) = (BTreeSet::new(), "0".to_owned());
            loop {
                let reply = run(&format!("SCAN {cursor} COUNT {count}"));
                let mut texts = reply.split('"').skip(1).step_by(2);
                cursor = texts.next().expect("a cursor").to_owned();
                seen.extend(texts.map(str::to_owned));
                if cursor == "0" {
                    break;
                }
                if let Some(other) = others.next() {
                    run(&format!("SET {other} v"));
                    run(&format!("DEL {}", other / 2));
                }
            }
            prop_assert!(seen.is_superset(&stays));
        }
    }
}
