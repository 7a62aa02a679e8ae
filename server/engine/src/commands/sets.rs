//! Commands for sets: for example, the holders of a permit.
//!
//! Invariant: no empty set is stored; the key is removed with the last member.

use std::borrow::Cow;

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, integer, is};
use crate::commands::picks::Count;
use crate::commands::scan;
use crate::error::Error;
use crate::glob;
use crate::random::Random;
use crate::run::context::Context;
use crate::store::dict::HashSeed;
use crate::store::events::Events;
use crate::store::records::NewValue;
use crate::store::set::{Set, SetForm, SmallSetLimits};

const SET: Command =
    Command { group: Group::Set, categories: Categories::SET, keys: READ_KEY, ..Command::BASE };

const READ: Flags = Flags::READONLY;
const FAST_READ: Flags = READ.union(Flags::FAST);
const WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM);
const FAST_WRITE: Flags = WRITE.union(Flags::FAST);
const FAST_REMOVAL: Flags = Flags::WRITE.union(Flags::FAST);

const READ_KEY: &[KeySpec] = &[KeySpec::one(&["RO", "access"])];
const SEEN_KEY: &[KeySpec] = &[KeySpec::one(&["RO"])];
const READ_KEYS: &[KeySpec] = &[KeySpec::all(&["RO", "access"])];
const STORE_KEYS: &[KeySpec] =
    &[KeySpec::one(&["OW", "update"]), KeySpec { begin: 2, ..KeySpec::all(&["RO", "access"]) }];
const COUNTED_KEYS: &[KeySpec] =
    &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Count }];

const UNORDERED: &[&str] = &["nondeterministic_output_order"];
const AT_RANDOM: &[&str] = &["nondeterministic_output"];
const PER_MEMBER_NAMED: &str = "O(N) in the number of members named";
const PER_MEMBER: &str = "O(N) in the size of all sets";
const PER_SMALLEST: &str = "O(N*M), N being the size of the smallest set, M the number of sets";

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "sadd",
        arity: Arity::AtLeast(3),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "insert"])],
        complexity: PER_MEMBER_NAMED,
        doc: "Adds members to a set; returns how many are new.",
        arguments: &[arg::key("key"), arg::string("member").multiple()],
        example: "SADD s a b; SADD s b c => 1",
        run: sadd,
        ..SET
    },
    Command {
        name: "scard",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: SEEN_KEY,
        doc: "Returns the number of members.",
        arguments: &[arg::key("key")],
        example: "SADD s a b; SCARD s => 2",
        run: scard,
        ..SET
    },
    Command {
        name: "sdiff",
        arity: Arity::AtLeast(2),
        flags: READ,
        keys: READ_KEYS,
        complexity: PER_MEMBER,
        tips: UNORDERED,
        doc: "Returns the members of the first set that are in none of the others.",
        arguments: &[arg::key("key").multiple()],
        example: "SADD s a b; SADD t b; SDIFF s t => [\"a\"]",
        run: sdiff,
        ..SET
    },
    Command {
        name: "sdiffstore",
        arity: Arity::AtLeast(3),
        flags: WRITE,
        keys: STORE_KEYS,
        complexity: PER_MEMBER,
        doc: "Stores the result of SDIFF; returns its number of members.",
        arguments: &[arg::key("destination"), arg::key("key").spec(1).multiple()],
        example: "SADD s a b; SADD t b; SDIFFSTORE d s t => 1",
        run: sdiffstore,
        ..SET
    },
    Command {
        name: "sinter",
        arity: Arity::AtLeast(2),
        flags: READ,
        keys: READ_KEYS,
        complexity: PER_SMALLEST,
        tips: UNORDERED,
        doc: "Returns the members that are in all of the sets.",
        arguments: &[arg::key("key").multiple()],
        example: "SADD s a b; SADD t b c; SINTER s t => [\"b\"]",
        run: sinter,
        ..SET
    },
    Command {
        name: "sintercard",
        arity: Arity::AtLeast(3),
        flags: READ.union(Flags::MOVABLEKEYS),
        keys: COUNTED_KEYS,
        since: "7.0.0",
        complexity: PER_SMALLEST,
        doc: "Returns how many members are in all of the sets, up to a limit.",
        arguments: &[
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::integer("limit").token("LIMIT").optional(),
        ],
        example: "SADD s a b; SADD t b c; SINTERCARD 2 s t LIMIT 5 => 1",
        run: sintercard,
        ..SET
    },
    Command {
        name: "sinterstore",
        arity: Arity::AtLeast(3),
        flags: WRITE,
        keys: STORE_KEYS,
        complexity: PER_SMALLEST,
        doc: "Stores the result of SINTER; returns its number of members.",
        arguments: &[arg::key("destination"), arg::key("key").spec(1).multiple()],
        example: "SADD s a b; SADD t b c; SINTERSTORE d s t => 1",
        run: sinterstore,
        ..SET
    },
    Command {
        name: "sismember",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        keys: SEEN_KEY,
        doc: "Returns whether a set has a member.",
        arguments: &[arg::key("key"), arg::string("member")],
        example: "SADD s a; SISMEMBER s a => 1",
        run: sismember,
        ..SET
    },
    Command {
        name: "smembers",
        arity: Arity::Exactly(2),
        flags: READ,
        complexity: "O(N) in the size of the set",
        tips: UNORDERED,
        doc: "Returns all members.",
        arguments: &[arg::key("key")],
        example: "SADD s b a; SMEMBERS s => [\"b\", \"a\"]",
        run: smembers,
        ..SET
    },
    Command {
        name: "smismember",
        arity: Arity::AtLeast(3),
        flags: FAST_READ,
        since: "6.2.0",
        complexity: PER_MEMBER_NAMED,
        doc: "Returns for each of several members whether a set has it.",
        arguments: &[arg::key("key"), arg::string("member").multiple()],
        example: "SADD s a; SMISMEMBER s a b => [1, 0]",
        run: smismember,
        ..SET
    },
    Command {
        name: "smove",
        arity: Arity::Exactly(4),
        flags: FAST_REMOVAL,
        keys: &[KeySpec::one(&["RW", "access", "delete"]), KeySpec::at(2, &["RW", "insert"])],
        doc: "Moves a member from one set to another.",
        arguments: &[arg::key("source"), arg::key("destination").spec(1), arg::string("member")],
        example: "SADD s a; SMOVE s t a => 1",
        run: smove,
        ..SET
    },
    Command {
        name: "spop",
        arity: Arity::AtLeast(2),
        flags: FAST_REMOVAL,
        keys: &[KeySpec::one(&["RW", "access", "delete"])],
        complexity: "O(N) in the number of members returned",
        tips: AT_RANDOM,
        doc: "Removes random members and returns them.",
        arguments: &[arg::key("key"), arg::integer("count").optional().since("3.2.0")],
        example: "SADD s a; SPOP s => \"a\"",
        run: spop,
        ..SET
    },
    Command {
        name: "srandmember",
        arity: Arity::AtLeast(2),
        flags: READ,
        complexity: "O(N) in the number of members returned",
        tips: AT_RANDOM,
        doc: "Returns random members.",
        arguments: &[arg::key("key"), arg::integer("count").optional().since("2.6.0")],
        example: "SADD s a; SRANDMEMBER s -2 => [\"a\", \"a\"]",
        run: srandmember,
        ..SET
    },
    Command {
        name: "srem",
        arity: Arity::AtLeast(3),
        flags: FAST_REMOVAL,
        keys: &[KeySpec::one(&["RW", "delete"])],
        complexity: PER_MEMBER_NAMED,
        doc: "Removes members, and the key with the last member; returns how many existed.",
        arguments: &[arg::key("key"), arg::string("member").multiple()],
        example: "SADD s a b; SREM s a missing => 1",
        run: srem,
        ..SET
    },
    Command {
        name: "sscan",
        arity: Arity::AtLeast(3),
        flags: READ,
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for the whole set",
        tips: AT_RANDOM,
        doc: "Iterates over the members of a set.",
        arguments: &[
            arg::key("key"),
            arg::integer("cursor"),
            arg::pattern("pattern").token("MATCH").optional(),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "SADD s a; SSCAN s 0 => [\"0\", [\"a\"]]",
        run: sscan,
        ..SET
    },
    Command {
        name: "sunion",
        arity: Arity::AtLeast(2),
        flags: READ,
        keys: READ_KEYS,
        complexity: PER_MEMBER,
        tips: UNORDERED,
        doc: "Returns the members of all sets.",
        arguments: &[arg::key("key").multiple()],
        example: "SADD s a; SADD t a b; SUNION s t => [\"a\", \"b\"]",
        run: sunion,
        ..SET
    },
    Command {
        name: "sunionstore",
        arity: Arity::AtLeast(3),
        flags: WRITE,
        keys: STORE_KEYS,
        complexity: PER_MEMBER,
        doc: "Stores the result of SUNION; returns its number of members.",
        arguments: &[arg::key("destination"), arg::key("key").spec(1).multiple()],
        example: "SADD s a; SADD t a b; SUNIONSTORE d s t => 2",
        run: sunionstore,
        ..SET
    },
];

// --- reading ---

/// `SCARD`: replies with the number of members.
fn scard(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<Set>(argv[1])?.map_or(0, Set::len).into())
}

/// `SISMEMBER`: replies with 1 if it is a member, else 0.
fn sismember(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<Set>(argv[1])?.is_some_and(|set| set.contains(argv[2])).into())
}

/// `SMISMEMBER`: replies with 1 or 0 for each member.
fn smismember(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let set = context.read_as::<Set>(argv[1])?;
    let known = |member: &&[u8]| set.is_some_and(|set| set.contains(member)).into();
    Ok(Reply::Array(argv[2..].iter().map(known).collect()))
}

/// `SMEMBERS`: replies with all members.
fn smembers(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let set = context.read_as::<Set>(argv[1])?;
    Ok(Reply::Set(bulks(set.into_iter().flat_map(Set::iter))))
}

/// `SSCAN`: replies with the next cursor and some members.
fn sscan(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let cursor = scan::cursor(argv[2])?;
    // Without the key the options are not even parsed.
    let (members, next) = match context.read_as::<Set>(argv[1])? {
        Some(set) => {
            let options = scan::options(&argv[3..], false)?;
            let (mut members, next) = set.scan(cursor, options.count);
            if let Some(pattern) = options.pattern {
                members.retain(|member| glob::matches(pattern, member));
            }
            (members, next)
        }
        None => (Vec::new(), 0),
    };
    let members = Reply::Array(bulks(members.into_iter()));
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), members]))
}

/// `SRANDMEMBER`: replies with a random member, or with `count` an array of them.
fn srandmember(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut random = Random::new(context.random().bits());
    let count = match argv[2..] {
        [] => {
            let set = context.read_as::<Set>(argv[1])?;
            return Ok(set.and_then(|set| set.random(&mut random)).map_or(Reply::Null, bulk));
        }
        [count] => Count::read(count)?,
        _ => return Err(Error::Syntax),
    };
    let Some(set) = context.read_as::<Set>(argv[1])? else { return Ok(Reply::Array(Vec::new())) };
    let picked = count.pick(
        &mut random,
        |count, random| set.random_distinct(count, random),
        |random| set.random(random),
    )?;
    Ok(Reply::Array(bulks(picked.into_iter())))
}

fn bulk(member: Cow<'_, [u8]>) -> Reply {
    Reply::Bulk(member.into_owned().into())
}

fn bulks<'a>(members: impl Iterator<Item = Cow<'a, [u8]>>) -> Vec<Reply> {
    members.map(bulk).collect()
}

// --- changing ---

/// `SADD`: replies with the number of new members.
fn sadd(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, members) = (argv[1], &argv[2..]);
    let (small, seed) = forms(context);
    let mut set = context.open::<Set>(key)?;
    set.expect(members[0], members.len(), small, seed);
    let added = members.iter().filter(|member| set.add(member, small, seed)).count();
    if added > 0 {
        context.changed(Events::SET, "sadd", key);
    }
    Ok(added.into())
}

/// `SREM`: replies with the number of removed members.
fn srem(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let Some(mut set) = context.write_as::<Set>(key)? else { return Ok(0_usize.into()) };
    let removed = argv[2..].iter().filter(|member| set.remove(member)).count();
    let emptied = set.is_empty();
    if removed > 0 {
        context.changed(Events::SET, "srem", key);
    }
    if emptied {
        context.remove_emptied(key);
    }
    Ok(removed.into())
}

/// `SMOVE`: replies with 1 if the member was moved, else 0.
fn smove(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (from, to, member) = (argv[1], argv[2], argv[3]);
    let (small, seed) = forms(context);
    if context.write_as::<Set>(from)?.is_none() {
        return Ok(false.into());
    }
    context.write_as::<Set>(to)?;
    let Some(mut source) = context.write_as::<Set>(from)? else { return Ok(false.into()) };
    if from == to {
        return Ok(source.contains(member).into());
    }
    if !source.remove(member) {
        return Ok(false.into());
    }
    let emptied = source.is_empty();
    context.changed(Events::SET, "srem", from);
    if emptied {
        context.remove_emptied(from);
    }
    let mut target = context.open::<Set>(to)?;
    target.expect(member, 1, small, seed);
    if target.add(member, small, seed) {
        context.changed(Events::SET, "sadd", to);
    }
    Ok(true.into())
}

/// `SPOP`: replies with a random member that was removed, or with `count` a set of them.
fn spop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut random = Random::new(context.random().bits());
    let key = argv[1];
    let count = match argv[2..] {
        [] => None,
        [count] => Some(
            integer(count)
                .ok()
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Error::line("ERR value is out of range, must be positive"))?,
        ),
        _ => return Err(Error::Syntax),
    };
    let (small, seed) = forms(context);
    let Some(mut set) = context.write_as::<Set>(key)? else {
        return Ok(count.map_or(Reply::Null, |_| Reply::Set(Vec::new())));
    };
    let picked: Vec<Vec<u8>> = set
        .random_distinct(count.unwrap_or(1), &mut random)
        .into_iter()
        .map(Cow::into_owned)
        .collect();
    for member in &picked {
        set.remove(member);
    }
    // A dictionary that has lost most of its members becomes small again, as in Redis.
    if set.form() == SetForm::Large && set.len().saturating_mul(5) <= picked.len() {
        set.rebuild(small, seed);
    }
    let emptied = set.is_empty();
    if !picked.is_empty() {
        context.changed(Events::SET, "spop", key);
    }
    if emptied {
        context.remove_emptied(key);
    }
    let mut replies = picked.into_iter().map(|member| Reply::Bulk(member.into()));
    Ok(match count {
        None => replies.next().unwrap_or(Reply::Null),
        Some(_) => Reply::Set(replies.collect()),
    })
}

/// The limits of the small forms of a set, and the seed of the dictionary of a large one.
pub(super) fn forms(context: &Context<'_>) -> (SmallSetLimits, HashSeed) {
    let settings = context.settings();
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let small = SmallSetLimits {
        integers_max: size(settings.set_max_intset_entries),
        entries_max: size(settings.set_max_listpack_entries),
        value_bytes_max: size(settings.set_max_listpack_value_bytes),
    };
    (small, context.keyspace().seed)
}

// --- several sets ---

/// `SINTER`: replies with the intersection.
fn sinter(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let sets = context.read_all_as::<Set>(&argv[1..])?;
    Ok(Reply::Set(bulks(intersection(&sets))))
}

/// `SINTERCARD`: replies with the number of members of the intersection, up to `LIMIT`.
fn sintercard(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let keys = integer(argv[1]).ok().and_then(|keys| usize::try_from(keys).ok());
    let keys =
        keys.filter(|&keys| keys > 0).ok_or(Error::line("ERR numkeys should be greater than 0"))?;
    let (keys, mut options) = argv[2..]
        .split_at_checked(keys)
        .ok_or(Error::line("ERR Number of keys can't be greater than number of args"))?;
    let mut limit = 0;
    while let [option, value, rest @ ..] = options
        && is(option, "limit")
    {
        limit = integer(value)
            .ok()
            .and_then(|limit| usize::try_from(limit).ok())
            .ok_or(Error::line("ERR LIMIT can't be negative"))?;
        options = rest;
    }
    if !options.is_empty() {
        return Err(Error::Syntax);
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    Ok(intersection(&context.read_all_as::<Set>(keys)?).take(limit).count().into())
}

/// `SINTERSTORE`: stores the intersection and replies with its number of members.
fn sinterstore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (small, seed) = forms(context);
    let sets = context.read_all_as::<Set>(&argv[2..])?;
    let smallest = sets.iter().flatten().min_by_key(|set| set.len());
    let mut result = match smallest {
        Some(Set::Integers(_)) => Set::default(),
        _ => Set::Small(Vec::new()),
    };
    for member in intersection(&sets) {
        result.add(&member, small, seed);
    }
    result.settle(small);
    store(context, argv[1], result, "sinterstore")
}

/// `SUNION`: replies with the union.
fn sunion(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::Set(bulks(union(context, &argv[1..])?.iter())))
}

/// `SUNIONSTORE`: stores the union and replies with its number of members.
fn sunionstore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let result = union(context, &argv[2..])?;
    store(context, argv[1], result, "sunionstore")
}

/// `SDIFF`: replies with the difference.
fn sdiff(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::Set(bulks(difference(context, &argv[1..])?.iter())))
}

/// `SDIFFSTORE`: stores the difference and replies with its number of members.
fn sdiffstore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let result = difference(context, &argv[2..])?;
    store(context, argv[1], result, "sdiffstore")
}

/// The members of all sets, in the order of the smallest.
fn intersection<'c>(sets: &[Option<&'c Set>]) -> impl Iterator<Item = Cow<'c, [u8]>> {
    let mut sets: Vec<&Set> = sets.iter().copied().collect::<Option<_>>().unwrap_or_default();
    sets.sort_by_key(|set| set.len());
    let smallest = sets.first().copied();
    let shared = move |member: &Cow<'_, [u8]>| sets.iter().skip(1).all(|set| set.contains(member));
    smallest.into_iter().flat_map(Set::iter).filter(shared)
}

fn union(context: &mut Context<'_>, keys: &[&[u8]]) -> Result<Set, Error> {
    let (small, seed) = forms(context);
    let mut result = Set::default();
    for set in context.read_all_as::<Set>(keys)?.into_iter().flatten() {
        for member in set.iter() {
            result.add(&member, small, seed);
        }
    }
    Ok(result)
}

/// The members of the first set that are not in the others.
fn difference(context: &mut Context<'_>, keys: &[&[u8]]) -> Result<Set, Error> {
    let (small, seed) = forms(context);
    let sets = context.read_all_as::<Set>(keys)?;
    let mut result = Set::default();
    for member in sets[0].into_iter().flat_map(Set::iter) {
        if !sets[1..].iter().flatten().any(|set| set.contains(&member)) {
            result.add(&member, small, seed);
        }
    }
    Ok(result)
}

/// Sets a key to a set, or removes it if the set is empty; sends `event`.
fn store(context: &mut Context<'_>, key: &[u8], set: Set, event: &str) -> Result<Reply, Error> {
    let count = set.len();
    if count > 0 {
        context.set(key, NewValue::Value(set.into()))?;
        context.changed(Events::SET, event, key);
    } else if context.clear(key)? {
        context.changed(Events::GENERIC, "del", key);
    }
    Ok(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, check_events};

    #[test]
    fn members_come_in_the_order_of_their_form() {
        check("SADD s 3 -1 20 3 => 3; SMEMBERS s => [\"-1\", \"3\", \"20\"]");
        check("SADD s b 3 a b => 3; SMEMBERS s => [\"b\", \"3\", \"a\"]");
        check("SADD s 3 1 2 b; SMEMBERS s => [\"1\", \"2\", \"3\", \"b\"]");
        check("SADD s 1 01 +1 => 3; SISMEMBER s 01 => 1; SISMEMBER s -0 => 0");
        check("SADD s 1 2; SINTER s s => [\"1\", \"2\"]; SADD t 2 1; SDIFF s t => []");
        check("SADD s c a b; SADD t b c x y; SINTER t s => [\"c\", \"b\"]");
    }

    #[test]
    fn encoding_changes_at_the_limits() {
        let mut settings = Settings::default();
        settings.set_max_intset_entries = 4;
        settings.set_max_listpack_entries = 3;
        settings.set_max_listpack_value_bytes = 5;
        for (commands, encoding) in [
            ("SADD s 1 2 3 4", "intset"),
            ("SADD s 1 2 3 4; SADD s 4", "intset"),
            ("SADD s 1 2 3 4; SADD s 5", "hashtable"),
            ("SADD s 1 1 1 1 1", "hashtable"),
            ("SADD s 1; SADD s 1 1 1 1 1", "hashtable"),
            ("SADD s 1 2; SADD s x", "listpack"),
            ("SADD s 1 2 3; SADD s x", "hashtable"),
            ("SADD s 1 123456; SADD s x", "hashtable"),
            ("SADD s -12345; SADD s x", "hashtable"),
            ("SADD s 1; SADD s abcdef", "hashtable"),
            ("SADD s a b c", "listpack"),
            ("SADD s a b c; SADD s a", "listpack"),
            ("SADD s a b c; SADD s d", "hashtable"),
            ("SADD s a b c; SADD s a a a a", "hashtable"),
            ("SADD s a; SADD s abcdef; SREM s abcdef", "hashtable"),
            ("SADD t a; SMOVE t s a", "listpack"),
            ("SADD t 1; SMOVE t s 1", "intset"),
            ("SADD t x 7; SREM t x; SUNIONSTORE s t", "intset"),
            ("SADD t x 7; SADD u 7 y; SINTERSTORE s t u", "intset"),
            ("SADD t x 7; SINTERSTORE s t", "listpack"),
            ("SADD t a b c d e f; SADD u a c g h i j; SINTERSTORE s t u", "listpack"),
            ("SADD t a b c d e f; SADD u a b c d e; SDIFFSTORE s t u", "listpack"),
            ("SADD s a b c d e f; SPOP s 5", "listpack"),
            ("SADD s a b c d e f; SPOP s 4", "hashtable"),
        ] {
            let mut stage = Stage::new(settings.clone());
            stage.check(&format!("{commands}; OBJECT ENCODING s => \"{encoding}\""));
        }
        settings.set_max_intset_entries = 0;
        Stage::new(settings).check("SADD s 1; OBJECT ENCODING s => \"listpack\"");
    }

    #[test]
    fn random_members_are_distinct_and_all_are_drawn() {
        let (mut random, seed) = (Random::new(1), HashSeed::default());
        for (members, prefix) in [(10_usize, ""), (10, "m"), (100, ""), (100, "m")] {
            let small = SmallSetLimits { integers_max: 50, entries_max: 50, value_bytes_max: 64 };
            let mut set = Set::default();
            for number in 0..members {
                set.add(format!("{prefix}{number}").as_bytes(), small, seed);
            }
            for count in [1, members / 3, members - 1, members, members + 1] {
                let mut seen = std::collections::BTreeSet::new();
                for _ in 0..1000 {
                    let mut picked = set.random_distinct(count, &mut random);
                    seen.extend(picked.iter().map(|member| member.to_vec()));
                    picked.sort_unstable();
                    picked.dedup();
                    assert_eq!(picked.len(), count.min(members));
                }
                assert_eq!(seen.len(), members, "{count}");
            }
        }
        check("SADD s a; SRANDMEMBER s -1000001 => !ERR value is out of range");
    }

    #[test]
    fn scan_of_a_large_set_shows_every_member() {
        let mut stage = Stage::new(Settings::default());
        for member in 0..1000 {
            stage.check(&format!("SADD s m{member}"));
        }
        stage.check("SSCAN s 0 MATCH m99* COUNT 991 => [\"991\", [\"m99\", \"m990\"]]");
        stage.check("SSCAN s 999 COUNT 100 => [\"0\", [\"m999\"]]");
        stage.check("SSCAN s 18446744073709551615 => [\"0\", []]");
        stage.check("SPOP s 999; SCARD s => 1");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("SADD s a b", "new s, sadd s"),
            ("SADD s a", ""),
            ("SREM s x", ""),
            ("SREM missing x", ""),
            ("SMOVE s t x", ""),
            ("SMOVE s s a", ""),
            ("SMOVE s t a", "srem s, new t, sadd t"),
            ("SMOVE s t b", "srem s, del s, sadd t"),
            ("SADD s a", "new s, sadd s"),
            ("SMOVE s t a", "srem s, del s"),
            ("SMEMBERS s", "keymiss s"),
            ("SISMEMBER s a", "keymiss s"),
            ("SSCAN s 0", "keymiss s"),
            ("SINTER s t s", "keymiss s, keymiss s"),
            ("SINTERCARD 1 s", "keymiss s"),
            ("SRANDMEMBER s 0", "keymiss s"),
            ("SUNIONSTORE d s t", "keymiss s, new d, sunionstore d"),
            ("SDIFFSTORE d t", "sdiffstore d"),
            ("SINTERSTORE d t", "sinterstore d"),
            ("SINTERSTORE d s t", "keymiss s, del d"),
            ("SINTERSTORE d s t", "keymiss s"),
            ("SPOP s", ""),
            ("SPOP t 0", ""),
            ("SPOP t", "spop t"),
            ("SPOP t 5", "spop t, del t"),
            ("SADD t 1", "new t, sadd t"),
            ("SREM t 1 1", "srem t, del t"),
        ]);
    }
}
