//! Commands for ranges of sorted sets: by rank, by score, or by the members' bytes if all scores
//! are equal. All bounds are converted to a range of ranks, with which the commands work.

use std::ops::{Bound, Range};

use lockwheel_resp::{Reply, number};

use crate::command::argument::{self as arg, Argument};
use crate::command::{Arity, Command, Flags, KeySpec, LockMeaning, integer, is};
use crate::commands::sorted_sets::members::{self, SORTED_SET, forms};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::sorted_set::{Scored, SortedSet};

/// Common fields of the commands that return a range.
const PART: Command = Command {
    arity: Arity::AtLeast(4),
    complexity: "O(log N + M) for M of N members",
    ..SORTED_SET
};

/// Common fields of the commands that count.
const COUNT: Command =
    Command { arity: Arity::Exactly(4), flags: Flags::READONLY.union(Flags::FAST), ..SORTED_SET };

/// Common fields of the commands that remove a range.
const REMOVE: Command = Command {
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    keys: &[KeySpec::one(&["RW", "delete"])],
    ..PART
};

/// A part of the result.
const LIMIT: Argument =
    arg::block("offset_count", &[arg::integer("offset"), arg::integer("count")])
        .token("LIMIT")
        .optional();

/// The rows for ranges.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "zcount",
        since: "2.0.0",
        doc: "Counts the members in a range of scores.",
        arguments: &[arg::key("key"), arg::double("min"), arg::double("max")],
        example: "ZADD z 1 a 2 b 3 c; ZCOUNT z (1 +inf => 2",
        run: |context, argv| count(context, argv, By::Score),
        ..COUNT
    },
    Command {
        name: "zlexcount",
        since: "2.8.9",
        doc: "Counts the members in a range of their bytes, if all scores are equal.",
        arguments: &[arg::key("key"), arg::string("min"), arg::string("max")],
        example: "ZADD z 0 a 0 b 0 c; ZLEXCOUNT z [b + => 2",
        run: |context, argv| count(context, argv, By::Lex),
        ..COUNT
    },
    Command {
        name: "zrange",
        doc: "Returns a range by rank, score or bytes, optionally in reverse order.",
        arguments: &[
            arg::key("key"),
            arg::string("start"),
            arg::string("stop"),
            arg::one_of("sortby", &[arg::word("BYSCORE"), arg::word("BYLEX")])
                .optional()
                .since("6.2.0"),
            arg::word("REV").optional().since("6.2.0"),
            LIMIT.since("6.2.0"),
            arg::word("WITHSCORES").optional(),
        ],
        example: "ZADD z 1 a 2 b; ZRANGE z +inf 1 BYSCORE REV LIMIT 0 1 => [\"b\"]",
        run: |context, argv| range(context, argv, Query::default()),
        ..PART
    },
    Command {
        name: "zrangebylex",
        since: "2.8.9",
        deprecated: Some(("6.2.0", "`ZRANGE` with `BYLEX`")),
        doc: "Returns the members in a range of their bytes, if all scores are equal.",
        arguments: &[arg::key("key"), arg::string("min"), arg::string("max"), LIMIT],
        example: "ZADD z 0 a 0 b; ZRANGEBYLEX z (a + => [\"b\"]",
        run: |context, argv| range(context, argv, Query::fixed(By::Lex, false)),
        ..PART
    },
    Command {
        name: "zrangebyscore",
        since: "1.0.5",
        deprecated: Some(("6.2.0", "`ZRANGE` with `BYSCORE`")),
        doc: "Returns the members in a range of scores.",
        arguments: &[
            arg::key("key"),
            arg::double("min"),
            arg::double("max"),
            arg::word("WITHSCORES").optional().since("2.0.0"),
            LIMIT,
        ],
        example: "ZADD z 1 a 2 b; ZRANGEBYSCORE z -inf 1 WITHSCORES => [\"a\", \"1\"]",
        lock: LockMeaning::Inspect,
        run: |context, argv| range(context, argv, Query::fixed(By::Score, false)),
        ..PART
    },
    Command {
        name: "zrangestore",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(&["OW", "update"]), KeySpec::at(2, &["RO", "access"])],
        since: "6.2.0",
        doc: "Stores a range of a sorted set as another one; returns its number of members.",
        arguments: &[
            arg::key("dst"),
            arg::key("src").spec(1),
            arg::string("min"),
            arg::string("max"),
            arg::one_of("sortby", &[arg::word("BYSCORE"), arg::word("BYLEX")]).optional(),
            arg::word("REV").optional(),
            LIMIT,
        ],
        example: "ZADD z 1 a 2 b; ZRANGESTORE y z 0 0 => 1",
        run: zrangestore,
        ..PART
    },
    Command {
        name: "zremrangebylex",
        since: "2.8.9",
        doc: "Removes the members in a range of their bytes, if all scores are equal.",
        arguments: &[arg::key("key"), arg::string("min"), arg::string("max")],
        example: "ZADD z 0 a 0 b; ZREMRANGEBYLEX z - [a => 1",
        run: |context, argv| remove(context, argv, By::Lex, "zremrangebylex"),
        ..REMOVE
    },
    Command {
        name: "zremrangebyrank",
        since: "2.0.0",
        doc: "Removes the members from one rank to another.",
        arguments: &[arg::key("key"), arg::integer("start"), arg::integer("stop")],
        example: "ZADD z 1 a 2 b; ZREMRANGEBYRANK z -1 -1 => 1",
        run: |context, argv| remove(context, argv, By::Rank, "zremrangebyrank"),
        ..REMOVE
    },
    Command {
        name: "zremrangebyscore",
        doc: "Removes the members in a range of scores.",
        arguments: &[arg::key("key"), arg::double("min"), arg::double("max")],
        example: "ZADD z 1 a 2 b; ZREMRANGEBYSCORE z -inf 1 => 1",
        lock: LockMeaning::Purge,
        run: |context, argv| remove(context, argv, By::Score, "zremrangebyscore"),
        ..REMOVE
    },
    Command {
        name: "zrevrange",
        deprecated: Some(("6.2.0", "`ZRANGE` with `REV`")),
        doc: "Returns the members from one rank to another, in reverse order.",
        arguments: &[
            arg::key("key"),
            arg::integer("start"),
            arg::integer("stop"),
            arg::word("WITHSCORES").optional(),
        ],
        example: "ZADD z 1 a 2 b; ZREVRANGE z 0 0 => [\"b\"]",
        run: |context, argv| range(context, argv, Query::fixed(By::Rank, true)),
        ..PART
    },
    Command {
        name: "zrevrangebylex",
        since: "2.8.9",
        deprecated: Some(("6.2.0", "`ZRANGE` with `REV` and `BYLEX`")),
        doc: "Returns the members in a range of their bytes in reverse order, if all scores are \
              equal.",
        arguments: &[arg::key("key"), arg::string("max"), arg::string("min"), LIMIT],
        example: "ZADD z 0 a 0 b; ZREVRANGEBYLEX z + - => [\"b\", \"a\"]",
        run: |context, argv| range(context, argv, Query::fixed(By::Lex, true)),
        ..PART
    },
    Command {
        name: "zrevrangebyscore",
        since: "2.2.0",
        deprecated: Some(("6.2.0", "`ZRANGE` with `REV` and `BYSCORE`")),
        doc: "Returns the members in a range of scores, in reverse order.",
        arguments: &[
            arg::key("key"),
            arg::double("max"),
            arg::double("min"),
            arg::word("WITHSCORES").optional(),
            LIMIT,
        ],
        example: "ZADD z 1 a 2 b; ZREVRANGEBYSCORE z +inf -inf => [\"b\", \"a\"]",
        run: |context, argv| range(context, argv, Query::fixed(By::Score, true)),
        ..PART
    },
];

// --- bounds ---

/// The kind of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum By {
    #[default]
    Rank,
    Score,
    Lex,
}

/// The two ends of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bounds<'a> {
    /// Both inclusive; negative ones count from the end.
    Rank(i64, i64),
    Score(Bound<f64>, Bound<f64>),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// One end of a range by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LexBound<'a> {
    /// Before all members.
    Least,
    /// After all members.
    Greatest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> Bounds<'a> {
    fn read(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Bounds<'a>, Error> {
        const NOT_SCORES: Error = Error::line("ERR min or max is not a float");
        const NOT_LEX: Error = Error::line("ERR min or max not valid string range item");
        match by {
            By::Rank => Ok(Bounds::Rank(integer(min)?, integer(max)?)),
            By::Score => Option::zip(score_bound(min), score_bound(max))
                .map(|(min, max)| Bounds::Score(min, max))
                .ok_or(NOT_SCORES),
            By::Lex => Option::zip(lex_bound(min), lex_bound(max))
                .map(|(min, max)| Bounds::Lex(min, max))
                .ok_or(NOT_LEX),
        }
    }

    /// The ranks of the members within the bounds; `reverse` applies to bounds that are ranks.
    fn ranks(self, set: &SortedSet, reverse: bool) -> Range<usize> {
        let (from, to) = match self {
            Bounds::Rank(start, stop) => {
                let (from, to) = between(start, stop, set.len());
                if reverse { (set.len() - to, set.len() - from) } else { (from, to) }
            }
            Bounds::Score(min, max) => (
                set.rank_where(|(_, score)| match min {
                    Bound::Included(min) => score < min,
                    Bound::Excluded(min) => score <= min,
                    Bound::Unbounded => false,
                }),
                set.rank_where(|(_, score)| match max {
                    Bound::Included(max) => score <= max,
                    Bound::Excluded(max) => score < max,
                    Bound::Unbounded => true,
                }),
            ),
            Bounds::Lex(min, max) => (
                set.rank_where(|(member, _)| match min {
                    LexBound::Least => false,
                    LexBound::Greatest => true,
                    LexBound::Included(min) => member < min,
                    LexBound::Excluded(min) => member <= min,
                }),
                set.rank_where(|(member, _)| match max {
                    LexBound::Least => false,
                    LexBound::Greatest => true,
                    LexBound::Included(max) => member <= max,
                    LexBound::Excluded(max) => member < max,
                }),
            ),
        };
        from.min(to)..to
    }
}

/// The ranks from `start` to `stop`, inclusive; negative ones count from the end.
fn between(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let rank = |index: i64| {
        let index = if index < 0 { index.saturating_add_unsigned(len as u64) } else { index };
        usize::try_from(index).ok()
    };
    let from = rank(start).unwrap_or(0).min(len);
    let to = rank(stop).map_or(0, |stop| stop.saturating_add(1)).min(len);
    (from.min(to), to)
}

/// Parses a bound by score; `(` excludes the score itself.
fn score_bound(text: &[u8]) -> Option<Bound<f64>> {
    match text {
        [b'(', text @ ..] => score(text).map(Bound::Excluded),
        _ => score(text).map(Bound::Included),
    }
}

/// Parses a score as C's `strtod` does, up to a zero byte, which allows more than the score of a
/// member: an empty text is 0, leading blanks are skipped, and a number that is too large is
/// infinite.
fn score(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    let decimal = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    decimal.filter(|score| !score.is_nan()).or_else(|| number::parse_double(text))
}

/// Parses a bound by bytes: `[` includes the member, `(` excludes it; `-` and `+` are the ends of
/// the set.
fn lex_bound(text: &[u8]) -> Option<LexBound<'_>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Some(LexBound::Least),
        [b'+'] | [b'+', 0, ..] => Some(LexBound::Greatest),
        [b'[', member @ ..] => Some(LexBound::Included(member)),
        [b'(', member @ ..] => Some(LexBound::Excluded(member)),
        _ => None,
    }
}

// --- reading ---

/// `ZCOUNT` and `ZLEXCOUNT`: reply with the number of members in the range.
fn count(context: &mut Context<'_>, argv: &[&[u8]], by: By) -> Result<Reply, Error> {
    let bounds = Bounds::read(by, argv[2], argv[3])?;
    let set = context.read_as::<SortedSet>(argv[1])?;
    Ok(set.map_or(0, |set| bounds.ranks(set, false).len()).into())
}

/// A requested range and the form of its reply.
#[derive(Clone, Copy, Debug, Default)]
struct Query {
    /// `None` until an option sets it.
    by: Option<By>,
    /// `None` until an option sets it.
    reverse: Option<bool>,
    /// How many members to skip and to return, all if negative.
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl Query {
    const fn fixed(by: By, reverse: bool) -> Query {
        Query { by: Some(by), reverse: Some(reverse), limit: None, with_scores: false }
    }

    /// Parses the arguments after the key: two bounds and options.
    fn read<'a>(mut self, arguments: &[&'a [u8]], stores: bool) -> Result<Part<'a>, Error> {
        let &[mut min, mut max, ref options @ ..] = arguments else { return Err(Error::Syntax) };
        self.read_options(options, stores)?;
        let (by, reverse) = (self.by.unwrap_or_default(), self.reverse.unwrap_or_default());
        if by == By::Rank && self.limit.is_some_and(|(_, count)| count != -1) {
            return Err(Error::line(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if by == By::Lex && self.with_scores {
            return Err(Error::line(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        if reverse && by != By::Rank {
            std::mem::swap(&mut min, &mut max);
        }
        let bounds = Bounds::read(by, min, max)?;
        let limit = self.limit.filter(|_| by != By::Rank);
        Ok(Part { bounds, reverse, limit, with_scores: self.with_scores })
    }

    fn read_options(&mut self, mut options: &[&[u8]], stores: bool) -> Result<(), Error> {
        while let [option, rest @ ..] = options {
            options = rest;
            match *option {
                option if !stores && is(option, "withscores") => self.with_scores = true,
                option if rest.len() >= 2 && is(option, "limit") => {
                    self.limit = Some((integer(rest[0])?, integer(rest[1])?));
                    options = &rest[2..];
                }
                option if self.reverse.is_none() && is(option, "rev") => self.reverse = Some(true),
                option if self.by.is_none() && is(option, "bylex") => self.by = Some(By::Lex),
                option if self.by.is_none() && is(option, "byscore") => self.by = Some(By::Score),
                _ => return Err(Error::Syntax),
            }
        }
        Ok(())
    }
}

/// A range of a sorted set.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl Part<'_> {
    fn of(self, set: &SortedSet) -> Vec<Scored<'_>> {
        let members = set.range(self.ranks(set));
        if self.reverse { members.rev().collect() } else { members.collect() }
    }

    fn ranks(self, set: &SortedSet) -> Range<usize> {
        let Range { start, end } = self.bounds.ranks(set, self.reverse);
        let Some((offset, count)) = self.limit else { return start..end };
        let len = end - start;
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
        let shown = usize::try_from(count).unwrap_or(usize::MAX).min(len - skipped);
        if self.reverse {
            end - skipped - shown..end - skipped
        } else {
            start + skipped..start + skipped + shown
        }
    }
}

/// `ZRANGE` and its variants: reply with the members of the range, with `WITHSCORES` also their
/// scores.
fn range(context: &mut Context<'_>, argv: &[&[u8]], query: Query) -> Result<Reply, Error> {
    let part = query.read(&argv[2..], false)?;
    let protocol = context.protocol();
    let Some(set) = context.read_as::<SortedSet>(argv[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let members = part.of(set);
    Ok(if part.with_scores { members::scored(members, protocol) } else { members::plain(members) })
}

// --- changing ---

/// `ZRANGESTORE`: stores a range and replies with its number of members.
fn zrangestore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let part = Query::default().read(&argv[3..], true)?;
    let (small, seed) = forms(context);
    let mut stored = SortedSet::default();
    if let Some(set) = context.read_as::<SortedSet>(argv[2])? {
        for (member, score) in part.of(set) {
            stored.set(member, score, small, seed);
        }
    }
    members::store(context, argv[1], stored, "zrangestore")
}

/// `ZREMRANGEBYRANK` and its variants: reply with the number of removed members.
fn remove(context: &mut Context<'_>, argv: &[&[u8]], by: By, event: &str) -> Result<Reply, Error> {
    let key = argv[1];
    let bounds = Bounds::read(by, argv[2], argv[3])?;
    let Some(mut set) = context.write_as::<SortedSet>(key)? else { return Ok(0_usize.into()) };
    let ranks = bounds.ranks(&set, false);
    let removed = ranks.len();
    set.remove_range(ranks);
    let emptied = set.is_empty();
    members::notify_removal(context, key, event, removed, emptied);
    Ok(removed.into())
}
