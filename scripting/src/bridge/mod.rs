//! The calls between Lua and the host. Only this module accesses a Lua state.
//!
//! A Lua error leaves a function by `longjmp`, which skips Rust's destructors. So every function
//! here is of one of two kinds:
//!
//! - A function that *may raise* Lua errors owns nothing. Values that must outlive an error live in
//!   [`BridgeState`].
//! - A function that *never raises* may own values, and calls only those parts of Lua's interface
//!   that neither allocate nor raise. Where such a function calls code outside this module, a panic
//!   is caught and kept in the bridge state; it ends the script and is resumed in `Machine::run`.
//!
//! "May raise" and "never raises" in the files below mean this. This file holds the owner of the
//! state and what its functions share. Every script goes through `run` and `redis_call`; all files
//! use `values`.

#![allow(unsafe_code)]

mod base_library;
mod bounds;
mod compile;
mod freeze;
mod harmless;
mod install;
mod key_tables;
mod libraries;
mod patterns;
mod redis;
mod redis_call;
mod register;
mod run;
mod string_builder;
mod string_library;
mod table_library;
mod values;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_CFunction, lua_State};

use self::bounds::{allocate, set_hook};
use self::compile::compile;
use self::harmless::Harmless;
use self::install::install;
use self::key_tables::{ScriptParameters, Tables, make_tables};
use self::redis_call::{CACHED_COMMANDS, CachedCommand};
pub(crate) use self::register::{Registered, is_name};
use self::run::{UncaughtError, push_base};
use self::values::bytes;
use crate::libs::cjson;
use crate::limits::Limits;
use crate::math_random::MathRandom;
use crate::script::parse_shebang;
use crate::value::Value;
use crate::{Error, Host, Interrupt};

/// Memory that freeing memory may take for itself: a closure, and a smaller table of strings.
const RESERVE_BYTES: usize = 1 << 20;
/// Work that functions do between two polls of the host: as long as the instructions between two
/// polls take, some 10 microseconds. The unit is about a nanosecond, in which some bytes are
/// copied.
const WORK_PER_POLL: usize = 16 << 10;
/// Garbage that is not collected yet, in addition to a quarter of the memory of compiled scripts. A
/// collection costs more per freed byte if there is less garbage.
const GARBAGE_BYTES: usize = 1 << 20;
/// The bytes the collector processes in one step: some 10 microseconds of marking, or 50 of
/// freeing.
const COLLECTED_PER_STEP: usize = 8 << 10;
/// The memory of an anchor, and of a table for keys or arguments.
const ANCHOR_BYTES: usize = 32;
const TABLE_BYTES: usize = 512;

/// A sandboxed Lua state.
pub(crate) struct Machine {
    state: NonNull<lua_State>,
    bridge: NonNull<BridgeState>,
}

// SAFETY: the Lua state and the bridge state are owned, never shared, and used through `&mut self`
// only; Lua keeps no thread-local data.
unsafe impl Send for Machine {}

/// A compiled script or a function of a library, anchored in the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    anchor: c_int,
}

/// A compiled script in the cache.
pub(crate) struct Compiled {
    pub(crate) chunk: Chunk,
    /// Its share of the state's memory.
    bytes: usize,
    /// Set if it is harmless and has not run yet.
    fresh: Option<Harmless>,
    /// Its parameters, if it has any.
    parameters: Option<ScriptParameters>,
}

impl Compiled {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The purpose of a state, which decides what its code can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateKind {
    /// Scripts. Each has KEYS and ARGV.
    Scripts,
    /// Libraries of functions, which can access less while they are loaded.
    Libraries,
}

impl StateKind {
    fn chunk_name(self) -> &'static CStr {
        match self {
            StateKind::Scripts => c"@user_script",
            StateKind::Libraries => c"@user_function",
        }
    }
}

impl Machine {
    pub(crate) fn new(
        limits: Limits,
        version: &str,
        random: MathRandom,
        kind: StateKind,
    ) -> Result<Machine, Error> {
        let bridge = Box::new(BridgeState::new(limits, random, kind));
        let bridge = NonNull::from(Box::leak(bridge));
        // SAFETY: `allocate` takes the bridge state as its user data, which outlives the Lua state.
        let state = unsafe { ffi::lua_newstate(allocate, bridge.as_ptr().cast()) };
        let Some(state) = NonNull::new(state) else {
            // SAFETY: leaked just above, and no Lua state holds it.
            drop(unsafe { Box::from_raw(bridge.as_ptr()) });
            return Err(Error);
        };
        let machine = Machine { state, bridge };
        // The bottom of the main stack holds the handler and the runner as long as the state
        // exists.
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
        machine.bridge().base_bytes.set(machine.memory_bytes());
        machine.count_compiled(0, 0);
        Ok(machine)
    }

    /// Compiles a script's text. The error is Lua's message.
    pub(crate) fn compile(&mut self, code: &[u8]) -> Result<Compiled, Vec<u8>> {
        let bridge = self.bridge();
        bridge.begin();
        let before = self.memory_bytes();
        let chunk = Chunk { anchor: ffi::LUA_NOREF };
        let mut compiled = Compiled { chunk, bytes: 0, fresh: None, parameters: None };
        let mut message = Vec::new();
        let refused = &mut message;
        let mut compile = |lua| {
            // SAFETY: called by Lua in a protected call; nothing here is owned while it may raise.
            unsafe {
                if compile(lua, code, bridge.kind.chunk_name()) != ffi::LUA_OK {
                    *refused = bytes(lua, -1).to_vec();
                    return;
                }
                compiled.bytes = bridge.memory_used.get().saturating_sub(before) + ANCHOR_BYTES;
                if bridge.kind == StateKind::Scripts {
                    compiled.fresh = Harmless::of(lua);
                }
                compiled.chunk.anchor = ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX);
            }
        };
        let done = self.protect(&mut compile);
        self.count_compiled(0, compiled.bytes);
        // The collector frees as much as the compilation took.
        let grown = self.memory_bytes().saturating_sub(before);
        self.collect_some(grown.max(COLLECTED_PER_STEP));
        if !done {
            self.forget_compiled(&compiled);
            // The values that libraries keep and their garbage share one limit.
            if bridge.kind == StateKind::Libraries {
                self.collect();
            }
            return Err(b"not enough memory".to_vec());
        }
        if message.is_empty() { Ok(compiled) } else { Err(message) }
    }

    /// Called before a script runs. If it is harmless and has not run yet, replaces it by a
    /// function with `redis`, KEYS and ARGV as parameters. If Lua does not compile that function,
    /// the script stays unchanged: a function takes no `...` where a chunk does, and fewer locals
    /// besides its parameters. Returns whether its memory has changed.
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
        let bridge = self.bridge();
        bridge.begin();
        let before = self.memory_bytes();
        let (text, only_calls) = harmless.as_function(code);
        let redis = if only_calls { &bridge.plain_call } else { &bridge.plain_redis };
        let (chunk, tables) = (compiled.chunk, Tables::default());
        let mut compiled_bytes = None;
        let mut give = |lua| {
            // SAFETY: called by Lua in a protected call; nothing here is owned while it may raise.
            unsafe {
                let name = bridge.kind.chunk_name();
                if compile(lua, &text, name) != ffi::LUA_OK {
                    return;
                }
                let bytes = bridge.memory_used.get().saturating_sub(before);
                ffi::lua_call(lua, 0, 1);
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, bridge.plain_base.get());
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
        let ends_soon = harmless.ends_within(bridge.limits.interrupt_instructions);
        compiled.parameters = Some(ScriptParameters { redis: redis.get(), ends_soon, tables });
        true
    }

    fn forget_tables(&mut self, tables: &Tables) {
        for (table, _) in tables.named() {
            self.forget(Chunk { anchor: table.anchor() });
        }
    }

    /// Releases a compiled script.
    pub(crate) fn forget_compiled(&mut self, compiled: &Compiled) {
        self.count_compiled(compiled.bytes, 0);
        self.forget(compiled.chunk);
        if let Some(parameters) = &compiled.parameters {
            self.forget_tables(&parameters.tables);
        }
    }

    /// Releases a function.
    pub(crate) fn forget(&mut self, chunk: Chunk) {
        let mut forget = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { ffi::luaL_unref(lua, ffi::LUA_REGISTRYINDEX, chunk.anchor) }
        };
        self.free(&mut forget);
    }

    /// Runs a full collection. It takes long, and is used when memory has run out.
    pub(crate) fn collect(&mut self) {
        self.run_collector(ffi::LUA_GCCOLLECT, 0);
    }

    /// Frees some garbage if there is enough of it. Returns whether there is more.
    pub(crate) fn tidy(&mut self) -> bool {
        self.collect_some(COLLECTED_PER_STEP)
    }

    /// Runs the collector over this number of bytes, if there is enough garbage. Returns whether
    /// there is more.
    pub(crate) fn collect_some(&mut self, bytes: usize) -> bool {
        if !self.has_garbage() {
            return false;
        }
        let bridge = self.bridge();
        let kib = c_int::try_from(bytes >> 10).unwrap_or(c_int::MAX);
        if self.run_collector(ffi::LUA_GCSTEP, kib) {
            // After the second cycle since a run, the memory that is left is not garbage, whatever
            // was counted.
            let cycles = bridge.cycles.get() + 1;
            bridge.cycles.set(cycles);
            if cycles >= 2 {
                bridge.collected_above.set(self.memory_bytes() + GARBAGE_BYTES);
            }
        }
        self.has_garbage()
    }

    /// Whether there is enough garbage to collect.
    pub(crate) fn has_garbage(&self) -> bool {
        self.memory_bytes() > self.bridge().collected_above.get()
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

    /// Counts the memory of compiled scripts or libraries.
    pub(crate) fn count_compiled(&self, before: usize, after: usize) {
        let bridge = self.bridge();
        let compiled = bridge.compiled_bytes.get() - before + after;
        bridge.compiled_bytes.set(compiled);
        let counted = bridge.base_bytes.get() + compiled;
        bridge.collected_above.set(counted + compiled / 4 + GARBAGE_BYTES);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bridge().memory_used.get()
    }

    /// Sets whether the host is polled at every instruction. It is for a script that is certain to
    /// be ended.
    pub(crate) fn poll_every_instruction(&mut self, at_once: bool) {
        let bridge = self.bridge();
        if bridge.polls_every_instruction.replace(at_once) != at_once {
            let instructions = if at_once { 1 } else { bridge.limits.interrupt_instructions };
            // SAFETY: setting a hook is allowed at any time.
            unsafe { set_hook(self.state.as_ptr(), instructions) }
        }
    }

    /// Sets Lua's hook for a run, unless the script ends before the host would be polled.
    fn poll_unless(&mut self, ends_soon: bool) {
        let (lua, bridge) = (self.state.as_ptr(), self.bridge());
        let needs_hook = !ends_soon || bridge.polls_every_instruction.get();
        // SAFETY: setting a hook is allowed at any time.
        unsafe {
            let has_hook = ffi::lua_gethookmask(lua) != 0;
            if needs_hook && !has_hook {
                set_hook(lua, bridge.limits.interrupt_instructions);
            } else if has_hook && !needs_hook {
                ffi::lua_sethook(lua, None, 0, 0);
            }
        }
    }

    /// Does the same as `protect` for a function that frees memory, which must work when no memory
    /// is left.
    fn free<F: FnMut(*mut lua_State)>(&self, f: &mut F) {
        self.bridge().reserve.set(RESERVE_BYTES);
        self.protect(f);
        self.bridge().reserve.set(0);
    }

    /// Calls `f` so that a Lua error inside ends only `f`. Returns whether `f` came to its end.
    fn protect<F: FnMut(*mut lua_State)>(&self, f: &mut F) -> bool {
        unsafe extern "C-unwind" fn call<F: FnMut(*mut lua_State)>(lua: *mut lua_State) -> c_int {
            // SAFETY: the argument is the closure given to `lua_cpcall` below, which has not
            // returned.
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

    fn bridge(&self) -> &'static BridgeState {
        // SAFETY: freed in `drop` only; shared references only, all fields are cells. The reference
        // is used within methods of `self` alone.
        unsafe { &*self.bridge.as_ptr() }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the Lua state first, because closing it frees memory through the bridge state.
        unsafe {
            ffi::lua_close(self.state.as_ptr());
            drop(Box::from_raw(self.bridge.as_ptr()));
        }
    }
}

type HostPointer = *mut (dyn Host + 'static);

/// The data that the functions called by Lua share and own. It is the allocator's user data, so any
/// coroutine and the hook reach it in one step.
struct BridgeState {
    limits: Limits,
    kind: StateKind,
    memory_used: Cell<usize>,
    /// The limit of `memory_used`.
    memory_max: Cell<usize>,
    /// The memory of the new state, and the memory that compiled scripts have added.
    base_bytes: Cell<usize>,
    compiled_bytes: Cell<usize>,
    /// Bytes of memory above which the rest is assumed to be garbage.
    collected_above: Cell<usize>,
    /// Cycles that the collector has finished since something was compiled or run.
    cycles: Cell<u32>,
    /// Memory beyond the limit, for functions that free memory.
    reserve: Cell<usize>,
    /// Work that functions have done since the host was last polled.
    work: Cell<usize>,
    /// The size of large blocks allocated since the collector was last made to keep up with them.
    large_bytes: Cell<usize>,
    /// Whether the host is polled at every instruction.
    polls_every_instruction: Cell<bool>,
    main: Cell<*mut lua_State>,
    host: Cell<Option<HostPointer>>,
    protocol: Cell<Protocol>,
    end: Cell<ScriptEnd>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    failure: Cell<Option<UncaughtError>>,
    /// The error line of code that the host has ended.
    killed_line: Cell<&'static str>,
    /// The functions that a library has registered, while it is loaded.
    registered: UnsafeCell<Option<Vec<Registered>>>,
    random: MathRandom,
    /// How often the host was polled since the run began.
    polls: Cell<u32>,
    /// The table of the objects that the run has shown with `tostring`, and their number.
    objects: Cell<c_int>,
    object_count: Cell<u32>,
    /// The running script's settings of `cjson`.
    cjson: Cell<cjson::Settings>,
    /// The commands that scripts have called last, and the table of their names.
    commands: [Cell<CachedCommand>; CACHED_COMMANDS],
    names: Cell<c_int>,
    /// Numbers among a command's arguments, written as text.
    digits: UnsafeCell<Vec<u8>>,
    /// The reply that is being pushed, or the reply of the script.
    reply: UnsafeCell<Reply>,
    /// The values that are being pushed.
    values: UnsafeCell<Vec<Value>>,
    /// The text of the error that is being raised.
    message: UnsafeCell<Vec<u8>>,
    lua_functions: LuaFunctions,
    /// KEYS and ARGV of scripts that read them as globals.
    tables: Tables,
    base: Cell<c_int>,
    /// The table that harmless scripts use in place of the base, except for their parameters: it
    /// holds the libraries themselves.
    plain_base: Cell<c_int>,
    /// The unfrozen table `redis`, and its function `call`.
    plain_redis: Cell<c_int>,
    plain_call: Cell<c_int>,
    /// The addresses of the unfrozen libraries.
    plain_libraries: Cell<[*const c_void; PLAIN_LIBRARIES]>,
    /// The tables of KEYS and ARGV that the running script was given.
    parameter_tables: Cell<ParameterTables>,
    /// Whether the script has added to one of them, or may have.
    has_inserted: Cell<bool>,
    /// The table that code uses in place of the base while a library is loaded.
    loading_base: Cell<c_int>,
}

/// The tables of KEYS and ARGV that are used again for the next run of a script.
#[derive(Clone, Copy)]
enum ParameterTables {
    None,
    /// Their anchors. The addresses are looked up only if needed, because few scripts insert into
    /// tables.
    Anchors([c_int; 2]),
    Tables([*const c_void; 2]),
}

/// The number of libraries that a harmless script may name.
const PLAIN_LIBRARIES: usize = 4;

/// Lua's own functions that our replacements call.
#[derive(Default)]
struct LuaFunctions {
    next: Cell<Option<lua_CFunction>>,
    rawget: Cell<Option<lua_CFunction>>,
    rawset: Cell<Option<lua_CFunction>>,
    setmetatable: Cell<Option<lua_CFunction>>,
    tostring: Cell<Option<lua_CFunction>>,
    resume: Cell<Option<lua_CFunction>>,
}

/// Why a script must end, even if it catches errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScriptEnd {
    None,
    Killed,
    Panicked,
}

impl BridgeState {
    fn new(limits: Limits, random: MathRandom, kind: StateKind) -> BridgeState {
        BridgeState {
            limits,
            kind,
            memory_used: Cell::new(0),
            memory_max: Cell::new(limits.memory_bytes_max),
            base_bytes: Cell::new(0),
            compiled_bytes: Cell::new(0),
            collected_above: Cell::new(usize::MAX),
            cycles: Cell::new(0),
            reserve: Cell::new(0),
            work: Cell::new(0),
            large_bytes: Cell::new(0),
            polls_every_instruction: Cell::new(false),
            main: Cell::new(ptr::null_mut()),
            host: Cell::new(None),
            protocol: Cell::new(Protocol::Resp2),
            end: Cell::new(ScriptEnd::None),
            panic: Cell::new(None),
            failure: Cell::new(None),
            killed_line: Cell::new(""),
            registered: UnsafeCell::new(None),
            random,
            polls: Cell::new(0),
            objects: Cell::new(ffi::LUA_NOREF),
            object_count: Cell::new(0),
            cjson: Cell::new(cjson::Settings::default()),
            commands: [const { Cell::new(CachedCommand::NONE) }; CACHED_COMMANDS],
            names: Cell::new(ffi::LUA_NOREF),
            digits: UnsafeCell::new(Vec::new()),
            reply: UnsafeCell::new(Reply::Null),
            values: UnsafeCell::new(Vec::new()),
            message: UnsafeCell::new(Vec::new()),
            lua_functions: LuaFunctions::default(),
            tables: Tables::default(),
            base: Cell::new(ffi::LUA_NOREF),
            plain_base: Cell::new(ffi::LUA_NOREF),
            plain_redis: Cell::new(ffi::LUA_NOREF),
            plain_call: Cell::new(ffi::LUA_NOREF),
            plain_libraries: Cell::new([ptr::null(); PLAIN_LIBRARIES]),
            parameter_tables: Cell::new(ParameterTables::None),
            has_inserted: Cell::new(false),
            loading_base: Cell::new(ffi::LUA_NOREF),
        }
    }

    /// Called before something is compiled or run. It may use the memory of the limit, independent
    /// of the scripts that are compiled and the garbage that earlier ones have left. Scripts keep
    /// nothing after their end, but functions of libraries can: everything they keep is within the
    /// limit.
    fn begin(&self) {
        self.cycles.set(0);
        if self.kind == StateKind::Scripts {
            self.memory_max.set(self.memory_used.get() + self.limits.memory_bytes_max);
        }
    }

    /// Counts work where the host cannot be polled. After much of it, the host is polled at the
    /// next instruction.
    fn charge(&self, amount: usize) {
        let work = self.work.get().saturating_add(amount);
        self.work.set(work);
        if work > WORK_PER_POLL && !self.main.get().is_null() {
            // SAFETY: the main thread lives as long as the Lua state; setting a hook writes three
            // fields of it, which is allowed at any time.
            unsafe { set_hook(self.main.get(), 1) }
        }
    }

    /// Whether more than half of the memory that a run may use is used.
    fn is_half_full(&self) -> bool {
        self.memory_used.get() > self.memory_max.get() - self.limits.memory_bytes_max / 2
    }

    /// Counts work, and polls the host after much of it. Returns whether to go on. Never raises.
    #[inline]
    fn work(&self, amount: usize) -> bool {
        let work = self.work.get().saturating_add(amount);
        self.work.set(work);
        work <= WORK_PER_POLL || self.poll()
    }

    /// Polls the host. Returns whether to go on. Never raises.
    #[cold]
    fn poll(&self) -> bool {
        self.work.set(0);
        self.polls.set(self.polls.get().saturating_add(1));
        if self.end.get() == ScriptEnd::None
            && self.with_host(|host| host.interrupt()) == Some(Interrupt::Kill)
        {
            self.end.set(ScriptEnd::Killed);
        }
        self.end.get() == ScriptEnd::None
    }

    fn take_reply(&self) -> Reply {
        // SAFETY: no reference into the cell lives here: pushing is over when this is called.
        unsafe { std::mem::replace(&mut *self.reply.get(), Reply::Null) }
    }

    fn set_reply(&self, reply: Reply) {
        // SAFETY: as above: nothing is being pushed while a function computes.
        let before = unsafe { std::mem::replace(&mut *self.reply.get(), reply) };
        // Nearly always there is nothing to free.
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

    /// Sets the functions that a library has registered so far. Returns the earlier value.
    fn set_registered(&self, registered: Option<Vec<Registered>>) -> Option<Vec<Registered>> {
        // SAFETY: as above; no reference into the cell outlives the function that takes it.
        unsafe { std::mem::replace(&mut *self.registered.get(), registered) }
    }

    /// Frees values that an error may have left.
    fn clear(&self) {
        self.set_reply(Reply::Null);
        self.set_values(Vec::new());
        self.set_message(Vec::new());
        self.failure.set(None);
    }

    /// Runs code outside this module. `None` if it panicked: then the script must end.
    #[inline(always)]
    fn guard<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.panic.set(Some(panic));
                self.end.set(ScriptEnd::Panicked);
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

/// The bridge state of a Lua state. Never raises and owns nothing.
unsafe fn bridge<'a>(lua: *mut lua_State) -> &'a BridgeState {
    // SAFETY: `Machine::new` gave the allocator a bridge state that outlives the Lua state.
    unsafe {
        let mut data = ptr::null_mut();
        ffi::lua_getallocf(lua, &raw mut data);
        &*data.cast::<BridgeState>()
    }
}
