//! Converts Lua values to replies and back, by Redis's rules. Independent of Lua's stack and of the
//! server.

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply, format_double};

use crate::value::Value;

/// Converts the result of a script to the reply for its client. `protocol` is the one set by
/// `redis.setresp`; it decides how booleans are converted.
pub(crate) fn to_reply(value: Value, protocol: Protocol) -> Reply {
    match value {
        Value::Bytes(bytes) => Reply::Bulk(bytes),
        Value::Number(number) => Reply::Integer(truncate(number)),
        Value::Boolean(value) if protocol == Protocol::Resp3 => Reply::Boolean(value),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(entries) => table_to_reply(entries, protocol),
        Value::TooDeep => Reply::error("ERR reached lua stack limit"),
        Value::Boolean(false) | Value::Nil | Value::Null | Value::Other(_) => Reply::Null,
    }
}

/// Converts a command's reply to a Lua value.
pub(crate) fn to_lua(reply: Reply, protocol: Protocol) -> Value {
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => Value::field("ok", Value::Bytes(text)),
        Reply::Error(line) => error_table(line),
        Reply::Integer(n) => Value::Number(n as f64),
        Reply::Bulk(bytes) => Value::Bytes(bytes),
        Reply::Null | Reply::NullArray if resp3 => Value::Nil,
        Reply::Null | Reply::NullArray => Value::Boolean(false),
        Reply::Map(pairs) if resp3 => {
            let pair = |(key, value)| (to_lua(key, protocol), to_lua(value, protocol));
            Value::field("map", Value::Table(pairs.into_iter().map(pair).collect()))
        }
        Reply::Set(items) if resp3 => {
            let member = |item| (to_lua(item, protocol), Value::Boolean(true));
            Value::field("set", Value::Table(items.into_iter().map(member).collect()))
        }
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Value::array(flat.map(|item| to_lua(item, protocol)))
        }
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            Value::array(items.into_iter().map(|item| to_lua(item, protocol)))
        }
        Reply::Double(number) if resp3 => Value::field("double", Value::Number(number)),
        Reply::Double(number) => {
            Value::Bytes(Bytes::copy_from_slice(format_double(number).as_bytes()))
        }
        Reply::Boolean(value) if resp3 => Value::Boolean(value),
        Reply::Boolean(value) => Value::Number(f64::from(u8::from(value))),
        Reply::BigNumber(digits) if resp3 => Value::field("big_number", Value::Bytes(digits)),
        Reply::Verbatim { format, text } if resp3 => {
            let fields = vec![
                (Value::literal("string"), Value::Bytes(text)),
                (Value::literal("format"), Value::Bytes(Bytes::copy_from_slice(&format))),
            ];
            Value::field("verbatim_string", Value::Table(fields))
        }
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } => Value::Bytes(text),
    }
}

/// The table for the error of a command. The command has counted the error already.
pub(crate) fn error_table(line: Bytes) -> Value {
    Value::Table(vec![
        (Value::literal("err"), Value::Bytes(line)),
        (Value::literal("ignore_error_stats_update"), Value::Boolean(true)),
    ])
}

/// Completes the text of an error as `redis.error_reply` does: a single word gets a code in front.
/// A leading dash is removed, and so is the rest after the line's end.
pub(crate) fn error_reply(text: &[u8]) -> Bytes {
    let text = c_string(text);
    let line = match text.strip_prefix(b"-") {
        Some(line) => trim_line_end(line),
        None => text,
    };
    let has_code = line.contains(&b' ');
    if has_code { Bytes::copy_from_slice(line) } else { [b"ERR ", line].concat().into() }
}

fn trim_line_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = line {
        line = rest;
    }
    line
}

/// The part before the first zero byte, as Redis and Lua read C strings.
pub(crate) fn c_string(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A status made by a script, as the line of a reply.
pub(crate) fn c_line(text: &[u8]) -> Bytes {
    one_line(c_string(text).to_vec())
}

/// Replaces CR and LF by blanks.
pub(crate) fn one_line(mut text: Vec<u8>) -> Bytes {
    for byte in &mut text {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    text.into()
}

/// Truncates toward zero. A number out of range, and NaN, becomes the least integer, as on x86-64.
pub(crate) fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

fn table_to_reply(entries: Vec<(Value, Value)>, protocol: Protocol) -> Reply {
    let field = |name: &str| {
        let named = |key: &Value| matches!(key, Value::Bytes(bytes) if bytes == name.as_bytes());
        entries.iter().position(|(key, _)| named(key))
    };
    let line = |text: &Bytes| one_line(text.to_vec());
    let special = ["err", "ok", "double", "big_number", "verbatim_string", "map", "set"];
    for name in special {
        let Some(found) = field(name) else { continue };
        match (name, &entries[found].1) {
            ("err", Value::Bytes(text)) => return Reply::Error(line(text)),
            ("ok", Value::Bytes(text)) => return Reply::Simple(c_line(text)),
            ("double", Value::Number(number)) => return Reply::Double(*number),
            ("big_number", Value::Bytes(text)) => return Reply::BigNumber(line(text)),
            ("verbatim_string", Value::Table(fields)) => {
                if let Some(reply) = verbatim(fields) {
                    return reply;
                }
            }
            ("map", Value::Table(_)) => return map_to_reply(entries, found, protocol),
            ("set", Value::Table(_)) => return set_to_reply(entries, found, protocol),
            _ => {}
        }
    }
    Reply::Array(sequence(entries).into_iter().map(|item| to_reply(item, protocol)).collect())
}

fn map_to_reply(entries: Vec<(Value, Value)>, at: usize, protocol: Protocol) -> Reply {
    let pairs = inner(entries, at).into_iter();
    Reply::Map(pairs.map(|(k, v)| (to_reply(k, protocol), to_reply(v, protocol))).collect())
}

fn set_to_reply(entries: Vec<(Value, Value)>, at: usize, protocol: Protocol) -> Reply {
    let members = inner(entries, at).into_iter();
    Reply::Set(members.map(|(key, _)| to_reply(key, protocol)).collect())
}

fn inner(mut entries: Vec<(Value, Value)>, at: usize) -> Vec<(Value, Value)> {
    match entries.swap_remove(at).1 {
        Value::Table(inner) => inner,
        _ => Vec::new(),
    }
}

fn verbatim(fields: &[(Value, Value)]) -> Option<Reply> {
    let get = |name: &str| {
        fields.iter().find_map(|(key, value)| match (key, value) {
            (Value::Bytes(key), Value::Bytes(value)) if key == name.as_bytes() => Some(value),
            _ => None,
        })
    };
    let (format, text) = (get("format")?, get("string")?);
    let mut three = [b' '; 3];
    for (to, from) in three.iter_mut().zip(format.iter()) {
        *to = *from;
    }
    Some(Reply::Verbatim { format: three, text: text.clone() })
}

/// The values at 1, 2, ... up to the first missing one.
pub(crate) fn sequence(entries: Vec<(Value, Value)>) -> Vec<Value> {
    let mut items = Vec::with_capacity(entries.len());
    let mut later = Vec::new();
    for (key, value) in entries {
        match key {
            Value::Number(at) if at == (items.len() + 1) as f64 => items.push(value),
            Value::Number(at) if at > items.len() as f64 => later.push((at, value)),
            _ => {}
        }
    }
    later.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, value) in later {
        if at == (items.len() + 1) as f64 {
            items.push(value);
        }
    }
    items
}
