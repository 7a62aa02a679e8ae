//! A string builder for functions that make long strings.

use std::ffi::c_int;
use std::{ptr, slice};

use mlua::ffi::{self, lua_State};

use super::bounds::work;
use super::values::push_bytes;

/// Bytes that are copied at once: as many as may be copied between two polls of the host.
const CHUNK_BYTES: usize = 16 << 10;

/// A string builder in memory of Lua: it counts against the limit, and the collector frees it
/// whatever error ends the function. It takes one slot of the stack.
pub(super) struct StringBuilder {
    index: c_int,
    start: *mut u8,
    len: usize,
    room: usize,
}

impl StringBuilder {
    /// Takes the next slot of the stack. May raise.
    pub(super) unsafe fn new(lua: *mut lua_State, room: usize) -> StringBuilder {
        // SAFETY: may raise, owns nothing; the block is on the stack for as long as the builder is
        // used.
        unsafe {
            let start = ffi::lua_newuserdata(lua, room).cast();
            StringBuilder { index: ffi::lua_gettop(lua), start, len: 0, room }
        }
    }

    /// Adds `text`. May raise.
    pub(super) unsafe fn add(&mut self, lua: *mut lua_State, text: &[u8]) {
        // SAFETY: there is room; `text` is not in the block.
        unsafe {
            self.make_room(lua, text.len());
            for chunk in text.chunks(CHUNK_BYTES) {
                work(lua, chunk.len());
                ptr::copy_nonoverlapping(chunk.as_ptr(), self.start.add(self.len), chunk.len());
                self.len += chunk.len();
            }
        }
    }

    /// Adds bytes one by one, `len` of them at most. May raise.
    pub(super) unsafe fn add_each(
        &mut self,
        lua: *mut lua_State,
        len: usize,
        bytes: impl Iterator<Item = u8>,
    ) {
        // SAFETY: there is room for these bytes.
        unsafe {
            self.make_room(lua, len);
            for (i, byte) in bytes.take(len).enumerate() {
                if i % CHUNK_BYTES == 0 {
                    work(lua, CHUNK_BYTES.min(len - i));
                }
                self.start.add(self.len).write(byte);
                self.len += 1;
            }
        }
    }

    /// Makes room for `len` more bytes. May raise.
    unsafe fn make_room(&mut self, lua: *mut lua_State, len: usize) {
        // SAFETY: may raise, owns nothing; the first `len` bytes have been written.
        unsafe {
            if self.len + len > self.room {
                let room = (self.len + len) * 2;
                let block: *mut u8 = ffi::lua_newuserdata(lua, room).cast();
                ptr::copy_nonoverlapping(self.start, block, self.len);
                ffi::lua_replace(lua, self.index);
                (self.start, self.room) = (block, room);
            }
        }
    }

    /// Pushes the string. May raise.
    pub(super) unsafe fn push(&self, lua: *mut lua_State) {
        // SAFETY: the first `len` bytes have been written.
        unsafe { push_bytes(lua, slice::from_raw_parts(self.start, self.len)) }
    }
}
