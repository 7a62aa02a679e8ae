//! Frozen tables: a frozen table is empty, reads from another table and refuses writes.
//!
//! Invariant: a script never gets the table that is read from, unless the script is harmless, nor
//! the metatable that connects the two.

use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi::{self, lua_State};

use super::BridgeState;
use super::values::{raise, raise_bare, set_field};

const READONLY: &str = "Attempt to modify a readonly table";
/// The key that marks the metatable of a frozen table.
static FROZEN: u8 = 0;

/// Replaces the table on top by an empty one that reads from it and refuses writes. May raise.
pub(super) unsafe fn freeze(lua: *mut lua_State) {
    // SAFETY: may raise, owns nothing; uses four slots.
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

/// Expects a frozen table and another table on top. Makes the first read from the second, and pops
/// both. May raise.
pub(super) unsafe fn read_from(lua: *mut lua_State) {
    // SAFETY: may raise, owns nothing; uses three slots.
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

/// Replaces a frozen table at `index` by the table it reads from. May raise.
pub(super) unsafe fn thaw(lua: *mut lua_State, index: c_int) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if push_frozen(lua, index) {
            ffi::lua_replace(lua, index);
        }
    }
}

/// Raises an error if the table at 1 is frozen. May raise.
pub(super) unsafe fn refuse_frozen(lua: *mut lua_State) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if push_frozen(lua, 1) {
            raise_bare(lua, READONLY);
        }
    }
}

/// Does the same as [`refuse_frozen`] for the tables that harmless scripts use in place of frozen
/// ones. `table` is the table at 1. May raise.
pub(super) unsafe fn refuse_library(
    lua: *mut lua_State,
    bridge: &BridgeState,
    table: *const c_void,
) {
    if !table.is_null() && bridge.plain_libraries.get().contains(&table) {
        // SAFETY: may raise, owns nothing.
        unsafe { raise_bare(lua, READONLY) }
    }
}

/// Pushes the table that a frozen table at `index` reads from. Never raises.
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
    // SAFETY: may raise, owns nothing.
    unsafe { raise(lua, READONLY) }
}
