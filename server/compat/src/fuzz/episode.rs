//! Episodes: random conversations of several clients, and what the clients received.

use std::time::Duration;

use super::reference::is_named;
use crate::wire::frame::{Frame, quoted};

/// How commands are generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// From the grammar: most commands are valid.
    #[default]
    Grammar,
    /// From the target's table of commands, with random arguments: most commands are invalid. Both
    /// servers are flushed.
    Arguments,
}

/// Clients that send all commands but subscriptions.
pub const WORKERS: [char; 3] = ['a', 'b', 'c'];
/// The client that subscribes.
pub const LISTENER: char = 's';

/// Scripts that call the command in their arguments.
pub(super) const CALLING: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
];

/// A conversation of several clients with one protocol version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// The protocol version: 2 or 3.
    pub protocol: u8,
    /// The commands, in order.
    pub steps: Vec<Step>,
}

/// One command of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The client.
    pub client: char,
    /// The command, as a case writes it: `<k>` is a key of the episode, `@x` a script.
    pub words: Vec<Vec<u8>>,
    /// The pause after the command.
    pub pass: Option<Duration>,
}

impl Step {
    /// A command without a pause after it.
    pub fn new(client: char, words: &[&str]) -> Step {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Step { client, words, pass: None }
    }
}

/// The command in the notation of cases.
pub fn command(words: &[Vec<u8>]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &Vec<u8>| match String::from_utf8(word.clone()) {
        Ok(text) if !word.is_empty() && word.iter().all(plain) => text,
        _ => quoted(word),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The messages and the reply that one client received at one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The step.
    pub at: usize,
    /// The client.
    pub client: char,
    /// The command it had sent.
    pub words: Vec<Vec<u8>>,
    /// The messages, and the reply at the end.
    pub frames: Vec<Frame>,
    /// How the reading ended.
    pub end: ReadingEnd,
}

/// How reading from a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingEnd {
    /// With a reply.
    Replied,
    /// The client is blocked.
    Waits,
    /// The server closed the connection, or sent bytes that are not a reply.
    Closed,
    /// No reply came in time.
    Silent,
}

impl Observation {
    /// All replies in one line.
    pub fn notation(&self) -> String {
        let frames: Vec<_> = self.frames.iter().map(Frame::notation).collect();
        match self.end {
            ReadingEnd::Replied => frames.join(" "),
            end => format!("{} {end:?}", frames.join(" ")),
        }
    }
}

/// The command that a script of this module calls.
pub(super) fn called(words: &[Vec<u8>]) -> Option<&[Vec<u8>]> {
    let is_ours = ["EVAL", "EVAL_RO"].iter().any(|name| is_named(words, name))
        && CALLING.iter().any(|script| words.get(1).is_some_and(|word| word == script.as_bytes()))
        && words.get(2).is_some_and(|word| word == b"0");
    is_ours.then(|| &words[3..]).filter(|called| !called.is_empty())
}

/// Whether it is a message or confirms a subscription, so that it is not the reply of a command.
pub(super) fn is_message(frame: &Frame) -> bool {
    const KINDS: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    frame.kind == b'>' || frame.kind == b'*' && KINDS.contains(&first) || is_confirmation(frame)
}

pub(super) fn is_confirmation(frame: &Frame) -> bool {
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    matches!(frame.kind, b'*' | b'>') && frame.items.len() == 3 && (first.ends_with(b"subscribe"))
}
