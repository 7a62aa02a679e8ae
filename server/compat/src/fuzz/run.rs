//! Plays an episode on two servers, one command after the other, and finds where they differ.
//!
//! Consecutive commands of one client are sent together; no other client sends until all their
//! replies have arrived. A client that blocks is seen to be blocked on both servers before the next
//! command is sent, and after each command it is checked whether it is still blocked. So the order
//! is the same on both servers, however busy the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use super::arguments;
use super::episode::{Episode, Step, expectation};
use super::generate::{LISTENER, WORKERS, block_ms};
use super::known_differences::{self, KnownDifference, ObservedDifference, SEVERAL_KEYS, Version};
use super::reference;
use super::{Manner, kinds};
use crate::cases;
use crate::cases::case::expand_keys;
use crate::cases::player::script_named;
use crate::cases::tidy::remove;
use crate::time::{self, REPLY_TIMEOUT};
use crate::wire::frame::Frame;
use crate::wire::target::Target;
use crate::wire::{Wire, is_silence, request};

/// The largest number of commands that are sent together.
const CHUNK_MAX: usize = 32;
/// How long to wait for a reply before CLIENT LIST is checked for the client's state.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How often CLIENT LIST is checked before the reply counts as missing.
const POLLS_MAX: usize = 2_000;
/// The client that reads all keys at the end.
const INSPECTOR: char = 'z';

/// The server under test and the reference.
pub struct Pair<'a> {
    sides: [Side<'a>; 2],
    /// The number of episodes played so far: each uses other keys.
    played: u64,
    manner: Manner,
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
    pub end: End,
}

/// How reading from a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a reply.
    Replied,
    /// The client is blocked.
    Waits,
    /// The server closed the connection, or sent bytes that are not a reply.
    Closed,
    /// No reply came in time.
    Silent,
}

/// The result of an episode.
pub struct Played {
    /// The steps of the episode, followed by those of the inspection.
    pub steps: Vec<Step>,
    /// The replies of the reference.
    pub events: Vec<Observation>,
    /// The first difference of the target.
    pub difference: Option<Difference>,
    /// The prefix of the keys.
    pub prefix: String,
    /// The known differences that occurred.
    pub explained: Vec<&'static KnownDifference>,
    /// Checks that the reference must still confirm, to see whether an explained reply is right.
    confirmations_needed: Vec<Confirmation>,
}

/// A blocked client got an element of another key than on the reference. If it blocks on this key
/// alone on the reference, it must get the same reply.
struct Confirmation {
    /// The step that blocked the client.
    since: usize,
    /// The command that it sends instead.
    words: Vec<Vec<u8>>,
    /// The expected reply.
    reply: Frame,
    /// The difference to report for any other reply.
    difference: Difference,
}

/// A difference between the two servers.
#[derive(Clone)]
pub struct Difference {
    /// The step.
    pub at: usize,
    /// The replies of the target.
    pub ours: Observation,
    /// The replies of the reference.
    pub theirs: Observation,
}

struct Side<'a> {
    target: &'a Target,
    control: Wire,
    clients: BTreeMap<char, FuzzClient>,
}

struct FuzzClient {
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

impl<'a> Pair<'a> {
    /// Connects to both servers and loads the scripts that are called by their digests.
    pub fn new(target: &'a Target, reference: &'a Target, manner: Manner) -> io::Result<Pair<'a>> {
        let side = |target: &'a Target| {
            let mut control = target.connect(2)?;
            load_scripts(&mut control)?;
            Ok::<_, io::Error>(Side { target, control, clients: BTreeMap::new() })
        };
        Ok(Pair { sides: [side(target)?, side(reference)?], played: 0, manner })
    }

    /// Plays an episode; with `inspect` the keys that are left are compared as well.
    pub fn play(&mut self, episode: &Episode, inspect: bool) -> io::Result<Played> {
        self.played += 1;
        let mut played = self.play_once(episode, inspect, false)?;
        for add_confirmations in std::mem::take(&mut played.confirmations_needed) {
            let mut steps = played.steps[..=add_confirmations.difference.at].to_vec();
            steps[add_confirmations.since].words.clone_from(&add_confirmations.words);
            let alone = Episode { protocol: episode.protocol, steps };
            let observed = self.play_once(&alone, false, true)?.events;
            let client = add_confirmations.difference.theirs.client;
            let is_it = |event: &&Observation| {
                event.at == add_confirmations.difference.at && event.client == client
            };
            let reply = observed.iter().find(is_it).and_then(|event| event.frames.last());
            if reply != Some(&add_confirmations.reply) {
                played.difference = Some(add_confirmations.difference);
                break;
            }
        }
        Ok(played)
    }

    /// Plays an episode. With `listens` nothing is compared: only the replies of the reference are
    /// wanted.
    fn play_once(&mut self, episode: &Episode, inspect: bool, listens: bool) -> io::Result<Played> {
        let prefix = format!("{}{}:", self.sides[1].target.prefix, self.played);
        let played = Played {
            steps: episode.steps.clone(),
            events: Vec::new(),
            difference: None,
            prefix,
            explained: Vec::new(),
            confirmations_needed: Vec::new(),
        };
        let mut playing = Playing {
            sides: &mut self.sides,
            protocol: episode.protocol,
            queues: BTreeMap::new(),
            waiting: BTreeMap::new(),
            played,
            is_over: false,
            listens,
            longest_us: 0,
        };
        playing.play_from(0)?;
        if inspect && !playing.is_over {
            playing.inspect()?;
        }
        let played = playing.played;
        for side in &mut self.sides {
            side.clients.clear();
            side.remove_everything(self.manner)?;
        }
        Ok(played)
    }
}

struct Playing<'p, 'a> {
    sides: &'p mut [Side<'a>; 2],
    protocol: u8,
    /// The queued commands of each client's transaction.
    queues: BTreeMap<char, Vec<Vec<Vec<u8>>>>,
    /// The blocked clients, and the step that blocked each.
    waiting: BTreeMap<char, usize>,
    played: Played,
    /// The states of the two servers differ in a known way, so the episode ends.
    is_over: bool,
    /// Nothing is compared.
    listens: bool,
    /// The longest time from sending a command to the first server until both had replied.
    longest_us: i64,
}

impl Playing<'_, '_> {
    /// Plays the steps from this one.
    fn play_from(&mut self, mut at: usize) -> io::Result<()> {
        while at < self.played.steps.len() && !self.is_done() {
            let client = self.played.steps[at].client;
            if self.waiting.contains_key(&client) {
                at += 1;
                continue;
            }
            let end = self.chunk_end(at);
            self.send_chunk(client, at, end)?;
            if let Some(span) = self.played.steps[end - 1].pass {
                time::sleep(span);
            }
            if !self.is_done() {
                self.settle(end - 1)?;
            }
            at = end;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_over || self.played.difference.is_some()
    }

    /// The end of the steps that can be sent together.
    fn chunk_end(&self, from: usize) -> usize {
        let steps = &self.played.steps;
        // Any command may serve a blocked client, so these are checked after each command.
        let most = if self.waiting.is_empty() { CHUNK_MAX } else { 1 };
        let mut end = from;
        while end < steps.len() && end - from < most && steps[end].client == steps[from].client {
            end += 1;
            let last = &steps[end - 1];
            if last.pass.is_some() || block_ms(&last.words).is_some() {
                break;
            }
        }
        end
    }

    fn send_chunk(&mut self, client: char, from: usize, end: usize) -> io::Result<()> {
        let steps = self.played.steps[from..end].to_vec();
        let begin_us = time::now_us();
        for side in self.sides.iter_mut() {
            side.send(client, self.protocol, &steps, &self.played.prefix)?;
        }
        let [ours, theirs] = &mut *self.sides;
        let ours = ours.read_all(client, from, &steps)?;
        let theirs = theirs.read_all(client, from, &steps)?;
        self.longest_us = self.longest_us.max(time::now_us() - begin_us);
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            if self.is_done() {
                break;
            }
            if theirs.end == End::Waits {
                self.waiting.insert(client, theirs.at);
            }
            self.compare(ours, theirs);
        }
        Ok(())
    }

    /// Reads from the blocked clients whether they were served.
    fn settle(&mut self, at: usize) -> io::Result<()> {
        let waiting: Vec<_> = self.waiting.iter().map(|(client, at)| (*client, *at)).collect();
        let mut answers = Vec::new();
        for (client, since) in waiting {
            let words = self.played.steps[since].words.clone();
            let mut observed = Vec::new();
            for side in self.sides.iter_mut() {
                observed.push(side.read(client, at, &words)?);
            }
            let (Some(theirs), Some(ours)) = (observed.pop(), observed.pop()) else { continue };
            if (ours.end, theirs.end) == (End::Waits, End::Waits) && ours.frames == theirs.frames {
                continue;
            }
            if theirs.end != End::Waits {
                self.waiting.remove(&client);
            }
            answers.push((ours, theirs));
        }
        // A client that got an error leaves the element to the next, and is compared first.
        let is_error =
            |event: &Observation| event.frames.last().is_some_and(|frame| frame.kind == b'-');
        answers.sort_by_key(|(ours, theirs)| !is_error(ours) && !is_error(theirs));
        for (ours, theirs) in answers {
            self.compare(ours, theirs);
            if self.is_done() {
                break;
            }
        }
        Ok(())
    }

    /// How far apart the replies of the two servers about a time may be. The event happened on both
    /// within one such span, and so did the query; and each of the times is rounded to a
    /// millisecond.
    fn apart_ms(&self) -> i64 {
        2 * (self.longest_us / 1000 + 1) + 1
    }

    /// Stores the replies of the reference, and the difference if there is one.
    fn compare(&mut self, ours: Observation, theirs: Observation) {
        if self.listens {
            self.played.events.push(theirs);
            return;
        }
        let apart_ms = self.apart_ms();
        let queue = self.queues.entry(theirs.client).or_default();
        let reference = self.sides[1].target;
        let version = Version { redis: reference.redis, is_valkey: reference.valkey.is_some() };
        let before = &self.played.steps[..=theirs.at];
        let context = Context { before, version, apart_ms };
        let explained = agree(&ours, &theirs, queue, context);
        let last = theirs.frames.last();
        let ends = ["EXEC", "DISCARD", "RESET"]
            .iter()
            .any(|name| reference::is_named(&theirs.words, name));
        if last.is_some_and(|frame| frame.kind == b'+' && frame.text == b"QUEUED") {
            queue.push(theirs.words.clone());
        } else if ends {
            queue.clear();
        }
        self.played.events.push(theirs.clone());
        let difference = Difference { at: theirs.at, ours, theirs };
        match explained {
            Ok(explained) => {
                self.is_over |= explained.iter().any(|explained| explained.ends);
                if explained.iter().any(|explained| explained.name == SEVERAL_KEYS) {
                    self.add_confirmations(&difference);
                }
                self.played.explained.extend(explained);
            }
            Err(()) => self.played.difference = Some(difference),
        }
    }

    /// Adds the checks that an explained reply needs.
    fn add_confirmations(&mut self, difference: &Difference) {
        let Difference { at, ours, theirs } = difference;
        let steps = &self.played.steps;
        let is_wait = |step: &Step| step.client == theirs.client && step.words == theirs.words;
        let since = steps[..=*at].iter().rposition(is_wait);
        let (Some(since), Some(reply)) = (since, ours.frames.last()) else { return };
        let replies = known_differences::alone(&theirs.words, reply);
        self.played.confirmations_needed.extend(replies.into_iter().map(|(words, reply)| {
            Confirmation { since, words, reply, difference: difference.clone() }
        }));
    }

    /// Reads pending messages of all clients, and reads every key.
    fn inspect(&mut self) -> io::Result<()> {
        for client in WORKERS.into_iter().chain([LISTENER]) {
            if self.sides[1].clients.contains_key(&client) {
                self.ask(Step::new(client, &["PING"]))?;
            }
        }
        let from = self.played.steps.len();
        for key in kinds::keys().collect::<BTreeSet<_>>() {
            self.played.steps.push(Step::new(INSPECTOR, &["TYPE", key]));
        }
        self.play_from(from)?;
        let types: Vec<_> = (self.played.events.iter())
            .filter(|event| event.at >= from)
            .filter_map(|event| {
                let key = String::from_utf8_lossy(event.words.get(1)?).into_owned();
                let of = String::from_utf8_lossy(&event.frames.last()?.text).into_owned();
                Some((key, of))
            })
            .collect();
        let from = self.played.steps.len();
        for (key, of) in &types {
            let reads: &[&[&str]] = match of.as_str() {
                "none" => continue,
                "string" => &[&["GET", key]],
                "hash" => &[&["HGETALL", key]],
                "list" => &[&["LRANGE", key, "0", "-1"]],
                "set" => &[&["SMEMBERS", key]],
                "zset" => &[&["ZRANGE", key, "0", "-1", "WITHSCORES"]],
                _ => &[&["XRANGE", key, "-", "+"], &["XINFO", "GROUPS", key]],
            };
            let steps = reads.iter().map(|read| Step::new(INSPECTOR, read));
            self.played.steps.extend(steps);
            self.played.steps.push(Step::new(INSPECTOR, &["PTTL", key]));
        }
        self.play_from(from)
    }

    fn ask(&mut self, step: Step) -> io::Result<()> {
        let from = self.played.steps.len();
        self.played.steps.push(step);
        self.play_from(from)
    }
}

impl Side<'_> {
    fn send(&mut self, name: char, protocol: u8, steps: &[Step], prefix: &str) -> io::Result<()> {
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

    fn read_all(
        &mut self,
        name: char,
        from: usize,
        steps: &[Step],
    ) -> io::Result<Vec<Observation>> {
        let mut events = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let event = self.read(name, from + at, &step.words)?;
            let goes_on = event.end == End::Replied;
            events.push(event);
            if !goes_on {
                break;
            }
        }
        Ok(events)
    }

    /// Reads until the client's first pending command is complete.
    fn read(&mut self, name: char, at: usize, words: &[Vec<u8>]) -> io::Result<Observation> {
        // A short time-out is waited for; for a long one CLIENT LIST is checked.
        let may_block = block_ms(words).is_some_and(|span| span == 0.0 || span >= 20.0);
        let mut event = Observation {
            at,
            client: name,
            words: words.to_vec(),
            frames: vec![],
            end: End::Replied,
        };
        let Some(client) = self.clients.get_mut(&name) else {
            event.end = End::Closed;
            return Ok(event);
        };
        let Some(pending) = client.pending.front().copied() else { return Ok(event) };
        client.wire.set_reply_timeout(if may_block { POLL_INTERVAL } else { REPLY_TIMEOUT });
        let id = client.id.clone();
        let mut confirmed = 0;
        let mut polls = 0;
        loop {
            if may_block && self.is_waiting(&id)? {
                event.end = End::Waits;
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
                    event.end = if silent { End::Silent } else { End::Closed };
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
    fn remove_everything(&mut self, manner: Manner) -> io::Result<()> {
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
    for name in kinds::lock_scripts() {
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

/// The context in which two replies are compared: see [`ObservedDifference`].
#[derive(Clone, Copy)]
struct Context<'a> {
    before: &'a [Step],
    version: Version,
    apart_ms: i64,
}

impl<'a> Context<'a> {
    fn observed(
        self,
        words: &'a [Vec<u8>],
        ours: &'a Frame,
        theirs: &'a Frame,
    ) -> ObservedDifference<'a> {
        let Context { before, version, apart_ms } = self;
        ObservedDifference { words, before, ours, theirs, apart_ms, version }
    }
}

/// The known differences between two servers; an error if there is an unknown one.
fn agree(
    ours: &Observation,
    theirs: &Observation,
    queue: &[Vec<Vec<u8>>],
    context: Context<'_>,
) -> Result<Vec<&'static KnownDifference>, ()> {
    let words = &theirs.words;
    let mut known = Vec::new();
    let silent = theirs.end == End::Silent;
    if silent || ours.end != theirs.end || ours.frames.len() != theirs.frames.len() {
        let last_reply = |event: &Observation| {
            event.frames.last().cloned().unwrap_or_else(known_differences::waits)
        };
        let (ours, theirs) = (last_reply(ours), last_reply(theirs));
        let found = known_differences::find(&context.observed(words, &ours, &theirs));
        return found.filter(|it| it.ends).map(|it| vec![it]).ok_or(());
    }
    for (ours, theirs) in ours.frames.iter().zip(&theirs.frames) {
        let exec = reference::is_named(words, "EXEC") && ours.items.len() == queue.len();
        if exec && theirs.items.len() == queue.len() && !is_message(theirs) {
            for ((ours, theirs), words) in ours.items.iter().zip(&theirs.items).zip(queue) {
                known.extend(frames_agree(words, ours, theirs, context)?);
            }
        } else {
            known.extend(frames_agree(words, ours, theirs, context)?);
        }
    }
    Ok(known)
}

fn frames_agree(
    words: &[Vec<u8>],
    ours: &Frame,
    theirs: &Frame,
    context: Context<'_>,
) -> Result<Option<&'static KnownDifference>, ()> {
    if ours == theirs {
        return Ok(None);
    }
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    let called = arguments::called(words).unwrap_or(words);
    if !is_message(&theirs) {
        reference::normalise(called, &mut ours, &mut theirs, context.apart_ms);
        if arguments::is_compared_by_shape(called) {
            reference::shapes(&mut ours, &mut theirs);
        }
    }
    if ours == theirs {
        return Ok(None);
    }
    let observed = |words| context.observed(words, &ours, &theirs);
    known_differences::find(&observed(called))
        .or_else(|| known_differences::find(&observed(words)))
        .map(Some)
        .ok_or(())
}

/// Whether it is a message or confirms a subscription, so that it is not the reply of a command.
fn is_message(frame: &Frame) -> bool {
    const KINDS: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    frame.kind == b'>' || frame.kind == b'*' && KINDS.contains(&first) || is_confirmation(frame)
}

fn is_confirmation(frame: &Frame) -> bool {
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    matches!(frame.kind, b'*' | b'>') && frame.items.len() == 3 && (first.ends_with(b"subscribe"))
}

impl Observation {
    /// All replies in one line.
    pub fn notation(&self) -> String {
        let frames: Vec<_> = self.frames.iter().map(Frame::notation).collect();
        match self.end {
            End::Replied => frames.join(" "),
            end => format!("{} {end:?}", frames.join(" ")),
        }
    }

    /// The lines of a case that expect these replies.
    pub fn as_case(&self) -> String {
        let mut out = String::new();
        for frame in &self.frames {
            let text = match is_message(frame) {
                true => frame.notation(),
                false => expectation(&self.words, frame),
            };
            out.push_str(&format!("{}< {text}\n", self.client));
        }
        match self.end {
            End::Replied => {}
            End::Waits => out.push_str(&format!("{} waits\n", self.client)),
            End::Closed => out.push_str(&format!("{0}< closed\n{0}!\n", self.client)),
            End::Silent => out.push_str(&format!("# {} received nothing\n", self.client)),
        }
        out
    }
}
