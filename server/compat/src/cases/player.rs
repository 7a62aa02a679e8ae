//! Plays a case on one server: sends its requests, reads the replies, and stops at the first reply
//! that is not the expected one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use sha1::{Digest, Sha1};

use super::case::{Action, Step, expand_keys};
use super::cause;
use super::pattern::{Captures, Pattern};
use super::wrapping::Wrapping;
use crate::wire::frame::{Frame, quoted, show};
use crate::wire::target::Target;
use crate::wire::{Wire, describe, is_end};

/// How long a blocked client must receive nothing.
pub const QUIET: Duration = Duration::from_millis(30);

/// The settings of a conversation.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The protocol version: 2 or 3.
    pub protocol: u8,
    /// The key name for `<name>`.
    pub key: &'a dyn Fn(&str) -> String,
    /// The text of the script of that name.
    pub script: &'a dyn Fn(&str) -> Option<String>,
    /// The wrapping of the commands.
    pub wrapping: Wrapping,
}

/// The result of playing a case.
#[derive(Debug, Default)]
pub struct Performance {
    /// All requests and replies, in the notation of cases.
    pub transcript: Vec<String>,
    /// The replies to compared lines, without the parts that the case leaves open.
    pub masked: Vec<(usize, Frame)>,
    /// The first reply that was not expected, if any.
    pub problem: Option<Problem>,
}

/// A reply that was not expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line of the file.
    pub number: usize,
    /// The request, as the case writes it.
    pub sent: String,
    /// The expected reply.
    pub expected: String,
    /// The reply that was received.
    pub came: String,
    /// The kind of the difference.
    pub cause: String,
    /// The command that the server reports as unknown, if it does.
    pub lacking: Option<String>,
}

/// Plays a case.
pub fn perform(steps: &[Step], setting: Setting<'_>, target: &Target) -> Performance {
    let mut player = CasePlayer {
        setting,
        target,
        connections: BTreeMap::new(),
        protocols: BTreeMap::new(),
        requests: BTreeMap::new(),
        others: BTreeSet::new(),
        wrapped: BTreeSet::new(),
        captures: Captures::new(),
        performance: Performance::default(),
    };
    let selected = setting.wrapping.selected(steps);
    for (step, is_wrapped) in steps.iter().zip(selected) {
        if let Err(problem) = player.play(step, is_wrapped) {
            player.performance.problem = Some(*problem);
            break;
        }
    }
    player.end_patterns();
    player.performance
}

/// Expands `@name` to the text of that script and `@name.sha1` to its digest; `None` for other
/// words.
pub(crate) fn script_named(
    word: &[u8],
    script: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    let Some(name) = word.strip_prefix(b"@") else { return Ok(None) };
    let name = String::from_utf8_lossy(name);
    let (name, digest) = match name.strip_suffix(".sha1") {
        Some(name) => (name, true),
        None => (&*name, false),
    };
    let script = script(name).ok_or_else(|| format!("no script {name}"))?;
    Ok(Some(if digest { sha1_hex(&script).into_bytes() } else { script.into_bytes() }))
}

/// The digest by which Redis names a script.
pub fn sha1_hex(script: &str) -> String {
    Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct CasePlayer<'a> {
    setting: Setting<'a>,
    target: &'a Target,
    connections: BTreeMap<String, Wire>,
    /// The protocol versions of the clients that have changed it with `HELLO` or `RESET`.
    protocols: BTreeMap<String, u8>,
    requests: BTreeMap<String, Requests>,
    /// The clients that have connected in another way than the suite. Those that were refused have
    /// no connection.
    others: BTreeSet<String>,
    /// The clients that sent their last command wrapped.
    wrapped: BTreeSet<String>,
    captures: Captures,
    performance: Performance,
}

/// The requests of a client, as the case writes them and as they were sent: the request of the next
/// reply, and those sent after it. An answered request stays until a reply is read after a
/// later request, since one request may have several replies.
#[derive(Default)]
struct Requests {
    queue: VecDeque<(String, Vec<Vec<u8>>)>,
    is_answered: bool,
}

impl Requests {
    fn add(&mut self, line: &str, words: Vec<Vec<u8>>) {
        self.queue.push_back((line.to_owned(), words));
    }

    /// Moves on to the next request, if there is one: the next reply belongs to it.
    fn advance(&mut self) {
        if self.is_answered && self.queue.len() > 1 {
            self.queue.pop_front();
            self.is_answered = false;
        }
    }

    fn words(&self) -> Option<&Vec<Vec<u8>>> {
        self.queue.front().map(|(_, words)| words)
    }
}

/// A reply where none was expected, the command that it reports as unknown, and the kind of the
/// difference.
type UnexpectedReply = (String, Option<String>, String);

impl CasePlayer<'_> {
    fn play(&mut self, step: &Step, is_wrapped: bool) -> Result<(), Box<Problem>> {
        let problem = |request: &str, expected: &str, came: String, cause: String| {
            let (sent, expected) = (request.to_owned(), expected.to_owned());
            Box::new(Problem { number: step.number, sent, expected, came, cause, lacking: None })
        };
        let line = &step.line;
        match &step.action {
            Action::Send(client, written) => {
                let words: Result<Vec<_>, _> = written.iter().map(|word| self.word(word)).collect();
                let mistake = "a mistake in the case".to_owned();
                let words = words.map_err(|error| problem(line, "a word", error, mistake))?;
                // A script is shown by its name: its text would hide the rest.
                let script = |word: &[u8]| word.starts_with(b"@");
                let pairs = written.iter().zip(&words);
                let shown = pairs.map(|(name, word)| if script(name) { name } else { word });
                self.note(client, '>', &show_words(&shown.cloned().collect::<Vec<_>>()));
                let sent = self.send(client, &words, is_wrapped);
                self.requests.entry(client.clone()).or_default().add(line, words);
                sent.map_err(|error| {
                    let (came, cause) = (describe(&error), cause::of_error(&error));
                    problem(line, "the server takes it", came, cause)
                })
            }
            Action::Raw(client, bytes) => {
                let bytes = expand_keys(bytes, self.setting.key);
                self.note(client, '>', &format!("> {}", quoted(&bytes)));
                self.requests.entry(client.clone()).or_default().add(line, Vec::new());
                // A server may have closed the connection after an error; the case reads its reply.
                let _ = self.client(client).and_then(|wire| wire.send_bytes(&bytes));
                Ok(())
            }
            Action::Expect(_, Some(version), _) if *version != self.setting.protocol => Ok(()),
            Action::Expect(client, _, pattern) => self.read_reply(step, client, pattern),
            Action::Closed(client) => self.closed(client).map_err(|(came, lacking, cause)| {
                let problem = problem(self.asked(client), "the connection is closed", came, cause);
                Box::new(Problem { lacking, ..*problem })
            }),
            Action::Waits(client) => self.waits(client).map_err(|(came, lacking, cause)| {
                let problem = problem(self.asked(client), "nothing: it waits", came, cause);
                Box::new(Problem { lacking, ..*problem })
            }),
            Action::HangUp(client) => {
                self.performance.transcript.push(line.clone());
                self.connections.remove(client);
                self.protocols.remove(client);
                Ok(())
            }
            Action::Connect(client, mode) => {
                self.performance.transcript.push(line.clone());
                self.others.insert(client.clone());
                if let Ok(wire) = self.target.connect_as(*mode) {
                    self.connections.insert(client.clone(), wire);
                }
                Ok(())
            }
            Action::Pass(span) => {
                self.performance.transcript.push(line.clone());
                self.target.timeouts.deadline.sleep(*span);
                Ok(())
            }
        }
    }

    fn read_reply(
        &mut self,
        step: &Step,
        client: &str,
        pattern: &Pattern,
    ) -> Result<(), Box<Problem>> {
        let wrapping = self.wrapping_of(client);
        let pattern = wrapping.expected(self.resolve(pattern), self.setting.protocol);
        let expected = self.resolved_text(&step.line);
        let problem = |sent: &str, came: String, cause, lacking| {
            let (number, sent) = (step.number, sent.to_owned());
            Box::new(Problem { number, sent, expected, came, cause, lacking })
        };
        self.requests.entry(client.to_owned()).or_default().advance();
        let frame = match self.client(client).and_then(|wire| wrapping.read(wire)) {
            Ok(frame) => frame,
            Err(error) => {
                let (came, cause) = (describe(&error), cause::of_error(&error));
                return Err(problem(self.asked(client), came, cause, None));
            }
        };
        self.requests.entry(client.to_owned()).or_default().is_answered = true;
        self.note(client, '<', &frame.notation());
        if let Some(version) = changed_protocol(&frame) {
            self.protocols.insert(client.to_owned(), version);
        }
        let protocol = self.protocols.get(client).copied().unwrap_or(self.setting.protocol);
        if pattern.matches(&frame, protocol, &mut self.captures) {
            let mut masked = frame;
            pattern.mask(&mut masked, protocol);
            self.performance.masked.push((step.number, masked));
            return Ok(());
        }
        // If the case expects such an error, another one does not mean that a command is missing.
        let is_expected = step.line.to_lowercase().contains("unknown");
        let words = self.requests.get(client).and_then(Requests::words).filter(|_| !is_expected);
        let lacking = words.and_then(|words| lacking(&frame, words));
        self.performance.masked.push((step.number, frame.clone()));
        let cause = cause::of_reply(&pattern, &frame, protocol, self.asked(client));
        Err(problem(self.asked(client), frame.notation(), cause, lacking))
    }

    fn send(&mut self, client: &str, words: &[Vec<u8>], is_wrapped: bool) -> io::Result<()> {
        let Setting { wrapping, protocol, .. } = self.setting;
        if is_wrapped {
            self.wrapped.insert(client.to_owned());
            self.client(client)?.send_bytes(&wrapping.request(words, protocol))
        } else {
            self.wrapped.remove(client);
            self.client(client)?.send(words)
        }
    }

    /// The wrapping of a client's last command.
    fn wrapping_of(&self, client: &str) -> Wrapping {
        if self.wrapped.contains(client) { self.setting.wrapping } else { Wrapping::None }
    }

    /// Ends the connections with subscriptions to patterns and waits until the server has closed
    /// them: it counts the patterns of all clients, and the next case may read the count.
    fn end_patterns(&mut self) {
        let lines = self.performance.transcript.iter();
        let subscribers = lines.filter_map(|line| Some(line.split_once("> PSUBSCRIBE")?.0));
        let subscribers: BTreeSet<&str> = subscribers.collect();
        for client in subscribers {
            let Some(wire) = self.connections.get_mut(client) else { continue };
            if wire.send(&["QUIT"]).is_ok() {
                while wire.read().is_ok() {}
            }
        }
    }

    fn closed(&mut self, client: &str) -> Result<(), UnexpectedReply> {
        self.requests.entry(client.to_owned()).or_default().advance();
        let read = match self.others.contains(client) {
            true => self.connections.get_mut(client).map_or(Ok(()), Wire::read_refusal),
            false => match self.client(client).and_then(Wire::read) {
                Ok(frame) => {
                    let cause = "a reply where Redis closes the connection";
                    return Err(self.unexpected(client, &frame, cause));
                }
                Err(error) if is_end(&error) => Ok(()),
                Err(error) => Err(error),
            },
        };
        read.map_err(|error| (describe(&error), None, cause::of_error(&error)))?;
        self.performance.transcript.push(format!("{client}< closed"));
        Ok(())
    }

    fn waits(&mut self, client: &str) -> Result<(), UnexpectedReply> {
        self.requests.entry(client.to_owned()).or_default().advance();
        let lost = |error: io::Error| (describe(&error), None, cause::of_error(&error));
        let wire = self.client(client).map_err(lost)?;
        match wire.read_within(QUIET).map_err(lost)? {
            Some(frame) => {
                Err(self.unexpected(client, &frame, "a reply where Redis keeps the client waiting"))
            }
            None => {
                self.performance.transcript.push(format!("{client} waits"));
                Ok(())
            }
        }
    }

    /// A reply where none was expected.
    fn unexpected(&mut self, client: &str, frame: &Frame, cause: &str) -> UnexpectedReply {
        self.note(client, '<', &frame.notation());
        let words = self.requests.get(client).and_then(Requests::words);
        let lacking = words.and_then(|words| lacking(frame, words));
        (frame.notation(), lacking, cause.to_owned())
    }

    fn client(&mut self, name: &str) -> io::Result<&mut Wire> {
        if !self.connections.contains_key(name) {
            let wire = self.target.connect(self.setting.protocol)?;
            self.connections.insert(name.to_owned(), wire);
        }
        self.connections.get_mut(name).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The request of the reply that the client reads.
    fn asked(&self, client: &str) -> &str {
        let requests = self.requests.get(client).and_then(|requests| requests.queue.front());
        requests.map_or("(nothing yet)", |(line, _)| line)
    }

    fn note(&mut self, client: &str, sign: char, text: &str) {
        self.performance.transcript.push(format!("{client}{sign} {text}"));
    }

    /// The bytes to send for a word of the case.
    fn word(&self, word: &[u8]) -> Result<Vec<u8>, String> {
        if let Some(name) = word.strip_prefix(b"$") {
            let name = String::from_utf8_lossy(name);
            if let Some(value) = self.captures.get(&*name) {
                return Ok(value.clone());
            }
        }
        let named = script_named(word, self.setting.script)?;
        Ok(named.unwrap_or_else(|| expand_keys(word, self.setting.key)))
    }

    /// The pattern with key names and script digests expanded.
    fn resolve(&self, pattern: &Pattern) -> Pattern {
        let text = |text: &str| {
            String::from_utf8_lossy(&expand_keys(text.as_bytes(), self.setting.key)).into_owned()
        };
        let all = |items: &[Pattern]| items.iter().map(|item| self.resolve(item)).collect();
        match pattern {
            Pattern::Line(kind, line) => Pattern::Line(*kind, text(line)),
            Pattern::ErrorPrefix(line) => Pattern::ErrorPrefix(text(line)),
            // A bulk string that names no script stays unchanged.
            Pattern::Bulk(bytes) => Pattern::Bulk(match bytes.strip_suffix(b".sha1") {
                Some(_) => self.word(bytes).unwrap_or_else(|_| bytes.clone()),
                None => expand_keys(bytes, self.setting.key),
            }),
            Pattern::Has(texts) => {
                let expand = |text: &Vec<u8>| expand_keys(text, self.setting.key);
                Pattern::Has(texts.iter().map(expand).collect())
            }
            Pattern::Aggregate { kind, items, open, unordered } => Pattern::Aggregate {
                kind: *kind,
                items: all(items),
                open: *open,
                unordered: *unordered,
            },
            Pattern::Either(patterns) => Pattern::Either(all(patterns)),
            other => other.clone(),
        }
    }

    fn resolved_text(&self, line: &str) -> String {
        // Without the protocol version of `a<2`.
        let text = line.split_once('<').map_or(line, |(_, text)| text);
        let text = text.trim_start_matches(['2', '3']).trim();
        String::from_utf8_lossy(&expand_keys(text.as_bytes(), self.setting.key)).into_owned()
    }
}

/// The protocol version after this reply: the one in the reply to `HELLO`, 2 after `RESET`.
fn changed_protocol(frame: &Frame) -> Option<u8> {
    if frame.kind == b'+' && frame.text == b"RESET" {
        return Some(2);
    }
    let named = frame.items.chunks(2).find(|pair| pair[0].text == b"proto")?;
    match named.get(1)?.text.as_slice() {
        b"2" => Some(2),
        b"3" => Some(3),
        _ => None,
    }
}

/// The command that an error reports as unknown, if it is the one that was sent.
pub(crate) fn lacking(frame: &Frame, words: &[Vec<u8>]) -> Option<String> {
    let text = String::from_utf8_lossy(&frame.text).to_lowercase();
    let name = |at: usize| words.get(at).map(|it| String::from_utf8_lossy(it).to_uppercase());
    let unknown = ["unknown", "not supported", "unsupported"].iter().any(|it| text.contains(it));
    if frame.kind != b'-' || !unknown {
        return None;
    }
    // The error of a script is about a command in it, unless it names the command that was sent.
    let first = name(0)?;
    let runs_scripts = first.starts_with("EVAL") || first.starts_with("FCALL");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut mentioned = text.as_bytes().split(|&byte| !is_word(byte));
    if runs_scripts && !mentioned.any(|word| word.eq_ignore_ascii_case(first.as_bytes())) {
        return None;
    }
    if text.contains("subcommand") {
        return Some(format!("{first} {}", name(1)?));
    }
    let is_about_command = text.contains("command") || text.contains("operation");
    is_about_command.then_some(first)
}

fn show_words(words: &[Vec<u8>]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &Vec<u8>| {
        let is_plain = !word.is_empty() && word.iter().all(plain);
        if is_plain { show(word) } else { quoted(word) }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Requests, changed_protocol};
    use crate::wire::frame::Frame;

    #[test]
    fn reply_belongs_to_oldest_request() {
        let mut requests = Requests::default();
        let read_reply = |requests: &mut Requests, expected: &str| {
            requests.advance();
            requests.is_answered = true;
            assert_eq!(requests.queue.front().map(|(line, _)| &**line), Some(expected));
        };
        requests.add("one", Vec::new());
        requests.add("two", Vec::new());
        read_reply(&mut requests, "one");
        read_reply(&mut requests, "two");
        read_reply(&mut requests, "two");
        requests.add("three", Vec::new());
        read_reply(&mut requests, "three");
    }

    #[test]
    fn hello_and_reset_change_the_protocol() {
        let check = |bytes: &[u8], expected: Option<u8>| {
            let frame = Frame::whole(bytes).expect("one reply");
            assert_eq!(changed_protocol(&frame), expected, "{}", bytes.escape_ascii());
        };
        check(b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n", Some(3));
        check(b"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n", Some(2));
        check(b"+RESET\r\n", Some(2));
        check(b"-NOPROTO unsupported protocol version\r\n", None);
        check(b"*3\r\n+a\r\n+b\r\n+proto\r\n", None);
    }
}
