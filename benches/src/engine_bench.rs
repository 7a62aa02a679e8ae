//! An engine that holds locks, without sockets, on which command sequences are timed.

use std::time::Duration;

use bytes::BytesMut;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};

use crate::time;
use crate::{CHUNK, Random, chunks};

/// The owner of every lock: a client's UUID and a thread number, as Redisson writes them.
pub const OWNER: &str = "0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1";

/// The engine's time, which does not advance, so that no lease ends during a measurement.
const NOW: Time = Time::at(Millis(1_700_000_000_000));

/// The distance between successive keys: prime, so that a chunk uses each key once, and large, so
/// that caches and prefetching do not help.
const STRIDE: usize = 7_919;

/// Commands to measure, separated by `;`. `{string}` and `{hash}` are replaced by locks held for
/// 30 s, different ones each time, `{fresh}` by a key that does not exist, `{owner}` by [`OWNER`],
/// `{100 hashes}` and `{100 owners}` by as many of them.
#[derive(Clone, Copy, Debug)]
pub struct BenchCase<'a> {
    setup: &'a str,
    work: &'a str,
    replies: &'a str,
    cleanup: &'a str,
}

impl<'a> BenchCase<'a> {
    /// The commands to measure, and the exact bytes of their replies.
    pub const fn new(work: &'a str, replies: &'a str) -> BenchCase<'a> {
        BenchCase { setup: "", work, replies, cleanup: "" }
    }

    /// Commands to run before the measured ones.
    pub const fn setup(self, setup: &'a str) -> BenchCase<'a> {
        BenchCase { setup, ..self }
    }

    /// Commands to run after the measured ones, to undo them.
    pub const fn cleanup(self, cleanup: &'a str) -> BenchCase<'a> {
        BenchCase { cleanup, ..self }
    }
}

/// An engine that holds locks, and one client of it.
pub struct EngineBench {
    engine: Engine,
    client: ClientId,
    out: BytesMut,
    /// The number of strings, and of hashes, that are held.
    held_of_each: usize,
    random: Random,
}

impl EngineBench {
    /// Creates an engine that holds this number of locks, half of them strings, half hashes.
    pub fn new(locks: usize) -> EngineBench {
        let held_of_each = locks / 2;
        assert!(held_of_each >= CHUNK, "a chunk uses each key once");
        // As on Linux, between two ticks.
        let process = Process { tick_ns: || 0, ..Process::default() };
        let mut engine = Engine::new(Settings::default(), process, NOW, [1, 2, 3, 4]);
        let client = engine.connect(Origin::default(), NOW);
        let random = Random::new();
        let mut bench = EngineBench { engine, client, out: BytesMut::new(), held_of_each, random };
        for number in 0..held_of_each {
            bench.run_unmeasured(
                "SET {string} {owner} PX 30000; HSET {hash} {owner} 1; PEXPIRE {hash} 30000",
                &[number],
            );
        }
        bench
    }

    /// Loads a script and returns its digest.
    pub fn load(&mut self, script: &str) -> String {
        self.out.clear();
        self.run(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        let reply = String::from_utf8_lossy(&self.out);
        reply.split("\r\n").nth(1).expect("a bulk string").to_owned()
    }

    /// Connects this number of clients and subscribes them to a channel.
    pub fn subscribe(&mut self, channel: &str, clients: usize) {
        for _ in 0..clients {
            let client = self.engine.connect(Origin::default(), NOW);
            let argv: [&[u8]; 2] = [b"SUBSCRIBE", channel.as_bytes()];
            self.engine.run(NOW, client, &argv, &mut self.out);
        }
    }

    /// Runs commands once; none of them may fail. The text may be empty.
    pub fn run_once(&mut self, commands: &str) {
        self.run_unmeasured(commands, &[0]);
    }

    /// Runs a chunk without measuring it, so that buffers and tables have their final sizes.
    pub fn warm_up(&mut self, case: &BenchCase<'_>) {
        let numbers = self.numbers(CHUNK);
        for part in [case.setup, case.work, case.cleanup] {
            self.run_unmeasured(part, &numbers);
        }
        self.out.reserve(case.replies.len() * CHUNK);
    }

    /// Returns how long the measured commands take when they are run `count` times.
    pub fn time(&mut self, case: &BenchCase<'_>, count: u64) -> Duration {
        let mut spent = Duration::ZERO;
        self.perform(case, count, |work| spent += time(work));
        spent
    }

    /// Runs the measured commands `count` times. `around` is called for each chunk, with a function
    /// that runs the measured commands only.
    pub fn perform(
        &mut self,
        case: &BenchCase<'_>,
        count: u64,
        mut around: impl FnMut(&mut dyn FnMut()),
    ) {
        for size in chunks(count) {
            let numbers = self.numbers(size);
            self.run_unmeasured(case.setup, &numbers);
            let requests = requests(case.work, &numbers);
            let requests: Vec<Vec<&[u8]>> = requests.iter().map(|it| slices(it)).collect();
            self.out.clear();
            around(&mut || self.run_all(&requests));
            let expected = case.replies.repeat(size);
            assert_eq!(String::from_utf8_lossy(&self.out), expected, "{}", case.work);
            self.run_unmeasured(case.cleanup, &numbers);
        }
    }

    /// Runs the measured commands. Not inlined, because callgrind selects this function by name.
    #[inline(never)]
    fn run_all(&mut self, requests: &[Vec<&[u8]>]) {
        for argv in requests {
            self.run(argv);
        }
    }

    /// Runs one request as a connection does, and discards its messages to other clients.
    fn run(&mut self, argv: &[&[u8]]) {
        let flow = self.engine.run(NOW, self.client, argv, &mut self.out);
        assert_eq!(flow, Flow::Next);
        if self.engine.has_deliveries() {
            // An outbox also clears the buffer and keeps its capacity.
            self.engine.hand_out(|_, delivery| delivery.bytes.clear());
        }
    }

    /// Runs commands for every number; none of them may fail.
    fn run_unmeasured(&mut self, commands: &str, numbers: &[usize]) {
        for request in requests(commands, numbers) {
            self.out.clear();
            self.run(&slices(&request));
            let reply = String::from_utf8_lossy(&self.out);
            assert!(!reply.starts_with('-'), "{reply} in {commands}");
        }
    }

    /// Returns the numbers of the held locks that a chunk uses.
    fn numbers(&mut self, size: usize) -> Vec<usize> {
        let first = self.random.below(self.held_of_each as u32) as usize;
        (0..size).map(|step| (first + step * STRIDE) % self.held_of_each).collect()
    }
}

/// Returns the requests of the commands, repeated for every number.
fn requests(commands: &str, numbers: &[usize]) -> Vec<Vec<String>> {
    let split = || commands.split(';').filter(|command| !command.trim().is_empty());
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
    numbers.iter().flat_map(|&number| split().map(move |it| request(it, number))).collect()
}

fn slices(request: &[String]) -> Vec<&[u8]> {
    request.iter().map(String::as_bytes).collect()
}
