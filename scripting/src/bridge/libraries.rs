//! Calls of the libraries written in Rust: copies arguments out of Lua and pushes results.
//!
//! Invariant: arguments are measured before they are read. The bridge state owns results and
//! messages while they are pushed.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::bounds::stop;
use super::values::{get_field, measure, push, push_bytes, read};
use super::{BridgeState, ScriptEnd, bridge};
use crate::libs::{LibraryCall, LibraryError, LibraryFunction};

/// How deeply the arguments of libraries may nest.
const LIBRARY_NESTING_MAX: usize = 1_001;

/// A function of a library in Rust. Its upvalue is its `LibraryFunction`.
pub(super) unsafe extern "C-unwind" fn library_function(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; results and message stay in the bridge state while they are
    // pushed.
    unsafe {
        let bridge = bridge(lua);
        let function =
            &*ffi::lua_touserdata(lua, ffi::lua_upvalueindex(1)).cast::<LibraryFunction>();
        let count = ffi::lua_gettop(lua);
        for i in 1..=count {
            measure(lua, i, LIBRARY_NESTING_MAX);
        }
        match compute(lua, bridge, function) {
            Computed::Results(count) => {
                ffi::lua_settop(lua, 0);
                for value in &*bridge.values.get() {
                    push(lua, value);
                }
                bridge.set_values(Vec::new());
                count
            }
            Computed::Argument(at) => {
                let message = &*bridge.message.get();
                ffi::luaL_argerror(lua, at, message.as_ptr().cast())
            }
            Computed::Error => {
                ffi::luaL_where(lua, 1);
                push_bytes(lua, &*bridge.message.get());
                ffi::lua_concat(lua, 2);
                ffi::lua_error(lua)
            }
            Computed::Stop => stop(lua),
        }
    }
}

/// `cjson.new`: the settings belong to the running script anyway, so this returns the library
/// itself.
pub(super) unsafe extern "C-unwind" fn cjson_new(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, bridge(lua).base.get());
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

/// Calls the function with the arguments on the stack, and returns the outcome. Never raises.
unsafe fn compute(
    lua: *mut lua_State,
    bridge: &BridgeState,
    function: &LibraryFunction,
) -> Computed {
    // SAFETY: every argument has been measured.
    let args = unsafe {
        let count = ffi::lua_gettop(lua);
        (1..=count).map(|i| read(lua, bridge, i, LIBRARY_NESTING_MAX)).collect()
    };
    let bytes_max = bridge.limits.memory_bytes_max;
    let work = |amount| bridge.work(amount);
    let (results, cjson) = (Vec::new(), bridge.cjson.get());
    let mut call = LibraryCall { args, results, bytes_max, work: &work, cjson };
    let outcome = bridge.guard(|| (function.run)(&mut call));
    bridge.cjson.set(call.cjson);
    match outcome {
        _ if bridge.end.get() != ScriptEnd::None => Computed::Stop,
        None => Computed::Stop,
        Some(Ok(())) => {
            let count = call.results.len() as c_int;
            bridge.set_values(call.results);
            Computed::Results(count)
        }
        Some(Err(LibraryError::Argument(at, text))) => {
            let mut message = text.into_bytes();
            message.push(0);
            bridge.set_message(message);
            Computed::Argument(at as c_int)
        }
        Some(Err(LibraryError::Error(message))) => {
            bridge.set_message(message);
            Computed::Error
        }
    }
}
