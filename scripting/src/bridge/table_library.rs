//! Lua's library `table`, with polls of the host: to Lua's hook, each function is one instruction
//! however long the table is. Otherwise it behaves as in Lua 5.1, down to the order of comparisons.

use std::ffi::{c_int, c_void};

use mlua::ffi::{self, lua_State};

use super::bounds::work;
use super::freeze::{refuse_frozen, refuse_library};
use super::string_builder::StringBuilder;
use super::values::{bytes, push_bytes, raise};
use super::{BridgeState, ParameterTables, bridge};

/// The work of reading or writing an item through Lua's interface.
const ITEM_WORK: usize = 8;
/// The work of calling a function, or of comparing two values.
const CALL_WORK: usize = 32;

/// The length of the table at 1. May raise.
unsafe fn length(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_objlen(lua, 1) as c_int
    }
}

/// An integer argument as a C `int`. May raise.
unsafe fn integer(lua: *mut lua_State, index: c_int, default: c_int) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { ffi::luaL_optinteger(lua, index, default.into()) as c_int }
}

/// `t[to] = t[from]`. May raise.
unsafe fn copy(lua: *mut lua_State, from: c_int, to: c_int) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        work(lua, 2 * ITEM_WORK);
        ffi::lua_rawgeti_(lua, 1, from);
        ffi::lua_rawseti_(lua, 1, to);
    }
}

/// Records that the script adds to this table, if it is the KEYS or ARGV it was given. May raise.
unsafe fn note_insertion(lua: *mut lua_State, bridge: &BridgeState, table: *const c_void) {
    if let ParameterTables::Anchors(anchors) = bridge.parameter_tables.get() {
        bridge.parameter_tables.set(ParameterTables::Tables(anchors.map(|anchor| {
            // SAFETY: may raise, owns nothing; the anchors are those of the running script.
            unsafe {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, anchor);
                let given = ffi::lua_topointer(lua, -1);
                ffi::lua_settop(lua, -2);
                given
            }
        })));
    }
    if let ParameterTables::Tables(parameter_tables) = bridge.parameter_tables.get()
        && parameter_tables.contains(&table)
    {
        bridge.has_inserted.set(true);
    }
}

pub(super) unsafe extern "C-unwind" fn table_insert(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        refuse_frozen(lua);
        let (bridge, table) = (bridge(lua), ffi::lua_topointer(lua, 1));
        refuse_library(lua, bridge, table);
        note_insertion(lua, bridge, table);
        let end = length(lua).wrapping_add(1);
        let at = match ffi::lua_gettop(lua) {
            2 => end,
            3 => {
                let at = ffi::luaL_checkinteger(lua, 2) as c_int;
                let mut to = end.max(at);
                while to > at {
                    copy(lua, to.wrapping_sub(1), to);
                    to -= 1;
                }
                at
            }
            _ => raise(lua, "wrong number of arguments to 'insert'"),
        };
        ffi::lua_rawseti_(lua, 1, at);
    }
    0
}

pub(super) unsafe extern "C-unwind" fn table_remove(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let end = length(lua);
        let at = integer(lua, 2, end);
        if !(1..=end).contains(&at) {
            return 0;
        }
        ffi::lua_rawgeti_(lua, 1, at);
        for to in at..end {
            copy(lua, to + 1, to);
        }
        ffi::lua_pushnil(lua);
        ffi::lua_rawseti_(lua, 1, end);
    }
    1
}

pub(super) unsafe extern "C-unwind" fn table_concat(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the separator stays on the stack, each item while it is
    // added.
    unsafe {
        let has_separator = !matches!(ffi::lua_type(lua, 2), ffi::LUA_TNONE | ffi::LUA_TNIL);
        if has_separator {
            ffi::luaL_checklstring(lua, 2, std::ptr::null_mut());
        }
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        let first = integer(lua, 3, 1);
        let last = match ffi::lua_type(lua, 4) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => length(lua),
            _ => ffi::luaL_checkinteger(lua, 4) as c_int,
        };
        ffi::lua_settop(lua, 2);
        let separator = if has_separator { bytes(lua, 2) } else { b"" };
        let mut output = StringBuilder::new(lua, 64);
        for at in first..=last {
            work(lua, ITEM_WORK);
            ffi::lua_rawgeti_(lua, 1, at);
            if ffi::lua_isstring(lua, -1) == 0 {
                ffi::luaL_where(lua, 1);
                push_bytes(lua, b"invalid value (");
                ffi::lua_pushstring_(lua, ffi::luaL_typename(lua, -3));
                push_bytes(lua, b") at index ");
                ffi::lua_pushinteger(lua, at.into());
                push_bytes(lua, b" in table for 'concat'");
                ffi::lua_concat(lua, 6);
                ffi::lua_error(lua);
            }
            ffi::lua_tolstring(lua, -1, std::ptr::null_mut());
            output.add(lua, bytes(lua, -1));
            ffi::lua_settop(lua, -2);
            if at < last {
                output.add(lua, separator);
            }
        }
        output.push(lua);
    }
    1
}

pub(super) unsafe extern "C-unwind" fn table_maxn(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; `lua_next` is given keys of the table only.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        let mut max = 0.0;
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, 1) != 0 {
            work(lua, 2 * ITEM_WORK);
            ffi::lua_settop(lua, -2);
            if ffi::lua_type(lua, -1) == ffi::LUA_TNUMBER {
                let number = ffi::lua_tonumber(lua, -1);
                if number > max {
                    max = number;
                }
            }
        }
        ffi::lua_pushnumber(lua, max);
    }
    1
}

pub(super) unsafe extern "C-unwind" fn table_foreach(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; `lua_next` is given keys of the table only.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, 1) != 0 {
            work(lua, CALL_WORK);
            ffi::lua_pushvalue(lua, 2);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_call(lua, 2, 1);
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_settop(lua, -3);
        }
    }
    0
}

pub(super) unsafe extern "C-unwind" fn table_foreachi(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let end = length(lua);
        ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        for at in 1..=end {
            work(lua, CALL_WORK);
            ffi::lua_pushvalue(lua, 2);
            ffi::lua_pushinteger(lua, at.into());
            ffi::lua_rawgeti_(lua, 1, at);
            ffi::lua_call(lua, 2, 1);
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_settop(lua, -2);
        }
    }
    0
}

pub(super) unsafe extern "C-unwind" fn table_sort(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the smaller part is sorted by recursion, so there are at
    // most 32 levels.
    unsafe {
        let end = length(lua);
        ffi::luaL_checkstack_(lua, 40, c"".as_ptr());
        if !matches!(ffi::lua_type(lua, 2), ffi::LUA_TNONE | ffi::LUA_TNIL) {
            ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        }
        ffi::lua_settop(lua, 2);
        sort(lua, 1, end);
    }
    0
}

/// Whether the value at `a` is less than that at `b`, both counted from the top. May raise.
unsafe fn is_less(lua: *mut lua_State, a: c_int, b: c_int) -> bool {
    // SAFETY: may raise, owns nothing.
    unsafe {
        work(lua, CALL_WORK);
        if ffi::lua_type(lua, 2) == ffi::LUA_TNIL {
            return ffi::lua_lessthan(lua, a, b) != 0;
        }
        ffi::lua_pushvalue(lua, 2);
        ffi::lua_pushvalue(lua, a - 1);
        ffi::lua_pushvalue(lua, b - 2);
        ffi::lua_call(lua, 2, 1);
        let is_less = ffi::lua_toboolean(lua, -1) != 0;
        ffi::lua_settop(lua, -2);
        is_less
    }
}

/// `t[i], t[j]` = the two values on top, the upper one first. May raise.
unsafe fn set_two(lua: *mut lua_State, i: c_int, j: c_int) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_rawseti_(lua, 1, i);
        ffi::lua_rawseti_(lua, 1, j);
    }
}

/// Pushes two items. May raise.
unsafe fn get_two(lua: *mut lua_State, i: c_int, j: c_int) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_rawgeti_(lua, 1, i);
        ffi::lua_rawgeti_(lua, 1, j);
    }
}

/// Lua's quicksort of `t[low..=high]`. It makes the same comparisons, so an inconsistent order
/// gives the same result or error. May raise.
unsafe fn sort(lua: *mut lua_State, mut low: c_int, mut high: c_int) {
    // SAFETY: may raise, owns nothing; there is room for forty values.
    unsafe {
        while low < high {
            get_two(lua, low, high);
            if is_less(lua, -1, -2) {
                set_two(lua, low, high);
            } else {
                ffi::lua_settop(lua, -3);
            }
            if high - low == 1 {
                return;
            }
            let middle = low.wrapping_add(high) / 2;
            get_two(lua, middle, low);
            if is_less(lua, -2, -1) {
                set_two(lua, middle, low);
            } else {
                ffi::lua_settop(lua, -2);
                ffi::lua_rawgeti_(lua, 1, high);
                if is_less(lua, -1, -2) {
                    set_two(lua, middle, high);
                } else {
                    ffi::lua_settop(lua, -3);
                }
            }
            if high - low == 2 {
                return;
            }
            // The pivot stays on the stack.
            ffi::lua_rawgeti_(lua, 1, middle);
            ffi::lua_pushvalue(lua, -1);
            ffi::lua_rawgeti_(lua, 1, high - 1);
            set_two(lua, middle, high - 1);
            let i = partition(lua, low, high);
            get_two(lua, high - 1, i);
            set_two(lua, high - 1, i);
            if i - low < high - i {
                sort(lua, low, i - 1);
                low = i + 1;
            } else {
                sort(lua, i + 1, high);
                high = i - 1;
            }
        }
    }
}

/// Moves the items between `low` and `high` that are less than the pivot, on top of the stack,
/// before the others, and pops the pivot. Returns where the others begin. May raise.
unsafe fn partition(lua: *mut lua_State, low: c_int, high: c_int) -> c_int {
    // SAFETY: as for `sort`.
    unsafe {
        let (mut i, mut j) = (low, high - 1);
        loop {
            i += 1;
            ffi::lua_rawgeti_(lua, 1, i);
            while is_less(lua, -1, -2) {
                if i > high {
                    raise(lua, INVALID_ORDER);
                }
                ffi::lua_settop(lua, -2);
                i += 1;
                ffi::lua_rawgeti_(lua, 1, i);
            }
            j -= 1;
            ffi::lua_rawgeti_(lua, 1, j);
            while is_less(lua, -3, -1) {
                if j < low {
                    raise(lua, INVALID_ORDER);
                }
                ffi::lua_settop(lua, -2);
                j -= 1;
                ffi::lua_rawgeti_(lua, 1, j);
            }
            if j < i {
                ffi::lua_settop(lua, -4);
                return i;
            }
            set_two(lua, i, j);
        }
    }
}

const INVALID_ORDER: &str = "invalid order function for sorting";
