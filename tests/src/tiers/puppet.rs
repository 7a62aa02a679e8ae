//! Two interpreters without a server, one with plans and one without. What their scripts call is
//! recorded word for word, and answered with replies of every type: what is answered depends on
//! nothing but the calls so far.

use bytes::{Bytes, BytesMut};
use lockwheel_engine::limits::SCRIPTS;
use lockwheel_resp::encode::encode;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{CommandId, Host, Interpreter, Interrupt, Limits, LogLevel};

use super::grammar::Request;

/// Questions of one script after which it is taken for endless.
const QUESTIONS_MAX: u32 = 500;
/// Names of commands that are looked up once and for all.
const KNOWN: [&[u8]; 4] = [b"get", b"set", b"hget", b"del"];
/// Each script is run once, so that few need be kept.
const SCRIPTS_MAX: usize = 8;
const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a script did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It called a command.
    Call(Vec<Vec<u8>>),
    /// It wrote to the log.
    Log(LogLevel, Vec<u8>),
    /// It chose a protocol.
    Protocol(Protocol),
}

/// All that can be seen of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What it did.
    pub deeds: Vec<Deed>,
    /// Its reply in RESP2 and in RESP3.
    pub replies: [Vec<u8>; 2],
    /// It did not end by itself.
    pub is_endless: bool,
}

/// See the module's documentation.
pub struct Puppets {
    interpreters: [Interpreter; 2],
}

impl Default for Puppets {
    fn default() -> Puppets {
        Puppets::new()
    }
}

impl Puppets {
    /// Two that have run nothing.
    pub fn new() -> Puppets {
        Puppets { interpreters: [true, false].map(interpreter) }
    }

    /// Runs a script on the one without plans. `None` if it is no Lua.
    pub fn observe_plain(&mut self, script: &str, request: &Request) -> Option<Heard> {
        observe(&mut self.interpreters[1], script, request)
    }

    /// Runs a script on both. `None` if it is no Lua.
    pub fn observe(&mut self, script: &str, request: &Request) -> Option<[Heard; 2]> {
        let [planned, plain] = &mut self.interpreters;
        Some([observe(planned, script, request)?, observe(plain, script, request)?])
    }
}

/// One that has run nothing.
pub fn interpreter(has_plans: bool) -> Interpreter {
    let limits =
        Limits { memory_bytes_max: MEMORY_BYTES_MAX, eval_scripts_max: SCRIPTS_MAX, ..SCRIPTS };
    let mut interpreter = Interpreter::new(limits, "7.2.4", 1).expect("room for Lua");
    interpreter.set_plans(has_plans);
    interpreter
}

/// Runs a script. `None` if it is no Lua.
pub fn observe(interpreter: &mut Interpreter, script: &str, request: &Request) -> Option<Heard> {
    let sha = interpreter.load_evaluated(script.as_bytes()).ok()?;
    let keys: Vec<&[u8]> = request.keys.iter().map(String::as_bytes).collect();
    let words: Vec<&[u8]> = request.words.iter().map(String::as_bytes).collect();
    let mut puppet =
        Puppet { questions: 0, deeds: Vec::new(), state: 0, protocol: Protocol::Resp2 };
    let reply = interpreter.run(sha.as_bytes(), &keys, &words, &mut puppet);
    let replies = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut out = BytesMut::new();
        encode(&reply, protocol, &mut out);
        out.to_vec()
    });
    Some(Heard { deeds: puppet.deeds, replies, is_endless: puppet.questions >= QUESTIONS_MAX })
}

struct Puppet {
    questions: u32,
    deeds: Vec<Deed>,
    /// Made of all the calls.
    state: u64,
    protocol: Protocol,
}

impl Host for Puppet {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        for byte in argv.iter().flat_map(|word| word.iter().chain(b" ")) {
            self.state = (self.state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.deeds.push(Deed::Call(argv.iter().map(|word| word.to_vec()).collect()));
        let last = argv.last().copied().unwrap_or_default();
        reply(self.state >> 24, last, self.protocol)
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let at = KNOWN.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        (arguments < 5).then(|| CommandId(u32::try_from(at).unwrap_or_default()))
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.deeds.push(Deed::Protocol(protocol));
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.deeds.push(Deed::Log(level, message.to_vec()));
    }

    fn interrupt(&mut self) -> Interrupt {
        self.questions += 1;
        if self.questions >= QUESTIONS_MAX { Interrupt::Kill } else { Interrupt::Continue }
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
            // A failure is a reply of its own.
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
