//! Random arguments to any command, from several clients, while time passes. Checks that nothing
//! panics and that all output is well-formed.

use arbitrary::Arbitrary;
use bytes::BytesMut;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::{CompatVersion, Settings};
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::decode::decode;

const BEGIN: Millis = Millis(1_700_000_000_000);
const CLIENTS: usize = 3;
/// Timers that fire in one tick.
const TICK_BUDGET: u32 = 64;

#[derive(Arbitrary, Debug)]
pub(crate) enum Step<'a> {
    Run { client: u8, command: u16, subcommand: bool, arguments: Vec<Argument<'a>> },
    Anything { client: u8, arguments: Vec<Argument<'a>> },
    Advance { span_ms: u32 },
    Reconnect { client: u8 },
}

/// Arguments with a meaning, more often than random bytes have one.
#[derive(Arbitrary, Debug)]
pub(crate) enum Argument<'a> {
    Key(u8),
    Word(u8),
    Number(i64),
    SmallNumber(i8),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

const WORDS: &[&str] = &[
    "",
    "0",
    "-0",
    "1",
    "-1",
    "+1",
    "01",
    " 1",
    "1.5",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "abc",
    "*",
    "?",
    "[a-",
    "[^",
    "\\",
    "h*",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "REPLACE",
    "DB",
    "MATCH",
    "COUNT",
    "TYPE",
    "WITHVALUES",
    "ASYNC",
    "SYNC",
    "ON",
    "OFF",
    "SKIP",
    "ID",
    "ADDR",
    "SKIPME",
    "WRITE",
    "ALL",
    "AUTH",
    "SETNAME",
    "default",
    "FILTERBY",
    "PATTERN",
    "return 1",
    "return redis.call(unpack(ARGV))",
    "return KEYS",
    "IFEQ",
    "IFDNE",
    "0123456789abcdef",
    "16383",
    "127.0.0.1",
    "quorum",
    "announce-port",
];

struct State {
    engine: Engine,
    clients: Vec<ClientId>,
    /// The clients that are blocked: their requests must not be run until they are resumed.
    waiting: [bool; CLIENTS],
    now: Millis,
}

pub(crate) fn check((kind, steps): (u8, Vec<Step>)) {
    let engine = Engine::new(settings(kind), Process::default(), Time::at(BEGIN), [1, 2, 3, 4]);
    let mut world = State { engine, clients: Vec::new(), waiting: [false; CLIENTS], now: BEGIN };
    for _ in 0..CLIENTS {
        let client = world.engine.connect(Origin::default(), Time::at(world.now));
        world.clients.push(client);
    }
    steps.iter().for_each(|step| world.take(step));
}

/// Settings of every version, and sometimes of a cluster node or a sentinel.
fn settings(kind: u8) -> Settings {
    let mut settings = Settings::default();
    settings.compat_version = CompatVersion::ALL[usize::from(kind) % CompatVersion::ALL.len()];
    match kind >> 6 {
        1 => settings.cluster_enabled = true,
        2 => settings.sentinel = Some(Box::default()),
        _ => {}
    }
    settings
}

impl State {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Run { client, command, subcommand, arguments } => {
                let argv = self.name(usize::from(*command), *subcommand);
                self.run(*client, argv, arguments);
            }
            Step::Anything { client, arguments } => self.run(*client, Vec::new(), arguments),
            Step::Advance { span_ms } => {
                self.now.0 += i64::from(*span_ms);
                self.engine.tick(Time::at(self.now), TICK_BUDGET);
            }
            Step::Reconnect { client } => {
                self.reconnect(usize::from(*client) % CLIENTS);
            }
        }
        self.engine.serve_waiters(Time::at(self.now), |_| false);
        for delivery in self.engine.deliveries() {
            assert_well_formed(&delivery.bytes);
            let found = self.clients.iter().position(|client| *client == delivery.client);
            let Some(place) = found else { continue };
            self.waiting[place] &= !delivery.resume;
            if delivery.close.is_some() {
                self.reconnect(place);
            }
        }
    }

    fn reconnect(&mut self, place: usize) {
        self.engine.disconnect(self.clients[place]);
        self.clients[place] = self.engine.connect(Origin::default(), Time::at(self.now));
        self.waiting[place] = false;
    }

    /// The name of a command of the table, and perhaps of one of its subcommands.
    fn name(&self, command: usize, subcommand: bool) -> Vec<Vec<u8>> {
        let entries: Vec<_> = self.engine.command_stats().map(|(entry, _)| entry).collect();
        let name = &entries[command % entries.len()].full_name;
        match name.split_once('|') {
            Some((parent, child)) if subcommand => vec![parent.into(), child.into()],
            Some((parent, _)) => vec![parent.into()],
            None => vec![name.as_bytes().to_vec()],
        }
    }

    fn run(&mut self, client: u8, mut argv: Vec<Vec<u8>>, arguments: &[Argument]) {
        argv.extend(arguments.iter().map(Argument::bytes));
        let place = usize::from(client) % CLIENTS;
        if argv.is_empty() || self.waiting[place] {
            return;
        }
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let mut out = BytesMut::new();
        let flow = self.engine.run(Time::at(self.now), self.clients[place], &argv, &mut out);
        assert_well_formed(&out);
        match flow {
            Flow::Next | Flow::Clock(_) | Flow::Shutdown | Flow::Snapshot => {}
            Flow::Wait | Flow::Again => self.waiting[place] = true,
            Flow::Close => self.reconnect(place),
        }
    }
}

impl Argument<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Argument::Key(number) => format!("k{}", number % 4).into_bytes(),
            Argument::Word(number) => WORDS[usize::from(*number) % WORDS.len()].into(),
            Argument::Number(number) => number.to_string().into_bytes(),
            Argument::SmallNumber(number) => number.to_string().into_bytes(),
            Argument::Float(number) => number.to_string().into_bytes(),
            Argument::Text(text) => text.as_bytes().to_vec(),
            Argument::Bytes(bytes) => bytes.to_vec(),
        }
    }
}

fn assert_well_formed(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (_, used) = decode(bytes).expect("well-formed").expect("a whole reply");
        bytes = &bytes[used..];
    }
}
