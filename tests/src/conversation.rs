//! Conversations: what several clients say and hear, written as text, held on every target in
//! RESP2 and in RESP3. Every byte that is not a range must be exactly as written.
//!
//! ```text
//! # Two clients want one lock.
//! a> SET lock token-a NX PX 30000
//! a< +OK
//! b> SET lock token-b NX PX 30000
//! b< nil
//! b> PTTL lock
//! b< :29000..30000
//! +30s
//! b> SET lock token-b NX PX 30000
//! b< +OK
//! ```
//!
//! | Line | Meaning |
//! |---|---|
//! | `a> words` | client `a` sends a command; it connects when it first speaks |
//! | `a@2> words` | the same client's connection to the second of several servers |
//! | `a< reply` | the next thing client `a` receives |
//! | `a!` | client `a` dies: its connection closes |
//! | `+30s`, `+5ms` | time passes on every server |
//! | `# words` | a remark |
//!
//! Words are quoted as in `redis-cli`; `@name` stands for the script of that name, `@name.sha1`
//! for its digest. Replies are `+OK`, `-ERR text`, `:7`, `:1..9` (a range), `"bulk"`, `nil`,
//! `nil-array`, `[a, b]`, `{key: value}` (flat in RESP2), `push [a, b]` (an array in RESP2).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use sha1::{Digest, Sha1};

use crate::PROTOCOLS;
use crate::frame::show;
use crate::target::Target;
use crate::wire::Wire;
use crate::words;

/// A text and the scripts it names.
#[derive(Clone, Copy)]
pub struct Conversation<'a> {
    /// The lines: see the module's documentation.
    pub text: &'a str,
    /// Names and Lua texts.
    pub scripts: &'a [(&'a str, &'a str)],
    /// How many servers take part.
    pub servers: usize,
}

/// Holds a conversation without scripts, on one server of each kind.
pub fn converse(text: &str) {
    converse_with(&[], text);
}

/// Holds a conversation that names scripts, on one server of each kind.
pub fn converse_with(scripts: &[(&str, &str)], text: &str) {
    Conversation { text, scripts, servers: 1 }.hold();
}

impl Conversation<'_> {
    /// Holds it everywhere: on every target, in every protocol version, each time afresh.
    pub fn hold(&self) {
        for start in [|| Some(Target::leasehold()), Target::redis] {
            let targets: Vec<_> = (0..self.servers).map_while(|_| start()).collect();
            if targets.len() == self.servers {
                self.hold_among(&targets);
            }
        }
    }

    fn hold_among(&self, targets: &[Target]) {
        for protocol in PROTOCOLS {
            for target in targets {
                target.run("FLUSHALL");
                target.run("SCRIPT FLUSH");
            }
            let cast = BTreeMap::new();
            let mut stage = Stage { conversation: self, targets, protocol, cast };
            for (index, line) in self.text.lines().enumerate() {
                let line = line.trim();
                if let Err(problem) = stage.play(line) {
                    let place = format!("{} RESP{protocol}", targets[0].name());
                    panic!("{place}, line {}: {line}\n{problem}", index + 1);
                }
            }
        }
    }

    fn arguments(&self, text: &str) -> Vec<Vec<u8>> {
        words::split(text).into_iter().map(|word| self.resolve(word)).collect()
    }

    fn resolve(&self, word: Vec<u8>) -> Vec<u8> {
        let Some(name) = word.strip_prefix(b"@") else { return word };
        let (name, digest) = match name.strip_suffix(b".sha1") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let found = self.scripts.iter().find(|(known, _)| known.as_bytes() == name);
        let (_, script) = found.unwrap_or_else(|| panic!("no script named {}", show(name)));
        if digest { sha1_hex(script).into_bytes() } else { script.as_bytes().to_vec() }
    }
}

/// The name Redis knows a script by.
pub fn sha1_hex(script: &str) -> String {
    Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One performance: its servers, and the clients that spoke so far.
struct Stage<'a> {
    conversation: &'a Conversation<'a>,
    targets: &'a [Target],
    protocol: u8,
    cast: BTreeMap<&'a str, Wire>,
}

impl<'a> Stage<'a> {
    fn play(&mut self, line: &'a str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(span) = line.strip_prefix('+') {
            let span = duration(span);
            self.targets.iter().for_each(|target| target.advance(span));
            return Ok(());
        }
        let end = line.find(['>', '<', '!']).ok_or("neither a remark, nor said, nor heard")?;
        let (name, text) = (&line[..end], line[end + 1..].trim());
        match line.as_bytes()[end] {
            b'>' => {
                let arguments = self.conversation.arguments(text);
                self.client(name).send(&arguments);
            }
            b'<' => {
                let expected = Pattern::parse(text, self.protocol);
                let heard = self.client(name).try_read().map_err(|error| error.to_string())?;
                if !expected.matches(&heard) {
                    return Err(format!("heard {}", show(&heard)));
                }
            }
            _ => drop(self.cast.remove(name)),
        }
        Ok(())
    }

    fn client(&mut self, name: &'a str) -> &mut Wire {
        let (targets, protocol) = (self.targets, self.protocol);
        self.cast.entry(name).or_insert_with(|| {
            let number = name.split_once('@').map_or(1, |(_, number)| number.parse().expect(name));
            targets[number - 1_usize].connect(protocol)
        })
    }
}

fn duration(text: &str) -> Duration {
    let parse = |digits: &str| digits.parse().unwrap_or_else(|_| panic!("a time span: {text}"));
    match text.strip_suffix("ms") {
        Some(digits) => Duration::from_millis(parse(digits)),
        None => Duration::from_secs(parse(text.strip_suffix('s').unwrap_or(text))),
    }
}

/// The bytes a reply must have, with room where a range was written.
#[derive(Default)]
struct Pattern(Vec<Piece>);

enum Piece {
    Exactly(Vec<u8>),
    IntegerIn(RangeInclusive<i64>),
}

impl Pattern {
    fn parse(text: &str, protocol: u8) -> Pattern {
        let mut pattern = Pattern::default();
        let rest = pattern.value(text, protocol);
        assert!(rest.trim().is_empty(), "not understood: {rest}");
        pattern
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        let rest = self.0.iter().try_fold(bytes, |bytes, piece| match piece {
            Piece::Exactly(expected) => bytes.strip_prefix(expected.as_slice()),
            Piece::IntegerIn(range) => {
                let line = bytes.strip_prefix(b":")?;
                let end = line.windows(2).position(|pair| pair == b"\r\n")?;
                let number = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
                range.contains(&number).then_some(&line[end + 2..])
            }
        });
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// Reads one value off `text`; returns what follows it.
    fn value<'t>(&mut self, text: &'t str, protocol: u8) -> &'t str {
        let text = text.trim_start();
        let Some(first) = text.chars().next() else { panic!("a reply is missing") };
        match first {
            '"' => {
                let (word, rest) = words::double_quoted(&text[1..]);
                self.exactly(format!("${}\r\n", word.len()).as_bytes());
                self.exactly(&word);
                self.exactly(b"\r\n");
                rest
            }
            '[' => self.items(&text[1..], b'*', protocol),
            '{' => self.items(&text[1..], if protocol == 2 { b'*' } else { b'%' }, protocol),
            'p' if text.starts_with("push [") => {
                self.items(&text[6..], if protocol == 2 { b'*' } else { b'>' }, protocol)
            }
            _ => {
                let error_or_status = matches!(first, '+' | '-');
                let end = if error_or_status { None } else { text.find([',', ']', '}', ' ']) };
                let (word, rest) = text.split_at(end.unwrap_or(text.len()));
                self.word(word, protocol);
                rest
            }
        }
    }

    fn items<'t>(&mut self, text: &'t str, kind: u8, protocol: u8) -> &'t str {
        let mut inner = Pattern::default();
        let mut count = 0;
        let mut rest = text.trim_start();
        while !rest.starts_with([']', '}']) {
            rest = inner.value(rest, protocol).trim_start();
            rest = rest.trim_start_matches([',', ':']).trim_start();
            count += 1;
        }
        let count = if kind == b'%' { count / 2 } else { count };
        self.exactly(format!("{}{count}\r\n", char::from(kind)).as_bytes());
        self.0.append(&mut inner.0);
        &rest[1..]
    }

    fn word(&mut self, word: &str, protocol: u8) {
        if let Some((low, high)) = word.strip_prefix(':').and_then(|range| range.split_once("..")) {
            let bound = |text: &str| text.parse().unwrap_or_else(|_| panic!("a range: {word}"));
            self.0.push(Piece::IntegerIn(bound(low)..=bound(high)));
            return;
        }
        let line = match (word, protocol) {
            ("nil" | "nil-array", 3) => "_",
            ("nil", _) => "$-1",
            ("nil-array", _) => "*-1",
            _ => word,
        };
        assert!(line.starts_with(['+', '-', ':', '$', '*', '_']), "not a reply: {word}");
        self.exactly(format!("{line}\r\n").as_bytes());
    }

    fn exactly(&mut self, bytes: &[u8]) {
        self.0.push(Piece::Exactly(bytes.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_pattern_accepts_what_it_says_and_nothing_else() {
        let check = |text: &str, protocol: u8, bytes: &[u8], expected: bool| {
            let matches = Pattern::parse(text, protocol).matches(bytes);
            assert_eq!(matches, expected, "{text} RESP{protocol} {}", bytes.escape_ascii());
        };
        check("+OK", 2, b"+OK\r\n", true);
        check("+OK", 2, b"+OK\r\n+OK\r\n", false);
        check("-ERR a, b", 2, b"-ERR a, b\r\n", true);
        check("nil", 2, b"$-1\r\n", true);
        check("nil", 2, b"*-1\r\n", false);
        check("nil", 3, b"_\r\n", true);
        check("nil-array", 2, b"*-1\r\n", true);
        check(":5..7", 2, b":7\r\n", true);
        check(":5..7", 2, b":8\r\n", false);
        check(":5..7", 2, b"$1\r\n7\r\n", false);
        check(r#"[:1, "a b", nil]"#, 2, b"*3\r\n:1\r\n$3\r\na b\r\n$-1\r\n", true);
        check("[]", 2, b"*0\r\n", true);
        check(r#"{"f": "1"}"#, 2, b"*2\r\n$1\r\nf\r\n$1\r\n1\r\n", true);
        check(r#"{"f": "1"}"#, 3, b"%1\r\n$1\r\nf\r\n$1\r\n1\r\n", true);
        check(r#"push ["c", :1]"#, 2, b"*2\r\n$1\r\nc\r\n:1\r\n", true);
        check(r#"push ["c", :1]"#, 3, b">2\r\n$1\r\nc\r\n:1\r\n", true);
    }
}
