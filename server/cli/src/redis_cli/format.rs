//! Formats replies as `redis-cli` does: for people, raw for scripts, as JSON.

use lockwheel_resp::words::quote;
use lockwheel_resp::{Reply, format_double};

/// The format of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With types and element numbers, for people.
    Standard,
    /// Only the content.
    Raw,
    /// As JSON.
    Json,
}

/// Formats a reply and ends the line.
pub(super) fn print(reply: &Reply, style: Style) -> Vec<u8> {
    let mut out = Vec::new();
    match style {
        Style::Standard => {
            standard(reply, "", &mut out);
            return out;
        }
        Style::Raw => raw(reply, &mut out),
        Style::Json => json(reply, &mut out),
    }
    out.push(b'\n');
    out
}

/// Formats a reply that is a text with several lines, such as `INFO`'s.
pub(super) fn print_text(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    raw(reply, &mut out);
    out
}

/// Whether the reply of a command is a text that is printed raw in every style.
pub(super) fn is_text(words: &[Vec<u8>]) -> bool {
    let word = |at: usize| words.get(at).map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let (first, second) = (word(0), word(1));
    match (first.as_slice(), second.as_slice()) {
        (b"info" | b"lolwut", _) => true,
        (b"debug", b"htstats" | b"htstats-key" | b"client-eviction") => true,
        (b"memory", b"malloc-stats" | b"doctor") => true,
        (b"cluster", b"nodes" | b"info") | (b"latency", b"doctor") => words.len() == 2,
        (b"client", b"list" | b"info") => true,
        (b"latency", b"graph") => words.len() == 3,
        _ => false,
    }
}

fn standard(reply: &Reply, indent: &str, out: &mut Vec<u8>) {
    let mut line = |head: &str, text: &[u8]| {
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(text);
        out.push(b'\n');
    };
    match reply {
        Reply::Simple(text) | Reply::Verbatim { text, .. } => line("", text),
        Reply::Error(text) => line("(error) ", text),
        Reply::Integer(number) => line("(integer) ", number.to_string().as_bytes()),
        Reply::Bulk(text) => {
            quote(text, out);
            out.push(b'\n');
        }
        Reply::Null | Reply::NullArray => line("(nil)", b""),
        Reply::Double(number) => line("(double) ", format_double(*number).as_bytes()),
        Reply::Boolean(true) => line("(true)", b""),
        Reply::Boolean(false) => line("(false)", b""),
        Reply::BigNumber(digits) => line("(big number) ", digits),
        Reply::Array(items) if items.is_empty() => line("(empty array)", b""),
        Reply::Set(items) if items.is_empty() => line("(empty set)", b""),
        Reply::Push(items) if items.is_empty() => line("(empty push)", b""),
        Reply::Map(pairs) if pairs.is_empty() => line("(empty hash)", b""),
        Reply::Array(items) | Reply::Push(items) => list(items, ')', indent, out),
        Reply::Set(items) => list(items, '~', indent, out),
        Reply::Map(pairs) => map(pairs, indent, out),
        Reply::Several(replies) => replies.iter().for_each(|reply| standard(reply, indent, out)),
    }
}

/// Writes a list: the first element continues the current line, the others are indented to the same
/// column.
fn list(items: &[Reply], sign: char, indent: &str, out: &mut Vec<u8>) {
    let width = items.len().to_string().len();
    let inner = format!("{indent}{:width$}", "", width = width + 2);
    for (index, item) in items.iter().enumerate() {
        let indent = if index == 0 { "" } else { indent };
        let number = index + 1;
        out.extend_from_slice(format!("{indent}{number:width$}{sign} ").as_bytes());
        standard(item, &inner, out);
    }
}

fn map(pairs: &[(Reply, Reply)], indent: &str, out: &mut Vec<u8>) {
    let width = pairs.len().to_string().len();
    let inner = format!("{indent}{:width$}", "", width = width + 2);
    for (index, (key, value)) in pairs.iter().enumerate() {
        let indent = if index == 0 { "" } else { indent };
        let number = index + 1;
        out.extend_from_slice(format!("{indent}{number:width$}# ").as_bytes());
        standard(key, &inner, out);
        // The value continues the line.
        out.pop();
        out.extend_from_slice(b" => ");
        if entries(value) > 1 {
            out.extend_from_slice(format!("\n{inner}").as_bytes());
        }
        standard(value, &inner, out);
    }
}

/// The number of numbered lines of a reply.
fn entries(reply: &Reply) -> usize {
    match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items.len(),
        Reply::Map(pairs) => pairs.len(),
        _ => 0,
    }
}

fn raw(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Error(text) => {
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
            out.extend_from_slice(text);
        }
        Reply::BigNumber(digits) => out.extend_from_slice(digits),
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::Double(number) => out.extend_from_slice(format_double(*number).as_bytes()),
        Reply::Boolean(true) => out.extend_from_slice(b"(true)"),
        Reply::Boolean(false) => out.extend_from_slice(b"(false)"),
        Reply::Null | Reply::NullArray => {}
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            joined(items, b"\n", out, raw);
        }
        Reply::Map(pairs) => joined(pairs, b"\n", out, |(key, value), out| {
            raw(key, out);
            out.push(b' ');
            raw(value, out);
        }),
    }
}

fn json(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Error(text) => {
            out.extend_from_slice(b"error:");
            json_string(text, out);
        }
        Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
            json_string(text, out);
        }
        Reply::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Reply::BigNumber(digits) => out.extend_from_slice(digits),
        Reply::Double(number) => out.extend_from_slice(format_double(*number).as_bytes()),
        Reply::Boolean(truth) => out.extend_from_slice(truth.to_string().as_bytes()),
        Reply::Null | Reply::NullArray => out.extend_from_slice(b"null"),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            out.push(b'[');
            joined(items, b",", out, json);
            out.push(b']');
        }
        Reply::Map(pairs) => {
            out.push(b'{');
            joined(pairs, b",", out, |(key, value), out| {
                json_key(key, out);
                out.push(b':');
                json(value, out);
            });
            out.push(b'}');
        }
    }
}

/// Writes a key of a map, which is a string in JSON: other RESP3 keys are converted.
fn json_key(key: &Reply, out: &mut Vec<u8>) {
    if let Reply::Simple(_) | Reply::Bulk(_) | Reply::Verbatim { .. } = key {
        return json(key, out);
    }
    let mut text = Vec::new();
    json(key, &mut text);
    json_string(&text, out);
}

/// Bytes that are not UTF-8 are left unchanged, as in `redis-cli`.
fn json_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            ..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn joined<T>(
    items: &[T],
    between: &[u8],
    out: &mut Vec<u8>,
    mut print: impl FnMut(&T, &mut Vec<u8>),
) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(between);
        }
        print(item, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> Reply {
        let inner = Reply::Array(vec![Reply::bulk("a\n"), Reply::Null, Reply::Integer(7)]);
        let pairs = vec![(Reply::bulk("k"), inner.clone()), (Reply::Integer(1), Reply::OK)];
        Reply::Array(vec![inner, Reply::Map(pairs), Reply::Boolean(true), Reply::Double(0.5)])
    }

    #[track_caller]
    fn check(style: Style, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&print(&nested(), style)), expected);
    }

    /// A reply that no server of the tests sends; other tests compare the rest with `redis-cli`.
    #[test]
    fn nested_replies_are_formatted() {
        check(
            Style::Standard,
            "1) 1) \"a\\n\"\n   2) (nil)\n   3) (integer) 7\n\
             2) 1# \"k\" => \n      1) \"a\\n\"\n      2) (nil)\n      3) (integer) 7\n   \
             2# (integer) 1 => OK\n3) (true)\n4) (double) 0.5\n",
        );
        check(Style::Raw, "a\n\n\n7\nk a\n\n\n7\n1 OK\n(true)\n0.5\n");
        check(Style::Json, "[[\"a\\n\",null,7],{\"k\":[\"a\\n\",null,7],\"1\":\"OK\"},true,0.5]\n");
    }
}
