//! Frozen tables: an empty table that reads from another and refuses writes.
//!
//! What must hold: a script never gets hold of the table that is read from, unless it is harmless,
//! nor of the metatable that stands between.

use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi::{self, lua_State};

use super::Context;
use super::values::{raise, raise_bare, set_field};

const READONLY: &str = "Attempt to modify a readonly table";
/// Marks the metatable of a frozen table.
static FROZEN: u8 = 0;

/// Replaces the table on top by an empty one that reads from it and refuses writes. Plain.
pub(super) unsafe fn freeze(lua: *mut lua_State) {
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

/// With a frozen table and another one on top: makes the first read from the second. Pops both.
/// Plain.
pub(super) unsafe fn read_from(lua: *mut lua_State) {
    // SAFETY: plain; uses three slots.
    unsafe {
        ffi::luaL_checkstack_(lua, 3, c"no room".as_ptr());
        ffi::lua_getmetatable(lua, -2);
        ffi::lua_pushvalue(lua, -2);
        ffi::lua_rawseti_(lua, -2, 2);
        ffi::lua_pushvalue(lua, -2);
        set_field(lua, -2, "__index");
        ffi::lua_settop(lua, -4);
    }
}

/// If there is a frozen table at `index`, puts what it reads from in its place. Plain.
pub(super) unsafe fn thaw(lua: *mut lua_State, index: c_int) {
    // SAFETY: plain.
    unsafe {
        if push_frozen(lua, index) {
            ffi::lua_replace(lua, index);
        }
    }
}

/// Plain.
pub(super) unsafe fn refuse_frozen(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if push_frozen(lua, 1) {
            raise_bare(lua, READONLY);
        }
    }
}

/// As [`refuse_frozen`], for the tables that harmless scripts see in place of frozen ones. `table`
/// is the one at 1. Plain.
pub(super) unsafe fn refuse_library(lua: *mut lua_State, context: &Context, table: *const c_void) {
    if !table.is_null() && context.plain_libraries.get().contains(&table) {
        // SAFETY: plain.
        unsafe { raise_bare(lua, READONLY) }
    }
}

/// Pushes what the table at `index` reads from, if it is a frozen one. Quiet.
unsafe fn push_frozen(lua: *mut lua_State, index: c_int) -> bool {
    // SAFETY: raw reads of a metatable only.
    unsafe {
        if ffi::lua_type(lua, index) != ffi::LUA_TTABLE || ffi::lua_getmetatable(lua, index) == 0 {
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

unsafe extern "C-unwind" fn refuse_write(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe { raise(lua, READONLY) }
}
