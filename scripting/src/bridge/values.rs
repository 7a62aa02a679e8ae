//! Values on Lua's stack: pushing, measuring, reading, and raising errors.
//!
//! What must hold: [`measure`] raises, so that [`read`], which owns what it has read, need not;
//! what is pushed is owned by somebody whom an error does not skip.

use std::ffi::c_int;
use std::{ptr, slice};

use bytes::Bytes;
use mlua::ffi::{self, lua_State};

use super::bounds::{stop, work};
use super::{Context, End, context};
use crate::value::Value;

/// The work of copying a value to Lua or from there.
const VALUE_WORK: usize = 32;

/// The string at `index`; nothing if it is none. Quiet: a number is not converted.
pub(super) unsafe fn bytes<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
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
pub(super) unsafe fn push_bytes(lua: *mut lua_State, text: &[u8]) {
    // SAFETY: Lua copies `text`.
    unsafe { ffi::lua_pushlstring_(lua, text.as_ptr().cast(), text.len()) }
}

/// Sees that `read` can read the value at `index`: makes room on the stack, and raises an error
/// if there is too much. Plain.
pub(super) unsafe fn measure(lua: *mut lua_State, index: c_int, nesting: usize) {
    unsafe fn visit(lua: *mut lua_State, context: &Context, nesting: usize, left: &mut usize) {
        // SAFETY: plain; the value is on top and stays there.
        unsafe {
            if !context.work(VALUE_WORK) {
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
                visit(lua, context, nesting - 1, left);
                // Above the value, as `read` finds it: a key may be as deep as a value.
                ffi::lua_pushvalue(lua, -2);
                visit(lua, context, nesting - 1, left);
                ffi::lua_settop(lua, -3);
            }
        }
    }
    // SAFETY: plain.
    unsafe {
        if ffi::lua_type(lua, index) == ffi::LUA_TTABLE {
            let context = context(lua);
            let mut left = context.limits.values_max();
            ffi::lua_pushvalue(lua, index);
            visit(lua, context, nesting, &mut left);
            ffi::lua_settop(lua, -2);
        }
    }
}

/// Copies the value at `index`. Quiet, if `measure` has passed it with the same nesting. If the
/// script must end, what is read is not all.
pub(super) unsafe fn read(
    lua: *mut lua_State,
    context: &Context,
    index: c_int,
    nesting: usize,
) -> Value {
    // SAFETY: `lua_next` is given keys of its own table only.
    unsafe {
        if !context.work(VALUE_WORK) {
            return Value::Nil;
        }
        match ffi::lua_type(lua, index) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => Value::Nil,
            ffi::LUA_TBOOLEAN => Value::Boolean(ffi::lua_toboolean(lua, index) != 0),
            ffi::LUA_TNUMBER => Value::Number(ffi::lua_tonumber(lua, index)),
            ffi::LUA_TSTRING => {
                let text = bytes(lua, index);
                if !context.work(text.len()) {
                    return Value::Nil;
                }
                Value::Bytes(Bytes::copy_from_slice(text))
            }
            ffi::LUA_TTABLE if nesting == 0 => Value::TooDeep,
            ffi::LUA_TTABLE => {
                let table = if index < 0 { ffi::lua_gettop(lua) + 1 + index } else { index };
                let mut entries = Vec::new();
                ffi::lua_pushnil(lua);
                while ffi::lua_next(lua, table) != 0 {
                    let key = read(lua, context, -2, nesting - 1);
                    entries.push((key, read(lua, context, -1, nesting - 1)));
                    ffi::lua_settop(lua, -2);
                    if context.end.get() != End::None {
                        ffi::lua_settop(lua, -2);
                        break;
                    }
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
pub(super) unsafe fn push(lua: *mut lua_State, value: &Value) {
    // SAFETY: plain.
    unsafe {
        work(lua, VALUE_WORK);
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
pub(super) unsafe fn raise(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        ffi::luaL_where(lua, 1);
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_error(lua)
    }
}

/// Raises an error that does not say where. Plain.
pub(super) unsafe fn raise_bare(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        push_bytes(lua, text.as_bytes());
        ffi::lua_error(lua)
    }
}

/// Pushes `{err = 'ERR ' .. text}`. Plain.
pub(super) unsafe fn push_error(lua: *mut lua_State, text: &str) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_createtable(lua, 0, 1);
        push_bytes(lua, b"ERR ");
        push_bytes(lua, text.as_bytes());
        ffi::lua_concat(lua, 2);
        ffi::lua_setfield(lua, -2, c"err".as_ptr());
    }
}

pub(super) unsafe fn raise_error(lua: *mut lua_State, text: &str) -> ! {
    // SAFETY: plain.
    unsafe {
        push_error(lua, text);
        ffi::lua_error(lua)
    }
}

/// `table[name]`, raw. Plain.
pub(super) unsafe fn get_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: plain; one more slot is on the stack while `table` counts from the top.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_rawget_(lua, if table < 0 { table - 1 } else { table });
    }
}

/// `table[name] = value on top`, raw; pops it. Plain.
pub(super) unsafe fn set_field(lua: *mut lua_State, table: c_int, name: &str) {
    // SAFETY: plain; as above.
    unsafe {
        push_bytes(lua, name.as_bytes());
        ffi::lua_insert(lua, -2);
        ffi::lua_rawset(lua, if table < 0 { table - 1 } else { table });
    }
}
