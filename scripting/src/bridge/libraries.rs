//! Calls of the libraries written in Rust: arguments copied out of Lua, results pushed.
//!
//! What must hold: arguments are measured before they are read, and results and messages are the
//! context's while they are pushed.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::bounds::stop;
use super::values::{get_field, measure, push, push_bytes, read};
use super::{Context, End, context};
use crate::libs::{Call, Fault, Function};

/// How deeply values given to libraries may nest.
const LIBRARY_NESTING_MAX: usize = 1_001;

/// A function of a library in Rust: its upvalue is its `Function`.
pub(super) unsafe extern "C-unwind" fn library_function(lua: *mut lua_State) -> c_int {
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
pub(super) unsafe extern "C-unwind" fn cjson_new(lua: *mut lua_State) -> c_int {
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
        (1..=count).map(|i| read(lua, context, i, LIBRARY_NESTING_MAX)).collect()
    };
    let bytes_max = context.limits.memory_bytes_max;
    let work = |amount| context.work(amount);
    let (results, cjson) = (Vec::new(), context.cjson.get());
    let mut call = Call { args, results, bytes_max, work: &work, cjson };
    let outcome = context.guard(|| (function.run)(&mut call));
    context.cjson.set(call.cjson);
    match outcome {
        _ if context.end.get() != End::None => Computed::Stop,
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
