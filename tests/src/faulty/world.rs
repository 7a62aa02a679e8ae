//! What a fault can reach: the engine, its clients, the time, and some memory of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use lockwheel_engine::script::ScriptMonitor;
use lockwheel_engine::session::{ClientId, Close, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::{Reply, decode};
use lockwheel_scripting::Interpreter;

use super::Fault;
use super::crowd::{Asked, Crowd, Event, encoded};

/// Timers fired in one turn.
const TICK_BUDGET: u32 = 1000;

/// See the module's documentation.
pub struct World {
    /// The engine, which is right.
    pub engine: Engine,
    /// Counts whatever a fault counts.
    pub count: u64,
    /// What a fault remembers of keys.
    pub notes: BTreeMap<Vec<u8>, i64>,
    /// The requests of clients that wait, in the order in which they came.
    pub waits: Vec<Request>,
    /// Texts of scripts by their digests.
    pub scripts: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Lua for scripts that run outside of the engine, one inside another.
    pub interpreters: Vec<Interpreter>,
    crowd: Arc<Mutex<Crowd>>,
    clock: Clock,
    fault: Option<&'static Fault>,
    aside: Option<ClientId>,
    postponed: Vec<(Instant, ClientId, Vec<u8>)>,
    ended: bool,
}

/// A command of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose it is.
    pub client: ClientId,
    /// Its words.
    pub argv: Vec<Vec<u8>>,
}

/// What a client is sent for its request, and how it goes on.
#[derive(Debug)]
pub struct Answer {
    /// The bytes.
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

    /// The word at a place, in lower case; nothing if there is none.
    pub fn word(&self, at: usize) -> String {
        let word = self.argv.get(at).map(|word| String::from_utf8_lossy(word).to_lowercase());
        word.unwrap_or_default()
    }

    /// The first word behind the name: the key, mostly.
    pub fn key(&self) -> Vec<u8> {
        self.argv.get(1).cloned().unwrap_or_default()
    }

    /// Where an option stands.
    pub fn option(&self, name: &str) -> Option<usize> {
        (1..self.argv.len()).find(|&at| self.word(at) == name)
    }

    /// The same client with another command.
    pub fn with<A: AsRef<[u8]>>(&self, argv: &[A]) -> Request {
        let argv = argv.iter().map(|word| word.as_ref().to_vec()).collect();
        Request { client: self.client, argv }
    }
}

impl Answer {
    /// The first reply in it.
    pub fn reply(&self) -> Reply {
        decode(&self.bytes).ok().flatten().map_or(Reply::NOTHING, |(reply, _)| reply)
    }
}

impl World {
    pub(super) fn new(crowd: Crowd, fault: Option<&'static Fault>) -> World {
        let clock = Clock::start();
        let mut engine = Engine::new(Settings::default(), clock.now(), [1, 2, 3, 4]);
        let crowd = Arc::new(Mutex::new(crowd));
        engine.script_monitor =
            Some(Box::new(Watch { crowd: Arc::clone(&crowd), clock, busy: None }));
        World {
            engine,
            count: 0,
            notes: BTreeMap::new(),
            waits: Vec::new(),
            scripts: BTreeMap::new(),
            interpreters: Vec::new(),
            crowd,
            clock,
            fault,
            aside: None,
            postponed: Vec::new(),
            ended: false,
        }
    }

    pub(super) fn live(mut self) {
        while !self.ended {
            self.live_for(Duration::from_secs(1));
        }
    }

    /// Serves the clients for a while: in the middle of a request, those whom a right server would
    /// not let in.
    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    pub fn live_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        loop {
            self.engine.tick(self.clock.now(), TICK_BUDGET);
            self.pass_on();
            self.send_postponed();
            self.serve();
            let now = Instant::now();
            if self.ended || now >= end {
                return;
            }
            let due = self.engine.next_deadline().map(|deadline| self.clock.until(deadline));
            let postponed = self.postponed.iter().map(|(due, ..)| *due - now).min();
            let patience = [Some(end - now), due, postponed].into_iter().flatten().min();
            let event = crowd(&self.crowd).events.recv_timeout(patience.unwrap_or_default());
            if let Ok(event) = event {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.ended |= matches!(event, Event::Stop);
        let time = self.clock.now();
        let left = crowd(&self.crowd).hear(&mut self.engine, time, event);
        let Some(client) = left else { return };
        match self.fault.and_then(|fault| fault.leave) {
            Some(leave) => leave(self, client),
            None => self.engine.disconnect(client),
        }
        self.waits.retain(|wait| wait.client != client);
        crowd(&self.crowd).close(client, Close::Now);
    }

    /// Runs whatever is asked and can be run.
    fn serve(&mut self) {
        loop {
            let next = crowd(&self.crowd).next();
            let Some((client, asked)) = next else { return };
            let (argv, answer) = match asked {
                Asked::Command(argv) => {
                    let answer = self.run_faulty(&Request { client, argv: argv.clone() });
                    (argv, answer)
                }
                Asked::Nonsense(told) => {
                    let bytes = encoded(&self.engine, client, &told);
                    (Vec::new(), Answer { bytes, flow: Flow::Close })
                }
            };
            if let Flow::Sleep(span) = answer.flow {
                pause(span);
            }
            if answer.flow == Flow::Wait {
                self.waits.push(Request { client, argv: argv.clone() });
            }
            self.ended |= answer.flow == Flow::Shutdown;
            let (bytes, flow) = (&answer.bytes, answer.flow);
            crowd(&self.crowd).settle(&mut self.engine, client, &argv, bytes, flow);
            self.pass_on();
        }
    }

    fn run_faulty(&mut self, request: &Request) -> Answer {
        let queues = self.engine.sessions.get(request.client);
        let queues = queues.is_some_and(|state| state.transaction.is_some());
        match self.fault.and_then(|fault| fault.run) {
            Some(run) if !queues || request.is("exec") => run(self, request),
            _ => self.run(request),
        }
    }

    // --- what faults are made of ---

    /// What a right server does.
    pub fn run(&mut self, request: &Request) -> Answer {
        let mut bytes = BytesMut::new();
        let argv: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
        if request.is_any(&["post", "host:"]) {
            return Answer { bytes, flow: Flow::Close };
        }
        let flow = self.engine.run(self.clock.now(), request.client, &argv, &mut bytes);
        self.pass_on();
        Answer { bytes, flow }
    }

    /// What a right server does with another command in the place of a client's.
    pub fn run_as<A: AsRef<[u8]>>(&mut self, request: &Request, argv: &[A]) -> Answer {
        self.run(&request.with(argv))
    }

    /// Something else as the answer.
    pub fn answer(&self, request: &Request, reply: &Reply) -> Answer {
        Answer { bytes: encoded(&self.engine, request.client, reply), flow: Flow::Next }
    }

    /// A command in the database of a client that the client does not see.
    pub fn aside(&mut self, request: &Request, argv: &[&[u8]]) -> Reply {
        let time = self.clock.now();
        let engine = &mut self.engine;
        let aside = *self.aside.get_or_insert_with(|| engine.connect(Origin::default(), time));
        let database = engine.sessions.get(request.client).map_or(0, |state| state.database);
        if let Some(state) = engine.sessions.get_mut(aside) {
            state.database = database;
        }
        let answer = self.run(&Request { client: aside, ..request.with(argv) });
        if answer.flow == Flow::Wait {
            self.engine.end_wait(aside);
        }
        answer.reply()
    }

    /// The number a command in the database of a client is answered with; 0 if it is none.
    pub fn number(&mut self, request: &Request, argv: &[&[u8]]) -> i64 {
        match self.aside(request, argv) {
            Reply::Integer(number) => number,
            _ => 0,
        }
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.count += 1;
        self.count.is_multiple_of(times)
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A reply as a client receives it.
    pub fn encoded(&self, client: ClientId, reply: &Reply) -> Vec<u8> {
        encoded(&self.engine, client, reply).to_vec()
    }

    /// Sends a client something later.
    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    pub fn send_later(&mut self, client: ClientId, bytes: &[u8], span: Duration) {
        self.postponed.push((Instant::now() + span, client, bytes.to_vec()));
    }

    /// What was to be sent to a client later; it is not sent any more.
    pub fn take_postponed(&mut self, client: ClientId) -> Vec<u8> {
        let taken = self.postponed.extract_if(.., |(_, whose, _)| *whose == client);
        taken.flat_map(|(_, _, bytes)| bytes).collect()
    }

    /// The next request a client has sent already; it is not run any more.
    pub fn take_pipelined(&mut self, client: ClientId) -> Option<Request> {
        let argv = crowd(&self.crowd).take_asked(client)?;
        Some(Request { client, argv })
    }

    /// How many requests a client has sent that are not run yet.
    pub fn pipelined(&self, client: ClientId) -> usize {
        crowd(&self.crowd).asked(client)
    }

    // --- what others receive ---

    fn pass_on(&mut self) {
        while self.engine.has_deliveries() {
            for delivery in self.engine.deliveries() {
                let client = delivery.client;
                if delivery.resume {
                    self.waits.retain(|wait| wait.client != client);
                }
                let bytes = match self.fault.and_then(|fault| fault.tell) {
                    Some(tell) if !delivery.resume => {
                        let frames = frames(&delivery.bytes);
                        frames.iter().flat_map(|frame| tell(self, client, frame)).collect()
                    }
                    _ => delivery.bytes.to_vec(),
                };
                let mut crowd = crowd(&self.crowd);
                crowd.send(client, &bytes);
                if delivery.resume {
                    crowd.resume(client);
                }
                if let Some(how) = delivery.close {
                    crowd.close(client, how);
                    self.engine.disconnect(client);
                }
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the tests' own server reads the clock here")]
    fn send_postponed(&mut self) {
        let now = Instant::now();
        for (_, client, bytes) in self.postponed.extract_if(.., |(due, ..)| *due <= now) {
            crowd(&self.crowd).send(client, &bytes);
        }
    }
}

/// Replies one by one.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let Ok(Some((_, used))) = decode(rest) {
        frames.push(&rest[..used]);
        rest = &rest[used..];
    }
    frames
}

fn crowd(shared: &Mutex<Crowd>) -> std::sync::MutexGuard<'_, Crowd> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "`DEBUG SLEEP` keeps everyone waiting")]
fn pause(span: Millis) {
    std::thread::sleep(Duration::from_millis(u64::try_from(span.0).unwrap_or(0)));
}

/// Hears the others while a script runs for long.
struct Watch {
    crowd: Arc<Mutex<Crowd>>,
    clock: Clock,
    /// Which script, and since when.
    busy: Option<(u64, Millis)>,
}

impl ScriptMonitor for Watch {
    fn poll(&mut self, engine: &mut Engine) {
        let Some(script) = engine.running_script() else { return };
        let now = self.clock.now();
        let begin = match self.busy {
            Some((known, begin)) if known == script => begin,
            _ => self.busy.insert((script, now.now)).1,
        };
        let threshold = i64::try_from(engine.settings.busy_reply_threshold_ms).unwrap_or(i64::MAX);
        if threshold == 0 || now.now.0 - begin.0 < threshold {
            return;
        }
        engine.set_busy();
        let mut crowd = crowd(&self.crowd);
        while let Ok(event) = crowd.events.try_recv() {
            if matches!(event, Event::Stop) {
                engine.kill_script();
            }
            if let Some(client) = crowd.hear(engine, now, event) {
                // It may be the one whose script runs; it is forgotten when its next reply is lost.
                crowd.close(client, Close::Now);
            }
        }
        while let Some((client, asked)) = crowd.next() {
            let (mut bytes, mut flow, mut request) = (BytesMut::new(), Flow::Close, Vec::new());
            if let Asked::Command(argv) = asked {
                let words: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
                flow = engine.run(now, client, &words, &mut bytes);
                request = argv;
            }
            crowd.settle(engine, client, &request, &bytes, flow);
        }
    }

    fn has_hung_up(&self, client: ClientId) -> bool {
        crowd(&self.crowd).has_hung_up(client)
    }
}

/// The system's clocks, the lease clock anchored at the start.
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

    fn now(&self) -> Time {
        let passed_us = i64::try_from(self.begin.elapsed().as_micros()).unwrap_or(i64::MAX);
        Time::from_micros(self.begin_us.saturating_add(passed_us), wall_us())
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
