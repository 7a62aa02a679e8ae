//! `redis.call` and `redis.pcall`: the product's hottest path.
//!
//! What must hold: arguments are borrowed from Lua's stack, so they stay there until the host has
//! answered; the reply is the context's while it is pushed, so an error meanwhile leaks nothing; a
//! command is known by the place of its name only while that name is kept there.

use std::ffi::c_int;
use std::{ptr, slice};

use lockwheel_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_State};

use super::bounds::stop;
use super::values::{push, push_bytes, push_error};
use super::{Context, context};
use crate::number::write_argument;
use crate::{CommandId, convert};

/// A number as text: `-1.2345678901234567e-300` and a few to spare.
const NUMBER_BYTES_MAX: usize = 32;
/// Arguments of nearly every command.
const ARGUMENTS_USUAL: usize = 4;
/// Arguments of a command that need no allocation.
const ARGUMENTS_INLINE: usize = 16;

pub(super) unsafe extern "C-unwind" fn redis_call(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        if command(lua) {
            ffi::lua_error(lua);
        }
    }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
    unsafe {
        command(lua);
    }
    1
}

/// Runs the command on the stack and pushes its reply; whether that is an error. Plain.
unsafe fn command(lua: *mut lua_State) -> bool {
    // SAFETY: plain; the reply and the values stay in the context while they are pushed.
    unsafe {
        let context = context(lua);
        match ask_host(lua, context) {
            Outcome::Integer(number) => {
                ffi::lua_pushnumber(lua, number as f64);
                false
            }
            Outcome::Null if context.protocol.get() == Protocol::Resp3 => {
                ffi::lua_pushnil(lua);
                false
            }
            Outcome::Null => {
                ffi::lua_pushboolean(lua, 0);
                false
            }
            Outcome::Text => {
                match &*context.reply.get() {
                    Reply::Simple(text) => {
                        ffi::lua_createtable(lua, 0, 1);
                        push_bytes(lua, text);
                        ffi::lua_setfield(lua, -2, c"ok".as_ptr());
                    }
                    Reply::Bulk(text) => push_bytes(lua, text),
                    _ => ffi::lua_pushnil(lua),
                }
                context.set_reply(Reply::Null);
                false
            }
            Outcome::Value { failed } => {
                for value in &*context.values.get() {
                    push(lua, value);
                }
                context.set_values(Vec::new());
                failed
            }
            Outcome::Refused(text) => {
                push_error(lua, text);
                true
            }
            Outcome::Stop => stop(lua),
        }
    }
}

enum Outcome {
    /// The reply is this number.
    Integer(i64),
    /// The reply is no value.
    Null,
    /// The context's reply is a string or a status.
    Text,
    /// The context's value is the reply.
    Value { failed: bool },
    /// There was nothing to ask the host.
    Refused(&'static str),
    /// The host panicked.
    Stop,
}

/// Quiet.
unsafe fn ask_host(lua: *mut lua_State, context: &Context) -> Outcome {
    // SAFETY: quiet, all of it; there are as many arguments.
    unsafe {
        match ffi::lua_gettop(lua) as usize {
            0 => Outcome::Refused("Please specify at least one argument for this redis lib call"),
            count @ 1..=ARGUMENTS_USUAL => {
                ask_with(lua, context, &mut [&[][..]; ARGUMENTS_USUAL][..count])
            }
            count => ask_with_many(lua, context, count),
        }
    }
}

/// Quiet.
#[inline(never)]
unsafe fn ask_with_many(lua: *mut lua_State, context: &Context, count: usize) -> Outcome {
    let (mut inline, mut allocated);
    let argv = if count <= ARGUMENTS_INLINE {
        inline = [&[][..]; ARGUMENTS_INLINE];
        &mut inline[..count]
    } else {
        allocated = vec![&[][..]; count];
        &mut allocated[..]
    };
    // SAFETY: quiet; there are as many arguments.
    unsafe { ask_with(lua, context, argv) }
}

/// With room for as many arguments as there are on the stack. Quiet.
#[inline(always)]
unsafe fn ask_with(lua: *mut lua_State, context: &Context, argv: &mut [&[u8]]) -> Outcome {
    // SAFETY: the strings stay on the stack until this returns.
    if !unsafe { arguments(lua, context, argv) } {
        return Outcome::Refused("Lua redis lib command arguments must be strings or integers");
    }
    // SAFETY: as above.
    let command = unsafe { known_command(lua, context, argv) };
    let reply = context.with_host(|host| match command {
        Some(command) => host.call_command(command, argv),
        None => host.call(argv),
    });
    let outcome = match &reply {
        Some(Reply::Integer(number)) => Outcome::Integer(*number),
        Some(Reply::Null) => Outcome::Null,
        _ => return keep(context, reply),
    };
    // There is nothing in it to be freed, which is not seen from here.
    std::mem::forget(reply);
    outcome
}

/// Keeps a reply that is to be pushed. Quiet.
#[inline(never)]
fn keep(context: &Context, reply: Option<Reply>) -> Outcome {
    match reply {
        None => Outcome::Stop,
        Some(reply @ (Reply::Bulk(_) | Reply::Simple(_))) => {
            context.set_reply(reply);
            Outcome::Text
        }
        Some(reply) => {
            let failed = reply.is_error();
            context.set_values(vec![convert::to_lua(reply, context.protocol.get())]);
            Outcome::Value { failed }
        }
    }
}

/// Borrows the arguments from the stack, and numbers from where they are written as text. Whether
/// all are strings or numbers. Quiet.
#[inline(always)]
unsafe fn arguments(lua: *mut lua_State, context: &Context, argv: &mut [&[u8]]) -> bool {
    // SAFETY: what the last command was called with is not used any longer.
    let digits = unsafe { &mut *context.digits.get() };
    digits.clear();
    // So that what is written stays where it is.
    digits.reserve(argv.len() * NUMBER_BYTES_MAX);
    for (i, slot) in argv.iter_mut().enumerate() {
        let index = (i + 1) as c_int;
        // SAFETY: the string stays on the stack, and what is written until the next call.
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
pub(super) struct Known {
    /// Where Lua keeps its name.
    name: *const u8,
    arguments: usize,
    command: CommandId,
}

impl Known {
    pub(super) const NONE: Known =
        Known { name: ptr::null(), arguments: 0, command: CommandId(u32::MAX) };
}

/// How many commands are known at once, each in the place that follows from its name's.
pub(super) const KNOWN_COMMANDS: usize = 32;
/// Two strings are not nearer to each other.
const STRING_BYTES_MIN: usize = 32;

/// Makes room for the names of known commands. Plain.
pub(super) unsafe fn make_names(lua: *mut lua_State, context: &Context) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_createtable(lua, KNOWN_COMMANDS as c_int, 0);
        for at in 1..=KNOWN_COMMANDS {
            ffi::lua_pushboolean(lua, 0);
            ffi::lua_rawseti_(lua, -2, at as c_int);
        }
        context.names.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// What the host calls the command that is first on the stack, and in `argv`. Lua keeps each string
/// once, in one place, for as long as somebody holds it: a table holds the names of known commands,
/// so no other string comes to be where they are. Quiet.
#[inline(always)]
unsafe fn known_command(
    lua: *mut lua_State,
    context: &Context,
    argv: &[&[u8]],
) -> Option<CommandId> {
    let (name, arguments) = (argv.first()?, argv.len());
    let place = name.as_ptr().addr() / STRING_BYTES_MIN % KNOWN_COMMANDS;
    let known = context.commands[place].get();
    if known.name == name.as_ptr() && known.arguments == arguments {
        return Some(known.command);
    }
    // SAFETY: quiet.
    unsafe { learn_command(lua, context, place, name, arguments) }
}

/// Looks a command up, and keeps it in its place. Quiet.
#[cold]
unsafe fn learn_command(
    lua: *mut lua_State,
    context: &Context,
    place: usize,
    name: &[u8],
    arguments: usize,
) -> Option<CommandId> {
    let command = context.with_host(|host| host.command(name, arguments))??;
    // SAFETY: a function has twenty slots beyond its arguments; nothing is allocated, for the table
    // has a value in each place. A number's text is not Lua's to keep.
    unsafe {
        if ffi::lua_type(lua, 1) == ffi::LUA_TSTRING {
            ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, context.names.get());
            ffi::lua_pushvalue(lua, 1);
            ffi::lua_rawseti_(lua, -2, (place + 1) as c_int);
            ffi::lua_settop(lua, -2);
            context.commands[place].set(Known { name: name.as_ptr(), arguments, command });
        }
    }
    Some(command)
}
