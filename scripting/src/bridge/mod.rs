//! The call from Lua to the host and back: the only place that touches a Lua state.
//!
//! A Lua error leaves a function by `longjmp`, which skips Rust's destructors. So every function
//! here is of one of two kinds. *Plain* functions may raise Lua errors and own nothing: what must
//! outlive an error lives in [`Context`]. *Quiet* functions own what they like and call only those
//! parts of Lua's interface that neither allocate nor raise. Where a quiet function calls code of
//! others, a panic is caught, kept in the context, ends the script, and goes on in `Machine::run`.
//!
//! "Plain" and "quiet" in the files below mean this. Here are the state's owner and what its
//! functions share; every script goes through `run` and `call`; all files work with `values`.

#![allow(unsafe_code)]

mod base;
mod bounds;
mod call;
mod compile;
mod freeze;
mod harmless;
mod install;
mod libraries;
mod output;
mod patterns;
mod redis;
mod register;
mod run;
mod table;
mod tables;
mod text;
mod values;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_CFunction, lua_State};

use self::bounds::{allocate, set_hook};
use self::call::{KNOWN_COMMANDS, Known};
use self::compile::compile;
use self::harmless::Harmless;
use self::install::install;
pub(crate) use self::register::{Registered, is_name};
use self::run::{Failure, push_base};
use self::tables::{Own, Tables, make_tables};
use self::values::bytes;
use crate::libs::cjson;
use crate::limits::Limits;
use crate::number::Random;
use crate::script::parse_shebang;
use crate::value::Value;
use crate::{Error, Host, Interrupt};

/// What freeing memory may take for itself: a closure, and a smaller table of strings.
const RESERVE_BYTES: usize = 1 << 20;
/// Work that functions do between two questions to the host: as long as the instructions between
/// two questions take, some 10 microseconds. The unit is about a nanosecond, in which some bytes
/// are copied.
const WORK_PER_QUESTION: usize = 16 << 10;
/// Garbage that is left alone, besides a quarter of what compiled scripts take: collecting costs
/// the more, the less of it there is.
const GARBAGE_BYTES: usize = 1 << 20;
/// What the collector is asked to do at once: some 10 microseconds of marking, or 50 of freeing.
const COLLECTED_TOGETHER: usize = 8 << 10;
/// What an anchor takes, and a table for keys or arguments.
const ANCHOR_BYTES: usize = 32;
const TABLE_BYTES: usize = 512;

/// A Lua state, sandboxed.
pub(crate) struct Machine {
    state: NonNull<lua_State>,
    context: NonNull<Context>,
}

// SAFETY: the state and the context are owned, never shared, and used through `&mut self` only;
// Lua keeps no thread-local data.
unsafe impl Send for Machine {}

/// A compiled script or a function of a library, anchored in the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    anchor: c_int,
}

/// A script as it is kept.
pub(crate) struct Compiled {
    pub(crate) chunk: Chunk,
    /// What it takes of the state's memory.
    bytes: usize,
    /// If it is harmless and has not run yet.
    fresh: Option<Harmless>,
    /// What it is given, if it has parameters.
    own: Option<Own>,
}

impl Compiled {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a state is for, which decides what its code sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// Scripts, each with KEYS and ARGV.
    Scripts,
    /// Libraries of functions, which see less while they are loaded.
    Libraries,
}

impl World {
    fn chunk_name(self) -> &'static CStr {
        match self {
            World::Scripts => c"@user_script",
            World::Libraries => c"@user_function",
        }
    }
}

impl Machine {
    pub(crate) fn new(
        limits: Limits,
        version: &str,
        seed: u64,
        world: World,
    ) -> Result<Machine, Error> {
        let context = Box::new(Context::new(limits, seed, world));
        let context = NonNull::from(Box::leak(context));
        // SAFETY: `allocate` takes the context as its user data, which outlives the state.
        let state = unsafe { ffi::lua_newstate(allocate, context.as_ptr().cast()) };
        let Some(state) = NonNull::new(state) else {
            // SAFETY: leaked just above, and no state holds it.
            drop(unsafe { Box::from_raw(context.as_ptr()) });
            return Err(Error);
        };
        let machine = Machine { state, context };
        // The base of the main stack for ever: the handler, then the runner.
        let mut open = |lua| {
            // SAFETY: called by Lua in a protected call; `version` is borrowed, not owned.
            unsafe { install(lua, version) }
        };
        let opened = machine.protect(&mut open);
        // SAFETY: a fresh stack has room for two.
        let pushed = unsafe { push_base(state.as_ptr()) };
        if !opened || !pushed {
            return Err(Error);
        }
        machine.context().base_bytes.set(machine.memory_bytes());
        machine.count_compiled(0, 0);
        Ok(machine)
    }

    /// Compiles a script's text; the error is Lua's message.
    pub(crate) fn compile(&mut self, code: &[u8]) -> Result<Compiled, Vec<u8>> {
        let context = self.context();
        context.begin();
        let before = self.memory_bytes();
        let chunk = Chunk { anchor: ffi::LUA_NOREF };
        let mut compiled = Compiled { chunk, bytes: 0, fresh: None, own: None };
        let mut message = Vec::new();
        let refused = &mut message;
        let mut compile = |lua| {
            // SAFETY: called by Lua in a protected call; nothing here is owned while it may raise.
            unsafe {
                if compile(lua, code, context.world.chunk_name()) != ffi::LUA_OK {
                    *refused = bytes(lua, -1).to_vec();
                    return;
                }
                compiled.bytes = context.memory_used.get().saturating_sub(before) + ANCHOR_BYTES;
                if context.world == World::Scripts {
                    compiled.fresh = Harmless::of(lua);
                }
                compiled.chunk.anchor = ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX);
            }
        };
        let done = self.protect(&mut compile);
        self.count_compiled(0, compiled.bytes);
        // What compiling takes, it makes the collector free.
        let grown = self.memory_bytes().saturating_sub(before);
        self.collect_some(grown.max(COLLECTED_TOGETHER));
        if !done {
            self.forget_compiled(&compiled);
            // What libraries keep and their garbage have one limit together.
            if context.world == World::Libraries {
                self.collect();
            }
            return Err(b"not enough memory".to_vec());
        }
        if message.is_empty() { Ok(compiled) } else { Err(message) }
    }

    /// Before a script is run: if it is harmless and has not run yet, puts a function of what it
    /// names in its place. It stays what it is if Lua refuses that: a function takes no `...` where
    /// a chunk does, and fewer locals beside its parameters. Whether it takes other memory now.
    #[inline]
    pub(crate) fn give_parameters(&mut self, compiled: &mut Compiled, body: &[u8]) -> bool {
        match compiled.fresh.take() {
            Some(harmless) => self.give_parameters_to(harmless, compiled, body),
            None => false,
        }
    }

    #[cold]
    fn give_parameters_to(
        &mut self,
        harmless: Harmless,
        compiled: &mut Compiled,
        body: &[u8],
    ) -> bool {
        let Ok((_, code)) = parse_shebang(body) else { return false };
        let context = self.context();
        context.begin();
        let before = self.memory_bytes();
        let (text, only_calls) = harmless.as_function(code);
        let redis = if only_calls { &context.plain_call } else { &context.plain_redis };
        let (chunk, tables) = (compiled.chunk, Tables::default());
        let mut compiled_bytes = None;
        let mut give = |lua| {
            // SAFETY: called by Lua in a protected call; nothing here is owned while it may raise.
            unsafe {
                let name = context.world.chunk_name();
                if compile(lua, &text, name) != ffi::LUA_OK {
                    return;
                }
                let bytes = context.memory_used.get().saturating_sub(before);
                ffi::lua_call(lua, 0, 1);
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, context.plain_base.get());
                ffi::lua_setfenv(lua, -2);
                make_tables(lua, &tables);
                ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, chunk.anchor);
                compiled_bytes = Some(bytes + 3 * ANCHOR_BYTES + 2 * TABLE_BYTES);
            }
        };
        self.protect(&mut give);
        let Some(compiled_bytes) = compiled_bytes else {
            self.forget_tables(&tables);
            return false;
        };
        self.count_compiled(compiled.bytes, compiled_bytes);
        compiled.bytes = compiled_bytes;
        let ends_soon = harmless.ends_within(context.limits.interrupt_instructions);
        compiled.own = Some(Own { redis: redis.get(), ends_soon, tables });
        true
    }

    fn forget_tables(&mut self, tables: &Tables) {
        for (table, _) in tables.named() {
            self.forget(Chunk { anchor: table.anchor() });
        }
    }

    /// Lets go of a compiled script.
    pub(crate) fn forget_compiled(&mut self, compiled: &Compiled) {
        self.count_compiled(compiled.bytes, 0);
        self.forget(compiled.chunk);
        if let Some(own) = &compiled.own {
            self.forget_tables(&own.tables);
        }
    }

    /// Lets go of a function.
    pub(crate) fn forget(&mut self, chunk: Chunk) {
        let mut forget = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { ffi::luaL_unref(lua, ffi::LUA_REGISTRYINDEX, chunk.anchor) }
        };
        self.free(&mut forget);
    }

    /// Frees everything that is free. That takes long: for what has used up its memory.
    pub(crate) fn collect(&mut self) {
        self.run_collector(ffi::LUA_GCCOLLECT, 0);
    }

    /// Frees a little if there is garbage worth it. Whether there is more.
    pub(crate) fn tidy(&mut self) -> bool {
        self.collect_some(COLLECTED_TOGETHER)
    }

    /// If there is garbage worth it, has the collector go on by so many bytes. Whether there is
    /// more.
    pub(crate) fn collect_some(&mut self, bytes: usize) -> bool {
        if !self.has_garbage() {
            return false;
        }
        let context = self.context();
        let kib = c_int::try_from(bytes >> 10).unwrap_or(c_int::MAX);
        if self.run_collector(ffi::LUA_GCSTEP, kib) {
            // What the second cycle after a run has left is no garbage, whatever was counted.
            let cycles = context.cycles.get() + 1;
            context.cycles.set(cycles);
            if cycles >= 2 {
                context.collected_above.set(self.memory_bytes() + GARBAGE_BYTES);
            }
        }
        self.has_garbage()
    }

    /// Whether there is garbage worth collecting.
    pub(crate) fn has_garbage(&self) -> bool {
        self.memory_bytes() > self.context().collected_above.get()
    }

    fn run_collector(&mut self, what: c_int, argument: c_int) -> bool {
        let mut result = 0;
        let mut collect = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { result = ffi::lua_gc(lua, what, argument) }
        };
        self.free(&mut collect);
        result != 0
    }

    /// Counts what compiled scripts or libraries take.
    pub(crate) fn count_compiled(&self, before: usize, after: usize) {
        let context = self.context();
        let compiled = context.compiled_bytes.get() - before + after;
        context.compiled_bytes.set(compiled);
        let counted = context.base_bytes.get() + compiled;
        context.collected_above.set(counted + compiled / 4 + GARBAGE_BYTES);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context().memory_used.get()
    }

    /// Whether the host is asked at every instruction: for a script whose end is certain.
    pub(crate) fn ask_at_once(&mut self, at_once: bool) {
        let context = self.context();
        if context.asks_at_once.replace(at_once) != at_once {
            let instructions = if at_once { 1 } else { context.limits.interrupt_instructions };
            // SAFETY: setting a hook is allowed at any time.
            unsafe { set_hook(self.state.as_ptr(), instructions) }
        }
    }

    /// Sets Lua's hook for a run, unless the script ends before the host would be asked.
    fn ask_unless(&mut self, ends_soon: bool) {
        let (lua, context) = (self.state.as_ptr(), self.context());
        let asks = !ends_soon || context.asks_at_once.get();
        // SAFETY: setting a hook is allowed at any time.
        unsafe {
            let asked = ffi::lua_gethookmask(lua) != 0;
            if asks && !asked {
                set_hook(lua, context.limits.interrupt_instructions);
            } else if asked && !asks {
                ffi::lua_sethook(lua, None, 0, 0);
            }
        }
    }

    /// As `protect`, for what frees memory: it must work when there is none left.
    fn free<F: FnMut(*mut lua_State)>(&self, f: &mut F) {
        self.context().reserve.set(RESERVE_BYTES);
        self.protect(f);
        self.context().reserve.set(0);
    }

    /// Calls `f` so that a Lua error inside ends `f` and nothing else; whether it came to its end.
    fn protect<F: FnMut(*mut lua_State)>(&self, f: &mut F) -> bool {
        unsafe extern "C-unwind" fn call<F: FnMut(*mut lua_State)>(lua: *mut lua_State) -> c_int {
            // SAFETY: the argument is the closure given to `lua_cpcall` below, which still waits.
            let f = unsafe { &mut *ffi::lua_touserdata(lua, 1).cast::<F>() };
            f(lua);
            0
        }
        let lua = self.state.as_ptr();
        // SAFETY: `lua_cpcall` protects its own allocations too; an error value is dropped.
        unsafe {
            let status = ffi::lua_cpcall(lua, call::<F>, ptr::from_mut(f).cast());
            if status != ffi::LUA_OK {
                ffi::lua_settop(lua, -2);
            }
            status == ffi::LUA_OK
        }
    }

    fn context(&self) -> &'static Context {
        // SAFETY: freed in `drop` only; shared references only, all fields are cells. The
        // reference is used within methods of `self` alone.
        unsafe { &*self.context.as_ptr() }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the state first, for it frees through the context.
        unsafe {
            ffi::lua_close(self.state.as_ptr());
            drop(Box::from_raw(self.context.as_ptr()));
        }
    }
}

type HostPointer = *mut (dyn Host + 'static);

/// What the functions called by Lua share and own. Reached through the allocator's user data, so
/// in one step from any coroutine and from the hook.
struct Context {
    limits: Limits,
    world: World,
    memory_used: Cell<usize>,
    /// As much of it as there may be.
    memory_max: Cell<usize>,
    /// What the state took when it was new, and what compiled scripts have added.
    base_bytes: Cell<usize>,
    compiled_bytes: Cell<usize>,
    /// What is used beyond this is taken for garbage.
    collected_above: Cell<usize>,
    /// Cycles that the collector has ended since something was compiled or run.
    cycles: Cell<u32>,
    /// Beyond the limit, for what frees memory.
    reserve: Cell<usize>,
    /// What functions have done since the host was asked last.
    work: Cell<usize>,
    /// Large blocks that Lua was given since the collector was last asked to keep pace with them.
    large_bytes: Cell<usize>,
    /// Whether the host is asked at every instruction.
    asks_at_once: Cell<bool>,
    main: Cell<*mut lua_State>,
    host: Cell<Option<HostPointer>>,
    protocol: Cell<Protocol>,
    end: Cell<End>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    failure: Cell<Option<Failure>>,
    /// What is said of code that the host has ended.
    killed_line: Cell<&'static str>,
    /// What a library has registered, while it is loaded.
    registered: UnsafeCell<Option<Vec<Registered>>>,
    seed: Random,
    random: Cell<Random>,
    /// What the script has set `cjson` to.
    cjson: Cell<cjson::Settings>,
    /// The commands that scripts have called last, and the table of their names.
    commands: [Cell<Known>; KNOWN_COMMANDS],
    names: Cell<c_int>,
    /// Numbers among a command's arguments, as text.
    digits: UnsafeCell<Vec<u8>>,
    /// The reply that is being pushed, or the script's own.
    reply: UnsafeCell<Reply>,
    /// The values that are being pushed.
    values: UnsafeCell<Vec<Value>>,
    /// The text of the error that is being raised.
    message: UnsafeCell<Vec<u8>>,
    originals: Originals,
    /// KEYS and ARGV of scripts that find them among the globals.
    tables: Tables,
    base: Cell<c_int>,
    /// What harmless scripts see in place of the base, but for their parameters: the libraries
    /// themselves.
    plain_base: Cell<c_int>,
    /// The table `redis` itself, and its function `call`.
    plain_redis: Cell<c_int>,
    plain_call: Cell<c_int>,
    /// The libraries among these: which tables they are.
    plain_libraries: Cell<[*const c_void; PLAIN_LIBRARIES]>,
    /// The tables of KEYS and ARGV that the running script was given.
    given: Cell<Given>,
    /// Whether the script has added to one of them, or may have.
    has_inserted: Cell<bool>,
    /// What code sees in place of the base while a library is loaded.
    loading_base: Cell<c_int>,
}

/// The tables of KEYS and ARGV that are used again for the next run of a script.
#[derive(Clone, Copy)]
enum Given {
    None,
    /// By their anchors: few scripts ever ask which tables they are.
    Anchors([c_int; 2]),
    Tables([*const c_void; 2]),
}

/// As many libraries as a harmless script may name.
const PLAIN_LIBRARIES: usize = 4;

/// Functions of Lua's own that ours end in.
#[derive(Default)]
struct Originals {
    next: Cell<Option<lua_CFunction>>,
    rawget: Cell<Option<lua_CFunction>>,
    rawset: Cell<Option<lua_CFunction>>,
    setmetatable: Cell<Option<lua_CFunction>>,
    resume: Cell<Option<lua_CFunction>>,
}

/// Why a script must end whatever it does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    None,
    Killed,
    Panicked,
}

impl Context {
    fn new(limits: Limits, seed: u64, world: World) -> Context {
        let seed = Random::new(seed as u32);
        Context {
            limits,
            world,
            memory_used: Cell::new(0),
            memory_max: Cell::new(limits.memory_bytes_max),
            base_bytes: Cell::new(0),
            compiled_bytes: Cell::new(0),
            collected_above: Cell::new(usize::MAX),
            cycles: Cell::new(0),
            reserve: Cell::new(0),
            work: Cell::new(0),
            large_bytes: Cell::new(0),
            asks_at_once: Cell::new(false),
            main: Cell::new(ptr::null_mut()),
            host: Cell::new(None),
            protocol: Cell::new(Protocol::Resp2),
            end: Cell::new(End::None),
            panic: Cell::new(None),
            failure: Cell::new(None),
            killed_line: Cell::new(""),
            registered: UnsafeCell::new(None),
            seed,
            random: Cell::new(seed),
            cjson: Cell::new(cjson::Settings::default()),
            commands: [const { Cell::new(Known::NONE) }; KNOWN_COMMANDS],
            names: Cell::new(ffi::LUA_NOREF),
            digits: UnsafeCell::new(Vec::new()),
            reply: UnsafeCell::new(Reply::Null),
            values: UnsafeCell::new(Vec::new()),
            message: UnsafeCell::new(Vec::new()),
            originals: Originals::default(),
            tables: Tables::default(),
            base: Cell::new(ffi::LUA_NOREF),
            plain_base: Cell::new(ffi::LUA_NOREF),
            plain_redis: Cell::new(ffi::LUA_NOREF),
            plain_call: Cell::new(ffi::LUA_NOREF),
            plain_libraries: Cell::new([ptr::null(); PLAIN_LIBRARIES]),
            given: Cell::new(Given::None),
            has_inserted: Cell::new(false),
            loading_base: Cell::new(ffi::LUA_NOREF),
        }
    }

    /// Something is to be compiled or run. It may take as much memory as the limit says, whatever
    /// scripts are compiled and whatever the one before has left. No script can keep anything, but
    /// functions of libraries can: all that they keep is within the limit.
    fn begin(&self) {
        self.cycles.set(0);
        if self.world == World::Scripts {
            self.memory_max.set(self.memory_used.get() + self.limits.memory_bytes_max);
        }
    }

    /// Counts work where the host cannot be asked: after much of it, that is done at the next
    /// instruction.
    fn charge(&self, amount: usize) {
        let work = self.work.get().saturating_add(amount);
        self.work.set(work);
        if work > WORK_PER_QUESTION && !self.main.get().is_null() {
            // SAFETY: the main thread lives as long as the state; setting a hook writes three
            // fields of it, which is allowed at any time.
            unsafe { set_hook(self.main.get(), 1) }
        }
    }

    /// Whether more than half of the memory that a run may take is taken.
    fn is_half_full(&self) -> bool {
        self.memory_used.get() > self.memory_max.get() - self.limits.memory_bytes_max / 2
    }

    /// Counts work, and asks the host after much of it. Whether to go on. Quiet.
    #[inline]
    fn work(&self, amount: usize) -> bool {
        let work = self.work.get().saturating_add(amount);
        self.work.set(work);
        work <= WORK_PER_QUESTION || self.ask()
    }

    /// Asks the host whether to go on. Quiet.
    #[cold]
    fn ask(&self) -> bool {
        self.work.set(0);
        if self.end.get() == End::None
            && self.with_host(|host| host.interrupt()) == Some(Interrupt::Kill)
        {
            self.end.set(End::Killed);
        }
        self.end.get() == End::None
    }

    fn take_reply(&self) -> Reply {
        // SAFETY: no reference into the cell lives here: pushing is over when this is called.
        unsafe { std::mem::replace(&mut *self.reply.get(), Reply::Null) }
    }

    fn set_reply(&self, reply: Reply) {
        // SAFETY: as above: nothing is being pushed while a function computes.
        let before = unsafe { std::mem::replace(&mut *self.reply.get(), reply) };
        // Nearly always there is nothing to be freed.
        if matches!(before, Reply::Null) {
            std::mem::forget(before);
        }
    }

    fn set_values(&self, values: Vec<Value>) {
        // SAFETY: as above.
        unsafe { *self.values.get() = values }
    }

    fn set_message(&self, message: Vec<u8>) {
        // SAFETY: as above.
        unsafe { *self.message.get() = message }
    }

    /// Sets what a library has registered so far; returns what it was.
    fn set_registered(&self, registered: Option<Vec<Registered>>) -> Option<Vec<Registered>> {
        // SAFETY: as above; no reference into the cell outlives the function that takes it.
        unsafe { std::mem::replace(&mut *self.registered.get(), registered) }
    }

    /// Frees what an error may have left.
    fn clear(&self) {
        self.set_reply(Reply::Null);
        self.set_values(Vec::new());
        self.set_message(Vec::new());
        self.failure.set(None);
    }

    /// Runs code that is not this file's. `None` if it panicked: the script must end.
    #[inline(always)]
    fn guard<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.panic.set(Some(panic));
                self.end.set(End::Panicked);
                None
            }
        }
    }

    /// The host, while a script runs.
    #[inline(always)]
    fn with_host<T>(&self, f: impl FnOnce(&mut dyn Host) -> T) -> Option<T> {
        let host = self.host.get()?;
        // SAFETY: set by `run` from a `&mut` that outlives the script; a host cannot reach the
        // interpreter, which is borrowed, so it is not in use twice.
        self.guard(|| f(unsafe { &mut *host }))
    }
}

/// The context of a state. Plain and quiet.
unsafe fn context<'a>(lua: *mut lua_State) -> &'a Context {
    // SAFETY: `Machine::new` gave the allocator a context that outlives the state.
    unsafe {
        let mut data = ptr::null_mut();
        ffi::lua_getallocf(lua, &raw mut data);
        &*data.cast::<Context>()
    }
}
