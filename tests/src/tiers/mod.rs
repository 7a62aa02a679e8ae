//! Two engines that differ in nothing but `script-plans`, run side by side: whatever one says, the
//! other says. Knows no test framework, for the fuzz target is built from the same files.

pub mod grammar;

use bytes::BytesMut;
use leasehold::config::Config;
use leasehold::engine::client::{ClientId, Origin};
use leasehold::engine::script::Watchdog;
use leasehold::engine::time::{Millis, Time};
use leasehold::engine::{Engine, Flow};
use leasehold_scripting::Tiers;

const BEGIN: Millis = Millis(1_700_000_000_000);
/// Keys that fire in one turn of the clock.
const TICK_BUDGET: u32 = 1_000;
/// Where what must be the same is counted.
const SECTIONS: [&str; 5] = ["stats", "commandstats", "errorstats", "keyspace", "memory"];

/// The two, the one with plans first.
pub struct Pair {
    engines: [Engine; 2],
    clients: [ClientId; 2],
    now: Millis,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl Pair {
    /// Two empty engines, each with a client that hears of all that happens.
    pub fn new() -> Pair {
        let now = BEGIN;
        let mut engines = [true, false].map(|script_plans| {
            let mut config = Config::default();
            config.script_plans = script_plans;
            Engine::new(config, Time::at(now), [1, 2, 3, 4])
        });
        let clients = engines.each_mut().map(|engine| {
            let listener = engine.connect(Origin::default(), Time::at(now));
            let client = engine.connect(Origin::default(), Time::at(now));
            engine.watchdog = Some(Box::new(Patience(QUESTIONS_MAX)));
            let mut run = |client, argv: &[&[u8]]| {
                engine.run(Time::at(now), client, argv, &mut BytesMut::new())
            };
            run(client, &[b"CONFIG", b"SET", b"notify-keyspace-events", b"KEA"]);
            run(listener, &[b"PSUBSCRIBE", b"*"]);
            client
        });
        Pair { engines, clients, now }
    }

    /// Runs a request on both; what it is answered. Panics if they differ in that, or in what
    /// others hear of it.
    pub fn run(&mut self, argv: &[&[u8]]) -> Vec<u8> {
        let [planned, plain] = [0, 1].map(|which| {
            let mut out = BytesMut::new();
            let (engine, client) = (&mut self.engines[which], self.clients[which]);
            let flow = engine.run(Time::at(self.now), client, argv, &mut out);
            assert_eq!(flow, Flow::Next, "{}", show(argv));
            let heard = engine.deliveries().into_iter().map(|delivery| delivery.bytes);
            (out.to_vec(), heard.map(|bytes| text(&bytes)).collect::<Vec<_>>())
        });
        assert_eq!(text(&planned.0), text(&plain.0), "{}", show(argv));
        assert_eq!(planned.1, plain.1, "what others hear of {}", show(argv));
        planned.0
    }

    /// As [`Pair::run`], of words that hold no blanks.
    pub fn run_words(&mut self, words: &str) -> Vec<u8> {
        let argv: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        self.run(&argv)
    }

    /// Lets time pass.
    pub fn advance(&mut self, span_ms: i64) {
        self.now.0 += span_ms;
        let [planned, plain] = self.engines.each_mut().map(|engine| {
            engine.tick(Time::at(self.now), TICK_BUDGET);
            let heard = engine.deliveries().into_iter().map(|delivery| delivery.bytes);
            heard.map(|bytes| text(&bytes)).collect::<Vec<_>>()
        });
        assert_eq!(planned, plain, "what others hear as time passes");
    }

    /// Panics if the two differ in any key, or in anything they count.
    pub fn compare(&mut self) {
        for section in SECTIONS {
            self.run(&[b"INFO", section.as_bytes()]);
        }
        let keys = self.run(&[b"KEYS", b"*"]);
        let lines = keys.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let keys: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
        for key in keys.iter().filter(|key| !key.starts_with(b"$") && !key.starts_with(b"*")) {
            self.run(&[b"DUMP", key]);
            self.run(&[b"PTTL", key]);
        }
    }

    /// How the engine with plans has run its scripts.
    pub fn tiers(&self) -> Tiers {
        let interpreter = self.engines[0].interpreter.as_ref();
        interpreter.map(|lua| lua.tiers()).unwrap_or_default()
    }
}

/// Questions of all scripts together after which one of them is taken for endless.
const QUESTIONS_MAX: u64 = 100_000;

/// Ends a test whose script does not end by itself.
struct Patience(u64);

impl Watchdog for Patience {
    fn poll(&mut self, _: &mut Engine) {
        self.0 = self.0.checked_sub(1).expect("the scripts have an end");
    }

    fn has_hung_up(&self, _: ClientId) -> bool {
        false
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn show(argv: &[&[u8]]) -> String {
    let words: Vec<_> = argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join("\u{2423}")
}
