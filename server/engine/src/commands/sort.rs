//! `SORT`: the elements of a list, set or sorted set in order, or the values of related keys.

use std::cmp::Ordering;
use std::ops::Range;

use lockwheel_resp::{Reply, number};

use crate::command::argument::{self as arg, Argument};
use crate::command::{
    Arity, Caller, Categories, Command, FindKeys, Flags, Group, KeySpec, integer, is,
};
use crate::commands::lists;
use crate::error::Error;
use crate::run::context::Context;
use crate::store::events::Events;
use crate::store::hash::Hash;
use crate::store::list::{End, List};
use crate::store::records::NewValue;
use crate::store::string_value::StringValue;
use crate::store::value::ValueRef;

const SORT: Command = Command {
    group: Group::Generic,
    arity: Arity::AtLeast(2),
    categories: Categories::SET
        .union(Categories::SORTEDSET)
        .union(Categories::LIST)
        .union(Categories::DANGEROUS),
    complexity: "O(N+M*log(M)), N being all elements, M those returned",
    ..Command::BASE
};

const READ_KEY: KeySpec = KeySpec::one(&["RO", "access"]);
/// The keys of `BY` and `GET`, which depend on the elements.
const OTHER_KEYS: KeySpec = KeySpec { find: FindKeys::Unknown, ..READ_KEY };
const STORE_KEY: KeySpec =
    KeySpec { flags: &["OW", "update"], begin: 2, find: FindKeys::Store(&OPTIONS) };
/// Options with the number of their arguments.
const OPTIONS: [(&str, usize); 3] = [("limit", 2), ("get", 1), ("by", 1)];

/// A part of the result.
const LIMIT: Argument =
    arg::block("offset_count", &[arg::integer("offset"), arg::integer("count")])
        .token("LIMIT")
        .optional();

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "sort",
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[READ_KEY, OTHER_KEYS, STORE_KEY],
        doc: "Sorts elements by themselves or by other keys; returns or stores them, or the values \
              of other keys.",
        arguments: &[
            arg::key("key"),
            arg::pattern("pattern").spec(1).token("BY").optional(),
            LIMIT,
            arg::pattern("pattern").spec(1).token("GET").optional().multiple_token(),
            arg::one_of("order", &[arg::word("ASC"), arg::word("DESC")]).optional(),
            arg::word("ALPHA").named("sorting").optional(),
            arg::key("destination").spec(2).token("STORE").optional(),
        ],
        example: "RPUSH l 3 1 2; SORT l DESC LIMIT 0 2 => [\"3\", \"2\"]",
        run: |context, argv| sort(context, argv, true),
        ..SORT
    },
    Command {
        name: "sort_ro",
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[READ_KEY, OTHER_KEYS],
        since: "7.0.0",
        doc: "Sorts as SORT does, without storing.",
        arguments: &[
            arg::key("key"),
            arg::pattern("pattern").spec(1).token("BY").optional(),
            LIMIT,
            arg::pattern("pattern").spec(1).token("GET").optional().multiple_token(),
            arg::one_of("order", &[arg::word("ASC"), arg::word("DESC")]).optional(),
            arg::word("ALPHA").named("sorting").optional(),
        ],
        example: "RPUSH l 3 1 2; SORT_RO l => [\"1\", \"2\", \"3\"]",
        run: |context, argv| sort(context, argv, false),
        ..SORT
    },
];

/// By what elements are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By<'a> {
    Element,
    /// A name without `*`, which is the same for all elements: they are not sorted.
    Constant,
    /// The values of other keys.
    Pattern(&'a [u8]),
}

impl<'a> By<'a> {
    fn named(pattern: &'a [u8]) -> By<'a> {
        if pattern.contains(&b'*') { By::Pattern(pattern) } else { By::Constant }
    }
}

/// The options after the key.
struct Options<'a> {
    by: By<'a>,
    get: Vec<&'a [u8]>,
    limit: (i64, i64),
    alpha: bool,
    descending: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a [u8]], may_store: bool) -> Result<Options<'a>, Error> {
        let mut options = Options {
            by: By::Element,
            get: Vec::new(),
            limit: (0, -1),
            alpha: false,
            descending: false,
            store: None,
        };
        let mut rest = arguments;
        while let [word, after @ ..] = rest {
            rest = match after {
                _ if is(word, "asc") || is(word, "desc") => {
                    options.descending = is(word, "desc");
                    after
                }
                _ if is(word, "alpha") => {
                    options.alpha = true;
                    after
                }
                [start, count, after @ ..] if is(word, "limit") => {
                    options.limit = (integer(start)?, integer(count)?);
                    after
                }
                [key, after @ ..] if is(word, "store") && may_store => {
                    options.store = Some(key);
                    after
                }
                [pattern, after @ ..] if is(word, "by") => {
                    options.by = By::named(pattern);
                    after
                }
                [pattern, after @ ..] if is(word, "get") => {
                    options.get.push(pattern);
                    after
                }
                _ => return Err(Error::Syntax),
            };
        }
        Ok(options)
    }

    /// The option because of which keys outside the arguments are read, if there is one.
    fn reading_other_keys(&self) -> Option<&'static str> {
        match self.by {
            By::Pattern(_) => Some("BY"),
            By::Element | By::Constant => (!self.get.is_empty()).then_some("GET"),
        }
    }

    /// The range of `length` results that `LIMIT` selects.
    fn window(&self, length: usize) -> Range<usize> {
        let (start, count) = self.limit;
        let place = |at: i64| usize::try_from(at).unwrap_or(usize::MAX).min(length);
        let start = place(start.max(0));
        let end = if count < 0 { length } else { start.saturating_add(place(count)).min(length) };
        start..end
    }
}

/// `SORT` and `SORT_RO`: reply with the results, or with their number after `STORE`.
fn sort(context: &mut Context<'_>, argv: &[&[u8]], may_store: bool) -> Result<Reply, Error> {
    let mut options = Options::parse(&argv[2..], may_store)?;
    if let Some(option) = options.reading_other_keys() {
        let denied = |why| Err(Error::text(format!("ERR {option} option of SORT denied {why}.")));
        if context.settings().cluster_enabled {
            return denied("in Cluster mode");
        }
        if !may_read_all_keys(context, argv) {
            return denied("due to insufficient ACL permissions");
        }
    }
    let (mut elements, is_set) = elements(context, argv[1])?;
    let order_is_visible = options.store.is_some() || context.caller == Caller::Script;
    if options.by == By::Constant && is_set && order_is_visible {
        // Results that are stored, or are used by a script, must not depend on the encoding of a
        // set.
        (options.by, options.alpha) = (By::Element, true);
    }
    match options.by {
        By::Element | By::Pattern(_) => elements = sorted(context, elements, &options)?,
        By::Constant if options.descending && !is_set => elements.reverse(),
        By::Constant => {}
    }
    let shown = elements.get(options.window(elements.len())).unwrap_or_default();
    let mut results = Vec::with_capacity(shown.len());
    for element in shown {
        if options.get.is_empty() {
            results.push(Some(element.clone()));
        }
        for pattern in &options.get {
            results.push(look_up(context, pattern, element));
        }
    }
    match options.store {
        Some(key) => store(context, key, &results),
        None => {
            let bulk = |it: Option<Vec<u8>>| it.map_or(Reply::Null, |it| Reply::Bulk(it.into()));
            Ok(Reply::Array(results.into_iter().map(bulk).collect()))
        }
    }
}

fn may_read_all_keys(context: &Context<'_>, argv: &[&[u8]]) -> bool {
    let entry = context.commands().find_request(argv);
    entry.is_none_or(|entry| context.engine().may_read_all_keys(context.client, entry, argv))
}

/// The elements of a key that can be sorted, in its own order; and whether it is a set.
fn elements(context: &mut Context<'_>, key: &[u8]) -> Result<(Vec<Vec<u8>>, bool), Error> {
    match context.read(key) {
        None => Ok((Vec::new(), false)),
        Some(ValueRef::List(list)) => Ok((list.iter().map(<[u8]>::to_vec).collect(), false)),
        Some(ValueRef::Set(set)) => {
            Ok((set.iter().map(|member| member.into_owned()).collect(), true))
        }
        Some(ValueRef::SortedSet(set)) => {
            Ok((set.iter().map(|(member, _)| member.to_vec()).collect(), false))
        }
        Some(_) => Err(Error::WrongType),
    }
}

/// The value by which an element is compared.
#[derive(PartialEq, PartialOrd)]
enum Weight {
    Number(f64),
    /// Missing values come first.
    Text(Option<Vec<u8>>),
    Itself,
}

fn sorted(
    context: &mut Context<'_>,
    elements: Vec<Vec<u8>>,
    options: &Options<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut texts = Vec::with_capacity(elements.len());
    for element in &elements {
        texts.push(match options.by {
            By::Pattern(pattern) => look_up(context, pattern, element),
            By::Element | By::Constant => None,
        });
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for (element, text) in elements.into_iter().zip(texts) {
        let weight = match options.by {
            By::Pattern(_) if options.alpha => Weight::Text(text),
            By::Pattern(_) => Weight::Number(text.map_or(Ok(0.0), |text| to_number(&text))?),
            By::Element | By::Constant if options.alpha => Weight::Itself,
            By::Element | By::Constant => Weight::Number(to_number(&element)?),
        };
        weighed.push((weight, element));
    }
    weighed.sort_by(|a, b| {
        let order = compare(a, b);
        if options.descending { order.reverse() } else { order }
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

/// Elements with equal numbers are ordered by their bytes; those with equal texts keep their order.
fn compare(a: &(Weight, Vec<u8>), b: &(Weight, Vec<u8>)) -> Ordering {
    let order = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    match a.0 {
        Weight::Text(_) => order,
        Weight::Number(_) | Weight::Itself => order.then_with(|| a.1.cmp(&b.1)),
    }
}

/// Parses a number as C's `strtod` does: after blanks, up to a zero byte; an empty text is zero.
fn to_number(text: &[u8]) -> Result<f64, Error> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Ok(0.0);
    }
    let is_blank = |&byte: &u8| byte.is_ascii_whitespace() || byte == b'\x0b';
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    number::parse_double(&text[blanks..])
        .ok_or(Error::line("ERR One or more scores can't be converted into double"))
}

/// The value of a pattern for an element: `#` is the element itself, `key_*` the string of that key
/// with the element in place of `*`, `key_*->field` a field of that key's hash.
fn look_up(context: &mut Context<'_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let (prefix, rest) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = rest.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < rest.len());
    let (postfix, field) = match arrow {
        Some(at) => (&rest[..at], Some(&rest[at + 2..])),
        None => (rest, None),
    };
    let key = [prefix, element, postfix].concat();
    match field {
        Some(field) => {
            let hash = context.read_as::<Hash>(&key).ok().flatten()?;
            hash.get(field).map(<[u8]>::to_vec)
        }
        None => {
            let string = context.read_as::<StringValue>(&key).ok().flatten()?;
            Some(string.bytes().to_vec())
        }
    }
}

/// Sets a key to a list of results, or removes it if there are none. A missing result is an empty
/// string there.
fn store(
    context: &mut Context<'_>,
    key: &[u8],
    results: &[Option<Vec<u8>>],
) -> Result<Reply, Error> {
    let elements: Vec<&[u8]> =
        results.iter().map(|result| result.as_deref().unwrap_or_default()).collect();
    if !elements.is_empty() {
        let mut list = List::default();
        list.grow(&elements, lists::small(context));
        elements.iter().for_each(|element| list.push(End::Right, element));
        context.set(key, NewValue::Value(list.into()))?;
        context.changed(Events::LIST, "sortstore", key);
    } else if context.clear(key)? {
        context.changed(Events::GENERIC, "del", key);
    }
    Ok(elements.len().into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_events};

    #[test]
    fn expired_keys_are_not_read() {
        check(
            "RPUSH l 1 2; MSET w1 2 w2 1; SORT l BY w* => [\"2\", \"1\"]; PEXPIRE w1 10; +10ms; \
             SORT l BY w* GET w* => [nil, \"1\"]",
        );
        check("RPUSH l 1; PEXPIRE l 10; +10ms; SORT l => []; SORT l STORE d => 0");
    }

    #[test]
    fn result_in_a_script_does_not_depend_on_the_encoding_of_a_set() {
        check("SADD s b c a; SORT s BY nosort DESC => [\"b\", \"c\", \"a\"]");
        check(
            "SADD s b c a; EVAL \"return redis.call('SORT', 's', 'BY', 'nosort', 'DESC')\" 0 => \
             [\"c\", \"b\", \"a\"]",
        );
        check(
            "SADD s b c a; SORT s BY nosort STORE d => 3; LRANGE d 0 -1 => [\"a\", \"b\", \"c\"]",
        );
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("RPUSH l 2 1", "new l, rpush l"),
            ("SORT l BY w* GET v*", "keymiss w2, keymiss w1, keymiss v1, keymiss v2"),
            ("SORT x", "keymiss x"),
            ("SORT l STORE d", "new d, sortstore d"),
            ("SORT l STORE d", "sortstore d"),
            ("SORT x STORE d", "keymiss x, del d"),
            ("SORT x STORE d", "keymiss x"),
        ]);
    }
}
