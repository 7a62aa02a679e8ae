//! An engine that holds locks, without sockets, and conversations timed against it. It must not
//! know which.

use std::time::Duration;

use bytes::BytesMut;
use lockwheel_engine::session::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};

use crate::{CHUNK, Random, chunks, time};

/// Who holds every lock: a process and a thread of it, as Redisson names them.
pub const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1";

/// The present, which stands still, so that no lease ends within a measurement.
const NOW: Time = Time::at(Millis(1_700_000_000_000));

/// Odd and prime, so that a walk in such steps meets a key once and leaves no trace in the caches.
const STRIDE: usize = 7_919;

/// What is measured. Commands are separated by `;`. In them `{string}` and `{hash}` stand for locks
/// that are held for 30 s, another one each time, `{fresh}` for a key that does not exist, and
/// `{owner}` for [`OWNER`]; `{100 hashes}` and `{100 owners}` for as many of them.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    before: &'a str,
    work: &'a str,
    replies: &'a str,
    after: &'a str,
}

impl<'a> Conversation<'a> {
    /// The work that is measured, and what it is answered, byte for byte.
    pub const fn new(work: &'a str, replies: &'a str) -> Conversation<'a> {
        Conversation { before: "", work, replies, after: "" }
    }

    /// What is done before the work, and not measured.
    pub const fn before(self, before: &'a str) -> Conversation<'a> {
        Conversation { before, ..self }
    }

    /// What is done after the work to undo it, and not measured.
    pub const fn after(self, after: &'a str) -> Conversation<'a> {
        Conversation { after, ..self }
    }
}

/// See the module's documentation.
pub struct Stage {
    engine: Engine,
    client: ClientId,
    out: BytesMut,
    /// As many strings and as many hashes are held.
    held_of_each: usize,
    random: Random,
}

impl Stage {
    /// An engine that holds so many locks, half of them strings, half of them hashes.
    pub fn new(locks: usize) -> Stage {
        let held_of_each = locks / 2;
        assert!(held_of_each >= CHUNK, "a chunk meets a key once");
        let mut engine = Engine::new(Settings::default(), NOW, [1, 2, 3, 4]);
        let client = engine.connect(Origin::default(), NOW);
        let random = Random::new();
        let mut stage = Stage { engine, client, out: BytesMut::new(), held_of_each, random };
        for number in 0..held_of_each {
            stage.hold(
                "SET {string} {owner} PX 30000; HSET {hash} {owner} 1; PEXPIRE {hash} 30000",
                &[number],
            );
        }
        stage
    }

    /// Caches a script; returns the digest that names it.
    pub fn load(&mut self, script: &str) -> String {
        self.out.clear();
        self.run(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        let reply = String::from_utf8_lossy(&self.out);
        reply.split("\r\n").nth(1).expect("a bulk string").to_owned()
    }

    /// Connects so many clients that listen to a channel.
    pub fn subscribe(&mut self, channel: &str, clients: usize) {
        for _ in 0..clients {
            let client = self.engine.connect(Origin::default(), NOW);
            let argv: [&[u8]; 2] = [b"SUBSCRIBE", channel.as_bytes()];
            self.engine.run(NOW, client, &argv, &mut self.out);
        }
    }

    /// Says something once, which may not fail; nothing, if there is nothing to say.
    pub fn hold_once(&mut self, conversation: &str) {
        self.hold(conversation, &[0]);
    }

    /// Does a chunk of the work where nobody measures it, so that whatever grows has grown.
    pub fn warm_up(&mut self, conversation: &Conversation<'_>) {
        let numbers = self.numbers(CHUNK);
        for part in [conversation.before, conversation.work, conversation.after] {
            self.hold(part, &numbers);
        }
        self.out.reserve(conversation.replies.len() * CHUNK);
    }

    /// How long it takes to do the work `count` times.
    pub fn time(&mut self, conversation: &Conversation<'_>, count: u64) -> Duration {
        let mut spent = Duration::ZERO;
        self.perform(conversation, count, |work| spent += time(work));
        spent
    }

    /// Does the work `count` times. `around` is called for each chunk of it, with the work itself
    /// and nothing else.
    pub fn perform(
        &mut self,
        conversation: &Conversation<'_>,
        count: u64,
        mut around: impl FnMut(&mut dyn FnMut()),
    ) {
        for size in chunks(count) {
            let numbers = self.numbers(size);
            self.hold(conversation.before, &numbers);
            let requests = requests(conversation.work, &numbers);
            let requests: Vec<Vec<&[u8]>> = requests.iter().map(|it| slices(it)).collect();
            self.out.clear();
            around(&mut || self.run_all(&requests));
            let expected = conversation.replies.repeat(size);
            assert_eq!(String::from_utf8_lossy(&self.out), expected, "{}", conversation.work);
            self.hold(conversation.after, &numbers);
        }
    }

    /// The work alone: what is counted where instructions are, so a function that can be named.
    #[inline(never)]
    fn run_all(&mut self, requests: &[Vec<&[u8]>]) {
        for argv in requests {
            self.run(argv);
        }
    }

    /// Runs one request as a connection does, and takes what others are to receive of it.
    fn run(&mut self, argv: &[&[u8]]) {
        let flow = self.engine.run(NOW, self.client, argv, &mut self.out);
        assert_eq!(flow, Flow::Next);
        if self.engine.has_deliveries() {
            // As an outbox does, which leaves its room.
            self.engine.hand_out(|_, delivery| delivery.bytes.clear());
        }
    }

    /// Holds a conversation in which nothing may fail.
    fn hold(&mut self, conversation: &str, numbers: &[usize]) {
        for request in requests(conversation, numbers) {
            self.out.clear();
            self.run(&slices(&request));
            let reply = String::from_utf8_lossy(&self.out);
            assert!(!reply.starts_with('-'), "{reply} in {conversation}");
        }
    }

    /// Which of the held locks a chunk is about.
    fn numbers(&mut self, size: usize) -> Vec<usize> {
        let first = self.random.below(self.held_of_each as u32) as usize;
        (0..size).map(|step| (first + step * STRIDE) % self.held_of_each).collect()
    }
}

/// The conversation's requests, held once for every number.
fn requests(conversation: &str, numbers: &[usize]) -> Vec<Vec<String>> {
    let commands = || conversation.split(';').filter(|command| !command.trim().is_empty());
    let hashes = |from: usize| {
        let hash = |step: usize| format!("hash:{}", (from + step) % CHUNK);
        (0..100).map(hash).collect::<Vec<_>>().join(" ")
    };
    let owners = [OWNER; 100].join(" ");
    let request = |command: &str, number: usize| {
        command
            .replace("{100 hashes}", &hashes(number))
            .replace("{100 owners}", &owners)
            .replace("{string}", &format!("string:{number}"))
            .replace("{hash}", &format!("hash:{number}"))
            .replace("{fresh}", &format!("fresh:{number}"))
            .replace("{owner}", OWNER)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    numbers.iter().flat_map(|&number| commands().map(move |it| request(it, number))).collect()
}

fn slices(request: &[String]) -> Vec<&[u8]> {
    request.iter().map(String::as_bytes).collect()
}
