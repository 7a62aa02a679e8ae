//! Episodes: random conversations of several clients, and their form as a case.

use std::time::Duration;

use super::reference::{self, Leaves};
use super::run::Observation;
use crate::wire::frame::{Frame, quoted};

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

/// The conversation with its replies, in the language of cases.
pub fn as_case(
    name: &str,
    remarks: &[String],
    episode: &Episode,
    events: &[Observation],
) -> String {
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
        // A command of a blocked client was not sent.
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

/// The command in the notation of cases.
pub fn command(words: &[Vec<u8>]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    let word = |word: &Vec<u8>| match String::from_utf8(word.clone()) {
        Ok(text) if !word.is_empty() && word.iter().all(plain) => text,
        _ => quoted(word),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The expectation of a reply in a case: the parts in which servers may differ are left open.
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
