//! What bounds a script's memory and time: Lua's allocator, and the hook that asks the host whether
//! to go on.
//!
//! What must hold: no block is given beyond the limit, and once a script must end, nothing that
//! catches errors keeps its end from it: whoever catches one calls [`check_end`].

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi::{self, lua_Debug, lua_State};

use super::{COLLECTED_TOGETHER, Context, End, RESERVE_BYTES, context};

/// Strings of so many bytes in one chain make the hook's usual interval last some milliseconds.
const CHAINED_BYTES: usize = 1 << 20;
/// Smaller blocks are not counted: instructions are.
const WORK_BLOCK_BYTES: usize = 4 << 10;

/// Lua's allocator: counts, and refuses to grow beyond the limit.
pub(super) unsafe extern "C" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    const ALIGN: usize = 16;
    // SAFETY: Lua passes the user data given to `lua_newstate`, and a block that came from here
    // with the size it was asked for; sizes are below `isize::MAX` by the limit.
    unsafe {
        let context = &*context.cast::<Context>();
        let old = if block.is_null() { 0 } else { old };
        let used = context.memory_used.get() - old;
        let limit = context.memory_max.get() + context.reserve.get();
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
            context.memory_used.set(used + new);
        }
        if new > WORK_BLOCK_BYTES {
            context.large_bytes.set(context.large_bytes.get() + new);
            context.charge(new);
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

/// Asks the host whether to go on. Coroutines inherit it from whoever creates them.
unsafe extern "C-unwind" fn hook(lua: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: plain; `with_host` lets no panic out.
    unsafe {
        let context = context(lua);
        set_hook(lua, instructions_per_question(context));
        if !context.ask() {
            stop(lua);
        }
        let large_bytes = context.large_bytes.replace(0);
        if large_bytes > 0 && context.is_half_full() {
            keep_pace(lua, context, large_bytes);
        }
    }
}

/// Has the collector do as much as blocks of so many bytes are worth. Lua's own pace counts calls
/// and not bytes: some large strings would take all memory before the first of them is freed.
/// Plain.
#[cold]
unsafe fn keep_pace(lua: *mut lua_State, context: &Context, mut large_bytes: usize) {
    const STEP_KIB: c_int = (COLLECTED_TOGETHER >> 10) as c_int;
    // SAFETY: the collector may run wherever Lua code may; it has a reserve, so it raises nothing.
    unsafe {
        while large_bytes > 0 {
            context.reserve.set(RESERVE_BYTES);
            let is_cycle_done = ffi::lua_gc(lua, ffi::LUA_GCSTEP, STEP_KIB) != 0;
            context.reserve.set(0);
            if is_cycle_done {
                break;
            }
            large_bytes = large_bytes.saturating_sub(COLLECTED_TOGETHER);
            work(lua, COLLECTED_TOGETHER);
        }
    }
}

/// The fuller the memory, the fewer: Lua hashes a few bytes of a long string only, so a script can
/// have as many strings in one chain as memory holds, and making one more walks them all.
fn instructions_per_question(context: &Context) -> u32 {
    if context.asks_at_once.get() {
        return 1;
    }
    let filled = u32::try_from(context.memory_used.get() / CHAINED_BYTES).unwrap_or(u32::MAX);
    context.limits.interrupt_instructions / filled.saturating_add(1)
}

/// Counts work that a function does, which is one instruction for the hook, and ends the script if
/// the host says so. Called before each piece of work that is not long. Plain.
#[inline]
pub(super) unsafe fn work(lua: *mut lua_State, amount: usize) {
    // SAFETY: plain.
    unsafe {
        if !context(lua).work(amount) {
            stop(lua);
        }
    }
}

/// Ends the script. No `pcall` of ours holds this error, and every instruction asks again from here
/// on, should anything else swallow it. Plain.
#[cold]
pub(super) unsafe fn stop(lua: *mut lua_State) -> ! {
    // SAFETY: plain.
    unsafe {
        set_hook(lua, 1);
        ffi::lua_pushnil(lua);
        ffi::lua_error(lua)
    }
}

/// For whatever may have caught an error: hands it on if the script must end. Plain.
pub(super) unsafe fn check_end(lua: *mut lua_State) {
    // SAFETY: plain.
    unsafe {
        if context(lua).end.get() != End::None {
            stop(lua);
        }
    }
}
