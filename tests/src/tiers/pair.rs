//! Two engines that differ only in `script-plans`.

use std::collections::BTreeMap;
use std::fmt;

use bytes::BytesMut;
use lockwheel_engine::command::CommandStats;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::run::script::ScriptMonitor;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_scripting::{LogLevel, Tiers};

use super::grammar::{INITIAL_KEYS, Request};

const BEGIN: Millis = Millis(1_700_000_000_000);
/// Keys that expire in one tick.
const TICK_BUDGET: u32 = 1_000;
/// The sections of `INFO` that must be equal. Memory is not among them, because plans take some.
const SECTIONS: [&str; 4] = ["stats", "commandstats", "errorstats", "keyspace"];
/// Polls after which a script counts as endless.
const POLLS_MAX: u32 = 500;

/// An engine, with a client for each version of the protocol, and one that is subscribed to
/// everything.
pub struct Side {
    engine: Engine,
    clients: [ClientId; 2],
    now: Millis,
    /// The value of `dirty` when the keys were reset.
    dirty_at_reset: Option<u64>,
}

/// Everything that can be observed of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The replies, as they are sent.
    pub replies: Vec<u8>,
    /// The messages to subscribers, keyspace events included.
    pub messages: Vec<Vec<u8>>,
    /// The lines that the script has logged.
    pub log: Vec<(LogLevel, String)>,
    /// How often each command has been called, was refused, and has failed; by name.
    pub commands: BTreeMap<&'static str, [u64; 3]>,
    /// Hits, misses, errors, changes.
    pub counters: [u64; 4],
    /// Errors by code.
    pub errors: BTreeMap<String, u64>,
    /// The values and deadlines of all keys, if any was changed.
    pub keys: Vec<u8>,
    /// Whether the script had to be killed.
    pub is_endless: bool,
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} log {:?} commands {:?} counters {:?} errors {:?}",
            text(&self.replies),
            self.log,
            self.commands,
            self.counters,
            self.errors
        )?;
        write!(f, " messages {}", self.messages.len())?;
        self.messages.iter().try_for_each(|message| write!(f, " {}", text(message)))?;
        write!(f, " keys {}", text(&self.keys))
    }
}

impl Side {
    /// An empty engine.
    pub fn new(script_plans: bool) -> Side {
        let now = BEGIN;
        let mut settings = Settings::default();
        settings.script_plans = script_plans;
        let mut engine = Engine::new(settings, Process::default(), Time::at(now), [1, 2, 3, 4]);
        let listener = engine.connect(Origin::default(), Time::at(now));
        let clients = [0, 1].map(|_| engine.connect(Origin::default(), Time::at(now)));
        let mut side = Side { engine, clients, now, dirty_at_reset: None };
        side.run(listener, &[b"PSUBSCRIBE", b"*"]);
        side.run(clients[0], &[b"CONFIG", b"SET", b"notify-keyspace-events", b"KEA"]);
        side.run(clients[1], &[b"HELLO", b"3"]);
        side.engine.deliveries();
        side
    }

    fn run(&mut self, client: ClientId, argv: &[&[u8]]) -> Vec<u8> {
        self.engine.set_script_monitor(Box::new(ScriptKiller(POLLS_MAX)));
        let mut out = BytesMut::new();
        let time = Time::at(self.now);
        let flow = self.engine.run(time, client, argv, &mut out);
        self.engine.end_request(time, client, &mut out, |_| false);
        assert_eq!(flow, Flow::Next, "{}", show(argv));
        out.to_vec()
    }

    fn messages(&mut self) -> Vec<Vec<u8>> {
        self.engine.deliveries().into_iter().map(|delivery| delivery.bytes.to_vec()).collect()
    }

    /// Sets all keys to their initial values again, if any has changed.
    pub fn reset_keys(&mut self) {
        if self.dirty_at_reset == Some(self.engine.changes()) {
            return;
        }
        self.run(self.clients[0], &[b"FLUSHALL"]);
        for command in INITIAL_KEYS {
            let argv: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            self.run(self.clients[0], &argv);
        }
        self.messages();
        self.dirty_at_reset = Some(self.engine.changes());
    }

    /// Runs a script with the present keys.
    pub fn observe(&mut self, script: &str, request: &Request, protocol: u8) -> Observation {
        let client = self.clients[usize::from(protocol == 3)];
        let mut seen = Observation::default();
        let counts = |stats: &CommandStats| [stats.calls, stats.rejected, stats.failed];
        let before: Vec<_> = self.engine.command_stats().map(|(_, it)| counts(it)).collect();
        let stats = self.engine.stats().clone();
        let dirty = self.engine.changes();
        for command in request.commands(script) {
            let argv: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            let reply = self.run(client, &argv);
            seen.replies.extend(reply);
        }
        seen.is_endless = contains(&seen.replies, b"Script killed by user");
        seen.messages = self.messages();
        seen.log = self.engine.take_script_messages();
        for ((entry, after), before) in self.engine.command_stats().zip(&before) {
            let (after, mut new) = (counts(after), [0; 3]);
            for (at, new) in new.iter_mut().enumerate() {
                *new = after[at] - before[at];
            }
            if new != [0; 3] {
                seen.commands.insert(&entry.full_name, new);
            }
        }
        let now = self.engine.stats();
        seen.counters = [
            now.keyspace_hits - stats.keyspace_hits,
            now.keyspace_misses - stats.keyspace_misses,
            now.total_error_replies - stats.total_error_replies,
            self.engine.changes() - dirty,
        ];
        if seen.counters[2] > 0 {
            for (code, count) in &now.errors {
                let before = stats.errors.get(code).copied().unwrap_or_default();
                if *count > before {
                    seen.errors.insert(code.clone(), count - before);
                }
            }
        }
        if self.engine.changes() != dirty {
            seen.keys = self.keys();
        }
        seen
    }

    /// Every key with its value and its deadline.
    fn keys(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let keys = self.run(self.clients[0], &[b"KEYS", b"*"]);
        for key in names(&keys) {
            all.extend(key);
            all.extend(self.run(self.clients[0], &[b"DUMP", key]));
            all.extend(self.run(self.clients[0], &[b"PTTL", key]));
        }
        all
    }

    /// The reply to a request in one version of the protocol.
    pub fn send(&mut self, protocol: u8, argv: &[&[u8]]) -> Vec<u8> {
        self.run(self.clients[usize::from(protocol == 3)], argv)
    }

    /// How the engine has run its scripts.
    pub fn tiers(&self) -> Tiers {
        self.engine.script_tiers()
    }
}

/// The keys in a reply to `KEYS`. No key here looks like the header of a reply.
fn names(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = reply.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.starts_with(b"$") && !line.starts_with(b"*"))
}

/// The two engines, the one with plans first.
pub struct Pair {
    sides: [Side; 2],
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

impl Pair {
    /// Two empty engines.
    pub fn new() -> Pair {
        Pair { sides: [true, false].map(Side::new) }
    }

    /// Runs a script on both, after a reset of the keys.
    pub fn observe(&mut self, script: &str, request: &Request, protocol: u8) -> [Observation; 2] {
        self.sides.each_mut().map(|side| {
            side.reset_keys();
            side.observe(script, request, protocol)
        })
    }

    /// Runs a request on both and returns the reply. Panics if they differ in the reply or in the
    /// messages to other clients.
    pub fn run(&mut self, argv: &[&[u8]]) -> Vec<u8> {
        let [planned, plain] = self.sides.each_mut().map(|side| {
            let reply = side.run(side.clients[0], argv);
            (reply, side.messages().iter().map(|bytes| text(bytes)).collect::<Vec<_>>())
        });
        assert_eq!(text(&planned.0), text(&plain.0), "{}", show(argv));
        assert_eq!(planned.1, plain.1, "what others hear of {}", show(argv));
        planned.0
    }

    /// Does the same as [`Pair::run`] for words without blanks.
    pub fn run_words(&mut self, words: &str) -> Vec<u8> {
        let argv: Vec<&[u8]> = words.split_whitespace().map(str::as_bytes).collect();
        self.run(&argv)
    }

    /// Advances the clock.
    pub fn advance(&mut self, span_ms: i64) {
        let [planned, plain] = self.sides.each_mut().map(|side| {
            side.now.0 += span_ms;
            side.engine.tick(Time::at(side.now), TICK_BUDGET);
            side.engine.serve_waiters(Time::at(side.now), |_| false);
            side.messages().iter().map(|bytes| text(bytes)).collect::<Vec<_>>()
        });
        assert_eq!(planned, plain, "what others hear as time passes");
    }

    /// Panics if the two differ in any key or in any statistics.
    pub fn compare(&mut self) {
        for section in SECTIONS {
            self.run(&[b"INFO", section.as_bytes()]);
        }
        let keys = self.run(&[b"KEYS", b"*"]);
        for key in names(&keys) {
            self.run(&[b"DUMP", key]);
            self.run(&[b"PTTL", key]);
        }
    }

    /// How the engine with plans has run its scripts.
    pub fn tiers(&self) -> Tiers {
        self.sides[0].tiers()
    }
}

/// Kills a script after a number of polls.
struct ScriptKiller(u32);

impl ScriptMonitor for ScriptKiller {
    fn poll(&mut self, engine: &mut Engine) {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            engine.kill_script();
        }
    }
}

/// Whether `bytes` contain `part`.
pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn show(argv: &[&[u8]]) -> String {
    let words: Vec<_> = argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join("\u{2423}")
}
