//! Commands for lists: queues of clients that wait for a lock, and of messages to them.
//!
//! Invariant: no empty list is stored; the key is removed with the last element.

use std::ops::Range;

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{
    Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, integer, is, one_of,
};
use crate::commands::at_least;
use crate::commands::multi_pop::MultiPop;
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::waiters::WaitKind;
use crate::store::events::Events;
use crate::store::list::{Element, End, List, SmallListLimits};
use crate::store::value::Kind;

const LIST: Command =
    Command { group: Group::List, categories: Categories::LIST, keys: SEEN_KEY, ..Command::BASE };

const PUSH: Command = Command {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    keys: &[KeySpec::one(&["RW", "insert"])],
    complexity: "O(1) an element",
    ..LIST
};

const POP: Command = Command {
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::one(&["RW", "access", "delete"])],
    complexity: "O(N) in the number of elements returned",
    ..LIST
};

const MOVE: Command = Command {
    flags: Flags::WRITE.union(Flags::DENYOOM),
    keys: &[KeySpec::one(&["RW", "access", "delete"]), KeySpec::at(2, &["RW", "insert"])],
    ..LIST
};

const BLOCKING_POP: Command = Command {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::BLOCKING),
    keys: &[KeySpec {
        flags: &["RW", "access", "delete"],
        begin: 1,
        find: FindKeys::Range { last: -2, step: 1 },
    }],
    since: "2.0.0",
    complexity: "O(N) in the number of keys",
    ..LIST
};

const READ_KEY: &[KeySpec] = &[KeySpec::one(&["RO", "access"])];
const SEEN_KEY: &[KeySpec] = &[KeySpec::one(&["RO"])];
const REDUCED_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "delete"])];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "blmove",
        arity: Arity::Exactly(6),
        flags: MOVE.flags.union(Flags::BLOCKING),
        since: "6.2.0",
        doc: "Moves an element from an end of one list to an end of another; blocks until there is \
              one.",
        arguments: &[
            arg::key("source"),
            arg::key("destination").spec(1),
            arg::one_of("wherefrom", &[arg::word("LEFT"), arg::word("RIGHT")]),
            arg::one_of("whereto", &[arg::word("LEFT"), arg::word("RIGHT")]),
            arg::double("timeout"),
        ],
        example: "RPUSH l a; BLMOVE l m LEFT RIGHT 0 => \"a\"",
        run: blmove,
        ..MOVE
    },
    Command {
        name: "blmpop",
        arity: Arity::AtLeast(5),
        flags: BLOCKING_POP.flags.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec { flags: &["RW", "access", "delete"], begin: 2, find: FindKeys::Count }],
        since: "7.0.0",
        complexity: "O(N+M) for N keys and M elements returned",
        doc: "Removes and returns elements of the first non-empty list; blocks until there is one.",
        arguments: &[
            arg::double("timeout"),
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::one_of("where", &[arg::word("LEFT"), arg::word("RIGHT")]),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "RPUSH l a b; BLMPOP 0 1 l LEFT COUNT 5 => [\"l\", [\"a\", \"b\"]]",
        run: blmpop,
        ..LIST
    },
    Command {
        name: "blpop",
        doc: "Removes and returns the leftmost element of the first non-empty list; blocks until \
              there is one.",
        arguments: &[arg::key("key").multiple(), arg::double("timeout")],
        example: "RPUSH l a; BLPOP missing l 0 => [\"l\", \"a\"]",
        run: |context, argv| blocking_pop(context, argv, End::Left),
        ..BLOCKING_POP
    },
    Command {
        name: "brpop",
        doc: "Removes and returns the rightmost element of the first non-empty list; blocks until \
              there is one.",
        arguments: &[arg::key("key").multiple(), arg::double("timeout")],
        example: "BRPOP l 0.5; +500ms; a< => nil-array",
        run: |context, argv| blocking_pop(context, argv, End::Right),
        ..BLOCKING_POP
    },
    Command {
        name: "brpoplpush",
        arity: Arity::Exactly(4),
        flags: MOVE.flags.union(Flags::BLOCKING),
        since: "2.2.0",
        deprecated: Some(("6.2.0", "`BLMOVE` with `RIGHT LEFT`")),
        doc: "Moves the last element of a list to the front of another; blocks until there is one.",
        arguments: &[arg::key("source"), arg::key("destination").spec(1), arg::double("timeout")],
        example: "RPUSH l a b; BRPOPLPUSH l l 0 => \"b\"",
        run: |context, argv| blocking_move(context, argv, [End::Right, End::Left]),
        ..MOVE
    },
    Command {
        name: "lindex",
        arity: Arity::Exactly(3),
        flags: Flags::READONLY,
        keys: READ_KEY,
        doc: "Returns the element at an index; negative ones count from the right.",
        arguments: &[arg::key("key"), arg::integer("index")],
        example: "RPUSH l a b c; LINDEX l -1 => \"c\"",
        run: lindex,
        ..LIST
    },
    Command {
        name: "linsert",
        arity: Arity::Exactly(5),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(&["RW", "insert"])],
        since: "2.2.0",
        complexity: "O(N) in the length of the list",
        doc: "Inserts an element before or after another one; returns the new length.",
        arguments: &[
            arg::key("key"),
            arg::one_of("where", &[arg::word("BEFORE"), arg::word("AFTER")]),
            arg::string("pivot"),
            arg::string("element"),
        ],
        example: "RPUSH l a c; LINSERT l BEFORE c b => 3",
        run: linsert,
        ..LIST
    },
    Command {
        name: "llen",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.union(Flags::FAST),
        doc: "Returns the number of elements.",
        arguments: &[arg::key("key")],
        example: "RPUSH l a b; LLEN l => 2",
        run: |context, argv| Ok(context.read_as::<List>(argv[1])?.map_or(0, List::len).into()),
        ..LIST
    },
    Command {
        name: "lmove",
        arity: Arity::Exactly(5),
        since: "6.2.0",
        doc: "Moves an element from an end of one list to an end of another; returns it.",
        arguments: &[
            arg::key("source"),
            arg::key("destination").spec(1),
            arg::one_of("wherefrom", &[arg::word("LEFT"), arg::word("RIGHT")]),
            arg::one_of("whereto", &[arg::word("LEFT"), arg::word("RIGHT")]),
        ],
        example: "RPUSH l a b; LMOVE l m LEFT RIGHT => \"a\"",
        run: lmove,
        ..MOVE
    },
    Command {
        name: "lmpop",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec { flags: &["RW", "access", "delete"], begin: 1, find: FindKeys::Count }],
        since: "7.0.0",
        complexity: "O(N+M) for N keys and M elements returned",
        doc: "Removes and returns elements of the first non-empty list.",
        arguments: &[
            arg::integer("numkeys"),
            arg::key("key").multiple(),
            arg::one_of("where", &[arg::word("LEFT"), arg::word("RIGHT")]),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "RPUSH l a b c; LMPOP 2 missing l RIGHT COUNT 2 => [\"l\", [\"c\", \"b\"]]",
        run: lmpop,
        ..LIST
    },
    Command {
        name: "lpop",
        doc: "Removes and returns elements from the left.",
        arguments: &[arg::key("key"), arg::integer("count").optional().since("6.2.0")],
        example: "RPUSH l a b c; LPOP l 2 => [\"a\", \"b\"]",
        run: |context, argv| pop(context, argv, End::Left),
        ..POP
    },
    Command {
        name: "lpos",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        keys: READ_KEY,
        since: "6.0.6",
        complexity: "O(N) in the number of elements looked at",
        doc: "Returns the index of an element.",
        arguments: &[
            arg::key("key"),
            arg::string("element"),
            arg::integer("rank").token("RANK").optional(),
            arg::integer("num-matches").token("COUNT").optional(),
            arg::integer("len").token("MAXLEN").optional(),
        ],
        example: "RPUSH l a b a; LPOS l a RANK 2 => 2",
        run: lpos,
        ..LIST
    },
    Command {
        name: "lpush",
        doc: "Inserts elements at the left, one after another; returns the new length.",
        arguments: &[arg::key("key"), arg::string("element").multiple()],
        example: "LPUSH l a b; LPUSH l c => 3",
        run: |context, argv| push(context, argv, End::Left),
        ..PUSH
    },
    Command {
        name: "lpushx",
        since: "2.2.0",
        doc: "Inserts elements at the left of an existing list; returns the new length.",
        arguments: &[arg::key("key"), arg::string("element").multiple()],
        example: "LPUSHX l a => 0",
        run: |context, argv| push_if_there(context, argv, End::Left),
        ..PUSH
    },
    Command {
        name: "lrange",
        arity: Arity::Exactly(4),
        flags: Flags::READONLY,
        keys: READ_KEY,
        complexity: "O(N) in the number of elements returned",
        doc: "Returns the elements from one index to another, inclusive.",
        arguments: &[arg::key("key"), arg::integer("start"), arg::integer("stop")],
        example: "RPUSH l a b c; LRANGE l 1 -1 => [\"b\", \"c\"]",
        run: lrange,
        ..LIST
    },
    Command {
        name: "lrem",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE,
        keys: REDUCED_KEY,
        complexity: "O(N) in the length of the list",
        doc: "Removes elements equal to a value, a number of them or all; returns how many.",
        arguments: &[arg::key("key"), arg::integer("count"), arg::string("element")],
        example: "RPUSH l a b a a; LREM l -2 a => 2",
        run: lrem,
        ..LIST
    },
    Command {
        name: "lset",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(&["RW", "update"])],
        doc: "Replaces the element at an index.",
        arguments: &[arg::key("key"), arg::integer("index"), arg::string("element")],
        example: "RPUSH l a b; LSET l -1 c => OK",
        run: lset,
        ..LIST
    },
    Command {
        name: "ltrim",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE,
        keys: REDUCED_KEY,
        complexity: "O(N) in the number of elements removed",
        doc: "Removes all elements except those from one index to another.",
        arguments: &[arg::key("key"), arg::integer("start"), arg::integer("stop")],
        example: "RPUSH l a b c; LTRIM l 0 1 => OK",
        run: ltrim,
        ..LIST
    },
    Command {
        name: "rpop",
        doc: "Removes and returns elements from the right.",
        arguments: &[arg::key("key"), arg::integer("count").optional().since("6.2.0")],
        example: "RPUSH l a b c; RPOP l => \"c\"",
        run: |context, argv| pop(context, argv, End::Right),
        ..POP
    },
    Command {
        name: "rpoplpush",
        arity: Arity::Exactly(3),
        since: "1.2.0",
        deprecated: Some(("6.2.0", "`LMOVE` with `RIGHT LEFT`")),
        doc: "Moves the last element of a list to the front of another; returns it.",
        arguments: &[arg::key("source"), arg::key("destination").spec(1)],
        example: "RPUSH l a b; RPOPLPUSH l l => \"b\"",
        run: |context, argv| {
            let moved = move_element(context, [argv[1], argv[2]], [End::Right, End::Left])?;
            Ok(moved.map_or(Reply::Null, Reply::bulk))
        },
        ..MOVE
    },
    Command {
        name: "rpush",
        doc: "Appends elements at the right, one after another; returns the new length.",
        arguments: &[arg::key("key"), arg::string("element").multiple()],
        example: "RPUSH l a b; RPUSH l c => 3",
        run: |context, argv| push(context, argv, End::Right),
        ..PUSH
    },
    Command {
        name: "rpushx",
        since: "2.2.0",
        doc: "Appends elements at the right of an existing list; returns the new length.",
        arguments: &[arg::key("key"), arg::string("element").multiple()],
        example: "RPUSH l a; RPUSHX l b => 2",
        run: |context, argv| push_if_there(context, argv, End::Right),
        ..PUSH
    },
];

// --- reading ---

/// `LINDEX`: replies with the element, or nil.
fn lindex(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(list) = context.read_as::<List>(argv[1])? else { return Ok(Reply::Null) };
    let place = place(integer(argv[2])?, list.len());
    Ok(place.and_then(|place| list.get(place)).map_or(Reply::Null, Reply::bulk))
}

/// `LRANGE`: replies with the elements of the range.
fn lrange(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (start, end) = (integer(argv[2])?, integer(argv[3])?);
    let Some(list) = context.read_as::<List>(argv[1])? else { return Ok(Reply::Array(vec![])) };
    Ok(Reply::Array(list.range(places(start, end, list.len())).map(Reply::bulk).collect()))
}

/// `LPOS`: replies with the index of the element or nil, with `COUNT` with all indexes.
fn lpos(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let search = Search::parse(&argv[3..])?;
    let found = match context.read_as::<List>(argv[1])? {
        Some(list) => search.run(list, argv[2]),
        None => Vec::new(),
    };
    Ok(match search.count {
        Some(_) => Reply::Array(found.into_iter().map(Reply::from).collect()),
        None => found.first().map_or(Reply::Null, |&place| place.into()),
    })
}

/// What `LPOS` looks for.
struct Search {
    /// The number of equal elements to skip.
    skip: usize,
    from: End,
    /// The number of indexes to return, 0 for all; without it the reply is one index.
    count: Option<usize>,
    /// The number of elements to examine, 0 for all.
    examined_max: usize,
}

impl Search {
    fn parse(options: &[&[u8]]) -> Result<Search, Error> {
        let mut search = Search { skip: 0, from: End::Left, count: None, examined_max: 0 };
        for option in options.chunks(2) {
            let &[name, value] = option else { return Err(Error::Syntax) };
            if is(name, "rank") {
                let rank = parse_direction(value)?;
                search.from = if rank < 0 { End::Right } else { End::Left };
                let skip = rank.unsigned_abs().checked_sub(1).ok_or(RANK_ZERO)?;
                search.skip = usize::try_from(skip).unwrap_or(usize::MAX);
            } else if is(name, "count") {
                search.count = Some(at_least(value, 0, "ERR COUNT can't be negative")?);
            } else if is(name, "maxlen") {
                search.examined_max = at_least(value, 0, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(search)
    }

    /// The indexes of equal elements, in the order of the search.
    fn run(&self, list: &List, wanted: &[u8]) -> Vec<usize> {
        let unless_0 = |count: usize| if count == 0 { usize::MAX } else { count };
        let (examined_max, count) =
            (unless_0(self.examined_max), unless_0(self.count.unwrap_or(1)));
        let equal = |(place, element): (usize, &[u8])| (element == wanted).then_some(place);
        let all = list.iter().enumerate();
        match self.from {
            End::Left => {
                all.take(examined_max).filter_map(equal).skip(self.skip).take(count).collect()
            }
            End::Right => {
                all.rev().take(examined_max).filter_map(equal).skip(self.skip).take(count).collect()
            }
        }
    }
}

const RANK_ZERO: Error = Error::line(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
     negative to start from the end of the list",
);

// --- adding ---

/// `LPUSH` and `RPUSH`: reply with the new length.
fn push(context: &mut Context<'_>, argv: &[&[u8]], end: End) -> Result<Reply, Error> {
    push_to(context, argv[1], &argv[2..], end).map(Reply::from)
}

/// `LPUSHX` and `RPUSHX`: reply with the new length, 0 without the key.
fn push_if_there(context: &mut Context<'_>, argv: &[&[u8]], end: End) -> Result<Reply, Error> {
    if context.write_as::<List>(argv[1])?.is_none() {
        return Ok(0_usize.into());
    }
    push(context, argv, end)
}

/// Adds elements to a list, which is created if it does not exist; returns its length.
fn push_to(
    context: &mut Context<'_>,
    key: &[u8],
    elements: &[&[u8]],
    end: End,
) -> Result<usize, Error> {
    let small = small(context);
    let mut list = context.open::<List>(key)?;
    list.grow(elements, small);
    elements.iter().for_each(|element| list.push(end, element));
    let length = list.len();
    context.changed(Events::LIST, if end == End::Left { "lpush" } else { "rpush" }, key);
    Ok(length)
}

/// `LINSERT`: replies with the new length, 0 without the key, or -1 without the pivot.
fn linsert(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, pivot) = (argv[1], argv[3]);
    let behind = match argv[2] {
        side if is(side, "before") => 0,
        side if is(side, "after") => 1,
        _ => return Err(Error::Syntax),
    };
    let small = small(context);
    let Some(mut list) = context.write_as::<List>(key)? else { return Ok(0_usize.into()) };
    // Before the search for the pivot, as in Redis: a list becomes a quicklist even if it is not
    // found.
    list.grow(&argv[4..], small);
    let Some(place) = list.iter().position(|element| element == pivot) else {
        return Ok(Reply::Integer(-1));
    };
    list.insert(place + behind, argv[4]);
    let length = list.len();
    context.changed(Events::LIST, "linsert", key);
    Ok(length.into())
}

/// `LSET`: replaces an element and replies with OK.
fn lset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, element) = (argv[1], argv[3]);
    let small = small(context);
    let mut list = context.write_as::<List>(key)?.ok_or(Error::NoSuchKey)?;
    let place = place(integer(argv[2])?, list.len());
    list.grow(&argv[3..], small);
    if !place.is_some_and(|place| list.set(place, element)) {
        return Err(Error::line("ERR index out of range"));
    }
    list.shrink(small);
    context.changed(Events::LIST, "lset", key);
    Ok(Reply::OK)
}

// --- removing ---

/// `LPOP` and `RPOP`: reply with the removed element, or with `count` an array of them, or nil.
fn pop(context: &mut Context<'_>, argv: &[&[u8]], end: End) -> Result<Reply, Error> {
    let key = argv[1];
    let count = match &argv[2..] {
        [] => None,
        [count] => Some(at_least(count, 0, "ERR value is out of range, must be positive")?),
        _ => return Err(Error::Arity(context.name.to_owned())),
    };
    let taken = take(context, key, end, count.unwrap_or(1))?;
    Ok(match (taken, count) {
        (None, None) => Reply::Null,
        (None, Some(_)) => Reply::NullArray,
        (Some(elements), Some(_)) => Reply::Array(elements.iter().map(Reply::bulk).collect()),
        (Some(elements), None) => elements.first().map_or(Reply::Null, Reply::bulk),
    })
}

/// Removes at most `count` elements from one end of a list; `None` if there is no list.
fn take(
    context: &mut Context<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Element>>, Error> {
    let Some(mut list) = context.write_as::<List>(key)? else { return Ok(None) };
    let taken: Vec<Element> = (0..count.min(list.len())).filter_map(|_| list.pop(end)).collect();
    if !taken.is_empty() {
        after_removal(context, if end == End::Left { "lpop" } else { "rpop" }, key);
    }
    Ok(Some(taken))
}

/// Records that a list has lost elements, and removes an empty one.
fn after_removal(context: &mut Context<'_>, event: &str, key: &[u8]) {
    context.changed(Events::LIST, event, key);
    let small = small(context);
    match context.write_as::<List>(key) {
        Ok(Some(list)) if list.is_empty() => context.remove_emptied(key),
        Ok(Some(mut list)) => list.shrink(small),
        Ok(None) | Err(_) => {}
    }
}

/// `LMPOP`: replies with a key and the removed elements, or nil.
fn lmpop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let request = MultiPop::read(&argv[1..], end)?;
    Ok(request.run(context, take_all)?.unwrap_or(Reply::NullArray))
}

/// Removes at most `count` elements from one end of a list, as a reply.
fn take_all(
    context: &mut Context<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Reply>, Error> {
    let taken = take(context, key, end, count)?;
    Ok(taken.map(|taken| Reply::Array(taken.iter().map(Reply::bulk).collect())))
}

/// `LREM`: replies with the number of removed elements.
fn lrem(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let count = parse_direction(argv[2])?;
    let Some(mut list) = context.write_as::<List>(key)? else { return Ok(0_usize.into()) };
    let from = if count < 0 { End::Right } else { End::Left };
    let count = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = list.remove(argv[3], usize::try_from(count).unwrap_or(usize::MAX), from);
    if removed > 0 {
        after_removal(context, "lrem", key);
    }
    Ok(removed.into())
}

/// `LTRIM`: keeps only a range of elements and replies with OK.
fn ltrim(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let (start, end) = (integer(argv[2])?, integer(argv[3])?);
    if let Some(mut list) = context.write_as::<List>(key)? {
        list.keep(places(start, end, list.len()));
        after_removal(context, "ltrim", key);
    }
    Ok(Reply::OK)
}

// --- moving ---

/// `LMOVE`: replies with the moved element, or nil.
fn lmove(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let ends = [end(argv[3])?, end(argv[4])?];
    Ok(move_element(context, [argv[1], argv[2]], ends)?.map_or(Reply::Null, Reply::bulk))
}

/// Moves an element from an end of a list to an end of another one, or of the same; `None` if there
/// is no such list. The types of both keys are checked before the change.
fn move_element(
    context: &mut Context<'_>,
    [from, to]: [&[u8]; 2],
    [from_end, to_end]: [End; 2],
) -> Result<Option<Element>, Error> {
    if context.write_as::<List>(from)?.is_none() {
        return Ok(None);
    }
    context.write_as::<List>(to)?;
    let Some(element) = context.write_as::<List>(from)?.and_then(|mut list| list.pop(from_end))
    else {
        return Ok(None);
    };
    push_to(context, to, &[&element], to_end)?;
    after_removal(context, if from_end == End::Left { "lpop" } else { "rpop" }, from);
    Ok(Some(element))
}

// --- blocking ---

/// `BLPOP` and `BRPOP`: reply with a key and the removed element, or nil after the timeout.
fn blocking_pop(context: &mut Context<'_>, argv: &[&[u8]], end: End) -> Result<Reply, Error> {
    let [_, keys @ .., timeout] = argv else { return Err(Error::Syntax) };
    let deadline = super::timeout_seconds(context.time, timeout)?;
    for key in keys {
        if let Some([element]) = take(context, key, end, 1)?.as_deref() {
            return Ok(Reply::Array(vec![Reply::bulk(key), Reply::bulk(element)]));
        }
    }
    let wait = context.wait_for(WaitKind::Value(Kind::List), keys, deadline, argv);
    Ok(wait.unwrap_or(Reply::NullArray))
}

/// `BLMPOP`: replies with a key and the removed elements, or nil after the timeout.
fn blmpop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let request = MultiPop::read(&argv[2..], end)?;
    let deadline = super::timeout_seconds(context.time, argv[1])?;
    if let Some(popped) = request.run(context, take_all)? {
        return Ok(popped);
    }
    let wait = context.wait_for(WaitKind::Value(Kind::List), request.keys, deadline, argv);
    Ok(wait.unwrap_or(Reply::NullArray))
}

/// `BLMOVE`: replies with the moved element, or nil after the timeout.
fn blmove(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let ends = [end(argv[3])?, end(argv[4])?];
    blocking_move(context, argv, ends)
}

/// `BLMOVE` and `BRPOPLPUSH`, given `source destination ... timeout`.
fn blocking_move(
    context: &mut Context<'_>,
    argv: &[&[u8]],
    ends: [End; 2],
) -> Result<Reply, Error> {
    let deadline = super::timeout_seconds(context.time, argv[argv.len() - 1])?;
    if let Some(element) = move_element(context, [argv[1], argv[2]], ends)? {
        return Ok(Reply::bulk(element));
    }
    let wait = context.wait_for(WaitKind::Value(Kind::List), &argv[1..2], deadline, argv);
    Ok(wait.unwrap_or(Reply::Null))
}

// --- arguments ---

/// Parses `LEFT` or `RIGHT`.
fn end(word: &[u8]) -> Result<End, Error> {
    one_of(word, [("left", End::Left), ("right", End::Right)]).ok_or(Error::Syntax)
}

/// Parses an integer; its sign gives the end to count from.
fn parse_direction(argument: &[u8]) -> Result<i64, Error> {
    match integer(argument)? {
        i64::MIN => Err(Error::line(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        )),
        number => Ok(number),
    }
}

/// The position of an index; negative ones count from the end. There may be no element there.
fn place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { index.saturating_add(length) } else { index }).ok()
}

/// The positions from one index to another, inclusive, limited to the list.
fn places(start: i64, end: i64, length: usize) -> Range<usize> {
    let start = place(start, length).unwrap_or(0);
    let end = place(end, length).map_or(0, |end| end.saturating_add(1)).min(length);
    start.min(end)..end
}

/// The limits of a listpack.
pub(super) fn small(context: &Context<'_>) -> SmallListLimits {
    SmallListLimits::from_directive(context.settings().list_max_listpack_size)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check_events};

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("LPUSH l a b", "new l, lpush l"),
            ("RPUSH l c", "rpush l"),
            ("LPUSHX m a", ""),
            ("RPUSHX l d", "rpush l"),
            ("LLEN m", "keymiss m"),
            ("LINDEX m 0", "keymiss m"),
            ("LPOS m a", "keymiss m"),
            ("LPOP m", ""),
            ("LMPOP 1 m LEFT", ""),
            ("LINSERT l BEFORE a x", "linsert l"),
            ("LINSERT l BEFORE none x", ""),
            ("LSET l 0 y", "lset l"),
            ("LREM l 0 none", ""),
            ("LREM l 0 y", "lrem l"),
            ("LPOP l 0", ""),
            ("LPOP l", "lpop l"),
            ("LTRIM l 0 -1", "ltrim l"),
            ("LMOVE l m LEFT RIGHT", "new m, rpush m, lpop l"),
            ("RPOPLPUSH m m", "lpush m, rpop m"),
            ("LMPOP 2 m l RIGHT", "rpop m, del m"),
            ("RPOPLPUSH l m", "new m, lpush m, rpop l"),
            ("LTRIM l 9 9", "ltrim l, del l"),
            ("LREM m 0 d", "lrem m, del m"),
        ]);
    }

    #[test]
    fn long_lists_are_quicklists_until_they_are_half_as_long() {
        let element = "x".repeat(1_000);
        let mut stage = Stage::new(Settings::default());
        stage.check(&format!("RPUSH l{}", format!(" {element}").repeat(8)));
        stage.check(&format!("OBJECT ENCODING l => \"listpack\"; RPUSH l {element}"));
        stage.check(
            "OBJECT ENCODING l => \"quicklist\"; LPOP l 4; OBJECT ENCODING l => \"quicklist\"",
        );
        stage.check("COPY l m; LPOP l; OBJECT ENCODING l => \"listpack\"");
        stage.check(
            "OBJECT ENCODING m => \"quicklist\"; LSET m 0 short; OBJECT ENCODING m => \"listpack\"",
        );
    }
}
