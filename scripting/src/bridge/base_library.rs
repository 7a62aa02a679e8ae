//! Replacements of functions of the base library, `coroutine` and `math` that would let a script
//! run on after its end or write to frozen tables.
//!
//! Invariant: every function that catches an error checks whether the script must end. Every
//! function that writes to a table or reads it raw checks whether it is frozen.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::io::Write;

use mlua::ffi::{self, lua_CFunction, lua_State};

use super::bounds::check_end;
use super::freeze::{refuse_frozen, thaw};
use super::values::{push_bytes, raise, set_field};
use super::{ScriptEnd, bridge};

/// `pcall`. If the error is one of Redis's error tables, the result is its message. The end of a
/// script is not caught.
pub(super) unsafe extern "C-unwind" fn pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
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

pub(super) unsafe extern "C-unwind" fn xpcall(lua: *mut lua_State) -> c_int {
    /// Calls the script's handler, unless the script must end: the hook does not run in a handler.
    unsafe extern "C-unwind" fn handle(lua: *mut lua_State) -> c_int {
        // SAFETY: may raise, owns nothing.
        unsafe {
            if bridge(lua).end.get() == ScriptEnd::None {
                ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
                ffi::lua_insert(lua, 1);
                ffi::lua_call(lua, 1, 1);
            }
        }
        1
    }
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_checkany(lua, 2);
        ffi::lua_settop(lua, 2);
        ffi::lua_pushcclosure(lua, handle, 1);
        ffi::lua_insert(lua, 1);
        // Below the results: above many results there may be no room.
        ffi::lua_pushboolean(lua, 1);
        ffi::lua_insert(lua, 2);
        if ffi::lua_pcall(lua, 0, ffi::LUA_MULTRET, 1) != ffi::LUA_OK {
            check_end(lua);
            ffi::lua_pushboolean(lua, 0);
            ffi::lua_replace(lua, 2);
        }
        ffi::lua_gettop(lua) - 1
    }
}

pub(super) unsafe extern "C-unwind" fn coroutine_resume(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let results = original(lua, &bridge(lua).lua_functions.resume);
        check_end(lua);
        results
    }
}

/// Calls Lua's own function with the same arguments. May raise.
unsafe fn original(lua: *mut lua_State, function: &Cell<Option<lua_CFunction>>) -> c_int {
    // SAFETY: a C function with the stack it expects.
    unsafe {
        match function.get() {
            Some(function) => function(lua),
            None => raise(lua, "not available"),
        }
    }
}

pub(super) unsafe extern "C-unwind" fn next(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        thaw(lua, 1);
        original(lua, &bridge(lua).lua_functions.next)
    }
}

/// `tostring`. Lua would show the address of a table, function, thread or userdata. This shows a
/// number in the same form: the order in which the script has asked for the objects.
pub(super) unsafe extern "C-unwind" fn tostring(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_checkany(lua, 1);
        let is_object = matches!(
            ffi::lua_type(lua, 1),
            ffi::LUA_TTABLE
                | ffi::LUA_TFUNCTION
                | ffi::LUA_TTHREAD
                | ffi::LUA_TUSERDATA
                | ffi::LUA_TLIGHTUSERDATA
        );
        if !is_object {
            return original(lua, &bridge(lua).lua_functions.tostring);
        }
        ffi::lua_settop(lua, 1);
        if ffi::luaL_callmeta(lua, 1, c"__tostring".as_ptr()) != 0 {
            return 1;
        }
        let number = number_of_object(lua);
        let name = CStr::from_ptr(ffi::lua_typename(lua, ffi::lua_type(lua, 1))).to_bytes();
        let mut text = [0; 32];
        let mut rest = &mut text[..];
        // No name of a type is longer than eight bytes.
        let _ = rest.write_all(name);
        let _ = write!(rest, ": {:#014x}", FIRST_ADDRESS + OBJECT_BYTES * u64::from(number));
        let unused = rest.len();
        push_bytes(lua, &text[..text.len() - unused]);
    }
    1
}

/// The address that `tostring` shows for the first object; those of later ones follow it, as in
/// memory.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
const OBJECT_BYTES: u64 = 0x40;

/// The number of the object at the bottom of the stack, from 1. May raise.
unsafe fn number_of_object(lua: *mut lua_State) -> u32 {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let bridge = bridge(lua);
        if bridge.objects.get() == ffi::LUA_NOREF {
            ffi::lua_createtable(lua, 0, 1);
            // Weak keys: the objects can be collected.
            ffi::lua_createtable(lua, 0, 1);
            push_bytes(lua, b"k");
            set_field(lua, -2, "__mode");
            ffi::lua_setmetatable(lua, -2);
            bridge.objects.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
            bridge.object_count.set(0);
        }
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, bridge.objects.get());
        ffi::lua_pushvalue(lua, 1);
        ffi::lua_rawget_(lua, -2);
        if ffi::lua_type(lua, -1) == ffi::LUA_TNUMBER {
            return ffi::lua_tonumber(lua, -1) as u32;
        }
        let number = bridge.object_count.get() + 1;
        bridge.object_count.set(number);
        ffi::lua_pushvalue(lua, 1);
        ffi::lua_pushnumber(lua, f64::from(number));
        ffi::lua_rawset(lua, -4);
        number
    }
}

/// `os.clock`: the engine's clock in seconds, which is constant while a script runs, and the time
/// that the script itself is taken to need, so that a loop that waits for the clock ends.
pub(super) unsafe extern "C-unwind" fn os_clock(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let bridge = bridge(lua);
        let begin_us = bridge.with_host(|host| host.clock_us()).unwrap_or(0);
        let clock_us = begin_us.saturating_add(u64::from(bridge.polls.get()) * POLL_US);
        ffi::lua_pushnumber(lua, clock_us as f64 / 1e6);
    }
    1
}

/// The time that Lua is taken to need from one poll of the host to the next.
const POLL_US: u64 = 100;

/// `pairs`; its upvalue is `next`.
pub(super) unsafe extern "C-unwind" fn pairs(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(lua, 1);
        ffi::lua_pushnil(lua);
    }
    3
}

pub(super) unsafe extern "C-unwind" fn rawget(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        thaw(lua, 1);
        original(lua, &bridge(lua).lua_functions.rawget)
    }
}

pub(super) unsafe extern "C-unwind" fn rawset(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        refuse_frozen(lua);
        original(lua, &bridge(lua).lua_functions.rawset)
    }
}

pub(super) unsafe extern "C-unwind" fn setmetatable(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        refuse_frozen(lua);
        original(lua, &bridge(lua).lua_functions.setmetatable)
    }
}

pub(super) unsafe extern "C-unwind" fn unpack(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        // C integers, as in Lua: only the low 32 bits count.
        let first = ffi::luaL_optinteger(lua, 2, 1) as c_int;
        let last = match ffi::lua_type(lua, 3) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => ffi::lua_objlen(lua, 1) as c_int,
            _ => ffi::luaL_checkinteger(lua, 3) as c_int,
        };
        if first > last {
            return 0;
        }
        let count = last.saturating_sub(first).saturating_add(1);
        if ffi::lua_checkstack(lua, count) == 0 {
            raise(lua, "too many results to unpack");
        }
        for i in first..=last {
            ffi::lua_rawgeti_(lua, 1, i);
        }
        count
    }
}

pub(super) unsafe extern "C-unwind" fn math_random(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let number = bridge(lua).random.next();
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

pub(super) unsafe extern "C-unwind" fn math_randomseed(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let seed = ffi::luaL_checkinteger(lua, 1);
        bridge(lua).random.reseed(seed as u32);
    }
    0
}
