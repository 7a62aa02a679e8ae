//! A host with the commands that the tests need, and a short notation of replies.

#![allow(dead_code, unreachable_pub)]

mod limits;

use std::collections::BTreeMap;

use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{
    CommandId, Host, Interpreter, Interrupt, Limits, LogLevel, MathRandom, Sha,
};

pub use self::limits::LIMITS;

/// Strings and hashes in a map; time does not pass.
#[derive(Default)]
pub struct MapHost {
    pub strings: BTreeMap<Vec<u8>, Vec<u8>>,
    pub hashes: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub calls: Vec<String>,
    pub logged: Vec<(LogLevel, Vec<u8>)>,
    pub protocol: Protocol,
    /// Number of polls after which the script is killed.
    pub polls_max: Option<u32>,
    pub polls: u32,
}

impl Host for MapHost {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let words: Vec<_> = argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
        self.calls.push(words.join(" "));
        let name = String::from_utf8_lossy(argv[0]).to_lowercase();
        match (name.as_str(), &argv[1..]) {
            ("get", [key]) => self.strings.get(*key).map_or(Reply::Null, Reply::bulk),
            ("set", [key, value, ..]) => {
                self.strings.insert(key.to_vec(), value.to_vec());
                Reply::OK
            }
            ("del", keys) => {
                let gone = |key: &&&[u8]| {
                    self.strings.remove(**key).is_some() || self.hashes.remove(**key).is_some()
                };
                Reply::from(keys.iter().filter(gone).count())
            }
            ("exists", [key]) => {
                Reply::from(self.strings.contains_key(*key) || self.hashes.contains_key(*key))
            }
            ("incr", [key]) => {
                let value = self.strings.entry(key.to_vec()).or_default();
                add(value, 1)
            }
            ("hset", [key, field, value]) => {
                let hash = self.hashes.entry(key.to_vec()).or_default();
                Reply::from(hash.insert(field.to_vec(), value.to_vec()).is_none())
            }
            ("hexists", [key, field]) => {
                let hash = self.hashes.get(*key);
                Reply::from(hash.is_some_and(|hash| hash.contains_key(*field)))
            }
            ("hincrby", [key, field, by]) => {
                let hash = self.hashes.entry(key.to_vec()).or_default();
                let by = String::from_utf8_lossy(by).parse().unwrap_or(0);
                add(hash.entry(field.to_vec()).or_default(), by)
            }
            ("hgetall", [key]) => {
                let hash = self.hashes.get(*key).into_iter().flatten();
                Reply::Map(hash.map(|(f, v)| (Reply::bulk(f), Reply::bulk(v))).collect())
            }
            ("pexpire", [_, _]) => Reply::Integer(1),
            ("pttl", [key]) => match self.exists(key) {
                true => Reply::Integer(30_000),
                false => Reply::Integer(-2),
            },
            ("publish", _) => Reply::Integer(1),
            ("echo", words) => Reply::Array(vec![Reply::from(words.len())]),
            ("reply", [kind]) => reply_of_kind(kind),
            ("panic", _) => panic!("as asked"),
            _ => Reply::error("ERR Unknown Redis command called from script"),
        }
    }

    fn command(&mut self, name: &[u8], _: usize) -> Option<CommandId> {
        ["get", "set", "echo"]
            .iter()
            .position(|known| known.as_bytes() == name)
            .map(|at| CommandId(at as u32))
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.logged.push((level, message.to_vec()));
    }

    fn interrupt(&mut self) -> Interrupt {
        self.polls += 1;
        match self.polls_max {
            Some(polls_max) if self.polls > polls_max => Interrupt::Kill,
            _ => Interrupt::Continue,
        }
    }
}

impl MapHost {
    fn exists(&self, key: &[u8]) -> bool {
        self.strings.contains_key(key) || self.hashes.contains_key(key)
    }
}

/// Replies that the other commands do not give.
fn reply_of_kind(kind: &[u8]) -> Reply {
    /// An integer that is not exact in a double.
    const LARGE: Reply = Reply::Integer(9_007_199_254_740_993);
    match kind {
        b"null array" => Reply::NullArray,
        b"boolean" => Reply::Boolean(true),
        b"double" => Reply::Double(1.5),
        b"large" => LARGE,
        b"nested" => Reply::Array(vec![
            LARGE,
            Reply::NullArray,
            Reply::Simple("a\nb".into()),
            Reply::Array(vec![Reply::Null, Reply::Set(vec![Reply::bulk("c")])]),
        ]),
        _ => Reply::Null,
    }
}

fn add(value: &mut Vec<u8>, by: i64) -> Reply {
    let sum = String::from_utf8_lossy(value).parse().unwrap_or(0_i64) + by;
    *value = sum.to_string().into_bytes();
    Reply::Integer(sum)
}

/// An interpreter with the limits of the tests.
pub fn interpreter() -> Interpreter {
    Interpreter::new(LIMITS, "7.2.4", MathRandom::new(0)).expect("memory for Lua")
}

/// Runs a script in a fresh interpreter.
pub fn eval(host: &mut MapHost, script: &str) -> Reply {
    eval_in(&mut interpreter(), host, script)
}

/// Runs a script as `EVAL script 0`.
pub fn eval_in(lua: &mut Interpreter, host: &mut MapHost, script: &str) -> Reply {
    // Each char is a byte, so that the tables of cases can hold any byte.
    let body: Vec<u8> = script.chars().map(|c| c as u8).collect();
    match lua.load(&body) {
        Ok(sha) => {
            let reply = lua.run(sha.as_bytes(), &[], &[], host);
            match reply {
                Reply::Error(line) => {
                    let line =
                        String::from_utf8_lossy(&line).replace(Sha::of(&body).as_str(), "SHA");
                    Reply::error(line)
                }
                other => other,
            }
        }
        Err(refusal) => refusal,
    }
}

/// A reply in short notation.
pub fn show(reply: &Reply) -> String {
    let text =
        |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"");
    let list = |items: &[Reply]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(line) => format!("+{}", text(line)),
        Reply::Error(line) => format!("-{}", text(line)),
        Reply::Integer(n) => format!(":{n}"),
        Reply::Bulk(bytes) => format!("'{}'", text(bytes)),
        Reply::Null => "null".to_owned(),
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| format!("{}: {}", show(key), show(value));
            format!("%{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Reply::Double(number) => format!(",{number}"),
        Reply::Boolean(value) => format!("#{}", if *value { 't' } else { 'f' }),
        Reply::BigNumber(digits) => format!("({}", text(digits)),
        Reply::Verbatim { format, text: body } => {
            format!("={}:'{}'", text(format), text(body))
        }
        other => format!("{other:?}"),
    }
}
