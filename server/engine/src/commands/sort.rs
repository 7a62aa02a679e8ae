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

/// The options after the key.
struct Options<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    limit: (i64, i64),
    alpha: bool,
    descending: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a [u8]], may_store: bool) -> Result<Options<'a>, Error> {
        let mut options = Options {
            by: None,
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
                    options.by = Some(pattern);
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

    /// Returns an error in a cluster if keys outside the arguments would be read.
    fn stay_in_slot(&self) -> Result<(), Error> {
        if self.by.is_some_and(|pattern| pattern.contains(&b'*')) {
            return Err(Error::line("ERR BY option of SORT denied in Cluster mode."));
        }
        if !self.get.is_empty() {
            return Err(Error::line("ERR GET option of SORT denied in Cluster mode."));
        }
        Ok(())
    }

    /// Whether keys outside the arguments may be read.
    fn reads_other_keys(&self) -> bool {
        self.by.is_some_and(|pattern| pattern.contains(&b'*')) || !self.get.is_empty()
    }

    /// The error for a user that may not read all keys.
    fn not_permitted(&self) -> Error {
        if self.by.is_some_and(|pattern| pattern.contains(&b'*')) {
            return Error::line(
                "ERR BY option of SORT denied due to insufficient ACL permissions.",
            );
        }
        Error::line("ERR GET option of SORT denied due to insufficient ACL permissions.")
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
    if context.settings().cluster_enabled {
        options.stay_in_slot()?;
    }
    if options.reads_other_keys() && !may_read_all_keys(context, argv) {
        return Err(options.not_permitted());
    }
    let (mut elements, is_set) = elements(context, argv[1])?;
    let constant = options.by.is_some_and(|pattern| !pattern.contains(&b'*'));
    let order_is_visible = options.store.is_some() || context.caller == Caller::Script;
    if !constant {
        elements = sorted(context, elements, &options)?;
    } else if is_set && order_is_visible {
        // Results that are stored, or are used by a script, must not depend on the encoding of a
        // set.
        (options.by, options.alpha) = (None, true);
        elements = sorted(context, elements, &options)?;
    } else if options.descending && !is_set {
        elements.reverse();
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
        texts.push(options.by.and_then(|pattern| look_up(context, pattern, element)));
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for (element, text) in elements.into_iter().zip(texts) {
        let weight = match (options.by, text) {
            (None, _) if options.alpha => Weight::Itself,
            (None, _) => Weight::Number(to_number(&element)?),
            (Some(_), text) if options.alpha => Weight::Text(text),
            (Some(_), text) => Weight::Number(text.map_or(Ok(0.0), |text| to_number(&text))?),
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
