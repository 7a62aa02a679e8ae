//! The expected replies of cases: their notation, and whether a reply matches.
//!
//! | Written | Is |
//! |---|---|
//! | `+OK`, `-ERR syntax error` | a status, an error; `-WRONGTYPE ...` an error with this prefix |
//! | `:7`, `:1..9` | an integer, one in a range |
//! | `"bulk"`, `nil`, `nil-array` | a bulk string, its absence, an array's absence |
//! | `has "a" "b"` | a bulk string, status or verbatim text that contains these in this order |
//! | `,1.5`, `verbatim "txt"` | a double, a verbatim text; in RESP2 a bulk string |
//! | `#t` | a boolean; in RESP2 an integer |
//! | `[a, b]`, `[a, ...]` | an array, an array with this prefix |
//! | `set [a, b]`, `push [a, b]` | a set, a push; in RESP2 an array |
//! | `{key: value}` | a map; in RESP2 a flat array |
//! | `unordered [..]` | any of the three in any order |
//! | `_` | anything |
//! | `$name` | the value of that name; the first occurrence captures the value |
//! | `a \| b` | either |

use std::collections::BTreeMap;

use crate::wire::frame::Frame;
use crate::words;

/// Captured values by name.
pub type Captures = BTreeMap<String, Vec<u8>>;

/// An expected reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// A line of this type byte with this text.
    Line(u8, String),
    /// An error with this prefix.
    ErrorPrefix(String),
    /// An integer in a range.
    Integer(i64, i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// A bulk string, status or verbatim text that contains these in this order.
    Has(Vec<Vec<u8>>),
    /// A null.
    Nil,
    /// A null array.
    NilArray,
    /// A double, with this text.
    Double(String),
    /// A boolean.
    Bool(bool),
    /// A verbatim text.
    Verbatim(Vec<u8>),
    /// An aggregate (`* ~ > %`); keys and values of a map alternate.
    Aggregate {
        /// The type byte in RESP3.
        kind: u8,
        /// The elements.
        items: Vec<Pattern>,
        /// Whether more elements may follow.
        open: bool,
        /// Whether the order does not matter.
        unordered: bool,
    },
    /// Anything.
    Any,
    /// A captured value.
    Named(String),
    /// One of these.
    Either(Vec<Pattern>),
}

impl Pattern {
    /// Parses a pattern; the error describes the problem.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let (pattern, rest) = either(text, true)?;
        match rest.trim() {
            "" => Ok(pattern),
            rest => Err(format!("not understood: {rest}")),
        }
    }

    /// Whether `frame`, received in RESP2 or RESP3, matches.
    pub fn matches(&self, frame: &Frame, protocol: u8, captures: &mut Captures) -> bool {
        let is = |kind: u8, text: &[u8]| frame.kind == kind && !frame.missing && frame.text == text;
        let missing = |kind: u8| match protocol {
            2 => frame.kind == kind && frame.missing,
            _ => frame.kind == b'_',
        };
        match self {
            Pattern::Line(kind, text) => is(*kind, text.as_bytes()),
            Pattern::ErrorPrefix(text) => {
                frame.kind == b'-' && frame.text.starts_with(text.as_bytes())
            }
            Pattern::Integer(low, high) => {
                let text = std::str::from_utf8(&frame.text).ok();
                let number = text.and_then(|text| text.parse::<i64>().ok());
                frame.kind == b':' && number.is_some_and(|it| (*low..=*high).contains(&it))
            }
            Pattern::Bulk(bytes) => is(b'$', bytes),
            Pattern::Has(texts) => {
                matches!(frame.kind, b'$' | b'+' | b'=')
                    && !frame.missing
                    && holds(&frame.text, texts)
            }
            Pattern::Nil => missing(b'$'),
            Pattern::NilArray => missing(b'*'),
            Pattern::Double(text) => is(if protocol == 2 { b'$' } else { b',' }, text.as_bytes()),
            Pattern::Bool(value) if protocol == 2 => is(b':', if *value { b"1" } else { b"0" }),
            Pattern::Bool(value) => is(b'#', if *value { b"t" } else { b"f" }),
            Pattern::Verbatim(text) if protocol == 2 => is(b'$', text),
            Pattern::Verbatim(text) => is(b'=', &[b"txt:", &text[..]].concat()),
            Pattern::Aggregate { kind, items, open, unordered } => {
                let kind = if protocol == 2 { b'*' } else { *kind };
                let step = self.step();
                frame.kind == kind
                    && !frame.missing
                    && if *unordered {
                        match_unordered(items, &frame.items, step, *open, protocol, captures)
                    } else {
                        match_in_order(items, &frame.items, *open, protocol, captures)
                    }
            }
            Pattern::Any => true,
            Pattern::Named(name) => match captures.get(name) {
                Some(value) => *value == frame.text,
                None => captures.insert(name.clone(), frame.text.clone()).is_none(),
            },
            Pattern::Either(patterns) => {
                patterns.iter().any(|pattern| pattern.matches(frame, protocol, captures))
            }
        }
    }

    /// Removes the parts that the pattern leaves open from a reply that matches it, so that the
    /// replies of two servers can be compared: numbers in a range, captured values, choices,
    /// elements that may follow, and order that does not matter.
    pub fn mask(&self, frame: &mut Frame, protocol: u8) {
        let open = |text: &str| Frame {
            kind: b'+',
            text: text.as_bytes().to_vec(),
            items: Vec::new(),
            missing: false,
        };
        match self {
            Pattern::Integer(low, high) if low != high => *frame = open("in range"),
            Pattern::Any | Pattern::Named(_) | Pattern::Has(_) => *frame = open("any"),
            Pattern::Either(_) => *frame = open("either"),
            Pattern::ErrorPrefix(prefix) => frame.text.truncate(prefix.len()),
            Pattern::Aggregate { items, open, unordered, .. } => {
                if *unordered {
                    self.bring_to_order(items, frame, protocol);
                } else if *open {
                    frame.items.truncate(items.len());
                }
                let pairs = items.iter().zip(&mut frame.items);
                pairs.for_each(|(item, frame)| item.mask(frame, protocol));
            }
            _ => {}
        }
    }

    /// Sorts the elements of a reply into the order of the pattern; removes others.
    fn bring_to_order(&self, items: &[Pattern], frame: &mut Frame, protocol: u8) {
        let step = self.step();
        let mut left: Vec<_> = frame.items.chunks(step).map(<[Frame]>::to_vec).collect();
        let mut ordered = Vec::new();
        for item in items.chunks(step) {
            let is = |part: &Vec<Frame>| {
                match_in_order(item, part, false, protocol, &mut Captures::new())
            };
            if let Some(at) = left.iter().position(is) {
                ordered.extend(left.remove(at));
            }
        }
        frame.items = ordered;
    }

    /// The number of frames per element where order does not matter: 2 for maps.
    fn step(&self) -> usize {
        if self.is_map() { 2 } else { 1 }
    }

    fn is_map(&self) -> bool {
        matches!(self, Pattern::Aggregate { kind: b'%', .. })
    }
}

/// Whether `text` contains all of `parts` in this order.
fn holds(text: &[u8], parts: &[Vec<u8>]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| {
        let at = rest.windows(part.len().max(1)).position(|window| window == part.as_slice());
        at.inspect(|at| rest = &rest[at + part.len()..]).is_some()
    })
}

fn match_in_order(
    items: &[Pattern],
    frames: &[Frame],
    open: bool,
    protocol: u8,
    captures: &mut Captures,
) -> bool {
    let enough = if open { frames.len() >= items.len() } else { frames.len() == items.len() };
    enough && items.iter().zip(frames).all(|(it, frame)| it.matches(frame, protocol, captures))
}

/// Returns whether the frames match in any order: each pattern takes the first one that it matches
/// and that no earlier pattern took.
fn match_unordered(
    items: &[Pattern],
    frames: &[Frame],
    step: usize,
    open: bool,
    protocol: u8,
    captures: &mut Captures,
) -> bool {
    let mut left: Vec<&[Frame]> = frames.chunks(step).collect();
    for item in items.chunks(step) {
        let found = left.iter().position(|part| {
            let mut tried = captures.clone();
            let is = match_in_order(item, part, false, protocol, &mut tried);
            if is {
                *captures = tried;
            }
            is
        });
        match found {
            Some(at) => drop(left.remove(at)),
            None => return false,
        }
    }
    open || left.is_empty()
}

type Parsed<'t> = Result<(Pattern, &'t str), String>;

fn either(text: &str, outermost: bool) -> Parsed<'_> {
    let (first, mut rest) = value(text, outermost)?;
    let mut patterns = vec![first];
    while let Some(after) = rest.trim_start().strip_prefix('|') {
        let (next, after) = value(after, outermost)?;
        patterns.push(next);
        rest = after;
    }
    let one = if patterns.len() == 1 { patterns.pop() } else { None };
    Ok((one.unwrap_or(Pattern::Either(patterns)), rest))
}

/// Parses one value from `text`; returns the rest.
fn value(text: &str, outermost: bool) -> Parsed<'_> {
    let text = text.trim_start();
    for (word, kind) in [("set [", b'~'), ("push [", b'>'), ("[", b'*'), ("{", b'%')] {
        if let Some(rest) = text.strip_prefix(word) {
            return items(rest, kind);
        }
    }
    if let Some(rest) = text.strip_prefix("unordered ") {
        let (mut pattern, rest) = value(rest, outermost)?;
        return match &mut pattern {
            Pattern::Aggregate { unordered, .. } => {
                *unordered = true;
                Ok((pattern, rest))
            }
            _ => Err(format!("nothing that has an order: {text}")),
        };
    }
    if let Some(mut rest) = text.strip_prefix("has ") {
        let mut texts = Vec::new();
        while let Some(quoted) = rest.trim_start().strip_prefix('"') {
            let (bytes, after) = words::double_quoted(quoted)?;
            texts.push(bytes);
            rest = after;
        }
        let none = texts.iter().all(Vec::is_empty);
        return if none {
            Err(format!("no text: {text}"))
        } else {
            Ok((Pattern::Has(texts), rest))
        };
    }
    if let Some(rest) = text.strip_prefix("verbatim \"") {
        let (bytes, rest) = words::double_quoted(rest)?;
        return Ok((Pattern::Verbatim(bytes), rest));
    }
    match text.chars().next() {
        None => Err("a reply is missing".to_owned()),
        Some('"') => {
            let (bytes, rest) = words::double_quoted(&text[1..])?;
            Ok((Pattern::Bulk(bytes), rest))
        }
        Some(kind @ ('+' | '-')) => line(kind, &text[1..], outermost),
        Some(_) => {
            let end = text.find([',', ']', '}', ' ']).filter(|&end| end > 0);
            // A double begins with a comma, the sign of its type.
            let end = match text.strip_prefix(',') {
                Some(rest) => 1 + rest.find([',', ']', '}', ' ']).unwrap_or(rest.len()),
                None => end.unwrap_or(text.len()),
            };
            let (word, rest) = text.split_at(end);
            // The colon after a map's key is not part of it, the one before a number is.
            let (word, rest) = match word.strip_suffix(':') {
                Some(word) if !word.is_empty() => (word, &text[end - 1..]),
                _ => (word, rest),
            };
            Ok((scalar(word)?, rest))
        }
    }
}

/// A status or an error. At the outermost level it is the whole line; within an aggregate it ends
/// at the next separator, or is written in quotes.
fn line(kind: char, text: &str, outermost: bool) -> Parsed<'_> {
    let (words, rest) = if let Some(quoted) = text.strip_prefix('"') {
        let (bytes, rest) = words::double_quoted(quoted)?;
        (String::from_utf8_lossy(&bytes).into_owned(), rest)
    } else {
        let inner = text.find([',', ']', '}', ':']).unwrap_or(text.len());
        let end = if outermost { text.find(" | ").unwrap_or(text.len()) } else { inner };
        (text[..end].trim_end().to_owned(), &text[end..])
    };
    match words.strip_suffix("...") {
        Some(prefix) if kind == '-' => Ok((Pattern::ErrorPrefix(prefix.to_owned()), rest)),
        _ => Ok((Pattern::Line(kind as u8, words), rest)),
    }
}

fn items(text: &str, kind: u8) -> Parsed<'_> {
    let mut items = Vec::new();
    let mut open = false;
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix([']', '}']) {
            return Ok((Pattern::Aggregate { kind, items, open, unordered: false }, after));
        }
        if let Some(after) = rest.strip_prefix("...") {
            open = true;
            rest = after.trim_start();
            continue;
        }
        let (item, after) = either(rest, false)?;
        items.push(item);
        let after = after.trim_start();
        let next = after.strip_prefix([',', ':']).map(str::trim_start);
        rest = match next {
            Some(next) => next,
            None if after.starts_with([']', '}']) => after,
            None => return Err(format!("an aggregate goes on: {after}")),
        };
    }
}

fn scalar(word: &str) -> Result<Pattern, String> {
    let unknown = || format!("not a reply: {word}");
    let integer = |text: &str| text.parse::<i64>().map_err(|_| unknown());
    match word {
        "nil" => return Ok(Pattern::Nil),
        "nil-array" => return Ok(Pattern::NilArray),
        "_" => return Ok(Pattern::Any),
        "#t" | "#f" => return Ok(Pattern::Bool(word == "#t")),
        _ => {}
    }
    let mut characters = word.chars();
    let sign = characters.next();
    let rest = characters.as_str();
    match sign {
        Some(':') => match rest.split_once("..") {
            Some((low, high)) => Ok(Pattern::Integer(integer(low)?, integer(high)?)),
            None => integer(rest).map(|number| Pattern::Integer(number, number)),
        },
        Some(',') => Ok(Pattern::Double(rest.to_owned())),
        Some('(') => Ok(Pattern::Line(b'(', rest.to_owned())),
        Some('$') if !rest.is_empty() => Ok(Pattern::Named(rest.to_owned())),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Captures, Pattern};
    use crate::wire::frame::Frame;

    fn matches(text: &str, protocol: u8, bytes: &[u8]) -> bool {
        let frame = Frame::whole(bytes).expect("one reply");
        let pattern = Pattern::parse(text).expect(text);
        pattern.matches(&frame, protocol, &mut Captures::new())
    }

    #[test]
    fn pattern_matches_only_described_replies() {
        let check = |text: &str, protocol: u8, bytes: &[u8], expected: bool| {
            let place = format!("{text} RESP{protocol} {}", bytes.escape_ascii());
            assert_eq!(matches(text, protocol, bytes), expected, "{place}");
        };
        check("+OK", 2, b"+OK\r\n", true);
        check("+OK", 2, b"$2\r\nOK\r\n", false);
        check("-ERR a, b", 2, b"-ERR a, b\r\n", true);
        check("-WRONGTYPE ...", 2, b"-WRONGTYPE Operation\r\n", true);
        check("-ERR a | +b c", 2, b"+b c\r\n", true);
        check("nil", 2, b"$-1\r\n", true);
        check("nil", 2, b"*-1\r\n", false);
        check("nil", 2, b"$2\r\n-1\r\n", false);
        check("nil", 3, b"_\r\n", true);
        check("nil-array", 2, b"*-1\r\n", true);
        check(":5..7", 2, b":7\r\n", true);
        check(":5..7", 2, b":8\r\n", false);
        check(":-2", 2, b":-2\r\n", true);
        check(":5..7", 2, b"$1\r\n7\r\n", false);
        check(r#"[:1, "a b", nil]"#, 2, b"*3\r\n:1\r\n$3\r\na b\r\n$-1\r\n", true);
        check(r#"[:1, ...]"#, 2, b"*3\r\n:1\r\n$3\r\na b\r\n$-1\r\n", true);
        check("[]", 2, b"*0\r\n", true);
        check(r#"has "b=1 " "c=2""#, 2, b"$12\r\na=0 b=1 c=2 \r\n", true);
        check(r#"has "b=1 " "c=2""#, 3, b"=15\r\ntxt:b=1 x=0 c=2\r\n", true);
        check(r#"has "c=2" "b=1""#, 2, b"$7\r\nb=1 c=2\r\n", false);
        check(r#"has "b=1""#, 2, b"+a b=1\r\n", true);
        check(r#"has "1""#, 2, b":1\r\n", false);
        check("[+a b, -ERR x]", 2, b"*2\r\n+a b\r\n-ERR x\r\n", true);
        check(r#"[-"ERR x, y", #t]"#, 3, b"*2\r\n-ERR x, y\r\n#t\r\n", true);
        check(r#"{"f": ,1.5}"#, 2, b"*2\r\n$1\r\nf\r\n$3\r\n1.5\r\n", true);
        check(r#"{"f": ,1.5}"#, 3, b"%1\r\n$1\r\nf\r\n,1.5\r\n", true);
        check(r#"push ["c", :1]"#, 2, b"*2\r\n$1\r\nc\r\n:1\r\n", true);
        check(r#"push ["c", :1]"#, 3, b">2\r\n$1\r\nc\r\n:1\r\n", true);
        check(r#"unordered set ["a", "b"]"#, 3, b"~2\r\n$1\r\nb\r\n$1\r\na\r\n", true);
        check(r#"unordered set ["a", "b"]"#, 3, b"~2\r\n$1\r\nb\r\n$1\r\nb\r\n", false);
        check(
            r#"unordered {"a": :1, "b": :2}"#,
            3,
            b"%2\r\n$1\r\nb\r\n:2\r\n$1\r\na\r\n:1\r\n",
            true,
        );
        check("[$x, $x]", 2, b"*2\r\n:1\r\n:1\r\n", true);
        check("[$x, $x]", 2, b"*2\r\n:1\r\n:2\r\n", false);
    }

    #[test]
    fn open_parts_are_masked() {
        let check = |text: &str, protocol: u8, bytes: &[u8], expected: &str| {
            let mut frame = Frame::whole(bytes).expect("one reply");
            Pattern::parse(text).expect(text).mask(&mut frame, protocol);
            assert_eq!(frame.notation(), expected, "{text}");
        };
        check("[:1..9, :7, ...]", 2, b"*3\r\n:5\r\n:7\r\n:8\r\n", "[+in range, :7]");
        let pairs = b"*4\r\n+b\r\n:3\r\n+a\r\n:2\r\n";
        check("unordered {+a: _, ...}", 2, pairs, "[+a, +any]");
        check("unordered [+b, +a, :2, :3]", 2, pairs, "[+b, +a, :2, :3]");
        check("+a | +b", 2, b"+b\r\n", "+either");
        check("-NOGROUP ...", 2, b"-NOGROUP such\r\n", "-NOGROUP ");
    }

    #[test]
    fn invalid_patterns_are_errors() {
        for text in ["", "OK", "[:1", ":x", "+OK extra\u{0} | ", "[:1 :2]", "unordered :1", "has 1"]
        {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
