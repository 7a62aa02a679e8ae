//! Commands for single members of sorted sets. The queue of a fair lock, the permits of a semaphore
//! and the calls counted by a rate limiter are scored by the time at which they end.
//!
//! Invariant: no empty sorted set is stored; the key is removed with the last member.

use lockwheel_resp::{Protocol, Reply, format_double, number};

use crate::command::argument as arg;
use crate::command::{
    Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, LockMeaning, integer, is, one_of,
};
use crate::commands;
use crate::commands::multi_pop::MultiPop;
use crate::commands::picks::Count;
use crate::commands::scan;
use crate::error::Error;
use crate::glob;
use crate::random::Random;
use crate::run::context::Context;
use crate::sessions::waiters::WaitKind;
use crate::store::dict::HashSeed;
use crate::store::events::Events;
use crate::store::records::NewValue;
use crate::store::sorted_set::{Scored, SmallSortedSetLimits, SortedSet};
use crate::store::value::{Kind, ValueRef};

/// Common fields of the rows in all files for sorted sets.
pub(super) const SORTED_SET: Command = Command {
    group: Group::SortedSet,
    categories: Categories::SORTEDSET,
    since: "1.2.0",
    keys: &[KeySpec::one(&["RO", "access"])],
    flags: Flags::READONLY,
    complexity: "O(log N), N being the number of members",
    ..Command::BASE
};

const FAST_READ: Flags = Flags::READONLY.union(Flags::FAST);
const FAST_REMOVE: Flags = Flags::WRITE.union(Flags::FAST);
const FAST_WRITE: Flags = FAST_REMOVE.union(Flags::DENYOOM);

const SEEN_KEY: &[KeySpec] = &[KeySpec::one(&["RO"])];
const POPPED: &[&str] = &["RW", "access", "delete"];

/// Common fields of `BZPOPMIN` and `BZPOPMAX`.
const BLOCKING_POP: Command = Command {
    arity: Arity::AtLeast(3),
    flags: FAST_REMOVE.union(Flags::BLOCKING),
    keys: &[KeySpec { flags: POPPED, begin: 1, find: FindKeys::Range { last: -2, step: 1 } }],
    since: "5.0.0",
    ..SORTED_SET
};

/// The rows for single members.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "bzmpop",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec { flags: POPPED, begin: 2, find: FindKeys::Count }],
        since: "7.0.0",
        complexity: "O(K + M log N) for K keys and M of N members",
        doc: "Removes and returns members of the first non-empty sorted set; blocks until there is \
              one.",
        arguments: &[
            arg::double("timeout"),
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::one_of("where", &[arg::word("MIN"), arg::word("MAX")]),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "ZADD z 1 a; BZMPOP 0 2 missing z MIN => [\"z\", [[\"a\", \"1\"]]]",
        run: bzmpop,
        ..SORTED_SET
    },
    Command {
        name: "bzpopmax",
        doc: "Removes and returns the greatest member of the first non-empty sorted set; blocks \
              until there is one.",
        arguments: &[arg::key("key").multiple(), arg::double("timeout")],
        example: "BZPOPMAX z 0.5; +500ms; a< => nil-array",
        run: |context, argv| bzpop(context, argv, ScoreEnd::Max),
        ..BLOCKING_POP
    },
    Command {
        name: "bzpopmin",
        doc: "Removes and returns the least member of the first non-empty sorted set; blocks until \
              there is one.",
        arguments: &[arg::key("key").multiple(), arg::double("timeout")],
        example: "ZADD z 1 a 2 b; BZPOPMIN missing z 0 => [\"z\", \"a\", \"1\"]",
        run: |context, argv| bzpop(context, argv, ScoreEnd::Min),
        ..BLOCKING_POP
    },
    Command {
        name: "zadd",
        arity: Arity::AtLeast(4),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "update"])],
        complexity: "O(log N) a member, N being the number of members",
        doc: "Sets the scores of members, optionally with conditions; returns how many are new.",
        arguments: &[
            arg::key("key"),
            arg::one_of("condition", &[arg::word("NX"), arg::word("XX")]).optional().since("3.0.2"),
            arg::one_of("comparison", &[arg::word("GT"), arg::word("LT")])
                .optional()
                .since("6.2.0"),
            arg::word("CH").named("change").optional().since("3.0.2"),
            arg::word("INCR").named("increment").optional().since("3.0.2"),
            arg::block("score_member", &[arg::double("score"), arg::string("member")]).multiple(),
        ],
        example: "ZADD z 1 a; ZADD z GT CH 2 a 0 b => 2",
        lock: LockMeaning::Acquire,
        adds_nothing: Some(has_members),
        run: |context, argv| add(context, argv, AddOptions::default()),
        ..SORTED_SET
    },
    Command {
        name: "zcard",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: SEEN_KEY,
        complexity: "O(1)",
        doc: "Returns the number of members.",
        arguments: &[arg::key("key")],
        example: "ZADD z 1 a 2 b; ZCARD z => 2",
        run: zcard,
        ..SORTED_SET
    },
    Command {
        name: "zincrby",
        arity: Arity::Exactly(4),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "access", "update"])],
        doc: "Adds a number to the score of a member.",
        arguments: &[arg::key("key"), arg::integer("increment"), arg::string("member")],
        example: "ZADD z 1 a; ZINCRBY z 0.5 a => \"1.5\"",
        adds_nothing: Some(|set, argv| has_member(set, argv[3])),
        run: |context, argv| add(context, argv, AddOptions { incr: true, ..AddOptions::default() }),
        ..SORTED_SET
    },
    Command {
        name: "zmpop",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec { flags: POPPED, begin: 1, find: FindKeys::Count }],
        since: "7.0.0",
        complexity: "O(K + M log N) for K keys and M of N members",
        doc: "Removes and returns the least or greatest members of the first non-empty sorted set.",
        arguments: &[
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::one_of("where", &[arg::word("MIN"), arg::word("MAX")]),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "ZADD z 1 a 2 b; ZMPOP 2 missing z MIN => [\"z\", [[\"a\", \"1\"]]]",
        run: zmpop,
        ..SORTED_SET
    },
    Command {
        name: "zmscore",
        arity: Arity::AtLeast(3),
        flags: FAST_READ,
        since: "6.2.0",
        complexity: "O(1) a member named",
        doc: "Returns the scores of several members.",
        arguments: &[arg::key("key"), arg::string("member").multiple()],
        example: "ZADD z 1 a; ZMSCORE z a missing => [\"1\", nil]",
        run: zmscore,
        ..SORTED_SET
    },
    Command {
        name: "zpopmax",
        arity: Arity::AtLeast(2),
        flags: FAST_REMOVE,
        keys: &[KeySpec::one(POPPED)],
        since: "5.0.0",
        complexity: "O(M log N) for M of N members",
        doc: "Removes and returns the members with the greatest scores.",
        arguments: &[arg::key("key"), arg::integer("count").optional()],
        example: "ZADD z 1 a 2 b; ZPOPMAX z => [\"b\", \"2\"]",
        run: |context, argv| zpop(context, argv, ScoreEnd::Max),
        ..SORTED_SET
    },
    Command {
        name: "zpopmin",
        arity: Arity::AtLeast(2),
        flags: FAST_REMOVE,
        keys: &[KeySpec::one(POPPED)],
        since: "5.0.0",
        complexity: "O(M log N) for M of N members",
        doc: "Removes and returns the members with the least scores.",
        arguments: &[arg::key("key"), arg::integer("count").optional()],
        example: "ZADD z 1 a 2 b; ZPOPMIN z => [\"a\", \"1\"]",
        run: |context, argv| zpop(context, argv, ScoreEnd::Min),
        ..SORTED_SET
    },
    Command {
        name: "zrandmember",
        arity: Arity::AtLeast(2),
        since: "6.2.0",
        complexity: "O(N) in the number of members returned",
        tips: &["nondeterministic_output"],
        doc: "Returns random members.",
        arguments: &[
            arg::key("key"),
            arg::block("options", &[arg::integer("count"), arg::word("WITHSCORES").optional()])
                .optional(),
        ],
        example: "ZADD z 1 a; ZRANDMEMBER z 2 WITHSCORES => [\"a\", \"1\"]",
        run: zrandmember,
        ..SORTED_SET
    },
    Command {
        name: "zrank",
        arity: Arity::AtLeast(3),
        flags: FAST_READ,
        since: "2.0.0",
        doc: "Returns the number of members before this one.",
        arguments: &[
            arg::key("key"),
            arg::string("member"),
            arg::word("WITHSCORE").optional().since("7.2.0"),
        ],
        example: "ZADD z 1 a 2 b; ZRANK z b WITHSCORE => [1, \"2\"]",
        run: |context, argv| zrank(context, argv, false),
        ..SORTED_SET
    },
    Command {
        name: "zrem",
        arity: Arity::AtLeast(3),
        flags: FAST_REMOVE,
        keys: &[KeySpec::one(&["RW", "delete"])],
        complexity: "O(M log N) for M of N members",
        doc: "Removes members; returns how many existed.",
        arguments: &[arg::key("key"), arg::string("member").multiple()],
        example: "ZADD z 1 a; ZREM z a missing => 1",
        lock: LockMeaning::Release,
        run: zrem,
        ..SORTED_SET
    },
    Command {
        name: "zrevrank",
        arity: Arity::AtLeast(3),
        flags: FAST_READ,
        since: "2.0.0",
        doc: "Returns the number of members after this one.",
        arguments: &[
            arg::key("key"),
            arg::string("member"),
            arg::word("WITHSCORE").optional().since("7.2.0"),
        ],
        example: "ZADD z 1 a 2 b; ZREVRANK z b => 0",
        run: |context, argv| zrank(context, argv, true),
        ..SORTED_SET
    },
    Command {
        name: "zscan",
        arity: Arity::AtLeast(3),
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for the whole sorted set",
        tips: &["nondeterministic_output"],
        doc: "Iterates over the members of a sorted set.",
        arguments: &[
            arg::key("key"),
            arg::integer("cursor"),
            arg::pattern("pattern").token("MATCH").optional(),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "ZADD z 1 a; ZSCAN z 0 => [\"0\", [\"a\", \"1\"]]",
        run: zscan,
        ..SORTED_SET
    },
    Command {
        name: "zscore",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        complexity: "O(1)",
        doc: "Returns the score of a member.",
        arguments: &[arg::key("key"), arg::string("member")],
        example: "ZADD z 922337203685477 a; ZSCORE z a => \"922337203685477\"",
        run: zscore,
        ..SORTED_SET
    },
];

// --- reading ---

/// `ZCARD`: replies with the number of members.
fn zcard(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<SortedSet>(argv[1])?.map_or(0, SortedSet::len).into())
}

/// `ZSCORE`: replies with the score, or nil.
fn zscore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let score = context.read_as::<SortedSet>(argv[1])?.and_then(|set| set.score(argv[2]));
    Ok(score.map_or(Reply::Null, Reply::Double))
}

/// `ZMSCORE`: replies with the scores, nil for missing members.
fn zmscore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let set = context.read_as::<SortedSet>(argv[1])?;
    let score = |member: &&[u8]| set.and_then(|set| set.score(member));
    let scores = argv[2..].iter().map(|member| score(member).map_or(Reply::Null, Reply::Double));
    Ok(Reply::Array(scores.collect()))
}

/// `ZRANK` and `ZREVRANK`: reply with the rank, with `WITHSCORE` also the score, or nil.
fn zrank(context: &mut Context<'_>, argv: &[&[u8]], reverse: bool) -> Result<Reply, Error> {
    let with_score = match argv[3..] {
        [] => false,
        [option] if is(option, "withscore") => true,
        [_] => return Err(Error::Syntax),
        _ => return Err(Error::Arity(context.name.to_owned())),
    };
    let found = context
        .read_as::<SortedSet>(argv[1])?
        .and_then(|set| set.rank(argv[2]).map(|(rank, score)| (rank, set.len(), score)));
    Ok(match found {
        None if with_score => Reply::NullArray,
        None => Reply::Null,
        Some((rank, len, score)) => {
            let rank = Reply::from(if reverse { len - 1 - rank } else { rank });
            if with_score { Reply::Array(vec![rank, Reply::Double(score)]) } else { rank }
        }
    })
}

/// `ZSCAN`: replies with the next cursor and some members with their scores.
fn zscan(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let cursor = scan::cursor(argv[2])?;
    // Without the key the options are not even parsed.
    let (members, next) = match context.read_as::<SortedSet>(argv[1])? {
        Some(set) => {
            let options = scan::options(&argv[3..], false)?;
            let (mut members, next) = set.scan(cursor, options.count);
            if let Some(pattern) = options.pattern {
                members.retain(|(member, _)| glob::matches(pattern, member));
            }
            (members, next)
        }
        None => (Vec::new(), 0),
    };
    // Scores are text here, even in RESP3.
    let text = |(member, score)| [Reply::bulk(member), Reply::bulk(format_double(score))];
    let members = Reply::Array(members.into_iter().flat_map(text).collect());
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), members]))
}

/// `ZRANDMEMBER`: replies with random members, with `WITHSCORES` also their scores.
fn zrandmember(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut random = Random::new(context.random().bits());
    let key = argv[1];
    if argv.len() == 2 {
        let picked = context.read_as::<SortedSet>(key)?.and_then(|set| set.random(&mut random));
        return Ok(picked.map_or(Reply::Null, |(member, _)| Reply::bulk(member)));
    }
    let (count, with_scores) = Count::read_with(&argv[2..], "withscores")?;
    let protocol = context.protocol();
    let Some(set) = context.read_as::<SortedSet>(key)? else { return Ok(Reply::Array(Vec::new())) };
    let picked = count.pick(
        &mut random,
        |count, random| set.random_distinct(count, random),
        |random| set.random(random),
    )?;
    Ok(if with_scores { scored(picked, protocol) } else { plain(picked) })
}

// --- changing ---

/// The options of `ZADD`, with Redis's names.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Parses an option; false if it is none.
    fn read(&mut self, argument: &[u8]) -> bool {
        let flags = [
            ("nx", &mut self.nx),
            ("xx", &mut self.xx),
            ("gt", &mut self.gt),
            ("lt", &mut self.lt),
            ("ch", &mut self.ch),
            ("incr", &mut self.incr),
        ];
        let found = flags.into_iter().find(|(word, _)| is(argument, word));
        found.map(|(_, flag)| *flag = true).is_some()
    }

    /// Refuses options that exclude each other.
    fn check(self, pairs: usize) -> Result<(), Error> {
        if self.nx && self.xx {
            return Err(Error::line("ERR XX and NX options at the same time are not compatible"));
        }
        if [self.nx, self.gt, self.lt].into_iter().filter(|&asked| asked).count() > 1 {
            return Err(Error::line(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.incr && pairs > 1 {
            return Err(Error::line("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The new score of a member that had the score `old`, if it is to be set at all.
    fn new_score(self, old: Option<f64>, score: f64) -> Result<Option<f64>, Error> {
        let Some(old) = old else { return Ok((!self.xx).then_some(score)) };
        let new = if self.incr { old + score } else { score };
        if self.nx {
            return Ok(None);
        }
        if new.is_nan() {
            return Err(Error::line("ERR resulting score is not a number (NaN)"));
        }
        let refused = self.gt && new <= old || self.lt && new >= old;
        Ok((!refused).then_some(new))
    }
}

/// See [`Command::adds_nothing`].
fn has_members(old: ValueRef<'_>, argv: &[&[u8]]) -> bool {
    let mut options = AddOptions::default();
    let option_count = argv[2..].iter().take_while(|argument| options.read(argument)).count();
    let (pairs, []) = argv[2 + option_count..].as_chunks() else { return false };
    options.xx || pairs.iter().all(|&[_, member]| has_member(old, member))
}

fn has_member(old: ValueRef<'_>, member: &[u8]) -> bool {
    matches!(old, ValueRef::SortedSet(set) if set.score(member).is_some())
}

/// `ZADD`: replies with the number of new members, or of changed ones with `CH`; `ZINCRBY` and
/// `ZADD INCR`: with the new score.
fn add(context: &mut Context<'_>, argv: &[&[u8]], mut options: AddOptions) -> Result<Reply, Error> {
    let key = argv[1];
    let option_count = argv[2..].iter().take_while(|argument| options.read(argument)).count();
    let (pairs, []) = argv[2 + option_count..].as_chunks() else { return Err(Error::Syntax) };
    if pairs.is_empty() {
        return Err(Error::Syntax);
    }
    options.check(pairs.len())?;
    let score = |[score, _]: &[&[u8]; 2]| number::parse_double(score).ok_or(Error::NotAFloat);
    let scores = pairs.iter().map(score).collect::<Result<Vec<f64>, Error>>()?;
    let (small, seed) = forms(context);
    // Adding members to a new set cannot fail, so no empty set remains.
    let set = if options.xx {
        context.write_as::<SortedSet>(key)?
    } else {
        Some(context.open::<SortedSet>(key)?)
    };
    let (mut added, mut updated, mut result) = (0_usize, 0_usize, None);
    if let Some(mut set) = set {
        for (&[_, member], score) in pairs.iter().zip(scores) {
            let old = set.score(member);
            let Some(new) = options.new_score(old, score)? else { continue };
            if old != Some(new) {
                set.set(member, new, small, seed);
                added += usize::from(old.is_none());
                updated += usize::from(old.is_some());
            }
            result = Some(new);
        }
    }
    if added + updated > 0 {
        context.changed(Events::ZSET, if options.incr { "zincr" } else { "zadd" }, key);
    }
    Ok(match result {
        Some(score) if options.incr => Reply::Double(score),
        None if options.incr => Reply::Null,
        _ => Reply::from(if options.ch { added + updated } else { added }),
    })
}

/// `ZREM`: replies with the number of removed members.
fn zrem(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let Some(mut set) = context.write_as::<SortedSet>(key)? else { return Ok(0_usize.into()) };
    let removed = argv[2..].iter().filter(|member| set.remove(member).is_some()).count();
    let emptied = set.is_empty();
    notify_removal(context, key, "zrem", removed, emptied);
    Ok(removed.into())
}

/// Sends the events for `removed` members, if any, and for the key if they were the last.
pub(super) fn notify_removal(
    context: &mut Context<'_>,
    key: &[u8],
    event: &str,
    removed: usize,
    emptied: bool,
) {
    if removed > 0 {
        context.changed(Events::ZSET, event, key);
    }
    if emptied {
        context.remove_emptied(key);
    }
}

/// The end of a sorted set from which members are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScoreEnd {
    Min,
    Max,
}

/// Removes up to `count` members from one end and returns each with its score; `None` if there is
/// no such key.
fn pop(
    context: &mut Context<'_>,
    key: &[u8],
    end: ScoreEnd,
    count: usize,
) -> Result<Option<Vec<[Reply; 2]>>, Error> {
    let Some(mut set) = context.write_as::<SortedSet>(key)? else { return Ok(None) };
    let len = set.len();
    let count = count.min(len);
    let (ranks, event) = match end {
        ScoreEnd::Min => (0..count, "zpopmin"),
        ScoreEnd::Max => (len - count..len, "zpopmax"),
    };
    let mut popped: Vec<_> = set.range(ranks.clone()).map(pair).collect();
    if end == ScoreEnd::Max {
        popped.reverse();
    }
    set.remove_range(ranks);
    notify_removal(context, key, event, count, count == len);
    Ok(Some(popped))
}

/// `ZPOPMIN` and `ZPOPMAX`: reply with the removed members and their scores.
fn zpop(context: &mut Context<'_>, argv: &[&[u8]], end: ScoreEnd) -> Result<Reply, Error> {
    let count = match argv[2..] {
        [] => None,
        [count] => {
            let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Error::line("ERR value is out of range, must be positive"))?)
        }
        _ => return Err(Error::Syntax),
    };
    let nested = count.is_some() && context.protocol() == Protocol::Resp3;
    let popped = pop(context, argv[1], end, count.unwrap_or(1))?.unwrap_or_default();
    Ok(if nested { pairs(popped) } else { flat(popped) })
}

/// `ZMPOP`: replies with a key and the removed members, or nil.
fn zmpop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(MultiPop::read(&argv[1..], end)?.run(context, pop_pairs)?.unwrap_or(Reply::NullArray))
}

/// Parses the end for `ZMPOP`.
fn end(word: &[u8]) -> Result<ScoreEnd, Error> {
    one_of(word, [("min", ScoreEnd::Min), ("max", ScoreEnd::Max)]).ok_or(Error::Syntax)
}

/// Removes up to `count` members from one end of a sorted set, as a reply.
fn pop_pairs(
    context: &mut Context<'_>,
    key: &[u8],
    end: ScoreEnd,
    count: usize,
) -> Result<Option<Reply>, Error> {
    Ok(pop(context, key, end, count)?.map(pairs))
}

// --- blocking ---

/// `BZPOPMIN` and `BZPOPMAX`: reply with a key, a member and its score, or nil after the timeout.
fn bzpop(context: &mut Context<'_>, argv: &[&[u8]], end: ScoreEnd) -> Result<Reply, Error> {
    let [_, keys @ .., timeout] = argv else { return Err(Error::Syntax) };
    let deadline = commands::timeout_seconds(context.time, timeout)?;
    for key in keys {
        if let Some(popped) = pop(context, key, end, 1)? {
            let popped = popped.into_iter().flatten();
            return Ok(Reply::Array(std::iter::once(Reply::bulk(key)).chain(popped).collect()));
        }
    }
    let wait = context.wait_for(WaitKind::Value(Kind::SortedSet), keys, deadline, argv);
    Ok(wait.unwrap_or(Reply::NullArray))
}

/// `BZMPOP`: replies with a key and the removed members, or nil after the timeout.
fn bzmpop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let request = MultiPop::read(&argv[2..], end)?;
    let deadline = commands::timeout_seconds(context.time, argv[1])?;
    if let Some(popped) = request.run(context, pop_pairs)? {
        return Ok(popped);
    }
    let wait = context.wait_for(WaitKind::Value(Kind::SortedSet), request.keys, deadline, argv);
    Ok(wait.unwrap_or(Reply::NullArray))
}

// --- shared by the files for sorted sets ---

/// The limits of a small sorted set, and the seed of the dictionary of a large one.
pub(crate) fn forms(context: &Context<'_>) -> (SmallSortedSetLimits, HashSeed) {
    let settings = context.settings();
    let small = SmallSortedSetLimits {
        entries_max: usize::try_from(settings.zset_max_listpack_entries).unwrap_or(usize::MAX),
        member_bytes_max: usize::try_from(settings.zset_max_listpack_value_bytes)
            .unwrap_or(usize::MAX),
    };
    (small, context.keyspace().seed)
}

/// Sets a key to a new sorted set, or removes it if the set is empty; returns the number of
/// members.
pub(super) fn store(
    context: &mut Context<'_>,
    key: &[u8],
    set: SortedSet,
    event: &str,
) -> Result<Reply, Error> {
    let len = set.len();
    if len > 0 {
        context.set(key, NewValue::Value(set.into()))?;
        context.changed(Events::ZSET, event, key);
    } else if context.clear(key)? {
        context.changed(Events::GENERIC, "del", key);
    }
    Ok(Reply::from(len))
}

/// Members without their scores.
pub(super) fn plain(members: Vec<Scored<'_>>) -> Reply {
    Reply::Array(members.into_iter().map(|(member, _)| Reply::bulk(member)).collect())
}

/// Members with their scores: in pairs in RESP3, alternating in RESP2.
pub(super) fn scored(members: Vec<Scored<'_>>, protocol: Protocol) -> Reply {
    let members = members.into_iter().map(pair);
    match protocol {
        Protocol::Resp2 => flat(members),
        Protocol::Resp3 => pairs(members),
    }
}

fn pair((member, score): Scored<'_>) -> [Reply; 2] {
    [Reply::bulk(member), Reply::Double(score)]
}

fn flat(members: impl IntoIterator<Item = [Reply; 2]>) -> Reply {
    Reply::Array(members.into_iter().flatten().collect())
}

fn pairs(members: impl IntoIterator<Item = [Reply; 2]>) -> Reply {
    Reply::Array(members.into_iter().map(|pair| Reply::Array(pair.into())).collect())
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check_events};

    #[test]
    fn large_set_replies_as_a_small_one() {
        let mut stage = Stage::new(Settings::default());
        for number in 0..1000 {
            stage.check(&format!("ZADD z {number} m{number} => 1"));
        }
        stage.check(
            "OBJECT ENCODING z => \"skiplist\"; ZRANK z m700 => 700; ZREVRANK z m700 => 299",
        );
        stage.check(
            "ZCOUNT z (10 20 => 10; ZRANGE z 20 10 BYSCORE REV LIMIT 3 2 => [\"m17\", \"m16\"]",
        );
        stage.check("ZRANGESTORE y z 0 127 => 128; OBJECT ENCODING y => \"listpack\"");
        stage.check(
            "ZSCAN z 990 => [\"0\", [\"m990\", \"990\", ...]]; ZRANDMEMBER z -2 => [\"m...]",
        );
        stage.check("ZREMRANGEBYSCORE z 100 (900 => 800; ZCARD z => 200; ZRANK z m900 => 100");
        stage.check("ZPOPMAX z 100 => [\"m999\", \"999\", ...]; ZPOPMIN z 101 => [\"m0\", ...]");
        stage.check("EXISTS z => 0");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("ZADD z 1 a 2 b", "new z, zadd z"),
            ("ZADD z 1 a", ""),
            ("ZADD z NX 2 a", ""),
            ("ZADD z CH 2 a", "zadd z"),
            ("ZADD z INCR 1 a", "zincr z"),
            ("ZINCRBY z 0 a", ""),
            ("ZINCRBY y 0 a", "new y, zincr y"),
            ("ZREM y a b", "zrem y, del y"),
            ("ZREM y a", ""),
            ("ZREM z x", ""),
            ("ZSCORE y a", "keymiss y"),
            ("ZRANGEBYSCORE y 0 1", "keymiss y"),
            ("ZREMRANGEBYSCORE y 0 1", ""),
            ("ZREMRANGEBYSCORE z 8 9", ""),
            ("ZRANGESTORE y z 0 -1", "new y, zrangestore y"),
            ("ZRANGESTORE y z 0 0", "zrangestore y"),
            ("ZRANGESTORE y x 0 -1", "keymiss x, del y"),
            ("ZRANGESTORE y z 7 8", ""),
            ("ZPOPMIN z 0", ""),
            ("ZPOPMIN z", "zpopmin z"),
            ("ZMPOP 2 y z MAX COUNT 5", "zpopmax z, del z"),
            ("ZADD z 1 a 2 b 3 c", "new z, zadd z"),
            ("ZREMRANGEBYRANK z 0 0", "zremrangebyrank z"),
            ("ZREMRANGEBYSCORE z 2 2", "zremrangebyscore z"),
            ("ZREMRANGEBYLEX z - +", "zremrangebylex z, del z"),
        ]);
    }
}
