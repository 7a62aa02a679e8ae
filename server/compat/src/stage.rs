//! Plays a case on one server: says what it says, hears what it hears, and stops where something
//! else comes than was expected.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use sha1::{Digest, Sha1};

use super::case::{Action, Step, expand_keys};
use super::frame::{Frame, quoted, show};
use super::pattern::{Captures, Pattern};
use super::wire::{Wire, describe, is_end};

/// For how long nothing must come when a client waits.
pub const QUIET: Duration = Duration::from_millis(30);

/// Where a conversation is held.
pub trait Scene {
    /// A new connection for a client of that name.
    fn connect(&mut self, client: &str, protocol: u8) -> io::Result<Wire>;
    /// Lets time pass.
    fn pass(&mut self, span: Duration) -> io::Result<()>;
}

/// What a conversation needs to know besides its steps.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The version of the protocol: 2 or 3.
    pub protocol: u8,
    /// What `<name>` stands for.
    pub key: &'a dyn Fn(&str) -> String,
    /// The text of the script of a name.
    pub script: &'a dyn Fn(&str) -> Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Performance {
    /// Everything that was said and heard, as a case would write it.
    pub transcript: Vec<String>,
    /// What was heard where the case says what must be, with what the case leaves open taken out.
    pub masked: Vec<(usize, Frame)>,
    /// What went otherwise than expected, if anything.
    pub problem: Option<Problem>,
}

/// What went otherwise than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line of the file.
    pub number: usize,
    /// What the client had said, as the case writes it.
    pub sent: String,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub came: String,
    /// The command that the server says it does not have, if that is what came.
    pub lacking: Option<String>,
}

/// Plays it.
pub fn perform(steps: &[Step], setting: Setting<'_>, scene: &mut dyn Scene) -> Performance {
    let mut stage = Stage {
        setting,
        scene,
        cast: BTreeMap::new(),
        spoken: BTreeMap::new(),
        said: BTreeMap::new(),
        captures: Captures::new(),
        performance: Performance::default(),
    };
    for step in steps {
        if let Err(problem) = stage.play(step) {
            stage.performance.problem = Some(problem);
            break;
        }
    }
    stage.performance
}

/// What `@name` and `@name.sha1` stand for: the text of the script of that name, and its digest;
/// `None` for a word that names none.
pub(super) fn script_named(
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

/// The name Redis knows a script by.
pub fn sha1_hex(script: &str) -> String {
    Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Stage<'a, 's> {
    setting: Setting<'a>,
    scene: &'s mut dyn Scene,
    cast: BTreeMap<String, Wire>,
    /// The version each client speaks now, where `HELLO` or `RESET` changed it.
    spoken: BTreeMap<String, u8>,
    said: BTreeMap<String, Said>,
    captures: Captures,
    performance: Performance,
}

/// What a client has said, as the case writes it and as it was sent: that which it hears the
/// answer of, and what it has said since. What was answered stays until more is heard behind a
/// later question, for one question may have several answers.
#[derive(Default)]
struct Said {
    questions: VecDeque<(String, Vec<Vec<u8>>)>,
    is_answered: bool,
}

impl Said {
    fn add(&mut self, line: &str, words: Vec<Vec<u8>>) {
        self.questions.push_back((line.to_owned(), words));
    }

    /// What is heard next belongs to the next question, if there is one.
    fn go_on(&mut self) {
        if self.is_answered && self.questions.len() > 1 {
            self.questions.pop_front();
            self.is_answered = false;
        }
    }

    fn words(&self) -> Option<&Vec<Vec<u8>>> {
        self.questions.front().map(|(_, words)| words)
    }
}

/// What came instead of nothing, and the command that is lacking if that is what it says.
type Surprise = (String, Option<String>);

impl Stage<'_, '_> {
    fn play(&mut self, step: &Step) -> Result<(), Problem> {
        let problem = |said: &str, expected: &str, came: String| Problem {
            number: step.number,
            sent: said.to_owned(),
            expected: expected.to_owned(),
            came,
            lacking: None,
        };
        let line = &step.line;
        match &step.action {
            Action::Say(client, written) => {
                let words: Result<Vec<_>, _> = written.iter().map(|word| self.word(word)).collect();
                let words = words.map_err(|error| problem(line, "a word", error))?;
                // A script is told by its name: its text would hide what happens.
                let script = |word: &[u8]| word.starts_with(b"@");
                let pairs = written.iter().zip(&words);
                let shown = pairs.map(|(name, word)| if script(name) { name } else { word });
                self.note(client, '>', &show_words(&shown.cloned().collect::<Vec<_>>()));
                let sent = self.client(client).and_then(|wire| wire.send(&words));
                self.said.entry(client.clone()).or_default().add(line, words);
                sent.map_err(|error| problem(line, "the server takes it", describe(&error)))
            }
            Action::Raw(client, bytes) => {
                let bytes = expand_keys(bytes, self.setting.key);
                self.note(client, '>', &format!("> {}", quoted(&bytes)));
                self.said.entry(client.clone()).or_default().add(line, Vec::new());
                // A server may have closed after an error; its reply is what the case reads.
                let _ = self.client(client).and_then(|wire| wire.send_bytes(&bytes));
                Ok(())
            }
            Action::Hear(_, Some(version), _) if *version != self.setting.protocol => Ok(()),
            Action::Hear(client, _, pattern) => self.hear(step, client, pattern),
            Action::Closed(client) => self.closed(client).map_err(|(came, lacking)| Problem {
                lacking,
                ..problem(self.asked(client), "the connection is closed", came)
            }),
            Action::Waits(client) => self.waits(client).map_err(|(came, lacking)| Problem {
                lacking,
                ..problem(self.asked(client), "nothing: it waits", came)
            }),
            Action::HangUp(client) => {
                self.performance.transcript.push(line.clone());
                self.cast.remove(client);
                self.spoken.remove(client);
                Ok(())
            }
            Action::Pass(span) => {
                self.performance.transcript.push(line.clone());
                self.scene
                    .pass(*span)
                    .map_err(|error| problem(line, "time passes", describe(&error)))
            }
        }
    }

    fn hear(&mut self, step: &Step, client: &str, pattern: &Pattern) -> Result<(), Problem> {
        let pattern = self.resolve(pattern);
        let expected = self.resolved_text(&step.line);
        let problem = |sent: &str, came: String, lacking| Problem {
            number: step.number,
            sent: sent.to_owned(),
            expected,
            came,
            lacking,
        };
        self.said.entry(client.to_owned()).or_default().go_on();
        let frame = match self.client(client).and_then(Wire::read) {
            Ok(frame) => frame,
            Err(error) => return Err(problem(self.asked(client), describe(&error), None)),
        };
        self.said.entry(client.to_owned()).or_default().is_answered = true;
        self.note(client, '<', &frame.notation());
        if let Some(version) = changed_protocol(&frame) {
            self.spoken.insert(client.to_owned(), version);
        }
        let protocol = self.spoken.get(client).copied().unwrap_or(self.setting.protocol);
        if pattern.matches(&frame, protocol, &mut self.captures) {
            let mut masked = frame;
            pattern.mask(&mut masked, protocol);
            self.performance.masked.push((step.number, masked));
            return Ok(());
        }
        // Where a case expects such an error, another one tells nothing.
        let is_expected = step.line.to_lowercase().contains("unknown");
        let words = self.said.get(client).and_then(Said::words).filter(|_| !is_expected);
        let lacking = words.and_then(|words| lacking(&frame, words));
        self.performance.masked.push((step.number, frame.clone()));
        Err(problem(self.asked(client), frame.notation(), lacking))
    }

    fn closed(&mut self, client: &str) -> Result<(), Surprise> {
        self.said.entry(client.to_owned()).or_default().go_on();
        let wire = self.client(client).map_err(|error| (describe(&error), None))?;
        match wire.read() {
            Ok(frame) => Err(self.surprise(client, &frame)),
            Err(error) if is_end(&error) => {
                self.performance.transcript.push(format!("{client}< closed"));
                Ok(())
            }
            Err(error) => Err((describe(&error), None)),
        }
    }

    fn waits(&mut self, client: &str) -> Result<(), Surprise> {
        self.said.entry(client.to_owned()).or_default().go_on();
        let lost = |error: io::Error| (describe(&error), None);
        let wire = self.client(client).map_err(lost)?;
        match wire.read_within(QUIET).map_err(lost)? {
            Some(frame) => Err(self.surprise(client, &frame)),
            None => {
                self.performance.transcript.push(format!("{client} waits"));
                Ok(())
            }
        }
    }

    /// What came where nothing should have.
    fn surprise(&mut self, client: &str, frame: &Frame) -> Surprise {
        self.note(client, '<', &frame.notation());
        let words = self.said.get(client).and_then(Said::words);
        (frame.notation(), words.and_then(|words| lacking(frame, words)))
    }

    fn client(&mut self, name: &str) -> io::Result<&mut Wire> {
        if !self.cast.contains_key(name) {
            let wire = self.scene.connect(name, self.setting.protocol)?;
            self.cast.insert(name.to_owned(), wire);
        }
        self.cast.get_mut(name).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// What the client is hearing the answer of.
    fn asked(&self, client: &str) -> &str {
        let said = self.said.get(client).and_then(|said| said.questions.front());
        said.map_or("(nothing yet)", |(line, _)| line)
    }

    fn note(&mut self, client: &str, sign: char, text: &str) {
        self.performance.transcript.push(format!("{client}{sign} {text}"));
    }

    /// A word as it is sent.
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

    /// The pattern with the case's own keys and the scripts' digests in their places.
    fn resolve(&self, pattern: &Pattern) -> Pattern {
        let text = |text: &str| {
            String::from_utf8_lossy(&expand_keys(text.as_bytes(), self.setting.key)).into_owned()
        };
        let all = |items: &[Pattern]| items.iter().map(|item| self.resolve(item)).collect();
        match pattern {
            Pattern::Line(kind, line) => Pattern::Line(*kind, text(line)),
            Pattern::ErrorPrefix(line) => Pattern::ErrorPrefix(text(line)),
            // A bulk that is no name of a script stays what it is.
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
        let text = line.split_once('<').map_or(line, |(_, text)| text.trim());
        String::from_utf8_lossy(&expand_keys(text.as_bytes(), self.setting.key)).into_owned()
    }
}

/// The version of the protocol that is spoken from this reply on: that which the reply to `HELLO`
/// names, 2 after `RESET`.
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

/// The command that an error says is not there, if it is what was sent.
pub(super) fn lacking(frame: &Frame, words: &[Vec<u8>]) -> Option<String> {
    let text = String::from_utf8_lossy(&frame.text).to_lowercase();
    let name = |at: usize| words.get(at).map(|it| String::from_utf8_lossy(it).to_uppercase());
    let unknown = ["unknown", "not supported", "unsupported"].iter().any(|it| text.contains(it));
    if frame.kind != b'-' || !unknown {
        return None;
    }
    // A script's error is about a command within it, unless it names the one that was sent.
    let first = name(0)?;
    let runs_scripts = first.starts_with("EVAL") || first.starts_with("FCALL");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut words_told = text.as_bytes().split(|&byte| !is_word(byte));
    if runs_scripts && !words_told.any(|word| word.eq_ignore_ascii_case(first.as_bytes())) {
        return None;
    }
    if text.contains("subcommand") {
        return Some(format!("{first} {}", name(1)?));
    }
    let is_told = text.contains("command") || text.contains("operation");
    is_told.then_some(first)
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
    use super::{Said, changed_protocol};
    use crate::frame::Frame;

    #[test]
    fn an_answer_belongs_to_the_oldest_question() {
        let mut said = Said::default();
        let hear = |said: &mut Said, expected: &str| {
            said.go_on();
            said.is_answered = true;
            assert_eq!(said.questions.front().map(|(line, _)| &**line), Some(expected));
        };
        said.add("one", Vec::new());
        said.add("two", Vec::new());
        hear(&mut said, "one");
        hear(&mut said, "two");
        hear(&mut said, "two");
        said.add("three", Vec::new());
        hear(&mut said, "three");
    }

    #[test]
    fn greetings_and_resets_change_the_protocol() {
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
