//! Compiles text to functions: the compiler of scripts, and Lua's `load` and `loadstring`.
//!
//! Invariant: no text is taken as bytecode, which Lua does not verify. No text is longer than the
//! limit. No script runs while the parser does.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use mlua::ffi::{self, lua_State};

use super::bounds::check_end;
use super::bridge;
use super::values::{bytes, push_bytes, raise};

/// Bytes of a text that are compiled between two polls of the host, and the work of each.
const PIECE_BYTES: usize = 1 << 10;
const WORK_PER_BYTE: usize = 16;

pub(super) unsafe extern "C-unwind" fn loadstring(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the text is on the stack.
    unsafe {
        let text = ffi::luaL_checklstring(lua, 1, ptr::null_mut());
        let name = ffi::luaL_optlstring(lua, 2, text, ptr::null_mut());
        compiled(lua, 1, CStr::from_ptr(name))
    }
}

/// `load`: collects the pieces first and then runs the parser, which nothing may interrupt.
pub(super) unsafe extern "C-unwind" fn load(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the table, the text and the name are on the stack.
    unsafe {
        let name = ffi::luaL_optlstring(lua, 2, c"=(load)".as_ptr(), ptr::null_mut());
        ffi::luaL_checktype(lua, 1, ffi::LUA_TFUNCTION);
        ffi::lua_settop(lua, 2);
        push_bytes(lua, b"");
        loop {
            ffi::lua_pushvalue(lua, 1);
            let status = ffi::lua_pcall(lua, 0, 1, 0);
            check_end(lua);
            if status != ffi::LUA_OK {
                ffi::lua_pushnil(lua);
                ffi::lua_insert(lua, -2);
                return 2;
            }
            match ffi::lua_type(lua, -1) {
                ffi::LUA_TNIL => break,
                ffi::LUA_TSTRING if bytes(lua, -1).is_empty() => break,
                ffi::LUA_TSTRING | ffi::LUA_TNUMBER => ffi::lua_concat(lua, 2),
                _ => {
                    ffi::lua_pushnil(lua);
                    ffi::luaL_where(lua, 1);
                    push_bytes(lua, b"reader function must return a string");
                    ffi::lua_concat(lua, 2);
                    return 2;
                }
            }
        }
        compiled(lua, 3, CStr::from_ptr(name))
    }
}

/// Compiles the string at `index`. Pushes a function, or nil and a message. May raise.
unsafe fn compiled(lua: *mut lua_State, index: c_int, name: &CStr) -> c_int {
    // SAFETY: may raise, owns nothing; the text stays on the stack.
    unsafe {
        let text = bytes(lua, index);
        if text.len() > bridge(lua).limits.script_bytes_max {
            raise(lua, "chunk too long");
        }
        if compile(lua, text, name) == ffi::LUA_OK {
            return 1;
        }
        ffi::lua_pushnil(lua);
        ffi::lua_insert(lua, -2);
        2
    }
}

/// Compiles `text`, never as bytecode: Lua takes it as bytecode only if the first byte is ESC, and
/// a blank before that byte makes it a syntax error. The collector is stopped meanwhile, because
/// the parser holds strings it does not anchor. Within a script the host is polled regularly.
/// Leaves a function or a message. May raise.
pub(super) unsafe fn compile(lua: *mut lua_State, text: &[u8], name: &CStr) -> c_int {
    struct Pieces<'a> {
        rest: [&'a [u8]; 2],
    }
    /// Returns the next piece. If the script must end there is none, as at the end of the text.
    /// Never raises.
    unsafe extern "C-unwind" fn read(
        lua: *mut lua_State,
        pieces: *mut c_void,
        len: *mut usize,
    ) -> *const c_char {
        // SAFETY: `pieces` is the structure below, which outlives the call.
        unsafe {
            let pieces = &mut *pieces.cast::<Pieces<'_>>();
            let [first, second] = &mut pieces.rest;
            let rest = if first.is_empty() { second } else { first };
            let (piece, later) = rest.split_at(rest.len().min(PIECE_BYTES));
            *rest = later;
            *len = piece.len();
            let goes_on = bridge(lua).work(piece.len() * WORK_PER_BYTE);
            if piece.is_empty() || !goes_on { ptr::null() } else { piece.as_ptr().cast() }
        }
    }
    let blank: &[u8] = if text.first() == Some(&0x1B) { b" " } else { b"" };
    let mut pieces = Pieces { rest: [blank, text] };
    // SAFETY: may raise, owns nothing; `lua_load` is protected inside.
    unsafe {
        ffi::lua_gc(lua, ffi::LUA_GCSTOP, 0);
        let data = ptr::from_mut(&mut pieces).cast();
        let status = ffi::lua_load(lua, read, data, name.as_ptr());
        ffi::lua_gc(lua, ffi::LUA_GCRESTART, 0);
        check_end(lua);
        status
    }
}
