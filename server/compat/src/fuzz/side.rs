//! The clients of an episode on one server: what they send, and what they receive.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use super::draw::lock_scripts;
use super::episode::{Manner, Observation, ReadingEnd, Step, is_confirmation, is_message};
use super::reference;
use super::safety::block_ms;
use crate::cases;
use crate::cases::case::expand_keys;
use crate::cases::player::script_named;
use crate::cases::tidy::remove;
use crate::time::REPLY_TIMEOUT;
use crate::wire::target::Target;
use crate::wire::{Wire, is_silence, request};

/// How long to wait for a reply before CLIENT LIST is checked for the client's state.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How often CLIENT LIST is checked before the reply counts as missing.
const POLLS_MAX: usize = 2_000;

/// A server, and the clients of an episode that are connected to it.
pub(super) struct Side<'a> {
    pub(super) target: &'a Target,
    control: Wire,
    pub(super) clients: BTreeMap<char, FuzzClient>,
}

/// A client of an episode.
pub(super) struct FuzzClient {
    wire: Wire,
    id: String,
    /// The commands without a reply so far.
    pending: VecDeque<Pending>,
}

/// The replies that complete a command.
#[derive(Clone, Copy)]
enum Pending {
    /// One reply.
    Reply,
    /// This number of confirmations, or one reply.
    Confirmations(usize),
}

impl<'a> Side<'a> {
    /// Connects and loads the scripts that are called by their digests.
    pub(super) fn new(target: &'a Target) -> io::Result<Side<'a>> {
        let mut control = target.connect(2)?;
        load_scripts(&mut control)?;
        Ok(Side { target, control, clients: BTreeMap::new() })
    }

    /// Sends commands as a client, which connects before its first command.
    pub(super) fn send(
        &mut self,
        name: char,
        protocol: u8,
        steps: &[Step],
        prefix: &str,
    ) -> io::Result<()> {
        if !self.clients.contains_key(&name) {
            let mut wire = self.target.connect(protocol)?;
            let id = wire.call(&["CLIENT", "ID"])?;
            let id = String::from_utf8_lossy(&id.text).into_owned();
            self.clients.insert(name, FuzzClient { wire, id, pending: VecDeque::new() });
        }
        let ids: BTreeMap<char, String> =
            self.clients.iter().map(|(name, client)| (*name, client.id.clone())).collect();
        let Some(client) = self.clients.get_mut(&name) else { return Ok(()) };
        let mut bytes = Vec::new();
        for step in steps {
            let words: Vec<_> = step.words.iter().map(|word| expand(word, prefix, &ids)).collect();
            bytes.extend(request(&words));
            let named = |name: &str| reference::is_named(&step.words, name);
            let subscribes = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"].iter().any(|it| named(it));
            let leaves = ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"].iter().any(|it| named(it));
            client.pending.push_back(if subscribes || leaves {
                Pending::Confirmations(words.len() - 1)
            } else {
                Pending::Reply
            });
        }
        // A closed connection is noticed by the next read.
        let _ = client.wire.send_bytes(&bytes);
        Ok(())
    }

    /// Reads the replies to commands of a client, up to one that is not complete.
    pub(super) fn read_all(
        &mut self,
        name: char,
        from: usize,
        steps: &[Step],
    ) -> io::Result<Vec<Observation>> {
        let mut events = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let event = self.read(name, from + at, &step.words)?;
            let goes_on = event.end == ReadingEnd::Replied;
            events.push(event);
            if !goes_on {
                break;
            }
        }
        Ok(events)
    }

    /// Reads until the client's first pending command is complete.
    pub(super) fn read(
        &mut self,
        name: char,
        at: usize,
        words: &[Vec<u8>],
    ) -> io::Result<Observation> {
        // A short time-out is waited for; for a long one CLIENT LIST is checked.
        let may_block = block_ms(words).is_some_and(|span| span == 0.0 || span >= 20.0);
        let mut event = Observation {
            at,
            client: name,
            words: words.to_vec(),
            frames: vec![],
            end: ReadingEnd::Replied,
        };
        let Some(client) = self.clients.get_mut(&name) else {
            event.end = ReadingEnd::Closed;
            return Ok(event);
        };
        let Some(pending) = client.pending.front().copied() else { return Ok(event) };
        client.wire.set_reply_timeout(if may_block { POLL_INTERVAL } else { REPLY_TIMEOUT });
        let id = client.id.clone();
        let mut confirmed = 0;
        let mut polls = 0;
        loop {
            if may_block && self.is_waiting(&id)? {
                event.end = ReadingEnd::Waits;
                return Ok(event);
            }
            let Some(client) = self.clients.get_mut(&name) else { return Ok(event) };
            match client.wire.read() {
                Ok(frame) => {
                    confirmed += usize::from(is_confirmation(&frame));
                    let is_message = is_message(&frame);
                    event.frames.push(frame);
                    let done = match pending {
                        _ if !is_message => true,
                        Pending::Reply => false,
                        Pending::Confirmations(count) => confirmed >= count.max(1),
                    };
                    if done {
                        client.pending.pop_front();
                        return Ok(event);
                    }
                }
                Err(error) if is_silence(&error) && may_block && polls < POLLS_MAX => {
                    polls += 1;
                }
                Err(error) => {
                    let silent = is_silence(&error);
                    event.end = if silent { ReadingEnd::Silent } else { ReadingEnd::Closed };
                    self.clients.remove(&name);
                    return Ok(event);
                }
            }
        }
    }

    /// Whether CLIENT LIST shows the client of this id as blocked.
    fn is_waiting(&mut self, id: &str) -> io::Result<bool> {
        let list = self.control.call(&["CLIENT", "LIST", "ID", id])?;
        let text = String::from_utf8_lossy(&list.text).into_owned();
        let flags = text.split(' ').find_map(|field| field.strip_prefix("flags="));
        Ok(flags.is_some_and(|flags| flags.contains('b')))
    }

    /// Removes every key of the suite's database; or of all databases, and all functions.
    pub(super) fn remove_everything(&mut self, manner: Manner) -> io::Result<()> {
        if manner == Manner::Arguments {
            self.control.call(&["FLUSHALL"])?;
            self.control.call(&["FUNCTION", "FLUSH"])?;
            self.control.call(&["SCRIPT", "FLUSH"])?;
            return load_scripts(&mut self.control);
        }
        let keys = self.control.call(&["KEYS", "*"])?;
        remove(&mut self.control, &keys)
    }
}

/// Loads the scripts that are called by their digests.
fn load_scripts(control: &mut Wire) -> io::Result<()> {
    for name in lock_scripts() {
        let text = cases::script(name).unwrap_or_default();
        control.call(&["SCRIPT", "LOAD", text])?;
    }
    Ok(())
}

/// The bytes to send for a word of an episode. `ids` are the values of `CLIENT ID`.
pub fn expand(word: &[u8], prefix: &str, ids: &BTreeMap<char, String>) -> Vec<u8> {
    let text = String::from_utf8_lossy(word);
    if let Some(name) = text.strip_prefix("$id-") {
        let id = name.chars().next().and_then(|name| ids.get(&name));
        return id.map_or(b"0".to_vec(), |id| id.clone().into_bytes());
    }
    let script = |name: &str| cases::script(name).map(str::to_owned);
    if let Ok(Some(script)) = script_named(word, &script) {
        return script;
    }
    expand_keys(word, &|name| format!("{prefix}{name}"))
}
