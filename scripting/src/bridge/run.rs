//! One run of a script or function: keys and arguments in, the reply or the error line out.
//!
//! What must hold: whatever a script did, the stack, the hook and the context are afterwards as
//! the next script expects them.

use std::ffi::{CStr, c_int};
use std::fmt::Display;
use std::panic::resume_unwind;
use std::ptr;

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_Debug, lua_State};

use super::bounds::{check_end, set_hook};
use super::install::use_base;
use super::tables::{Held, Own, Tables, empty_tables, fill_globals, push_filled, push_list};
use super::values::{bytes, measure, push_bytes, read};
use super::{
    Chunk, Compiled, Context, End, Given, HostPointer, Machine, Registered, World, context,
};
use crate::libs::cjson;
use crate::{Host, convert};

pub(super) const HANDLER: c_int = 1;
pub(super) const RUNNER: c_int = 2;
/// Where the runner finds what the script has returned: beside its argument.
const REPLY: c_int = 2;

impl Machine {
    /// Runs a compiled script. `name` is what errors call it.
    pub(crate) fn run(
        &mut self,
        compiled: &mut Compiled,
        name: &dyn Display,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let Compiled { chunk, own, .. } = compiled;
        self.ask_unless(own.as_ref().is_some_and(|own| own.ends_soon));
        let job = match own {
            Some(own) => Job::Given { held: own.tables.compare(keys, args), own },
            None => Job::Script,
        };
        // Until the tables are filled, which may fail.
        self.context().has_inserted.set(true);
        let reply = self.answer(&Frame { job, chunk: *chunk, keys, args }, name, host);
        if let Some(own) = own {
            if self.context().has_inserted.get() {
                self.empty(&mut own.tables);
            } else {
                own.tables.have_kept(keys, args);
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

    /// The reply of a run, or the line of its error.
    fn answer(&mut self, frame: &Frame<'_>, name: &dyn Display, host: &mut dyn Host) -> Reply {
        let context = self.context();
        // Redis says so of functions, too.
        context.killed_line.set("ERR Script killed by user with SCRIPT KILL...");
        match self.execute(frame, host) {
            Ok(()) => context.take_reply(),
            Err(fault) => Reply::Error(convert::one_line(fault.line(name))),
        }
    }

    /// Runs a compiled library; returns what it has registered, or the message of its error and
    /// what it had registered by then.
    pub(crate) fn load(
        &mut self,
        chunk: Chunk,
        host: &mut dyn Host,
    ) -> (Result<(), Vec<u8>>, Vec<Registered>) {
        if self.context().is_half_full() {
            // It may be garbage of the library that this one replaces.
            self.collect();
        }
        let context = self.context();
        context.killed_line.set("ERR FUNCTION LOAD timeout");
        context.set_registered(Some(Vec::new()));
        let done = self.execute(&Frame { job: Job::Library, chunk, keys: &[], args: &[] }, host);
        let registered = context.set_registered(None).unwrap_or_default();
        let mut restore = |lua| {
            // SAFETY: called by Lua in a protected call.
            unsafe { use_base(lua, context.base.get()) }
        };
        self.free(&mut restore);
        (done.map_err(Fault::message), registered)
    }

    fn execute(&mut self, frame: &Frame<'_>, host: &mut dyn Host) -> Result<(), Fault> {
        let lua = self.state.as_ptr();
        let context = self.context();
        // SAFETY: only the lifetime is forgotten; the pointer is taken back below, before it ends.
        let host = unsafe { std::mem::transmute::<*mut (dyn Host + '_), HostPointer>(host) };
        context.begin();
        context.host.set(Some(host));
        context.protocol.set(Protocol::Resp2);
        if context.world == World::Scripts {
            context.random.set(context.seed);
        }
        context.cjson.set(cjson::Settings::default());
        // SAFETY: `push_base` left handler and runner; `frame` outlives the call; three slots are
        // free on a stack that holds two; a protected call lets no error out.
        let status = unsafe {
            ffi::lua_pushvalue(lua, RUNNER);
            ffi::lua_pushlightuserdata(lua, ptr::from_ref(frame).cast_mut().cast());
            ffi::lua_pcall(lua, 1, 0, HANDLER)
        };
        context.host.set(None);
        if status == ffi::LUA_OK { Ok(()) } else { Err(self.recover(status)) }
    }

    /// What went wrong, the state made fit for the next run.
    fn recover(&mut self, status: c_int) -> Fault {
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
        // What libraries keep and their garbage have one limit together.
        if status == ffi::LUA_ERRMEM && context.world == World::Libraries {
            self.collect();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        let raised = status == ffi::LUA_ERRRUN || end == End::Killed;
        match failure.filter(|_| raised) {
            Some(failure) => Fault::Raised(failure),
            None => Fault::OfLua(message),
        }
    }
}

/// Why a run did not come to its end.
enum Fault {
    /// An error was raised and nothing caught it.
    Raised(Failure),
    /// Lua could not go on.
    OfLua(Vec<u8>),
}

impl Fault {
    /// What the client of `name` is told.
    fn line(self, name: &dyn Display) -> Vec<u8> {
        let line = match self {
            Fault::Raised(failure) => failure.line(name),
            Fault::OfLua(text) => {
                [format!("ERR Error running script {name}, ").as_bytes(), &text].concat()
            }
        };
        if line.is_empty() { b"ERR unknown error".to_vec() } else { line }
    }

    fn message(self) -> Vec<u8> {
        match self {
            Fault::Raised(failure) => failure.message,
            Fault::OfLua(text) => text,
        }
    }
}

/// An error that left the script: its line, and where it happened.
pub(super) struct Failure {
    message: Vec<u8>,
    place: Option<(Vec<u8>, c_int)>,
}

impl Failure {
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
    /// It finds KEYS and ARGV among the globals.
    Script,
    /// It is called with what is its own, which holds so much already.
    Given { own: &'a Own, held: [Held; 2] },
    /// It registers functions.
    Library,
    /// It is called with two tables.
    Function,
}

/// One run, as the runner sees it.
pub(super) struct Frame<'a> {
    job: Job<'a>,
    chunk: Chunk,
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
}

/// Pushes what every run needs at the base of the main stack.
pub(super) unsafe fn push_base(lua: *mut lua_State) -> bool {
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

/// Hands over keys and arguments, runs the chunk, keeps its reply.
unsafe extern "C-unwind" fn runner(lua: *mut lua_State) -> c_int {
    // SAFETY: plain; the argument is the frame in `Machine::run`, which waits.
    unsafe {
        let context = context(lua);
        let frame = &*ffi::lua_touserdata(lua, 1).cast::<Frame<'_>>();
        match frame.job {
            Job::Script => fill_globals(lua, frame.keys, frame.args),
            Job::Library => use_base(lua, context.loading_base.get()),
            Job::Given { .. } | Job::Function => {}
        }
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, frame.chunk.anchor);
        let parameters = match &frame.job {
            Job::Script | Job::Library => 0,
            Job::Given { own: Own { redis, tables, .. }, held: [keys, args] } => {
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
        context.given.set(match &frame.job {
            Job::Given { own, .. } => Given::Anchors(own.tables.named().map(|(it, _)| it.anchor())),
            _ => Given::None,
        });
        context.has_inserted.set(false);
        ffi::lua_call(lua, parameters, 1);
        match ffi::lua_type(lua, REPLY) {
            // Of nearly every script.
            ffi::LUA_TNIL => context.set_reply(Reply::Null),
            ffi::LUA_TNUMBER => {
                let number = ffi::lua_tonumber(lua, REPLY);
                context.set_reply(Reply::Integer(convert::truncate(number)));
            }
            _ => {
                measure(lua, REPLY, context.limits.nesting_max);
                keep_reply(lua, context);
                check_end(lua);
            }
        }
    }
    0
}

/// Quiet.
unsafe fn keep_reply(lua: *mut lua_State, context: &Context) {
    // SAFETY: `measure` has made room for reading.
    let value = unsafe { read(lua, context, REPLY, context.limits.nesting_max) };
    context.set_reply(convert::to_reply(value, context.protocol.get()));
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
            _ => context.killed_line.get().into(),
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
