//! Cases: conversations of several clients with a server, in a text format.
//!
//! ```text
//! family: Strings
//! why: Locks are made of these commands.
//!
//! == SET NX refuses an existing key
//! why: Two holders would each believe that they hold the lock.
//! # Two clients want one lock.
//! a> SET <lock> token-a NX PX 30000
//! a< +OK
//! b> SET <lock> token-b NX PX 30000
//! b< nil
//! b> PTTL <lock>
//! b< :29000..30000
//! ```
//!
//! A file begins with the attributes of all its cases; a case begins with `==` and its name, and
//! its own attributes:
//!
//! | Line | Meaning |
//! |---|---|
//! | `family: words` | the subject of the case, a row of the table |
//! | `client: words` | the client library that uses it |
//! | `why: words` | why it matters to a lock |
//! | `needs: redis 7.2` | a server that reports this version or later; also `valkey`, `lockwheel` |
//! | `needs: database` | a database that no other program uses |
//! | `needs: flush` | the permission to flush scripts and functions, which all databases share |
//! | `needs: tls` | connections with TLS |
//! | `needs: certificate` | a certificate of the suite that the server checks |
//! | `alone: yes` | played alone, since it pauses or counts all clients |
//! | `protocol: 2` | played only in that version of the protocol |
//! | `wrappable: no` | not inside `MULTI` or a script: see [`Wrapping`] |
//!
//! Then the conversation:
//!
//! | Line | Meaning |
//! |---|---|
//! | `a> words` | client `a` sends a command; it connects before its first command |
//! | `a>> "bytes"` | client `a` sends raw bytes |
//! | `a< reply` | the next thing client `a` receives: see [`Pattern`] |
//! | `a> words => reply` | both: a command and the next thing received |
//! | `a<2 reply`, `a<3 reply` | the same, but only when the case is played in that version |
//! | `a< closed` | the server closes the connection |
//! | `a waits` | client `a` is blocked: nothing comes for a while |
//! | `a!` | client `a` closes its connection |
//! | `a connects without TLS` | client `a` connects to the port for TLS without TLS |
//! | `a connects without a certificate` | client `a` connects with TLS, but has no certificate |
//! | `+5ms`, `+1s` | time passes |
//! | `# words` | a comment |
//!
//! A case is played in RESP2 and RESP3. After the reply to `HELLO` or `RESET`, the replies of the
//! client are matched in its new version.
//!
//! Words are quoted as in `redis-cli`. `<lock>` is a key or channel of the case, in words and in
//! replies. `$name` in words is a value that was captured from a reply. `@name` is
//! the text of that script, `@name.sha1` its digest.
//!
//! [`Wrapping`]: super::wrapping::Wrapping

use std::time::Duration;

use super::pattern::Pattern;
use crate::wire::address::TlsMode;
use crate::wire::target::Need;
use crate::{time, words};

/// A conversation and its attributes.
#[derive(Clone, Debug)]
pub struct Case {
    /// The behaviour that is checked, as a sentence.
    pub name: String,
    /// The subject.
    pub family: String,
    /// The client library that uses it.
    pub client: Option<String>,
    /// Why it matters to a lock.
    pub why: String,
    /// The requirements on the server.
    pub needs: Vec<Need>,
    /// Whether it must be played alone.
    pub alone: bool,
    /// The only protocol version, if not both.
    pub protocol: Option<u8>,
    /// Whether its commands may be sent inside `MULTI` or a script.
    pub wrappable: bool,
    /// The lines of the conversation.
    pub steps: Vec<Step>,
    /// The file of the case.
    pub file: String,
}

/// A line of a conversation.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number in the file, from 1.
    pub number: usize,
    /// The text of the line.
    pub line: String,
    /// The action of the line.
    pub action: Action,
}

/// The action of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A client sends a command.
    Send(String, Vec<Vec<u8>>),
    /// A client sends bytes.
    Raw(String, Vec<u8>),
    /// A client receives a reply, in one protocol version or in both.
    Expect(String, Option<u8>, Pattern),
    /// The server closes a client's connection.
    Closed(String),
    /// A client receives nothing.
    Waits(String),
    /// A client closes its connection.
    HangUp(String),
    /// A client connects to the port for TLS in another way than the suite.
    Connect(String, TlsMode),
    /// Time passes.
    Pass(Duration),
}

/// A mistake in a file of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub number: usize,
    /// The description of the mistake.
    pub problem: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.number, self.problem)
    }
}

impl std::error::Error for Mistake {}

impl Case {
    /// Reads a file of cases.
    pub fn parse_all(file: &str, text: &str) -> Result<Vec<Case>, Mistake> {
        let mut common = Case::empty(file);
        let mut cases: Vec<Case> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mistake =
                |problem: String| Mistake { file: file.to_owned(), number: index + 1, problem };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix("==") {
                cases.push(Case { name: name.trim().to_owned(), ..common.clone() });
                continue;
            }
            let case = cases.last_mut().unwrap_or(&mut common);
            if case.steps.is_empty() && case.attribute(line).map_err(mistake)? {
                continue;
            }
            let (line, reply) = split_reply(line);
            for line in [Some(line), reply].into_iter().flatten() {
                let action = Action::parse(&line).map_err(mistake)?;
                case.steps.push(Step { number: index + 1, line, action });
            }
        }
        if let Some(step) = common.steps.first() {
            let problem = "a conversation without a case: `== its name`".to_owned();
            return Err(Mistake { file: file.to_owned(), number: step.number, problem });
        }
        Ok(cases)
    }

    /// Reads a conversation that is no case of a file: a test's own.
    pub fn parse_steps(text: &str) -> Result<Vec<Step>, Mistake> {
        let whole = format!("== \n{text}");
        let mistake = |mistake: Mistake| Mistake { number: mistake.number - 1, ..mistake };
        let mut cases = Case::parse_all("conversation", &whole).map_err(mistake)?;
        let mut steps = cases.pop().map_or(Vec::new(), |case| case.steps);
        steps.iter_mut().for_each(|step| step.number -= 1);
        Ok(steps)
    }

    fn empty(file: &str) -> Case {
        Case {
            name: String::new(),
            family: String::new(),
            client: None,
            why: String::new(),
            needs: Vec::new(),
            alone: false,
            protocol: None,
            wrappable: true,
            steps: Vec::new(),
            file: file.to_owned(),
        }
    }

    /// Takes in a line before the conversation; false if it is none of these.
    fn attribute(&mut self, line: &str) -> Result<bool, String> {
        let Some((name, value)) = line.split_once(": ") else { return Ok(false) };
        let value = value.trim().to_owned();
        match name {
            "family" => self.family = value,
            "client" => self.client = Some(value),
            "why" => self.why = value,
            "needs" => self.needs.push(Need::parse(&value)?),
            "alone" => self.alone = value == "yes",
            "wrappable" => self.wrappable = value == "yes",
            "protocol" => {
                let version = value.parse().ok().filter(|version| matches!(version, 2 | 3));
                self.protocol = Some(version.ok_or_else(|| format!("no protocol: {value}"))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Action {
    fn parse(line: &str) -> Result<Action, String> {
        if let Some(span) = line.strip_prefix('+') {
            return Ok(Action::Pass(time::parse_span(span)?));
        }
        let is_name = |character: char| character.is_alphanumeric() || "@-_".contains(character);
        let end = line.find(|character| !is_name(character)).unwrap_or(line.len());
        let (name, rest) = (line[..end].to_owned(), &line[end..]);
        if name.is_empty() {
            return Err("neither a remark, nor a request, nor a reply".to_owned());
        }
        if let Some(bytes) = rest.strip_prefix(">>") {
            return Ok(Action::Raw(name, words::split(bytes)?.concat()));
        }
        if let Some(text) = rest.strip_prefix('>') {
            return Ok(Action::Send(name, words::split(text)?));
        }
        if let Some(text) = rest.strip_prefix('<') {
            let (protocol, text) = match text.as_bytes().first() {
                Some(b'2') => (Some(2), &text[1..]),
                Some(b'3') => (Some(3), &text[1..]),
                _ => (None, text),
            };
            return match text.trim() {
                "closed" => Ok(Action::Closed(name)),
                text => Ok(Action::Expect(name, protocol, Pattern::parse(text)?)),
            };
        }
        match rest.trim() {
            "waits" => Ok(Action::Waits(name)),
            "!" => Ok(Action::HangUp(name)),
            "connects without TLS" => Ok(Action::Connect(name, TlsMode::Plain)),
            "connects without a certificate" => Ok(Action::Connect(name, TlsMode::Anonymous)),
            _ => Err("neither a remark, nor a request, nor a reply".to_owned()),
        }
    }
}

/// Takes `a> words => reply` apart into `a> words` and `a< reply`.
fn split_reply(line: &str) -> (String, Option<String>) {
    let name = line.split_once("> ").map(|(name, _)| name).filter(|name| !name.contains(' '));
    let mut arrows = line.match_indices(" => ");
    let arrow = arrows.find(|(at, _)| words::split(&line[..*at]).is_ok());
    match (name, arrow) {
        (Some(name), Some((at, arrow))) => {
            (line[..at].to_owned(), Some(format!("{name}< {}", &line[at + arrow.len()..])))
        }
        _ => (line.to_owned(), None),
    }
}

/// Replaces every `<name>` in `text` by what `key` makes of the name.
pub(crate) fn expand_keys(text: &[u8], key: &dyn Fn(&str) -> String) -> Vec<u8> {
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.iter().position(|&byte| byte == b'<') {
        let (before, after) = (&rest[..open], &rest[open + 1..]);
        out.extend_from_slice(before);
        let length = after.iter().position(|byte| !is_name(byte)).unwrap_or(after.len());
        let starts_well = after.first().is_some_and(u8::is_ascii_lowercase);
        if starts_well && after.get(length) == Some(&b'>') {
            out.extend(key(&String::from_utf8_lossy(&after[..length])).into_bytes());
            rest = &after[length + 1..];
        } else {
            out.push(b'<');
            rest = after;
        }
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{Action, Case, expand_keys};
    use crate::wire::target::Need;

    #[test]
    fn cases_are_parsed_with_all_attributes() {
        let text = "family: Strings\nwhy: all\n\n== one\nwhy: own\nneeds: redis 7.2\n\
                    alone: yes\na> SET <k> v\na<3 +OK\na waits\n+5ms\na!\n\
                    == two\na>> \"PING\\r\\n\"\na< closed\n\
                    == three\na> GET \" => \" => nil\n";
        let cases = Case::parse_all("f", text).expect("it is well-formed");
        let [one, two, three] = &cases[..] else { panic!("three cases") };
        assert_eq!((&*one.name, &*one.family, &*one.why), ("one", "Strings", "own"));
        assert_eq!((&one.needs[..], one.alone), (&[Need::Redis(7, 2)][..], true));
        assert_eq!((&*two.why, two.alone, two.needs.len()), ("all", false, 0));
        assert_eq!((one.steps.len(), one.steps[0].number), (5, 8));
        assert_eq!(two.steps[1].action, Action::Closed("a".to_owned()));
        let lines = three.steps.iter().map(|step| (step.number, &*step.line));
        assert!(lines.eq([(17, "a> GET \" => \""), (17, "a< nil")]));
    }

    #[test]
    fn parse_errors_name_the_line() {
        let check = |text: &str, expected: &str| {
            let mistake = Case::parse_all("f", text).expect_err("a mistake");
            assert_eq!(mistake.to_string(), expected);
        };
        check("a> PING\n", "f:1: a conversation without a case: `== its name`");
        check("== x\na> \"\n", "f:2: open quote: ");
        check("== x\nneeds: luck\n", "f:2: nothing that can be needed: luck");
        check("== x\na< OK\n", "f:2: not a reply: OK");
        check("== x\n?\n", "f:2: neither a remark, nor a request, nor a reply");
    }

    #[test]
    fn key_names_are_expanded() {
        let expand = |text: &str| {
            let expanded = expand_keys(text.as_bytes(), &|name| format!("p:{name}"));
            String::from_utf8(expanded).expect("text")
        };
        assert_eq!(expand("x:{<lock>}:<b-2>"), "x:{p:lock}:p:b-2");
        assert_eq!(expand("if a < b and c > d <="), "if a < b and c > d <=");
    }
}
