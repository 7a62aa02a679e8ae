//! The call from Lua to the host and back: the only place that touches a Lua state.
//!
//! A Lua error leaves a function by `longjmp`, which skips Rust's destructors. So every function
//! here is of one of two kinds. *Plain* functions may raise Lua errors and own nothing: what must
//! outlive an error lives in [`Context`]. *Quiet* functions own what they like and call only those
//! parts of Lua's interface that neither allocate nor raise. Where a quiet function calls code of
//! others, a panic is caught, kept in the context, ends the script, and goes on in `Machine::run`.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::slice;

use bytes::Bytes;
use leasehold_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_CFunction, lua_Debug, lua_State};

use crate::budget::Limits;
use crate::libs::{self, Call, Constant, Fault, Function, cjson};
use crate::number::{Random, write_argument};
use crate::script::Sha;
use crate::strings::{self, Budget, Capture, Match};
use crate::value::Value;
use crate::{Error, Host, Interrupt, LogLevel, convert, sandbox};

/// A Lua state, sandboxed.
pub(crate) struct Machine {
    state: NonNull<lua_State>,
    context: NonNull<Context>,
}

// SAFETY: the state and the context are owned, never shared, and used through `&mut self` only;
// Lua keeps no thread-local data.
unsafe impl Send for Machine {}

/// A compiled script, anchored in the registry.
#[derive(Clone, Copy)]
pub(crate) struct Chunk(c_int);

impl Machine {
    pub(crate) fn new(limits: Limits, version: &str, seed: u64) -> Result<Machine, Error> {
        let context = Box::new(Context::new(limits, seed));
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
        if opened && pushed { Ok(machine) } else { Err(Error) }
    }

    /// Compiles a script's text; the error is Lua's message.
    pub(crate) fn compile(&mut self, code: &[u8]) -> Result<Chunk, Vec<u8>> {
        let mut anchor = 0;
        let mut message = Vec::new();
        let refused = &mut message;
        let mut compile = |lua| {
            // SAFETY: called by Lua in a protected call; nothing here is owned while it may raise.
            unsafe {
                if compile(lua, code, CHUNK_NAME) == ffi::LUA_OK {
                    anchor = ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX);
                } else {
                    *refused = bytes(lua, -1).to_vec();
                }
            }
        };
        let done = self.protect(&mut compile);
        if !done {
            self.collect();
            return Err(b"not enough memory".to_vec());
        }
        if message.is_empty() { Ok(Chunk(anchor)) } else { Err(message) }
    }

    /// Lets go of a compiled script.
    pub(crate) fn forget(&mut self, chunk: Chunk) {
        let mut forget = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { ffi::luaL_unref(lua, ffi::LUA_REGISTRYINDEX, chunk.0) }
        };
        self.free(&mut forget);
    }

    /// Frees everything that is free.
    pub(crate) fn collect(&mut self) {
        let mut collect = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe {
                ffi::lua_gc(lua, ffi::LUA_GCCOLLECT, 0);
            }
        };
        self.free(&mut collect);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context().memory_used.get()
    }

    /// Runs a compiled script.
    pub(crate) fn run(
        &mut self,
        chunk: Chunk,
        sha: &Sha,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let lua = self.state.as_ptr();
        let context = self.context();
        // SAFETY: only the lifetime is forgotten; the pointer is taken back below, before it ends.
        let host = unsafe { std::mem::transmute::<*mut (dyn Host + '_), HostPointer>(host) };
        context.host.set(Some(host));
        context.protocol.set(Protocol::Resp2);
        context.random.set(context.seed);
        context.cjson.set(cjson::Settings::default());
        let frame = Frame { chunk, keys, args };
        // SAFETY: `push_base` left handler and runner; `frame` outlives the call; three slots are
        // free on a stack that holds two; a protected call lets no error out.
        let status = unsafe {
            ffi::lua_pushvalue(lua, RUNNER);
            ffi::lua_pushlightuserdata(lua, ptr::from_ref(&frame).cast_mut().cast());
            ffi::lua_pcall(lua, 1, 0, HANDLER)
        };
        context.host.set(None);
        if status == ffi::LUA_OK {
            return context.take_reply();
        }
        self.failed(status, sha)
    }

    /// What a script that failed answers, the state made fit for the next one.
    fn failed(&mut self, status: c_int, sha: &Sha) -> Reply {
        let lua = self.state.as_ptr();
        let context = self.context();
        let failure = context.failure.take();
        // SAFETY: the error value is on top; reading it raises nothing; the hook is put back.
        let message = unsafe {
            let message = bytes(lua, -1).to_vec();
            ffi::lua_settop(lua, RUNNER);
            set_hook(lua, context.limits.interrupt_instructions);
            message
        };
        let end = context.end.replace(End::None);
        let panic = context.panic.take();
        context.clear();
        if status == ffi::LUA_ERRMEM {
            self.collect();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        let mut line = match failure {
            Some(failure) if status == ffi::LUA_ERRRUN || end == End::Killed => failure.line(sha),
            _ => [format!("ERR Error running script {sha}, ").as_bytes(), &message].concat(),
        };
        if line.is_empty() {
            line = b"ERR unknown error".to_vec();
        }
        Reply::Error(convert::one_line(line))
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
    memory_used: Cell<usize>,
    /// Beyond the limit, for what frees memory.
    reserve: Cell<usize>,
    /// Bytes moved since the host was asked last.
    work: Cell<usize>,
    main: Cell<*mut lua_State>,
    host: Cell<Option<HostPointer>>,
    protocol: Cell<Protocol>,
    end: Cell<End>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    failure: Cell<Option<Failure>>,
    seed: Random,
    random: Cell<Random>,
    /// What the script has set `cjson` to.
    cjson: Cell<cjson::Settings>,
    /// Numbers among a command's arguments, as text.
    digits: Cell<Vec<u8>>,
    /// The reply that is being pushed, or the script's own.
    reply: UnsafeCell<Reply>,
    /// The values that are being pushed.
    values: UnsafeCell<Vec<Value>>,
    /// The text of the error that is being raised.
    message: UnsafeCell<Vec<u8>>,
    originals: Originals,
    keys: Cell<c_int>,
    args: Cell<c_int>,
    base: Cell<c_int>,
}

/// Functions of Lua's own that ours end in.
#[derive(Default)]
struct Originals {
    next: Cell<Option<lua_CFunction>>,
    rawget: Cell<Option<lua_CFunction>>,
    rawset: Cell<Option<lua_CFunction>>,
    setmetatable: Cell<Option<lua_CFunction>>,
    resume: Cell<Option<lua_CFunction>>,
    insert: Cell<Option<lua_CFunction>>,
    remove: Cell<Option<lua_CFunction>>,
}

/// Why a script must end whatever it does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    None,
    Killed,
    Panicked,
}

impl Context {
    fn new(limits: Limits, seed: u64) -> Context {
        let seed = Random::new(seed as u32);
        Context {
            limits,
            memory_used: Cell::new(0),
            reserve: Cell::new(0),
            work: Cell::new(0),
            main: Cell::new(ptr::null_mut()),
            host: Cell::new(None),
            protocol: Cell::new(Protocol::Resp2),
            end: Cell::new(End::None),
            panic: Cell::new(None),
            failure: Cell::new(None),
            seed,
            random: Cell::new(seed),
            cjson: Cell::new(cjson::Settings::default()),
            digits: Cell::new(Vec::new()),
            reply: UnsafeCell::new(Reply::Null),
            values: UnsafeCell::new(Vec::new()),
            message: UnsafeCell::new(Vec::new()),
            originals: Originals::default(),
            keys: Cell::new(ffi::LUA_NOREF),
            args: Cell::new(ffi::LUA_NOREF),
            base: Cell::new(ffi::LUA_NOREF),
        }
    }

    /// Counts bytes that one instruction moves: after many, the host is asked at the next one.
    fn charge(&self, bytes: usize) {
        let work = self.work.get().saturating_add(bytes);
        self.work.set(work);
        if work > WORK_BYTES_PER_QUESTION && !self.main.get().is_null() {
            // SAFETY: the main thread lives as long as the state; setting a hook writes three
            // fields of it, which is allowed at any time.
            unsafe { set_hook(self.main.get(), 1) }
        }
    }

    fn take_reply(&self) -> Reply {
        // SAFETY: no reference into the cell lives here: pushing is over when this is called.
        unsafe { std::mem::replace(&mut *self.reply.get(), Reply::Null) }
    }

    fn set_reply(&self, reply: Reply) {
        // SAFETY: as above: nothing is being pushed while a function computes.
        unsafe { *self.reply.get() = reply }
    }

    fn set_values(&self, values: Vec<Value>) {
        // SAFETY: as above.
        unsafe { *self.values.get() = values }
    }

    fn set_message(&self, message: Vec<u8>) {
        // SAFETY: as above.
        unsafe { *self.message.get() = message }
    }

    /// Frees what an error may have left.
    fn clear(&self) {
        self.set_reply(Reply::Null);
        self.set_values(Vec::new());
        self.set_message(Vec::new());
        self.failure.set(None);
    }

    /// Runs code that is not this file's. `None` if it panicked: the script must end.
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
    fn with_host<T>(&self, f: impl FnOnce(&mut dyn Host) -> T) -> Option<T> {
        let host = self.host.get()?;
        // SAFETY: set by `run` from a `&mut` that outlives the script; a host cannot reach the
        // interpreter, which is borrowed, so it is not in use twice.
        self.guard(|| f(unsafe { &mut *host }))
    }
}

/// An error that left the script: its line, and where it happened.
struct Failure {
    message: Vec<u8>,
    place: Option<(Vec<u8>, c_int)>,
}

impl Failure {
    fn line(self, sha: &Sha) -> Vec<u8> {
        let mut line = self.message;
        if let Some((source, number)) = self.place {
            line.extend_from_slice(format!(" script: {sha}, on ").as_bytes());
            line.extend_from_slice(&source);
            line.extend_from_slice(format!(":{number}.").as_bytes());
        }
        line
    }
}

/// One run, as the runner sees it.
struct Frame<'a> {
    chunk: Chunk,
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
}

const CHUNK_NAME: &CStr = c"@user_script";
const HANDLER: c_int = 1;
const RUNNER: c_int = 2;
/// Longer KEYS and ARGV are built afresh: clearing them would cost more.
const REUSED_LENGTH_MAX: usize = 32;
/// `unpack` beyond this is refused, as Lua's own stack limit does.
const UNPACK_MAX: i64 = 7_990;
/// A number as text: `-1.2345678901234567e-300` and a few to spare.
const NUMBER_BYTES_MAX: usize = 32;
/// Arguments of a command that need no allocation.
const ARGUMENTS_INLINE: usize = 16;
/// What freeing memory may take for itself: a closure, and a smaller table of strings.
const RESERVE_BYTES: usize = 1 << 20;
/// Bytes that may be moved between two questions to the host: a few milliseconds.
const WORK_BYTES_PER_QUESTION: usize = 8 << 20;
/// Smaller blocks are not counted: instructions are.
const WORK_BLOCK_BYTES: usize = 4 << 10;
/// What moving one item of a table counts as: a read and a write through Lua's interface.
const SHIFT_BYTES: usize = 64;
/// How deeply values given to libraries may nest.
const LIBRARY_NESTING_MAX: usize = 1_001;

const READONLY: &str = "Attempt to modify a readonly table";

/// Marks the metatable of a frozen table.
static FROZEN: u8 = 0;

// ---------------------------------------------------------------------------------------------
// Memory, and the switch

/// Lua's allocator: counts, and refuses to grow beyond the limit.
unsafe extern "C" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    const ALIGN: usize = 16;
    // SAFETY: Lua passes the user data given to `lua_newstate`, and a block that came from here
    // with the size it was asked for; sizes are below `isize::MAX` by the limit.
    unsafe {
        let context = &*context.cast::<Context>();
        let old = if block.is_null() { 0 } else { old };
        let used = context.memory_used.get() - old;
        let limit = context.limits.memory_bytes_max + context.reserve.get();
        if new > old && used.saturating_add(new) > limit {
            return ptr::null_mut();
        }
        let result = match (old, new) {
            (0, 0) => return ptr::null_mut(),
            (_, 0) => {
                dealloc(block.cast(), Layout::from_size_align_unchecked(old, ALIGN));
                ptr::null_mut()
            }
            (0, _) => alloc(Layout::from_size_align_unchecked(new, ALIGN)),
            _ => realloc(block.cast(), Layout::from_size_align_unchecked(old, ALIGN), new),
        };
        if new == 0 || !result.is_null() {
            context.memory_used.set(used + new);
        }
        if new > WORK_BLOCK_BYTES {
            context.charge(new);
        }
        result.cast()
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

unsafe fn set_hook(lua: *mut lua_State, instructions: u32) {
    let count = c_int::try_from(instructions.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: setting a hook neither allocates nor raises.
    unsafe {
        ffi::lua_sethook(lua, Some(hook), ffi::LUA_MASKCOUNT, count);
    }
}

/// Asks the host whether to go on. Coroutines inherit it from whoever creates them.
unsafe extern "C-unwind" fn hook(lua: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: plain; `with_host` lets no panic out.
    unsafe {
        let context = context(lua);
        if context.end.get() == End::None {
            context.work.set(0);
            if ffi::lua_gethookcount(lua) == 1 {
                set_hook(lua, context.limits.interrupt_instructions);
            }
            let answer = context.with_host(|host| host.interrupt());
            if answer == Some(Interrupt::Kill) {
                context.end.set(End::Killed);
            }
        }
        if context.end.get() != End::None {
            // From here on every instruction asks again, should anything swallow the error.
            set_hook(lua, 1);
            stop(lua);
        }
    }
}

/// Ends the script. No `pcall` of ours holds this error.
unsafe fn stop(lua: *mut lua_State) -> ! {
    // SAFETY: plain.
    unsafe {
        ffi::lua_pushnil(lua);
        ffi::lua_error(lua)
    }
}

/// For whatever may have caught an error: hands it on if the script must end. Plain.
unsafe fn check_end(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if context(lua).end.get() != End::None {
            set_hook(lua, 1);
            stop(lua);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Running

/// Pushes what every run needs at the base of the main stack.
unsafe fn push_base(lua: *mut lua_State) -> bool {
    unsafe extern "C-unwind" fn give(lua: *mut lua_State) -> c_int {
        // SAFETY: plain; called protected.
        unsafe {
            ffi::lua_pushcclosure(lua, handler, 0);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, -HANDLER);
            ffi::lua_pushcclosure(lua, runner, 0);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, -RUNNER);
        }
        0
    }
    // SAFETY: the closures are made in a protected call; then only read.
    unsafe {
        if ffi::lua_cpcall(lua, give, ptr::null_mut()) != ffi::LUA_OK {
            return false;
        }
        ffi::lua_settop(lua, 0);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, -HANDLER);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, -RUNNER);
        set_hook(lua, context(lua).limits.interrupt_instructions);
        context(lua).main.set(lua);
        true
    }
}

/// Sets KEYS and ARGV, runs the script, keeps its reply.
unsafe extern "C-unwind" fn runner(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the argument is the frame in `Machine::run`, which waits.
    unsafe {
        let context = context(lua);
        let frame = &*ffi::lua_touserdata(lua, 1).cast::<Frame<'_>>();
        fill(lua, &context.keys, c"KEYS", frame.keys);
        fill(lua, &context.args, c"ARGV", frame.args);
        ffi::lua_settop(lua, 0);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, frame.chunk.0);
        ffi::lua_call(lua, 0, 1);
        measure(lua, 1, context.limits.nesting_max);
        keep_reply(lua, context);
    }
    0
}

/// Quiet.
unsafe fn keep_reply(lua: *mut lua_State, context: &Context) {
    // SAFETY: `measure` has made room for reading.
    let value = unsafe { read(lua, 1, context.limits.nesting_max) };
    context.set_reply(convert::to_reply(value, context.protocol.get()));
}

/// Makes the table behind `anchor` hold exactly `items`. The last script may have done anything
/// to it: unless only numbered items are left in it, a new one takes its place. Plain.
unsafe fn fill(lua: *mut lua_State, anchor: &Cell<c_int>, name: &CStr, items: &[&[u8]]) {
    // SAFETY: plain; uses at most five slots.
    unsafe {
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, anchor.get());
        if !clear(lua, items.len()) {
            ffi::lua_settop(lua, -2);
            let room = items.len().max(REUSED_LENGTH_MAX / 4) as c_int;
            ffi::lua_createtable(lua, room, 0);
            ffi::lua_pushvalue(lua, -1);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, anchor.get());
            ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, context(lua).base.get());
            ffi::lua_pushvalue(lua, -2);
            ffi::lua_setfield(lua, -2, name.as_ptr());
            ffi::lua_settop(lua, -2);
        }
        for (i, item) in items.iter().enumerate() {
            push_bytes(lua, item);
            ffi::lua_rawseti_(lua, -2, (i + 1) as c_int);
        }
        ffi::lua_settop(lua, -2);
    }
}

/// Removes what is beyond `len` from the table on top; whether it can be used again. Plain.
unsafe fn clear(lua: *mut lua_State, len: usize) -> bool {
    // SAFETY: plain; assigning nil to a key during `lua_next` is allowed.
    unsafe {
        if len > REUSED_LENGTH_MAX || ffi::lua_getmetatable(lua, -1) != 0 {
            ffi::lua_settop(lua, if len > REUSED_LENGTH_MAX { -1 } else { -2 });
            return false;
        }
        let mut count = 0;
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, -2) != 0 {
            ffi::lua_settop(lua, -2);
            count += 1;
            if count > REUSED_LENGTH_MAX || ffi::lua_type(lua, -1) != ffi::LUA_TNUMBER {
                ffi::lua_settop(lua, -2);
                return false;
            }
            let key = ffi::lua_tonumber(lua, -1);
            if key < 1.0 || key > len as f64 || key.fract() != 0.0 {
                ffi::lua_pushvalue(lua, -1);
                ffi::lua_pushnil(lua);
                ffi::lua_rawset(lua, -4);
            }
        }
        true
    }
}

/// Called where an error is raised that nothing catches: notes what and where.
unsafe extern "C-unwind" fn handler(lua: *mut lua_State) -> c_int {
    // SAFETY: plain up to `note`.
    unsafe {
        let context = context(lua);
        ffi::lua_settop(lua, 1);
        if context.end.get() == End::None {
            match ffi::lua_type(lua, 1) {
                ffi::LUA_TTABLE => {
                    ffi::lua_pushlstring_(lua, c"err".as_ptr(), 3);
                    ffi::lua_rawget_(lua, 1);
                    if ffi::lua_isstring(lua, 2) == 0 {
                        push_bytes(lua, b"ERR unknown error");
                    }
                }
                ffi::LUA_TSTRING | ffi::LUA_TNUMBER => {
                    push_bytes(lua, b"ERR ");
                    ffi::lua_pushvalue(lua, 1);
                    ffi::lua_concat(lua, 2);
                }
                ffi::LUA_TNIL => push_bytes(lua, b"ERR nil"),
                ffi::LUA_TBOOLEAN if ffi::lua_toboolean(lua, 1) != 0 => {
                    push_bytes(lua, b"ERR true");
                }
                ffi::LUA_TBOOLEAN => push_bytes(lua, b"ERR false"),
                other => {
                    push_bytes(lua, b"ERR ");
                    ffi::lua_pushstring_(lua, ffi::lua_typename(lua, other));
                    ffi::lua_concat(lua, 2);
                }
            }
            ffi::lua_tolstring(lua, -1, ptr::null_mut());
        }
        note(lua, context);
        ffi::lua_settop(lua, 1);
    }
    1
}

/// Keeps the error on top of the stack and where it was raised. Quiet.
unsafe fn note(lua: *mut lua_State, context: &Context) {
    // SAFETY: reads the stack and debug information only; `source` lives as long as its function.
    unsafe {
        let message = match context.end.get() {
            End::None => bytes(lua, -1).to_vec(),
            _ => b"ERR Script killed by user with SCRIPT KILL...".to_vec(),
        };
        let mut found: lua_Debug = std::mem::zeroed();
        let mut at = |level| {
            ffi::lua_getstack(lua, level, &raw mut found) != 0
                && ffi::lua_getinfo(lua, c"Sl".as_ptr(), &raw mut found) != 0
        };
        let mut known = at(1);
        if known && CStr::from_ptr(found.what) == c"C" {
            known = {
                let mut at = |level| {
                    ffi::lua_getstack(lua, level, &raw mut found) != 0
                        && ffi::lua_getinfo(lua, c"Sl".as_ptr(), &raw mut found) != 0
                };
                at(2)
            };
        }
        let place =
            known.then(|| (CStr::from_ptr(found.source).to_bytes().to_vec(), found.currentline));
        context.failure.set(Some(Failure { message, place }));
    }
}

// ---------------------------------------------------------------------------------------------
// Values

/// The string at `index`; nothing if it is none. Quiet: a number is not converted.
unsafe fn bytes<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
    // SAFETY: a string's bytes stay where they are while it is on the stack, which the callers
    // see to.
    unsafe {
        if ffi::lua_type(lua, index) != ffi::LUA_TSTRING {
            return &[];
        }
        let mut len = 0;
        let start = ffi::lua_tolstring(lua, index, &raw mut len);
        slice::from_raw_parts(start.cast(), len)
    }
}

/// Plain.
unsafe fn push_bytes(lua: *mut lua_State, text: &[u8]) {
    // SAFETY: Lua copies `text`.
    unsafe { ffi::lua_pushlstring_(lua, text.as_ptr().cast(), text.len()) }
}

/// Sees that `read` can read the value at `index`: makes room on the stack, and raises an error
/// if there is too much. Plain.
unsafe fn measure(lua: *mut lua_State, index: c_int, nesting: usize) {
    unsafe fn visit(lua: *mut lua_State, nesting: usize, left: &mut usize) {
        // SAFETY: plain; the value is on top and stays there.
        unsafe {
            *left = left.saturating_sub(1);
            if *left == 0 {
                raise(lua, "too many values");
            }
            if ffi::lua_type(lua, -1) != ffi::LUA_TTABLE || nesting == 0 {
                return;
            }
            ffi::luaL_checkstack_(lua, 4, c"too many nested values".as_ptr());
            ffi::lua_pushnil(lua);
            while ffi::lua_next(lua, -2) != 0 {
                visit(lua, nesting - 1, left);
                ffi::lua_settop(lua, -2);
                visit(lua, nesting - 1, left);
            }
        }
    }
    // SAFETY: plain.
    unsafe {
        if ffi::lua_type(lua, index) == ffi::LUA_TTABLE {
            let mut left = context(lua).limits.values_max();
            ffi::lua_pushvalue(lua, index);
            visit(lua, nesting, &mut left);
            ffi::lua_settop(lua, -2);
        }
    }
}

/// Copies the value at `index`. Quiet, if `measure` has passed it with the same nesting.
unsafe fn read(lua: *mut lua_State, index: c_int, nesting: usize) -> Value {
    // SAFETY: `lua_next` is given keys of its own table only.
    unsafe {
        match ffi::lua_type(lua, index) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => Value::Nil,
            ffi::LUA_TBOOLEAN => Value::Boolean(ffi::lua_toboolean(lua, index) != 0),
            ffi::LUA_TNUMBER => Value::Number(ffi::lua_tonumber(lua, index)),
            ffi::LUA_TSTRING => Value::Bytes(Bytes::copy_from_slice(bytes(lua, index))),
            ffi::LUA_TTABLE if nesting == 0 => Value::TooDeep,
            ffi::LUA_TTABLE => {
                let table = if index < 0 { ffi::lua_gettop(lua) + 1 + index } else { index };
                let mut entries = Vec::new();
                ffi::lua_pushnil(lua);
                while ffi::lua_next(lua, table) != 0 {
                    let key = read(lua, -2, nesting - 1);
                    entries.push((key, read(lua, -1, nesting - 1)));
                    ffi::lua_settop(lua, -2);
                }
                Value::Table(entries)
            }
            ffi::LUA_TLIGHTUSERDATA if ffi::lua_touserdata(lua, index).is_null() => Value::Null,
            ffi::LUA_TFUNCTION => Value::Other("function"),
            ffi::LUA_TTHREAD => Value::Other("thread"),
            _ => Value::Other("userdata"),
        }
    }
}

/// Pushes a value that the context owns. Plain.
unsafe fn push(lua: *mut lua_State, value: &Value) {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_checkstack(lua, 4) == 0 {
            raise(lua, "reached lua stack limit");
        }
        match value {
            Value::Nil | Value::TooDeep | Value::Other(_) => ffi::lua_pushnil(lua),
            Value::Boolean(value) => ffi::lua_pushboolean(lua, c_int::from(*value)),
            Value::Number(number) => ffi::lua_pushnumber(lua, *number),
            Value::Bytes(text) => push_bytes(lua, text),
            Value::Null => ffi::lua_pushlightuserdata(lua, ptr::null_mut()),
            Value::Table(entries) => {
                let count = c_int::try_from(entries.len()).unwrap_or(c_int::MAX);
                let list = matches!(entries.first(), Some((Value::Number(_), _)));
                let (items, fields) = if list { (count, 0) } else { (0, count) };
                ffi::lua_createtable(lua, items, fields);
                for (key, value) in entries {
                    push(lua, key);
                    push(lua, value);
                    ffi::lua_rawset(lua, -3);
                }
            }
        }
    }
}

/// Raises an error that says where it happened. Plain.
unsafe fn raise(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        ffi::luaL_where(lua, 1);
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_error(lua)
    }
}

/// Raises an error that does not say where. Plain.
unsafe fn raise_bare(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        push_bytes(lua, text.as_bytes());
        ffi::lua_error(lua)
    }
}

/// Pushes `{err = 'ERR ' .. text}`. Plain.
unsafe fn push_error(lua: *mut lua_State, text: &str) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_createtable(lua, 0, 1);
        push_bytes(lua, b"ERR ");
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_setfield(lua, -2, c"err".as_ptr());
    }
}

unsafe fn raise_error(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        push_error(lua, text);
        ffi::lua_error(lua)
    }
}

// ---------------------------------------------------------------------------------------------
// redis.*

unsafe extern "C-unwind" fn redis_call(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if command(lua) {
            ffi::lua_error(lua);
        }
    }
    1
}

unsafe extern "C-unwind" fn redis_pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        command(lua);
    }
    1
}

/// Runs the command on the stack and pushes its reply; whether that is an error. Plain.
unsafe fn command(lua: *mut lua_State) -> bool {
    // SAFETY: plain; the reply and the values stay in the context while they are pushed.
    unsafe {
        let context = context(lua);
        let outcome = ask_host(lua, context);
        ffi::lua_settop(lua, 0);
        match outcome {
            Outcome::Scalar => {
                match &*context.reply.get() {
                    Reply::Integer(n) => ffi::lua_pushnumber(lua, *n as f64),
                    Reply::Bulk(text) => push_bytes(lua, text),
                    Reply::Simple(text) => {
                        ffi::lua_createtable(lua, 0, 1);
                        push_bytes(lua, text);
                        ffi::lua_setfield(lua, -2, c"ok".as_ptr());
                    }
                    _ if context.protocol.get() == Protocol::Resp3 => ffi::lua_pushnil(lua),
                    _ => ffi::lua_pushboolean(lua, 0),
                }
                context.set_reply(Reply::Null);
                false
            }
            Outcome::Value { failed } => {
                for value in &*context.values.get() {
                    push(lua, value);
                }
                context.set_values(Vec::new());
                failed
            }
            Outcome::Refused(text) => {
                push_error(lua, text);
                true
            }
            Outcome::Stop => stop(lua),
        }
    }
}

enum Outcome {
    /// The context's reply is one of the simple kinds.
    Scalar,
    /// The context's value is the reply.
    Value { failed: bool },
    /// There was nothing to ask the host.
    Refused(&'static str),
    /// The host panicked.
    Stop,
}

/// Quiet.
unsafe fn ask_host(lua: *mut lua_State, context: &Context) -> Outcome {
    // SAFETY: the strings stay on the stack until `command` drops them, after this returns.
    let count = unsafe { ffi::lua_gettop(lua) } as usize;
    if count == 0 {
        return Outcome::Refused("Please specify at least one argument for this redis lib call");
    }
    let mut digits = context.digits.take();
    digits.clear();
    let mut inline: [&[u8]; ARGUMENTS_INLINE] = [&[]; ARGUMENTS_INLINE];
    let mut spilled = Vec::new();
    let argv = if count <= ARGUMENTS_INLINE {
        &mut inline[..count]
    } else {
        spilled.resize(count, &[][..]);
        &mut spilled[..]
    };
    // SAFETY: as above; `digits` outlives `argv`'s use below.
    let complete = unsafe { arguments(lua, argv, &mut digits) };
    let reply = if complete { context.with_host(|host| host.call(argv)) } else { None };
    context.digits.set(digits);
    match reply {
        _ if !complete => {
            Outcome::Refused("Lua redis lib command arguments must be strings or integers")
        }
        None => Outcome::Stop,
        Some(reply @ (Reply::Integer(_) | Reply::Bulk(_) | Reply::Simple(_) | Reply::Null)) => {
            context.set_reply(reply);
            Outcome::Scalar
        }
        Some(reply) => {
            let failed = reply.is_error();
            context.set_values(vec![convert::to_lua(reply, context.protocol.get())]);
            Outcome::Value { failed }
        }
    }
}

/// Borrows the arguments from the stack; numbers are written to `digits`. Whether all are strings
/// or numbers. Quiet.
unsafe fn arguments(lua: *mut lua_State, argv: &mut [&[u8]], digits: &mut Vec<u8>) -> bool {
    let count = argv.len();
    for (i, slot) in argv.iter_mut().enumerate() {
        let index = (i + 1) as c_int;
        // SAFETY: the string stays on the stack; `digits` never moves: its room is for all.
        unsafe {
            match ffi::lua_type(lua, index) {
                ffi::LUA_TSTRING => *slot = bytes(lua, index),
                ffi::LUA_TNUMBER => {
                    if digits.is_empty() {
                        digits.reserve(count * NUMBER_BYTES_MAX);
                    }
                    let start = digits.len();
                    write_argument(digits, ffi::lua_tonumber(lua, index));
                    *slot = slice::from_raw_parts(digits.as_ptr().add(start), digits.len() - start);
                }
                _ => return false,
            }
        }
    }
    true
}

unsafe extern "C-unwind" fn redis_error_reply(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { single_field(lua, c"err", convert::error_reply) }
}

unsafe extern "C-unwind" fn redis_status_reply(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { single_field(lua, c"ok", Bytes::copy_from_slice) }
}

/// Plain.
unsafe fn single_field(lua: *mut lua_State, name: &CStr, f: fn(&[u8]) -> Bytes) -> c_int {
    // SAFETY: plain; the text is kept in the context while it is pushed.
    unsafe {
        if ffi::lua_gettop(lua) != 1 || ffi::lua_type(lua, 1) != ffi::LUA_TSTRING {
            push_error(lua, "wrong number or type of arguments");
            return 1;
        }
        let context = context(lua);
        context.set_values(vec![Value::Bytes(f(bytes(lua, 1)))]);
        ffi::lua_createtable(lua, 0, 1);
        for value in &*context.values.get() {
            push(lua, value);
        }
        ffi::lua_setfield(lua, -2, name.as_ptr());
    }
    1
}

unsafe extern "C-unwind" fn redis_sha1hex(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the digest is on the stack frame and has no destructor.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "wrong number of arguments");
        }
        ffi::lua_tolstring(lua, 1, ptr::null_mut());
        let sha = Sha::of(bytes(lua, 1));
        push_bytes(lua, sha.as_bytes());
    }
    1
}

unsafe extern "C-unwind" fn redis_log(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let count = ffi::lua_gettop(lua);
        if count < 2 {
            raise_error(lua, "redis.log() requires two arguments or more.");
        }
        if ffi::lua_isnumber(lua, 1) == 0 {
            raise_error(lua, "First argument must be a number (log level).");
        }
        let level = match ffi::lua_tonumber(lua, 1) as i64 {
            0 => LogLevel::Debug,
            1 => LogLevel::Verbose,
            2 => LogLevel::Notice,
            3 => LogLevel::Warning,
            _ => raise_error(lua, "Invalid debug level."),
        };
        for i in 2..=count {
            ffi::lua_tolstring(lua, i, ptr::null_mut());
        }
        if !log(lua, count, level) {
            stop(lua);
        }
    }
    0
}

/// Quiet. Whether to go on.
unsafe fn log(lua: *mut lua_State, count: c_int, level: LogLevel) -> bool {
    // SAFETY: the strings are on the stack; what is no string has no bytes.
    unsafe {
        let words: Vec<&[u8]> = (2..=count)
            .filter(|i| ffi::lua_type(lua, *i) == ffi::LUA_TSTRING)
            .map(|i| bytes(lua, i))
            .collect();
        let message = words.join(&b' ');
        context(lua).with_host(|host| host.log(level, &message)).is_some()
    }
}

unsafe extern "C-unwind" fn redis_setresp(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "redis.setresp() requires one argument.");
        }
        let protocol = match ffi::lua_tonumber(lua, 1) as i64 {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => raise_error(lua, "RESP version must be 2 or 3."),
        };
        let context = context(lua);
        context.protocol.set(protocol);
        if context.with_host(|host| host.set_protocol(protocol)).is_none() {
            stop(lua);
        }
    }
    0
}

unsafe extern "C-unwind" fn redis_replicate_commands(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { ffi::lua_pushboolean(lua, 1) }
    1
}

unsafe extern "C-unwind" fn redis_set_repl(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "redis.set_repl() requires two arguments.");
        }
        if !(0..4).contains(&(ffi::lua_tonumber(lua, 1) as i64)) {
            raise_error(
                lua,
                "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            );
        }
    }
    0
}

unsafe extern "C-unwind" fn redis_breakpoint(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { ffi::lua_pushboolean(lua, 0) }
    1
}

unsafe extern "C-unwind" fn redis_debug(_: *mut lua_State) -> c_int {
    0
}

/// Whether the caller may run a command: asked of the host as `COMMAND INFO`, for a script runs
/// with the caller's rights and a command it may not run fails when it is run.
unsafe extern "C-unwind" fn redis_acl_check_cmd(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let count = ffi::lua_gettop(lua);
        if count == 0 {
            raise_error(lua, "Please specify at least one argument for this redis lib call");
        }
        for i in 1..=count {
            if ffi::lua_isstring(lua, i) == 0 {
                raise_error(lua, "Lua redis lib command arguments must be strings or integers");
            }
        }
        ffi::lua_tolstring(lua, 1, ptr::null_mut());
        match command_exists(lua) {
            Some(true) => ffi::lua_pushboolean(lua, 1),
            Some(false) => raise_error(lua, "Invalid command passed to redis.acl_check_cmd()"),
            None => stop(lua),
        }
    }
    1
}

/// Quiet.
unsafe fn command_exists(lua: *mut lua_State) -> Option<bool> {
    // SAFETY: the name is on the stack.
    unsafe {
        let name = bytes(lua, 1);
        let reply = context(lua).with_host(|host| host.call(&[b"COMMAND", b"INFO", name]))?;
        Some(match reply {
            Reply::Array(found) => matches!(found.first(), Some(Reply::Array(_))),
            _ => false,
        })
    }
}

// ---------------------------------------------------------------------------------------------
// Lua's own, made safe

/// `pcall`, whose error is the message if it is one of Redis's error tables, and which does not
/// hold the end of a script.
unsafe extern "C-unwind" fn pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let count = ffi::lua_gettop(lua);
        if count == 0 {
            ffi::lua_pushboolean(lua, 0);
            push_bytes(lua, b"attempt to call a boolean value");
            return 2;
        }
        ffi::lua_pushboolean(lua, 1);
        ffi::lua_insert(lua, 1);
        if ffi::lua_pcall(lua, count - 1, ffi::LUA_MULTRET, 0) != ffi::LUA_OK {
            check_end(lua);
            if ffi::lua_type(lua, -1) == ffi::LUA_TTABLE {
                push_bytes(lua, b"err");
                ffi::lua_rawget_(lua, -2);
                if ffi::lua_isstring(lua, -1) != 0 {
                    ffi::lua_replace(lua, -2);
                } else {
                    ffi::lua_settop(lua, -2);
                }
            }
            ffi::lua_pushboolean(lua, 0);
            ffi::lua_replace(lua, 1);
        }
        ffi::lua_gettop(lua)
    }
}

unsafe extern "C-unwind" fn xpcall(lua: *mut lua_State) -> c_int {
    /// Calls the script's handler, unless the script must end: the hook sleeps in a handler.
    unsafe extern "C-unwind" fn handle(lua: *mut lua_State) -> c_int {
        // SAFETY: plain.
        unsafe {
            if context(lua).end.get() == End::None {
                ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
                ffi::lua_insert(lua, 1);
                ffi::lua_call(lua, 1, 1);
            }
        }
        1
    }
    // SAFETY: plain.
    unsafe {
        ffi::luaL_checkany(lua, 2);
        ffi::lua_settop(lua, 2);
        ffi::lua_pushcclosure(lua, handle, 1);
        ffi::lua_insert(lua, 1);
        let status = ffi::lua_pcall(lua, 0, ffi::LUA_MULTRET, 1);
        check_end(lua);
        ffi::lua_pushboolean(lua, c_int::from(status == ffi::LUA_OK));
        ffi::lua_replace(lua, 1);
        ffi::lua_gettop(lua)
    }
}

unsafe extern "C-unwind" fn coroutine_resume(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let results = original(lua, &context(lua).originals.resume);
        check_end(lua);
        results
    }
}

/// Goes on in Lua's own function, with the same arguments. Plain.
unsafe fn original(lua: *mut lua_State, function: &Cell<Option<lua_CFunction>>) -> c_int {
    // SAFETY: a C function with the stack it expects.
    unsafe {
        match function.get() {
            Some(function) => function(lua),
            None => raise(lua, "not available"),
        }
    }
}

unsafe extern "C-unwind" fn next(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        thaw(lua);
        original(lua, &context(lua).originals.next)
    }
}

/// Its upvalue is `next`.
unsafe extern "C-unwind" fn pairs(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(lua, 1);
        ffi::lua_pushnil(lua);
    }
    3
}

unsafe extern "C-unwind" fn rawget(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        thaw(lua);
        original(lua, &context(lua).originals.rawget)
    }
}

unsafe extern "C-unwind" fn rawset(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        refuse_frozen(lua);
        original(lua, &context(lua).originals.rawset)
    }
}

unsafe extern "C-unwind" fn setmetatable(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        refuse_frozen(lua);
        original(lua, &context(lua).originals.setmetatable)
    }
}

unsafe extern "C-unwind" fn table_insert(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        refuse_frozen(lua);
        if ffi::lua_gettop(lua) > 2 {
            charge_shift(lua);
        }
        original(lua, &context(lua).originals.insert)
    }
}

unsafe extern "C-unwind" fn table_remove(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_gettop(lua) > 1 {
            charge_shift(lua);
        }
        original(lua, &context(lua).originals.remove)
    }
}

/// Counts the moving of a table's items, which is one instruction for Lua's hook. Plain.
unsafe fn charge_shift(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_type(lua, 1) == ffi::LUA_TTABLE {
            let context = context(lua);
            context.charge(ffi::lua_objlen(lua, 1).saturating_mul(SHIFT_BYTES));
        }
    }
}

unsafe extern "C-unwind" fn unpack(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        let first = ffi::luaL_optinteger(lua, 2, 1);
        let last = match ffi::lua_type(lua, 3) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => ffi::lua_objlen(lua, 1) as i64,
            _ => ffi::luaL_checkinteger(lua, 3),
        };
        if first > last {
            return 0;
        }
        let count = last.saturating_sub(first).saturating_add(1);
        let in_range = i64::from(c_int::MIN) <= first && last <= i64::from(c_int::MAX);
        if !in_range || count > UNPACK_MAX || ffi::lua_checkstack(lua, count as c_int) == 0 {
            raise(lua, "too many results to unpack");
        }
        for i in first..=last {
            ffi::lua_rawgeti_(lua, 1, i as c_int);
        }
        count as c_int
    }
}

unsafe extern "C-unwind" fn math_random(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let context = context(lua);
        let (number, after) = context.random.get().next();
        context.random.set(after);
        let result = match ffi::lua_gettop(lua) {
            0 => number,
            1 => {
                let high = ffi::luaL_checkinteger(lua, 1) as i32;
                if high < 1 {
                    ffi::luaL_argerror(lua, 1, c"interval is empty".as_ptr());
                }
                (number * f64::from(high)).floor() + 1.0
            }
            2 => {
                let low = ffi::luaL_checkinteger(lua, 1) as i32;
                let high = ffi::luaL_checkinteger(lua, 2) as i32;
                if low > high {
                    ffi::luaL_argerror(lua, 2, c"interval is empty".as_ptr());
                }
                (number * (f64::from(high) - f64::from(low) + 1.0)).floor() + f64::from(low)
            }
            _ => raise(lua, "wrong number of arguments"),
        };
        ffi::lua_pushnumber(lua, result);
    }
    1
}

unsafe extern "C-unwind" fn math_randomseed(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        let seed = ffi::luaL_checkinteger(lua, 1);
        context(lua).random.set(Random::new(seed as u32));
    }
    0
}

unsafe extern "C-unwind" fn loadstring(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the text is on the stack.
    unsafe {
        let text = ffi::luaL_checklstring(lua, 1, ptr::null_mut());
        let name = ffi::luaL_optlstring(lua, 2, text, ptr::null_mut());
        compiled(lua, 1, CStr::from_ptr(name))
    }
}

/// `load`: the pieces first, then the parser, which nothing may interrupt.
unsafe extern "C-unwind" fn load(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the table, the text and the name are on the stack.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TFUNCTION);
        let name = ffi::luaL_optlstring(lua, 2, c"=(load)".as_ptr(), ptr::null_mut());
        ffi::lua_settop(lua, 2);
        push_bytes(lua, b"");
        loop {
            ffi::lua_pushvalue(lua, 1);
            let status = ffi::lua_pcall(lua, 0, 1, 0);
            check_end(lua);
            if status != ffi::LUA_OK {
                ffi::lua_pushnil(lua);
                ffi::lua_insert(lua, -2);
                return 2;
            }
            match ffi::lua_type(lua, -1) {
                ffi::LUA_TNIL => break,
                ffi::LUA_TSTRING if bytes(lua, -1).is_empty() => break,
                ffi::LUA_TSTRING | ffi::LUA_TNUMBER => ffi::lua_concat(lua, 2),
                _ => {
                    ffi::lua_pushnil(lua);
                    push_bytes(lua, b"reader function must return a string");
                    return 2;
                }
            }
        }
        compiled(lua, 3, CStr::from_ptr(name))
    }
}

/// Compiles the string at `index`: a function, or nil and a message. Plain.
unsafe fn compiled(lua: *mut lua_State, index: c_int, name: &CStr) -> c_int {
    // SAFETY: plain; the text stays on the stack.
    unsafe {
        let text = bytes(lua, index);
        if text.len() > context(lua).limits.script_bytes_max {
            raise(lua, "chunk too long");
        }
        if compile(lua, text, name) == ffi::LUA_OK {
            return 1;
        }
        ffi::lua_pushnil(lua);
        ffi::lua_insert(lua, -2);
        2
    }
}

/// Compiles `text`, never as bytecode: only a first byte of ESC makes Lua take it for that, and a
/// blank before it makes it a plain error. The collector rests meanwhile, for the parser holds
/// strings it does not anchor. Plain; leaves a function or a message.
unsafe fn compile(lua: *mut lua_State, text: &[u8], name: &CStr) -> c_int {
    struct Pieces<'a> {
        rest: [&'a [u8]; 2],
    }
    unsafe extern "C-unwind" fn read(
        _: *mut lua_State,
        pieces: *mut c_void,
        len: *mut usize,
    ) -> *const c_char {
        // SAFETY: `pieces` is the structure below, which waits.
        unsafe {
            let pieces = &mut *pieces.cast::<Pieces<'_>>();
            let [first, second] = pieces.rest;
            let piece = if first.is_empty() { second } else { first };
            pieces.rest = if first.is_empty() { [&[], &[]] } else { [&[], second] };
            *len = piece.len();
            if piece.is_empty() { ptr::null() } else { piece.as_ptr().cast() }
        }
    }
    let blank: &[u8] = if text.first() == Some(&0x1B) { b" " } else { b"" };
    let mut pieces = Pieces { rest: [blank, text] };
    // SAFETY: plain; `lua_load` is protected inside.
    unsafe {
        ffi::lua_gc(lua, ffi::LUA_GCSTOP, 0);
        let data = ptr::from_mut(&mut pieces).cast();
        let status = ffi::lua_load(lua, read, data, name.as_ptr());
        ffi::lua_gc(lua, ffi::LUA_GCRESTART, 0);
        status
    }
}

// ---------------------------------------------------------------------------------------------
// Patterns

unsafe extern "C-unwind" fn string_find(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { find(lua, true) }
}

unsafe extern "C-unwind" fn string_match(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { find(lua, false) }
}

/// Plain.
unsafe fn find(lua: *mut lua_State, places: bool) -> c_int {
    // SAFETY: plain; both strings stay on the stack.
    unsafe {
        let (subject, pattern) = (argument(lua, 1), argument(lua, 2));
        let from = ffi::luaL_optinteger(lua, 3, 1);
        let from = if from < 0 { (from + subject.len() as i64 + 1).max(1) } else { from.max(1) };
        let from = (from as usize - 1).min(subject.len());
        if places && (ffi::lua_toboolean(lua, 4) != 0 || strings::is_plain(pattern)) {
            let Some(start) = strings::find_plain(subject, pattern, from) else {
                ffi::lua_pushnil(lua);
                return 1;
            };
            ffi::lua_pushinteger(lua, (start + 1) as i64);
            ffi::lua_pushinteger(lua, (start + pattern.len()) as i64);
            return 2;
        }
        let (once, pattern) = strings::parse(pattern);
        let Some(found) = search(lua, subject, pattern, from, once) else {
            ffi::lua_pushnil(lua);
            return 1;
        };
        if !places {
            return push_captures(lua, subject, &found, true);
        }
        ffi::lua_pushinteger(lua, (found.start + 1) as i64);
        ffi::lua_pushinteger(lua, found.end as i64);
        2 + push_captures(lua, subject, &found, false)
    }
}

unsafe extern "C-unwind" fn string_gmatch(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        argument(lua, 1);
        argument(lua, 2);
        ffi::lua_settop(lua, 2);
        ffi::lua_pushnumber(lua, 0.0);
        ffi::lua_pushcclosure(lua, gmatch_next, 3);
    }
    1
}

/// Its upvalues are the subject, the pattern, and where to go on.
unsafe extern "C-unwind" fn gmatch_next(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; upvalues 1 and 2 are strings for as long as the function lives.
    unsafe {
        let subject = bytes(lua, ffi::lua_upvalueindex(1));
        let pattern = strings::until_zero(bytes(lua, ffi::lua_upvalueindex(2)));
        let from = ffi::lua_tonumber(lua, ffi::lua_upvalueindex(3)) as usize;
        if from > subject.len() {
            return 0;
        }
        let Some(found) = search(lua, subject, pattern, from, false) else { return 0 };
        let next = found.end + usize::from(found.end == found.start);
        ffi::lua_pushnumber(lua, next as f64);
        ffi::lua_replace(lua, ffi::lua_upvalueindex(3));
        push_captures(lua, subject, &found, true)
    }
}

unsafe extern "C-unwind" fn string_gsub(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the strings stay on the stack, the output is Lua's.
    unsafe {
        let (subject, pattern) = (argument(lua, 1), argument(lua, 2));
        let kind = ffi::lua_type(lua, 3);
        if !matches!(
            kind,
            ffi::LUA_TNUMBER | ffi::LUA_TSTRING | ffi::LUA_TFUNCTION | ffi::LUA_TTABLE
        ) {
            ffi::luaL_argerror(lua, 3, c"string/function/table expected".as_ptr());
        }
        if kind == ffi::LUA_TNUMBER {
            argument(lua, 3);
        }
        let most = ffi::luaL_optinteger(lua, 4, subject.len() as i64 + 1);
        let (once, pattern) = strings::parse(pattern);
        ffi::lua_settop(lua, 3);
        let mut output = Output::new(lua, subject.len() + 32);
        let (mut at, mut count) = (0, 0);
        while count < most && at <= subject.len() {
            let Some(found) = search(lua, subject, pattern, at, once) else { break };
            count += 1;
            output.add(lua, &subject[at..found.start]);
            replace(lua, subject, &found, kind, &mut output);
            at = found.end;
            if found.end == found.start {
                let Some(byte) = subject.get(at..=at) else {
                    at += 1;
                    break;
                };
                output.add(lua, byte);
                at += 1;
            }
            if once {
                break;
            }
        }
        output.add(lua, subject.get(at..).unwrap_or_default());
        output.push(lua);
        ffi::lua_pushnumber(lua, count as f64);
    }
    2
}

/// Adds what takes the place of a match: by the third argument. Plain.
unsafe fn replace(
    lua: *mut lua_State,
    subject: &[u8],
    found: &Match,
    kind: c_int,
    output: &mut Output,
) {
    // SAFETY: plain.
    unsafe {
        let whole = &subject[found.start..found.end];
        match kind {
            ffi::LUA_TFUNCTION => {
                ffi::lua_pushvalue(lua, 3);
                let count = push_captures(lua, subject, found, true);
                ffi::lua_call(lua, count, 1);
            }
            ffi::LUA_TTABLE => {
                push_capture(lua, subject, found, 0);
                ffi::lua_gettable_(lua, 3);
            }
            _ => return expand(lua, subject, found, output),
        }
        if ffi::lua_toboolean(lua, -1) == 0 {
            output.add(lua, whole);
        } else if ffi::lua_isstring(lua, -1) == 0 {
            ffi::luaL_where(lua, 1);
            push_bytes(lua, b"invalid replacement value (a ");
            ffi::lua_pushstring_(lua, ffi::luaL_typename(lua, -3));
            push_bytes(lua, b")");
            ffi::lua_concat(lua, 4);
            ffi::lua_error(lua);
        } else {
            ffi::lua_tolstring(lua, -1, ptr::null_mut());
            output.add(lua, bytes(lua, -1));
        }
        ffi::lua_settop(lua, -2);
    }
}

/// Adds the replacement string with its `%1` filled in. Plain.
unsafe fn expand(lua: *mut lua_State, subject: &[u8], found: &Match, output: &mut Output) {
    // SAFETY: plain; the replacement stays at 3.
    unsafe {
        let mut rest = bytes(lua, 3);
        while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
            output.add(lua, &rest[..at]);
            // A last `%` stands before the zero that ends a C string.
            let what = rest.get(at + 1).copied().unwrap_or(0);
            match what {
                b'0' => output.add(lua, &subject[found.start..found.end]),
                b'1'..=b'9' => {
                    push_capture(lua, subject, found, usize::from(what - b'1'));
                    ffi::lua_tolstring(lua, -1, ptr::null_mut());
                    output.add(lua, bytes(lua, -1));
                    ffi::lua_settop(lua, -2);
                }
                other => output.add(lua, &[other]),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        output.add(lua, rest);
    }
}

/// A string argument; a number becomes one, in place. Plain.
unsafe fn argument<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
    // SAFETY: plain; the string stays on the stack.
    unsafe {
        ffi::luaL_checklstring(lua, index, ptr::null_mut());
        bytes(lua, index)
    }
}

/// Plain: what it holds has no destructors.
unsafe fn search(
    lua: *mut lua_State,
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    once: bool,
) -> Option<Match> {
    // SAFETY: plain.
    unsafe {
        let context = context(lua);
        let found = context.guard(|| {
            let mut ask = || {
                if context.with_host(|host| host.interrupt()) == Some(Interrupt::Kill) {
                    context.end.set(End::Killed);
                }
                context.end.get() == End::None
            };
            let steps = context.limits.match_steps_max;
            strings::search(subject, pattern, from, once, &mut Budget { steps, ask: &mut ask })
        });
        check_end(lua);
        match found {
            Some(Ok(found)) => found,
            Some(Err(why)) => raise(lua, why),
            None => stop(lua),
        }
    }
}

/// Pushes all captures, or the whole match if there are none and `whole` says so. Plain.
unsafe fn push_captures(lua: *mut lua_State, subject: &[u8], found: &Match, whole: bool) -> c_int {
    // SAFETY: plain.
    unsafe {
        let count = if found.count == 0 && whole { 1 } else { found.count };
        ffi::luaL_checkstack_(lua, count as c_int, c"too many captures".as_ptr());
        for i in 0..count {
            push_capture(lua, subject, found, i);
        }
        count as c_int
    }
}

/// Plain.
unsafe fn push_capture(lua: *mut lua_State, subject: &[u8], found: &Match, index: usize) {
    // SAFETY: plain.
    unsafe {
        match found.captures[..found.count].get(index) {
            Some(Capture::Range(start, end)) => push_bytes(lua, &subject[*start..*end]),
            Some(Capture::Position(at)) => ffi::lua_pushnumber(lua, (at + 1) as f64),
            Some(Capture::Open(_)) => raise(lua, "unfinished capture"),
            None if index == 0 => push_bytes(lua, &subject[found.start..found.end]),
            None => raise(lua, "invalid capture index"),
        }
    }
}

/// A string that grows, in memory of Lua's: it counts against the limit and is freed by the
/// collector whatever error ends its maker. Sits at one place of the stack.
struct Output {
    index: c_int,
    start: *mut u8,
    len: usize,
    room: usize,
}

impl Output {
    /// Takes the next place on the stack. Plain.
    unsafe fn new(lua: *mut lua_State, room: usize) -> Output {
        // SAFETY: plain; the block is on the stack for as long as the output is used.
        unsafe {
            let start = ffi::lua_newuserdata(lua, room).cast();
            Output { index: ffi::lua_gettop(lua), start, len: 0, room }
        }
    }

    /// Plain.
    unsafe fn add(&mut self, lua: *mut lua_State, text: &[u8]) {
        // SAFETY: the block has `room` bytes; `text` is not in it.
        unsafe {
            if self.len + text.len() > self.room {
                let room = (self.len + text.len()) * 2;
                let block: *mut u8 = ffi::lua_newuserdata(lua, room).cast();
                ptr::copy_nonoverlapping(self.start, block, self.len);
                ffi::lua_replace(lua, self.index);
                (self.start, self.room) = (block, room);
            }
            ptr::copy_nonoverlapping(text.as_ptr(), self.start.add(self.len), text.len());
            self.len += text.len();
        }
    }

    /// Pushes the string. Plain.
    unsafe fn push(&self, lua: *mut lua_State) {
        // SAFETY: the first `len` bytes have been written.
        unsafe { push_bytes(lua, slice::from_raw_parts(self.start, self.len)) }
    }
}

// ---------------------------------------------------------------------------------------------
// Libraries in Rust

/// A function of a library in Rust: its upvalue is its `Function`.
unsafe extern "C-unwind" fn library_function(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; results and message stay in the context while they are pushed.
    unsafe {
        let context = context(lua);
        let function = &*ffi::lua_touserdata(lua, ffi::lua_upvalueindex(1)).cast::<Function>();
        let count = ffi::lua_gettop(lua);
        ffi::luaL_checkstack_(lua, 8, c"too many arguments".as_ptr());
        for i in 1..=count {
            measure(lua, i, LIBRARY_NESTING_MAX);
        }
        match compute(lua, context, function) {
            Computed::Results(count) => {
                ffi::lua_settop(lua, 0);
                for value in &*context.values.get() {
                    push(lua, value);
                }
                context.set_values(Vec::new());
                count
            }
            Computed::Argument(at) => {
                let message = &*context.message.get();
                ffi::luaL_argerror(lua, at, message.as_ptr().cast())
            }
            Computed::Error => {
                ffi::luaL_where(lua, 1);
                push_bytes(lua, &*context.message.get());
                ffi::lua_concat(lua, 2);
                ffi::lua_error(lua)
            }
            Computed::Stop => stop(lua),
        }
    }
}

/// `cjson.new`: the settings are the script's own as they are, so the library will do.
unsafe extern "C-unwind" fn cjson_new(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, context(lua).base.get());
        get_field(lua, -1, "cjson");
    }
    1
}

enum Computed {
    Results(c_int),
    Argument(c_int),
    Error,
    Stop,
}

/// Quiet.
unsafe fn compute(lua: *mut lua_State, context: &Context, function: &Function) -> Computed {
    // SAFETY: every argument has been measured.
    let args = unsafe {
        let count = ffi::lua_gettop(lua);
        (1..=count).map(|i| read(lua, i, LIBRARY_NESTING_MAX)).collect()
    };
    let bytes_max = context.limits.memory_bytes_max;
    let mut call = Call { args, results: Vec::new(), bytes_max, cjson: context.cjson.get() };
    let outcome = context.guard(|| (function.run)(&mut call));
    context.cjson.set(call.cjson);
    match outcome {
        None => Computed::Stop,
        Some(Ok(())) => {
            let count = call.results.len() as c_int;
            context.set_values(call.results);
            Computed::Results(count)
        }
        Some(Err(Fault::Argument(at, text))) => {
            let mut message = text.into_bytes();
            message.push(0);
            context.set_message(message);
            Computed::Argument(at as c_int)
        }
        Some(Err(Fault::Error(message))) => {
            context.set_message(message);
            Computed::Error
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The sandbox

/// A function that takes the place of Lua's own, or is new.
const REPLACED: &[(&str, &str, lua_CFunction)] = &[
    ("", "load", load),
    ("", "loadstring", loadstring),
    ("", "next", next),
    ("", "pcall", pcall),
    ("", "rawget", rawget),
    ("", "rawset", rawset),
    ("", "setmetatable", setmetatable),
    ("", "unpack", unpack),
    ("", "xpcall", xpcall),
    ("coroutine", "resume", coroutine_resume),
    ("math", "random", math_random),
    ("math", "randomseed", math_randomseed),
    ("redis", "acl_check_cmd", redis_acl_check_cmd),
    ("redis", "breakpoint", redis_breakpoint),
    ("redis", "call", redis_call),
    ("redis", "debug", redis_debug),
    ("redis", "error_reply", redis_error_reply),
    ("redis", "log", redis_log),
    ("redis", "pcall", redis_pcall),
    ("redis", "replicate_commands", redis_replicate_commands),
    ("redis", "set_repl", redis_set_repl),
    ("redis", "setresp", redis_setresp),
    ("redis", "sha1hex", redis_sha1hex),
    ("redis", "status_reply", redis_status_reply),
    ("string", "find", string_find),
    ("string", "gfind", string_gmatch),
    ("string", "gmatch", string_gmatch),
    ("string", "gsub", string_gsub),
    ("string", "match", string_match),
    ("table", "insert", table_insert),
    ("table", "remove", table_remove),
];

/// Opens Lua's libraries and builds from them the world a script sees. Plain.
unsafe fn install(lua: *mut lua_State, version: &str) {
    // SAFETY: plain; called once, protected.
    unsafe {
        let context = context(lua);
        for open in [
            ffi::luaopen_base,
            ffi::luaopen_math,
            ffi::luaopen_os,
            ffi::luaopen_string,
            ffi::luaopen_table,
        ] {
            ffi::lua_settop(lua, 0);
            ffi::lua_pushcclosure(lua, open, 0);
            ffi::lua_call(lua, 0, 0);
        }
        keep_originals(lua, &context.originals);
        ffi::lua_settop(lua, 0);
        ffi::lua_createtable(lua, 0, 64);
        let base = 1;
        for name in sandbox::BASE {
            push_allowed(lua, "", name);
            set_field(lua, base, name);
        }
        for (library, names) in sandbox::LIBRARIES {
            ffi::lua_createtable(lua, 0, names.len() as c_int);
            for name in *names {
                push_allowed(lua, library, name);
                set_field(lua, 2, name);
            }
            seal(lua, base, library);
        }
        ffi::lua_createtable(lua, 0, 32);
        for name in sandbox::REDIS {
            push_allowed(lua, "redis", name);
            set_field(lua, 2, name);
        }
        install_redis_constants(lua, context, version);
        seal(lua, base, "redis");
        for library in libs::LIBRARIES {
            install_library(lua, library);
            seal(lua, base, library.name);
        }
        install_globals(lua, context);
    }
}

/// Plain: the constants are kept in the context while they are pushed.
unsafe fn install_redis_constants(lua: *mut lua_State, context: &Context, version: &str) {
    // SAFETY: plain.
    unsafe {
        let mut names = [""; 16];
        let mut values = Vec::new();
        for (slot, (name, value)) in names.iter_mut().zip(sandbox::redis_constants(version)) {
            *slot = name;
            values.push(value);
        }
        context.set_values(values);
        for (name, value) in names.iter().zip(&*context.values.get()) {
            push(lua, value);
            set_field(lua, 2, name);
        }
    }
}

/// Leaves a table with a library's functions and constants. Plain.
unsafe fn install_library(lua: *mut lua_State, library: &'static libs::Library) {
    // SAFETY: plain; the upvalue is a static.
    unsafe {
        ffi::lua_createtable(lua, 0, library.functions.len() as c_int);
        for function in library.functions {
            ffi::lua_pushlightuserdata(lua, ptr::from_ref(function).cast_mut().cast());
            ffi::lua_pushcclosure(lua, library_function, 1);
            set_field(lua, -2, function.name);
        }
        if library.name == "cjson" {
            ffi::lua_pushcclosure(lua, cjson_new, 0);
            set_field(lua, -2, "new");
        }
        for (name, constant) in library.constants {
            match constant {
                Constant::Text(text) => push_bytes(lua, text.as_bytes()),
                Constant::Null => ffi::lua_pushlightuserdata(lua, ptr::null_mut()),
            }
            set_field(lua, -2, name);
        }
    }
}

/// With the base table at 1: makes it the globals, frozen, with Redis's error for what is not
/// there; freezes the metatable of strings; anchors KEYS and ARGV. Plain.
unsafe fn install_globals(lua: *mut lua_State, context: &Context) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_settop(lua, 1);
        push_bytes(lua, b"Lua 5.1");
        set_field(lua, 1, "_VERSION");
        for (anchor, name) in [(&context.keys, "KEYS"), (&context.args, "ARGV")] {
            ffi::lua_createtable(lua, (REUSED_LENGTH_MAX / 4) as c_int, 0);
            ffi::lua_pushvalue(lua, -1);
            anchor.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
            set_field(lua, 1, name);
        }
        // Strings find the frozen library through a frozen metatable.
        push_bytes(lua, b"");
        ffi::lua_getmetatable(lua, -1);
        get_field(lua, 1, "string");
        ffi::lua_pushvalue(lua, -1);
        set_field(lua, 3, "__index");
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_insert(lua, -2);
        set_field(lua, -2, "__index");
        freeze(lua);
        set_field(lua, 3, "__metatable");
        ffi::lua_settop(lua, 1);
        // What is not in the base table is an error.
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_pushcclosure(lua, missing_global, 0);
        set_field(lua, 2, "__index");
        ffi::lua_setmetatable(lua, 1);
        ffi::lua_pushvalue(lua, 1);
        context.base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        ffi::lua_pushvalue(lua, 1);
        freeze(lua);
        ffi::lua_pushvalue(lua, -1);
        set_field(lua, 1, "_G");
        ffi::lua_replace(lua, ffi::LUA_GLOBALSINDEX);
        // The tables the libraries came in are reachable from nowhere else.
        ffi::lua_pushnil(lua);
        ffi::lua_setfield(lua, ffi::LUA_REGISTRYINDEX, c"_LOADED".as_ptr());
    }
}

unsafe extern "C-unwind" fn missing_global(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if ffi::lua_isstring(lua, 2) == 0 {
            raise(lua, "Second argument to luaProtectedTableError must be a string or number");
        }
        ffi::luaL_where(lua, 1);
        push_bytes(lua, b"Script attempted to access nonexistent global variable '");
        ffi::lua_pushvalue(lua, 2);
        push_bytes(lua, b"'");
        ffi::lua_concat(lua, 4);
        ffi::lua_error(lua)
    }
}

unsafe extern "C-unwind" fn refuse_write(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { raise(lua, READONLY) }
}

/// Freezes the table on top and makes it the base table's field `name`. Plain.
unsafe fn seal(lua: *mut lua_State, base: c_int, name: &str) {
    // SAFETY: plain.
    unsafe {
        freeze(lua);
        set_field(lua, base, name);
    }
}

/// Replaces the table on top by an empty one that reads from it and refuses writes. Plain.
unsafe fn freeze(lua: *mut lua_State) {
    // SAFETY: plain; uses four slots.
    unsafe {
        ffi::luaL_checkstack_(lua, 4, c"no room".as_ptr());
        ffi::lua_createtable(lua, 0, 0);
        ffi::lua_createtable(lua, 2, 3);
        ffi::lua_pushlightuserdata(lua, ptr::from_ref(&FROZEN).cast_mut().cast());
        ffi::lua_rawseti_(lua, -2, 1);
        ffi::lua_pushvalue(lua, -3);
        ffi::lua_rawseti_(lua, -2, 2);
        ffi::lua_pushvalue(lua, -3);
        set_field(lua, -2, "__index");
        ffi::lua_pushcclosure(lua, refuse_write, 0);
        set_field(lua, -2, "__newindex");
        ffi::lua_pushboolean(lua, 0);
        set_field(lua, -2, "__metatable");
        ffi::lua_setmetatable(lua, -2);
        ffi::lua_replace(lua, -2);
    }
}

/// If the first argument is a frozen table, puts what it reads from in its place. Plain.
unsafe fn thaw(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if push_frozen(lua) {
            ffi::lua_replace(lua, 1);
        }
    }
}

/// Plain.
unsafe fn refuse_frozen(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if push_frozen(lua) {
            raise_bare(lua, READONLY);
        }
    }
}

/// Pushes what the first argument reads from, if it is a frozen table. Quiet.
unsafe fn push_frozen(lua: *mut lua_State) -> bool {
    // SAFETY: raw reads of a metatable only.
    unsafe {
        if ffi::lua_type(lua, 1) != ffi::LUA_TTABLE || ffi::lua_getmetatable(lua, 1) == 0 {
            return false;
        }
        ffi::lua_rawgeti_(lua, -1, 1);
        let frozen = ptr::from_ref(&FROZEN).cast() == ffi::lua_touserdata(lua, -1).cast_const();
        ffi::lua_settop(lua, -2);
        if !frozen {
            ffi::lua_settop(lua, -2);
            return false;
        }
        ffi::lua_rawgeti_(lua, -1, 2);
        ffi::lua_replace(lua, -2);
        true
    }
}

/// Pushes one function or constant: ours if we have one, else Lua's. Plain.
unsafe fn push_allowed(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: plain.
    unsafe {
        if (library, name) == ("", "pairs") {
            ffi::lua_pushcclosure(lua, next, 0);
            ffi::lua_pushcclosure(lua, pairs, 1);
            return;
        }
        let ours = REPLACED.iter().find(|row| (row.0, row.1) == (library, name));
        match ours {
            Some(row) => ffi::lua_pushcclosure(lua, row.2, 0),
            None => push_original(lua, library, name),
        }
    }
}

/// Pushes what Lua's libraries hold. Plain.
unsafe fn push_original(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_pushvalue(lua, ffi::LUA_GLOBALSINDEX);
        if !library.is_empty() {
            get_field(lua, -1, library);
            ffi::lua_replace(lua, -2);
        }
        get_field(lua, -1, name);
        ffi::lua_replace(lua, -2);
    }
}

unsafe fn keep_originals(lua: *mut lua_State, originals: &Originals) {
    // SAFETY: plain.
    unsafe {
        for (library, name, slot) in [
            ("", "next", &originals.next),
            ("", "rawget", &originals.rawget),
            ("", "rawset", &originals.rawset),
            ("", "setmetatable", &originals.setmetatable),
            ("coroutine", "resume", &originals.resume),
            ("table", "insert", &originals.insert),
            ("table", "remove", &originals.remove),
        ] {
            push_original(lua, library, name);
            slot.set(ffi::lua_tocfunction(lua, -1));
            ffi::lua_settop(lua, -2);
        }
    }
}

/// `table[name]`, raw. Plain.
unsafe fn get_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: plain; one more slot is on the stack while `table` counts from the top.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_rawget_(lua, if table < 0 { table - 1 } else { table });
    }
}

/// `table[name] = value on top`, raw; pops it. Plain.
unsafe fn set_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: plain; as above.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_insert(lua, -2);
        ffi::lua_rawset(lua, if table < 0 { table - 1 } else { table });
    }
}
