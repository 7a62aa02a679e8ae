//! Runs a script or function: takes keys and arguments, returns the reply or the error line.
//!
//! Invariant: after every run, however it ended, the stack, the hook and the bridge state are as
//! the next script expects them.

use std::ffi::{CStr, c_int};
use std::fmt::Display;
use std::panic::resume_unwind;
use std::ptr;

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_Debug, lua_State};

use super::bounds::{check_end, set_hook};
use super::install::use_base;
use super::key_tables::{
    Matches, ScriptParameters, Tables, empty_tables, fill_globals, push_filled, push_list,
};
use super::values::{bytes, measure, push_bytes, read};
use super::{
    BridgeState, Chunk, Compiled, HostPointer, Machine, ParameterTables, Registered, ScriptEnd,
    StateKind, bridge,
};
use crate::libs::cjson;
use crate::{Host, convert};

/// The stack indexes of the functions that every run needs. The chunk itself is called from outside
/// Lua, with nothing below it: it may nest as many calls as in Redis.
const HANDLER: c_int = 1;
const PREPARE: c_int = 2;
const KEEP: c_int = 3;

impl Machine {
    /// Runs a compiled script. `name` is its name in error messages.
    pub(crate) fn run(
        &mut self,
        compiled: &mut Compiled,
        name: &dyn Display,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let Compiled { chunk, parameters, .. } = compiled;
        self.poll_unless(parameters.as_ref().is_some_and(|parameters| parameters.ends_soon));
        let job = match parameters {
            Some(parameters) => {
                Job::WithParameters { matches: parameters.tables.compare(keys, args), parameters }
            }
            None => Job::Script,
        };
        // Set until the tables are filled, which may fail.
        self.bridge().has_inserted.set(true);
        let reply = self.answer(&Frame { job, chunk: *chunk, keys, args }, name, host);
        if let Some(parameters) = parameters {
            if self.bridge().has_inserted.get() {
                self.empty(&mut parameters.tables);
            } else {
                parameters.tables.remember(keys, args);
            }
        }
        reply
    }

    /// Empties tables to which a script may have added anything, so that it keeps nothing.
    #[cold]
    fn empty(&mut self, tables: &mut Tables) {
        let mut empty = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { empty_tables(lua, tables) }
        };
        self.free(&mut empty);
    }

    /// Runs a function of a library.
    pub(crate) fn run_function(
        &mut self,
        chunk: Chunk,
        name: &dyn Display,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let reply = self.answer(&Frame { job: Job::Function, chunk, keys, args }, name, host);
        self.tidy();
        reply
    }

    /// Returns the reply of a run, or the line of its error.
    fn answer(&mut self, frame: &Frame<'_>, name: &dyn Display, host: &mut dyn Host) -> Reply {
        let bridge = self.bridge();
        // Redis uses this line for functions, too.
        bridge.killed_line.set("ERR Script killed by user with SCRIPT KILL...");
        match self.execute(frame, host) {
            Ok(()) => bridge.take_reply(),
            Err(fault) => Reply::Error(convert::one_line(fault.line(name))),
        }
    }

    /// Runs a compiled library. Returns the functions it has registered, or the message of its
    /// error and the functions registered before the error.
    pub(crate) fn load(
        &mut self,
        chunk: Chunk,
        host: &mut dyn Host,
    ) -> (Result<(), Vec<u8>>, Vec<Registered>) {
        if self.bridge().is_half_full() {
            // The memory may be garbage of the library that this one replaces.
            self.collect();
        }
        let bridge = self.bridge();
        bridge.killed_line.set("ERR FUNCTION LOAD timeout");
        bridge.set_registered(Some(Vec::new()));
        let done = self.execute(&Frame { job: Job::Library, chunk, keys: &[], args: &[] }, host);
        let registered = bridge.set_registered(None).unwrap_or_default();
        let mut restore = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { use_base(lua, bridge.base.get()) }
        };
        self.free(&mut restore);
        (done.map_err(RunError::message), registered)
    }

    fn execute(&mut self, frame: &Frame<'_>, host: &mut dyn Host) -> Result<(), RunError> {
        let lua = self.state.as_ptr();
        let bridge = self.bridge();
        // SAFETY: only the lifetime is erased; the pointer is removed below, before the lifetime
        // ends.
        let host = unsafe { std::mem::transmute::<*mut (dyn Host + '_), HostPointer>(host) };
        bridge.begin();
        bridge.host.set(Some(host));
        bridge.protocol.set(Protocol::Resp2);
        bridge.cjson.set(cjson::Settings::default());
        bridge.polls.set(0);
        let objects = bridge.objects.replace(ffi::LUA_NOREF);
        if objects != ffi::LUA_NOREF {
            // SAFETY: raises nothing: it changes fields that exist.
            unsafe { ffi::luaL_unref(lua, ffi::LUA_REGISTRYINDEX, objects) }
        }
        // SAFETY: `frame` outlives the call.
        let status = unsafe { call_chunk(lua, bridge, frame) };
        bridge.host.set(None);
        if status == ffi::LUA_OK { Ok(()) } else { Err(self.recover(status)) }
    }

    /// Returns the error, and prepares the state for the next run.
    fn recover(&mut self, status: c_int) -> RunError {
        let lua = self.state.as_ptr();
        let bridge = self.bridge();
        let failure = bridge.failure.take();
        // SAFETY: the error value is on top; reading it raises nothing; the hook is set again.
        let message = unsafe {
            let message = bytes(lua, -1).to_vec();
            ffi::lua_settop(lua, KEEP);
            set_hook(lua, bridge.limits.interrupt_instructions);
            message
        };
        let end = bridge.end.replace(ScriptEnd::None);
        let panic = bridge.panic.take();
        bridge.clear();
        // The values that libraries keep and their garbage share one limit.
        if status == ffi::LUA_ERRMEM && bridge.kind == StateKind::Libraries {
            self.collect();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        let raised = status == ffi::LUA_ERRRUN || end == ScriptEnd::Killed;
        match failure.filter(|_| raised) {
            Some(failure) => RunError::Raised(failure),
            None => RunError::Lua(message),
        }
    }
}

/// The reason why a run did not come to its end.
enum RunError {
    /// A Lua error that nothing caught.
    Raised(UncaughtError),
    /// Lua could not go on.
    Lua(Vec<u8>),
}

impl RunError {
    /// The error line for the client of `name`.
    fn line(self, name: &dyn Display) -> Vec<u8> {
        let line = match self {
            RunError::Raised(failure) => failure.line(name),
            RunError::Lua(text) => {
                [format!("ERR Error running script {name}, ").as_bytes(), &text].concat()
            }
        };
        if line.is_empty() { b"ERR unknown error".to_vec() } else { line }
    }

    fn message(self) -> Vec<u8> {
        match self {
            RunError::Raised(failure) => failure.message,
            RunError::Lua(text) => text,
        }
    }
}

/// An error that the script did not catch: its message, and where it was raised.
pub(super) struct UncaughtError {
    message: Vec<u8>,
    place: Option<(Vec<u8>, c_int)>,
}

impl UncaughtError {
    fn line(self, name: &dyn Display) -> Vec<u8> {
        let mut line = self.message;
        if let Some((source, number)) = self.place {
            line.extend_from_slice(format!(" script: {name}, on ").as_bytes());
            line.extend_from_slice(&source);
            line.extend_from_slice(format!(":{number}.").as_bytes());
        }
        line
    }
}

/// How to run a chunk.
enum Job<'a> {
    /// A script that reads KEYS and ARGV as globals.
    Script,
    /// A script with parameters: its values, and how much the tables already hold.
    WithParameters { parameters: &'a ScriptParameters, matches: [Matches; 2] },
    /// A library, which registers functions.
    Library,
    /// A function, called with two tables.
    Function,
}

/// The arguments of the runner for one run.
pub(super) struct Frame<'a> {
    job: Job<'a>,
    chunk: Chunk,
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
}

/// Pushes the functions that every run needs to the bottom of the main stack.
pub(super) unsafe fn push_base(lua: *mut lua_State) -> bool {
    unsafe extern "C-unwind" fn give(lua: *mut lua_State) -> c_int {
        // SAFETY: may raise, owns nothing; called protected.
        unsafe {
            ffi::lua_pushcclosure(lua, handler, 0);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, -HANDLER);
            ffi::lua_pushcclosure(lua, prepare, 0);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, -PREPARE);
            ffi::lua_pushcclosure(lua, keep, 0);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, -KEEP);
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
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, -PREPARE);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, -KEEP);
        set_hook(lua, bridge(lua).limits.interrupt_instructions);
        bridge(lua).main.set(lua);
        true
    }
}

/// Runs the chunk of a frame and keeps its reply. Returns Lua's status; unless that is `LUA_OK`,
/// the error is on top of the stack. Never raises.
unsafe fn call_chunk(lua: *mut lua_State, bridge: &BridgeState, frame: &Frame<'_>) -> c_int {
    // SAFETY: `push_base` left three functions; the stack has room for a few values more; a
    // protected call lets no error out, and reading a number raises nothing.
    unsafe {
        ffi::lua_pushvalue(lua, PREPARE);
        ffi::lua_pushlightuserdata(lua, ptr::from_ref(frame).cast_mut().cast());
        let mut status = ffi::lua_pcall(lua, 1, ffi::LUA_MULTRET, HANDLER);
        if status == ffi::LUA_OK {
            let parameters = ffi::lua_gettop(lua) - KEEP - 1;
            status = ffi::lua_pcall(lua, parameters, 1, HANDLER);
        }
        if status != ffi::LUA_OK {
            return status;
        }
        match ffi::lua_type(lua, -1) {
            // The result of nearly every script.
            ffi::LUA_TNIL => bridge.set_reply(Reply::Null),
            ffi::LUA_TNUMBER => {
                let number = ffi::lua_tonumber(lua, -1);
                bridge.set_reply(Reply::Integer(convert::truncate(number)));
            }
            _ => {
                ffi::lua_pushvalue(lua, KEEP);
                ffi::lua_insert(lua, -2);
                return ffi::lua_pcall(lua, 1, 0, HANDLER);
            }
        }
        ffi::lua_settop(lua, KEEP);
        status
    }
}

/// Fills the tables of keys and arguments. Returns the chunk and its parameters.
unsafe extern "C-unwind" fn prepare(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the argument is the frame in `Machine::execute`, which has
    // not returned.
    unsafe {
        let bridge = bridge(lua);
        let frame = &*ffi::lua_touserdata(lua, 1).cast::<Frame<'_>>();
        match frame.job {
            Job::Script => fill_globals(lua, frame.keys, frame.args),
            Job::Library => use_base(lua, bridge.loading_base.get()),
            Job::WithParameters { .. } | Job::Function => {}
        }
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, frame.chunk.anchor);
        let parameters = match &frame.job {
            Job::Script | Job::Library => 0,
            Job::WithParameters {
                parameters: ScriptParameters { redis, tables, .. },
                matches: [keys, args],
            } => {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, *redis);
                push_filled(lua, &tables.keys, frame.keys, *keys);
                push_filled(lua, &tables.args, frame.args, *args);
                3
            }
            Job::Function => {
                push_list(lua, frame.keys);
                push_list(lua, frame.args);
                2
            }
        };
        bridge.parameter_tables.set(match &frame.job {
            Job::WithParameters { parameters, .. } => {
                ParameterTables::Anchors(parameters.tables.named().map(|(it, _)| it.anchor()))
            }
            _ => ParameterTables::None,
        });
        bridge.has_inserted.set(false);
        parameters + 1
    }
}

/// Keeps the reply, which is the argument.
unsafe extern "C-unwind" fn keep(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let bridge = bridge(lua);
        measure(lua, 1, bridge.limits.nesting_max);
        keep_reply(lua, bridge);
        check_end(lua);
    }
    0
}

/// Keeps the reply that the value at index 1 gives. Never raises.
unsafe fn keep_reply(lua: *mut lua_State, bridge: &BridgeState) {
    // SAFETY: `measure` has made room for reading.
    let value = unsafe { read(lua, bridge, 1, bridge.limits.nesting_max) };
    bridge.set_reply(convert::to_reply(value, bridge.protocol.get()));
}

/// Called where an error is raised that nothing catches. Records the error and its place.
unsafe extern "C-unwind" fn handler(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing, up to `note`.
    unsafe {
        let bridge = bridge(lua);
        ffi::lua_settop(lua, 1);
        if bridge.end.get() == ScriptEnd::None {
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
        note(lua, bridge);
        ffi::lua_settop(lua, 1);
    }
    1
}

/// Records the error on top of the stack and where it was raised. Never raises.
unsafe fn note(lua: *mut lua_State, bridge: &BridgeState) {
    // SAFETY: reads the stack and debug information only; `source` lives as long as its function.
    unsafe {
        let message = match bridge.end.get() {
            ScriptEnd::None => bytes(lua, -1).to_vec(),
            _ => bridge.killed_line.get().into(),
        };
        let at = |level| {
            let mut found: lua_Debug = std::mem::zeroed();
            let is_known = ffi::lua_getstack(lua, level, &raw mut found) != 0
                && ffi::lua_getinfo(lua, c"Sl".as_ptr(), &raw mut found) != 0;
            is_known.then_some(found)
        };
        let found = at(1);
        let is_in_c = found.as_ref().is_some_and(|found| CStr::from_ptr(found.what) == c"C");
        let found = if is_in_c { at(2) } else { found };
        let place = found
            .map(|found| (CStr::from_ptr(found.source).to_bytes().to_vec(), found.currentline));
        bridge.failure.set(Some(UncaughtError { message, place }));
    }
}
