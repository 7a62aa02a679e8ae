//! Random Lua scripts: calls of random commands, and conversions of their replies.

use super::known;
use super::reference;
use super::safety::{block_ms, is_safe};
use crate::random::Random;

/// The largest number of calls in a script.
const CALLS_MAX: u64 = 4;

/// Draws a command that contains no other one.
type Nested<'a> = &'a mut dyn FnMut(&mut Random) -> Vec<Vec<u8>>;

/// Scripts that convert one type of value into another.
const CONVERSIONS: &[&str] = &[
    "return {1, 2.9, '3', true, false, 4}",
    "return {1, 2, nil, 4}",
    "return 3.99",
    "return -0.5",
    "return {ok = 'FINE'}",
    "return {err = 'MINE went wrong'}",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('MINE went wrong')",
    "return redis.error_reply('wrong')",
    "return {{1}, {{}}, {'a', {'b'}}}",
    "return ARGV",
    "return #KEYS + #ARGV",
    "return KEYS[1] == ARGV[1]",
    "error('boom')",
    "error({err = 'MINE boom'})",
    "return nil + 1",
    "return unknown",
    "x = 1",
    "return redis.sha1hex(ARGV[1] or '')",
    "return cjson.encode({1, 2, 'x', true})",
    "return cjson.decode('{\"a\": [1, 2.5, null]}').a",
    "return tonumber(ARGV[1] or '') or 'none'",
    "return math.floor(7 / 2)",
    "return string.format('%d %s %5.2f', 3, 'x', 1.005)",
    "return cmsgpack.unpack(cmsgpack.pack({1, 'a', false}))",
    "return {struct.unpack('>I2', struct.pack('>I2', 513))}",
    "return bit.band(255, 15)",
    "return redis.call()",
    "return redis.call('nothing')",
    "return redis.pcall('get')",
    "return redis.call('set', KEYS[1], {})",
    "syntax error",
];

/// Draws a script.
pub(super) fn draw(nested: Nested<'_>, random: &mut Random) -> Vec<u8> {
    if random.once_in(6) {
        return (*random.pick(CONVERSIONS)).into();
    }
    let mut lines = Vec::new();
    if random.once_in(10) {
        lines.push("redis.setresp(3)".to_owned());
    }
    let calls = 1 + random.below(CALLS_MAX);
    if calls == 1 {
        lines.push(single(&call(nested, random), random));
        return lines.join("\n").into_bytes();
    }
    lines.push("local r = {}".to_owned());
    for _ in 0..calls {
        lines.push(format!("r[#r + 1] = {}", call(nested, random)));
    }
    lines.push("return r".to_owned());
    lines.join("\n").into_bytes()
}

/// A script with a single call: uses of its reply.
fn single(call: &str, random: &mut Random) -> String {
    match random.below(6) {
        0 => format!("local v = {call}\nreturn type(v)"),
        1 => format!("local v = {call}\nreturn type(v) == 'table' and v.err or v"),
        2 => format!("local v = {call}\nif v then\nreturn {{1, v}}\nend\nreturn {{0}}"),
        3 => format!("local v = {call}\nif v == ARGV[1] then\nredis.call('del', KEYS[1])\nend"),
        _ => format!("return {call}"),
    }
}

fn call(nested: Nested<'_>, random: &mut Random) -> String {
    // A reply that is compared loosely cannot be recognised in the reply of a script.
    let words = loop {
        let words = nested(random);
        // Whether scripts may call blocking commands depends on the version.
        let may_wait = block_ms(&words).is_some() || words[0].eq_ignore_ascii_case(b"WAIT");
        let is_known = may_wait || known::may_differ(&words);
        if is_safe(&words) && !is_known && reference::applying(&words).next().is_none() {
            break words;
        }
    };
    let function = if random.once_in(3) { "redis.pcall" } else { "redis.call" };
    let argument = |(at, word): (usize, &Vec<u8>)| match word.as_slice() {
        b"<k1>" | b"<s1>" | b"<h1>" if at > 0 => "KEYS[1]".to_owned(),
        b"token-1" => "ARGV[1]".to_owned(),
        word if at > 0 && is_small_number(word) && word.len() == 1 => {
            String::from_utf8_lossy(word).into_owned()
        }
        word => quoted(word),
    };
    let arguments: Vec<_> = words.iter().enumerate().map(argument).collect();
    format!("{function}({})", arguments.join(", "))
}

fn is_small_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// A Lua string literal.
fn quoted(word: &[u8]) -> String {
    let mut out = String::from("'");
    for &byte in word {
        match byte {
            b'\'' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("\\{other:03}")),
        }
    }
    out.push('\'');
    out
}
