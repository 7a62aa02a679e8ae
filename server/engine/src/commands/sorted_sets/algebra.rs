//! Commands that combine several sorted sets: unions, intersections and differences. Sets can take
//! part, too; each of their members has a score of 1.

use std::borrow::Cow;

use lockwheel_resp::{Reply, number};

use crate::command::argument::{self as arg, Argument};
use crate::command::{Arity, Command, FindKeys, Flags, KeySpec, integer, is};
use crate::commands::sorted_sets::members::{self, SORTED_SET, forms};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::set::Set;
use crate::store::sorted_set::{SmallSortedSetLimits, SortedSet};
use crate::store::value::ValueRef;

/// Common fields of the commands that return the result.
const RETURN: Command = Command {
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
    keys: &[KeySpec { flags: &["RO", "access"], begin: 1, find: FindKeys::Count }],
    since: "6.2.0",
    ..SORTED_SET
};

/// Common fields of the commands that store the result.
const STORE: Command = Command {
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
    keys: &[
        KeySpec::one(&["OW", "update"]),
        KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Count },
    ],
    since: "2.0.0",
    ..SORTED_SET
};

const PER_SMALLEST: &str = "O(N*K + M log M) for K sets, N in the smallest, M in the result";
const PER_MEMBER: &str = "O(N + M log M) for N members in all sets, M in the result";

/// A factor for the scores of each set.
const WEIGHTS: Argument = arg::integer("weight").token("WEIGHTS").optional().multiple();

/// The score of a member of several sets.
const AGGREGATE: Argument =
    arg::one_of("aggregate", &[arg::word("SUM"), arg::word("MIN"), arg::word("MAX")])
        .token("AGGREGATE")
        .optional();

/// The arguments of `ZINTER` and `ZUNION`.
const COMBINED: &[Argument] = &[
    arg::integer("numkeys"),
    arg::key("key").multiple(),
    WEIGHTS,
    AGGREGATE,
    arg::word("WITHSCORES").optional(),
];

/// The arguments of `ZINTERSTORE` and `ZUNIONSTORE`.
const STORED: &[Argument] = &[
    arg::key("destination"),
    arg::integer("numkeys"),
    arg::key("key").spec(1).multiple(),
    WEIGHTS,
    AGGREGATE,
];

/// The rows for several sorted sets.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "zdiff",
        complexity: PER_MEMBER,
        doc: "Returns the members of the first set that are in none of the others.",
        arguments: &[
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::word("WITHSCORES").optional(),
        ],
        example: "ZADD y 1 a 2 b; ZADD z 3 a; ZDIFF 2 y z WITHSCORES => [\"b\", \"2\"]",
        run: |context, argv| show(context, argv, Operation::Diff),
        ..RETURN
    },
    Command {
        name: "zdiffstore",
        since: "6.2.0",
        complexity: PER_MEMBER,
        doc: "Stores the members of the first set that are in none of the others.",
        arguments: &[
            arg::key("destination"),
            arg::integer("numkeys"),
            arg::key("key").spec(1).multiple(),
        ],
        example: "ZADD y 1 a 2 b; ZADD z 3 a; ZDIFFSTORE x 2 y z => 1",
        run: |context, argv| store(context, argv, Operation::Diff, "zdiffstore"),
        ..STORE
    },
    Command {
        name: "zinter",
        complexity: PER_SMALLEST,
        doc: "Returns the members that are in all sets, with combined scores.",
        arguments: COMBINED,
        example: "ZADD y 1 a 2 b; ZADD z 3 a; ZINTER 2 y z WITHSCORES => [\"a\", \"4\"]",
        run: |context, argv| show(context, argv, Operation::Inter),
        ..RETURN
    },
    Command {
        name: "zintercard",
        since: "7.0.0",
        complexity: "O(N*K) for K sets, N members in the smallest",
        doc: "Counts the members that are in all sets, optionally up to a limit.",
        arguments: &[
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::integer("limit").token("LIMIT").optional(),
        ],
        example: "ZADD y 1 a 2 b; ZADD z 3 a 4 b; ZINTERCARD 2 y z LIMIT 1 => 1",
        run: zintercard,
        ..RETURN
    },
    Command {
        name: "zinterstore",
        complexity: PER_SMALLEST,
        doc: "Stores the members that are in all sets, with combined scores.",
        arguments: STORED,
        example: "ZADD y 1 a 2 b; ZADD z 3 a; ZINTERSTORE x 2 y z AGGREGATE MAX => 1",
        run: |context, argv| store(context, argv, Operation::Inter, "zinterstore"),
        ..STORE
    },
    Command {
        name: "zunion",
        complexity: PER_MEMBER,
        doc: "Returns the members of all sets, with combined scores.",
        arguments: COMBINED,
        example: "ZADD y 1 a; ZADD z 2 a; ZUNION 2 y z WEIGHTS 2 1 WITHSCORES => [\"a\", \"4\"]",
        run: |context, argv| show(context, argv, Operation::Union),
        ..RETURN
    },
    Command {
        name: "zunionstore",
        complexity: PER_MEMBER,
        doc: "Stores the members of all sets, with combined scores.",
        arguments: STORED,
        example: "ZADD y 1 a; ZADD z 2 b; ZUNIONSTORE x 2 y z => 2",
        run: |context, argv| store(context, argv, Operation::Union, "zunionstore"),
        ..STORE
    },
];

// --- arguments ---

/// The way to combine several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// The way to combine the scores of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn read(argument: &[u8]) -> Result<Aggregate, Error> {
        match argument {
            word if is(word, "sum") => Ok(Aggregate::Sum),
            word if is(word, "min") => Ok(Aggregate::Min),
            word if is(word, "max") => Ok(Aggregate::Max),
            _ => Err(Error::Syntax),
        }
    }

    /// The combined score. Infinities of opposite signs add up to 0.
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_if_nan(score + other),
            Aggregate::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Aggregate::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A set that takes part.
struct Input<'c> {
    members: Members<'c>,
    weight: f64,
}

impl<'c> Input<'c> {
    /// The members with their scores times the weight.
    fn weighted(&self) -> impl Iterator<Item = (Cow<'c, [u8]>, f64)> + use<'c> {
        let weight = self.weight;
        self.members.iter().map(move |(member, score)| (member, zero_if_nan(score * weight)))
    }
}

enum Members<'c> {
    None,
    Set(&'c Set),
    SortedSet(&'c SortedSet),
}

impl<'c> Members<'c> {
    fn len(&self) -> usize {
        match self {
            Members::None => 0,
            Members::Set(set) => set.len(),
            Members::SortedSet(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Members::None => None,
            Members::Set(set) => set.contains(member).then_some(1.0),
            Members::SortedSet(set) => set.score(member),
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = (Cow<'c, [u8]>, f64)> + 'c> {
        match *self {
            Members::None => Box::new(std::iter::empty()),
            Members::Set(set) => Box::new(set.iter().map(|member| (member, 1.0))),
            Members::SortedSet(set) => {
                Box::new(set.iter().map(|(member, score)| (Cow::Borrowed(member), score)))
            }
        }
    }
}

/// Parses `numkeys key ...` and finds the sets; returns them and the remaining arguments.
fn inputs<'c, 'k, 'a>(
    context: &'c mut Context<'_>,
    arguments: &'k [&'a [u8]],
) -> Result<(Vec<Input<'c>>, &'k [&'a [u8]]), Error> {
    let count = usize::try_from(integer(arguments[0])?).unwrap_or(0);
    if count == 0 {
        let name = context.name;
        return Err(Error::text(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let (keys, rest) = arguments[1..].split_at_checked(count).ok_or(Error::Syntax)?;
    let mut slots = Vec::with_capacity(count);
    for key in keys {
        let slot = context.read_slot(key);
        let value = slot.map(|slot| context.record(slot).value());
        if !matches!(value, None | Some(ValueRef::Set(_) | ValueRef::SortedSet(_))) {
            return Err(Error::WrongType);
        }
        slots.push(slot);
    }
    let context = &*context;
    let members = |slot: Option<_>| match slot.map(|slot| context.record(slot).value()) {
        Some(ValueRef::Set(set)) => Members::Set(set),
        Some(ValueRef::SortedSet(set)) => Members::SortedSet(set),
        _ => Members::None,
    };
    let input = |slot| Input { members: members(slot), weight: 1.0 };
    Ok((slots.into_iter().map(input).collect(), rest))
}

/// Parses the options after the keys; returns the aggregate, and whether scores are requested.
fn read_options(
    mut options: &[&[u8]],
    operation: Operation,
    shows: bool,
    inputs: &mut [Input<'_>],
) -> Result<(Aggregate, bool), Error> {
    let (mut aggregate, mut with_scores) = (Aggregate::default(), false);
    let combines = operation != Operation::Diff;
    while let [option, rest @ ..] = options {
        options = rest;
        if combines && rest.len() >= inputs.len() && is(option, "weights") {
            let (weights, rest) = rest.split_at(inputs.len());
            for (input, weight) in inputs.iter_mut().zip(weights) {
                let weight = number::parse_double(weight);
                input.weight = weight.ok_or(Error::line("ERR weight value is not a float"))?;
            }
            options = rest;
        } else if combines && !rest.is_empty() && is(option, "aggregate") {
            aggregate = Aggregate::read(rest[0])?;
            options = &rest[1..];
        } else if shows && is(option, "withscores") {
            with_scores = true;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((aggregate, with_scores))
}

// --- results ---

/// `ZDIFF`, `ZINTER` and `ZUNION`: reply with the members, with `WITHSCORES` also their scores.
fn show(context: &mut Context<'_>, argv: &[&[u8]], operation: Operation) -> Result<Reply, Error> {
    let protocol = context.protocol();
    let (result, with_scores) = evaluate(context, &argv[1..], operation, true)?;
    let members = result.iter().collect();
    Ok(if with_scores { members::scored(members, protocol) } else { members::plain(members) })
}

/// `ZDIFFSTORE`, `ZINTERSTORE` and `ZUNIONSTORE`: reply with the number of members stored.
fn store(
    context: &mut Context<'_>,
    argv: &[&[u8]],
    operation: Operation,
    event: &str,
) -> Result<Reply, Error> {
    let (mut result, _) = evaluate(context, &argv[2..], operation, false)?;
    result.settle(forms(context).0);
    members::store(context, argv[1], result, event)
}

/// `ZINTERCARD`: replies with the number of members of the intersection, up to `LIMIT`.
fn zintercard(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut inputs, mut options) = inputs(context, &argv[1..])?;
    let mut limit = 0;
    while let [option, value, rest @ ..] = options
        && is(option, "limit")
    {
        let value = integer(value).ok().and_then(|limit| usize::try_from(limit).ok());
        limit = value.ok_or(Error::line("ERR LIMIT can't be negative"))?;
        options = rest;
    }
    if !options.is_empty() {
        return Err(Error::Syntax);
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    inputs.sort_by_key(|input| input.members.len());
    Ok(intersection(&inputs, Aggregate::Sum).take(limit).count().into())
}

/// Parses `numkeys key ... [options]` and combines the sets; returns whether scores are requested.
/// The result is in the large form, whatever its size.
fn evaluate(
    context: &mut Context<'_>,
    arguments: &[&[u8]],
    operation: Operation,
    shows: bool,
) -> Result<(SortedSet, bool), Error> {
    const LARGE: SmallSortedSetLimits =
        SmallSortedSetLimits { entries_max: 0, member_bytes_max: 0 };
    let seed = context.keyspace().seed;
    let (mut inputs, options) = inputs(context, arguments)?;
    let (aggregate, with_scores) = read_options(options, operation, shows, &mut inputs)?;
    if operation != Operation::Diff {
        // The order is that of Redis, since it affects the rounding of sums.
        inputs.sort_by_key(|input| input.members.len());
    }
    let mut result = SortedSet::default();
    match operation {
        Operation::Union => {
            for (member, score) in inputs.iter().flat_map(Input::weighted) {
                let old = result.score(&member);
                let score = old.map_or(score, |old| aggregate.of(old, score));
                result.set(&member, score, LARGE, seed);
            }
        }
        Operation::Inter => {
            for (member, score) in intersection(&inputs, aggregate) {
                result.set(&member, score, LARGE, seed);
            }
        }
        Operation::Diff => {
            for (member, score) in difference(&inputs) {
                result.set(&member, score, LARGE, seed);
            }
        }
    }
    Ok((result, with_scores))
}

/// The members of all sets, of which the first is the smallest.
fn intersection<'c>(
    inputs: &[Input<'c>],
    aggregate: Aggregate,
) -> impl Iterator<Item = (Cow<'c, [u8]>, f64)> {
    inputs[0].weighted().filter_map(move |(member, score)| {
        let score = inputs[1..].iter().try_fold(score, |score, other| {
            Some(aggregate.of(score, other.members.score(&member)? * other.weight))
        });
        score.map(|score| (member, score))
    })
}

/// The members of the first set that are not in the others.
fn difference<'c>(inputs: &[Input<'c>]) -> impl Iterator<Item = (Cow<'c, [u8]>, f64)> {
    inputs[0]
        .members
        .iter()
        .filter(|(member, _)| inputs[1..].iter().all(|other| other.members.score(member).is_none()))
}

#[cfg(test)]
mod tests {
    use crate::testing::check_events;

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("ZADD y 1 a 2 b", "new y, zadd y"),
            ("SADD s a", "new s, sadd s"),
            ("ZUNIONSTORE x 2 y s", "new x, zunionstore x"),
            ("ZUNIONSTORE x 2 y s", "zunionstore x"),
            ("ZINTERSTORE x 2 y missing", "keymiss missing, del x"),
            ("ZDIFFSTORE x 2 y s", "new x, zdiffstore x"),
            ("ZINTERSTORE x 2 y s", "zinterstore x"),
            ("ZDIFFSTORE x 1 missing", "keymiss missing, del x"),
            ("ZDIFFSTORE x 2 y y", ""),
            ("ZUNION 2 y missing", "keymiss missing"),
        ]);
    }
}
