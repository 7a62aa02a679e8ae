//! Random inputs for engines, from the generators of the fuzzer: several clients, transactions,
//! blocking commands, scripts, and a clock that runs.

use std::collections::BTreeMap;

use lockwheel_compat::cases;
use lockwheel_compat::fuzz::arguments::{self, Commands};
use lockwheel_compat::fuzz::episode::Episode;
use lockwheel_compat::fuzz::grammar::Grammar;
use lockwheel_compat::fuzz::side::expand;
use lockwheel_compat::fuzz::{draw, generate};
use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_engine::Flow;
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};

use crate::frame_of;
use crate::replay::{Input, Output, Twins};

const BEGIN_US: i64 = 1_700_000_000_000_000;
/// Timers that are processed in one tick.
const TICK_BUDGET: u32 = 1_000;
/// Mean number of requests between two events of one kind.
const EVENT_ONE_IN: u64 = 250;
/// Polls of a slow script until an input arrives.
const POLLS_MAX: u64 = 5;
/// The longest time between two requests.
const PAUSE_US_MAX: i64 = 2_000;
/// Number of episodes of which one has random arguments, most of them invalid.
const ARGUMENTS_ONE_IN: u64 = 4;
/// What is compared at the end of each episode, besides the state.
const INSPECTION: &[&str] = &[
    "INFO everything",
    "CLIENT LIST",
    "MEMORY STATS",
    "COMMAND LIST",
    "FUNCTION LIST",
    "FUNCTION STATS",
    "PUBSUB CHANNELS",
    "PUBSUB NUMPAT",
    "SCAN 0 COUNT 1000",
    "RANDOMKEY",
    "DBSIZE",
    "TIME",
    "EVAL return{tostring({}),tostring(pcall),os.clock()..'',math.random()..''} 0",
];

/// Sends random commands to two engines with this seed and these settings, and compares their
/// outputs; the error shows a difference. Returns the number of commands.
pub fn compare(settings: &Settings, seed: u64, commands: u64) -> Result<u64, String> {
    let mut player = Player::new(settings, seed);
    player.prepare()?;
    let docs = player.frame(&[b"COMMAND", b"DOCS"])?;
    let grammar = Grammar::new(&docs, (u32::MAX, 0), |_| true);
    let table = Commands::in_table(&player.frame(&[b"COMMAND"])?);
    for number in 0.. {
        if player.commands >= commands {
            break;
        }
        let episode = match number % ARGUMENTS_ONE_IN {
            0 => arguments::episode(&table, &grammar, seed, number),
            _ => generate::episode(&grammar, seed, number),
        };
        let shown = |problem| format!("seed {seed}, episode {number}, {problem}");
        player.episode(&episode).map_err(shown)?;
    }
    Ok(player.commands)
}

struct Player {
    twins: Twins,
    random: Random,
    now_us: i64,
    commands: u64,
    /// The clients of the episode, by name.
    clients: BTreeMap<char, u64>,
    /// The number of clients so far.
    connected: u64,
    /// Blocked clients, with the request to run again, if any.
    waiting: BTreeMap<u64, Option<Vec<Vec<u8>>>>,
}

impl Player {
    fn new(settings: &Settings, seed: u64) -> Player {
        let begin = Time::at(Millis(BEGIN_US / 1000));
        Player {
            twins: Twins::new(settings, begin, [seed, 2, 3, 4]),
            random: Random::new(seed),
            now_us: BEGIN_US,
            commands: 0,
            clients: BTreeMap::new(),
            connected: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Loads the scripts that are called by their digests.
    fn prepare(&mut self) -> Result<(), String> {
        for name in draw::lock_scripts() {
            let text = cases::script(name).unwrap_or_default();
            self.request('z', &[b"SCRIPT".to_vec(), b"LOAD".to_vec(), text.into()])?;
        }
        Ok(())
    }

    fn episode(&mut self, episode: &Episode) -> Result<(), String> {
        for step in &episode.steps {
            if !self.clients.contains_key(&step.client) {
                let hello = [b"HELLO".to_vec(), episode.protocol.to_string().into_bytes()];
                self.request(step.client, &hello)?;
            }
            let ids = self.clients.iter().map(|(&name, client)| (name, client.to_string()));
            let ids: BTreeMap<char, String> = ids.collect();
            let argv: Vec<_> = step.words.iter().map(|word| expand(word, "", &ids)).collect();
            self.request(step.client, &argv)?;
            let pause_us = match step.pass {
                Some(span) => i64::try_from(span.as_micros()).unwrap_or(0),
                None => self.random.between(0, PAUSE_US_MAX),
            };
            self.advance(pause_us)?;
            self.events()?;
        }
        for line in INSPECTION.iter().chain(&["FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH"]) {
            let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            self.request('z', &words)?;
        }
        self.twins.compare_states()?;
        for client in std::mem::take(&mut self.clients).into_values() {
            self.feed(&Input::Disconnect(client))?;
        }
        self.waiting.clear();
        self.prepare()
    }

    /// Sends a request, unless its client waits.
    fn request(&mut self, name: char, argv: &[Vec<u8>]) -> Result<Output, String> {
        let client = match self.clients.get(&name) {
            Some(&client) => client,
            None => {
                self.connected += 1;
                self.clients.insert(name, self.connected);
                self.feed(&Input::Connect(self.connected))?;
                self.connected
            }
        };
        if argv.is_empty() || self.waiting.contains_key(&client) {
            return Ok(Output::default());
        }
        self.commands += 1;
        self.feed(&Input::Request(client, argv.to_vec()))
    }

    /// Moves all deadlines, closes a connection, or runs a script until another client ends it,
    /// once in some commands.
    fn events(&mut self) -> Result<(), String> {
        if self.random.once_in(EVENT_ONE_IN) {
            let span_ms = self.random.between(0, PAUSE_US_MAX);
            self.feed(&Input::Postpone(span_ms))?;
        }
        if self.random.once_in(EVENT_ONE_IN) {
            let clients: Vec<u64> = self.clients.values().copied().collect();
            let client = *self.random.pick(&clients);
            self.feed(&Input::PeerClosed(client))?;
            self.feed(&Input::Disconnect(client))?;
            self.remove(client);
        }
        if self.random.once_in(EVENT_ONE_IN) {
            self.slow_script()?;
        }
        Ok(())
    }

    fn slow_script(&mut self) -> Result<(), String> {
        for name in ['x', 'y'] {
            self.request(name, &[b"PING".to_vec()])?;
        }
        let (Some(&runs), Some(&kills)) = (self.clients.get(&'x'), self.clients.get(&'y')) else {
            return Ok(());
        };
        let mut poll = 0;
        let nested = ["GET k", "SCRIPT KILL"].map(|line| {
            poll += 1 + self.random.below(POLLS_MAX) as u32;
            let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            (poll, Input::Request(kills, words))
        });
        let nested: Vec<_> = [(1, Input::Busy)].into_iter().chain(nested).collect();
        let script = "while true do redis.call('exists', os.clock()) end";
        let words = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec());
        self.commands += 1;
        self.feed_with(&Input::Request(runs, words.to_vec()), &nested)?;
        Ok(())
    }

    /// The reply to a request.
    fn frame(&mut self, argv: &[&[u8]]) -> Result<Frame, String> {
        let argv: Vec<_> = argv.iter().map(|word| word.to_vec()).collect();
        let output = self.request('z', &argv)?;
        output.replies.last().map(|(.., bytes)| frame_of(bytes)).ok_or("no reply".to_owned())
    }

    fn advance(&mut self, span_us: i64) -> Result<(), String> {
        self.now_us += span_us;
        self.feed(&Input::Time { lease_us: self.now_us, wall_us: self.now_us })?;
        let now = Millis(self.now_us.div_euclid(1000));
        while self.twins.engine().next_deadline().is_some_and(|next| next <= now) {
            self.feed(&Input::Tick(TICK_BUDGET))?;
        }
        Ok(())
    }

    /// Applies an input, and the requests that run again because of it.
    fn feed(&mut self, input: &Input) -> Result<Output, String> {
        self.feed_with(input, &[])
    }

    /// As `feed`, with the inputs to come while a script runs.
    fn feed_with(&mut self, input: &Input, nested: &[(u32, Input)]) -> Result<Output, String> {
        let output = self.twins.feed(input, nested)?;
        if let (Input::Request(client, argv), Some(flow)) = (input, output.flow()) {
            match flow {
                Flow::Wait => drop(self.waiting.insert(*client, None)),
                Flow::Again => drop(self.waiting.insert(*client, Some(argv.clone()))),
                Flow::Close => self.remove(*client),
                _ => {}
            }
        }
        for (client, _, resume, close) in &output.deliveries {
            if close.is_some() {
                self.remove(*client);
            } else if *resume && let Some(Some(argv)) = self.waiting.remove(client) {
                self.feed(&Input::Request(*client, argv))?;
            }
        }
        Ok(output)
    }

    fn remove(&mut self, client: u64) {
        self.waiting.remove(&client);
        self.clients.retain(|_, other| *other != client);
    }
}
