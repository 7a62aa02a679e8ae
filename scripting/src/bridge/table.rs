//! Lua's library `table`, which asks the host while it works: it is one instruction for Lua's hook
//! however long the table is. The rest is as in Lua 5.1, to the order of comparisons.

use std::ffi::{c_int, c_void};

use mlua::ffi::{self, lua_State};

use super::bounds::work;
use super::freeze::{refuse_frozen, refuse_library};
use super::output::Output;
use super::values::{bytes, push_bytes, raise};
use super::{Context, Given, context};

/// The work of reading an item through Lua's interface, or of writing one.
const ITEM_WORK: usize = 8;
/// The work of calling a function, or of comparing two values.
const CALL_WORK: usize = 32;

/// The length of the table at 1. Plain.
unsafe fn length(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_objlen(lua, 1) as c_int
    }
}

/// An integer argument as a C `int`. Plain.
unsafe fn integer(lua: *mut lua_State, index: c_int, default: c_int) -> c_int {
    // SAFETY: plain.
    unsafe { ffi::luaL_optinteger(lua, index, default.into()) as c_int }
}

/// `t[to] = t[from]`. Plain.
unsafe fn copy(lua: *mut lua_State, from: c_int, to: c_int) {
    // SAFETY: plain.
    unsafe {
        work(lua, 2 * ITEM_WORK);
        ffi::lua_rawgeti_(lua, 1, from);
        ffi::lua_rawseti_(lua, 1, to);
    }
}

/// Notes that the script adds to this table, if it is KEYS or ARGV as it was given. Plain.
unsafe fn note_insertion(lua: *mut lua_State, context: &Context, table: *const c_void) {
    if let Given::Anchors(anchors) = context.given.get() {
        context.given.set(Given::Tables(anchors.map(|anchor| {
            // SAFETY: plain; the anchors are those of the running script.
            unsafe {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, anchor);
                let given = ffi::lua_topointer(lua, -1);
                ffi::lua_settop(lua, -2);
                given
            }
        })));
    }
    if let Given::Tables(given) = context.given.get()
        && given.contains(&table)
    {
        context.has_inserted.set(true);
    }
}

pub(super) unsafe extern "C-unwind" fn table_insert(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        refuse_frozen(lua);
        let (context, table) = (context(lua), ffi::lua_topointer(lua, 1));
        refuse_library(lua, context, table);
        note_insertion(lua, context, table);
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
    // SAFETY: plain.
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
    // SAFETY: plain; the separator stays on the stack, each item while it is added.
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
        let mut output = Output::new(lua, 64);
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
    // SAFETY: plain; `lua_next` is given keys of the table only.
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
    // SAFETY: plain; `lua_next` is given keys of the table only.
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
    // SAFETY: plain.
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
    // SAFETY: plain; the smaller part is sorted by recursion, so there are at most 32 levels.
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

/// Whether the value at `a` comes before that at `b`, both counted from the top. Plain.
unsafe fn is_less(lua: *mut lua_State, a: c_int, b: c_int) -> bool {
    // SAFETY: plain.
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

/// `t[i], t[j]` = the two values on top, the upper one first. Plain.
unsafe fn set_two(lua: *mut lua_State, i: c_int, j: c_int) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_rawseti_(lua, 1, i);
        ffi::lua_rawseti_(lua, 1, j);
    }
}

/// Pushes two items. Plain.
unsafe fn get_two(lua: *mut lua_State, i: c_int, j: c_int) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_rawgeti_(lua, 1, i);
        ffi::lua_rawgeti_(lua, 1, j);
    }
}

/// Lua's quicksort of `t[low..=high]`: it makes the same comparisons, so an order that is none
/// gives the same result or error. Plain.
unsafe fn sort(lua: *mut lua_State, mut low: c_int, mut high: c_int) {
    // SAFETY: plain; there is room for forty values.
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

/// Moves what is less than the pivot, on top of the stack, before what is not, between `low` and
/// `high`, and pops it. Returns where the others begin. Plain.
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
