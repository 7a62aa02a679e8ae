//! `redis.call` and `redis.pcall`: the hottest path of the server.
//!
//! Invariant: arguments are borrowed from Lua's stack, so they stay there until the host has
//! replied. The bridge state owns the reply while it is pushed, so an error meanwhile leaks
//! nothing. A command is recognised by the address of its name only while that name is kept alive.

use std::ffi::c_int;
use std::{ptr, slice};

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_State};

use super::bounds::stop;
use super::values::{push, push_bytes, push_error};
use super::{BridgeState, bridge};
use crate::lua_number::write_argument;
use crate::{CommandId, ShortReply, convert};

/// A number as text: `-1.2345678901234567e-300`, with some reserve.
const NUMBER_BYTES_MAX: usize = 32;
/// The usual number of arguments of a command.
const ARGUMENTS_USUAL: usize = 4;
/// The number of arguments of a command that need no allocation.
const ARGUMENTS_INLINE: usize = 16;

pub(super) unsafe extern "C-unwind" fn redis_call(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if command(lua) {
            ffi::lua_error(lua);
        }
    }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        command(lua);
    }
    1
}

/// Runs the command on the stack and pushes its reply. Returns whether that is an error. May raise.
unsafe fn command(lua: *mut lua_State) -> bool {
    // SAFETY: may raise, owns nothing; the reply and the values stay in the bridge state while they
    // are pushed.
    unsafe {
        let bridge = bridge(lua);
        match call_host(lua, bridge) {
            CallOutcome::Integer(number) => {
                ffi::lua_pushnumber(lua, number as f64);
                false
            }
            CallOutcome::Null if bridge.protocol.get() == Protocol::Resp3 => {
                ffi::lua_pushnil(lua);
                false
            }
            CallOutcome::Null => {
                ffi::lua_pushboolean(lua, 0);
                false
            }
            CallOutcome::Text => {
                match &*bridge.reply.get() {
                    Reply::Simple(text) => {
                        ffi::lua_createtable(lua, 0, 1);
                        push_bytes(lua, text);
                        ffi::lua_setfield(lua, -2, c"ok".as_ptr());
                    }
                    Reply::Bulk(text) => push_bytes(lua, text),
                    _ => ffi::lua_pushnil(lua),
                }
                bridge.set_reply(Reply::Null);
                false
            }
            CallOutcome::Value { failed } => {
                for value in &*bridge.values.get() {
                    push(lua, value);
                }
                bridge.set_values(Vec::new());
                failed
            }
            CallOutcome::Refused(text) => {
                push_error(lua, text);
                true
            }
            CallOutcome::Stop => stop(lua),
        }
    }
}

enum CallOutcome {
    /// An integer reply.
    Integer(i64),
    /// A null reply.
    Null,
    /// The reply in the bridge state is a string or a status.
    Text,
    /// The reply is the value in the bridge state.
    Value { failed: bool },
    /// The host was not called: the arguments are invalid.
    Refused(&'static str),
    /// The host panicked.
    Stop,
}

/// Runs the command whose words are the arguments on the stack. Never raises.
unsafe fn call_host(lua: *mut lua_State, bridge: &BridgeState) -> CallOutcome {
    // SAFETY: calls only functions that never raise; there are as many arguments.
    unsafe {
        match ffi::lua_gettop(lua) as usize {
            0 => {
                CallOutcome::Refused("Please specify at least one argument for this redis lib call")
            }
            count @ 1..=ARGUMENTS_USUAL => {
                call_host_with(lua, bridge, &mut [&[][..]; ARGUMENTS_USUAL][..count])
            }
            count => call_host_with_many(lua, bridge, count),
        }
    }
}

/// As [`call_host`], for an unusual number of words. Never raises.
#[inline(never)]
unsafe fn call_host_with_many(
    lua: *mut lua_State,
    bridge: &BridgeState,
    count: usize,
) -> CallOutcome {
    let (mut inline, mut allocated);
    let argv = if count <= ARGUMENTS_INLINE {
        inline = [&[][..]; ARGUMENTS_INLINE];
        &mut inline[..count]
    } else {
        allocated = vec![&[][..]; count];
        &mut allocated[..]
    };
    // SAFETY: never raises; there are as many arguments.
    unsafe { call_host_with(lua, bridge, argv) }
}

/// Runs the command whose words are on the stack; `argv` has room for as many words. Never raises.
#[inline(always)]
unsafe fn call_host_with(
    lua: *mut lua_State,
    bridge: &BridgeState,
    argv: &mut [&[u8]],
) -> CallOutcome {
    // SAFETY: the strings stay on the stack until this returns.
    if !unsafe { arguments(lua, bridge, argv) } {
        return CallOutcome::Refused("Lua redis lib command arguments must be strings or integers");
    }
    // SAFETY: as above.
    let command = unsafe { cached_command(lua, bridge, argv) };
    let mut place = Reply::Null;
    let reply = bridge.with_host(|host| match command {
        Some(command) => host.call_command(command, argv, &mut place),
        None => ShortReply::of(host.call(argv), &mut place),
    });
    let outcome = match reply {
        Some(ShortReply::Integer(number)) => CallOutcome::Integer(number),
        Some(ShortReply::Null) => CallOutcome::Null,
        Some(ShortReply::InPlace) => return keep(bridge, place),
        None => CallOutcome::Stop,
    };
    // The place owns nothing here that must be freed, which the compiler cannot see.
    std::mem::forget(place);
    outcome
}

/// Keeps a reply that is to be pushed. Never raises.
#[inline(never)]
fn keep(bridge: &BridgeState, reply: Reply) -> CallOutcome {
    match reply {
        Reply::Bulk(_) | Reply::Simple(_) => {
            bridge.set_reply(reply);
            CallOutcome::Text
        }
        reply => {
            let failed = reply.is_error();
            bridge.set_values(vec![convert::to_lua(reply, bridge.protocol.get())]);
            CallOutcome::Value { failed }
        }
    }
}

/// Borrows the arguments from the stack; numbers are written as text and borrowed from there.
/// Returns whether all are strings or numbers. Never raises.
#[inline(always)]
unsafe fn arguments(lua: *mut lua_State, bridge: &BridgeState, argv: &mut [&[u8]]) -> bool {
    // SAFETY: the arguments of the last command are no longer used.
    let digits = unsafe { &mut *bridge.digits.get() };
    digits.clear();
    // The buffer must not move while numbers are written.
    digits.reserve(argv.len() * NUMBER_BYTES_MAX);
    for (i, slot) in argv.iter_mut().enumerate() {
        let index = (i + 1) as c_int;
        // SAFETY: the string stays on the stack, and the written text until the next call.
        unsafe {
            match ffi::lua_type(lua, index) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let start = ffi::lua_tolstring(lua, index, &raw mut len);
                    *slot = slice::from_raw_parts(start.cast(), len);
                }
                ffi::LUA_TNUMBER => {
                    let start = digits.len();
                    write_argument(digits, ffi::lua_tonumber(lua, index));
                    *slot = slice::from_raw_parts(digits.as_ptr().add(start), digits.len() - start);
                }
                _ => return false,
            }
        }
    }
    true
}

/// A command that scripts call.
#[derive(Clone, Copy)]
pub(super) struct CachedCommand {
    /// The address of its name in Lua.
    name: *const u8,
    arguments: usize,
    command: CommandId,
}

impl CachedCommand {
    pub(super) const NONE: CachedCommand =
        CachedCommand { name: ptr::null(), arguments: 0, command: CommandId(u32::MAX) };
}

/// The number of commands that are cached at once.
pub(super) const CACHED_COMMANDS: usize = 32;

/// The slot of a command in the cache. It does not depend on addresses: the cache keeps names from
/// being collected, and the memory of Lua must be the same in each run with the same inputs.
#[inline(always)]
fn cache_slot(name: &[u8], arguments: usize) -> usize {
    let [first, .., last] = name else { return 0 };
    // These factors give the commands of lock scripts different slots.
    (usize::from(*first) + 2 * usize::from(*last) + 5 * name.len() + 2 * arguments)
        % CACHED_COMMANDS
}

/// Makes the table of the names of cached commands. May raise.
pub(super) unsafe fn make_names(lua: *mut lua_State, bridge: &BridgeState) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_createtable(lua, CACHED_COMMANDS as c_int, 0);
        for at in 1..=CACHED_COMMANDS {
            ffi::lua_pushboolean(lua, 0);
            ffi::lua_rawseti_(lua, -2, at as c_int);
        }
        bridge.names.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// The host's handle for the command that is first on the stack and in `argv`. Lua keeps one copy
/// of each string at one address while it is referenced. A table references the names of cached
/// commands, so no other string can be at their addresses. Never raises.
#[inline(always)]
unsafe fn cached_command(
    lua: *mut lua_State,
    bridge: &BridgeState,
    argv: &[&[u8]],
) -> Option<CommandId> {
    let (name, arguments) = (argv.first()?, argv.len());
    let place = cache_slot(name, arguments);
    let known = bridge.commands[place].get();
    if known.name == name.as_ptr() && known.arguments == arguments {
        return Some(known.command);
    }
    // SAFETY: never raises.
    unsafe { cache_command(lua, bridge, place, name, arguments) }
}

/// Looks up a command and caches it in its slot. Never raises.
#[cold]
unsafe fn cache_command(
    lua: *mut lua_State,
    bridge: &BridgeState,
    place: usize,
    name: &[u8],
    arguments: usize,
) -> Option<CommandId> {
    let command = bridge.with_host(|host| host.command(name, arguments))??;
    // SAFETY: a function has twenty slots beyond its arguments; nothing is allocated, because the
    // table has a value in each slot. The text of a number is not owned by Lua.
    unsafe {
        if ffi::lua_type(lua, 1) == ffi::LUA_TSTRING {
            ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, bridge.names.get());
            ffi::lua_pushvalue(lua, 1);
            ffi::lua_rawseti_(lua, -2, (place + 1) as c_int);
            ffi::lua_settop(lua, -2);
            bridge.commands[place].set(CachedCommand { name: name.as_ptr(), arguments, command });
        }
    }
    Some(command)
}
