//! Asks for locks by the recipe of a library, on the server that is the primary.

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::frame::{Frame, show};

use crate::lock_kind::LockKind;
use crate::record::Record;
use crate::route::{Call, Route};

/// Characters of an argument that a report shows.
const ARGUMENT_CHARACTERS_MAX: usize = 60;

/// Longest reply that a report shows.
const REPLY_CHARACTERS_MAX: usize = 120;

/// A request for a lock.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) kind: &'static LockKind,
    pub(super) lock: &'a str,
    pub(super) owner: &'a str,
    pub(super) action: Action,
    /// Whether the client ends its connection without waiting for the reply.
    pub(super) loses_reply: bool,
}

/// Asks for locks.
pub(super) trait LockClient: Send {
    /// Sends a request and waits for its reply. `None` if nothing was sent: no server could be
    /// reached, or there is no such request.
    fn perform(&mut self, request: Request<'_>) -> Option<Record>;

    /// Subscribes to a channel, on a connection of its own.
    fn subscribe(&self, channel: &str) -> Option<Wire>;

    /// Connections that ended without the client ending them.
    fn ended_connections(&self) -> u64;
}

/// Asks by recipes.
pub(super) struct RecipeClient(pub(super) Route);

impl LockClient for RecipeClient {
    fn perform(&mut self, request: Request<'_>) -> Option<Record> {
        let Request { kind, lock, owner, action, loses_reply } = request;
        let words = (kind.recipe.words)(lock, owner, action)?;
        let call = match loses_reply {
            true => self.0.call_without_reply(lock, &words),
            false => self.0.call(lock, &words),
        };
        if !call.was_sent {
            return None;
        }
        let event = event(request, &call);
        let servers = call.server.into_iter().collect();
        let (request, reply) = (shown(&words), reply_text(&call.reply));
        Some(Record { event, kind: kind.name, servers, request, reply })
    }

    fn subscribe(&self, channel: &str) -> Option<Wire> {
        self.0.subscribe(channel)
    }

    fn ended_connections(&self) -> u64 {
        self.0.ended()
    }
}

/// The request and its answer, for the judge. A request that was refused with an error changed
/// nothing after the reply; one without a reply may take effect at any later time.
fn event(request: Request<'_>, call: &Call) -> Event {
    let Request { kind, lock, owner, action, .. } = request;
    let event = Event::asked(lock, owner, action, call.invoked_us);
    let (Ok(reply), Some(returned_us)) = (&call.reply, call.returned_us) else { return event };
    match (kind.recipe.meaning)(action, reply) {
        Some((answer, token)) => Event { token, ..event.answered(answer, returned_us) },
        None => event.answered(Answer::Unknown, returned_us),
    }
}

/// The command as a person reads it: without the text of scripts.
pub(super) fn shown(words: &[String]) -> String {
    let mut shown = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let is_script = place == 1 && words[0] == "EVAL";
        let word = if is_script { "(script)".to_owned() } else { show(word.as_bytes()) };
        shown.push(shortened(word, ARGUMENT_CHARACTERS_MAX));
    }
    shown.join(" ")
}

fn reply_text(reply: &Result<Frame, String>) -> String {
    let text = match reply {
        Ok(reply) => reply.notation(),
        Err(reason) => format!("no reply: {reason}"),
    };
    shortened(text, REPLY_CHARACTERS_MAX)
}

fn shortened(mut text: String, characters_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(characters_max) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
