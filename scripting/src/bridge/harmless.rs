//! Finds the scripts that cannot write to a table they have not created, from their bytecode.
//!
//! Almost every script is harmless in this sense: it calls commands and compares their replies. It
//! may use the globals and libraries themselves in place of the frozen tables that read from them,
//! and KEYS and ARGV are unchanged after it. So it is compiled as a function of [`PARAMETERS`],
//! which it finds in its own slots instead of looking up globals at every use.
//!
//! Invariant: [`GLOBALS`] holds no function that writes to a table or makes code that does, and
//! none that shows what is behind a table that reads from another. There is one exception, without
//! which no script could make a list: `table.insert`, which refuses the libraries and records an
//! insertion into KEYS or ARGV. No error message shows that a name is a parameter.

use std::ffi::{c_int, c_void};
use std::slice;

use memchr::memmem;
use mlua::ffi::{self, lua_State};

/// The globals that such a script may name.
pub(super) const GLOBALS: &[&str] = &[
    "assert", "error", "ipairs", "math", "next", "pairs", "pcall", "select", "string", "tonumber",
    "tostring", "type", "unpack",
];
/// The table of which such a script may name one function and nothing else.
pub(super) const TABLE: &str = "table";
const INSERT: &str = "insert";

const REDIS: &str = "redis";
/// The parameters of such a script, in this order.
const PARAMETERS: &[&str] = &[REDIS, "KEYS", "ARGV"];
/// The text of nearly every use of `redis`, and its replacement if all uses look like this.
const CALL_TEXT: &[u8] = b"redis.call(";
const CALL_PARAMETER: &[u8] = b"redis_call(";

/// A script that cannot write to a table it has not created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Harmless {
    /// The number of uses of the name `redis`.
    redis_count: usize,
    /// The number of instructions, if none is run twice: it is one function without a loop.
    straight: Option<usize>,
}

impl Harmless {
    /// Checks whether the function on top, and every function within it, is harmless. Never raises.
    pub(super) unsafe fn of(lua: *mut lua_State) -> Option<Harmless> {
        // SAFETY: reads the function only.
        let dump = unsafe { dump(lua) }?;
        let rest = dump.get(HEADER_BYTES..)?;
        let mut dump = Dump { rest, redis_count: 0, straight: None };
        let is_harmless = dump.function()?;
        let Dump { redis_count, straight, .. } = dump;
        is_harmless.then_some(Harmless { redis_count, straight })
    }

    /// Returns whether it ends within this number of instructions of its own, whatever the commands
    /// do.
    pub(super) fn ends_within(self, instructions: u32) -> bool {
        self.straight.is_some_and(|count| count <= instructions as usize)
    }

    /// Returns the text of a chunk that returns the script as a function of the parameters, with
    /// the same line numbers. Also returns whether that function is to be given `redis.call` in
    /// place of `redis`: this is possible if every occurrence of the text `redis` is that name, and
    /// only `call` is taken from it.
    pub(super) fn as_function(self, code: &[u8]) -> (Vec<u8>, bool) {
        let count = |text: &[u8]| memmem::find_iter(code, text).count();
        let counts = [count(REDIS.as_bytes()), count(CALL_TEXT)];
        if counts != [self.redis_count; 2] {
            return ([b"return function(redis, KEYS, ARGV) ", code, b"\nend"].concat(), false);
        }
        let mut text = [b"return function(redis_call, KEYS, ARGV) ", code, b"\nend"].concat();
        for at in memmem::find_iter(&text.clone(), CALL_TEXT) {
            text[at..][..CALL_TEXT.len()].copy_from_slice(CALL_PARAMETER);
        }
        (text, true)
    }
}

/// The bytecode of the function on top. Never raises.
unsafe fn dump(lua: *mut lua_State) -> Option<Vec<u8>> {
    unsafe extern "C-unwind" fn append(
        _: *mut lua_State,
        piece: *const c_void,
        len: usize,
        dump: *mut c_void,
    ) -> c_int {
        if len == 0 {
            return 0;
        }
        // SAFETY: `dump` is the vector below, which outlives the call; Lua lends the piece, which
        // is not null.
        unsafe {
            let dump = &mut *dump.cast::<Vec<u8>>();
            dump.extend_from_slice(slice::from_raw_parts(piece.cast(), len));
        }
        0
    }
    let mut dump = Vec::new();
    // SAFETY: dumping reads the function and calls `append`, which raises nothing.
    let status = unsafe { ffi::lua_dump_(lua, append, (&raw mut dump).cast()) };
    (status == 0).then_some(dump)
}

/// The signature, the version and the sizes of numbers, which are those of this machine.
const HEADER_BYTES: usize = 12;

const GETGLOBAL: u32 = 5;
const GETTABLE: u32 = 6;
const SETGLOBAL: u32 = 7;
const SETTABLE: u32 = 9;
const LEN: u32 = 20;
const JMP: u32 = 22;
const CALL: u32 = 28;
const TAILCALL: u32 = 29;
const FORLOOP: u32 = 31;

/// The slot that an instruction writes to.
fn slot(instruction: u32) -> u32 {
    instruction >> 6 & 0xFF
}

/// Whether an instruction may jump backwards.
fn jumps_back(instruction: u32) -> bool {
    const NOWHERE: u32 = (1 << 17) - 1;
    match instruction & 0x3F {
        JMP => instruction >> 14 < NOWHERE,
        FORLOOP => true,
        _ => false,
    }
}

/// The constant by which `next` indexes the global that `instruction` has loaded, if it does so and
/// stores the result in the same slot.
fn indexed_at_once(instruction: u32, next: u32) -> Option<u32> {
    const IS_CONSTANT: u32 = 1 << 8;
    let (table, index) = (next >> 23, next >> 14 & 0x1FF);
    let fits = next & 0x3F == GETTABLE && slot(next) == slot(instruction);
    (fits && table == slot(instruction) && index & IS_CONSTANT != 0).then_some(index & 0xFF)
}

/// Whether the table that the first instruction loads is indexed, measured or passed to a function,
/// which cannot fail: an error would show its name and that it is a global. The value in a slot
/// stays there while only higher slots are written.
fn is_used_without_error(code: &[u32]) -> bool {
    let [get, later @ ..] = code else { return false };
    let next = later.iter().find(|&&next| slot(next) <= slot(*get));
    next.is_some_and(|&next| match next & 0x3F {
        GETTABLE | LEN => next >> 23 == slot(*get),
        CALL | TAILCALL => slot(next) < slot(*get),
        _ => false,
    })
}

/// The rest of a dumped function, in the format of `ldump.c`.
struct Dump<'a> {
    rest: &'a [u8],
    /// The number of uses of the name `redis` so far.
    redis_count: usize,
    /// The value of the outermost function, which is finished last.
    straight: Option<usize>,
}

impl<'a> Dump<'a> {
    /// Reads a function. Returns whether it is harmless, or `None` if the format is invalid.
    fn function(&mut self) -> Option<bool> {
        self.string()?;
        // Its first and last line; upvalues, parameters, whether it takes more, and slots.
        self.take(2 * size_of::<c_int>() + 4)?;
        let code: Vec<u32> = self.list(|dump| dump.word())?;
        let constants: Vec<&[u8]> = self.list(Dump::constant)?;
        let constant = |at: u32| constants.get(at as usize).copied().unwrap_or_default();
        let is_harmless = |(at, &instruction): (usize, &u32)| match instruction & 0x3F {
            SETGLOBAL | SETTABLE => false,
            GETGLOBAL if constant(instruction >> 14) == TABLE.as_bytes() => {
                let taken = code.get(at + 1).and_then(|&next| indexed_at_once(instruction, next));
                taken.is_some_and(|taken| constant(taken) == INSERT.as_bytes())
            }
            GETGLOBAL => {
                let is_one_of = |names: &[&str]| {
                    names.iter().any(|name| name.as_bytes() == constant(instruction >> 14))
                };
                is_one_of(GLOBALS) || is_one_of(PARAMETERS) && is_used_without_error(&code[at..])
            }
            _ => true,
        };
        let names_redis = |instruction: &&u32| {
            *instruction & 0x3F == GETGLOBAL && constant(*instruction >> 14) == REDIS.as_bytes()
        };
        self.redis_count += code.iter().filter(names_redis).count();
        let mut harmless = code.iter().enumerate().all(is_harmless);
        let within = self.word()?;
        for _ in 0..within {
            harmless &= self.function()?;
        }
        let is_straight = within == 0 && !code.iter().copied().any(jumps_back);
        self.straight = is_straight.then_some(code.len());
        // For error messages: lines, then local variables, then upvalues.
        self.list(|dump| dump.word())?;
        self.list(|dump| {
            dump.string()?;
            dump.take(2 * size_of::<c_int>())
        })?;
        self.list(Dump::string)?;
        Some(harmless)
    }

    /// The string of a constant, if it is one.
    fn constant(&mut self) -> Option<&'a [u8]> {
        match self.take(1)?[0].into() {
            ffi::LUA_TSTRING => self.string(),
            ffi::LUA_TNUMBER => self.take(8).map(|_| &[][..]),
            ffi::LUA_TBOOLEAN => self.take(1).map(|_| &[][..]),
            ffi::LUA_TNIL => Some(&[]),
            _ => None,
        }
    }

    /// A string without the zero at its end; a missing string is an empty one.
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::from_ne_bytes(*self.take(size_of::<usize>())?.first_chunk()?);
        let text = self.take(len)?;
        Some(text.strip_suffix(b"\0").unwrap_or(text))
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.word()?).map(|_| item(self)).collect()
    }

    fn word(&mut self) -> Option<u32> {
        self.take(size_of::<u32>())?.first_chunk().map(|it| u32::from_ne_bytes(*it))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use crate::bridge::{Compiled, Machine, StateKind};
    use crate::test_limits::LIMITS;

    /// Compiles a script, and gives it parameters if it can have them.
    fn compiled(script: &str) -> (Machine, Compiled) {
        let machine = Machine::new(LIMITS, "7.0.0", crate::MathRandom::new(0), StateKind::Scripts);
        let mut machine = machine.expect("a limit with room for Lua itself");
        let mut compiled = machine.compile(script.as_bytes()).expect("a script");
        machine.give_parameters(&mut compiled, script.as_bytes());
        (machine, compiled)
    }

    /// Whether a script is given parameters, and `redis.call` for `redis`.
    fn parameters_of(script: &str) -> Option<bool> {
        let (machine, compiled) = compiled(script);
        compiled.parameters.map(|parameters| parameters.redis == machine.bridge().plain_call.get())
    }

    #[test]
    fn read_only_scripts_get_parameters() {
        let cases = [
            ("if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end", true),
            ("local n = 0 for i = 1, #KEYS do n = n + redis.call('del', KEYS[i]) end", true),
            ("local function f() return redis.call('del', unpack(KEYS)) end return f()", true),
            ("return redis.call('ping') -- not redis.pcall", false),
            ("return {redis.call('ping'), 'redis.call('}", false),
            ("return redis.call('ping') .. redis ['call']('ping') .. 'redis.call('", false),
            ("local all = {} table.insert(all, redis.pcall('get', KEYS[1])) return all", false),
            ("return math.max(#ARGV, 1)", true),
        ];
        for (script, calls_only) in cases {
            assert_eq!(parameters_of(script), Some(calls_only), "{script}");
        }
    }

    #[test]
    fn only_scripts_that_end_soon_run_without_polls() {
        let ends = |script: &str| compiled(script).1.parameters.expect("it only reads").ends_soon;
        assert!(ends("if redis.call('get', KEYS[1]) == ARGV[1] then return 1 else return 2 end"));
        for on in [
            "for i = 1, 9 do redis.call('ping') end",
            "for i in pairs(KEYS) do redis.call('ping') end",
            "while true do end",
            "repeat redis.call('ping') until #KEYS > 0",
            "local function f() return f() end return f()",
            &"redis.call('ping') ".repeat(500),
        ] {
            assert!(!ends(on), "{on}");
        }
    }

    #[test]
    fn scripts_that_write_get_no_parameters() {
        for script in [
            "local t = {} t.x = 1",
            "return cjson.encode(KEYS)",
            "KEYS = 1",
            "return KEYS + 1",
            "return pcall(function() return -ARGV end)",
            "return table.remove(KEYS)",
            "return loadstring('KEYS[1] = 1')",
            "return select('#', ...)",
        ] {
            assert_eq!(parameters_of(script), None, "{script}");
        }
    }
}
