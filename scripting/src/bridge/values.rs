//! Values on Lua's stack: pushing, measuring and reading them, and raising errors.
//!
//! Invariant: [`measure`] raises the errors, so that [`read`], which owns the values it has read,
//! never has to. A value that is pushed is owned outside the frames that an error skips.

use std::ffi::c_int;
use std::{ptr, slice};

use bytes::Bytes;
use mlua::ffi::{self, lua_State};

use super::bounds::{stop, work};
use super::{BridgeState, ScriptEnd, bridge};
use crate::value::Value;

/// The work of copying a value to Lua or from Lua.
const VALUE_WORK: usize = 32;

/// The string at `index`; empty if it is not a string. A number is not converted. Never raises.
pub(super) unsafe fn bytes<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
    // SAFETY: a string's bytes stay where they are while it is on the stack, which the callers
    // ensure.
    unsafe {
        if ffi::lua_type(lua, index) != ffi::LUA_TSTRING {
            return &[];
        }
        let mut len = 0;
        let start = ffi::lua_tolstring(lua, index, &raw mut len);
        slice::from_raw_parts(start.cast(), len)
    }
}

/// Pushes a string. May raise.
pub(super) unsafe fn push_bytes(lua: *mut lua_State, text: &[u8]) {
    // SAFETY: Lua copies `text`.
    unsafe { ffi::lua_pushlstring_(lua, text.as_ptr().cast(), text.len()) }
}

/// Ensures that `read` can read the value at `index`: makes room on the stack, and raises an error
/// if there is too much. May raise.
pub(super) unsafe fn measure(lua: *mut lua_State, index: c_int, nesting: usize) {
    unsafe fn visit(lua: *mut lua_State, bridge: &BridgeState, nesting: usize, left: &mut usize) {
        // SAFETY: may raise, owns nothing; the value is on top and stays there.
        unsafe {
            if !bridge.work(VALUE_WORK) {
                stop(lua);
            }
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
                visit(lua, bridge, nesting - 1, left);
                // Above the value, as `read` finds it: a key may nest as deeply as a value.
                ffi::lua_pushvalue(lua, -2);
                visit(lua, bridge, nesting - 1, left);
                ffi::lua_settop(lua, -3);
            }
        }
    }
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_type(lua, index) == ffi::LUA_TTABLE {
            let bridge = bridge(lua);
            let mut left = bridge.limits.values_max();
            ffi::lua_pushvalue(lua, index);
            visit(lua, bridge, nesting, &mut left);
            ffi::lua_settop(lua, -2);
        }
    }
}

/// Copies the value at `index`. If the script must end, the copy is incomplete. Never raises, if
/// `measure` has accepted the value with the same nesting.
pub(super) unsafe fn read(
    lua: *mut lua_State,
    bridge: &BridgeState,
    index: c_int,
    nesting: usize,
) -> Value {
    // SAFETY: `lua_next` is given keys of its own table only.
    unsafe {
        if !bridge.work(VALUE_WORK) {
            return Value::Nil;
        }
        match ffi::lua_type(lua, index) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => Value::Nil,
            ffi::LUA_TBOOLEAN => Value::Boolean(ffi::lua_toboolean(lua, index) != 0),
            ffi::LUA_TNUMBER => Value::Number(ffi::lua_tonumber(lua, index)),
            ffi::LUA_TSTRING => {
                let text = bytes(lua, index);
                if !bridge.work(text.len()) {
                    return Value::Nil;
                }
                Value::Bytes(Bytes::copy_from_slice(text))
            }
            ffi::LUA_TTABLE if nesting == 0 => Value::TooDeep,
            ffi::LUA_TTABLE => {
                let table = if index < 0 { ffi::lua_gettop(lua) + 1 + index } else { index };
                let mut entries = Vec::new();
                let mut is_by_address = false;
                ffi::lua_pushnil(lua);
                while ffi::lua_next(lua, table) != 0 {
                    let key = read(lua, bridge, -2, nesting - 1);
                    is_by_address |= key.is_placed_by_address();
                    entries.push((key, read(lua, bridge, -1, nesting - 1)));
                    ffi::lua_settop(lua, -2);
                    if bridge.end.get() != ScriptEnd::None {
                        ffi::lua_settop(lua, -2);
                        break;
                    }
                }
                if is_by_address {
                    Value::sort(&mut entries);
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

/// Pushes a value that the bridge state owns. May raise.
pub(super) unsafe fn push(lua: *mut lua_State, value: &Value) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        work(lua, VALUE_WORK);
        if ffi::lua_checkstack(lua, 1) == 0 {
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

/// Raises an error with the position in the script. May raise.
pub(super) unsafe fn raise(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_where(lua, 1);
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_error(lua)
    }
}

/// Raises an error without a position. May raise.
pub(super) unsafe fn raise_bare(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: may raise, owns nothing.
    unsafe {
        push_bytes(lua, text.as_bytes());
        ffi::lua_error(lua)
    }
}

/// Pushes `{err = 'ERR ' .. text}`. May raise.
pub(super) unsafe fn push_error(lua: *mut lua_State, text: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_createtable(lua, 0, 1);
        push_bytes(lua, b"ERR ");
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_setfield(lua, -2, c"err".as_ptr());
    }
}

pub(super) unsafe fn raise_error(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: may raise, owns nothing.
    unsafe {
        push_error(lua, text);
        ffi::lua_error(lua)
    }
}

/// `table[name]`, raw. May raise.
pub(super) unsafe fn get_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: may raise, owns nothing; one more slot is on the stack while `table` counts from the
    // top.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_rawget_(lua, if table < 0 { table - 1 } else { table });
    }
}

/// `table[name] = value on top`, raw; pops it. May raise.
pub(super) unsafe fn set_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: may raise, owns nothing; as above.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_insert(lua, -2);
        ffi::lua_rawset(lua, if table < 0 { table - 1 } else { table });
    }
}
