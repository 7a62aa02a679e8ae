//! Plays an episode on two servers, one command after the other, and finds where they differ.
//!
//! Consecutive commands of one client are sent together; no other client sends until all their
//! replies have arrived. A client that blocks is seen to be blocked on both servers before the next
//! command is sent, and after each command it is checked whether it is still blocked. So the order
//! is the same on both servers, however busy the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::agree::{Context, agree};
use super::episode::{Episode, LISTENER, Manner, Observation, ReadingEnd, Step, WORKERS};
use super::known::{self, KnownDifference, SEVERAL_KEYS, Version};
use super::safety::block_ms;
use super::side::Side;
use super::{kinds, reference};
use crate::time;
use crate::wire::frame::Frame;
use crate::wire::target::Target;

/// The largest number of commands that are sent together.
const CHUNK_MAX: usize = 32;
/// The client that reads all keys at the end.
const INSPECTOR: char = 'z';

/// The server under test and the reference.
pub struct Pair<'a> {
    sides: [Side<'a>; 2],
    /// The number of episodes played so far: each uses other keys.
    played: u64,
    manner: Manner,
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

impl<'a> Pair<'a> {
    /// Connects to both servers and loads the scripts that are called by their digests.
    pub fn new(target: &'a Target, reference: &'a Target, manner: Manner) -> io::Result<Pair<'a>> {
        Ok(Pair { sides: [Side::new(target)?, Side::new(reference)?], played: 0, manner })
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
    /// Whether the episode ends, because the states of the two servers differ in a known way.
    is_over: bool,
    /// Whether replies are only recorded and not compared.
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
            if theirs.end == ReadingEnd::Waits {
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
            if (ours.end, theirs.end) == (ReadingEnd::Waits, ReadingEnd::Waits)
                && ours.frames == theirs.frames
            {
                continue;
            }
            if theirs.end != ReadingEnd::Waits {
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
        let replies = known::alone(&theirs.words, reply);
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
