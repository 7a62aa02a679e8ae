//! An episode and its replies in the language of cases.

use super::episode::{Episode, Observation, ReadingEnd, command, is_message};
use super::reference::{self, Leaves};
use crate::wire::frame::Frame;

/// The conversation with its replies, in the language of cases.
pub(super) fn as_case(
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
            out.push_str(&lines(event));
        }
        if let Some(span) = step.pass {
            out.push_str(&format!("+{}ms\n", span.as_millis()));
        }
    }
    out
}

/// The lines of a case that expect these replies.
fn lines(observation: &Observation) -> String {
    let mut out = String::new();
    for frame in &observation.frames {
        let text = match is_message(frame) {
            true => frame.notation(),
            false => expectation(&observation.words, frame),
        };
        out.push_str(&format!("{}< {text}\n", observation.client));
    }
    match observation.end {
        ReadingEnd::Replied => {}
        ReadingEnd::Waits => out.push_str(&format!("{} waits\n", observation.client)),
        ReadingEnd::Closed => out.push_str(&format!("{0}< closed\n{0}!\n", observation.client)),
        ReadingEnd::Silent => out.push_str(&format!("# {} received nothing\n", observation.client)),
    }
    out
}

/// The expectation of a reply in a case: the parts in which servers may differ are left open.
fn expectation(words: &[Vec<u8>], frame: &Frame) -> String {
    let Some(normalisation) = reference::applying(words).next() else { return frame.notation() };
    let number = std::str::from_utf8(&frame.text).ok().and_then(|text| text.parse::<i64>().ok());
    match (normalisation.leaves, number) {
        _ if frame.kind == b'-' => frame.notation(),
        (Leaves::Near(apart), Some(number)) if frame.kind == b':' && number > apart => {
            format!(":{}..{number}", number - apart)
        }
        (Leaves::Unordered, _) if !frame.items.is_empty() => {
            format!("unordered {}", frame.notation())
        }
        (Leaves::Anything, _) => "_".to_owned(),
        _ => frame.notation(),
    }
}
