//! Any script. Checks that nothing panics, that no script exceeds its limits, and that the next
//! script finds its environment unchanged.

use arbitrary::Arbitrary;
use lockwheel_engine::limits::SCRIPTS;
use lockwheel_resp::encode::encode;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Host, Interpreter, Interrupt, Limits, LogLevel, MathRandom};

/// Polls after which a script is killed.
const INTERRUPTS_MAX: u32 = 20;
/// Memory that may be left: garbage of less than a MiB is left to Lua's own collector.
const LEFT_BYTES_MAX: usize = (1 << 20) + (64 << 10);
const LIMITS_BYTES: usize = 8 * 1024 * 1024;

/// The environment of a script in one line: the globals, the methods of strings, the arguments.
const PROBE: &str = "local seen = {} \
    for _, name in ipairs({'_G', 'string', 'table', 'math', 'redis', 'cjson', 'bit'}) do \
      local names = {} \
      for key, value in pairs(rawget(_G, name) or {}) do \
        names[#names + 1] = tostring(key) .. type(value) \
      end \
      table.sort(names) \
      seen[#seen + 1] = table.concat(names, ' ') \
    end \
    seen[#seen + 1] = ('x'):rep(3) .. tostring(1e15) .. #KEYS .. #ARGV \
    return table.concat(seen, ';')";

/// Pieces of scripts, among them pieces of sandbox escapes.
const PIECES: &[&str] = &[
    "return ",
    "local a = ",
    "a",
    " = ",
    "nil",
    "1",
    "-1",
    "0/0",
    "1e308",
    "2^53",
    "'x'",
    "{}",
    "...",
    "KEYS",
    "ARGV",
    "KEYS[1]",
    "ARGV[1]",
    "redis.call('get', 'k')",
    "redis.pcall('incr', 'k')",
    "redis.call(unpack(ARGV))",
    "redis.error_reply('E')",
    "redis.setresp(3) ",
    "redis.log(1, 'x') ",
    "if true then ",
    "while true do ",
    "for i = 1, 1e9 do ",
    "for k, v in pairs(_G) do ",
    "function() ",
    "end ",
    "repeat ",
    "until false ",
    "(",
    ")",
    "[",
    "]",
    ".",
    ":",
    ",",
    " .. ",
    " + ",
    "pcall(",
    "error(",
    "setmetatable(",
    "getmetatable('')",
    "rawset(_G, ",
    "_G",
    "string.rep('x', ",
    "1e9)",
    "string.find(('a'):rep(1e5), ('.-'):rep(50) .. 'b')",
    "string.dump(",
    "loadstring(",
    "'\\27Lua'",
    "load(",
    "coroutine.wrap(",
    "coroutine.yield(",
    "debug.sethook(",
    "string.format(",
    "'%1000d'",
    "cjson.encode(",
    "cjson.decode(",
    "cmsgpack.unpack(",
    "struct.unpack(",
    "'Bc0I'",
    "bit.tohex(",
    "table.sort(",
    "table.concat(",
    "unpack({}, 1, 1e8)",
    "newproxy(true)",
    "__index",
    "__gc",
    "collectgarbage('count')",
    "xpcall(",
    "select('#', ",
    "next(",
    "tostring(",
    "{err = 'x'}",
    "{ok = 'x'}",
    "{map = {a = 1}}",
    "{double = 1.5}",
    "math.random(",
    "a.b.c = ",
];

#[derive(Arbitrary, Debug)]
pub(crate) enum Piece<'a> {
    Known(u8),
    Text(&'a str),
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    pieces: Vec<Piece<'a>>,
    keys: Vec<&'a [u8]>,
    args: Vec<&'a [u8]>,
    replies: Vec<u8>,
}

pub(crate) fn check(input: Input) {
    let limits = Limits { memory_bytes_max: LIMITS_BYTES, ..SCRIPTS };
    let random = MathRandom::new(1);
    let mut interpreter = Interpreter::new(limits, "7.2.4", random).expect("room for Lua");
    let before = run(&mut interpreter, PROBE.as_bytes(), &[], &[], &[]);
    assert!(matches!(before, Reply::Bulk(_)), "{before:?}");
    flush(&mut interpreter);
    let base = interpreter.memory_bytes();

    let script = input.script();
    run(&mut interpreter, &script, &input.keys, &input.args, &input.replies);
    run(&mut interpreter, &script, &input.keys, &input.args, &input.replies);
    flush(&mut interpreter);
    let left = interpreter.memory_bytes().saturating_sub(base);
    assert!(left <= LEFT_BYTES_MAX, "{left} bytes stay behind");
    assert_eq!(run(&mut interpreter, PROBE.as_bytes(), &[], &[], &[]), before);
}

/// Removes all scripts and frees all garbage.
fn flush(interpreter: &mut Interpreter) {
    interpreter.flush();
    while interpreter.tidy() {}
}

impl Input<'_> {
    fn script(&self) -> Vec<u8> {
        let piece = |piece: &Piece| match piece {
            Piece::Known(number) => PIECES[usize::from(*number) % PIECES.len()].to_owned(),
            Piece::Text(text) => (*text).to_owned(),
        };
        self.pieces.iter().map(piece).collect::<String>().into_bytes()
    }
}

/// Runs a script; its reply must be one that can be encoded.
fn run(
    interpreter: &mut Interpreter,
    body: &[u8],
    keys: &[&[u8]],
    args: &[&[u8]],
    replies: &[u8],
) -> Reply {
    let sha = match interpreter.load(body) {
        Ok(sha) => sha,
        Err(refusal) => return refusal,
    };
    let mut host = InputHost { interrupts: 0, replies: replies.iter() };
    let reply = interpreter.run(sha.as_bytes(), keys, args, &mut host);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        encode(&reply, protocol, &mut bytes::BytesMut::new());
    }
    reply
}

/// A host that does nothing, and gives the replies in the input.
struct InputHost<'a> {
    interrupts: u32,
    replies: std::slice::Iter<'a, u8>,
}

impl Host for InputHost<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let first = Reply::bulk(argv.first().copied().unwrap_or_default());
        match self.replies.next().copied().unwrap_or_default() % 10 {
            0 => Reply::Null,
            1 => Reply::OK,
            2 => Reply::Integer(i64::MIN),
            3 => Reply::error("ERR no"),
            4 => Reply::Array(vec![first, Reply::NullArray, Reply::Integer(1)]),
            5 => Reply::Map(vec![(first, Reply::Null)]),
            6 => Reply::Set(vec![first]),
            7 => Reply::Double(f64::NAN),
            8 => Reply::Boolean(true),
            _ => first,
        }
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        self.interrupts += 1;
        if self.interrupts > INTERRUPTS_MAX { Interrupt::Kill } else { Interrupt::Continue }
    }
}
