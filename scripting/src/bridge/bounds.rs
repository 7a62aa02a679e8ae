//! Limits a script's memory and time: Lua's allocator, and the hook that polls the host.
//!
//! Invariant: no block is allocated beyond the limit. Once a script must end, every function that
//! catches errors passes the end on by calling [`check_end`].

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi::{self, lua_Debug, lua_State};

use super::{BridgeState, COLLECTED_PER_STEP, RESERVE_BYTES, ScriptEnd, bridge};

/// Bytes of strings in one hash chain with which the hook's usual interval takes some milliseconds.
const CHAINED_BYTES: usize = 1 << 20;
/// Size of the largest block that is not counted as work: for such blocks, instructions are
/// counted.
const WORK_BLOCK_BYTES: usize = 4 << 10;

/// Lua's allocator. It counts, and refuses to grow beyond the limit.
pub(super) unsafe extern "C" fn allocate(
    bridge: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    const ALIGN: usize = 16;
    // SAFETY: Lua passes the user data given to `lua_newstate`, and a block that this function
    // returned with the size it was requested with; sizes are below `isize::MAX` by the limit.
    unsafe {
        let bridge = &*bridge.cast::<BridgeState>();
        let old = if block.is_null() { 0 } else { old };
        let used = bridge.memory_used.get() - old;
        let limit = bridge.memory_max.get() + bridge.reserve.get();
        if new > old && used.saturating_add(new) > limit {
            return ptr::null_mut();
        }
        let result = match (old, new) {
            (0, 0) => return ptr::null_mut(),
            (_, 0) => {
                dealloc(block.cast(), Layout::from_size_align_unchecked(old, ALIGN));
                ptr::null_mut()
            }
            (0, _) => alloc(Layout::from_size_align_unchecked(new, ALIGN)),
            _ => realloc(block.cast(), Layout::from_size_align_unchecked(old, ALIGN), new),
        };
        if new == 0 || !result.is_null() {
            bridge.memory_used.set(used + new);
        }
        if new > WORK_BLOCK_BYTES {
            bridge.large_bytes.set(bridge.large_bytes.get() + new);
            bridge.charge(new);
        }
        result.cast()
    }
}

pub(super) unsafe fn set_hook(lua: *mut lua_State, instructions: u32) {
    let count = c_int::try_from(instructions.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: setting a hook neither allocates nor raises.
    unsafe {
        ffi::lua_sethook(lua, Some(hook), ffi::LUA_MASKCOUNT, count);
    }
}

/// Polls the host. Coroutines inherit the hook from the coroutine that creates them.
unsafe extern "C-unwind" fn hook(lua: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: may raise, owns nothing; `with_host` lets no panic out.
    unsafe {
        let bridge = bridge(lua);
        set_hook(lua, instructions_per_poll(bridge));
        if !bridge.poll() {
            stop(lua);
        }
        let large_bytes = bridge.large_bytes.replace(0);
        if large_bytes > 0 && bridge.is_half_full() {
            keep_pace(lua, bridge, large_bytes);
        }
    }
}

/// Runs the collector in proportion to large blocks with this number of bytes. Lua's own pace
/// counts calls and not bytes: some large strings would take all memory before the first of them is
/// freed. May raise.
#[cold]
unsafe fn keep_pace(lua: *mut lua_State, bridge: &BridgeState, mut large_bytes: usize) {
    const STEP_KIB: c_int = (COLLECTED_PER_STEP >> 10) as c_int;
    // SAFETY: the collector may run wherever Lua code may; it has a reserve, so it raises nothing.
    unsafe {
        while large_bytes > 0 {
            bridge.reserve.set(RESERVE_BYTES);
            let is_cycle_done = ffi::lua_gc(lua, ffi::LUA_GCSTEP, STEP_KIB) != 0;
            bridge.reserve.set(0);
            if is_cycle_done {
                break;
            }
            large_bytes = large_bytes.saturating_sub(COLLECTED_PER_STEP);
            work(lua, COLLECTED_PER_STEP);
        }
    }
}

/// The number of instructions between two polls. It is smaller when more memory is used: Lua hashes
/// only a few bytes of a long string, so a script can have as many strings in one chain as memory
/// holds, and making one more walks them all.
fn instructions_per_poll(bridge: &BridgeState) -> u32 {
    if bridge.polls_every_instruction.get() {
        return 1;
    }
    let filled = u32::try_from(bridge.memory_used.get() / CHAINED_BYTES).unwrap_or(u32::MAX);
    bridge.limits.interrupt_instructions / filled.saturating_add(1)
}

/// Counts work that a function does, which is one instruction for the hook, and ends the script if
/// the host requires it. Called before each short piece of work. May raise.
#[inline]
pub(super) unsafe fn work(lua: *mut lua_State, amount: usize) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if !bridge(lua).work(amount) {
            stop(lua);
        }
    }
}

/// Ends the script. Our `pcall` does not catch this error, and if other code catches it, every
/// instruction polls again from here on. May raise.
#[cold]
pub(super) unsafe fn stop(lua: *mut lua_State) -> ! {
    // SAFETY: may raise, owns nothing.
    unsafe {
        set_hook(lua, 1);
        ffi::lua_pushnil(lua);
        ffi::lua_error(lua)
    }
}

/// Called after code that may have caught an error. Raises the end again if the script must end.
/// May raise.
pub(super) unsafe fn check_end(lua: *mut lua_State) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if bridge(lua).end.get() != ScriptEnd::None {
            stop(lua);
        }
    }
}
