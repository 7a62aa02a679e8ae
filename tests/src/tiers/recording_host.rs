//! Two interpreters without a server, one with plans and one without. The host records the calls of
//! their scripts and gives replies of every type, which depend only on the calls so far.

use bytes::{Bytes, BytesMut};
use lockwheel_engine::limits::SCRIPTS;
use lockwheel_resp::encode::encode;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{CommandId, Host, Interpreter, Interrupt, Limits, LogLevel, MathRandom};

use super::grammar::Request;

/// Polls after which a script counts as endless.
const POLLS_MAX: u32 = 500;
/// Names of commands that can be looked up.
const KNOWN_COMMANDS: [&[u8]; 4] = [b"get", b"set", b"hget", b"del"];
/// Most scripts that are cached; each is run once, so that few are needed.
const SCRIPTS_MAX: usize = 8;
const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A call of a script to its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// A command.
    Command(Vec<Vec<u8>>),
    /// A line for the log.
    Log(LogLevel, Vec<u8>),
    /// A change of the protocol.
    Protocol(Protocol),
}

/// Everything that can be observed of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostObservation {
    /// Its calls to the host.
    pub calls: Vec<HostCall>,
    /// Its reply in RESP2 and in RESP3.
    pub replies: [Vec<u8>; 2],
    /// Whether it had to be killed.
    pub is_endless: bool,
}

/// One interpreter with plans and one without.
pub struct InterpreterPair {
    interpreters: [Interpreter; 2],
}

impl Default for InterpreterPair {
    fn default() -> InterpreterPair {
        InterpreterPair::new()
    }
}

impl InterpreterPair {
    /// Two new interpreters.
    pub fn new() -> InterpreterPair {
        InterpreterPair { interpreters: [true, false].map(interpreter) }
    }

    /// Runs a script in the interpreter without plans. `None` if it is not valid Lua.
    pub fn observe_plain(&mut self, script: &str, request: &Request) -> Option<HostObservation> {
        observe(&mut self.interpreters[1], script, request)
    }

    /// Runs a script in both interpreters. `None` if it is not valid Lua.
    pub fn observe(&mut self, script: &str, request: &Request) -> Option<[HostObservation; 2]> {
        let [planned, plain] = &mut self.interpreters;
        Some([observe(planned, script, request)?, observe(plain, script, request)?])
    }
}

/// A new interpreter.
pub fn interpreter(has_plans: bool) -> Interpreter {
    let limits =
        Limits { memory_bytes_max: MEMORY_BYTES_MAX, eval_scripts_max: SCRIPTS_MAX, ..SCRIPTS };
    let mut interpreter =
        Interpreter::new(limits, "7.2.4", MathRandom::new(1)).expect("room for Lua");
    interpreter.set_plans(has_plans);
    interpreter
}

/// Runs a script. `None` if it is not valid Lua.
pub fn observe(
    interpreter: &mut Interpreter,
    script: &str,
    request: &Request,
) -> Option<HostObservation> {
    let sha = interpreter.load_evaluated(script.as_bytes()).ok()?;
    let keys: Vec<&[u8]> = request.keys.iter().map(String::as_bytes).collect();
    let words: Vec<&[u8]> = request.words.iter().map(String::as_bytes).collect();
    let mut host =
        RecordingHost { polls: 0, calls: Vec::new(), state: 0, protocol: Protocol::Resp2 };
    let reply = interpreter.run(sha.as_bytes(), &keys, &words, &mut host);
    let replies = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut out = BytesMut::new();
        encode(&reply, protocol, &mut out);
        out.to_vec()
    });
    Some(HostObservation { calls: host.calls, replies, is_endless: host.polls >= POLLS_MAX })
}

struct RecordingHost {
    polls: u32,
    calls: Vec<HostCall>,
    /// A hash of all calls.
    state: u64,
    protocol: Protocol,
}

impl Host for RecordingHost {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        for byte in argv.iter().flat_map(|word| word.iter().chain(b" ")) {
            self.state = (self.state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.calls.push(HostCall::Command(argv.iter().map(|word| word.to_vec()).collect()));
        let last = argv.last().copied().unwrap_or_default();
        reply(self.state >> 24, last, self.protocol)
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let at = KNOWN_COMMANDS.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        (arguments < 5).then(|| CommandId(u32::try_from(at).unwrap_or_default()))
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.calls.push(HostCall::Protocol(protocol));
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.calls.push(HostCall::Log(level, message.to_vec()));
    }

    fn interrupt(&mut self) -> Interrupt {
        self.polls += 1;
        if self.polls >= POLLS_MAX { Interrupt::Kill } else { Interrupt::Continue }
    }
}

fn reply(state: u64, word: &[u8], protocol: Protocol) -> Reply {
    let small = (state >> 8) % 12;
    match state % 24 {
        0..=3 => Reply::bulk(word),
        4..=6 => Reply::Integer(small as i64 - 2),
        7 => Reply::Integer([i64::MIN, i64::MAX, 1 << 53, (1 << 53) + 1][small as usize % 4]),
        8 => Reply::OK,
        9..=10 => Reply::Null,
        11 => Reply::error(["ERR no", "MINE x", "WRONGTYPE so", "ERR"][small as usize % 4]),
        12..=13 => {
            let words: [&[u8]; 6] = [b"10", b"0x10", b" 5 ", b"1e3", b"", b"owner"];
            Reply::bulk(words[small as usize % 6])
        }
        14 => Reply::Array(Vec::new()),
        15 => Reply::NullArray,
        16..=18 => {
            let item = |at| reply(state >> (3 + at), word, protocol);
            // An error cannot be an item.
            let items = (0..small % 5).map(item).filter(|item| !item.is_error());
            Reply::Array(items.collect())
        }
        19 if protocol == Protocol::Resp3 => Reply::Map(vec![
            (Reply::bulk(word), Reply::Integer(1)),
            (Reply::bulk("b"), Reply::Null),
        ]),
        20 if protocol == Protocol::Resp3 => Reply::Set(vec![Reply::bulk(word), Reply::Integer(2)]),
        21 if protocol == Protocol::Resp3 => {
            Reply::Double([1.5, f64::NAN, f64::INFINITY, -0.0, 3.0][small as usize % 5])
        }
        22 if protocol == Protocol::Resp3 => match small % 4 {
            0 => Reply::BigNumber(Bytes::from_static(b"12345678901234567890")),
            1 => Reply::Verbatim { format: *b"txt", text: Bytes::copy_from_slice(word) },
            truth => Reply::Boolean(truth == 2),
        },
        _ => Reply::Integer(1),
    }
}
