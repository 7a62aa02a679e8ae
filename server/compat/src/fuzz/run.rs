//! Plays an episode on two servers, one command after the other, and says where they differ.
//!
//! Commands of one client in a row are sent together; nobody else speaks until all their replies
//! are there. A client that waits is known to wait, on both servers, before anything else is said,
//! and after whatever is said it is asked whether it still does. So the order of things is the
//! same on both, however busy the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use super::arguments;
use super::episode::{Episode, Step, expectation};
use super::explained::{self, Explained, Met, SEVERAL_KEYS, Version};
use super::generate::{LISTENER, WORKERS, block_ms};
use super::{Manner, kinds};
use crate::case::expand_keys;
use crate::case_player::script_named;
use crate::frame::Frame;
use crate::reference;
use crate::target::Target;
use crate::tidy::remove;
use crate::wire::{Wire, is_silence, request};
use crate::{PATIENCE, cases, time};

/// How many commands are sent together, at most.
const CHUNK_MAX: usize = 32;
/// For how long a reply is waited for before the server is asked whether the client waits.
const GLANCE: Duration = Duration::from_millis(2);
/// How often it is asked before the reply is given up.
const GLANCES: usize = 2_000;
/// The client that looks at what is left.
const INSPECTOR: char = 'z';

/// Two servers.
pub struct Pair<'a> {
    sides: [Side<'a>; 2],
    /// Tells the keys of one playing from those of another.
    played: u64,
    manner: Manner,
}

/// What was heard at one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The step.
    pub at: usize,
    /// Who heard it.
    pub client: char,
    /// What it had said.
    pub words: Vec<Vec<u8>>,
    /// What it heard: messages, and at the end the reply.
    pub frames: Vec<Frame>,
    /// How that ended.
    pub end: End,
}

/// How a client's hearing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a reply.
    Replied,
    /// The client waits.
    Waits,
    /// The server closed the connection, or sent what is no reply.
    Closed,
    /// Nothing came in time.
    Silent,
}

/// What came of an episode.
pub struct Played {
    /// What was said: the episode, and then what was asked about what is left of it.
    pub steps: Vec<Step>,
    /// What the reference said.
    pub events: Vec<Event>,
    /// Where the target said something else.
    pub difference: Option<Difference>,
    /// What the keys began with.
    pub prefix: String,
    /// What was different and is known to be.
    pub explained: Vec<&'static Explained>,
    /// What the reference is still to be asked, to see whether an explained reply is right.
    claims: Vec<Claim>,
}

/// A client was given something of another key than on the reference. On a reference on which it
/// waits for this key alone it must be given the same.
struct Claim {
    /// The step that has made the client wait.
    since: usize,
    /// What it sends instead.
    words: Vec<Vec<u8>>,
    /// What it is to be given.
    reply: Frame,
    /// The difference, if it is given anything else.
    difference: Difference,
}

/// Where two servers differ.
#[derive(Clone)]
pub struct Difference {
    /// The step.
    pub at: usize,
    /// What the target said.
    pub ours: Event,
    /// What the reference said.
    pub theirs: Event,
}

struct Side<'a> {
    target: &'a Target,
    control: Wire,
    clients: BTreeMap<char, Client>,
}

struct Client {
    wire: Wire,
    id: String,
    /// What it waits for the replies of.
    pending: VecDeque<Pending>,
}

/// What ends a command.
#[derive(Clone, Copy)]
enum Pending {
    /// A reply.
    Reply,
    /// So many confirmations, or one reply.
    Confirmations(usize),
}

impl<'a> Pair<'a> {
    /// Connects to both, and loads the scripts that are called by their digests.
    pub fn new(target: &'a Target, reference: &'a Target, manner: Manner) -> io::Result<Pair<'a>> {
        let side = |target: &'a Target| {
            let mut control = target.connect(2)?;
            load_scripts(&mut control)?;
            Ok::<_, io::Error>(Side { target, control, clients: BTreeMap::new() })
        };
        Ok(Pair { sides: [side(target)?, side(reference)?], played: 0, manner })
    }

    /// Plays an episode; with `inspect` what is left of it is compared as well.
    pub fn play(&mut self, episode: &Episode, inspect: bool) -> io::Result<Played> {
        self.played += 1;
        let mut played = self.play_once(episode, inspect, false)?;
        for claim in std::mem::take(&mut played.claims) {
            let mut steps = played.steps[..=claim.difference.at].to_vec();
            steps[claim.since].words.clone_from(&claim.words);
            let alone = Episode { protocol: episode.protocol, steps };
            let heard = self.play_once(&alone, false, true)?.events;
            let client = claim.difference.theirs.client;
            let is_it = |event: &&Event| event.at == claim.difference.at && event.client == client;
            let reply = heard.iter().find(is_it).and_then(|event| event.frames.last());
            if reply != Some(&claim.reply) {
                played.difference = Some(claim.difference);
                break;
            }
        }
        Ok(played)
    }

    /// Plays an episode. If it only `listens`, nothing is compared: what the reference says is
    /// what was asked for.
    fn play_once(&mut self, episode: &Episode, inspect: bool, listens: bool) -> io::Result<Played> {
        let prefix = format!("{}{}:", self.sides[1].target.prefix, self.played);
        let played = Played {
            steps: episode.steps.clone(),
            events: Vec::new(),
            difference: None,
            prefix,
            explained: Vec::new(),
            claims: Vec::new(),
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
        playing.go(0)?;
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
    /// What each client has queued in its transaction.
    queues: BTreeMap<char, Vec<Vec<Vec<u8>>>>,
    /// Clients that wait, and the step that made them.
    waiting: BTreeMap<char, usize>,
    played: Played,
    /// The two servers have gone different ways, and are known to.
    is_over: bool,
    /// Nothing is compared.
    listens: bool,
    /// The longest time from when a command was sent to the first server until both had replied.
    longest_us: i64,
}

impl Playing<'_, '_> {
    /// Plays the steps from this one on.
    fn go(&mut self, mut at: usize) -> io::Result<()> {
        while at < self.played.steps.len() && !self.is_done() {
            let client = self.played.steps[at].client;
            if self.waiting.contains_key(&client) {
                at += 1;
                continue;
            }
            let end = self.chunk_end(at);
            self.say(client, at, end)?;
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

    /// Where the steps end that can be sent together.
    fn chunk_end(&self, from: usize) -> usize {
        let steps = &self.played.steps;
        // Whoever waits may be served by any command, and is asked after each.
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

    fn say(&mut self, client: char, from: usize, end: usize) -> io::Result<()> {
        let steps = self.played.steps[from..end].to_vec();
        let begin_us = time::now_us();
        for side in self.sides.iter_mut() {
            side.send(client, self.protocol, &steps, &self.played.prefix)?;
        }
        let [ours, theirs] = &mut *self.sides;
        let ours = ours.hear_all(client, from, &steps)?;
        let theirs = theirs.hear_all(client, from, &steps)?;
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

    /// Asks those that wait whether they still do.
    fn settle(&mut self, at: usize) -> io::Result<()> {
        let waiting: Vec<_> = self.waiting.iter().map(|(client, at)| (*client, *at)).collect();
        let mut answers = Vec::new();
        for (client, since) in waiting {
            let words = self.played.steps[since].words.clone();
            let mut heard = Vec::new();
            for side in self.sides.iter_mut() {
                heard.push(side.hear(client, at, &words)?);
            }
            let (Some(theirs), Some(ours)) = (heard.pop(), heard.pop()) else { continue };
            if (ours.end, theirs.end) == (End::Waits, End::Waits) && ours.frames == theirs.frames {
                continue;
            }
            if theirs.end != End::Waits {
                self.waiting.remove(&client);
            }
            answers.push((ours, theirs));
        }
        // Whoever is refused leaves its share to the next, and is looked at first.
        let is_error = |event: &Event| event.frames.last().is_some_and(|frame| frame.kind == b'-');
        answers.sort_by_key(|(ours, theirs)| !is_error(ours) && !is_error(theirs));
        for (ours, theirs) in answers {
            self.compare(ours, theirs);
            if self.is_done() {
                break;
            }
        }
        Ok(())
    }

    /// How far apart two servers' answers to a question about time may be. What is asked about
    /// happened on both within one such span, and so did the question; and each of the moments is
    /// rounded to a millisecond.
    fn apart_ms(&self) -> i64 {
        2 * (self.longest_us / 1000 + 1) + 1
    }

    /// Notes what the reference said, and the difference if there is one.
    fn compare(&mut self, ours: Event, theirs: Event) {
        if self.listens {
            self.played.events.push(theirs);
            return;
        }
        let apart_ms = self.apart_ms();
        let queue = self.queues.entry(theirs.client).or_default();
        let reference = self.sides[1].target;
        let version = Version { redis: reference.redis, is_valkey: reference.valkey.is_some() };
        let before = &self.played.steps[..=theirs.at];
        let circumstances = Circumstances { before, version, apart_ms };
        let explained = agree(&ours, &theirs, queue, circumstances);
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
                    self.claim(&difference);
                }
                self.played.explained.extend(explained);
            }
            Err(()) => self.played.difference = Some(difference),
        }
    }

    /// Notes what the reference is to be asked about an explained reply.
    fn claim(&mut self, difference: &Difference) {
        let Difference { at, ours, theirs } = difference;
        let steps = &self.played.steps;
        let is_wait = |step: &Step| step.client == theirs.client && step.words == theirs.words;
        let since = steps[..=*at].iter().rposition(is_wait);
        let (Some(since), Some(reply)) = (since, ours.frames.last()) else { return };
        let replies = explained::alone(&theirs.words, reply);
        self.played.claims.extend(replies.into_iter().map(|(words, reply)| Claim {
            since,
            words,
            reply,
            difference: difference.clone(),
        }));
    }

    /// Hears what clients have not been told yet, and looks at every key.
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
        self.go(from)?;
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
        self.go(from)
    }

    fn ask(&mut self, step: Step) -> io::Result<()> {
        let from = self.played.steps.len();
        self.played.steps.push(step);
        self.go(from)
    }
}

impl Side<'_> {
    fn send(&mut self, name: char, protocol: u8, steps: &[Step], prefix: &str) -> io::Result<()> {
        if !self.clients.contains_key(&name) {
            let mut wire = self.target.connect(protocol)?;
            let id = wire.call(&["CLIENT", "ID"])?;
            let id = String::from_utf8_lossy(&id.text).into_owned();
            self.clients.insert(name, Client { wire, id, pending: VecDeque::new() });
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
        // A server that has closed is found out by who reads.
        let _ = client.wire.send_bytes(&bytes);
        Ok(())
    }

    fn hear_all(&mut self, name: char, from: usize, steps: &[Step]) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let event = self.hear(name, from + at, &step.words)?;
            let goes_on = event.end == End::Replied;
            events.push(event);
            if !goes_on {
                break;
            }
        }
        Ok(events)
    }

    /// Hears what ends the client's first command without a reply.
    fn hear(&mut self, name: char, at: usize, words: &[Vec<u8>]) -> io::Result<Event> {
        // What waits for a short while is awaited; what may wait for ever is asked whether it does.
        let may_stay = block_ms(words).is_some_and(|span| span == 0.0 || span >= 20.0);
        let mut event =
            Event { at, client: name, words: words.to_vec(), frames: vec![], end: End::Replied };
        let Some(client) = self.clients.get_mut(&name) else {
            event.end = End::Closed;
            return Ok(event);
        };
        let Some(pending) = client.pending.front().copied() else { return Ok(event) };
        client.wire.set_patience(if may_stay { GLANCE } else { PATIENCE })?;
        let id = client.id.clone();
        let mut confirmed = 0;
        let mut glances = 0;
        loop {
            if may_stay && self.is_waiting(&id)? {
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
                Err(error) if is_silence(&error) && may_stay && glances < GLANCES => {
                    glances += 1;
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

    /// Whether the client of this id is known to wait.
    fn is_waiting(&mut self, id: &str) -> io::Result<bool> {
        let list = self.control.call(&["CLIENT", "LIST", "ID", id])?;
        let text = String::from_utf8_lossy(&list.text).into_owned();
        let flags = text.split(' ').find_map(|field| field.strip_prefix("flags="));
        Ok(flags.is_some_and(|flags| flags.contains('b')))
    }

    /// Removes every key of the database, which is ours; or of all databases, and the functions.
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

/// A word as it is sent.
fn expand(word: &[u8], prefix: &str, ids: &BTreeMap<char, String>) -> Vec<u8> {
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

/// What is known when two replies are compared, but for the replies: see [`Met`].
#[derive(Clone, Copy)]
struct Circumstances<'a> {
    before: &'a [Step],
    version: Version,
    apart_ms: i64,
}

impl<'a> Circumstances<'a> {
    fn met(self, words: &'a [Vec<u8>], ours: &'a Frame, theirs: &'a Frame) -> Met<'a> {
        let Circumstances { before, version, apart_ms } = self;
        Met { words, before, ours, theirs, apart_ms, version }
    }
}

/// Whether two servers said the same; what is known to be different, if that is all.
fn agree(
    ours: &Event,
    theirs: &Event,
    queue: &[Vec<Vec<u8>>],
    circumstances: Circumstances<'_>,
) -> Result<Vec<&'static Explained>, ()> {
    let words = &theirs.words;
    let mut known = Vec::new();
    let silent = theirs.end == End::Silent;
    if silent || ours.end != theirs.end || ours.frames.len() != theirs.frames.len() {
        let said = |event: &Event| event.frames.last().cloned().unwrap_or_else(explained::waits);
        let (ours, theirs) = (said(ours), said(theirs));
        let found = explained::find(&circumstances.met(words, &ours, &theirs));
        return found.filter(|it| it.ends).map(|it| vec![it]).ok_or(());
    }
    for (ours, theirs) in ours.frames.iter().zip(&theirs.frames) {
        let exec = reference::is_named(words, "EXEC") && ours.items.len() == queue.len();
        if exec && theirs.items.len() == queue.len() && !is_message(theirs) {
            for ((ours, theirs), words) in ours.items.iter().zip(&theirs.items).zip(queue) {
                known.extend(frames_agree(words, ours, theirs, circumstances)?);
            }
        } else {
            known.extend(frames_agree(words, ours, theirs, circumstances)?);
        }
    }
    Ok(known)
}

fn frames_agree(
    words: &[Vec<u8>],
    ours: &Frame,
    theirs: &Frame,
    circumstances: Circumstances<'_>,
) -> Result<Option<&'static Explained>, ()> {
    if ours == theirs {
        return Ok(None);
    }
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    let called = arguments::called(words).unwrap_or(words);
    if !is_message(&theirs) {
        reference::normalise(called, &mut ours, &mut theirs, circumstances.apart_ms);
        if arguments::is_compared_by_shape(called) {
            reference::shapes(&mut ours, &mut theirs);
        }
    }
    if ours == theirs {
        return Ok(None);
    }
    let met = |words| circumstances.met(words, &ours, &theirs);
    explained::find(&met(called)).or_else(|| explained::find(&met(words))).map(Some).ok_or(())
}

/// Whether it comes without having been asked for, or confirms a subscription.
fn is_message(frame: &Frame) -> bool {
    const KINDS: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    frame.kind == b'>' || frame.kind == b'*' && KINDS.contains(&first) || is_confirmation(frame)
}

fn is_confirmation(frame: &Frame) -> bool {
    let first = frame.items.first().map(|item| item.text.as_slice()).unwrap_or_default();
    matches!(frame.kind, b'*' | b'>') && frame.items.len() == 3 && (first.ends_with(b"subscribe"))
}

impl Event {
    /// It whole, in one line.
    pub fn notation(&self) -> String {
        let frames: Vec<_> = self.frames.iter().map(Frame::notation).collect();
        match self.end {
            End::Replied => frames.join(" "),
            end => format!("{} {end:?}", frames.join(" ")),
        }
    }

    /// The lines of a case that expect it.
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
            End::Silent => out.push_str(&format!("# {} heard nothing\n", self.client)),
        }
        out
    }
}
