//! Replays inputs into engines, without sockets: the same inputs must give the same outputs.
//!
//! Inputs are recorded as text, one a line, by a server of the tests
//! ([`FaultyServer::recorded`]) or by any other program:
//!
//! ```text
//! time 1700000000000000 1700000000000000
//! connect 1
//! request 1 SET k "a value\r\n"
//! tick 1000
//! request 1 EVAL "while true do end" 0
//! poll 12 busy
//! poll 12 request 2 SCRIPT KILL
//! peer-closed 2
//! disconnect 1
//! ```
//!
//! | Line | Meaning |
//! |---|---|
//! | `time LEASE WALL` | both clocks in microseconds, for the inputs that follow |
//! | `connect N` | a client connects; the first one is 1 |
//! | `disconnect N` | client N is removed |
//! | `request N WORD ...` | client N sends a request, quoted as in `redis-cli` |
//! | `tick BUDGET` | due timers are processed |
//! | `postpone MS` | all deadlines move |
//! | `peer-closed N` | client N has closed its connection; comes before clients are served |
//! | `busy` | the running script has become slow |
//! | `poll COUNT INPUT` | an input while the script of the request before runs, at this poll |
//!
//! [`FaultyServer::recorded`]: crate::faulty::FaultyServer::recorded

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use lockwheel_compat::fuzz::episode::command;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::run::script::ScriptMonitor;
use lockwheel_engine::sessions::{ClientId, Close, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::store::digest::Digest;
use lockwheel_engine::timing::time::{ClockOrder, Millis, Time};
use lockwheel_engine::{Engine, Flow};

/// Number of polls after which a running script is killed: no recording has as many.
const POLLS_MAX: u32 = 20_000;
/// Most keys with which the digests of the whole state are compared after each input that has
/// changed it.
const KEYS_MAX: usize = 64;
/// Number of inputs between two comparisons with more keys.
const INPUTS_PER_DIGEST: u64 = 1024;

/// One input of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The time of the inputs that follow.
    Time {
        /// The lease clock in microseconds.
        lease_us: i64,
        /// The wall clock in microseconds.
        wall_us: i64,
    },
    /// A client connects. Clients are numbered from 1, like `CLIENT ID`.
    Connect(u64),
    /// A client is removed.
    Disconnect(u64),
    /// A client sends a request.
    Request(u64, Vec<Vec<u8>>),
    /// What is due is processed, within this budget.
    Tick(u32),
    /// All deadlines move by these milliseconds.
    Postpone(i64),
    /// From now on the socket of a client is at its end.
    PeerClosed(u64),
    /// The running script has become slow.
    Busy,
    /// An input while a script runs: at this poll, counted from the input before.
    Poll(u32, Box<Input>),
}

impl Input {
    /// Reads a line; the error describes the mistake.
    pub fn parse(line: &str) -> Result<Input, String> {
        let words = lockwheel_compat::words::split(line)?;
        Input::of(&words).ok_or_else(|| format!("not an input: {line}"))
    }

    fn of(words: &[Vec<u8>]) -> Option<Input> {
        fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
            std::str::from_utf8(word).ok()?.parse().ok()
        }
        let (verb, rest) = words.split_first()?;
        Some(match (verb.as_slice(), rest) {
            (b"time", [lease_us, wall_us]) => {
                Input::Time { lease_us: number(lease_us)?, wall_us: number(wall_us)? }
            }
            (b"connect", [client]) => Input::Connect(number(client)?),
            (b"disconnect", [client]) => Input::Disconnect(number(client)?),
            (b"request", [client, argv @ ..]) => Input::Request(number(client)?, argv.to_vec()),
            (b"tick", [budget]) => Input::Tick(number(budget)?),
            (b"postpone", [span_ms]) => Input::Postpone(number(span_ms)?),
            (b"peer-closed", [client]) => Input::PeerClosed(number(client)?),
            (b"busy", []) => Input::Busy,
            (b"poll", [count, input @ ..]) => {
                Input::Poll(number(count)?, Box::new(Input::of(input)?))
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Time { lease_us, wall_us } => write!(f, "time {lease_us} {wall_us}"),
            Input::Connect(client) => write!(f, "connect {client}"),
            Input::Disconnect(client) => write!(f, "disconnect {client}"),
            Input::Request(client, argv) => write!(f, "request {client} {}", command(argv)),
            Input::Tick(budget) => write!(f, "tick {budget}"),
            Input::Postpone(span_ms) => write!(f, "postpone {span_ms}"),
            Input::PeerClosed(client) => write!(f, "peer-closed {client}"),
            Input::Busy => write!(f, "busy"),
            Input::Poll(count, input) => write!(f, "poll {count} {input}"),
        }
    }
}

/// Everything that an engine gives out after an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The reply and the next step of each request.
    pub replies: Vec<(u64, Flow, Vec<u8>)>,
    /// The deliveries: client, bytes, whether its wait is over, how it is disconnected.
    pub deliveries: Vec<(u64, Vec<u8>, bool, Option<Close>)>,
    /// Clients that were disconnected because of `maxmemory-clients`.
    pub evicted: Vec<u64>,
    /// The lines that scripts have logged.
    pub log: Vec<String>,
    /// When the engine has something to do next.
    pub next_deadline: Option<Millis>,
    /// The effects of each unit.
    pub effects: Vec<Vec<u8>>,
    /// The digest of the state, if it was computed.
    pub digest: Option<Digest>,
}

impl Output {
    /// The next step for a client after its request.
    pub fn flow(&self) -> Option<Flow> {
        self.replies.last().map(|(_, flow, _)| *flow)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (client, flow, bytes) in &self.replies {
            writeln!(f, "  reply to {client}, {flow:?}: {}", bytes.escape_ascii())?;
        }
        for (client, bytes, resume, close) in &self.deliveries {
            let bytes = bytes.escape_ascii();
            writeln!(f, "  to {client}, resumed: {resume}, closed: {close:?}: {bytes}")?;
        }
        writeln!(f, "  evicted {:?}, log {:?}", self.evicted, self.log)?;
        for unit in &self.effects {
            writeln!(f, "  effects {}", unit.escape_ascii())?;
        }
        write!(f, "  next deadline {:?}, state {:?}", self.next_deadline, self.digest)
    }
}

/// An engine that receives inputs.
pub struct ReplayedEngine {
    engine: Engine,
    state: Arc<Mutex<State>>,
}

/// What is shared with the monitor of scripts.
struct State {
    time: Time,
    clients: BTreeMap<u64, ClientId>,
    /// Polls since the last input that is not nested.
    polls: u32,
    /// The inputs to come while a script runs.
    nested: VecDeque<(u32, Input)>,
    output: Output,
}

impl ReplayedEngine {
    /// An engine without keys and clients.
    pub fn new(settings: &Settings, time: Time, seed: [u64; 4]) -> ReplayedEngine {
        let mut engine = Engine::new(settings.clone(), Process::default(), time, seed);
        let state = Arc::new(Mutex::new(State {
            time,
            clients: BTreeMap::new(),
            polls: 0,
            nested: VecDeque::new(),
            output: Output::default(),
        }));
        engine.set_script_monitor(Box::new(Monitor(Arc::clone(&state))));
        engine.keep_effects();
        ReplayedEngine { engine, state }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Applies an input, with the inputs to come while its script runs.
    pub fn feed(&mut self, input: &Input, nested: &[(u32, Input)]) -> Output {
        if !matches!(input, Input::PeerClosed(_)) {
            // The clients that the input before has woken.
            let time = locked(&self.state).time;
            self.engine.serve_waiters(time, |_| false);
        }
        {
            let mut state = locked(&self.state);
            state.polls = 0;
            state.nested = nested.iter().cloned().collect();
        }
        apply(&mut self.engine, &self.state, input);
        let mut output = std::mem::take(&mut locked(&self.state).output);
        self.collect(&mut output);
        if self.engine.has_clients_to_evict() {
            let evicted = self.engine.evict_clients();
            output.evicted = evicted.iter().map(|(client, _)| client.serial).collect();
            self.collect(&mut output);
        }
        output.log = self.engine.take_script_messages().into_iter().map(|(_, line)| line).collect();
        output.next_deadline = self.engine.next_deadline();
        output.effects = self.engine.take_effects();
        output
    }

    /// The number of keys in all databases.
    fn key_count(&self) -> usize {
        let databases = self.engine.settings().databases as usize;
        (0..databases).map(|database| self.engine.key_count(database)).sum()
    }

    fn collect(&mut self, output: &mut Output) {
        for delivery in self.engine.deliveries() {
            if delivery.close.is_some() {
                self.engine.disconnect(delivery.client);
            }
            let (client, bytes) = (delivery.client.serial, delivery.bytes.to_vec());
            output.deliveries.push((client, bytes, delivery.resume, delivery.close));
        }
    }
}

fn apply(engine: &mut Engine, shared: &Mutex<State>, input: &Input) {
    let time = locked(shared).time;
    let id_of = |client: &u64| locked(shared).clients.get(client).copied();
    match input {
        Input::Time { lease_us, wall_us } => {
            locked(shared).time = Time::from_micros(*lease_us, *wall_us);
        }
        Input::Connect(client) => {
            let origin = Origin {
                address: format!("127.0.0.1:{}", 10_000 + client % 50_000),
                local_address: "127.0.0.1:6379".to_owned(),
                descriptor: 8,
                local: true,
                ..Origin::default()
            };
            let id = engine.connect(origin, time);
            locked(shared).clients.insert(*client, id);
        }
        Input::Disconnect(client) => {
            let removed = locked(shared).clients.remove(client);
            removed.into_iter().for_each(|id| engine.disconnect(id));
        }
        Input::Request(client, argv) => {
            let Some(id) = id_of(client) else { return };
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let mut bytes = BytesMut::new();
            let flow = engine.run(time, id, &argv, &mut bytes);
            if flow == Flow::Close {
                engine.disconnect(id);
            }
            locked(shared).output.replies.push((*client, flow, bytes.to_vec()));
        }
        Input::Tick(budget) => engine.tick(time, *budget),
        Input::Postpone(span_ms) => {
            engine.clock_order(ClockOrder::Jump(Millis(-span_ms)), time);
        }
        Input::PeerClosed(client) => {
            id_of(client).into_iter().for_each(|id| engine.peer_closed(id));
        }
        Input::Busy => engine.set_busy(),
        // Applied by the monitor.
        Input::Poll(..) => {}
    }
}

/// Applies the inputs that come while a script runs.
struct Monitor(Arc<Mutex<State>>);

impl ScriptMonitor for Monitor {
    fn poll(&mut self, engine: &mut Engine) {
        let mut state = locked(&self.0);
        state.polls += 1;
        if state.polls > POLLS_MAX {
            engine.kill_script();
        }
        let polls = state.polls;
        let due = state.nested.iter().take_while(|(count, _)| *count <= polls).count();
        let due: Vec<_> = state.nested.drain(..due).collect();
        drop(state);
        for (_, input) in due {
            apply(engine, &self.0, &input);
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two engines that receive the same inputs. Their outputs must be equal.
pub struct Twins {
    engines: [ReplayedEngine; 2],
    inputs: u64,
}

impl Twins {
    /// Two engines that differ in nothing but their places in memory.
    pub fn new(settings: &Settings, time: Time, seed: [u64; 4]) -> Twins {
        let engine = || ReplayedEngine::new(settings, time, seed);
        Twins { engines: [engine(), engine()], inputs: 0 }
    }

    /// The first engine.
    pub fn engine(&self) -> &Engine {
        self.engines[0].engine()
    }

    /// Applies an input to both engines and returns their output; the error shows a difference.
    pub fn feed(&mut self, input: &Input, nested: &[(u32, Input)]) -> Result<Output, String> {
        self.inputs += 1;
        let is_due = self.inputs.is_multiple_of(INPUTS_PER_DIGEST);
        let [one, other] = self.engines.each_mut().map(|engine| {
            let mut output = engine.feed(input, nested);
            if is_due || !output.effects.is_empty() && engine.key_count() <= KEYS_MAX {
                output.digest = Some(engine.engine.digest());
            }
            output
        });
        if one != other {
            let number = self.inputs;
            return Err(format!("input {number}, {input}\nfirst:\n{one}\nsecond:\n{other}"));
        }
        Ok(one)
    }

    /// Replays recorded inputs; the error shows the first difference. Returns their number.
    pub fn replay(&mut self, inputs: impl IntoIterator<Item = Input>) -> Result<u64, String> {
        let mut inputs = inputs.into_iter().peekable();
        while let Some(input) = inputs.next() {
            let mut nested = Vec::new();
            while let Some(Input::Poll(count, input)) =
                inputs.next_if(|next| matches!(next, Input::Poll(..)))
            {
                nested.push((count, *input));
            }
            self.feed(&input, &nested)?;
        }
        self.compare_states()?;
        Ok(self.inputs)
    }

    /// Compares the digests of the whole state.
    pub fn compare_states(&self) -> Result<(), String> {
        let [one, other] = self.engines.each_ref().map(|engine| engine.engine.digest());
        if one == other { Ok(()) } else { Err("the states differ".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_engine::settings::Settings;
    use lockwheel_engine::timing::time::{Millis, Time};

    use super::{Input, ReplayedEngine, Twins};

    const BEGIN: Time = Time::at(Millis(1_700_000_000_000));

    #[test]
    fn text_of_an_input_is_read_back() {
        for line in [
            "time 1700000000000001 -5",
            "connect 1",
            "request 1 SET k \"a b\\r\\n\\x00\\xff\" \"\"",
            "tick 1000",
            "postpone -7",
            "peer-closed 3",
            "poll 12 request 2 SCRIPT KILL",
            "poll 12 busy",
            "disconnect 1",
        ] {
            assert_eq!(Input::parse(line).map(|input| input.to_string()), Ok(line.to_owned()));
        }
        for line in ["", "connect", "connect x", "poll 1", "poll 1 nothing", "tick 1 2"] {
            assert!(Input::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn script_receives_nested_inputs() {
        let mut engine = ReplayedEngine::new(&Settings::default(), BEGIN, [1, 2, 3, 4]);
        engine.feed(&Input::Connect(1), &[]);
        engine.feed(&Input::Connect(2), &[]);
        let request = |line: &str| Input::parse(line).expect("an input");
        let output = engine.feed(
            &request("request 1 EVAL \"while true do end\" 0"),
            &[
                (3, Input::Busy),
                (3, request("request 2 GET k")),
                (4, request("request 2 SCRIPT KILL")),
            ],
        );
        let starts: Vec<_> = output.replies.iter().map(|(client, ..)| *client).collect();
        assert_eq!(starts, [2, 2, 1], "{output}");
        assert!(output.replies[0].2.starts_with(b"-BUSY"), "{output}");
        let last = String::from_utf8_lossy(&output.replies[2].2);
        assert!(last.contains("Script killed by user"), "{output}");
    }

    #[test]
    fn replay_compares_whole_recordings() {
        let mut twins = Twins::new(&Settings::default(), BEGIN, [1, 2, 3, 4]);
        let lines = [
            "connect 1",
            "request 1 SET k v PX 10",
            "time 1700000000020000 1700000000020000",
            "tick 1000",
            "request 1 EVAL \"return redis.call('exists', KEYS[1])\" 1 k",
            "disconnect 1",
        ];
        let inputs = lines.map(|line| Input::parse(line).expect("an input"));
        assert_eq!(twins.replay(inputs), Ok(6));
    }
}
