//! The server that faults act on: the engine, its connections, the clock, and storage for faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::run::script::ScriptMonitor;
use lockwheel_engine::sessions::{ClientId, Close, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::{Reply, decode};
use lockwheel_scripting::Interpreter;

use super::SeededFault;
use super::connections::{Connections, Received, SocketEvent, encoded};
use crate::replay::Input;

/// The seed of the engine.
pub const SEED: [u64; 4] = [1, 2, 3, 4];
/// Timers fired in one turn.
const TICK_BUDGET: u32 = 1000;

/// A correct engine with one fault around it.
pub struct FaultyEngine {
    /// The engine, which is correct.
    pub engine: Engine,
    /// A counter for the fault.
    pub count: u64,
    /// Values by key for the fault.
    pub notes: BTreeMap<Vec<u8>, i64>,
    /// The requests of blocked clients, in the order in which they came.
    pub waits: Vec<Request>,
    /// Texts of scripts by their digests.
    pub scripts: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Lua interpreters for scripts that run outside of the engine, which may be nested.
    pub interpreters: Vec<Interpreter>,
    connections: Arc<Mutex<Connections>>,
    clock: Clock,
    fault: Option<&'static SeededFault>,
    separate_client: Option<ClientId>,
    postponed: Vec<(Instant, ClientId, Vec<u8>)>,
    ended: bool,
}

/// A command of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client.
    pub client: ClientId,
    /// Its words.
    pub argv: Vec<Vec<u8>>,
}

/// The reply to a request, and how the connection goes on.
#[derive(Debug)]
pub struct Answer {
    /// The bytes of the reply.
    pub bytes: BytesMut,
    /// How it goes on.
    pub flow: Flow,
}

impl Request {
    /// Whether it is this command.
    pub fn is(&self, name: &str) -> bool {
        self.word(0) == name
    }

    /// Whether it is one of these commands.
    pub fn is_any(&self, names: &[&str]) -> bool {
        names.contains(&self.word(0).as_str())
    }

    /// The word at a place, in lower case; empty if there is none.
    pub fn word(&self, at: usize) -> String {
        let word = self.argv.get(at).map(|word| String::from_utf8_lossy(word).to_lowercase());
        word.unwrap_or_default()
    }

    /// The first word after the name: usually the key.
    pub fn key(&self) -> Vec<u8> {
        self.argv.get(1).cloned().unwrap_or_default()
    }

    /// The place of an option.
    pub fn option(&self, name: &str) -> Option<usize> {
        (1..self.argv.len()).find(|&at| self.word(at) == name)
    }

    /// Another command of the same client.
    pub fn with<A: AsRef<[u8]>>(&self, argv: &[A]) -> Request {
        let argv = argv.iter().map(|word| word.as_ref().to_vec()).collect();
        Request { client: self.client, argv }
    }
}

impl Answer {
    /// The first reply.
    pub fn reply(&self) -> Reply {
        decode(&self.bytes).ok().flatten().map_or(Reply::NOTHING, |(reply, _)| reply)
    }
}

impl FaultyEngine {
    pub(super) fn new(
        connections: Connections,
        fault: Option<&'static SeededFault>,
    ) -> FaultyEngine {
        let clock = Clock::start();
        let micros = clock.micros();
        connections.record_time(micros);
        let time = Time::from_micros(micros[0], micros[1]);
        let clock_ns = || wall_us().unsigned_abs() * 1_000;
        let process = Process { clock_ns, sleep: pause, ..Process::default() };
        let mut engine = Engine::new(Settings::default(), process, time, SEED);
        let connections = Arc::new(Mutex::new(connections));
        engine.set_script_monitor(Box::new(SlowScriptWatch {
            connections: Arc::clone(&connections),
            clock,
            busy: None,
            polls: 0,
        }));
        FaultyEngine {
            engine,
            count: 0,
            notes: BTreeMap::new(),
            waits: Vec::new(),
            scripts: BTreeMap::new(),
            interpreters: Vec::new(),
            connections,
            clock,
            fault,
            separate_client: None,
            postponed: Vec::new(),
            ended: false,
        }
    }

    /// The time of an input, which is recorded.
    fn input_time(&self) -> Time {
        let micros = self.clock.micros();
        locked(&self.connections).record_time(micros);
        Time::from_micros(micros[0], micros[1])
    }

    pub(super) fn run_loop(mut self) {
        while !self.ended {
            self.serve_for(Duration::from_secs(1));
        }
    }

    /// Serves the clients for a while. Within a request, a correct server would not do so.
    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    pub fn serve_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        loop {
            let time = self.input_time();
            locked(&self.connections).record(|| Input::Tick(TICK_BUDGET));
            self.engine.tick(time, TICK_BUDGET);
            let connections = locked(&self.connections);
            self.engine.serve_waiters(time, |client| connections.peer_has_closed(client));
            drop(connections);
            self.deliver();
            self.send_postponed();
            self.run_requests();
            let now = Instant::now();
            if self.ended || now >= end {
                return;
            }
            let due = self.engine.next_deadline().map(|deadline| self.clock.until(deadline));
            let postponed = self.postponed.iter().map(|(due, ..)| *due - now).min();
            let timeout = [Some(end - now), due, postponed].into_iter().flatten().min();
            let event = locked(&self.connections).events.recv_timeout(timeout.unwrap_or_default());
            if let Ok(event) = event {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: SocketEvent) {
        self.ended |= matches!(event, SocketEvent::Stop);
        let time = self.input_time();
        let left = locked(&self.connections).handle(&mut self.engine, time, event);
        let Some(client) = left else { return };
        match self.fault.and_then(|fault| fault.on_disconnect) {
            Some(on_disconnect) => on_disconnect(self, client),
            None => locked(&self.connections).disconnect(&mut self.engine, client),
        }
        self.waits.retain(|wait| wait.client != client);
        locked(&self.connections).close(client, Close::Now);
    }

    /// Runs all requests that can run.
    fn run_requests(&mut self) {
        loop {
            let next = locked(&self.connections).next();
            let Some((client, pending)) = next else { return };
            let (argv, answer) = match pending {
                Received::Command(argv) => {
                    let answer = self.run_faulty(&Request { client, argv: argv.clone() });
                    (argv, answer)
                }
                Received::Invalid(reply) => {
                    let bytes = encoded(&self.engine, client, &reply);
                    (Vec::new(), Answer { bytes, flow: Flow::Close })
                }
            };
            if answer.flow == Flow::Wait {
                self.waits.push(Request { client, argv: argv.clone() });
            }
            self.ended |= answer.flow == Flow::Shutdown;
            let (bytes, flow) = (&answer.bytes, answer.flow);
            locked(&self.connections).settle(&mut self.engine, client, &argv, bytes, flow);
            self.deliver();
        }
    }

    fn run_faulty(&mut self, request: &Request) -> Answer {
        let queues = self.engine.session(request.client);
        let queues = queues.is_some_and(|state| state.transaction.is_some());
        match self.fault.and_then(|fault| fault.run) {
            Some(run) if !queues || request.is_any(&["exec", "discard"]) => run(self, request),
            _ => self.run(request),
        }
    }

    // --- Operations for faults ---

    /// Runs a request as a correct server does.
    pub fn run(&mut self, request: &Request) -> Answer {
        let mut bytes = BytesMut::new();
        let argv: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
        if request.is_any(&["post", "host:"]) {
            return Answer { bytes, flow: Flow::Close };
        }
        let time = self.input_time();
        locked(&self.connections)
            .record(|| Input::Request(request.client.serial, request.argv.clone()));
        self.engine.begin_requests();
        let flow = self.engine.run(time, request.client, &argv, &mut bytes);
        locked(&self.connections).set_polls(None);
        let connections = locked(&self.connections);
        let has_left = |client| connections.peer_has_closed(client);
        self.engine.end_request(time, request.client, &mut bytes, has_left);
        drop(connections);
        self.deliver();
        Answer { bytes, flow }
    }

    /// Runs another command in the place of the client's.
    pub fn run_as<A: AsRef<[u8]>>(&mut self, request: &Request, argv: &[A]) -> Answer {
        self.run(&request.with(argv))
    }

    /// An answer with this reply.
    pub fn answer(&self, request: &Request, reply: &Reply) -> Answer {
        Answer { bytes: encoded(&self.engine, request.client, reply), flow: Flow::Next }
    }

    /// Runs a command in the database of a client on a connection of its own.
    pub fn run_separately(&mut self, request: &Request, argv: &[&[u8]]) -> Reply {
        let separate_client = self.separate_client();
        let database = self.engine.session(request.client).map_or(0, |state| state.database);
        let select = [b"SELECT", database.to_string().as_bytes()].map(<[u8]>::to_vec);
        self.run(&Request { client: separate_client, argv: select.to_vec() });
        let answer = self.run(&Request { client: separate_client, ..request.with(argv) });
        if answer.flow == Flow::Wait {
            self.engine.disconnect(separate_client);
            self.separate_client = None;
        }
        answer.reply()
    }

    fn separate_client(&mut self) -> ClientId {
        let (engine, time) = (&mut self.engine, self.clock.now());
        *self.separate_client.get_or_insert_with(|| engine.connect(Origin::default(), time))
    }

    /// Ends the wait of a blocked client, which gets no reply.
    pub fn end_wait_silently(&mut self, client: ClientId) {
        let (separate_client, serial) = (self.separate_client(), client.serial.to_string());
        let argv: [&[u8]; 3] = [b"CLIENT", b"UNBLOCK", serial.as_bytes()];
        self.engine.run(self.clock.now(), separate_client, &argv, &mut BytesMut::new());
        self.engine.deliveries();
    }

    /// The integer reply to a command in the database of a client; 0 for other replies.
    pub fn number(&mut self, request: &Request, argv: &[&[u8]]) -> i64 {
        match self.run_separately(request, argv) {
            Reply::Integer(number) => number,
            _ => 0,
        }
    }

    /// True at every `times`th call.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.count += 1;
        self.count.is_multiple_of(times)
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A reply as a client receives it.
    pub fn encoded(&self, client: ClientId, reply: &Reply) -> Vec<u8> {
        encoded(&self.engine, client, reply).to_vec()
    }

    /// Lets a closed connection be noticed only when it is read.
    pub fn stop_socket_checks(&mut self) {
        locked(&self.connections).check_sockets = false;
    }

    /// Sends bytes to a client later.
    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    pub fn send_later(&mut self, client: ClientId, bytes: &[u8], span: Duration) {
        self.postponed.push((Instant::now() + span, client, bytes.to_vec()));
    }

    /// Removes and returns the bytes that were to be sent to a client later.
    pub fn take_postponed(&mut self, client: ClientId) -> Vec<u8> {
        let taken = self.postponed.extract_if(.., |(_, recipient, _)| *recipient == client);
        taken.flat_map(|(_, _, bytes)| bytes).collect()
    }

    /// Removes and returns the next request that a client has already sent.
    pub fn take_pipelined(&mut self, client: ClientId) -> Option<Request> {
        let argv = locked(&self.connections).take_pending(client)?;
        Some(Request { client, argv })
    }

    /// The number of requests of a client that have not run yet.
    pub fn pipelined(&self, client: ClientId) -> usize {
        locked(&self.connections).pending(client)
    }

    // --- Deliveries ---

    fn deliver(&mut self) {
        while self.engine.has_deliveries() {
            for delivery in self.engine.deliveries() {
                let client = delivery.client;
                if delivery.resume {
                    self.waits.retain(|wait| wait.client != client);
                }
                let bytes = match self.fault.and_then(|fault| fault.rewrite_message) {
                    Some(rewrite_message) if !delivery.resume => {
                        let frames = frames(&delivery.bytes);
                        frames
                            .iter()
                            .flat_map(|frame| rewrite_message(self, client, frame))
                            .collect()
                    }
                    _ => delivery.bytes.to_vec(),
                };
                let mut connections = locked(&self.connections);
                connections.send(client, &bytes);
                if delivery.resume {
                    connections.resume(client);
                }
                if let Some(how) = delivery.close {
                    connections.close(client, how);
                    connections.disconnect(&mut self.engine, client);
                }
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    fn send_postponed(&mut self) {
        let now = Instant::now();
        for (_, client, bytes) in self.postponed.extract_if(.., |(due, ..)| *due <= now) {
            locked(&self.connections).send(client, &bytes);
        }
    }
}

/// Splits bytes into replies.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let Ok(Some((_, used))) = decode(rest) {
        frames.push(&rest[..used]);
        rest = &rest[used..];
    }
    frames
}

fn locked(shared: &Mutex<Connections>) -> std::sync::MutexGuard<'_, Connections> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "`DEBUG SLEEP` blocks all clients")]
fn pause(span: Millis) {
    std::thread::sleep(Duration::from_millis(u64::try_from(span.0).unwrap_or(0)));
}

/// Serves the other clients while a slow script runs.
struct SlowScriptWatch {
    connections: Arc<Mutex<Connections>>,
    clock: Clock,
    /// The running script, and the time at which it was first seen.
    busy: Option<(u64, Millis)>,
    /// Its polls so far.
    polls: u32,
}

impl ScriptMonitor for SlowScriptWatch {
    fn poll(&mut self, engine: &mut Engine) {
        let Some(script) = engine.running_script() else { return };
        let micros = self.clock.micros();
        let now = Time::from_micros(micros[0], micros[1]);
        let begin = match self.busy {
            Some((known, begin)) if known == script => begin,
            _ => {
                self.polls = 0;
                self.busy.insert((script, now.now)).1
            }
        };
        self.polls += 1;
        let threshold =
            i64::try_from(engine.settings().busy_reply_threshold_ms).unwrap_or(i64::MAX);
        if threshold == 0 || now.now.0 - begin.0 < threshold {
            return;
        }
        let mut connections = locked(&self.connections);
        connections.set_polls(Some(self.polls));
        connections.record_time(micros);
        connections.record(|| Input::Busy);
        engine.set_busy();
        while let Ok(event) = connections.events.try_recv() {
            if matches!(event, SocketEvent::Stop) {
                engine.kill_script();
            }
            if let Some(client) = connections.handle(engine, now, event) {
                // It may be the client of the running script; it is removed when its next reply is
                // lost.
                connections.close(client, Close::Now);
            }
        }
        while let Some((client, pending)) = connections.next() {
            let (mut bytes, mut flow, mut request) = (BytesMut::new(), Flow::Close, Vec::new());
            if let Received::Command(argv) = pending {
                let words: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
                connections.record(|| Input::Request(client.serial, argv.clone()));
                flow = engine.run(now, client, &words, &mut bytes);
                request = argv;
            }
            connections.settle(engine, client, &request, &bytes, flow);
        }
    }
}

/// The clocks of the system; the lease clock begins at the start.
#[derive(Clone, Copy)]
struct Clock {
    begin: Instant,
    begin_us: i64,
}

#[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
impl Clock {
    fn start() -> Clock {
        Clock { begin: Instant::now(), begin_us: wall_us() }
    }

    /// The lease clock and the wall clock in microseconds.
    fn micros(&self) -> [i64; 2] {
        let passed_us = i64::try_from(self.begin.elapsed().as_micros()).unwrap_or(i64::MAX);
        [self.begin_us.saturating_add(passed_us), wall_us()]
    }

    fn now(&self) -> Time {
        let [lease_us, wall_us] = self.micros();
        Time::from_micros(lease_us, wall_us)
    }

    fn until(&self, moment: Millis) -> Duration {
        let passed_us = i64::try_from(self.begin.elapsed().as_micros()).unwrap_or(i64::MAX);
        let now_us = self.begin_us.saturating_add(passed_us);
        let left_us = moment.0.saturating_mul(1000).saturating_sub(now_us);
        Duration::from_micros(u64::try_from(left_us).unwrap_or(0))
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
