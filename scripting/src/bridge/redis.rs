//! The functions of `redis` other than `call` and `pcall`.
//!
//! Invariant: errors in arguments are raised before the host is called, because the functions that
//! raise own nothing.

use std::ffi::{CStr, c_int};
use std::ptr;

use bytes::Bytes;
use lockwheel_resp::Protocol;
use mlua::ffi::{self, lua_State};

use super::bounds::{stop, work};
use super::bridge;
use super::values::{bytes, push, push_bytes, push_error, raise_error};
use crate::script::Digester;
use crate::value::Value;
use crate::{LogLevel, convert};

pub(super) unsafe extern "C-unwind" fn redis_error_reply(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { single_field(lua, c"err", convert::error_reply) }
}

pub(super) unsafe extern "C-unwind" fn redis_status_reply(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { single_field(lua, c"ok", Bytes::copy_from_slice) }
}

/// Pushes a table with one field, from the text at 1. May raise.
unsafe fn single_field(lua: *mut lua_State, name: &CStr, f: fn(&[u8]) -> Bytes) -> c_int {
    // SAFETY: may raise, owns nothing; the text is kept in the bridge state while it is pushed.
    unsafe {
        if ffi::lua_gettop(lua) != 1 || ffi::lua_type(lua, 1) != ffi::LUA_TSTRING {
            push_error(lua, "wrong number or type of arguments");
            return 1;
        }
        work(lua, bytes(lua, 1).len());
        let bridge = bridge(lua);
        bridge.set_values(vec![Value::Bytes(f(bytes(lua, 1)))]);
        ffi::lua_createtable(lua, 0, 1);
        for value in &*bridge.values.get() {
            push(lua, value);
        }
        ffi::lua_setfield(lua, -2, name.as_ptr());
    }
    1
}

/// Bytes that are hashed at once, and the work of each.
const CHUNK_BYTES: usize = 4 << 10;
const DIGEST_WORK_PER_BYTE: usize = 3;

pub(super) unsafe extern "C-unwind" fn redis_sha1hex(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the digest is on the stack frame and has no destructor.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "wrong number of arguments");
        }
        ffi::lua_tolstring(lua, 1, ptr::null_mut());
        let mut digest = Digester::default();
        for chunk in bytes(lua, 1).chunks(CHUNK_BYTES) {
            work(lua, chunk.len() * DIGEST_WORK_PER_BYTE);
            digest.add(chunk);
        }
        let sha = digest.end();
        push_bytes(lua, sha.as_bytes());
    }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_log(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let count = ffi::lua_gettop(lua);
        if count < 2 {
            raise_error(lua, "redis.log() requires two arguments or more.");
        }
        if ffi::lua_isnumber(lua, 1) == 0 {
            raise_error(lua, "First argument must be a number (log level).");
        }
        let level = match convert::truncate(ffi::lua_tonumber(lua, 1)) {
            0 => LogLevel::Debug,
            1 => LogLevel::Verbose,
            2 => LogLevel::Notice,
            3 => LogLevel::Warning,
            _ => raise_error(lua, "Invalid log level."),
        };
        for i in 2..=count {
            ffi::lua_tolstring(lua, i, ptr::null_mut());
        }
        if !log(lua, count, level) {
            stop(lua);
        }
    }
    0
}

/// Passes a message to the host. Returns whether to go on. Never raises.
unsafe fn log(lua: *mut lua_State, count: c_int, level: LogLevel) -> bool {
    // SAFETY: the strings are on the stack; a value that is no string has no bytes.
    unsafe {
        let words: Vec<&[u8]> = (2..=count)
            .filter(|i| ffi::lua_type(lua, *i) == ffi::LUA_TSTRING)
            .map(|i| bytes(lua, i))
            .collect();
        let message = words.join(&b' ');
        bridge(lua).with_host(|host| host.log(level, &message)).is_some()
    }
}

pub(super) unsafe extern "C-unwind" fn redis_setresp(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "redis.setresp() requires one argument.");
        }
        let protocol = match convert::truncate(ffi::lua_tonumber(lua, 1)) {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => raise_error(lua, "RESP version must be 2 or 3."),
        };
        let bridge = bridge(lua);
        bridge.protocol.set(protocol);
        if bridge.with_host(|host| host.set_protocol(protocol)).is_none() {
            stop(lua);
        }
    }
    0
}

pub(super) unsafe extern "C-unwind" fn redis_replicate_commands(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { ffi::lua_pushboolean(lua, 1) }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_set_repl(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            raise_error(lua, "redis.set_repl() requires one argument.");
        }
        if !(0..4).contains(&(convert::truncate(ffi::lua_tonumber(lua, 1)))) {
            raise_error(
                lua,
                "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
            );
        }
    }
    0
}

pub(super) unsafe extern "C-unwind" fn redis_breakpoint(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { ffi::lua_pushboolean(lua, 0) }
    1
}

pub(super) unsafe extern "C-unwind" fn redis_debug(_: *mut lua_State) -> c_int {
    0
}

/// Whether the caller may run a command: a script runs with the caller's permissions.
pub(super) unsafe extern "C-unwind" fn redis_acl_check_cmd(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let count = ffi::lua_gettop(lua);
        if count == 0 {
            raise_error(lua, "Please specify at least one argument for this redis lib call");
        }
        for i in 1..=count {
            if ffi::lua_isstring(lua, i) == 0 {
                raise_error(lua, "Lua redis lib command arguments must be strings or integers");
            }
            ffi::lua_tolstring(lua, i, ptr::null_mut());
        }
        match is_permitted(lua, count) {
            Some(Some(permitted)) => ffi::lua_pushboolean(lua, c_int::from(permitted)),
            Some(None) => raise_error(lua, "Invalid command passed to redis.acl_check_cmd()"),
            None => stop(lua),
        }
    }
    1
}

/// Whether the host permits the command whose words are at 1 to `count`. Never raises.
unsafe fn is_permitted(lua: *mut lua_State, count: c_int) -> Option<Option<bool>> {
    // SAFETY: the words are strings on the stack.
    unsafe {
        let words: Vec<&[u8]> = (1..=count).map(|at| bytes(lua, at)).collect();
        bridge(lua).with_host(|host| host.is_permitted(&words))
    }
}
