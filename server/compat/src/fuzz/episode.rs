//! What is played: conversations of several clients, and how one is written as a case.

use std::time::Duration;

use super::run::Event;
use crate::frame::{Frame, quoted};
use crate::reference::{self, Leaves};

/// A conversation, all of whose clients speak one version of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// The version: 2 or 3.
    pub protocol: u8,
    /// What is said, in this order.
    pub steps: Vec<Step>,
}

/// One command of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who says it.
    pub client: char,
    /// The command, as a case writes it: `<k>` is a key of the episode's own, `@x` a script.
    pub words: Vec<Vec<u8>>,
    /// How much time passes before anything else is said.
    pub pass: Option<Duration>,
}

impl Step {
    /// A command after which nothing is waited for.
    pub fn new(client: char, words: &[&str]) -> Step {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Step { client, words, pass: None }
    }
}

/// The conversation with what was heard in it, in the language of cases. `prefix` is what the
/// episode's keys began with.
pub fn as_case(name: &str, remarks: &[String], episode: &Episode, events: &[Event]) -> String {
    let mut out = format!("== {name}\nprotocol: {}\n", episode.protocol);
    for remark in remarks {
        out.push_str(&format!("# {remark}\n"));
    }
    for client in ['a', 'b', 'c'] {
        let id = format!("$id-{client}");
        if episode.steps.iter().any(|step| step.words.contains(&id.clone().into_bytes())) {
            out.push_str(&format!("{client}> CLIENT ID\n{client}< {id}\n"));
        }
    }
    for (at, step) in episode.steps.iter().enumerate() {
        // What a client that waits was to say is not said.
        if !events.iter().any(|event| event.at == at && event.client == step.client) {
            continue;
        }
        out.push_str(&format!("{}> {}\n", step.client, command(&step.words)));
        for event in events.iter().filter(|event| event.at == at) {
            out.push_str(&event.as_case());
        }
        if let Some(span) = step.pass {
            out.push_str(&format!("+{}ms\n", span.as_millis()));
        }
    }
    out
}

/// The words as a case writes them.
pub fn command(words: &[Vec<u8>]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &Vec<u8>| match String::from_utf8(word.clone()) {
        Ok(text) if !word.is_empty() && word.iter().all(plain) => text,
        _ => quoted(word),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A reply to a command as a case expects it: what servers need not agree about is left open.
pub fn expectation(words: &[Vec<u8>], frame: &Frame) -> String {
    let Some(normalisation) = reference::applying(words).next() else { return notation(frame) };
    let number = std::str::from_utf8(&frame.text).ok().and_then(|text| text.parse::<i64>().ok());
    match (normalisation.leaves, number) {
        _ if frame.kind == b'-' => notation(frame),
        (Leaves::Near(apart), Some(number)) if frame.kind == b':' && number > apart => {
            format!(":{}..{number}", number - apart)
        }
        (Leaves::Unordered, _) if !frame.items.is_empty() => {
            format!("unordered {}", notation(frame))
        }
        (Leaves::Anything, _) => "_".to_owned(),
        _ => notation(frame),
    }
}

fn notation(frame: &Frame) -> String {
    frame.notation()
}
