//! `redis.call` and `redis.pcall`: the product's hottest path.
//!
//! What must hold: arguments are borrowed from Lua's stack, so they stay there until the host has
//! answered; the reply is the context's while it is pushed, so an error meanwhile leaks nothing.

use std::ffi::c_int;
use std::slice;

use leasehold_resp::{Protocol, Reply};
use mlua::ffi::{self, lua_State};

use super::bounds::stop;
use super::values::{push, push_bytes, push_error};
use super::{Context, context};
use crate::convert;
use crate::number::write_argument;

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
        let outcome = ask_host(lua, context);
        ffi::lua_settop(lua, 0);
        match outcome {
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
            count @ ..=ARGUMENTS_INLINE => {
                ask_with(lua, context, &mut [&[][..]; ARGUMENTS_INLINE][..count])
            }
            count => ask_with(lua, context, &mut vec![&[][..]; count]),
        }
    }
}

/// With room for as many arguments as there are on the stack. Quiet.
unsafe fn ask_with(lua: *mut lua_State, context: &Context, argv: &mut [&[u8]]) -> Outcome {
    let mut digits = None;
    // SAFETY: the strings stay on the stack until `command` drops them, after this returns;
    // `digits` outlives the use of `argv` below.
    let complete = unsafe { arguments(lua, context, argv, &mut digits) };
    let reply = if complete { context.with_host(|host| host.call(argv)) } else { None };
    if let Some(digits) = digits {
        context.digits.set(digits);
    }
    match reply {
        _ if !complete => {
            Outcome::Refused("Lua redis lib command arguments must be strings or integers")
        }
        None => Outcome::Stop,
        Some(Reply::Integer(number)) => Outcome::Integer(number),
        Some(Reply::Null) => Outcome::Null,
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

/// Borrows the arguments from the stack; numbers are written to `digits`. Whether all are strings
/// or numbers. Quiet.
unsafe fn arguments(
    lua: *mut lua_State,
    context: &Context,
    argv: &mut [&[u8]],
    digits: &mut Option<Vec<u8>>,
) -> bool {
    let count = argv.len();
    for (i, slot) in argv.iter_mut().enumerate() {
        let index = (i + 1) as c_int;
        // SAFETY: the string stays on the stack; `digits` never moves: its room is for all.
        unsafe {
            match ffi::lua_type(lua, index) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let start = ffi::lua_tolstring(lua, index, &raw mut len);
                    *slot = slice::from_raw_parts(start.cast(), len);
                }
                ffi::LUA_TNUMBER => {
                    let digits = digits.get_or_insert_with(|| room(context, count));
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

/// Room for so many numbers as text.
fn room(context: &Context, count: usize) -> Vec<u8> {
    let mut digits = context.digits.take();
    digits.clear();
    digits.reserve(count * NUMBER_BYTES_MAX);
    digits
}
