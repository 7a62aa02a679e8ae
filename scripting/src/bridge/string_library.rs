//! Functions of Lua's library `string` that process a string byte by byte and poll the host
//! meanwhile.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::patterns::argument;
use super::string_builder::StringBuilder;
use super::values::push_bytes;

pub(super) unsafe extern "C-unwind" fn string_rep(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the text stays on the stack.
    unsafe {
        let text = argument(lua, 1);
        let count = usize::try_from(ffi::luaL_checkinteger(lua, 2) as c_int).unwrap_or(0);
        if text.is_empty() || count == 0 {
            push_bytes(lua, b"");
            return 1;
        }
        let mut output = StringBuilder::new(lua, text.len().saturating_mul(count));
        // Several copies of a short string are added together.
        let together = (SHORT_BYTES / text.len()).clamp(1, count);
        if together == 1 {
            (0..count).for_each(|_| output.add(lua, text));
        } else {
            let mut unit = [0; SHORT_BYTES];
            let unit = &mut unit[..together * text.len()];
            unit.chunks_exact_mut(text.len()).for_each(|copy| copy.copy_from_slice(text));
            (0..count / together).for_each(|_| output.add(lua, unit));
            output.add(lua, &unit[..count % together * text.len()]);
        }
        output.push(lua);
    }
    1
}

const SHORT_BYTES: usize = 1 << 10;

pub(super) unsafe extern "C-unwind" fn string_lower(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the text stays on the stack.
    unsafe { give(lua, argument(lua, 1).iter().map(u8::to_ascii_lowercase)) }
}

pub(super) unsafe extern "C-unwind" fn string_upper(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the text stays on the stack.
    unsafe { give(lua, argument(lua, 1).iter().map(u8::to_ascii_uppercase)) }
}

pub(super) unsafe extern "C-unwind" fn string_reverse(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the text stays on the stack.
    unsafe { give(lua, argument(lua, 1).iter().rev().copied()) }
}

/// Pushes the string of these bytes. May raise.
unsafe fn give(lua: *mut lua_State, bytes: impl ExactSizeIterator<Item = u8>) -> c_int {
    // SAFETY: may raise, owns nothing; the iterator owns nothing.
    unsafe {
        let len = bytes.len();
        let mut output = StringBuilder::new(lua, len);
        output.add_each(lua, len, bytes);
        output.push(lua);
    }
    1
}
