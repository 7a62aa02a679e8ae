//! Commands for hashes: a reentrant lock is a hash with one field, its owner, and a count.
//!
//! Invariant: no empty hash is stored; the key is removed with the last field.

use lockwheel_resp::{LongDouble, Protocol, Reply};

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, LockMeaning, integer};
use crate::commands::picks::Count;
use crate::commands::scan;
use crate::error::Error;
use crate::glob;
use crate::random::Random;
use crate::run::context::Context;
use crate::run::growth::fits;
use crate::store::dict::HashSeed;
use crate::store::events::Events;
use crate::store::hash::{Field, Fields, Hash, SmallHashLimits};
use crate::store::records::NewValue;
use crate::store::value::ValueRef;

const HASH: Command = Command {
    group: Group::Hash,
    categories: Categories::HASH,
    since: "2.0.0",
    keys: READ_KEY,
    ..Command::BASE
};

const READ: Flags = Flags::READONLY;
const FAST_READ: Flags = READ.union(Flags::FAST);
const FAST_WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST);

const CHANGED_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "access", "update"])];
const READ_KEY: &[KeySpec] = &[KeySpec::one(&["RO", "access"])];
const SEEN_KEY: &[KeySpec] = &[KeySpec::one(&["RO"])];
const SET_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "update"])];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "hdel",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(&["RW", "delete"])],
        complexity: "O(N) in the number of fields named",
        doc: "Removes fields, and the key with the last field; returns how many existed.",
        arguments: &[arg::key("key"), arg::string("field").multiple()],
        lock: LockMeaning::Release,
        example: "HSET h f v g w; HDEL h f missing => 1",
        run: hdel,
        ..HASH
    },
    Command {
        name: "hexists",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        keys: SEEN_KEY,
        doc: "Returns whether a hash has a field.",
        arguments: &[arg::key("key"), arg::string("field")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HEXISTS h f => 1",
        run: hexists,
        ..HASH
    },
    Command {
        name: "hget",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        doc: "Returns the value of a field.",
        arguments: &[arg::key("key"), arg::string("field")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HGET h f => \"v\"",
        run: hget,
        ..HASH
    },
    Command {
        name: "hgetall",
        arity: Arity::Exactly(2),
        flags: READ,
        complexity: "O(N) in the size of the hash",
        tips: &["nondeterministic_output_order"],
        doc: "Returns all fields with their values.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HGETALL h => [\"f\", \"v\"]",
        run: hgetall,
        ..HASH
    },
    Command {
        name: "hincrby",
        arity: Arity::Exactly(4),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        doc: "Adds a number to the integer in a field.",
        arguments: &[arg::key("key"), arg::string("field"), arg::integer("increment")],
        lock: LockMeaning::Acquire,
        example: "HSET h f 5; HINCRBY h f -1 => 4",
        adds_nothing: Some(has_field),
        run: hincrby,
        ..HASH
    },
    Command {
        name: "hincrbyfloat",
        arity: Arity::Exactly(4),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        since: "2.6.0",
        doc: "Adds a number to the decimal number in a field.",
        arguments: &[arg::key("key"), arg::string("field"), arg::double("increment")],
        example: "HSET h f 0.1; HINCRBYFLOAT h f 0.2 => \"0.3\"",
        run: hincrbyfloat,
        ..HASH
    },
    Command {
        name: "hkeys",
        arity: Arity::Exactly(2),
        flags: READ,
        complexity: "O(N) in the size of the hash",
        tips: &["nondeterministic_output_order"],
        doc: "Returns all fields.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HKEYS h => [\"f\"]",
        run: hkeys,
        ..HASH
    },
    Command {
        name: "hlen",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: SEEN_KEY,
        doc: "Returns the number of fields.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HLEN h => 1",
        run: hlen,
        ..HASH
    },
    Command {
        name: "hmget",
        arity: Arity::AtLeast(3),
        flags: FAST_READ,
        complexity: "O(N) in the number of fields named",
        doc: "Returns the values of several fields.",
        arguments: &[arg::key("key"), arg::string("field").multiple()],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HMGET h f missing => [\"v\", nil]",
        run: hmget,
        ..HASH
    },
    Command {
        name: "hmset",
        arity: Arity::AtLeast(4),
        flags: FAST_WRITE,
        keys: SET_KEY,
        complexity: "O(N) in the number of fields named",
        deprecated: Some(("4.0.0", "`HSET` with several fields")),
        doc: "Sets fields to values: the old name of HSET with several fields.",
        arguments: &[
            arg::key("key"),
            arg::block("field_value", &[arg::string("field"), arg::string("value")]).multiple(),
        ],
        lock: LockMeaning::Acquire,
        example: "HMSET h f v g w => OK",
        adds_nothing: Some(fits_fields),
        run: hmset,
        ..HASH
    },
    Command {
        name: "hrandfield",
        arity: Arity::AtLeast(2),
        flags: READ,
        since: "6.2.0",
        complexity: "O(N) in the number of fields returned",
        tips: &["nondeterministic_output"],
        doc: "Returns random fields.",
        arguments: &[
            arg::key("key"),
            arg::block("options", &[arg::integer("count"), arg::word("WITHVALUES").optional()])
                .optional(),
        ],
        example: "HSET h f v; HRANDFIELD h 2 WITHVALUES => [\"f\", \"v\"]",
        run: hrandfield,
        ..HASH
    },
    Command {
        name: "hscan",
        arity: Arity::AtLeast(3),
        flags: READ,
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for the whole hash",
        tips: &["nondeterministic_output"],
        doc: "Iterates over the fields of a hash.",
        arguments: &[
            arg::key("key"),
            arg::integer("cursor"),
            arg::pattern("pattern").token("MATCH").optional(),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "HSET h f v; HSCAN h 0 => [\"0\", [\"f\", \"v\"]]",
        run: hscan,
        ..HASH
    },
    Command {
        name: "hset",
        arity: Arity::AtLeast(4),
        flags: FAST_WRITE,
        keys: SET_KEY,
        complexity: "O(N) in the number of fields named",
        doc: "Sets fields to values; returns how many fields are new.",
        arguments: &[
            arg::key("key"),
            arg::block("field_value", &[arg::string("field"), arg::string("value")]).multiple(),
        ],
        lock: LockMeaning::Acquire,
        example: "HSET h f v; HSET h f w g x => 1",
        adds_nothing: Some(fits_fields),
        run: hset,
        ..HASH
    },
    Command {
        name: "hsetnx",
        arity: Arity::Exactly(4),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "insert"])],
        doc: "Sets a field to a value, unless the field exists.",
        arguments: &[arg::key("key"), arg::string("field"), arg::string("value")],
        lock: LockMeaning::Acquire,
        example: "HSETNX h f v; HSETNX h f w => 0",
        adds_nothing: Some(has_field),
        run: hsetnx,
        ..HASH
    },
    Command {
        name: "hstrlen",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        keys: SEEN_KEY,
        since: "3.2.0",
        doc: "Returns the length of the value of a field.",
        arguments: &[arg::key("key"), arg::string("field")],
        example: "HSET h f value; HSTRLEN h f => 5",
        run: hstrlen,
        ..HASH
    },
    Command {
        name: "hvals",
        arity: Arity::Exactly(2),
        flags: READ,
        complexity: "O(N) in the size of the hash",
        tips: &["nondeterministic_output_order"],
        doc: "Returns the values of all fields.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "HSET h f v; HVALS h => [\"v\"]",
        run: hvals,
        ..HASH
    },
];

// --- reading ---

/// `HGET`: replies with the value of the field, or nil.
fn hget(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.reply_with(argv[1], |value| match value {
        ValueRef::Hash(fields) => Ok(fields.get(argv[2])),
        _ => Err(Error::WrongType),
    })
}

/// `HMGET`: replies with the values of the fields, nil for missing ones.
fn hmget(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let hash = context.read_as::<Hash>(argv[1])?;
    let value =
        |field: &&[u8]| hash.and_then(|hash| hash.get(field)).map_or(Reply::Null, Reply::bulk);
    Ok(Reply::Array(argv[2..].iter().map(value).collect()))
}

/// `HEXISTS`: replies with 1 if the field exists, else 0.
fn hexists(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<Hash>(argv[1])?.is_some_and(|hash| hash.get(argv[2]).is_some()).into())
}

/// `HSTRLEN`: replies with the length of the value, 0 without the field.
fn hstrlen(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let value = context.read_as::<Hash>(argv[1])?.and_then(|hash| hash.get(argv[2]));
    Ok(value.map_or(0, <[u8]>::len).into())
}

/// `HLEN`: replies with the number of fields.
fn hlen(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<Hash>(argv[1])?.map_or(0, Fields::len).into())
}

/// `HGETALL`: replies with a map of all fields and values.
fn hgetall(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let fields = context.read_as::<Hash>(argv[1])?.into_iter().flat_map(Fields::iter);
    Ok(Reply::Map(fields.map(|(field, value)| (Reply::bulk(field), Reply::bulk(value))).collect()))
}

/// `HKEYS`: replies with all fields.
fn hkeys(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let fields = context.read_as::<Hash>(argv[1])?.into_iter().flat_map(Fields::iter);
    Ok(Reply::Array(fields.map(|(field, _)| Reply::bulk(field)).collect()))
}

/// `HVALS`: replies with all values.
fn hvals(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let fields = context.read_as::<Hash>(argv[1])?.into_iter().flat_map(Fields::iter);
    Ok(Reply::Array(fields.map(|(_, value)| Reply::bulk(value)).collect()))
}

/// `HSCAN`: replies with the next cursor and some fields with their values.
fn hscan(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let cursor = scan::cursor(argv[2])?;
    // Without the key the options are not even parsed.
    let (fields, next) = match context.read_as::<Hash>(argv[1])? {
        Some(hash) => {
            let options = scan::options(&argv[3..], false)?;
            let (mut fields, next) = hash.scan(cursor, options.count);
            if let Some(pattern) = options.pattern {
                fields.retain(|(field, _)| glob::matches(pattern, field));
            }
            (fields, next)
        }
        None => (Vec::new(), 0),
    };
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), flat(&fields)]))
}

/// `HRANDFIELD`: replies with random fields, with `WITHVALUES` also their values.
fn hrandfield(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut random = Random::new(context.random().bits());
    let key = argv[1];
    if argv.len() == 2 {
        let picked = context.read_as::<Hash>(key)?.and_then(|hash| hash.random(&mut random));
        return Ok(picked.map_or(Reply::Null, |(field, _)| Reply::bulk(field)));
    }
    let (count, with_values) = Count::read_with(&argv[2..], "withvalues")?;
    let protocol = context.protocol();
    let Some(hash) = context.read_as::<Hash>(key)? else { return Ok(Reply::Array(Vec::new())) };
    let picked = count.pick(
        &mut random,
        |count, random| hash.random_distinct(count, random),
        |random| hash.random(random),
    )?;
    Ok(match (with_values, protocol) {
        (false, _) => Reply::Array(picked.iter().map(|(field, _)| Reply::bulk(field)).collect()),
        (true, Protocol::Resp2) => flat(&picked),
        (true, Protocol::Resp3) => Reply::Array(picked.iter().map(|pair| flat(&[*pair])).collect()),
    })
}

/// Fields and values, alternating.
fn flat(fields: &[Field<'_>]) -> Reply {
    let items = fields.iter().flat_map(|(field, value)| [field, value]);
    Reply::Array(items.map(Reply::bulk).collect())
}

// --- changing ---

/// `HSET`: replies with the number of new fields.
fn hset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (pairs, []) = argv[2..].as_chunks() else {
        return Err(Error::Arity(context.name.to_owned()));
    };
    let (key, forms) = (argv[1], forms(context));
    let mut added = 0_usize;
    let mut rest = pairs.iter();
    if context.find(key).is_none()
        && let Some([field, value]) = rest.next()
    {
        add_hash(context, key, field, value, forms);
        added += 1;
    }
    if let Some(mut hash) = context.write_hash(key)? {
        for [field, value] in rest {
            let found = hash.find(field);
            added += usize::from(hash.put(found, field, value, forms));
        }
    }
    context.changed(Events::HASH, "hset", key);
    Ok(added.into())
}

/// `HMSET`: replies with OK.
fn hmset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    hset(context, argv)?;
    Ok(Reply::OK)
}

/// `HSETNX`: replies with 1 if the field was set, 0 if it exists.
fn hsetnx(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, field, value) = (argv[1], argv[2], argv[3]);
    let forms = forms(context);
    match context.write_hash(key)? {
        Some(mut hash) => {
            let found = hash.find(field);
            if found.exists() {
                return Ok(false.into());
            }
            hash.put(found, field, value, forms);
        }
        None => add_hash(context, key, field, value, forms),
    }
    context.changed(Events::HASH, "hset", key);
    Ok(true.into())
}

/// `HDEL`: replies with the number of removed fields.
fn hdel(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let Some(mut hash) = context.write_hash(key)? else { return Ok(0_usize.into()) };
    let removed = argv[2..].iter().filter(|field| hash.remove(field)).count();
    let emptied = hash.fields().is_empty();
    if removed > 0 {
        context.changed(Events::HASH, "hdel", key);
    }
    if emptied {
        context.remove_emptied(key);
    }
    Ok(removed.into())
}

/// See [`Command::adds_nothing`].
fn has_field(old: ValueRef<'_>, argv: &[&[u8]]) -> bool {
    matches!(old, ValueRef::Hash(fields) if fields.get(argv[2]).is_some())
}

/// See [`Command::adds_nothing`].
fn fits_fields(old: ValueRef<'_>, argv: &[&[u8]]) -> bool {
    let (ValueRef::Hash(fields), (pairs, [])) = (old, argv[2..].as_chunks()) else { return false };
    pairs.iter().all(|&[field, value]| fields.get(field).is_some_and(|old| fits(old.len(), value)))
}

/// `HINCRBY`: replies with the new value.
fn hincrby(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, field, increment) = (argv[1], argv[2], integer(argv[3])?);
    let forms = forms(context);
    let mut digits = itoa::Buffer::new();
    let mut sum = increment;
    match context.write_hash(key)? {
        Some(mut hash) => hash.update(field, forms, |old| {
            let Ok(old) = old.map_or(Ok(0), integer) else {
                return Err(Error::line("ERR hash value is not an integer"));
            };
            sum = old.checked_add(increment).ok_or(Error::Overflow)?;
            Ok(digits.format(sum).as_bytes())
        })?,
        None => add_hash(context, key, field, digits.format(increment).as_bytes(), forms),
    }
    context.changed(Events::HASH, "hincrby", key);
    Ok(sum.into())
}

/// `HINCRBYFLOAT`: replies with the new value as a string.
fn hincrbyfloat(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, field) = (argv[1], argv[2]);
    let increment = LongDouble::parse(argv[3]).ok_or(Error::NotAFloat)?;
    if !increment.is_finite() {
        return Err(Error::line("ERR value is NaN or Infinity"));
    }
    let forms = forms(context);
    let mut sum = increment.to_string();
    match context.write_hash(key)? {
        Some(mut hash) => hash.update(field, forms, |old| {
            let Some(old) = old.map_or(Some(LongDouble::ZERO), LongDouble::parse) else {
                return Err(Error::line("ERR hash value is not a float"));
            };
            sum = old.checked_add(increment).ok_or(Error::NotFinite)?.to_string();
            Ok(sum.as_bytes())
        })?,
        None => add_hash(context, key, field, sum.as_bytes(), forms),
    }
    context.changed(Events::HASH, "hincrbyfloat", key);
    Ok(Reply::bulk(sum))
}

/// Adds a key that is known to be absent: a hash with one field.
fn add_hash(
    context: &mut Context<'_>,
    key: &[u8],
    field: &[u8],
    value: &[u8],
    (small, seed): (SmallHashLimits, HashSeed),
) {
    if small.admits(field, value) {
        context.add(key, NewValue::Field(field, value));
    } else {
        let mut hash = Hash::default();
        hash.set(field, value, small, seed);
        context.add(key, NewValue::Value(hash.into()));
    }
}

/// The limits of a small hash, and the seed of the dictionary of a large one.
pub(super) fn forms(context: &Context<'_>) -> (SmallHashLimits, HashSeed) {
    let settings = context.settings();
    let small = SmallHashLimits {
        entries_max: usize::try_from(settings.hash_max_listpack_entries).unwrap_or(usize::MAX),
        value_bytes_max: usize::try_from(settings.hash_max_listpack_value_bytes)
            .unwrap_or(usize::MAX),
    };
    (small, context.keyspace().seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, check_events};
    use crate::timing::time::Millis;

    #[test]
    fn changing_a_field_keeps_the_lease() {
        for command in ["HSET h f 1", "HINCRBY h f 1", "HINCRBYFLOAT h f 1", "HDEL h f"] {
            let mut stage = Stage::new(Settings::default());
            stage.check("HSET h f 1 g 1");
            let deadline = stage.time().after(Millis(10));
            let slot = stage.engine.writer.keyspace().find(0, b"h").expect("set above");
            stage.engine.writer.set_deadline(0, slot, deadline);
            stage.check(&format!("{command}; +9ms; HEXISTS h g => 1; +1ms; HEXISTS h g => 0"));
        }
    }

    #[test]
    fn random_fields_are_distinct_and_all_are_drawn() {
        let mut random = Random::new(1);
        for fields in [10_usize, 100] {
            let small = SmallHashLimits { entries_max: 50, value_bytes_max: 64 };
            let mut hash = Hash::default();
            for field in 0..fields {
                hash.set(field.to_string().as_bytes(), b"v", small, HashSeed::default());
            }
            for count in [1, fields / 3, fields - 1, fields, fields + 1] {
                let mut seen = std::collections::BTreeSet::new();
                for _ in 0..1000 {
                    let mut picked = hash.fields().random_distinct(count, &mut random);
                    seen.extend(picked.iter().map(|(field, _)| field.to_vec()));
                    picked.sort_unstable();
                    picked.dedup();
                    assert_eq!(picked.len(), count.min(fields));
                }
                assert_eq!(seen.len(), fields, "{count}");
            }
        }
        check("HSET h f v; HRANDFIELD h -1000001 => !ERR value is out of range");
    }

    #[test]
    fn scan_of_a_large_hash_shows_every_field() {
        let mut stage = Stage::new(Settings::default());
        for field in 0..1000 {
            stage.check(&format!("HSET h f{field} v"));
        }
        stage.check("HSCAN h 0 MATCH f99* COUNT 990 => [\"990\", [\"f99\", \"v\"]]");
        stage.check("HSCAN h 990 COUNT 1 => [\"991\", [\"f990\", \"v\"]]");
        stage.check("HSCAN h 999 COUNT 100 => [\"0\", [\"f999\", \"v\"]]");
        stage.check("HSCAN h 18446744073709551615 => [\"0\", []]");
    }

    #[test]
    fn encoding_changes_at_the_limits() {
        let [at_most, too_long] = ["x".repeat(64), "x".repeat(65)];
        for (commands, encoding) in [
            ("HSET h f v".to_owned(), "listpack"),
            (format!("HSET h f {at_most} {at_most} v"), "listpack"),
            (format!("HSET h f {too_long}"), "hashtable"),
            (format!("HSET h {too_long} v"), "hashtable"),
            (format!("HSET h f {too_long}; HSET h f v"), "hashtable"),
            (format!("HSET h f v; HSETNX h f {too_long}"), "listpack"),
        ] {
            let mut stage = Stage::new(Settings::default());
            stage.check(&commands);
            assert_eq!(encoding_of_h(&stage), encoding, "{commands}");
        }
        let mut settings = Settings::default();
        settings.hash_max_listpack_entries = 2;
        let mut stage = Stage::new(settings);
        stage.check("HSET h f v g w; HSET h f x");
        assert_eq!(encoding_of_h(&stage), "listpack");
        stage.check("HSET h i y; HGET h g => \"w\"");
        assert_eq!(encoding_of_h(&stage), "hashtable");
    }

    fn encoding_of_h(stage: &Stage) -> &'static str {
        let slot = stage.engine.writer.keyspace().find(0, b"h").expect("set before");
        stage.engine.writer.keyspace().database(0).record(slot).value().encoding()
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("HSET h f v g w", "new h, hset h"),
            ("HMSET h f v", "hset h"),
            ("HSETNX h f v", ""),
            ("HSETNX h3 g v", "new h3, hset h3"),
            ("HGET h4 f", "keymiss h4"),
            ("HEXISTS h4 f", "keymiss h4"),
            ("HSCAN h4 0", "keymiss h4"),
            ("HRANDFIELD h4 0", "keymiss h4"),
            ("HDEL h4 f", ""),
            ("HDEL h x", ""),
            ("HDEL h f x", "hdel h"),
            ("HDEL h g", "hdel h, del h"),
            ("HINCRBY h4 f 0", "new h4, hincrby h4"),
            ("HINCRBY h4 f abc", ""),
            ("HINCRBYFLOAT h4 f 1.5", "hincrbyfloat h4"),
            ("HINCRBY h4 f 1", ""),
        ]);
    }
}
